//! Starting and stopping.
//!
//! The order of a start: everything that can be checked without touching anything, the port, the
//! data directory, the store, the keys, the API, the definitions of our kinds, and only then the
//! first connection and the controllers. A start that fails has created nothing before the step at
//! which it failed.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use remuda_apiserver::ApiServer;
use remuda_control::{Chain, Scope};
use remuda_dashboard::Dashboard;
use remuda_door::{Door, Frame};
use remuda_gateway::Gateway;
use remuda_identity::FirstUser;
use remuda_names::file;
use remuda_rke::agent_presence::Presence;
use remuda_steve::{CredentialChecks, ListApi, ListApiOptions, NodeActions};
use remuda_terminal::Terminals;
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{error, info, warn};

use crate::{
    accept::{Acceptor, Bounds, Counters, HEAD},
    addresses,
    api::{self, ApiConfigError, Kinds, PrepareError, Prepared},
    audit_trail::Trail,
    backup::{self, Scheduled},
    capi::{self, repository::Repository},
    config::{Bind, Config, ConfigError, address},
    controllers::{Component, Controllers, Run, group},
    credential_checks::Checks,
    datadir::{self, DataDir, DataDirError},
    doors::{self, KubernetesApi, Maintenance},
    engine::{Engine, EngineError},
    front::{Front, Parts},
    groups::{self, Site},
    identity, known_names, kubeconfig,
    listen::{self, ListenError},
    management::InProcess,
    metrics::fleet::Fleet,
    node_actions::Nodes,
    peers::Peering,
    people::People,
    pki::{Issued, Pki, PkiError},
    preflight::{LocalImages, Preflight},
    rancher,
    releases::{self, Lists},
    serving::{self, Serving, ServingError},
    shipped,
    tls::{self, Clients},
    visible::{self, Visible},
    webhooks::{self, Certificates, Deliveries, Sources},
};

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Configure(#[from] ApiConfigError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Serving(#[from] ServingError),
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("start the API")]
    Api(#[source] remuda_apiserver::StartError),
    #[error("set up the listener")]
    Io(#[source] io::Error),
    #[error("open the cache of images")]
    Images(#[source] io::Error),
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl StartError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            StartError::Listen(error) => error.hint(),
            StartError::DataDir(error) => error.hint(),
            StartError::Engine(error) => error.hint(),
            StartError::Pki(error) => error.hint(),
            StartError::Serving(ServingError::DataDir(error)) => error.hint(),
            _ => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("a part of the server that must not end has ended")]
pub struct Ended;

/// All of shutting down fits into five seconds; the store gets the last of them.
const DRAIN: Duration = Duration::from_millis(3500);
/// What the controllers get of that.
const SETTLE: Duration = Duration::from_millis(2000);
const CLOSE: Duration = Duration::from_millis(1000);

pub struct Server;

impl Server {
    /// Starts everything. When this returns, clients are being served.
    pub async fn start(config: Config) -> Result<Running, StartError> {
        Self::start_with(config, groups::all).await
    }

    /// As [`Server::start`], with these controllers, if the configuration wants any.
    pub async fn start_with(
        config: Config,
        groups: impl FnOnce(&Site) -> Vec<Run>,
    ) -> Result<Running, StartError> {
        let now = Timestamp::now();
        let prepared = Prepared::new(&config)?;
        if let Some(own) = &config.tls {
            serving::load_own(own)?;
        }
        identity::check(&config)?;
        let listener = listen::listen(config.bind)?;
        let address = listener.local_addr().map_err(StartError::Io)?;
        raise_file_limit();

        let dir = Arc::new(DataDir::open(&config.data_dir)?);
        let secret = config.shared_secret.as_ref();
        let (engine, pki) = Engine::open_with_identity(&config.datastore, secret, &dir, now).await?;
        let (engine, pki) = (Arc::new(engine), Arc::new(pki));
        let started =
            Self::compose(config, prepared, listener, address, dir, engine.clone(), pki, groups, now);
        let started = Box::pin(started).await;
        if started.is_err() {
            engine.store().close().await;
        }
        started
    }

    #[expect(clippy::too_many_arguments, reason = "each is made by one step of the start")]
    async fn compose(
        config: Config,
        prepared: Prepared,
        listener: std::net::TcpListener,
        address: SocketAddr,
        dir: Arc<DataDir>,
        engine: Arc<Engine>,
        pki: Arc<Pki>,
        groups: impl FnOnce(&Site) -> Vec<Run>,
        now: Timestamp,
    ) -> Result<Running, StartError> {
        let serving = Arc::new(Serving::new(pki.clone(), dir.clone(), &config, now)?);
        let clients = Arc::new(
            Clients::new(pki.ca_pem().as_bytes())
                .map_err(|error| StartError::Tls(rustls::Error::General(error.to_string())))?,
        );
        let tls = tls::server_config(serving.presented(), clients.clone()).map_err(StartError::Tls)?;

        let advertise = advertise(&config, address);
        let kinds = Kinds::default();
        let releases = kinds.rancher.releases.clone();
        let release_file = prepared.releases.clone();
        releases.set(release_file.clone());
        let identity = api::identity(&config.datastore);
        // Other servers of the same datastore may have agents that this one does not see.
        let presence = identity.is_none().then(|| Presence::new(Timestamp::now));
        let seen = presence.clone();
        let api = api::config(&config, prepared, &pki, &advertise, &kinds, identity.as_deref(), seen)?;
        let api = ApiServer::start(api, engine.store()).await.map_err(StartError::Api)?;
        kinds.rancher.judge_by(api.policy().clone());
        let mut controllers = Controllers::new(&api, identity.as_deref());
        install(&mut controllers, config.controllers).await;
        let informers = &controllers.ctx(Component::Shared).informers;
        kinds.cluster_api.follow(informers).await;
        kinds.drivers.begin(api.policy().clone(), informers);

        let url = format!("https://{}", local(config.bind, address));
        let people = match config.controllers {
            true => Some(People::start(&mut controllers, &api, &kinds.people).await),
            false => None,
        };
        let first_user = people.as_ref().and_then(People::first_user);
        // Servers that have an authority in common can tell each other from strangers.
        let peering = match identity.as_deref().filter(|_| config.shared_secret.is_some()) {
            Some(id) => Some(Peering::new(id, peer_address(&config, address), &pki)?),
            None => None,
        };
        let own = peering.as_ref().map(Peering::identity);
        let images = groups::images(&config, dir.path())?;
        let gateway = people.as_ref().map(|people| {
            groups::gateway(&controllers.ctx(Component::Gateway), people, own, images.clone(), dir.path())
        });
        write_kubeconfig(&dir, &pki, &url, config.tls.is_some(), now)?;
        if let Some(path) = &config.address_file {
            datadir::write_private(path, format!("{address}\n").as_bytes())?;
        }

        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let counters = Arc::new(Counters::default());
        let management = InProcess { api: api.clone(), identity: people.as_ref().map(People::identity) };
        let maintenance = Maintenance { engine: engine.clone(), data_dir: dir.path().to_owned() };
        let viewer = controllers.ctx(Component::Viewer);
        let visible = Visible::new(viewer.client.clone(), api.policy().clone());
        let reader = controllers.ctx(Component::ListApi);
        let list_api = ListApi::new(ListApiOptions {
            client: reader.client.clone(),
            policy: api.policy().clone(),
            clock: reader.clock.clone(),
            part_of: visible::part_of,
            nodes: gateway.clone().map(|gateway| Arc::new(Nodes(gateway)) as Arc<dyn NodeActions>),
            credentials: people.is_some().then(|| Arc::new(Checks::new()) as Arc<dyn CredentialChecks>),
            people: people.iter().flat_map(People::openings).find(|opening| {
                // What is behind one of their doors is behind all.
                std::ptr::eq(opening.door, &remuda_login::doors::TOKENS)
            }),
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        let local_images = LocalImages::default();
        let preflight = gateway.clone().map(|gateway| {
            let settings = controllers.ctx(Component::Gateway).informers.of(Scope::all());
            Preflight::new(images, gateway, settings, releases.clone(), local_images.clone()).opening()
        });
        let terminals = gateway.iter().flat_map(Gateway::openings).find_map(|opening| {
            let clusters = std::ptr::eq(opening.door, &remuda_gateway::doors::CLUSTERS);
            clusters.then(|| Terminals::new(opening, tasks.clone(), stop.clone()).opening())
        });
        let openings = maintenance
            .openings()
            .into_iter()
            .chain([Trail::new(config.audit.as_ref().map(|audit| audit.log.clone())).opening()])
            .chain([
                visible.opening(),
                Lists(releases.clone()).opening(),
                Dashboard::opening(),
                Repository::opening(),
            ])
            .chain(preflight)
            .chain(people.iter().flat_map(People::openings).map(|opening| {
                let clusters = std::ptr::eq(opening.door, &remuda_login::doors::KUBECONFIGS);
                if clusters { list_api.in_front_of_people(opening) } else { opening }
            }))
            .chain(gateway.iter().flat_map(Gateway::openings).map(|opening| {
                let clusters = std::ptr::eq(opening.door, &remuda_gateway::doors::CLUSTERS);
                if clusters { list_api.in_front_of(opening) } else { opening }
            }))
            .chain(list_api.openings())
            .chain(terminals);
        let deliveries = Deliveries::default();
        let mut controller_metrics = controllers.metrics();
        deliveries.register(&mut controller_metrics);
        let backups = backup::Progress::default();
        backups.register(&mut controller_metrics);
        let kubernetes = KubernetesApi {
            api: api.clone(),
            counters: counters.clone(),
            controllers: controller_metrics,
            fleet: Fleet {
                objects: people.as_ref().map(|_| {
                    let informers = &controllers.ctx(Component::Shared).informers;
                    (informers.of(Scope::all()), informers.of(Scope::all()))
                }),
                gateway: gateway.clone(),
                presence: presence.clone(),
                pki: pki.clone(),
                presented: serving.presented(),
                data_dir: dir.path().to_owned(),
                backups: backups.clone(),
            },
        };
        let frame = Frame::new(kubernetes, doors::OF_API, openings.collect(), Arc::new(management));
        let open = frame.table().doors().to_vec();
        let parts = Parts { clients, serving: serving.clone(), frame };
        let acceptor = Acceptor {
            tls: TlsAcceptor::from(Arc::new(tls)),
            handler: Front(Arc::new(parts)),
            counters,
            handshake: config.limits.handshake,
            head: HEAD,
            unauthenticated: Bounds::of(config.limits.connections.get()),
            stop: stop.clone(),
            tasks: tasks.clone(),
        };
        let listener = TcpListener::from_std(listener).map_err(StartError::Io)?;
        let mut background = JoinSet::new();
        background.spawn(acceptor.run(listener, config.limits.connections.get()));
        background.spawn(serving.clone().run(stop.clone()));
        if let Some(asked) = config.backups {
            // The store is this server's alone, so is the work.
            let scheduled = Scheduled::new(asked, &pki.ca_pem(), engine.clone(), dir.path(), backups);
            let scheduled = Arc::new(scheduled);
            controllers
                .keep(group(Component::Shared, move |ctx, stop| backup::run(ctx, scheduled.clone(), stop)));
        }
        if let Some(gateway) = gateway {
            let own =
                config.advertise.as_ref().map_or_else(|| url.clone(), |_| format!("https://{advertise}"));
            let provisioning = controllers.ctx(Component::Provisioning);
            // Only the settings tell agents; where they cannot be read yet, they are when they are written.
            let standing = remuda_provisioning::standing_server_url(&provisioning, &own).await;
            let server_url = standing.unwrap_or(own);
            let named = Arc::downgrade(&serving);
            controllers
                .keep(group(Component::Shared, move |ctx, stop| known_names::run(ctx, named.clone(), stop)));
            let site = Site {
                contexts: controllers.contexts.clone(),
                gateway,
                server_url,
                local_url: url.clone(),
                ca_pem: if config.tls.is_some() { String::new() } else { pki.ca_pem() },
                data_dir: dir.path().to_owned(),
                machine_jobs: config.limits.machine_jobs,
                machine_jobs_per_credential: config.limits.machine_jobs_per_credential,
                local_machines: config.local_machines,
                releases: releases.clone(),
                presence,
                local_images,
            };
            let sources = Arc::new(Sources {
                releases: releases.clone(),
                certificates: Box::new({
                    let (pki, presented) = (pki.clone(), serving.presented());
                    move || Certificates { authority: Some(pki.expires()), serving: presented.expires() }
                }),
                deliveries,
            });
            controllers
                .keep(group(Component::Webhooks, move |ctx, stop| webhooks::run(ctx, sources.clone(), stop)));
            controllers.keep(group(Component::Releases, move |ctx, stop| {
                releases::run(ctx, releases.clone(), release_file.clone(), stop)
            }));
            if let Some(peering) = peering.map(Arc::new) {
                let tunnel = site.gateway.tunnel().clone();
                controllers.keep(group(Component::Peering, move |ctx, stop| {
                    let (peering, tunnel) = (peering.clone(), tunnel.clone());
                    async move { peering.run(&ctx, &tunnel, &stop).await }
                }));
            }
            controllers.start(groups(&site));
        }
        info!(%address, %advertise, data_dir = %dir.path().display(), "serving");
        let kubeconfig = dir.join(file::ADMIN_KUBECONFIG);
        let address_file = config.address_file;
        Ok(Running {
            address,
            url,
            doors: open,
            kubeconfig,
            address_file,
            first_user,
            api,
            engine,
            serving,
            stop,
            tasks,
            background,
            controllers,
            _dir: dir,
        })
    }
}

/// A running server.
pub struct Running {
    address: SocketAddr,
    url: String,
    doors: Vec<&'static Door>,
    kubeconfig: PathBuf,
    address_file: Option<PathBuf>,
    first_user: Option<FirstUser>,
    api: ApiServer,
    engine: Arc<Engine>,
    serving: Arc<Serving>,
    stop: CancellationToken,
    tasks: TaskTracker,
    background: JoinSet<()>,
    controllers: Controllers,
    /// Keeps other processes out.
    _dir: Arc<DataDir>,
}

impl Running {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How it is reached from this machine.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The doors that are open: all there are, unless it runs without controllers.
    pub fn doors(&self) -> &[&'static Door] {
        &self.doors
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The administrator that was made at this start. Nobody is told the password again.
    pub fn first_user(&self) -> Option<&FirstUser> {
        self.first_user.as_ref()
    }

    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    /// Reads again what may change while running: the operator's certificate.
    pub fn reload(&self) {
        self.serving.reload();
    }

    /// Returns only if a part of the server has ended that should not. Cancel safe.
    pub async fn failed(&mut self) -> Ended {
        if self.background.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
        Ended
    }

    /// Takes no more connections, ends the controllers, lets requests finish, ends watches, closes
    /// the store. Takes less than five seconds, whatever clients do.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.tasks.close();
        if let Some(path) = &self.address_file {
            let _ = std::fs::remove_file(path);
        }
        let deadline = Instant::now() + DRAIN;
        if timeout(SETTLE, self.controllers.shutdown()).await.is_err() {
            warn!("some controllers did not end in time and are cut");
        }
        let drained = async { tokio::join!(self.api.shutdown(), self.tasks.wait()) };
        if timeout_at(deadline, drained).await.is_err() {
            warn!(left = self.tasks.len(), "some connections did not end in time and are cut");
        }
        let store = self.engine.store();
        if timeout(CLOSE, store.close()).await.is_err() {
            warn!("the store is slow to close; what was acknowledged is safe");
        }
    }
}

/// Installs the definitions of our kinds, and where controllers are `working` what they and people begin with. A
/// server that cannot starts all the same, and tries again.
async fn install(controllers: &mut Controllers, working: bool) {
    let client = controllers.ctx(Component::Installer).client.clone();
    let cluster_api = capi::install(&client, working);
    let (cluster_api, rancher) = tokio::join!(cluster_api, rancher::install(&client, working));
    if let Err(error) = cluster_api {
        error!(error = %Chain(&error), "the definitions of Cluster API are not installed");
        let client = client.clone();
        let install = move || {
            let client = client.clone();
            async move { capi::install(&client, working).await }
        };
        controllers.attend(shipped::again("Cluster API", install));
    }
    if let Err(error) = rancher {
        error!(error = %Chain(&error), "the definitions of clusters are not installed");
        let install = move || {
            let client = client.clone();
            async move { rancher::install(&client, working).await }
        };
        controllers.attend(shipped::again("clusters", install));
    }
}

/// What clients and agents elsewhere are told.
fn advertise(config: &Config, address: SocketAddr) -> String {
    let (host, port) = match &config.advertise {
        Some(advertise) => (advertise.host.clone(), advertise.port),
        None => (own_ip(address).to_string(), None),
    };
    address::join(&host, port.unwrap_or(address.port()))
}

/// Where other servers reach this one.
fn peer_address(config: &Config, address: SocketAddr) -> SocketAddr {
    let mut told = config.peer_address.unwrap_or_else(|| SocketAddr::new(own_ip(address), 0));
    if told.port() == 0 {
        told.set_port(address.port());
    }
    told
}

fn own_ip(address: SocketAddr) -> IpAddr {
    match address.ip() {
        ip if ip.is_unspecified() => addresses::primary().unwrap_or(IpAddr::from([127, 0, 0, 1])),
        ip => ip,
    }
}

/// How programs on this machine reach the server.
fn local(bind: Bind, address: SocketAddr) -> String {
    match bind {
        Bind::At(at) if !at.ip().is_unspecified() => address.to_string(),
        _ => address::join("127.0.0.1", address.port()),
    }
}

/// Writes the administrator's kubeconfig, keeping the credentials in it while they are good: other
/// places may have copies of them.
fn write_kubeconfig(
    dir: &DataDir,
    pki: &Pki,
    url: &str,
    own: bool,
    now: Timestamp,
) -> Result<(), StartError> {
    let path = dir.join(file::ADMIN_KUBECONFIG);
    datadir::check_key(&path)?;
    let server_name = own.then_some("localhost");
    let stored = kubeconfig::read(&path).ok();
    let identity = stored.as_ref().and_then(|access| access.identity.clone());
    let issued = match identity.and_then(|identity| Issued::parse(identity.cert, identity.key)) {
        Some(issued) if !issued.validity.renew_needed(now) && pki.trusts_client(&issued) => {
            // A file that leads here is left as it is: people set namespaces and add contexts.
            let leads_here = stored.is_some_and(|access| {
                access.server == url
                    && access.server_name.as_deref() == server_name
                    && access.ca == pki.ca_pem().as_bytes()
            });
            if leads_here {
                return Ok(());
            }
            issued
        }
        _ => pki.admin(now)?,
    };
    let text = kubeconfig::render(url, server_name, &pki.ca_pem(), &issued.identity());
    dir.write(file::ADMIN_KUBECONFIG, text.as_bytes())?;
    Ok(())
}

/// Thousands of watches are thousands of descriptors; the usual soft limit is 1024.
fn raise_file_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
