//! Credentials of providers: whoever made one may use it.
//!
//! Reads   Secrets with credentials that say who made them.
//! Writes  a Role and a RoleBinding for that one Secret and User, then takes the note off the Secret.
//! Never   looks into a credential.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::Secret,
    rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
    core::PartialObjectMeta,
};
use remuda_control::{
    Action, Controller, Ctx, Informer, Scope, drive,
    write::{get_or_create, owner_reference},
};
use remuda_names::rancher::{annotation, name, secret_type};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, is_code};

const RBAC: &str = "rbac.authorization.k8s.io";

pub(crate) async fn run(ctx: Arc<Ctx>, stop: CancellationToken) {
    let scope =
        Scope::namespace(name::GLOBAL_DATA).with_fields(format!("type={}", secret_type::CLOUD_CREDENTIAL));
    let secrets: Informer<PartialObjectMeta<Secret>> = ctx.informers.metadata(scope);
    let controller = Controller::on("cloud-credential", &ctx, secrets);
    drive(controller, reconcile, ctx, stop).await;
}

async fn reconcile(secret: Arc<PartialObjectMeta<Secret>>, ctx: Arc<Ctx>) -> Result<Action, Error> {
    let meta = &secret.metadata;
    let creator = secret.annotations().get(annotation::CREATOR_ID).filter(|creator| !creator.is_empty());
    let (Some(creator), None) = (creator, &meta.deletion_timestamp) else {
        return Ok(Action::AwaitChange);
    };
    let namespace = meta.namespace.clone().unwrap_or_default();
    let name = crate::naming::safe_concat_name(&[creator, &secret.name_any()]);
    let owned = ObjectMeta {
        name: Some(name.to_lowercase()),
        namespace: Some(namespace.clone()),
        owner_references: Some(vec![owner_reference(&*secret, &())?]),
        ..ObjectMeta::default()
    };
    let role = Role {
        metadata: owned.clone(),
        rules: Some(vec![PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["secrets".to_owned()]),
            resource_names: Some(vec![secret.name_any()]),
            verbs: ["get", "update", "delete"].map(str::to_owned).to_vec(),
            ..PolicyRule::default()
        }]),
    };
    get_or_create(&ctx, &Api::namespaced(ctx.client.clone(), &namespace), &role).await?;
    let binding = RoleBinding {
        role_ref: RoleRef { api_group: RBAC.to_owned(), kind: "Role".to_owned(), name: role.name_any() },
        subjects: Some(vec![Subject {
            api_group: Some(RBAC.to_owned()),
            kind: "User".to_owned(),
            name: creator.clone(),
            ..Subject::default()
        }]),
        metadata: owned,
    };
    get_or_create(&ctx, &Api::namespaced(ctx.client.clone(), &namespace), &binding).await?;
    let patch = json!({"metadata": {"uid": meta.uid, "annotations": {annotation::CREATOR_ID: null}}});
    let params = PatchParams { field_manager: Some(ctx.field_manager.to_string()), ..PatchParams::default() };
    let secrets: Api<Secret> = Api::namespaced(ctx.client.clone(), &namespace);
    match secrets.patch_metadata(&secret.name_any(), &params, &Patch::Merge(patch)).await {
        Err(error) if is_code(&error, 404) => Ok(Action::AwaitChange),
        written => {
            let what = format!("secrets {namespace}/{}", secret.name_any());
            written.map(|_| Action::AwaitChange).map_err(Error::api("write", what))
        }
    }
}
