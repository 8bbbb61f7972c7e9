//! Benchmarks, of the release build.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context, bail};

use crate::{ci, graph, print};

/// Builds the program and the load generator, and runs one against the other.
pub(crate) fn run(what: &str, arguments: &[String]) -> anyhow::Result<()> {
    ci::step(&["build", "--release", "--package", "remuda", "--package", "remuda-bench"])?;
    let release = release();
    let mut command = Command::new(release.join("remuda-bench"));
    command.arg("--server").arg(release.join("remuda")).arg(what).args(arguments);
    measure(&mut command)
}

/// The same, and what of provisioning is measured without a server.
pub(crate) fn provision(arguments: &[String]) -> anyhow::Result<()> {
    run("provision", arguments)?;
    // Help is not followed by measurements, and neither is what was asked for alone.
    if arguments.iter().any(|argument| ["--up", "--help", "-h"].contains(&argument.as_str())) {
        return Ok(());
    }
    ci::step(&["build", "--release", "--package", "remuda-planner", "--example", "thousand"])?;
    ci::step(&["build", "--release", "--package", "remuda-agent", "--example", "idle"])?;
    let (release, examples) = (release(), release().join("examples"));
    print("one decision of the planner for 1,000 machines (wanted: at most 20 ms)");
    measure(&mut Command::new(examples.join("thousand")))?;
    print("an idle agent (wanted: at most 10 MiB resident)");
    let mut idle = Command::new(examples.join("idle"));
    measure(idle.arg(release.join("remuda")).args(["agent", "run", "--allow-non-root", "--config"]))
}

/// The tunnel alone, with the given arguments, and then the way through it to a cluster.
pub(crate) fn tunnel(arguments: &[String]) -> anyhow::Result<()> {
    ci::step(&["build", "--release", "--package", "remuda-tunnel", "--example", "tunnel_bench"])?;
    measure(Command::new(release().join("examples/tunnel_bench")).args(arguments))?;
    if arguments.iter().any(|argument| ["--help", "-h"].contains(&argument.as_str())) {
        return Ok(());
    }
    run("tunnel", &[])
}

fn release() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| graph::root().join("target"), PathBuf::from);
    target.join("release")
}

fn measure(command: &mut Command) -> anyhow::Result<()> {
    let program = command.get_program().to_owned();
    let status = command.status().with_context(|| format!("start {}", program.display()))?;
    if !status.success() {
        bail!("{} failed ({status})", program.display());
    }
    Ok(())
}
