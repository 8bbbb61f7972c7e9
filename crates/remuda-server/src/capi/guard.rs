//! What keeps another core provider of Cluster API from being put over the one in this server.
//!
//! `clusterctl upgrade apply` and a `kubectl apply` of upstream's manifest bring definitions and webhooks that nothing
//! serves here, after which every write of Cluster API kinds would fail. They are refused while the controllers run
//! here; with `--controllers=false` the kinds are another manager's, and nothing is.
//!
//! `clusterctl move` begins by pausing what it moves. A cluster that this server makes would not follow: machines and
//! agents report to this server, and what is left behind would be a paused cluster. So `clusterctl` may not pause it,
//! and gives up before it has changed anything.

use remuda_api::{clusterctl, crd};
use remuda_apiserver::{AdmissionRequest as Request, ApiError, Hook, Named, Operation};
use remuda_names::{annotation, capi::group, rancher::group::PROVISIONING};
use serde_json::Value;

const HINT: &str = "a newer server brings newer definitions; to run another core provider, start this server with \
                    --controllers=false";

/// Refuses definitions and webhooks of another core provider.
pub struct Guard;

enum Concern {
    Definition,
    Webhooks,
    Pause,
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
        (group::CORE, "clusters") if request.operation == Operation::Update => Some(Concern::Pause),
        _ => None,
    }
}

/// The cluster this server makes a Cluster of Cluster API for.
fn provisioned(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let made = |owner: &&Value| {
        let group = owner["apiVersion"].as_str().and_then(|version| version.split_once('/'));
        owner["kind"] == "Cluster" && group.is_some_and(|(group, _)| group == PROVISIONING)
    };
    owners.into_iter().find(made).and_then(|owner| owner["name"].as_str())
}

/// Whether `clusterctl` is the one who says that it is paused.
fn is_paused_by_clusterctl(object: &Value) -> bool {
    let managers = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut theirs = managers.filter(|entry| entry["manager"] == "clusterctl");
    object["spec"]["paused"] == true
        && theirs.any(|entry| entry["fieldsV1"]["f:spec"].get("f:paused").is_some())
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
            Concern::Pause => return pause(request, object),
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

fn pause(request: &Request<'_>, object: &Value) -> Result<Vec<String>, ApiError> {
    let was = request.old.is_some_and(|old| old["spec"]["paused"] == true);
    match provisioned(object) {
        Some(made) if !was && is_paused_by_clusterctl(object) => {
            let named = Named { group: request.group, kind: request.resource, name: request.name };
            let detail = format!(
                "clusters.provisioning.cattle.io {made} is made by this server, and its machines and agents would not \
                 follow to another one: clusterctl does not move it. A backup of this server, restored elsewhere, takes \
                 all of its clusters along (remuda backup)"
            );
            Err(ApiError::forbidden(named, &detail))
        }
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use remuda_auth::identity::User;
    use serde_json::json;

    use super::*;

    /// What becomes of a Cluster that clusterctl or a user pauses.
    fn paused(by: &str, owner: &str) -> Result<Vec<String>, ApiError> {
        let old = json!({"metadata": {"name": "demo", "ownerReferences": [
            {"apiVersion": owner, "kind": "Cluster", "name": "demo", "uid": "u"}]}, "spec": {}});
        let mut new = old.clone();
        new["spec"]["paused"] = true.into();
        new["metadata"]["managedFields"] =
            json!([{"manager": by, "fieldsV1": {"f:spec": {".": {}, "f:paused": {}}}}]);
        let (user, found) = (User::new("somebody", Vec::<String>::new()), BTreeMap::new());
        let request = Request {
            operation: Operation::Update,
            group: group::CORE,
            version: "v1beta2",
            resource: "clusters",
            kind: "Cluster",
            subresource: "",
            namespace: "fleet-default",
            name: "demo",
            user: &user,
            old: Some(&old),
            dry_run: false,
            found: &found,
        };
        assert!(Guard.concerns(&request));
        Guard.validate(&request, Some(&new))
    }

    #[test]
    fn clusterctl_does_not_begin_to_move_what_cannot_follow() {
        let ours = "provisioning.cattle.io/v1";
        let refused = paused("clusterctl", ours).unwrap_err().to_string();
        assert!(refused.contains("remuda backup"), "{refused}");
        paused("kubectl-patch", ours).unwrap();
        paused("clusterctl", "example.org/v1").unwrap();
    }
}
