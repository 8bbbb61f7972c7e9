//! Sandboxes to test in, and what is left of them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    time::{Duration, Instant},
};

use remuda_sandbox::machines::{Images, Machine, NewMachine, Options, Sandbox};

/// Names the program for tests that run as somebody else.
pub(crate) const PROGRAM: &str = "REMUDA_SANDBOX_TEST_PROGRAM";

pub(crate) fn program() -> PathBuf {
    let given = std::env::var_os(PROGRAM).map(PathBuf::from);
    given.unwrap_or_else(|| env!("CARGO_BIN_EXE_remuda-sandbox").into())
}

/// A data directory and the program in it.
pub(crate) struct Bench {
    pub(crate) sandbox: Sandbox,
    pub(crate) data_dir: PathBuf,
    dir: tempfile::TempDir,
}

fn sandbox(data_dir: &Path, privileged: bool) -> Sandbox {
    let data_dir = data_dir.to_owned();
    Sandbox::new(Options { data_dir, program: program(), images: Images::default(), privileged })
}

impl Bench {
    /// `None`, and loudly so, where the host forbids namespaces.
    pub(crate) fn new() -> Option<Self> {
        Self::with(false)
    }

    /// With machines that are the host's, if we are root.
    pub(crate) fn privileged() -> Option<Self> {
        Self::with(true)
    }

    /// The same machines, where new ones are kept apart from the host.
    pub(crate) fn isolating(mut self) -> Self {
        self.sandbox = sandbox(&self.data_dir, false);
        self
    }

    fn with(privileged: bool) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        fs::create_dir(&data_dir).unwrap();
        let sandbox = sandbox(&data_dir, privileged);
        if let Err(error) = sandbox.check() {
            eprintln!("\n*** SKIPPED: this host does not allow local machines:\n*** {error}\n");
            return None;
        }
        Some(Self { sandbox, data_dir, dir })
    }

    pub(crate) fn create(&self, name: &str, user_data: &str) -> Machine {
        let new = NewMachine { id: format!("{name}-id"), name: name.into(), user_data: user_data.into() };
        self.sandbox.create(&new).unwrap_or_else(|error| panic!("{error:?}\n{}", self.console()))
    }

    pub(crate) fn console(&self) -> String {
        let mut text = String::new();
        for dir in ["sandbox/machines", "sandbox/hub"] {
            for entry in walk(&self.data_dir.join(dir)) {
                if entry.extension().is_some_and(|kind| kind == "log") {
                    text.push_str(&format!("--- {}\n", entry.display()));
                    text.push_str(&fs::read_to_string(entry).unwrap_or_default());
                }
            }
        }
        text
    }

    pub(crate) fn run(&self, name: &str, script: &str) -> Output {
        let words = ["/bin/sh", "-c", script].map(str::to_owned);
        let mut command = self.sandbox.enter(name, &words).unwrap();
        command.output().unwrap()
    }

    #[track_caller]
    pub(crate) fn text(&self, name: &str, script: &str) -> String {
        let output = self.run(name, script);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}: {}\n{out}{err}\n{}", output.status, self.console());
        out.trim_end().to_owned()
    }

    /// Every process that has to do with this bench.
    pub(crate) fn processes(&self) -> Vec<String> {
        let mark = self.dir.path().to_str().unwrap().as_bytes();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let pid = entry.file_name().to_string_lossy().into_owned();
            if !pid.bytes().all(|byte| byte.is_ascii_digit()) || pid == std::process::id().to_string() {
                continue;
            }
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let mounts = fs::read(entry.path().join("mountinfo")).unwrap_or_default();
            let contains = |text: &[u8]| text.windows(mark.len()).any(|window| window == mark);
            if contains(&line) || contains(&mounts) {
                found.push(format!("{pid} {}", String::from_utf8_lossy(&line).replace('\0', " ")));
            }
        }
        found
    }

    /// Checks that nothing is left: no process, no mount, no file.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        // A process that was killed needs a moment to be counted by its parent.
        let start = Instant::now();
        while !self.processes().is_empty() && start.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(self.processes(), Vec::<String>::new());
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(self.dir.path().to_str().unwrap()), "{mounts}");
        assert_eq!(walk(&self.data_dir), Vec::<PathBuf>::new());
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.sandbox.remove_all();
    }
}

pub(crate) fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        all.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(walk(&entry.path()));
        }
    }
    all
}

#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}
