//! From files to state: the newest good checkpoint, and the log after it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Options,
    error::OpenError,
    files::{self, Listing, Lock},
    format::{Fields, Frame},
    mark::{Found, Mark},
    snapshot,
    wal::{self, LeftOut, Segment, Tail},
};
use crate::{Change, Event, Record, Revision, mvcc::Mvcc};

pub(super) struct Recovered {
    pub(super) mvcc: Arc<Mvcc>,
    pub(super) segment: Segment,
    /// Bytes of log a recovery has to read besides the checkpoint.
    pub(super) log_bytes: u64,
    pub(super) checkpoint_bytes: u64,
    pub(super) mark: Mark,
    pub(super) left_out: Option<LeftOut>,
    pub(super) lock: Lock,
}

pub(super) fn open(dir: &Path, options: &Options) -> Result<Recovered, OpenError> {
    files::create_dir(dir)?;
    let lock = files::lock(dir)?;
    let listing = files::list(dir)?;
    let (disk, ahead) = (options.disk.clone(), options.preallocate);
    let incomplete = |detail: String| OpenError::Incomplete { dir: dir.into(), detail };
    if listing.segments.is_empty() && listing.checkpoints.is_empty() {
        if listing.mark != Found::Missing {
            return Err(incomplete("the store was set up here, but its files are gone".to_owned()));
        }
        let segment = Segment::create(dir, 1, None, disk.clone(), ahead).map_err(OpenError::io(dir))?;
        let mark = Mark::create(dir, disk, 0)?;
        let mvcc = Mvcc::new(options.history.clone());
        return Ok(Recovered {
            mvcc,
            segment,
            log_bytes: 0,
            checkpoint_bytes: 0,
            mark,
            left_out: None,
            lock,
        });
    }
    let (mvcc, revision, checkpoint_bytes) = load_checkpoint(dir, &listing, options)?;
    let log = replay(dir, &listing, &mvcc, revision, options)?;
    let found = log.scan.next - 1;
    // Nothing is written to a store before its mark is there, and a restore writes the mark last.
    if listing.mark == Found::Missing && (found > 0 || log.scan.tail != Tail::Clean) {
        return Err(incomplete("the file STORE is missing, or a restore did not finish".to_owned()));
    }
    let left_out = judge_tail(&log, listing.mark.revision(), dir)?;
    let segment = Segment::resume(&log.path, &log.scan, disk.clone(), ahead)?;
    let mark = Mark::create(dir, disk, found)?;
    for path in log.unused.iter().chain(&log.superseded) {
        fs::remove_file(path).map_err(OpenError::io(path))?;
    }
    Ok(Recovered { mvcc, segment, log_bytes: log.bytes, checkpoint_bytes, mark, left_out, lock })
}

/// Decides whether the log ends where it should. `durable` is the last revision known to be
/// durable: it was acknowledged, so a log without it lost something.
fn judge_tail(log: &Log, durable: Revision, dir: &Path) -> Result<Option<LeftOut>, OpenError> {
    let next = log.scan.next;
    let left_out = log.scan.tail.range(next);
    if durable >= next {
        let lost = LeftOut { first: next, last: Some(durable) };
        return Err(match log.scan.tail {
            Tail::Clean => OpenError::Incomplete {
                dir: dir.into(),
                detail: format!("{lost} had been acknowledged, but the log ends before"),
            },
            Tail::Torn { .. } | Tail::Damaged { .. } => OpenError::damaged(
                &log.path,
                log.scan.end,
                format!("{lost} had been acknowledged, but cannot be read"),
            ),
        });
    }
    match (&log.scan.tail, left_out) {
        (Tail::Damaged { detail, .. }, Some(left_out)) => {
            Err(OpenError::damaged(&log.path, log.scan.end, format!("{left_out}: {detail}")))
        }
        (_, None) => Ok(None),
        (_, Some(left_out)) => {
            tracing::warn!(
                file = %log.path.display(),
                offset = log.scan.end,
                recovered = next - 1,
                %left_out,
                "leaving out a batch that was being written when the store stopped; \
                 nothing shows that it was acknowledged"
            );
            Ok(Some(left_out))
        }
    }
}

/// The newest checkpoint that is whole. An older one serves as well if the log since then is
/// still there, which the replay finds out.
fn load_checkpoint(
    dir: &Path,
    listing: &Listing,
    options: &Options,
) -> Result<(Arc<Mvcc>, Revision, u64), OpenError> {
    let mut failure = None;
    for revision in listing.checkpoints.iter().rev() {
        let path = files::checkpoint_path(dir, *revision);
        let mvcc = Mvcc::new(options.history.clone());
        let read = snapshot::read(&path, options.sealing.as_ref(), |name, records| {
            mvcc.load(name, records.into_iter(), 0);
        });
        match read {
            Ok(contents) if contents.header.revision == *revision => {
                for (name, last) in &contents.collections {
                    mvcc.load(name, std::iter::empty(), *last);
                }
                mvcc.set_base(contents.header.base);
                mvcc.commit(&[], *revision);
                return Ok((mvcc, *revision, contents.size));
            }
            Ok(contents) => {
                let detail =
                    format!("it is of revision {}, its name says {revision}", contents.header.revision);
                failure = failure.or(Some(OpenError::damaged(&path, 16, detail)));
            }
            // Not damage: an older checkpoint would not help.
            Err(error @ (OpenError::Newer { .. } | OpenError::Seal { .. })) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "a checkpoint cannot be read, looking for an older one");
                failure = failure.or(Some(error));
            }
        }
    }
    match failure {
        Some(failure) if listing.segments.first() != Some(&1) => Err(failure),
        _ => Ok((Mvcc::new(options.history.clone()), 0, 0)),
    }
}

struct Log {
    path: PathBuf,
    scan: wal::Scan,
    bytes: u64,
    /// Segments that were created and never written.
    unused: Vec<PathBuf>,
    /// Segments from before the checkpoint.
    superseded: Vec<PathBuf>,
}

fn replay(
    dir: &Path,
    listing: &Listing,
    mvcc: &Mvcc,
    revision: Revision,
    options: &Options,
) -> Result<Log, OpenError> {
    let incomplete = |detail: String| OpenError::Incomplete { dir: dir.into(), detail };
    let from = listing.segments.partition_point(|first| *first <= revision + 1);
    let Some(from) = from.checked_sub(1) else {
        return Err(incomplete(format!("the log since revision {} is missing", revision + 1)));
    };
    let segments = &listing.segments[from..];
    let mut expected = segments[0];
    let mut bytes = 0;
    let mut last: Option<(PathBuf, wal::Scan)> = None;
    let mut unused = Vec::new();
    for (index, first) in segments.iter().enumerate() {
        let path = files::segment_path(dir, *first);
        if *first < expected && wal::scan(&path, *first, |_, _, _| Ok(()))?.is_empty() {
            tracing::warn!(file = %path.display(), "ignoring a log segment that was never used");
            unused.push(path);
            continue;
        }
        if *first != expected {
            let missing =
                format!("the log from revision {expected} to {} is missing", first.saturating_sub(1));
            return Err(incomplete(missing));
        }
        let scan = wal::scan(&path, *first, |frame, payload, at| {
            apply(mvcc, frame, payload, revision, options).map_err(|failure| match failure {
                Failure::Damaged(detail) => OpenError::damaged(&path, at, detail),
                Failure::Seal(source) => OpenError::Seal { file: path.clone(), source },
            })
        })?;
        if scan.tail != Tail::Clean && index + 1 < segments.len() {
            let detail = "this batch cannot be read, and it is not the last one";
            return Err(OpenError::damaged(&path, scan.end, detail));
        }
        if let Some((before, link)) = last.as_ref().map(|(before, scan)| (before, scan.link()))
            && ![0, link].contains(&scan.before)
        {
            let detail = format!("it does not continue {}", before.display());
            return Err(OpenError::damaged(&path, 24, detail));
        }
        expected = scan.next;
        bytes += scan.end;
        if bytes > 256 << 20 {
            tracing::info!(file = %path.display(), revision = expected - 1, "replayed the log");
        }
        last = Some((path, scan));
    }
    if expected <= revision {
        return Err(incomplete(format!("the log ends at revision {}, before the checkpoint", expected - 1)));
    }
    let (path, scan) = last.ok_or_else(|| incomplete("there is no log".to_owned()))?;
    let superseded = listing.segments[..from].iter().map(|first| files::segment_path(dir, *first)).collect();
    Ok(Log { path, scan, bytes, unused, superseded })
}

enum Failure {
    Damaged(String),
    Seal(crate::seal::SealError),
}

fn apply(
    mvcc: &Mvcc,
    frame: &Frame,
    payload: &[u8],
    loaded: Revision,
    options: &Options,
) -> Result<(), Failure> {
    let mut fields = Fields(payload);
    for revision in (frame.first..).take(frame.count as usize) {
        let damaged = |detail: &str| Failure::Damaged(format!("revision {revision}: {detail}"));
        let entry = fields.event().ok_or_else(|| damaged("the entry makes no sense"))?;
        if revision <= loaded {
            continue;
        }
        let previous = mvcc.newest(entry.key);
        if previous.is_some() != (entry.change != Change::Created) {
            return Err(damaged("the entry does not fit what went before"));
        }
        let value =
            snapshot::template(entry.key, entry.value, options.sealing.as_ref()).map_err(Failure::Seal)?;
        let (key, created) = match &previous {
            Some(previous) => (previous.key.clone(), previous.created),
            None => (entry.key.into(), revision),
        };
        let record = Arc::new(Record::new(key, created, revision, &value));
        mvcc.commit(&[Event::new(entry.change, record, previous)], revision);
    }
    Ok(())
}
