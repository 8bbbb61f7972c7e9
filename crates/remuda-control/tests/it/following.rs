//! Informers against a server that comes and goes.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use parking_lot::Mutex;
use rand::RngExt;
use remuda_control::{Informer, ObjectKey, Scope, informer::Change};
use serde_json::json;
use tokio::task::JoinSet;

use crate::world::{SOON, Thing, World, thing, until};

type Versions = BTreeMap<String, String>;

fn cached(informer: &Informer<Thing>) -> Versions {
    let list = informer.list();
    list.iter().map(|thing| (thing.name_any(), thing.resource_version().unwrap())).collect()
}

async fn listed(world: &World) -> Versions {
    let list = world.things().list(&ListParams::default()).await.unwrap();
    list.items.iter().map(|thing| (thing.name_any(), thing.resource_version().unwrap())).collect()
}

/// What somebody who only hears of changes knows. Panics when a change does not fit the last.
fn hearsay(informer: &Informer<Thing>) -> (Arc<Mutex<Versions>>, remuda_control::informer::Subscription) {
    let known: Arc<Mutex<Versions>> = Arc::default();
    let hearing = known.clone();
    let subscription = informer.subscribe(move |change: &Change<Thing>| {
        let name = change.object().unwrap().name_any();
        let mut hearing = hearing.lock();
        match &change.new {
            Some(new) => {
                let before = hearing.insert(name, new.resource_version().unwrap());
                let told = change.old.as_ref().map(|old| old.resource_version().unwrap());
                assert_eq!(before, told);
            }
            None => assert!(hearing.remove(&name).is_some()),
        }
    });
    (known, subscription)
}

#[tokio::test(start_paused = true)]
async fn a_cache_equals_the_list_whatever_happened_to_the_server() {
    let world = World::start().await;
    let ctx = world.ctx();
    let informer = ctx.informers.of::<Thing>(Scope::all());
    let (heard, _subscription) = hearsay(&informer);
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let world = world.clone();
        writers.spawn(async move {
            for step in 0..120_i64 {
                let things = world.things();
                let name = format!("t{writer}-{}", rand::rng().random_range(0..8));
                let patch = Patch::Merge(json!({"spec": {"size": step}}));
                let params = PatchParams::default();
                // Failures are what the server's absence looks like to a writer.
                let _ = match step % 4 {
                    0 | 1 => things.create(&PostParams::default(), &thing(&name)).await.map(drop),
                    2 => things.patch(&name, &params, &patch).await.map(drop),
                    _ => things.delete(&name, &DeleteParams::default()).await.map(drop),
                };
                let pause = rand::rng().random_range(1..30);
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        });
    }
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(350)).await;
        world.down().await;
        tokio::time::sleep(Duration::from_millis(120)).await;
        world.up().await;
    }
    writers.join_all().await;
    let list = listed(&world).await;
    until("the cache equals the list", async || cached(&informer) == list).await;
    assert_eq!(*heard.lock(), list);
    let (late, _subscription) = hearsay(&informer);
    assert_eq!(*late.lock(), list, "a late subscriber hears of everything");
}

#[tokio::test(start_paused = true)]
async fn deletions_missed_while_the_server_was_away_are_told_with_the_last_state() {
    let world = World::start().await;
    let ctx = world.ctx();
    let informer = ctx.informers.of::<Thing>(Scope::all());
    for name in ["a", "b"] {
        world.things().create(&PostParams::default(), &thing(name)).await.unwrap();
    }
    until("both are cached", async || informer.len() == 2).await;
    let gone: Arc<Mutex<Vec<String>>> = Arc::default();
    let telling = gone.clone();
    let _subscription = informer.subscribe(move |change: &Change<Thing>| {
        if change.is_delete() {
            telling.lock().push(change.old.as_ref().unwrap().uid().unwrap());
        }
    });
    let uid = informer.get(&ObjectKey::namespaced("default", "a")).unwrap().uid().unwrap();
    world.down().await;
    // Somebody else's wire to the same store.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.up().await;
    world.things().delete("a", &DeleteParams::default()).await.unwrap();
    until("the deletion is told", async || *gone.lock() == [uid.clone()]).await;

    // And where history was replaced: the versions we know are in the new server's future.
    world.down().await;
    world.up_empty().await;
    world.define_things().await;
    until("everything is gone", async || gone.lock().len() == 2).await;
    world.things().create(&PostParams::default(), &thing("c")).await.unwrap();
    until("a new start", async || informer.len() == 1).await;
    let list = listed(&world).await;
    assert_eq!(cached(&informer), list);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_costs_nothing_until_it_is() {
    let world = World::bare().await;
    let ctx = world.ctx();
    let informer = ctx.informers.of::<Thing>(Scope::all());
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!informer.is_synced());
    let asked = world.requests().iter().filter(|line| line.contains("/things")).count();
    assert!(asked <= 20, "asked {asked} times in ten minutes");
    let before = tokio::time::Instant::now();
    world.define_things().await;
    world.things().create(&PostParams::default(), &thing("a")).await.unwrap();
    until("it is cached", async || informer.len() == 1).await;
    assert!(before.elapsed() < Duration::from_secs(2), "heard of after {:?}", before.elapsed());
    informer.wait_synced().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_taken_away_and_comes_back_is_followed_again() {
    let world = World::start().await;
    let ctx = world.ctx();
    let informer = ctx.informers.of::<Thing>(Scope::all());
    world.things().create(&PostParams::default(), &thing("a")).await.unwrap();
    until("it is cached", async || informer.len() == 1).await;
    let crds: Api<CustomResourceDefinition> = Api::all(world.client());
    world.things().delete("a", &DeleteParams::default()).await.unwrap();
    crds.delete("things.test.remuda", &DeleteParams::default()).await.unwrap();
    // Nobody finalizes definitions in this world, so the test does.
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    let _ = crds.patch("things.test.remuda", &PatchParams::default(), &patch).await;
    until("it is not served", async || world.things().list(&ListParams::default()).await.is_err()).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(informer.is_empty());
    let before = tokio::time::Instant::now();
    world.define_things().await;
    world.things().create(&PostParams::default(), &thing("b")).await.unwrap();
    until("the new one is cached", async || informer.len() == 1).await;
    assert!(before.elapsed() < Duration::from_secs(2), "heard of after {:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_asked_less_and_less_often() {
    let world = World::start().await;
    let ctx = world.ctx();
    let informer = ctx.informers.of::<Thing>(Scope::all());
    informer.wait_synced().await;
    world.down().await;
    let before = world.requests().len();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let asked = world.requests().len() - before;
    assert!((10..60).contains(&asked), "asked {asked} times in ten minutes");
    assert!(informer.is_synced());
    assert!(informer.stale_since().unwrap().elapsed() >= Duration::from_secs(599));
    world.up().await;
    until("it is heard of again", async || informer.stale_since().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_fit_its_type_harms_no_other() {
    let world = World::start().await;
    let ctx = world.ctx();
    let resource = ApiResource::erase::<Thing>(&());
    let raw: Api<DynamicObject> = Api::namespaced_with(world.client(), "default", &resource);
    let odd = |name: &str| {
        let mut odd = DynamicObject::new(name, &resource);
        odd.data = json!({"spec": {"size": "large"}});
        odd
    };
    raw.create(&PostParams::default(), &odd("early")).await.unwrap();
    world.things().create(&PostParams::default(), &thing("good")).await.unwrap();
    let typed = ctx.informers.of::<Thing>(Scope::all());
    let dynamic = ctx.informers.dynamic(&resource, Scope::all());
    typed.wait_synced().await;
    dynamic.wait_synced().await;
    assert_eq!((typed.len(), dynamic.len()), (1, 2));
    assert!(dynamic.list().iter().all(|object| object.types.is_some()));
    raw.create(&PostParams::default(), &odd("late")).await.unwrap();
    let last = world.things().create(&PostParams::default(), &thing("better")).await.unwrap();
    assert!(typed.wait_for(&last.resource_version().unwrap(), SOON).await);
    assert_eq!(typed.len(), 2);
    let unreadable: Vec<String> = typed.unreadable().iter().map(ToString::to_string).collect();
    assert_eq!(unreadable, ["default/early", "default/late"]);
    let patch = Patch::Merge(json!({"spec": {"size": 3}}));
    let healed = raw.patch("late", &PatchParams::default(), &patch).await.unwrap();
    assert!(typed.wait_for(&healed.resource_version().unwrap(), SOON).await);
    raw.delete("early", &DeleteParams::default()).await.unwrap();
    until("nothing is unreadable", async || typed.unreadable().is_empty()).await;
    assert_eq!(typed.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn scopes_are_caches_of_their_own_and_share_nothing_but_the_asking() {
    let world = World::start().await;
    let ctx = world.ctx();
    let mut marked = thing("marked");
    marked.labels_mut().insert("mark".to_owned(), "x".to_owned());
    world.things().create(&PostParams::default(), &marked).await.unwrap();
    world.things().create(&PostParams::default(), &thing("plain")).await.unwrap();
    let some = ctx.informers.of::<Thing>(Scope::labels("mark=x"));
    let all = ctx.informers.of::<Thing>(Scope::all());
    let again = ctx.informers.of::<Thing>(Scope::all());
    let elsewhere = ctx.informers.of::<Thing>(Scope::namespace("kube-system"));
    let metadata = ctx.informers.metadata::<Thing>(Scope::all());
    for informer in [&some, &all, &again, &elsewhere] {
        informer.wait_synced().await;
    }
    metadata.wait_synced().await;
    assert_eq!((some.len(), all.len(), elsewhere.len(), metadata.len()), (1, 2, 0, 2));
    assert!(all.list().iter().all(|thing| thing.managed_fields().is_empty()));
    assert_eq!(all.in_namespace("default").len(), 2);
    // An object that leaves a selector is deleted as far as that cache goes.
    let patch = Patch::Merge(json!({"metadata": {"labels": null}}));
    world.things().patch("marked", &PatchParams::default(), &patch).await.unwrap();
    until("it left", async || some.is_empty()).await;
    assert_eq!(all.len(), 2);
    let lists: HashMap<&str, usize> = world
        .requests()
        .iter()
        .filter(|line| line.starts_with("GET watch"))
        .fold(HashMap::new(), |mut counts, line| {
            *counts
                .entry(if line.contains("kube-system") { "elsewhere" } else { "everywhere" })
                .or_default() += 1;
            counts
        });
    assert_eq!(lists["everywhere"], 3, "all, some and metadata; asking again opened none");

    ctx.informers.stop().await;
    let before = world.requests().len();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.requests().len(), before);
    assert_eq!(all.len(), 2, "what was read stays readable");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_many_pages_is_complete_and_waiting_for_the_future_ends() {
    let world = World::start().await;
    let ctx = world.ctx();
    let mut newest = String::new();
    for name in 0..1100 {
        let thing = thing(&format!("t{name}"));
        let created = world.things().create(&PostParams::default(), &thing).await.unwrap();
        newest = created.resource_version().unwrap();
    }
    let before = world.requests().len();
    let informer = ctx.informers.of::<Thing>(Scope::all());
    assert!(informer.wait_for(&newest, SOON).await);
    assert_eq!(informer.len(), 1100);
    let asked = world.requests().len() - before;
    assert!(asked <= 4, "asked {asked} times");
    assert!(!informer.wait_for(&u64::MAX.to_string(), SOON).await);
    assert!(informer.wait_for("not a number", SOON).await);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_registry_stops_its_watches() {
    let world = World::start().await;
    let ctx = world.ctx();
    let informer = ctx.informers.of::<Thing>(Scope::all());
    informer.wait_synced().await;
    drop(ctx);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = world.requests().len();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.requests().len(), before);
}
