//! Webhooks that nothing answers: of another core provider that was left behind, and of providers whose program does not
//! run.

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

/// A webhook configuration of a provider that leads to a Service without endpoints.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unserved {
    /// As everything in its components is labelled: `cluster-api` is the core.
    pub(super) provider: String,
    pub(super) configuration: String,
    /// Its namespace and name.
    pub(super) service: String,
}

/// Says which webhooks are in the way of every write of their kinds, and what ends that.
pub(super) async fn report(client: &Client) {
    let found = match unserved(client).await {
        Ok(found) => found,
        Err(error) => {
            warn!(error = %Chain(&error), "cannot look for webhooks of providers of Cluster API");
            return;
        }
    };
    for Unserved { provider, configuration, service } in found {
        if provider == clusterctl::CORE {
            warn!(
                %configuration, %service,
                "webhooks of another core provider of Cluster API are answered by nothing, so that writes of its kinds \
                 fail; `remuda capi reclaim` removes them"
            );
        } else {
            warn!(
                %provider, %configuration, %service,
                "webhooks of a provider of Cluster API are answered by nothing, so that writes of its kinds fail; \
                 `remuda capi provider run {provider} -- PROGRAM` runs it beside the server"
            );
        }
    }
}

pub(super) async fn unserved(client: &Client) -> Result<Vec<Unserved>, InstallError> {
    let mut found = Vec::new();
    for path in CONFIGURATIONS {
        let path = format!("{path}?labelSelector={}", label::PROVIDER);
        for configuration in items(client, &path).await? {
            for service in clusterctl::webhook_services(&configuration) {
                let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices", service.0);
                if !clusterctl::is_served(&items(client, &slices).await?, &service) {
                    let metadata = &configuration["metadata"];
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    found.push(Unserved {
                        provider: text(&metadata["labels"][label::PROVIDER]),
                        configuration: text(&metadata["name"]),
                        service: format!("{}/{}", service.0, service.1),
                    });
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
