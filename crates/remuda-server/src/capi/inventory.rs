//! What `clusterctl` reads to know which providers are installed.
//!
//! An entry for the core provider keeps `clusterctl init` from installing another one, and tells it
//! against which version the contracts of other providers are to be checked. The version must be that of a
//! release: `init` reads the metadata published with it. So `clusterctl upgrade` offers newer releases as they
//! appear to those who do not read releases from this server; what keeps them from being put over ours is
//! [`super::guard`]. Our own providers have entries as well, so that `clusterctl` finds their templates without being
//! told, and `clusterctl move` finds out that a target does not have them.

use kube::Client;
use remuda_api::clusterctl;
use remuda_names::capi::label;
use serde_json::{Value, json};

use super::repository;
use crate::shipped::{self, InstallError};

const NAMESPACE: &str = clusterctl::CORE_NAMESPACE;
const NAME: &str = clusterctl::CORE;
const EVERYWHERE: &str = "/apis/clusterctl.cluster.x-k8s.io/v1alpha3/providers";

/// Records the core provider, unless another entry for one is there, and the providers that come with it.
pub(super) async fn record(client: &Client) -> Result<(), InstallError> {
    let error = |source| InstallError::Request { name: "the inventory".to_owned(), source };
    // Somebody else's definition of the inventory may not have our version, or be on its way out.
    let Some(list) = shipped::get(client, EVERYWHERE).await.map_err(error)? else { return Ok(()) };
    let entries = list["items"].as_array().into_iter().flatten();
    let ours =
        |entry: &Value| entry["metadata"]["namespace"] == NAMESPACE && entry["metadata"]["name"] == NAME;
    let mut others = entries.filter(|entry| entry["type"] == "CoreProvider" && !ours(entry));
    if others.next().is_some() {
        return Ok(());
    }
    put(client, NAMESPACE, NAME, NAME, "CoreProvider", clusterctl::CORE_VERSION).await?;
    for provider in &repository::OWN {
        let (namespace, version) = (clusterctl::PROVIDER_NAMESPACE, repository::version());
        put(client, namespace, &provider.label(), provider.name, provider.kind, &version).await?;
    }
    Ok(())
}

async fn put(
    client: &Client,
    namespace: &str,
    instance: &str,
    name: &str,
    kind: &str,
    version: &str,
) -> Result<(), InstallError> {
    shipped::namespace(client, namespace).await?;
    let entry = json!({
        "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3",
        "kind": "Provider",
        "metadata": {
            "name": instance,
            "namespace": namespace,
            "labels": {
                (label::CLUSTERCTL): "",
                (label::PROVIDER): instance,
                (label::CLUSTERCTL_CORE): "inventory",
            },
        },
        "providerName": name,
        "type": kind,
        "version": version,
    });
    let collection = format!("/apis/clusterctl.cluster.x-k8s.io/v1alpha3/namespaces/{namespace}/providers");
    shipped::ensure(client, &collection, entry).await
}
