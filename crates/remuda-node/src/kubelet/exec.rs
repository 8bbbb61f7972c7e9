//! `node pod-exec`: the last step before a process of a Pod or of the control plane.
//!
//! Runs as a process of its own, arranges what only the process itself can arrange, and becomes the
//! program. It dies when the node's process dies, so that nothing is left over by a kill.

use std::{
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::{prctl, signal::Signal},
    unistd::getppid,
};

use super::volumes::Mount;

/// What the process is told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub mounts: Vec<Mount>,
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
                Some("--") => break,
                _ => return Err(ExecError::Usage("expected --mount, --mount-ro or --")),
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
        if !self.mounts.is_empty() {
            // Without the right to mount, the program still has the tree it is told of.
            let _ = self.bind();
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
            program: "/bin/sh".into(),
            args: vec!["-c".to_owned(), "--".to_owned()],
        };
        assert_eq!(Plan::parse(&plan.to_args()).unwrap(), plan);
    }

    #[test]
    fn nonsense_is_refused() {
        for args in [vec![], vec!["--mount", "a"], vec!["--"], vec!["x"]] {
            let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
            assert!(Plan::parse(&args).is_err());
        }
    }
}
