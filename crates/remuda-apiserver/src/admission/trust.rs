//! Which certificates of webhooks are believed: those the bundle has signed, and those that are in it.

use std::sync::Arc;

use remuda_auth::pki::certificate::Certificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

/// Verifies with a `caBundle` as Go does. What `openssl req -x509` makes is an authority that serves: the library
/// refuses such a certificate at the end of a chain, but in a bundle it is the one that is meant.
#[derive(Debug)]
pub(super) struct Bundle {
    chain: Arc<WebPkiServerVerifier>,
    members: Vec<CertificateDer<'static>>,
}

impl Bundle {
    pub(super) fn new(
        roots: RootCertStore,
        members: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { chain, members })
    }

    /// A member of the bundle needs no issuer, but everything else a server's certificate needs.
    fn verify_member(
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = Certificate::parse(certificate).map_err(|_| CertificateError::BadEncoding)?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now < parsed.validity.not_before.as_second() {
            return Err(CertificateError::NotValidYet.into());
        }
        if now > parsed.validity.not_after.as_second() {
            return Err(CertificateError::Expired.into());
        }
        if !parsed.for_servers {
            return Err(CertificateError::InvalidPurpose.into());
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
    }
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.members.iter().any(|member| member == end_entity) {
            return Self::verify_member(end_entity, server_name, now)
                .map(|()| ServerCertVerified::assertion());
        }
        self.chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
