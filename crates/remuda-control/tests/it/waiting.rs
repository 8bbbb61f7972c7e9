//! Waiting for the first object of some kinds, and for one object to be as it should.

use std::time::Duration;

use kube::{
    ResourceExt,
    api::{ApiResource, DeleteParams, Patch, PatchParams, PostParams},
};
use remuda_control::{first_of, wait_for};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::world::{SOON, Thing, World, thing};

/// A kind nobody has defined.
fn unknown() -> ApiResource {
    ApiResource { plural: "wishes".into(), kind: "Wish".into(), ..ApiResource::erase::<Thing>(&()) }
}

#[tokio::test(start_paused = true)]
async fn the_first_object_of_any_of_the_kinds_ends_the_wait() {
    let world = World::start().await;
    let ctx = world.ctx();
    let kinds = [unknown(), ApiResource::erase::<Thing>(&())];
    let stop = CancellationToken::new();
    // Longer than a watch lasts, so that one has been begun again.
    let early = tokio::time::timeout(Duration::from_secs(7200), first_of(&ctx.client, &kinds, &stop)).await;
    assert!(early.is_err(), "there was nothing to find");
    let waiting = first_of(&ctx.client, &kinds, &stop);
    let making = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world.things().create(&PostParams::default(), &thing("one")).await.unwrap();
    };
    let (found, ()) = tokio::time::timeout(SOON, async { tokio::join!(waiting, making) }).await.unwrap();
    assert!(found);
    // What is there already is found at once.
    assert!(tokio::time::timeout(SOON, first_of(&ctx.client, &kinds, &stop)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn who_is_told_to_stop_has_found_nothing() {
    let world = World::start().await;
    let ctx = world.ctx();
    let stop = CancellationToken::new();
    stop.cancel();
    for kinds in [&[][..], &[unknown()], &[ApiResource::erase::<Thing>(&())]] {
        assert!(!tokio::time::timeout(SOON, first_of(&ctx.client, kinds, &stop)).await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_is_waited_for_until_it_is_as_it_should() {
    let world = World::start().await;
    let things = world.things();
    let is_done = |thing: Option<&Thing>| thing.is_some_and(|thing| thing.labels().contains_key("done"));
    // Longer than a watch lasts: the next begins from a list.
    let early = tokio::time::timeout(Duration::from_secs(7200), wait_for(&things, "one", is_done)).await;
    assert!(early.is_err(), "there was nothing to find");
    let changing = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let labelled = json!({"metadata": {"labels": {"done": "yes"}}});
        things.create(&PostParams::default(), &thing("other")).await.unwrap();
        things.patch("other", &PatchParams::default(), &Patch::Merge(&labelled)).await.unwrap();
        things.create(&PostParams::default(), &thing("one")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        things.patch("one", &PatchParams::default(), &Patch::Merge(&labelled)).await.unwrap();
    };
    let waiting = wait_for(&things, "one", is_done);
    let (found, ()) = tokio::time::timeout(SOON, async { tokio::join!(waiting, changing) }).await.unwrap();
    assert_eq!(found.unwrap().unwrap().name_any(), "one");
    // What is so already is found at once.
    assert!(tokio::time::timeout(SOON, wait_for(&things, "one", is_done)).await.unwrap().unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_object_can_be_waited_for_to_go() {
    let world = World::start().await;
    let things = world.things();
    things.create(&PostParams::default(), &thing("one")).await.unwrap();
    let deleting = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        things.delete("one", &DeleteParams::default()).await.unwrap();
    };
    let waiting = wait_for(&things, "one", |thing: Option<&Thing>| thing.is_none());
    let (gone, ()) = tokio::time::timeout(SOON, async { tokio::join!(waiting, deleting) }).await.unwrap();
    assert!(gone.unwrap().is_none());
}
