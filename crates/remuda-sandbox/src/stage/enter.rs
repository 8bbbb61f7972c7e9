//! Runs a command inside a machine, on the terminal and the descriptors of its caller.
//!
//! The caller's own process goes in. So signals, window sizes, job control and exit codes need no care, and
//! the machine's first process is not asked.

use std::{
    fs::{self, File},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitCode},
};

use nix::{
    sched::{CloneFlags, setns},
    sys::signal::{SigSet, Signal},
    unistd::{Uid, geteuid},
};

use super::users::become_root;
use crate::{
    error::{Doing, Error, Result},
    init::PATH,
};

pub(crate) fn run(pid: &str, command: &[&str]) -> Result<ExitCode> {
    let [program, args @ ..] = command else {
        return Err(Error::Usage("remuda sandbox enter PID COMMAND..."));
    };
    let mut opened = Vec::new();
    let mut other_users = false;
    for (kind, flag) in [
        ("user", CloneFlags::CLONE_NEWUSER),
        ("cgroup", CloneFlags::CLONE_NEWCGROUP),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("net", CloneFlags::CLONE_NEWNET),
        ("pid", CloneFlags::CLONE_NEWPID),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ] {
        let of = |whose: &str| format!("/proc/{whose}/ns/{kind}");
        // Entering the user namespace one is in already is an error.
        if kind == "user" && fs::read_link(of(pid)).ok() == fs::read_link(of("self")).ok() {
            continue;
        }
        other_users |= kind == "user";
        opened.push((File::open(of(pid)).doing(|| format!("open the machine's {kind} namespace"))?, flag));
    }
    for (namespace, flag) in opened {
        setns(namespace, flag).doing(|| "enter the machine")?;
    }
    if other_users && geteuid() != Uid::from_raw(0) {
        become_root()?;
    }
    // Interrupts from the terminal are the command's business. Caught ones would be lost with us: the
    // command is another process, in the same foreground group.
    let mut held = SigSet::empty();
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTSTP].into_iter().for_each(|signal| held.add(signal));
    let term = std::env::var_os("TERM");
    let mut child = Command::new(program);
    child.args(args).env_clear().env("PATH", PATH).env("HOME", "/root").env("USER", "root");
    child.env("LOGNAME", "root").env("SHELL", "/bin/sh").current_dir("/root");
    if let Some(term) = term {
        child.env("TERM", term);
    }
    let mut child = child.arg0(program).spawn().doing(|| format!("run {program}"))?;
    held.thread_block().doing(|| "leave signals to the command")?;
    let status = child.wait().doing(|| format!("wait for {program}"))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
