//! Defines kinds on a server.

use std::time::{Duration, Instant};

use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use remuda_names::user::CONTROLLER_PREFIX;
use serde_json::{Value, json};

use crate::names::{CONTROLLER_ROLE, GROUP};

/// How long a definition may take to be served.
const PATIENCE: Duration = Duration::from_secs(60);
/// Owns the fields we apply.
pub(crate) const MANAGER: &str = "remuda-sim";

/// Why a kind is not there.
#[derive(Debug, thiserror::Error)]
pub enum DefineError {
    #[error("{verb} {what}")]
    Api { verb: &'static str, what: String, source: kube::Error },
    #[error("definition {name} is not served")]
    NotServed { name: String },
}

fn failed(verb: &'static str, what: &str) -> impl FnOnce(kube::Error) -> DefineError {
    move |source| DefineError::Api { verb, what: what.to_owned(), source }
}

/// Defines a kind and waits until it is served.
pub(crate) async fn define(client: &Client, definition: &Value) -> Result<(), DefineError> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let params = PatchParams::apply(MANAGER).force();
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    crds.patch(name, &params, &Patch::Apply(definition)).await.map_err(failed("apply", name))?;
    let started = Instant::now();
    loop {
        let known = crds.get(name).await.map_err(failed("read", name))?;
        let conditions = known.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions.iter().any(|one| one.type_ == "Established" && one.status == "True") {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return Err(DefineError::NotServed { name: name.to_owned() });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Controllers of a server that use kinds of providers.
const CONTROLLERS: [&str; 2] = ["cluster-api", "shared"];

/// Lets the server's controllers use our kinds: their roles know the groups of Cluster API only.
pub(crate) async fn let_controllers_in(client: &Client) -> Result<(), DefineError> {
    let params = PatchParams::apply(MANAGER).force();
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": CONTROLLER_ROLE},
        "rules": [{
            "apiGroups": [GROUP], "resources": ["*"],
            "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
        }],
    });
    let users = CONTROLLERS.map(|name| format!("{CONTROLLER_PREFIX}{name}"));
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": CONTROLLER_ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CONTROLLER_ROLE},
        "subjects": users.map(|name| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})),
    });
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let applied = roles.patch(CONTROLLER_ROLE, &params, &Patch::Apply(role)).await;
    applied.map_err(failed("apply ClusterRole", CONTROLLER_ROLE))?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let applied = bindings.patch(CONTROLLER_ROLE, &params, &Patch::Apply(binding)).await;
    applied.map(drop).map_err(failed("apply ClusterRoleBinding", CONTROLLER_ROLE))
}

/// Makes a namespace, unless it is there.
pub(crate) async fn ensure_namespace(client: &Client, name: &str) -> Result<(), DefineError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    match namespaces.create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop).map_err(failed("create namespace", name)),
    }
}
