//! A management API with the kinds of Cluster API and of a provider nobody has, and workload clusters that are
//! API servers of their own.

// Each test file uses some of it.
#![allow(dead_code)]

use std::{collections::HashMap, ops::Deref, sync::Arc};

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use parking_lot::Mutex;
use remuda_control::{Ctx, ObjectKey};
pub(crate) use remuda_testkit::{Component, Running, until};
use remuda_testkit::{
    definition, management_config,
    time::{self, TimerClock},
};
use remuda_workload::{Connect, Down};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::odd;

/// Group of the provider.
pub(crate) const GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// Its kinds. They keep the v1beta2 contract in version v1.
const KINDS: &[&str] = &[
    "FakeCluster",
    "FakeControlPlane",
    "FakeMachine",
    "FakeMachineTemplate",
    "FakeMachinePool",
    "FakeConfig",
    "FakeConfigTemplate",
    "FakeRemediation",
    "FakeRemediationTemplate",
];

pub(crate) fn fake(kind: &str) -> ApiResource {
    let plural = format!("{}s", kind.to_lowercase());
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", kind), &plural)
}

pub(crate) fn fake_crd(kind: &str) -> Value {
    let mut definition = definition(&fake(kind));
    definition["metadata"]["labels"] = json!({"cluster.x-k8s.io/v1beta2": "v1"});
    definition
}

/// The management API.
#[derive(Clone)]
pub(crate) struct World {
    api: remuda_testkit::World,
    pub(crate) workloads: Workloads,
    /// The time, for API servers and controllers alike. It follows the timer and goes on when controllers
    /// start again.
    pub(crate) clock: TimerClock,
}

impl Deref for World {
    type Target = remuda_testkit::World;

    fn deref(&self) -> &Self::Target {
        &self.api
    }
}

/// Workload clusters by key. One that is not here cannot be reached.
#[derive(Clone, Default)]
pub(crate) struct Workloads {
    clusters: Arc<Mutex<HashMap<ObjectKey, remuda_testkit::World>>>,
    /// How they answer.
    pub(crate) manners: Arc<Mutex<odd::Manners>>,
}

impl Workloads {
    pub(crate) async fn start(&self, cluster: &str) -> remuda_testkit::World {
        let world = remuda_testkit::World::bare().await;
        self.clusters.lock().insert(ObjectKey::namespaced("default", cluster), world.clone());
        world
    }
}

impl Connect for Workloads {
    fn connect(&self, cluster: &ObjectKey) -> BoxFuture<'_, Result<Client, Down>> {
        let found = self.clusters.lock().get(cluster).map(remuda_testkit::World::client);
        let found = found.map(|client| odd::client(client, self.manners.clone()));
        Box::pin(async move { found.ok_or_else(|| Down { why: "no such cluster".to_owned() }) })
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        let clock = time::begin(Timestamp::now());
        let api = remuda_testkit::World::with(management_config).await;
        for definition in remuda_api::crd::all().chain(KINDS.iter().map(|kind| fake_crd(kind))) {
            api.define(definition).await;
        }
        Self { api, workloads: Workloads::default(), clock }
    }

    /// What controllers start with.
    pub(crate) fn ctx(&self) -> Arc<Ctx> {
        let ctx = Ctx::new(self.client_of(Component::Shared), "remuda-test").with_clock(Arc::new(self.clock));
        Arc::new(ctx.acting_as(self.client_of(Component::ClusterApi), "remuda-test"))
    }

    /// Starts all controllers.
    pub(crate) fn run(&self) -> Running {
        self.run_with(remuda_capi::Options::default())
    }

    pub(crate) fn run_with(&self, options: remuda_capi::Options) -> Running {
        let ctx = self.ctx();
        Running::start(ctx.clone(), |stop| self.controllers(&ctx, options, stop))
    }

    /// All controllers and the connections they use, as one thing that can be cut off.
    pub(crate) fn controllers(
        &self,
        ctx: &Arc<Ctx>,
        options: remuda_capi::Options,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let connect = Arc::new(self.workloads.clone());
        let workloads = remuda_workload::Workloads::new(ctx.clone(), Default::default(), connect);
        let connections = remuda_workload::run(workloads.clone(), stop.clone());
        let controllers = remuda_capi::run(ctx.clone(), options, workloads, stop);
        async move {
            tokio::join!(connections, controllers);
        }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client(), "default")
    }

    pub(crate) fn fake(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client(), "default", &fake(kind))
    }

    /// Creates an object of the provider.
    pub(crate) async fn create_fake(&self, kind: &str, name: &str, spec: Value) -> DynamicObject {
        let mut object = DynamicObject::new(name, &fake(kind));
        object.data = json!({"spec": spec});
        self.fake(kind).create(&PostParams::default(), &object).await.unwrap()
    }

    /// What the provider reports.
    pub(crate) async fn report(&self, kind: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.fake(kind).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
}
