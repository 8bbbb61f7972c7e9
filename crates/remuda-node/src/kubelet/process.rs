//! A process of a container.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::process::{Child, Command};

use super::{exec::Plan, volumes::Mount};

/// All there is to know to start one.
#[derive(Debug, Clone)]
pub struct Start<'a> {
    pub program: &'a Path,
    pub args: &'a [String],
    pub env: &'a BTreeMap<String, String>,
    pub mounts: &'a [Mount],
    pub dir: Option<&'a Path>,
    pub launcher: Option<&'a Path>,
    pub log: &'a Path,
}

pub struct Process {
    child: Child,
    group: Option<Pid>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub code: i32,
    pub signal: Option<i32>,
}

impl Ended {
    fn of(status: io::Result<ExitStatus>) -> Ended {
        use std::os::unix::process::ExitStatusExt;
        match status {
            Ok(status) => Ended {
                code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
                signal: status.signal(),
            },
            Err(_) => Ended { code: 255, signal: None },
        }
    }
}

/// Logs do not grow beyond this by more than a process writes between two starts.
pub const LOG_LIMIT: u64 = 10 << 20;

impl Process {
    pub fn start(start: &Start<'_>) -> io::Result<Process> {
        if let Some(parent) = start.log.parent() {
            fs::create_dir_all(parent)?;
        }
        trim_log(start.log);
        let log = fs::OpenOptions::new().create(true).append(true).open(start.log)?;
        let mut command = match start.launcher {
            Some(launcher) => {
                let plan = Plan {
                    mounts: start.mounts.to_vec(),
                    program: start.program.to_owned(),
                    args: start.args.to_vec(),
                };
                let mut command = Command::new(launcher);
                command.args(["node", "pod-exec"]).args(plan.to_args());
                command
            }
            None => {
                let mut command = Command::new(start.program);
                command.args(start.args);
                command
            }
        };
        command.env_clear().envs(start.env).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log).process_group(0).kill_on_drop(true);
        if let Some(dir) = start.dir {
            command.current_dir(dir);
        }
        let child = command.spawn()?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Ok(Process { child, group })
    }

    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    pub async fn wait(&mut self) -> Ended {
        let ended = Ended::of(self.child.wait().await);
        // What it has started and not waited for goes with it.
        self.signal(Signal::SIGKILL);
        ended
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = killpg(group, signal);
        }
    }

    /// Asks the process to end, and makes it after a while.
    pub async fn terminate(&mut self, grace: Duration) -> Ended {
        if !grace.is_zero() {
            self.signal(Signal::SIGTERM);
            if let Ok(ended) = tokio::time::timeout(grace, self.wait()).await {
                return ended;
            }
        }
        self.signal(Signal::SIGKILL);
        self.wait().await
    }
}

/// Empties a log that has become too long. The process appends, so it goes on at the start.
pub fn trim_log(path: &Path) {
    if fs::metadata(path).is_ok_and(|meta| meta.len() > LOG_LIMIT) {
        let before = PathBuf::from(format!("{}.1", path.display()));
        let _ = fs::copy(path, before);
        let _ = fs::OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str, log: &Path) -> Process {
        let args = ["-c".to_owned(), script.to_owned()];
        let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into();
        Process::start(&Start {
            program: Path::new("/bin/sh"),
            args: &args,
            env: &env,
            mounts: &[],
            dir: None,
            launcher: None,
            log,
        })
        .unwrap()
    }

    #[tokio::test]
    async fn output_and_exit_code_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("c/0.log");
        let ended = start("echo hello; echo oops >&2; exit 3", &log).wait().await;
        assert_eq!(ended, Ended { code: 3, signal: None });
        assert_eq!(fs::read_to_string(log).unwrap(), "hello\noops\n");
    }

    #[tokio::test]
    async fn a_process_that_ignores_the_request_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut process = start("trap '' TERM; echo ready; while :; do sleep 0.05; done", &log);
        while fs::read_to_string(&log).unwrap_or_default().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let ended = process.terminate(Duration::from_millis(200)).await;
        assert_eq!(ended.signal, Some(9));
    }
}
