//! Nodes of connected clusters as management Nodes, and what they are together.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use remuda_api::management;
use remuda_auth::identity::User;
use remuda_gateway::{DrainRefused, DrainRequest, TunnelConnect};
use remuda_testkit::until;
use remuda_workload::{Workloads, drain::Rules};
use serde_json::{Value, json};

use crate::{
    downstream::Downstream,
    world::{TOKEN, World},
};

const CLUSTER: &str = "c-m-1";

struct Site {
    world: World,
    downstream: Downstream,
    nodes: Api<Node>,
}

impl Site {
    /// `provisioned` clusters have a provisioning Cluster, and so a Cluster of Cluster API; others were imported.
    async fn start(provisioned: bool) -> Self {
        let world = World::start().await;
        match provisioned {
            true => world.cluster(CLUSTER, "demo", TOKEN).await,
            false => {
                world.bare_cluster(CLUSTER, "demo", "false").await;
                world.token(CLUSTER, TOKEN).await;
            }
        }
        let connect = Arc::new(TunnelConnect::new(&world.gateway, None));
        let workloads =
            Workloads::new(world.workloads_ctx.clone(), remuda_workload::Options::default(), connect);
        let (gateway, mirrored, stop) = (world.gateway.clone(), workloads.clone(), world.stop.clone());
        tokio::spawn(async move { gateway.mirror_nodes(mirrored, stop).await });
        tokio::spawn(remuda_workload::run(workloads, world.stop.clone()));
        let downstream = Downstream::start().await;
        let nodes = Api::all(Self::client(&downstream));
        Self { world, downstream, nodes }
    }

    fn client(downstream: &Downstream) -> Client {
        Client::new(downstream.api.client_service(User::new("x", ["system:masters"])), "default")
    }

    async fn node(&self, name: &str, status: Value) {
        let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        self.nodes.create(&PostParams::default(), &node).await.unwrap();
        self.say(name, status).await;
    }

    async fn say(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        self.nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn mirrored(&self) -> Vec<management::Node> {
        let api: Api<management::Node> = Api::namespaced(self.world.client.clone(), CLUSTER);
        api.list(&ListParams::default()).await.unwrap().items
    }

    async fn until_mirrored(&self, what: &str, so: impl Fn(&[management::Node]) -> bool) {
        until(what, async || so(&self.mirrored().await)).await;
    }

    async fn until_other(&self, field: &str, value: Value) {
        until(&format!("{field} is {value}"), async || {
            self.world.managed(CLUSTER).await.status.unwrap_or_default().other.get(field) == Some(&value)
        })
        .await;
    }
}

fn ready(status: &str, heartbeat: &str) -> Value {
    json!({
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": status, "lastHeartbeatTime": heartbeat}],
        "nodeInfo": {
            "architecture": "arm64", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
            "kubeletVersion": "", "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "",
        },
    })
}

fn condition(node: &management::Node, kind: &str) -> String {
    let conditions = &node.status.as_ref().unwrap().conditions;
    let found = conditions.iter().find(|known| known.kind == kind);
    found.map(|known| format!("{} {}", known.status, known.reason).trim().to_owned()).unwrap_or_default()
}

#[tokio::test]
async fn nodes_of_an_imported_cluster_come_and_go() {
    let site = Site::start(false).await;
    site.node("n1", ready("True", "2026-01-01T00:00:00Z")).await;
    let agent = site.downstream.connect(site.world.address, TOKEN).await.unwrap();
    site.until_mirrored("n1 is there", |nodes| nodes.len() == 1 && condition(&nodes[0], "Ready") == "True")
        .await;
    let first = site.mirrored().await.remove(0);
    assert_eq!(first.status.as_ref().unwrap().node_name, "n1");
    assert_eq!(first.metadata.labels.as_ref().unwrap()["management.cattle.io/nodename"], "n1");
    site.until_other("linuxWorkerCount", json!(1)).await;
    let status = site.world.managed(CLUSTER).await.status.unwrap();
    assert_eq!((status.driver.as_str(), status.info.unwrap().arch.as_str()), ("imported", "arm64"));

    // A heartbeat writes nothing: what comes after it is seen, and the object is the same.
    site.say("n1", ready("True", "2026-01-01T00:05:00Z")).await;
    site.node("n2", ready("False", "2026-01-01T00:05:00Z")).await;
    site.until_mirrored("n2 is there", |nodes| nodes.len() == 2).await;
    let again =
        site.mirrored().await.into_iter().find(|node| node.metadata.uid == first.metadata.uid).unwrap();
    assert_eq!(again.metadata.resource_version, first.metadata.resource_version);
    site.until_other("capacity", json!({"cpu": "8", "memory": "16777216Ki", "pods": "220"})).await;

    // One that lies adds nothing, and one that goes takes its share along.
    site.say("n2", json!({"capacity": {"cpu": "-4", "memory": "1e50", "pods": "-1"}})).await;
    site.until_other("capacity", json!({"cpu": "4", "memory": "8388608Ki", "pods": "110"})).await;
    let others: Api<management::Node> = Api::namespaced(site.world.client.clone(), CLUSTER);
    others.create(&PostParams::default(), &management::Node::named("of-others")).await.unwrap();
    site.nodes.delete("n2", &DeleteParams::default()).await.unwrap();
    site.until_mirrored("n2 is gone", |nodes| nodes.len() == 2).await;
    let names: Vec<String> =
        site.mirrored().await.into_iter().filter_map(|node| node.metadata.name).collect();
    assert!(names.contains(&"of-others".to_owned()), "what others made stays: {names:?}");
    others.delete("of-others", &DeleteParams::default()).await.unwrap();

    // Away, they are marked and stay; back, they are as they were.
    drop(agent);
    site.until_mirrored("it is marked", |nodes| {
        nodes.len() == 1 && condition(&nodes[0], "Ready") == "Unknown Disconnected"
    })
    .await;
    let status = site.world.managed(CLUSTER).await.status.unwrap();
    assert_eq!(
        (status.node_count, &status.other["capacity"]["cpu"]),
        (1, &json!("4")),
        "as it was seen last"
    );
    let _agent = site.downstream.connect(site.world.address, TOKEN).await.unwrap();
    site.until_mirrored("it is back", |nodes| condition(&nodes[0], "Ready") == "True").await;

    // They go with their cluster.
    let clusters = site.world.dynamic("management.cattle.io/v3", "Cluster", None);
    clusters.delete(CLUSTER, &DeleteParams::default()).await.unwrap();
    site.until_mirrored("all are gone", <[management::Node]>::is_empty).await;
}

#[tokio::test]
async fn a_node_is_drained_with_the_rights_of_who_asked() {
    let site = Site::start(false).await;
    site.node("n1", ready("True", "2026-01-01T00:00:00Z")).await;
    let _agent = site.downstream.connect(site.world.address, TOKEN).await.unwrap();
    site.until_mirrored("n1 is there", |nodes| nodes.len() == 1).await;
    let request = || DrainRequest {
        rules: Rules { force: true, ..Rules::default() },
        grace_seconds: Some(0),
        timeout: Duration::from_secs(60),
    };
    let cordon = Patch::Merge(json!({"spec": {"unschedulable": true}}));
    site.nodes.patch("n1", &PatchParams::default(), &cordon).await.unwrap();
    // Who may not list Pods there cannot drain it.
    let nobody =
        Client::new(site.downstream.api.client_service(User::new("eve", Vec::<String>::new())), "default");
    assert!(site.world.gateway.drain_node(CLUSTER, "n1", nobody, request(), None).is_ok());
    site.until_mirrored("it failed", |nodes| condition(&nodes[0], "Drained") == "False DrainFailed").await;
    // An empty node is drained at once.
    assert!(
        site.world.gateway.drain_node(CLUSTER, "n1", Site::client(&site.downstream), request(), None).is_ok()
    );
    site.until_mirrored("it is drained", |nodes| condition(&nodes[0], "Drained") == "True").await;
    assert!(!site.world.gateway.stop_drain(CLUSTER, "n1"), "it is over");
    // Uncordoned, it is not drained any more.
    let uncordon = Patch::Merge(json!({"spec": {"unschedulable": null}}));
    site.nodes.patch("n1", &PatchParams::default(), &uncordon).await.unwrap();
    site.until_mirrored("it is open", |nodes| condition(&nodes[0], "Drained").is_empty()).await;
}

#[tokio::test]
async fn a_drain_that_cannot_end_is_stopped() {
    let site = Site::start(false).await;
    site.node("n1", ready("True", "2026-01-01T00:00:00Z")).await;
    let _agent = site.downstream.connect(site.world.address, TOKEN).await.unwrap();
    site.until_mirrored("n1 is there", |nodes| nodes.len() == 1).await;
    // Its Pod stays for ever: nobody takes the finalizer away.
    let client = Site::client(&site.downstream);
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    until("there is a namespace", async || namespaces.get("default").await.is_ok()).await;
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), "default");
    let pod = json!({
        "metadata": {"name": "stuck", "finalizers": ["example.com/stays"]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let rules = Rules { force: true, ..Rules::default() };
    let request = DrainRequest { rules, grace_seconds: Some(0), timeout: Duration::from_secs(600) };
    let (gateway, cluster) = (&site.world.gateway, CLUSTER);
    assert!(gateway.drain_node(cluster, "n1", client.clone(), request.clone(), None).is_ok());
    site.until_mirrored("it is being drained", |nodes| condition(&nodes[0], "Drained") == "Unknown").await;
    let again = gateway.drain_node(cluster, "n1", client, request, None);
    assert_eq!(again, Err(DrainRefused::Running), "once at a time");
    assert!(gateway.stop_drain(cluster, "n1"));
    site.until_mirrored("it is stopped", |nodes| condition(&nodes[0], "Drained").is_empty()).await;
}
