//! The controller kit: what every controller shares, as functions to call.
//!
//! A controller names its root kind and which other kinds wake it ([`Controller`]), and hands a
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
pub mod queue;
mod together;
mod wait;
pub mod wake;
pub mod write;

pub use self::{
    ctx::Ctx,
    drive::{Controller, DEBOUNCE, Next, Waker, drive, drive_keys, owner_of, via_index},
    error::{Chain, Error, Retry, Retryable},
    first::first_of,
    informer::{Informer, Informers, Scope},
    key::{Kind, ObjectKey},
    metrics::Metrics,
    together::{Named, together},
    wait::wait_for,
};
