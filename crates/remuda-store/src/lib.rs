//! MVCC key-value store with one global revision, conditional writes and watches.
//!
//! Keys are UTF-8 paths `/<group>/<resource>/…`; the first two segments are the key's
//! *collection*, the unit in which history is kept and watchers are woken. Values are opaque
//! bytes with at most one *slot*: a place where the store writes the revision it assigns, in
//! decimal, so that readers and watchers share finished bytes.
//!
//! Every successful write takes the next revision. Revisions are strictly increasing for the
//! life of the data: across restart, compaction and restore. A write is acknowledged only when
//! it is durable (as far as the engine is) and visible to reads and watches.
//!
//! All engines answer reads and watches from the same in-memory state (`mvcc`); they differ in
//! where a write becomes durable: [`Memory`] nowhere, [`Embedded`] in its own log, [`Etcd`] in etcd.

mod bell;
mod embedded;
mod etcd;
mod frames;
mod memory;
mod model;
mod mvcc;
mod seal;
mod store;
mod watch;

pub use embedded::{Disk, DiskUsage, Embedded, LeftOut, OpenError, Options, RESTORE_MARGIN, RealDisk};
pub use etcd::{Etcd, EtcdError, EtcdOptions, EtcdTls, Shared};
pub use frames::Frames;
pub use memory::Memory;
pub use model::{
    At, Change, Error, Event, ListQuery, Page, Record, Revision, Scope, Template, WatchEnd, Write,
};
pub use mvcc::Policy;
pub use seal::{Keyring, SealError, Sealing};
pub use store::{Reading, Store};
pub use watch::Watch;

/// The largest value taken unless configured otherwise.
pub const DEFAULT_VALUE_LIMIT: usize = 2 << 20;
