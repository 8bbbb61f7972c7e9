//! Of several servers on one store, one runs the API's controllers: the holder of a Lease.
//!
//! The others watch it: one that is given up is taken at once.

use std::{sync::Arc, time::Duration};

use remuda_auth::request_info::Verb;
use remuda_coordination::election::{Elector, Entry, Leadership, Lease, Leases, Timing};
use remuda_store::{Record, Revision, Scope};
use serde_json::{Value, json};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use crate::{
    bootstrap::own_options,
    call::Call,
    controllers::{self, Term},
    read::store_error,
    server::Inner,
    status::{ApiError, ApiResult},
    write::{Failed, Ownership, Part},
};

const GROUP: &str = "coordination.k8s.io";
const NAMESPACE: &str = "kube-system";
const NAME: &str = "remuda-api-controllers";

const RETRY: Duration = Duration::from_secs(1);
/// A watch tells of changes, so looking is for the end of a Lease only.
const TIMING: Timing =
    Timing { renew: Duration::from_secs(5), retry: RETRY, poll: Timing::DEFAULT.lease, ..Timing::DEFAULT };

/// Runs the controllers whenever this server is the one to do so.
pub(crate) fn start(inner: &Arc<Inner>, identity: &str) {
    let (server, identity) = (inner.clone(), identity.to_owned());
    inner.tasks.spawn(async move {
        while !server.stop.is_cancelled() {
            let elector = Elector::new(ApiLease { server: server.clone() }, NAME, &identity, TIMING);
            let (leadership, resign) = (elector.leadership(), CancellationToken::new());
            let term = async {
                tokio::select! {
                    () = server.stop.cancelled() => {}
                    () = leadership.gained() => serve(&server, &leadership).await,
                }
                resign.cancel();
            };
            tokio::join!(Box::pin(elector.run(resign.clone())), Box::pin(term));
        }
    });
}

/// Runs the controllers until the server stops or the Lease is lost.
async fn serve(server: &Arc<Inner>, leadership: &Leadership) {
    info!("this server runs the API's controllers");
    let term = Term { stop: server.stop.child_token(), tasks: TaskTracker::new() };
    let ended = async {
        match controllers::start(server, &term).await {
            Ok(()) => std::future::pending().await,
            Err(error) => {
                warn!(%error, "cannot start the API's controllers");
                tokio::time::sleep(RETRY).await;
            }
        }
    };
    tokio::select! {
        () = server.stop.cancelled() => {}
        () = leadership.lost() => {}
        () = ended => {}
    }
    term.stop.cancel();
    term.tasks.close();
    term.tasks.wait().await;
    info!("this server no longer runs the API's controllers");
}

struct ApiLease {
    server: Arc<Inner>,
}

/// The record, and the revision at which it was read: a watch begins there.
#[derive(Debug, Clone)]
struct Version {
    record: Arc<Record>,
    read: Revision,
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.record.revision == other.record.revision
    }
}

impl ApiLease {
    fn call(&self) -> Result<Call, ApiError> {
        self.server.own_call(GROUP, "leases", Verb::Update, Some(NAMESPACE), Some(NAME))
    }

    async fn view(&self, call: &Call, version: Version) -> ApiResult<Lease<Version>> {
        let object = self.server.decode(&call.resource, &version.record).await?;
        let spec = &object["spec"];
        Ok(Lease {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            seconds: spec["leaseDurationSeconds"].as_u64(),
            transitions: spec["leaseTransitions"].as_i64().unwrap_or(0),
            version,
        })
    }

    fn enter(&self, spec: &mut Value, entry: Entry<'_>) {
        // As `metav1.MicroTime` is written.
        let now = self.server.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        spec["holderIdentity"] = entry.holder.into();
        spec["leaseDurationSeconds"] = entry.seconds.into();
        spec["renewTime"] = now.as_str().into();
        if let Some(transitions) = entry.acquired {
            spec["acquireTime"] = now.into();
            spec["leaseTransitions"] = transitions.into();
        }
    }
}

impl Leases for ApiLease {
    type Version = Version;
    type Error = ApiError;

    async fn read(&self) -> ApiResult<Option<Lease<Version>>> {
        let call = self.call()?;
        let found = self.server.store.get(&call.key()).await.map_err(store_error)?;
        let Some(record) = found.value else { return Ok(None) };
        self.view(&call, Version { record, read: found.revision }).await.map(Some)
    }

    async fn write(&self, seen: Option<&Version>, entry: Entry<'_>) -> ApiResult<Option<Lease<Version>>> {
        let Some(seen) = seen else {
            let mut lease = json!({"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": {}});
            self.enter(&mut lease["spec"], entry);
            let created = self.server.ensure(GROUP, "leases", lease).await?;
            return if created { self.read().await } else { Ok(None) };
        };
        let call = self.call()?;
        let mut lease = self.server.decode(&call.resource, &seen.record).await?;
        self.enter(&mut lease["spec"], entry);
        let (options, whole) = (own_options(), Part::Main);
        let written =
            self.server.update_object(&call, &seen.record, lease, &options, Ownership::Compute, whole).await;
        match written {
            Ok(stored) => {
                let record = stored.record.unwrap_or_else(|| seen.record.clone());
                let read = record.revision;
                self.view(&call, Version { record, read }).await.map(Some)
            }
            Err(Failed::Conflict) => Ok(None),
            Err(Failed::Api(error)) if error.code == 404 => Ok(None),
            Err(Failed::Api(error)) => Err(error),
        }
    }

    async fn changed(&self, seen: &Version) {
        let key = format!("/{GROUP}/leases/{NAMESPACE}/{NAME}");
        match self.server.store.watch(Scope::Key(key), seen.read) {
            Ok(mut events) => while events.next().await.is_ok_and(|events| events.is_empty()) {},
            // History is gone: looking again is as good.
            Err(error) => {
                debug!(%error, "looking at the lease again");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
