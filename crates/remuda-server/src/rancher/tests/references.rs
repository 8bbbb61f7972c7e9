//! Kinds a running server has defined, against the table of fields that name other objects.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use remuda_api::management::NodeDriver;
use remuda_drivers::builtin::Registry;
use remuda_names::rancher::group::{MACHINE, MACHINE_CONFIG};
use remuda_provisioning::admission::references;
use serde_json::json;

use crate::{Server, config::Options};

/// Kinds of drivers are made from flags while a server runs, so no committed definition has them.
#[tokio::test(flavor = "multi_thread")]
async fn no_kind_of_a_running_server_has_a_reference_that_is_not_in_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        bind: Some("127.0.0.1:0".to_owned()),
        data_dir: Some(dir.path().to_owned()),
        ..Options::default()
    };
    let server = Server::start(options.resolve().unwrap()).await.unwrap();
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let (drivers, definitions): (Api<NodeDriver>, Api<CustomResourceDefinition>) =
        (Api::all(client.clone()), Api::all(client));
    let built_in: BTreeSet<String> = Registry::standard().names().map(|(name, _)| name.to_owned()).collect();
    assert!(built_in.len() >= 7, "{built_in:?}");
    let wanted: BTreeSet<String> = built_in
        .iter()
        .flat_map(|driver| {
            [
                format!("{driver}configs.{MACHINE_CONFIG}"),
                format!("{driver}machines.{MACHINE}"),
                format!("{driver}machinetemplates.{MACHINE}"),
            ]
        })
        .collect();
    let active = Patch::Merge(json!({"spec": {"active": true}}));
    let mut found = Vec::new();
    for _ in 0..600 {
        for driver in &built_in {
            if drivers.get_opt(driver).await.unwrap().is_some_and(|driver| !driver.spec.active) {
                drivers.patch(driver, &PatchParams::default(), &active).await.unwrap();
            }
        }
        found = definitions.list(&ListParams::default()).await.unwrap().items;
        let names: BTreeSet<String> = found.iter().map(ResourceExt::name_any).collect();
        if wanted.is_subset(&names) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let names: BTreeSet<String> = found.iter().map(ResourceExt::name_any).collect();
    let missing: Vec<&String> = wanted.difference(&names).collect();
    assert!(missing.is_empty(), "drivers have no kinds: {missing:?}");
    let untold: Vec<String> = found
        .iter()
        .flat_map(|definition| references::untold(&serde_json::to_value(definition).unwrap()))
        .collect();
    assert!(
        untold.is_empty(),
        "say in references/table.rs what these name, or why they name nothing:\n{}",
        untold.join("\n")
    );
    server.shutdown().await;
}
