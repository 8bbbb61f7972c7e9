//! The server's certificate authority on disk, and what it issues for the server itself.

use std::{collections::BTreeSet, io, path::Path, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use remuda_auth::{
    identity::User,
    keys::{KeyError, KeyPair},
    pki::{
        PkiError as AuthError,
        authority::{Authority, Credential, LEAF_LIFETIME, San},
        certificate::{Certificate, Validity, client_user},
    },
};
use remuda_names::{file, user};

use crate::{
    datadir::{DataDir, DataDirError},
    kubeconfig::Identity,
    tls::Clients,
};

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error("{present} is there, but {missing} is not")]
    Half { present: &'static str, missing: &'static str },
    #[error("the store holds a server's data, but {name} is not there")]
    Missing { name: &'static str },
    #[error("use the certificate authority in {}", file::CA_CERT)]
    Authority(#[source] AuthError),
    #[error("the certificate authority in {} ended on {until}", file::CA_CERT)]
    Expired { until: Timestamp },
    #[error(
        "the clock says {now}, but the certificate authority in {} is good from {from} on",
        file::CA_CERT
    )]
    ClockBehind { now: Timestamp, from: Timestamp },
    #[error("the clock says {now}: certificates made now would end too soon")]
    ClockUnset { now: Timestamp },
    #[error("use the key in {}", file::SERVICE_ACCOUNT_KEY)]
    ServiceAccountKey(#[source] KeyError),
    #[error("issue a certificate")]
    Issue(#[source] AuthError),
    #[error("make a key")]
    Generate(#[source] KeyError),
}

impl PkiError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            PkiError::DataDir(error) => error.hint(),
            PkiError::Half { .. } | PkiError::Authority(_) | PkiError::ServiceAccountKey(_) => Some(
                "put the file back from a backup; without it no client trusts this server any more"
                    .to_owned(),
            ),
            PkiError::Missing { name } => Some(format!(
                "put {name} back from a backup; or, to have a new one made that nobody trusts yet, \
                 leave an empty file {name}{SET_ASIDE}"
            )),
            PkiError::ClockBehind { .. }
            | PkiError::ClockUnset { .. }
            | PkiError::Issue(AuthError::Clock { .. }) => {
                Some("set the clock of this machine; nothing was changed".to_owned())
            }
            PkiError::Expired { .. } => Some(format!(
                "to have a new one made, add {SET_ASIDE} to the names of {} and {}; clients need their \
                 kubeconfigs anew",
                file::CA_CERT,
                file::CA_KEY
            )),
            _ => None,
        }
    }
}

pub struct Pki {
    authority: Arc<Authority>,
    clients: Clients,
    service_accounts: Arc<KeyPair>,
}

impl Pki {
    /// Until when the authority is good.
    pub fn expires(&self) -> Timestamp {
        self.authority.validity().not_after
    }

    /// Reads the authority and the signing key, making those that never were there.
    pub fn open(dir: &DataDir, now: Timestamp) -> Result<Pki, PkiError> {
        let authority = match (dir.read(file::CA_CERT)?, dir.read_key(file::CA_KEY)?) {
            (Some(certificate), Some(key)) => {
                Authority::from_pem(&text(certificate), &text(key)).map_err(PkiError::Authority)?
            }
            // The certificate is written second: a key alone is what a crash in between leaves.
            (None, _) => create_authority(dir, now)?,
            (Some(_), None) => return Err(PkiError::Half { present: file::CA_CERT, missing: file::CA_KEY }),
        };
        let service_accounts = match dir.read_key(file::SERVICE_ACCOUNT_KEY)? {
            Some(key) => KeyPair::from_pem(&text(key)).map_err(PkiError::ServiceAccountKey)?,
            None => {
                let key = KeyPair::generate().map_err(PkiError::Generate)?;
                dir.write(file::SERVICE_ACCOUNT_KEY, key.to_pem().map_err(PkiError::Generate)?.as_bytes())?;
                key
            }
        };
        Pki::new(authority, service_accounts, now)
    }

    /// A new authority and a new signing key, kept nowhere yet.
    pub fn generate(now: Timestamp) -> Result<Pki, PkiError> {
        Pki::new(generate_authority(now)?, KeyPair::generate().map_err(PkiError::Generate)?, now)
    }

    /// What [`Pki::to_pem`] wrote.
    pub fn from_pem(pem: &PkiPem, now: Timestamp) -> Result<Pki, PkiError> {
        let authority = Authority::from_pem(&pem.ca_certificate, &pem.ca_key).map_err(PkiError::Authority)?;
        let key = KeyPair::from_pem(&pem.service_account_key).map_err(PkiError::ServiceAccountKey)?;
        Pki::new(authority, key, now)
    }

    pub fn to_pem(&self) -> Result<PkiPem, PkiError> {
        Ok(PkiPem {
            ca_certificate: self.authority.certificate_pem(),
            ca_key: self.authority.key_pem().map_err(PkiError::Issue)?,
            service_account_key: self.service_accounts.to_pem().map_err(PkiError::Generate)?,
        })
    }

    fn new(authority: Authority, service_accounts: KeyPair, now: Timestamp) -> Result<Pki, PkiError> {
        let Validity { not_before: from, not_after: until } = authority.validity();
        if until <= now {
            return Err(PkiError::Expired { until });
        }
        if now.saturating_add(CLOCK_SKEW).unwrap_or(now) < from {
            return Err(PkiError::ClockBehind { now, from });
        }
        let clients = Clients::new(authority.certificate_pem().as_bytes())
            .map_err(|_| PkiError::Authority(AuthError::NotAnAuthority))?;
        Ok(Pki { authority: Arc::new(authority), clients, service_accounts: Arc::new(service_accounts) })
    }

    pub fn authority(&self) -> Arc<Authority> {
        self.authority.clone()
    }

    pub fn ca_pem(&self) -> String {
        self.authority.certificate_pem()
    }

    /// Signs service-account tokens.
    pub fn service_accounts(&self) -> Arc<KeyPair> {
        self.service_accounts.clone()
    }

    /// A certificate for the server under these names and addresses.
    pub fn serving(&self, names: &BTreeSet<String>, now: Timestamp) -> Result<Issued, PkiError> {
        let sans: Vec<San> = names.iter().map(|name| San::parse(name)).collect();
        let credential =
            self.authority.issue_server(remuda_names::PROGRAM, &sans, now).map_err(PkiError::Issue)?;
        Issued::new(&credential)
    }

    /// A certificate for the administrator.
    pub fn admin(&self, now: Timestamp) -> Result<Issued, PkiError> {
        let issued = self.authority.issue_client(user::ADMIN, &[user::MASTERS], now, LEAF_LIFETIME);
        Issued::new(&issued.map_err(PkiError::Issue)?)
    }

    /// Whether this authority has signed a serving certificate, and it is good now.
    pub fn issued_server(&self, issued: &Issued) -> bool {
        use rustls::{
            RootCertStore,
            client::{WebPkiServerVerifier, danger::ServerCertVerifier},
            pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
        };
        let mut roots = RootCertStore::empty();
        if roots.add(self.authority.certificate().to_vec().into()).is_err() {
            return false;
        }
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), crate::tls::provider()).build();
        let (Ok(verifier), Ok(certificate)) = (verifier, CertificateDer::from_pem_slice(&issued.cert)) else {
            return false;
        };
        let Ok(name) = ServerName::try_from("localhost") else { return false };
        verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now()).is_ok()
    }

    /// Whether this authority has signed a client certificate, and it is good now.
    pub fn trusts_client(&self, issued: &Issued) -> bool {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        let chain: Vec<CertificateDer<'_>> = CertificateDer::pem_slice_iter(&issued.cert).flatten().collect();
        self.clients.judge(&chain).is_ok()
    }
}

/// Ends the name of a key file that was put out of use on purpose, so that a new one is made.
const SET_ASIDE: &str = ".old";

/// Refuses a data directory in use whose keys are gone. New ones would be made in silence, and every
/// client, agent and token of the server be worth nothing.
pub(crate) fn require(dir: &DataDir) -> Result<(), PkiError> {
    let gone = |name: &&&str| !dir.join(name).exists() && !dir.join(&format!("{name}{SET_ASIDE}")).exists();
    match [file::CA_CERT, file::CA_KEY, file::SERVICE_ACCOUNT_KEY].iter().find(gone) {
        Some(name) => Err(PkiError::Missing { name }),
        None => Ok(()),
    }
}

/// Whether all keys are in the data directory and can be used.
pub(crate) fn check(dir: &Path) -> Result<(), PkiError> {
    let read = |name: &'static str| match std::fs::read(dir.join(name)) {
        Ok(bytes) => Ok(text(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(PkiError::Missing { name }),
        Err(source) => Err(DataDirError::Read { path: dir.join(name), source }.into()),
    };
    Authority::from_pem(&read(file::CA_CERT)?, &read(file::CA_KEY)?).map_err(PkiError::Authority)?;
    KeyPair::from_pem(&read(file::SERVICE_ACCOUNT_KEY)?).map_err(PkiError::ServiceAccountKey)?;
    Ok(())
}

/// All that must be kept, in PEM.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PkiPem {
    pub ca_certificate: String,
    pub ca_key: String,
    pub service_account_key: String,
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub struct Issued {
    pub cert: Vec<u8>,
    pub key: Vec<u8>,
    pub names: BTreeSet<String>,
    pub validity: Validity,
}

impl Issued {
    fn new(credential: &Credential) -> Result<Issued, PkiError> {
        let cert = credential.certificate_pem().into_bytes();
        let key = credential.key_pem().map_err(PkiError::Issue)?.into_bytes();
        Issued::parse(cert, key).ok_or(PkiError::Issue(AuthError::NotACertificate))
    }

    /// `None` if it is no certificate.
    pub fn parse(cert: Vec<u8>, key: Vec<u8>) -> Option<Issued> {
        let parsed = Certificate::parse_pem(std::str::from_utf8(&cert).ok()?).ok()?;
        let name = |san: &San| match san {
            San::Dns(name) => Some(name.clone()),
            San::Ip(ip) => Some(ip.to_string()),
            San::Email(_) | San::Uri(_) => None,
        };
        let names = parsed.names.iter().filter_map(name).collect();
        Some(Issued { cert, key, names, validity: parsed.validity })
    }

    pub fn identity(&self) -> Identity {
        Identity { cert: self.cert.clone(), key: self.key.clone() }
    }
}

/// Until when a certificate is good.
pub fn expires(certificate: &[u8]) -> Option<Timestamp> {
    Some(Certificate::parse(certificate).ok()?.validity.not_after)
}

/// The user a client certificate stands for, once it has been found good, and until when.
pub fn user_of(certificate: &[u8]) -> Option<(User, Timestamp)> {
    let until = expires(certificate)?;
    Some((client_user(certificate).ok()?, until))
}

/// Clocks of machines differ; by more than this, one of them is wrong.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_hours(24);
/// 2025-01-01: machines without a battery start long before this, and an authority made then would be
/// over as soon as the clock is set.
const CLOCK_SET: i64 = 1_735_689_600;

fn generate_authority(now: Timestamp) -> Result<Authority, PkiError> {
    if now.as_second() < CLOCK_SET {
        return Err(PkiError::ClockUnset { now });
    }
    Authority::generate(&format!("remuda-ca@{}", now.as_second()), now).map_err(PkiError::Issue)
}

fn create_authority(dir: &DataDir, now: Timestamp) -> Result<Authority, PkiError> {
    let authority = generate_authority(now)?;
    dir.write(file::CA_KEY, authority.key_pem().map_err(PkiError::Issue)?.as_bytes())?;
    dir.write(file::CA_CERT, authority.certificate_pem().as_bytes())?;
    Ok(authority)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &std::path::Path) -> Result<Pki, PkiError> {
        Pki::open(&DataDir::open(path).unwrap(), Timestamp::now())
    }

    #[test]
    fn the_authority_and_the_signing_key_stay_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (open(dir.path()).unwrap(), open(dir.path()).unwrap());
        assert_eq!(first.ca_pem(), second.ca_pem());
        assert_eq!(first.service_accounts().spki(), second.service_accounts().spki());
    }

    #[test]
    fn a_lost_key_is_not_replaced_silently() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).unwrap();
        std::fs::remove_file(dir.path().join(file::CA_KEY)).unwrap();
        assert!(matches!(open(dir.path()), Err(PkiError::Half { .. })));
    }

    #[test]
    fn a_clock_far_back_is_named_and_makes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let open_at = |now| Pki::open(&DataDir::open(dir.path()).unwrap(), now).map(drop);
        let unset = open_at(Timestamp::UNIX_EPOCH).unwrap_err();
        assert!(matches!(unset, PkiError::ClockUnset { .. }) && unset.hint().is_some(), "{unset}");
        assert!(!dir.path().join(file::CA_CERT).exists());
        let now = Timestamp::now();
        open_at(now).unwrap();
        let behind = open_at(now - SignedDuration::from_hours(48)).unwrap_err();
        assert!(matches!(behind, PkiError::ClockBehind { .. }) && behind.hint().is_some(), "{behind}");
        open_at(now - SignedDuration::from_hours(2)).unwrap();
    }

    #[test]
    fn a_directory_in_use_is_not_given_new_keys() {
        for name in [file::CA_CERT, file::CA_KEY, file::SERVICE_ACCOUNT_KEY] {
            let parent = tempfile::tempdir().unwrap();
            let dir = DataDir::open(parent.path()).unwrap();
            Pki::open(&dir, Timestamp::now()).unwrap();
            require(&dir).unwrap();
            check(dir.path()).unwrap();
            std::fs::rename(dir.join(name), dir.join("aside")).unwrap();
            assert!(matches!(check(dir.path()), Err(PkiError::Missing { name: missing }) if missing == name));
            let missing = require(&dir).unwrap_err();
            assert!(missing.to_string().contains(name) && missing.hint().is_some(), "{missing}");
            // Put out of use on purpose.
            std::fs::rename(dir.join("aside"), dir.join(&format!("{name}{SET_ASIDE}"))).unwrap();
            require(&dir).unwrap();
        }
    }

    #[test]
    fn the_administrator_is_known_and_a_stranger_is_not() {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (ours, theirs) = (open(ours.path()).unwrap(), open(theirs.path()).unwrap());
        let admin = ours.admin(Timestamp::now()).unwrap();
        assert!(ours.trusts_client(&admin));
        assert!(!theirs.trusts_client(&admin));
        let certificate = Certificate::parse_pem(std::str::from_utf8(&admin.cert).unwrap()).unwrap();
        assert_eq!(certificate.common_name, user::ADMIN);
        assert_eq!(certificate.organizations, [user::MASTERS]);
    }

    #[test]
    fn a_serving_certificate_has_its_names() {
        let dir = tempfile::tempdir().unwrap();
        let names = BTreeSet::from(["::1".to_owned(), "example.org".to_owned(), "10.1.2.3".to_owned()]);
        let issued = open(dir.path()).unwrap().serving(&names, Timestamp::now()).unwrap();
        assert_eq!(issued.names, names);
    }
}
