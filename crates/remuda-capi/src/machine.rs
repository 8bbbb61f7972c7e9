//! `Machine`: takes over what providers made, finds its Node, and takes everything away again in order.
//!
//! Reads   the Machine, its Cluster, set and deployment, the bootstrap config and infrastructure it refers to,
//!         and the nodes of its workload cluster.
//! Writes  the Machine; owners and labels of what it refers to; labels, annotations and taints of its Node; and
//!         on deletion evictions, the Node and the objects it refers to.
//! Never   waits for a workload cluster: what cannot be asked is left as it was, and said so.

mod delete;
mod drain;
mod handoff;
mod node;
mod status;
mod volumes;
mod watch;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{Api, ResourceExt};
use remuda_api::core::{Cluster, Machine, MachineDeployment, MachineDrainRule, MachineSet};
use remuda_control::{
    Action, Chain, Controller, Enqueuer, Informer, ObjectKey, Scope, drive,
    write::{controller_of, remove_finalizer},
};
use remuda_names::capi::{annotation, condition as kind, finalizer, group, label};
use remuda_rollout::{
    condition::{Condition, Status, old::OldConditions},
    handoff::{Ownership, cluster_owns_machine},
    paused,
};
use tokio_util::sync::CancellationToken;

use self::handoff::Seen;
use crate::{
    Capi,
    error::Error,
    managed::{Managed, ensure_owner, group_of, plain_owner},
    save::save,
    view,
};

/// More than other controllers have: some of them may wait for workload clusters.
const WORKERS_FACTOR: usize = 8;

/// What a reconcile of a Machine needs.
struct Machines {
    capi: Arc<Capi>,
    enqueuer: Enqueuer,
    rules: Informer<MachineDrainRule>,
}

pub(crate) async fn run(capi: Arc<Capi>, stop: CancellationToken) {
    watch::index(&capi.machines);
    let controller = Controller::on("machine", &capi.ctx, capi.machines.clone());
    let rules: Informer<MachineDrainRule> = capi.ctx.informers.of(Scope::all());
    let controller = controller
        .workers(capi.options.workers.saturating_mul(WORKERS_FACTOR))
        .watches(&rules, watch::draining(&capi));
    let controller = watch::watches(controller, &capi);
    let enqueuer = controller.enqueuer();
    let subscription = watch::to_workloads(&capi, &enqueuer);
    let machines = Arc::new(Machines { capi, enqueuer, rules });
    drive(controller, reconcile, machines, stop).await;
    drop(subscription);
}

/// One pass over a Machine: what was seen, and what came of it so far.
struct Pass {
    now: Timestamp,
    key: ObjectKey,
    namespace: String,
    cluster: Arc<Cluster>,
    cluster_key: ObjectKey,
    /// The Machine as it is stored, and as it should be.
    before: Arc<Machine>,
    after: Machine,
    /// Conditions for v1beta1, as they should be.
    old: OldConditions,
    set: Option<Arc<MachineSet>>,
    deployment: Option<Arc<MachineDeployment>>,
    bootstrap: Seen,
    infrastructure: Seen,
    node: node::Reading,
    /// Reason and message of the stage of deletion.
    stage: Option<(&'static str, String)>,
    /// What keeps the node from being drained, as far as this pass knows.
    drain_blocked: DrainBlocked,
    /// The finalizer may go.
    finished: bool,
    errors: Vec<Error>,
    next: Option<Duration>,
}

/// Whether a drain before the deletion is held up.
#[derive(Debug, Default, PartialEq, Eq)]
enum DrainBlocked {
    /// Nobody looked: what was said before stays.
    #[default]
    Unknown,
    No,
    /// By these budgets, for people to read.
    ByBudgets(String),
}

impl Pass {
    fn deleting(&self) -> bool {
        self.before.metadata.deletion_timestamp.is_some()
    }

    /// Look again after this long at the latest.
    fn again(&mut self, after: Duration) {
        self.next = Some(self.next.map_or(after, |known| known.min(after)));
    }
}

async fn reconcile(machine: Arc<Machine>, ctx: Arc<Machines>) -> Result<Action, Error> {
    let Some(mut pass) = ctx.begin(machine).await? else {
        return Ok(Action::AwaitChange);
    };
    ctx.bootstrap(&mut pass).await;
    ctx.infrastructure(&mut pass).await;
    ctx.node(&mut pass).await;
    certificates(&mut pass);
    if pass.deleting() {
        ctx.delete(&mut pass).await;
    }
    ctx.finish(pass).await
}

impl Machines {
    fn api(&self, namespace: &str) -> Api<Machine> {
        self.capi.api(namespace)
    }

    /// The steps every pass starts with; `None` if there is nothing to do. That the Machine is not paused is
    /// written together with the rest: only a Machine that is needs to say so first.
    async fn begin(&self, machine: Arc<Machine>) -> Result<Option<Pass>, Error> {
        let namespace = machine.namespace().unwrap_or_default();
        let now = self.capi.ctx.clock.now();
        let cluster = match self.capi.cluster_of(&*machine) {
            Ok(cluster) => cluster,
            Err(error) => {
                self.without_cluster(&machine, &error, now).await?;
                return Err(error);
            }
        };
        let held = machine.finalizers().iter().any(|known| known == finalizer::MACHINE);
        if !held && machine.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let before = machine;
        let mut after = (*before).clone();
        if !held {
            // Before anything is done that somebody would have to clean up.
            after.metadata.finalizers.get_or_insert_default().push(finalizer::MACHINE.to_owned());
        }
        own(&mut after, &cluster);
        let by_cluster = cluster.spec.paused == Some(true);
        let by_annotation = before.annotations().contains_key(annotation::PAUSED);
        if by_cluster || by_annotation {
            let mut said = (*before).clone();
            said.metadata.finalizers.clone_from(&after.metadata.finalizers);
            view::set(&mut said, vec![paused::condition(Machine::KIND, by_cluster, by_annotation)], now);
            save(&self.capi.ctx, &self.api(&namespace), &self.capi.machines, &*before, &said).await?;
            return Ok(None);
        }
        let set = self.set_of(&before, &namespace);
        let deployment = set.as_ref().and_then(|set| self.deployment_of(set, &namespace));
        let mut pass = Pass {
            now,
            key: ObjectKey::of(&before.metadata),
            cluster_key: ObjectKey::of(&cluster.metadata),
            namespace,
            cluster,
            old: view::old_conditions(old_conditions(&before)),
            before,
            after,
            set,
            deployment,
            bootstrap: Seen::NoReference,
            infrastructure: Seen::NoReference,
            node: node::Reading::NotFound,
            stage: None,
            drain_blocked: DrainBlocked::Unknown,
            finished: false,
            errors: Vec::new(),
            next: None,
        };
        if !held && !self.write_main(&mut pass).await? {
            return Ok(None);
        }
        Ok(Some(pass))
    }

    /// A Machine whose Cluster is missing says so, or nobody would know what it waits for.
    async fn without_cluster(&self, machine: &Machine, error: &Error, now: Timestamp) -> Result<(), Error> {
        let message = Chain(error).to_string();
        let mut conditions =
            vec![Condition::new(kind::READY, Status::Unknown, "InternalError", message.clone())];
        if machine.metadata.deletion_timestamp.is_some() {
            conditions.push(Condition::new(kind::DELETING, Status::True, "InternalError", message));
        }
        let mut after = machine.clone();
        view::set(&mut after, conditions, now);
        let api = self.api(&machine.namespace().unwrap_or_default());
        save(&self.capi.ctx, &api, &self.capi.machines, machine, &after).await.map(drop)
    }

    fn set_of(&self, machine: &Machine, namespace: &str) -> Option<Arc<MachineSet>> {
        let owner = controller_of(&machine.metadata).filter(|owner| owner.kind == MachineSet::KIND)?;
        self.capi.sets.get(&ObjectKey::namespaced(namespace, &owner.name))
    }

    fn deployment_of(&self, set: &MachineSet, namespace: &str) -> Option<Arc<MachineDeployment>> {
        let name = set.labels().get(label::DEPLOYMENT_NAME).filter(|name| !name.is_empty())?;
        self.capi.deployments.get(&ObjectKey::namespaced(namespace, name))
    }

    /// Composes the status, writes what differs, and lets go of a Machine that is done with.
    async fn finish(&self, mut pass: Pass) -> Result<Action, Error> {
        // The last word of a Machine is heard only if somebody else still holds it.
        if !pass.finished || pass.before.finalizers().len() > 1 {
            self.write(&mut pass).await?;
        }
        if pass.finished {
            remove_finalizer(&self.api(&pass.namespace), &*pass.before, &(), finalizer::MACHINE).await?;
            return Ok(Action::AwaitChange);
        }
        match Error::join(pass.errors) {
            Some(error) => Err(error),
            None => Ok(pass.next.map_or(Action::AwaitChange, Action::RequeueAfter)),
        }
    }

    /// Writes everything that differs by now. The status comes last and is that of the newest generation, or it
    /// would have to be written again for nothing but that.
    async fn write(&self, pass: &mut Pass) -> Result<(), Error> {
        if !self.write_main(pass).await? {
            return Ok(());
        }
        self.status(pass);
        let api = self.api(&pass.namespace);
        let written = save(&self.capi.ctx, &api, &self.capi.machines, &*pass.before, &pass.after).await?;
        if let Some(written) = written {
            if let Some((phase, seconds)) = status::left(&pass.before, &written) {
                self.capi.ctx.metrics.phase_left(phase, seconds);
            }
            pass.after = written.clone();
            pass.before = Arc::new(written);
        }
        Ok(())
    }

    /// Writes metadata and spec. Tells whether the Machine is still there.
    async fn write_main(&self, pass: &mut Pass) -> Result<bool, Error> {
        if pass.before.metadata == pass.after.metadata && pass.before.spec == pass.after.spec {
            return Ok(true);
        }
        let middle = Machine {
            metadata: pass.after.metadata.clone(),
            spec: pass.after.spec.clone(),
            status: pass.before.status.clone(),
        };
        let api = self.api(&pass.namespace);
        let Some(written) = save(&self.capi.ctx, &api, &self.capi.machines, &*pass.before, &middle).await?
        else {
            return Ok(false);
        };
        pass.after.metadata = written.metadata.clone();
        pass.after.spec = written.spec.clone();
        pass.before = Arc::new(written);
        Ok(true)
    }
}

fn old_conditions(machine: &Machine) -> &[remuda_api::core::OldCondition] {
    let deprecated = machine.status.as_ref().and_then(|status| status.deprecated.as_ref());
    deprecated.and_then(|deprecated| deprecated.v1beta1.as_ref()).map_or(&[], |old| &old.conditions)
}

/// The label of its Cluster, and the Cluster as owner of a Machine nobody made.
fn own(machine: &mut Machine, cluster: &Cluster) {
    let cluster_name = &machine.spec.cluster_name;
    let meta = &mut machine.metadata;
    let labels = meta.labels.get_or_insert_default();
    let made = [label::SET_NAME, label::POOL_NAME, label::CONTROL_PLANE_NAME];
    let made_by_somebody = made.iter().any(|key| labels.contains_key(*key));
    if labels.get(label::CLUSTER_NAME) != Some(cluster_name) {
        labels.insert(label::CLUSTER_NAME.to_owned(), cluster_name.clone());
    }
    let has_controller = controller_of(meta).is_some();
    let owned = meta.owner_references.is_some();
    let owners = meta.owner_references.get_or_insert_default();
    let known = owners
        .iter()
        .find(|owner| owner.kind == Cluster::KIND && group_of(&owner.api_version) == group::CORE);
    let ownership = Ownership {
        has_controller,
        owned_by_cluster: known.is_some(),
        made_by_somebody,
        ..Ownership::default()
    };
    // After a move the Cluster has another uid.
    let renewed = known.is_some_and(|owner| owner.name == cluster.name_any());
    if cluster_owns_machine(ownership) || renewed {
        let mut owner = plain_owner(cluster);
        if let Some(known) = known {
            owner.controller = known.controller;
            owner.block_owner_deletion = known.block_owner_deletion;
        }
        ensure_owner(owners, owner);
    }
    if owners.is_empty() && !owned {
        meta.owner_references = None;
    }
}

/// When the certificates of a control plane machine expire, if anybody says so.
fn certificates(pass: &mut Pass) {
    if !pass.before.labels().contains_key(label::CONTROL_PLANE) {
        return;
    }
    let key = annotation::CERTIFICATES_EXPIRY;
    let told = pass.before.annotations().get(key).cloned();
    let told = told.or_else(|| match &pass.bootstrap {
        Seen::Here(config) => config.object.annotations().get(key).cloned(),
        _ => None,
    });
    // Nothing is known while the config cannot be read.
    if told.is_none() && matches!(pass.bootstrap, Seen::Failed(_)) {
        return;
    }
    let at = match told.map(|text| text.parse::<Timestamp>().map_err(|_| text)).transpose() {
        Ok(at) => at,
        Err(text) => {
            let why = format!("annotation {key} is no time: {text:?}");
            pass.errors.push(Error::Invalid(why));
            return;
        }
    };
    let status = pass.after.status.get_or_insert_default();
    let whole = |at: Timestamp| Timestamp::from_second(at.as_second()).unwrap_or(at);
    status.certificates_expiry_date =
        at.map(|at| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(whole(at)));
}
