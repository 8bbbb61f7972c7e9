//! From a NodeDriver to kinds.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::world::{World, until};

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
        crds.get_opt("digitaloceanconfigs.rke-machine-config.cattle.io").await.unwrap().is_none()
    })
    .await;
    running.stop().await;
}
