//! Running the command of an instruction.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use nix::{sys::signal::Signal, unistd::Pid};
use remuda_names::agent::env;
use remuda_plan::Command;
use tokio::process::{Child, Command as Process};
use tokio_util::sync::CancellationToken;

use crate::{
    disk::{Context, DiskError},
    environment::Environment,
    journal::{Step, Try, captured, inspect},
    output::CAPTURE_LIMIT,
    periodic::Ran,
};

/// Claims the try, runs the command, leaves its status. Uses only what every shell has built in.
const SHELL: &str = r#"set -C
read -r identity < "/proc/$$/stat" || exit 0
{ echo "$identity" > "$0/started"; } 2>/dev/null || exit 0
"$@"
echo $? > "$0/exit""#;

const POLL: Duration = Duration::from_millis(100);
/// Output files of a command that keeps writing are cut back at this size.
const FILE_LIMIT: u64 = 64 << 20;
/// Shells that neither claim nor leave anything behind: there is no usable `/proc` or `/bin/sh`.
const SPAWN_LIMIT: u32 = 3;

/// Why a command gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// There is no such program.
    #[error("command {0:?} not found or not executable")]
    NotFound(String),
    /// It cannot be started.
    #[error("start {program}")]
    Spawn {
        /// What.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// Its files cannot be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The agent is stopping; the command goes on.
    #[error("agent is stopping")]
    Stopping,
}

/// A command with everything decided.
#[derive(Debug)]
pub struct Launch {
    program: PathBuf,
    arguments: Vec<String>,
    environment: BTreeMap<OsString, OsString>,
    directory: PathBuf,
}

impl Launch {
    /// Decides program and environment. Bare names are looked up in the agent's own `PATH`, others are
    /// relative to the work directory.
    pub fn new(
        command: Command<'_>,
        directory: &Path,
        attempt: i64,
        environment: &Environment,
    ) -> Result<Self, ExecuteError> {
        let path = environment.get("PATH").unwrap_or_default();
        let name = if command.program.is_empty() {
            directory.join("run.sh")
        } else {
            PathBuf::from(command.program)
        };
        let program = if name.components().count() > 1 || name.is_absolute() {
            Some(directory.join(&name))
        } else {
            std::env::split_paths(path).map(|place| place.join(&name)).find(|place| is_executable(place))
        };
        let program = program
            .filter(|program| is_executable(program))
            .ok_or_else(|| ExecuteError::NotFound(name.display().to_string()))?;

        let own = environment.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut variables: BTreeMap<OsString, OsString> = own.collect();
        for variable in command.env {
            if let Some((name, value)) = variable.split_once('=')
                && !name.is_empty()
                && !variable.contains('\0')
            {
                variables.insert(name.into(), value.into());
            }
        }
        variables.insert(env::EXECUTION_PWD.into(), directory.into());
        variables.insert(env::ATTEMPT.into(), attempt.to_string().into());
        let mut search = OsString::from(path);
        search.push(":");
        search.push(directory);
        variables.insert("PATH".into(), search);
        Ok(Self {
            program,
            arguments: command.args.to_vec(),
            environment: variables,
            directory: directory.to_owned(),
        })
    }

    fn spawn(&self, mut process: Process, output: &Path) -> Result<Child, ExecuteError> {
        let open = |stream: &str| {
            let path = output.join(stream);
            OpenOptions::new().append(true).create(true).open(&path).on("open", &path)
        };
        process
            .env_clear()
            .envs(&self.environment)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(open("stdout")?)
            .stderr(open("stderr")?)
            .process_group(0);
        let program = self.program.display().to_string();
        process.spawn().map_err(|source| ExecuteError::Spawn { program, source })
    }

    fn detached(&self, directory: &Path) -> Result<Child, ExecuteError> {
        let mut process = Process::new("/bin/sh");
        process.arg("-c").arg(SHELL).arg(directory).arg(&self.program).args(&self.arguments);
        self.spawn(process, directory)
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Sees a try of a one-time instruction through to its end: starts it if nobody has, waits for it if
/// somebody has. `None` means that it was interrupted and its outcome is unknown.
///
/// When the agent stops, the command goes on and is found again at the next start.
pub async fn see_through(
    launch: impl Fn() -> Result<Launch, ExecuteError>,
    directory: &Path,
    step: &Step,
    boot: &str,
    label: &str,
    stop: &CancellationToken,
) -> Result<Option<i64>, ExecuteError> {
    let mut tail = Tail::new(directory, label);
    let mut child: Option<Child> = None;
    let mut spawned = 0;
    loop {
        let state = inspect(directory, step, boot);
        tail.follow();
        match state {
            Try::Exited(status) => return Ok(Some(status)),
            Try::Interrupted => return Ok(None),
            Try::Unclaimed if child.is_none() => {
                if spawned == SPAWN_LIMIT {
                    return Err(ExecuteError::NotFound("/bin/sh with /proc".into()));
                }
                spawned += 1;
                child = Some(launch()?.detached(directory)?);
            }
            Try::Unclaimed | Try::Running => {}
        }
        let ended = async {
            match &mut child {
                Some(child) => drop(child.wait().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => return Err(ExecuteError::Stopping),
            () = ended => child = None,
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

/// Waits until nothing of a try runs any more, and makes sure that nothing of it will.
pub async fn wait_for_end(
    directory: &Path,
    step: &Step,
    boot: &str,
    stop: &CancellationToken,
) -> Result<(), ExecuteError> {
    let mut waited = 0u64;
    loop {
        match inspect(directory, step, boot) {
            Try::Exited(_) | Try::Interrupted => return Ok(()),
            // A shell may be just about to claim it. Whoever comes first has it.
            Try::Unclaimed => {
                match OpenOptions::new().write(true).create_new(true).open(directory.join("started")) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                    _ => return Ok(()),
                }
            }
            Try::Running => {}
        }
        if waited.is_multiple_of(600) {
            tracing::info!("waiting for an instruction of the former plan to end");
        }
        waited += 1;
        tokio::select! {
            () = stop.cancelled() => return Err(ExecuteError::Stopping),
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

/// Runs a periodic instruction, which ends with the agent.
pub async fn run(
    launch: &Launch,
    scratch: &Path,
    label: &str,
    stop: &CancellationToken,
) -> Result<Ran, ExecuteError> {
    let mut process = Process::new(&launch.program);
    process.args(&launch.arguments);
    let mut child = launch.spawn(process, scratch)?;
    let group = child.id().and_then(|pid| i32::try_from(pid).ok());
    let mut tail = Tail::new(scratch, label);
    let status = loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => {
                if let Some(group) = group {
                    let _ = nix::sys::signal::killpg(Pid::from_raw(group), Signal::SIGKILL);
                }
                let _ = child.wait().await;
                return Err(ExecuteError::Stopping);
            }
            status = child.wait() => break status,
            () = tokio::time::sleep(POLL) => tail.follow(),
        }
    };
    tail.follow();
    let exit_code = status.ok().and_then(|status| status.code()).map_or(-1, i64::from);
    Ok(Ran { exit_code, stdout: captured(scratch, "stdout"), stderr: captured(scratch, "stderr") })
}

/// Logs what a command writes and keeps its files from filling the disk.
struct Tail {
    label: String,
    streams: [(PathBuf, &'static str, u64); 2],
}

impl Tail {
    fn new(directory: &Path, label: &str) -> Self {
        let stream = |name: &'static str| (directory.join(name), name, 0);
        Self { label: label.to_owned(), streams: [stream("stdout"), stream("stderr")] }
    }

    fn follow(&mut self) {
        for (path, name, position) in &mut self.streams {
            if let Err(error) = follow(&self.label, path, name, position)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::debug!(%error, path = %path.display(), "cannot follow output");
            }
        }
    }
}

fn follow(label: &str, path: &Path, name: &str, position: &mut u64) -> io::Result<()> {
    const CHUNK: usize = 64 << 10;
    let length = fs::metadata(path)?.len();
    if length > *position {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(*position))?;
        let mut chunk = Vec::new();
        file.take(CHUNK as u64).read_to_end(&mut chunk)?;
        // A line that is not complete yet waits for its end, unless it is endless.
        let end = chunk.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let end = end.unwrap_or(if chunk.len() == CHUNK { CHUNK } else { 0 });
        for line in chunk[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
            tracing::info!(target: "remuda_agent::instruction", "[{label}:{name}]: {line}");
        }
        *position += end as u64;
    }
    if length > FILE_LIMIT {
        let mut head = OsStr::from_bytes(path.as_os_str().as_bytes()).to_owned();
        head.push(".head");
        if !Path::new(&head).exists() {
            let mut kept = Vec::new();
            File::open(path)?.take(CAPTURE_LIMIT as u64).read_to_end(&mut kept)?;
            fs::write(&head, kept)?;
        }
        // The command appends, so it goes on at the new end.
        OpenOptions::new().write(true).open(path)?.set_len(0)?;
        *position = 0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use remuda_plan::Instruction;

    use super::*;
    use crate::journal::boot_id;

    fn environment() -> Environment {
        Environment::of_process()
    }

    fn shell(script: &str) -> Instruction {
        Instruction { command: "sh".into(), args: vec!["-c".into(), script.into()], ..Instruction::default() }
    }

    fn step() -> Step {
        Step { tries: 1, boot: boot_id(), exit: None }
    }

    async fn once(dir: &Path, instruction: &Instruction) -> Result<Option<i64>, ExecuteError> {
        let launch = || Launch::new(instruction.command(), dir, 4, &environment());
        see_through(launch, dir, &step(), &boot_id(), "test", &CancellationToken::new()).await
    }

    #[tokio::test]
    async fn a_command_runs_in_its_directory_with_its_environment() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = shell("pwd; echo $A $CATTLE_AGENT_ATTEMPT_NUMBER; echo oops >&2; exit 7");
        command.env = vec!["A=b".into(), "nonsense".into(), "PATH=/nowhere".into()];
        assert_eq!(once(dir.path(), &command).await.unwrap(), Some(7));
        let expected = format!("{}\nb 4\n", dir.path().canonicalize().unwrap().display());
        assert_eq!(String::from_utf8(captured(dir.path(), "stdout")).unwrap(), expected);
        assert_eq!(captured(dir.path(), "stderr"), b"oops\n");
    }

    #[tokio::test]
    async fn the_default_command_is_run_sh_of_the_work_directory() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(once(dir.path(), &Instruction::default()).await, Err(ExecuteError::NotFound(_))));
        let script = dir.path().join("run.sh");
        fs::write(&script, "#!/bin/sh\necho ran\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(once(dir.path(), &Instruction::default()).await.unwrap(), Some(0));
        assert_eq!(captured(dir.path(), "stdout"), b"ran\n");
    }

    #[tokio::test]
    async fn a_claimed_try_is_waited_for_and_not_started_again() {
        let dir = tempfile::tempdir().unwrap();
        let command = shell("echo x >> count; sleep 0.4; exit 5");
        let launch = Launch::new(command.command(), dir.path(), 1, &environment()).unwrap();
        let mut first = launch.detached(dir.path()).unwrap();
        let mut second = launch.detached(dir.path()).unwrap();
        assert_eq!(once(dir.path(), &command).await.unwrap(), Some(5));
        let _ = (first.wait().await, second.wait().await);
        assert_eq!(fs::read(dir.path().join("count")).unwrap(), b"x\n");
    }

    #[tokio::test]
    async fn a_try_nobody_has_claimed_is_revoked_before_something_else_runs() {
        let dir = tempfile::tempdir().unwrap();
        wait_for_end(dir.path(), &step(), &boot_id(), &CancellationToken::new()).await.unwrap();
        let launch = Launch::new(shell("echo x >> count").command(), dir.path(), 1, &environment()).unwrap();
        launch.detached(dir.path()).unwrap().wait().await.unwrap();
        assert!(!dir.path().join("count").exists());
    }

    #[tokio::test]
    async fn a_killed_shell_leaves_the_outcome_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let command = shell("kill -9 $PPID; sleep 0.1");
        assert_eq!(once(dir.path(), &command).await.unwrap(), None);
    }

    #[tokio::test]
    async fn stopping_leaves_the_command_running() {
        let dir = tempfile::tempdir().unwrap();
        let command = shell("echo x >> count; sleep 0.3");
        let stop = CancellationToken::new();
        let launch = || Launch::new(command.command(), dir.path(), 1, &environment());
        let boot = boot_id();
        let step = step();
        let running = see_through(launch, dir.path(), &step, &boot, "test", &stop);
        let stopping = async {
            while !dir.path().join("count").exists() {
                tokio::time::sleep(POLL).await;
            }
            stop.cancel();
        };
        let (result, ()) = tokio::join!(running, stopping);
        assert!(matches!(result, Err(ExecuteError::Stopping)));
        assert_eq!(once(dir.path(), &command).await.unwrap(), Some(0));
        assert_eq!(fs::read(dir.path().join("count")).unwrap(), b"x\n");
    }

    #[tokio::test]
    async fn a_periodic_command_killed_by_a_signal_has_status_minus_one() {
        let dir = tempfile::tempdir().unwrap();
        let launch =
            Launch::new(shell("echo out; kill -9 $$").command(), dir.path(), 1, &environment()).unwrap();
        let ran = run(&launch, dir.path(), "test", &CancellationToken::new()).await.unwrap();
        assert_eq!((ran.exit_code, ran.stdout.as_slice()), (-1, &b"out\n"[..]));
    }

    #[test]
    fn endless_output_is_cut_back_and_its_head_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdout");
        let file = File::create(&path).unwrap();
        file.set_len(FILE_LIMIT + 1).unwrap();
        let mut position = FILE_LIMIT + 1;
        follow("l", &path, "stdout", &mut position).unwrap();
        assert_eq!((fs::metadata(&path).unwrap().len(), position), (0, 0));
        assert_eq!(fs::metadata(dir.path().join("stdout.head")).unwrap().len(), CAPTURE_LIMIT as u64);
    }
}
