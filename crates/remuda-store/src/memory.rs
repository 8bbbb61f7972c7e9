//! The engine that forgets: for tests and for what need not survive.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;

use crate::{
    DEFAULT_VALUE_LIMIT, Error, ListQuery, Page, Policy, Reading, Record, Revision, Scope, Store, Watch,
    Write, mvcc::Mvcc,
};

/// A store in memory only.
pub struct Memory {
    mvcc: Arc<Mvcc>,
    /// Whoever holds it is the writer.
    writer: Mutex<()>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Policy::default())
    }
}

impl Memory {
    pub fn new(policy: Policy) -> Self {
        Self { mvcc: Mvcc::new(policy), writer: Mutex::default() }
    }

    fn write_now(&self, write: &Write) -> Result<Arc<Record>, Error> {
        write.check_size(DEFAULT_VALUE_LIMIT)?;
        let _writer = self.writer.lock();
        if self.mvcc.is_closed() {
            return Err(Error::Closed);
        }
        let current = self.mvcc.newest(write.key());
        let revision = self.mvcc.published() + 1;
        let event = write.event(current.as_ref(), revision)?;
        let record = event.record.clone();
        self.mvcc.commit(&[event], revision);
        Ok(record)
    }
}

impl Store for Memory {
    fn get<'a>(&'a self, key: &'a str) -> Reading<'a, Option<Arc<Record>>> {
        async { self.mvcc.get(key) }.boxed()
    }

    fn get_many<'a>(
        &'a self,
        keys: &'a [String],
        at: Option<Revision>,
    ) -> Reading<'a, Vec<Option<Arc<Record>>>> {
        async move { self.mvcc.get_many(keys, at) }.boxed()
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<Page, Error>> {
        async move { self.mvcc.list(&query) }.boxed()
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Arc<Record>, Error>> {
        async move { self.write_now(&write) }.boxed()
    }

    fn watch(&self, scope: Scope, after: Revision) -> Result<Watch, Error> {
        Watch::new(&self.mvcc, scope, after)
    }

    fn current(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        async { Ok(self.mvcc.published()) }.boxed()
    }

    fn observed(&self) -> Revision {
        self.mvcc.published()
    }

    fn wait_for(&self, revision: Revision) -> BoxFuture<'_, ()> {
        self.mvcc.wait_for(revision).boxed()
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>> {
        async move { self.mvcc.compact(revision) }.boxed()
    }

    fn health(&self) -> BoxFuture<'_, Result<(), Error>> {
        async { if self.mvcc.is_closed() { Err(Error::Closed) } else { Ok(()) } }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {
            let _writer = self.writer.lock();
            self.mvcc.close();
        }
        .boxed()
    }
}
