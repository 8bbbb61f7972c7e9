//! The gateway as a whole: what it is made of, and which part answers what.

use std::{collections::HashMap, path::PathBuf, sync::Arc, time::Duration};

use parking_lot::Mutex;
use remuda_api::{management, provisioning};
use remuda_control::{Ctx, Informer, ObjectKey, Scope};
use remuda_names::gateway::AGGREGATION_PREFIX;
use remuda_oci::{Architecture, Format, Reference};
use remuda_registry::Registry;
use remuda_tunnel::server::{Server, ServerOptions};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    access::{Authorize, Holders, ManagementRights},
    assets::{self, Agent},
    endpoint, nodes, peers,
    programs::ProgramOptions,
    proxy, register,
    route::Route,
    sessions::{Connection, Sessions},
    settings::Settings,
    status,
    tokens::Tokens,
};

/// What a gateway is made of.
pub struct GatewayOptions {
    /// Controllers and informers of the management API; its client acts as the gateway.
    pub ctx: Arc<Ctx>,
    /// Who may use which cluster; `None` for [`ManagementRights`].
    pub authorize: Option<Arc<dyn Authorize>>,
    /// Who has tokens for clusters; without it nobody gets into one but through here.
    pub holders: Option<Arc<dyn Holders>>,
    /// The executable machines are given as their agent, normally `/proc/self/exe`: it is what runs, even
    /// when the file was replaced meanwhile.
    pub agent_binary: PathBuf,
    /// Programs for machines of other architectures; without it there are none.
    pub programs: Option<ProgramOptions>,
    /// Images for machines; without it there are none.
    pub registry: Option<Arc<Registry>>,
    /// Sessions, and peers that share theirs.
    pub tunnel: ServerOptions,
    pub timing: Timing,
}

impl GatewayOptions {
    pub fn new(ctx: Arc<Ctx>) -> Self {
        Self {
            ctx,
            authorize: None,
            holders: None,
            agent_binary: PathBuf::from("/proc/self/exe"),
            programs: None,
            registry: None,
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
        }
    }
}

pub(crate) struct Shared {
    pub(crate) ctx: Arc<Ctx>,
    pub(crate) authorize: Arc<dyn Authorize>,
    pub(crate) holders: Option<Arc<dyn Holders>>,
    pub(crate) assets: assets::Assets,
    pub(crate) registry: Option<Arc<Registry>>,
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
    pub(crate) drains: nodes::Drains,
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
        let GatewayOptions { ctx, authorize, holders, agent_binary, programs, registry, tunnel, timing } =
            options;
        let provisioned: Informer<provisioning::Cluster> = ctx.informers.of(Scope::all());
        provisioned.add_index(BY_MANAGEMENT_CLUSTER, |cluster| {
            let name = cluster.status.as_ref().map(|status| status.cluster_name.clone());
            name.filter(|name| !name.is_empty()).into_iter().collect()
        });
        Self(Arc::new(Shared {
            authorize: authorize.unwrap_or_else(|| ManagementRights::new(&ctx)),
            holders,
            assets: assets::Assets::new(agent_binary, programs),
            registry,
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
            drains: nodes::Drains::default(),
            started: tokio::time::Instant::now(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            ctx,
        }))
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

    /// What machines of a kind are given as their agent.
    pub fn agent(&self, format: Format, architecture: Architecture) -> Agent {
        self.0.assets.available(format, architecture)
    }

    /// What the image of the cluster agent is called that this server makes for a provisioning Cluster; `None` if
    /// its machines pull another one.
    pub fn agent_image(&self, namespace: &str, cluster: &str) -> Option<Reference> {
        register::image::wanted(&self.0, namespace, cluster)
    }

    /// How many clusters are connected to this server.
    pub fn connected(&self) -> usize {
        self.0.sessions.connected().len()
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
        self.drains.forget(cluster);
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
