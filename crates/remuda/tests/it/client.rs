//! A kube-rs client for a server, and the few objects most tests need.

use std::{collections::BTreeMap, path::Path};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::harness::Server;

pub(crate) async fn client(server: &Server) -> Client {
    client_with(&server.kubeconfig(), |_| {}).await
}

/// A client from a kubeconfig, after a change to it.
pub(crate) async fn client_with(kubeconfig: &Path, change: impl FnOnce(&mut Kubeconfig)) -> Client {
    let mut kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    change(&mut kubeconfig);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    // What the server says is what tests look at; tries in the client's own rhythm would hide it for minutes.
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

pub(crate) fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

pub(crate) async fn create_config_map(client: &Client, name: &str, value: &str) -> u64 {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let created = api.create(&PostParams::default(), &config_map(name, value)).await.unwrap();
    created.metadata.resource_version.unwrap().parse().unwrap()
}

pub(crate) async fn config_map_value(client: &Client, name: &str) -> Option<String> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    api.get_opt(name).await.unwrap()?.data?.remove("value")
}

pub(crate) async fn create_secret(client: &Client, name: &str, value: &str) {
    let api: Api<Secret> = Api::namespaced(client.clone(), "default");
    let secret = Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        string_data: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
        ..Secret::default()
    };
    api.create(&PostParams::default(), &secret).await.unwrap();
}

pub(crate) async fn secret_value(client: &Client, name: &str) -> Option<String> {
    let api: Api<Secret> = Api::namespaced(client.clone(), "default");
    let value = api.get_opt(name).await.unwrap()?.data?.remove("value")?;
    String::from_utf8(value.0).ok()
}
