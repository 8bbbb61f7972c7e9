//! The checks every commit has to pass.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

/// In the order of how soon they fail.
const STEPS: &[(&str, &[&str])] = &[
    ("formatting", &["fmt", "--all", "--check"]),
    ("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    ("tests", &["test", "--workspace", "--no-fail-fast"]),
];

pub(crate) fn run() -> anyhow::Result<()> {
    for (name, arguments) in STEPS {
        let took = step(arguments)?;
        report(&format!("{name}: passed in {} s", took.as_secs()));
    }
    Ok(())
}

pub(crate) fn step(arguments: &[&str]) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let command = format!("cargo {}", arguments.join(" "));
    report(&format!("running {command}"));
    let status =
        Command::new("cargo").args(arguments).status().with_context(|| format!("start {command}"))?;
    if !status.success() {
        bail!("{command} failed ({status})");
    }
    Ok(started.elapsed())
}

#[allow(clippy::print_stderr, reason = "progress, beside the output of cargo itself")]
pub(crate) fn report(line: &str) {
    eprintln!("xtask: {line}");
}
