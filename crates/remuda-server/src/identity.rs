//! What makes a server this server: its certificate authority, the key that signs tokens, and the
//! keys for Secrets at rest.
//!
//! It is in the data directory; or, with a secret that all of them know, in the etcd that several
//! servers share, and then data directories hold nothing that could not be made anew.

use std::{path::Path, sync::Arc};

use jiff::Timestamp;
use remuda_names::file;
use remuda_store::{EtcdOptions, Shared};
use tracing::info;

use crate::{
    config::{Config, Datastore, SharedSecret},
    datadir::DataDir,
    engine::{self, EngineError},
    pki::{Pki, PkiPem},
};

/// All of it, when it is in the data directory.
const FILES: [&str; 4] = [file::CA_CERT, file::CA_KEY, file::SERVICE_ACCOUNT_KEY, file::KEYRING];

/// Says no before anything is created: a server on etcd that makes up an identity of its own is
/// of no use to the others.
pub(crate) fn check(config: &Config) -> Result<(), EngineError> {
    let etcd = matches!(config.datastore, Datastore::Etcd { .. });
    match etcd && config.shared_secret.is_none() && !is_in(&config.data_dir) {
        true => Err(EngineError::NoSecret),
        false => Ok(()),
    }
}

fn is_in(dir: &Path) -> bool {
    FILES.iter().all(|name| dir.join(name).exists())
}

/// Takes over the identity the servers on this etcd share. The first one makes it, or gives them
/// the one in its data directory.
pub(crate) async fn join(
    options: &EtcdOptions,
    secret: &SharedSecret,
    dir: &DataDir,
    now: Timestamp,
) -> Result<(Arc<Shared>, Pki), EngineError> {
    let own = dir.read(file::CA_CERT)?;
    let shared = match engine::patiently(|| Shared::open(options, secret.expose())).await? {
        Some(shared) => shared,
        None => {
            let (pki, keyring) = match own {
                Some(_) => (Pki::open(dir, now)?, Some(engine::keyring(dir)?)),
                None => (Pki::generate(now)?, None),
            };
            let payload = serde_json::to_vec(&pki.to_pem()?).map_err(EngineError::Identity)?;
            let creating = Shared::create(options, secret.expose(), &payload, keyring.as_ref());
            let shared = creating.await.map_err(EngineError::Etcd)?;
            if shared.payload() == payload {
                info!("the servers on this etcd share an identity from now on");
            }
            shared
        }
    };
    let pem: PkiPem = serde_json::from_slice(shared.payload()).map_err(EngineError::Identity)?;
    if own.is_some_and(|own| own.trim_ascii() != pem.ca_certificate.trim().as_bytes()) {
        return Err(EngineError::OtherIdentity);
    }
    Ok((Arc::new(shared), Pki::from_pem(&pem, now)?))
}
