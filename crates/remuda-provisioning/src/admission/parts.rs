//! Deletions of single objects a cluster is made of.
//!
//! `kubectl delete cluster NAME` means the Cluster of Cluster API: kubectl completes the kind to the first group that
//! has it. That would take every machine down and make the cluster again from nothing, which is never what was meant.

use remuda_names::{
    capi,
    rancher::{group, object_set},
};
use serde_json::Value;

/// A deletion of something that may be a part of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct PartDeletion<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    /// Deleted by the server itself, or by what collects garbage.
    pub is_server: bool,
    /// The object as it is.
    pub object: &'a Value,
}

/// What an object is a part of. As long as that stays, the part does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whole {
    /// The provisioning Cluster it was made for.
    Cluster { namespace: String, name: String },
    /// The Machine it is behind.
    Machine { namespace: String, name: String, uid: String },
}

/// Whether deletions of a kind are judged at all. Those of Machines and MachineSets are not: whoever deletes them
/// wants them replaced, which is what happens. Nor are templates: they are made again as they were.
pub fn is_part_kind(group: &str, kind: &str) -> bool {
    is_cluster_part(group, kind) || is_machine_part(group, kind)
}

fn is_cluster_part(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        (capi::group::CORE, "Cluster" | "MachineDeployment") | (group::RKE, "RKECluster" | "RKEControlPlane")
    )
}

fn is_machine_part(group: &str, kind: &str) -> bool {
    matches!((group, kind), (group::RKE, "RKEBootstrap" | "CustomMachine"))
        || group == group::MACHINE && kind.ends_with("Machine")
}

/// What stands in the way of a deletion if it is there and stays; `None` if nothing does.
pub fn whole_of(deletion: &PartDeletion<'_>) -> Option<Whole> {
    let PartDeletion { group, kind, is_server, object } = *deletion;
    if is_server || !object["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    match () {
        () if is_cluster_part(group, kind) => cluster_of(&object["metadata"]),
        () if is_machine_part(group, kind) => machine_of(&object["metadata"]),
        () => None,
    }
}

fn cluster_of(metadata: &Value) -> Option<Whole> {
    let annotation = |key: &str| metadata["annotations"][key].as_str().filter(|value| !value.is_empty());
    let namespace = annotation(object_set::OWNER_NAMESPACE)?.to_owned();
    let name = annotation(object_set::OWNER_NAME)?.to_owned();
    let made =
        annotation(object_set::OWNER_GVK)? == OWNER && metadata["labels"][object_set::HASH].is_string();
    (made && metadata["namespace"].as_str() == Some(&namespace)).then_some(Whole::Cluster { namespace, name })
}

/// As object sets write it.
const OWNER: &str = "provisioning.cattle.io/v1, Kind=Cluster";

fn machine_of(metadata: &Value) -> Option<Whole> {
    let owner = metadata["ownerReferences"].as_array()?.iter().find(|owner| {
        let group = owner["apiVersion"].as_str().and_then(|version| version.split_once('/'));
        owner["kind"] == "Machine" && group.is_some_and(|(group, _)| group == capi::group::CORE)
    })?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some(Whole::Machine {
        namespace: text(&metadata["namespace"])?,
        name: text(&owner["name"])?,
        uid: text(&owner["uid"])?,
    })
}

/// Why a part cannot be deleted, and what does what was meant.
pub fn refuse_part(kind: &str, whole: &Whole) -> String {
    match whole {
        Whole::Machine { namespace, name, .. } => format!(
            "machine {namespace}/{name} needs it as long as it is there; to replace the machine: \
             kubectl -n {namespace} delete machines.cluster.x-k8s.io {name}"
        ),
        Whole::Cluster { namespace, name } => {
            let target = format!("clusters.provisioning.cattle.io {name}");
            let meant = match kind {
                "MachineDeployment" => format!(
                    "to remove the pool, take it out of spec.rkeConfig.machinePools: \
                     kubectl -n {namespace} edit {target}; to replace a machine, delete its Machine"
                ),
                _ => format!("to delete the whole cluster: kubectl -n {namespace} delete {target}"),
            };
            format!(
                "it is a part of cluster {namespace}/{name} and would be made again, with new machines; {meant}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({"metadata": {
            "name": "demo", "namespace": "fleet-default",
            "labels": {"objectset.rio.cattle.io/hash": "x"},
            "annotations": {
                "objectset.rio.cattle.io/owner-gvk": "provisioning.cattle.io/v1, Kind=Cluster",
                "objectset.rio.cattle.io/owner-name": "demo",
                "objectset.rio.cattle.io/owner-namespace": "fleet-default",
            },
        }})
    }

    #[track_caller]
    fn check(group: &str, kind: &str, user: &str, object: &Value, expected: bool) {
        let deletion = PartDeletion { group, kind, is_server: user.starts_with("system:remuda:"), object };
        assert_eq!(whole_of(&deletion).is_some(), expected, "{kind} {user}");
    }

    #[test]
    fn a_person_does_not_delete_parts() {
        const CORE: &str = "cluster.x-k8s.io";
        check(CORE, "Cluster", "kubernetes-admin", &object(), true);
        check(CORE, "MachineDeployment", "u-abc", &object(), true);
        check("rke.cattle.io", "RKEControlPlane", "system:serviceaccount:default:x", &object(), true);
        check("rke.cattle.io", "RKECluster", "kubernetes-admin", &object(), true);
        for replaced in ["Machine", "MachineSet"] {
            check(CORE, replaced, "kubernetes-admin", &object(), false);
        }
        check(CORE, "Cluster", "system:remuda:controllers", &object(), false);
    }

    #[test]
    fn what_is_no_part_or_goes_already_may_be_deleted() {
        const CORE: &str = "cluster.x-k8s.io";
        check(CORE, "Cluster", "u", &json!({"metadata": {"name": "x"}}), false);
        let mut going = object();
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check(CORE, "Cluster", "u", &going, false);
        let mut copied = object();
        copied["metadata"]["namespace"] = json!("elsewhere");
        check(CORE, "Cluster", "u", &copied, false);
        let mut foreign = object();
        foreign["metadata"]["annotations"]["objectset.rio.cattle.io/owner-gvk"] = json!("a/v1, Kind=B");
        check(CORE, "Cluster", "u", &foreign, false);
    }

    #[test]
    fn what_is_behind_a_machine_stays_as_long_as_the_machine() {
        let owner =
            json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "name": "m", "uid": "1"});
        let behind = json!({"metadata": {"name": "m", "namespace": "d", "ownerReferences": [owner]}});
        check("rke.cattle.io", "RKEBootstrap", "kubernetes-admin", &behind, true);
        check("rke-machine.cattle.io", "LocalMachine", "u-abc", &behind, true);
        check("rke-machine.cattle.io", "LocalMachineTemplate", "u-abc", &behind, false);
        check("rke.cattle.io", "RKEBootstrap", "system:remuda:controllers", &behind, false);
        let alone = json!({"metadata": {"name": "m", "namespace": "d"}});
        check("rke.cattle.io", "RKEBootstrap", "kubernetes-admin", &alone, false);
        let whole = Whole::Machine { namespace: "d".into(), name: "m".into(), uid: "1".into() };
        let told = refuse_part("RKEBootstrap", &whole);
        assert!(told.ends_with("kubectl -n d delete machines.cluster.x-k8s.io m"), "{told}");
    }

    #[test]
    fn the_answer_names_the_command() {
        let whole = Whole::Cluster { namespace: "fleet-default".into(), name: "demo".into() };
        assert_eq!(
            refuse_part("Cluster", &whole),
            "it is a part of cluster fleet-default/demo and would be made again, with new machines; to delete the \
             whole cluster: kubectl -n fleet-default delete clusters.provisioning.cattle.io demo"
        );
        assert!(refuse_part("MachineDeployment", &whole).contains("spec.rkeConfig.machinePools"));
    }
}
