//! The phase of a MachinePool.

use std::{cmp::Ordering, fmt};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Provisioning,
    Provisioned,
    Running,
    ScalingUp,
    ScalingDown,
    /// Somebody else decides how many there are.
    Scaling,
    Deleting,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Provisioning => "Provisioning",
            Phase::Provisioned => "Provisioned",
            Phase::Running => "Running",
            Phase::ScalingUp => remuda_names::capi::condition::SCALING_UP,
            Phase::ScalingDown => remuda_names::capi::condition::SCALING_DOWN,
            Phase::Scaling => "Scaling",
            Phase::Deleting => "Deleting",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the phase follows from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    pub bootstrap_created: bool,
    pub infrastructure_provisioned: bool,
    pub has_nodes: bool,
    pub desired: Option<i32>,
    /// Nodes that are ready.
    pub ready: i32,
    /// Replicas are an autoscaler's.
    pub external: bool,
    pub deleting: bool,
}

/// The phase, or `None` to leave what is there.
pub fn phase(progress: Progress, before: &str) -> Option<Phase> {
    if progress.deleting {
        return Some(Phase::Deleting);
    }
    if let (true, Some(desired)) = (progress.infrastructure_provisioned, progress.desired) {
        return Some(match desired.cmp(&progress.ready) {
            Ordering::Equal => Phase::Running,
            _ if progress.external => Phase::Scaling,
            Ordering::Greater => Phase::ScalingUp,
            Ordering::Less => Phase::ScalingDown,
        });
    }
    if progress.has_nodes {
        return Some(Phase::Provisioned);
    }
    if progress.bootstrap_created && !progress.infrastructure_provisioned {
        return Some(Phase::Provisioning);
    }
    before.is_empty().then_some(Phase::Pending)
}

/// Whether the value of `replicas-managed-by`, if there is one, says that replicas are somebody else's.
pub fn is_external(managed_by: Option<&str>) -> bool {
    managed_by.is_some_and(|value| value != "false")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_goes_through_its_phases() {
        let mut progress = Progress { desired: Some(3), ..Progress::default() };
        assert_eq!(phase(progress, ""), Some(Phase::Pending));
        assert_eq!(phase(progress, "Pending"), None);
        progress.bootstrap_created = true;
        assert_eq!(phase(progress, "Pending"), Some(Phase::Provisioning));
        progress.has_nodes = true;
        assert_eq!(phase(progress, "Provisioning"), Some(Phase::Provisioned));
        progress.infrastructure_provisioned = true;
        assert_eq!(phase(progress, ""), Some(Phase::ScalingUp));
        progress.ready = 3;
        assert_eq!(phase(progress, ""), Some(Phase::Running));
        progress.ready = 4;
        assert_eq!(phase(progress, ""), Some(Phase::ScalingDown));
        progress.external = true;
        assert_eq!(phase(progress, ""), Some(Phase::Scaling));
        progress.deleting = true;
        assert_eq!(phase(progress, ""), Some(Phase::Deleting));
    }

    #[test]
    fn only_false_means_that_nobody_else_scales() {
        assert!(!is_external(None) && !is_external(Some("false")));
        assert!(is_external(Some("")) && is_external(Some("karpenter")));
    }
}
