//! Relationships between objects: who owns whom, and which management Cluster a Cluster has, from both ends.

use remuda_names::{
    capi::group::CORE as CAPI,
    rancher::{
        group::{MANAGEMENT, PROVISIONING, RKE},
        object_set::{OWNER_GVK, OWNER_NAME, OWNER_NAMESPACE},
    },
};
use serde_json::{Value, json};

use crate::{
    kind::{Catalogue, Kind},
    row::{Owner, id},
    state::State,
};

/// Kinds whose objects are owned by those of another, of which both ends are shown: group and kind of the owner, group
/// and kind of what it owns.
const OWNED: &[(&str, &str, &str, &str)] = &[
    (PROVISIONING, "Cluster", CAPI, "Cluster"),
    (CAPI, "Cluster", CAPI, "MachineDeployment"),
    (CAPI, "Cluster", RKE, "RKEControlPlane"),
    (CAPI, "MachineDeployment", CAPI, "MachineSet"),
    (CAPI, "MachineSet", CAPI, "Machine"),
    (RKE, "RKEControlPlane", CAPI, "Machine"),
    ("apps", "Deployment", "apps", "ReplicaSet"),
    ("apps", "ReplicaSet", "", "Pod"),
    ("apps", "StatefulSet", "", "Pod"),
    ("apps", "DaemonSet", "", "Pod"),
    ("batch", "CronJob", "batch", "Job"),
    ("batch", "Job", "", "Pod"),
];

/// One end of a relationship, seen from the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relationship {
    pub(crate) rel: &'static str,
    /// Whether the other end is where it comes from.
    pub(crate) from: bool,
    /// Schema id of the other end.
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Relationship {
    pub(crate) fn to_value(&self, state: Option<&State>) -> Value {
        let mut value = json!({"rel": self.rel});
        let (kind, place) = if self.from { ("fromType", "fromId") } else { ("toType", "toId") };
        value[kind] = self.kind.as_str().into();
        value[place] = id(&self.namespace, &self.name).into();
        if let Some(state) = state {
            value["state"] = state.name.as_str().into();
            value["error"] = state.error.into();
            value["transitioning"] = state.transitioning.into();
        }
        value
    }
}

/// Kinds that objects of a kind own.
pub(crate) fn owned_kinds<'a>(catalogue: &'a Catalogue, kind: &Kind) -> Vec<&'a std::sync::Arc<Kind>> {
    let ours = OWNED.iter().filter(|(group, name, ..)| *group == kind.group && *name == kind.kind);
    // The group alone decides: versions of references differ from the one that is preferred.
    ours.filter_map(|(_, _, group, name)| catalogue.of(&format!("{group}/"), name)).collect()
}

/// What an object says of its own relationships: its owners, and its management Cluster.
pub(crate) fn of_object(
    catalogue: &Catalogue,
    kind: &Kind,
    namespace: &str,
    owners: &[Owner],
    object: &Value,
) -> Vec<Relationship> {
    let mut found: Vec<Relationship> = owners
        .iter()
        .filter_map(|owner| {
            let kind = catalogue.of(&owner.api_version, &owner.kind)?;
            let namespace = if kind.namespaced { namespace } else { "" };
            Some(Relationship {
                rel: "owner",
                from: true,
                kind: kind.id.clone(),
                namespace: namespace.to_owned(),
                name: owner.name.to_string(),
            })
        })
        .collect();
    if (kind.group.as_str(), kind.kind.as_str()) == (PROVISIONING, "Cluster")
        && let Some(name) = object["status"]["clusterName"].as_str().filter(|name| !name.is_empty())
        && let Some(management) = catalogue.of(&format!("{MANAGEMENT}/"), "Cluster")
    {
        found.push(Relationship {
            rel: "creates",
            from: false,
            kind: management.id.clone(),
            namespace: String::new(),
            name: name.to_owned(),
        });
    }
    if (kind.group.as_str(), kind.kind.as_str()) == (MANAGEMENT, "Cluster") {
        found.extend(made_from(catalogue, object));
    }
    found
}

/// The provisioning Cluster a management Cluster was made from.
fn made_from(catalogue: &Catalogue, object: &Value) -> Option<Relationship> {
    let annotation = |name: &str| object["metadata"]["annotations"][name].as_str();
    let (version, owner) = annotation(OWNER_GVK)?.split_once(", Kind=")?;
    let kind = catalogue.of(version, owner)?;
    if (kind.group.as_str(), kind.kind.as_str()) != (PROVISIONING, "Cluster") {
        return None;
    }
    Some(Relationship {
        rel: "creates",
        from: true,
        kind: kind.id.clone(),
        namespace: annotation(OWNER_NAMESPACE)?.to_owned(),
        name: annotation(OWNER_NAME)?.to_owned(),
    })
}

/// The other end of an ownership.
pub(crate) fn owned(kind: &Kind, namespace: &str, name: &str) -> Relationship {
    Relationship {
        rel: "owner",
        from: false,
        kind: kind.id.clone(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::tests::catalogue;

    #[test]
    fn owners_are_shown_by_their_schema() {
        let catalogue = catalogue();
        let kind = catalogue.find("cluster.x-k8s.io.machine").unwrap();
        let owner = |kind: &str| Owner {
            api_version: "cluster.x-k8s.io/v1beta1".into(),
            kind: kind.into(),
            name: "set".into(),
            uid: "u".into(),
        };
        let found = of_object(&catalogue, kind, "ns", &[owner("MachineSet"), owner("Unknown")], &json!({}));
        let shown: Vec<Value> = found.iter().map(|relationship| relationship.to_value(None)).collect();
        assert_eq!(
            shown,
            [json!({"rel": "owner", "fromType": "cluster.x-k8s.io.machineset", "fromId": "ns/set"})]
        );
        let set = catalogue.find("cluster.x-k8s.io.machineset").unwrap();
        let owned: Vec<&str> = owned_kinds(&catalogue, set).iter().map(|kind| kind.id.as_str()).collect();
        assert_eq!(owned, ["cluster.x-k8s.io.machine"]);
    }

    #[test]
    fn a_cluster_makes_its_management_cluster() {
        let catalogue = catalogue();
        let kind = Kind { group: PROVISIONING.to_owned(), kind: "Cluster".to_owned(), ..Kind::default() };
        let found = of_object(&catalogue, &kind, "ns", &[], &json!({"status": {"clusterName": "c-1"}}));
        let expected = json!({"rel": "creates", "toType": "management.cattle.io.cluster", "toId": "c-1"});
        assert_eq!(found[0].to_value(None), expected);
    }

    #[test]
    fn a_management_cluster_says_what_it_was_made_from() {
        let clusters = |group: &str, version: &str| {
            json!({"metadata": {"name": group}, "versions": [{"version": version, "resources": [
                {"resource": "clusters", "responseKind": {"kind": "Cluster"}, "scope": "Namespaced", "verbs": ["get"]}]}]})
        };
        let groups = json!({"items": [clusters(PROVISIONING, "v1"), clusters(CAPI, "v1beta2")]});
        let catalogue = Catalogue::from_discovery(&[groups]);
        let kind = Kind { group: MANAGEMENT.to_owned(), kind: "Cluster".to_owned(), ..Kind::default() };
        let made_from = |version: &str| {
            let annotations = json!({OWNER_GVK: version, OWNER_NAMESPACE: "ns", OWNER_NAME: "demo"});
            of_object(&catalogue, &kind, "", &[], &json!({"metadata": {"annotations": annotations}}))
        };
        let found = made_from("provisioning.cattle.io/v1, Kind=Cluster");
        let expected =
            json!({"rel": "creates", "fromType": "provisioning.cattle.io.cluster", "fromId": "ns/demo"});
        assert_eq!(found.iter().map(|one| one.to_value(None)).collect::<Vec<_>>(), [expected]);
        for other in
            ["cluster.x-k8s.io/v1, Kind=Cluster", "provisioning.cattle.io/v1, Kind=Other", "", ", Kind="]
        {
            assert_eq!(made_from(other), [], "{other}");
        }
        assert_eq!(of_object(&catalogue, &kind, "", &[], &json!({})), []);
    }
}
