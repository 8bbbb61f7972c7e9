//! The program started again, as the processes that machines are made of.
//!
//! Namespaces are entered by single-threaded processes only, and without `unsafe` there is no `fork`. So each
//! step is the program itself with `sandbox <stage>` as its arguments: it changes its own namespaces before
//! any thread exists and starts the next stage, which finds itself inside.
//!
//! A stage that others wait for says one line on its standard output, `ready` or `error <text>`; its standard
//! input is the lock of the work it belongs to ([`crate::lock::Work`]), which it closes when that is done.

use std::{
    ffi::OsString,
    fs::File,
    io::{Read, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitCode, Stdio},
};

use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::{
    error::{Doing, Error, Result, chain},
    init,
    place::Place,
    tools,
};

pub(crate) mod dial;
mod enter;
mod hold;
mod hub;
pub(crate) use hub::{HUB, bind, read_line};
mod machine;
mod probe;
pub(crate) use probe::ISOLATED;
pub(crate) mod root;
pub(crate) mod users;

/// The first argument of the program that leads to [`run_stage`].
pub const COMMAND: &str = "sandbox";

const USAGE: &str = "remuda sandbox hub|hold|machine|init|admit|enter|dial|probe|systemctl|journalctl ...";

/// Runs `remuda sandbox <args>`. To be called before any thread is started.
///
/// # Errors
/// For people, in one line. What other processes wait for has then been told to them already.
pub fn run_stage(args: &[OsString]) -> Result<ExitCode> {
    let mut args = args.iter().map(|arg| arg.to_string_lossy().into_owned());
    let stage = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let texts: Vec<&str> = rest.iter().map(String::as_str).collect();
    match (stage.as_str(), texts.as_slice()) {
        ("hub", [dir]) => answering(hub::run(&Place::at(*dir))),
        ("detach", next) => detach(next),
        ("hold", [parent]) => answering(hold::run(parent)),
        ("machine", [dir, id]) => answering(machine::run(&Place::at(*dir), id)),
        ("init", [dir, id]) => answering(init::run(&Place::at(*dir), id)),
        ("admit", [pid, first, cable]) => answering(users::admit(pid, first, cable)),
        ("probe", [dir]) => answering(probe::run(dir)),
        ("enter", [pid, command @ ..]) => enter::run(pid, command),
        ("dial", [pid, address]) => dial::run(pid, address),
        ("systemctl", args) => Ok(tools::systemctl(args)),
        ("journalctl", args) => Ok(tools::journalctl(args)),
        _ => Err(Error::Usage(USAGE)),
    }
}

/// Runs a tool the program is called as: `systemctl`, `journalctl`. `None` for any other name.
pub fn run_tool(name: &str, args: &[OsString]) -> Option<ExitCode> {
    let args: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match name {
        "systemctl" => Some(tools::systemctl(&args)),
        "journalctl" => Some(tools::journalctl(&args)),
        _ => None,
    }
}

/// Starts a stage that outlives its caller, as a child of nobody: whoever calls us waits for us only.
fn detach(next: &[&str]) -> Result<ExitCode> {
    program().args(next).spawn().doing(|| "start a process of its own")?;
    Ok(ExitCode::SUCCESS)
}

fn answering(result: Result<()>) -> Result<ExitCode> {
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            say(&format!("error {}", chain(&error).replace('\n', "\\n")));
            Err(error)
        }
    }
}

/// A line for whoever waits. Nobody may be there any more, which is fine.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
}

/// A line for the stage's log.
pub(crate) fn note(line: &str) {
    let now = remuda_base::rfc3339(jiff::Timestamp::now().as_second());
    let _ = std::io::stderr().write_all(format!("{now} {line}\n").as_bytes());
}

/// Says `ready`, gives the lock back and lets go of the waiting process.
pub(crate) fn settle(log: &File) -> Result<()> {
    say("ready");
    let null = File::options().read(true).write(true).open("/dev/null").doing(|| "open /dev/null")?;
    dup2_stdin(&null).doing(|| "close the lock")?;
    dup2_stdout(log).doing(|| "open the log")?;
    dup2_stderr(log).doing(|| "open the log")
}

/// The program, for the next stage. The link in `/proc` also works when the file has been replaced.
pub(crate) fn program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(remuda_names::PROGRAM).arg(COMMAND);
    command
}

/// What a stage said.
pub(crate) fn verdict(text: &str) -> Result<()> {
    match text.lines().find_map(|line| line.strip_prefix("error ")) {
        Some(problem) => {
            let problem = problem.replace("\\n", "\n");
            let forbidden = problem.contains("\nhint: ");
            Err(if forbidden { Error::Forbidden(problem) } else { Error::Stage(problem) })
        }
        None if text.lines().any(|line| line == "ready") => Ok(()),
        None => Err(Error::Silent(String::new())),
    }
}

/// Starts a stage and waits for its word.
pub(crate) fn start(command: &mut Command) -> Result<Child> {
    let mut child = command.stdout(Stdio::piped()).spawn().doing(|| "start the next stage")?;
    let text = child.stdout.take().map(|mut out| read_word(&mut out)).unwrap_or_default();
    verdict(&text)?;
    Ok(child)
}

/// A line, byte by byte: what comes after it is for others.
fn read_word(out: &mut impl Read) -> String {
    let mut text = String::new();
    let mut byte = [0; 1];
    while out.read(&mut byte).is_ok_and(|count| count == 1) {
        text.push(char::from(byte[0]));
        if byte[0] == b'\n' {
            break;
        }
    }
    text
}
