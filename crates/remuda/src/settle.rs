//! What a process that stays does once it has started.

use std::{hint::black_box, thread, time::Duration};

use tracing::debug;

/// After these times, each counted from the one before. A server has started after a few seconds; an agent has its
/// first plan behind it after a minute or some more.
const PAUSES: [Duration; 3] = [Duration::from_secs(12), Duration::from_secs(48), Duration::from_secs(240)];

/// Lets go, a few times in the first minutes and then never again, of memory that was only needed to start. Nobody
/// waits for it, and that it fails changes nothing.
pub(crate) fn soon() {
    let started = thread::Builder::new().name("settle".to_owned()).stack_size(256 << 10).spawn(|| {
        for pause in PAUSES {
            thread::sleep(pause);
            give_back();
        }
    });
    if let Err(error) = started {
        debug!(%error, "memory that was needed to start is kept");
    }
}

fn give_back() {
    // The allocator hands back what has been free for ten seconds, but only while it is at work, which in a process
    // that has nothing to do it never is.
    drop(black_box(Vec::<u8>::with_capacity(4 << 20)));
    match remuda_pages::let_go() {
        Ok(bytes) => debug!(kib = bytes >> 10, "gave back pages of the program"),
        Err(error) => debug!(%error, "pages of the program are kept"),
    }
}
