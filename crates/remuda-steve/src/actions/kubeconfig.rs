//! The action of management Clusters: a kubeconfig of the caller, from the door of people that makes them.

use http::Method;
use remuda_door::{Body, Call, Refusal};
use remuda_names::{identity::path::CLUSTERS, rancher::group::MANAGEMENT};
use serde_json::{Value, json};

use crate::{api::Shared, ext, kind::Kind, visit::Visit};

/// As clients write it.
pub(super) const NAME: &str = "generateKubeconfig";

pub(super) fn is_cluster(kind: &Kind) -> bool {
    (kind.group.as_str(), kind.resource.as_str()) == (MANAGEMENT, "clusters")
}

/// Offers it for clusters the caller has a role in.
pub(super) fn offer(api: &Shared, visit: &Visit, kind: &Kind, objects: &mut [Value]) {
    if api.people.is_none() {
        return;
    }
    for object in objects {
        let may = object["id"].as_str().is_some_and(|id| visit.rights.may("get", kind, "", id));
        let leaves = !object["metadata"]["deletionTimestamp"].is_null();
        if may && !leaves {
            let own = object["links"]["self"].as_str().unwrap_or_default();
            object["actions"] = json!({NAME: format!("{own}?action={NAME}")});
        }
    }
}

pub(super) async fn act(api: &Shared, name: &str, call: &Call, body: Body) -> Result<Value, Refusal> {
    if call.head.method != Method::POST {
        return Err(Refusal::method_not_allowed(&["POST"]));
    }
    let uri = format!("{CLUSTERS}/{}?action={NAME}", ext::plain(name)?);
    // Clients send nothing, or `null`.
    let asked: Value = body.json().await?;
    let asked = if asked.is_null() { json!({}) } else { asked };
    ext::ask(api, call, Method::POST, &uri, Some(asked)).await
}
