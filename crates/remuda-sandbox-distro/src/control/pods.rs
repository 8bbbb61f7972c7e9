//! What controllers know about Pods, and the end of Pods whose Node is gone.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Node, Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};
use remuda_control::{Action, Controller, Ctx, Informer, ObjectKey, Scope, drive, write};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{Error, SEE, failed, is_gone};

/// Pods by the uid of what controls them.
pub const OWNER: &str = "owner";
/// Pods by the node they are on; those on none under the empty name.
pub const NODE: &str = "node";

pub fn informer(ctx: &Ctx) -> Informer<Pod> {
    ctx.informers.of(Scope::all())
}

pub fn index(ctx: &Ctx) {
    let pods = informer(ctx);
    pods.add_index(OWNER, |pod| {
        write::controller_of(&pod.metadata).map(|owner| owner.uid.clone()).into_iter().collect()
    });
    pods.add_index(NODE, |pod| vec![node_of(pod).unwrap_or_default().to_owned()]);
}

pub fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

pub fn is_over(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub fn is_deleting(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Counts towards what a controller wants.
pub fn is_active(pod: &Pod) -> bool {
    !is_over(pod) && !is_deleting(pod)
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether a selector of the API picks these labels. One that makes no sense picks nothing.
pub fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let Ok(value) = serde_json::to_value(selector) else { return false };
    let Ok(selector) = remuda_objects::selector::LabelSelector::from_object(&value) else { return false };
    selector.matches_with(|key| labels.get(key).map(String::as_str))
}

/// A short name for what a template says. Equal templates have equal names.
pub fn template_hash(template: &PodTemplateSpec) -> String {
    // Maps are ordered, so equal templates have equal texts.
    let text = serde_json::to_value(template).unwrap_or(Value::Null).to_string();
    let hash = crate::token::ca_hash(&text);
    hash.chars().take(10).collect()
}

/// A new Pod as a template wants it, of this owner.
pub fn from_template(template: &PodTemplateSpec, owner: &OwnerReference, namespace: &str) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let base: String = owner.name.chars().take(57).collect();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{base}-")),
            namespace: Some(namespace.to_owned()),
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Creates a Pod and waits until the cache has it, so that the next look counts it.
pub async fn create(ctx: &Ctx, informer: &Informer<Pod>, pod: &Pod) -> Result<(), Error> {
    let namespace = pod.namespace().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(ctx.client.clone(), &namespace);
    let what = format!("pod for {}", pod.metadata.generate_name.as_deref().unwrap_or_default());
    let created = api.create(&PostParams::default(), pod).await.map_err(failed("create", what))?;
    informer.wait_for(&created.resource_version().unwrap_or_default(), SEE).await;
    Ok(())
}

/// Deletes exactly this Pod; one that is gone is fine.
pub async fn delete(ctx: &Ctx, informer: &Informer<Pod>, pod: &Pod, grace: Option<u32>) -> Result<(), Error> {
    let namespace = pod.namespace().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(ctx.client.clone(), &namespace);
    let params = DeleteParams {
        grace_period_seconds: grace,
        preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
        ..DeleteParams::default()
    };
    match api.delete(&pod.name_any(), &params).await {
        Ok(answer) => {
            if let Some(pod) = answer.left() {
                informer.wait_for(&pod.resource_version().unwrap_or_default(), SEE).await;
            }
            Ok(())
        }
        Err(error) if is_gone(&error) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(failed("delete", format!("pod {namespace}/{}", pod.name_any()))(error)),
    }
}

/// The owner as a reference, or an error that waits for somebody to give the owner a uid.
pub fn reference<K: Resource<DynamicType = ()>>(owner: &K) -> Result<OwnerReference, Error> {
    Ok(write::owner_reference(owner, &())?)
}

/// Takes away Pods that nothing will end any more: those on Nodes that are gone.
pub async fn collect(ctx: Arc<Ctx>, stop: CancellationToken) {
    let nodes: Informer<Node> = ctx.informers.of(Scope::all());
    let pods = informer(&ctx);
    let on_node = pods.clone();
    let controller = Controller::<Pod>::new("pod-garbage", &ctx)
        .watches(&nodes, move |node: &Node| on_node.keys_by_index(NODE, &node.name_any()));
    let known = nodes.clone();
    let reconcile = move |pod: Arc<Pod>, ctx: Arc<Ctx>| {
        let (known, pods) = (known.clone(), pods.clone());
        async move {
            if let Some(node) = node_of(&pod)
                && known.get(&ObjectKey::cluster_wide(node)).is_none()
            {
                // The cache may be behind a Node that was made a moment ago.
                let api: Api<Node> = Api::all(ctx.client.clone());
                if api.get_opt(node).await.map_err(failed("read", format!("node {node}")))?.is_none() {
                    delete(&ctx, &pods, &pod, Some(0)).await?;
                }
            }
            Ok::<_, Error>(Action::AwaitChange)
        }
    };
    drive(controller, reconcile, ctx, stop).await;
}
