//! A process of a container, or one that came to it later.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    process::{Child, Command},
};

use super::{
    exec::Plan,
    pty::{Keyboard, Pty, Screen},
    volumes::Mount,
};

/// All there is to know to start one.
#[derive(Debug, Clone, Default)]
pub struct Start<'a> {
    pub program: PathBuf,
    pub args: &'a [String],
    pub env: Option<&'a BTreeMap<String, String>>,
    pub mounts: &'a [Mount],
    pub dir: Option<&'a Path>,
    pub launcher: Option<&'a Path>,
    /// Sees what the process of this number sees, in place of `mounts`.
    pub beside: Option<u32>,
    pub stdin: bool,
    pub terminal: bool,
}

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// The ends of a process's streams.
#[derive(Default)]
pub struct Streams {
    pub stdin: Option<Writer>,
    pub stdout: Option<Reader>,
    /// None where there is a terminal.
    pub stderr: Option<Reader>,
    pub terminal: Option<Arc<Pty>>,
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

impl Process {
    /// Starts it. What it says must be read, or it waits.
    pub fn start(start: &Start<'_>) -> io::Result<(Process, Streams)> {
        let mut command = match start.launcher {
            Some(launcher) => {
                let plan = Plan {
                    mounts: start.mounts.to_vec(),
                    beside: start.beside,
                    terminal: start.terminal,
                    dir: start.dir.map(Path::to_owned),
                    program: start.program.clone(),
                    args: start.args.to_vec(),
                };
                let mut command = Command::new(launcher);
                command.args(["node", "pod-exec"]).args(plan.to_args());
                command
            }
            None => {
                let mut command = Command::new(&start.program);
                command.args(start.args);
                if let Some(dir) = start.dir {
                    command.current_dir(dir);
                }
                command
            }
        };
        command.env_clear().envs(start.env.into_iter().flatten()).kill_on_drop(true);
        let mut streams = Streams::default();
        if start.terminal {
            let (terminal, theirs) = Pty::open()?;
            let end = |fd: &OwnedFd| Ok::<_, io::Error>(Stdio::from(fd.try_clone()?));
            command.stdin(end(&theirs)?).stdout(end(&theirs)?).stderr(Stdio::from(theirs));
            streams.stdin = Some(Box::new(Keyboard(terminal.clone())));
            streams.stdout = Some(Box::new(Screen(terminal.clone())));
            streams.terminal = Some(terminal);
        } else {
            command.stdin(if start.stdin { Stdio::piped() } else { Stdio::null() });
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        // With a terminal it becomes the leader of a session, and so of a group, by itself.
        if !(start.terminal && start.launcher.is_some()) {
            command.process_group(0);
        }
        let mut child = command.spawn()?;
        if !start.terminal {
            streams.stdin = child.stdin.take().map(|end| Box::new(end) as Writer);
            streams.stdout = child.stdout.take().map(|end| Box::new(end) as Reader);
            streams.stderr = child.stderr.take().map(|end| Box::new(end) as Reader);
        }
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Ok((Process { child, group }, streams))
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
        let _ = self.child.start_kill();
        self.wait().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Whoever has waited for it has done this; its number may be another's by now.
        if self.child.id().is_some() {
            self.signal(Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn start(script: &str, terminal: bool) -> (Process, Streams) {
        let args = ["-c".to_owned(), script.to_owned()];
        let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into();
        Process::start(&Start {
            program: "/bin/sh".into(),
            args: &args,
            env: Some(&env),
            stdin: true,
            terminal,
            ..Start::default()
        })
        .unwrap()
    }

    async fn all(stream: Option<Reader>) -> String {
        let mut text = String::new();
        stream.unwrap().read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn output_and_exit_code_are_had() {
        let (mut process, streams) = start("echo hello; echo oops >&2; exit 3", false);
        let (out, err) = tokio::join!(all(streams.stdout), all(streams.stderr));
        assert_eq!((out.as_str(), err.as_str()), ("hello\n", "oops\n"));
        assert_eq!(process.wait().await, Ended { code: 3, signal: None });
    }

    #[tokio::test]
    async fn a_process_that_ignores_the_request_is_killed() {
        let (mut process, streams) = start("trap '' TERM; echo ready; while :; do sleep 0.05; done", false);
        let mut ready = [0; 6];
        streams.stdout.unwrap().read_exact(&mut ready).await.unwrap();
        let ended = process.terminate(Duration::from_millis(200)).await;
        assert_eq!(ended.signal, Some(9));
    }

    #[tokio::test]
    async fn a_terminal_is_one_and_has_a_size() {
        let (mut process, mut streams) = start("read line; stty size; test -t 1 && echo \"is $line\"", true);
        streams.terminal.as_ref().unwrap().resize(132, 43);
        streams.stdin.as_mut().unwrap().write_all(b"so\n").await.unwrap();
        let (said, ended) = tokio::join!(all(streams.stdout), process.wait());
        assert_eq!(ended.code, 0, "{said}");
        assert!(said.contains("43 132\r\n") && said.contains("is so\r\n"), "{said:?}");
    }

    #[tokio::test]
    async fn one_that_is_given_up_does_not_go_on() {
        let (process, streams) = start("sleep 300 & echo up; wait", false);
        let mut stdout = streams.stdout.unwrap();
        let mut up = [0; 3];
        stdout.read_exact(&mut up).await.unwrap();
        drop(process);
        // Its child had the stream too.
        assert_eq!(stdout.read(&mut up).await.unwrap(), 0);
    }
}
