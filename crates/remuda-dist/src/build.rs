//! Builds the program for every platform this host has the tools for.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use remuda_names::PROGRAM;

use crate::targets::{Host, TARGETS, Target, Tools};

/// A program that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    pub target: String,
    pub program: PathBuf,
}

/// A platform this host cannot build for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotBuilt {
    pub target: String,
    pub reason: String,
}

/// Builds for all targets, or for those that are named, which then must be possible.
pub fn all(
    root: &Path,
    profile: &str,
    named: &[String],
    commit: Option<&str>,
) -> anyhow::Result<(Vec<Built>, Vec<NotBuilt>)> {
    let host = Host::this().context("ask rustc which host this is")?;
    let targets: Vec<Target> = match named {
        [] => TARGETS.to_vec(),
        named => named
            .iter()
            .map(|triple| {
                let known = TARGETS.map(|target| target.triple).join(", ");
                Target::named(triple).with_context(|| format!("--target {triple}: one of {known}"))
            })
            .collect::<Result<_, _>>()?,
    };
    let (mut built, mut not_built) = (Vec::new(), Vec::new());
    for target in targets {
        match target.possible(&host) {
            Ok(tools) => {
                let program = build(root, profile, target, &tools, commit)?;
                built.push(Built { target: target.triple.to_owned(), program });
            }
            Err(reason) if named.is_empty() => {
                not_built.push(NotBuilt { target: target.triple.to_owned(), reason });
            }
            Err(reason) => bail!("--target {}: {reason}", target.triple),
        }
    }
    Ok((built, not_built))
}

fn build(
    root: &Path,
    profile: &str,
    target: Target,
    tools: &Tools,
    commit: Option<&str>,
) -> anyhow::Result<PathBuf> {
    let directory = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["build", "--locked", "--package", PROGRAM, "--profile", profile]);
    command.args(["--target", target.triple, "--target-dir"]).arg(&directory);
    command.envs(tools.variables(target.triple));
    // Where it was built is no part of a program.
    let mut flags = format!("--remap-path-prefix={}=/remuda", root.display());
    if let Some(home) = env::var_os("CARGO_HOME").or_else(|| Some(env::home_dir()?.join(".cargo").into())) {
        flags.push_str(&format!(" --remap-path-prefix={}=/cargo", PathBuf::from(home).display()));
    }
    command.env("RUSTFLAGS", flags);
    if let Some(commit) = commit {
        command.env("REMUDA_COMMIT", commit);
    }
    let status = command.status().context("start cargo build")?;
    if !status.success() {
        bail!("building for {} ended with {status}", target.triple);
    }
    Ok(directory.join(target.triple).join(profile).join(PROGRAM))
}

/// A copy without symbols, made by the tools of the system.
pub fn stripped(program: &Path, to: &Path) -> anyhow::Result<()> {
    let status = Command::new("strip").arg("-o").arg(to).arg(program).status();
    let status = status.context("start strip (Debian: binutils)")?;
    if !status.success() {
        bail!("strip {} ended with {status}", program.display());
    }
    Ok(())
}
