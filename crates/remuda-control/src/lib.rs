//! The controller kit: what every controller shares, as functions to call.
//!
//! A controller names its root kind and the kinds it watches ([`Controller`]), and hands a
//! reconcile function to [`drive`]. Watches and caches are shared between controllers
//! ([`informer`]), keys wait in a [`queue`], and what a reconcile writes goes through [`write`].
//! Everything speaks to the API through a `kube::Client`, so the same controllers run on the
//! embedded API server and on a real cluster.

pub mod bounded;
pub mod clock;
mod ctx;
mod drive;
mod error;
pub mod events;
mod first;
pub mod informer;
mod key;
pub mod leases;
mod metrics;
mod run_all;
mod wait;
pub mod write;

pub use remuda_coordination::queue;

pub use self::{
    ctx::Ctx,
    drive::{Action, Controller, DEBOUNCE, Enqueuer, drive, drive_keys, owner_of, via_index},
    error::{Chain, Error, Retry, Retryable},
    first::first_of,
    informer::{Informer, Informers, Scope},
    key::{Kind, ObjectKey},
    metrics::Metrics,
    run_all::{Named, run_all},
    wait::wait_for,
};
