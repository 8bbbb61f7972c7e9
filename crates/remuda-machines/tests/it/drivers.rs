//! From a NodeDriver to kinds.

use std::{path::Path, time::Instant};

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::world::{World, program, public_dir, until};

/// Serves a driver's program under any name.
pub(crate) async fn publish(content: Vec<u8>) -> String {
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

pub(crate) fn node_driver(name: &str, url: &str, checksum: &str) -> serde_json::Value {
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
    let dir = public_dir();
    let copy = dir.path().join("program");
    std::fs::copy(program(), &copy).unwrap();
    let script = format!(
        "#!/bin/sh\nMACHINE_PLUGIN_DRIVER_NAME=digitalocean DIGITALOCEAN_API_URL={} exec {}\n",
        world.cloud.url(),
        copy.display()
    );
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, script.as_bytes());
    let sum = remuda_base::hex(digest);
    let url = format!("{}/docker-machine-driver-digitalocean", publish(script.into_bytes()).await);

    world.create(node_driver("wrong", &url, &"0".repeat(64))).await;
    until("a wrong checksum is told", async || {
        status(&world, "wrong", "Downloaded").await.1.contains("the checksum is")
    })
    .await;

    // So are programs that cannot run here, and programs that do not say what they are.
    let mut foreign = b"\x7fELF".to_vec();
    foreign.resize(64, 0);
    foreign[18] = 8;
    let foreign = format!("{}/docker-machine-driver-foreign", publish(foreign).await);
    world.create(node_driver("foreign", &foreign, "")).await;
    let crashing = b"#!/bin/sh\necho out of cheese >&2\nexit 3\n".to_vec();
    let crashing = format!("{}/docker-machine-driver-crashing", publish(crashing).await);
    world.create(node_driver("crashing", &crashing, "")).await;
    for (driver, kind, words) in [
        ("foreign", "Downloaded", "the program is for another processor"),
        ("foreign", "Active", "the program is for another processor"),
        ("crashing", "Installed", "out of cheese"),
        ("crashing", "Active", "out of cheese"),
    ] {
        until(&format!("{driver} tells {words:?}"), async || {
            let (is, message) = status(&world, driver, kind).await;
            is == "False" && message.contains(words)
        })
        .await;
    }
    assert_eq!(status(&world, "crashing", "Downloaded").await.0, "True");

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

/// A driver whose servers are files with the value of a field.
fn shed(servers: &Path, field: &str) -> Vec<u8> {
    let script = format!(
        r#"#!/bin/sh
case "$1" in
flags) echo '{{"flags":[{{"name":"shed-{field}","default":"small","usage":"A field"}},{{"name":"shed-userdata"}}]}}' ;;
create) echo "$REMUDA_FLAG_{upper}" > {dir}/$REMUDA_ID; echo '{{"addresses":{{"ip":"192.0.2.9"}}}}' ;;
status) [ -e {dir}/$REMUDA_ID ] && echo '{{"status":"Running"}}' || echo '{{"status":"Not Found"}}' ;;
remove) rm -f {dir}/$REMUDA_ID ;;
*) exit 64 ;;
esac
"#,
        dir = servers.display(),
        upper = field.to_uppercase(),
    );
    script.into_bytes()
}

#[tokio::test]
async fn machines_outlive_changes_of_their_driver_and_its_end() {
    let world = World::start().await;
    let running = world.run();
    let servers = public_dir();
    let (first, second) = (
        format!("{}/remuda-driver-shed", publish(shed(servers.path(), "size")).await),
        format!("{}/remuda-driver-shed", publish(shed(servers.path(), "colour")).await),
    );
    // Its name is not that of its driver.
    world.create(node_driver("nd-1", &first, "")).await;
    world.until_served("shed").await;
    world.cluster().await;
    world.machine_of("m1", "ShedMachine", json!({"size": "large"})).await;
    let ready = async |name: &str| {
        until("it is ready", async || world.condition_of("ShedMachine", name, "Ready").await.0 == "True")
            .await;
    };
    ready("m1").await;

    // A driver without a field: what was said with it is kept.
    let drivers = world.objects("management.cattle.io", "v3", "NodeDriver");
    let update = Patch::Merge(json!({"spec": {"url": second}}));
    drivers.patch("nd-1", &PatchParams::default(), &update).await.unwrap();
    let schemas = world.objects("management.cattle.io", "v3", "DynamicSchema");
    until("it has its other field", async || {
        let fields = schemas.get("shedconfig").await.unwrap().data["spec"]["resourceFields"].clone();
        fields["colour"].is_object() && fields["size"].is_null()
    })
    .await;
    let machines = world.objects("rke-machine.cattle.io", "v1", "ShedMachine");
    let touch = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
    let touched = machines.patch("m1", &PatchParams::default(), &touch).await.unwrap();
    assert_eq!(touched.data["spec"]["size"], "large");
    world.machine_of("m2", "ShedMachine", json!({"colour": "red"})).await;
    ready("m2").await;
    assert_eq!(machines.get("m2").await.unwrap().data["status"]["driverUrl"], second);

    // Out of use, and then gone: what was made with it is removed with what is recorded.
    let idle = Patch::Merge(json!({"spec": {"active": false}}));
    drivers.patch("nd-1", &PatchParams::default(), &idle).await.unwrap();
    until("the driver is not in use", async || {
        let (is, message) = status(&world, "nd-1", "Inactive").await;
        is == "True" && message.contains("stay while objects of them exist")
    })
    .await;
    machines.delete("m1", &DeleteParams::default()).await.unwrap();
    until("it is gone", async || machines.get_opt("m1").await.unwrap().is_none()).await;
    drivers.delete("nd-1", &DeleteParams::default()).await.unwrap();
    machines.delete("m2", &DeleteParams::default()).await.unwrap();
    until("it is gone", async || machines.get_opt("m2").await.unwrap().is_none()).await;
    assert_eq!(std::fs::read_dir(servers.path()).unwrap().count(), 0);
    running.stop().await;

    // Whoever runs next takes the kinds away that are nobody's.
    let running = world.run();
    let crds = world.objects("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    until("its kinds are gone", async || {
        let left = crds.list(&ListParams::default().labels("remuda.io/driver=shed")).await.unwrap();
        left.items.iter().all(|crd| crd.metadata.deletion_timestamp.is_some())
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn a_script_is_a_driver() {
    let world = World::start().await;
    let running = world.run();
    let servers = public_dir();
    let url = format!("{}/remuda-driver-shed", publish(shed(servers.path(), "size")).await);
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
