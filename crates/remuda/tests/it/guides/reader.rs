//! Does what a guide says, in a shell with a home, a data directory and a port of its own.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::{fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use remuda_sandbox::machines::{Images, Options, Sandbox};

use super::{
    markdown::{self, Block, Kind, Marks},
    shape,
};
use crate::harness::Place;

/// No command of a guide takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a server may take to end after Ctrl-C.
const GOODBYE: Duration = Duration::from_secs(20);
/// Where guides keep the data of a server; here it is below a directory of the test.
const DATA: [&str; 2] = ["/tmp/remuda", "/var/lib/remuda"];
/// Clusters without machines, which are there until it is stopped.
const SIMULATION: &str = "remuda sim run";
/// The addresses that guides show.
const ADDRESSES: [&str; 4] = ["remuda.example:8443", "remuda.example", "127.0.0.1:8443", "127.0.0.1:9443"];

pub(crate) struct Reader {
    place: Place,
    address: String,
    /// Commands that a reader runs in other terminals, and where their output is.
    serving: Vec<(Child, PathBuf)>,
    /// Process groups of commands, for what they leave in the background.
    groups: Vec<Pid>,
    commands: usize,
}

/// What became of a command.
struct Ended {
    code: Option<i32>,
    said: String,
}

impl Reader {
    pub(crate) fn new() -> Reader {
        let place = Place::new();
        for name in ["home", "bin", "work", "said"] {
            fs::create_dir(place.join(name)).unwrap();
        }
        symlink(env!("CARGO_BIN_EXE_remuda"), place.join("bin/remuda")).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let reader = Reader {
            place,
            address: format!("127.0.0.1:{port}"),
            serving: Vec::new(),
            groups: Vec::new(),
            commands: 0,
        };
        reader.begin();
        reader
    }

    /// Forgets the directory and the variables of the guide before.
    pub(crate) fn begin(&self) {
        let _ = fs::remove_file(self.place.join("variables"));
        fs::write(self.place.join("directory"), self.place.join("work").display().to_string()).unwrap();
    }

    fn data(&self) -> PathBuf {
        self.place.data()
    }

    /// What a guide says, with the addresses and directories of this test.
    fn here(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for data in DATA {
            text = text.replace(data, &self.data().display().to_string());
        }
        for address in ADDRESSES {
            text = text.replace(address, &self.address);
        }
        text
    }

    /// Does what a block says.
    pub(crate) fn follow(&mut self, block: &Block) -> Result<(), String> {
        let Marks { before, examples, input, code, .. } = &block.marks;
        for commands in before {
            self.expect(&self.here(commands), &[], "", 0)?;
        }
        let mut text = self.here(&block.text);
        for (example, command) in examples {
            let found = self.run(&self.here(command), "")?.said;
            let found = found.trim();
            if found.is_empty() {
                return Err(format!("{example}: nothing was found with {command}"));
            }
            text = text.replace(self.here(example).as_str(), found);
        }
        match (&block.kind, &block.marks.file) {
            (_, Some(name)) => {
                fs::write(self.directory().join(name), text).map_err(|error| error.to_string())
            }
            (Kind::Text(language), None) if language == "yaml" => self.propose(&text),
            (Kind::Text(_), None) => Ok(()),
            (kind, None) => markdown::steps(kind, &text)
                .iter()
                .try_for_each(|step| self.expect(&step.command, &step.shown, input, *code)),
        }
    }

    /// Does what a guide takes as given.
    #[track_caller]
    pub(crate) fn given(&mut self, command: &str) {
        if let Err(error) = self.expect(command, &[], "", 0) {
            panic!("{error}");
        }
    }

    fn directory(&self) -> PathBuf {
        fs::read_to_string(self.place.join("directory")).unwrap().trim_end().into()
    }

    /// Has the server look at manifests, without keeping them.
    fn propose(&mut self, manifest: &str) -> Result<(), String> {
        if manifest.lines().any(|line| line.starts_with("kind: ")) {
            self.expect("kubectl apply --dry-run=server -f -", &[], manifest, 0)?;
        }
        Ok(())
    }

    fn expect(&mut self, command: &str, shown: &[String], input: &str, code: i32) -> Result<(), String> {
        let ended = match serves(command) {
            true => self.serve(command, shown)?,
            false => self.run(command, input)?,
        };
        if ended.code.is_some_and(|ended| ended != code) {
            return Err(format!("$ {command}\n{}\nended with {}", ended.said, ended.code.unwrap()));
        }
        match shape::missing(shown, &ended.said) {
            None => Ok(()),
            Some(line) => Err(format!("$ {command}\n{}\ndoes not say: {line}", ended.said)),
        }
    }

    /// A command of bash with the directory and the variables that the last one left.
    fn shell(&mut self, command: &str, keep: bool) -> (Command, PathBuf) {
        self.commands += 1;
        let said = self.place.join(&format!("said/{}", self.commands));
        let (variables, directory) = (self.place.join("variables"), self.place.join("directory"));
        // A variable that a guide took back is not given again.
        let mut script = format!(
            "if [ -e '{0}' ]; then unset REMUDA_DATA_DIR KUBECONFIG; . '{0}'; fi\ncd \"$(cat '{1}')\"\n",
            variables.display(),
            directory.display()
        );
        if keep {
            script += &format!(
                "trap 'code=$?; declare -px > {}; pwd > {}; exit $code' EXIT\n",
                variables.display(),
                directory.display()
            );
        }
        script += command;
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(script).env_clear().process_group(0);
        let path = std::env::var_os("PATH").and_then(|path| path.into_string().ok()).unwrap_or_default();
        shell.env("PATH", format!("{}:{path}", self.place.join("bin").display()));
        shell.env("HOME", self.place.join("home")).env("REMUDA_BIND", &self.address);
        shell.env("REMUDA_DATA_DIR", self.data()).env("KUBECONFIG", self.data().join("admin.kubeconfig"));
        let file = File::create(&said).unwrap();
        shell.stdout(file.try_clone().unwrap()).stderr(file);
        (shell, said)
    }

    fn run(&mut self, command: &str, input: &str) -> Result<Ended, String> {
        let (mut shell, said) = self.shell(command, true);
        let mut child = shell.stdin(Stdio::piped()).spawn().unwrap();
        self.groups.push(group(&child));
        // A command that reads nothing may have ended.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let code = wait(&mut child, PATIENCE, || false);
        let said = fs::read_to_string(said).unwrap_or_default();
        match code {
            Some(code) => Ok(Ended { code: Some(code), said }),
            None => Err(format!("$ {command}\n{said}\ntook longer than {PATIENCE:?}")),
        }
    }

    /// A server is left running as soon as it has said what is shown.
    fn serve(&mut self, command: &str, shown: &[String]) -> Result<Ended, String> {
        let ready: Vec<String> = match command {
            // It is silent where there is no terminal to draw on.
            _ if command.starts_with(SIMULATION) => Vec::new(),
            _ if command.starts_with("remuda up") => vec!["…kubectl get nodes".into()],
            _ => vec!["…is ready at …".into()],
        };
        if !command.starts_with(SIMULATION) {
            self.stop()?;
        }
        let (mut shell, path) = self.shell(&format!("exec {command}"), false);
        let mut child = shell.stdin(Stdio::null()).spawn().unwrap();
        self.groups.push(group(&child));
        let said = || fs::read_to_string(&path).unwrap_or_default();
        let is_ready = || shape::missing(&ready, &said()).or(shape::missing(shown, &said())).is_none();
        let code = wait(&mut child, PATIENCE, is_ready);
        if code.is_none() && !is_ready() {
            return Err(format!("$ {command}\n{}\nwas not ready after {PATIENCE:?}", said()));
        }
        if code.is_none() {
            self.serving.push((child, path.clone()));
        }
        Ok(Ended { code, said: said() })
    }

    /// Ctrl-C in the other terminals.
    pub(crate) fn stop(&mut self) -> Result<(), String> {
        while let Some((mut child, said)) = self.serving.pop() {
            let _ = kill(group(&child), Signal::SIGINT);
            let ended = wait(&mut child, GOODBYE, || false);
            if ended != Some(0) {
                let said = fs::read_to_string(said).unwrap_or_default();
                return Err(format!("what was stopped ended with {ended:?}:\n{said}"));
            }
        }
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.stop();
        for group in &self.groups {
            let _ = killpg(*group, Signal::SIGKILL);
        }
        // Machines are no children of the server and outlive it.
        let options = Options {
            data_dir: self.data(),
            program: Path::new(env!("CARGO_BIN_EXE_remuda")).to_owned(),
            images: Images::default(),
            privileged: false,
        };
        let _ = Sandbox::new(options).remove_all();
    }
}

/// It goes on until it is stopped.
fn serves(command: &str) -> bool {
    ["remuda server", "remuda up", SIMULATION].iter().any(|server| command.starts_with(server))
        && !command.trim_end().ends_with('&')
        && !command.contains("--help")
}

fn group(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}

/// The code a process ended with, unless it is enough before or takes too long.
fn wait(child: &mut Child, within: Duration, enough: impl Fn() -> bool) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status.code().unwrap_or(-1));
        }
        if enough() || began.elapsed() > within {
            return None;
        }
        thread::sleep(Duration::from_millis(20));
    }
}
