//! Clusters with an authorized endpoint: what they know of people, so that these get in without this server.
//!
//! Reads   management Clusters, and who has tokens for each; in the cluster, what it knows already.
//! Writes  in the cluster: for each token a ClusterAuthToken and a Secret with its hash, for each of their users a
//!         ClusterUserAttribute with the groups requests through here have, and the roles some of these stand for.
//!         In the status of the management Cluster, that there is something to take away again.
//! Never   a key. Nor does it make anybody more than they are through here: the same code decides.

mod wanted;
mod write;

use std::{collections::HashMap, sync::Arc, time::Duration};

use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use remuda_api::management::Cluster;
use remuda_control::{Action, Controller, ObjectKey, Retry, Retryable, drive, write::merge_status};
use remuda_names::{
    endpoint,
    rancher::{
        name::{LOCAL, SYSTEM},
        setting,
    },
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{wanted::Wanted, write::There};
use crate::{access::Holders, gateway::Shared, proxy::Unable, route::Access};

/// Who may use a cluster is decided again after this time: not every rule anybody can write tells us of a change.
const DECIDE: Duration = Duration::from_secs(60);
/// Clusters are looked at again after this time, whatever is known of them: somebody may have changed something
/// there, roles must stay in use, and tokens were used.
const AGAIN: Duration = Duration::from_secs(600);
/// Until everybody is known, after a start.
const SOON: Duration = Duration::from_secs(1);
/// For everything one cluster is told at a time.
const PATIENCE: Duration = Duration::from_secs(120);

/// Why a cluster is not up to date.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Kit(#[from] remuda_control::Error),
    #[error("{doing} in the cluster")]
    Api { doing: &'static str, source: kube::Error },
    #[error("bring a role into the cluster: {0}")]
    Role(String),
    #[error("decide who may use the cluster: {0}")]
    Undecided(String),
    #[error("the cluster does not serve the kinds it was given")]
    NotServed,
    #[error("encode an object")]
    Encode(#[source] serde_json::Error),
}

impl Error {
    fn api(doing: &'static str) -> impl Fn(kube::Error) -> Error {
        move |source| Error::Api { doing, source }
    }
}

impl From<Unable> for Error {
    fn from(unable: Unable) -> Error {
        Error::Role(match unable {
            Unable::Silent(patience) => format!("no answer within {patience:?}"),
            Unable::Unreachable(why) | Unable::Refused(why) => why,
        })
    }
}

impl Retryable for Error {
    fn retry(&self) -> Retry {
        match self {
            Error::Kit(error) => error.retry(),
            Error::Api { source, .. } => source.retry(),
            Error::Role(_) | Error::Undecided(_) | Error::NotServed => Retry::Transient,
            Error::Encode(_) => Retry::UserMustAct,
        }
    }
}

/// What a cluster was told last.
struct Told {
    wanted: Wanted,
    access: Arc<Access>,
    until: Instant,
}

struct Endpoints {
    shared: Arc<Shared>,
    holders: Arc<dyn Holders>,
    told: Mutex<HashMap<String, Told>>,
}

pub(crate) async fn run(shared: Arc<Shared>, holders: Arc<dyn Holders>, stop: CancellationToken) {
    let controller = Controller::<Cluster>::on("authorized-endpoint", &shared.ctx, shared.clusters.clone())
        .workers(4)
        .deadline(PATIENCE)
        .only_when(|change| {
            let enabled = |cluster: &Arc<Cluster>| cluster.spec.local_cluster_auth_endpoint.enabled;
            change.old.as_ref().map(enabled) != change.new.as_ref().map(enabled)
        });
    let enqueuer = controller.enqueuer();
    let connected = {
        let enqueuer = enqueuer.clone();
        shared.sessions.listen(move |cluster| enqueuer.enqueue(ObjectKey::cluster_wide(cluster)))
    };
    let mut changes = holders.changes();
    let endpoints = Arc::new(Endpoints { shared: shared.clone(), holders, told: Mutex::default() });
    let following = async {
        while changes.changed().await.is_ok() {
            let clusters = shared.clusters.list();
            let open = clusters.iter().filter(|cluster| cluster.spec.local_cluster_auth_endpoint.enabled);
            open.for_each(|cluster| enqueuer.enqueue(ObjectKey::cluster_wide(cluster.name_any())));
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = drive(controller, reconcile, endpoints, stop) => {}
        () = following => {}
    }
    drop(connected);
}

async fn reconcile(cluster: Arc<Cluster>, endpoints: Arc<Endpoints>) -> Result<Action, Error> {
    let (shared, name) = (&endpoints.shared, cluster.name_any());
    let is_local = name == LOCAL || cluster.spec.internal;
    if is_local || cluster.metadata.deletion_timestamp.is_some() {
        return Ok(Action::AwaitChange);
    }
    let recorded = cluster.status.as_ref().map(|status| status.auth_image.clone()).unwrap_or_default();
    let enabled = cluster.spec.local_cluster_auth_endpoint.enabled;
    if !enabled && recorded.is_empty() {
        endpoints.told.lock().remove(&name);
        return Ok(Action::AwaitChange);
    }
    // Its session wakes us.
    let Ok(route) = shared.route(&name) else { return Ok(Action::AwaitChange) };
    let there = There::new(Client::new(route.clone(), SYSTEM));
    if !enabled {
        endpoints.told.lock().remove(&name);
        there.withdraw().await?;
        endpoints.record(&cluster, String::new()).await?;
        tracing::info!(cluster = name, "nobody gets into the cluster without this server any more");
        return Ok(Action::AwaitChange);
    }
    let Some(held) = endpoints.holders.held(&name) else { return Ok(Action::RequeueAfter(SOON)) };
    let wanted = Wanted::decide(held, &name, &*shared.authorize).await;
    let wanted = wanted.map_err(Error::Undecided)?;
    if let Some(left) = endpoints.left(&name, &wanted, route.access()) {
        return Ok(Action::RequeueAfter(left.min(DECIDE)));
    }
    if recorded.is_empty() {
        let usual = shared.settings.get(setting::AUTH_IMAGE);
        let images = [cluster.spec.desired_auth_image.clone(), usual, endpoint::NAME.to_owned()];
        let image = images.into_iter().find(|image| !image.is_empty()).unwrap_or_default();
        endpoints.record(&cluster, image).await?;
    }
    shared.roles.ensure(shared, &name, &route, &wanted.roles).await?;
    for (token, at) in there.write(&wanted).await? {
        endpoints.holders.used(&token, at);
    }
    tracing::debug!(cluster = name, tokens = wanted.tokens.len(), "the cluster knows who may use it");
    let told = Told { wanted, access: route.access().clone(), until: Instant::now() + AGAIN };
    let mut all = endpoints.told.lock();
    all.retain(|known, _| shared.cluster(known).is_some());
    all.insert(name, told);
    Ok(Action::RequeueAfter(DECIDE))
}

impl Endpoints {
    /// How long a cluster need not be told anything, if it knows all this.
    fn left(&self, cluster: &str, wanted: &Wanted, access: &Arc<Access>) -> Option<Duration> {
        let told = self.told.lock();
        let known = told.get(cluster).filter(|told| told.wanted == *wanted && told.access == *access)?;
        let left = known.until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Records that the cluster has an authenticator, or has none.
    async fn record(&self, cluster: &Cluster, image: String) -> Result<(), Error> {
        let mut status = cluster.status.clone().unwrap_or_default();
        status.auth_image = image;
        let clusters: Api<Cluster> = Api::all(self.shared.ctx.client.clone());
        merge_status(&self.shared.ctx, &clusters, cluster, &status).await?;
        Ok(())
    }
}
