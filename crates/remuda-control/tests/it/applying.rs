//! Sets of children.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use remuda_control::{
    Ctx, Error, Retry, Retryable, Scope,
    write::{Applied, ApplySet, owner_reference},
};
use serde_json::json;

use crate::world::{Thing, World, thing, until};

const LABEL: (&str, &str) = ("test.remuda/set", "a");

fn map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    map.data = Some(data.collect());
    map
}

async fn apply(ctx: &Ctx, owner: &Thing, maps: &[ConfigMap]) -> Result<Applied, Error> {
    let mut set = ApplySet::new(ctx, owner, &(), LABEL)?;
    set.prunes::<ConfigMap>().prunes::<Secret>();
    for map in maps {
        set.add(map)?;
    }
    set.apply().await
}

fn counts(applied: &Applied) -> (usize, usize, usize) {
    (applied.written.len(), applied.unchanged, applied.pruned.len())
}

#[tokio::test(start_paused = true)]
async fn what_is_in_the_set_exists_and_what_left_it_does_not() {
    let world = World::start().await;
    let ctx = world.ctx();
    let owner = world.things().create(&PostParams::default(), &thing("owner")).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(world.client(), "default");

    let applied = apply(&ctx, &owner, &[map("a", &[("k", "1"), ("l", "1")]), map("b", &[])]).await.unwrap();
    assert_eq!(counts(&applied), (2, 0, 0));
    let a = maps.get("a").await.unwrap();
    assert_eq!(a.labels()[LABEL.0], LABEL.1);
    assert_eq!(a.owner_references()[0].uid, owner.uid().unwrap());
    let applied = apply(&ctx, &owner, &[map("a", &[("k", "1"), ("l", "1")]), map("b", &[])]).await.unwrap();
    assert_eq!(counts(&applied), (0, 2, 0));

    // A key we no longer want goes; one somebody else added stays.
    let patch = Patch::Merge(json!({"data": {"theirs": "x"}}));
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let applied = apply(&ctx, &owner, &[map("a", &[("k", "1")]), map("b", &[])]).await.unwrap();
    assert_eq!(counts(&applied), (1, 1, 0));
    let keys: Vec<String> = maps.get("a").await.unwrap().data.unwrap().into_keys().collect();
    assert_eq!(keys, ["k", "theirs"]);

    // Drift is repaired.
    let patch = Patch::Merge(json!({"data": {"k": "broken"}}));
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let applied = apply(&ctx, &owner, &[map("a", &[("k", "1")])]).await.unwrap();
    assert_eq!(counts(&applied), (1, 0, 1));
    assert_eq!(maps.get("a").await.unwrap().data.unwrap()["k"], "1");
    assert!(maps.get_opt("b").await.unwrap().is_none());

    // What was applied is known after a restart as well.
    let before = maps.get("a").await.unwrap().resource_version();
    let applied = apply(&world.ctx(), &owner, &[map("a", &[("k", "1")])]).await.unwrap();
    assert_eq!(counts(&applied), (0, 1, 0));
    assert_eq!(maps.get("a").await.unwrap().resource_version(), before);
    let applied = apply(&world.ctx(), &owner, &[map("a", &[])]).await.unwrap();
    assert_eq!(counts(&applied), (1, 0, 0));
    let keys: Vec<String> = maps.get("a").await.unwrap().data.unwrap().into_keys().collect();
    assert_eq!(keys, ["theirs"], "also that a key has left it since");
}

#[tokio::test(start_paused = true)]
async fn what_exists_is_found_by_the_names_it_may_have() {
    let world = World::start().await;
    let ctx = world.ctx();
    let owner = world.things().create(&PostParams::default(), &thing("owner")).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(world.client(), "default");
    let apply = async |wanted: &[&str], others: &[&str]| {
        let mut set = ApplySet::new(&ctx, &owner, &(), LABEL).unwrap();
        set.named::<ConfigMap>(others.iter().map(|name| (*name).to_owned()));
        for name in wanted {
            set.add(&map(name, &[])).unwrap();
        }
        counts(&set.apply().await.unwrap())
    };
    // Another's object of a name that is asked for.
    maps.create(&PostParams::default(), &map("stranger", &[])).await.unwrap();
    assert_eq!(apply(&["a", "b", "c"], &["stranger", "nothing"]).await, (3, 0, 0));
    assert_eq!(apply(&["a", "b", "c"], &["b"]).await, (0, 3, 0));
    assert_eq!(apply(&["a"], &["b", "stranger"]).await, (0, 1, 1));
    assert!(maps.get_opt("b").await.unwrap().is_none());
    for left in ["a", "c", "stranger"] {
        maps.get(left).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_the_owner_controls_is_pruned_or_taken() {
    let world = World::start().await;
    let ctx = world.ctx();
    let owner = world.things().create(&PostParams::default(), &thing("owner")).await.unwrap();
    let other = world.things().create(&PostParams::default(), &thing("other")).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(world.client(), "default");
    let mut labelled = map("labelled", &[]);
    labelled.labels_mut().insert(LABEL.0.to_owned(), LABEL.1.to_owned());
    maps.create(&PostParams::default(), &labelled).await.unwrap();
    let mut theirs = map("theirs", &[]);
    theirs.labels_mut().insert(LABEL.0.to_owned(), LABEL.1.to_owned());
    theirs.owner_references_mut().push(owner_reference(&other, &()).unwrap());
    maps.create(&PostParams::default(), &theirs).await.unwrap();

    assert_eq!(counts(&apply(&ctx, &owner, &[]).await.unwrap()), (0, 0, 0));
    let error = apply(&ctx, &owner, &[map("theirs", &[])]).await.unwrap_err();
    assert_eq!(error.to_string(), "theirs is already controlled by Thing other");
    assert_eq!(error.retry(), Retry::UserMustAct);
    // An orphan that carries the name is adopted.
    assert_eq!(counts(&apply(&ctx, &owner, &[map("labelled", &[])]).await.unwrap()), (1, 0, 0));
    assert_eq!(maps.get("labelled").await.unwrap().owner_references()[0].name, "owner");
}

#[tokio::test(start_paused = true)]
async fn a_set_known_from_a_cache_needs_no_request_when_it_is_in_place() {
    let world = World::start().await;
    let ctx = world.ctx();
    let owner = world.things().create(&PostParams::default(), &thing("owner")).await.unwrap();
    let cache = ctx.informers.of::<ConfigMap>(Scope::labels(LABEL.0));
    let resource = ApiResource::erase::<Thing>(&());
    let things = ctx.informers.dynamic(&resource, Scope::labels(LABEL.0));
    cache.wait_synced().await;
    things.wait_synced().await;
    let mut child = DynamicObject::new("child", &resource);
    child.data = json!({"spec": {"size": 4}});
    let apply = async |maps: &[&str]| {
        let mut set = ApplySet::new(&ctx, &owner, &(), LABEL).unwrap();
        set.known(&cache).unwrap().known(&things).unwrap();
        set.add_dynamic(&child, &resource).unwrap();
        for name in maps {
            set.add(&map(name, &[("k", "v")])).unwrap();
        }
        set.apply().await.unwrap()
    };
    assert_eq!(counts(&apply(&["a", "b"]).await), (3, 0, 0));
    until("the children are cached", async || cache.len() == 2 && things.len() == 1).await;
    let before = world.requests().len();
    assert_eq!(counts(&apply(&["a", "b"]).await), (0, 3, 0));
    assert_eq!(world.requests().len(), before);
    assert_eq!(counts(&apply(&["a"]).await), (0, 2, 1));
    until("the other is gone", async || cache.len() == 1).await;

    // One that is being deleted is neither applied nor pruned again.
    let maps: Api<ConfigMap> = Api::namespaced(world.client(), "default");
    let patch = Patch::Merge(json!({"metadata": {"finalizers": ["test.remuda/hold"]}}));
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    until("it is dying", async || cache.list().iter().all(|map| map.meta().deletion_timestamp.is_some()))
        .await;
    let applied = apply(&["a"]).await;
    assert_eq!((counts(&applied), applied.dying.len()), ((0, 1, 0), 1));
    assert_eq!(counts(&apply(&[]).await), (0, 1, 0));
}
