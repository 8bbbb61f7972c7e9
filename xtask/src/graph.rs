//! What depends on what, as cargo resolves it for this machine.
//!
//! `cargo tree` rather than `cargo metadata`: the latter lists optional dependencies that no
//! enabled feature asks for, and a rule about what is linked must not trip over those.

use std::{collections::BTreeSet, fmt, path::Path, process::Command};

use anyhow::{Context, bail};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) features: Vec<String>,
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} [{}]", self.name, self.version, self.features.join(","))
    }
}

/// What a crate of this workspace links, itself left out. Tests' dependencies do not count.
pub(crate) fn below(name: &str) -> anyhow::Result<BTreeSet<Package>> {
    let mut packages = tree(&["--package", name, "--edges", "normal"])?;
    packages.retain(|package| package.name != name);
    Ok(packages)
}

/// Everything that is built here, tests' and build scripts' dependencies included.
#[cfg(test)]
pub(crate) fn everything() -> anyhow::Result<BTreeSet<Package>> {
    tree(&["--workspace", "--edges", "normal,build,dev"])
}

/// Names of what depends on a crate itself, anywhere here.
#[cfg(test)]
pub(crate) fn dependents(name: &str) -> anyhow::Result<BTreeSet<String>> {
    let packages = tree(&["--workspace", "--edges", "normal,build,dev", "--invert", name, "--depth", "1"])?;
    Ok(packages.into_iter().map(|package| package.name).filter(|other| other != name).collect())
}

fn tree(arguments: &[&str]) -> anyhow::Result<BTreeSet<Package>> {
    let mut command = Command::new("cargo");
    command.current_dir(root()).args(["tree", "--prefix", "none", "--format", "{p}|{f}"]).args(arguments);
    let output = command.output().context("start cargo tree")?;
    if !output.status.success() {
        bail!("cargo tree {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout).context("read the output of cargo tree")?;
    text.lines().filter(|line| !line.is_empty()).map(parse).collect()
}

/// `name v1.2.3 (path or marks)|feature,feature`
fn parse(line: &str) -> anyhow::Result<Package> {
    let (package, features) = line.split_once('|').with_context(|| format!("no features in {line:?}"))?;
    let mut words = package.split(' ');
    let (Some(name), Some(version)) = (words.next(), words.next()) else { bail!("no version in {line:?}") };
    // A repeated package carries a mark after its features.
    let features = features.trim_end_matches("(*)").trim().split(',').filter(|feature| !feature.is_empty());
    Ok(Package {
        name: name.to_owned(),
        version: version.to_owned(),
        features: features.map(str::to_owned).collect(),
    })
}

/// The root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
