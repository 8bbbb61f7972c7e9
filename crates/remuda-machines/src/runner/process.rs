//! A job's process: started, found again, waited for, ended.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use super::files::{ENDS_PROGRAMS, LOG, PID, Plan, RESULT};
use crate::{
    error::Error,
    job::{JobResult, confine},
    state::write_private,
};

/// How often a process that is not our child is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// A process with a directory.
pub(super) struct Process {
    pid: i32,
    /// When it started, in the kernel's count: ids are used again.
    started: u64,
    ends_programs: bool,
    directory: PathBuf,
    child: Option<Child>,
}

/// The way to end a process that is being waited for.
pub(super) struct Running {
    pid: i32,
    started: u64,
    ends_programs: bool,
    leave: CancellationToken,
}

impl Running {
    /// Ends the process and its group, and the driver's program.
    pub(super) fn kill(&self) {
        kill(self.pid, self.started, self.ends_programs);
    }

    /// Stops waiting for it.
    pub(super) fn leave(&self) {
        self.leave.cancel();
    }
}

fn kill(pid: i32, started: u64, ends_programs: bool) {
    if start_of(pid) != Some(started) {
        return;
    }
    let group = Pid::from_raw(pid);
    if ends_programs {
        // Programs of drivers have groups of their own. A process that stands still starts no more of them.
        let _ = killpg(group, Signal::SIGSTOP);
        for child in children_of(pid) {
            let _ = killpg(Pid::from_raw(child), Signal::SIGKILL);
        }
    }
    let _ = killpg(group, Signal::SIGKILL);
    if ends_programs {
        end_leftovers(pid);
    }
}

/// Ends a process that a driver's program was started by, and the program.
pub(crate) fn end(pid: i32) {
    if let Some(started) = start_of(pid) {
        kill(pid, started, true);
    }
}

/// Ends programs of a driver that have left the group of their job, by the user they run as.
fn end_leftovers(pid: i32) {
    if let Ok(job @ 1..) = u32::try_from(pid) {
        confine::end_leftovers(job);
    }
}

/// Processes that a process has started and that are still its own.
fn children_of(pid: i32) -> Vec<i32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|number| parent_of(*number) == Some(pid)).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].split_whitespace().nth(1)?.parse().ok()
}

/// When a process started; `None` if there is none, or only what is left of one.
fn start_of(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in parentheses, and may hold any character.
    let rest = &stat[stat.rfind(')')? + 1..];
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    (state != "Z" && state != "X").then(|| fields.nth(18)?.parse().ok()).flatten()
}

impl Process {
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn kill(&self) {
        kill(self.pid, self.started, self.ends_programs);
    }

    /// The process of a directory: alive, or ended with a last word nobody has read.
    pub(super) fn find(directory: &Path) -> Option<Self> {
        let text = fs::read_to_string(directory.join(PID)).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        let (pid, started): (i32, u64) = (pid.parse().ok()?, started.parse().ok()?);
        let alive = start_of(pid) == Some(started);
        // Jobs that become another user have the file from the beginning.
        let ended = fs::metadata(directory.join(RESULT)).is_ok_and(|file| file.len() > 0);
        let ends_programs = directory.join(ENDS_PROGRAMS).exists();
        if ends_programs && !alive && !Path::new("/proc").join(pid.to_string()).exists() {
            end_leftovers(pid);
        }
        (alive || ended).then(|| Self {
            pid,
            started,
            ends_programs,
            directory: directory.to_owned(),
            child: None,
        })
    }

    /// Starts a process that outlives us.
    pub(super) async fn spawn(plan: Plan, directory: &Path) -> Result<Self, Error> {
        let failed = |doing: &str| Error::file(format!("{doing} a job in {}", directory.display()));
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(directory.join(LOG))
            .map_err(failed("log"))?;
        let errors = log.try_clone().map_err(failed("log"))?;
        let ends_programs = plan.ends_programs;
        if ends_programs {
            fs::write(directory.join(ENDS_PROGRAMS), "").map_err(failed("set up"))?;
        }
        let mut command = Command::new(&plan.program);
        command
            .args(&plan.arguments)
            .env_clear()
            .envs(plan.variables)
            .current_dir(plan.directory)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .kill_on_drop(false);
        let child = command.spawn().map_err(failed("start"))?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
        let started = start_of(pid).unwrap_or_default();
        let process =
            Self { pid, started, ends_programs, directory: directory.to_owned(), child: Some(child) };
        let noted = write_private(&directory.join(PID), format!("{pid} {started}\n").as_bytes());
        if let Err(error) = noted {
            process.kill();
            return Err(Error::file("note the process of a job")(std::io::Error::other(error)));
        }
        Ok(process)
    }

    /// Waits for it, beside whatever else goes on.
    pub(super) fn run(self) -> (Running, Ending) {
        let leave = CancellationToken::new();
        let (pid, started, ends_programs) = (self.pid, self.started, self.ends_programs);
        let running = Running { pid, started, ends_programs, leave: leave.clone() };
        (running, Ending { process: self, leave })
    }
}

/// The end of a process, to come.
pub(super) struct Ending {
    process: Process,
    leave: CancellationToken,
}

impl Ending {
    /// Its last word; `None` if nobody wants to know any more.
    pub(super) async fn wait(&mut self) -> Option<JobResult> {
        let leave = self.leave.clone();
        tokio::select! {
            () = leave.cancelled() => None,
            code = self.ended() => {
                if self.process.ends_programs {
                    let pid = self.process.pid;
                    let _ = tokio::task::spawn_blocking(move || end_leftovers(pid)).await;
                }
                Some(self.result(code))
            }
        }
    }

    /// The exit code, as far as it can be known.
    async fn ended(&mut self) -> Option<i32> {
        if let Some(child) = &mut self.process.child {
            return child.wait().await.ok().and_then(|status| {
                use std::os::unix::process::ExitStatusExt;
                status.code().or_else(|| status.signal().map(|signal| 128 + signal))
            });
        }
        while start_of(self.process.pid) == Some(self.process.started) {
            tokio::time::sleep(LOOK).await;
        }
        None
    }

    fn result(&self, code: Option<i32>) -> JobResult {
        let told = JobResult::read(&self.process.directory.join(RESULT));
        told.unwrap_or_else(|| {
            let code = code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(137);
            JobResult { code, message: format!("driver-crash: the process of the job ended with {code}") }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn plan(script: &str, directory: &Path) -> Plan {
        Plan {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            variables: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            directory: directory.to_owned(),
            ends_programs: true,
        }
    }

    #[tokio::test]
    async fn a_process_is_found_again_and_its_last_word_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let script = "while [ ! -e go ]; do sleep 0.01; done; printf '3\\nother: no' > result";
        let process = Process::spawn(plan(script, dir.path()), dir.path()).await.unwrap();
        let again = Process::find(dir.path()).unwrap();
        assert_eq!(again.pid(), process.pid());
        fs::write(dir.path().join("go"), "").unwrap();
        let (_, mut first) = process.run();
        let (_, mut second) = again.run();
        let word = JobResult { code: 3, message: "other: no".into() };
        assert_eq!((first.wait().await, second.wait().await), (Some(word.clone()), Some(word)));
        // Its word is there for whoever comes later.
        assert!(Process::find(dir.path()).is_some());
    }

    #[tokio::test]
    async fn a_process_can_be_ended() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::spawn(plan("sleep 60", dir.path()), dir.path()).await.unwrap();
        let (running, mut ending) = process.run();
        running.kill();
        assert_eq!(ending.wait().await.unwrap().code, 137);
    }

    #[tokio::test]
    async fn an_exit_without_a_word_is_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::spawn(plan("echo hello; kill -9 $$", dir.path()), dir.path()).await.unwrap();
        let (_, mut ending) = process.run();
        let result = ending.wait().await.unwrap();
        assert_eq!((result.code, result.message.starts_with("driver-crash: ")), (137, true));
        assert_eq!(fs::read_to_string(dir.path().join(LOG)).unwrap(), "hello\n");
        assert!(Process::find(dir.path()).is_none());
    }
}
