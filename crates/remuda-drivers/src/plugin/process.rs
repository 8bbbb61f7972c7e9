//! A child process in its own group, with its output read and bounded.

use std::{
    collections::VecDeque,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::timeout,
};

use crate::{
    error::{Error, Result},
    log::{Level, Log},
};

/// Longer lines are cut.
const LINE: usize = 4 << 10;
/// The same for lines that are a protocol.
const LONG_LINE: usize = 1 << 20;
/// Bytes of one stream that reach the log; the rest is read and dropped.
const LOGGED: usize = 4 << 20;
/// A stream that goes on beyond this is endless, and its process is ended.
const ENDLESS: usize = 128 << 20;
/// Lines kept to explain a crash.
const TAIL: usize = 8;

/// A running child. Dropping it kills its whole process group.
#[derive(Debug)]
pub(crate) struct Process {
    group: Pid,
    exit: watch::Receiver<Option<Exit>>,
    tail: Arc<Mutex<VecDeque<String>>>,
    /// Closed when all output has been read.
    reading: watch::Receiver<()>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Clone, Copy)]
enum Exit {
    Status(ExitStatus),
    /// Killed by us because its output did not end.
    Endless,
    Unknown,
}

/// What to do with the child's output.
pub(crate) struct Output {
    pub log: Log,
    /// Put in front of every line.
    pub prefix: String,
    pub stdout: Stdout,
}

/// What standard output is good for.
pub(crate) enum Stdout {
    Log,
    /// The first line goes here, the rest to the log.
    First(oneshot::Sender<String>),
    /// Every line goes here.
    Lines(mpsc::Sender<String>),
}

impl Process {
    pub(crate) async fn spawn(
        mut command: Command,
        output: Output,
    ) -> std::io::Result<(Self, Option<tokio::process::ChildStdin>)> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = start(&mut command).await?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let group = Pid::from_raw(id.ok_or_else(|| std::io::Error::other("child has no id"))?);
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let mut tasks = JoinSet::new();
        let (report, exit) = watch::channel(None);
        let (endless, too_much) = oneshot::channel();
        let endless = Arc::new(Mutex::new(Some(endless)));
        let (reader, reading) = watch::channel(());
        let reader = Arc::new(reader);
        let Output { log, prefix, stdout: use_of_stdout } = output;
        if let Some(stdout) = child.stdout.take() {
            let lines = Lines {
                log: log.clone(),
                level: Level::Info,
                prefix: prefix.clone(),
                tail: tail.clone(),
                stdout: use_of_stdout,
                endless: endless.clone(),
                _reader: reader.clone(),
            };
            tasks.spawn(lines.read(stdout));
        }
        if let Some(stderr) = child.stderr.take() {
            let prefix = format!("{prefix}DBG | ");
            let stdout = Stdout::Log;
            let (level, tail) = (Level::Debug, tail.clone());
            let lines = Lines { log, level, prefix, tail, stdout, endless, _reader: reader };
            tasks.spawn(lines.read(stderr));
        }
        let stdin = child.stdin.take();
        tasks.spawn(supervise(child, group, too_much, report));
        Ok((Self { group, exit, tail, reading, _tasks: tasks }, stdin))
    }

    /// Waits for the end of the process, at most so long, and says how it ended.
    pub(crate) async fn obituary(&self, patience: Duration) -> String {
        let mut exit = self.exit.clone();
        let waited = timeout(patience, exit.wait_for(Option::is_some)).await;
        let ended = waited.ok().and_then(|seen| seen.ok().and_then(|exit| *exit));
        let how = match ended {
            Some(Exit::Status(status)) => status.to_string(),
            Some(Exit::Endless) => "was stopped, its output did not end".into(),
            Some(Exit::Unknown) => "ended".into(),
            None => "is still running".into(),
        };
        if ended.is_some() {
            // Its last words may still be in the pipe.
            let _ = timeout(Duration::from_secs(1), self.reading.clone().changed()).await;
        }
        let tail = self.tail.lock();
        let lines: Vec<&str> = tail.iter().map(String::as_str).collect();
        if lines.is_empty() { how } else { format!("{how}; last output: {}", lines.join(" / ")) }
    }

    /// Waits for the process to exit.
    pub(crate) async fn exited(&self) -> Result<ExitStatus> {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(Exit::Status(status))) => Ok(*status),
            Ok(Some(Exit::Endless)) => Err(Error::crash("its output did not end")),
            _ => Err(Error::crash("the process is gone")),
        }
    }

    pub(crate) fn kill(&self) {
        if self.exit.borrow().is_none() {
            let _ = killpg(self.group, Signal::SIGKILL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a program that may have been written a moment ago: while another thread forks, the file can still
/// be open for writing in the new process, and is then refused as busy.
async fn start(command: &mut Command) -> std::io::Result<Child> {
    let mut tries = 0;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy && tries < 20 => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            outcome => return outcome,
        }
    }
}

async fn supervise(
    mut child: Child,
    group: Pid,
    too_much: oneshot::Receiver<()>,
    report: watch::Sender<Option<Exit>>,
) {
    let exit = tokio::select! {
        status = child.wait() => status.map_or(Exit::Unknown, Exit::Status),
        Ok(()) = too_much => {
            let _ = killpg(group, Signal::SIGKILL);
            let _ = child.wait().await;
            Exit::Endless
        }
    };
    // Grandchildren must not outlive the plugin. The group's number cannot be reused while any is left.
    let _ = killpg(group, Signal::SIGKILL);
    report.send_replace(Some(exit));
}

struct Lines {
    log: Log,
    level: Level,
    prefix: String,
    tail: Arc<Mutex<VecDeque<String>>>,
    stdout: Stdout,
    endless: Arc<Mutex<Option<oneshot::Sender<()>>>>,
    _reader: Arc<watch::Sender<()>>,
}

impl Lines {
    async fn read(mut self, mut stream: impl AsyncRead + Unpin) {
        let mut buffer = vec![0; 8 << 10];
        let mut line = Vec::new();
        let mut cut = false;
        let mut total = 0usize;
        let longest = if matches!(self.stdout, Stdout::Lines(_)) { LONG_LINE } else { LINE };
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            total += count;
            if total > ENDLESS {
                if let Some(endless) = self.endless.lock().take() {
                    let _ = endless.send(());
                }
                return;
            }
            if total - count > LOGGED {
                continue;
            }
            for byte in &buffer[..count] {
                if *byte == b'\n' {
                    self.emit(&mut line).await;
                    cut = false;
                } else if line.len() < longest {
                    line.push(*byte);
                } else if !cut {
                    // The rest of an overlong line is dropped, but what is there is shown at once: a
                    // plugin that never ends its first line must not be waited for.
                    cut = true;
                    if matches!(self.stdout, Stdout::First(_)) {
                        self.emit(&mut line).await;
                    }
                }
            }
            if total > LOGGED {
                self.log.warn(format!("{}further output is not recorded", self.prefix));
            }
        }
        if !line.is_empty() {
            self.emit(&mut line).await;
        }
    }

    async fn emit(&mut self, line: &mut Vec<u8>) {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches('\r');
        if let Stdout::Lines(lines) = &self.stdout {
            let _ = lines.send(text.to_owned()).await;
        } else if let Stdout::First(first) = std::mem::replace(&mut self.stdout, Stdout::Log) {
            let _ = first.send(text.to_owned());
        } else {
            let mut tail = self.tail.lock();
            if tail.len() == TAIL {
                tail.pop_front();
            }
            let short: String = text.chars().take(300).collect();
            tail.push_back(self.log.redactor().scrub(&short).into_owned());
            drop(tail);
            self.log.line(self.level, &format!("{}{text}", self.prefix));
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_that_does_not_end_ends_the_process() {
        let memory = Arc::new(crate::log::MemoryLog::default());
        let output = Output { log: Log::new(memory.clone()), prefix: String::new(), stdout: Stdout::Log };
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "bs=1M", "count=100000"]);
        let (process, _) = Process::spawn(command, output).await.unwrap();
        let error = timeout(Duration::from_secs(20), process.exited()).await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "its output did not end");
        assert!(process.obituary(Duration::ZERO).await.starts_with("was stopped"));
        assert!(memory.text().len() < 2 * LINE);
    }
}
