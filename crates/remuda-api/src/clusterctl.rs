//! The inventory `clusterctl` keeps of installed providers. Its objects have no spec.

use std::borrow::Cow;

use k8s_openapi::{NamespaceResourceScope, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use remuda_names::capi::group;
use serde::{Deserialize, Serialize};

const VERSION: &str = "v1alpha3";

/// The release of the core provider whose place this program takes.
pub const CORE_VERSION: &str = "v1.14.0";

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
