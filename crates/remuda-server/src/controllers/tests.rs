use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    time::Instant,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use remuda_auth::identity::User;
use remuda_store::Memory;

use super::*;
use crate::{
    Server,
    config::{Config, Options},
};

async fn api() -> ApiServer {
    ApiServer::start(remuda_testkit::config(), Arc::new(Memory::default())).await.unwrap()
}

/// Waits without measuring: time is paused where this is used.
async fn until(what: impl Fn() -> bool) {
    for _ in 0..1000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not happen");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_breaks_down_is_started_again_and_one_that_is_told_to_stops() {
    static STARTS: AtomicUsize = AtomicUsize::new(0);
    fn fragile(_: Arc<Ctx>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            assert_ne!(STARTS.fetch_add(1, SeqCst), 0, "the first start breaks down");
            stop.cancelled().await;
        })
    }
    let mut controllers = Controllers::new(&api().await, None);
    controllers.start(vec![group(Component::Shared, fragile)]);
    until(|| STARTS.load(SeqCst) == 2).await;
    controllers.shutdown().await;
    assert_eq!(STARTS.load(SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn of_two_servers_one_works_and_the_other_follows_when_it_stops() {
    static WORKING: AtomicUsize = AtomicUsize::new(0);
    static TERMS: AtomicUsize = AtomicUsize::new(0);
    fn diligent(ctx: Arc<Ctx>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if stop.run_until_cancelled(ctx.leadership.gained()).await.is_some() {
                assert_eq!(WORKING.fetch_add(1, SeqCst), 0, "two work at the same time");
                TERMS.fetch_add(1, SeqCst);
                stop.cancelled().await;
                WORKING.fetch_sub(1, SeqCst);
            }
        })
    }
    let api = api().await;
    let (mut first, mut second) =
        (Controllers::new(&api, Some("first")), Controllers::new(&api, Some("second")));
    first.start(vec![group(Component::Shared, diligent)]);
    until(|| TERMS.load(SeqCst) == 1).await;
    second.start(vec![group(Component::Shared, diligent)]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(TERMS.load(SeqCst), 1);
    first.shutdown().await;
    until(|| TERMS.load(SeqCst) == 2).await;
    second.shutdown().await;
}

#[tokio::test]
async fn where_nothing_runs_nobody_competes() {
    let api = api().await;
    let mut controllers = Controllers::new(&api, Some("first"));
    controllers.start(Vec::new());
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::all(controllers.ctx(Component::Shared).client.clone());
    assert!(
        leases
            .list(&Default::default())
            .await
            .unwrap()
            .items
            .iter()
            .all(|lease| { lease.metadata.name.as_deref() != Some("remuda-controllers") })
    );
    controllers.shutdown().await;
}

fn config(dir: &std::path::Path, controllers: bool) -> Config {
    let options = Options {
        bind: Some("127.0.0.1:0".to_owned()),
        data_dir: Some(dir.join("data")),
        datastore: Some("memory".to_owned()),
        controllers: Some(controllers),
        ..Options::default()
    };
    options.resolve().unwrap()
}

#[tokio::test]
async fn controllers_use_the_api_while_they_end() {
    static ENDED: AtomicBool = AtomicBool::new(false);
    fn tidy(ctx: Arc<Ctx>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let maps: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), "default");
            let map = |name: &str| ConfigMap {
                metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
                ..ConfigMap::default()
            };
            maps.create(&PostParams::default(), &map("begun")).await.unwrap();
            stop.cancelled().await;
            maps.create(&PostParams::default(), &map("ended")).await.unwrap();
            ENDED.store(true, SeqCst);
        })
    }
    let dir = tempfile::tempdir().unwrap();
    let running =
        Box::pin(Server::start_with(config(dir.path(), true), |_| vec![group(Component::Machines, tidy)]))
            .await
            .unwrap();
    let client = Client::new(running.api().client_service(User::api_server()), "default");
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    while maps.get_opt("begun").await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.shutdown().await;
    assert!(ENDED.load(SeqCst));
}

#[tokio::test]
async fn a_server_that_is_ready_has_the_namespaces_clusters_are_made_in() {
    let dir = tempfile::tempdir().unwrap();
    let running = Box::pin(Server::start_with(config(dir.path(), true), |_| Vec::new())).await.unwrap();
    let client = Client::new(running.api().client_service(User::api_server()), "default");
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client);
    for name in remuda_provisioning::NAMESPACES {
        assert!(namespaces.get_opt(name).await.unwrap().is_some(), "{name}");
    }
    running.shutdown().await;
}

#[tokio::test]
async fn a_group_that_does_not_end_does_not_hold_up_the_end() {
    fn stubborn(_: Arc<Ctx>, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
    let dir = tempfile::tempdir().unwrap();
    let running =
        Box::pin(Server::start_with(config(dir.path(), true), |_| vec![group(Component::Shared, stubborn)]))
            .await
            .unwrap();
    let started = Instant::now();
    running.shutdown().await;
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn controllers_that_are_not_wanted_are_not_started() {
    fn unwanted(_: Arc<Ctx>, _: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async { STARTED.store(true, SeqCst) })
    }
    static STARTED: AtomicBool = AtomicBool::new(false);
    let dir = tempfile::tempdir().unwrap();
    let running =
        Box::pin(Server::start_with(config(dir.path(), false), |_| vec![group(Component::Shared, unwanted)]))
            .await
            .unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    running.shutdown().await;
    assert!(!STARTED.load(SeqCst));
}
