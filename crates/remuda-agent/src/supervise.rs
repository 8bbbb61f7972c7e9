//! A supervisor for machines without one.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use tokio::{process::Command, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    disk::{read_if_exists, remove_all, replace},
    journal::Process,
    run::watch_signals,
};

const RESTART: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(10);
/// At which the log starts over, keeping one former.
const LOG_LIMIT: u64 = 16 << 20;

/// What to keep running.
#[derive(Debug, Clone)]
pub struct SuperviseOptions {
    /// The daemon: program and arguments.
    pub command: Vec<OsString>,
    /// Where to note who supervises.
    pub pid_file: PathBuf,
    /// The log this process writes to, to be kept small; `None` if somebody else does that.
    pub log_file: Option<PathBuf>,
    /// Between an end and the next start.
    pub restart_after: Duration,
}

impl SuperviseOptions {
    /// Keeps `command` running.
    pub fn new(command: Vec<OsString>, pid_file: PathBuf) -> Self {
        Self { command, pid_file, log_file: None, restart_after: RESTART }
    }
}

/// Starts the daemon again whenever it ends, until `stop` is cancelled. Refuses to be the second.
pub async fn supervise(options: &SuperviseOptions, stop: &CancellationToken) -> io::Result<()> {
    if let Some(other) = running(&options.pid_file) {
        let text = format!("process {} supervises the agent already", other.pid);
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    let Some((program, arguments)) = options.command.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "nothing to supervise"));
    };
    // Away from the terminal it was started on. Fails for a leader, who is on none that matters.
    let _ = nix::unistd::setsid();
    replace(&options.pid_file, &fs::read("/proc/self/stat")?, 0o600).map_err(|error| error.source)?;
    while !stop.is_cancelled() {
        rotate(options.log_file.as_deref());
        match Command::new(program).args(arguments).kill_on_drop(false).spawn() {
            Ok(mut child) => {
                tokio::select! {
                    status = child.wait() => tracing::warn!(?status, "agent ended, starting it again"),
                    () = stop.cancelled() => {
                        if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
                            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
                        }
                        if tokio::time::timeout(PATIENCE, child.wait()).await.is_err() {
                            let _ = child.kill().await;
                        }
                        break;
                    }
                }
            }
            Err(error) => tracing::error!(%error, "agent cannot be started"),
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(options.restart_after) => {}
        }
    }
    remove_all(&options.pid_file).map_err(|error| error.source)
}

/// Supervises on a runtime of its own until SIGINT or SIGTERM.
pub fn supervise_blocking(options: &SuperviseOptions) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stop = CancellationToken::new();
    runtime.block_on(async {
        let mut signals = JoinSet::new();
        signals.spawn(watch_signals(stop.clone()));
        supervise(options, &stop).await
    })
}

/// The log is open for appending, so it is copied and cut back rather than moved.
fn rotate(log: Option<&Path>) {
    let Some(log) = log else { return };
    if fs::metadata(log).is_ok_and(|metadata| metadata.len() > LOG_LIMIT) {
        let _ = fs::copy(log, log.with_extension("log.1"));
        let _ = fs::OpenOptions::new().write(true).open(log).and_then(|file| file.set_len(0));
    }
}

/// The supervisor on record, if it is alive.
pub fn running(pid_file: &Path) -> Option<Process> {
    let stat = read_if_exists(pid_file, 4096).ok()??;
    Process::parse(&stat).filter(|process| process.is_alive())
}

/// Ends the supervisor on record and with it the agent.
pub fn stop(pid_file: &Path) -> io::Result<()> {
    let Some(process) = running(pid_file) else { return Ok(()) };
    let pid = Pid::from_raw(process.pid);
    let deadline = Instant::now() + PATIENCE + PATIENCE;
    kill(pid, Signal::SIGTERM).or_else(|error| if error == Errno::ESRCH { Ok(()) } else { Err(error) })?;
    while process.is_alive() {
        if Instant::now() > deadline {
            kill(pid, Signal::SIGKILL)?;
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Ends instructions that are still under way, each with everything it has started.
pub fn kill_instructions(journal: &Path) {
    let directories =
        |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    for attempt in directories(journal).flat_map(|source| directories(&source).collect::<Vec<_>>()) {
        let Ok(Some(stat)) = read_if_exists(&attempt.join("started"), 4096) else { continue };
        if let Some(shell) = Process::parse(&stat).filter(|shell| shell.is_alive()) {
            let _ = killpg(Pid::from_raw(shell.pid), Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_ends_is_started_again_until_told_to_stop() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let script = format!("echo x >> {}", log.display());
        let command = ["sh", "-c", &script].iter().map(OsString::from).collect();
        let pid_file = dir.path().join("pid");
        let options = SuperviseOptions {
            restart_after: Duration::from_millis(10),
            ..SuperviseOptions::new(command, pid_file.clone())
        };
        let stop = CancellationToken::new();
        let watching = async {
            while fs::read(&log).unwrap_or_default().len() < 6 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(running(&pid_file).is_some());
            let second = supervise(&options, &stop).await.unwrap_err();
            assert_eq!(second.kind(), io::ErrorKind::AlreadyExists);
            stop.cancel();
        };
        let (result, ()) = tokio::join!(supervise(&options, &stop), watching);
        result.unwrap();
        assert!(!pid_file.exists());
    }

    #[tokio::test]
    async fn a_running_instruction_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = dir.path().join("remote/0-1");
        fs::create_dir_all(&attempt).unwrap();
        let script = "read -r s < /proc/$$/stat; echo \"$s\" > $0; sleep 100 & sleep 100";
        let mut child =
            std::os::unix::process::CommandExt::process_group(&mut std::process::Command::new("sh"), 0)
                .args(["-c", script])
                .arg(attempt.join("started"))
                .spawn()
                .unwrap();
        while !fs::read_to_string(attempt.join("started")).unwrap_or_default().ends_with('\n') {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        kill_instructions(dir.path());
        let status = child.wait().unwrap();
        assert_eq!(status.code(), None);
    }
}
