//! Where connections meet the doors: turns what TLS says of a client into a peer, and passes requests on.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use jiff::Timestamp;
use remuda_apiserver::{Login, Peer, PeerCertificate};
use remuda_door::{Body, Frame};
use rustls::pki_types::CertificateDer;

use crate::{
    accept::{Handler, Remote},
    doors::KubernetesApi,
    pki,
    serving::Serving,
    tls::Clients,
};

/// Shared by all connections.
#[derive(Clone)]
pub(crate) struct Front(pub(crate) Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) clients: Arc<Clients>,
    pub(crate) serving: Arc<Serving>,
    pub(crate) frame: Frame<KubernetesApi>,
}

/// Who is at the other end, and until when that is true: connections outlive certificates.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    peer: Peer,
    until: Timestamp,
}

impl Handler for Front {
    type Peer = Client;
    type Body = Body;

    fn connect(&self, remote: Remote) -> Client {
        self.0.serving.reached_at(remote.local.ip());
        let (certificate, until) = match remote.certificates.as_deref() {
            None => (PeerCertificate::None, Timestamp::MAX),
            Some(chain) => self.0.identify(chain),
        };
        Client { peer: Peer { address: remote.address, certificate, login: Login::default() }, until }
    }

    fn is_logged_in(&self, client: &Client) -> bool {
        matches!(client.peer.certificate, PeerCertificate::Verified(_)) || client.peer.login.is_known()
    }

    async fn handle(&self, client: Client, mut request: Request<Incoming>) -> Response<Body> {
        let mut peer = client.peer;
        if client.until != Timestamp::MAX && client.until < Timestamp::now() {
            peer.certificate = PeerCertificate::Rejected;
        }
        let certificate = !matches!(peer.certificate, PeerCertificate::None);
        let client = remuda_door::Client { address: peer.address, certificate };
        request.extensions_mut().insert(peer);
        self.0.frame.handle(client, request.map(Body::Incoming)).await
    }
}

impl Parts {
    fn identify(&self, chain: &[CertificateDer<'_>]) -> (PeerCertificate, Timestamp) {
        let rejected = (PeerCertificate::Rejected, Timestamp::MAX);
        if self.clients.judge(chain).is_err() {
            return rejected;
        }
        match chain.first().and_then(|certificate| pki::user_of(certificate)) {
            Some((user, until)) => (PeerCertificate::Verified(Arc::new(user)), until),
            None => rejected,
        }
    }
}
