//! Webhooks another core provider left behind, which nothing answers.

use kube::Client;
use remuda_api::clusterctl;
use remuda_control::Chain;
use remuda_names::capi::label;
use serde_json::Value;
use tracing::warn;

use crate::shipped::{self, InstallError};

const CONFIGURATIONS: [&str; 2] = [
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
];

/// Says which webhooks of another core provider are in the way of every write of Cluster API kinds.
pub(super) async fn report(client: &Client) {
    let found = match unserved(client).await {
        Ok(found) => found,
        Err(error) => {
            warn!(error = %Chain(&error), "cannot look for webhooks of another core provider of Cluster API");
            return;
        }
    };
    for (name, service) in found {
        warn!(
            configuration = %name, service = %service,
            "webhooks of another core provider of Cluster API are answered by nothing, so that writes of its kinds \
             fail; `remuda capi reclaim` removes them"
        );
    }
}

/// Names of configurations of the core provider and the Service each waits for.
pub(super) async fn unserved(client: &Client) -> Result<Vec<(String, String)>, InstallError> {
    let mut found = Vec::new();
    for path in CONFIGURATIONS {
        let path = format!("{path}?labelSelector={}={}", label::PROVIDER, clusterctl::CORE);
        for configuration in items(client, &path).await? {
            for service in clusterctl::webhook_services(&configuration) {
                let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", service.0);
                if !clusterctl::is_served(&items(client, &slices).await?, &service) {
                    let name = configuration["metadata"]["name"].as_str().unwrap_or_default();
                    found.push((name.to_owned(), format!("{}/{}", service.0, service.1)));
                }
            }
        }
    }
    Ok(found)
}

async fn items(client: &Client, path: &str) -> Result<Vec<Value>, InstallError> {
    let error = |source| InstallError::Request { name: path.to_owned(), source };
    let list = shipped::get(client, path).await.map_err(error)?;
    Ok(list.and_then(|mut list| list["items"].as_array_mut().map(std::mem::take)).unwrap_or_default())
}
