//! Machines, and the accounts that belong to them.

use base64::{Engine, prelude::BASE64_URL_SAFE};
use k8s_openapi::{
    api::core::v1::{Secret, ServiceAccount},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::PartialObjectMeta,
};
use remuda_api::{core, rke};
use remuda_control::ObjectKey;
use remuda_names::{
    capi,
    gateway::secret::{ACCOUNT_NAME, ACCOUNT_UID},
    rancher::{annotation, label},
};
use serde_json::json;

use super::request::Request;
use crate::{gateway::Shared, respond::Refusal, tokens::sha256};

/// Values of the label that tells accounts apart.
const BOOTSTRAP: &str = "bootstrap";
pub(super) const PLAN: &str = "plan";

/// A Machine that registers.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) key: ObjectKey,
    pub(super) uid: String,
    /// The id it has registered with; empty if it has not.
    pub(super) id: String,
    /// Name of its Cluster.
    pub(super) cluster: String,
    /// Its Node is known: the server that registered is at work.
    has_node: bool,
}

impl Machine {
    pub(super) fn namespace(&self) -> &str {
        self.key.namespace.as_deref().unwrap_or_default()
    }

    fn of(machine: &core::Machine) -> Self {
        let label = |name: &str| machine.labels().get(name).cloned().unwrap_or_default();
        Self {
            key: ObjectKey::of(&machine.metadata),
            uid: machine.uid().unwrap_or_default(),
            has_node: machine.status.as_ref().is_some_and(|status| !status.node_ref.name.is_empty()),
            id: label(label::MACHINE_ID),
            cluster: label(capi::label::CLUSTER_NAME),
        }
    }
}

/// The Machine a bootstrap token was made for; `None` if it is no such token.
pub(super) async fn by_bootstrap_token(
    shared: &Shared,
    request: &Request,
) -> Result<Option<Machine>, Refusal> {
    let Some(secret) = shared.tokens.account(&request.token).await? else { return Ok(None) };
    let Some(machine) = of_account(shared, &secret, BOOTSTRAP).await? else { return Ok(None) };
    let namespace = secret.namespace().unwrap_or_default();
    let invalidated = secret.annotations().get(annotation::BOOTSTRAP_TOKEN_INVALIDATED);
    if invalidated.is_some_and(|invalidated| invalidated == "true") {
        return Err(Refusal::unauthorized("the bootstrap token of this machine is no longer good"));
    }
    // Until there is a Node, the server may have been made anew: its driver failed after the first one had
    // registered, and starts over.
    if machine.has_node && !machine.id.is_empty() && machine.id != request.id {
        return Err(Refusal::new(
            http::StatusCode::CONFLICT,
            format!(
                "machine {} is already registered and at work, with another X-Cattle-Id",
                machine.key.name
            ),
        ));
    }
    let now = remuda_base::rfc3339(shared.ctx.clock.now().as_second());
    let secrets: Api<Secret> = Api::namespaced(shared.ctx.client.clone(), &namespace);
    let patch = json!({"metadata": {"uid": secret.uid(), "annotations": {annotation::LAST_ACCESS: now}}});
    let written = secrets.patch_metadata(&secret.name_any(), &params(shared), &Patch::Merge(patch)).await;
    written.map_err(|error| Refusal::failed("noting that a bootstrap token was used", &error))?;
    Ok(Some(machine))
}

/// The Machine whose agent reads its plan with a token; `None` if it is no such token.
pub(super) async fn by_plan_token(shared: &Shared, token: &str) -> Result<Option<Machine>, Refusal> {
    let shown = BASE64_URL_SAFE.encode(sha256(token.as_bytes()));
    match shared.tokens.account(&shown).await? {
        Some(secret) => of_account(shared, &secret, PLAN).await,
        None => Ok(None),
    }
}

/// The Machine of the account whose token is in a Secret, if it is an account for this.
async fn of_account(shared: &Shared, secret: &Secret, role: &str) -> Result<Option<Machine>, Refusal> {
    let namespace = secret.namespace().unwrap_or_default();
    let text = |name: &str| secret.annotations().get(name).map_or("", String::as_str);
    let accounts: Api<ServiceAccount> = Api::namespaced(shared.ctx.client.clone(), &namespace);
    let account = accounts.get_opt(text(ACCOUNT_NAME)).await;
    let account = account.map_err(|error| Refusal::failed("reading a service account", &error))?;
    let ours = account.filter(|account| {
        account.uid().is_some_and(|uid| uid == text(ACCOUNT_UID))
            && account.labels().get(label::SERVICE_ACCOUNT_ROLE).is_some_and(|found| found == role)
    });
    match ours {
        Some(account) => owner(shared, &account).await,
        None => Ok(None),
    }
}

fn params(shared: &Shared) -> PatchParams {
    PatchParams { field_manager: Some(shared.ctx.field_manager.to_string()), ..PatchParams::default() }
}

/// The Machine an account belongs to: the one it names, if it owns the account's RKEBootstrap or the account
/// itself. A label alone anybody could set who can create accounts.
pub(super) async fn owner(shared: &Shared, account: &ServiceAccount) -> Result<Option<Machine>, Refusal> {
    let namespace = account.namespace().unwrap_or_default();
    let Some(name) = account.labels().get(label::MACHINE_NAME).filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let Some(machine) = machine(shared, &ObjectKey::namespaced(&namespace, name)).await? else {
        return Ok(None);
    };
    let owned_by_machine = |owners: &[OwnerReference]| {
        owners
            .iter()
            .any(|owner| is::<core::Machine>(owner) && owner.name == *name && owner.uid == machine.uid)
    };
    if owned_by_machine(account.owner_references()) {
        return Ok(Some(machine));
    }
    let owners = account.owner_references().iter();
    let Some(bootstrap) = owners.into_iter().find(|owner| is::<rke::RkeBootstrap>(owner)) else {
        return Ok(None);
    };
    let bootstraps: Api<rke::RkeBootstrap> = Api::namespaced(shared.ctx.client.clone(), &namespace);
    let found = bootstraps.get_metadata_opt(&bootstrap.name).await;
    let found = found.map_err(|error| Refusal::failed("reading an RKEBootstrap", &error))?;
    let found = found.filter(|found| {
        found.uid().is_some_and(|uid| uid == bootstrap.uid) && owned_by_machine(found.owner_references())
    });
    Ok(found.map(|_| machine))
}

/// Whether a reference is to an object of a kind, of whichever version.
fn is<K: Resource<DynamicType = ()>>(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    owner.kind == K::kind(&()) && group == K::group(&())
}

pub(super) async fn machine(shared: &Shared, key: &ObjectKey) -> Result<Option<Machine>, Refusal> {
    let found = api(shared, key.namespace.as_deref().unwrap_or_default()).get_opt(&key.name).await;
    let found = found.map_err(|error| Refusal::failed("reading a Machine", &error))?;
    Ok(found.map(|found| Machine::of(&found)))
}

fn api(shared: &Shared, namespace: &str) -> Api<core::Machine> {
    Api::namespaced(shared.ctx.client.clone(), namespace)
}

/// Machines that have registered with an id, in all clusters.
pub(super) async fn with_id(
    shared: &Shared,
    id: &str,
) -> Result<Vec<PartialObjectMeta<core::Machine>>, Refusal> {
    let machines: Api<core::Machine> = Api::all(shared.ctx.client.clone());
    let selector = kube::api::ListParams::default().labels(&format!("{}={id}", label::MACHINE_ID));
    let found = machines.list_metadata(&selector).await;
    Ok(found.map_err(|error| Refusal::failed("listing Machines", &error))?.items)
}

/// Notes which server the Machine is.
pub(super) async fn set_id(shared: &Shared, machine: &Machine, id: &str) -> Result<(), Refusal> {
    if machine.id == id {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": machine.uid, "labels": {label::MACHINE_ID: id}}});
    let machines = api(shared, machine.namespace());
    let written = machines.patch_metadata(&machine.key.name, &params(shared), &Patch::Merge(patch)).await;
    written.map(drop).map_err(|error| Refusal::failed("noting the id of a Machine", &error))
}
