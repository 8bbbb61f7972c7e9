//! The kinds of the driver `simulated`: configuration, machine and template.

use kube::core::{ApiResource, GroupVersionKind};
use remuda_names::{
    capi::label as contract,
    rancher::{group, label},
};
use serde_json::{Value, json};

/// The driver whose machines these are. There is no NodeDriver of that name.
pub const DRIVER: &str = "simulated";
/// What a pool refers to.
pub const CONFIG: &str = "SimulatedConfig";
/// A server.
pub const MACHINE: &str = "SimulatedMachine";
/// What servers are made from.
pub const TEMPLATE: &str = "SimulatedMachineTemplate";
const VERSION: &str = "v1";

/// One of the kinds.
pub fn resource(kind: &str) -> ApiResource {
    let group = if kind == CONFIG { group::MACHINE_CONFIG } else { group::MACHINE };
    let plural = format!("{}s", kind.to_lowercase());
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, VERSION, kind), &plural)
}

/// Their definitions.
pub fn definitions() -> impl Iterator<Item = Value> {
    [CONFIG, MACHINE, TEMPLATE].into_iter().map(|kind| {
        let resource = resource(kind);
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut version = json!({
            "name": VERSION, "served": true, "storage": true, "schema": {"openAPIV3Schema": open},
        });
        if kind == MACHINE {
            version["subresources"] = json!({"status": {}});
        }
        // Without the label of the machine provider, which would look after a kind that has it.
        let labels = json!({
            (contract::CONTRACT_V1BETA1): VERSION,
            (contract::CONTRACT_V1BETA2): VERSION,
            (label::CLUSTER_INDEXED): "true",
        });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", resource.plural, resource.group), "labels": labels},
            "spec": {
                "group": resource.group,
                "scope": "Namespaced",
                "names": {
                    "kind": kind,
                    "listKind": format!("{kind}List"),
                    "plural": resource.plural,
                    "singular": kind.to_lowercase(),
                },
                "versions": [version],
            },
        })
    })
}

/// What provisioning reads to know which fields of a configuration reach machines.
pub fn schema() -> Value {
    json!({
        "apiVersion": format!("{}/v3", group::MANAGEMENT),
        "kind": "DynamicSchema",
        "metadata": {"name": CONFIG.to_lowercase()},
        "spec": {
            "schemaName": CONFIG.to_lowercase(),
            "resourceFields": {"size": {"type": "string", "create": true, "update": true}},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_provider_is_not_asked_to_look_after_them() {
        for definition in definitions() {
            let labels = definition["metadata"]["labels"].as_object().unwrap();
            assert!(!labels.contains_key(remuda_names::machines::label::DRIVER));
            assert_eq!(labels[contract::CONTRACT_V1BETA2], VERSION);
        }
    }
}
