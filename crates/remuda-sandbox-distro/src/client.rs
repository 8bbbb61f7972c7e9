//! Clients of an API elsewhere.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{Client, Config, config::AuthInfo};

use crate::pki::Issued;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0:?} is no address of a server")]
    Address(String),
    #[error("set up a client")]
    Client(#[source] kube::Error),
}

/// A client that trusts one authority and shows a certificate.
pub fn connect(url: &str, ca_pem: &str, identity: &Issued) -> Result<Client, ClientError> {
    let address = url.parse().map_err(|_| ClientError::Address(url.to_owned()))?;
    let mut config = Config::new(address);
    config.root_cert = Some(remuda_auth::pem::decode(ca_pem).into_iter().map(|block| block.der).collect());
    // Whoever asks decides when to ask again; the default may hold a request up for many minutes.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.auth_info = AuthInfo {
        client_certificate_data: Some(STANDARD.encode(&identity.cert)),
        client_key_data: Some(STANDARD.encode(&identity.key).into()),
        ..AuthInfo::default()
    };
    Client::try_from(config).map_err(ClientError::Client)
}
