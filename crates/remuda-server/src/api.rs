//! What the API server is told, made of what this server was told.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use remuda_apiserver::{AuditLog, Controllers, Limits};
use remuda_auth::{
    audit::policy::AuditPolicy,
    jwt::{LEGACY_ISSUER, issue::Issuer, verify::Verifier},
    tokens::StaticTokens,
};
use remuda_distro::Catalog;

use crate::{
    addresses, capi,
    config::{Config, Datastore},
    controllers::Component,
    driver_use, people,
    pki::{Pki, PkiError},
    plan_accounts, rancher,
    releases::{self, file::ReleaseFileError},
    rotate::RotatingFile,
    tokens::{self, TokenFileError},
};
use remuda_rke::agent_presence::Presence;

#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("read --audit-policy {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("--audit-policy {}: {reason}", .path.display())]
    Invalid { path: PathBuf, reason: String },
    #[error("open --audit-log {}", .path.display())]
    Open { path: PathBuf, source: io::Error },
}

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error(transparent)]
    TokenFile(#[from] TokenFileError),
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Releases(#[from] ReleaseFileError),
}

/// The files the configuration names, read and checked before anything is created.
pub(crate) struct Prepared {
    tokens: StaticTokens,
    policy: AuditPolicy,
    /// What the operator knows of releases.
    pub(crate) releases: Option<Arc<Catalog>>,
}

impl Prepared {
    pub(crate) fn new(config: &Config) -> Result<Prepared, PrepareError> {
        let tokens = match &config.token_file {
            Some(path) => tokens::load(path)?,
            None => StaticTokens::default(),
        };
        let policy = match config.audit.as_ref().and_then(|audit| audit.policy.as_deref()) {
            Some(path) => read_policy(path)?,
            None => AuditPolicy::default(),
        };
        let releases = config.release_data.as_deref().map(releases::file::load).transpose()?;
        Ok(Prepared { tokens, policy, releases })
    }
}

fn read_policy(path: &Path) -> Result<AuditPolicy, AuditError> {
    let invalid = |reason: String| AuditError::Invalid { path: path.to_owned(), reason };
    let text =
        std::fs::read_to_string(path).map_err(|source| AuditError::Read { path: path.to_owned(), source })?;
    let value: serde_json::Value =
        serde_saphyr::from_str(&text).map_err(|error| invalid(error.without_snippet().to_string()))?;
    AuditPolicy::parse(&value).map_err(|error| invalid(error.to_string()))
}

#[derive(Debug, thiserror::Error)]
pub enum ApiConfigError {
    #[error(transparent)]
    Audit(#[from] AuditError),
    #[error(transparent)]
    Pki(#[from] PkiError),
}

/// Kinds the server brings with it.
#[derive(Clone, Default)]
pub(crate) struct Kinds {
    pub(crate) cluster_api: capi::Kinds,
    pub(crate) rancher: rancher::Kinds,
    pub(crate) people: people::Admission,
    pub(crate) drivers: driver_use::Admission,
}

pub(crate) fn config(
    config: &Config,
    prepared: Prepared,
    pki: &Pki,
    advertise: &str,
    kinds: &Kinds,
    identity: Option<&str>,
    presence: Option<Presence>,
) -> Result<remuda_apiserver::Config, ApiConfigError> {
    let audit = match &config.audit {
        None => None,
        Some(audit) => {
            let file = RotatingFile::open(&audit.log, audit.max_size, audit.max_backups)
                .map_err(|source| AuditError::Open { path: audit.log.clone(), source })?;
            Some(AuditLog::new(prepared.policy, Box::new(file)))
        }
    };
    let key = pki.service_accounts();
    let public = key.public().map_err(PkiError::ServiceAccountKey)?;
    let issuers = vec![config.issuer.clone(), LEGACY_ISSUER.to_owned()];
    let verifier = Verifier::new(vec![public], issuers, config.audiences.clone());
    let limits = Limits {
        body_bytes: config.limits.request_bytes,
        concurrent_reads: config.limits.requests.get(),
        concurrent_writes: config.limits.mutating_requests.get(),
        ..Limits::default()
    };
    Ok(remuda_apiserver::Config {
        advertise: advertise.to_owned(),
        root_ca_pem: pki.ca_pem(),
        issuer: Issuer::new(key, config.issuer.clone()),
        verifier: Arc::new(verifier),
        signer: Some(pki.authority()),
        static_tokens: prepared.tokens,
        anonymous: config.anonymous_auth,
        audit,
        limits,
        hooks: [
            kinds.cluster_api.hooks(),
            if config.controllers { vec![Arc::new(capi::Guard)] } else { Vec::new() },
            kinds.rancher.hooks(),
            kinds.people.hooks(),
            kinds.drivers.hooks(),
            vec![Arc::new(rancher::Quotas::new(kinds.drivers.clone()))],
            plan_accounts::hooks(),
            vec![Arc::new(rancher::S3Check::default())],
        ]
        .concat(),
        conversions: kinds.cluster_api.conversions(),
        version: None,
        descriptions: Some(crate::explain::descriptions),
        controllers: match identity {
            None => Controllers::Always,
            Some(identity) => Controllers::Elected { identity: identity.to_owned() },
        },
        clock: Timestamp::now,
        former_manager: Component::former_manager,
        strict_fields: rancher::has_strict_fields,
        watch_observer: presence.map(|presence| Arc::new(plan_accounts::Agents(presence)) as _),
    })
}

/// Who this server is among those that share its datastore; of them, one runs controllers.
pub(crate) fn identity(datastore: &Datastore) -> Option<String> {
    match datastore {
        Datastore::Embedded | Datastore::Memory => None,
        Datastore::Etcd { .. } => {
            let host = addresses::hostname().unwrap_or_else(|| remuda_names::PROGRAM.to_owned());
            // A successor on the same machine is somebody else.
            let mut unique = [0; 8];
            aws_lc_rs::rand::fill(&mut unique).expect("the system gives random bytes");
            Some(format!("{host}_{:016x}", u64::from_le_bytes(unique)))
        }
    }
}
