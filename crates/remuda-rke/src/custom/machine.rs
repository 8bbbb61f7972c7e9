//! `CustomMachine`: a server that was there before.
//!
//! Reads   CustomMachines, their Machines, plan Secrets and Clusters, nodes of workload clusters.
//! Writes  status; the last plan of a server and the note that it was removed; deletes Machines whose Node was deleted
//!         long enough ago, if the cluster wants that.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use remuda_api::{
    core::{Cluster, Machine},
    rke::{CustomMachine, CustomMachineStatus, RkeCluster},
};
use remuda_control::{
    Action, Controller, Enqueuer, ObjectKey, drive,
    write::{conditions, ensure_finalizer, write_status},
};
use remuda_names::{
    capi::condition as capi_condition,
    rancher::{annotation, condition, finalizer},
};
use remuda_workload::Refused;
use tokio_util::sync::CancellationToken;

use super::clean;
use crate::{
    Error,
    conditions::{ConditionUpdate, set},
    error::is_code,
    machines::plan_secret,
    objects, settings,
    shared::{BY_CLUSTER, Rke, filed},
};

/// How soon a cluster that cannot be asked is asked again.
const UNREACHABLE: Duration = Duration::from_secs(60);

struct CustomMachines {
    rke: Arc<Rke>,
    enqueuer: Enqueuer,
}

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    let controller =
        Controller::on("custom-machine", &rke.ctx, rke.custom_machines.clone()).workers(rke.options.workers);
    let enqueuer = controller.enqueuer();
    let controller = controller.watches_facts(
        &rke.machines,
        |machine: &Machine| (deleted_since(machine), clean::owner(machine)),
        |machine| {
            let name = &machine.spec.infrastructure_ref.name;
            let custom = objects::is_custom(machine);
            custom.then(|| ObjectKey::of(&machine.metadata).sibling(name)).into_iter().collect()
        },
    );
    let known = rke.machines.clone();
    let controller = controller.watches_facts(
        &rke.rke_clusters,
        |cluster: &RkeCluster| patience(cluster),
        move |cluster| {
            // RKEClusters have the name of their Cluster.
            let key = ObjectKey::of(&cluster.metadata);
            let namespace = key.namespace.as_deref().unwrap_or_default();
            let machines = known.by_index(BY_CLUSTER, &filed(namespace, &key.name));
            let custom = machines.iter().filter(|machine| objects::is_custom(machine));
            custom.map(|machine| key.sibling(&machine.spec.infrastructure_ref.name)).collect()
        },
    );
    // A server says in its plan Secret how far its last plan is.
    let seen = rke.clone();
    let controller = controller.watches_facts(
        &rke.plans,
        |secret: &Secret| plan_secret(secret).data,
        move |secret| {
            let machine = seen.machine_of_plan(secret);
            let going = machine
                .filter(|machine| objects::is_custom(machine) && objects::is_deleting(&machine.metadata));
            let key = |machine: Arc<Machine>| {
                ObjectKey::of(&machine.metadata).sibling(&machine.spec.infrastructure_ref.name)
            };
            going.map(key).into_iter().collect()
        },
    );
    if stop.run_until_cancelled(rke.synced()).await.is_none() {
        return;
    }
    drive(controller, reconcile, Arc::new(CustomMachines { rke, enqueuer }), stop).await;
}

async fn reconcile(object: Arc<CustomMachine>, ctx: Arc<CustomMachines>) -> Result<Action, Error> {
    let key = ObjectKey::of(&object.metadata);
    if objects::is_deleting(&object.metadata) {
        return clean::reconcile(&ctx.rke, &key, &object).await;
    }
    let now = ctx.rke.ctx.clock.now();
    let api: Api<CustomMachine> = ctx.rke.api(key.namespace.as_deref().unwrap_or_default());
    let written = write_status(&ctx.rke.ctx, &api, &object, &status(&object, now)).await?;
    ctx.rke.seen(&ctx.rke.custom_machines, written.as_ref()).await;

    let owner = objects::owner(&object.metadata, "Machine");
    let Some(machine) = owner.and_then(|owner| ctx.rke.machines.get(&key.sibling(&owner.name))) else {
        return Ok(Action::AwaitChange);
    };
    if objects::is_deleting(&machine.metadata) {
        // One that registered before there were last plans. It may come too late for a machine that is not drained.
        ensure_finalizer(&api, (*object).clone(), &(), finalizer::HOST).await?;
        return Ok(Action::AwaitChange);
    }
    let Some(cluster) = ctx.rke.cluster_of(&machine) else {
        return Ok(Action::AwaitChange);
    };
    match missing(&machine, ctx.patience(&cluster), now) {
        Missing::No => Ok(Action::AwaitChange),
        Missing::NotYet(left) => Ok(Action::RequeueAfter(left)),
        Missing::Long => ctx.delete_if_gone(&key, &machine, &cluster).await,
    }
}

/// A server that is there is ready; it is provisioned when its Node is known.
fn status(object: &CustomMachine, now: Timestamp) -> CustomMachineStatus {
    let mut status = object.status.clone().unwrap_or_default();
    let says = ConditionUpdate { kind: condition::READY, status: Some(true), reason: "", message: "" };
    set(&mut status.conditions, says, now);
    if !object.spec.provider_id.is_empty() {
        status.initialization.provisioned = Some(true);
        status.ready = true;
    }
    status
}

/// After which time a machine whose Node was deleted is to go.
fn patience(cluster: &RkeCluster) -> Option<SignedDuration> {
    let text = cluster.annotations().get(annotation::DELETE_MISSING_AFTER).filter(|text| !text.is_empty())?;
    let patience = settings::duration(text);
    if patience.is_none() {
        tracing::warn!(cluster = cluster.name_any(), text, "annotation is no duration");
    }
    patience
}

/// Since when the Node of a Machine is known to be deleted.
fn deleted_since(machine: &Machine) -> Option<Timestamp> {
    let status = machine.status.as_ref().filter(|status| !status.node_ref.name.is_empty())?;
    let healthy = conditions::get(&status.conditions, capi_condition::NODE_HEALTHY)?;
    let deleted = healthy.status == "False" && healthy.reason == "NodeDeleted";
    deleted.then_some(healthy.last_transition_time.0)
}

#[derive(Debug, PartialEq, Eq)]
enum Missing {
    No,
    NotYet(Duration),
    Long,
}

fn missing(machine: &Machine, patience: Option<SignedDuration>, now: Timestamp) -> Missing {
    let (Some(since), Some(patience)) = (deleted_since(machine), patience) else {
        return Missing::No;
    };
    if objects::is_deleting(&machine.metadata) {
        return Missing::No;
    }
    match Duration::try_from(patience - now.duration_since(since)) {
        Ok(left) if !left.is_zero() => Missing::NotYet(left),
        _ => Missing::Long,
    }
}

impl CustomMachines {
    fn patience(&self, cluster: &Cluster) -> Option<SignedDuration> {
        let reference = &cluster.spec.infrastructure_ref;
        let key = ObjectKey::of(&cluster.metadata).sibling(&reference.name);
        self.rke.rke_clusters.get(&key).and_then(|cluster| patience(&cluster))
    }

    /// Deletes the Machine, if its cluster itself says that the Node is not there.
    async fn delete_if_gone(
        &self,
        key: &ObjectKey,
        machine: &Machine,
        cluster: &Cluster,
    ) -> Result<Action, Error> {
        let cluster = ObjectKey::of(&cluster.metadata);
        let node = machine.status.as_ref().map(|status| status.node_ref.name.clone()).unwrap_or_default();
        let lease = match self.rke.workloads.lease(&cluster, &self.enqueuer, key) {
            Ok(lease) => lease,
            Err(Refused::Busy | Refused::Down(_)) => return Ok(Action::RequeueAfter(UNREACHABLE)),
        };
        let nodes: Api<Node> = Api::all(lease.client());
        let found = lease.call(nodes.get_metadata_opt(&node)).await?;
        if found.map_err(Error::api("read", format!("Node {node}")))?.is_some() {
            return Ok(Action::RequeueAfter(UNREACHABLE));
        }
        let (namespace, name) = (machine.namespace().unwrap_or_default(), machine.name_any());
        let preconditions = Preconditions { uid: machine.uid(), resource_version: None };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.rke.api::<Machine>(&namespace).delete(&name, &params).await {
            Err(error) if !is_code(&error, 404) && !is_code(&error, 409) => {
                Err(Error::api("delete", format!("Machine {namespace}/{name}"))(error))
            }
            _ => {
                tracing::info!(machine = name, node, "node of custom machine is gone");
                Ok(Action::AwaitChange)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_goes_only_when_its_node_was_deleted_long_enough_ago() {
        let machine = |reason: &str, node: &str| -> Machine {
            serde_json::from_value(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m"}, "spec": {},
                "status": {
                    "nodeRef": {"name": node},
                    "conditions": [{"type": "NodeHealthy", "status": "False", "reason": reason, "message": "",
                                    "lastTransitionTime": "1970-01-01T00:00:00Z"}],
                },
            }))
            .unwrap()
        };
        let hour = Some(SignedDuration::from_hours(1));
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(missing(&machine("NodeDeleted", "n"), None, at(9999)), Missing::No);
        assert_eq!(missing(&machine("NodeDeleted", ""), hour, at(9999)), Missing::No);
        assert_eq!(missing(&machine("NodeNotReady", "n"), hour, at(9999)), Missing::No);
        let left = Missing::NotYet(Duration::from_secs(600));
        assert_eq!(missing(&machine("NodeDeleted", "n"), hour, at(3000)), left);
        assert_eq!(missing(&machine("NodeDeleted", "n"), hour, at(3600)), Missing::Long);
    }

    #[test]
    fn a_server_is_provisioned_when_its_provider_id_is_known() {
        let mut object = CustomMachine::named("m");
        let fresh = status(&object, Timestamp::UNIX_EPOCH);
        assert!(crate::conditions::is_true(&fresh.conditions, "Ready"));
        assert_eq!(fresh.initialization.provisioned, None);
        object.spec.provider_id = "k3s://n".into();
        assert_eq!(status(&object, Timestamp::UNIX_EPOCH).initialization.provisioned, Some(true));
    }
}
