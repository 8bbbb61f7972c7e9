//! Plan Secrets that say something else than the objects they were made for.

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use remuda_plan::NodePlan;
use serde_json::json;

use crate::world::{CLUSTER, World, machine_name, until};

/// All files of a machine's plan, as one text.
async fn files(world: &World, id: &str) -> String {
    let plan = world.plan_secret(id).await.data.unwrap()["plan"].0.clone();
    let plan = NodePlan::decode(&plan).unwrap();
    let texts = plan.files.iter().map(|file| BASE64_STANDARD.decode(file.content.as_bytes()).unwrap());
    texts.map(|text| String::from_utf8_lossy(&text).into_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn labels_on_a_plan_secret_make_no_worker_a_server_and_no_machine_another() {
    let world = World::start(json!({})).await;
    world.agents.run();
    let running = world.run();
    world.register("server:ecw worker:w victim:w").await;
    world.settle().await;
    let state = world.api::<Secret>().get(&format!("{CLUSTER}-rke-state")).await.unwrap();
    let token = String::from_utf8(state.data.unwrap()["serverToken"].0.clone()).unwrap();
    assert!(files(&world, "server").await.contains(&token));
    assert!(!files(&world, "worker").await.contains(&token));

    // Its agent does nothing more, so that what it "reports" here stays.
    world.agents.down("worker", true);
    let name = format!("{}-machine-plan", machine_name("worker"));
    let patch = json!({
        "metadata": {"labels": {
            "rke.cattle.io/control-plane-role": "true",
            "rke.cattle.io/etcd-role": "true",
            "rke.cattle.io/machine-name": machine_name("victim"),
            "plan.cattle.io/machine-name": machine_name("victim"),
        }},
        "data": {"plan-state": BASE64_STANDARD.encode("failed")},
    });
    world.api::<Secret>().patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    until("the machine whose plan it is failed", async || {
        world.machine_condition("worker", "PlanApplied").await.starts_with("False Error")
    })
    .await;
    assert_eq!(world.machine_condition("victim", "PlanApplied").await, "True PlanApplied ");

    let before = world.plan_secret("worker").await.data.unwrap()["plan"].clone();
    world.agents.down("worker", false);
    world.edit(json!({"machineGlobalConfig": {"kubelet-arg": ["max-pods=200"]}})).await;
    world.settle().await;
    let after = world.plan_secret("worker").await;
    assert_ne!(after.data.as_ref().unwrap()["plan"], before, "there is a next plan");
    assert!(!files(&world, "worker").await.contains(&token), "and it has no token of servers");
    assert_eq!(world.machine_condition("worker", "PlanApplied").await, "True PlanApplied ");
    running.stop().await;
}
