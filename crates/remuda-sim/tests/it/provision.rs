//! Clusters people write, from the first object to a change of configuration, with everything real but servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use remuda_api::{core::Machine, provisioning::Cluster};
use remuda_control::Ctx;
use remuda_gateway::{Gateway, GatewayOptions, TunnelConnect};
use remuda_plan::key;
use remuda_sim::{
    Failures, Latencies, Latency, Options,
    provision::{self, Door, Shape, kinds},
    workload::Workloads,
};
use remuda_testkit::{Component, doors::Doors};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::world::{clock, empty};

pub(crate) const NAMESPACE: &str = "fleet-default";
const CLUSTERS: u32 = 2;

/// The way into whichever gateway there is now.
#[derive(Clone, Default)]
struct InMemory(Arc<parking_lot::Mutex<Option<Arc<Doors>>>>);

impl Door for InMemory {
    fn open(&self) -> BoxFuture<'static, std::io::Result<remuda_tunnel::dial::BoxIo>> {
        let doors = self.0.lock().clone();
        Box::pin(async move {
            let doors = doors.ok_or(std::io::ErrorKind::ConnectionRefused)?;
            let (near, far) = tokio::io::duplex(64 << 10);
            let service = service_fn(move |request: Request<Incoming>| {
                let doors = doors.clone();
                let peer = SocketAddr::from(([127, 0, 0, 1], 1));
                async move { Ok::<_, std::convert::Infallible>(doors.answer(peer, request).await) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(far), service);
            tokio::spawn(connection.with_upgrades());
            Ok(Box::new(near) as remuda_tunnel::dial::BoxIo)
        })
    }

    fn authority(&self) -> &str {
        "remuda.example.com:443"
    }
}

/// A server's controllers at work.
pub(crate) struct Server {
    ctx: Arc<Ctx>,
    gateway: Gateway,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    async fn stop(self) {
        self.stop.cancel();
        self.gateway.stop().await;
        self.task.await.unwrap();
        self.ctx.stop().await;
    }
}

pub(crate) struct World {
    pub(crate) api: remuda_testkit::World,
    door: InMemory,
    stop: CancellationToken,
    simulation: JoinSet<()>,
}

impl World {
    pub(crate) async fn start(options: Options) -> Self {
        let api = empty().await;
        let ours = remuda_api::crd::all().chain(remuda_api::crd::rancher());
        futures::future::join_all(ours.map(|definition| api.define(definition))).await;
        provision::install(&api.client()).await.unwrap();
        let namespaces: Api<Namespace> = Api::all(api.client());
        let namespace = parse(json!({"metadata": {"name": NAMESPACE}}));
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let (door, stop) = (InMemory::default(), CancellationToken::new());
        let ctx = Arc::new(Ctx::new(api.client(), "remuda-sim").with_clock(clock()));
        let workloads = Workloads::new(options.seed, clock());
        let mut simulation = JoinSet::new();
        simulation.spawn(provision::run(ctx, options, workloads, Arc::new(door.clone()), stop.clone()));
        Self { api, door, stop, simulation }
    }

    /// Everything a server runs on its API but the machine provider.
    pub(crate) fn serve(&self) -> Server {
        let ctx = Arc::new(Ctx::new(self.api.client_of(Component::Shared), "remuda").with_clock(clock()));
        let acting = |component| Arc::new(ctx.acting_as(self.api.client_of(component), "remuda"));
        let gateway = Gateway::new(GatewayOptions::new(acting(Component::Gateway)));
        *self.door.0.lock() = Some(Doors::new(gateway.openings(), self.api.client()));
        let connect = Arc::new(TunnelConnect::new(&gateway, None));
        let workloads =
            remuda_workload::Workloads::new(acting(Component::Workloads), Default::default(), connect);
        let stop = CancellationToken::new();
        let connections = remuda_workload::run(workloads.clone(), stop.clone());
        let capi = remuda_capi::run(
            acting(Component::ClusterApi),
            Default::default(),
            workloads.clone(),
            stop.clone(),
        );
        let rke =
            remuda_rke::run(acting(Component::ControlPlane), Default::default(), workloads, stop.clone());
        let provisioning =
            remuda_provisioning::run(acting(Component::Provisioning), Default::default(), stop.clone());
        let (front, end) = (gateway.clone(), stop.clone());
        let task = tokio::spawn(async move {
            tokio::join!(connections, capi, rke, provisioning, front.run(end));
        });
        Server { ctx, gateway, stop, task }
    }

    pub(crate) fn clusters(&self) -> Api<Cluster> {
        Api::namespaced(self.api.client(), NAMESPACE)
    }

    async fn create(&self, name: &str) {
        self.create_shape(name, 1, 2).await;
    }

    pub(crate) async fn create_shape(&self, name: &str, servers: u32, workers: u32) {
        let version = "v1.35.1+k3s1".to_owned();
        let shape =
            Shape { namespace: NAMESPACE.to_owned(), name: name.to_owned(), servers, workers, version };
        for object in shape.objects() {
            if object["kind"] == kinds::CONFIG {
                let configs: Api<DynamicObject> =
                    Api::namespaced_with(self.api.client(), NAMESPACE, &kinds::resource(kinds::CONFIG));
                configs.create(&PostParams::default(), &parse(object)).await.unwrap();
            } else {
                self.clusters().create(&PostParams::default(), &parse(object)).await.unwrap();
            }
        }
    }

    /// Waits until all clusters are ready, of their present generation.
    async fn ready(&self) {
        let mut told = String::new();
        for _ in 0..600 {
            told.clear();
            for number in 0..CLUSTERS {
                let cluster = self.clusters().get(&format!("sim-{number}")).await.unwrap();
                let status = cluster.status.clone().unwrap_or_default();
                for kind in ["Ready", "Provisioned", "Updated"] {
                    let known = status.conditions.iter().find(|known| known.kind == kind);
                    if known.is_none_or(|known| known.status != "True") {
                        told += &format!("{kind} {known:?} ");
                    }
                }
                if !status.ready || Some(status.observed_generation) != cluster.metadata.generation {
                    told += "not ready ";
                }
            }
            if told.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("never ready: {told}");
    }

    /// Waits until nothing has been written for a while, and tells how many writes there were so far.
    async fn settle(&self) -> usize {
        let (mut before, mut still) = (self.api.writes().len(), 0);
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.api.writes().len();
            still = if now == before { still + 1 } else { 0 };
            before = now;
            if still == 20 {
                return now;
            }
        }
        panic!("never settled: {:?}", self.api.writes().split_off(before.saturating_sub(20)));
    }

    /// Plans by their Secret, and whether each is applied.
    async fn plans(&self) -> BTreeMap<String, (Vec<u8>, bool)> {
        let secrets: Api<Secret> = Api::namespaced(self.api.client(), NAMESPACE);
        let params = ListParams::default().fields("type=rke.cattle.io/machine-plan");
        let listed = secrets.list(&params).await.unwrap().items;
        let plans = listed.iter().map(|secret| {
            let data = secret.data.clone().unwrap_or_default();
            let value = |key: &str| data.get(key).map(|value| value.0.clone()).unwrap_or_default();
            let plan = value(key::PLAN);
            let applied = value(key::APPLIED_CHECKSUM) == remuda_plan::sha256_hex(&plan).as_bytes();
            (secret.name_any(), (plan, applied))
        });
        plans.collect()
    }

    async fn machines(&self) -> BTreeSet<String> {
        let machines: Api<Machine> = Api::namespaced(self.api.client(), NAMESPACE);
        let listed = machines.list(&ListParams::default()).await.unwrap();
        listed.items.iter().map(|machine| machine.uid().unwrap()).collect()
    }

    pub(crate) async fn end(mut self, server: Server) {
        server.stop().await;
        self.stop.cancel();
        while self.simulation.join_next().await.is_some() {}
    }
}

pub(crate) fn parse<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

#[tokio::test(start_paused = true)]
async fn clusters_become_ready_stay_quiet_and_change_in_place() {
    let world = World::start(Options {
        latencies: Latencies::all(Latency::Uniform {
            from: Duration::from_secs(1),
            to: Duration::from_secs(3),
        }),
        ..Options::default()
    })
    .await;
    let server = world.serve();
    for number in 0..CLUSTERS {
        world.create(&format!("sim-{number}")).await;
    }
    world.ready().await;
    let (machines, plans) = (world.machines().await, world.plans().await);
    assert_eq!((machines.len(), plans.len()), (6, 6));
    assert!(plans.values().all(|(_, applied)| *applied));

    // Some things are only noted after minutes: nodes are counted, and bootstrap tokens end.
    tokio::time::sleep(Duration::from_secs(600)).await;
    let settled = world.settle().await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(world.api.writes().split_off(settled), Vec::<String>::new());

    // Another server on the same API, to which the same agents come back.
    let plans = world.plans().await;
    server.stop().await;
    let server = world.serve();
    tokio::time::sleep(Duration::from_secs(120)).await;
    world.ready().await;
    world.settle().await;
    assert_eq!(world.plans().await, plans);

    let patch = json!({"spec": {"rkeConfig": {"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}}}});
    for number in 0..CLUSTERS {
        let name = format!("sim-{number}");
        world.clusters().patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
    world.settle().await;
    world.ready().await;
    let changed = world.plans().await;
    assert_eq!(world.machines().await, machines);
    for (name, (plan, applied)) in &changed {
        assert!(*applied && *plan != plans[name].0, "{name}");
    }

    for number in 0..CLUSTERS {
        world.clusters().delete(&format!("sim-{number}"), &DeleteParams::default()).await.unwrap();
    }
    world.settle().await;
    assert!(world.clusters().list(&ListParams::default()).await.unwrap().items.is_empty());
    assert!(world.machines().await.is_empty() && world.plans().await.is_empty());
    for kind in [kinds::CONFIG, kinds::MACHINE, kinds::TEMPLATE] {
        let objects: Api<DynamicObject> =
            Api::namespaced_with(world.api.client(), NAMESPACE, &kinds::resource(kind));
        assert!(objects.list(&ListParams::default()).await.unwrap().items.is_empty(), "{kind}");
    }
    world.end(server).await;
}

#[tokio::test(start_paused = true)]
async fn attempts_that_fail_are_repeated_until_clusters_are_ready() {
    let world = World::start(Options {
        seed: 7,
        failures: Failures { apply: 0.3, ..Failures::default() },
        ..Options::default()
    })
    .await;
    let server = world.serve();
    for number in 0..CLUSTERS {
        world.create(&format!("sim-{number}")).await;
    }
    world.ready().await;
    let secrets: Api<Secret> = Api::namespaced(world.api.client(), NAMESPACE);
    let listed =
        secrets.list(&ListParams::default().fields("type=rke.cattle.io/machine-plan")).await.unwrap();
    assert!(listed.items.iter().all(|secret| {
        let data = secret.data.as_ref().unwrap();
        data[key::FAILURE_COUNT].0 == b"0" && !data[key::PROBE_STATUSES].0.is_empty()
    }));
    world.end(server).await;
}
