//! Servers on one datastore find each other and share the tunnels they have.
//!
//! Each server keeps a Lease that says where it is reached; whoever sees it links to it. What they prove to each other
//! they derive from the key of the authority they share, so there is nothing to configure and nothing to keep. Clocks of
//! different hosts are never compared: a Lease that *we* have seen unchanged for too long is that of a server that is gone.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use aws_lc_rs::hmac;
use http::{HeaderMap, Uri};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use remuda_control::{Chain, Ctx, Informer, Scope};
use remuda_names::{
    PROGRAM,
    gateway::path,
    peer::{ADDRESS, LABEL, LEASE_PREFIX, NAMESPACE},
};
use remuda_tunnel::{
    client::{BoxError, Connector, handshake},
    readahead::ReadAhead,
    server::{Peer, PeerIdentity, Server},
    socket::BoxSocket,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde_json::json;
use tokio::{
    net::TcpStream,
    sync::Notify,
    time::{Instant, timeout},
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::{
    pki::{Pki, PkiError},
    tls,
};

/// Between two renewals of our Lease.
const RENEW: Duration = Duration::from_secs(10);
/// A server whose Lease has not changed for so long is not linked to.
const GONE: Duration = Duration::from_secs(45);
/// And after so long nobody needs to know that it was there.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// To reach another server, TLS included.
const DIAL: Duration = Duration::from_secs(10);
/// Every server has a certificate of our authority for this name, and shows it even if an operator brought another one.
const NAME: &str = "localhost";

/// This server among the others.
pub(crate) struct Peering {
    id: String,
    address: SocketAddr,
    key: hmac::Key,
    tls: TlsConnector,
}

impl Peering {
    /// `id` is unique to this process; `address` is where the others reach it.
    pub(crate) fn new(id: &str, address: SocketAddr, pki: &Pki) -> Result<Peering, PkiError> {
        let pem = pki.to_pem()?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(
            CertificateDer::pem_slice_iter(pem.ca_certificate.as_bytes()).flatten(),
        );
        let config = ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for the default versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Peering {
            id: id.to_owned(),
            address,
            key: hmac::Key::new(hmac::HMAC_SHA256, pem.ca_key.as_bytes()),
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    pub(crate) fn identity(&self) -> PeerIdentity {
        PeerIdentity { id: self.id.clone(), token: self.token(&self.id) }
    }

    /// What a server of this name shows.
    fn token(&self, id: &str) -> String {
        let tag = hmac::sign(&self.key, format!("remuda peer\0{id}").as_bytes());
        remuda_base::hex(tag)
    }

    fn lease(&self) -> String {
        lease_name(&self.id)
    }

    /// Keeps our Lease and our links until told to stop.
    pub(crate) async fn run(&self, ctx: &Ctx, tunnel: &Server, stop: &CancellationToken) {
        let leases: Api<Lease> = Api::namespaced(ctx.client.clone(), NAMESPACE);
        let scope = Scope::namespace(NAMESPACE).with_labels(format!("{LABEL}=true"));
        let known: Informer<Lease> = ctx.informers.of(scope);
        let changed = Arc::new(Notify::new());
        let _following = {
            let changed = changed.clone();
            known.subscribe(move |_| changed.notify_one())
        };
        let (mut others, mut renew_at) = (Others::default(), Instant::now());
        while !stop.is_cancelled() {
            if Instant::now() >= renew_at {
                renew_at = Instant::now() + RENEW;
                if let Err(error) = self.renew(&leases, ctx.clock.now()).await {
                    tracing::warn!(error = %Chain(&error), "other servers cannot be told of this one");
                }
            }
            let found: Vec<Found> = known.list().iter().filter_map(|lease| Found::of(lease)).collect();
            let decided = others.decide(&found, &self.lease(), Instant::now());
            for peer in decided.link {
                let address = peer.address.clone();
                tracing::info!(peer = peer.id, address, "another server shares our datastore");
                let connector = self.connector(address.clone());
                let token = self.token(&peer.id);
                tunnel.add_peer(Peer { url: format!("wss://{address}"), id: peer.id, token }, connector);
            }
            for id in decided.unlink {
                tracing::info!(peer = id, "another server is gone");
                tunnel.remove_peer(&id);
            }
            for (name, version) in decided.forget {
                let preconditions = Preconditions { resource_version: Some(version), uid: None };
                let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                // Somebody else may have done it.
                let _ = leases.delete(&name, &params).await;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = changed.notified() => {}
                () = tokio::time::sleep_until(renew_at) => {}
            }
        }
        let _ = timeout(Duration::from_secs(1), leases.delete(&self.lease(), &DeleteParams::default())).await;
    }

    async fn renew(&self, leases: &Api<Lease>, now: Timestamp) -> Result<(), kube::Error> {
        let name = self.lease();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": name,
                "labels": {LABEL: "true"},
                "annotations": {ADDRESS: self.address.to_string()},
            },
            "spec": {
                "holderIdentity": self.id,
                "leaseDurationSeconds": GONE.as_secs(),
                "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
            },
        });
        let params = PatchParams::apply(PROGRAM).force();
        leases.patch(&name, &params, &Patch::Apply(lease)).await.map(drop)
    }

    fn connector(&self, address: String) -> Arc<dyn Connector> {
        let tls = self.tls.clone();
        Arc::new(move |headers: HeaderMap| {
            let (tls, address) = (tls.clone(), address.clone());
            async move {
                let opening = async {
                    let stream = TcpStream::connect(&address).await?;
                    stream.set_nodelay(true)?;
                    let stream = tls.connect(ServerName::try_from(NAME)?, ReadAhead::new(stream)).await?;
                    let uri: Uri = format!("wss://{address}{}", path::CONNECT).parse()?;
                    Ok::<_, BoxError>(Box::new(handshake(stream, &uri, &headers).await?) as BoxSocket)
                };
                match timeout(DIAL, opening).await {
                    Ok(opened) => opened,
                    Err(_) => Err(format!("{address} did not answer within {DIAL:?}").into()),
                }
            }
        })
    }
}

/// A name for an object out of an identity; what makes an identity unique is at its end.
fn lease_name(id: &str) -> String {
    let unique = id.rsplit('_').next().unwrap_or(id);
    format!("{LEASE_PREFIX}{}", unique.to_ascii_lowercase())
}

/// What a Lease says of its server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    lease: String,
    version: String,
    id: String,
    address: String,
}

impl Found {
    fn of(lease: &Lease) -> Option<Found> {
        let id = lease.spec.as_ref()?.holder_identity.clone().filter(|id| !id.is_empty())?;
        let address = lease.annotations().get(ADDRESS)?.clone();
        address.parse::<SocketAddr>().ok()?;
        Some(Found { lease: lease.name_any(), version: lease.resource_version()?, id, address })
    }
}

/// The servers we have seen.
#[derive(Default)]
struct Others {
    /// By Lease: how it looked, since when, and whether we link to its server.
    seen: HashMap<String, (Found, Instant, bool)>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Decided {
    link: Vec<Found>,
    unlink: Vec<String>,
    /// Leases nobody renews, by name and version.
    forget: Vec<(String, String)>,
}

impl Others {
    fn decide(&mut self, found: &[Found], own: &str, now: Instant) -> Decided {
        let mut decided = Decided::default();
        for lease in found.iter().filter(|found| found.lease != own) {
            let seen = self.seen.entry(lease.lease.clone()).or_insert((lease.clone(), now, false));
            if seen.0 != *lease {
                // Another process under the same Lease is another server.
                if seen.2 && (seen.0.id != lease.id || seen.0.address != lease.address) {
                    seen.2 = false;
                    decided.unlink.push(seen.0.id.clone());
                }
                (seen.0, seen.1) = (lease.clone(), now);
            }
            let silent = now.saturating_duration_since(seen.1);
            if silent < GONE && !seen.2 {
                seen.2 = true;
                decided.link.push(lease.clone());
            } else if silent >= GONE && seen.2 {
                seen.2 = false;
                decided.unlink.push(lease.id.clone());
            }
            if silent >= FORGOTTEN {
                decided.forget.push((lease.lease.clone(), lease.version.clone()));
            }
        }
        let present: HashSet<&str> = found.iter().map(|found| found.lease.as_str()).collect();
        self.seen.retain(|name, (lease, _, linked)| {
            let stays = present.contains(name.as_str());
            if !stays && *linked {
                decided.unlink.push(lease.id.clone());
            }
            stays
        });
        decided
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lease: &str, version: &str) -> Found {
        Found {
            lease: lease.to_owned(),
            version: version.to_owned(),
            id: format!("id of {lease}"),
            address: "10.0.0.1:8443".to_owned(),
        }
    }

    #[test]
    fn servers_are_linked_to_while_their_leases_change() {
        let start = Instant::now();
        let (mut others, at) = (Others::default(), |seconds| start + Duration::from_secs(seconds));
        let decided = others.decide(&[found("own", "1"), found("a", "1")], "own", start);
        assert_eq!(decided, Decided { link: vec![found("a", "1")], ..Decided::default() });
        assert_eq!(others.decide(&[found("a", "2")], "own", at(30)), Decided::default());
        assert_eq!(others.decide(&[found("a", "2")], "own", at(74)), Decided::default());
        let gone = Decided { unlink: vec!["id of a".to_owned()], ..Decided::default() };
        assert_eq!(others.decide(&[found("a", "2")], "own", at(75)), gone);
        assert_eq!(others.decide(&[found("a", "2")], "own", at(80)), Decided::default());
        let back = Decided { link: vec![found("a", "3")], ..Decided::default() };
        assert_eq!(others.decide(&[found("a", "3")], "own", at(90)), back);
        assert_eq!(others.decide(&[], "own", at(91)), gone);
        assert_eq!(others.decide(&[], "own", at(92)), Decided::default());
    }

    #[test]
    fn a_lease_nobody_renews_is_removed_in_the_end() {
        let start = Instant::now();
        let mut others = Others::default();
        others.decide(&[found("a", "1")], "own", start);
        let decided = others.decide(&[found("a", "1")], "own", start + FORGOTTEN);
        assert_eq!(decided.forget, [("a".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn a_server_that_moved_is_linked_to_where_it_is() {
        let start = Instant::now();
        let mut others = Others::default();
        others.decide(&[found("a", "1")], "own", start);
        let moved = Found { address: "10.0.0.2:8443".to_owned(), ..found("a", "2") };
        let decided = others.decide(std::slice::from_ref(&moved), "own", start);
        assert_eq!(decided.unlink, ["id of a"]);
        assert_eq!(decided.link, [moved]);
    }

    #[test]
    fn leases_are_named_by_what_is_unique() {
        assert_eq!(lease_name("Host_name_00ff"), "remuda-server-00ff");
    }
}
