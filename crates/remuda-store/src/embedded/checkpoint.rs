//! The thread that writes checkpoints.
//!
//! A checkpoint is the exact state at the revision before the first one of a segment: the writer
//! begins that segment and pins the state, this thread copies it chunk by chunk while writes go
//! on, and when the file is complete and durable everything older is removed. Recovery is the
//! checkpoint and then the log from that segment on; at every moment of this a complete pair of
//! the two exists.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering, mpsc},
};

use tokio::sync::oneshot;

use super::{Options, Shared, files, snapshot};
use crate::mvcc::{Mvcc, Pin};

pub(super) struct Job {
    pub(super) pin: Pin,
    pub(super) answer: Option<oneshot::Sender<Result<(), String>>>,
}

pub(super) struct Checkpointer {
    pub(super) dir: PathBuf,
    pub(super) options: Options,
    pub(super) mvcc: Arc<Mvcc>,
    pub(super) shared: Arc<Shared>,
    pub(super) jobs: mpsc::Receiver<Job>,
}

impl Checkpointer {
    pub(super) fn run(self) {
        while let Ok(Job { pin, answer }) = self.jobs.recv() {
            let result = self.checkpoint(&pin);
            self.shared.checkpointing.store(false, Ordering::Release);
            if let Err(error) = &result
                && !self.shared.abort.load(Ordering::Relaxed)
            {
                tracing::warn!(%error, revision = pin.revision, "a checkpoint failed; the log is kept");
            }
            drop(pin);
            if let Some(answer) = answer {
                let _ = answer.send(result);
            }
        }
    }

    fn checkpoint(&self, pin: &Pin) -> Result<(), String> {
        let path = files::checkpoint_path(&self.dir, pin.revision);
        let (disk, sealing) = (&*self.options.disk, self.options.sealing.as_ref());
        let size = snapshot::write(&path, &self.mvcc, pin, disk, sealing, &self.shared.abort)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        self.shared.checkpoint_bytes.store(size, Ordering::Relaxed);
        tracing::debug!(revision = pin.revision, size, "checkpoint written");
        files::remove_before(&self.dir, pin.revision).map_err(|error| error.to_string())
    }
}
