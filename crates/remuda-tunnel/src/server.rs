//! The accepting end: sessions by client key, connections through them, peers that share theirs.

mod peer;
mod registry;

use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;
use subtle::ConstantTimeEq;
use tokio::sync::broadcast;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument, info, info_span};

pub use peer::{Peer, PeerIdentity};
pub use registry::{SessionEvent, Statistics};

use crate::{
    client::Connector,
    dial::Inbound,
    protocol::{OpenError, Role},
    session::{ConnectError, Session, SessionEnd, SessionIdentity, SessionOptions, chain, positive},
    socket::Socket,
    stream::TunnelStream,
};
use peer::Peers;
use registry::Registry;

/// Sent by agents and peers: the credential.
pub const TOKEN_HEADER: &str = "x-api-tunnel-token";
/// Sent by agents: parameters of the registration, base64 of JSON.
pub const PARAMS_HEADER: &str = "x-api-tunnel-params";
/// Sent by peers: who they are.
pub const ID_HEADER: &str = "x-api-tunnel-id";

/// Who opened a WebSocket, as the caller's authorizer found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    Client(String),
    Peer(String),
}

#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// What this server tells its peers about itself; without it there is no peering.
    pub identity: Option<PeerIdentity>,
    /// Serves CONNECTs of clients. Usually absent: they end the client's session then.
    pub inbound: Option<Inbound>,
    pub session: SessionOptions,
}

/// Why a client cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("failed to find Session for client {0}")]
    NoSession(String),
    #[error("dial {proto} {address} through client {key}")]
    Connect { key: String, proto: String, address: String, source: ConnectError },
}

pub(crate) struct Inner {
    options: ServerOptions,
    registry: Mutex<Registry>,
    peers: Mutex<Peers>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A tunnel server. Cheap to clone; all clones are the same server.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

impl Server {
    pub fn new(options: ServerOptions) -> Self {
        Self(Arc::new(Inner {
            options,
            registry: Mutex::new(Registry::new()),
            peers: Mutex::new(Peers::default()),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Recognises a peer by its headers. Ask this before authorising a request as a client's.
    pub fn authenticate_peer(&self, headers: &HeaderMap) -> Option<Identity> {
        let text = |name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty())
        };
        let (id, token) = (text(ID_HEADER)?, text(TOKEN_HEADER)?);
        let peers = self.0.peers.lock();
        let expected = peers.token(id)?;
        bool::from(expected.as_bytes().ct_eq(token.as_bytes())).then(|| Identity::Peer(id.to_owned()))
    }

    /// Serves an upgraded WebSocket until it ends. Dropping the future ends the session.
    pub async fn serve<S: Socket>(&self, identity: Identity, socket: S) -> SessionEnd {
        let (key, peer) = match identity {
            Identity::Client(key) => (key, false),
            Identity::Peer(key) => (key, true),
        };
        let identity = SessionIdentity { key, session: positive(), peer };
        let span = info_span!("tunnel session", client = identity.key, session = identity.session, peer);
        let inbound = self.0.options.inbound.clone().filter(|_| !peer);
        let options = self.0.options.session.clone();
        let (session, task) = Session::new(Role::Server, identity, socket, inbound, options);
        if peer {
            session.follow_remote(self.0.registry.lock().events());
        }
        let registered = Registered::new(self.0.clone(), session, peer);
        async move {
            info!("tunnel session starts");
            let end = task.run(&self.0.stop).await;
            drop(registered);
            info!(error = chain(&end), "tunnel session ends");
            end
        }
        .instrument(span)
        .await
    }

    /// Opens a connection to `address` as client `key` sees it, directly or through a peer that has the client.
    ///
    /// The newest session serves: after a network change the older ones may be dead without knowing it.
    /// There is no acknowledgement in the protocol, so a failure of the client to dial shows when reading.
    pub async fn dial(&self, key: &str, proto: &str, address: &str) -> Result<TunnelStream, DialError> {
        match self.dial_local(key, proto, address).await {
            Err(DialError::NoSession(_)) => {}
            other => return other,
        }
        let links = self.0.registry.lock().peers_reaching(key);
        let forwarded = format!("{key}::{proto}");
        first_alive(links, key, &forwarded, address).await
    }

    /// Like [`Server::dial`], without peers.
    pub async fn dial_local(&self, key: &str, proto: &str, address: &str) -> Result<TunnelStream, DialError> {
        let sessions = self.0.registry.lock().sessions(key);
        first_alive(sessions, key, proto, address).await
    }

    /// Whether client `key` can be reached, directly or through a peer.
    pub fn has_session(&self, key: &str) -> bool {
        let registry = self.0.registry.lock();
        registry.has(key) || !registry.peers_reaching(key).is_empty()
    }

    /// Keys of the clients connected to this server.
    pub fn clients(&self) -> Vec<String> {
        self.0.registry.lock().clients()
    }

    /// Keys of the clients that peers announced.
    pub fn remote_clients(&self) -> Vec<String> {
        self.0.registry.lock().remote_clients()
    }

    /// The sessions of a client connected to this server, newest first.
    pub fn sessions(&self, key: &str) -> Vec<Session> {
        self.0.registry.lock().sessions(key)
    }

    /// Sessions that come and go from now on. A receiver that lags behind lists [`Server::clients`] again.
    pub fn subscribe(&self) -> broadcast::Receiver<SessionEvent> {
        self.0.registry.lock().subscribe()
    }

    /// Ends all sessions of a client, for instance because its token was revoked. Returns how many.
    pub fn disconnect(&self, key: &str) -> usize {
        let sessions = self.sessions(key);
        sessions.iter().for_each(Session::close);
        sessions.len()
    }

    pub fn statistics(&self) -> Statistics {
        self.0.registry.lock().statistics()
    }

    /// Links to another server, now and whenever the link breaks. An equal peer changes nothing, another one
    /// of the same id replaces it. Does nothing without an own identity.
    pub fn add_peer(&self, peer: Peer, connector: Arc<dyn Connector>) {
        peer::add(&self.0, peer, connector);
    }

    /// Forgets a peer: its link ends and it is no longer recognised.
    pub fn remove_peer(&self, id: &str) {
        self.0.peers.lock().remove(id);
        self.0.registry.lock().peer_sessions(id).iter().for_each(Session::close);
    }

    /// Ends every session and link in good order. Sessions end within their farewell time.
    pub async fn shutdown(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("clients", &self.clients()).finish_non_exhaustive()
    }
}

/// A session that ended while it was chosen does not count; any other failure does.
async fn first_alive(
    sessions: Vec<Session>,
    key: &str,
    proto: &str,
    address: &str,
) -> Result<TunnelStream, DialError> {
    for session in sessions {
        match session.dial(proto, address).await {
            Ok(stream) => return Ok(stream),
            Err(ConnectError::Open(OpenError::Ended) | ConnectError::Ended(_)) => {}
            Err(source) => {
                return Err(DialError::Connect {
                    key: key.to_owned(),
                    proto: proto.to_owned(),
                    address: address.to_owned(),
                    source,
                });
            }
        }
    }
    Err(DialError::NoSession(key.to_owned()))
}

/// Keeps a session in the registry.
struct Registered {
    inner: Arc<Inner>,
    session: Session,
    peer: bool,
}

impl Registered {
    fn new(inner: Arc<Inner>, session: Session, peer: bool) -> Self {
        inner.registry.lock().add(session.clone(), peer);
        Self { inner, session, peer }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.inner.registry.lock().remove(&self.session, self.peer);
    }
}
