//! What all controllers share.

use std::{collections::HashMap, fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{Api, Resource, ResourceExt, api::PatchParams};
use parking_lot::Mutex;
use remuda_api::{
    core::{Cluster, Machine},
    management::{self, Setting},
    rke::{CustomMachine, EtcdSnapshot, RkeBootstrap, RkeCluster, RkeControlPlane},
};
use remuda_control::{Ctx, Informer, ObjectKey, Scope, informer::Cached};
use remuda_names::{
    gateway::secret::ACCOUNT_TOKEN_TYPE,
    rancher::{group, label, secret_type},
};
use remuda_workload::Workloads;

use crate::{Options, machines::Drivers, objects, referred::Referred};

/// A cache that lags longer than this will be seen as old by the next write.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// A safety net only: everything that is looked at is watched.
pub(crate) const RESYNC: Duration = Duration::from_secs(600);

/// Machines, plan Secrets and RKEBootstraps are filed by this name under [`filed`] of their cluster.
pub(crate) const BY_CLUSTER: &str = "rke-cluster";
/// Machines are filed under their RKEBootstrap.
pub(crate) const BY_BOOTSTRAP: &str = "rke-bootstrap";
/// Machines of drivers are filed under the Secret with what the driver keeps of them.
pub(crate) const BY_STATE: &str = "rke-machine-state";
/// Machines are filed under their uid.
pub(crate) const BY_UID: &str = "rke-uid";
/// Machines are filed under the id their server registered with.
pub(crate) const BY_MACHINE_ID: &str = "rke-machine-id";
/// Control planes are filed under their management Cluster.
pub(crate) const BY_MANAGED: &str = "rke-management-cluster";

pub(crate) fn filed(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Caches are those of `ctx`.
pub(crate) struct Rke {
    pub(crate) ctx: Arc<Ctx>,
    pub(crate) options: Options,
    pub(crate) workloads: Workloads,
    pub(crate) clusters: Informer<Cluster>,
    pub(crate) machines: Informer<Machine>,
    pub(crate) rke_clusters: Informer<RkeCluster>,
    pub(crate) control_planes: Informer<RkeControlPlane>,
    pub(crate) bootstraps: Informer<RkeBootstrap>,
    pub(crate) custom_machines: Informer<CustomMachine>,
    pub(crate) snapshots: Informer<EtcdSnapshot>,
    /// Management Clusters.
    pub(crate) managed: Informer<management::Cluster>,
    pub(crate) settings: Informer<Setting>,
    /// Plan Secrets.
    pub(crate) plans: Informer<Secret>,
    /// Token Secrets of the accounts machines boot with.
    pub(crate) tokens: Informer<Secret>,
    /// What drivers keep of machines.
    pub(crate) states: Informer<Secret>,
    pub(crate) secrets: Referred<Secret>,
    pub(crate) config_maps: Referred<ConfigMap>,
    pub(crate) drivers: Drivers,
    pub(crate) locks: Locks,
}

impl Rke {
    pub(crate) fn new(ctx: Arc<Ctx>, options: Options, workloads: Workloads) -> Arc<Self> {
        let informers = &ctx.informers;
        let typed = |kind: &str| Scope::all().with_fields(format!("type={kind}"));
        let tokens = typed(ACCOUNT_TOKEN_TYPE).with_labels(label::BOOTSTRAP_NAME);
        let rke = Self {
            clusters: informers.of(Scope::all()),
            machines: informers.of(Scope::all()),
            rke_clusters: informers.of(Scope::all()),
            control_planes: informers.of(Scope::all()),
            bootstraps: informers.of(Scope::all()),
            custom_machines: informers.of(Scope::all()),
            snapshots: informers.of(Scope::all()),
            managed: informers.of(Scope::all()),
            settings: informers.of(Scope::all()),
            plans: informers.of(typed(secret_type::PLAN)),
            tokens: informers.of(tokens),
            states: informers.of(typed(secret_type::MACHINE_STATE)),
            secrets: Referred::new(&ctx),
            config_maps: Referred::new(&ctx),
            drivers: Drivers::default(),
            locks: Locks::default(),
            options,
            workloads,
            ctx,
        };
        rke.index();
        Arc::new(rke)
    }

    /// Returns when all caches are filled: who acts on an absence must not mistake a cache that is not filled
    /// for a world that is empty.
    pub(crate) async fn synced(&self) {
        futures::join!(
            self.clusters.wait_synced(),
            self.machines.wait_synced(),
            self.rke_clusters.wait_synced(),
            self.control_planes.wait_synced(),
            self.bootstraps.wait_synced(),
            self.custom_machines.wait_synced(),
            self.snapshots.wait_synced(),
            self.managed.wait_synced(),
            self.settings.wait_synced(),
            self.plans.wait_synced(),
            self.tokens.wait_synced(),
            self.states.wait_synced(),
            self.secrets.metadata.wait_synced(),
            self.config_maps.metadata.wait_synced(),
        );
    }

    fn index(&self) {
        self.machines.add_index(BY_CLUSTER, |machine| {
            vec![filed(&machine.namespace().unwrap_or_default(), &machine.spec.cluster_name)]
        });
        self.snapshots.add_index(BY_CLUSTER, |snapshot| {
            vec![filed(&snapshot.namespace().unwrap_or_default(), &snapshot.spec.cluster_name)]
        });
        self.machines.add_index(BY_BOOTSTRAP, |machine| {
            let name = objects::bootstrap_of(machine).map(str::to_owned);
            name.map(|name| filed(&machine.namespace().unwrap_or_default(), &name)).into_iter().collect()
        });
        self.machines.add_index(BY_STATE, |machine| {
            let name = objects::driver_machine(machine).map(objects::machine_state_name);
            name.map(|name| filed(&machine.namespace().unwrap_or_default(), &name)).into_iter().collect()
        });
        self.machines.add_index(BY_UID, |machine| machine.uid().into_iter().collect());
        self.machines.add_index(BY_MACHINE_ID, |machine| {
            let id = machine.labels().get(label::MACHINE_ID).filter(|id| !id.is_empty());
            id.cloned().into_iter().collect()
        });
        self.plans.add_index(BY_CLUSTER, |secret| {
            let cluster = secret.labels().get(label::CLUSTER_NAME);
            let namespace = secret.namespace().unwrap_or_default();
            cluster.map(|cluster| filed(&namespace, cluster)).into_iter().collect()
        });
        self.bootstraps.add_index(BY_CLUSTER, |bootstrap| {
            vec![filed(&bootstrap.namespace().unwrap_or_default(), &bootstrap.spec.cluster_name)]
        });
        self.control_planes
            .add_index(BY_MANAGED, |control_plane| vec![control_plane.spec.management_cluster_name.clone()]);
    }

    pub(crate) fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.ctx.client.clone(), namespace)
    }

    /// Waits until a cache has what was written, if anything was: who looks again before would write again.
    pub(crate) async fn seen<K, W>(&self, cache: &Informer<K>, written: Option<&W>)
    where
        K: Cached,
        W: ResourceExt,
    {
        cache.wait_seen(written).await;
    }

    /// Of patches that are no applies.
    pub(crate) fn params(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.ctx.field_manager.to_string()), ..PatchParams::default() }
    }

    /// The Machine whose RKEBootstrap has this key.
    pub(crate) fn machine_of_bootstrap(&self, bootstrap: &ObjectKey) -> Option<Arc<Machine>> {
        let namespace = bootstrap.namespace.as_deref().unwrap_or_default();
        self.machines.by_index(BY_BOOTSTRAP, &filed(namespace, &bootstrap.name)).into_iter().next()
    }

    /// The Machine a plan Secret belongs to: its owner's owner. The label with a Machine's name is for people and
    /// selectors; a wrong one must not make one machine answer for another.
    pub(crate) fn machine_of_plan(&self, secret: &Secret) -> Option<Arc<Machine>> {
        let key = ObjectKey::of(&secret.metadata);
        let mut owners = secret.metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| {
            owner.kind == "RKEBootstrap" && objects::group_of(&owner.api_version) == group::RKE
        })?;
        let bootstrap = self.bootstraps.get(&key.sibling(&owner.name))?;
        let owned = bootstrap.metadata.uid.as_deref() == Some(&*owner.uid)
            && objects::plan_name(&owner.name) == *key.name;
        let owner = objects::owner(&bootstrap.metadata, "Machine").filter(|_| owned)?;
        let machine = self.machines.get(&key.sibling(&owner.name))?;
        let named = objects::bootstrap_of(&machine) == Some(&bootstrap.name_any());
        (named && machine.metadata.uid.as_deref() == Some(&*owner.uid)).then_some(machine)
    }

    /// The Cluster of a Machine.
    pub(crate) fn cluster_of(&self, machine: &Machine) -> Option<Arc<Cluster>> {
        self.clusters.get(&ObjectKey::of(&machine.metadata).sibling(&machine.spec.cluster_name))
    }

    /// The control plane of a Cluster, if it is one of ours.
    pub(crate) fn control_plane_of(&self, cluster: &Cluster) -> Option<Arc<RkeControlPlane>> {
        let reference = &cluster.spec.control_plane_ref;
        if !objects::is_control_plane(reference) {
            return None;
        }
        self.control_planes.get(&ObjectKey::of(&cluster.metadata).sibling(&reference.name))
    }
}

impl Debug for Rke {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rke")
    }
}

/// Who changes the nodes of a cluster does so alone: two decisions about one etcd made at the same time could
/// each leave a quorum, and together none.
#[derive(Default)]
pub(crate) struct Locks(Mutex<HashMap<ObjectKey, Arc<tokio::sync::Mutex<()>>>>);

impl Locks {
    pub(crate) async fn of(&self, cluster: &ObjectKey) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = self.0.lock().entry(cluster.clone()).or_default().clone();
        lock.lock_owned().await
    }

    pub(crate) fn forget(&self, cluster: &ObjectKey) {
        let mut locks = self.0.lock();
        // One that is in use stays until the next time.
        if locks.get(cluster).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(cluster);
        }
    }
}
