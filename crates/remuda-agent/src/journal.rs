//! The record of executions that keeps instructions from running twice.
//!
//! Each plan source has a directory with `execution.json` and one directory per attempt at an
//! instruction, `<index>-<try>`. What happens, in this order:
//!
//! 1. `execution.json` says that try *t* of instruction *i* is about to start, and is on disk.
//! 2. A shell is started, detached from the agent. It claims the try by creating `started`
//!    exclusively, with its identity in it; a second shell that finds the file gives up.
//! 3. It runs the command, whose output goes to the files `stdout` and `stderr`, and writes the exit
//!    status to `exit`.
//! 4. The agent notes the status in `execution.json`.
//!
//! An agent killed between any two of these finds out at its next start what became of the try: it
//! takes the status from `exit`, or waits for the shell that is still running, or starts the try that
//! nobody has claimed. Only if the shell itself is gone without a status, because the machine went
//! down or somebody killed it, is the outcome unknown. Such a try counts as interrupted.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::{
    decide::{Identity, Recorded},
    disk::{DiskError, create_dirs, read_if_exists, remove_all, replace},
    output::CAPTURE_LIMIT,
    stamp::Stamp,
};

const EXECUTION: &str = "execution.json";
const EXECUTION_LIMIT: u64 = 16 << 20;
/// A shell that created `started` writes its identity into it at once.
const CLAIM_GRACE: Duration = Duration::from_secs(5);

/// One execution of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Execution {
    /// Which one.
    pub identity: Identity,
    /// Attempt number of its first try.
    pub attempt: i64,
    /// When it began, in seconds since 1970.
    pub began: i64,
    /// Names the directory below the work directory.
    pub work: String,
    /// The plan's files are written.
    pub files_done: bool,
    /// One per instruction that was begun.
    pub steps: Vec<Step>,
    /// How it ended; `None` while it is under way.
    pub ended: Option<End>,
    /// Its end is on record elsewhere, and what is there counts from now on.
    pub reported: bool,
}

/// The end of an execution.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct End {
    /// Whether everything succeeded.
    pub succeeded: bool,
    /// Why not.
    pub error: String,
}

/// An instruction that was begun.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Step {
    /// Tries so far, the present one included.
    pub tries: u32,
    /// The boot in which the last try was begun.
    pub boot: String,
    /// Its exit status, once known.
    pub exit: Option<i64>,
}

/// What is known about a try without an exit status on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Try {
    /// The command ended.
    Exited(i64),
    /// The shell is alive or about to tell.
    Running,
    /// No shell has claimed it, and none that is alive could have done so unseen.
    Unclaimed,
    /// The shell is gone and left no status.
    Interrupted,
}

/// The record of one plan source.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    current: Option<Execution>,
}

impl Journal {
    /// Opens the record below `root`. A record that cannot be decoded is dropped with a warning: it was
    /// written by something else.
    pub fn open(root: &Path, source: &str) -> Result<Self, DiskError> {
        let directory = root.join(source);
        let raw = read_if_exists(&directory.join(EXECUTION), EXECUTION_LIMIT)?;
        let current = raw.and_then(|raw| match serde_json::from_slice(&raw) {
            Ok(execution) => Some(execution),
            Err(error) => {
                tracing::warn!(%error, directory = %directory.display(), "journal unreadable, starting a new one");
                None
            }
        });
        Ok(Self { directory, current })
    }

    /// What the decision needs to know.
    pub fn recorded(&self) -> Option<Recorded> {
        self.current.as_ref().map(|execution| Recorded {
            identity: execution.identity.clone(),
            reported: execution.reported,
            succeeded: execution.ended.as_ref().map(|end| end.succeeded),
        })
    }

    /// The execution on record.
    pub fn current(&self) -> Option<&Execution> {
        self.current.as_ref()
    }

    /// Replaces the record by a new execution. The caller has made sure that nothing of the old one runs.
    pub fn begin(&mut self, identity: Identity, attempt: i64, now: Stamp) -> Result<(), DiskError> {
        let execution =
            Execution { identity, attempt, began: now.0, work: now.compact(), ..Execution::default() };
        // The record goes first: directories of tries without a record would look unclaimed.
        self.write(execution)?;
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if entry.file_name() != EXECUTION {
                remove_all(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Changes the record, on disk before return.
    pub fn update(&mut self, change: impl FnOnce(&mut Execution)) -> Result<(), DiskError> {
        let mut execution = self.current.clone().unwrap_or_default();
        change(&mut execution);
        self.write(execution)
    }

    fn write(&mut self, execution: Execution) -> Result<(), DiskError> {
        let raw = remuda_plan::json::encode(&execution);
        // Not before: a disk on which this cannot be made is why a plan fails, and is reported as such.
        if let Some(root) = self.directory.parent() {
            create_dirs(root, 0o700)?;
        }
        create_dirs(&self.directory, 0o700)?;
        replace(&self.directory.join(EXECUTION), &raw, 0o600)?;
        self.current = Some(execution);
        Ok(())
    }

    /// Notes that the next try of an instruction is about to start, and makes its directory.
    pub fn intend(&mut self, index: usize, boot: &str) -> Result<PathBuf, DiskError> {
        let tries = self
            .current
            .as_ref()
            .and_then(|execution| execution.steps.get(index))
            .map_or(1, |step| step.tries + 1);
        let directory = self.try_directory(index, tries);
        remove_all(&directory)?;
        create_dirs(&directory, 0o700)?;
        self.update(|execution| {
            execution.steps.resize(execution.steps.len().max(index + 1), Step::default());
            execution.steps[index] = Step { tries, boot: boot.to_owned(), exit: None };
        })?;
        Ok(directory)
    }

    /// Where a try keeps its files.
    pub fn try_directory(&self, index: usize, tries: u32) -> PathBuf {
        self.directory.join(format!("{index}-{tries}"))
    }

    /// A directory for output nobody has to find again.
    pub fn scratch(&self) -> Result<PathBuf, DiskError> {
        let directory = self.directory.join("scratch");
        remove_all(&directory)?;
        create_dirs(&directory, 0o700)?;
        Ok(directory)
    }

    /// The last try of the last instruction begun, if its outcome is not on record.
    pub fn open_try(&self) -> Option<(usize, &Step)> {
        let execution = self.current.as_ref()?;
        let (index, step) = execution.steps.iter().enumerate().next_back()?;
        step.exit.is_none().then_some((index, step))
    }
}

/// Finds out what became of a try.
pub fn inspect(directory: &Path, step: &Step, boot: &str) -> Try {
    if let Some(exit) = exit_status(directory) {
        return Try::Exited(exit);
    }
    if step.boot != boot {
        // Whatever ran, ran before the machine went down, and files not synced are no evidence.
        return Try::Interrupted;
    }
    let claim = directory.join("started");
    match read_if_exists(&claim, 4096) {
        Ok(None) => Try::Unclaimed,
        Ok(Some(identity)) => match Process::parse(&identity) {
            Some(shell) if shell.is_alive() => Try::Running,
            // It may have written its status between the two looks.
            Some(_) => exit_status(directory).map_or(Try::Interrupted, Try::Exited),
            None => {
                let written = fs::metadata(&claim).and_then(|metadata| metadata.modified());
                let age = written.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
                if age.is_some_and(|age| age > CLAIM_GRACE) { Try::Interrupted } else { Try::Running }
            }
        },
        Err(_) => Try::Interrupted,
    }
}

fn exit_status(directory: &Path) -> Option<i64> {
    let raw = read_if_exists(&directory.join("exit"), 64).ok()??;
    let text = std::str::from_utf8(&raw).ok()?;
    text.strip_suffix('\n')?.parse().ok()
}

/// What a command wrote to one of its streams, up to the limit.
pub fn captured(directory: &Path, stream: &str) -> Vec<u8> {
    let limit = CAPTURE_LIMIT as u64;
    let head = directory.join(format!("{stream}.head"));
    let path = if head.exists() { head } else { directory.join(stream) };
    let mut raw = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        let _ = std::io::Read::read_to_end(&mut std::io::Read::take(file, limit), &mut raw);
    }
    crate::output::lines(&raw)
}

/// A process, told from a later one with the same number by the time it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    started: u64,
}

impl Process {
    /// Reads a line of `/proc/<pid>/stat`.
    pub fn parse(stat: &[u8]) -> Option<Self> {
        Self::parse_with_state(stat).map(|(process, _)| process)
    }

    fn parse_with_state(stat: &[u8]) -> Option<(Self, char)> {
        let text = String::from_utf8_lossy(stat);
        // The name in parentheses may contain anything.
        let (head, tail) = (text.split_once(' ')?.0, text.rsplit_once(") ")?.1);
        let mut fields = tail.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        Some((Self { pid: head.parse().ok()?, started: fields.nth(18)?.parse().ok()? }, state))
    }

    /// Whether it still runs.
    pub fn is_alive(self) -> bool {
        let stat = fs::read(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        matches!(Self::parse_with_state(&stat), Some((process, state)) if process == self && state != 'Z' && state != 'X')
    }
}

/// Tells this boot of the machine from every other. Where the kernel does not say, it is always the same.
pub fn boot_id() -> String {
    let raw = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    raw.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(boot: &str) -> Step {
        Step { tries: 1, boot: boot.into(), exit: None }
    }

    fn own_stat() -> Vec<u8> {
        fs::read("/proc/self/stat").unwrap()
    }

    #[test]
    fn a_try_is_judged_by_what_its_shell_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        assert_eq!(inspect(path, &step("b"), "b"), Try::Unclaimed);
        assert_eq!(inspect(path, &step("a"), "b"), Try::Interrupted);
        fs::write(path.join("started"), "").unwrap();
        assert_eq!(inspect(path, &step("b"), "b"), Try::Running);
        fs::write(path.join("started"), own_stat()).unwrap();
        assert_eq!(inspect(path, &step("b"), "b"), Try::Running);
        assert_eq!(inspect(path, &step("a"), "b"), Try::Interrupted);
        fs::write(path.join("started"), "1 (sh) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 999999999 0")
            .unwrap();
        assert_eq!(inspect(path, &step("b"), "b"), Try::Interrupted);
        fs::write(path.join("exit"), "3").unwrap();
        assert_eq!(
            inspect(path, &step("b"), "b"),
            Try::Interrupted,
            "a status without its newline is not complete"
        );
        fs::write(path.join("exit"), "3\n").unwrap();
        assert_eq!(inspect(path, &step("a"), "b"), Try::Exited(3));
    }

    #[test]
    fn process_lines_with_odd_names_are_read() {
        let line = b"42 (a) b) c) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0";
        assert_eq!(Process::parse(line), Some(Process { pid: 42, started: 777 }));
        assert_eq!(Process::parse(b""), None);
        assert_eq!(Process::parse(b"x (y) S"), None);
        assert!(Process::parse(&own_stat()).unwrap().is_alive());
    }

    #[test]
    fn the_record_survives_and_a_new_execution_starts_clean() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path(), "remote").unwrap();
        assert_eq!(journal.recorded(), None);
        let identity = Identity { source: "u".into(), checksum: "c".into(), trigger: "t".into() };
        journal.begin(identity.clone(), 2, Stamp(7)).unwrap();
        let first = journal.intend(1, "b").unwrap();
        assert!(first.ends_with("1-1"));
        let journal = Journal::open(dir.path(), "remote").unwrap();
        assert_eq!(journal.recorded().unwrap().identity, identity);
        assert_eq!(journal.open_try().unwrap().0, 1);
        assert_eq!(journal.current().unwrap().steps.len(), 2);
        let mut journal = journal;
        assert!(journal.intend(1, "b").unwrap().ends_with("1-2"));
        journal.update(|execution| execution.steps[1].exit = Some(0)).unwrap();
        assert_eq!(journal.open_try(), None);
        journal.begin(Identity::default(), 1, Stamp(8)).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("remote")).unwrap().count(), 1);
    }

    #[test]
    fn an_unreadable_record_is_no_record() {
        let dir = tempfile::tempdir().unwrap();
        create_dirs(&dir.path().join("x"), 0o700).unwrap();
        fs::write(dir.path().join("x").join(EXECUTION), "{").unwrap();
        assert_eq!(Journal::open(dir.path(), "x").unwrap().recorded(), None);
    }
}
