//! Checks before machines are made or replaced: is the control plane in a state to take them?

use std::{collections::BTreeSet, fmt};

use remuda_distro::version::{compare, parse_tolerant};
use semver::Version;

use super::creation::Throttle;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    KubeadmVersionSkew,
    KubernetesVersionSkew,
    ControlPlaneIsStable,
    ControlPlaneVersionSkew,
}

impl Check {
    pub const ALL: [Check; 4] = [
        Check::KubeadmVersionSkew,
        Check::KubernetesVersionSkew,
        Check::ControlPlaneIsStable,
        Check::ControlPlaneVersionSkew,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Check::KubeadmVersionSkew => "KubeadmVersionSkew",
            Check::KubernetesVersionSkew => "KubernetesVersionSkew",
            Check::ControlPlaneIsStable => "ControlPlaneIsStable",
            Check::ControlPlaneVersionSkew => "ControlPlaneVersionSkew",
        }
    }
}

/// Reads the list of checks to skip. Names that are none are ignored here; admission refuses them.
pub fn skipped(annotation: &str) -> BTreeSet<Check> {
    let names: Vec<&str> = annotation.split(',').map(str::trim).collect();
    let all = names.contains(&"All");
    Check::ALL.into_iter().filter(|check| all || names.contains(&check.as_str())).collect()
}

/// The control plane object, as far as the checks look at it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ControlPlane {
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// `spec.version`; without one nothing is checked.
    pub version: Option<String>,
    /// `status.versions`, or else `status.version`.
    pub reported: Vec<String>,
}

/// What the checks depend on besides the control plane.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Preflight {
    pub skip: BTreeSet<Check>,
    /// `spec.template.spec.version` of the set.
    pub version: String,
    /// Machines join with kubeadm.
    pub kubeadm: bool,
    /// Version of a managed topology, or of its current step.
    pub topology: Option<String>,
}

/// A check that failed.
#[derive(Debug, Clone, PartialEq)]
pub enum Failure {
    /// What the Machines would belong to is going. No annotation skips this.
    Deleting {
        what: String,
    },
    /// Machines are made again too often. No annotation skips this.
    Throttled(Throttle),
    Pending {
        control_plane: String,
        version: String,
    },
    Provisioning {
        control_plane: String,
    },
    Upgrading {
        control_plane: String,
    },
    Newer {
        set: Version,
        control_plane: Version,
    },
    TooOld {
        set: Version,
        control_plane: Version,
    },
    Kubeadm {
        set: Version,
        control_plane: Version,
    },
    NotPropagated {
        set: String,
        control_plane: String,
    },
    Unreadable {
        what: &'static str,
        version: String,
    },
}

const SKEW: u64 = 3;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let check = match self {
            Failure::Pending { control_plane, version } => {
                write!(f, "{control_plane} has a pending version upgrade to {version}")?;
                Check::ControlPlaneIsStable
            }
            Failure::Provisioning { control_plane } => {
                write!(f, "{control_plane} is provisioning")?;
                Check::ControlPlaneIsStable
            }
            Failure::Upgrading { control_plane } => {
                write!(f, "{control_plane} is upgrading")?;
                Check::ControlPlaneIsStable
            }
            Failure::Newer { set, control_plane } => {
                write!(
                    f,
                    "MachineSet version ({set}) and ControlPlane version ({control_plane}) do not conform to the \
                     kubernetes version skew policy as MachineSet version is higher than ControlPlane version"
                )?;
                Check::KubernetesVersionSkew
            }
            Failure::TooOld { set, control_plane } => {
                write!(
                    f,
                    "MachineSet version ({set}) and ControlPlane version ({control_plane}) do not conform to the \
                     kubernetes version skew policy as MachineSet version is more than {SKEW} minor versions older \
                     than the ControlPlane version"
                )?;
                Check::KubernetesVersionSkew
            }
            Failure::Kubeadm { set, control_plane } => {
                write!(
                    f,
                    "MachineSet version ({set}) and ControlPlane version ({control_plane}) do not conform to kubeadm \
                     version skew policy as kubeadm only supports joining with the same major+minor version as the \
                     control plane"
                )?;
                Check::KubeadmVersionSkew
            }
            Failure::NotPropagated { set, control_plane } => {
                write!(
                    f,
                    "MachineSet version ({set}) is not yet the same as the ControlPlane version ({control_plane}), \
                     waiting for version to be propagated to the MachineSet"
                )?;
                Check::ControlPlaneVersionSkew
            }
            Failure::Unreadable { what, version } => {
                return write!(f, "failed to parse version {version:?} of {what}");
            }
            Failure::Deleting { what } => return write!(f, "{what} is being deleted"),
            Failure::Throttled(throttle) => return throttle.fmt(f),
        };
        write!(f, " (\"{}\" preflight check failed)", check.as_str())
    }
}

/// Runs the checks; an empty answer lets machines be made.
pub fn preflight(control_plane: Option<&ControlPlane>, input: &Preflight) -> Vec<Failure> {
    let Some((control_plane, version)) = control_plane.and_then(|cp| Some((cp, cp.version.as_ref()?))) else {
        return Vec::new();
    };
    if input.skip.len() == Check::ALL.len() {
        return Vec::new();
    }
    let runs = |check: Check| !input.skip.contains(&check);
    let Some(ours) = parse_tolerant(version) else {
        return vec![Failure::Unreadable { what: "ControlPlane", version: version.clone() }];
    };
    let mut failures = Vec::new();
    if runs(Check::ControlPlaneIsStable) {
        failures.extend(unstable(control_plane, version, &ours, input.topology.as_deref()));
    }
    if input.version.is_empty() {
        return failures;
    }
    let Some(set) = parse_tolerant(&input.version) else {
        failures.push(Failure::Unreadable { what: "MachineSet", version: input.version.clone() });
        return failures;
    };
    if runs(Check::KubernetesVersionSkew) {
        if set.minor > ours.minor {
            failures.push(Failure::Newer { set: set.clone(), control_plane: ours.clone() });
        } else if set.minor < ours.minor.saturating_sub(SKEW) {
            failures.push(Failure::TooOld { set: set.clone(), control_plane: ours.clone() });
        }
    }
    if runs(Check::KubeadmVersionSkew) && input.kubeadm && set.minor != ours.minor {
        failures.push(Failure::Kubeadm { set, control_plane: ours });
    }
    if runs(Check::ControlPlaneVersionSkew) && input.topology.is_some() && *version != input.version {
        let (set, control_plane) = (input.version.clone(), version.clone());
        failures.push(Failure::NotPropagated { set, control_plane });
    }
    failures
}

fn unstable(cp: &ControlPlane, version: &str, parsed: &Version, topology: Option<&str>) -> Option<Failure> {
    let control_plane = format!("{} {}/{}", cp.kind, cp.namespace, cp.name);
    if let Some(wanted) = topology.filter(|wanted| *wanted != version) {
        return Some(Failure::Pending { control_plane, version: wanted.to_owned() });
    }
    let reported: Vec<&String> = cp.reported.iter().filter(|version| !version.is_empty()).collect();
    if reported.is_empty() {
        return Some(Failure::Provisioning { control_plane });
    }
    for version in reported {
        match parse_tolerant(version) {
            None => {
                return Some(Failure::Unreadable { what: "ControlPlane status", version: version.clone() });
            }
            Some(reported) if compare(parsed, &reported).is_gt() => {
                return Some(Failure::Upgrading { control_plane });
            }
            Some(_) => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(control_plane: &str, reported: &str, set: &str, skip: &str, expected: &str) {
        let cp = ControlPlane {
            kind: "KubeadmControlPlane".into(),
            namespace: "ns".into(),
            name: "cp".into(),
            version: (!control_plane.is_empty()).then(|| control_plane.to_owned()),
            reported: reported.split_whitespace().map(str::to_owned).collect(),
        };
        let input = Preflight { skip: skipped(skip), version: set.to_owned(), kubeadm: true, topology: None };
        let told: Vec<_> = preflight(Some(&cp), &input).iter().map(ToString::to_string).collect();
        assert_eq!(told.join("\n"), expected);
    }

    #[test]
    fn a_stable_control_plane_of_the_same_version_lets_machines_be_made() {
        check("v1.33.1", "v1.33.1", "v1.33.0", "", "");
        check("", "", "v1.33.0", "", "");
        check("v1.33.1", "v1.33.1", "", "", "");
        assert!(preflight(None, &Preflight::default()).is_empty());
    }

    #[test]
    fn a_control_plane_in_motion_holds_machines_back() {
        let provisioning =
            "KubeadmControlPlane ns/cp is provisioning (\"ControlPlaneIsStable\" preflight check failed)";
        check("v1.33.1", "", "", "", provisioning);
        let upgrading =
            "KubeadmControlPlane ns/cp is upgrading (\"ControlPlaneIsStable\" preflight check failed)";
        check("v1.34.0", "v1.34.0 v1.33.1", "", "", upgrading);
        check("v1.34.0", "v1.34.0 v1.33.1", "", "ControlPlaneIsStable", "");
        check("v1.34.0+rke2r2", "v1.34.0+rke2r1", "", "", upgrading);
    }

    #[test]
    fn versions_must_not_be_too_far_apart() {
        let skip = "KubeadmVersionSkew";
        check(
            "v1.33.1",
            "v1.33.1",
            "v1.34.0",
            skip,
            "MachineSet version (1.34.0) and ControlPlane version (1.33.1) do not conform to the kubernetes version \
             skew policy as MachineSet version is higher than ControlPlane version (\"KubernetesVersionSkew\" \
             preflight check failed)",
        );
        check("v1.33.1", "v1.33.1", "v1.30.0", skip, "");
        check("v1.2.0", "v1.2.0", "v1.0.0", skip, "");
        check("v1.33.1", "v1.33.1", "v1.29.0", "All", "");
        check(
            "v1.33.1",
            "v1.33.1",
            "v1.32.0",
            "",
            "MachineSet version (1.32.0) and ControlPlane version (1.33.1) do not conform to kubeadm version skew \
             policy as kubeadm only supports joining with the same major+minor version as the control plane \
             (\"KubeadmVersionSkew\" preflight check failed)",
        );
    }

    #[test]
    fn a_version_nobody_can_read_holds_machines_back_and_says_so() {
        check("latest", "", "", "", "failed to parse version \"latest\" of ControlPlane");
    }
}
