//! Follows the first start of a machine: what it writes goes into the log, how it ends is how the job ends.

use std::time::Duration;

use remuda_drivers::error::{Error as DriverError, Result};

use super::Local;
use crate::{
    init::bootstrap::NOTE,
    machines::{Bootstrap, MachineState},
};

/// How often one looks: a start takes a second or two.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of a start that are passed on. Its whole output stays in the machine.
const MOST_LINES: usize = 500;
/// Lines before the end that are told with a failure: a program says what, its script says where.
const LAST_WORDS: usize = 2;

impl Local {
    pub(super) async fn follow_boot(&self) -> Result<()> {
        self.log.info("Waiting for the machine's first start...");
        let mut passed = 0;
        loop {
            let (machine, text) = self
                .with(|sandbox, id| {
                    // In this order: what was written before the end is in the log.
                    let machine = sandbox.get(id)?;
                    Ok((machine, sandbox.boot_log(id)?))
                })
                .await?;
            let done = machine.bootstrap.is_some();
            let lines = complete_lines(&text, done);
            for line in lines.iter().take(MOST_LINES).skip(passed) {
                self.log.info(line);
            }
            passed = passed.max(lines.len());
            if let Some(bootstrap) = machine.bootstrap {
                return outcome(&bootstrap, &lines);
            }
            if machine.state != MachineState::Running {
                return Err(DriverError::other("the machine stopped during its first start"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Lines that will not grow any more.
fn complete_lines(text: &str, done: bool) -> Vec<&str> {
    let end = if done { text.len() } else { text.rfind('\n').map_or(0, |end| end + 1) };
    text[..end].lines().filter(|line| !line.trim().is_empty()).collect()
}

/// A script that failed said why just before.
fn outcome(bootstrap: &Bootstrap, lines: &[&str]) -> Result<()> {
    if bootstrap.succeeded {
        return Ok(());
    }
    let mut words: Vec<&str> = lines.iter().rev().filter(|line| !line.starts_with(NOTE)).copied().collect();
    words.truncate(LAST_WORDS);
    words.reverse();
    let mut message = format!("the machine's first start failed: {}", bootstrap.errors.join("; "));
    for line in words {
        message.push_str(": ");
        message.push_str(line.trim());
    }
    Err(DriverError::other(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_ended_are_passed_on() {
        assert_eq!(complete_lines("one\n\ntwo\nthr", false), ["one", "two"]);
        assert_eq!(complete_lines("one\n\ntwo\nthr", true), ["one", "two", "thr"]);
        assert!(complete_lines("one", false).is_empty());
    }

    #[test]
    fn a_failure_is_told_with_the_last_words_of_the_script() {
        let failed = Bootstrap { errors: vec!["/bin/sh ended with 1".into()], succeeded: false };
        let lines = ["mkdir: cannot create directory: No space left on device", "user data: finished"];
        let message = outcome(&failed, &lines).unwrap_err().to_string();
        assert!(message.ends_with("ended with 1: mkdir: cannot create directory: No space left on device"));
        // What somebody added before it did not work; the machine does.
        assert!(outcome(&Bootstrap { succeeded: true, ..failed }, &lines).is_ok());
    }
}
