//! What people write must not choose which files of the host are read and written, nor which driver acts on it.

use std::io::Read;

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::world::{NAMESPACE, TOKEN, World, data, until};

#[tokio::test]
async fn settings_cannot_read_the_files_of_the_host() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    let spec = json!({
        "region": "/etc/passwd", "common": {"cloudCredentialSecretName": "cattle-global-data:cc-do"},
    });
    world.machine_of("m1", "DigitaloceanMachine", spec).await;
    until("it has failed", async || world.condition("m1", "CreateJob").await.0 == "False").await;
    let (_, message) = world.condition("m1", "CreateJob").await;
    assert!(message.contains("--digitalocean-region names a file of the server's host"), "{message}");
    // A credential is a setting, too: its keys are flags of the driver, whichever there are.
    for (name, field, path) in [
        ("m2", "userdata", "/etc/passwd"),
        ("m3", "sshKeyPath", "/etc/passwd"),
        ("m4", "userdata", "/dev/zero"),
    ] {
        let secret = format!("cc-{name}");
        world
            .create(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": NAMESPACE},
                "stringData": {
                    "digitaloceancredentialConfig-accessToken": TOKEN,
                    (format!("digitaloceancredentialConfig-{field}")): path,
                },
            }))
            .await;
        let spec = json!({"region": "nyc3", "common": {"cloudCredentialSecretName": secret}});
        world.machine_of(name, "DigitaloceanMachine", spec).await;
        until("it has failed", async || world.condition(name, "CreateJob").await.0 == "False").await;
        let (_, message) = world.condition(name, "CreateJob").await;
        assert!(message.contains("names a file of the server's host"), "{field}: {message}");
    }
    assert_eq!(world.cloud.api.resources(), Vec::<String>::new(), "nothing was sent anywhere");
    running.stop().await;
}

/// The archive of a state Secret with another record.
fn with_record(archive: &[u8], change: impl Fn(&mut Value)) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for entry in tar::Archive::new(GzDecoder::new(archive)).entries().unwrap() {
        let mut entry = entry.unwrap();
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        let (_, inner) = path.split_once("/machines/").unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        if inner.ends_with("config.json") {
            let mut record: Value = serde_json::from_slice(&content).unwrap();
            change(&mut record);
            content = record.to_string().into_bytes();
        }
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        builder.append_data(&mut header, format!("machines/{inner}"), content.as_slice()).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// A user who may write Secrets of a namespace may not delete through a driver they were not given: one of class `host`
/// acts on the server's own host.
#[tokio::test]
async fn a_record_of_another_driver_is_not_acted_on() {
    let world = World::start().await;
    let running = world.run();
    world.activate("digitalocean").await;
    world.cluster().await;
    world.machine("m1").await;
    world.until_ready("m1").await;
    let secrets = world.secrets();
    let stored = data(&secrets.get("m1-machine-state").await.unwrap())["extractedConfig"].clone();
    let write = async |archive: &[u8]| {
        let patch = json!({"data": {"extractedConfig": k8s_openapi::ByteString(archive.to_vec())}});
        secrets.patch("m1-machine-state", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    write(&with_record(&stored, |record| record["DriverName"] = "generic".into())).await;
    world.machines().delete("m1", &DeleteParams::default()).await.unwrap();
    until("it is refused", async || world.condition("m1", "DeleteJob").await.0 == "False").await;
    let (_, message) = world.condition("m1", "DeleteJob").await;
    let expected = "machine m1 is of driver \"digitalocean\", and its state says \"generic\"";
    assert!(message.contains(expected), "{message}");
    assert_eq!(world.cloud.api.droplets().len(), 1, "the server stays known");

    // As it was written it is removed, through links that lead elsewhere as well.
    write(&with_record(&stored, |record| record["Driver"]["SSHKeyPath"] = "/etc/passwd".into())).await;
    let jobs: Api<Job> = Api::namespaced(world.api.client(), NAMESPACE);
    jobs.delete("m1-machine-provision", &DeleteParams::background()).await.unwrap();
    world.until_gone("m1").await;
    assert_eq!(world.cloud.api.resources(), Vec::<String>::new());
    running.stop().await;
}
