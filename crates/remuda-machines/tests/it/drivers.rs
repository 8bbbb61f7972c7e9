//! From a NodeDriver to kinds.

use std::time::Instant;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::world::{World, program, until};

/// Serves a driver's program under any name.
async fn publish(content: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", content.len());
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(&content).await;
        }
    });
    url
}

async fn status(world: &World, driver: &str, kind: &str) -> (String, String) {
    let drivers = world.objects("management.cattle.io", "v3", "NodeDriver");
    let conditions = drivers.get(driver).await.unwrap().data["status"]["conditions"].clone();
    let mut conditions = conditions.as_array().cloned().unwrap_or_default().into_iter();
    let found = conditions.find(|condition| condition["type"] == kind).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

fn node_driver(name: &str, url: &str, checksum: &str) -> serde_json::Value {
    json!({
        "apiVersion": "management.cattle.io/v3", "kind": "NodeDriver", "metadata": {"name": name},
        "spec": {"url": url, "checksum": checksum, "active": true, "builtin": false},
    })
}

/// The built-in drivers behind another name: a plugin process like any other, whose flags are those of the driver
/// it is asked for.
#[tokio::test]
async fn a_driver_from_a_url_becomes_kinds_and_makes_servers() {
    let world = World::start().await;
    let running = world.run();
    // A script that starts the real program, which is too large to serve in a test.
    let script = format!(
        "#!/bin/sh\nMACHINE_PLUGIN_DRIVER_NAME=digitalocean DIGITALOCEAN_API_URL={} exec {}\n",
        world.cloud.url(),
        program().display()
    );
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, script.as_bytes());
    let sum: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let url = format!("{}/docker-machine-driver-digitalocean", publish(script.into_bytes()).await);

    world.create(node_driver("wrong", &url, &"0".repeat(64))).await;
    until("a wrong checksum is told", async || {
        status(&world, "wrong", "Downloaded").await.1.contains("the checksum is")
    })
    .await;

    let drivers = world.objects("management.cattle.io", "v3", "NodeDriver");
    until("the driver is listed", async || drivers.get_opt("digitalocean").await.unwrap().is_some()).await;
    let patch = Patch::Merge(json!({"spec": {"url": url, "checksum": sum, "active": true}}));
    let begun = Instant::now();
    drivers.patch("digitalocean", &PatchParams::default(), &patch).await.unwrap();
    world.activate("digitalocean").await;
    tracing::info!(elapsed = ?begun.elapsed(), "driver registered");
    until("it is active", async || status(&world, "digitalocean", "Active").await.0 == "True").await;

    world.cluster().await;
    world.machine("m1").await;
    world.until_ready("m1").await;
    assert_eq!(world.cloud.api.droplets().len(), 1);
    let machine = world.machines().get("m1").await.unwrap();
    assert_eq!(machine.data["status"]["driverUrl"], url);
    world.machines().delete("m1", &DeleteParams::default()).await.unwrap();
    world.until_gone("m1").await;
    assert_eq!(world.cloud.api.resources(), Vec::<String>::new());
    running.stop().await;
}

#[tokio::test]
async fn a_script_is_a_driver() {
    let world = World::start().await;
    let running = world.run();
    let servers = tempfile::tempdir().unwrap();
    let script = format!(
        r#"#!/bin/sh
case "$1" in
flags) echo '{{"flags":[{{"name":"shed-size","default":"small","usage":"Size"}},{{"name":"shed-userdata"}}]}}' ;;
create) echo "$REMUDA_FLAG_SIZE" > {dir}/$REMUDA_ID; echo '{{"addresses":{{"ip":"192.0.2.9"}}}}' ;;
status) [ -e {dir}/$REMUDA_ID ] && echo '{{"status":"Running"}}' || echo '{{"status":"Not Found"}}' ;;
remove) rm -f {dir}/$REMUDA_ID ;;
*) exit 64 ;;
esac
"#,
        dir = servers.path().display()
    );
    let url = format!("{}/remuda-driver-shed", publish(script.into_bytes()).await);
    world.create(node_driver("shed", &url, "")).await;
    world.activate("shed").await;
    world.cluster().await;
    world.machine_of("m1", "ShedMachine", json!({"size": "large"})).await;
    until("it is ready", async || world.condition_of("ShedMachine", "m1", "Ready").await.0 == "True").await;
    let made: Vec<_> = std::fs::read_dir(servers.path()).unwrap().flatten().collect();
    assert_eq!(std::fs::read_to_string(made[0].path()).unwrap(), "large\n");
    let machines = world.objects("rke-machine.cattle.io", "v1", "ShedMachine");
    machines.delete("m1", &DeleteParams::default()).await.unwrap();
    until("it is gone", async || machines.get_opt("m1").await.unwrap().is_none()).await;
    assert_eq!(std::fs::read_dir(servers.path()).unwrap().count(), 0);
    running.stop().await;
}

#[tokio::test]
async fn a_driver_in_use_has_schemas_and_kinds_and_keeps_them_while_they_are_used() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    let schemas = world.objects("management.cattle.io", "v3", "DynamicSchema");
    let fields = schemas.get("digitaloceanconfig").await.unwrap().data["spec"]["resourceFields"].clone();
    assert_eq!(fields["accessToken"]["type"], "password");
    assert_eq!(fields["sshKeyContents"]["description"], "File contents for sshKeyPath");
    let credential = schemas.get("digitaloceancredentialconfig").await.unwrap();
    assert_eq!(credential.data["spec"]["resourceFields"]["accessToken"]["required"], true);
    let list = schemas.get("nodetemplateconfig").await.unwrap().data["spec"]["resourceFields"].clone();
    assert_eq!(list["digitaloceanConfig"]["type"], "digitaloceanconfig");
    until("the generic driver is listed too", async || {
        let list = schemas.get("nodetemplateconfig").await.unwrap().data["spec"]["resourceFields"].clone();
        list["genericConfig"].is_object()
    })
    .await;

    let config = json!({
        "apiVersion": "rke-machine-config.cattle.io/v1", "kind": "DigitaloceanConfig",
        "metadata": {"name": "nc-1", "namespace": "fleet-default"}, "region": "fra1",
    });
    let config = world.create(config).await;
    assert_eq!((&config.data["region"], &config.data["size"]), (&json!("fra1"), &json!("s-1vcpu-1gb")));

    let drivers = world.objects("management.cattle.io", "v3", "NodeDriver");
    let idle = Patch::Merge(json!({"spec": {"active": false}}));
    drivers.patch("digitalocean", &PatchParams::default(), &idle).await.unwrap();
    until("the driver is not in use", async || {
        let conditions = drivers.get("digitalocean").await.unwrap().data["status"]["conditions"].clone();
        let mut conditions = conditions.as_array().cloned().unwrap_or_default().into_iter();
        conditions.any(|condition| {
            condition["type"] == "Inactive"
                && condition["message"] == "its kinds stay while objects of them exist"
        })
    })
    .await;
    let list = schemas.get("nodetemplateconfig").await.unwrap().data["spec"]["resourceFields"].clone();
    assert!(list["digitaloceanConfig"].is_null() && list["genericConfig"].is_object());
    let configs = world.objects("rke-machine-config.cattle.io", "v1", "DigitaloceanConfig");
    configs.delete("nc-1", &DeleteParams::default()).await.unwrap();
    let touch = Patch::Merge(json!({"spec": {"description": "touched"}}));
    drivers.patch("digitalocean", &PatchParams::default(), &touch).await.unwrap();
    let crds = world.objects("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    until("its kinds are gone", async || {
        let crd = crds.get_opt("digitaloceanconfigs.rke-machine-config.cattle.io").await.unwrap();
        crd.is_none_or(|crd| crd.metadata.deletion_timestamp.is_some())
    })
    .await;
    running.stop().await;
}
