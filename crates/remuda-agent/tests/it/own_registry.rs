//! Installer images that the server of a machine has itself.

use remuda_oci::Digest;
use serde_json::json;

use crate::{
    image::tar,
    remote::{World, state_is},
};

/// A plan whose installer writes down what is in its image.
fn plan(world: &World) -> String {
    let script = format!("cat file >> {}", world.path("log"));
    json!({"instructions": [{
        "name": "install", "image": "127.0.0.1:1/team/installer:v1", "command": "sh", "args": ["-c", script],
    }]})
    .to_string()
}

#[tokio::test]
async fn an_installer_image_comes_from_the_server_if_it_has_one() {
    let world = World::new().await;
    world.api.change("uid-1", |_| {}).await;
    let layer = tar(&[("file", "of the server")]);
    let config = b"{}".to_vec();
    let digest = |bytes: &[u8]| Digest::of(bytes).to_string();
    let manifest = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"digest": digest(&config), "size": config.len()},
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest(&layer), "size": layer.len(),
        }],
    });
    {
        let mut state = world.api.state.lock().await;
        let place = "/v2/team/installer";
        state.registry.insert(format!("{place}/manifests/v1"), manifest.to_string().into_bytes());
        state.registry.insert(format!("{place}/blobs/{}", digest(&layer)), layer.clone());
    }
    world.deliver(&plan(&world)).await;
    world.api.wait("success", state_is("succeeded")).await;
    assert_eq!(world.read("log"), "of the server");
    let asked = world.api.state.lock().await.asked_of.clone();
    assert!(
        !asked.is_empty() && asked.iter().all(|registry| registry.replace("%3A", ":") == "127.0.0.1:1"),
        "{asked:?}"
    );
}

#[tokio::test]
async fn what_the_server_sends_must_have_its_digest() {
    let world = World::new().await;
    world.api.change("uid-1", |_| {}).await;
    let announced = Digest::of(b"announced").to_string();
    let manifest = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": announced, "size": 9}],
    });
    {
        let mut state = world.api.state.lock().await;
        state
            .registry
            .insert("/v2/team/installer/manifests/v1".to_owned(), manifest.to_string().into_bytes());
        state.registry.insert(format!("/v2/team/installer/blobs/{announced}"), b"something".to_vec());
    }
    world.deliver(&plan(&world)).await;
    // The agent then asks the image's own registry, which does not answer.
    world.api.wait("failure", state_is("failed")).await;
    assert_eq!(world.read("log"), "");
}
