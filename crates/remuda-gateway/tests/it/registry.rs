//! Images for machines: who is given them.

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use remuda_registry::{Registry, bundle};
use remuda_testkit::until;
use serde_json::{Value, json};

use crate::{
    register::owner,
    world::{TOKEN, World},
};

impl World {
    async fn v2(&self, method: &str, path: &str, authorization: &str) -> (StatusCode, HeaderMap, Vec<u8>) {
        let request = self.request(method, path, &[("authorization", authorization)]);
        let (parts, body) = self.send(request).await.into_parts();
        (parts.status, parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }
}

fn password(user: &str, token: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{token}")))
}

#[tokio::test]
async fn machines_read_images_with_the_token_of_their_plan_and_nobody_else_does() {
    let directory = tempfile::tempdir().unwrap();
    let mut source = bundle::Source::default();
    let mut add = |name: &str, content: &str| {
        std::fs::write(directory.path().join(name), content).unwrap();
        source.add(directory.path().join(name)).unwrap()
    };
    let config = add("config", "{\"architecture\":\"amd64\"}");
    let layer = add("layer", "what is in it");
    let manifest = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"digest": config, "size": 24},
        "layers": [{"digest": layer, "size": 13}],
    });
    let manifest = add("manifest", &manifest.to_string());
    source.images.insert("docker.io/rancher/a:v1".to_owned(), manifest.clone());
    let bundles = directory.path().join("bundles");
    std::fs::create_dir(&bundles).unwrap();
    bundle::write(&bundles.join("a.bundle"), &source).unwrap();
    let world = World::with(|options| {
        options.registry = Some(std::sync::Arc::new(Registry::new(&bundles, None)));
    })
    .await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    let (_, bootstrap) = world.machine("demo", "m1", json!({})).await;
    world.account("m1-plan", "m1", "plan", owner(&bootstrap)).await;
    world.account("m1-boot", "m1", "bootstrap", owner(&bootstrap)).await;
    let boot = world.account_token("m1-boot").await;
    let plan = world.account_token("m1-plan").await;
    let good = password("remuda-machine", &plan);
    until("the token is known", async || world.v2("GET", "/v2/", &good).await.0 == StatusCode::OK).await;

    let path = "/v2/rancher/a/manifests/v1?ns=docker.io";
    for authorization in [
        "",
        &format!("Bearer {TOKEN}"),
        &format!("Bearer {boot}"),
        &password("remuda-machine", &boot),
        &password("somebody", &plan),
        &password("remuda-machine", ""),
    ] {
        let (status, headers, body) = world.v2("GET", path, authorization).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{authorization}");
        assert_eq!(headers["www-authenticate"], "Basic realm=\"remuda\"");
        let said: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(said["errors"][0]["code"], "UNAUTHORIZED");
    }

    let (status, headers, body) = world.v2("GET", path, &good).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(headers["docker-content-digest"].to_str().unwrap(), manifest);
    assert_eq!(headers["docker-distribution-api-version"], "registry/2.0");
    assert_eq!(body.len().to_string(), headers["content-length"].to_str().unwrap());
    let blob = format!("/v2/rancher/a/blobs/{layer}");
    let (_, _, body) = world.v2("GET", &blob, &format!("Bearer {plan}")).await;
    assert_eq!(body, b"what is in it");
    let (status, headers, body) = world.v2("HEAD", &blob, &good).await;
    assert_eq!((status, headers["content-length"].to_str().unwrap(), body.len()), (StatusCode::OK, "13", 0));
    let (status, _, body) = world.v2("GET", "/v2/rancher/other/manifests/v1", &good).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let said: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(said["errors"][0]["code"], "NAME_UNKNOWN");
    assert_eq!(world.v2("PUT", path, &good).await.0, StatusCode::METHOD_NOT_ALLOWED);
}
