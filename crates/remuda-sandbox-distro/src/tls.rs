//! TLS on both sides: what we show, whom we believe.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use jiff::Timestamp;
use parking_lot::RwLock;
use remuda_apiserver::PeerCertificate;
use remuda_auth::pki::certificate::client_user;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{
        ClientHello, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};
use tracing::warn;

use crate::{
    files::{self, PRIVATE},
    paths::Paths,
    pki::{Issued, Pki, PkiError},
};

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the PEM text holds no usable certificate")]
    Certificate,
    #[error("the PEM text holds no usable key")]
    Key,
    #[error("set up TLS")]
    Setup(#[from] Error),
    #[error("make a serving certificate")]
    Issue(#[from] PkiError),
}

pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

pub fn certified(issued: &Issued) -> Result<CertifiedKey, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(issued.cert.as_bytes()).flatten().collect();
    if chain.is_empty() {
        return Err(TlsError::Certificate);
    }
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).map_err(|_| TlsError::Key)?;
    Ok(CertifiedKey::from_der(chain, key, &provider())?)
}

fn roots(pem: &str) -> Result<Arc<RootCertStore>, TlsError> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(CertificateDer::pem_slice_iter(pem.as_bytes()).flatten());
    if store.is_empty() { Err(TlsError::Certificate) } else { Ok(Arc::new(store)) }
}

/// The certificate of the API and the supervisor. It grows by every address clients come to.
pub struct Serving {
    pki: Arc<Pki>,
    paths: Paths,
    names: RwLock<BTreeSet<String>>,
    shown: RwLock<Arc<CertifiedKey>>,
}

/// A machine has few addresses; more than this are somebody's play.
const MAX_NAMES: usize = 512;

impl Serving {
    pub fn new(pki: Arc<Pki>, paths: &Paths, names: BTreeSet<String>) -> Result<Arc<Serving>, TlsError> {
        let mut names = names;
        let known = files::read(&Self::memory(paths)).map_err(PkiError::from)?;
        let known: BTreeSet<String> =
            known.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        names.extend(known);
        let shown = issue(&pki, &names)?;
        Ok(Arc::new(Serving {
            pki,
            paths: paths.clone(),
            names: RwLock::new(names),
            shown: RwLock::new(Arc::new(shown)),
        }))
    }

    fn memory(paths: &Paths) -> std::path::PathBuf {
        paths.tls("serving-names.json")
    }

    /// A client has come to this address. The handshake that follows shows a certificate with it.
    pub fn reached_at(&self, ip: IpAddr) {
        self.add([ip.to_string()]);
    }

    pub fn add(&self, more: impl IntoIterator<Item = String>) {
        let more: Vec<String> = {
            let names = self.names.read();
            more.into_iter().filter(|name| !names.contains(name)).collect()
        };
        if more.is_empty() {
            return;
        }
        let mut names = self.names.write();
        if names.len() + more.len() > MAX_NAMES {
            return;
        }
        names.extend(more);
        match issue(&self.pki, &names) {
            Ok(certificate) => *self.shown.write() = Arc::new(certificate),
            Err(error) => warn!(%error, "the serving certificate stays as it is"),
        }
        let text = serde_json::to_string(&*names).unwrap_or_default();
        if let Err(error) = files::write(&Self::memory(&self.paths), text.as_bytes(), PRIVATE) {
            warn!(%error, "the names of the serving certificate are not kept");
        }
    }
}

fn issue(pki: &Pki, names: &BTreeSet<String>) -> Result<CertifiedKey, TlsError> {
    let issued = pki.serving("kube-apiserver", names, Timestamp::now())?;
    pki.write("serving-kube-apiserver", &issued)?;
    certified(&issued)
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown.read().clone())
    }
}

/// Always the same certificate.
#[derive(Debug)]
struct Fixed(Arc<CertifiedKey>);

impl ResolvesServerCert for Fixed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// Judges client certificates after the handshake, so that a stale one gets an answer that can be read.
#[derive(Debug)]
pub struct Clients(Arc<dyn ClientCertVerifier>);

impl Clients {
    pub fn new(ca_pem: &str) -> Result<Arc<Clients>, TlsError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(roots(ca_pem)?, provider());
        Ok(Arc::new(Clients(verifier.build().map_err(|_| TlsError::Certificate)?)))
    }

    pub fn judge(&self, chain: Option<&[CertificateDer<'_>]>) -> PeerCertificate {
        let Some((end, intermediates)) = chain.and_then(<[_]>::split_first) else {
            return PeerCertificate::None;
        };
        if self.0.verify_client_cert(end, intermediates, UnixTime::now()).is_err() {
            return PeerCertificate::Rejected;
        }
        match client_user(end) {
            Ok(user) => PeerCertificate::Verified(Arc::new(user)),
            Err(_) => PeerCertificate::Rejected,
        }
    }
}

/// Lets every certificate through whose key the client has.
#[derive(Debug)]
struct Possession(Arc<Clients>);

impl ClientCertVerifier for Possession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.0.supported_verify_schemes()
    }
}

/// For the API: asks clients for a certificate without insisting.
pub fn api_config(serving: Arc<Serving>, clients: Arc<Clients>) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(Possession(clients)))
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// For a kubelet: as for the API, but nobody upgrades from HTTP/2.
pub fn kubelet_config(issued: &Issued, clients: Arc<Clients>) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(Possession(clients)))
        .with_cert_resolver(Arc::new(Fixed(Arc::new(certified(issued)?))));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// For the health of a component.
pub fn health_config(issued: &Issued) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Fixed(Arc::new(certified(issued)?))));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// For clients. Without an authority anybody is believed, which is only good for asking for one.
pub fn client_config(ca_pem: Option<&str>, identity: Option<&Issued>) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match ca_pem {
        Some(pem) => builder.with_root_certificates(roots(pem)?),
        None => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody)),
    };
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(issued) => {
            let chain: Vec<_> = CertificateDer::pem_slice_iter(issued.cert.as_bytes()).flatten().collect();
            let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).map_err(|_| TlsError::Key)?;
            builder.with_client_auth_cert(chain, key)?
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
