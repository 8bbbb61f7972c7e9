//! The kubeconfig of a cluster: through this server, as an account that stands for the cluster.
//!
//! The account is a ServiceAccount in the namespace of the management Cluster, bound there as the owner of the
//! cluster; it may do nothing else. The Secret is also the one by which Cluster API reaches the cluster.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, ServiceAccount},
};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use remuda_api::{management, provisioning::Cluster};
use remuda_control::{
    Ctx, ObjectKey,
    write::{get_or_create, is_controlled_by, owner_reference},
};
use remuda_names::{
    capi,
    rancher::{label, secret_key},
};

use super::Clusters;
use crate::{Error, naming, settings::Server};

const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
/// Role of those who may do everything in a cluster.
const OWNER: &str = "cluster-owner";

/// The kubeconfig of a cluster.
pub(super) fn render(server: &Server, management: &str, token: &str) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let url = quoted(&format!("{}/k8s/clusters/{management}", server.url));
    let ca = server.internal_ca.trim();
    let ca = match ca.is_empty() {
        true => String::new(),
        false => format!("\n    certificate-authority-data: {}", STANDARD.encode(ca)),
    };
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: cluster
  cluster:
    server: {url}{ca}
contexts:
- name: default
  context:
    cluster: cluster
    user: user
current-context: default
users:
- name: user
  user:
    token: {}
",
        quoted(token)
    )
}

/// Ensures the Secret, and tells its name once it is there. Nothing is written if it is as it should be.
pub(super) async fn ensure(
    this: &Clusters,
    cluster: &Cluster,
    management: &management::Cluster,
) -> Result<Option<String>, Error> {
    let ctx = &this.ctx;
    let name = naming::of::kubeconfig_secret(&cluster.name_any());
    let namespace = cluster.namespace().unwrap_or_default();
    let server = this.settings.server();
    if server.url.is_empty() {
        return Ok(None);
    }
    let id = management.name_any();
    let account = naming::cluster_user(&namespace, &cluster.name_any());
    let Some(token) = token(this, &id, &account) else {
        make_account(ctx, cluster, management, &account).await?;
        return Ok(None);
    };
    let wanted = secret(cluster, &name, &render(&server, &id, &token), &token)?;
    if let Some(known) = this.kubeconfigs.get(&ObjectKey::namespaced(&namespace, &name))
        && is_as_wanted(&known, &wanted, cluster)
    {
        return Ok(Some(name));
    }
    // The account may do nothing before its binding is there.
    make_account(ctx, cluster, management, &account).await?;
    let secrets: Api<Secret> = Api::namespaced(ctx.client.clone(), &namespace);
    let params = PatchParams::apply(&ctx.field_manager).force();
    let written = secrets.patch(&name, &params, &Patch::Apply(&wanted)).await;
    written.map_err(Error::api("apply", format!("secrets {namespace}/{name}")))?;
    Ok(Some(name))
}

fn token(this: &Clusters, namespace: &str, account: &str) -> Option<String> {
    let secret = this.tokens.get(&ObjectKey::namespaced(namespace, token_secret(account)))?;
    let token = secret.data.as_ref()?.get(secret_key::TOKEN)?;
    String::from_utf8(token.0.clone()).ok().filter(|token| !token.is_empty())
}

fn token_secret(account: &str) -> String {
    format!("{account}-token")
}

fn secret(cluster: &Cluster, name: &str, kubeconfig: &str, token: &str) -> Result<Secret, Error> {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Ok(Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: cluster.namespace(),
            labels: Some(BTreeMap::from([(capi::label::CLUSTER_NAME.to_owned(), cluster.name_any())])),
            owner_references: Some(vec![owner_reference(cluster, &())?]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([
            (secret_key::VALUE.to_owned(), bytes(kubeconfig)),
            (secret_key::TOKEN.to_owned(), bytes(token)),
        ])),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    })
}

fn is_as_wanted(known: &Secret, wanted: &Secret, cluster: &Cluster) -> bool {
    let data = |secret: &Secret, key: &str| secret.data.as_ref().and_then(|data| data.get(key).cloned());
    known.labels().get(capi::label::CLUSTER_NAME) == Some(&cluster.name_any())
        && is_controlled_by(&known.metadata, cluster.metadata.uid.as_deref().unwrap_or_default())
        && [secret_key::VALUE, secret_key::TOKEN].iter().all(|key| data(known, key) == data(wanted, key))
}

/// The account, what it may do, and its token, in this order.
async fn make_account(
    ctx: &Ctx,
    cluster: &Cluster,
    management: &management::Cluster,
    account: &str,
) -> Result<(), Error> {
    let id = management.name_any();
    let owner = vec![owner_reference(management, &())?];
    let named = |name: &str, namespace: Option<&str>| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        owner_references: Some(owner.clone()),
        ..ObjectMeta::default()
    };
    let namespace = cluster.namespace().unwrap_or_default();
    let name = naming::safe_concat_name(&[&id, &namespace, "owner"]);
    let binding = management::ClusterRoleTemplateBinding {
        metadata: named(&name, Some(&id)),
        cluster_name: id.clone(),
        user_name: format!("system:serviceaccount:{id}:{account}"),
        user_principal_name: naming::cluster_principal(&namespace, &cluster.name_any()),
        role_template_name: OWNER.to_owned(),
        ..management::ClusterRoleTemplateBinding::default()
    };
    get_or_create(ctx, &Api::namespaced(ctx.client.clone(), &id), &binding).await?;
    let made = ServiceAccount { metadata: named(account, Some(&id)), ..ServiceAccount::default() };
    get_or_create(ctx, &Api::namespaced(ctx.client.clone(), &id), &made).await?;
    let mut token = Secret { metadata: named(&token_secret(account), Some(&id)), ..Secret::default() };
    token.type_ = Some(TOKEN_TYPE.to_owned());
    token.labels_mut().insert(label::SERVICE_ACCOUNT_NAME.to_owned(), account.to_owned());
    token.annotations_mut().insert(ACCOUNT.to_owned(), account.to_owned());
    get_or_create(ctx, &Api::namespaced(ctx.client.clone(), &id), &token).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_leads_through_this_server() {
        let server = Server {
            url: "https://mgr.example.com".into(),
            internal_ca: "PEM\n".into(),
            ..Server::default()
        };
        let text = render(&server, "c-m-x", "tok");
        let kubeconfig: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(
            kubeconfig,
            serde_json::json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "default",
                "clusters": [{"name": "cluster", "cluster": {
                    "server": "https://mgr.example.com/k8s/clusters/c-m-x", "certificate-authority-data": "UEVN"}}],
                "contexts": [{"name": "default", "context": {"cluster": "cluster", "user": "user"}}],
                "users": [{"name": "user", "user": {"token": "tok"}}],
            })
        );
    }
}
