//! Clusters that are stopped by a schedule, and clusters with an end.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use remuda_api::{provisioning::Cluster, rke::RkeControlPlane};
use remuda_control::clock::Clock;
use remuda_names::provisioning::annotation::{EXPIRES, HIBERNATE, HIBERNATE_SCHEDULE, PROTECTED, WAKE};
use serde_json::{Value, json};

use crate::world::{World, edge};

const HOUR: Duration = Duration::from_secs(3600);

async fn annotate(world: &World, key: &str, value: Value) {
    world.edit("edge", json!({"metadata": {"annotations": {key: value}}})).await;
}

fn whole(at: Timestamp) -> Value {
    json!(Timestamp::from_second(at.as_second()).unwrap().to_string())
}

fn expiring(cluster: &Cluster) -> Option<String> {
    let mut conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    conditions.find(|known| known.kind == "Expiring").map(|known| known.status.clone())
}

#[tokio::test(start_paused = true)]
async fn an_end_is_told_moved_and_comes() {
    let (world, running) = World::running().await;
    world.create("edge", edge()).await;
    world.told("edge", "RKECluster", "True", "").await;
    let in_days = |days: i64| whole(world.clock.now() + SignedDuration::from_hours(24 * days));
    annotate(&world, EXPIRES, in_days(8)).await;
    tokio::time::sleep(23 * HOUR).await;
    assert_eq!(expiring(&world.clusters().get("edge").await.unwrap()), None, "it is more than a week away");
    tokio::time::sleep(2 * HOUR).await;
    world.told("edge", "Expiring", "True", "is deleted at").await;
    annotate(&world, EXPIRES, in_days(30)).await;
    world.told("edge", "Expiring", "False", "").await;

    // What lies in the past is told for an hour; what is protected stays.
    annotate(&world, EXPIRES, json!("2020-01-01T00:00:00Z")).await;
    world.told("edge", "Expiring", "True", "is deleted at").await;
    tokio::time::sleep(HOUR / 2).await;
    annotate(&world, PROTECTED, json!("true")).await;
    world.told("edge", "Expiring", "True", "is protected against deletion").await;
    tokio::time::sleep(2 * HOUR).await;
    let kept = world.told("edge", "Expiring", "True", "is not deleted").await;
    assert_eq!(kept.metadata.deletion_timestamp, None);
    annotate(&world, PROTECTED, Value::Null).await;
    let mut gone = false;
    for _ in 0..600 {
        let found = world.clusters().get_opt("edge").await.unwrap();
        gone = found.is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some());
        if gone {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(gone, "it is deleted as soon as nothing protects it");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_reaches_the_control_plane_when_its_time_comes() {
    let (world, running) = World::running().await;
    world.create("edge", edge()).await;
    world.told("edge", "RKECluster", "True", "").await;
    let asked = |control_plane: &RkeControlPlane| {
        control_plane.annotations().get(HIBERNATE).cloned().unwrap_or_default()
    };
    let control_planes = world.api::<RkeControlPlane>();
    annotate(&world, WAKE, whole(world.clock.now())).await;
    annotate(&world, HIBERNATE_SCHEDULE, json!("0 * * * * Europe/Berlin")).await;
    world.settle().await;
    let first = asked(&control_planes.get("edge").await.unwrap());
    tokio::time::sleep(HOUR).await;
    let found =
        world.eventually(&control_planes, "edge", "is to be stopped", |found| !asked(found).is_empty()).await;
    assert!(asked(&found).ends_with(":00:00Z"), "{}", asked(&found));
    assert!(first.is_empty() || first < asked(&found));
    world.told("edge", "Hibernated", "Unknown", "begins when").await;
    // That it was woken holds until the next time.
    annotate(&world, WAKE, whole(world.clock.now())).await;
    world.eventually(&control_planes, "edge", "is to run", |found| asked(found).is_empty()).await;
    world.told("edge", "Hibernated", "False", "").await;
    running.stop().await;
}
