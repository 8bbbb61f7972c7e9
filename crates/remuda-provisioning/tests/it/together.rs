//! With the controllers of Cluster API, and those of our providers, at work.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use remuda_api::{
    core::{self, Machine, MachineDeployment},
    rke::{RkeCluster, RkeControlPlane},
};
use remuda_control::Ctx;
use remuda_testkit::Component;
use remuda_workload::KubeconfigSecret;
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::world::{World, edge, until};

/// Starts the controllers of Cluster API beside ours, and those of our providers if asked to.
fn others(world: &World, providers: bool) -> (Arc<Ctx>, CancellationToken, JoinHandle<()>) {
    // Under the same name as ours, as in a server.
    let ctx = Ctx::new(world.client_of(Component::Shared), "remuda-test").with_clock(Arc::new(world.clock));
    let acting = |component| Arc::new(ctx.acting_as(world.client_of(component), "remuda-test"));
    let stop = CancellationToken::new();
    let connect = Arc::new(KubeconfigSecret::new(&acting(Component::Workloads)));
    let workloads =
        remuda_workload::Workloads::new(acting(Component::Workloads), Default::default(), connect);
    let connections = remuda_workload::run(workloads.clone(), stop.clone());
    let cluster_api =
        remuda_capi::run(acting(Component::ClusterApi), Default::default(), workloads.clone(), stop.clone());
    let ours = remuda_rke::run(acting(Component::ControlPlane), Default::default(), workloads, stop.clone());
    let task = tokio::spawn(async move {
        let ours = async {
            if providers {
                ours.await;
            }
        };
        tokio::join!(connections, cluster_api, ours);
    });
    (Arc::new(ctx), stop, task)
}

#[tokio::test(start_paused = true)]
async fn nobody_fights_and_everything_goes() {
    let (world, running) = World::running().await;
    let (ctx, stop, task) = others(&world, false);
    world.create_demo().await;
    let clusters = world.api::<core::Cluster>();
    let infrastructure = world.api::<RkeCluster>();
    let owned = |found: &RkeCluster| found.owner_references().iter().any(|owner| owner.kind == "Cluster");
    world.eventually(&infrastructure, "demo", "belongs to the cluster", owned).await;
    let patch = Patch::Merge(json!({"spec": {"controlPlaneEndpoint": {"host": "localhost", "port": 6443}}}));
    infrastructure.patch("demo", &PatchParams::default(), &patch).await.unwrap();
    let patch = Patch::Merge(json!({"status": {"initialization": {"provisioned": true}}}));
    infrastructure.patch_status("demo", &PatchParams::default(), &patch).await.unwrap();
    let provisioned = |found: &core::Cluster| {
        let status = found.status.as_ref();
        status.is_some_and(|status| status.initialization.infrastructure_provisioned == Some(true))
    };
    world.eventually(&clusters, "demo", "has its infrastructure", provisioned).await;
    until("five machines", async || {
        world.api::<Machine>().list(&ListParams::default()).await.unwrap().items.len() == 5
    })
    .await;
    world.settle().await;
    // Nobody undid what the other wrote.
    let found = infrastructure.get("demo").await.unwrap();
    assert_eq!(found.spec.control_plane_endpoint.host, "localhost");
    assert!(owned(&found));
    let machines = world.api::<Machine>().list(&ListParams::default()).await.unwrap().items;
    let of_pool = |pool: &str| {
        let mut machines = machines.iter();
        machines.find(|machine| machine.labels()["rke.cattle.io/rke-machine-pool-name"] == pool).unwrap()
    };
    assert_eq!(of_pool("pool1").labels()["rke.cattle.io/etcd-role"], "true");
    assert_eq!(of_pool("workers").annotations()["rke.cattle.io/labels"], "{\"tier\":\"apps\"}");
    let before = world.writes().len();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let late = world.writes().split_off(before);
    // Only Cluster API has something to tell: that nobody answers in the cluster.
    assert!(
        late.iter().all(|write| write.contains("cluster.x-k8s.io") && write.ends_with("/status")),
        "{late:?}"
    );

    // A label goes to machines without replacing any.
    let names = |machines: &[Machine]| {
        let mut names: Vec<_> = machines.iter().map(ResourceExt::name_any).collect();
        names.sort();
        names
    };
    let cluster = world.clusters().get("demo").await.unwrap();
    let mut pools = serde_json::to_value(&cluster.spec.rke_config.unwrap().machine_pools).unwrap();
    pools[1]["labels"] = json!({"tier": "web"});
    world.edit("demo", json!({"spec": {"rkeConfig": {"machinePools": pools}}})).await;
    until("machines have the label", async || {
        let machines = world.api::<Machine>().list(&ListParams::default().labels("tier=web")).await;
        machines.unwrap().items.len() == 2
    })
    .await;
    let after = world.api::<Machine>().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(names(&after), names(&machines));

    world.clusters().delete("demo", &DeleteParams::default()).await.unwrap();
    until("it is gone", async || world.clusters().get_opt("demo").await.unwrap().is_none()).await;
    for kind in ["DigitaloceanMachine", "DigitaloceanMachineTemplate", "DigitaloceanConfig"] {
        until(&format!("no {kind}"), async || {
            world.driver(kind).list(&ListParams::default()).await.unwrap().items.is_empty()
        })
        .await;
    }
    assert!(world.api::<MachineDeployment>().list(&ListParams::default()).await.unwrap().items.is_empty());
    assert!(world.api::<RkeControlPlane>().get_opt("demo").await.unwrap().is_none());
    assert!(infrastructure.get_opt("demo").await.unwrap().is_none());
    stop.cancel();
    task.await.unwrap();
    ctx.stop().await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_custom_cluster_tells_what_it_waits_for_and_goes() {
    let (world, running) = World::running().await;
    let (ctx, stop, task) = others(&world, true);
    world.create("edge", edge()).await;
    let waiting = "waiting for at least one control plane, etcd, and worker node to be registered";
    let cluster = world.told("edge", "Ready", "Unknown", waiting).await;
    let infrastructure = world.api::<RkeCluster>().get("edge").await.unwrap();
    assert_eq!(infrastructure.spec.control_plane_endpoint.host, "", "no server has an address yet");
    world.settle().await;
    let before = world.writes().len();
    world.edit("edge", json!({"metadata": {"labels": {"a": "b"}}})).await;
    world.settle().await;
    // The label reaches the management Cluster, and that is all.
    let writes = world.writes().split_off(before);
    assert!(writes.len() <= 3, "{writes:?}");

    let id = cluster.status.unwrap().cluster_name;
    world.clusters().delete("edge", &DeleteParams::default()).await.unwrap();
    until("all of it is gone", async || {
        world.clusters().get_opt("edge").await.unwrap().is_none()
            && world.managements().get_opt(&id).await.unwrap().is_none()
            && world.api::<RkeControlPlane>().get_opt("edge").await.unwrap().is_none()
            && world.api::<RkeCluster>().get_opt("edge").await.unwrap().is_none()
            && world.api::<core::Cluster>().get_opt("edge").await.unwrap().is_none()
    })
    .await;
    stop.cancel();
    task.await.unwrap();
    ctx.stop().await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_made_a_credential_may_use_it() {
    let (world, running) = World::running().await;
    let secrets: Api<Secret> = Api::namespaced(world.client(), "cattle-global-data");
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "cc-x", "annotations": {"field.cattle.io/creatorId": "u-abc"}},
        "type": "provisioning.cattle.io/cloud-credential",
    }))
    .unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let noted = |secret: &Secret| secret.annotations().contains_key("field.cattle.io/creatorId");
    world.eventually(&secrets, "cc-x", "has lost the note", |secret| !noted(secret)).await;
    let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> =
        Api::namespaced(world.client(), "cattle-global-data");
    let binding = bindings.get("u-abc-cc-x").await.unwrap();
    assert_eq!(binding.subjects.unwrap()[0].name, "u-abc");
    running.stop().await;
}
