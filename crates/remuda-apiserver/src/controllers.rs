//! The controllers that belong to the API itself.
//!
//! One watch over the whole store tells what changed; [`triage`] turns that into work; a few
//! workers take it from one queue. Nothing polls: work that must wait is woken by the change it
//! waits for, and failures come back after a pause that grows.

mod accounts;
mod addresses;
mod aggregation;
pub(crate) mod apiservices;
mod definitions;
mod expiry;
mod garbage;
mod namespaces;
mod policies;
mod signing;
mod triage;
pub(crate) mod volumes;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use remuda_base::Backoff;
use remuda_coordination::queue::{QueueMetrics, WorkQueue};
use remuda_store::Record;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

use self::triage::Triage;
use crate::{
    follow::News,
    server::{Inner, StartError},
    status::ApiResult,
};

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(60));
/// Workers sharing the queue. Work is mostly waiting for the store.
const WORKERS: usize = 8;

/// One thing to look at. Looking again is always safe.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Work {
    /// An object with owners: are they still there?
    Dependent(Arc<str>),
    /// An object that leaves only after its dependents (foreground) or without them (orphan).
    Owner(Arc<str>),
    /// A namespace that is going.
    Namespace(String),
    /// The default service account and root CA of a namespace.
    NamespaceDefaults(String),
    /// A Secret of type service-account-token.
    TokenSecret(Arc<str>),
    /// Aggregated ClusterRoles.
    Aggregation,
    /// A CRD that is going, or whose names may have become free.
    Definition(String),
    CertificateRequest(String),
    /// The APIService objects.
    ApiServices,
    /// The object of an address of a Service: the address and the key of the Service.
    Address(std::net::IpAddr, Arc<str>),
    /// A network addresses of Services are taken from.
    ServiceNetwork(String),
    /// A ValidatingAdmissionPolicy.
    Policy(String),
    /// What the quotas of a namespace limit.
    Quotas(String),
    /// A claim that is to go and may be in use.
    Claim(Arc<str>),
    /// A volume that is to go and may be in use.
    Volume(Arc<str>),
}

pub(crate) struct Controllers {
    pub(crate) queue: WorkQueue<Work>,
    pub(crate) triage: parking_lot::Mutex<Triage>,
    /// The last change of a CRD that has been told. What is served follows CRDs by a watch of its
    /// own, which may be behind: work waits for it, or it would judge by what was served before.
    definitions: AtomicU64,
}

fn queue() -> WorkQueue<Work> {
    WorkQueue::new("api", BACKOFF, &QueueMetrics::default())
}

impl Controllers {
    fn tell(&self, news: News<'_>) {
        let definitions = match &news {
            News::Reset(records) => records.iter().filter(|it| is_definition(it)).map(|it| it.revision).max(),
            News::Changed(event) => Some(event.record.revision).filter(|_| is_definition(&event.record)),
        };
        if let Some(revision) = definitions {
            self.definitions.fetch_max(revision, Ordering::AcqRel);
        }
        self.triage.lock().tell(news, &self.queue);
    }
}

fn is_definition(record: &Record) -> bool {
    record.key.starts_with(crate::crd::PREFIX)
}

/// A time in which the controllers run in this process.
pub(crate) struct Term {
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

pub(crate) async fn start(inner: &Arc<Inner>, term: &Term) -> Result<(), StartError> {
    let controllers = Arc::new(Controllers {
        queue: queue(),
        triage: Default::default(),
        definitions: AtomicU64::default(),
    });
    let told = controllers.clone();
    inner.follow_quietly(term, "/", move |news| told.tell(news)).await?;
    controllers.queue.add(Work::Aggregation);
    controllers.queue.add(Work::ApiServices);
    for _ in 0..WORKERS {
        let (server, controllers, stop) = (inner.clone(), controllers.clone(), term.stop.clone());
        term.tasks.spawn(async move {
            // Work is given up halfway: looking again is always safe, here or elsewhere.
            stop.run_until_cancelled(Box::pin(work(&server, &controllers))).await;
        });
    }
    expiry::start(inner, term).await
}

async fn work(server: &Arc<Inner>, controllers: &Controllers) {
    while let Some(item) = controllers.queue.next().await {
        server.knows(crate::crd::PREFIX, controllers.definitions.load(Ordering::Acquire)).await;
        match server.look_at(controllers, &item).await {
            Ok(()) => controllers.queue.succeed(&item),
            // Somebody was faster; what they did has been told and will be looked at.
            Err(error) if error.code == 409 || error.code == 404 => {
                debug!(?item, %error, "looking again");
                controllers.queue.fail(&item);
            }
            Err(error) => {
                warn!(?item, %error, "controller failed, trying again");
                controllers.queue.fail(&item);
            }
        }
    }
}

impl Inner {
    async fn look_at(self: &Arc<Self>, controllers: &Controllers, item: &Work) -> ApiResult<()> {
        match item {
            Work::Dependent(key) => self.collect_dependent(controllers, key).await,
            Work::Owner(key) => self.collect_owner(controllers, key).await,
            Work::Namespace(name) => self.empty_namespace(name).await,
            Work::NamespaceDefaults(name) => self.fill_namespace(name).await,
            Work::TokenSecret(key) => self.complete_token_secret(key).await,
            Work::Aggregation => self.aggregate_roles().await,
            Work::Definition(name) => self.settle_definition(name).await,
            Work::CertificateRequest(name) => self.sign_request(name).await,
            Work::ApiServices => self.publish_api_services().await,
            Work::Address(address, service) => self.publish_address(*address, service).await,
            Work::ServiceNetwork(name) => self.settle_network(name).await,
            Work::Policy(name) => self.check_policy_types(name).await,
            Work::Quotas(namespace) => self.recount(namespace).await,
            Work::Claim(key) => self.release_claim(key).await,
            Work::Volume(key) => self.release_volume(key).await,
        }
    }
}
