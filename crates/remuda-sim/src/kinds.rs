//! The provider kinds, and their definitions.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use remuda_api::core::{
    ContractReference, Endpoint, MachineAddress, MachineDeletion, StatusVersion, TemplateMeta,
};
use remuda_names::capi::label;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    names::{GROUP, PROVIDER, VERSION},
    options::Contract,
};

/// Structs as they appear in JSON: camel case, absent when default.
macro_rules! kind {
    ($($(#[$attr:meta])* pub struct $name:ident {
        $($(#[$field_attr:meta])* pub $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$attr])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($(#[$field_attr])*
            #[serde(default, skip_serializing_if = "is_default")]
            pub $field: $type,)*
        }
    )*};
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

kind! {
    /// Infrastructure of a cluster.
    #[derive(CustomResource)]
    #[kube(
        group = "sim.remuda.io", version = "v1", kind = "SimCluster", plural = "simclusters", namespaced,
        status = "SimClusterStatus", schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct SimClusterSpec {
        pub control_plane_endpoint: Endpoint,
        /// Names of failure domains; all of them take control planes.
        pub failure_domains: Vec<String>,
    }

    pub struct SimClusterStatus {
        /// Contract v1beta2.
        pub initialization: Provisioned,
        /// Contract v1beta1.
        pub ready: bool,
        /// A list in contract v1beta2, a map in v1beta1.
        pub failure_domains: Option<Value>,
        pub conditions: Vec<Condition>,
    }

    pub struct Provisioned {
        pub provisioned: Option<bool>,
    }

    /// A server.
    #[derive(CustomResource)]
    #[kube(
        group = "sim.remuda.io", version = "v1", kind = "SimMachine", plural = "simmachines", namespaced,
        status = "SimMachineStatus", schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct SimMachineSpec {
        #[serde(rename = "providerID")]
        pub provider_id: String,
        /// Nothing but a difference between templates.
        pub size: String,
    }

    pub struct SimMachineStatus {
        /// Contract v1beta2.
        pub initialization: Provisioned,
        /// Contract v1beta1.
        pub ready: bool,
        pub addresses: Vec<MachineAddress>,
        pub failure_domain: String,
        pub failure_reason: Option<String>,
        pub failure_message: Option<String>,
        pub conditions: Vec<Condition>,
    }

    /// What servers are made from.
    #[derive(CustomResource)]
    #[kube(
        group = "sim.remuda.io", version = "v1", kind = "SimMachineTemplate", plural = "simmachinetemplates",
        namespaced, schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct SimMachineTemplateSpec {
        pub template: SimMachineTemplateBody,
    }

    pub struct SimMachineTemplateBody {
        pub metadata: TemplateMeta,
        pub spec: SimMachineSpec,
    }

    /// Bootstrap data of a server.
    #[derive(CustomResource)]
    #[kube(
        group = "sim.remuda.io", version = "v1", kind = "SimBootstrap", plural = "simbootstraps", namespaced,
        status = "SimBootstrapStatus", schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct SimBootstrapSpec {
        pub arguments: BTreeMap<String, String>,
    }

    pub struct SimBootstrapStatus {
        /// Contract v1beta2.
        pub initialization: DataSecretCreated,
        /// Contract v1beta1.
        pub ready: bool,
        pub data_secret_name: String,
        pub conditions: Vec<Condition>,
    }

    pub struct DataSecretCreated {
        pub data_secret_created: Option<bool>,
    }

    /// What bootstrap data is made from.
    #[derive(CustomResource)]
    #[kube(
        group = "sim.remuda.io", version = "v1", kind = "SimBootstrapTemplate", plural = "simbootstraptemplates",
        namespaced, schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct SimBootstrapTemplateSpec {
        pub template: SimBootstrapTemplateBody,
    }

    pub struct SimBootstrapTemplateBody {
        pub metadata: TemplateMeta,
        pub spec: SimBootstrapSpec,
    }

    /// A control plane. With no replicas it is managed elsewhere, and always up.
    #[derive(CustomResource)]
    #[kube(
        group = "sim.remuda.io", version = "v1", kind = "SimControlPlane", plural = "simcontrolplanes", namespaced,
        status = "SimControlPlaneStatus", schema = "disabled", derive = "PartialEq", derive = "Default"
    )]
    pub struct SimControlPlaneSpec {
        pub replicas: Option<i32>,
        pub version: String,
        pub machine_template: ControlPlaneMachines,
        pub bootstrap: SimBootstrapSpec,
    }

    pub struct ControlPlaneMachines {
        pub metadata: TemplateMeta,
        pub spec: ControlPlaneMachineSpec,
    }

    pub struct ControlPlaneMachineSpec {
        pub infrastructure_ref: ContractReference,
        pub deletion: MachineDeletion,
    }

    pub struct SimControlPlaneStatus {
        /// Contract v1beta2.
        pub initialization: Initialized,
        /// Contract v1beta1.
        pub initialized: bool,
        /// Contract v1beta1.
        pub ready: bool,
        pub external_managed_control_plane: Option<bool>,
        pub selector: String,
        pub replicas: Option<i32>,
        pub ready_replicas: Option<i32>,
        /// Contract v1beta2.
        pub available_replicas: Option<i32>,
        /// Contract v1beta2.
        pub up_to_date_replicas: Option<i32>,
        /// Contract v1beta1.
        pub updated_replicas: Option<i32>,
        /// Contract v1beta1.
        pub unavailable_replicas: Option<i32>,
        /// Contract v1beta2.
        pub versions: Vec<StatusVersion>,
        /// Contract v1beta1: the lowest.
        pub version: String,
        pub observed_generation: i64,
        pub conditions: Vec<Condition>,
    }

    pub struct Initialized {
        pub control_plane_initialized: Option<bool>,
    }
}

/// Kind, and the paths of its scale subresource.
const KINDS: &[(&str, bool)] = &[
    ("SimCluster", false),
    ("SimMachine", false),
    ("SimMachineTemplate", false),
    ("SimBootstrap", false),
    ("SimBootstrapTemplate", false),
    ("SimControlPlane", true),
];

fn plural(kind: &str) -> String {
    format!("{}s", kind.to_lowercase())
}

/// The definitions, labelled with the contract they keep.
pub fn definitions(contract: Contract) -> impl Iterator<Item = Value> {
    let contract = match contract {
        Contract::V1Beta1 => label::CONTRACT_V1BETA1,
        Contract::V1Beta2 => label::CONTRACT_V1BETA2,
    };
    KINDS.iter().map(move |(kind, scales)| {
        let plural = plural(kind);
        let mut subresources = json!({});
        if !kind.ends_with("Template") {
            subresources["status"] = json!({});
        }
        if *scales {
            subresources["scale"] = json!({
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            });
        }
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
        if *scales {
            let number = json!({"type": "integer", "format": "int32"});
            schema["properties"]["spec"]["properties"] = json!({"replicas": number});
            schema["properties"]["status"]["properties"] =
                json!({"replicas": number, "selector": {"type": "string"}});
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{GROUP}"),
                "labels": {contract: VERSION, label::PROVIDER: PROVIDER, label::CLUSTERCTL: ""},
            },
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {
                    "kind": kind,
                    "plural": plural,
                    "singular": kind.to_lowercase(),
                    "listKind": format!("{kind}List"),
                    "categories": ["cluster-api"],
                },
                "versions": [{
                    "name": VERSION,
                    "served": true,
                    "storage": true,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": subresources,
                }],
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_keeps_exactly_one_contract() {
        for (contract, kept, other) in [
            (Contract::V1Beta1, label::CONTRACT_V1BETA1, label::CONTRACT_V1BETA2),
            (Contract::V1Beta2, label::CONTRACT_V1BETA2, label::CONTRACT_V1BETA1),
        ] {
            for definition in definitions(contract) {
                let labels = &definition["metadata"]["labels"];
                assert_eq!(labels[kept], VERSION);
                assert!(labels.get(other).is_none());
            }
        }
    }

    #[test]
    fn a_status_nobody_wrote_is_empty() {
        assert_eq!(serde_json::to_value(SimMachineStatus::default()).unwrap(), json!({}));
        assert_eq!(serde_json::to_value(SimControlPlaneStatus::default()).unwrap(), json!({}));
    }
}
