//! One download, and those who follow it.

use std::{
    fs::{self, File},
    future::Future,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use remuda_base::hex;
use tokio::sync::watch;

use super::{Start, Store, StoreError};

/// A download that breaks off goes on this often.
const TRIES: usize = 4;
const PIECE: usize = 1 << 18;
/// Room is set aside in steps of this, where the upstream does not say how large a blob is.
const STEP: u64 = 64 << 20;

#[derive(Debug, Clone, Default)]
struct Progress {
    /// Bytes that can be read.
    written: u64,
    length: Option<u64>,
    ended: Option<Result<(), StoreError>>,
}

impl Progress {
    /// The last byte is held back until the digest is known to be right: a client never takes a wrong blob for whole.
    fn readable(&self) -> u64 {
        if matches!(self.ended, Some(Ok(()))) { self.written } else { self.written.saturating_sub(1) }
    }
}

/// A blob on its way.
pub struct Download {
    progress: watch::Receiver<Progress>,
    file: watch::Receiver<Option<Arc<File>>>,
}

/// What the task of a download tells.
struct Teller {
    progress: watch::Sender<Progress>,
    file: watch::Sender<Option<Arc<File>>>,
}

pub(super) fn begin(
    store: Arc<Store>,
    digest: &str,
    part: PathBuf,
    start: Start,
) -> (Arc<Download>, impl Future<Output = ()> + use<>) {
    let (progress, watched) = watch::channel(Progress::default());
    let (file, opened) = watch::channel(None);
    let teller = Teller { progress, file };
    let digest = digest.to_owned();
    let task = async move {
        let mut promised = 0;
        let fetched = fetch(&store, &digest, &part, &start, &teller, &mut promised).await;
        let done = fetched.and_then(|size| {
            fs::rename(&part, part.with_extension("")).map_err(|error| store.disk(&error)).map(|()| size)
        });
        if let Err(error) = &done {
            tracing::warn!(digest, %error, "an image could not be fetched");
        }
        store.ended(&digest, promised, done.as_ref().ok().copied());
        teller.progress.send_modify(|progress| progress.ended = Some(done.map(drop)));
    };
    (Arc::new(Download { progress: watched, file: opened }), task)
}

/// Fetches until all is there, and returns how much that is.
async fn fetch(
    store: &Arc<Store>,
    digest: &str,
    part: &Path,
    start: &Start,
    teller: &Teller,
    promised: &mut u64,
) -> Result<u64, StoreError> {
    let given_up = || StoreError::GivenUp { digest: digest.to_owned() };
    let _turn = store.turns.acquire().await.map_err(|_| given_up())?;
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(part);
    let file = Arc::new(open().map_err(|error| store.disk(&error))?);
    // What an earlier try has left counts, once it was read.
    let left = file.clone();
    let read = tokio::task::spawn_blocking(move || digested(&left)).await.map_err(|_| given_up())?;
    let (mut context, mut written) = read.map_err(|error| store.disk(&error))?;
    teller.file.send_replace(Some(file.clone()));
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match start(written).await {
            Ok(mut blob) => {
                if blob.offset != written {
                    // It sends all of it again.
                    file.set_len(0).map_err(|error| store.disk(&error))?;
                    (context, written) = (Context::new(&SHA256), 0);
                }
                teller.progress.send_modify(|progress| {
                    progress.length = blob.length;
                    // Requests that follow the download are never told to go back: what was sent and what comes now
                    // have one digest.
                    progress.written = progress.written.max(written);
                });
                if let Some(length) = blob.length {
                    reserve(store, digest, length, promised)?;
                }
                loop {
                    match blob.pieces.next().await {
                        None if blob.length.is_none_or(|length| length == written) => {
                            return finish(digest, part, context, written);
                        }
                        None => break None,
                        Some(Err(error)) => break Some(error),
                        Some(Ok(piece)) => {
                            if blob.length.is_some_and(|length| written + piece.len() as u64 > length) {
                                let _ = fs::remove_file(part);
                                return Err(StoreError::Announced { digest: digest.to_owned() });
                            }
                            let end = written + piece.len() as u64;
                            if end > *promised {
                                reserve(
                                    store,
                                    digest,
                                    end.next_multiple_of(STEP).min(store.limit.max(end)),
                                    promised,
                                )?;
                            }
                            context.update(&piece);
                            file.write_all_at(&piece, written).map_err(|error| store.disk(&error))?;
                            written = end;
                            teller
                                .progress
                                .send_modify(|progress| progress.written = progress.written.max(end));
                        }
                    }
                }
            }
            Err(error) => Some(error),
        };
        match error {
            Some(error) if tries >= TRIES || !error.is_passing() => {
                return Err(StoreError::Upstream(Arc::new(error)));
            }
            None if tries >= TRIES => return Err(given_up()),
            _ => tracing::debug!(digest, tries, written, "a download broke off and goes on"),
        }
    }
}

fn reserve(store: &Store, digest: &str, size: u64, promised: &mut u64) -> Result<(), StoreError> {
    if size > *promised {
        store.promise(digest, size - *promised)?;
        *promised = size;
    }
    Ok(())
}

fn finish(digest: &str, part: &Path, context: Context, written: u64) -> Result<u64, StoreError> {
    if format!("sha256:{}", hex(context.finish())) != digest {
        // Going on with it would fail for ever.
        let _ = fs::remove_file(part);
        return Err(StoreError::Digest { digest: digest.to_owned() });
    }
    Ok(written)
}

fn digested(file: &File) -> io::Result<(Context, u64)> {
    let mut context = Context::new(&SHA256);
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    loop {
        match file.read_at(&mut piece, at)? {
            0 => return Ok((context, at)),
            length => {
                context.update(&piece[..length]);
                at += length as u64;
            }
        }
    }
}

impl Download {
    /// One that was over before it began: the blob is whole.
    pub(super) fn finished(file: File, size: u64) -> Download {
        let (_, progress) =
            watch::channel(Progress { written: size, length: Some(size), ended: Some(Ok(())) });
        let (_, file) = watch::channel(Some(Arc::new(file)));
        Download { progress, file }
    }

    /// How large the blob is, as soon as that is known.
    pub async fn length(&self) -> Result<Option<u64>, StoreError> {
        let mut progress = self.progress.clone();
        let known = progress
            .wait_for(|progress| {
                progress.length.is_some() || progress.written > 0 || progress.ended.is_some()
            })
            .await;
        let Ok(known) = known else { return Ok(None) };
        match &known.ended {
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(())) => Ok(Some(known.written)),
            None => Ok(known.length),
        }
    }

    /// Until it has ended.
    pub async fn done(&self) -> Result<(), StoreError> {
        let mut progress = self.progress.clone();
        match progress.wait_for(|progress| progress.ended.is_some()).await {
            Ok(progress) => progress.ended.clone().unwrap_or(Ok(())),
            Err(_) => Ok(()),
        }
    }

    /// The bytes from an offset on, as they come. An error ends them if the digest turns out to be wrong.
    pub fn follow(&self, from: u64) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
        let state = (self.progress.clone(), self.file.clone(), from, false);
        stream::unfold(state, |(mut progress, mut file, at, failed)| async move {
            if failed {
                return None;
            }
            let (written, ended) = {
                let ready =
                    progress.wait_for(|progress| progress.readable() > at || progress.ended.is_some());
                let ready = ready.await.ok()?;
                (ready.readable(), ready.ended.clone())
            };
            match ended {
                Some(Err(error)) => return Some((Err(io::Error::other(error)), (progress, file, at, true))),
                Some(Ok(())) if at >= written => return None,
                _ => {}
            }
            let opened = file.wait_for(Option::is_some).await.ok().and_then(|file| file.clone())?;
            let most = usize::try_from(written - at).unwrap_or(PIECE).min(PIECE);
            let read = tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; most];
                let length = opened.read_at(&mut piece, at)?;
                piece.truncate(length);
                io::Result::Ok(Bytes::from(piece))
            });
            let piece = read.await.map_err(io::Error::other).and_then(|piece| piece);
            match piece {
                Ok(piece) if piece.is_empty() => {
                    let gone = io::Error::new(io::ErrorKind::UnexpectedEof, "a blob became shorter");
                    Some((Err(gone), (progress, file, at, true)))
                }
                Ok(piece) => {
                    let at = at + piece.len() as u64;
                    Some((Ok(piece), (progress, file, at, false)))
                }
                Err(error) => Some((Err(error), (progress, file, at, true))),
            }
        })
    }
}
