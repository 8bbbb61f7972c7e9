//! Controllers that are killed in the middle of their work.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde_json::json;

use crate::world::{CLUSTER, World};

#[tokio::test(start_paused = true)]
async fn a_cluster_comes_up_however_often_its_controllers_are_killed() {
    let world = World::start(json!({})).await;
    world.agents.run();
    world.register("a:ec b:ec c:ec worker:w").await;
    let mut inits = BTreeSet::new();
    let mut tokens = BTreeSet::new();
    let mut turns: usize = 400;
    for round in 0..40 {
        let running = world.run();
        // Each time they are stopped somewhere else.
        turns = (turns * 7 + 131 * round) % 2_500 + 50;
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        running.kill().await;
        if let Some(state) = world.api::<Secret>().get_opt(&format!("{CLUSTER}-rke-state")).await.unwrap() {
            tokens.insert(state.data.unwrap()["serverToken"].0.clone());
        }
        for id in ["a", "b", "c"] {
            let name = format!("{}-machine-plan", crate::world::machine_name(id));
            let secret = world.api::<Secret>().get_opt(&name).await.unwrap();
            let secret = secret.filter(|secret| secret.labels().contains_key("rke.cattle.io/init-node"));
            if secret.is_some_and(|secret| secret.data.is_some_and(|data| data.contains_key("plan"))) {
                inits.insert(id);
            }
        }
    }
    let running = world.run();
    world.settle().await;
    running.stop().await;
    assert_eq!(inits.len(), 1, "only one machine was told to start a cluster: {inits:?}");
    assert_eq!(tokens.len(), 1, "tokens were made once");
}
