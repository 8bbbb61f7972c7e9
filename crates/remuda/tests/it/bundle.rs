//! `remuda bundle`, and a server that is told about registries.

use std::{fs, path::Path};

use remuda_registry::bundle::{self, Source};
use serde_json::{Value, json};

use crate::harness::{Place, Server, ended_with, remuda, success};

/// A bundle of one image for amd64, and the digest of its layer.
fn bundle(place: &Place) -> (std::path::PathBuf, String) {
    let mut source = Source { made_by: "0.1.0".to_owned(), ..Source::default() };
    source.architectures.insert("amd64".to_owned());
    let mut add = |name: &str, content: &[u8]| {
        fs::write(place.join(name), content).unwrap();
        source.add(place.join(name)).unwrap()
    };
    let layer = add("layer", &[7; 3000]);
    let config_text = json!({"architecture": "amd64", "os": "linux"}).to_string();
    let config = add("config", config_text.as_bytes());
    let manifest = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"digest": config, "size": config_text.len()},
        "layers": [{"digest": layer, "size": 3000}],
    });
    let manifest = add("manifest", manifest.to_string().as_bytes());
    source.images.insert("docker.io/rancher/a:v1".to_owned(), manifest);
    let path = place.join("a.bundle");
    bundle::write(&path, &source).unwrap();
    (path, layer)
}

fn verify(path: &Path) -> std::process::Command {
    let mut command = remuda();
    command.args(["bundle", "verify"]).arg(path);
    command
}

#[test]
fn a_bundle_that_is_not_whole_is_refused_with_the_name_of_the_part() {
    let place = Place::new();
    let (path, layer) = bundle(&place);
    let shown = success(remuda().args(["bundle", "inspect", "-o", "json"]).arg(&path));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let digest = shown["digest"].as_str().unwrap().to_owned();
    assert_eq!(shown["parts"][&layer], 3000);
    assert!(success(remuda().args(["bundle", "inspect"]).arg(&path)).contains("docker.io/rancher/a:v1"));
    let said = success(verify(&path).args(["--architecture", "amd64", "--digest", &digest]));
    assert!(said.contains("is whole: 1 images"), "{said}");

    let other = ended_with(verify(&path).args(["--digest", "sha256:0"]), 2);
    assert!(other.contains(&format!("has the digest {digest}")), "{other}");
    let arm = ended_with(verify(&path).args(["--architecture", "arm64"]), 2);
    assert!(arm.contains("image docker.io/rancher/a:v1 is not made for linux/arm64"), "{arm}");

    let whole = fs::read(&path).unwrap();
    let at = whole.windows(100).position(|bytes| bytes == [7; 100]).unwrap() + 50;
    let mut bytes = whole.clone();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let flipped = ended_with(&mut verify(&path), 2);
    assert!(flipped.contains(&format!("{layer} differs from its digest")), "{flipped}");
    assert!(flipped.contains("hint: copy the bundle again"), "{flipped}");
    fs::write(&path, &whole[..at]).unwrap();
    let cut = ended_with(&mut verify(&path), 2);
    assert!(cut.contains("sha256:"), "{cut}");
    let exists = ended_with(remuda().args(["bundle", "create"]).arg(&path).arg("rancher/a:v1"), 6);
    assert!(exists.contains("exists"), "{exists}");
}

#[test]
fn a_mistake_about_registries_is_found_before_anything_is_made() {
    let place = Place::new();
    let config = place.write("registries.yaml", "registries:\n  docker.io:\n    repositories: [\"../x\"]\n");
    let data = place.data();
    let start = |config: &Path| {
        let mut command = remuda();
        command.args(["server", "--bind", "127.0.0.1:0", "--data-dir"]).arg(&data);
        command.arg("--registry-config").arg(config);
        command
    };
    let said = ended_with(&mut start(&config), 2);
    assert!(said.contains("registries.docker.io.repositories"), "{said}");
    assert!(!data.exists());
    let config = place.write("registries.yaml", "registries:\n  docker.io:\n    repositories: [rancher/*]\n");
    let server = Server::start(&data, &["--registry-config", config.to_str().unwrap()]);
    assert!(data.join("image-cache").is_dir());
    let (_, status) = server.stop();
    assert!(status.success(), "{status}");
}
