//! Pushing images to a registry made for it.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use remuda_agent::{
    Chain,
    environment::Environment,
    image::{
        push::{Pushed, push},
        registries::{Auth, Registries},
    },
};
use remuda_oci::{Architecture, Digest, Entry, Image, Reference, What, image::Parts};
use serde_json::{Value, json};

use crate::{
    remote::tls,
    server::{Answer, Ask, Running, serve},
};

#[derive(Default)]
struct Registry {
    /// Blobs and manifests by digest, manifests by tag too.
    held: Mutex<BTreeMap<String, Vec<u8>>>,
    asked: Mutex<Vec<String>>,
    address: Mutex<String>,
    /// What it says a manifest is.
    lies: bool,
}

impl Registry {
    async fn serve(self, tls: Option<Arc<rustls::ServerConfig>>) -> (Arc<Self>, Running) {
        let registry = Arc::new(self);
        let shared = registry.clone();
        let running = serve(tls, move |ask| {
            let registry = shared.clone();
            async move { registry.answer(&ask) }
        })
        .await;
        *registry.address.lock() = running.address.to_string();
        (registry, running)
    }

    fn answer(&self, ask: &Ask) -> Answer {
        self.asked.lock().push(format!("{} {}", ask.method, ask.path));
        let address = self.address.lock().clone();
        let port = address.rsplit_once(':').unwrap().1;
        let authorization = ask.headers.get("authorization").map_or("", String::as_str);
        if ask.path == "/token" {
            assert_eq!(ask.query["scope"].replace("%2C", ","), "repository:team/agent:pull,push");
            // base64 of u:p
            return match authorization {
                "Basic dTpw" => Answer::json(200, &json!({"access_token": "t0k"})),
                _ => Answer::text(401, ""),
            };
        }
        if let Some(id) = ask.path.strip_prefix("/storage/") {
            assert_eq!(authorization, "", "storage of a registry must not see its credentials");
            assert_eq!(id, "1");
            assert_eq!(ask.query["state"], "s", "what the registry wants back in an upload is sent");
            let digest = ask.query["digest"].clone();
            if Digest::of(&ask.body).to_string() != digest {
                return Answer::json(400, &json!({"errors": [{"message": "digest invalid"}]}));
            }
            self.held.lock().insert(digest, ask.body.clone());
            return Answer::text(201, "");
        }
        if authorization != "Bearer t0k" {
            let challenge = format!(
                "Bearer realm=\"http://{address}/token\",service=\"s\",scope=\"repository:team/agent:pull\""
            );
            return Answer::Full(401, vec![("WWW-Authenticate".into(), challenge)], Vec::new());
        }
        let rest = ask.path.strip_prefix("/v2/team/agent/").unwrap();
        match (ask.method.as_str(), rest.split_once('/').unwrap()) {
            ("HEAD", ("blobs", digest)) if self.held.lock().contains_key(digest) => Answer::text(200, ""),
            ("HEAD", _) => Answer::text(404, ""),
            ("POST", ("blobs", "uploads/")) => {
                let location = format!("http://localhost:{port}/storage/1?state=s");
                Answer::Full(202, vec![("Location".into(), location)], Vec::new())
            }
            ("PUT", ("manifests", name)) => {
                let digest = Digest::of(&ask.body).to_string();
                let manifest: Value = serde_json::from_slice(&ask.body).unwrap();
                assert_eq!(manifest["mediaType"], ask.headers["content-type"].as_str());
                let mut held = self.held.lock();
                held.insert(name.to_owned(), ask.body.clone());
                held.insert(digest.clone(), ask.body.clone());
                let told = if self.lies { "sha256:0".to_owned() } else { digest };
                Answer::Full(201, vec![("Docker-Content-Digest".into(), told)], Vec::new())
            }
            other => panic!("{other:?}"),
        }
    }
}

/// An image with one layer, whose files are as long as the directory is.
fn image(directory: &std::path::Path, architecture: Architecture) -> Image {
    let program = directory.join("program");
    std::fs::write(&program, vec![7; 400_000]).unwrap();
    let entry = Entry { mode: 0o755, what: What::File(program) };
    let parts = Parts {
        architecture,
        layers: vec![[(format!("bin/{architecture}"), entry)].into()],
        entrypoint: vec!["/bin/x".to_owned()],
        command: Vec::new(),
        env: Vec::new(),
        labels: BTreeMap::new(),
    };
    Image::build(&directory.join("layers"), &parts).unwrap()
}

async fn pushed(images: &[Image], at: &str, auth: Option<Auth>) -> Result<Pushed, String> {
    let reference = Reference::parse(&format!("{at}/team/agent:v1")).unwrap();
    let registries = Registries::only(at, auth, None, false);
    let pushed = push(images, &reference, &registries, &Environment::default(), false).await;
    pushed.map_err(|error| Chain(&error).to_string())
}

fn auth(password: &str) -> Option<Auth> {
    Some(Auth { username: Some("u".into()), password: Some(password.into()), ..Auth::default() })
}

#[tokio::test]
async fn an_image_is_pushed_once_and_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), Architecture::Amd64);
    let (registry, running) = Registry::default().serve(None).await;
    let at = running.address.to_string();
    let done = pushed(std::slice::from_ref(&image), &at, auth("p")).await.unwrap();
    assert_eq!((done.digest.clone(), done.sent, done.known), (image.digest(), 2, 0));
    let held = registry.held.lock().clone();
    assert_eq!(held["v1"], image.manifest);
    let layer = &image.layers[0];
    assert_eq!(held[&layer.digest.to_string()], std::fs::read(&layer.path).unwrap());
    assert_eq!(held[&Digest::of(&image.config).to_string()], image.config);
    // What is there is not sent again.
    registry.asked.lock().clear();
    let again = pushed(&[image], &at, auth("p")).await.unwrap();
    assert_eq!((again.digest, again.sent, again.known), (done.digest, 0, 2));
    assert!(
        !registry.asked.lock().iter().any(|asked| asked.starts_with("POST")),
        "{:?}",
        registry.asked.lock()
    );
}

#[tokio::test]
async fn images_of_two_architectures_have_one_name() {
    let dir = tempfile::tempdir().unwrap();
    let images = [image(dir.path(), Architecture::Amd64), image(dir.path(), Architecture::Arm64)];
    let (registry, running) = Registry::default().serve(None).await;
    pushed(&images, &running.address.to_string(), auth("p")).await.unwrap();
    let held = registry.held.lock().clone();
    let index: Value = serde_json::from_slice(&held["v1"]).unwrap();
    for (entry, image) in index["manifests"].as_array().unwrap().iter().zip(&images) {
        assert_eq!(entry["platform"]["architecture"], image.architecture.name());
        assert_eq!(held[entry["digest"].as_str().unwrap()], image.manifest);
    }
}

#[tokio::test]
async fn what_a_registry_refuses_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), Architecture::Amd64);
    let (_, running) = Registry::default().serve(None).await;
    let at = running.address.to_string();
    let images = std::slice::from_ref(&image);
    let wrong = pushed(images, &at, auth("q")).await.unwrap_err();
    assert!(wrong.contains("token from 127.0.0.1: registry answered 401"), "{wrong}");
    let (_, lying) = Registry { lies: true, ..Registry::default() }.serve(None).await;
    let lie = pushed(images, &lying.address.to_string(), auth("p")).await.unwrap_err();
    assert!(lie.starts_with("the registry calls what was pushed sha256:0, and it is sha256:"), "{lie}");
    // A layer that changed since it was made does not become an image.
    std::fs::write(&image.layers[0].path, vec![0; image.layers[0].size as usize]).unwrap();
    let (_, fresh) = Registry::default().serve(None).await;
    let changed = pushed(images, &fresh.address.to_string(), auth("p")).await.unwrap_err();
    assert!(changed.contains("digest invalid"), "{changed}");
}

#[tokio::test]
async fn a_registry_nobody_knows_gets_nothing_unless_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let image = image(dir.path(), Architecture::Amd64);
    let (config, pem) = tls("localhost");
    let (registry, running) = Registry::default().serve(Some(config)).await;
    let at = format!("localhost:{}", running.address.port());
    let refused = pushed(std::slice::from_ref(&image), &at, auth("p")).await.unwrap_err();
    assert!(refused.starts_with("no connection to the registry: https: TLS handshake"), "{refused}");
    assert_eq!(registry.asked.lock().len(), 0);
    // Its certificate makes it known, and so does saying that nobody has to be.
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, pem).unwrap();
    let reference = Reference::parse(&format!("{at}/team/agent:v1")).unwrap();
    for (ca_file, insecure) in [(Some(ca), false), (None, true)] {
        let registries = Registries::only(&at, auth("p"), ca_file, insecure);
        let (images, environment) = (std::slice::from_ref(&image), Environment::default());
        let pushed = push(images, &reference, &registries, &environment, false).await;
        // The fake's token service is one without TLS, to which no password goes.
        let error = Chain(&pushed.unwrap_err()).to_string();
        assert!(error.contains("wants its password sent elsewhere without TLS"), "{error}");
    }
    assert_eq!(registry.asked.lock().len(), 2);
}
