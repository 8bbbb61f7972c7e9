//! The gateway as a whole: what it is made of, and which part answers what.

use std::{collections::HashMap, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use parking_lot::Mutex;
use remuda_api::{management, provisioning};
use remuda_control::{Ctx, Informer, ObjectKey, Scope};
use remuda_names::{
    gateway::{AGGREGATION_PREFIX, path},
    rancher::name::LOCAL,
};
use remuda_tunnel::server::{Server, ServerOptions};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    access::{Authenticate, Authorize, Holders, ManagementRights},
    assets, endpoint, import, peers,
    proxy::{self, Audit},
    register,
    respond::{Body, BoxError, Refusal, text},
    route::Route,
    sessions::{Connection, Sessions},
    settings::Settings,
    status,
    tokens::Tokens,
    tunnel,
};

/// What a gateway is made of.
pub struct GatewayOptions {
    /// Controllers and informers of the management API; its client acts as the gateway.
    pub ctx: Arc<Ctx>,
    /// Who the callers of `/k8s/clusters/…` are.
    pub authenticate: Arc<dyn Authenticate>,
    /// What they may; `None` for [`ManagementRights`].
    pub authorize: Option<Arc<dyn Authorize>>,
    /// Is told of every request of somebody to a cluster.
    pub audit: Option<Audit>,
    /// Who has tokens for clusters; without it nobody gets into one but through here.
    pub holders: Option<Arc<dyn Holders>>,
    /// The executable machines are given as their agent, normally `/proc/self/exe`: it is what runs, even
    /// when the file was replaced meanwhile.
    pub agent_binary: PathBuf,
    /// Sessions, and peers that share theirs.
    pub tunnel: ServerOptions,
    pub timing: Timing,
}

impl GatewayOptions {
    pub fn new(ctx: Arc<Ctx>, authenticate: Arc<dyn Authenticate>) -> Self {
        Self {
            ctx,
            authenticate,
            authorize: None,
            audit: None,
            holders: None,
            agent_binary: PathBuf::from("/proc/self/exe"),
            tunnel: tunnel_options(),
            timing: Timing::default(),
        }
    }
}

/// How the sessions of clusters behave: agents speak every five seconds, so one that has said nothing for four times
/// as long is gone. The original waits for a minute, in which nothing sent into such a session is answered.
pub fn tunnel_options() -> ServerOptions {
    let mut options = ServerOptions::default();
    options.session.timing.silence = Duration::from_secs(20);
    options
}

/// How long things may take.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Until a controller has made a Machine of a request to register.
    pub machine: Duration,
    /// Until the Machine has an account for its plan, and that a token. Together with the above it is less
    /// than machines wait for an answer.
    pub plan: Duration,
    /// Until the API of a cluster begins to answer a person's request.
    pub answer: Duration,
    /// After the start, for agents to come back: until then a cluster that was connected is not said to be
    /// lost.
    pub settle: Duration,
    /// Between two looks at a connected cluster.
    pub look: Duration,
    /// Between two lists of the nodes of a connected cluster.
    pub nodes: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            machine: seconds(60),
            plan: seconds(50),
            answer: seconds(75),
            settle: seconds(45),
            look: seconds(30),
            nodes: seconds(120),
        }
    }
}

pub(crate) struct Shared {
    pub(crate) ctx: Arc<Ctx>,
    pub(crate) authenticate: Arc<dyn Authenticate>,
    pub(crate) authorize: Arc<dyn Authorize>,
    pub(crate) audit: Option<Audit>,
    pub(crate) holders: Option<Arc<dyn Holders>>,
    pub(crate) assets: assets::Assets,
    pub(crate) timing: Timing,
    pub(crate) settings: Settings,
    pub(crate) tokens: Tokens,
    pub(crate) clusters: Informer<management::Cluster>,
    pub(crate) provisioned: Informer<provisioning::Cluster>,
    pub(crate) sessions: Arc<Sessions>,
    /// Other servers have sessions too.
    pub(crate) peering: bool,
    routes: Mutex<HashMap<String, Route>>,
    pub(crate) impersonators: proxy::Impersonators,
    pub(crate) roles: proxy::Roles,
    pub(crate) facts: status::Facts,
    pub(crate) started: tokio::time::Instant,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// Finds provisioning Clusters by the management Cluster they have.
pub(crate) const BY_MANAGEMENT_CLUSTER: &str = "gateway/management-cluster";

/// The front door for machines, agents and people. Cheap to clone; all clones are the same gateway.
#[derive(Clone)]
pub struct Gateway(pub(crate) Arc<Shared>);

impl Gateway {
    pub fn new(options: GatewayOptions) -> Self {
        let GatewayOptions { ctx, authenticate, authorize, audit, holders, agent_binary, tunnel, timing } =
            options;
        let provisioned: Informer<provisioning::Cluster> = ctx.informers.of(Scope::all());
        provisioned.add_index(BY_MANAGEMENT_CLUSTER, |cluster| {
            let name = cluster.status.as_ref().map(|status| status.cluster_name.clone());
            name.filter(|name| !name.is_empty()).into_iter().collect()
        });
        Self(Arc::new(Shared {
            authenticate,
            authorize: authorize.unwrap_or_else(|| ManagementRights::new(&ctx)),
            audit,
            holders,
            assets: assets::Assets::new(agent_binary),
            timing,
            settings: Settings::new(&ctx),
            tokens: Tokens::new(ctx.client.clone()),
            clusters: ctx.informers.of(Scope::all()),
            provisioned,
            peering: tunnel.identity.is_some(),
            sessions: Arc::new(Sessions::new(Server::new(tunnel))),
            routes: Mutex::default(),
            impersonators: proxy::Impersonators::default(),
            roles: proxy::Roles::default(),
            facts: status::Facts::default(),
            started: tokio::time::Instant::now(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            ctx,
        }))
    }

    /// Whether a path is answered here. `local` is not: see [`Gateway::local`].
    pub fn owns(path: &str) -> bool {
        const EXACT: &[&str] = &[
            path::CONNECT,
            path::CONNECT_REGISTER,
            path::CONNECT_AGENT,
            path::CONNECT_CONFIG,
            path::CONNECT_CLUSTER_INFO,
            path::CACERTS,
            path::CACERTS_SETTING,
            path::PING,
            path::INSTALL_SCRIPT,
            path::UNINSTALL_SCRIPT,
            path::WINDOWS_SCRIPT,
        ];
        const BELOW: &[&str] = &[path::IMPORT, path::ASSETS, path::CLUSTERS, path::CLUSTERS_PROXY];
        EXACT.contains(&path)
            || (BELOW.iter().any(|prefix| path.starts_with(prefix))
                && proxy::split(path).is_none_or(|(cluster, _)| cluster != LOCAL))
    }

    /// Where in the management API itself a request for the cluster `local` goes; `None` for all others.
    pub fn local(uri: &Uri) -> Option<Uri> {
        let (_, rest) = proxy::split(uri.path()).filter(|(cluster, _)| *cluster == LOCAL)?;
        let path = uri.query().map_or_else(|| rest.to_owned(), |query| format!("{rest}?{query}"));
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(path.parse().ok()?);
        Uri::from_parts(parts).ok()
    }

    /// Answers a request whose path this gateway [`owns`](Gateway::owns).
    pub async fn handle<B>(&self, peer: SocketAddr, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let path = request.uri().path();
        if proxy::split(path).is_some() {
            return Box::pin(proxy::handle(&self.0, peer, request)).await;
        }
        match path {
            path::CONNECT | path::CONNECT_REGISTER => Box::pin(tunnel::handle(&self.0, peer, request)).await,
            path::CONNECT_AGENT | path::CONNECT_CONFIG | path::CONNECT_CLUSTER_INFO => {
                let (head, _) = request.into_parts();
                Box::pin(register::handle(&self.0, peer, &head)).await
            }
            _ => {
                let (head, _) = request.into_parts();
                if head.method != Method::GET && head.method != Method::HEAD {
                    let mut response =
                        text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered here");
                    let allowed = http::HeaderValue::from_static("GET, HEAD");
                    response.headers_mut().insert(header::ALLOW, allowed);
                    return response;
                }
                if head.uri.path().starts_with(path::IMPORT) {
                    return import::handle(&self.0, &head).await.unwrap_or_else(Refusal::response);
                }
                assets::handle(&self.0, &head).await.unwrap_or_else(Refusal::response)
            }
        }
    }

    /// Follows sessions, tokens and management Clusters, and writes what is so, until told to stop. Then ends
    /// all sessions and returns when they have.
    pub async fn run(&self, stop: CancellationToken) {
        let shared = &self.0;
        let sessions = shared.sessions.clone();
        let following = shared.tokens.follow(move |secret, left| sessions.revoke(secret, left));
        let gone = {
            let shared = shared.clone();
            self.0.clusters.subscribe(move |change| {
                if let (true, Some(cluster)) = (change.is_delete(), change.object()) {
                    shared.forget(cluster.metadata.name.as_deref().unwrap_or_default());
                }
            })
        };
        let peers = stop.child_token();
        let sharing = async {
            if shared.peering {
                peers::run(shared, &peers).await;
            }
        };
        let telling = async {
            if let Some(holders) = shared.holders.clone() {
                endpoint::run(shared.clone(), holders, stop.clone()).await;
            }
        };
        let writing = async {
            tokio::join!(status::run(shared.clone(), stop.clone()), telling);
            peers.cancel();
        };
        tokio::join!(sharing, writing);
        drop((following, gone));
        self.stop().await;
    }

    /// Ends everything.
    pub async fn stop(&self) {
        let shared = &self.0;
        shared.stop.cancel();
        shared.sessions.tunnel.shutdown().await;
        shared.tasks.close();
        shared.tasks.wait().await;
        shared.tokens.stop().await;
    }

    /// Whether a cluster is connected, by the name of its management Cluster.
    pub fn connection(&self, cluster: &str) -> Connection {
        self.0.sessions.connection(cluster)
    }

    /// The sessions themselves, for peers and metrics.
    pub fn tunnel(&self) -> &Server {
        &self.0.sessions.tunnel
    }
}

impl Shared {
    /// The way into a cluster, or why there is none. Never waits.
    pub(crate) fn route(&self, cluster: &str) -> Result<Route, String> {
        let sessions = &self.sessions;
        let Some(access) = sessions.access(cluster) else {
            self.routes.lock().remove(cluster);
            return Err(sessions.connection(cluster).to_string());
        };
        let mut routes = self.routes.lock();
        if let Some(known) = routes.get(cluster).filter(|known| *known.access() == access) {
            return Ok(known.clone());
        }
        let route = Route::new(sessions.tunnel.clone(), cluster, access)?;
        routes.insert(cluster.to_owned(), route.clone());
        Ok(route)
    }

    /// Ends what belongs to a management Cluster that is no more.
    fn forget(&self, cluster: &str) {
        self.sessions.forget(cluster);
        self.sessions.forget(&format!("{AGGREGATION_PREFIX}{cluster}"));
        self.routes.lock().remove(cluster);
        self.impersonators.forget(cluster);
        self.roles.forget(cluster);
        self.facts.forget(cluster);
    }

    pub(crate) fn cluster(&self, name: &str) -> Option<Arc<management::Cluster>> {
        self.clusters.get(&ObjectKey::cluster_wide(name))
    }

    /// Whether enough is known to tell who is who.
    pub(crate) fn is_ready(&self) -> bool {
        self.tokens.is_synced() && self.clusters.is_synced() && self.settings.is_synced()
    }
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("tunnel", &self.0.sessions.tunnel).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_ours_stays_with_the_api() {
        for ours in
            ["/v3/connect", "/ping", "/cacerts", "/assets/x", "/v3/import/a_b.yaml", "/k8s/clusters/c-1/api"]
        {
            assert!(Gateway::owns(ours), "{ours}");
        }
        for others in [
            "/",
            "/api/v1",
            "/healthz",
            "/v3/connect/",
            "/v3/connectx",
            "/k8s/clusters/local/api/v1",
            "/k8s/proxy/local",
            "/pingx",
            "/v3",
        ] {
            assert!(!Gateway::owns(others), "{others}");
        }
    }

    #[test]
    fn the_local_cluster_is_the_management_api() {
        let local = |uri: &str| Gateway::local(&uri.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(local("/k8s/clusters/local/api/v1/pods?watch=1").as_deref(), Some("/api/v1/pods?watch=1"));
        assert_eq!(local("https://h/k8s/clusters/local").as_deref(), Some("https://h/"));
        assert_eq!(local("/k8s/clusters/c-1/api"), None);
        assert_eq!(local("/api"), None);
    }
}
