//! What a workload cluster serves.

use serde_json::{Value, json};

/// A kind, as discovery tells of it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Served {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    pub(super) namespaced: bool,
}

const fn kind(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
) -> Served {
    Served { group, version, plural, kind, namespaced }
}

pub(super) const NODES: usize = 0;
pub(super) const NAMESPACES: usize = 1;
pub(super) const PODS: usize = 2;
pub(super) const BUDGETS: usize = 3;

/// Kinds by their number. The first ones have a meaning, the others are only kept.
pub(super) const SERVED: &[Served] = &[
    kind("", "v1", "nodes", "Node", false),
    kind("", "v1", "namespaces", "Namespace", false),
    kind("", "v1", "pods", "Pod", true),
    kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true),
    kind("", "v1", "secrets", "Secret", true),
    kind("", "v1", "configmaps", "ConfigMap", true),
    kind("", "v1", "services", "Service", true),
    kind("", "v1", "serviceaccounts", "ServiceAccount", true),
    kind("", "v1", "persistentvolumes", "PersistentVolume", false),
    kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", true),
    kind("", "v1", "events", "Event", true),
    kind("apps", "v1", "daemonsets", "DaemonSet", true),
    kind("apps", "v1", "deployments", "Deployment", true),
    kind("apps", "v1", "replicasets", "ReplicaSet", true),
    kind("apps", "v1", "statefulsets", "StatefulSet", true),
    kind("batch", "v1", "jobs", "Job", true),
    kind("coordination.k8s.io", "v1", "leases", "Lease", true),
    kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true),
    kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false),
    kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false),
    kind("rbac.authorization.k8s.io", "v1", "roles", "Role", true),
    kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true),
    kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", false),
    kind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", false),
    kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false),
];

impl Served {
    pub(super) fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }
}

/// The number of a kind.
pub(super) fn find(group: &str, version: &str, plural: &str) -> Option<usize> {
    SERVED.iter().position(|known| known.group == group && known.version == version && known.plural == plural)
}

fn groups() -> Vec<(&'static str, &'static str)> {
    let mut groups: Vec<_> = SERVED.iter().map(|known| (known.group, known.version)).collect();
    groups.sort_unstable();
    groups.dedup();
    groups.retain(|(group, _)| !group.is_empty());
    groups
}

/// `/api`.
pub(super) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// `/apis`.
pub(super) fn group_list() -> Value {
    let groups: Vec<Value> = groups()
        .into_iter()
        .map(|(group, version)| {
            let version = json!({"groupVersion": format!("{group}/{version}"), "version": version});
            json!({"name": group, "versions": [version], "preferredVersion": version})
        })
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/api/v1` and `/apis/GROUP/VERSION`; `None` if nothing is in there.
pub(super) fn resource_list(group: &str, version: &str) -> Option<Value> {
    let verbs = json!(["create", "delete", "get", "list", "patch", "update", "watch"]);
    let mut resources = Vec::new();
    let here = |known: &&Served| known.group == group && known.version == version;
    for known in SERVED.iter().filter(here) {
        resources.push(json!({
            "name": known.plural,
            "singularName": known.kind.to_lowercase(),
            "namespaced": known.namespaced,
            "kind": known.kind,
            "verbs": verbs,
        }));
        if known.kind == "Pod" {
            resources.push(json!({
                "name": "pods/eviction", "singularName": "", "namespaced": true, "group": "policy",
                "version": "v1", "kind": "Eviction", "verbs": ["create"],
            }));
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!resources.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
            "resources": resources,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_with_a_meaning_have_their_numbers() {
        for (number, plural) in
            [(NODES, "nodes"), (NAMESPACES, "namespaces"), (PODS, "pods"), (BUDGETS, "poddisruptionbudgets")]
        {
            assert_eq!(SERVED[number].plural, plural);
        }
    }

    #[test]
    fn every_kind_is_in_discovery_once() {
        let mut told = 0;
        for (group, version) in groups().into_iter().chain([("", "v1")]) {
            let list = resource_list(group, version).unwrap();
            let resources = list["resources"].as_array().unwrap();
            told += resources.iter().filter(|one| !one["name"].as_str().unwrap().contains('/')).count();
        }
        assert_eq!(told, SERVED.len());
        assert_eq!(resource_list("nobody", "v1"), None);
    }
}
