//! Servers that start again.

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use remuda_api::management::Setting;
use serde_json::json;

use crate::world::{World, edge, until};

#[tokio::test(start_paused = true)]
async fn a_restart_writes_nothing() {
    let (world, running) = World::running().await;
    world.create_demo().await;
    world.create("edge", edge()).await;
    let edge = world.told("edge", "RKECluster", "True", "").await;
    world.connect(&edge.status.unwrap().cluster_name, true).await;
    world.told("edge", "Created", "True", "").await;
    world.settle().await;
    running.stop().await;
    let before = world.writes().len();
    let running = world.run();
    world.settle().await;
    let writes = world.writes().split_off(before);
    assert_eq!(writes, Vec::<String>::new());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn values_of_settings_survive_and_defaults_follow() {
    let (world, running) = World::running().await;
    let settings: Api<Setting> = Api::all(world.client());
    let url = world.eventually(&settings, "server-url", "is there", |_| true).await;
    assert_eq!(url.effective(), "https://mgr.example.com");
    let uuid = world.eventually(&settings, "install-uuid", "is there", |_| true).await;
    assert_eq!(uuid.value.len(), 36);
    running.stop().await;
    let patch = Patch::Merge(json!({"value": "https://other.example.com", "default": "https://former"}));
    settings.patch("server-url", &PatchParams::default(), &patch).await.unwrap();
    let running = world.run();
    until("the default follows", async || {
        settings.get("server-url").await.unwrap().default == "https://mgr.example.com"
    })
    .await;
    assert_eq!(settings.get("server-url").await.unwrap().effective(), "https://other.example.com");
    assert_eq!(settings.get("install-uuid").await.unwrap().value, uuid.value);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_moment_leaves_one_of_everything() {
    let world = World::start().await;
    let running = world.run();
    until("settings are there", async || {
        let settings: Api<Setting> = Api::all(world.client());
        settings.get_opt("install-uuid").await.unwrap().is_some()
    })
    .await;
    running.kill().await;
    world.create("edge", edge()).await;
    // Each life lasts for one more write than the one before.
    for life in 0..12 {
        let before = world.writes().len();
        let running = world.run();
        for _ in 0..300 {
            if world.writes().len() > before + life % 4 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        running.kill().await;
    }
    let running = world.run();
    let cluster = world.told("edge", "RKECluster", "True", "").await;
    world.settle().await;
    let managements = world.managements().list(&Default::default()).await.unwrap().items;
    assert_eq!(managements.len(), 1);
    assert_eq!(managements[0].metadata.name.as_deref(), Some(cluster.status.unwrap().cluster_name.as_str()));
    running.stop().await;
}
