//! A User who is deleted takes along what names them, so that a later User of the same name inherits nothing.
//!
//! Reads   Users, and what names the one that is being deleted.
//! Writes  deletes their tokens, bindings, password and second factor, then takes the finalizer off.
//! Never   touches Roles and bindings of Kubernetes that people wrote: whoever makes a User of a name they grant
//!         something is told so, and needs the rights themselves.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{core::v1::Secret, rbac::v1::RoleBinding},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
};
use remuda_api::management::{ClusterRoleTemplateBinding, GlobalRoleBinding, Token, User};
use remuda_control::{
    Action, Controller, drive,
    write::{Finalizer, ensure_finalizer, remove_finalizer},
};
use remuda_names::{
    identity::{LOCAL_PRINCIPAL, PASSWORDS_NAMESPACE, SYSTEM_PRINCIPAL, finalizer, second_factor},
    rancher::name::GLOBAL_DATA,
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::{Error, Identity};

pub(crate) async fn run(identity: Identity, stop: CancellationToken) {
    let controller = Controller::on("user-cleanup", &identity.0.ctx, identity.0.users.clone())
        // Beside deletions only the first look matters: Users made before there was a finalizer get one.
        .only_when(|change| change.old.is_none());
    drive(controller, reconcile, Arc::new(identity), stop).await;
}

async fn reconcile(user: Arc<User>, identity: Arc<Identity>) -> Result<Action, Error> {
    if user.principal_ids.iter().any(|id| id.starts_with(SYSTEM_PRINCIPAL)) {
        return Ok(Action::AwaitChange);
    }
    let users: Api<User> = Api::all(identity.0.ctx.client.clone());
    if let Finalizer::Deleting(user) = ensure_finalizer(&users, (*user).clone(), &(), finalizer::USER).await?
    {
        clean_up(&identity, &user).await?;
        remove_finalizer(&users, &user, &(), finalizer::USER).await?;
        tracing::info!(user = user.name_any(), "a user is gone, and what named them");
    }
    Ok(Action::AwaitChange)
}

/// Names are read from the API and not from caches: what was written a moment ago must not be left behind.
async fn clean_up(identity: &Identity, user: &User) -> Result<(), Error> {
    let (client, name) = (&identity.0.ctx.client, user.name_any());
    let principals: BTreeSet<String> =
        user.principal_ids.iter().cloned().chain([format!("{LOCAL_PRINCIPAL}{name}")]).collect();
    let is_theirs = |by_name: &str, by_principal: &str| by_name == name || principals.contains(by_principal);

    let tokens: Api<Token> = Api::all(client.clone());
    for token in listed(&tokens, "tokens").await? {
        if token.user_id == name {
            delete(&tokens, &token.name_any()).await?;
        }
    }
    let bindings: Api<GlobalRoleBinding> = Api::all(client.clone());
    for binding in listed(&bindings, "bindings").await? {
        if is_theirs(&binding.user_name, &binding.user_principal_name) {
            delete(&bindings, &binding.name_any()).await?;
        }
    }
    let everywhere: Api<ClusterRoleTemplateBinding> = Api::all(client.clone());
    for binding in listed(&everywhere, "bindings").await? {
        if is_theirs(&binding.user_name, &binding.user_principal_name) {
            delete(&in_namespace_of(identity, &binding), &binding.name_any()).await?;
        }
    }
    // Whoever made a credential was given it by name.
    let credentials: Api<RoleBinding> = Api::namespaced(client.clone(), GLOBAL_DATA);
    for binding in listed(&credentials, "bindings of credentials").await? {
        let subjects = binding.subjects.as_deref().unwrap_or_default();
        if matches!(subjects, [only] if only.kind == "User" && only.name == name) {
            delete(&credentials, &binding.name_any()).await?;
        }
    }
    for namespace in [PASSWORDS_NAMESPACE, second_factor::NAMESPACE] {
        delete(&Api::<Secret>::namespaced(client.clone(), namespace), &name).await?;
    }
    Ok(())
}

fn in_namespace_of<K>(identity: &Identity, object: &K) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(identity.0.ctx.client.clone(), &object.namespace().unwrap_or_default())
}

async fn listed<K>(api: &Api<K>, what: &str) -> Result<Vec<K>, Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let list = api.list(&ListParams::default()).await;
    list.map(|list| list.items).map_err(|source| Error::api("list", what, source))
}

async fn delete<K>(api: &Api<K>, name: &str) -> Result<(), Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(source) => Err(Error::api("delete", name, source)),
    }
}
