//! Certificates that are rotated before they end, when a maintenance window opens.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use kube::api::{Patch, PatchParams};
use remuda_api::{
    core::Machine,
    rke::{CertificateRenewal, RkeControlPlane},
};
use remuda_names::{
    capi::annotation::CERTIFICATES_EXPIRY,
    provisioning::annotation::{MAINTENANCE_WINDOW, ROTATE_CERTIFICATES, ROTATE_CERTIFICATES_AUTO},
    waiting,
};
use serde_json::json;

use crate::world::{CLUSTER, World, machine_name, until};

async fn renewal(world: &World) -> CertificateRenewal {
    let control_plane = world.api::<RkeControlPlane>().get(CLUSTER).await.unwrap();
    control_plane.status.unwrap_or_default().certificate_renewal.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_rotation_waits_for_its_window_without_holding_anything_up_and_begins_when_it_opens() {
    let start = Timestamp::now();
    let world = World::start(json!({})).await;
    world.agents.run();
    let running = world.run();
    world.register("server:ecw worker:w").await;
    world.settle().await;

    // In three hours, for one hour.
    let minute = (start.as_second() + 3 * 3600) / 60 * 60;
    let opens = Timestamp::from_second(minute).unwrap();
    let clock = |at: Timestamp| at.to_zoned(TimeZone::UTC).strftime("%H:%M").to_string();
    let window = format!("daily {}-{} UTC", clock(opens), clock(opens + SignedDuration::from_hours(1)));
    let annotations = json!({MAINTENANCE_WINDOW: window, ROTATE_CERTIFICATES: ROTATE_CERTIFICATES_AUTO});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    world.api::<RkeControlPlane>().patch(CLUSTER, &PatchParams::default(), &patch).await.unwrap();
    let ends = (start + SignedDuration::from_hours(30 * 24)).to_string();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {CERTIFICATES_EXPIRY: ends}}}));
    world.api::<Machine>().patch(&machine_name("server"), &PatchParams::default(), &patch).await.unwrap();

    until("it is told", async || renewal(&world).await.code == waiting::MAINTENANCE_WINDOW).await;
    world.settle().await;
    let told = renewal(&world).await;
    assert_eq!((told.machine, told.opens.map(|at| at.0)), (machine_name("server"), Some(opens)));
    // What machines booted with is over, and nothing is written while it waits.
    tokio::time::sleep(Duration::from_secs(2_000)).await;
    let before = world.writes().len();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.writes()[before..], [] as [String; 0]);

    // The timer is set for the opening: the safety net alone would come minutes later.
    let mut begun = None;
    for _ in 0..3 * 3600 / 2 {
        begun = renewal(&world).await.begun.map(|at| at.0);
        if begun.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let late = begun.expect("it never began").duration_since(opens);
    assert!(!late.is_negative() && late < SignedDuration::from_secs(5), "{late}");
    until("it is done", async || renewal(&world).await.ended.is_some()).await;
    world.settle().await;
    let told = renewal(&world).await;
    assert_eq!((told.code.as_str(), told.begun), ("", None));
    running.stop().await;
}
