//! Pulling through: what machines ask for, and what a registry elsewhere is asked.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::TryStreamExt;
use http::StatusCode;
use remuda_registry::{
    Credentials, Mirror, Mirrors, Registry, Store, Upstream,
    serve::{Content, Found, Refused, Served},
};
use tempfile::TempDir;

use crate::fake::{Fake, content, digest};

const HUB: &str = "docker.io";

struct World {
    directory: TempDir,
    registry: Arc<Registry>,
}

impl World {
    fn new(fake: &Fake, credentials: Option<Credentials>) -> World {
        let directory = tempfile::tempdir().unwrap();
        let world = World { registry: registry(directory.path(), fake, credentials), directory };
        assert!(world.directory.path().is_dir());
        world
    }

    async fn get(&self, path: &str) -> Result<(Served, Vec<u8>), Refused> {
        self.get_from(path, None).await
    }

    async fn get_from(&self, path: &str, from: Option<u64>) -> Result<(Served, Vec<u8>), Refused> {
        let mut served = self.registry.serve(path, Some(HUB), from).await?;
        let content = std::mem::replace(&mut served.content, Content::Bytes(Bytes::new()));
        let bytes = match content {
            Content::Bytes(bytes) => bytes.to_vec(),
            Content::Stream(pieces) => pieces
                .try_collect::<Vec<Bytes>>()
                .await
                .map_err(|error| Refused::Failed(error.to_string()))?
                .concat(),
        };
        Ok((served, bytes))
    }
}

fn registry(directory: &std::path::Path, fake: &Fake, credentials: Option<Credentials>) -> Arc<Registry> {
    let store = Store::open(&directory.join("cache"), 100 << 20).unwrap();
    let registry = Registry::new(&directory.join("bundles"), Some(Arc::new(store)));
    let upstream = Upstream::new(&fake.url, Some(HUB.to_owned()), credentials, None).unwrap();
    let mirror = Mirror {
        upstreams: vec![Arc::new(upstream)],
        repositories: vec!["rancher/*".to_owned(), "library/busybox".to_owned()],
    };
    registry.set_mirrors(Mirrors::from([(HUB.to_owned(), mirror)]));
    Arc::new(registry)
}

fn header<'a>(served: &'a Served, name: &str) -> &'a str {
    served.headers.iter().find(|(found, _)| *found == name).map_or("", |(_, value)| value)
}

#[tokio::test]
async fn what_a_machine_would_be_given_is_found_without_its_layers() {
    let fake = Fake::start().await;
    let layer = content(9, 300_000);
    fake.add("rancher/a", "v1", &["amd64"], &layer);
    let world = World::new(&fake, None);
    let image = remuda_oci::Reference::parse("rancher/a:v1").unwrap();
    assert_eq!(world.registry.look(&image, "amd64").await.unwrap(), Found::Mirrored);
    assert_eq!(world.registry.look(&image, "arm64").await.unwrap(), Found::OtherArchitecture);
    assert_eq!(fake.count(&digest(&layer)), 0);
    let other = remuda_oci::Reference::parse("rancher/a:v2").unwrap();
    assert!(matches!(world.registry.look(&other, "amd64").await, Err(Refused::Unknown(_))));
    let elsewhere = remuda_oci::Reference::parse("library/nginx:v1").unwrap();
    assert!(matches!(world.registry.look(&elsewhere, "amd64").await, Err(Refused::NotMirrored(_))));
    world.get(&format!("/v2/rancher/a/blobs/{}", digest(&layer))).await.unwrap();
    assert_eq!(world.registry.look(&image, "amd64").await.unwrap(), Found::Kept);
    fake.state.lock().answer = Some((StatusCode::SERVICE_UNAVAILABLE, Vec::new()));
    let busy = remuda_oci::Reference::parse("rancher/b:v1").unwrap();
    assert!(matches!(world.registry.look(&busy, "amd64").await, Err(Refused::Upstream { .. })));
}

#[tokio::test]
async fn many_machines_pull_an_image_and_the_registry_is_asked_once() {
    let fake = Fake::start().await;
    let layer = content(1, 3_000_000);
    let index = fake.add("rancher/a", "v1", &["amd64"], &layer);
    let world = World::new(&fake, None);
    let path = format!("/v2/rancher/a/blobs/{}", digest(&layer));
    let machines = (0..40).map(|_| async {
        let (served, _) = world.get("/v2/rancher/a/manifests/v1").await.unwrap();
        assert_eq!(header(&served, "docker-content-digest"), index);
        let (served, bytes) = world.get(&path).await.unwrap();
        assert_eq!(header(&served, "content-length"), layer.len().to_string());
        assert!(bytes == layer);
    });
    futures::future::join_all(machines).await;
    assert_eq!((fake.count("/blobs/"), fake.count("/manifests/")), (1, 1));

    // A download goes on where it broke off, of what is kept.
    let (served, rest) = world.get_from(&path, Some(2_999_990)).await.unwrap();
    assert_eq!(served.status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(header(&served, "content-range"), "bytes 2999990-2999999/3000000");
    assert!(rest == layer[2_999_990..]);

    // After a restart, and while the registry is away, everything is as it was.
    fake.state.lock().answer = Some((StatusCode::BAD_GATEWAY, Vec::new()));
    let again = World { registry: registry(world.directory.path(), &fake, None), directory: world.directory };
    let (served, bytes) = again.get("/v2/rancher/a/manifests/v1").await.unwrap();
    assert_eq!(header(&served, "docker-content-digest"), index);
    assert_eq!(digest(&bytes), index);
    assert!(again.get(&path).await.unwrap().1 == layer);
}

#[tokio::test]
async fn nothing_is_reached_that_is_not_mirrored() {
    let fake = Fake::start().await;
    fake.add("secret/b", "v1", &["amd64"], b"x");
    fake.add("rancher/a", "v1", &["amd64"], b"y");
    let world = World::new(&fake, None);
    let blob = format!("/v2/secret/b/blobs/{}", digest(b"x"));
    for path in [
        "/v2/secret/b/manifests/v1",
        "/v2/rancherx/b/manifests/v1",
        "/v2/library/busyboxes/manifests/v1",
        &blob,
    ] {
        assert!(matches!(world.get(path).await, Err(Refused::NotMirrored(_))), "{path}");
    }
    for path in [
        "/v2/rancher/../secret/b/manifests/v1",
        "/v2/rancher/a/tags/list",
        "/v2/rancher/a/blobs/uploads/",
        "/v2/_catalog",
    ] {
        assert!(matches!(world.get(path).await, Err(Refused::Path(_))), "{path}");
    }
    let elsewhere = world.registry.serve("/v2/rancher/a/manifests/v1", Some("quay.io"), None).await;
    assert!(matches!(elsewhere, Err(Refused::NotMirrored(_))));
    assert_eq!(fake.state.lock().asked, Vec::<String>::new());
    assert!(matches!(world.get("/v2/rancher/a/manifests/v2").await, Err(Refused::Unknown(_))));
}

#[tokio::test]
async fn a_registry_that_is_busy_or_lies_is_told_apart() {
    let fake = Fake::start().await;
    let layer = content(2, 100_000);
    fake.add("rancher/a", "v1", &["amd64"], &layer);
    let world = World::new(&fake, None);
    let path = format!("/v2/rancher/a/blobs/{}", digest(&layer));
    fake.state.lock().answer = Some((StatusCode::TOO_MANY_REQUESTS, vec![("retry-after", "17".to_owned())]));
    for path in ["/v2/rancher/a/manifests/v1", &path] {
        let Err(refused) = world.get(path).await else { panic!("{path}") };
        assert_eq!(refused.code().0, StatusCode::TOO_MANY_REQUESTS);
        let Refused::Upstream { after, .. } = refused else { panic!("{refused}") };
        assert_eq!(after, Some(Duration::from_secs(17)));
    }
    fake.state.lock().answer = None;
    // Broken off in the middle: it goes on by itself.
    fake.state.lock().break_after = Some(60_000);
    assert!(world.get(&path).await.unwrap().1 == layer);
    assert_eq!(fake.count("/blobs/"), 3);
    // Something else under a digest.
    let wrong = digest(b"promised");
    fake.state.lock().blobs.insert(wrong.clone(), Bytes::from_static(b"given"));
    assert!(world.get(&format!("/v2/rancher/a/blobs/{wrong}")).await.is_err());
    let manifest = digest(b"no manifest");
    fake.state
        .lock()
        .manifests
        .insert(format!("rancher/a@{manifest}"), ("x".to_owned(), Bytes::from_static(b"{}")));
    let Err(refused) = world.get(&format!("/v2/rancher/a/manifests/{manifest}")).await else { panic!() };
    assert!(refused.to_string().contains("differs from its digest"), "{refused}");
}

#[tokio::test]
async fn credentials_go_to_the_registry_and_not_to_where_it_redirects() {
    let (fake, storage) = (Fake::start().await, Fake::start().await);
    let layer = content(3, 1000);
    fake.add("rancher/a", "v1", &["amd64"], &layer);
    // base64 of ann:secret
    fake.state.lock().password = Some("Basic YW5uOnNlY3JldA==".to_owned());
    let credentials = Credentials { username: "ann".to_owned(), password: "secret".to_owned() };
    let world = World::new(&fake, Some(credentials));
    world.get("/v2/rancher/a/manifests/v1").await.unwrap();
    assert_eq!(fake.state.lock().shown, ["Basic YW5uOnNlY3JldA==", "Bearer good"]);
    // Storage on another host is not asked without TLS, whatever the registry says: it could be anything.
    fake.state.lock().storage = Some(storage.url.clone());
    let path = format!("/v2/rancher/a/blobs/{}", digest(&layer));
    let Err(refused) = world.get(&path).await else { panic!() };
    assert!(refused.to_string().contains("redirects to an address without TLS"), "{refused}");
    assert_eq!(storage.state.lock().asked, Vec::<String>::new());
    // A wrong password is no answer.
    fake.state.lock().storage = None;
    let stranger = World::new(&fake, None);
    assert!(stranger.get("/v2/rancher/a/manifests/v1").await.is_err());
}
