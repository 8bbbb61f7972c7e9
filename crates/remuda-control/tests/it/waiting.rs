//! Waiting for the first object of some kinds.

use std::time::Duration;

use kube::api::{ApiResource, PostParams};
use remuda_control::first_of;
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
