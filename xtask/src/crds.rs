//! The definitions of our kinds, which are committed.
//!
//! The work is done by tests of `remuda-api`: they know the types, and what they generate is what
//! they compare with otherwise.

use std::process::Command;

use anyhow::{Context, bail};

use crate::{ci, graph};

/// Generates, and then checks: types and definitions must have the same fields either way.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    if !check {
        test(true, "crd::generate")?;
    }
    test(false, "crd::")
}

fn test(update: bool, filter: &str) -> anyhow::Result<()> {
    let arguments = ["test", "--package", "remuda-api", "--lib", "--quiet", "--", filter];
    ci::report(&format!("running cargo {}", arguments.join(" ")));
    let mut command = Command::new("cargo");
    command.current_dir(graph::root()).args(arguments).env_remove("UPDATE_GOLDEN");
    if update {
        command.env("UPDATE_GOLDEN", "1");
    }
    let status = command.status().context("start cargo test")?;
    if !status.success() {
        bail!("the definitions are not as they should be ({status})");
    }
    Ok(())
}
