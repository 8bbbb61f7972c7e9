//! The phase of a Cluster.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Provisioning,
    Provisioned,
    Deleting,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Provisioning => "Provisioning",
            Phase::Provisioned => "Provisioned",
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
    /// It refers to an infrastructure or a control plane object.
    pub has_reference: bool,
    pub infrastructure_provisioned: bool,
    /// Host and port are known.
    pub endpoint_valid: bool,
    pub deleting: bool,
}

/// The phase, or `None` to leave what is there. A provisioned cluster may still be waiting for its control plane.
pub fn phase(progress: Progress, before: &str) -> Option<Phase> {
    match progress {
        Progress { deleting: true, .. } => Some(Phase::Deleting),
        Progress { infrastructure_provisioned: true, endpoint_valid: true, .. } => Some(Phase::Provisioned),
        Progress { has_reference: true, .. } => Some(Phase::Provisioning),
        _ if before.is_empty() => Some(Phase::Pending),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_goes_through_its_phases() {
        let mut progress = Progress::default();
        assert_eq!(phase(progress, ""), Some(Phase::Pending));
        assert_eq!(phase(progress, "Provisioned"), None);
        progress.has_reference = true;
        assert_eq!(phase(progress, "Pending"), Some(Phase::Provisioning));
        progress.infrastructure_provisioned = true;
        assert_eq!(phase(progress, "Provisioning"), Some(Phase::Provisioning));
        progress.endpoint_valid = true;
        assert_eq!(phase(progress, "Provisioning"), Some(Phase::Provisioned));
        progress.deleting = true;
        assert_eq!(phase(progress, "Provisioned"), Some(Phase::Deleting));
    }
}
