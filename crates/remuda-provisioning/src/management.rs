//! Management Cluster: the identity of every cluster, made here or not.
//!
//! Reads   the management Cluster, its provisioning Cluster, control plane and machines.
//! Writes  its namespace, its registration token, its status except for what live connections say: Ready only while
//!         nodes are changing, when the control plane knows best.
//! Never   writes Connected or AgentDeployed.

pub(crate) mod log;
mod status;

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use remuda_api::{
    core::Machine,
    management::{Cluster, ClusterRegistrationToken},
    provisioning,
    rke::RkeControlPlane,
};
use remuda_control::{
    Action, Controller, Ctx, DEBOUNCE, Informer, Kind, ObjectKey, Scope, drive,
    write::{
        Finalizer, ensure_finalizer, get_or_create, is_controlled_by, owner_reference, remove_finalizer,
        write_status,
    },
};
use remuda_names::rancher::{annotation, finalizer, name, object_set as keys};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{self, BY_CLUSTER, BY_MANAGEMENT},
    error::{Error, is_code},
    naming, object_set,
};

/// How long until a removal is looked at again. What it waits for is watched.
const AGAIN: Duration = Duration::from_secs(5);

struct Managements {
    ctx: Arc<Ctx>,
    managements: Informer<Cluster>,
    clusters: Informer<provisioning::Cluster>,
    control_planes: Informer<RkeControlPlane>,
    machines: Informer<Machine>,
    namespaces: Informer<Namespace>,
    tokens: Informer<ClusterRegistrationToken>,
}

pub(crate) async fn run(ctx: Arc<Ctx>, workers: usize, stop: CancellationToken) {
    let informers = &ctx.informers;
    let clusters: Informer<provisioning::Cluster> = informers.of(Scope::all());
    cluster::index(&clusters);
    let machines: Informer<Machine> = informers.of(Scope::all());
    cluster::index_machines(&machines);
    let this = Arc::new(Managements {
        managements: informers.of(Scope::all()),
        clusters: clusters.clone(),
        control_planes: informers.of(Scope::all()),
        machines,
        namespaces: informers.of(Scope::all()),
        tokens: informers.of(Scope::all()),
        ctx: ctx.clone(),
    });
    let (of_control_plane, of_machine) = (clusters.clone(), clusters);
    let controller = Controller::<Cluster>::new("management-cluster", &ctx)
        .workers(workers)
        .watches(&this.clusters, |cluster| managed(cluster).into_iter().collect())
        .watches_debounced(DEBOUNCE, &this.control_planes, move |object: &RkeControlPlane| {
            let cluster = of_control_plane.get(&ObjectKey::of(&object.metadata));
            cluster.and_then(|cluster| managed(&cluster)).into_iter().collect()
        })
        .watches_debounced(DEBOUNCE, &this.machines, move |machine: &Machine| {
            let cluster =
                of_machine.get(&ObjectKey::of(&machine.metadata).sibling(&machine.spec.cluster_name));
            cluster.and_then(|cluster| managed(&cluster)).into_iter().collect()
        })
        .watches(&this.namespaces, |namespace: &Namespace| {
            vec![ObjectKey::cluster_wide(namespace.name_any())]
        })
        .watches(&this.tokens, |token: &ClusterRegistrationToken| {
            vec![ObjectKey::cluster_wide(token.namespace().unwrap_or_default())]
        });
    drive(controller, reconcile, this, stop).await;
}

/// The management Cluster of a provisioning Cluster.
fn managed(cluster: &provisioning::Cluster) -> Option<ObjectKey> {
    let name = cluster.status.as_ref().map(|status| status.cluster_name.as_str());
    name.filter(|name| !name.is_empty()).map(ObjectKey::cluster_wide)
}

async fn reconcile(cluster: Arc<Cluster>, this: Arc<Managements>) -> Result<Action, Error> {
    let api: Api<Cluster> = Api::all(this.ctx.client.clone());
    match ensure_finalizer(&api, Cluster::clone(&cluster), &(), finalizer::MANAGEMENT_CLUSTER).await? {
        Finalizer::Active(cluster) => this.live(&api, cluster).await,
        Finalizer::Deleting(cluster) => this.remove(&api, &cluster).await,
        Finalizer::Gone => Ok(Action::AwaitChange),
    }
}

impl Managements {
    /// The provisioning Clusters of a management Cluster; there is one at most, unless somebody made a mess.
    fn provisioned(&self, cluster: &Cluster) -> Vec<Arc<provisioning::Cluster>> {
        let mut found = self.clusters.by_index(BY_MANAGEMENT, &cluster.name_any());
        // One that was made from it may not have noted it yet.
        let annotations = cluster.annotations();
        if let (true, Some(namespace), Some(name)) =
            (found.is_empty(), annotations.get(keys::OWNER_NAMESPACE), annotations.get(keys::OWNER_NAME))
        {
            let maker = self.clusters.get(&ObjectKey::namespaced(namespace, name));
            let unnamed = |cluster: &Arc<provisioning::Cluster>| managed(cluster).is_none();
            found.extend(maker.filter(unnamed));
        }
        found
    }

    async fn live(&self, api: &Api<Cluster>, cluster: Cluster) -> Result<Action, Error> {
        let cluster = self.assign_workspace(api, cluster).await?;
        self.ensure_namespace(&cluster).await?;
        self.ensure_token(&cluster).await?;
        let provisioned = self.provisioned(&cluster);
        let provisioned = provisioned.first().map(|cluster| &**cluster);
        if provisioned.is_none() {
            self.mirror(&cluster).await?;
        }
        let key = provisioned.map(|cluster| ObjectKey::of(&cluster.metadata));
        let control_plane = key.as_ref().and_then(|key| self.control_planes.get(key));
        let machines = key.map_or(0, |key| self.machines.keys_by_index(BY_CLUSTER, &key.to_string()).len());
        let view = status::View {
            cluster: &cluster,
            provisioned,
            control_plane: control_plane.as_deref(),
            machines,
        };
        let status = status::status(&view, self.ctx.clock.now());
        let written = write_status(&self.ctx, api, &cluster, &status).await?;
        self.managements.wait_seen(written.as_ref()).await;
        Ok(Action::AwaitChange)
    }

    /// A cluster that says nothing of its workspace is in the one all are in.
    async fn assign_workspace(&self, api: &Api<Cluster>, cluster: Cluster) -> Result<Cluster, Error> {
        if !cluster.spec.fleet_workspace_name.is_empty() || is_external(&cluster) {
            return Ok(cluster);
        }
        let workspace = if cluster.spec.internal { name::FLEET_LOCAL } else { name::FLEET_DEFAULT };
        let patch =
            json!({"metadata": {"uid": cluster.metadata.uid}, "spec": {"fleetWorkspaceName": workspace}});
        let params =
            PatchParams { field_manager: Some(self.ctx.field_manager.to_string()), ..PatchParams::default() };
        let written = api.patch(&cluster.name_any(), &params, &Patch::Merge(patch)).await;
        written.map_err(Error::api("write", format!("management cluster {}", cluster.name_any())))
    }

    /// The namespace of everything that belongs to the cluster and to no workspace.
    async fn ensure_namespace(&self, cluster: &Cluster) -> Result<(), Error> {
        let name = cluster.name_any();
        if self.namespaces.get(&ObjectKey::cluster_wide(&name)).is_some() {
            return Ok(());
        }
        let metadata = ObjectMeta {
            name: Some(name),
            owner_references: Some(vec![owner_reference(cluster, &())?]),
            ..ObjectMeta::default()
        };
        let namespace = Namespace { metadata, ..Namespace::default() };
        get_or_create(&self.ctx, &Api::all(self.ctx.client.clone()), &namespace).await?;
        Ok(())
    }

    async fn ensure_token(&self, cluster: &Cluster) -> Result<(), Error> {
        let id = cluster.name_any();
        if self.tokens.get(&ObjectKey::namespaced(&id, name::DEFAULT_TOKEN)).is_some() {
            return Ok(());
        }
        let mut token = ClusterRegistrationToken::named(name::DEFAULT_TOKEN);
        token.metadata.namespace = Some(id.clone());
        token.spec.cluster_name.clone_from(&id);
        get_or_create(&self.ctx, &Api::namespaced(self.ctx.client.clone(), &id), &token).await?;
        Ok(())
    }

    /// A cluster that was made before there were provisioning Clusters, or beside them, gets one.
    async fn mirror(&self, cluster: &Cluster) -> Result<(), Error> {
        let id = cluster.name_any();
        let workspace = &cluster.spec.fleet_workspace_name;
        if !naming::is_legacy(&id) || workspace.is_empty() {
            return Ok(());
        }
        let foreign = |key: &String| key.contains("cattle.io/") || key.starts_with("kubectl.kubernetes.io/");
        let mut mirrored = provisioning::Cluster::named(&id);
        mirrored.metadata.namespace = Some(workspace.clone());
        let kept = |(key, value): (&String, &String)| (!foreign(key)).then(|| (key.clone(), value.clone()));
        mirrored.metadata.labels = Some(cluster.labels().iter().filter_map(kept).collect());
        mirrored.metadata.annotations = Some(cluster.annotations().iter().filter_map(kept).collect());
        let display = match cluster.spec.display_name.as_str() {
            "" => id.clone(),
            display => display.to_owned(),
        };
        mirrored.annotations_mut().insert(annotation::MANAGEMENT_CLUSTER_DISPLAY_NAME.to_owned(), display);
        let api = Api::namespaced(self.ctx.client.clone(), workspace);
        match get_or_create(&self.ctx, &api, &mirrored).await {
            // Without its namespace a workspace holds nothing.
            Err(remuda_control::Error::Api { source, .. }) if is_code(&source, 404) => Ok(()),
            made => Ok(made.map(drop)?),
        }
    }

    /// Deleting either side deletes both; this one goes last.
    async fn remove(&self, api: &Api<Cluster>, cluster: &Cluster) -> Result<Action, Error> {
        let provisioned = self.provisioned(cluster);
        let legacy = provisioned.iter().any(|cluster| naming::is_legacy(&cluster.name_any()));
        for cluster in &provisioned {
            if cluster.metadata.deletion_timestamp.is_none() {
                let resource = Kind::of::<provisioning::Cluster>(&()).api_resource();
                object_set::delete(&self.ctx, &resource, &cluster.metadata).await?;
            }
        }
        if !provisioned.is_empty() && !legacy {
            if let Some(status) = status::removing(cluster, &provisioned[0], self.ctx.clock.now()) {
                write_status(&self.ctx, api, cluster, &status).await?;
            }
            return Ok(Action::RequeueAfter(AGAIN));
        }
        if let Some(namespace) = self.namespaces.get(&ObjectKey::cluster_wide(cluster.name_any()))
            && namespace.metadata.deletion_timestamp.is_none()
            // A namespace that somebody else made is not ours to delete, whatever its name.
            && is_controlled_by(&namespace.metadata, cluster.metadata.uid.as_deref().unwrap_or_default())
        {
            object_set::delete(&self.ctx, &Kind::of::<Namespace>(&()).api_resource(), &namespace.metadata)
                .await?;
        }
        remove_finalizer(api, cluster, &(), finalizer::MANAGEMENT_CLUSTER).await?;
        Ok(Action::AwaitChange)
    }
}

fn is_external(cluster: &Cluster) -> bool {
    let mark = cluster.annotations().get(annotation::EXTERNALLY_MANAGED);
    mark.is_some_and(|mark| !mark.is_empty() && mark != "false")
}
