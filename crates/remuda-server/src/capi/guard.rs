//! What keeps another core provider of Cluster API from being put over the one in this server.
//!
//! `clusterctl upgrade apply` and a `kubectl apply` of upstream's manifest bring definitions and webhooks that nothing
//! serves here, after which every write of Cluster API kinds would fail. They are refused while the controllers run
//! here; with `--controllers=false` the kinds are another manager's, and nothing is.

use remuda_api::{clusterctl, crd};
use remuda_apiserver::{AdmissionRequest as Request, ApiError, Hook, Named, Operation};
use remuda_names::annotation;
use serde_json::Value;

const HINT: &str = "a newer server brings newer definitions; to run another core provider, start this server with \
                    --controllers=false";

/// Refuses definitions and webhooks of another core provider.
pub struct Guard;

enum Concern {
    Definition,
    Webhooks,
}

fn concern(request: &Request<'_>) -> Option<Concern> {
    if !matches!(request.operation, Operation::Create | Operation::Update) || !request.subresource.is_empty()
    {
        return None;
    }
    match (request.group, request.resource) {
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            crd::names().any(|name| name == request.name).then_some(Concern::Definition)
        }
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => Some(Concern::Webhooks),
        _ => None,
    }
}

fn has_webhook(definition: &Value) -> bool {
    definition["spec"]["conversion"]["strategy"] == "Webhook"
}

impl Hook for Guard {
    fn concerns(&self, request: &Request<'_>) -> bool {
        concern(request).is_some()
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        let (Some(concern), Some(object)) = (concern(request), object) else { return Ok(Vec::new()) };
        let refused = match concern {
            // Whoever takes our mark away as well means it.
            Concern::Definition => {
                let ours = object["metadata"]["annotations"].get(annotation::SHIPPED).is_some();
                let had = request.old.is_some_and(has_webhook);
                (ours && has_webhook(object) && !had).then_some("its versions are converted in this server")
            }
            Concern::Webhooks => {
                let known = request.old.is_some_and(clusterctl::is_core);
                (clusterctl::is_core(object) && !known).then_some("its rules are part of this server")
            }
        };
        match refused {
            None => Ok(Vec::new()),
            Some(why) => {
                let named = Named { group: request.group, kind: request.resource, name: request.name };
                let detail = format!("this server is the core provider of Cluster API, and {why}; {HINT}");
                Err(ApiError::forbidden(named, &detail))
            }
        }
    }
}
