//! How a Machine goes away: stage by stage, each told in the Deleting condition.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use kube::{Api, ResourceExt, api::DeleteParams};
use remuda_api::core::{MachineDeletionStatus, NodeReference};
use remuda_control::{Chain, write::delete};
use remuda_rollout::{
    condition::old::{OldCondition, Severity},
    contract::{ControlPlaneObject, InfraMachine},
    machine::delete::{ControlPlane, Done, Input, NodeDeletion, Started, Step, Timeouts, next},
};
use remuda_workload::{Down, Refused};

use super::{DrainBlocked, Machines, Pass, Seen, drain, node::NODE_HEALTHY, volumes, watch::CONTROL_PLANE};
use crate::{
    error::{Error, is_code},
    managed::cluster_value,
    providers::Interest,
};

/// How often a drain is looked at, and volumes, while nothing else happens.
const RETRY: Duration = Duration::from_secs(20);
/// How often the deletion of a Node is tried.
const RETRY_NODE: Duration = Duration::from_secs(2);

const PRE_DRAIN: &str = "PreDrainDeleteHookSucceeded";
const DRAINING: &str = "DrainingSucceeded";
const VOLUME_DETACH: &str = "VolumeDetachSucceeded";
const PRE_TERMINATE: &str = "PreTerminateDeleteHookSucceeded";

/// How a stage that talks to the workload cluster went.
pub(super) enum Progress {
    Done,
    /// Not yet; why, for people to read.
    Waiting(String),
}

/// Why a stage that talks to the workload cluster went nowhere.
pub(super) enum Trouble {
    /// The cluster has as many calls as it gets; we are woken when it is our turn.
    Busy,
    Failed(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Trouble::Failed(error)
    }
}

impl From<Down> for Trouble {
    fn from(down: Down) -> Self {
        Trouble::Failed(down.into())
    }
}

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Busy => Trouble::Busy,
            Refused::Down(down) => Trouble::Failed(down.into()),
        }
    }
}

impl Machines {
    /// Goes on with the deletion as far as it gets.
    pub(super) async fn delete(&self, pass: &mut Pass) {
        self.last_look_for_node(pass);
        let control_plane = self.control_plane(pass).await;
        let mut done = Done::default();
        let mut node_trouble = None;
        loop {
            let step = self.next_step(pass, control_plane, done);
            pass.stage = Some((step.reason(), step.to_string()));
            tell_passed(pass, &step, done);
            if !matches!(step, Step::CannotTell | Step::Drain { .. }) {
                pass.drain_blocked = DrainBlocked::No;
            }
            let goes_on = match &step {
                Step::CannotTell => false,
                Step::WaitForPreDrainHooks { .. } => {
                    let now = pass.now;
                    began(&mut started(pass).wait_for_pre_drain_hook_start_time, now);
                    set_old(pass, waiting(PRE_DRAIN, "WaitingExternalHook", ""));
                    false
                }
                Step::WaitForPreTerminateHooks { .. } => {
                    let now = pass.now;
                    began(&mut started(pass).wait_for_pre_terminate_hook_start_time, now);
                    set_old(pass, waiting(PRE_TERMINATE, "WaitingExternalHook", ""));
                    false
                }
                Step::Drain { started } => {
                    done.drained = self.drain_stage(pass, *started).await;
                    done.drained
                }
                Step::WaitForVolumes { started } => {
                    done.detached = self.volume_stage(pass, *started).await;
                    done.detached
                }
                Step::DeleteInfrastructure { delete, .. } => {
                    self.delete_provided(pass, *delete, |pass| &pass.infrastructure).await;
                    false
                }
                Step::DeleteBootstrap { delete, .. } => {
                    self.delete_provided(pass, *delete, |pass| &pass.bootstrap).await;
                    false
                }
                Step::CannotDelete { kind } => {
                    let seen = [&pass.infrastructure, &pass.bootstrap];
                    let why = seen.into_iter().find_map(|seen| match seen {
                        Seen::Failed(why) => Some(why.clone()),
                        _ => None,
                    });
                    // Upstream only points at its log.
                    let message = format!("Failed to delete {kind}: {}", why.unwrap_or_default());
                    pass.stage = Some((step.reason(), message));
                    false
                }
                Step::DeleteNode { node } => {
                    done.node = self.delete_node(pass, node, &mut node_trouble).await;
                    true
                }
                Step::RetryNode => {
                    if let Some(why) = &node_trouble {
                        // Upstream only points at its log.
                        pass.stage = Some((step.reason(), format!("Error deleting Node: {why}")));
                    }
                    false
                }
                Step::Finish => {
                    pass.finished = true;
                    false
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    fn next_step(&self, pass: &Pass, control_plane: ControlPlane, done: Done) -> Step {
        let machine = &pass.after;
        let annotations: BTreeSet<String> = machine.annotations().keys().cloned().collect();
        let status = machine.status.as_ref();
        let node = status.map(|status| status.node_ref.name.as_str()).filter(|name| !name.is_empty());
        let began = status.and_then(|status| status.deletion.clone()).unwrap_or_default();
        let at = |time: Option<Time>| time.map(|time| time.0);
        let deletion = &machine.spec.deletion;
        let seconds = |timeout: Option<i32>| timeout.map(i64::from);
        let filed = cluster_value(&pass.namespace, &pass.before.spec.cluster_name);
        let bootstrap = match &pass.bootstrap {
            Seen::NoReference => None,
            seen => Some((seen.object(), machine.spec.bootstrap.config_ref.kind.as_str())),
        };
        let input = Input {
            cluster_deleting: pass.cluster.metadata.deletion_timestamp.is_some(),
            control_plane,
            control_plane_machines: self.capi.machines.keys_by_index(CONTROL_PLANE, &filed).len(),
            node,
            annotations: &annotations,
            infrastructure: pass.infrastructure.object(),
            infrastructure_kind: &machine.spec.infrastructure_ref.kind,
            bootstrap,
            timeouts: Timeouts {
                drain: seconds(deletion.node_drain_timeout_seconds),
                volume_detach: seconds(deletion.node_volume_detach_timeout_seconds),
                node_deletion: seconds(deletion.node_deletion_timeout_seconds),
            },
            started: Started {
                pre_drain_hook: at(began.wait_for_pre_drain_hook_start_time),
                drain: at(began.node_drain_start_time),
                volume_detach: at(began.wait_for_node_volume_detach_start_time),
                pre_terminate_hook: at(began.wait_for_pre_terminate_hook_start_time),
            },
            deleted: machine.metadata.deletion_timestamp.as_ref().map_or(pass.now, |time| time.0),
            done,
        };
        next(&input, pass.now)
    }

    /// A Machine that never got to refer to its Node may have one all the same.
    fn last_look_for_node(&self, pass: &mut Pass) {
        let status = pass.after.status.get_or_insert_default();
        if !status.node_ref.name.is_empty() {
            return;
        }
        let id = match (&pass.after.spec.provider_id, &pass.infrastructure) {
            (id, _) if !id.is_empty() => Some(id.clone()),
            (_, Seen::Here(provided)) => {
                let machine = InfraMachine { object: provided.data(), contract: provided.contract() };
                machine.provider_id().ok().flatten()
            }
            _ => None,
        };
        let nodes = id.map(|id| self.capi.workloads.nodes_by_provider_id(&pass.cluster_key, &id));
        if let Some(Ok(nodes)) = nodes
            && let [node] = nodes.as_slice()
        {
            status.node_ref = NodeReference { name: node.name_any() };
        }
    }

    /// The control plane object, which matters only as long as there is a Node to care for.
    async fn control_plane(&self, pass: &mut Pass) -> ControlPlane {
        let reference = &pass.cluster.spec.control_plane_ref;
        let has_node = pass.after.status.as_ref().is_some_and(|status| !status.node_ref.name.is_empty());
        let cluster_deleting = pass.cluster.metadata.deletion_timestamp.is_some();
        if !reference.is_defined() || !has_node || cluster_deleting {
            return ControlPlane::None;
        }
        let interest = Interest { enqueuer: &self.enqueuer, root: &self.capi.machines, key: &pass.key };
        let found = self.capi.providers.get(reference, &pass.namespace, &interest).await;
        let external = match found {
            Ok(None) => return ControlPlane::None,
            Ok(Some(provided)) if provided.is_deleting() => return ControlPlane::Deleting,
            Ok(Some(provided)) => {
                let object = ControlPlaneObject { object: provided.data(), contract: provided.contract() };
                object.is_external().map_err(Error::from)
            }
            Err(error) => Err(error),
        };
        match external {
            Ok(true) => ControlPlane::External,
            Ok(false) => ControlPlane::Present,
            Err(error) => {
                pass.errors.push(error);
                ControlPlane::Unreadable
            }
        }
    }

    /// Whether the Node is drained by now.
    async fn drain_stage(&self, pass: &mut Pass, since: Timestamp) -> bool {
        let first = started(pass).node_drain_start_time.is_none();
        if pass.old.get(DRAINING).is_none() {
            set_old(pass, waiting(DRAINING, "Draining", "Draining the node before deletion"));
        }
        if first {
            began(&mut started(pass).node_drain_start_time, since);
            // Whoever is to see that a drain began must see it before the first pod goes.
            if let Err(error) = self.write(pass).await {
                pass.errors.push(error);
                return false;
            }
        }
        let name = node_name(pass);
        match drain::drain(self, pass, &name, since).await {
            Ok(None) => {
                let told = pass.old.get(DRAINING).is_some_and(is_good);
                set_old(pass, OldCondition::good(DRAINING));
                if !told {
                    let note = format!("success draining Machine's node {name:?}");
                    self.capi.ctx.recorder.normal(&*pass.before, "SuccessfulDrainNode", "DrainNode", note);
                }
                true
            }
            Ok(Some(drain::Left { message, blocked })) => {
                pass.drain_blocked = blocked;
                set_old(pass, waiting(DRAINING, "Draining", &message));
                pass.stage = Some(("DrainingNode", message));
                self.retry(pass, since, pass.after.spec.deletion.node_drain_timeout_seconds);
                false
            }
            Err(Trouble::Busy) => {
                self.retry(pass, since, pass.after.spec.deletion.node_drain_timeout_seconds);
                false
            }
            Err(Trouble::Failed(error)) => {
                let why = Chain(&error).to_string();
                set_old(pass, OldCondition::bad(DRAINING, Severity::Warning, "DrainingFailed", why.clone()));
                // Upstream only points at its log.
                pass.stage = Some(("DrainingNode", format!("Error draining Node: {why}")));
                self.failed(
                    pass,
                    "FailedDrainNode",
                    "DrainNode",
                    format!("error draining Machine's node {name:?}: {why}"),
                );
                self.retry(pass, since, pass.after.spec.deletion.node_drain_timeout_seconds);
                false
            }
        }
    }

    /// Whether no volume is attached any more.
    async fn volume_stage(&self, pass: &mut Pass, since: Timestamp) -> bool {
        began(&mut started(pass).wait_for_node_volume_detach_start_time, since);
        if pass.old.get(VOLUME_DETACH).is_none() {
            set_old(
                pass,
                waiting(VOLUME_DETACH, "WaitingForVolumeDetach", "Waiting for node volumes to be detached"),
            );
        }
        let name = node_name(pass);
        match volumes::wait(self, pass, &name, since).await {
            Ok(Progress::Done) => {
                let told = pass.old.get(VOLUME_DETACH).is_some_and(is_good);
                set_old(pass, OldCondition::good(VOLUME_DETACH));
                if !told {
                    let note = format!("success waiting for node volumes detaching Machine's node {name:?}");
                    self.capi.ctx.recorder.normal(
                        &*pass.before,
                        "NodeVolumesDetached",
                        "DetachVolumes",
                        note,
                    );
                }
                true
            }
            Ok(Progress::Waiting(message)) => {
                pass.stage = Some(("WaitingForVolumeDetach", message));
                self.retry(pass, since, pass.after.spec.deletion.node_volume_detach_timeout_seconds);
                false
            }
            Err(Trouble::Busy) => {
                self.retry(pass, since, pass.after.spec.deletion.node_volume_detach_timeout_seconds);
                false
            }
            Err(Trouble::Failed(error)) => {
                let why = Chain(&error).to_string();
                let message = format!("Error waiting for volumes to be detached from Node: {why}");
                pass.stage = Some(("WaitingForVolumeDetach", message));
                let note =
                    format!("error waiting for node volumes detaching, Machine's node {name:?}: {why}");
                self.failed(pass, "FailedWaitForVolumeDetach", "DetachVolumes", note);
                self.retry(pass, since, pass.after.spec.deletion.node_volume_detach_timeout_seconds);
                false
            }
        }
    }

    /// Looks again in a while, and no later than when the stage is given up.
    fn retry(&self, pass: &mut Pass, since: Timestamp, timeout: Option<i32>) {
        pass.again(RETRY);
        if let Some(timeout) = timeout.filter(|timeout| *timeout > 0) {
            let passed = pass.now.duration_since(since).as_secs_f64().max(0.0);
            let left = (f64::from(timeout) - passed).max(0.0);
            pass.again(Duration::from_secs_f64(left) + Duration::from_millis(10));
        }
    }

    fn failed(&self, pass: &Pass, reason: &'static str, action: &'static str, note: String) {
        // People read it in the Event and the condition, which count how often.
        tracing::debug!(machine = %pass.key, error = note, "deletion stage failed");
        self.capi.ctx.recorder.warning(&*pass.before, reason, action, note);
    }

    async fn delete_provided(&self, pass: &mut Pass, delete: bool, which: fn(&Pass) -> &Seen) {
        if let (true, Seen::Here(provided)) = (delete, which(pass))
            && let Err(error) = self.capi.providers.delete(provided).await
        {
            let kind = &provided.kind.resource.kind;
            let message = format!("Failed to delete {kind}: {}", Chain(&error));
            pass.stage = Some(("InternalError", message));
            pass.errors.push(error);
        }
    }

    /// One try. A cluster that is back wakes us, so one that is not is looked at now and then only.
    async fn delete_node(&self, pass: &mut Pass, name: &str, trouble: &mut Option<String>) -> NodeDeletion {
        let answer = match self.capi.workloads.lease(&pass.cluster_key, &self.enqueuer, &pass.key) {
            Ok(lease) => {
                let nodes: Api<Node> = Api::all(lease.client());
                let (client, params) = (lease.client(), DeleteParams::default());
                lease.call(delete(&client, nodes.resource_url(), name, &params)).await
            }
            Err(Refused::Down(down)) => Err(down),
            Err(Refused::Busy) => {
                pass.again(RETRY_NODE);
                return NodeDeletion::Failed;
            }
        };
        let why = match answer {
            Ok(Ok(_)) => return NodeDeletion::Gone,
            Ok(Err(error)) if is_code(&error, 404) => return NodeDeletion::Gone,
            Ok(Err(error)) => {
                pass.again(RETRY_NODE);
                Chain(&error).to_string()
            }
            Err(down) => down.to_string(),
        };
        let deleted = pass.before.metadata.deletion_timestamp.as_ref().map_or(pass.now, |time| time.0);
        self.retry(pass, deleted, pass.after.spec.deletion.node_deletion_timeout_seconds);
        set_old(pass, OldCondition::bad(NODE_HEALTHY, Severity::Warning, "DeletionFailed", ""));
        self.failed(pass, "FailedDeleteNode", "DeleteNode", format!("error deleting Machine's Node: {why}"));
        *trouble = Some(why);
        NodeDeletion::Failed
    }
}

/// What earlier stages came to, once a later one is reached.
fn tell_passed(pass: &mut Pass, step: &Step, done: Done) {
    let before_drain = matches!(step, Step::CannotTell | Step::WaitForPreDrainHooks { .. });
    let drains = matches!(step, Step::Drain { .. } | Step::WaitForVolumes { .. });
    if drains || done.drained || (!before_drain && pass.old.get(PRE_DRAIN).is_some()) {
        set_old(pass, OldCondition::good(PRE_DRAIN));
    }
    if before_drain || drains || matches!(step, Step::WaitForPreTerminateHooks { .. }) {
        return;
    }
    set_old(pass, OldCondition::good(PRE_TERMINATE));
    let gone = |name| OldCondition::bad(name, Severity::Info, "Deleted", "");
    if matches!(pass.infrastructure, Seen::Missing) {
        set_old(pass, gone(remuda_names::capi::condition::INFRASTRUCTURE_READY));
        if matches!(pass.bootstrap, Seen::Missing) {
            set_old(pass, gone("BootstrapReady"));
        }
    }
}

fn set_old(pass: &mut Pass, condition: OldCondition) {
    pass.old.set(condition, pass.now);
}

fn waiting(kind: &str, reason: &str, message: &str) -> OldCondition {
    let message: String = message.chars().take(10_240).collect();
    OldCondition::bad(kind, Severity::Info, reason, message)
}

fn is_good(condition: &OldCondition) -> bool {
    condition.status == remuda_rollout::condition::Status::True
}

fn started(pass: &mut Pass) -> &mut MachineDeletionStatus {
    pass.after.status.get_or_insert_default().deletion.get_or_insert_default()
}

/// A stage begins once. Times are kept in whole seconds.
fn began(at: &mut Option<Time>, now: Timestamp) {
    at.get_or_insert_with(|| Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
}

fn node_name(pass: &Pass) -> String {
    pass.after.status.as_ref().map(|status| status.node_ref.name.clone()).unwrap_or_default()
}
