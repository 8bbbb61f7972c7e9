//! Bundles: fetched from one registry, served without one, and pushed into another.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use bytes::Bytes;
use futures::TryStreamExt;
use remuda_oci::Reference;
use remuda_registry::{
    Bundle, Registry, Store, Upstream, bundle, collect,
    serve::{Content, Found, Refused},
};

use crate::fake::{Fake, content, digest};

async fn make(fake: &Fake, directory: &Path, file: &str, architectures: &[&str]) -> Result<Bundle, String> {
    let upstream = Arc::new(Upstream::new(&fake.url, None, None, None).unwrap());
    let store = Arc::new(Store::open(directory, u64::MAX).unwrap());
    let mut source = bundle::Source { made_by: "0.1.0".to_owned(), ..bundle::Source::default() };
    let architectures: BTreeSet<String> = architectures.iter().map(|name| (*name).to_owned()).collect();
    source.architectures = architectures.clone();
    for image in ["rancher/a:v1", "rancher/b:v1"] {
        let image = Reference::parse(image).unwrap();
        let collected = collect(&upstream, &image, &architectures, &store, directory, &mut source).await;
        collected.map_err(|error| error.to_string())?;
    }
    bundle::write(&directory.join(file), &source).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_bundle_has_all_a_machine_needs_and_serves_it() {
    let (fake, directory) = (Fake::start().await, tempfile::tempdir().unwrap());
    let layer = content(4, 500_000);
    let index = fake.add("rancher/a", "v1", &["amd64", "arm64"], &layer);
    fake.add("rancher/b", "v1", &["amd64", "arm64"], &layer);
    let made = make(&fake, directory.path(), "a.bundle", &["amd64"]).await.unwrap();
    made.verify(Some("amd64")).unwrap();
    assert!(made.verify(Some("arm64")).unwrap_err().to_string().contains("is not made for linux/arm64"));
    // Two images share their layer.
    assert_eq!(fake.count(&digest(&layer)), 1);

    let bundles = directory.path().join("bundles");
    fs::create_dir(&bundles).unwrap();
    let registry = Arc::new(Registry::new(&bundles, None));
    let path = "/v2/rancher/a/manifests/v1";
    assert!(matches!(registry.serve(path, None, None).await, Err(Refused::NotMirrored(_))));
    fs::copy(made.path(), bundles.join("a.bundle")).unwrap();
    let served = registry.serve(path, None, None).await.unwrap();
    assert!(served.headers.contains(&("docker-content-digest", index)));
    let blob = format!("/v2/rancher/a/blobs/{}", digest(&layer));
    let served = registry.serve(&blob, Some("docker.io"), None).await.unwrap();
    let Content::Stream(pieces) = served.content else { panic!() };
    assert!(pieces.try_collect::<Vec<Bytes>>().await.unwrap().concat() == layer);
    let later = registry.serve(&blob, None, Some(499_999)).await.unwrap();
    assert!(later.headers.contains(&("content-length", "1".to_owned())));

    let image = Reference::parse("rancher/a:v1").unwrap();
    assert_eq!(registry.look(&image, "amd64").await.unwrap(), Found::Bundled(bundles.join("a.bundle")));
    // The index names it, and the bundle was made without it.
    assert_eq!(registry.look(&image, "arm64").await.unwrap(), Found::OtherArchitecture);
    assert_eq!(registry.look(&image, "riscv64").await.unwrap(), Found::OtherArchitecture);
    assert!(registry.is_bundled(&image).await);
    let other = Reference::parse("rancher/a:v2").unwrap();
    assert!(matches!(registry.look(&other, "amd64").await, Err(Refused::NotMirrored(_))));
    assert!(!registry.is_bundled(&other).await);

    // As one file, which says which image is which.
    let archive = directory.path().join("a.tar");
    let both = ["docker.io/rancher/a:v1", "docker.io/rancher/b:v1"];
    made.archive(&both, "amd64", &archive).unwrap();
    let mut names = Vec::new();
    let mut documents = serde_json::Map::new();
    for entry in tar::Archive::new(fs::File::open(&archive).unwrap()).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        if name.ends_with(".json") {
            documents.insert(name.clone(), serde_json::from_reader(&mut entry).unwrap());
        }
        names.push(name);
    }
    let shared = format!("blobs/sha256/{}", digest(&layer).trim_start_matches("sha256:"));
    assert_eq!(names.iter().filter(|name| **name == shared).count(), 1, "{names:?}");
    assert_eq!(documents["manifest.json"][1]["RepoTags"][0], both[1]);
    assert_eq!(documents["manifest.json"][0]["Layers"], serde_json::json!([shared]));
    let annotations = &documents["index.json"]["manifests"][0]["annotations"];
    assert_eq!(annotations["io.containerd.image.name"], both[0]);
    let refused = made.archive(&both, "arm64", &directory.path().join("b.tar")).unwrap_err().to_string();
    assert!(refused.contains("is not made for linux/arm64"), "{refused}");
    assert!(!directory.path().join("b.tar").exists());

    // One that was damaged on its way is not used.
    let mut bytes = fs::read(made.path()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(bundles.join("a.bundle")).unwrap();
    fs::write(bundles.join("b.bundle"), bytes).unwrap();
    assert!(matches!(registry.serve(path, None, None).await, Err(Refused::NotMirrored(_))));
}

#[tokio::test]
async fn a_bundle_is_pushed_whole() {
    let (fake, other, directory) = (Fake::start().await, Fake::start().await, tempfile::tempdir().unwrap());
    let layer = content(5, 200_000);
    let index = fake.add("rancher/a", "v1", &["amd64"], &layer);
    fake.add("rancher/b", "v1", &["amd64"], &layer);
    let made = make(&fake, directory.path(), "a.bundle", &["amd64"]).await.unwrap();
    let target = Upstream::new(&other.url, None, None, None).unwrap();
    let mut sent = 0;
    for (name, digest) in &made.index().images {
        let image = Reference::parse(name).unwrap();
        sent += target.push(&made, digest, &image.repository, &image.tag).await.unwrap();
    }
    assert_eq!(sent, 2, "the layer and the configuration, which both images share");
    let pulled = target.manifest("rancher/a", "v1").await.unwrap();
    assert_eq!(digest(&pulled.0), index);
    assert_eq!(other.state.lock().blobs, fake.state.lock().blobs);
}

#[tokio::test]
async fn what_cannot_be_fetched_is_named() {
    let (fake, directory) = (Fake::start().await, tempfile::tempdir().unwrap());
    fake.add("rancher/a", "v1", &["amd64"], b"x");
    let error = make(&fake, directory.path(), "a.bundle", &["arm64"]).await.unwrap_err();
    assert_eq!(error, "image docker.io/rancher/a:v1 is not made for linux/arm64");
    let error = make(&fake, directory.path(), "a.bundle", &["amd64"]).await.unwrap_err();
    assert_eq!(error, "image docker.io/rancher/b:v1");
    assert!(!directory.path().join("a.bundle").exists());
}
