//! The inventory `clusterctl` keeps of installed providers. Its objects have no spec.

use std::{borrow::Cow, collections::BTreeSet};

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use remuda_names::capi::{group, label};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const VERSION: &str = "v1alpha3";

/// The release of the core provider whose place this program takes.
pub const CORE_VERSION: &str = "v1.14.0";

/// Name of the core provider, and value of the provider label on everything in its manifest.
pub const CORE: &str = "cluster-api";

/// Where `clusterctl` puts the core provider.
pub const CORE_NAMESPACE: &str = "capi-system";

/// Where the inventory has the providers that are part of this server beside the core. Nothing else is there.
pub const PROVIDER_NAMESPACE: &str = "remuda-system";

/// A Service by its namespace and name.
pub type ServiceKey = (String, String);

/// Whether an object is from a manifest of the core provider.
pub fn is_core(object: &Value) -> bool {
    object["metadata"]["labels"][label::PROVIDER] == CORE
}

/// The Services behind the webhooks of a configuration. Those that are reached by a URL have none.
pub fn webhook_services(configuration: &Value) -> BTreeSet<ServiceKey> {
    let webhooks = configuration["webhooks"].as_array().into_iter().flatten();
    let services = webhooks.map(|webhook| &webhook["clientConfig"]["service"]);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    services.filter_map(|service| Some((text(&service["namespace"])?, text(&service["name"])?))).collect()
}

/// Whether one of these EndpointSlices has an address that answers for a Service.
pub fn is_served(slices: &[Value], (namespace, name): &ServiceKey) -> bool {
    let of_service = |slice: &&Value| {
        slice["metadata"]["namespace"] == namespace.as_str()
            && slice["metadata"]["labels"]["kubernetes.io/service-name"] == name.as_str()
    };
    let endpoints = slices.iter().filter(of_service).flat_map(|slice| slice["endpoints"].as_array());
    endpoints.flatten().any(|endpoint| endpoint["conditions"]["ready"] != false)
}

/// An installed provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Provider {
    pub api_version: String,
    pub kind: String,
    pub metadata: ObjectMeta,
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub provider_name: String,
    /// `CoreProvider`, `InfrastructureProvider`, …
    #[serde(default, rename = "type", skip_serializing_if = "crate::is_default")]
    pub provider_type: String,
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub version: String,
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub watched_namespace: String,
}

impl Default for Provider {
    fn default() -> Self {
        Provider {
            api_version: format!("{}/{VERSION}", group::CLUSTERCTL),
            kind: "Provider".into(),
            metadata: ObjectMeta::default(),
            provider_name: String::new(),
            provider_type: String::new(),
            version: String::new(),
            watched_namespace: String::new(),
        }
    }
}

impl kube::Resource for Provider {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(&(): &()) -> Cow<'_, str> {
        "Provider".into()
    }

    fn group(&(): &()) -> Cow<'_, str> {
        group::CLUSTERCTL.into()
    }

    fn version(&(): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural(&(): &()) -> Cow<'_, str> {
        "providers".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_service_is_served_by_ready_endpoints_of_its_own() {
        let service = ("capi-system".to_owned(), "hooks".to_owned());
        let slice = |namespace: &str, name: &str, endpoint: Value| {
            json!({"metadata": {"namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
                "endpoints": [endpoint]})
        };
        let ready = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": true}});
        let starting = json!({"addresses": ["10.0.0.1"], "conditions": {"ready": false}});
        assert!(is_served(&[slice("capi-system", "hooks", ready.clone())], &service));
        assert!(!is_served(&[slice("capi-system", "hooks", starting)], &service));
        assert!(!is_served(
            &[slice("capi-system", "other", ready.clone()), slice("x", "hooks", ready)],
            &service
        ));
        let configuration = json!({"webhooks": [
            {"clientConfig": {"service": {"namespace": "capi-system", "name": "hooks"}}},
            {"clientConfig": {"url": "https://example.org/"}},
        ]});
        assert_eq!(webhook_services(&configuration), BTreeSet::from([service]));
    }

    #[test]
    fn an_inventory_entry_reads_as_clusterctl_writes_it() {
        let written = json!({
            "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Provider",
            "metadata": {"name": "cluster-api", "namespace": "capi-system"},
            "providerName": "cluster-api", "type": "CoreProvider", "version": "v1.14.0",
        });
        let provider: Provider = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(provider.provider_type, "CoreProvider");
        assert_eq!(serde_json::to_value(&provider).unwrap(), written);
    }
}
