//! Where a server's cluster keeps its state, decided once and remembered.
//!
//! With an `etcd` on the machine, servers form an etcd cluster and each serves the API on it.
//! Without one, the first server keeps the state in a store of its own and the others pass
//! connections on to it: such a control plane has several doors and one floor.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use remuda_control::Informer;
use remuda_store::{
    Embedded, Etcd, EtcdError as StoreEtcdError, EtcdOptions, EtcdTls, OpenError, Options, Sealing, Store,
};
use serde::{Deserialize, Serialize};
use tokio::{process::Child, task::JoinSet, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use crate::{
    address,
    balance::{self, Backends},
    config::Settings,
    distribution::Distribution,
    encryption::{self, Encryption, EncryptionError},
    etcd::{self, EtcdError, Members, Own},
    files::{self, FileError, PRIVATE},
    join::{self, Datastore, JoinError, ServerRequest, ServerResponse},
    listen,
    pki::{Pki, PkiError},
    snapshot::{STORE_PREFIX, bundle},
    token::{self, Token, TokenError},
};

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error("open the store")]
    Open(#[source] OpenError),
    #[error("open the store")]
    Failed(#[source] std::io::Error),
    #[error("connect to etcd")]
    Connect(#[source] StoreEtcdError),
    #[error("connect to etcd: no answer")]
    Silent,
    #[error("{} is damaged", .path.display())]
    Damaged { path: PathBuf },
    #[error("the servers of this cluster use etcd, and there is no etcd on this machine")]
    NoEtcd,
    #[error(
        "this server was removed from its cluster; give it a `server` to join, or an empty data directory"
    )]
    Removed,
    #[error("a server that joins needs a token")]
    NoToken,
    #[error(transparent)]
    Listen(#[from] listen::ListenError),
    #[error("stopped")]
    Stopped,
}

/// What was decided, on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "mode")]
pub enum Mode {
    /// A member of etcd runs here. `peers` are the client URLs of the others, as last known.
    #[serde(rename_all = "camelCase")]
    Member { name: String, peers: Vec<String> },
    /// etcd runs on other servers.
    #[serde(rename_all = "camelCase")]
    Client { endpoints: Vec<String> },
    /// The state is here and nowhere else.
    Holder,
    /// The state is on another server.
    #[serde(rename_all = "camelCase")]
    Follower { holder: String, api_port: u16, supervisor_port: u16 },
}

impl Mode {
    pub fn read(settings: &Settings) -> Result<Option<Mode>, StateError> {
        let path = settings.paths.mode();
        match files::read(&path)? {
            None => Ok(None),
            Some(text) => serde_json::from_str(&text).map(Some).map_err(|_| StateError::Damaged { path }),
        }
    }

    pub fn write(&self, settings: &Settings) -> Result<(), StateError> {
        let text = serde_json::to_string(self).expect("a mode is made of text and numbers");
        Ok(files::keep(&settings.paths.mode(), text.as_bytes(), PRIVATE)?)
    }

    /// In words, for people.
    pub fn describe(&self, node: &str) -> String {
        match self {
            Mode::Member { .. } => "etcd: a member of a replicated etcd runs on this server".to_owned(),
            Mode::Client { .. } => "etcd: state is in a replicated etcd on other servers".to_owned(),
            Mode::Holder => format!(
                "single: all state is kept by {node} alone; the sandbox control plane is not replicated because \
                 no etcd program was found"
            ),
            Mode::Follower { holder, .. } => format!(
                "single: all state is kept by the server at {holder}, to which this one passes requests on; the \
                 sandbox control plane is not replicated because no etcd program was found"
            ),
        }
    }
}

/// An open datastore and the identity that goes with it.
pub struct State {
    pub mode: Mode,
    pub pki: Arc<Pki>,
    /// Absent where requests are passed on.
    pub store: Option<Arc<dyn Store>>,
    /// The same, where it is one of our own.
    pub embedded: Option<Arc<Embedded>>,
    /// The same, where it is in etcd.
    pub in_etcd: Option<Arc<Etcd>>,
    pub own: Option<Own>,
    pub etcd: JoinSet<()>,
    /// Ends etcd; cancelled after the store is closed.
    pub end_etcd: CancellationToken,
    /// Where a server without a member of its own finds those of others.
    pub members: Option<Backends>,
    /// Client URLs of the other members, as last known.
    pub peers: Peers,
}

/// Shared between who learns of other members and who needs them.
pub type Peers = Arc<parking_lot::Mutex<Vec<String>>>;

const JOIN_RETRY: Duration = Duration::from_secs(2);
const CONNECT: Duration = Duration::from_secs(60);

/// Opens what this server has, or makes it: a new cluster, or a place in one that exists. `failed`
/// is cancelled when the server cannot go on.
pub async fn open(
    settings: &Settings,
    failed: &CancellationToken,
    stop: &CancellationToken,
) -> Result<State, StateError> {
    let paths = &settings.paths;
    files::private_dir(&paths.server("db"))?;
    if etcd::tombstone(&paths.etcd()).exists() {
        if settings.server.is_none() {
            return Err(StateError::Removed);
        }
        info!("this server was removed from its cluster and joins again");
        let _ = std::fs::remove_file(paths.mode());
        let old = paths.server(&format!("db/etcd-old-{}", Timestamp::now().as_second()));
        std::fs::rename(paths.etcd(), &old).map_err(|source| FileError::Write { path: old, source })?;
    }
    let program = etcd::find(&settings.etcd, Some(&settings.path));
    let mut joined = None;
    let mode = match Mode::read(settings)? {
        Some(mode) => mode,
        None => match &settings.server {
            Some(server) => {
                let response = ask_to_join(settings, server, stop).await?;
                Pki::adopt(paths, &response.files)?;
                let mode = place(settings, &response, program.is_some())?;
                joined = Some(response);
                mode
            }
            // K3s keeps the state of a server without this in a database of its own.
            None if program.is_some()
                && (settings.cluster_init || settings.distribution == Distribution::Rke2)
                && !settings.disabled.etcd =>
            {
                Mode::Member { name: member_name(settings), peers: Vec::new() }
            }
            None => Mode::Holder,
        },
    };
    // Joining etcd may take several attempts, all under one name.
    mode.write(settings)?;
    let pki = Arc::new(Pki::open(paths, Timestamp::now())?);
    let mut state = State {
        mode: mode.clone(),
        pki: pki.clone(),
        store: None,
        embedded: None,
        in_etcd: None,
        own: None,
        etcd: JoinSet::new(),
        end_etcd: CancellationToken::new(),
        members: None,
        peers: Peers::default(),
    };
    match &mode {
        Mode::Holder => {
            if program.is_none() {
                warn!("no etcd program was found: all state is kept by this server alone");
            }
            state.pki = with_encryption(settings, pki, None, stop).await?;
            let options = Options { sealing: Some(sealing(&state.pki)), ..Options::default() };
            let path = paths.store();
            let opening = tokio::task::spawn_blocking(move || Embedded::open(path, options));
            let opened = opening.await.map_err(|error| StateError::Failed(std::io::Error::other(error)))?;
            let opened = Arc::new(opened.map_err(StateError::Open)?);
            state.store = Some(opened.clone());
            state.embedded = Some(opened);
        }
        Mode::Follower { holder, .. } => {
            warn!(
                holder,
                "this control plane is not replicated: requests are passed on to the server that keeps all state"
            );
        }
        Mode::Member { name, peers } => {
            pki.write_etcd(&etcd_names(settings))?;
            pki.write_etcd_client()?;
            let own = own(settings, program.ok_or(StateError::NoEtcd)?, name);
            let child = start_member(&own, settings, peers, joined.is_some(), stop).await?;
            let endpoint = own.local_url();
            state.pki = with_encryption(settings, pki, Some(&endpoint), stop).await?;
            let store = connect(settings, vec![endpoint], sealing(&state.pki), stop).await?;
            *state.peers.lock() = peers.clone();
            let keeper = keep_member(
                own.clone(),
                settings.clone(),
                state.peers.clone(),
                child,
                failed.clone(),
                state.end_etcd.clone(),
            );
            state.etcd.spawn(keeper);
            state.store = Some(store.clone());
            state.in_etcd = Some(store);
            state.own = Some(own);
        }
        Mode::Client { endpoints } => {
            pki.write_etcd_client()?;
            let hosts = endpoints.iter().filter_map(|url| url.strip_prefix("https://")).map(str::to_owned);
            let backends = Backends::new(hosts.collect());
            let listener = listen::bind(Some([127, 0, 0, 1].into()), 0).await?;
            let port = listener.local_addr().map_err(StateError::Failed)?.port();
            // The store needs it to the last; it ends when etcd would.
            let connections = TaskTracker::new();
            connections.spawn(balance::run(
                listener,
                backends.clone(),
                state.end_etcd.clone(),
                connections.clone(),
            ));
            let endpoint = format!("https://127.0.0.1:{port}");
            state.pki = with_encryption(settings, pki, Some(&endpoint), stop).await?;
            let store = connect(settings, vec![endpoint], sealing(&state.pki), stop).await?;
            state.store = Some(store.clone());
            state.in_etcd = Some(store);
            state.members = Some(backends);
        }
    }
    Ok(state)
}

/// Secrets are encrypted at rest.
pub(crate) fn sealing(pki: &Pki) -> Sealing {
    Sealing { keyring: pki.keyring.clone(), prefixes: vec!["/core/secrets/".to_owned()] }
}

/// The identity with the keys for Secrets as they are to be used from now on: those in etcd, or those here.
async fn with_encryption(
    settings: &Settings,
    pki: Arc<Pki>,
    etcd: Option<&str>,
    stop: &CancellationToken,
) -> Result<Arc<Pki>, StateError> {
    let paths = &settings.paths;
    if let (Some(endpoint), Some(password)) = (etcd, password(settings)?) {
        let etcd = Members::new(paths, vec![endpoint.to_owned()])?;
        let known = identity(&etcd, &password, stop).await?;
        if let Some(known) = known.filter(|known| known.contains_key(encryption::FILES[0])) {
            encryption::adopt(paths, |name| known.get(name).cloned())?;
        }
    }
    match Encryption::read(paths)? {
        Some(_) => {}
        // All servers have these keys, so all of them make the same of them.
        None if settings.secrets_encryption => Encryption::of_keyring(&pki.keyring).write(paths)?,
        None => return Ok(pki),
    }
    Ok(Arc::new(Pki::open(paths, Timestamp::now())?))
}

/// The password of the servers: what the configuration says, or what was made at the first start.
pub(crate) fn password(settings: &Settings) -> Result<Option<String>, StateError> {
    if let Some(token) = &settings.token {
        return Ok(Some(Token::parse(token)?.password));
    }
    let stored = files::read(&settings.paths.server("token"))?;
    Ok(stored.and_then(|text| Token::parse(&text).ok()).map(|token| token.password))
}

/// The identity of the cluster as it is in etcd. Members that start together answer when most of them have started.
async fn identity(
    etcd: &Members,
    password: &str,
    stop: &CancellationToken,
) -> Result<Option<BTreeMap<String, String>>, StateError> {
    let (name, deadline) = (bundle::name(password), Instant::now() + CONNECT);
    loop {
        match etcd.get(&name).await {
            Ok(stored) => return Ok(stored.and_then(|stored| bundle::open(password, &stored).ok())),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => {}
        }
        tokio::select! {
            () = stop.cancelled() => return Err(StateError::Stopped),
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
    }
}

/// What this server will be in the cluster it joins.
fn place(settings: &Settings, response: &ServerResponse, has_etcd: bool) -> Result<Mode, StateError> {
    Ok(match &response.datastore {
        Datastore::Held { holder, api_port, supervisor_port } => {
            Mode::Follower { holder: holder.clone(), api_port: *api_port, supervisor_port: *supervisor_port }
        }
        Datastore::Etcd { endpoints } if settings.disabled.etcd => {
            Mode::Client { endpoints: endpoints.clone() }
        }
        Datastore::Etcd { endpoints } if has_etcd => {
            Mode::Member { name: member_name(settings), peers: endpoints.clone() }
        }
        Datastore::Etcd { .. } => return Err(StateError::NoEtcd),
    })
}

async fn ask_to_join(
    settings: &Settings,
    server: &str,
    stop: &CancellationToken,
) -> Result<ServerResponse, StateError> {
    let token = settings.token.as_deref().ok_or(StateError::NoToken)?;
    let request = ServerRequest {
        node_name: settings.node_name.clone(),
        addresses: crate::server::serving_names(settings).into_iter().collect(),
    };
    let mut told = false;
    loop {
        let attempt = async {
            let server = join::Server::trust(server, token, token::SERVER_USER).await?;
            server.ask(&join::server_path(settings.distribution), &request).await
        };
        match attempt.await {
            Ok(response) => return Ok(response),
            Err(error) if error.is_final() => return Err(error.into()),
            Err(error) => {
                if !told {
                    warn!(error = %remuda_control::Chain(&error), "cannot join yet");
                    told = true;
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return Err(StateError::Stopped),
            () = tokio::time::sleep(JOIN_RETRY) => {}
        }
    }
}

/// Names of members are never used twice, so that one that was removed is not mistaken for its successor.
pub(crate) fn member_name(settings: &Settings) -> String {
    format!("{}-{}", settings.node_name, token::random_hex(4))
}

fn etcd_names(settings: &Settings) -> std::collections::BTreeSet<String> {
    let fixed = ["localhost", "127.0.0.1", "::1", settings.node_name.as_str()].map(str::to_owned);
    let own =
        settings.node_ips.iter().map(ToString::to_string).chain([address::of_node(settings).to_string()]);
    fixed.into_iter().chain(own).collect()
}

pub(crate) fn own(settings: &Settings, program: PathBuf, name: &str) -> Own {
    let host = match address::of_node(settings) {
        std::net::IpAddr::V6(address) => format!("[{address}]"),
        address => address.to_string(),
    };
    Own {
        program,
        launcher: settings.launcher.clone(),
        name: name.to_owned(),
        host,
        client_port: settings.ports.etcd_client,
        peer_port: settings.ports.etcd_peer,
        health_port: settings.ports.etcd_health,
    }
}

async fn start_member(
    own: &Own,
    settings: &Settings,
    peers: &[String],
    joining: bool,
    stop: &CancellationToken,
) -> Result<Child, StateError> {
    let paths = &settings.paths;
    // Data means the member has started before; whether it votes already is not known.
    let started = paths.etcd().join("member").exists();
    if !peers.is_empty() && (joining || !started || !is_voter(own, settings, peers).await) {
        let others = Members::new(paths, peers.to_vec())?;
        info!(name = own.name, "joining the etcd of the other servers");
        return Ok(etcd::join(own, paths, &others, stop).await?);
    }
    let mut child = own.start(paths, &[])?;
    etcd::ready(&Members::new(paths, vec![own.local_url()])?, &mut child).await?;
    Ok(child)
}

/// A member nobody can be asked about is taken to vote: it may be needed for anybody to answer.
async fn is_voter(own: &Own, settings: &Settings, peers: &[String]) -> bool {
    let Ok(others) = Members::new(&settings.paths, peers.to_vec()) else { return true };
    match others.list().await {
        Ok(listed) => {
            !listed.iter().any(|member| member.is_learner && member.peer_urls.contains(&own.peer_url()))
        }
        Err(_) => true,
    }
}

/// Starts etcd again when it ends; ends the server when it is no member any more.
async fn keep_member(
    own: Own,
    settings: Settings,
    peers: Peers,
    mut child: Child,
    failed: CancellationToken,
    end: CancellationToken,
) {
    let paths = &settings.paths;
    loop {
        let ended = tokio::select! {
            () = end.cancelled() => break,
            ended = child.wait() => ended,
        };
        warn!(status = ?ended.ok().and_then(|status| status.code()), "etcd has ended");
        let known = peers.lock().clone();
        if let Ok(others) = Members::new(paths, known)
            && etcd::is_member(&others, &own.name).await == Some(false)
        {
            warn!("this server's etcd member was removed from the cluster");
            let _ = files::write(&etcd::tombstone(&paths.etcd()), b"", PRIVATE);
            failed.cancel();
            return;
        }
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        match own.start(paths, &[]) {
            Ok(again) => child = again,
            Err(error) => {
                warn!(error = %remuda_control::Chain(&error), "etcd does not start");
                failed.cancel();
                return;
            }
        }
    }
    terminate(&mut child).await;
}

/// Keeps what is known of etcd's members up to date, in memory and on disk: when this server's own
/// member ends, only the others can tell why, and when others leave, new ones must be known.
pub async fn follow_members(
    nodes: Informer<Node>,
    settings: Settings,
    (own, members, peers): (Option<Own>, Option<Backends>, Peers),
    stop: CancellationToken,
) {
    let annotation = settings.distribution.etcd_annotation("node-name");
    let named = move |node: &Option<Arc<Node>>| {
        node.as_ref().and_then(|node| node.metadata.annotations.as_ref()?.get(&annotation).cloned())
    };
    let (told, mut changed) = tokio::sync::watch::channel(());
    let _subscription = nodes.subscribe(move |change| {
        if named(&change.old) != named(&change.new) {
            told.send_modify(|()| {});
        }
    });
    loop {
        let endpoints = match (&own, &members) {
            (Some(own), _) => vec![own.local_url()],
            (None, Some(members)) => members.list().iter().map(|host| format!("https://{host}")).collect(),
            (None, None) => return,
        };
        let listed = match Members::new(&settings.paths, endpoints) {
            Ok(etcd) => etcd.list().await,
            Err(error) => Err(error),
        };
        match listed {
            Ok(listed) => {
                let others = listed
                    .into_iter()
                    .filter(|member| own.as_ref().is_none_or(|own| own.name != member.name));
                let urls: Vec<String> = others.flat_map(|member| member.client_urls).collect();
                let mode = match &own {
                    Some(own) => Mode::Member { name: own.name.clone(), peers: urls.clone() },
                    None => Mode::Client { endpoints: urls.clone() },
                };
                if let Some(members) = &members {
                    members.replace(
                        urls.iter()
                            .filter_map(|url| url.strip_prefix("https://"))
                            .map(str::to_owned)
                            .collect(),
                    );
                }
                if !urls.is_empty() || own.is_some() {
                    *peers.lock() = urls;
                    if let Err(error) = mode.write(&settings) {
                        warn!(error = %remuda_control::Chain(&error), "the members of etcd are not kept");
                    }
                }
            }
            Err(error) => warn!(error = %remuda_control::Chain(&error), "cannot list the members of etcd"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            told = changed.changed() => if told.is_err() { return },
        }
    }
}

/// Lets a process end by itself, for a while.
pub async fn terminate(child: &mut Child) {
    const PATIENCE: Duration = Duration::from_secs(4);
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
    }
    if tokio::time::timeout(PATIENCE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

async fn connect(
    settings: &Settings,
    endpoints: Vec<String>,
    sealing: Sealing,
    stop: &CancellationToken,
) -> Result<Arc<Etcd>, StateError> {
    let tls = |file: &str| Some(settings.paths.tls(&format!("etcd/{file}")));
    let tls = EtcdTls {
        ca: tls("server-ca.crt"),
        cert: tls("client.crt"),
        key: tls("client.key"),
        server_name: Some("localhost".to_owned()),
    };
    let options = EtcdOptions {
        tls: Some(tls),
        prefix: STORE_PREFIX.to_owned(),
        sealing: Some(sealing),
        ..EtcdOptions::new(endpoints)
    };
    let deadline = Instant::now() + CONNECT;
    loop {
        let error = match tokio::time::timeout(Duration::from_secs(15), Etcd::connect(options.clone())).await
        {
            Ok(Ok(store)) => return Ok(Arc::new(store)),
            Ok(Err(error @ StoreEtcdError::Request(_))) => StateError::Connect(error),
            Ok(Err(error)) => return Err(StateError::Connect(error)),
            Err(_) => StateError::Silent,
        };
        if Instant::now() > deadline {
            return Err(error);
        }
        tokio::select! {
            () = stop.cancelled() => return Err(StateError::Stopped),
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
    }
}
