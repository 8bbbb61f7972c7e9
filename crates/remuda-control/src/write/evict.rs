//! Asking a pod to leave.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

/// Evicts a pod, unless a budget forbids it now. Not `Api::evict`, which calls the options by a name no API server
/// knows, so that the grace period is lost.
pub async fn evict(
    pods: &Api<Pod>,
    namespace: &str,
    name: &str,
    grace_seconds: Option<u32>,
) -> Result<(), kube::Error> {
    let options = DeleteParams { grace_period_seconds: grace_seconds, ..DeleteParams::default() };
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace}, "deleteOptions": options,
    });
    let evicted: Result<Value, kube::Error> =
        pods.create_subresource("eviction", name, &PostParams::default(), &eviction).await;
    evicted.map(drop)
}
