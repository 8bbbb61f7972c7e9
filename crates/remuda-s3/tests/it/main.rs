//! Calls to a store over TLS, with signatures checked.

#![allow(clippy::unwrap_used)]

use std::{net::Ipv4Addr, time::Duration};

use remuda_s3::{
    Config, Field, S3Error, Store,
    fake::{FakeStore, Fault, SECRET_KEY},
};
use tempfile::TempDir;

struct World {
    fake: FakeStore,
    directory: TempDir,
}

async fn world() -> World {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("buckets");
    std::fs::create_dir(&root).unwrap();
    let fake = FakeStore::start(Ipv4Addr::LOCALHOST.into(), &root).await.unwrap();
    fake.make("backups").unwrap();
    World { fake, directory }
}

impl World {
    fn store(&self, change: impl FnOnce(&mut Config)) -> Store {
        let mut config = self.fake.config("backups");
        config.folder = "clusters/demo".to_owned();
        change(&mut config);
        Store::new(config).unwrap()
    }
}

fn chain(error: &S3Error) -> String {
    remuda_base::chain::chain(error)
}

#[tokio::test]
async fn objects_are_written_listed_read_and_deleted() {
    let world = world().await;
    let store = world.store(|_| {});
    store.check().await.unwrap();
    assert!(store.list("").await.unwrap().is_empty(), "the check leaves nothing behind");
    let path = world.directory.path().join("file");
    let content: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    // Names with what an address cannot have as it is.
    let odd = "on-demand a+b&c=ü-1";
    assert_eq!(store.put_file(odd, &path).await.unwrap(), 300_000);
    store.put(".metadata/one", b"{}").await.unwrap();
    // Of another client.
    world.store(|config| config.folder = "clusters/demo2".to_owned()).put("two", b"x").await.unwrap();
    let listed = store.list("").await.unwrap();
    let names: Vec<&str> = listed.iter().map(|object| object.name.as_str()).collect();
    assert_eq!(names, [".metadata/one", odd]);
    assert_eq!(listed[1].size, 300_000);
    assert!(listed[1].modified.is_some());
    assert_eq!(store.location(odd), format!("s3://backups/clusters/demo/{odd}"));
    let back = world.directory.path().join("back");
    assert_eq!(store.get_file(odd, &back, 1 << 20).await.unwrap(), 300_000);
    assert_eq!(std::fs::read(&back).unwrap(), content);
    assert_eq!(&store.get(".metadata/one").await.unwrap()[..], b"{}");
    store.delete(odd).await.unwrap();
    store.delete(odd).await.unwrap();
    assert!(store.get_file(odd, &back, 1 << 20).await.unwrap_err().is_missing());
    assert!(!back.exists(), "what could not be read whole is not left behind");
    assert_eq!(store.list("").await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_is_wrong_is_told_with_its_setting_and_without_the_secret() {
    let world = world().await;
    let other = rcgen_certificate();
    type Change<'a> = Box<dyn FnOnce(&mut Config) + 'a>;
    let cases: Vec<(Change<'_>, Field, &str)> = vec![
        (Box::new(|config| config.bucket = "missing".to_owned()), Field::Bucket, "there is no bucket"),
        (Box::new(|config| config.secret_key.push('x')), Field::Credential, "SignatureDoesNotMatch"),
        (Box::new(|config| config.access_key.push('x')), Field::Credential, "NotSignedUp"),
        (Box::new(|config| config.endpoint_ca = other), Field::EndpointCa, "is not trusted"),
        (Box::new(|config| config.endpoint_ca.clear()), Field::EndpointCa, "is not trusted"),
        (
            Box::new(|config| {
                config.endpoint = "127.0.0.1:1".to_owned();
                config.timeout = Duration::from_secs(5);
            }),
            Field::Endpoint,
            "look into the bucket at 127.0.0.1:1",
        ),
    ];
    for (change, field, text) in cases {
        let error = world.store(change).check().await.unwrap_err();
        let told = chain(&error);
        assert!(told.contains(text), "{told}");
        assert_eq!(error.field(), field, "{told}");
        assert!(!told.contains(SECRET_KEY) && !format!("{error:?}").contains(SECRET_KEY), "{told}");
    }
    world
        .store(|config| {
            config.endpoint_ca.clear();
            config.skip_verify = true;
        })
        .check()
        .await
        .unwrap();
    let none = Config { access_key: String::new(), ..world.fake.config("backups") };
    assert_eq!(Store::new(none).err().unwrap().field(), Field::Credential);
}

/// Of another authority.
fn rcgen_certificate() -> String {
    rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap().cert.pem()
}

#[tokio::test]
async fn a_store_that_stumbles_is_asked_again_and_one_that_refuses_is_not() {
    let world = world().await;
    let store = world.store(|_| {});
    let calls = |method: &str| world.fake.calls().iter().filter(|call| call.starts_with(method)).count();
    world.fake.fault("PUT", Fault::LoseAnswer);
    world.fake.fault("PUT", Fault::Refuse(503, "SlowDown"));
    store.put("one", b"x").await.unwrap();
    assert_eq!(calls("PUT"), 3);
    assert_eq!(store.list("").await.unwrap().len(), 1);
    world.fake.fault("DELETE", Fault::LoseAnswer);
    store.delete("one").await.unwrap();
    world.fake.fault("PUT", Fault::Refuse(403, "AccessDenied"));
    let error = store.check().await.unwrap_err();
    assert!(chain(&error).contains("may not write in bucket \"backups\""), "{}", chain(&error));
    assert_eq!(calls("PUT"), 4);
    world.fake.fault("PUT", Fault::Refuse(507, "InsufficientStorage"));
    world.fake.fault("PUT", Fault::Refuse(507, "InsufficientStorage"));
    world.fake.fault("PUT", Fault::Refuse(507, "InsufficientStorage"));
    world.fake.fault("PUT", Fault::Refuse(507, "InsufficientStorage"));
    let error = store.put("full", b"x").await.unwrap_err();
    assert!(chain(&error).contains("507 InsufficientStorage"), "{}", chain(&error));
    world.fake.fault("GET", Fault::Hang);
    let hasty = world.store(|config| config.timeout = Duration::from_millis(200));
    assert!(matches!(hasty.list("").await.unwrap_err(), S3Error::Silent { .. }));
}

#[tokio::test]
async fn a_list_has_more_than_one_page() {
    let world = world().await;
    let store = world.store(|_| {});
    let folder = world.directory.path().join("buckets/backups/clusters/demo");
    std::fs::create_dir_all(&folder).unwrap();
    for at in 0..1100 {
        std::fs::write(folder.join(format!("on-demand-{at:05}")), "x").unwrap();
    }
    let listed = store.list("on-demand-").await.unwrap();
    assert_eq!(listed.len(), 1100);
    assert_eq!(listed[1099].name, "on-demand-01099");
}
