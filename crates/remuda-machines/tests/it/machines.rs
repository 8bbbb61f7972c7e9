//! From a machine to a server and back.

use kube::api::{DeleteParams, Patch, PatchParams};
use remuda_machines::state;
use serde_json::json;

use crate::world::{World, data, until};

#[tokio::test]
async fn a_machine_gets_a_server_and_takes_it_along() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    world.machine("m1").await;
    world.until_ready("m1").await;
    assert_eq!(world.cloud.api.droplets().len(), 1);
    let droplet = world.cloud.api.droplets().remove(0);
    assert!(droplet["user_data"].as_str().unwrap().starts_with("#cloud-config\n"));
    let machine = world.machines().get("m1").await.unwrap();
    assert_eq!(machine.data["status"]["jobName"], "m1-machine-provision");
    assert!(machine.data["status"]["addresses"][0]["address"].is_string(), "{}", machine.data);
    assert_eq!(machine.metadata.labels.unwrap()["rke.cattle.io/capi-machine-name"], "m1");
    let secret = world.secrets().get("m1-machine-state").await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("rke.cattle.io/machine-state"));
    let facts = state::facts(&data(&secret)["extractedConfig"]).unwrap().unwrap();
    assert_eq!((facts.driver.as_str(), facts.phase), ("digitalocean", Some(state::Phase::Delivered)));
    assert!(facts.key.is_some());

    // Its node has joined: nothing but the state is needed any more.
    let joined = Patch::Merge(json!({"spec": {"providerID": "digitalocean://1"}}));
    world.machines().patch("m1", &PatchParams::default(), &joined).await.unwrap();
    let jobs = world.objects("batch", "v1", "Job");
    until("the job is gone", async || jobs.get_opt("m1-machine-provision").await.unwrap().is_none()).await;
    assert!(world.secrets().get_opt("m1-machine-driver-secret").await.unwrap().is_none());
    until("it is provisioned", async || {
        world.machines().get("m1").await.unwrap().data["status"]["initialization"]["provisioned"] == true
    })
    .await;

    world.machines().delete("m1", &DeleteParams::default()).await.unwrap();
    world.until_gone("m1").await;
    assert_eq!(world.cloud.api.resources(), Vec::<String>::new());
    assert!(world.secrets().get_opt("m1-machine-state").await.unwrap().is_none());
    let log = world.logs().get("m1-machine-log").await.unwrap().data.unwrap();
    assert!(log["create"].contains("Creating DigitalOcean droplet..."), "{log:?}");
    assert!(log["remove"].contains("Machine m1 is removed"), "{log:?}");
    running.stop().await;
}
