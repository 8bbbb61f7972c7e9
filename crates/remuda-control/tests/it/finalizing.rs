//! Finalizers, and everybody else's.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use remuda_control::{
    Action, Controller, Error, Retry, Retryable, drive,
    write::{Finalizer, ensure_finalizer, finalize, remove_finalizer},
};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::world::{Thing, World, thing, until};

const OURS: &str = "test.remuda/ours";
const THEIRS: &str = "test.remuda/theirs";

#[tokio::test(start_paused = true)]
async fn finalizers_are_added_and_removed_beside_those_of_others() {
    let world = World::start().await;
    let things = world.things();
    let plain = things.create(&PostParams::default(), &thing("a")).await.unwrap();
    let Finalizer::Active(ours) = ensure_finalizer(&things, plain.clone(), &(), OURS).await.unwrap() else {
        panic!("a live object is live");
    };
    assert_eq!(ours.finalizers(), [OURS]);
    // An old view of the same list of finalizers is no obstacle.
    let patch = Patch::Merge(json!({"spec": {"size": 9}}));
    things.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let Finalizer::Active(both) = ensure_finalizer(&things, ours.clone(), &(), THEIRS).await.unwrap() else {
        panic!("a live object is live");
    };
    assert_eq!(both.finalizers(), [OURS, THEIRS]);
    assert_eq!(both.spec.size, 9);
    // An old view of the finalizers themselves is a conflict.
    for old in [&plain, &ours] {
        let error = ensure_finalizer(&things, old.clone(), &(), "test.remuda/third").await.unwrap_err();
        assert_eq!(error.retry(), Retry::Conflict, "{error}");
    }
    things.delete("a", &DeleteParams::default()).await.unwrap();
    let dying = things.get("a").await.unwrap();
    assert!(matches!(
        ensure_finalizer(&things, dying.clone(), &(), OURS).await.unwrap(),
        Finalizer::Deleting(_)
    ));
    assert!(matches!(
        ensure_finalizer(&things, dying.clone(), &(), "test.remuda/third").await,
        Ok(Finalizer::Gone)
    ));
    remove_finalizer(&things, &dying, &(), OURS).await.unwrap();
    assert_eq!(things.get("a").await.unwrap().finalizers(), [THEIRS]);
    // Their index moved: an old view must not remove somebody else's.
    assert_eq!(remove_finalizer(&things, &dying, &(), OURS).await.unwrap_err().retry(), Retry::Conflict);
    let dying = things.get("a").await.unwrap();
    remove_finalizer(&things, &dying, &(), THEIRS).await.unwrap();
    assert!(things.get_opt("a").await.unwrap().is_none());
    remove_finalizer(&things, &dying, &(), THEIRS).await.unwrap();
    assert!(matches!(ensure_finalizer(&things, plain.clone(), &(), OURS).await.unwrap(), Finalizer::Gone));

    // A successor of the same name is another object.
    let successor = things.create(&PostParams::default(), &thing("a")).await.unwrap();
    assert!(ensure_finalizer(&things, plain, &(), OURS).await.is_err());
    assert!(things.get("a").await.unwrap().finalizers().is_empty());
    assert!(matches!(ensure_finalizer(&things, successor, &(), OURS).await.unwrap(), Finalizer::Active(_)));
}

#[tokio::test(start_paused = true)]
async fn controllers_that_race_for_an_object_all_clean_up() {
    let world = World::start().await;
    let (ctx, stop) = (world.ctx(), CancellationToken::new());
    let cleaned = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for (name, finalizer) in [("ours", OURS), ("theirs", THEIRS), ("third", "test.remuda/third")] {
        let (things, cleaned) = (world.things(), cleaned.clone());
        let reconcile = move |thing: Arc<Thing>, _| {
            let (things, cleaned) = (things.clone(), cleaned.clone());
            async move {
                let live = |_: Thing| async { Ok::<_, Error>(()) };
                let cleanup = |_: Thing| async {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    cleaned.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                };
                finalize(&things, Thing::clone(&thing), &(), finalizer, live, cleanup).await?;
                Ok::<_, Error>(Action::AwaitChange)
            }
        };
        let controller = Controller::<Thing>::new(name, &ctx);
        tasks.spawn(drive(controller, reconcile, ctx.clone(), stop.clone()));
    }
    let things = world.things();
    for round in 0..10 {
        for name in 0..5 {
            things.create(&PostParams::default(), &thing(&format!("t{name}"))).await.unwrap();
        }
        if round % 2 == 0 {
            until("all are guarded", async || {
                let list = things.list(&Default::default()).await.unwrap();
                list.items.iter().all(|thing| thing.finalizers().len() == 3)
            })
            .await;
        }
        let before = cleaned.load(Ordering::Relaxed);
        for name in 0..5 {
            things.delete(&format!("t{name}"), &DeleteParams::default()).await.unwrap();
        }
        until("all are gone", async || things.list(&Default::default()).await.unwrap().items.is_empty())
            .await;
        if round % 2 == 0 {
            assert!(cleaned.load(Ordering::Relaxed) >= before + 15);
        }
    }
    stop.cancel();
    tasks.join_all().await;
}
