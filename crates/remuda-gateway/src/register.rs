//! Machines register: `/v3/connect/agent` and its companions.
//!
//! A machine shows a token and its id. The token of a machine that was made here stands for that Machine; the
//! token of a cluster stands for the cluster, and a Machine is made for whoever comes with it. Either way the
//! answer is a kubeconfig with which the machine's agent can read and write its own plan, and nothing else.
//!
//! Reads   tokens, Machines, RKEBootstraps, plan accounts and plan Secrets.
//! Writes  a request Secret, which is gone when the request is; when a bootstrap token was used; the id of a
//!         Machine; the token Secret of a plan account.

mod account;
mod custom;
pub(crate) mod image;
mod machine;
pub(crate) mod registry;
mod request;

use std::{net::SocketAddr, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{Response, StatusCode, request::Parts};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use remuda_api::provisioning;
use remuda_control::ObjectKey;
use remuda_door::Answer;
use remuda_names::{
    agent::key,
    gateway::{audit_user, header::FIELD, path},
    rancher::reason::REGISTRATION_REFUSED,
};
use serde_json::{Map, Value, json};

use self::{machine::Machine, request::Request};
use crate::{
    doors,
    gateway::{BY_MANAGEMENT_CLUSTER, Shared},
    respond::{Body, Refusal, answer, pretty},
};

/// Clusters that are told of one refusal: whoever guesses tokens must not make us write much.
const MOST_TOLD: usize = 10;

pub(crate) async fn handle(shared: &Arc<Shared>, peer: SocketAddr, head: &Parts) -> Answer {
    serve(shared, peer, head).await.map_err(|refusal| {
        tracing::info!(%peer, code = refusal.code.as_u16(), error = refusal.message, "registration refused");
        refusal.in_text()
    })
}

async fn serve(shared: &Arc<Shared>, peer: SocketAddr, head: &Parts) -> Result<Response<Body>, Refusal> {
    let request = Request::parse(&head.headers)?;
    if !shared.is_ready() {
        return Err(Refusal::not_yet("CAPI not ready yet"));
    }
    let machine = identify(shared, peer, &request).await?;
    machine::set_id(shared, &machine, &request.id).await?;
    let mut response = match head.uri.path() {
        path::CONNECT_CONFIG => configuration(shared, &machine).await,
        path::CONNECT_CLUSTER_INFO => cluster_info(shared, head, &machine),
        _ => connection(shared, head, &machine).await,
    }?;
    response.extensions_mut().insert(doors::agent(audit_user::MACHINE, &machine.key.to_string()));
    Ok(response)
}

/// The Machine that asks. First match wins.
async fn identify(shared: &Arc<Shared>, peer: SocketAddr, request: &Request) -> Result<Machine, Refusal> {
    if let Some(machine) = machine::by_bootstrap_token(shared, request).await? {
        return Ok(machine);
    }
    let found = shared.tokens.registration(&request.token, shared.ctx.clock.now()).await?;
    let registered = match &found {
        None => {
            Err(Refusal::unauthorized("the registration token is not known: it is wrong, or was replaced"))
        }
        Some(found) if found.expired => {
            Err(Refusal::unauthorized("the registration token has expired; read a new command to register"))
        }
        Some(found) => custom::register(shared, request, found).await,
    };
    registered.inspect_err(|refusal| {
        if refusal.code.is_client_error() {
            tell(shared, peer, found.as_ref().map(|found| found.cluster.as_str()), &refusal.message);
        }
    })
}

/// Says on clusters that a server was refused, which otherwise only that server is told, where nobody may look. A
/// token that is not known belongs to none of them: those that wait for servers are told.
fn tell(shared: &Shared, peer: SocketAddr, managed: Option<&str>, why: &str) {
    let clusters = match managed {
        Some(managed) => shared.provisioned.by_index(BY_MANAGEMENT_CLUSTER, managed),
        None => {
            let mut all = shared.provisioned.list();
            all.retain(|cluster| waits_for_servers(cluster));
            all
        }
    };
    for cluster in clusters.iter().take(MOST_TOLD) {
        let note = format!("a server at {} was refused: {why}", peer.ip());
        shared.ctx.recorder.warning(&**cluster, REGISTRATION_REFUSED, "Register", note);
    }
}

/// Whether a cluster has no servers yet and makes none itself.
fn waits_for_servers(cluster: &provisioning::Cluster) -> bool {
    let config = cluster.spec.rke_config.as_ref();
    config.is_some_and(|config| config.machine_pools.is_empty())
        && cluster.metadata.deletion_timestamp.is_none()
        && !cluster.status.as_ref().is_some_and(|status| status.ready)
}

/// Where the plan is, and how to get there.
async fn connection(shared: &Shared, head: &Parts, machine: &Machine) -> Result<Response<Body>, Refusal> {
    let account = account::of_plan(shared, machine).await?;
    let server = shared.settings.server(&head.headers, head.uri.authority());
    let mut cluster = json!({"server": server.url});
    if !server.ca.trim().is_empty() {
        cluster["certificate-authority-data"] = BASE64_STANDARD.encode(&server.ca).into();
    }
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "agent",
        "clusters": [{"name": "agent", "cluster": cluster}],
        "users": [{"name": "agent", "user": {"token": account.token}}],
        "contexts": [{"name": "agent", "context": {"cluster": "agent", "user": "agent"}}],
    });
    tracing::info!(machine = %machine.key, "machine registered");
    Ok(pretty(&json!({
        // Every JSON document is a YAML document.
        "kubeConfig": config.to_string(),
        "namespace": machine.namespace(),
        "secretName": account.plan,
    })))
}

/// The distribution's configuration, as it is in the machine's plan.
async fn configuration(shared: &Shared, machine: &Machine) -> Result<Response<Body>, Refusal> {
    const FILE: &str = "/config.yaml.d/50-rancher.yaml";
    let missing = |text: &str| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, text);
    let account = account::of_plan(shared, machine).await?;
    let secrets: Api<Secret> = Api::namespaced(shared.ctx.client.clone(), machine.namespace());
    let has_plan = |secret: Option<&Secret>| secret.is_some_and(|secret| plan(secret).is_some());
    let waiting = remuda_control::wait_for(&secrets, &account.plan, has_plan);
    let found = tokio::time::timeout(shared.timing.plan, waiting).await;
    let found = found.map_err(|_| Refusal::not_yet("the machine has no plan yet"))?;
    let secret = found.map_err(|error| Refusal::failed("waiting for the plan", &error))?;
    let plan = secret.as_ref().and_then(plan).ok_or_else(|| missing("no files in the plan"))?;
    let plan: Value = serde_json::from_slice(plan).map_err(|_| missing("no files in the plan"))?;
    let files = plan.get("files").and_then(Value::as_array).filter(|files| !files.is_empty());
    let files = files.ok_or_else(|| missing("no files in the plan"))?;
    let file = files.iter().find(|file| file["path"].as_str().is_some_and(|path| path.ends_with(FILE)));
    let content = file.and_then(|file| file["content"].as_str()).filter(|content| !content.is_empty());
    let content = content.and_then(|content| BASE64_STANDARD.decode(content).ok());
    let content = content.ok_or_else(|| missing("no config content"))?;
    Ok(answer(StatusCode::OK, http::HeaderValue::from_static("application/json"), content))
}

fn plan(secret: &Secret) -> Option<&[u8]> {
    let plan = secret.data.as_ref()?.get(key::PLAN)?;
    Some(plan.0.as_slice()).filter(|plan| !plan.is_empty())
}

fn cluster_info(shared: &Shared, head: &Parts, machine: &Machine) -> Result<Response<Body>, Refusal> {
    let fields = head.headers.get_all(FIELD);
    let fields: Vec<&str> = fields.iter().filter_map(|field| field.to_str().ok()).collect();
    if fields.is_empty() {
        return Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "no field headers"));
    }
    let cluster = shared.provisioned.get(&ObjectKey::namespaced(machine.namespace(), &machine.cluster));
    let version =
        cluster.as_deref().map(|cluster: &provisioning::Cluster| cluster.spec.kubernetes_version.clone());
    let mut answer = Map::new();
    for field in fields.iter().take(16).filter(|field| field.eq_ignore_ascii_case("kubernetesversion")) {
        answer.insert((*field).to_owned(), version.clone().unwrap_or_default().into());
    }
    if let Some(cluster) = &cluster {
        tracing::debug!(cluster = cluster.name_any(), machine = %machine.key, "told about its cluster");
    }
    Ok(pretty(&Value::Object(answer)))
}

#[cfg(test)]
mod fuzz;
