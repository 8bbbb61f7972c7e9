//! `RKEControlPlane`: plans of all machines of a cluster.
//!
//! Reads   the control plane, its Cluster, Machines and plan Secrets, objects it refers to, settings, and whether
//!         the agent in the cluster is connected.
//! Writes  plan Secrets, the Secret with the tokens of the cluster, conditions of Machines and its own status.
//! Never   decides anything about nodes: that is [`remuda_planner::plan`].
//!
//! A pass first looks at caches, which costs nothing when there is nothing to do. Before anything is written
//! the plan Secrets are read from the API and everything is decided anew, alone among those who change the nodes
//! of this cluster. A cluster is looked at again when something it depends on changes.

mod act;
mod observe;
mod remove;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, ResourceExt, core::PartialObjectMeta};
use parking_lot::Mutex;
use remuda_api::{
    core::{Cluster, Machine},
    management,
    rke::{EtcdSnapshot, RkeControlPlane, RkeControlPlaneStatus},
};
use remuda_control::{
    Action, Chain, Controller, ObjectKey, drive_keys,
    write::{Finalizer, conditions, ensure_finalizer, write_status},
};
use remuda_names::{
    capi::condition as capi_condition,
    rancher::{annotation, condition, finalizer, label},
};
use remuda_planner::{
    input::Input,
    output::{Outcome, Output},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::observe::Observed;
use crate::{
    Error,
    conditions::{ConditionUpdate, is_true, set},
    machines::{Reading, same_machine, same_plan},
    objects,
    shared::{BY_MANAGED, BY_STATE, RESYNC, Rke, filed},
};

/// How soon a pass is repeated whose writes change what it saw; their events mostly come first.
const SOON: Duration = Duration::from_secs(5);
/// How long a cluster is left alone after a pass, for each of its machines. A pass looks at all of them, and each of
/// them causes several when it comes up; so large clusters are looked at no more often than small ones, all in all.
const DEBOUNCE_PER_MACHINE: Duration = Duration::from_millis(1);

/// What a reconcile of a control plane needs.
struct ControlPlanes {
    rke: Arc<Rke>,
    wanted: Arc<Wanted>,
    /// When clusters may be looked at again.
    debounced_until: Mutex<HashMap<ObjectKey, Instant>>,
}

/// Which control planes look at which objects.
#[derive(Default)]
struct Wanted {
    secrets: Mutex<HashMap<ObjectKey, BTreeSet<ObjectKey>>>,
    config_maps: Mutex<HashMap<ObjectKey, BTreeSet<ObjectKey>>>,
}

impl Wanted {
    /// From now on `who` looks at these and no others.
    fn note(&self, who: &ObjectKey, secrets: &BTreeSet<ObjectKey>, config_maps: &BTreeSet<ObjectKey>) {
        for (wanted, now) in [(&self.secrets, secrets), (&self.config_maps, config_maps)] {
            let mut wanted = wanted.lock();
            wanted.retain(|key, whose| {
                if !now.contains(key) {
                    whose.remove(who);
                }
                !whose.is_empty()
            });
            for key in now {
                wanted.entry(key.clone()).or_default().insert(who.clone());
            }
        }
    }
}

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    let controller = Controller::on("rke-control-plane", &rke.ctx, rke.control_planes.clone())
        .workers(rke.options.workers);
    let wanted = Arc::new(Wanted::default());
    let controller = watches(controller, &rke, &wanted);
    if stop.run_until_cancelled(rke.synced()).await.is_none() {
        return;
    }
    let control_planes = ControlPlanes { rke, wanted, debounced_until: Mutex::default() };
    drive_keys(controller, reconcile, Arc::new(control_planes), stop).await;
}

/// All that a plan depends on.
fn watches(
    controller: Controller<RkeControlPlane>,
    rke: &Rke,
    wanted: &Arc<Wanted>,
) -> Controller<RkeControlPlane> {
    let controller = controller.watches_unless(&rke.plans, same_plan, |secret: &Secret| {
        let cluster = secret.labels().get(label::CLUSTER_NAME);
        cluster.map(|cluster| ObjectKey::of(&secret.metadata).sibling(cluster)).into_iter().collect()
    });
    let controller = controller.watches_unless(&rke.machines, same_machine, |machine: &Machine| {
        vec![ObjectKey::of(&machine.metadata).sibling(&machine.spec.cluster_name)]
    });
    let controller = controller.watches_facts(
        &rke.clusters,
        |cluster: &Cluster| (observe::cluster(cluster), cluster.spec.control_plane_ref.clone()),
        |cluster| {
            let reference = &cluster.spec.control_plane_ref;
            let ours = objects::is_control_plane(reference);
            ours.then(|| ObjectKey::of(&cluster.metadata).sibling(&reference.name)).into_iter().collect()
        },
    );
    let control_planes = rke.control_planes.clone();
    let controller = controller.watches_facts(
        &rke.managed,
        |managed: &management::Cluster| {
            let spec = &managed.spec;
            let customization = spec.cluster_agent_deployment_customization.clone();
            (is_connected(managed), spec.internal, spec.agent_image_override.clone(), customization)
        },
        move |managed| control_planes.keys_by_index(BY_MANAGED, &managed.name_any()),
    );
    let control_planes = rke.control_planes.clone();
    let controller = controller.watches_facts(
        &rke.settings,
        |setting| setting.effective().to_owned(),
        move |setting| {
            if observe::concerns(&setting.name_any()) { control_planes.keys() } else { Vec::new() }
        },
    );
    let machines_by_state = rke.machines.clone();
    let controller = controller.watches_facts(
        &rke.states,
        |secret: &Secret| secret.data.clone(),
        move |secret| {
            let key = ObjectKey::of(&secret.metadata);
            let namespace = key.namespace.as_deref().unwrap_or_default();
            let machines = machines_by_state.by_index(BY_STATE, &filed(namespace, &key.name));
            machines.iter().map(|machine| key.sibling(&machine.spec.cluster_name)).collect()
        },
    );
    let looked_at = wanted.clone();
    let controller = controller.watches_facts(
        &rke.secrets.metadata,
        |secret: &PartialObjectMeta<Secret>| secret.metadata.resource_version.clone(),
        move |secret| {
            // Plan Secrets are heard of elsewhere, together with what is in them.
            if secret.labels().contains_key(label::MACHINE_NAME) {
                return Vec::new();
            }
            let key = ObjectKey::of(&secret.metadata);
            let mut woken = authorized(&key, secret.annotations().get(annotation::AUTHORIZED_FOR_CLUSTERS));
            woken.extend(secret.labels().get(label::CLUSTER_NAME).map(|cluster| key.sibling(cluster)));
            woken.extend(looked_at.secrets.lock().get(&key).into_iter().flatten().cloned());
            woken
        },
    );
    let looked_at = wanted.clone();
    let controller = controller.watches_facts(
        &rke.config_maps.metadata,
        |map: &PartialObjectMeta<ConfigMap>| map.metadata.resource_version.clone(),
        move |map| {
            let key = ObjectKey::of(&map.metadata);
            let mut woken = authorized(&key, map.annotations().get(annotation::AUTHORIZED_FOR_CLUSTERS));
            woken.extend(looked_at.config_maps.lock().get(&key).into_iter().flatten().cloned());
            woken
        },
    );

    controller.watches_facts(
        &rke.snapshots,
        |snapshot: &EtcdSnapshot| {
            (objects::is_deleting(&snapshot.metadata), snapshot.metadata.owner_references.clone())
        },
        |snapshot| vec![ObjectKey::of(&snapshot.metadata).sibling(&snapshot.spec.cluster_name)],
    )
}

/// Clusters that may use an object as files, as its annotation lists them.
fn authorized(key: &ObjectKey, clusters: Option<&String>) -> Vec<ObjectKey> {
    let names = clusters.into_iter().flat_map(|clusters| clusters.split(','));
    names.map(str::trim).filter(|name| !name.is_empty()).map(|name| key.sibling(name)).collect()
}

/// The agent in the cluster is connected.
fn is_connected(managed: &management::Cluster) -> bool {
    let status = managed.status.as_ref();
    status.is_some_and(|status| is_true(&status.conditions, condition::CONNECTED))
}

async fn reconcile(key: ObjectKey, ctx: Arc<ControlPlanes>) -> Result<Action, Error> {
    let Some(object) = ctx.rke.control_planes.get(&key) else {
        ctx.wanted.note(&key, &BTreeSet::new(), &BTreeSet::new());
        ctx.rke.locks.forget(&key);
        ctx.debounced_until.lock().remove(&key);
        return Ok(Action::AwaitChange);
    };
    let api: Api<RkeControlPlane> = ctx.rke.api(key.namespace.as_deref().unwrap_or_default());
    match ensure_finalizer(&api, (*object).clone(), &(), finalizer::CONTROL_PLANE).await? {
        Finalizer::Gone => Ok(Action::AwaitChange),
        Finalizer::Deleting(object) => ctx.remove(&key, &api, &object).await,
        Finalizer::Active(object) => ctx.plan(&key, &api, &object).await,
    }
}

/// What a pass over a control plane decides about, as the API has it now.
pub(crate) async fn input(rke: Arc<Rke>, key: &ObjectKey) -> Result<Option<Input>, Error> {
    let Some(object) = rke.control_planes.get(key) else { return Ok(None) };
    let control_planes = ControlPlanes { rke, wanted: Arc::default(), debounced_until: Mutex::default() };
    let Observed { mut input, cluster } = control_planes.observe(key, &object).await?;
    input.machines = control_planes.rke.see_machines(&cluster, Reading::Fresh).await?.machines;
    Ok(Some(input))
}

impl ControlPlanes {
    async fn plan(
        &self,
        key: &ObjectKey,
        api: &Api<RkeControlPlane>,
        object: &RkeControlPlane,
    ) -> Result<Action, Error> {
        let debounced_until = self.debounced_until.lock().get(key).copied();
        if let Some(debounced_until) =
            debounced_until.filter(|debounced_until| *debounced_until > Instant::now())
        {
            return Ok(Action::RequeueAfter(debounced_until.duration_since(Instant::now())));
        }
        let observed = match self.observe(key, object).await {
            Ok(observed) => observed,
            Err(error @ Error::Decode { .. }) => {
                self.say_unreadable(api, object, &error).await?;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        let mut input = observed.input;
        input.machines = self.rke.see_machines(&observed.cluster, Reading::Cached).await?.machines;
        let machines = u32::try_from(input.machines.len()).unwrap_or(u32::MAX);
        self.debounced_until
            .lock()
            .insert(key.clone(), Instant::now() + DEBOUNCE_PER_MACHINE.saturating_mul(machines));
        let mut output = remuda_planner::plan(&input);
        if !output.writes.is_empty() {
            let _alone = self.rke.locks.of(&observed.cluster).await;
            let seen = self.rke.see_machines(&observed.cluster, Reading::Fresh).await?;
            input.machines = seen.machines;
            output = remuda_planner::plan(&input);
            self.carry_out(key, object, &input, seen.versions, &output.writes).await?;
        }
        self.tell(key, &output);
        self.save(api, object, &output).await?;
        let wait = output.look_again.map(|at| at.duration_since(input.now));
        let wait = wait.and_then(|wait| Duration::try_from(wait).ok()).unwrap_or(RESYNC).min(RESYNC);
        match output.outcome {
            Outcome::Settled | Outcome::Stopped | Outcome::Waiting(_) => Ok(Action::RequeueAfter(wait)),
            Outcome::Again(_) => Ok(Action::RequeueAfter(SOON)),
            Outcome::Failed(failure) => Err(Error::Plan(failure)),
        }
    }

    fn tell(&self, key: &ObjectKey, output: &Output) {
        for (machine, report) in &output.machines {
            tracing::debug!(control_plane = %key, machine, verdict = %report.verdict, "machine judged");
        }
        tracing::debug!(control_plane = %key, outcome = %output.outcome, "cluster planned");
    }

    /// Writes the status if it differs, and waits until the cache has it: the next pass builds on it.
    async fn save(
        &self,
        api: &Api<RkeControlPlane>,
        object: &RkeControlPlane,
        output: &Output,
    ) -> Result<(), Error> {
        let what = || format!("status of RKEControlPlane {}", object.name_any());
        let status = serde_json::to_value(&output.status).and_then(serde_json::from_value);
        let status: RkeControlPlaneStatus =
            status.map_err(|source| Error::Decode { what: what(), source })?;
        self.write(api, object, &status).await
    }

    async fn write(
        &self,
        api: &Api<RkeControlPlane>,
        object: &RkeControlPlane,
        status: &RkeControlPlaneStatus,
    ) -> Result<(), Error> {
        let written = write_status(&self.rke.ctx, api, object, status).await?;
        self.rke.seen(&self.rke.control_planes, written.as_ref()).await;
        Ok(())
    }

    /// A spec nobody can read is told where people look.
    async fn say_unreadable(
        &self,
        api: &Api<RkeControlPlane>,
        object: &RkeControlPlane,
        error: &Error,
    ) -> Result<(), Error> {
        let mut status = object.status.clone().unwrap_or_default();
        let message = Chain(error).to_string();
        for kind in [condition::READY, condition::RECONCILED] {
            let says = ConditionUpdate { kind, status: Some(false), reason: "Error", message: &message };
            set(&mut status.conditions, says, self.rke.ctx.clock.now());
        }
        self.write(api, object, &status).await
    }
}

/// Whether the Cluster says that its control plane is not initialized.
fn not_initialized(cluster: &Cluster) -> bool {
    let known = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let known = conditions::get(known, capi_condition::CONTROL_PLANE_INITIALIZED);
    known.is_some_and(|known| known.status == "False")
}
