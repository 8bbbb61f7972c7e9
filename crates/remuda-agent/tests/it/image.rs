use std::{collections::HashMap, fs, io::Write, os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use parking_lot::Mutex;
use remuda_agent::{Chain, config::Config, environment::Environment, image::Images};
use remuda_plan::sha256_hex;
use serde_json::{Value, json};

use crate::server::{Answer, Ask, Running, serve};

pub(crate) fn tar(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        header.set_cksum();
        builder.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(raw: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(raw).unwrap();
    encoder.finish().unwrap()
}

/// A `docker save` tarball, its manifest last.
pub(crate) fn saved(tag: &str, layers: &[Vec<u8>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut add = |name: &str, content: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, name, content).unwrap();
    };
    let names: Vec<String> = (0..layers.len()).map(|index| format!("blobs/sha256/{index}")).collect();
    for (name, layer) in names.iter().zip(layers).rev() {
        add(name, layer);
    }
    let manifest = json!([{"Config":"c.json","RepoTags":["other/image:v0", tag],"Layers":names}]);
    add("manifest.json", manifest.to_string().as_bytes());
    builder.into_inner().unwrap()
}

fn images(dir: &Path, registries: &str) -> Images {
    fs::create_dir_all(dir.join("images/sub")).unwrap();
    fs::write(dir.join("registries.yaml"), registries).unwrap();
    let config = Config {
        images_directory: dir.join("images"),
        agent_registries_file: dir.join("registries.yaml"),
        ..Config::default()
    };
    Images::new(&config, &Environment::default())
}

async fn stage(images: &Images, dir: &Path, name: &str) -> Result<std::path::PathBuf, String> {
    let to = dir.join("work").join(name.replace(['/', ':', '@'], "_"));
    fs::create_dir_all(&to).unwrap();
    images.stage(&to, name).await.map_err(|error| Chain(&error).to_string())?;
    Ok(to)
}

#[tokio::test]
async fn preloaded_tarballs_are_found_by_tag_whatever_their_compression() {
    let dir = tempfile::tempdir().unwrap();
    let layers =
        [tar(&[("run.sh", "one"), ("gone", "x")]), gzip(&tar(&[("run.sh", "two"), (".wh.gone", "")]))];
    let place = dir.path().join("images");
    fs::create_dir_all(place.join("sub")).unwrap();
    fs::write(place.join("sub/a.TAR"), saved("rancher/installer:v1", &layers)).unwrap();
    fs::write(place.join("b.tar.gz"), gzip(&saved("docker.io/rancher/installer:v2", &layers))).unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(
        saved("r.example.com/installer:v3", &layers).as_slice(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    fs::write(place.join("c.tar.zst"), zstd).unwrap();
    fs::write(place.join("0-broken.tar.gz"), b"\x1f\x8bnonsense").unwrap();
    fs::write(place.join(".hidden.tar"), saved("rancher/hidden:v1", &layers)).unwrap();
    let images = images(dir.path(), "");
    for name in ["rancher/installer:v1", "rancher/installer:v2", "r.example.com/installer:v3"] {
        let to = stage(&images, dir.path(), name).await.unwrap();
        assert_eq!(fs::read_to_string(to.join("run.sh")).unwrap(), "two");
        assert!(!to.join("gone").exists());
        assert_eq!(fs::metadata(to.join("run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
    }
}

#[derive(Default)]
struct Registry {
    blobs: HashMap<String, Vec<u8>>,
    tags: HashMap<String, Vec<u8>>,
    asked: Mutex<Vec<String>>,
    address: Mutex<String>,
    corrupt: bool,
}

impl Registry {
    fn blob(&mut self, raw: Vec<u8>) -> Value {
        let digest = format!("sha256:{}", sha256_hex(&raw));
        let size = raw.len();
        self.blobs.insert(digest.clone(), raw);
        json!({"digest": digest, "size": size, "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"})
    }

    /// An index with a manifest for this and one for another platform.
    fn image(&mut self, name: &str, layers: &[Vec<u8>]) {
        let layers: Vec<Value> = layers.iter().map(|layer| self.blob(layer.clone())).collect();
        let mut manifest = self.blob(json!({"schemaVersion":2,"layers":layers}).to_string().into_bytes());
        let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
        manifest["platform"] = json!({"os":"linux","architecture":architecture});
        let other = json!({"digest":"sha256:0","platform":{"os":"linux","architecture":"mips"}});
        let index = json!({"schemaVersion":2,"manifests":[other, manifest]});
        self.tags.insert(name.to_owned(), index.to_string().into_bytes());
    }

    async fn serve(self) -> (Arc<Self>, Running) {
        let registry = Arc::new(self);
        let shared = registry.clone();
        let running = serve(None, move |ask| {
            let registry = shared.clone();
            async move { registry.answer(&ask) }
        })
        .await;
        *registry.address.lock() = running.address.to_string();
        (registry, running)
    }

    fn answer(&self, ask: &Ask) -> Answer {
        let namespace = ask.query.get("ns").map_or(String::new(), |ns| format!(" ns={ns}"));
        self.asked.lock().push(format!("{}{namespace}", ask.path));
        let address = self.address.lock().clone();
        let authorization = ask.headers.get("authorization").map_or("", String::as_str);
        if ask.path == "/token" {
            assert_eq!(ask.query["scope"], "repository:mirrored/a:pull");
            // base64 of u:p
            return if authorization == "Basic dTpw" {
                Answer::json(200, &json!({"token":"t0k"}))
            } else {
                Answer::text(403, "")
            };
        }
        if let Some(digest) = ask.path.strip_prefix("/storage/") {
            assert_eq!(authorization, "", "credentials do not follow redirects to other hosts");
            return Answer::Full(200, Vec::new(), self.blobs[digest].clone());
        }
        if authorization != "Bearer t0k" {
            let challenge = format!(
                "Bearer realm=\"http://{address}/token\",service=\"s\",scope=\"repository:mirrored/a:pull\""
            );
            return Answer::Full(401, vec![("WWW-Authenticate".into(), challenge)], Vec::new());
        }
        let Some(rest) = ask.path.strip_prefix("/v2/hub/mirrored/a/") else { return Answer::text(404, "{}") };
        match rest.split_once('/') {
            Some(("manifests", name)) => match self.tags.get(name).or_else(|| self.blobs.get(name)) {
                Some(raw) => Answer::Full(200, Vec::new(), raw.clone()),
                None => Answer::json(404, &json!({"errors":[{"message":"manifest unknown"}]})),
            },
            Some(("blobs", digest)) if self.corrupt => Answer::text(200, digest),
            Some(("blobs", digest)) => {
                let port = address.rsplit_once(':').unwrap().1;
                let location = format!("http://localhost:{port}/storage/{digest}");
                Answer::Full(307, vec![("Location".into(), location)], Vec::new())
            }
            _ => Answer::text(404, ""),
        }
    }
}

fn settings(address: &str, auth: &str) -> String {
    format!(
        "mirrors:\n  docker.io:\n    endpoint: ['http://127.0.0.1:1', 'http://{address}/v2/hub']\n    rewrite: {{'^rancher/(.*)': 'mirrored/$1'}}\n\
         configs:\n  '{address}':\n    auth: {auth}\n"
    )
}

#[tokio::test]
async fn an_image_comes_from_the_first_mirror_that_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut registry = Registry::default();
    registry.image("v1", &[gzip(&tar(&[("run.sh", "one")])), tar(&[("bin/x", "two")])]);
    let (registry, running) = registry.serve().await;
    let images = images(dir.path(), &settings(&running.address.to_string(), "{username: u, password: p}"));
    let to = stage(&images, dir.path(), "rancher/a:v1").await.unwrap();
    assert_eq!(fs::read_to_string(to.join("run.sh")).unwrap(), "one");
    assert_eq!(fs::read_to_string(to.join("bin/x")).unwrap(), "two");
    assert_eq!(fs::read_dir(dir.path().join("work")).unwrap().count(), 1, "layers are cleaned up");
    let asked = registry.asked.lock();
    assert!(asked[0].ends_with("manifests/v1 ns=docker.io"), "{asked:?}");
    assert_eq!(asked.iter().filter(|path| path.as_str() == "/token").count(), 1);
}

#[tokio::test]
async fn an_image_is_pulled_by_digest_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut registry = Registry::default();
    let layer = registry.blob(tar(&[("a", "b")]));
    let manifest = registry.blob(json!({"layers":[layer]}).to_string().into_bytes());
    let (_registry, running) = registry.serve().await;
    let images = images(dir.path(), &settings(&running.address.to_string(), "{auth: dTpw}"));
    let name = format!("rancher/a@{}", manifest["digest"].as_str().unwrap());
    let to = stage(&images, dir.path(), &name).await.unwrap();
    assert_eq!(fs::read_to_string(to.join("a")).unwrap(), "b");
}

#[tokio::test]
async fn failures_name_every_place_that_was_tried() {
    let dir = tempfile::tempdir().unwrap();
    let mut registry = Registry { corrupt: true, ..Registry::default() };
    registry.image("v1", &[tar(&[("a", "b")])]);
    let (_registry, running) = registry.serve().await;
    let address = running.address.to_string();
    // The registry itself is out of reach.
    let own = images(dir.path(), &settings(&address, "{username: u, password: p}"));
    let own_registry = "127.0.0.1:1/a:v1";
    let error = stage(&own, dir.path(), own_registry).await.unwrap_err();
    assert!(error.contains("https://127.0.0.1:1") && error.contains("http://127.0.0.1:1"), "{error}");
    let mirrors = settings(&address, "{username: u, password: p}")
        .replace("docker.io", "127.0.0.1:2")
        .replace("^rancher/", "^");
    let mirrored = images(dir.path(), &mirrors);
    let error = stage(&mirrored, dir.path(), "127.0.0.1:2/a:v1").await.unwrap_err();
    assert!(error.contains("does not match its digest"), "{error}");
    let error = stage(&mirrored, dir.path(), "127.0.0.1:2/a:none").await.unwrap_err();
    assert!(error.contains("manifest unknown"), "{error}");
    let wrong = mirrors.replace("password: p", "password: q");
    let error = stage(&images(dir.path(), &wrong), dir.path(), "127.0.0.1:2/a:v1").await.unwrap_err();
    assert!(error.contains("token from 127.0.0.1") && error.contains("403"), "{error}");
    assert!(
        stage(&images(dir.path(), "mirrors: ["), dir.path(), "x:y")
            .await
            .unwrap_err()
            .contains("registries.yaml")
    );
}
