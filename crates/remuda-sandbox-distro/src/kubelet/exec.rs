//! `node pod-exec`: the last step before a process of a Pod or of the control plane.
//!
//! Runs as a process of its own, arranges what only the process itself can arrange, and becomes the
//! program. It dies when the node's process dies, so that nothing is left over by a kill.

use std::{
    fs, io,
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
    sys::{prctl, signal::Signal},
    unistd::{Pid, chdir, getppid, setsid},
};

use super::volumes::Mount;

/// How long a process may take to become its program.
const SETTLE: Duration = Duration::from_millis(10);
const SETTLING: u32 = 1000;

/// What the process is told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub mounts: Vec<Mount>,
    /// A process of the same parent, whose files are to be seen.
    pub beside: Option<u32>,
    /// Standard input is a terminal of its own.
    pub terminal: bool,
    pub dir: Option<PathBuf>,
    pub program: PathBuf,
    pub args: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error("node pod-exec: {0}")]
    Usage(&'static str),
    #[error("run {}", .program.display())]
    Run { program: PathBuf, source: io::Error },
    #[error("the process that started this one is gone")]
    Orphan,
    #[error("the container's process is gone")]
    Gone,
    #[error("see the container's files")]
    Join(#[source] io::Error),
}

impl ExecError {
    /// What shells exit with when a program cannot be run.
    pub fn exit_code(&self) -> u8 {
        match self {
            ExecError::Run { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            ExecError::Run { .. } | ExecError::Join(_) | ExecError::Gone => 126,
            ExecError::Usage(_) | ExecError::Orphan => 1,
        }
    }
}

impl Plan {
    /// As arguments after `node pod-exec`.
    pub fn to_args(&self) -> Vec<String> {
        let mut args = Vec::new();
        for mount in &self.mounts {
            args.push(if mount.read_only { "--mount-ro" } else { "--mount" }.to_owned());
            args.push(mount.source.display().to_string());
            args.push(mount.target.display().to_string());
        }
        if let Some(pid) = self.beside {
            args.extend(["--beside".to_owned(), pid.to_string()]);
        }
        if self.terminal {
            args.push("--terminal".to_owned());
        }
        if let Some(dir) = &self.dir {
            args.extend(["--dir".to_owned(), dir.display().to_string()]);
        }
        args.push("--".to_owned());
        args.push(self.program.display().to_string());
        args.extend(self.args.iter().cloned());
        args
    }

    pub fn parse(args: &[String]) -> Result<Plan, ExecError> {
        let mut plan = Plan::default();
        let mut args = args.iter();
        loop {
            match args.next().map(String::as_str) {
                Some(flag @ ("--mount" | "--mount-ro")) => {
                    let (Some(source), Some(target)) = (args.next(), args.next()) else {
                        return Err(ExecError::Usage("--mount needs a source and a target"));
                    };
                    plan.mounts.push(Mount {
                        source: source.into(),
                        target: target.into(),
                        read_only: flag == "--mount-ro",
                    });
                }
                Some("--beside") => {
                    let pid = args.next().and_then(|pid| pid.parse().ok());
                    plan.beside = Some(pid.ok_or(ExecError::Usage("--beside needs a process"))?);
                }
                Some("--terminal") => plan.terminal = true,
                Some("--dir") => {
                    plan.dir = Some(args.next().ok_or(ExecError::Usage("--dir needs a directory"))?.into());
                }
                Some("--") => break,
                _ => {
                    return Err(ExecError::Usage(
                        "expected --mount, --mount-ro, --beside, --terminal, --dir or --",
                    ));
                }
            }
        }
        plan.program = args.next().ok_or(ExecError::Usage("no program"))?.into();
        plan.args = args.cloned().collect();
        Ok(plan)
    }

    /// Becomes the program. Returns only if that fails.
    pub fn run(&self) -> ExecError {
        let parent = getppid();
        if prctl::set_pdeathsig(Signal::SIGKILL).is_ok() && getppid() != parent {
            return ExecError::Orphan;
        }
        if let Some(pid) = self.beside {
            if let Err(error) = join(pid, parent) {
                return error;
            }
        } else if !self.mounts.is_empty() {
            // Without the right to mount, the program still has the tree it is told of.
            let _ = self.bind();
        }
        if self.terminal {
            // A shell without a terminal to control still runs.
            let _ = setsid();
            let _ = rustix::process::ioctl_tiocsctty(io::stdin());
        }
        if let Some(dir) = &self.dir
            && let Err(source) = chdir(dir.as_path())
        {
            return ExecError::Run { program: dir.clone(), source: source.into() };
        }
        let source = Command::new(&self.program).args(&self.args).exec();
        ExecError::Run { program: self.program.clone(), source }
    }

    /// Puts the volumes where the container expects them, for this process only.
    fn bind(&self) -> nix::Result<()> {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        for wanted in &self.mounts {
            if make_target(wanted).is_ok() {
                let _ = mount(
                    Some(&wanted.source),
                    &wanted.target,
                    none,
                    MsFlags::MS_BIND | MsFlags::MS_REC,
                    none,
                );
                if wanted.read_only {
                    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
                    let _ = mount(none, &wanted.target, none, flags, none);
                }
            }
        }
        Ok(())
    }
}

/// Sees the files another process sees.
fn join(pid: u32, parent: Pid) -> Result<(), ExecError> {
    let own = fs::metadata("/proc/self/ns/mnt").map_err(|_| ExecError::Gone)?;
    for _ in 0..SETTLING {
        // Its number may have become somebody else's, who is nobody of ours.
        let (line, stat) =
            (fs::read(format!("/proc/{pid}/cmdline")), fs::read_to_string(format!("/proc/{pid}/stat")));
        let (Ok(line), Ok(stat)) = (line, stat) else { return Err(ExecError::Gone) };
        if parent_of(&stat) != Some(parent.as_raw()) {
            return Err(ExecError::Gone);
        }
        // Until it is the container's program it has not arranged its files.
        if line.split(|byte| *byte == 0).nth(2).is_some_and(|word| word == b"pod-exec") {
            std::thread::sleep(SETTLE);
            continue;
        }
        let file = fs::File::open(format!("/proc/{pid}/ns/mnt")).map_err(|_| ExecError::Gone)?;
        let theirs = file.metadata().map_err(|_| ExecError::Gone)?;
        // Where nothing could be mounted there is only one view.
        if (theirs.dev(), theirs.ino()) != (own.dev(), own.ino()) {
            setns(file, CloneFlags::CLONE_NEWNS).map_err(|source| ExecError::Join(source.into()))?;
        }
        return Ok(());
    }
    Err(ExecError::Gone)
}

/// From `/proc/<pid>/stat`. The name of the program may hold anything, but nothing after it has a parenthesis.
fn parent_of(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// A place to mount on. Nothing is made right below the root, where it would stay and be seen.
fn make_target(wanted: &Mount) -> io::Result<()> {
    if wanted.target.exists() {
        return Ok(());
    }
    let parent = wanted.target.parent().unwrap_or(Path::new("/"));
    if parent == Path::new("/") {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if wanted.source.is_dir() {
        return std::fs::create_dir_all(&wanted.target);
    }
    std::fs::create_dir_all(parent)?;
    std::fs::OpenOptions::new().create(true).append(true).open(&wanted.target).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_the_command_line() {
        let mount = |read_only| Mount { source: "/a b".into(), target: "/c/--".into(), read_only };
        let plan = Plan {
            mounts: vec![mount(true), mount(false)],
            beside: Some(17),
            terminal: true,
            dir: Some("/a dir".into()),
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), "--".to_owned()],
        };
        assert_eq!(Plan::parse(&plan.to_args()).unwrap(), plan);
    }

    #[test]
    fn nonsense_is_refused() {
        for args in [vec![], vec!["--mount", "a"], vec!["--"], vec!["x"], vec!["--beside", "x", "--", "y"]] {
            let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
            assert!(Plan::parse(&args).is_err());
        }
    }

    #[test]
    fn a_parent_is_found_whatever_a_program_is_called() {
        assert_eq!(parent_of("12 (a) b) (c) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of("12"), None);
    }
}
