//! Unknown fields, at a running server: refused before anything is made of the rest.

use std::{process::Output, time::Duration};

use kube::{
    Api, Client,
    api::{
        ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, ValidationDirective,
    },
};
use serde_json::json;

use crate::{
    client::client,
    foreign::until,
    harness::{Place, Server, remuda},
};

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn api(
    client: &Client,
    group: &str,
    version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

pub(crate) fn refusal<T>(answer: Result<T, kube::Error>) -> (u16, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was let through"),
    }
}

#[test]
fn a_misspelled_field_makes_no_machine_of_another_size() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let admin = runtime.block_on(client(&server));
    let drivers = api(&admin, "management.cattle.io", "v3", "NodeDriver", None);
    let active = Patch::Merge(json!({"spec": {"active": true}}));
    until("drivers are listed", SOON, || {
        runtime.block_on(drivers.patch("digitalocean", &PatchParams::default(), &active)).is_ok()
    });
    let create = |words: &[&str]| -> Output {
        let mut command = remuda();
        command.args(["cluster", "create", "demo", "--driver", "digitalocean"]).args(words);
        command.arg("--data-dir").arg(place.data()).env("HOME", place.join("home")).output().unwrap()
    };
    let fails = |words: &[&str], says: &[&str]| {
        let output = create(words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        says.iter().for_each(|part| assert!(text.contains(part), "{part}\n{text}"));
    };
    fails(
        &["--machine-config", "sise=big"],
        &["DigitaloceanConfig has no field sise", "hint: did you mean size?"],
    );
    fails(&["--machine-config", "ipv6=maybe"], &["field ipv6 of DigitaloceanConfig takes true or false"]);
    fails(
        &["--pool", "name=all,roles=all,count=1,config.sizes=big"],
        &["no field sizes", "did you mean size?"],
    );
    let configs =
        api(&admin, "rke-machine-config.cattle.io", "v1", "DigitaloceanConfig", Some("fleet-default"));
    let clusters = api(&admin, "provisioning.cattle.io", "v1", "Cluster", Some("fleet-default"));
    for kind in [&configs, &clusters] {
        assert!(runtime.block_on(kind.list(&Default::default())).unwrap().items.is_empty());
    }

    // Other clients, which say nothing about fields.
    let object = |api_version: &str, kind: &str, fields: serde_json::Value| -> DynamicObject {
        let mut object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": "odd", "namespace": "fleet-default"}});
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(object).unwrap()
    };
    let post = PostParams::default();
    let config = object("rke-machine-config.cattle.io/v1", "DigitaloceanConfig", json!({"sise": "big"}));
    let (code, message) = refusal(runtime.block_on(configs.create(&post, &config)));
    assert_eq!(code, 400);
    assert!(message.contains("unknown field \"sise\" (did you mean \"size\"?)"), "{message}");
    assert!(message.contains("fieldValidation=Warn"), "{message}");
    let cluster =
        object("provisioning.cattle.io/v1", "Cluster", json!({"spec": {"kubernetesVersio": "v1.35.1+k3s1"}}));
    let (code, message) = refusal(runtime.block_on(clusters.create(&post, &cluster)));
    assert_eq!(code, 400);
    assert!(message.contains("(did you mean \"kubernetesVersion\"?)"), "{message}");

    // Whoever means it says so.
    let fine = object("rke-machine-config.cattle.io/v1", "DigitaloceanConfig", json!({"size": "big"}));
    runtime.block_on(configs.create(&post, &fine)).unwrap();
    let patch = Patch::Merge(json!({"ofNewerRancher": "x"}));
    let (code, _) = refusal(runtime.block_on(configs.patch("odd", &PatchParams::default(), &patch)));
    assert_eq!(code, 422);
    let warn = PatchParams { field_validation: Some(ValidationDirective::Warn), ..PatchParams::default() };
    let patched = runtime.block_on(configs.patch("odd", &warn, &patch)).unwrap();
    assert_eq!((patched.data["size"].as_str(), patched.data.get("ofNewerRancher")), (Some("big"), None));
}
