//! Clusters as clients see them.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Node, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, Client, ResourceExt,
    api::{EvictParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use remuda_testkit::time::TimerClock;
use serde_json::json;

use super::*;

fn workloads() -> Workloads {
    Workloads::new(1, Arc::new(TimerClock::starting_at(Timestamp::from_second(1_800_000_000).unwrap())))
}

fn key() -> ObjectKey {
    ObjectKey::namespaced("default", "demo")
}

fn plan(control_plane: bool, seconds: u64) -> ServerPlan {
    let step = Some(Duration::from_secs(seconds));
    ServerPlan {
        provider_id: "sim://default/a".to_owned(),
        control_plane,
        version: "v1.34.0".to_owned(),
        address: "10.0.0.1".to_owned(),
        create: step,
        boot: step,
        ready: step,
    }
}

fn up() -> (Workloads, Arc<WorkloadCluster>) {
    let workloads = workloads();
    let cluster = workloads.ensure(&key());
    cluster.advance_server("cp", &plan(true, 0));
    (workloads, cluster)
}

fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_is_made_then_a_node_then_ready() {
    let workloads = workloads();
    let cluster = workloads.ensure(&key());
    let client = cluster.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let plan = plan(true, 10);
    let first = cluster.advance_server("a", &plan);
    assert_eq!((first.made, first.next), (false, Some(Duration::from_secs(10))));
    assert!(nodes.list(&ListParams::default()).await.is_err(), "nothing answers yet");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(cluster.advance_server("a", &plan).made);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(cluster.advance_server("a", &plan).began_to_serve);
    let node = nodes.get("a").await.unwrap();
    assert_eq!(node.spec.unwrap().provider_id.as_deref(), Some("sim://default/a"));
    assert!(!super::cluster::node_is_ready(&cluster.nodes()[0]));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let last = cluster.advance_server("a", &plan);
    assert_eq!((last.made, last.next, last.began_to_serve), (true, None, false));
    assert!(super::cluster::node_is_ready(&cluster.nodes()[0]));
    // The last control plane server takes the API with it.
    cluster.remove_server("a");
    assert!(nodes.get("a").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_worker_joins_when_there_is_something_to_join() {
    let workloads = workloads();
    let cluster = workloads.ensure(&key());
    let waiting = cluster.advance_server("w", &plan(false, 0));
    assert!(waiting.made && waiting.next.is_some() && cluster.nodes().is_empty());
    cluster.set_external(true);
    assert_eq!(cluster.advance_server("w", &plan(false, 0)).next, None);
    assert_eq!(cluster.nodes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn objects_are_created_patched_watched_and_deleted() {
    let (_workloads, cluster) = up();
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let mut map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).unwrap();
    let made = maps.create(&PostParams::default(), &map).await.unwrap();
    assert_eq!(code(maps.create(&PostParams::default(), &map).await), 409);
    let since = made.resource_version().unwrap();
    let events = maps.watch(&WatchParams::default().timeout(200), &since).await.unwrap().boxed();

    let merge = Patch::Merge(json!({"data": {"a": "1"}}));
    maps.patch("m", &PatchParams::default(), &merge).await.unwrap();
    let same = maps.patch("m", &PatchParams::default(), &merge).await.unwrap();
    let stale = Patch::Merge(json!({"metadata": {"resourceVersion": since}, "data": {"a": "2"}}));
    assert_eq!(code(maps.patch("m", &PatchParams::default(), &stale).await), 409);
    map.metadata.resource_version = same.resource_version();
    map.data = Some([("b".to_owned(), "2".to_owned())].into());
    let replaced = maps.replace("m", &PostParams::default(), &map).await.unwrap();
    assert_eq!(replaced.uid(), made.uid());
    maps.delete("m", &Default::default()).await.unwrap();
    assert_eq!(code(maps.get("m").await), 404);
    let events: Vec<_> = events.try_collect().await.unwrap();
    let told: Vec<&str> = events
        .iter()
        .map(|event| match event {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            _ => "other",
        })
        .collect();
    // The patch that changed nothing told nobody.
    assert_eq!(told, ["modified", "modified", "deleted"]);
}

#[tokio::test(start_paused = true)]
async fn applied_objects_come_to_be_and_are_merged() {
    let (_workloads, cluster) = up();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "kube-system");
    let params = PatchParams::apply("test").force();
    for data in [json!({"a": "1"}), json!({"b": "2"})] {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data,
        });
        maps.patch("m", &params, &Patch::Apply(map)).await.unwrap();
    }
    assert_eq!(maps.get("m").await.unwrap().data.unwrap().len(), 2);
    let elsewhere: Api<ConfigMap> = Api::namespaced(cluster.client(), "nowhere");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    assert_eq!(code(elsewhere.patch("m", &params, &Patch::Apply(map)).await), 404);
}

#[tokio::test(start_paused = true)]
async fn a_budget_refuses_evictions_until_there_are_enough_pods() {
    let (_workloads, cluster) = up();
    let labels = json!({"metadata": {"labels": {"app": "web"}}});
    for name in ["web-0", "web-1"] {
        cluster.place_pod("web", name, "cp", labels.clone());
    }
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "web");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client(), "web");
    let budget = json!({
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    });
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    let refused = pods.evict("web-0", &EvictParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!() };
    assert_eq!(status.code, 429);
    let causes = status.details.unwrap().causes;
    assert_eq!(causes[0].message, "The disruption budget web needs 2 healthy pods and has 2 currently");
    cluster.place_pod("web", "web-2", "cp", labels);
    pods.evict("web-0", &EvictParams::default()).await.unwrap();
    assert_eq!(code(pods.get("web-0").await), 404);
    assert_eq!(code(pods.evict("web-0", &EvictParams::default()).await), 404);
    let list = pods.list(&ListParams::default().fields("spec.nodeName=cp").labels("app=web")).await.unwrap();
    assert_eq!(list.items.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pod_ends_when_it_has_ended_and_never_on_a_node_that_is_silent() {
    let (_workloads, cluster) = up();
    let slow = json!({"metadata": {"annotations": {crate::names::TERMINATION_SECONDS: "30"}}});
    cluster.place_pod("web", "slow", "cp", slow.clone());
    cluster.place_pod("web", "stuck", "cp", slow);
    let pods: Api<Pod> = Api::namespaced(cluster.client(), "web");
    pods.evict("slow", &EvictParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert!(pods.get("slow").await.unwrap().metadata.deletion_timestamp.is_some());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(code(pods.get("slow").await), 404);
    cluster.set_node_ready("cp", "Unknown", "NodeStatusUnknown", "");
    pods.evict("stuck", &EvictParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(pods.get("stuck").await.is_ok());
    // With its Node it goes at last.
    Api::<Node>::all(cluster.client()).delete("cp", &Default::default()).await.unwrap();
    assert_eq!(code(pods.get("stuck").await), 404);
}

#[tokio::test(start_paused = true)]
async fn a_cluster_refuses_or_hangs_when_told() {
    let (workloads, cluster) = up();
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    let watch = namespaces.watch(&WatchParams::default(), "0").await.unwrap();
    let mut watch = watch.boxed();
    cluster.set_reach(Reach::Hangs);
    let asked = tokio::time::timeout(Duration::from_secs(3600), namespaces.get("default")).await;
    assert!(asked.is_err(), "no answer");
    cluster.set_reach(Reach::Answers);
    assert!(namespaces.get("default").await.is_ok());
    cluster.set_reach(Reach::Refuses);
    assert!(namespaces.get("default").await.is_err());
    assert!(watch.next().await.is_none_or(|event| event.is_err()));
    cluster.set_reach(Reach::Answers);
    workloads.remove(&key());
    assert!(namespaces.get("default").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn discovery_is_enough_for_clients() {
    let (_workloads, cluster) = up();
    let client: Client = cluster.client();
    assert_eq!(client.apiserver_version().await.unwrap().major, "1");
    let discovery = kube::discovery::Discovery::new(client).run().await.unwrap();
    let (resource, _) =
        discovery.resolve_gvk(&kube::core::GroupVersionKind::gvk("apps", "v1", "DaemonSet")).unwrap();
    assert_eq!(resource.plural, "daemonsets");
}

#[test]
fn an_idle_cluster_of_four_nodes_is_small() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    let (_workloads, cluster) = up();
    for name in ["a", "b", "c"] {
        cluster.advance_server(name, &plan(false, 0));
    }
    // Each Node is written a few times before it is left alone.
    for name in ["a", "b", "c", "cp"] {
        cluster.set_node_ready(name, "False", "x", "");
        cluster.set_node_ready(name, "True", "KubeletReady", "");
    }
    assert!(cluster.bytes() < 20 * 1024, "{} bytes", cluster.bytes());
}

#[tokio::test]
async fn clusters_are_served_over_tcp_to_whoever_has_the_token() {
    let (workloads, _cluster) = up();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(listen::serve(workloads.clone(), listener, stop.clone()));
    while workloads.address().is_none() {
        tokio::task::yield_now().await;
    }
    let text = workloads.kubeconfig(&key());
    assert!(text.contains(&address.to_string()));
    let config = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    let config = kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
    let client = Client::try_from(config.clone()).unwrap();
    let nodes: Api<Node> = Api::all(client);
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 1);
    let mut wrong = config;
    wrong.auth_info.token = Some("guess".to_owned().into());
    let nodes: Api<Node> = Api::all(Client::try_from(wrong).unwrap());
    assert_eq!(code(nodes.list(&ListParams::default()).await), 401);
    stop.cancel();
    tasks.join_all().await;
}
