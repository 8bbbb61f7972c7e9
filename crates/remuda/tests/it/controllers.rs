//! Controllers built with kube-rs: watcher, reflector, finalizer, and an election by Lease.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{ConfigMap, Secret},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt,
        controller::{Action, Controller},
        finalizer::{Event, finalizer},
        reflector, watcher,
    },
};

use crate::{
    client::{client, config_map},
    harness::{Place, Server},
};

const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Failed(#[from] kube::Error);

/// For every ConfigMap labelled `mirror`, a Secret of the same name that goes when it goes.
async fn reconcile(
    map: Arc<ConfigMap>,
    client: Arc<Client>,
) -> Result<Action, kube::runtime::finalizer::Error<Failed>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.as_ref().clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(client.as_ref().clone(), "default");
    finalizer(&maps, "example.org/mirror", map, |event| async {
        match event {
            Event::Apply(map) => {
                let secret = Secret {
                    metadata: ObjectMeta { name: Some(map.name_any()), ..ObjectMeta::default() },
                    string_data: map.data.clone(),
                    ..Secret::default()
                };
                let apply = PatchParams::apply("mirror").force();
                secrets.patch(&map.name_any(), &apply, &Patch::Apply(&secret)).await?;
            }
            Event::Cleanup(map) => {
                secrets.delete(&map.name_any(), &DeleteParams::default()).await?;
            }
        }
        Ok::<_, Failed>(Action::requeue(Duration::from_secs(600)))
    })
    .await
}

/// Waits until a watch of one object shows what is wanted.
async fn until<K>(api: &Api<K>, name: &str, wanted: impl Fn(Option<&K>) -> bool)
where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Send
        + Sync
        + 'static
        + serde::de::DeserializeOwned,
{
    let seen = watcher::watch_object(api.clone(), name)
        .try_filter(|object| std::future::ready(wanted(object.as_ref())));
    let first = tokio::time::timeout(PATIENCE, Box::pin(seen).try_next()).await;
    first.unwrap_or_else(|_| panic!("{name} did not become what it should")).unwrap();
}

#[tokio::test]
async fn a_controller_with_a_finalizer_mirrors_and_cleans_up() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let client = client(&server).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let controller = Controller::new(maps.clone(), watcher::Config::default().labels("mirror"))
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), Arc::new(client))
        .for_each(|_| async {});
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(controller);

    let mut map = config_map("one", "1");
    map.labels_mut().insert("mirror".to_owned(), String::new());
    maps.create(&PostParams::default(), &map).await.unwrap();
    let value = |secret: Option<&Secret>| {
        let data = secret.and_then(|secret| secret.data.as_ref()?.get("value").cloned());
        data.map(|value| String::from_utf8(value.0).unwrap())
    };
    until(&secrets, "one", |secret| value(secret).as_deref() == Some("1")).await;
    let patch = serde_json::json!({"data": {"value": "2"}});
    maps.patch("one", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    until(&secrets, "one", |secret| value(secret).as_deref() == Some("2")).await;
    maps.delete("one", &DeleteParams::default()).await.unwrap();
    until(&secrets, "one", |secret| secret.is_none()).await;
    until(&maps, "one", |map| map.is_none()).await;
}

#[tokio::test]
async fn a_reflector_sees_everything_in_both_ways_of_listing() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let client = client(&server).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    for number in 0..30 {
        maps.create(&PostParams::default(), &config_map(&format!("map-{number}"), "x")).await.unwrap();
    }
    for config in [watcher::Config::default().page_size(7), watcher::Config::default().streaming_lists()] {
        let (store, writer) = reflector::store();
        let stream = watcher(maps.clone(), config).default_backoff().reflect(writer);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(stream.for_each(|event| async { drop(event.expect("a watch without errors")) }));
        tokio::time::timeout(PATIENCE, store.wait_until_ready()).await.unwrap().unwrap();
        let known = store.state().iter().filter(|map| map.name_any().starts_with("map-")).count();
        assert_eq!(known, 30);
    }
}

/// Takes or keeps the lease; `false` if somebody else has it. The revision decides between two at once.
async fn elect(leases: &Api<Lease>, me: &str) -> bool {
    let spec = LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: Some(15),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    };
    let result = match leases.get_opt("leader").await.unwrap() {
        None => {
            let metadata = ObjectMeta { name: Some("leader".to_owned()), ..ObjectMeta::default() };
            leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await
        }
        Some(mut lease) => {
            let holder =
                lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
            if !holder.is_empty() && holder != me {
                return false;
            }
            lease.spec = Some(spec);
            leases.replace("leader", &PostParams::default(), &lease).await
        }
    };
    match result {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 409 => false,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn one_of_many_candidates_is_elected() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let client = client(&server).await;
    let leases: Api<Lease> = Api::namespaced(client, "kube-system");
    for round in 0..5 {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..10 {
            let leases = leases.clone();
            tasks.spawn(async move { elect(&leases, &format!("candidate-{number}")).await });
        }
        let elected = tasks.join_all().await.into_iter().filter(|elected| *elected).count();
        assert_eq!(elected, 1, "round {round}");
        let release = serde_json::json!({"spec": {"holderIdentity": ""}});
        leases.patch("leader", &PatchParams::default(), &Patch::Merge(release)).await.unwrap();
    }
}
