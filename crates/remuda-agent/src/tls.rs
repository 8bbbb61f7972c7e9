//! Whom to trust, and who we are.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, OnceLock},
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};

static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(aws_lc_rs::default_provider()));

/// Bundles of the distributions in use.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// How the other side has to prove itself, and how we do.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Accept anybody.
    pub insecure: bool,
    /// Trust the system's authorities.
    pub system: bool,
    /// Bundle that takes the place of the distribution's, from `SSL_CERT_FILE`.
    pub system_bundle: Option<PathBuf>,
    /// Certificates trusted beside those, PEM.
    pub extra: Vec<u8>,
    /// Client certificate chain and key, PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Why no TLS settings can be made.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// There is no certificate where one should be.
    #[error("no certificate found in the given authority data")]
    NoAuthority,
    /// Client certificate or key are unusable.
    #[error("client certificate: {0}")]
    Identity(String),
    /// The TLS library refuses.
    #[error("TLS settings")]
    Tls(#[from] Error),
}

impl Trust {
    /// TLS settings for HTTP/1.1.
    pub fn config(&self) -> Result<Arc<ClientConfig>, TrustError> {
        let builder =
            ClientConfig::builder_with_provider(PROVIDER.clone()).with_safe_default_protocol_versions()?;
        let builder = builder.dangerous().with_custom_certificate_verifier(self.verifier()?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain: Vec<_> = CertificateDer::pem_slice_iter(chain).filter_map(Result::ok).collect();
                if chain.is_empty() {
                    return Err(TrustError::Identity("no certificate found".into()));
                }
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| TrustError::Identity(format!("key: {error}")))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| TrustError::Identity(error.to_string()))?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // The default cache is sized for hundreds of peers and costs as much as the rest of the agent.
        config.resumption = Resumption::in_memory_sessions(4);
        Ok(Arc::new(config))
    }

    fn verifier(&self) -> Result<Arc<dyn ServerCertVerifier>, TrustError> {
        if self.insecure {
            return Ok(Arc::new(Accepted::Any));
        }
        let pinned = certificates(&self.extra);
        if pinned.is_empty() && !self.system {
            return Err(TrustError::NoAuthority);
        }
        let chain = chain_to(&pinned);
        let system =
            self.system.then(|| System { bundle: self.system_bundle.clone(), chain: OnceLock::new() });
        Ok(Arc::new(Accepted::Known { pinned, chain, system }))
    }
}

/// Verifies chains that end in one of these.
fn chain_to(authorities: &[CertificateDer<'static>]) -> Option<Arc<WebPkiServerVerifier>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), PROVIDER.clone()).build().ok()
}

/// The system's authorities. There are many of them, and most servers have one of their own, so they are read
/// when a certificate calls for them.
#[derive(Debug)]
struct System {
    bundle: Option<PathBuf>,
    chain: OnceLock<Option<Arc<WebPkiServerVerifier>>>,
}

impl System {
    fn chain(&self) -> Option<&Arc<WebPkiServerVerifier>> {
        let read = || chain_to(&certificates(&system_bundle(self.bundle.as_deref())));
        self.chain.get_or_init(read).as_ref()
    }
}

/// The certificates in PEM text; what is no certificate is passed over.
pub fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

fn system_bundle(explicit: Option<&Path>) -> Vec<u8> {
    let paths = explicit.into_iter().chain(BUNDLES.iter().map(Path::new));
    paths.filter_map(|path| crate::disk::read_limited(path, 16 << 20).ok()).next().unwrap_or_default()
}

/// Whose certificates are accepted.
#[derive(Debug)]
enum Accepted {
    /// Everybody's.
    Any,
    /// Those that chain to a trusted authority, or are themselves among the certificates given as trusted. The
    /// latter is how servers with a single self-signed certificate are set up; chain building refuses those.
    Known {
        pinned: Vec<CertificateDer<'static>>,
        chain: Option<Arc<WebPkiServerVerifier>>,
        system: Option<System>,
    },
}

impl ServerCertVerifier for Accepted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Self::Known { pinned, chain, system } = self else {
            return Ok(ServerCertVerified::assertion());
        };
        if pinned.iter().any(|pinned| pinned == end_entity) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let verify = |chain: Option<&Arc<WebPkiServerVerifier>>| match chain {
            Some(chain) => {
                chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        match (verify(chain.as_ref()), system) {
            // An authority of the same name with another key shows as a bad signature.
            (
                Err(Error::InvalidCertificate(
                    CertificateError::UnknownIssuer | CertificateError::BadSignature,
                )),
                Some(system),
            ) => verify(system.chain()),
            (result, _) => result,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signature, &PROVIDER.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signature, &PROVIDER.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

    use super::*;

    fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
        let mut parameters = CertificateParams::new([]).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
    }

    fn leaf(of: &CertifiedIssuer<'static, KeyPair>) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
        parameters.signed_by(&key, of).unwrap().der().clone()
    }

    #[test]
    fn the_systems_authorities_are_read_only_when_a_certificate_calls_for_them() {
        let (own, public, stranger) = (authority("own"), authority("public"), authority("stranger"));
        let dir = tempfile::tempdir().unwrap();
        let bundle = dir.path().join("bundle.pem");
        std::fs::write(&bundle, public.pem()).unwrap();
        let system = System { bundle: Some(bundle), chain: OnceLock::new() };
        let pinned = certificates(own.pem().as_bytes());
        let accepted = Accepted::Known { chain: chain_to(&pinned), pinned, system: Some(system) };
        let verify = |certificate: &CertificateDer<'_>, name: &'static str| {
            let name = ServerName::try_from(name).unwrap();
            accepted.verify_server_cert(certificate, &[], &name, &[], UnixTime::now()).map(drop)
        };
        let is_read = || matches!(&accepted, Accepted::Known { system: Some(system), .. } if system.chain.get().is_some());

        verify(&leaf(&own), "localhost").unwrap();
        verify(&leaf(&own), "elsewhere").unwrap_err();
        assert!(!is_read());
        verify(&leaf(&public), "localhost").unwrap();
        assert!(is_read());
        verify(&leaf(&stranger), "localhost").unwrap_err();
        let imposter = authority("own");
        verify(&leaf(&imposter), "localhost").unwrap_err();
    }
}
