//! Containers that run now, for those who come to them from outside.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{log::Log, pty::Pty};

/// One life of a container's process.
pub struct Instance {
    /// `None` for containers that do nothing.
    pub pid: Option<u32>,
    /// What its commands find around them.
    pub env: BTreeMap<String, String>,
    pub dir: Option<PathBuf>,
    pub log: Arc<Log>,
    /// The way to its standard input, if it has one.
    pub stdin: Mutex<Option<mpsc::Sender<Bytes>>>,
    /// Its input ends with the first who was attached.
    pub stdin_once: bool,
    pub terminal: Option<Arc<Pty>>,
    /// Cancelled when the process has ended.
    pub ended: CancellationToken,
}

/// Pods' uid and containers' names.
type Key = (String, String);

/// All of a node.
#[derive(Default)]
pub struct Live(Mutex<HashMap<Key, Arc<Instance>>>);

/// Takes a container off the list when dropped.
pub struct Entry<'a> {
    live: &'a Live,
    key: Key,
    instance: Arc<Instance>,
}

impl Live {
    pub fn enter(&self, uid: &str, container: &str, instance: Instance) -> Entry<'_> {
        let (key, instance) = ((uid.to_owned(), container.to_owned()), Arc::new(instance));
        self.0.lock().insert(key.clone(), instance.clone());
        Entry { live: self, key, instance }
    }

    pub fn get(&self, uid: &str, container: &str) -> Option<Arc<Instance>> {
        self.0.lock().get(&(uid.to_owned(), container.to_owned())).cloned()
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.instance.ended.cancel();
        // Whoever is still attached must not keep the input open.
        self.instance.stdin.lock().take();
        let mut live = self.live.0.lock();
        if live.get(&self.key).is_some_and(|known| Arc::ptr_eq(known, &self.instance)) {
            live.remove(&self.key);
        }
    }
}
