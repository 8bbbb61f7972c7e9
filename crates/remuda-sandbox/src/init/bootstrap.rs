//! User data is run once: at the first start, and again at the next only if it was interrupted.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
    rc::Rc,
};

use remuda_names::sandbox as names;
use serde::{Deserialize, Serialize};

use super::{PATH, children::Children};
use crate::{
    cloud::{UserData, WriteFile},
    error::{Doing, Result, chain},
    place::write_json,
    stage::note,
    unit::Exit,
};

const USER_DATA: &str = "/var/lib/cloud/instance/user-data.txt";
/// Relative to the machine's root, for those who look from outside.
pub(crate) const RESULT: &str = "var/lib/cloud/instance/result.json";
pub(crate) const LOG: &str = "var/log/cloud-init-output.log";
/// What lines of our own begin with there.
pub(crate) const NOTE: &str = "user data: ";

/// How the user data went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// Empty when everything succeeded.
    pub errors: Vec<String>,
    /// Whether the last command did: as with a script, what failed on the way there is not its outcome.
    #[serde(default)]
    pub succeeded: bool,
}

pub(crate) async fn run(children: Rc<Children>) {
    let result = Path::new("/").join(RESULT);
    if result.exists() {
        return;
    }
    let text = fs::read_to_string(USER_DATA).unwrap_or_default();
    let bootstrap = match UserData::parse(&text) {
        Ok(data) => apply(&children, &data).await,
        Err(problem) => Bootstrap { errors: vec![problem.to_string()], succeeded: false },
    };
    bootstrap.errors.iter().for_each(|error| log(&format!("failed: {error}")));
    log("finished");
    if let Err(error) = write_json(&result, &bootstrap) {
        note(&chain(&error));
    }
}

async fn apply(children: &Children, data: &UserData) -> Bootstrap {
    let mut errors = Vec::new();
    data.ignored.iter().for_each(|key| log(&format!("{key} is not supported and left out")));
    for file in &data.files {
        if let Err(error) = write(file) {
            errors.push(chain(&error));
        }
    }
    let mut succeeded = errors.is_empty();
    for words in &data.commands {
        let [program, args @ ..] = words.as_slice() else { continue };
        let before = errors.len();
        let mut command = Command::new(program);
        command.args(args).current_dir("/").env_clear().env("PATH", PATH).env("HOME", "/root");
        command.env("USER", "root").env("LANG", "C.UTF-8");
        // The program is here already; nothing need be fetched for the agent.
        command.env(names::env::AGENT_IS_LOCAL, "true");
        command.env(names::env::AGENT_LOCATION, names::PROGRAM);
        let output = output().and_then(|file| Ok((file.try_clone()?, file)));
        let Ok((out, err)) = output else {
            errors.push(format!("open /{LOG}"));
            succeeded = false;
            continue;
        };
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        match children.spawn(&mut command) {
            Ok((_, ending)) => match ending.await {
                Ok(Exit::Code(0)) => {}
                Ok(Exit::Code(code)) => errors.push(format!("{program} ended with {code}")),
                Ok(Exit::Signal(signal)) => errors.push(format!("{program} was ended by signal {signal}")),
                Err(_) => errors.push(format!("{program} was lost")),
            },
            Err(error) => errors.push(format!("{program}: {error}")),
        }
        succeeded = errors.len() == before;
    }
    Bootstrap { errors, succeeded }
}

fn write(file: &WriteFile) -> Result<()> {
    let path = Path::new(&file.path);
    let act = || {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut options = OpenOptions::new();
        options.create(true).mode(file.mode).append(file.append).write(true).truncate(!file.append);
        let mut out = options.open(path)?;
        out.set_permissions(fs::Permissions::from_mode(file.mode))?;
        out.write_all(&file.content)
    };
    act().doing(|| format!("write {}", file.path))
}

fn output() -> std::io::Result<fs::File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(Path::new("/").join(LOG))
}

fn log(line: &str) {
    if let Ok(mut file) = output() {
        let _ = writeln!(file, "{NOTE}{line}");
    }
}
