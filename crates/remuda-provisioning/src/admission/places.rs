//! Where clusters and machine configurations may be created.

use remuda_names::rancher::name::{FLEET_DEFAULT, FLEET_LOCAL};

/// What a namespace is to people who make clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workspace {
    /// Everybody who may create clusters may do so here.
    Shared,
    /// Only who was given it.
    Given,
    /// Of the server or of Kubernetes: no cluster is ever created here by a person.
    System,
}

/// Namespaces of the server and of Kubernetes begin like this.
const SYSTEM_PREFIXES: [&str; 3] = ["kube-", "cattle-", "system-"];
/// Others of theirs. The workspace of the local cluster is the server's own.
const SYSTEM_NAMES: [&str; 3] = ["default", FLEET_LOCAL, ""];

pub fn workspace(namespace: &str) -> Workspace {
    if namespace == FLEET_DEFAULT {
        Workspace::Shared
    } else if SYSTEM_NAMES.contains(&namespace)
        || SYSTEM_PREFIXES.iter().any(|prefix| namespace.starts_with(prefix))
    {
        Workspace::System
    } else {
        Workspace::Given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_of_the_server_are_no_workspaces() {
        for (namespace, expected) in [
            ("fleet-default", Workspace::Shared),
            ("team-a", Workspace::Given),
            ("kube-system", Workspace::System),
            ("kube-public", Workspace::System),
            ("cattle-system", Workspace::System),
            ("cattle-global-data", Workspace::System),
            ("default", Workspace::System),
            ("fleet-local", Workspace::System),
            ("", Workspace::System),
        ] {
            assert_eq!(workspace(namespace), expected, "{namespace}");
        }
    }
}
