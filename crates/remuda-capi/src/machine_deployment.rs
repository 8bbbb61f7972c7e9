//! `MachineDeployment`: replaces Machines by replacing MachineSets.
//!
//! Reads   the MachineDeployment, its Cluster, its MachineSets and their Machines, and the templates it refers to.
//! Writes  MachineSets, the owner of templates, itself.
//! Never   touches a Machine: its sets do.

mod desired;
mod sets;
mod status;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use remuda_api::core::{Cluster, Machine, MachineDeployment, MachineSet};
use remuda_control::{
    Action, Controller, Enqueuer, Informer, ObjectKey, drive,
    write::{controller_of, remove_finalizer},
};
use remuda_names::capi::{annotation, finalizer, group, label};
use remuda_rollout::{
    deployment::{Deployment, Leftover, Set, Strategy, clean_up, find, is_complete, plan},
    view::Counts,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Capi, Error,
    enqueue::watches_cluster,
    machine_set::{BY_CONTROLLER, ORPHAN_FINALIZER, amount, index, is_kept, templates::Templates},
    managed::{BY_CLUSTER, Begun, cluster_value, ensure_owner, group_of, plain_owner},
    pending::Pending,
    providers::{Interest, REFERENCES, reference_keys},
    save::save,
    view,
};

/// A cache that still lags behind our own writes is given this long.
const LAGGING: Duration = Duration::from_secs(1);

struct Deployments {
    capi: Arc<Capi>,
    enqueuer: Enqueuer,
    /// Writes to MachineSets that the cache has not shown yet.
    pending: Pending,
}

pub(crate) async fn run(capi: Arc<Capi>, stop: CancellationToken) {
    index(&capi);
    capi.deployments.add_index(REFERENCES, |deployment| {
        let spec = &deployment.spec.template.spec;
        let references = [&spec.bootstrap.config_ref, &spec.infrastructure_ref];
        reference_keys(deployment.metadata.namespace.as_deref().unwrap_or_default(), references)
    });
    let controller = Controller::on("machinedeployment", &capi.ctx, capi.deployments.clone())
        .workers(capi.options.workers);
    let enqueuer = controller.enqueuer();
    let deployments = capi.deployments.clone();
    // Changes of Machines are seen through their sets.
    let controller = watches_cluster(controller, &capi.clusters)
        .requires(&capi.machines)
        .watches(&capi.sets, move |set| deployments_of(&deployments, set));
    let deployments = Arc::new(Deployments { capi, enqueuer, pending: Pending::default() });
    let reconcile = |deployment: Arc<MachineDeployment>, deployments: Arc<Deployments>| async move {
        deployments.reconcile(&deployment).await
    };
    drive(controller, reconcile, deployments, stop).await;
}

/// The deployment that controls a set, or those that would take it.
fn deployments_of(deployments: &Informer<MachineDeployment>, set: &MachineSet) -> Vec<ObjectKey> {
    let key = ObjectKey::of(&set.metadata);
    if let Some(owner) = controller_of(&set.metadata) {
        let ours = owner.kind == "MachineDeployment" && group_of(&owner.api_version) == group::CORE;
        return ours.then(|| key.sibling(&owner.name)).into_iter().collect();
    }
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let siblings = deployments.by_index(BY_CLUSTER, &cluster_value(namespace, &set.spec.cluster_name));
    let fitting = siblings.iter().filter(|deployment| {
        let selector = view::selector(&deployment.spec.selector);
        !selector.is_empty() && selector.matches(set.labels())
    });
    fitting.map(|deployment| ObjectKey::of(&deployment.metadata)).collect()
}

/// One reconcile: what was observed, and what has been decided so far.
struct Pass<'a> {
    all: &'a Deployments,
    capi: &'a Capi,
    key: ObjectKey,
    now: Timestamp,
    cluster: Arc<Cluster>,
    /// The deployment as it will be written.
    deployment: MachineDeployment,
    templates: Templates,
    /// `None` if they could not be told.
    sets: Option<Vec<Arc<MachineSet>>>,
    errors: Vec<Error>,
}

impl Deployments {
    async fn reconcile(&self, deployment: &MachineDeployment) -> Result<Action, Error> {
        let capi = &*self.capi;
        let key = ObjectKey::of(&deployment.metadata);
        if !self.pending.settled(&key, &capi.sets).await {
            return Ok(Action::RequeueAfter(LAGGING));
        }
        let (before, cluster) = match capi.begin(deployment, &capi.deployments).await? {
            Begun::Go(deployment, cluster) => (deployment, cluster),
            Begun::Stop => return Ok(Action::AwaitChange),
        };
        let mut pass = Pass {
            all: self,
            capi,
            now: capi.ctx.clock.now(),
            deployment: before.clone(),
            templates: Templates::default(),
            sets: None,
            errors: Vec::new(),
            key,
            cluster,
        };
        let done = match pass.run().await {
            Ok(done) => done,
            Err(error) => {
                pass.errors.push(error);
                false
            }
        };
        pass.write(&before, done).await
    }
}

impl Pass<'_> {
    fn namespace(&self) -> &str {
        self.key.namespace.as_deref().unwrap_or_default()
    }

    fn interest(&self) -> Interest<'_, MachineDeployment> {
        Interest { enqueuer: &self.all.enqueuer, root: &self.capi.deployments, key: &self.key }
    }

    fn is_deleting(&self) -> bool {
        self.deployment.metadata.deletion_timestamp.is_some()
    }

    fn uid(&self) -> &str {
        self.deployment.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Machines of all sets. Those that are kept to look at were replaced, and say nothing about the deployment.
    fn machines(&self) -> Vec<Arc<Machine>> {
        let sets = self.sets.iter().flatten();
        let uids = sets.filter_map(|set| set.metadata.uid.as_deref());
        let machines = uids.flat_map(|uid| self.capi.machines.by_index(BY_CONTROLLER, uid));
        machines.filter(|machine| self.is_deleting() || !is_kept(machine)).collect()
    }

    /// Tells whether a deployment in deletion may go.
    async fn run(&mut self) -> Result<bool, Error> {
        if self.is_deleting() {
            return self.delete().await;
        }
        self.deployment.labels_mut().insert(label::CLUSTER_NAME.to_owned(), self.cluster.name_any());
        ensure_owner(self.deployment.owner_references_mut(), plain_owner(&*self.cluster));
        let spec = self.deployment.spec.template.spec.clone();
        let (templates, errors) =
            Templates::find(self.capi, &self.interest(), self.namespace(), &self.cluster, &spec).await;
        self.templates = templates;
        self.errors.extend(errors);
        self.claim().await?;
        // Nothing is made below a Cluster that goes: it would only be one more to delete.
        if self.cluster.metadata.deletion_timestamp.is_none() {
            self.roll_out().await?;
        }
        Ok(false)
    }

    async fn roll_out(&mut self) -> Result<(), Error> {
        let Some(asked) = self.asked()? else {
            return Ok(());
        };
        let sets: Vec<Set> = self.sets.iter().flatten().map(|set| desired::view(set)).collect();
        let plan = plan(&asked, &sets, self.now);
        self.apply(&asked, &plan).await?;
        if let Some(revision) = plan.revision {
            self.deployment.annotations_mut().insert(annotation::REVISION.to_owned(), revision);
        }
        Ok(())
    }

    /// The deployment as decisions see it; `None` while nobody has said how many Machines there should be.
    fn asked(&self) -> Result<Option<Deployment>, Error> {
        let spec = &self.deployment.spec;
        let Some(replicas) = spec.replicas else {
            return Ok(None);
        };
        let rolling = &spec.rollout.strategy.rolling_update;
        let limit = |text: &Option<_>, field, default| match text {
            Some(text) => amount(text, field),
            None => Ok(remuda_rollout::amount::Amount::Count(default)),
        };
        let strategy = match spec.rollout.strategy.kind.as_str() {
            // What admission fills in.
            "" | "RollingUpdate" => Strategy::Rolling {
                max_surge: limit(&rolling.max_surge, "spec.rollout.strategy.rollingUpdate.maxSurge", 1)?,
                max_unavailable: limit(
                    &rolling.max_unavailable,
                    "spec.rollout.strategy.rollingUpdate.maxUnavailable",
                    0,
                )?,
            },
            "OnDelete" => Strategy::OnDelete,
            other => return Err(Error::Invalid(format!("unexpected deployment strategy type: {other}"))),
        };
        Ok(Some(Deployment {
            replicas,
            strategy,
            paused: spec.paused == Some(true),
            rollout_after: spec.rollout.after.as_ref().map(|after| after.0),
            template: view::template(&spec.template),
            templates_exist: self.templates.exist(),
        }))
    }

    /// Writes what has changed, cleans up after a complete rollout, and lets go of a deployment that is done.
    async fn write(mut self, before: &MachineDeployment, done: bool) -> Result<Action, Error> {
        self.all.pending.settled(&self.key, &self.capi.sets).await;
        if self.sets.is_some() {
            self.sets = Some(self.members());
        }
        let asked = self.asked().unwrap_or_default();
        let mut next = self.report(asked.as_ref());
        if self.errors.is_empty() {
            let generation = self.deployment.metadata.generation.unwrap_or(0);
            self.deployment.status.get_or_insert_default().observed_generation = generation;
        }
        let api = self.capi.api::<MachineDeployment>(self.namespace());
        let written = save(&self.capi.ctx, &api, &self.capi.deployments, before, &self.deployment).await;
        match written {
            Ok(written) if done => {
                let deployment = written.as_ref().unwrap_or(before);
                if let Err(error) =
                    remove_finalizer(&api, deployment, &(), finalizer::MACHINE_DEPLOYMENT).await
                {
                    self.errors.push(error.into());
                }
            }
            Ok(_) if self.is_deleting() => {}
            Ok(written) => {
                if let (Some(asked), true) = (&asked, self.errors.is_empty()) {
                    let observed = written.as_ref().unwrap_or(before);
                    if let Err(error) = self.clean_up(asked, observed).await {
                        self.errors.push(error);
                    }
                    // Machines are replaced from a moment on that nothing else tells of.
                    let after = asked.rollout_after.map(|after| after.duration_since(self.now));
                    let after = after.and_then(|after| Duration::try_from(after).ok());
                    let after = after.filter(|after| !after.is_zero());
                    next = next.into_iter().chain(after).min();
                }
            }
            Err(error) => self.errors.push(error),
        }
        match Error::join(self.errors) {
            Some(error) => Err(error),
            None => Ok(next.map_or(Action::AwaitChange, Action::RequeueAfter)),
        }
    }

    /// Once every Machine is as asked for, old sets are of no use.
    async fn clean_up(&self, asked: &Deployment, observed: &MachineDeployment) -> Result<(), Error> {
        let status = observed.status.clone().unwrap_or_default();
        let counts = Counts {
            replicas: status.replicas,
            ready: status.ready_replicas,
            available: status.available_replicas,
            up_to_date: status.up_to_date_replicas,
        };
        let seen = status.observed_generation >= observed.metadata.generation.unwrap_or(0);
        if !is_complete(asked.replicas, counts, seen) {
            return Ok(());
        }
        let sets: Vec<Set> = self.sets.iter().flatten().map(|set| desired::view(set)).collect();
        let found = find(asked, &sets, self.now);
        if found.current.is_err() {
            return Ok(());
        }
        for (name, leftover) in clean_up(found.old) {
            if leftover == Leftover::Delete {
                self.delete_set(name).await?;
            }
        }
        Ok(())
    }

    /// Deletes all sets, unless they are to stay. Tells whether none is left.
    async fn delete(&mut self) -> Result<bool, Error> {
        self.sets = Some(self.members());
        if self.deployment.finalizers().iter().any(|finalizer| finalizer == ORPHAN_FINALIZER) {
            return Ok(false);
        }
        let names: Vec<String> = self.sets.iter().flatten().map(|set| set.name_any()).collect();
        for name in &names {
            self.delete_set(name).await?;
        }
        let unreadable = self.capi.sets.unreadable();
        let hidden = unreadable.iter().any(|key| key.namespace == self.key.namespace);
        Ok(names.is_empty() && !hidden)
    }
}
