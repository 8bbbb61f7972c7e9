//! Starting and stopping the program.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// The program, not running.
pub(crate) fn remuda() -> Command {
    remuda_at(Path::new(env!("CARGO_BIN_EXE_remuda")))
}

fn remuda_at(program: &Path) -> Command {
    let mut command = Command::new(program);
    // Whatever the machine is configured with is not for the tests.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("REMUDA_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a command that is expected to fail, and returns what it says.
#[track_caller]
pub(crate) fn failure(command: &mut Command) -> String {
    ended_with(command, 1)
}

/// Runs a command that is expected to end with a code, and returns what it says beside its result.
#[track_caller]
pub(crate) fn ended_with(command: &mut Command, code: i32) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

#[track_caller]
pub(crate) fn success(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_success(&output);
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
pub(crate) fn assert_success(output: &Output) {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}{stderr}", output.status);
}

/// A running server. Killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    pub(crate) data_dir: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts a server on a free port and waits until it says that it is ready.
    #[track_caller]
    pub(crate) fn start(data_dir: &Path, arguments: &[&str]) -> Server {
        Self::start_with(data_dir, arguments, |_| {})
    }

    /// As [`Server::start`], after a change to the command.
    #[track_caller]
    pub(crate) fn start_with(
        data_dir: &Path,
        arguments: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Server {
        Self::start_program(Path::new(env!("CARGO_BIN_EXE_remuda")), data_dir, arguments, change)
    }

    /// As [`Server::start_with`], of a copy of the program.
    #[track_caller]
    pub(crate) fn start_program(
        program: &Path,
        data_dir: &Path,
        arguments: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Server {
        let log = data_dir.with_extension("log");
        let bind: &[&str] = if arguments.contains(&"--bind") { &[] } else { &["--bind", "127.0.0.1:0"] };
        let mut command = remuda_at(program);
        command.arg("server").args(bind).arg("--data-dir").arg(data_dir).args(arguments);
        command.stdout(Stdio::piped());
        command.stderr(File::options().create(true).append(true).open(&log).unwrap());
        change(&mut command);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = loop {
            match lines.next() {
                Some(line) => {
                    if let Some(url) = line.unwrap().strip_prefix("remuda is ready at ") {
                        break url.to_owned();
                    }
                }
                None => {
                    let status = child.wait().unwrap();
                    panic!("the server ended with {status}:\n{}", fs::read_to_string(&log).unwrap());
                }
            }
        };
        Server { child, url, data_dir: data_dir.to_owned(), log }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.data_dir.join("admin.kubeconfig")
    }

    pub(crate) fn port(&self) -> u16 {
        self.url.rsplit(':').next().unwrap().parse().unwrap()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    /// Says to stop, and how long that took and how it ended.
    pub(crate) fn stop(mut self) -> (Duration, ExitStatus) {
        let started = Instant::now();
        self.signal(Signal::SIGTERM);
        let status = self.child.wait().unwrap();
        (started.elapsed(), status)
    }

    pub(crate) fn kill(mut self) {
        self.signal(Signal::SIGKILL);
        self.child.wait().unwrap();
    }
}

fn wants_a_right(line: &str) -> bool {
    line.contains(remuda_names::user::CONTROLLER_PREFIX)
        && line.contains(" is forbidden: ")
        && line.contains(" cannot ")
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the server\n{}", self.log());
            return;
        }
        // Least privilege is proven by running: no component is ever refused for want of a right.
        let log = self.log();
        let refused: Vec<&str> = log.lines().filter(|line| wants_a_right(line)).collect();
        assert!(refused.is_empty(), "rights are missing in remuda_auth::component: {refused:#?}");
    }
}

/// A directory for one test; the server's data is in a subdirectory that does not exist yet.
pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.join("data")
    }

    pub(crate) fn write(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, contents).unwrap();
        path
    }
}

/// Says loudly that a test did not run.
pub(crate) fn skipped(why: &str) {
    // Past the test harness, which keeps what passing tests print to itself.
    let _ = writeln!(io::stderr(), "SKIPPED: {why}");
}

/// Whether any file below a directory contains these bytes.
pub(crate) fn contains(dir: &Path, needle: &[u8]) -> bool {
    fs::read_dir(dir).unwrap().flatten().any(|entry| match entry.path() {
        path if path.is_dir() => contains(&path, needle),
        path => fs::read(path).unwrap().windows(needle.len()).any(|part| part == needle),
    })
}
