//! Benchmarks, of the release build.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context, bail};

use crate::{ci, graph};

/// Builds the program and the load generator, and runs one against the other.
pub(crate) fn run(what: &str, arguments: &[String]) -> anyhow::Result<()> {
    ci::step(&["build", "--release", "--package", "remuda", "--package", "remuda-bench"])?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| graph::root().join("target"), PathBuf::from);
    let release = target.join("release");
    let mut command = Command::new(release.join("remuda-bench"));
    command.arg("--server").arg(release.join("remuda")).arg(what).args(arguments);
    let status = command.status().context("start the load generator")?;
    if !status.success() {
        bail!("the load generator failed ({status})");
    }
    Ok(())
}
