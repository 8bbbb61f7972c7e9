//! Which kinds are shown as parts of a cluster, how an object says whose part it is, and what of it is shown.

use remuda_names::{
    capi,
    rancher::group::{MACHINE, MANAGEMENT, PROVISIONING, RKE},
};
use remuda_steve::PartOf;
use serde_json::{Map, Value};

/// How an object says which cluster it is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tie {
    /// It is the cluster: only a right to it shows it.
    None,
    /// It has the name of the cluster.
    Name,
    /// By the label of Cluster API.
    Label,
}

/// What of a part those see who may read its cluster but not the part itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// All of it: there is no more in it than in the cluster.
    Whole,
    /// All but this field of its spec.
    Without(&'static str),
    /// Who it is and how it is. Its spec is a copy of a machine configuration, and those are not for everybody.
    Status,
}

/// A kind that can be asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    group: &'static str,
    /// Plural name; `*machines` for the machines of all drivers, and not for their templates.
    resource: &'static str,
    pub(super) is_namespaced: bool,
    pub(super) tie: Tie,
    shown: Shown,
}

const fn kind(group: &'static str, resource: &'static str, tie: Tie, shown: Shown) -> Kind {
    Kind { group, resource, is_namespaced: true, tie, shown }
}

pub(super) const CLUSTER: Kind = kind(PROVISIONING, "clusters", Tie::None, Shown::Whole);
pub(super) const CAPI_CLUSTER: Kind = kind(capi::group::CORE, "clusters", Tie::Name, Shown::Whole);

/// Nothing in these is secret from whoever may read the cluster. Secrets, configurations and templates are not here.
const KINDS: &[Kind] = &[
    CLUSTER,
    Kind { is_namespaced: false, ..kind(MANAGEMENT, "clusters", Tie::None, Shown::Whole) },
    CAPI_CLUSTER,
    kind(capi::group::CORE, "machinedeployments", Tie::Label, Shown::Whole),
    kind(capi::group::CORE, "machinesets", Tie::Label, Shown::Whole),
    kind(capi::group::CORE, "machines", Tie::Label, Shown::Whole),
    kind(capi::group::CORE, "machinehealthchecks", Tie::Label, Shown::Whole),
    kind(RKE, "rkeclusters", Tie::Name, Shown::Whole),
    kind(RKE, "rkecontrolplanes", Tie::Name, Shown::Whole),
    kind(RKE, "rkebootstraps", Tie::Label, Shown::Without("userdata")),
    kind(RKE, "custommachines", Tie::Label, Shown::Whole),
    kind(MACHINE, "*machines", Tie::Label, Shown::Status),
];

impl Kind {
    pub(super) fn find(group: &str, resource: &str) -> Option<Kind> {
        let fits = |kind: &&Kind| {
            kind.group == group
                && match kind.resource.strip_prefix('*') {
                    Some(end) => resource.len() > end.len() && resource.ends_with(end),
                    None => kind.resource == resource,
                }
        };
        KINDS.iter().find(fits).copied()
    }

    /// Whether objects of a kind are parts of clusters that are shown as they are, and how they say whose.
    pub(super) fn part_of(group: &str, resource: &str) -> Option<PartOf> {
        let kind = Self::find(group, resource).filter(|kind| kind.shown == Shown::Whole)?;
        match kind.tie {
            Tie::None => None,
            Tie::Name => Some(PartOf::Name),
            Tie::Label => Some(PartOf::Label),
        }
    }

    /// The cluster an object is a part of, by what it says itself.
    pub(super) fn cluster_of(self, object: &Value) -> Option<&str> {
        match self.tie {
            Tie::None => None,
            Tie::Name => object["metadata"]["name"].as_str(),
            Tie::Label => object["metadata"]["labels"][capi::label::CLUSTER_NAME].as_str(),
        }
    }

    /// The object as whoever may read its cluster sees it.
    pub(super) fn as_part(self, mut object: Value) -> Value {
        // Both repeat the spec.
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                annotations.remove(LAST_APPLIED);
            }
        }
        match self.shown {
            Shown::Whole => {}
            Shown::Without(field) => {
                if let Some(Value::Object(spec)) = object.get_mut("spec") {
                    spec.remove(field);
                }
            }
            Shown::Status => {
                if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                    metadata.remove("annotations");
                }
                let provider_id = object["spec"].get("providerID").cloned();
                if let Some(object) = object.as_object_mut() {
                    object.retain(|key, _| {
                        ["apiVersion", "kind", "metadata", "status"].contains(&key.as_str())
                    });
                    let spec: Map<String, Value> =
                        provider_id.into_iter().map(|id| ("providerID".to_owned(), id)).collect();
                    object.insert("spec".to_owned(), Value::Object(spec));
                }
            }
        }
        object
    }
}

/// Kept by kubectl.
const LAST_APPLIED: &str = remuda_names::capi::annotation::LAST_APPLIED;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_asked_for_that_may_hold_a_secret() {
        for (group, resource) in [
            ("", "secrets"),
            ("", "configmaps"),
            (MACHINE, "amazonec2machinetemplates"),
            (MACHINE, "machines"),
            ("rke-machine-config.cattle.io", "amazonec2configs"),
            (RKE, "rkebootstraptemplates"),
            (MANAGEMENT, "tokens"),
            (PROVISIONING, "clusters/status"),
        ] {
            assert!(Kind::find(group, resource).is_none(), "{resource}.{group}");
        }
        assert!(Kind::find(MACHINE, "amazonec2machines").is_some());
        // The list API shows objects whole, so what is not is not there.
        assert_eq!(Kind::part_of(capi::group::CORE, "machines"), Some(PartOf::Label));
        assert_eq!(Kind::part_of(RKE, "rkecontrolplanes"), Some(PartOf::Name));
        for (group, resource) in [
            (MACHINE, "amazonec2machines"),
            (RKE, "rkebootstraps"),
            (PROVISIONING, "clusters"),
            ("", "secrets"),
        ] {
            assert_eq!(Kind::part_of(group, resource), None, "{resource}.{group}");
        }
    }

    #[test]
    fn the_spec_of_a_servers_machine_is_not_shown() {
        let kind = Kind::find(MACHINE, "amazonec2machines").unwrap();
        let machine = json!({
            "apiVersion": "v1", "kind": "Amazonec2Machine", "extra": "x",
            "metadata": {"name": "a", "annotations": {LAST_APPLIED: "x"}, "managedFields": [],
                         "labels": {capi::label::CLUSTER_NAME: "demo"}},
            "spec": {"providerID": "aws://i-1", "userdata": "password"}, "status": {"ready": true},
        });
        assert_eq!(kind.cluster_of(&machine), Some("demo"));
        let expected = json!({
            "apiVersion": "v1", "kind": "Amazonec2Machine",
            "metadata": {"name": "a", "labels": {capi::label::CLUSTER_NAME: "demo"}},
            "spec": {"providerID": "aws://i-1"}, "status": {"ready": true},
        });
        assert_eq!(kind.as_part(machine), expected);
        let kind = Kind::find(RKE, "rkebootstraps").unwrap();
        let bootstrap =
            json!({"metadata": {}, "spec": {"clusterName": "demo", "userdata": {"inlineUserdata": "x"}}});
        assert_eq!(kind.as_part(bootstrap)["spec"], json!({"clusterName": "demo"}));
    }
}
