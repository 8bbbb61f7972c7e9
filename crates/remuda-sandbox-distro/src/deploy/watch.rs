//! Tells when something changes below a directory, without looking again and again.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    path::Path,
    time::Duration,
};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;
use tracing::warn;

/// How deep directories are looked at.
pub(super) const DEPTH: usize = 8;
/// Where the system cannot tell, looking has to do.
const POLL: Duration = Duration::from_secs(15);

struct Descriptor(Inotify);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The replacement needs an unsafe block, for descriptors that could change or be closed. This one
/// is owned, and stays what it is.
#[expect(deprecated, reason = "its replacement is unsafe")]
fn register(descriptor: Descriptor) -> std::io::Result<AsyncFd<Descriptor>> {
    AsyncFd::new(descriptor)
}

pub(super) struct Watcher(Option<AsyncFd<Descriptor>>);

impl Watcher {
    pub(super) fn new(root: &Path) -> Watcher {
        let made = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
            .map_err(std::io::Error::from)
            .and_then(|inotify| register(Descriptor(inotify)));
        match made {
            Ok(descriptor) => Watcher(Some(descriptor)),
            Err(error) => {
                warn!(directory = %root.display(), %error, "changes are looked for now and then");
                Watcher(None)
            }
        }
    }

    /// Watches the directory and those below it, also ones that are new.
    pub(super) fn follow(&self, root: &Path) {
        let Some(descriptor) = &self.0 else { return };
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ONLYDIR;
        let mut pending = vec![(root.to_owned(), 0)];
        while let Some((dir, depth)) = pending.pop() {
            let _ = descriptor.get_ref().0.add_watch(&dir, flags);
            if depth == DEPTH {
                continue;
            }
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    pending.push((entry.path(), depth + 1));
                }
            }
        }
    }

    pub(super) async fn changed(&self) {
        match &self.0 {
            None => tokio::time::sleep(POLL).await,
            Some(descriptor) => {
                let _ = descriptor.readable().await;
            }
        }
    }

    /// Forgets what has been told so far.
    pub(super) fn drain(&mut self) {
        let Some(descriptor) = &self.0 else { return };
        while descriptor.get_ref().0.read_events().is_ok_and(|events| !events.is_empty()) {}
        // The next readiness is for what comes after.
        let ready = descriptor.readable();
        if let Some(Ok(mut guard)) = futures::FutureExt::now_or_never(ready) {
            guard.clear_ready();
        }
    }
}
