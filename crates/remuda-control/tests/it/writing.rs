//! Statuses, events and things that must exist.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{core::v1::ConfigMap, events::v1::Event};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use remuda_control::{
    Retry, Retryable,
    write::{apply_status, get_or_create, merge_status, write_status},
};
use serde_json::json;

use crate::world::{ThingStatus, World, thing, until};

fn status(seen: i64, notes: &[(&str, &str)]) -> ThingStatus {
    let notes = notes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ThingStatus { seen: Some(seen), notes: notes.collect::<BTreeMap<_, _>>() }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_when_it_differs_and_only_onto_what_was_seen() {
    let world = World::start().await;
    let (ctx, things) = (world.ctx(), world.things());
    let first = things.create(&PostParams::default(), &thing("a")).await.unwrap();
    let second = write_status(&ctx, &things, &first, &status(1, &[("a", "x"), ("b", "y")])).await;
    let second = second.unwrap().unwrap();
    let same = write_status(&ctx, &things, &second, &status(1, &[("a", "x"), ("b", "y")])).await;
    assert!(same.unwrap().is_none());
    let third = write_status(&ctx, &things, &second, &status(1, &[("b", "z")])).await.unwrap().unwrap();
    assert_eq!(third.status, Some(status(1, &[("b", "z")])));

    let error = write_status(&ctx, &things, &second, &status(2, &[])).await.unwrap_err();
    assert_eq!(error.retry(), Retry::Conflict);
    assert_eq!(error.to_string(), "write status of things.test.remuda default/a");
    // A merge writes what differs from the old view, on the new one.
    let merged =
        merge_status(&ctx, &things, &second, &status(2, &[("a", "x"), ("b", "y"), ("c", "w")])).await;
    assert_eq!(merged.unwrap().unwrap().status, Some(status(2, &[("b", "z"), ("c", "w")])));

    things.delete("a", &DeleteParams::default()).await.unwrap();
    things.create(&PostParams::default(), &thing("a")).await.unwrap();
    let error = merge_status(&ctx, &things, &third, &status(9, &[])).await.unwrap_err();
    assert_eq!(error.retry(), Retry::Conflict, "a successor is not written to");
}

#[tokio::test(start_paused = true)]
async fn an_applied_status_belongs_to_its_field_manager() {
    let world = World::start().await;
    let (ctx, things) = (world.ctx(), world.things());
    let first = things.create(&PostParams::default(), &thing("a")).await.unwrap();
    let patch = Patch::Merge(json!({"status": {"notes": {"theirs": "x"}}}));
    things.patch_status("a", &PatchParams::default(), &patch).await.unwrap();
    let ours = |seen| json!({"seen": seen, "notes": {"ours": "y"}});
    let applied = apply_status(&ctx, &things, &first, &(), &ours(1)).await.unwrap();
    assert_eq!(applied.status, Some(status(1, &[("ours", "y"), ("theirs", "x")])));
    let applied = apply_status(&ctx, &things, &first, &(), &json!({"seen": 2})).await.unwrap();
    assert_eq!(applied.status, Some(status(2, &[("theirs", "x")])));
}

#[tokio::test(start_paused = true)]
async fn what_must_exist_is_created_once() {
    let world = World::bare().await;
    let ctx = world.ctx();
    let maps: Api<ConfigMap> = Api::namespaced(world.client(), "default");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("a".to_owned());
    let all = futures::future::join_all((0..8).map(|_| get_or_create(&ctx, &maps, &map))).await;
    let uids: std::collections::BTreeSet<String> =
        all.into_iter().map(|map| map.unwrap().uid().unwrap()).collect();
    assert_eq!(uids.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_event_is_one_object_that_counts() {
    let world = World::start().await;
    let ctx = world.ctx();
    let thing = world.things().create(&PostParams::default(), &thing("a")).await.unwrap();
    let events: Api<Event> = Api::namespaced(world.client(), "default");
    for _ in 0..10 {
        ctx.recorder.normal(&thing, "Grown", "Grow", "it is larger now");
    }
    ctx.recorder.warning(&thing, "Stuck", "Grow", "it does not grow");
    let read = async || {
        let mut list = events.list(&Default::default()).await.unwrap().items;
        list.sort_by_key(|event| event.reason.clone());
        list
    };
    until("both are written", async || {
        let list = read().await;
        list.len() == 2 && list[0].series.is_some()
    })
    .await;
    let list = read().await;
    let (grown, stuck) = (&list[0], &list[1]);
    assert_eq!(grown.series.as_ref().unwrap().count, 2);
    assert_eq!(grown.regarding.as_ref().unwrap().uid, thing.uid());
    assert_eq!(grown.reporting_controller.as_deref(), Some("remuda-test"));
    assert_eq!((stuck.type_.as_deref(), stuck.note.as_deref()), (Some("Warning"), Some("it does not grow")));
    // What was only counted is written with the next one, some minutes later.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(150)).await;
        ctx.recorder.normal(&thing, "Grown", "Grow", "it is larger now");
    }
    until("the count is written", async || read().await[0].series.as_ref().unwrap().count == 13).await;
    assert_eq!(read().await.len(), 2);
    // Tools of either API find the times and the count where they look for them.
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::namespaced(world.client(), "default");
    for event in events.list(&Default::default()).await.unwrap() {
        let repeated = event.reason.as_deref() == Some("Grown");
        assert_eq!(event.count, Some(if repeated { 13 } else { 1 }));
        let (first, last) = (event.first_timestamp.unwrap().0, event.last_timestamp.unwrap().0);
        assert!(first <= last && event.event_time.is_some(), "{first} {last}");
        assert_eq!(event.source.unwrap().component.as_deref(), Some("remuda-test"));
    }
    ctx.stop().await;
}
