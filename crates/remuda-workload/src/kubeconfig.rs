//! Connections by the kubeconfig a control plane leaves in a Secret.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Config, ResourceExt,
    config::{KubeConfigOptions, Kubeconfig},
    core::PartialObjectMeta,
};
use parking_lot::Mutex;
use remuda_control::{Chain, Ctx, Informer, Informers, Metrics, ObjectKey, Scope, informer};
use remuda_names::capi::label;

use crate::{Changed, Connect, Down, Following};

/// The name of the Secret is the Cluster's with this behind it.
const SUFFIX: &str = "-kubeconfig";
/// Where in the Secret the file is.
const KEY: &str = "value";
const DIAL: Duration = Duration::from_secs(10);

/// Connects as the Secret `<cluster>-kubeconfig` says, which is read each time. What is in it was written by
/// others: it may name neither programs to run nor files of this machine.
pub struct KubeconfigSecret {
    client: Client,
    /// Versions of the Secrets that are in use.
    used: Arc<Mutex<HashMap<ObjectKey, String>>>,
}

impl KubeconfigSecret {
    pub fn new(ctx: &Ctx) -> Self {
        Self { client: ctx.client.clone(), used: Arc::default() }
    }

    async fn open(&self, cluster: ObjectKey) -> Result<Client, Down> {
        let name = format!("{}{SUFFIX}", cluster.name);
        let namespace = cluster.namespace.as_deref().unwrap_or_default();
        let what = format!("Secret {namespace}/{name}");
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = secrets.get_opt(&name).await;
        let secret = secret.map_err(|error| Down::because(format!("read {what}: {}", Chain(&error))))?;
        let secret = secret.ok_or_else(|| Down::because(format!("{what} does not exist")))?;
        let version = secret.resource_version().unwrap_or_default();
        let file = secret.data.as_ref().and_then(|data| data.get(KEY));
        let file = file.ok_or_else(|| Down::because(format!("{what} has no key {KEY}")))?;
        let text = std::str::from_utf8(&file.0)
            .map_err(|_| Down::because(format!("key {KEY} of {what} is no text")))?;
        self.used.lock().insert(cluster, version);
        let config =
            config(text).await.map_err(|why| Down::because(format!("kubeconfig in {what}: {why}")))?;
        Client::try_from(config).map_err(|error| Down::because(Chain(&error).to_string()))
    }
}

async fn config(text: &str) -> Result<Config, String> {
    let file = Kubeconfig::from_yaml(text).map_err(|error| Chain(&error).to_string())?;
    harmless(&file)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| Chain(&error).to_string())?;
    config.connect_timeout = Some(DIAL);
    // Whoever asks knows when to ask again; a refused eviction is an answer.
    config.default_retry = false;
    // Watches are silent for long; everything else has a timeout of its own.
    config.read_timeout = None;
    // Every client that trusts the system's authorities holds a copy of all of them.
    if config.cluster_url.scheme_str() == Some("http") {
        config.root_cert = Some(Vec::new());
    }
    Ok(config)
}

fn harmless(file: &Kubeconfig) -> Result<(), String> {
    for user in file.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()) {
        let refused = [
            (user.exec.is_some(), "exec"),
            (user.auth_provider.is_some(), "auth-provider"),
            (user.token_file.is_some(), "tokenFile"),
            (user.client_certificate.is_some(), "client-certificate"),
            (user.client_key.is_some(), "client-key"),
        ];
        if let Some((_, field)) = refused.into_iter().find(|(there, _)| *there) {
            return Err(format!("a user with {field} is not allowed"));
        }
    }
    let mut clusters = file.clusters.iter().filter_map(|named| named.cluster.as_ref());
    if clusters.any(|cluster| cluster.certificate_authority.is_some()) {
        return Err("a cluster with certificate-authority is not allowed".to_owned());
    }
    Ok(())
}

impl Connect for KubeconfigSecret {
    fn connect(&self, cluster: &ObjectKey) -> BoxFuture<'_, Result<Client, Down>> {
        self.open(cluster.clone()).boxed()
    }

    /// Only Secrets with the label of a Cluster are seen. The bootstrap data of every machine is among them, so
    /// next to nothing is kept of each.
    fn follow(&self, changed: Changed) -> Option<Following> {
        let informers = Informers::new(self.client.clone(), informer::Options::default(), Metrics::default());
        informers.trim(|secret: &mut PartialObjectMeta<Secret>| {
            let meta = &mut secret.metadata;
            let (name, namespace) = (meta.name.take(), meta.namespace.take());
            let (uid, resource_version) = (meta.uid.take(), meta.resource_version.take());
            *meta = kube::core::ObjectMeta { name, namespace, uid, resource_version, ..Default::default() };
        });
        let secrets: Informer<PartialObjectMeta<Secret>> =
            informers.metadata::<Secret>(Scope::labels(label::CLUSTER_NAME));
        let used = self.used.clone();
        let subscription = secrets.subscribe(move |change| {
            let Some(secret) = change.object() else {
                return;
            };
            let name = secret.name_any();
            let Some(cluster) = name.strip_suffix(SUFFIX) else {
                return;
            };
            let cluster = ObjectKey::of(&secret.metadata).sibling(cluster);
            if change.is_delete() {
                used.lock().remove(&cluster);
                return;
            }
            let in_use = used.lock().get(&cluster).cloned();
            if in_use != secret.resource_version() {
                changed(&cluster);
            }
        });
        Some(Box::new((informers, subscription)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://10.0.0.1:6443'}}}}]\nusers: [{{name: u, user: {user}}}]\n"
        )
    }

    #[tokio::test]
    async fn a_kubeconfig_may_not_name_programs_or_files() {
        for (user, field) in [
            ("{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh}}", "exec"),
            ("{auth-provider: {name: gcp, config: {}}}", "auth-provider"),
            ("{tokenFile: /etc/shadow}", "tokenFile"),
            ("{client-key: /etc/ssl/key.pem}", "client-key"),
        ] {
            let refused = config(&file(user)).await.unwrap_err();
            assert_eq!(refused, format!("a user with {field} is not allowed"));
        }
    }

    #[tokio::test]
    async fn a_kubeconfig_with_a_token_is_taken() {
        let config = config(&file("{token: abc}")).await.unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://10.0.0.1:6443/");
    }

    #[tokio::test]
    async fn text_that_is_no_kubeconfig_is_an_error_and_no_panic() {
        for text in ["", ":", "[]", "a: b", "clusters: 7"] {
            assert!(config(text).await.is_err(), "{text}");
        }
    }
}
