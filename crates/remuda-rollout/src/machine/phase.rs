//! The phase of a Machine: one word for how far it is.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Provisioning,
    Provisioned,
    Running,
    Updating,
    Deleting,
}

impl Phase {
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Provisioning => "Provisioning",
            Phase::Provisioned => "Provisioned",
            Phase::Running => "Running",
            Phase::Updating => "Updating",
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
    pub has_provider_id: bool,
    pub has_node: bool,
    pub updating: bool,
    pub deleting: bool,
}

/// The phase, or `None` to leave what is there: a machine about which nothing is known keeps its word.
pub fn phase(progress: Progress, before: &str) -> Option<Phase> {
    match progress {
        Progress { deleting: true, .. } => Some(Phase::Deleting),
        Progress { updating: true, .. } => Some(Phase::Updating),
        Progress { has_node: true, infrastructure_provisioned: true, .. } => Some(Phase::Running),
        Progress { has_provider_id: true, .. } => Some(Phase::Provisioned),
        Progress { bootstrap_created: true, infrastructure_provisioned: false, .. } => {
            Some(Phase::Provisioning)
        }
        _ if before.is_empty() => Some(Phase::Pending),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_goes_through_its_phases_in_order() {
        let mut progress = Progress::default();
        let mut seen = Vec::new();
        let mut before = String::new();
        let steps: [fn(&mut Progress); 7] = [
            |_| {},
            |progress| progress.bootstrap_created = true,
            |progress| progress.has_provider_id = true,
            |progress| progress.infrastructure_provisioned = true,
            |progress| progress.has_node = true,
            |progress| progress.updating = true,
            |progress| progress.deleting = true,
        ];
        for step in steps {
            step(&mut progress);
            if let Some(phase) = phase(progress, &before) {
                before = phase.to_string();
            }
            seen.push(before.clone());
        }
        assert_eq!(seen.join(" "), "Pending Provisioning Provisioned Provisioned Running Updating Deleting");
    }

    #[test]
    fn nothing_known_keeps_the_phase() {
        assert_eq!(phase(Progress::default(), "Provisioning"), None);
    }
}
