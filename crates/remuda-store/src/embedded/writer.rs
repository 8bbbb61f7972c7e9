//! The one thread that writes the log.
//!
//! It takes whatever has queued up while the last batch was being synced, so the number of
//! writes per sync grows with the load by itself.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, atomic::Ordering, mpsc},
    thread::JoinHandle,
};

use tokio::sync::oneshot;

use super::{
    Options, Shared,
    checkpoint::Job,
    files::Lock,
    format::{Kind, begin_frame, finish_frame, put_event},
    mark::Mark,
    wal::{Failure, Segment},
};
use crate::{Error, Event, Record, Revision, Write, mvcc::Mvcc};

const BATCH_WRITES: usize = 512;
const BATCH_BYTES: usize = 4 << 20;
/// A buffer grown by a burst of large values is given back.
const KEEP_BUFFER: usize = 16 << 20;

type Answer = oneshot::Sender<Result<Arc<Record>, Error>>;

pub(super) enum Command {
    Write(Write, Answer),
    Checkpoint(oneshot::Sender<Result<(), String>>),
    Probe(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
}

pub(super) struct Writer {
    pub(super) dir: PathBuf,
    pub(super) options: Options,
    pub(super) mvcc: Arc<Mvcc>,
    pub(super) shared: Arc<Shared>,
    pub(super) segment: Segment,
    pub(super) mark: Mark,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) jobs: mpsc::Sender<Job>,
    pub(super) checkpointer: JoinHandle<()>,
    /// Released when this thread ends.
    pub(super) lock: Lock,
    pub(super) buffer: Vec<u8>,
}

/// A write that will happen if the log takes it.
struct Pending {
    event: Arc<Event>,
    answer: Answer,
}

#[derive(Default)]
struct Batch {
    pending: Vec<Pending>,
    /// States of the keys the batch has touched so far.
    overlay: HashMap<Arc<str>, Option<Arc<Record>>>,
    /// Refusals because of something earlier in the batch.
    refused: Vec<(Error, Answer)>,
    bytes: usize,
}

impl Writer {
    pub(super) fn run(mut self) {
        let mut batch = Batch::default();
        let mut closed = None;
        while closed.is_none() {
            let Ok(mut command) = self.commands.recv() else { break };
            // What cannot be part of a batch waits until the batch is written.
            let after = loop {
                match command {
                    Command::Write(write, answer) => self.stage(&mut batch, &write, answer),
                    other => break Some(other),
                }
                if batch.pending.len() >= BATCH_WRITES || batch.bytes >= BATCH_BYTES {
                    break None;
                }
                match self.commands.try_recv() {
                    Ok(next) => command = next,
                    Err(_) => break None,
                }
            };
            self.flush(&mut batch);
            match after {
                Some(Command::Checkpoint(answer)) => self.checkpoint(Some(answer)),
                Some(Command::Probe(answer)) => {
                    self.probe();
                    let _ = answer.send(());
                }
                Some(Command::Close(answer)) => closed = Some(answer),
                Some(Command::Write(..)) | None => {}
            }
        }
        self.stop(closed);
    }

    fn stop(self, closed: Option<oneshot::Sender<()>>) {
        let Self { mvcc, shared, segment, mut mark, commands, jobs, checkpointer, lock, .. } = self;
        shared.abort.store(true, Ordering::Relaxed);
        drop(jobs);
        if checkpointer.join().is_err() {
            tracing::error!("the checkpoint thread panicked");
        }
        mark.sync();
        drop((segment, mark, lock));
        mvcc.close();
        // Writes that came after the close are answered by the loss of their sender.
        drop(commands);
        if let Some(answer) = closed {
            let _ = answer.send(());
        }
    }

    fn stage(&self, batch: &mut Batch, write: &Write, answer: Answer) {
        if let Some(reason) = self.shared.read_only.get() {
            let _ = answer.send(Err(Error::Unavailable(reason.clone())));
            return;
        }
        let current = match batch.overlay.get(write.key()) {
            Some(state) => state.clone(),
            None => self.mvcc.newest(write.key()),
        };
        let revision = self.mvcc.published() + 1 + batch.pending.len() as Revision;
        match write.event(current.as_ref(), revision) {
            Ok(event) => {
                let state = (event.change != crate::Change::Deleted).then(|| event.record.clone());
                batch.overlay.insert(event.record.key.clone(), state);
                batch.bytes += event.record.value.len();
                batch.pending.push(Pending { event, answer });
            }
            // Judged by a state that is not durable yet: the answer waits until it is.
            Err(error) if batch.overlay.contains_key(write.key()) => batch.refused.push((error, answer)),
            Err(error) => {
                let _ = answer.send(Err(error));
            }
        }
    }

    fn flush(&mut self, batch: &mut Batch) {
        batch.overlay.clear();
        batch.bytes = 0;
        if batch.pending.is_empty() {
            return;
        }
        let first = self.mvcc.published() + 1;
        self.buffer.clear();
        let start = begin_frame(&mut self.buffer);
        for pending in &batch.pending {
            put_event(&mut self.buffer, &pending.event, self.options.sealing.as_ref());
        }
        let count = batch.pending.len() as u32;
        let own = finish_frame(&mut self.buffer, start, self.segment.salt, Kind::Batch, count, first);
        match self.segment.append(&self.buffer, own) {
            Ok(()) => {
                let last = first + Revision::from(count) - 1;
                self.mark.advance(last);
                let events: Vec<_> = batch.pending.iter().map(|pending| pending.event.clone()).collect();
                self.mvcc.commit(&events, last);
                self.shared.clear_failure();
                for Pending { event, answer } in batch.pending.drain(..) {
                    let _ = answer.send(Ok(event.record.clone()));
                }
                for (error, answer) in batch.refused.drain(..) {
                    let _ = answer.send(Err(error));
                }
                self.shared.log_bytes.fetch_add(self.buffer.len() as u64, Ordering::Relaxed);
                self.tidy();
            }
            Err(failure) => {
                let error = self.failed(&failure);
                for Pending { answer, .. } in batch.pending.drain(..) {
                    let _ = answer.send(Err(error.clone()));
                }
                for (_, answer) in batch.refused.drain(..) {
                    let _ = answer.send(Err(Error::Unavailable(error.to_string())));
                }
            }
        }
        if self.buffer.capacity() > KEEP_BUFFER {
            self.buffer = Vec::new();
        }
    }

    fn failed(&self, failure: &Failure) -> Error {
        let reason = format!("cannot write the log in {}: {}", self.dir.display(), failure.cause);
        if failure.usable {
            tracing::error!(%reason, "a batch of writes was refused");
            self.shared.set_failure(reason.clone());
        } else {
            let reason = format!("{reason}; restart the store once the disk is sound");
            tracing::error!(%reason, "the store is read-only until it is restarted");
            self.shared.set_failure(reason.clone());
            let _ = self.shared.read_only.set(reason);
        }
        if failure.undone { Error::Unavailable(reason) } else { Error::Unknown(reason) }
    }

    fn probe(&mut self) {
        if self.shared.read_only.get().is_some() || self.shared.failure().is_none() {
            return;
        }
        match self.segment.probe() {
            Ok(()) => self.shared.clear_failure(),
            Err(failure) => {
                self.failed(&failure);
            }
        }
    }

    /// Starts a new segment or a checkpoint when it is time for one.
    fn tidy(&mut self) {
        let threshold =
            self.options.checkpoint_bytes.max(self.shared.checkpoint_bytes.load(Ordering::Relaxed));
        if self.shared.log_bytes.load(Ordering::Relaxed) > threshold
            && !self.shared.checkpointing.swap(true, Ordering::AcqRel)
        {
            self.checkpoint(None);
        } else if self.segment.len() > self.options.segment_bytes
            && let Err(error) = self.roll()
        {
            tracing::warn!(%error, "cannot start a new log segment, the old one grows on");
        }
    }

    fn roll(&mut self) -> std::io::Result<()> {
        if self.segment.is_empty() {
            return Ok(());
        }
        let first = self.mvcc.published() + 1;
        let (disk, ahead) = (self.options.disk.clone(), self.options.preallocate);
        self.segment = Segment::create(&self.dir, first, Some(&self.segment), disk, ahead)?;
        self.mark.sync();
        Ok(())
    }

    /// Begins a segment and has everything before it checkpointed.
    fn checkpoint(&mut self, answer: Option<oneshot::Sender<Result<(), String>>>) {
        if let Err(error) = self.roll() {
            tracing::warn!(%error, "cannot start a checkpoint");
            self.shared.log_bytes.store(0, Ordering::Relaxed);
            self.shared.checkpointing.store(false, Ordering::Release);
            if let Some(answer) = answer {
                let _ = answer.send(Err(error.to_string()));
            }
            return;
        }
        self.shared.log_bytes.store(0, Ordering::Relaxed);
        // Between batches: what is published is exactly what the older segments hold.
        let _ = self.jobs.send(Job { pin: self.mvcc.pin(), answer });
    }
}
