//! The TLS side of the listener: which certificate is shown, and what a client's certificate is worth.
//!
//! A client certificate is asked for, not required. The handshake checks only that the client has
//! the certificate's key; whether the certificate is good is decided afterwards, so that a client
//! with a stale one gets an answer it can read instead of a broken connection.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{
        ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

/// The certificates shown to clients. Replaced without disturbing connections.
///
/// An operator's own certificate is for the names the operator gave the server. Under its internal
/// names the server keeps showing the generated one, so that what trusts our authority, such as the
/// administrator's kubeconfig, works whatever the operator brings.
#[derive(Debug)]
pub struct Presented {
    generated: ArcSwap<CertifiedKey>,
    own: Option<ArcSwap<CertifiedKey>>,
}

/// Names of the server that only make sense inside: on the machine, or in a pod.
pub const INTERNAL_NAMES: &[&str] = &[
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

impl Presented {
    pub fn new(generated: CertifiedKey, own: Option<CertifiedKey>) -> Presented {
        Presented { generated: ArcSwap::from_pointee(generated), own: own.map(ArcSwap::from_pointee) }
    }

    /// Until when the certificate is good that people get.
    pub fn expires(&self) -> Option<Timestamp> {
        let shown = self.own.as_ref().unwrap_or(&self.generated).load();
        crate::pki::expires(shown.cert.first()?)
    }

    pub fn replace_generated(&self, certificate: CertifiedKey) {
        self.generated.store(Arc::new(certificate));
    }

    pub fn replace_own(&self, certificate: CertifiedKey) {
        if let Some(own) = &self.own {
            own.store(Arc::new(certificate));
        }
    }
}

impl ResolvesServerCert for Presented {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let internal = hello.server_name().is_some_and(|name| INTERNAL_NAMES.contains(&name));
        let own = self.own.as_ref().filter(|_| !internal);
        Some(own.unwrap_or(&self.generated).load_full())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("it holds no PEM certificate")]
    NoCertificate,
    #[error("it holds no PEM private key")]
    NoKey,
    #[error("certificate and key are not usable together")]
    Unusable(#[source] Error),
}

/// A certificate chain and its key, from PEM, checked to belong together.
pub fn certified_key(chain: &[u8], key: &[u8]) -> Result<CertifiedKey, CertificateError> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|_| CertificateError::NoCertificate)?;
    if chain.is_empty() {
        return Err(CertificateError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateError::NoKey)?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(CertificateError::Unusable)
}

/// Judges client certificates.
#[derive(Debug)]
pub struct Clients {
    inner: Arc<dyn ClientCertVerifier>,
}

impl Clients {
    /// Accepts certificates for client authentication that chain to one of `roots` (PEM).
    pub fn new(roots: &[u8]) -> Result<Clients, VerifierBuilderError> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(CertificateDer::pem_slice_iter(roots).flatten());
        let inner = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider()).build()?;
        Ok(Clients { inner })
    }

    /// Whether the certificate a client has shown is good now.
    pub fn judge(&self, chain: &[CertificateDer<'_>]) -> Result<(), Error> {
        let (end, intermediates) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        self.inner.verify_client_cert(end, intermediates, UnixTime::now()).map(drop)
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
        self.0.inner.root_hint_subjects()
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
        self.0.inner.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.inner.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.inner.supported_verify_schemes()
    }
}

pub const H2: &[u8] = b"h2";

pub fn server_config(presented: Arc<Presented>, clients: Arc<Clients>) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(Arc::new(Possession(clients)))
        .with_cert_resolver(presented);
    config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
    config.ignore_client_order = true;
    // Resumption by tickets: the clients keep the state, not we. One ticket each is enough, since
    // a client may use it more than once.
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 1;
    Ok(config)
}

/// The cryptography used for serving. Where the processor does AES itself, AES-128-GCM is the
/// cheapest per byte by far, and what watch traffic costs is mostly this.
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    if has_aes() {
        use rustls::CipherSuite::{
            TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            TLS13_AES_128_GCM_SHA256,
        };
        let cheapest = [
            TLS13_AES_128_GCM_SHA256,
            TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ];
        provider.cipher_suites.sort_by_key(|suite| !cheapest.contains(&suite.suite()));
    }
    Arc::new(provider)
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}
