//! The Machines a health check looks at, and their Nodes.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};
use remuda_api::core::{Machine, MachineHealthCheck};
use remuda_control::ObjectKey;
use remuda_names::capi::condition as kind;
use remuda_rollout::{
    health::{self, NodeCondition},
    view::Machine as View,
};

use super::{Pass, external::External};
use crate::{
    enqueue,
    managed::{BY_CLUSTER, cluster_value},
    view,
};

/// A Machine, as it is and as decisions see it.
pub(super) struct Target {
    pub(super) machine: Arc<Machine>,
    pub(super) view: View,
    node: health::Node,
    requested: bool,
}

impl Target {
    pub(super) fn view(&self) -> health::Target<'_> {
        health::Target { machine: &self.view, node: self.node.clone(), requested: self.requested }
    }
}

/// Whether a check looks at a Machine of its Cluster. An empty selector looks at none.
pub(super) fn selects(check: &MachineHealthCheck, machine: &Machine) -> bool {
    let selector = view::selector(&check.spec.selector);
    machine.spec.cluster_name == check.spec.cluster_name
        && !selector.is_empty()
        && selector.matches(machine.labels())
}

impl Pass<'_> {
    /// All targets, and whether their Nodes could be seen, or need not be yet.
    pub(super) fn targets(&self, external: Option<&External>) -> (Vec<Target>, bool) {
        let cluster = ObjectKey::of(&self.cluster.metadata);
        let initialized = enqueue::true_since(&*self.cluster, kind::CONTROL_PLANE_INITIALIZED).is_some();
        let workloads = &self.capi.workloads;
        let mut connected = !initialized || self.sees(&cluster);
        let here = cluster_value(self.namespace(), &self.check.spec.cluster_name);
        let machines = self.capi.machines.by_index(BY_CLUSTER, &here);
        let mut targets = Vec::new();
        for machine in machines.into_iter().filter(|machine| selects(&self.check, machine)) {
            let view = view::machine(&machine);
            let node = match view.node.as_deref().filter(|_| initialized && connected) {
                None => health::Node::None,
                Some(name) => match workloads.node(&cluster, name) {
                    Ok(Some(node)) => health::Node::Found(conditions(&node)),
                    Ok(None) => health::Node::Missing,
                    Err(_) => {
                        connected = false;
                        health::Node::None
                    }
                },
            };
            let requested = external.is_some_and(|external| external.is_requested(&machine));
            targets.push(Target { machine, view, node, requested });
        }
        (targets, connected)
    }
}

impl Pass<'_> {
    /// The Nodes we know are those there are, as far as anybody can tell without asking.
    fn sees(&self, cluster: &ObjectKey) -> bool {
        let health = self.capi.workloads.health(cluster);
        let nodes = self.capi.workloads.nodes(cluster);
        health.connected && health.failures == 0 && nodes.is_some_and(|nodes| nodes.stale_since().is_none())
    }

    /// Asks the workload cluster itself about the Nodes of these Machines. False if it does not answer.
    pub(super) async fn confirm(&self, targets: &mut [Target], names: &BTreeSet<String>) -> bool {
        let cluster = ObjectKey::of(&self.cluster.metadata);
        let Ok(lease) = self.capi.workloads.lease(&cluster, &self.all.enqueuer, &self.key) else {
            return false;
        };
        let nodes: Api<Node> = Api::all(lease.client());
        for target in targets.iter_mut().filter(|target| names.contains(&target.view.name)) {
            target.node = match &target.view.node {
                Some(name) => match lease.call(nodes.get_opt(name)).await {
                    Ok(Ok(Some(node))) => health::Node::Found(conditions(&node)),
                    Ok(Ok(None)) => health::Node::Missing,
                    Ok(Err(_)) | Err(_) => return false,
                },
                None => match lease.call(nodes.list_metadata(&ListParams::default().limit(1))).await {
                    Ok(Ok(_)) => health::Node::None,
                    Ok(Err(_)) | Err(_) => return false,
                },
            };
        }
        true
    }
}

fn conditions(node: &Node) -> Vec<NodeCondition> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
    let conditions = conditions.unwrap_or_default().iter();
    conditions
        .map(|condition| NodeCondition {
            kind: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        })
        .collect()
}
