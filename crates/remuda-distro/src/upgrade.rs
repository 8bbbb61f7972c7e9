//! Which change of version a cluster can follow.
//!
//! What counts is what nodes run, not what was asked for before: the way back from a version that never reached a
//! node is free.

use semver::Version;

use crate::{
    Distro,
    version::{self, Minor},
};

/// Why a change is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    OtherDistro { from: String, to: String },
    Older { from: String, to: String },
    LeavesOutMinor { from: String, to: String, next: Minor },
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::OtherDistro { from, to } => {
                let (old, new) = (Distro::of(from).title(), Distro::of(to).title());
                write!(f, "a cluster of {old} ({from}) cannot become one of {new} ({to})")
            }
            Refused::Older { from, to } => write!(f, "{to} is older than {from}, which nodes run"),
            Refused::LeavesOutMinor { from, to, next } => {
                write!(
                    f,
                    "from {from}, which nodes run, to {to} a minor version is left out: go to {next} first"
                )
            }
        }
    }
}

/// Judges the change of a cluster from the version asked for before. `running` are the versions its nodes report;
/// of a cluster without nodes there are none, and it is free to go anywhere but to the other distribution.
pub fn judge(from: &str, to: &str, running: &[String]) -> Result<(), Refused> {
    let parsed = |text: &str| version::parse(text).map(|version| (text.to_owned(), version));
    let Some((_, new)) = parsed(to) else { return Ok(()) };
    let mut nodes: Vec<(String, Version)> = running.iter().filter_map(|text| parsed(text)).collect();
    nodes.sort_by(|a, b| version::compare(&a.1, &b.1));
    // What nodes run outweighs what was asked for, if they say which distribution that is.
    let mut told =
        nodes.iter().map(|(text, _)| text.as_str()).filter(|text| Distro::reported(text).is_some());
    let asked = Some(from).filter(|from| version::parse(from).is_some());
    let before = told.clone().next().or(asked);
    let changes = |version: &str| Distro::of(version) != Distro::of(to);
    if let Some(from) = told.find(|text| changes(text)).or(before.filter(|before| changes(before))) {
        return Err(Refused::OtherDistro { from: from.to_owned(), to: to.to_owned() });
    }
    if let Some((from, newest)) = nodes.last()
        && new.cmp_precedence(newest).is_lt()
    {
        return Err(Refused::Older { from: from.clone(), to: to.to_owned() });
    }
    if let Some((from, oldest)) = nodes.first()
        && (new.major > oldest.major || new.minor > oldest.minor.saturating_add(1))
    {
        let next = Minor::of(oldest).next();
        return Err(Refused::LeavesOutMinor { from: from.clone(), to: to.to_owned(), next });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &str, to: &str, running: &str, expected: &str) {
        let running: Vec<String> = running.split_whitespace().map(str::to_owned).collect();
        let found = judge(from, to, &running).map_or_else(|refused| refused.to_string(), |()| String::new());
        assert_eq!(found, expected);
    }

    #[test]
    fn nodes_go_one_minor_version_at_a_time_and_never_back() {
        let nodes = "v1.34.2+k3s1 v1.34.2+k3s1";
        check("v1.34.2+k3s1", "v1.34.3+k3s1", nodes, "");
        check("v1.34.2+k3s1", "v1.35.1+k3s1", nodes, "");
        check(
            "v1.34.2+k3s1",
            "v1.36.0+k3s1",
            nodes,
            "from v1.34.2+k3s1, which nodes run, to v1.36.0+k3s1 a minor version is left out: go to 1.35 first",
        );
        check(
            "v1.34.2+k3s1",
            "v1.34.1+k3s1",
            nodes,
            "v1.34.1+k3s1 is older than v1.34.2+k3s1, which nodes run",
        );
        check("v1.34.2+k3s2", "v1.34.2+k3s1", "v1.34.2+k3s2", "");
        // A node that is behind holds the others back.
        check(
            "v1.35.1+k3s1",
            "v1.36.0+k3s1",
            "v1.34.2+k3s1 v1.35.1+k3s1",
            "from v1.34.2+k3s1, which nodes run, to v1.36.0+k3s1 a minor version is left out: go to 1.35 first",
        );
    }

    #[test]
    fn the_way_back_from_a_version_no_node_ran_is_free() {
        check("v1.36.0+k3s1", "v1.35.1+k3s1", "v1.35.1+k3s1", "");
        check("v1.36.0+k3s1", "v1.33.1+k3s1", "", "");
        check("v1.35.1+rke2r1", "v1.35.1+k3s1", "v1.35.1+k3s1", "");
        check(
            "v1.36.0+k3s1",
            "v1.35.1+k3s1",
            "v1.36.0+k3s1 v1.35.1+k3s1",
            "v1.35.1+k3s1 is older than v1.36.0+k3s1, which nodes run",
        );
    }

    #[test]
    fn a_distribution_stays_what_it_is() {
        let refused = "a cluster of K3s (v1.35.1+k3s1) cannot become one of RKE2 (v1.35.1+rke2r1)";
        check("v1.35.1+k3s1", "v1.35.1+rke2r1", "", refused);
        check("v1.35.1+k3s1", "v1.35.1+rke2r1", "v1.35.1+k3s1", refused);
        // Nodes that do not say what they are do not decide it.
        check("v1.35.1+rke2r1", "v1.35.2+rke2r1", "v1.35.1", "");
        check("v1.35.1+k3s1", "v1.35.1+rke2r1", "v1.35.1", refused);
        check("", "v1.35.1+k3s1", "", "");
    }
}
