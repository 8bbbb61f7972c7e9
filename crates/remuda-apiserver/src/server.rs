//! The API server: its state, its start and its stop.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use jiff::Timestamp;
use remuda_auth::{
    identity::User,
    jwt::{issue::Issuer, verify::Verifier},
    pki::authority::Authority,
    rbac::policy::Policy,
    tokens::StaticTokens,
};
use remuda_store::{Record, Revision, Store};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    addresses::Addresses,
    admission::{Hook, Policies, Webhooks},
    audit::AuditLog,
    controllers::Term,
    convert::NativeConversion,
    crd::CrdKeeper,
    follow::{Progress, follow},
    index::Indices,
    limits::{Limits, Throttle},
    metrics::Metrics,
    openapi::OpenApi,
    processes::Kubelets,
    quotas::Quotas,
    registry::{Registry, Resource},
    tokens::{Remote, Tokens},
    turns::Turns,
    watch::WatchObserver,
};

/// What a server is made of.
pub struct Config {
    /// The version of the distribution this is the API of, such as `v1.34.2+k3s1`; our own without one.
    pub version: Option<String>,
    /// `host:port` under which clients reach this server.
    pub advertise: String,
    /// Published in every namespace as `kube-root-ca.crt`.
    pub root_ca_pem: String,
    /// Signs and checks service-account tokens.
    pub issuer: Issuer,
    pub verifier: Arc<Verifier>,
    /// Signs CertificateSigningRequests; without it they stay unsigned.
    pub signer: Option<Arc<Authority>>,
    pub static_tokens: StaticTokens,
    /// Whether requests without credentials are let through to authorization at all.
    pub anonymous: bool,
    pub audit: Option<AuditLog>,
    pub limits: Limits,
    /// In-process admission, in order.
    pub hooks: Vec<Arc<dyn Hook>>,
    /// In-process conversions, by CRD name.
    pub conversions: BTreeMap<String, NativeConversion>,
    /// Texts for `kubectl explain`, made when a document is built and not kept.
    pub descriptions: Option<fn() -> crate::openapi::Descriptions>,
    /// Whether the API's own controllers (garbage collection, namespaces, …) run in this process.
    pub controllers: Controllers,
    pub clock: fn() -> Timestamp,
    /// The name under which a field manager of the server's own controllers applied before it had one of its own.
    /// What was applied under the former name is taken over by the first apply under the new one.
    pub former_manager: fn(&str) -> Option<String>,
    /// Whether writes of a user to kinds of a group that do not say `fieldValidation` are refused for fields the kind
    /// does not know. Kubernetes warns, and drops them.
    pub strict_fields: fn(&str, &User) -> bool,
    /// Is told which watches begin and end.
    pub watch_observer: Option<Arc<dyn WatchObserver>>,
}

/// Where the API's own controllers run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Controllers {
    /// Here: no other server uses the store.
    Always,
    Never,
    /// In one of the servers that share the store. The identity is this one's among them.
    Elected {
        identity: String,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("read the store")]
    Store(#[source] remuda_store::Error),
    #[error("create {what}: {detail}")]
    Bootstrap { what: String, detail: String },
}

/// A running API server. Clones share it.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: ArcSwap<Registry>,
    pub(crate) policy: Arc<Policy>,
    /// Whoever keeps further tokens, once they do.
    pub(crate) tokens: OnceLock<Arc<dyn Tokens>>,
    /// The way to those who run Pods, where there is one.
    pub(crate) kubelets: OnceLock<Arc<dyn Kubelets>>,
    /// Whoever is asked about tokens nobody else knows.
    pub(crate) remote: OnceLock<Arc<dyn Remote>>,
    pub(crate) crds: CrdKeeper,
    pub(crate) webhooks: Webhooks,
    pub(crate) policies: Policies,
    pub(crate) openapi: OpenApi,
    pub(crate) addresses: Addresses,
    pub(crate) indices: Indices,
    pub(crate) quotas: Quotas,
    pub(crate) throttle: Throttle,
    pub(crate) turns: Turns,
    pub(crate) metrics: Metrics,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
    /// Progress of the followers whose word is law: writes wait until they have taken effect.
    followers: parking_lot::RwLock<Vec<(String, Progress)>>,
    pub(crate) ready: std::sync::atomic::AtomicBool,
}

/// Collections whose content changes how requests are judged.
const RBAC: [&str; 4] = ["roles", "rolebindings", "clusterroles", "clusterrolebindings"];

impl ApiServer {
    /// Loads what is stored, creates what must exist, and starts the API's own controllers.
    pub fn start(config: Config, store: Arc<dyn Store>) -> BoxFuture<'static, Result<Self, StartError>> {
        Box::pin(Self::start_on(config, store))
    }

    async fn start_on(config: Config, store: Arc<dyn Store>) -> Result<Self, StartError> {
        let inner = Arc::new(Inner {
            registry: ArcSwap::from_pointee(Registry::new(BTreeMap::new(), 0)),
            policy: Arc::new(Policy::default()),
            tokens: OnceLock::new(),
            kubelets: OnceLock::new(),
            remote: OnceLock::new(),
            crds: CrdKeeper::default(),
            webhooks: Webhooks::default(),
            policies: Policies::default(),
            openapi: OpenApi::default(),
            addresses: Addresses::default(),
            indices: Indices::default(),
            quotas: Quotas::default(),
            throttle: Throttle::new(&config.limits),
            turns: Turns::default(),
            metrics: Metrics::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            followers: parking_lot::RwLock::default(),
            ready: false.into(),
            config,
            store,
        });
        inner.follow_rbac().await?;
        crate::crd::start(&inner).await?;
        crate::admission::start(&inner).await?;
        crate::addresses::start(&inner).await?;
        crate::quotas::start(&inner).await?;
        crate::bootstrap::run(&inner).await?;
        match &inner.config.controllers {
            Controllers::Always => {
                let term = Term { stop: inner.stop.clone(), tasks: inner.tasks.clone() };
                crate::controllers::start(&inner, &term).await?;
            }
            Controllers::Never => {}
            Controllers::Elected { identity } => crate::election::start(&inner, identity),
        }
        inner.ready.store(true, std::sync::atomic::Ordering::Release);
        Ok(Self { inner })
    }

    /// Ends watches, stops controllers, and waits for both.
    pub async fn shutdown(&self) {
        self.inner.ready.store(false, std::sync::atomic::Ordering::Release);
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        if let Some(audit) = &self.inner.config.audit {
            audit.flush();
        }
    }

    /// Asks somebody else about tokens too, from now on. Only the first of them is asked.
    pub fn ask_for_tokens(&self, tokens: Arc<dyn Tokens>) {
        let _ = self.inner.tokens.set(tokens);
    }

    /// Asks somebody far away about tokens nobody else knows, from now on. Only the first of them is asked.
    pub fn ask_remote(&self, remote: Arc<dyn Remote>) {
        let _ = self.inner.remote.set(remote);
    }

    /// What requests are judged by. What is stored is in it already; others may add to it what no name of a
    /// stored object can be: see [`Policy::reset`].
    pub fn policy(&self) -> &Arc<Policy> {
        &self.inner.policy
    }

    /// Metrics in the OpenMetrics text format.
    pub fn metrics(&self) -> String {
        self.inner.metrics.encode()
    }
}

impl Inner {
    pub(crate) fn now(&self) -> Timestamp {
        (self.config.clock)()
    }

    /// Now, as metadata writes it.
    pub(crate) fn now_text(&self) -> String {
        time_text(self.now())
    }

    async fn follow_rbac(self: &Arc<Self>) -> Result<(), StartError> {
        for plural in RBAC {
            let prefix = format!("/rbac.authorization.k8s.io/{plural}/");
            let policy = self.policy.clone();
            let plural = plural.to_owned();
            self.follow(&prefix, move |news| crate::authz::tell_policy(&policy, &plural, news)).await?;
        }
        Ok(())
    }

    /// Follows a prefix; writes to it are answered only after they have been told.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        prefix: &str,
        tell: impl FnMut(crate::follow::News<'_>) + Send + 'static,
    ) -> Result<(), StartError> {
        let progress = follow(self.store.clone(), prefix, &self.tasks, self.stop.clone(), tell)
            .await
            .map_err(StartError::Store)?;
        self.followers.write().push((prefix.to_owned(), progress));
        Ok(())
    }

    /// Follows a prefix without holding up writers, for as long as the controllers run here.
    pub(crate) async fn follow_quietly(
        &self,
        term: &Term,
        prefix: &str,
        tell: impl FnMut(crate::follow::News<'_>) + Send + 'static,
    ) -> Result<(), StartError> {
        follow(self.store.clone(), prefix, &term.tasks, term.stop.clone(), tell)
            .await
            .map(drop)
            .map_err(StartError::Store)
    }

    /// Waits until a write has reached those who must act on it before the client hears of it.
    pub(crate) async fn after_write(&self, resource: &Resource, record: &Record) {
        self.knows(&resource.prefix, record.revision).await;
    }

    /// Waits until those who follow a prefix have been told everything up to `revision`.
    pub(crate) async fn knows(&self, prefix: &str, revision: Revision) {
        let waiting: Vec<Progress> = {
            let followers = self.followers.read();
            followers
                .iter()
                .filter(|(followed, _)| followed == prefix)
                .map(|(_, progress)| progress.clone())
                .collect()
        };
        for progress in waiting {
            progress.reached(revision).await;
        }
    }
}

/// RFC 3339 with seconds, as `metav1.Time`.
pub(crate) fn time_text(at: Timestamp) -> String {
    remuda_base::rfc3339(at.as_second())
}
