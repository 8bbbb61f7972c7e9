//! Management Clusters: what is known of a cluster from its live session.
//!
//! Reads   management Clusters, the table of sessions, through each session the version, and what `nodes` found out.
//! Writes  `Connected`, `AgentDeployed`, `Ready` (unless the nodes are changing: then it is the control
//!         plane's), version, provider, and what the nodes are together in the status, and the credentials an agent
//!         uploaded.
//! Never   asks a cluster that is not connected.

pub(crate) mod capacity;
mod look;

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_api::{
    management::{Cluster, ClusterStatus, Version},
    rke::{Condition, conditions as rancher},
};
use remuda_control::{
    Action, Controller, Error, ObjectKey, drive,
    write::{get_or_create, write_status},
};
use remuda_names::{
    gateway::{DRIVER_IMPORTED, UPLOADING_DRIVERS, label, secret},
    rancher::{
        annotation, condition,
        name::{GLOBAL_DATA, LOCAL},
        reason,
    },
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::look::Fact;
pub(crate) use self::look::Facts;
use crate::{gateway::Shared, route::Access, sessions::Connection};

pub(crate) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let controller =
        Controller::<Cluster>::on("management-cluster-connection", &shared.ctx, shared.clusters.clone())
            .workers(8);
    let enqueuer = controller.enqueuer();
    let wake = {
        let enqueuer = enqueuer.clone();
        Arc::new(move |cluster: &str| enqueuer.enqueue(ObjectKey::cluster_wide(cluster)))
    };
    shared.facts.tell(wake.clone());
    let listening = {
        let (shared, wake) = (shared.clone(), wake.clone());
        shared.sessions.clone().listen(move |cluster| {
            look::follow(&shared, cluster, wake.clone());
            wake(cluster);
        })
    };
    for cluster in shared.sessions.connected() {
        look::follow(&shared, &cluster, wake.clone());
    }
    drive(controller, reconcile, shared, stop).await;
    drop(listening);
}

async fn reconcile(cluster: Arc<Cluster>, shared: Arc<Shared>) -> Result<Action, Error> {
    if cluster.metadata.deletion_timestamp.is_some() {
        return Ok(Action::AwaitChange);
    }
    let name = cluster.name_any();
    let connection = shared.sessions.connection(&name);
    let access = shared.sessions.access(&name);
    let observed = Observed {
        is_local: name == LOCAL || cluster.spec.internal,
        administrated: cluster
            .annotations()
            .get(annotation::ADMINISTRATED)
            .is_some_and(|value| value == "true"),
        connection,
        fact: shared.facts.of(&name),
        access: access.as_deref(),
    };
    let mut status = cluster.status.clone().unwrap_or_default();
    // Its agent is on its way back to a server that has just started, as after every restart of ours.
    let settled = shared.started + shared.timing.settle;
    let left = settled.saturating_duration_since(tokio::time::Instant::now());
    if observed.connection == Connection::Never && was_connected(&status) && !left.is_zero() {
        return Ok(Action::RequeueAfter(left));
    }
    decide(&mut status, &observed, &name, shared.ctx.clock.now());
    if let Some(access) = access.as_deref().filter(|_| uploads(&status.driver)) {
        keep_credential(&shared, &cluster, access).await?;
    }
    let clusters: Api<Cluster> = Api::all(shared.ctx.client.clone());
    let written = write_status(&shared.ctx, &clusters, &cluster, &status).await?;
    shared.clusters.wait_seen(written.as_ref()).await;
    Ok(Action::AwaitChange)
}

fn was_connected(status: &ClusterStatus) -> bool {
    status.conditions.iter().any(|known| known.kind == condition::CONNECTED && known.status == "True")
}

struct Observed<'a> {
    /// The cluster this server is, or runs in: it needs no agent.
    is_local: bool,
    /// We make the cluster, so somebody else says what it is.
    administrated: bool,
    connection: Connection,
    fact: Fact,
    access: Option<&'a Access>,
}

/// Clusters of other drivers are reached by what their driver knows.
fn uploads(driver: &str) -> bool {
    driver.is_empty() || UPLOADING_DRIVERS.contains(&driver)
}

fn decide(status: &mut ClusterStatus, observed: &Observed<'_>, name: &str, now: Timestamp) {
    let conditions = &mut status.conditions;
    if observed.is_local {
        for kind in [condition::CONNECTED, condition::AGENT_DEPLOYED, condition::READY] {
            set(conditions, kind, ConditionUpdate::yes(), now);
        }
        return;
    }
    let connected = observed.connection.is_connected();
    // Told without a time and without the reason of the last disconnect only when there is none.
    let why = match &observed.connection {
        Connection::Connected(_) => String::new(),
        Connection::Never => "Cluster agent is not connected".to_owned(),
        Connection::Lost { error, .. } => format!("Cluster agent is not connected: {error}"),
    };
    let lost = ConditionUpdate { status: "False", reason: reason::DISCONNECTED, message: &why };
    set(conditions, condition::CONNECTED, if connected { ConditionUpdate::yes() } else { lost }, now);
    if connected {
        set(conditions, condition::AGENT_DEPLOYED, ConditionUpdate::yes(), now);
    } else if !conditions.iter().any(|known| known.kind == condition::AGENT_DEPLOYED) {
        set(
            conditions,
            condition::AGENT_DEPLOYED,
            ConditionUpdate { status: "False", ..ConditionUpdate::default() },
            now,
        );
    }
    // While nodes are changing the control plane says whether the cluster is ready.
    if !status.ready_reconciling {
        let trouble;
        let found = observed.fact.trouble.as_ref().or(observed.fact.excess.as_ref());
        let says = match (found, observed.fact.asked) {
            _ if !connected => Some(lost),
            (Some(found), _) => {
                trouble = format!("the API of the cluster does not answer through the tunnel: {found}");
                Some(ConditionUpdate { status: "False", reason: "Unreachable", message: &trouble })
            }
            (None, true) => Some(ConditionUpdate::yes()),
            // Connected a moment ago; it is being asked.
            (None, false) => None,
        };
        if let Some(says) = says {
            set(conditions, condition::READY, says, now);
        }
    }
    if !connected {
        return;
    }
    if let Some(version) = &observed.fact.version {
        status.version = Some(Version {
            git_version: version.git_version.clone(),
            major: version.major.clone(),
            minor: version.minor.clone(),
            other: status.version.take().map(|known| known.other).unwrap_or_default(),
        });
        if status.driver.is_empty() {
            status.driver = DRIVER_IMPORTED.to_owned();
        }
        // Nodes know more than the version: Harvester runs on RKE2. They may come to be known later.
        let by_nodes = observed.fact.nodes.as_ref().and_then(|nodes| nodes.provider);
        let provider = by_nodes.or_else(|| capacity::by_version(&version.git_version));
        let says_more = by_nodes.is_some() && !observed.administrated;
        if let Some(provider) = provider.filter(|_| status.provider.is_empty() || says_more) {
            status.provider = provider.to_owned();
        }
    }
    if let Some(nodes) = &observed.fact.nodes {
        status.node_count = nodes.count;
        if !nodes.arch.is_empty() {
            status.info.get_or_insert_default().arch.clone_from(&nodes.arch);
        }
        let known = [
            ("capacity", Some(json!(nodes.capacity))),
            ("allocatable", Some(json!(nodes.allocatable))),
            ("requested", nodes.requested.as_ref().map(|amounts| json!(amounts))),
            ("limits", nodes.limits.as_ref().map(|amounts| json!(amounts))),
            ("linuxWorkerCount", Some(nodes.linux_workers.into())),
            ("windowsWorkerCount", Some(nodes.windows_workers.into())),
        ];
        for (field, value) in known {
            match value {
                Some(value) => drop(status.other.insert(field.to_owned(), value)),
                None => drop(status.other.remove(field)),
            }
        }
    }
    if let Some(access) = observed.access.filter(|_| uploads(&status.driver)) {
        use base64::{Engine, prelude::BASE64_STANDARD};
        status.api_endpoint = access.endpoint();
        status.ca_cert = BASE64_STANDARD.encode(&access.ca);
        status.service_account_token_secret = credential_name(name);
    }
}

fn credential_name(cluster: &str) -> String {
    format!("{}{cluster}", secret::CREDENTIAL_PREFIX)
}

/// Keeps what an agent uploaded, for those who look for it and for the servers it is not connected to. The newest
/// agent wins.
pub(crate) async fn keep_credential(
    shared: &Shared,
    cluster: &Cluster,
    access: &Access,
) -> Result<(), Error> {
    let name = credential_name(&cluster.name_any());
    let secrets: Api<Secret> = Api::namespaced(shared.ctx.client.clone(), GLOBAL_DATA);
    let mut wanted = Secret::default();
    wanted.metadata.name = Some(name.clone());
    wanted.metadata.namespace = Some(GLOBAL_DATA.to_owned());
    // It goes when the cluster does.
    wanted.metadata.owner_references = Some(cluster.owner_ref(&()).into_iter().collect());
    let label = (label::CLUSTER_ACCESS.to_owned(), "true".to_owned());
    wanted.metadata.labels = Some(BTreeMap::from([label.clone()]));
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data = BTreeMap::from([
        (secret::CREDENTIAL.to_owned(), bytes(&access.token)),
        (secret::ADDRESS.to_owned(), bytes(access.address.as_str())),
        (secret::AUTHORITY.to_owned(), bytes(&access.ca)),
    ]);
    wanted.data = Some(data.clone());
    let found = get_or_create(&shared.ctx, &secrets, &wanted).await?;
    if found.data.as_ref() == Some(&data) && found.labels().get(&label.0) == Some(&label.1) {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"uid": found.uid(), "labels": wanted.metadata.labels},
        "data": data,
    });
    let params =
        PatchParams { field_manager: Some(shared.ctx.field_manager.to_string()), ..PatchParams::default() };
    let written = secrets.patch(&name, &params, &Patch::Merge(patch)).await;
    written.map(drop).map_err(|source| Error::Api {
        verb: "write",
        what: format!("secrets {GLOBAL_DATA}/{name}"),
        source,
    })
}

/// What a condition says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ConditionUpdate<'a> {
    pub(crate) status: &'static str,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

impl ConditionUpdate<'_> {
    pub(crate) fn yes() -> Self {
        Self { status: "True", reason: "", message: "" }
    }
}

/// Sets a condition; times move only when something changes, and a condition keeps its place.
pub(crate) fn set(conditions: &mut Vec<Condition>, kind: &str, says: ConditionUpdate<'_>, now: Timestamp) {
    let status = match says.status {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    };
    let (reason, message) = (says.reason, says.message);
    rancher::set(conditions, rancher::Update { kind, status, reason, message }, now);
}

#[cfg(test)]
mod tests;
