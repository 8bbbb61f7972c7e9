//! The providers alone, with the part of Cluster API played by hand.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use remuda_api::core::{Cluster, Machine};
use remuda_control::ObjectKey;
use remuda_sim::{
    Contract,
    kinds::{SimBootstrap, SimCluster, SimControlPlane, SimMachine},
    scenario::{Controllers, Stage},
    workload::Workloads,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::world::{clock, world};

/// Nobody but the providers.
struct Nobody;

impl Controllers for Nobody {
    fn run(&self, _: Workloads, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move { stop.cancelled().await })
    }
}

struct Hand {
    api: remuda_testkit::World,
    stage: Stage,
}

impl Hand {
    async fn start(contract: Contract) -> Self {
        let api = world(contract).await;
        let mut stage = Stage::new(api.client(), clock(), Arc::new(Nobody)).await;
        stage.options_mut().contract = contract;
        stage.start();
        Self { api, stage }
    }

    fn of<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.api.client(), "default")
    }

    async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: serde::Serialize + serde::de::DeserializeOwned + Clone + std::fmt::Debug,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.of::<K>().create(&PostParams::default(), &object).await.unwrap()
    }

    async fn patch<K>(&self, name: &str, patch: Value)
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: serde::de::DeserializeOwned + Clone + std::fmt::Debug,
    {
        let (api, params) = (self.of::<K>(), PatchParams::default());
        if patch.get("status").is_some() {
            api.patch_status(name, &params, &Patch::Merge(&patch)).await.unwrap();
        } else {
            api.patch(name, &params, &Patch::Merge(&patch)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }

    async fn cluster(&self) -> Cluster {
        let reference =
            |kind: &str, name: &str| json!({"apiGroup": "sim.remuda.io", "kind": kind, "name": name});
        self.create(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": {"name": "demo"},
            "spec": {
                "infrastructureRef": reference("SimCluster", "demo"),
                "controlPlaneRef": reference("SimControlPlane", "demo"),
            },
        }))
        .await
    }

    /// A Machine with its SimMachine and SimBootstrap, owned as its controller would see to.
    async fn machine(&self, name: &str, labels: Value) -> Machine {
        let reference = |kind: &str| json!({"apiGroup": "sim.remuda.io", "kind": kind, "name": name});
        let machine: Machine = self
            .create(json!({
                "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
                "metadata": {"name": name, "labels": labels},
                "spec": {
                    "clusterName": "demo", "version": "v1.34.0", "bootstrap": {"configRef": reference("SimBootstrap")},
                    "infrastructureRef": reference("SimMachine"),
                },
            }))
            .await;
        let metadata = json!({
            "name": name, "labels": {"cluster.x-k8s.io/cluster-name": "demo"}, "ownerReferences": [owner(&machine)],
        });
        let object = |kind: &str| json!({"apiVersion": "sim.remuda.io/v1", "kind": kind, "metadata": metadata, "spec": {}});
        self.create::<SimMachine>(object("SimMachine")).await;
        self.create::<SimBootstrap>(object("SimBootstrap")).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        machine
    }

    async fn end(self) {
        self.stage.end().await;
        self.api.down().await;
    }
}

fn owner<K: kube::Resource<DynamicType = ()>>(object: &K) -> Value {
    json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()), "name": object.meta().name, "uid": object.meta().uid,
        "controller": K::kind(&()) == "Machine",
    })
}

#[tokio::test(start_paused = true)]
async fn a_server_waits_for_infrastructure_control_plane_and_bootstrap_data() {
    let hand = Hand::start(Contract::V1Beta2).await;
    hand.cluster().await;
    hand.machine("w", json!({})).await;
    let server = || async { hand.of::<SimMachine>().get("w").await.unwrap() };
    let bootstrap = || async { hand.of::<SimBootstrap>().get("w").await.unwrap().status.unwrap_or_default() };
    assert_eq!((server().await.status, bootstrap().await.data_secret_name.as_str()), (None, ""));

    hand.patch::<Cluster>("demo", json!({"status": {"initialization": {"infrastructureProvisioned": true}}}))
        .await;
    assert_eq!(bootstrap().await.data_secret_name, "", "a worker has nothing to join yet");
    hand.patch::<Cluster>("demo", json!({"status": {"initialization": {"controlPlaneInitialized": true}}}))
        .await;
    let secret = bootstrap().await.data_secret_name;
    let secret = hand.of::<Secret>().get(&secret).await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("cluster.x-k8s.io/secret"));
    assert!(secret.data.as_ref().unwrap().contains_key("value"));
    assert_eq!(secret.owner_references()[0].kind, "SimBootstrap");
    assert_eq!(bootstrap().await.initialization.data_secret_created, Some(true));

    assert_eq!(server().await.finalizers().len(), 0, "no server before there is something to boot it with");
    hand.patch::<Machine>("w", json!({"spec": {"bootstrap": {"dataSecretName": "w-bootstrap"}}})).await;
    let made = server().await;
    assert_eq!(made.spec.provider_id, "sim://default/w");
    assert_eq!(made.status.clone().unwrap().initialization.provisioned, Some(true));
    assert!(!made.status.unwrap().ready, "that is the old contract");

    hand.of::<SimMachine>().delete("w", &Default::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(hand.of::<SimMachine>().get_opt("w").await.unwrap().is_none());
    let world = hand.stage.workloads().get(&ObjectKey::namespaced("default", "demo")).unwrap();
    assert!(!world.has_server("w"));
    hand.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_control_plane_server_waits_for_nobody_and_makes_the_cluster_answer() {
    let hand = Hand::start(Contract::V1Beta1).await;
    hand.cluster().await;
    hand.patch::<Cluster>("demo", json!({"status": {"initialization": {"infrastructureProvisioned": true}}}))
        .await;
    hand.machine("cp", json!({"cluster.x-k8s.io/control-plane": ""})).await;
    hand.patch::<Machine>("cp", json!({"spec": {"bootstrap": {"dataSecretName": "cp-bootstrap"}}})).await;
    let status = hand.of::<SimMachine>().get("cp").await.unwrap().status.unwrap();
    assert_eq!((status.ready, status.initialization.provisioned), (true, None), "the old contract");
    let world = hand.stage.workloads().get(&ObjectKey::namespaced("default", "demo")).unwrap();
    assert!(world.is_serving());
    assert_eq!(world.nodes()[0]["spec"]["providerID"], "sim://default/cp");
    hand.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_or_managed_elsewhere_is_left_alone() {
    let mut hand = Hand::start(Contract::V1Beta2).await;
    let cluster = hand.cluster().await;
    let infrastructure = |name: &str, annotations: Value| {
        json!({
            "apiVersion": "sim.remuda.io/v1", "kind": "SimCluster", "spec": {},
            "metadata": {"name": name, "ownerReferences": [owner(&cluster)], "annotations": annotations},
        })
    };
    hand.create::<SimCluster>(infrastructure("demo", json!({"cluster.x-k8s.io/paused": ""}))).await;
    hand.create::<SimCluster>(infrastructure("theirs", json!({"cluster.x-k8s.io/managed-by": "them"}))).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let infrastructures = hand.of::<SimCluster>();
    let paused = infrastructures.get("demo").await.unwrap();
    let conditions = paused.status.unwrap().conditions;
    assert_eq!(
        (conditions.len(), conditions[0].type_.as_str(), conditions[0].status.as_str()),
        (1, "Paused", "True")
    );
    assert!(paused.metadata.finalizers.is_none());
    assert_eq!(infrastructures.get("theirs").await.unwrap().status, None);

    hand.patch::<SimCluster>("demo", json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}}))
        .await;
    let free = hand.of::<SimCluster>().get("demo").await.unwrap();
    assert_eq!(free.status.unwrap().initialization.provisioned, Some(true));
    assert!(free.spec.control_plane_endpoint.is_valid());
    // A restart has nothing to say about it.
    let before = hand.api.writes().len();
    hand.stage.stop().await;
    hand.stage.start();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(hand.api.writes().len(), before);
    hand.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_without_machines_is_somebody_elses_and_up() {
    let hand = Hand::start(Contract::V1Beta2).await;
    let cluster = hand.cluster().await;
    hand.patch::<Cluster>("demo", json!({"spec": {"controlPlaneEndpoint": {"host": "h", "port": 1}}})).await;
    hand.patch::<Cluster>("demo", json!({"status": {"initialization": {"infrastructureProvisioned": true}}}))
        .await;
    hand.create::<SimControlPlane>(json!({
        "apiVersion": "sim.remuda.io/v1", "kind": "SimControlPlane",
        "metadata": {"name": "demo", "ownerReferences": [owner(&cluster)]},
        "spec": {"replicas": 0, "version": "v1.34.0"},
    }))
    .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let status = hand.of::<SimControlPlane>().get("demo").await.unwrap().status.unwrap();
    assert_eq!(status.external_managed_control_plane, Some(true));
    assert_eq!(status.initialization.control_plane_initialized, Some(true));
    let secret = hand.of::<Secret>().get("demo-kubeconfig").await.unwrap();
    assert_eq!(secret.labels()["cluster.x-k8s.io/cluster-name"], "demo");
    let text = String::from_utf8(secret.data.unwrap()["value"].0.clone()).unwrap();
    assert!(kube::config::Kubeconfig::from_yaml(&text).is_ok());
    hand.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_world_that_was_lost_is_made_anew_under_the_objects() {
    let hand = Hand::start(Contract::V1Beta2).await;
    hand.cluster().await;
    let there = json!({"infrastructureProvisioned": true, "controlPlaneInitialized": true});
    hand.patch::<Cluster>("demo", json!({"status": {"initialization": there}})).await;
    for (name, labels) in [("cp", json!({"cluster.x-k8s.io/control-plane": ""})), ("w", json!({}))] {
        hand.machine(name, labels).await;
        let secret = format!("{name}-bootstrap");
        hand.patch::<Machine>(name, json!({"spec": {"bootstrap": {"dataSecretName": secret}}})).await;
    }
    hand.stage.end().await;
    let writes = hand.api.writes().len();
    let mut stage = Stage::new(hand.api.client(), clock(), Arc::new(Nobody)).await;
    stage.start();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let world = stage.workloads().get(&ObjectKey::namespaced("default", "demo")).unwrap();
    assert_eq!(world.nodes().len(), 2);
    assert_eq!(hand.api.writes().len(), writes, "nothing changed for the objects");
    stage.end().await;
    hand.api.down().await;
}
