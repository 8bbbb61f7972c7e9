//! The kubeconfig of a cluster: through this server, as a User that stands for the cluster.
//!
//! The User is bound as the owner of the cluster and may do nothing else; its Token is good for this cluster
//! only and does not expire. Whoever deletes the Token gets another one into the Secret, and the old one is
//! good for nothing. The Secret is also the one by which Cluster API reaches the cluster.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use remuda_api::{
    management::{self, Token, User},
    provisioning::Cluster,
};
use remuda_auth::{bearer, principal};
use remuda_control::{
    Ctx, ObjectKey,
    write::{get_or_create, is_controlled_by, owner_reference},
};
use remuda_names::{
    capi,
    identity::{LOCAL_PROVIDER, annotation, label::HASHED_PRINCIPAL, role, token_kind},
    rancher::{label, secret_key},
};

use super::{Clusters, Problem};
use crate::{Error, error::is_code, naming, settings::Server};

/// For a cache to hear of a write of our own.
const HEARD: Duration = Duration::from_secs(2);

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
    let user = naming::cluster_user(&namespace, &cluster.name_any());
    let known = this.kubeconfigs.get(&ObjectKey::namespaced(&namespace, &name));
    let token = this.tokens.get(&ObjectKey::cluster_wide(&user));
    if let Some((known, bearer)) = known.as_ref().and_then(|known| Some((known, held(known)?)))
        && token.is_some_and(|token| is_of(&token, &user, &id, &bearer))
        && is_as_wanted(known, &secret(cluster, &name, &render(&server, &id, &bearer), &bearer)?, cluster)
    {
        return Ok(Some(name));
    }
    let secrets: Api<Secret> = Api::namespaced(ctx.client.clone(), &namespace);
    let what = || format!("secrets {namespace}/{name}");
    // Caches lag, and a key that others hold is not replaced for that.
    let known = secrets.get_opt(&name).await.map_err(Error::api("read", what()))?;
    if known.as_ref().is_some_and(|known| !is_made_for(known, cluster)) {
        return Err(Problem::Foreign { kind: "Secret".to_owned(), name }.into());
    }
    // The token is good for nothing before its user is there and bound.
    let owner = make_user(ctx, cluster, management, &user).await?;
    let bearer = {
        let tokens: Api<Token> = Api::all(ctx.client.clone());
        let token = tokens.get_opt(&user).await.map_err(Error::api("read", format!("token {user}")))?;
        let bearer = known.as_ref().and_then(held);
        match bearer.filter(|bearer| token.is_some_and(|token| is_of(&token, &user, &id, bearer))) {
            Some(bearer) => bearer,
            None => issue(this, &tokens, &owner, &id).await?,
        }
    };
    let wanted = secret(cluster, &name, &render(&server, &id, &bearer), &bearer)?;
    let params = PatchParams::apply(&ctx.field_manager).force();
    let written = secrets.patch(&name, &params, &Patch::Apply(&wanted)).await;
    let written = written.map_err(Error::api("apply", what()))?;
    this.kubeconfigs.wait_for(&written.resource_version().unwrap_or_default(), HEARD).await;
    Ok(Some(name))
}

/// Whether a Secret was made for a cluster, or for one of its name whose place it took: after a restore the uid of
/// its owner is another.
fn is_made_for(secret: &Secret, cluster: &Cluster) -> bool {
    secret.owner_references().iter().any(|owner| {
        owner.kind == Cluster::kind(&())
            && owner.name == cluster.name_any()
            && owner.api_version.split_once('/').is_some_and(|(group, _)| group == Cluster::group(&()))
    })
}

/// The token in a Secret, as `name:key`.
fn held(secret: &Secret) -> Option<String> {
    let token = secret.data.as_ref()?.get(secret_key::TOKEN)?;
    String::from_utf8(token.0.clone()).ok().filter(|token| !token.is_empty())
}

/// Whether a bearer is this token, of this user, for this cluster. A token somebody disabled is: it is not made
/// good again behind their back.
fn is_of(token: &Token, user: &str, cluster: &str, bearer: &str) -> bool {
    token.metadata.deletion_timestamp.is_none()
        && token.user_id == user
        && token.cluster_name == cluster
        && bearer.split_once(':').is_some_and(|(name, key)| {
            let hashed = token.annotations().get(annotation::TOKEN_HASHED).is_some_and(|is| is == "true");
            name == user
                && bearer::Stored::parse(&token.token, hashed).is_some_and(|stored| stored.verify(key))
        })
}

/// Replaces the token of a cluster by a new one, and gives it as `name:key`.
async fn issue(this: &Clusters, tokens: &Api<Token>, user: &User, cluster: &str) -> Result<String, Error> {
    let name = user.name_any();
    let what = || format!("token {name}");
    match tokens.delete(&name, &DeleteParams::default()).await {
        Err(error) if !is_code(&error, 404) => return Err(Error::api("delete", what())(error)),
        _ => {}
    }
    let key = bearer::generate()?;
    let mut token = Token {
        token: bearer::hash(&key)?,
        user_id: name.clone(),
        auth_provider: LOCAL_PROVIDER.to_owned(),
        is_derived: true,
        description: "the kubeconfig of a cluster".to_owned(),
        cluster_name: cluster.to_owned(),
        enabled: Some(true),
        ..Token::named(&name)
    };
    token.labels_mut().insert(label::TOKEN_USER_ID.to_owned(), name.clone());
    token.labels_mut().insert(label::TOKEN_KIND.to_owned(), token_kind::PROVISIONING.to_owned());
    token.annotations_mut().insert(annotation::TOKEN_HASHED.to_owned(), "true".to_owned());
    token.metadata.owner_references = Some(vec![owner_reference(user, &())?]);
    let made = tokens.create(&PostParams::default(), &token).await;
    let made = made.map_err(Error::api("create", what()))?;
    this.tokens.wait_for(&made.resource_version().unwrap_or_default(), HEARD).await;
    tracing::info!(user = name, cluster, "the kubeconfig of a cluster has a new token");
    Ok(format!("{name}:{key}"))
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

/// The user that stands for a cluster, bound as its owner.
async fn make_user(
    ctx: &Ctx,
    cluster: &Cluster,
    management: &management::Cluster,
    name: &str,
) -> Result<User, Error> {
    let id = management.name_any();
    let (namespace, cluster) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let owner = vec![owner_reference(management, &())?];
    let principal = naming::cluster_principal(&namespace, &cluster);
    let mut user = User {
        display_name: format!("Cluster {cluster}"),
        description: format!("Stands for cluster {namespace}/{cluster} in its kubeconfig"),
        principal_ids: vec![principal.clone()],
        enabled: Some(true),
        ..User::named(name)
    };
    user.metadata.owner_references = Some(owner.clone());
    user.labels_mut().insert(principal::label(&principal), HASHED_PRINCIPAL.to_owned());
    let user = get_or_create(ctx, &Api::all(ctx.client.clone()), &user).await?;
    let bound = naming::safe_concat_name(&[&id, &namespace, "owner"]);
    let binding = management::ClusterRoleTemplateBinding {
        metadata: ObjectMeta {
            name: Some(bound.clone()),
            namespace: Some(id.clone()),
            owner_references: Some(owner),
            ..ObjectMeta::default()
        },
        cluster_name: id.clone(),
        user_name: name.to_owned(),
        user_principal_name: principal,
        role_template_name: role::CLUSTER_OWNER.to_owned(),
        ..management::ClusterRoleTemplateBinding::default()
    };
    let bindings: Api<management::ClusterRoleTemplateBinding> = Api::namespaced(ctx.client.clone(), &id);
    let params = PatchParams::apply(&ctx.field_manager).force();
    let applied = bindings.patch(&bound, &params, &Patch::Apply(&binding)).await;
    applied.map_err(Error::api("apply", format!("the binding {id}/{bound}")))?;
    Ok(user)
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
