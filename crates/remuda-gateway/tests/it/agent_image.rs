//! The image of the cluster agent, for machines of clusters that expect it from the server.

use std::io::Cursor;

use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use kube::api::{Patch, PatchParams};
use remuda_gateway::ProgramOptions;
use remuda_oci::Digest;
use remuda_testkit::until;
use serde_json::{Value, json};

use crate::{
    assets::{other, program},
    register::owner,
    world::{TOKEN, World},
};

const PATH: &str = "/v3/connect/agent-image";

impl World {
    async fn image(&self, path: &str, token: &str, known: &str) -> (StatusCode, HeaderMap, Vec<u8>) {
        let bearer = format!("Bearer {token}");
        let request = self.request("GET", path, &[("authorization", &bearer), ("if-none-match", known)]);
        let (parts, body) = self.send(request).await.into_parts();
        (parts.status, parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }

    async fn set(&self, version: &str, kind: &str, name: &str, change: Value) {
        let api = self.dynamic(version, kind, None);
        api.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    }
}

#[tokio::test]
async fn a_machine_gets_the_image_its_cluster_expects_and_nobody_else_does() {
    let directory = tempfile::tempdir().unwrap();
    let (binary, images) = (directory.path().join("remuda"), directory.path().join("images"));
    let (machine, name) = other();
    let own = 62 + 183 - machine;
    std::fs::write(&binary, program(own, "0.4.0")).unwrap();
    let world = World::with(|options| {
        options.agent_binary = binary.clone();
        options.programs = Some(ProgramOptions {
            directory: directory.path().join("assets"),
            images: images.clone(),
            version: "0.4.0".to_owned(),
        });
    })
    .await;
    world.setting("system-default-registry", "").await;
    let setting = ("management.cattle.io/v3", "Setting", "agent-image");
    let default = "rancher/rancher-agent:v0.4.0";
    world.set(setting.0, setting.1, setting.2, json!({"value": "", "default": default})).await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    let (_, bootstrap) = world.machine("demo", "m1", json!({})).await;
    world.account("m1-plan", "m1", "plan", owner(&bootstrap)).await;
    world.account("m1-boot", "m1", "bootstrap", owner(&bootstrap)).await;
    // One that says it is of a machine, and is not.
    world.account("forged", "m1", "plan", json!([])).await;
    // The last to be made: when it is known, so are the others.
    let others = [world.account_token("m1-boot").await, world.account_token("forged").await];
    let plan = world.account_token("m1-plan").await;
    until("the token is known", async || world.image(PATH, &plan, "").await.0 == StatusCode::OK).await;
    for token in ["", "nothing", TOKEN].into_iter().chain(others.iter().map(String::as_str)) {
        assert_eq!(world.image(PATH, token, "").await.0, StatusCode::UNAUTHORIZED, "{token}");
    }
    let (status, headers, archive) = world.image(PATH, &plan, "").await;
    assert_eq!(status, StatusCode::OK);
    let sum = Digest::of(&archive).hex().to_owned();
    assert_eq!(headers["etag"].to_str().unwrap(), format!("\"{sum}\""));
    assert_eq!(headers["content-length"].to_str().unwrap(), archive.len().to_string());
    let mut names = Vec::new();
    for entry in tar::Archive::new(Cursor::new(&archive)).entries().unwrap() {
        names.push(entry.unwrap().path().unwrap().to_string_lossy().into_owned());
    }
    assert!(
        names.contains(&"index.json".to_owned()) && names.contains(&"manifest.json".to_owned()),
        "{names:?}"
    );
    let text = String::from_utf8_lossy(&archive);
    assert!(text.contains("docker.io/rancher/rancher-agent:v0.4.0"));
    let (status, _, nothing) = world.image(PATH, &plan, &format!("\"{sum}\"")).await;
    assert_eq!((status, nothing.len()), (StatusCode::NOT_MODIFIED, 0));
    // It is made once, and anew for another program.
    let kept = || std::fs::read_dir(&images).unwrap().count();
    assert_eq!(kept(), 1);
    std::fs::write(&binary, program(own, "0.4.1")).unwrap();
    let (status, _, newer) = world.image(PATH, &plan, &format!("\"{sum}\"")).await;
    assert_eq!(status, StatusCode::OK);
    assert!(newer != archive);
    assert_eq!(kept(), 1);
    // What is missing is said.
    let path = format!("{PATH}?architecture={name}");
    let (status, _, text) = world.image(&path, &plan, "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(String::from_utf8_lossy(&text).contains("`remuda assets add FILE`"));
    // A cluster that has an image of its own is left alone.
    let gone = async || world.image(PATH, &plan, "").await.0 == StatusCode::NO_CONTENT;
    let back = async || world.image(PATH, &plan, "").await.0 == StatusCode::OK;
    let cluster = ("management.cattle.io/v3", "Cluster", "c-m-1");
    for (object, change, undo) in [
        (setting, json!({"value": "r.example/agent:v1"}), json!({"value": ""})),
        (
            (setting.0, setting.1, "system-default-registry"),
            json!({"value": "r.example"}),
            json!({"value": ""}),
        ),
        (
            cluster,
            json!({"spec": {"agentImageOverride": "r.example/agent:v1"}}),
            json!({"spec": {"agentImageOverride": null}}),
        ),
    ] {
        world.set(object.0, object.1, object.2, change).await;
        until("the cluster has its own image", gone).await;
        world.set(object.0, object.1, object.2, undo).await;
        until("the cluster expects the server's again", back).await;
    }
}
