//! The Node of a Machine: found by provider ID, told what the Machine says about it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint as NodeTaint};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_api::core::NodeReference;
use remuda_control::write::controller_of;
use remuda_names::capi::{annotation, label};
use remuda_rollout::{
    condition::old::{OldCondition, Severity},
    contract::InfraMachine,
    health,
    machine::{
        node::{Input, Metadata, Taint, desired, is_node_annotation, is_node_label},
        status::NodeReading,
    },
};
use remuda_workload::Refused;
use serde_json::{Map, Value, json};

use super::{Machines, Pass, Seen};
use crate::error::Error;

/// v1beta1's word about a Node.
pub(super) const NODE_HEALTHY: &str = remuda_names::capi::condition::NODE_HEALTHY;

/// How long to wait for a turn at most.
const PATIENCE: Duration = Duration::from_secs(5);

/// The Node, as it was looked for.
#[derive(Debug, Clone)]
pub(super) enum Reading {
    Found(Arc<Node>),
    NotFound,
    /// The workload cluster cannot be seen at the moment: that says nothing about its nodes.
    Disconnected,
    Failed,
}

impl Reading {
    pub(super) fn for_status(&self) -> NodeReading {
        match self {
            Reading::Found(node) => NodeReading::Found(conditions(node)),
            Reading::NotFound => NodeReading::NotFound,
            Reading::Disconnected => NodeReading::Disconnected,
            Reading::Failed => NodeReading::Failed,
        }
    }
}

fn conditions(node: &Node) -> Vec<health::NodeCondition> {
    let read = |condition: &NodeCondition| health::NodeCondition {
        kind: condition.type_.clone(),
        status: condition.status.clone(),
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
        since: condition.last_transition_time.as_ref().map(|time| time.0),
    };
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().map(read).collect()
}

/// Nobody has heard of the kubelet for a while.
pub(super) fn is_unreachable(node: &Node) -> bool {
    conditions(node).iter().any(|condition| condition.kind == "Ready" && condition.status == "Unknown")
}

impl Machines {
    /// Finds the Node, refers to it and writes to it.
    pub(super) async fn node(&self, pass: &mut Pass) {
        let id = pass.after.spec.provider_id.clone();
        let has_node = pass.before.status.as_ref().is_some_and(|status| !status.node_ref.name.is_empty());
        if id.is_empty() {
            set_old(pass, OldCondition::bad(NODE_HEALTHY, Severity::Info, "WaitingForNodeRef", ""));
            return;
        }
        pass.node = match self.capi.workloads.nodes_by_provider_id(&pass.cluster_key, &id) {
            Err(_) => Reading::Disconnected,
            Ok(nodes) if nodes.len() > 1 => {
                let why = format!("unexpectedly found more than one Node matching the providerID {id}");
                let reason = "Failed to retrieve Node by ProviderID";
                self.capi.ctx.recorder.warning(&*pass.before, reason, "FindNode", &why);
                pass.errors.push(Error::Invalid(why));
                Reading::Failed
            }
            Ok(nodes) => nodes.into_iter().next().map_or(Reading::NotFound, Reading::Found),
        };
        match pass.node.clone() {
            Reading::Found(node) => {
                self.refer(pass, &node);
                if let Err(error) = self.sync(pass, &node).await {
                    pass.errors.push(error);
                }
                old_health(pass, &node);
            }
            Reading::NotFound if pass.deleting() => {}
            Reading::NotFound if has_node => {
                set_old(pass, OldCondition::bad(NODE_HEALTHY, Severity::Error, "NodeNotFound", ""));
            }
            Reading::NotFound => {
                let message = "Waiting for a node with matching ProviderID to exist";
                let waiting = OldCondition::bad(NODE_HEALTHY, Severity::Warning, "NodeProvisioning", message);
                set_old(pass, waiting);
            }
            Reading::Failed => {
                let message = "Failed to get the Node for this Machine by ProviderID";
                set_old(pass, unknown("NodeInspectionFailed", message));
            }
            Reading::Disconnected => {}
        }
    }

    fn refer(&self, pass: &mut Pass, node: &Node) {
        let name = node.name_any();
        let status = pass.after.status.get_or_insert_default();
        if let Some(info) = node.status.as_ref().and_then(|status| status.node_info.as_ref())
            && status.node_info.as_ref() != Some(info)
        {
            status.node_info = Some(info.clone());
        }
        if status.node_ref.name.is_empty() {
            status.node_ref = NodeReference { name: name.clone() };
            tracing::info!(machine = %pass.key, node = name, "node found");
            self.capi.ctx.recorder.normal(&*pass.before, "SuccessfulSetNodeRef", "SetNodeRef", name);
        }
    }

    /// Labels, annotations and taints of the Node, if they are not as they should be.
    async fn sync(&self, pass: &mut Pass, node: &Node) -> Result<(), Error> {
        let is = metadata(node);
        let interruptible = match &pass.infrastructure {
            Seen::Here(provided) => {
                InfraMachine { object: provided.data(), contract: provided.contract() }.interruptible()?
            }
            // What was said before still holds.
            _ => is.labels.contains_key(label::INTERRUPTIBLE),
        };
        let wanted = desired(&is, &input(pass, interruptible));
        let Some(patch) = difference(node, &is, &wanted) else {
            return Ok(());
        };
        let lease = match self.capi.workloads.lease(&pass.cluster_key, &self.enqueuer, &pass.key) {
            Ok(lease) => lease,
            // The connection wakes us when it is back.
            Err(Refused::Down(_)) => return Ok(()),
            // Whoever is in front of us wakes us, unless it is gone by then.
            Err(Refused::Busy) => {
                pass.again(PATIENCE);
                return Ok(());
            }
        };
        let nodes: Api<Node> = Api::all(lease.client());
        let name = node.name_any();
        let patch = Patch::Merge(patch);
        let params = self.params();
        let written = lease.call(nodes.patch(&name, &params, &patch)).await?;
        written.map_err(Error::api("write", format!("Node {name}")))?;
        let had_label = is.labels.contains_key(label::INTERRUPTIBLE);
        if interruptible && !had_label {
            let reason = "SuccessfulSetInterruptibleNodeLabel";
            self.capi.ctx.recorder.normal(&*pass.before, reason, "SetNodeLabel", name);
        }
        Ok(())
    }

    pub(super) fn params(&self) -> PatchParams {
        let field_manager = Some(self.capi.ctx.field_manager.to_string());
        PatchParams { field_manager, ..PatchParams::default() }
    }
}

fn set_old(pass: &mut Pass, condition: OldCondition) {
    pass.old.set(condition, pass.now);
}

fn unknown(reason: &str, message: impl Into<String>) -> OldCondition {
    OldCondition {
        status: remuda_rollout::condition::Status::Unknown,
        severity: None,
        ..OldCondition::bad(NODE_HEALTHY, Severity::Info, reason, message)
    }
}

/// v1beta1 calls a Node healthy unless something is wrong with it; four unknowns are one.
fn old_health(pass: &mut Pass, node: &Node) {
    let serving = matches!(&pass.infrastructure, Seen::Here(provided) if !provided.is_deleting());
    if !serving {
        set_old(pass, OldCondition::bad(NODE_HEALTHY, Severity::Info, "Deleting", ""));
        return;
    }
    let (mut bad, mut unclear, mut told) = (0, 0, Vec::new());
    for condition in conditions(node) {
        let normal = match condition.kind.as_str() {
            "MemoryPressure" | "DiskPressure" | "PIDPressure" => "False",
            "Ready" => "True",
            _ => continue,
        };
        if condition.status == normal {
            continue;
        }
        told.push(format!("Node condition {} is {}", condition.kind, condition.status));
        if condition.status == "Unknown" {
            unclear += 1;
        } else {
            bad += 1;
        }
    }
    let message = told.join(". ");
    let condition = match (bad, unclear) {
        (1.., _) => OldCondition::bad(NODE_HEALTHY, Severity::Warning, "NodeConditionsFailed", message),
        (0, 4..) => unknown("NodeConditionsFailed", message),
        _ => OldCondition::good(NODE_HEALTHY),
    };
    set_old(pass, condition);
}

fn metadata(node: &Node) -> Metadata {
    let taint = |taint: &NodeTaint| Taint {
        key: taint.key.clone(),
        value: taint.value.clone().unwrap_or_default(),
        effect: taint.effect.clone(),
    };
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    Metadata {
        labels: node.labels().clone(),
        annotations: node.annotations().clone(),
        taints: taints.into_iter().flatten().map(taint).collect(),
    }
}

fn input(pass: &Pass, interruptible: bool) -> Input<'_> {
    let machine = &pass.after;
    let of = |map: &BTreeMap<String, String>, belongs: fn(&str) -> bool| {
        let mine = map.iter().filter(|(key, _)| belongs(key));
        mine.map(|(key, value)| (key.clone(), value.clone())).collect::<BTreeMap<_, _>>()
    };
    let revision = |annotations: &BTreeMap<String, String>| {
        annotations.get(annotation::REVISION).and_then(|text| text.parse::<i64>().ok())
    };
    let set = pass.set.as_ref().and_then(|set| revision(set.annotations()));
    let deployment = pass.deployment.as_ref().and_then(|deployment| revision(deployment.annotations()));
    Input {
        labels: of(machine.labels(), |key| is_node_label(key, |_| false)),
        annotations: of(machine.annotations(), |key| is_node_annotation(key, |_| false)),
        interruptible,
        cluster: &pass.before.spec.cluster_name,
        namespace: &pass.namespace,
        machine: &pass.key.name,
        owner: controller_of(&machine.metadata).map(|owner| (owner.kind.as_str(), owner.name.as_str())),
        outdated: matches!((set, deployment), (Some(set), Some(deployment)) if set < deployment),
        // Taints of Machines are refused by admission.
        taints: None,
    }
}

/// The merge patch between two states of a Node. Taints are one list, which must not have changed meanwhile.
fn difference(node: &Node, is: &Metadata, wanted: &Metadata) -> Option<Value> {
    if is == wanted {
        return None;
    }
    let changed = |is: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>| {
        let mut patch = Map::new();
        for key in is.keys().filter(|key| !wanted.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
        for (key, value) in wanted.iter().filter(|(key, value)| is.get(*key) != Some(value)) {
            patch.insert(key.clone(), json!(value));
        }
        patch
    };
    let mut metadata = Map::from_iter([("uid".to_owned(), json!(node.uid()))]);
    for (key, patch) in [
        ("labels", changed(&is.labels, &wanted.labels)),
        ("annotations", changed(&is.annotations, &wanted.annotations)),
    ] {
        if !patch.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(patch));
        }
    }
    let mut patch = json!({});
    if is.taints != wanted.taints {
        metadata.insert("resourceVersion".to_owned(), json!(node.resource_version()));
        patch["spec"] = json!({"taints": taints(node, &wanted.taints)});
    }
    patch["metadata"] = Value::Object(metadata);
    Some(patch)
}

/// Taints that stay keep everything they say.
fn taints(node: &Node, wanted: &[Taint]) -> Vec<NodeTaint> {
    let known = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let write = |wanted: &Taint| {
        let same = |known: &&NodeTaint| {
            known.key == wanted.key
                && known.effect == wanted.effect
                && known.value.as_deref().unwrap_or_default() == wanted.value
        };
        known.iter().find(same).cloned().unwrap_or_else(|| NodeTaint {
            key: wanted.key.clone(),
            value: (!wanted.value.is_empty()).then(|| wanted.value.clone()),
            effect: wanted.effect.clone(),
            time_added: None,
        })
    };
    wanted.iter().map(write).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_written() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "1", "b": "2"}},
            "spec": {"taints": [{"key": "t", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]},
        }))
        .unwrap();
        let is = metadata(&node);
        assert_eq!(difference(&node, &is, &is), None);
        let mut wanted = is.clone();
        wanted.labels.remove("b");
        wanted.labels.insert("c".into(), "3".into());
        assert_eq!(
            difference(&node, &is, &wanted),
            Some(json!({"metadata": {"uid": "u", "labels": {"b": null, "c": "3"}}}))
        );
        wanted = is.clone();
        wanted.taints.push(Taint { key: "x".into(), value: String::new(), effect: "NoSchedule".into() });
        let patch = difference(&node, &is, &wanted).unwrap();
        assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        assert_eq!(patch["spec"]["taints"][0]["timeAdded"], "2026-01-01T00:00:00Z");
        assert_eq!(patch["spec"]["taints"][1], json!({"key": "x", "effect": "NoSchedule"}));
    }
}
