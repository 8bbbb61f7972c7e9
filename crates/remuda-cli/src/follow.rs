//! Logs that grow, and lose their beginning.

use std::{future::Future, time::Duration};

use crate::failure::{Code, Failure};

/// Remembers what was printed.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    printed: String,
}

impl Follower {
    /// What has been added to the log since the last time.
    pub(crate) fn added(&mut self, log: &str) -> String {
        let new = match log.strip_prefix(self.printed.as_str()) {
            Some(new) => new.to_owned(),
            None => after(self.printed.lines().next_back().unwrap_or_default(), log),
        };
        log.clone_into(&mut self.printed);
        new
    }
}

/// Lines after the last one that was printed. The log lost its beginning, so the line is found by what it says.
fn after(last: &str, log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let new = match lines.iter().rposition(|line| *line == last) {
        Some(place) => &lines[place + 1..],
        None => &lines,
    };
    new.iter().map(|line| format!("{line}\n")).collect()
}

/// Until it is worth looking again.
pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// Does something until it is done or Ctrl-C. It is listened for from the beginning: once a process has listened, Ctrl-C
/// ends it no more by itself.
pub(crate) async fn interruptible<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::select! {
        done = work => done,
        _ = tokio::signal::ctrl_c() => Err(Failure::silent(Code::Interrupted)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_printed() {
        let mut follower = Follower::default();
        let mut check = |log: &str, expected: &str| assert_eq!(follower.added(log), expected);
        check("", "");
        check("a\nb\n", "a\nb\n");
        check("a\nb\n", "");
        check("a\nb\nb\n", "b\n");
        check("\u{2026}\nb\nb\nc\n", "c\n");
        check("another\n", "another\n");
    }
}
