//! What a process that stays does once it has started.

use std::{hint::black_box, thread, time::Duration};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use tracing::debug;

/// After these times, each counted from the one before. A server has started after a few seconds; an agent has its
/// first plan behind it after a minute or some more.
const PAUSES: [Duration; 3] = [Duration::from_secs(11), Duration::from_secs(48), Duration::from_secs(240)];
/// How long to look whether the process is at work…
const LOOK: Duration = Duration::from_secs(1);
/// …which it is if it takes more of a processor than this in the time.
const BUSY: Duration = Duration::from_millis(20);
/// Looks until the matter is left to the next time.
const LOOKS: usize = 30;

/// Lets go, a few times in the first minutes and then never again, of memory that was only needed to start. Nobody
/// waits for it, and that it fails changes nothing.
pub(crate) fn soon() {
    let started = thread::Builder::new().name("settle".to_owned()).stack_size(256 << 10).spawn(|| {
        for pause in PAUSES {
            thread::sleep(pause);
            // A process at work needs its pages at once, and whoever it works for would wait for them.
            if (0..LOOKS).any(|_| is_quiet()) {
                give_back();
            }
        }
    });
    if let Err(error) = started {
        debug!(%error, "memory that was needed to start is kept");
    }
}

fn is_quiet() -> bool {
    let Some(before) = processor_time() else { return true };
    thread::sleep(LOOK);
    processor_time().is_none_or(|after| after.saturating_sub(before) < BUSY)
}

/// What the process has taken of the processors so far.
fn processor_time() -> Option<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let spent = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    u64::try_from(spent).ok().map(Duration::from_micros)
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn work_shows_in_the_processor_time() {
        let before = processor_time().unwrap();
        let begun = Instant::now();
        let mut rounds = 0_u64;
        while processor_time().unwrap() < before + BUSY {
            rounds = black_box(rounds + 1);
            assert!(begun.elapsed() < Duration::from_secs(60), "{rounds}");
        }
    }
}
