//! Links between servers.
//!
//! Every server dials every other. On the link it dials, a server acts as a client: it announces its sessions
//! and serves CONNECTs of the form `<client key>::<proto>` by dialling through them.

use std::{collections::HashMap, fmt, io, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{ID_HEADER, Inner, Server, TOKEN_HEADER};
use crate::{
    client::Connector,
    dial::{BoxIo, Inbound},
    protocol::Role,
    session::{Session, SessionIdentity, chain, positive},
    socket::BoxSocket,
};

/// Between two attempts to reach a peer, as in the original.
const RETRY: Duration = Duration::from_secs(5);

/// What a server calls itself among its peers.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    pub id: String,
    pub token: String,
}

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerIdentity").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Another server: where it is, what it calls itself and how it proves that.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    pub url: String,
    pub id: String,
    pub token: String,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("url", &self.url).field("id", &self.id).finish_non_exhaustive()
    }
}

#[derive(Default)]
pub(super) struct Peers(HashMap<String, (Peer, CancellationToken)>);

impl Peers {
    pub(super) fn token(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(|(peer, _)| peer.token.as_str())
    }

    pub(super) fn remove(&mut self, id: &str) {
        if let Some((_, stop)) = self.0.remove(id) {
            stop.cancel();
        }
    }
}

pub(super) fn add(inner: &Arc<Inner>, peer: Peer, connector: Arc<dyn Connector>) {
    let Some(own) = &inner.options.identity else { return };
    let mut headers = HeaderMap::new();
    for (name, value) in [(ID_HEADER, &own.id), (TOKEN_HEADER, &own.token)] {
        let Ok(value) = HeaderValue::from_str(value) else {
            warn!(peer = peer.id, header = name, "own peer identity does not fit a header");
            return;
        };
        headers.insert(name, value);
    }
    let stop = inner.stop.child_token();
    {
        let mut peers = inner.peers.lock();
        if peers.0.get(&peer.id).is_some_and(|(known, _)| *known == peer) {
            return;
        }
        peers.remove(&peer.id);
        peers.0.insert(peer.id.clone(), (peer.clone(), stop.clone()));
    }
    let inner = inner.clone();
    inner.tasks.clone().spawn(async move {
        while !stop.is_cancelled() {
            match stop.run_until_cancelled(connector.connect(headers.clone())).await {
                None => break,
                Some(Err(error)) => warn!(peer = peer.id, error = chain(error.as_ref()), "peer unreachable"),
                Some(Ok(socket)) => link(&inner, &peer, socket, &stop).await,
            }
            stop.run_until_cancelled(sleep(RETRY)).await;
        }
    });
}

async fn link(inner: &Arc<Inner>, peer: &Peer, socket: BoxSocket, stop: &CancellationToken) {
    // The key shows in replies only and is the same for all clients; the number tells our links apart.
    let identity = SessionIdentity { session: positive(), ..SessionIdentity::client() };
    let inbound = forwarding(Server(inner.clone()));
    let options = inner.options.session.clone();
    let (session, task) = Session::new(Role::Client, identity, socket, Some(inbound), options);
    let linked = Linked::new(inner.clone(), session);
    info!(peer = peer.id, "peer linked");
    let end = task.run(stop).await;
    drop(linked);
    info!(peer = peer.id, error = chain(&end), "peer link ends");
}

/// Serves what a peer wants from our clients. Only from ours: passing it on to yet another peer could go round
/// in circles, and every server is linked with every other anyway.
fn forwarding(server: Server) -> Inbound {
    Inbound::all(move |network: String, address: String| {
        let server = server.clone();
        async move {
            let Some((key, proto)) = network.split_once("::") else {
                return Err(io::Error::other(format!("invalid clientKey/proto: {network}")));
            };
            match server.dial_local(key, proto, &address).await {
                Ok(stream) => Ok(Box::new(stream) as BoxIo),
                Err(error) => Err(io::Error::other(chain(&error))),
            }
        }
    })
}

/// Keeps a link told of our sessions.
struct Linked {
    inner: Arc<Inner>,
    session: Session,
}

impl Linked {
    fn new(inner: Arc<Inner>, session: Session) -> Self {
        inner.registry.lock().add_link(session.clone());
        Self { inner, session }
    }
}

impl Drop for Linked {
    fn drop(&mut self) {
        self.inner.registry.lock().remove_link(&self.session);
    }
}
