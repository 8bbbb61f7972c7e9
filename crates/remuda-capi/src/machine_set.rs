//! `MachineSet`: keeps a number of Machines.
//!
//! Reads   the MachineSet, its Cluster and MachineDeployment, its Machines, the templates it refers to, what was
//!         cloned from them, and the control plane before it makes Machines.
//! Writes  Machines and the objects behind them, OwnerRemediated of Machines, the owner of templates, itself.
//! Never   changes what would replace a Machine: that is a new MachineSet's job.

mod climb;
mod create;
mod members;
mod preserve;
mod propagate;
mod remediate;
pub(crate) mod status;
pub(crate) mod templates;

use std::{collections::HashSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::ResourceExt;
use parking_lot::Mutex;
use remuda_api::core::{Cluster, Machine, MachineDeployment, MachineSet};
use remuda_control::{
    Action, Controller, Enqueuer, Informer, Kind, ObjectKey, drive,
    write::{controller_of, remove_finalizer},
};
use remuda_names::{
    annotation::{PRESERVE_FAILED, REMEDIATION_STEPS},
    capi::{annotation, finalizer, group, label},
};
use remuda_rollout::{
    condition::old::OldCondition,
    handoff::{Ownership, cluster_owns_set},
    set::{self, CreationRequest, Creations, DeletionOrder, Failure, Permit, Scale},
};
use tokio_util::sync::CancellationToken;

use self::templates::Templates;
pub(crate) use self::{preserve::is_kept, remediate::amount};
use crate::{
    Capi, Error,
    enqueue::watches_cluster,
    managed::{BY_CLUSTER, Begun, cluster_value, ensure_owner, group_of, plain_owner},
    pending::Pending,
    providers::{Interest, REFERENCES, reference_keys},
    save::save,
    view,
};

/// Machines and MachineSets by the UID of whoever controls them.
pub(crate) const BY_CONTROLLER: &str = "controller";
/// Those that nobody controls, by namespace and Cluster.
pub(crate) const ORPHANS: &str = "orphans";
/// Set by whoever deletes a set without its machines, until the garbage collector has seen to it.
pub(crate) const ORPHAN_FINALIZER: &str = "orphan";
/// A cache that still lags behind our own writes is given this long.
const LAGGING: Duration = Duration::from_secs(1);

pub(crate) struct Sets {
    capi: Arc<Capi>,
    enqueuer: Enqueuer,
    /// Writes to Machines that the cache has not shown yet.
    pending: Pending,
    /// Kinds of clones whose caches have our index.
    indexed: Mutex<HashSet<Kind>>,
    /// What was made lately. A restart forgets it: servers do not restart by themselves.
    creations: Mutex<Creations>,
}

pub(crate) async fn run(capi: Arc<Capi>, stop: CancellationToken) {
    index(&capi);
    let controller = Controller::on("machineset", &capi.ctx, capi.sets.clone()).workers(capi.options.workers);
    let enqueuer = controller.enqueuer();
    let sets = capi.sets.clone();
    let by_deployment = capi.sets.clone();
    let controller = watches_cluster(controller, &capi.clusters)
        .watches_facts(&capi.deployments, deployment_facts, move |deployment| {
            by_deployment.keys_by_index(BY_CONTROLLER, deployment.metadata.uid.as_deref().unwrap_or_default())
        })
        .watches(&capi.machines, move |machine| sets_of(&sets, machine));
    let sets = Arc::new(Sets {
        capi,
        enqueuer,
        pending: Pending::default(),
        indexed: Mutex::default(),
        creations: Mutex::default(),
    });
    drive(controller, |set, sets: Arc<Sets>| async move { sets.reconcile(&set).await }, sets, stop).await;
}

/// What is looked up in a reconcile.
pub(crate) fn index(capi: &Capi) {
    capi.machines.add_index(BY_CONTROLLER, |machine| controller_uid(&machine.metadata));
    capi.machines.add_index(ORPHANS, orphan);
    capi.sets.add_index(BY_CONTROLLER, |set| controller_uid(&set.metadata));
    capi.sets.add_index(ORPHANS, orphan);
    capi.sets.add_index(REFERENCES, |set| {
        let spec = &set.spec.template.spec;
        let references = [&spec.bootstrap.config_ref, &spec.infrastructure_ref];
        reference_keys(set.metadata.namespace.as_deref().unwrap_or_default(), references)
    });
    capi.clusters.add_index(REFERENCES, |cluster| {
        let references = [&cluster.spec.infrastructure_ref, &cluster.spec.control_plane_ref];
        reference_keys(cluster.metadata.namespace.as_deref().unwrap_or_default(), references)
    });
}

fn controller_uid(meta: &kube::core::ObjectMeta) -> Vec<String> {
    controller_of(meta).map(|owner| owner.uid.clone()).into_iter().collect()
}

fn orphan<K: crate::managed::Managed>(object: &K) -> Vec<String> {
    match controller_of(object.meta()) {
        Some(_) => Vec::new(),
        None => vec![cluster_value(&object.namespace().unwrap_or_default(), object.cluster_name())],
    }
}

/// The set that controls a Machine, or those that would take it.
fn sets_of(sets: &Informer<MachineSet>, machine: &Machine) -> Vec<ObjectKey> {
    let key = ObjectKey::of(&machine.metadata);
    if let Some(owner) = controller_of(&machine.metadata) {
        let ours = owner.kind == "MachineSet" && group_of(&owner.api_version) == group::CORE;
        return ours.then(|| key.sibling(&owner.name)).into_iter().collect();
    }
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let siblings = sets.by_index(BY_CLUSTER, &cluster_value(namespace, &machine.spec.cluster_name));
    let fitting = siblings.iter().filter(|set| {
        let selector = view::selector(&set.spec.selector);
        !selector.is_empty() && selector.matches(machine.labels())
    });
    fitting.map(|set| ObjectKey::of(&set.metadata)).collect()
}

/// What a set looks at in its deployment.
fn deployment_facts(deployment: &MachineDeployment) -> impl PartialEq + use<> {
    (
        deployment.annotations().get(annotation::REVISION).cloned(),
        deployment.spec.remediation.clone(),
        deployment.spec.replicas,
        [PRESERVE_FAILED, REMEDIATION_STEPS].map(|key| deployment.annotations().get(key).cloned()),
    )
}

/// One reconcile: what was observed, and what has been decided so far.
struct Pass<'a> {
    sets: &'a Sets,
    capi: &'a Capi,
    key: ObjectKey,
    now: Timestamp,
    cluster: Arc<Cluster>,
    deployment: Option<Arc<MachineDeployment>>,
    /// The set as it will be written.
    set: MachineSet,
    templates: Templates,
    /// `None` if they could not be told.
    machines: Option<Vec<Arc<Machine>>>,
    /// Of the preflight checks, if they were made.
    failures: Option<Vec<Failure>>,
    /// Why Machines could not be made, in the words of v1beta1.
    uncreated: Option<OldCondition>,
    /// When Machines that were made too often may be made again.
    retry_after: Option<Duration>,
    /// When the time of a Machine that is kept to look at is over.
    expires_after: Option<Duration>,
    errors: Vec<Error>,
}

impl Sets {
    async fn reconcile(&self, set: &MachineSet) -> Result<Action, Error> {
        let capi = &*self.capi;
        let key = ObjectKey::of(&set.metadata);
        if !self.pending.settled(&key, &capi.machines).await {
            return Ok(Action::RequeueAfter(LAGGING));
        }
        let (before, cluster) = match capi.begin(set, &capi.sets).await? {
            Begun::Go(set, cluster) => (set, cluster),
            Begun::Stop => return Ok(Action::AwaitChange),
        };
        let mut pass = Pass {
            sets: self,
            capi,
            now: capi.ctx.clock.now(),
            deployment: deployment_of(capi, &before),
            set: before.clone(),
            templates: Templates::default(),
            machines: None,
            failures: None,
            uncreated: None,
            retry_after: None,
            expires_after: None,
            errors: Vec::new(),
            key,
            cluster,
        };
        let done = pass.run().await;
        pass.write(&before, done).await
    }
}

/// The deployment a set belongs to. One that is gone binds nobody.
fn deployment_of(capi: &Capi, set: &MachineSet) -> Option<Arc<MachineDeployment>> {
    let name = set.labels().get(label::DEPLOYMENT_NAME)?;
    capi.deployments.get(&ObjectKey::of(&set.metadata).sibling(name))
}

impl Pass<'_> {
    fn namespace(&self) -> &str {
        self.key.namespace.as_deref().unwrap_or_default()
    }

    fn interest(&self) -> Interest<'_, MachineSet> {
        Interest { enqueuer: &self.sets.enqueuer, root: &self.capi.sets, key: &self.key }
    }

    fn is_deleting(&self) -> bool {
        self.set.metadata.deletion_timestamp.is_some()
    }

    /// Machines as decisions see them.
    fn views(&self) -> Vec<remuda_rollout::view::Machine> {
        self.machines.iter().flatten().map(|machine| view::machine(machine)).collect()
    }

    /// Goes through all phases; an error in one does not keep later ones from their work unless they depend on
    /// it. Tells whether a set in deletion may go.
    async fn run(&mut self) -> bool {
        if self.is_deleting() {
            return match self.delete().await {
                Ok(done) => done,
                Err(error) => {
                    self.errors.push(error);
                    false
                }
            };
        }
        own(&mut self.set, &self.cluster);
        self.look_up_templates().await;
        if let Err(error) = self.claim().await {
            self.errors.push(error);
            return false;
        }
        if let Err(error) = self.expire().await {
            self.errors.push(error);
        }
        if let Err(error) = self.remediate().await {
            self.errors.push(error);
        }
        if let Err(error) = self.propagate().await {
            self.errors.push(error);
            return false;
        }
        if let Err(error) = self.scale().await {
            self.errors.push(error);
        }
        false
    }

    async fn look_up_templates(&mut self) {
        let spec = self.set.spec.template.spec.clone();
        let (found, errors) =
            Templates::find(self.capi, &self.interest(), self.namespace(), &self.cluster, &spec).await;
        self.templates = found;
        self.errors.extend(errors);
    }

    async fn scale(&mut self) -> Result<(), Error> {
        let Some(replicas) = self.set.spec.replicas else {
            return Ok(());
        };
        let views = self.views();
        let disabled = self.set.annotations().get(annotation::DISABLE_MACHINE_CREATE);
        let disabled = disabled.is_some_and(|value| value == "true");
        let missing = views.len() < usize::try_from(replicas).unwrap_or(0);
        let failures = if missing && !disabled { self.preflight().await? } else { Vec::new() };
        let order = match self.set.spec.deletion.order.as_str() {
            "Newest" => DeletionOrder::Newest,
            "Oldest" => DeletionOrder::Oldest,
            _ => DeletionOrder::Random,
        };
        match set::scale(&views, replicas, disabled, &failures, order, self.now) {
            Scale::Create { count } => {
                let permit = self.permit(count);
                if let Some(throttle) = permit.held {
                    self.retry_after = Some(throttle.after(self.now));
                    self.failures.get_or_insert_default().push(Failure::Throttled(throttle));
                }
                if permit.count > 0 {
                    self.create(permit.count).await?;
                }
            }
            Scale::Delete { names } => {
                self.tidy().await?;
                for name in names {
                    self.delete_machine(&name).await?;
                }
            }
            Scale::Hold { .. } | Scale::Settled | Scale::Leaving { .. } => self.tidy().await?,
        }
        Ok(())
    }

    /// The pool a set counts for: its deployment, if it has one.
    fn pool(&self) -> String {
        self.set.labels().get(label::DEPLOYMENT_NAME).cloned().unwrap_or_else(|| self.set.name_any())
    }

    fn cluster_key(&self) -> String {
        cluster_value(self.namespace(), &self.set.spec.cluster_name)
    }

    /// How many of the missing Machines may be made now.
    fn permit(&self, missing: usize) -> Permit {
        let count = |replicas: Option<i32>| usize::try_from(replicas.unwrap_or(0)).unwrap_or(0);
        let of_set = count(self.set.spec.replicas);
        let of_deployment = self.deployment.as_ref().map_or(0, |found| count(found.spec.replicas));
        let wanted_in_pool = of_set.max(of_deployment);
        let (cluster, pool) = (self.cluster_key(), self.pool());
        let deployments = self.capi.deployments.by_index(BY_CLUSTER, &cluster);
        let sets = self.capi.sets.by_index(BY_CLUSTER, &cluster);
        let alone = sets.iter().filter(|set| !set.labels().contains_key(label::DEPLOYMENT_NAME));
        let wanted_in_cluster: usize = deployments
            .iter()
            .map(|found| count(found.spec.replicas))
            .chain(alone.map(|set| count(set.spec.replicas)))
            .sum();
        let request = CreationRequest {
            cluster: &cluster,
            pool: &pool,
            wanted_in_pool,
            wanted_in_cluster: wanted_in_cluster.max(wanted_in_pool),
            missing,
        };
        self.sets.creations.lock().permit(&request, self.now)
    }

    /// Writes what has changed, and lets go of a set that is done.
    async fn write(mut self, before: &MachineSet, done: bool) -> Result<Action, Error> {
        // What was just made and deleted counts.
        self.sets.pending.settled(&self.key, &self.capi.machines).await;
        if self.machines.is_some() {
            self.machines = Some(self.members()?);
        }
        let next = self.report().into_iter().chain(self.retry_after).chain(self.expires_after).min();
        if self.errors.is_empty() {
            let generation = self.set.metadata.generation.unwrap_or(0);
            self.set.status.get_or_insert_default().observed_generation = generation;
        }
        let api = self.capi.api::<MachineSet>(self.namespace());
        let written = save(&self.capi.ctx, &api, &self.capi.sets, before, &self.set).await;
        let mut errors = self.errors;
        match written {
            Ok(written) if done => {
                let set = written.as_ref().unwrap_or(before);
                if let Err(error) = remove_finalizer(&api, set, &(), finalizer::MACHINE_SET).await {
                    errors.push(error.into());
                }
            }
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
        match Error::join(errors) {
            Some(error) => Err(error),
            None => Ok(next.map_or(Action::AwaitChange, Action::RequeueAfter)),
        }
    }
}

/// Says whose set it is: its deployment's if it has one, otherwise its Cluster's.
fn own(set: &mut MachineSet, cluster: &Cluster) {
    let name = set.spec.cluster_name.clone();
    let owned_by = |kind: &str| {
        let owners = set.owner_references().iter();
        owners.clone().any(|owner| owner.kind == kind && group_of(&owner.api_version) == group::CORE)
    };
    let ownership = Ownership {
        has_controller: controller_of(&set.metadata).is_some(),
        owned_by_cluster: false,
        owned_by_deployment: owned_by("MachineDeployment"),
        made_by_somebody: set.labels().contains_key(label::DEPLOYMENT_NAME),
    };
    // Being owned by the Cluster already is no reason to stop: the reference may be of an older one.
    if cluster_owns_set(ownership) {
        ensure_owner(set.owner_references_mut(), plain_owner(cluster));
    }
    let labels = [
        set.metadata.labels.get_or_insert_default(),
        set.spec.selector.match_labels.get_or_insert_default(),
        &mut set.spec.template.metadata.labels,
    ];
    for labels in labels {
        labels.insert(label::CLUSTER_NAME.to_owned(), name.clone());
    }
}
