//! Cluster as people write it: makes the objects it consists of, and tells how they are.
//!
//! Reads   the Cluster; its management Cluster and control plane; configurations, schemas and credentials of its
//!         pools; settings.
//! Writes  the management Cluster (metadata and spec), all objects of Cluster API and of our providers that a
//!         cluster is made of, the kubeconfig Secret, owners of configurations, and the Cluster itself.
//! Never   makes or deletes a machine: MachineDeployments do. Never says whether a cluster is connected.

mod enqueue;
mod expiry;
mod graph;
mod happening;
mod identity;
mod ignored;
mod kubeconfig;
mod make;
mod observe;
pub(crate) mod pool;
mod power;
mod problem;
mod remove;
mod rollback;
mod status;
mod template;
pub(crate) mod update;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::{DynamicObject, PartialObjectMeta},
};
use remuda_api::{
    core::{self, Machine, MachineDeployment, MachineHealthCheck},
    management::{self, DynamicSchema, Token},
    provisioning::Cluster,
    rke::{Condition, RkeBootstrapTemplate, RkeCluster, RkeControlPlane},
};
use remuda_control::{
    Action, Chain, Controller, Ctx, Enqueuer, Informer, ObjectKey, Retry, Retryable, Scope, drive,
    write::{Finalizer, ensure_finalizer, write_status},
};
use remuda_names::{
    capi,
    identity::token_kind,
    provisioning::{annotation::EXPIRES, condition::HIBERNATED},
    rancher::{annotation, condition::RKE_CLUSTER, finalizer, label, setting},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::identity::Images;
pub use self::problem::Problem;
use crate::{
    admission::protection::refuse_deletion,
    condition::{self, ConditionUpdate},
    error::{Error, is_code},
    naming,
    object_set::{self, Child, Foreign, Need, ObjectSet},
    settings::Settings,
};

/// Clusters by the name of their management Cluster.
pub(crate) const BY_MANAGEMENT: &str = "provisioning/management";
/// Clusters by the configurations of their pools, as `kind/namespace/name`.
const BY_CONFIG: &str = "provisioning/config";
/// Clusters by the credentials of theirs, as `namespace/name`.
const BY_CREDENTIAL: &str = "provisioning/credential";
/// Clusters by the kinds of the configurations of their pools, in small letters.
const BY_CONFIG_KIND: &str = "provisioning/config-kind";
/// Clusters by the User that stands for them.
const BY_USER: &str = "provisioning/user";

/// A safety net for what is read without being watched.
const RESYNC: Duration = Duration::from_secs(30);

/// Clocks are set, and timers of months are not.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

type Definitions = Informer<PartialObjectMeta<CustomResourceDefinition>>;

pub(crate) struct Clusters {
    ctx: Arc<Ctx>,
    settings: Settings,
    enqueuer: Enqueuer,
    clusters: Informer<Cluster>,
    managements: Informer<management::Cluster>,
    control_planes: Informer<RkeControlPlane>,
    capi_clusters: Informer<core::Cluster>,
    infrastructures: Informer<RkeCluster>,
    bootstrap_templates: Informer<RkeBootstrapTemplate>,
    deployments: Informer<MachineDeployment>,
    health_checks: Informer<MachineHealthCheck>,
    machines: Informer<Machine>,
    schemas: Informer<DynamicSchema>,
    definitions: Definitions,
    /// All of them, by name only.
    secrets: Informer<PartialObjectMeta<Secret>>,
    /// Of the Users that stand for clusters.
    tokens: Informer<Token>,
    kubeconfigs: Informer<Secret>,
}

/// Machines by `namespace/name` of their cluster.
pub(crate) const BY_CLUSTER: &str = "provisioning/cluster";

pub(crate) fn index_machines(machines: &Informer<Machine>) {
    machines.add_index(BY_CLUSTER, |machine: &Machine| {
        vec![ObjectKey::of(&machine.metadata).sibling(&machine.spec.cluster_name).to_string()]
    });
}

/// Files Clusters under their management Cluster, for all who look for them that way.
pub(crate) fn index(clusters: &Informer<Cluster>) {
    clusters.add_index(BY_MANAGEMENT, |cluster: &Cluster| {
        let name = cluster.status.as_ref().map(|status| status.cluster_name.clone());
        name.filter(|name| !name.is_empty()).into_iter().collect()
    });
}

pub(crate) async fn run(ctx: Arc<Ctx>, workers: usize, stop: CancellationToken) {
    let informers = &ctx.informers;
    let clusters: Informer<Cluster> = informers.of(Scope::all());
    index(&clusters);
    clusters.add_index(BY_CONFIG, |cluster: &Cluster| {
        let namespace = cluster.namespace().unwrap_or_default();
        let configs = configs(cluster);
        configs.into_iter().map(|(kind, name)| format!("{kind}/{namespace}/{name}")).collect()
    });
    clusters.add_index(BY_CONFIG_KIND, |cluster: &Cluster| {
        let kinds: BTreeSet<String> =
            configs(cluster).iter().map(|(kind, _)| template::schema_name(kind)).collect();
        kinds.into_iter().collect()
    });
    clusters.add_index(BY_CREDENTIAL, credentials);
    clusters.add_index(BY_USER, |cluster: &Cluster| {
        vec![naming::cluster_user(&cluster.namespace().unwrap_or_default(), &cluster.name_any())]
    });
    let controller = Controller::<Cluster>::new("provisioning-cluster", &ctx).workers(workers);
    let this = Arc::new(Clusters {
        settings: Settings::new(&ctx),
        enqueuer: controller.enqueuer(),
        managements: informers.of(Scope::all()),
        control_planes: informers.of(Scope::all()),
        capi_clusters: informers.of(Scope::all()),
        infrastructures: informers.of(Scope::all()),
        bootstrap_templates: informers.of(Scope::all()),
        deployments: informers.of(Scope::all()),
        health_checks: informers.of(Scope::all()),
        machines: informers.of(Scope::all()),
        schemas: informers.of(Scope::all()),
        definitions: informers.metadata(Scope::all()),
        secrets: informers.metadata(Scope::all()),
        tokens: informers.of(Scope::labels(format!("{}={}", label::TOKEN_KIND, token_kind::PROVISIONING))),
        kubeconfigs: informers.of(Scope::labels(capi::label::CLUSTER_NAME)),
        clusters,
        ctx,
    });
    index_machines(&this.machines);
    object_set::index(&this.infrastructures);
    object_set::index(&this.bootstrap_templates);
    object_set::index(&this.deployments);
    object_set::index(&this.health_checks);
    let controller = this.watches(controller);
    drive(controller, reconcile, this, stop).await;
}

/// Credentials of a cluster and its pools.
fn credentials(cluster: &Cluster) -> Vec<String> {
    let here = cluster.namespace().unwrap_or_default();
    let pools = cluster.spec.rke_config.iter().flat_map(|config| &config.machine_pools);
    let references = pools.map(|pool| &pool.cloud_credential_secret_name);
    let references = references.chain([&cluster.spec.cloud_credential_secret_name]);
    let references: BTreeSet<&String> = references.filter(|reference| !reference.is_empty()).collect();
    let key = |reference: &&String| {
        let (namespace, name) = naming::credential(&here, reference);
        format!("{namespace}/{name}")
    };
    references.iter().map(key).collect()
}

/// Kinds and names of the configurations of a cluster's pools.
fn configs(cluster: &Cluster) -> Vec<(String, String)> {
    let pools = cluster.spec.rke_config.iter().flat_map(graph::driver_pools);
    let reference = |pool: &remuda_api::provisioning::MachinePool| {
        pool.machine_config_ref.as_ref().and_then(|reference| reference.name.clone())
    };
    pools.filter_map(|(pool, kind)| Some((kind.to_owned(), reference(pool)?))).collect()
}
async fn reconcile(cluster: Arc<Cluster>, this: Arc<Clusters>) -> Result<Action, Error> {
    let api: Api<Cluster> =
        Api::namespaced(this.ctx.client.clone(), &cluster.namespace().unwrap_or_default());
    if cluster.metadata.deletion_timestamp.is_some() {
        return remove::reconcile(&this, &api, &cluster).await;
    }
    // Nothing is made before it is sure to be taken down again.
    let mut cluster = Cluster::clone(&cluster);
    for finalizer in [finalizer::PROVISIONING_CLUSTER, finalizer::RKE_CLUSTER] {
        cluster = match ensure_finalizer(&api, cluster, &(), finalizer).await? {
            Finalizer::Active(cluster) => cluster,
            Finalizer::Deleting(cluster) => return remove::reconcile(&this, &api, &cluster).await,
            Finalizer::Gone => return Ok(Action::AwaitChange),
        };
    }
    Box::pin(live(&this, &api, cluster)).await
}

/// How far a pass came.
struct Progress {
    management: Option<management::Cluster>,
    control_plane: Option<RkeControlPlane>,
    created: ConditionUpdate,
    objects: Option<ConditionUpdate>,
    /// Edits of configurations that do not reach machines, once that is known.
    pending: Option<Vec<update::Pending>>,
    kubeconfig: Option<String>,
}

async fn live(this: &Clusters, api: &Api<Cluster>, cluster: Cluster) -> Result<Action, Error> {
    let cluster = announce(this, api, cluster).await?;
    let key = ObjectKey::of(&cluster.metadata);
    let mut progress = Progress {
        management: this
            .managements
            .get(&ObjectKey::cluster_wide(identity::name(&cluster)))
            .map(|known| (*known).clone()),
        control_plane: this.control_planes.get(&key).map(|known| (*known).clone()),
        created: ConditionUpdate::yes(),
        objects: cluster.spec.rke_config.as_ref().map(|_| objects_so_far(&cluster)),
        pending: None,
        kubeconfig: None,
    };
    let result = steps(this, api, &cluster, &mut progress).await;
    if let Err(error) = &result
        && error.retry() == Retry::Conflict
    {
        return result;
    }
    let management_name = identity::name(&cluster);
    let workspace = identity::workspace(&cluster, progress.management.as_ref());
    let now = this.ctx.clock.now();
    let power = power::wanted(&cluster, now);
    let known = conditions_of(&cluster);
    let hibernated =
        power::says(&power, progress.control_plane.as_ref(), condition::get(known, HIBERNATED).is_some());
    let expiry = expiry::decide(&cluster, refusal(&cluster)?.as_deref(), now);
    let view = status::View {
        cluster: &cluster,
        management: progress.management.as_ref(),
        management_name: &management_name,
        workspace: &workspace,
        control_plane: progress.control_plane.as_ref(),
        paused: this.capi_clusters.get(&key).is_some_and(|cluster| cluster.spec.paused == Some(true)),
        created: progress.created,
        objects: progress.objects,
        configuration: progress.pending.as_deref().map(update::says),
        hibernated,
        expiring: expiry.says,
        kubeconfig: progress.kubeconfig,
    };
    let status = status::status(&view, now);
    ignored::tell(&this.ctx.recorder, &cluster);
    let written = write_status(&this.ctx, api, &cluster, &status).await?;
    this.clusters.wait_seen(written.as_ref()).await;
    // Once it is stored, so that it is told once.
    happening::tell(&this.ctx, &cluster, &status);
    if expiry.delete {
        tracing::info!(cluster = %key, "cluster has expired and is deleted");
        expire(api, &cluster).await?;
    }
    let next = [power.next, expiry.next].into_iter().flatten().min();
    match result.map(|action| sooner(action, next, now)) {
        // The condition tells it, and whoever puts it right wakes us.
        Err(Error::Problem(problem)) => {
            tracing::info!(cluster = %key, %problem, "cluster cannot be made as its spec says");
            Ok(Action::RequeueAfter(RESYNC))
        }
        result => result,
    }
}

fn conditions_of(cluster: &Cluster) -> &[Condition] {
    cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
}

/// Why the cluster cannot be deleted, if it is protected.
fn refusal(cluster: &Cluster) -> Result<Option<String>, Error> {
    if !cluster.annotations().contains_key(EXPIRES) {
        return Ok(None);
    }
    let encode = |source| Error::Encode { what: "a cluster", source };
    let object = serde_json::to_value(cluster).map_err(encode)?;
    Ok(refuse_deletion(&object).map(|refused| refused.why))
}

/// Deletes a cluster whose end has come, unless it was given another meanwhile, or is protected by now.
async fn expire(api: &Api<Cluster>, cluster: &Cluster) -> Result<(), Error> {
    let name = cluster.name_any();
    let found = api.get_opt(&name).await.map_err(Error::api("read", cluster_text(cluster)))?;
    let same = |found: &Cluster| {
        found.metadata.uid == cluster.metadata.uid
            && found.annotations().get(EXPIRES) == cluster.annotations().get(EXPIRES)
    };
    let Some(found) = found.filter(same) else { return Ok(()) };
    if refusal(&found)?.is_some() {
        return Ok(());
    }
    let preconditions = Preconditions {
        uid: found.metadata.uid.clone(),
        resource_version: found.metadata.resource_version.clone(),
    };
    match api.delete(&name, &DeleteParams::background().preconditions(preconditions)).await {
        Ok(_) => Ok(()),
        Err(error) if is_code(&error, 404) => Ok(()),
        Err(error) => Err(Error::api("delete", cluster_text(cluster))(error)),
    }
}

/// Not later than at this time.
fn sooner(action: Action, next: Option<Timestamp>, now: Timestamp) -> Action {
    let Some(next) = next else { return action };
    // A moment after it, for clocks that are not read at once.
    let wait = Duration::try_from(next.duration_since(now)).unwrap_or_default() + Duration::from_millis(100);
    let wait = wait.min(LONGEST_WAIT);
    match action {
        Action::RequeueAfter(known) => Action::RequeueAfter(known.min(wait)),
        Action::AwaitChange => Action::RequeueAfter(wait),
    }
}

/// What was told of the objects of a cluster last: a pass that does not come to them has nothing new to say.
fn objects_so_far(cluster: &Cluster) -> ConditionUpdate {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let told = condition::get(conditions, RKE_CLUSTER).map(ConditionUpdate::as_in);
    told.unwrap_or_else(|| ConditionUpdate::waiting("waiting for management cluster"))
}

/// The name under which people find a cluster elsewhere.
async fn announce(this: &Clusters, api: &Api<Cluster>, cluster: Cluster) -> Result<Cluster, Error> {
    let name = cluster.name_any();
    let known = cluster.annotations().get(annotation::MANAGEMENT_CLUSTER_DISPLAY_NAME);
    if naming::is_legacy(&name) || known == Some(&name) {
        return Ok(cluster);
    }
    let patch = json!({"metadata": {
        "uid": cluster.metadata.uid,
        "annotations": {annotation::MANAGEMENT_CLUSTER_DISPLAY_NAME: name},
    }});
    let written = api.patch(&name, &this.params(), &Patch::Merge(patch)).await;
    written.map_err(Error::api("write", cluster_text(&cluster)))
}

fn cluster_text(cluster: &Cluster) -> String {
    format!("clusters.provisioning.cattle.io {}", ObjectKey::of(&cluster.metadata))
}

/// One after the other, each noting what it came to.
async fn steps(
    this: &Clusters,
    api: &Api<Cluster>,
    cluster: &Cluster,
    progress: &mut Progress,
) -> Result<Action, Error> {
    match this.identify(cluster, progress).await {
        Ok(true) => {}
        Ok(false) => {
            progress.created = ConditionUpdate::waiting("waiting for former management cluster to delete");
            return Ok(Action::AwaitChange);
        }
        Err(error) => {
            progress.created = ConditionUpdate::failed(Chain(&error).to_string());
            return Err(error);
        }
    }
    let mut next = Action::AwaitChange;
    if let Some(config) = &cluster.spec.rke_config {
        match this.make(api, cluster, config, progress).await {
            Ok(None) => progress.objects = Some(ConditionUpdate::yes()),
            Ok(Some(waiting)) => progress.objects = Some(ConditionUpdate::waiting(waiting)),
            Err(error) => {
                progress.objects = Some(ConditionUpdate::failed(Chain(&error).to_string()));
                return Err(error);
            }
        }
    }
    let reached = cluster.status.as_ref().is_some_and(|status| status.ready);
    if let (true, Some(management)) = (reached, &progress.management) {
        match kubeconfig::ensure(this, cluster, management).await {
            Ok(made) => progress.kubeconfig = made,
            Err(error) => {
                // Owners read the Secret that is named in the status: never one that others made.
                if matches!(error, Error::Problem(Problem::Foreign { .. })) {
                    progress.kubeconfig = Some(String::new());
                }
                return Err(error);
            }
        }
        if progress.kubeconfig.is_none() {
            next = Action::RequeueAfter(RESYNC);
        }
    }
    Ok(next)
}

impl Clusters {
    fn params(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.ctx.field_manager.to_string()), ..PatchParams::default() }
    }

    /// The management Cluster. `false` while one of the same name is still going.
    async fn identify(&self, cluster: &Cluster, progress: &mut Progress) -> Result<bool, Error> {
        let name = identity::name(cluster);
        let set = ObjectSet::new::<Cluster>("cluster-create", &cluster.metadata);
        let managements: Api<management::Cluster> = Api::all(self.ctx.client.clone());
        if progress.management.is_none() {
            // A cache may lag; whoever makes an object must be sure whose it would be.
            let found = managements.get_opt(&name).await;
            progress.management = found.map_err(Error::api("read", format!("management cluster {name}")))?;
        }
        let existing = progress.management.as_ref();
        if naming::is_legacy(&cluster.name_any()) {
            return existing.map(|_| true).ok_or_else(|| Problem::NoManagement(name).into());
        }
        if !identity::is_valid(&name) {
            return Err(Problem::InvalidManagement(name).into());
        }
        if let Some(existing) = existing {
            if !identity::is_ours(cluster, existing, &set) {
                return Err(Problem::ForeignManagement(name).into());
            }
            if existing.metadata.deletion_timestamp.is_some() {
                return Ok(false);
            }
        }
        let known = cluster.status.as_ref().is_some_and(|status| !status.cluster_name.is_empty());
        if let (Some(existing), None, true) = (existing, &cluster.spec.rke_config, known) {
            // From then on the management Cluster of a cluster that somebody else made speaks for itself.
            let workspace = identity::workspace(cluster, Some(existing));
            if existing.spec.fleet_workspace_name != workspace {
                let patch = json!({"spec": {"fleetWorkspaceName": workspace}});
                let written = managements.patch(&name, &self.params(), &Patch::Merge(patch)).await;
                let written = written.map_err(Error::api("write", format!("management cluster {name}")))?;
                progress.management = Some(written);
            }
            return Ok(true);
        }
        let mut child = Child::new(&identity::desired(cluster, existing, &self.images())?)?;
        set.mark(&mut child);
        let encode = |source| Error::Encode { what: "a management cluster", source };
        let current = existing.map(serde_json::to_value).transpose().map_err(encode)?;
        // Whose it is was told above; an old one has no label yet.
        if matches!(object_set::need(&child, current.as_ref()), Ok(Need::Write) | Err(Foreign)) {
            let written = child.apply(&self.ctx).await?;
            progress.management = Some(typed(&written)?);
        }
        Ok(true)
    }

    fn images(&self) -> Images {
        let secrets = self.settings.get(setting::SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS);
        Images {
            agent: self.settings.get(setting::AGENT_IMAGE),
            auth: self.settings.get(setting::AUTH_IMAGE),
            registry: self.settings.get(setting::SYSTEM_DEFAULT_REGISTRY),
            pull_secret: secrets.split(',').next().unwrap_or_default().trim().to_owned(),
        }
    }
}

fn typed<K: DeserializeOwned>(object: &DynamicObject) -> Result<K, Error> {
    let encode = |source| Error::Encode { what: "an object that was applied", source };
    serde_json::to_value(object).and_then(serde_json::from_value).map_err(encode)
}

/// The set of all objects a cluster is made of.
fn object_set_of(cluster: &Cluster) -> ObjectSet {
    ObjectSet::new::<Cluster>("rke-cluster", &cluster.metadata)
}
