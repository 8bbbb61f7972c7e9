//! Claims of addresses: who gets which, who waits, and what is given back.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use remuda_api::{
    core::Cluster,
    ipam::{GlobalInClusterIpPool, InClusterIpPool, IpAddress, IpAddressClaim},
};
use serde_json::{Value, json};

use crate::world::{World, until};

const PROMISED: &str = "remuda.io/promised-addresses";
const PAUSED: &str = "cluster.x-k8s.io/paused";

async fn create_pool(world: &World, name: &str, addresses: Value) -> InClusterIpPool {
    let pool = pool(name, addresses, 24);
    world.api().create(&PostParams::default(), &pool).await.unwrap()
}

fn pool(name: &str, addresses: Value, prefix: i64) -> InClusterIpPool {
    serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"addresses": addresses, "prefix": prefix, "gateway": "10.0.0.1"},
    }))
    .unwrap()
}

fn claim(name: &str, kind: &str, pool: &str) -> IpAddressClaim {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": pool}},
    }))
    .unwrap()
}

async fn create_claim(world: &World, name: &str, pool: &str) -> IpAddressClaim {
    let claim = claim(name, "InClusterIPPool", pool);
    world.api().create(&PostParams::default(), &claim).await.unwrap()
}

/// The address a claim has, or what its condition says.
async fn told(api: &Api<IpAddressClaim>, name: &str) -> String {
    let claim = api.get(name).await.unwrap();
    let Some(status) = claim.status else { return "nothing".to_owned() };
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let ready = ready.map(|ready| (ready.status.as_str(), format!("{}: {}", ready.reason, ready.message)));
    match ready {
        Some(("True", _)) => {
            let addresses: Api<IpAddress> =
                Api::namespaced(api.clone().into_client(), &claim.metadata.namespace.unwrap());
            addresses.get(&status.address_ref.name).await.unwrap().spec.address
        }
        Some((_, why)) => {
            assert_eq!(status.address_ref.name, "");
            why
        }
        None => "nothing".to_owned(),
    }
}

async fn says(world: &World, name: &str, expected: &str) {
    let mut last = String::new();
    for _ in 0..4000 {
        last = told(&world.api(), name).await;
        if last == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{name} has {last:?} and not {expected:?}");
}

async fn counts(world: &World, name: &str) -> String {
    let pool: InClusterIpPool = world.api().get(name).await.unwrap();
    let found = pool.status.and_then(|status| status.ip_addresses).unwrap_or_default();
    format!("{} of {}, {} free, {} out", found.used, found.total, found.free, found.out_of_range)
}

async fn counted(world: &World, name: &str, expected: &str) {
    until(expected, async || counts(world, name).await == expected).await;
}

async fn delete(world: &World, claim: &str) {
    world.api::<IpAddressClaim>().delete(claim, &DeleteParams::default()).await.unwrap();
}

async fn gone<K>(world: &World, name: &str)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    until(&format!("{name} is gone"), async || world.api::<K>().get_opt(name).await.unwrap().is_none()).await;
}

async fn annotate(world: &World, pool: &str, annotations: Value) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    world.api::<InClusterIpPool>().patch(pool, &PatchParams::default(), &patch).await.unwrap();
}

async fn settled(world: &World) {
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = world.requests().len();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let since: Vec<_> =
        world.requests()[before..].iter().filter(|request| !request.contains(" watch ")).cloned().collect();
    assert_eq!(since, Vec::<String>::new(), "settled controllers ask nothing");
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_given_the_first_free_address_and_gives_it_back() {
    let world = World::start().await;
    let running = world.run();
    let pool = create_pool(&world, "lan", json!(["10.0.0.0-10.0.0.3"])).await;
    let mut wanted = claim("a", "InClusterIPPool", "lan");
    wanted.metadata.labels = Some([("cluster.x-k8s.io/cluster-name".to_owned(), "demo".to_owned())].into());
    let cluster =
        json!({"metadata": {"name": "demo"}, "spec": {"controlPlaneEndpoint": {"host": "h", "port": 1}}});
    let cluster: Cluster = serde_json::from_value(cluster).unwrap();
    world.api().create(&PostParams::default(), &cluster).await.unwrap();
    let first = world.api().create(&PostParams::default(), &wanted).await.unwrap();
    // Neither the network's address nor the gateway.
    says(&world, "a", "10.0.0.2").await;
    create_claim(&world, "b", "lan").await;
    says(&world, "b", "10.0.0.3").await;

    let address = world.api::<IpAddress>().get("a").await.unwrap();
    assert_eq!((address.spec.prefix, address.spec.gateway.as_str()), (Some(24), "10.0.0.1"));
    assert_eq!(
        (&address.spec.claim_ref.name, &address.spec.pool_ref),
        (&"a".to_owned(), &first.spec.pool_ref)
    );
    assert_eq!(address.finalizers(), ["ipam.cluster.x-k8s.io/ProtectAddress"]);
    assert_eq!(address.labels()["cluster.x-k8s.io/cluster-name"], "demo");
    let owners = serde_json::to_value(address.owner_references()).unwrap();
    assert_eq!(
        owners,
        json!([
            {"apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "name": "a", "uid": first.uid(),
             "controller": true, "blockOwnerDeletion": true},
            {"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool", "name": "lan",
             "uid": pool.uid(), "controller": false, "blockOwnerDeletion": true},
        ])
    );
    counted(&world, "lan", "2 of 2, 0 free, 0 out").await;
    let promised = async || {
        world.api::<InClusterIpPool>().get("lan").await.unwrap().annotations().get(PROMISED).cloned()
    };
    until("promises are taken back", async || promised().await.is_none()).await;

    // The third waits, and is told why, until one is given back.
    create_claim(&world, "c", "lan").await;
    says(&world, "c", "PoolExhausted: no address is free in InClusterIPPool lan").await;
    settled(&world).await;
    delete(&world, "a").await;
    says(&world, "c", "10.0.0.2").await;
    gone::<IpAddressClaim>(&world, "a").await;
    assert!(world.api::<IpAddress>().get_opt("a").await.unwrap().is_none());
    settled(&world).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_stays_while_an_address_of_it_is_in_use() {
    let world = World::start().await;
    let running = world.run();
    create_pool(&world, "lan", json!(["10.0.0.5-10.0.0.9"])).await;
    create_claim(&world, "a", "lan").await;
    says(&world, "a", "10.0.0.5").await;
    world.api::<InClusterIpPool>().delete("lan", &DeleteParams::default()).await.unwrap();
    create_claim(&world, "b", "lan").await;
    says(&world, "b", "PoolNotReady: InClusterIPPool lan is being deleted").await;
    // An address that is deleted by hand is kept for its claim.
    world.api::<IpAddress>().delete("a", &DeleteParams::default()).await.unwrap();
    settled(&world).await;
    says(&world, "a", "10.0.0.5").await;
    delete(&world, "a").await;
    gone::<InClusterIpPool>(&world, "lan").await;
    says(&world, "b", "PoolNotReady: InClusterIPPool lan does not exist").await;
    // It comes back, and is one that can be used.
    create_pool(&world, "lan", json!(["10.0.0.7"])).await;
    says(&world, "b", "10.0.0.7").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_for_all_namespaces_gives_each_address_once() {
    let world = World::start().await;
    let running = world.run();
    let wide: GlobalInClusterIpPool = serde_json::from_value(json!({
        "metadata": {"name": "wide"}, "spec": {"addresses": ["fd00::10-fd00::11"], "prefix": 64},
    }))
    .unwrap();
    let pools: Api<GlobalInClusterIpPool> = Api::all(world.client());
    pools.create(&PostParams::default(), &wide).await.unwrap();
    let other: Namespace = serde_json::from_value(json!({"metadata": {"name": "other"}})).unwrap();
    Api::<Namespace>::all(world.client()).create(&PostParams::default(), &other).await.unwrap();
    let elsewhere: Api<IpAddressClaim> = Api::namespaced(world.client(), "other");
    let wanted = claim("a", "GlobalInClusterIPPool", "wide");
    // The same name in two namespaces is two claims.
    for api in [world.api(), elsewhere.clone()] {
        api.create(&PostParams::default(), &wanted).await.unwrap();
    }
    let mut found = BTreeSet::new();
    for api in [world.api(), elsewhere.clone()] {
        until("both have one", async || told(&api, "a").await.starts_with("fd00::")).await;
        found.insert(told(&api, "a").await);
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["fd00::10", "fd00::11"]);
    world.api().create(&PostParams::default(), &claim("b", "GlobalInClusterIPPool", "wide")).await.unwrap();
    says(&world, "b", "PoolExhausted: no address is free in GlobalInClusterIPPool wide").await;
    elsewhere.delete("a", &DeleteParams::default()).await.unwrap();
    until("what was free elsewhere is given here", async || {
        told(&world.api(), "b").await.starts_with("fd00::")
    })
    .await;
    until("it is counted", async || {
        let pool = pools.get("wide").await.unwrap();
        pool.status
            .and_then(|status| status.ip_addresses)
            .is_some_and(|counts| counts.used == 2 && counts.free == 0)
    })
    .await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_servers_do_not_give_one_address_twice() {
    let world = World::start().await;
    // Both believe that they lead.
    let running = [world.run(), world.run()];
    create_pool(&world, "lan", json!(["10.0.0.10-10.0.0.40"])).await;
    for number in 0..30 {
        create_claim(&world, &format!("c-{number}"), "lan").await;
    }
    counted(&world, "lan", "30 of 31, 1 free, 0 out").await;
    let list = world.api::<IpAddress>().list(&Default::default()).await.unwrap();
    let found: BTreeSet<String> = list.items.iter().map(|address| address.spec.address.clone()).collect();
    assert_eq!(found.len(), 30, "{found:?}");
    // Half of them go while others come.
    for number in 0..15 {
        delete(&world, &format!("c-{number}")).await;
        create_claim(&world, &format!("d-{number}"), "lan").await;
    }
    for number in 0..15 {
        gone::<IpAddressClaim>(&world, &format!("c-{number}")).await;
    }
    counted(&world, "lan", "30 of 31, 1 free, 0 out").await;
    let list = world.api::<IpAddress>().list(&Default::default()).await.unwrap();
    let found: BTreeSet<String> = list.items.iter().map(|address| address.spec.address.clone()).collect();
    assert_eq!((found.len(), list.items.len()), (30, 30), "{found:?}");
    settled(&world).await;
    for running in running {
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_promised_before_a_kill_is_given_after_it() {
    let world = World::start().await;
    let mine = create_claim(&world, "a", "lan").await;
    let promised = json!({
        format!("default/a/{}", mine.uid().unwrap()): "10.0.0.7",
        "default/b/never-heard-of": "10.0.0.8",
    });
    let mut wanted = pool("lan", json!(["10.0.0.7-10.0.0.8"]), 24);
    wanted.metadata.annotations = Some([(PROMISED.to_owned(), promised.to_string())].into());
    world.api().create(&PostParams::default(), &wanted).await.unwrap();
    let running = world.run();
    says(&world, "a", "10.0.0.7").await;
    // What was promised to a claim that is gone is free again.
    create_claim(&world, "c", "lan").await;
    says(&world, "c", "10.0.0.8").await;
    // What cannot be read is not taken for nothing.
    delete(&world, "c").await;
    gone::<IpAddressClaim>(&world, "c").await;
    annotate(&world, "lan", json!({PROMISED: "{"})).await;
    create_claim(&world, "d", "lan").await;
    let odd =
        "AllocationFailed: annotation remuda.io/promised-addresses of InClusterIPPool lan cannot be read";
    says(&world, "d", odd).await;
    annotate(&world, "lan", json!({PROMISED: null})).await;
    says(&world, "d", "10.0.0.8").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_paused_or_of_another_provider_is_left_alone() {
    let world = World::start().await;
    let running = world.run();
    create_pool(&world, "lan", json!(["10.0.0.5-10.0.0.9"])).await;
    counted(&world, "lan", "0 of 5, 5 free, 0 out").await;
    // Another kind of pool.
    let theirs = claim("theirs", "InfobloxIPPool", "lan");
    world.api().create(&PostParams::default(), &theirs).await.unwrap();
    // The claim itself.
    let mut paused = claim("own", "InClusterIPPool", "lan");
    paused.metadata.annotations = Some([(PAUSED.to_owned(), String::new())].into());
    world.api().create(&PostParams::default(), &paused).await.unwrap();
    // Its Cluster, which is not there at first.
    let mut of_cluster = claim("clusters", "InClusterIPPool", "lan");
    of_cluster.spec.cluster_name = "demo".to_owned();
    world.api().create(&PostParams::default(), &of_cluster).await.unwrap();
    says(&world, "clusters", "AllocationFailed: Cluster default/demo does not exist").await;
    let cluster: Cluster = serde_json::from_value(json!({
        "metadata": {"name": "demo"}, "spec": {"paused": true, "controlPlaneEndpoint": {"host": "h", "port": 1}},
    }))
    .unwrap();
    world.api().create(&PostParams::default(), &cluster).await.unwrap();
    settled(&world).await;
    for name in ["theirs", "own"] {
        let claim = world.api::<IpAddressClaim>().get(name).await.unwrap();
        assert_eq!((claim.status, claim.metadata.finalizers), (None, None), "{name}");
    }
    assert_eq!(counts(&world, "lan").await, "0 of 5, 5 free, 0 out");

    let unpaused = Patch::Merge(json!({"spec": {"paused": false}}));
    world.api::<Cluster>().patch("demo", &PatchParams::default(), &unpaused).await.unwrap();
    says(&world, "clusters", "10.0.0.5").await;
    // The pool.
    annotate(&world, "lan", json!({PAUSED: ""})).await;
    create_claim(&world, "late", "lan").await;
    delete(&world, "clusters").await;
    settled(&world).await;
    assert_eq!(told(&world.api(), "late").await, "nothing");
    assert!(world.api::<IpAddress>().get_opt("clusters").await.unwrap().is_some());
    annotate(&world, "lan", json!({PAUSED: null})).await;
    gone::<IpAddressClaim>(&world, "clusters").await;
    until("the pool goes on", async || told(&world.api(), "late").await.starts_with("10.0.0.")).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_another_provider_is_installed_claims_are_its() {
    let world = World::start().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client());
    let webhook = Patch::Merge(json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/convert"},
    }}}}));
    let name = "inclusterippools.ipam.cluster.x-k8s.io";
    definitions.patch(name, &PatchParams::default(), &webhook).await.unwrap();
    let running = world.run();
    create_pool(&world, "lan", json!(["10.0.0.5"])).await;
    create_claim(&world, "a", "lan").await;
    settled(&world).await;
    let claim = world.api::<IpAddressClaim>().get("a").await.unwrap();
    let pool = world.api::<InClusterIpPool>().get("lan").await.unwrap();
    assert_eq!((claim.metadata.finalizers, claim.status), (None, None));
    assert_eq!((pool.metadata.finalizers, pool.status), (None, None));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_of_the_claims_name_is_taken_over_or_told() {
    let world = World::start().await;
    let pool_ref = json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "lan"});
    let address = |name: &str, claim: &str, owners: Value| -> IpAddress {
        serde_json::from_value(json!({
            "metadata": {"name": name, "ownerReferences": owners, "finalizers": ["ipam.cluster.x-k8s.io/ProtectAddress"]},
            "spec": {"claimRef": {"name": claim}, "poolRef": pool_ref, "address": "10.0.0.6", "prefix": 24},
        }))
        .unwrap()
    };
    let create = async |address: IpAddress| {
        world.api::<IpAddress>().create(&PostParams::default(), &address).await.unwrap();
    };
    create_pool(&world, "lan", json!(["10.0.0.5-10.0.0.9"])).await;
    let running = world.run();
    // By hand, before its claim: what it says stays.
    create(address("mine", "mine", json!([]))).await;
    create_claim(&world, "mine", "lan").await;
    says(&world, "mine", "10.0.0.6").await;
    until("it has its owners", async || {
        world.api::<IpAddress>().get("mine").await.unwrap().owner_references().len() == 2
    })
    .await;
    // Of a claim of another name.
    create(address("other", "another", json!([]))).await;
    create_claim(&world, "other", "lan").await;
    says(&world, "other", "AllocationFailed: there is an IPAddress other, and it is not of this claim").await;
    // Of an earlier claim of this name: it makes room.
    create_claim(&world, "again", "lan").await;
    says(&world, "again", "10.0.0.5").await;
    running.stop().await;
    let claims = world.api::<IpAddressClaim>();
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    claims.patch("again", &PatchParams::default(), &free).await.unwrap();
    claims.delete("again", &DeleteParams::default()).await.unwrap();
    create_claim(&world, "again", "lan").await;
    let before = world.api::<IpAddress>().get("again").await.unwrap().uid();
    let running = world.run();
    until("it has an address of its own", async || {
        let found = world.api::<IpAddress>().get_opt("again").await.unwrap();
        found.is_some_and(|found| found.uid() != before) && told(&world.api(), "again").await == "10.0.0.5"
    })
    .await;
    // Without any claim it is let go.
    create(address("orphan", "orphan", json!([]))).await;
    world.api::<IpAddress>().delete("orphan", &DeleteParams::default()).await.unwrap();
    gone::<IpAddress>(&world, "orphan").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_of_a_server_that_is_there_is_not_given_back() {
    let world = World::start().await;
    let running = world.run();
    create_pool(&world, "lan", json!(["10.0.0.5"])).await;
    let mut wanted = claim("a", "InClusterIPPool", "lan");
    wanted.metadata.finalizers = Some(vec!["remuda.io/address-in-use".to_owned()]);
    world.api().create(&PostParams::default(), &wanted).await.unwrap();
    says(&world, "a", "10.0.0.5").await;
    delete(&world, "a").await;
    create_claim(&world, "b", "lan").await;
    says(&world, "b", "PoolExhausted: no address is free in InClusterIPPool lan").await;
    settled(&world).await;
    assert!(world.api::<IpAddress>().get_opt("a").await.unwrap().is_some());
    let claim = world.api::<IpAddressClaim>().get("a").await.unwrap();
    let mine = claim.finalizers().iter().filter(|known| *known != "remuda.io/address-in-use");
    let patch = Patch::Merge(json!({"metadata": {"finalizers": mine.collect::<Vec<_>>()}}));
    world.api::<IpAddressClaim>().patch("a", &PatchParams::default(), &patch).await.unwrap();
    says(&world, "b", "10.0.0.5").await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_is_kept_from_others_for_a_while() {
    let world = World::start().await;
    let running = world.run();
    let mut wanted = pool("lan", json!(["10.0.0.5"]), 24);
    wanted.spec.address_reuse_grace_period_seconds = Some(300);
    world.api().create(&PostParams::default(), &wanted).await.unwrap();
    create_claim(&world, "a", "lan").await;
    says(&world, "a", "10.0.0.5").await;
    delete(&world, "a").await;
    create_claim(&world, "b", "lan").await;
    says(&world, "b", "PoolExhausted: no address is free in InClusterIPPool lan").await;
    tokio::time::sleep(Duration::from_secs(280)).await;
    assert!(world.api::<IpAddress>().get_opt("a").await.unwrap().is_some());
    says(&world, "b", "10.0.0.5").await;
    running.stop().await;
}
