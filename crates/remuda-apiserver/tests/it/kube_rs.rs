//! kube-rs on the server, in the process and over a socket.

use std::{collections::BTreeMap, time::Duration};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Namespace, Pod, Secret},
};
use kube::{
    Api, Client, Discovery, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{DynamicObject, GroupVersionKind, PartialObjectMeta},
    discovery::Scope,
    runtime::{WatchStreamExt, finalizer, reflector, watcher},
};
use serde_json::json;

use crate::harness::{Server, *};

fn map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(config_map(name, json!({"k": value}))).unwrap()
}

async fn over_the_network(server: &Server) -> (Client, Listening) {
    let listening = server.listen(Some(admin())).await;
    let url = format!("http://{}", listening.address).parse().unwrap();
    (Client::try_from(kube::Config::new(url)).unwrap(), listening)
}

async fn typed_verbs(client: Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let created = maps.create(&PostParams::default(), &map("typed", "1")).await.unwrap();
    assert_eq!(maps.get("typed").await.unwrap(), created);
    assert_eq!(maps.get_opt("none").await.unwrap(), None);
    let taken = maps.create(&PostParams::default(), &map("typed", "1")).await.unwrap_err();
    assert!(
        matches!(&taken, kube::Error::Api(status) if status.reason == "AlreadyExists" && status.code == 409),
        "{taken}"
    );
    let mut newer = created.clone();
    newer.data = Some(BTreeMap::from([("k".to_owned(), "2".to_owned())]));
    let newer = maps.replace("typed", &PostParams::default(), &newer).await.unwrap();
    let stale = maps.replace("typed", &PostParams::default(), &created).await.unwrap_err();
    assert!(matches!(&stale, kube::Error::Api(status) if status.reason == "Conflict"), "{stale}");
    let merge = Patch::Merge(json!({"data": {"m": "x"}}));
    maps.patch("typed", &PatchParams::default(), &merge).await.unwrap();
    let strategic = Patch::Strategic(json!({"data": {"s": "x"}}));
    maps.patch("typed", &PatchParams::default(), &strategic).await.unwrap();
    let operations = serde_json::from_value(json!([{"op": "remove", "path": "/data/k"}])).unwrap();
    maps.patch("typed", &PatchParams::default(), &Patch::Json::<()>(operations)).await.unwrap();
    let applied =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "typed"}, "data": {"a": "y"}});
    let applied = maps.patch("typed", &PatchParams::apply("me"), &Patch::Apply(applied)).await.unwrap();
    let keys: Vec<&str> = applied.data.as_ref().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["a", "m", "s"]);
    assert!(applied.resource_version() > newer.resource_version());
    let metadata = maps.get_metadata("typed").await.unwrap();
    assert_eq!(metadata.uid(), created.uid());
    let listed = maps.list(&ListParams::default().fields("metadata.name=typed")).await.unwrap();
    assert_eq!(listed.items.len(), 1);
    assert!(maps.delete("typed", &DeleteParams::default()).await.unwrap().is_right(), "gone at once");
    let spaces: Api<Namespace> = Api::all(client);
    assert!(spaces.list_metadata(&ListParams::default()).await.unwrap().items.len() >= 4);
}

#[tokio::test]
async fn typed_requests_work_in_the_process() {
    typed_verbs(Server::start().await.kube()).await;
}

#[tokio::test]
async fn typed_requests_work_over_the_network() {
    let server = Server::start().await;
    let (client, _listening) = over_the_network(&server).await;
    typed_verbs(client).await;
}

async fn reflects(server: Server, client: Client, streaming: bool) {
    let maps: Api<ConfigMap> = Api::namespaced(client, "reflected");
    server.namespace("reflected").await;
    for n in 0..5 {
        maps.create(&PostParams::default(), &map(&format!("before-{n}"), "x")).await.unwrap();
    }
    let config = watcher::Config::default().page_size(2);
    let config = if streaming { config.streaming_lists() } else { config };
    let (reader, writer) = reflector::store();
    let stream = watcher(maps.clone(), config).default_backoff().reflect(writer).applied_objects();
    let mut following = tokio::task::JoinSet::new();
    following.spawn(stream.try_for_each(|_| async { Ok(()) }));
    tokio::time::timeout(PATIENCE, reader.wait_until_ready()).await.unwrap().unwrap();
    assert!((0..5).all(|n| reader.state().iter().any(|map| map.name_any() == format!("before-{n}"))));
    maps.create(&PostParams::default(), &map("after", "1")).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"k": "2"}}));
    maps.patch("after", &PatchParams::default(), &patch).await.unwrap();
    maps.delete("before-0", &DeleteParams::default()).await.unwrap();
    let started = std::time::Instant::now();
    loop {
        let state = reader.state();
        let after = state.iter().find(|map| map.name_any() == "after").and_then(|map| map.data.clone());
        let gone = !state.iter().any(|map| map.name_any() == "before-0");
        if gone && after.is_some_and(|data| data["k"] == "2") {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{state:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    following.shutdown().await;
}

#[tokio::test]
async fn reflectors_follow_in_the_process() {
    let server = Server::start().await;
    let client = server.kube();
    reflects(server, client, false).await;
}

#[tokio::test]
async fn reflectors_follow_streaming_lists() {
    let server = Server::start().await;
    let client = server.kube();
    reflects(server, client, true).await;
}

#[tokio::test]
async fn reflectors_follow_over_the_network() {
    let server = Server::start().await;
    let (client, _listening) = over_the_network(&server).await;
    reflects(server, client, false).await;
}

#[tokio::test]
async fn a_metadata_watcher_sees_metadata() {
    let server = Server::start().await;
    let secrets: Api<Secret> = Api::namespaced(server.kube(), "default");
    let metadata: Api<PartialObjectMeta<Secret>> = Api::namespaced(server.kube(), "default");
    let secret = json!({"metadata": {"name": "s", "labels": {"a": "b"}}, "stringData": {"k": "v"}});
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let config = watcher::Config::default().labels("a=b");
    let mut stream = Box::pin(watcher(metadata, config).applied_objects());
    let first = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(first.name_any(), "s");
}

#[tokio::test]
async fn discovery_finds_kinds_both_ways() {
    let server = Server::start().await;
    let (remote, _listening) = over_the_network(&server).await;
    for client in [server.kube(), remote] {
        let plain = Discovery::new(client.clone()).run().await.unwrap();
        let aggregated = Discovery::new(client.clone()).run_aggregated().await.unwrap();
        for discovery in [plain, aggregated] {
            let gvk = GroupVersionKind::gvk("apps", "v1", "Deployment");
            let (resource, capabilities) = discovery.resolve_gvk(&gvk).unwrap();
            assert_eq!((resource.plural.as_str(), &capabilities.scope), ("deployments", &Scope::Namespaced));
            assert!(capabilities.supports_operation("watch"));
            assert!(capabilities.subresources.iter().any(|(sub, _)| sub.plural.ends_with("scale")));
            let (resource, capabilities) =
                discovery.resolve_gvk(&GroupVersionKind::gvk("", "v1", "Node")).unwrap();
            assert_eq!(capabilities.scope, Scope::Cluster);
            let nodes: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            assert!(nodes.list(&ListParams::default()).await.unwrap().items.is_empty());
        }
    }
    let version = server.kube().apiserver_version().await.unwrap();
    assert_eq!(version.major, "1");
}

#[derive(Debug, thiserror::Error)]
#[error("failed")]
struct Failed;

#[tokio::test]
async fn a_finalizer_cleans_up_before_the_end() {
    let server = Server::start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(server.kube());
    maps.create(&PostParams::default(), &map("f", "1")).await.unwrap();
    let run = async |object: ConfigMap| {
        let seen = parking_lot::Mutex::new("nothing");
        finalizer(&maps, "x.io/cleanup", object.into(), |event| {
            *seen.lock() = match event {
                finalizer::Event::Apply(_) => "apply",
                finalizer::Event::Cleanup(_) => "cleanup",
            };
            async { Ok::<_, Failed>(kube::runtime::controller::Action::await_change()) }
        })
        .await
        .unwrap();
        seen.into_inner()
    };
    assert_eq!(run(maps.get("f").await.unwrap()).await, "nothing", "the first run adds the finalizer");
    assert_eq!(maps.get("f").await.unwrap().finalizers(), ["x.io/cleanup"]);
    assert_eq!(run(maps.get("f").await.unwrap()).await, "apply");
    assert!(maps.delete("f", &DeleteParams::default()).await.unwrap().is_left(), "held");
    assert_eq!(run(maps.get("f").await.unwrap()).await, "cleanup");
    assert_eq!(maps.get_opt("f").await.unwrap(), None);
}

/// One try to take or keep a lease, as leader election does it.
async fn acquire(leases: &Api<Lease>, me: &str, now: &str, expired: bool) -> bool {
    let mut lease = match leases.get_opt("leader").await.unwrap() {
        Some(lease) => lease,
        None => serde_json::from_value(json!({"metadata": {"name": "leader"}, "spec": {}})).unwrap(),
    };
    let spec = lease.spec.get_or_insert_default();
    let holder = spec.holder_identity.clone().unwrap_or_default();
    if !holder.is_empty() && holder != me && !expired {
        return false;
    }
    if holder != me {
        spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |count| count + 1));
        spec.acquire_time = serde_json::from_value(json!(now)).unwrap();
    }
    spec.holder_identity = Some(me.to_owned());
    spec.lease_duration_seconds = Some(15);
    spec.renew_time = serde_json::from_value(json!(now)).unwrap();
    let written = if lease.metadata.resource_version.is_some() {
        leases.replace("leader", &PostParams::default(), &lease).await
    } else {
        leases.create(&PostParams::default(), &lease).await
    };
    match written {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 409 => false,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn leader_election_has_one_winner_at_a_time() {
    let server = Server::start().await;
    let leases: Api<Lease> = Api::namespaced(server.kube(), "kube-system");
    let contenders: Vec<String> = (0..8).map(|n| format!("c{n}")).collect();
    let first = "2026-11-15T18:07:58.123456Z";
    let race = contenders.iter().map(|me| acquire(&leases, me, first, false));
    let won: Vec<bool> = futures::future::join_all(race).await;
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
    let leader = leases.get("leader").await.unwrap();
    let stored = serde_json::to_value(&leader).unwrap();
    assert_eq!(
        (&stored["spec"]["acquireTime"], &stored["spec"]["leaseTransitions"]),
        (&json!(first), &json!(0))
    );
    let holder = leader.spec.unwrap().holder_identity.unwrap();
    assert!(acquire(&leases, &holder, "2026-11-15T18:08:00.000000Z", false).await, "the holder renews");
    // When it is gone, one of the others takes over.
    let race = contenders
        .iter()
        .filter(|me| **me != holder)
        .map(|me| acquire(&leases, me, "2026-11-15T18:09:00.000001Z", true));
    let won: Vec<bool> = futures::future::join_all(race).await;
    assert!(won.iter().any(|won| *won));
    let spec = leases.get("leader").await.unwrap().spec.unwrap();
    assert_ne!(spec.holder_identity, Some(holder));
}

#[tokio::test]
async fn pods_can_be_read_as_their_own_type() {
    let server = Server::start().await;
    let pods: Api<Pod> = Api::default_namespaced(server.kube());
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let created = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    assert_eq!(created.status.unwrap().phase.as_deref(), Some("Pending"));
}
