//! What every engine does.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::{At, Error, ListQuery, Page, Record, Revision, Scope, Watch, Write};

/// A read under way.
pub type Reading<'a, T> = BoxFuture<'a, Result<At<T>, Error>>;

/// The store. Engines differ in where a write becomes durable; reads and watches are served
/// from memory and are linearizable unless said otherwise.
pub trait Store: Send + Sync + 'static {
    fn get<'a>(&'a self, key: &'a str) -> Reading<'a, Option<Arc<Record>>>;

    /// Several keys at one revision.
    fn get_many<'a>(
        &'a self,
        keys: &'a [String],
        at: Option<Revision>,
    ) -> Reading<'a, Vec<Option<Arc<Record>>>>;

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<Page, Error>>;

    /// Returns the record as stored; for a delete, its final state.
    fn write(&self, write: Write) -> BoxFuture<'_, Result<Arc<Record>, Error>>;

    /// Every event of the scope with a revision greater than `after`, in order, without gap.
    /// Registration and the look into history are one step.
    ///
    /// Fails with [`Error::Compacted`] if events after `after` are gone, and with
    /// [`Error::Future`] if this process has not seen `after` yet (see [`Store::wait_for`]).
    fn watch(&self, scope: Scope, after: Revision) -> Result<Watch, Error>;

    /// The newest revision, as of now for every writer.
    fn current(&self) -> BoxFuture<'_, Result<Revision, Error>>;

    /// The newest revision this process has seen. Never blocks.
    fn observed(&self) -> Revision;

    /// Waits until `observed()` is at least `revision` (bounded by the caller's timeout).
    fn wait_for(&self, revision: Revision) -> BoxFuture<'_, ()>;

    /// Forgets history before `revision`. What is current stays, and so does the state at
    /// `revision` itself.
    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>>;

    fn health(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Stops taking writes, flushes, ends watches. Idempotent.
    fn close(&self) -> BoxFuture<'_, ()>;
}
