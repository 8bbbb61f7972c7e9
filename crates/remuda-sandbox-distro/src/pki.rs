//! Certificate authorities and certificates, in the layout K3s has below `server/tls`.
//!
//! The authorities and the key for service-account tokens belong to the cluster and are the same on
//! all servers. Everything they sign is made anew at each start of a server: it costs milliseconds,
//! and nothing that was signed before becomes worthless by it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyUsagePurpose};
use remuda_auth::{
    keys::{KeyError, KeyPair},
    pki::{
        PkiError as AuthError,
        authority::{Authority, LEAF_LIFETIME, San},
    },
};
use remuda_store::{Keyring, SealError};

use crate::{
    encryption::{self, Encryption, EncryptionError},
    files::{self, FileError, PRIVATE, PUBLIC},
    paths::Paths,
};

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("use the certificate authority {name}")]
    Authority { name: String, source: AuthError },
    #[error("{} is there, but its key is not", .path.display())]
    Half { path: PathBuf },
    #[error("use the key for service-account tokens")]
    ServiceKey(#[source] KeyError),
    #[error("issue a certificate for {name}")]
    Issue { name: String, source: AuthError },
    #[error("issue a certificate for {name}")]
    Generate { name: String, source: rcgen::Error },
    #[error("open the encryption keys")]
    Keyring(#[source] SealError),
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    #[error("the server sent {0}, which no server has")]
    Foreign(String),
    #[error("the server did not send {0}")]
    Missing(String),
}

/// Files all servers of a cluster have in common, below `server/`.
const SHARED: &[&str] = &[
    "tls/server-ca.key",
    "tls/server-ca.crt",
    "tls/client-ca.key",
    "tls/client-ca.crt",
    "tls/request-header-ca.key",
    "tls/request-header-ca.crt",
    "tls/etcd/server-ca.key",
    "tls/etcd/server-ca.crt",
    "tls/etcd/peer-ca.key",
    "tls/etcd/peer-ca.crt",
    "tls/service.key",
    "cred/encryption.keys",
];

/// Who the API server is to kubelets.
pub const API_SERVER: &str = "system:apiserver";
const MASTERS: &str = "system:masters";

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Issued {
    pub cert: String,
    pub key: String,
}

/// What makes a cluster itself.
pub struct Pki {
    paths: Paths,
    pub server_ca: Arc<Authority>,
    pub client_ca: Arc<Authority>,
    etcd_server_ca: Authority,
    etcd_peer_ca: Authority,
    pub service: Arc<KeyPair>,
    pub keyring: Arc<Keyring>,
}

impl Pki {
    /// Reads what is there and makes what never was.
    pub fn open(paths: &Paths, now: Timestamp) -> Result<Pki, PkiError> {
        files::private_dir(&paths.tls("etcd"))?;
        files::private_dir(&paths.server("cred"))?;
        let program = remuda_names::PROGRAM;
        let stamp = now.as_second();
        let authority = |name: &str| {
            authority(paths, name, &format!("{program}-{}@{stamp}", name.replace('/', "-")), now)
        };
        authority("request-header-ca")?;
        let service = paths.tls("service.key");
        let service = match files::read(&service)? {
            Some(pem) => KeyPair::from_pem(&pem).map_err(PkiError::ServiceKey)?,
            None => {
                let key = KeyPair::generate().map_err(PkiError::ServiceKey)?;
                files::write(&service, key.to_pem().map_err(PkiError::ServiceKey)?.as_bytes(), PRIVATE)?;
                key
            }
        };
        let keyring = match Encryption::read(paths)? {
            None => Keyring::open_or_create(paths.keyring()).map_err(PkiError::Keyring)?,
            Some(encryption) => {
                let keyring = encryption.keyring().map_err(PkiError::Keyring)?;
                // A key that was rotated away is not kept there either.
                files::keep(&paths.keyring(), keyring.text().as_bytes(), PRIVATE)?;
                keyring
            }
        };
        Ok(Pki {
            server_ca: Arc::new(authority("server-ca")?),
            client_ca: Arc::new(authority("client-ca")?),
            etcd_server_ca: authority("etcd/server-ca")?,
            etcd_peer_ca: authority("etcd/peer-ca")?,
            service: Arc::new(service),
            keyring: Arc::new(keyring),
            paths: paths.clone(),
        })
    }

    /// What a server that joins must have. Secret.
    pub fn shared(&self) -> Result<BTreeMap<String, String>, PkiError> {
        let file = |name: &&str| {
            let text = files::read(&self.paths.server(name))?;
            Ok(((*name).to_owned(), text.ok_or_else(|| PkiError::Missing((*name).to_owned()))?))
        };
        let mut shared: BTreeMap<String, String> =
            SHARED.iter().map(file).collect::<Result<_, PkiError>>()?;
        // The state first: keys that are newer than it are understood, a state that is newer than the keys is not.
        for name in encryption::FILES.iter().rev() {
            if let Some(text) = files::read(&self.paths.server(name))? {
                shared.insert((*name).to_owned(), text);
            }
        }
        Ok(shared)
    }

    /// Takes over what another server sent. Keys come before certificates, as when they are made.
    pub fn adopt(paths: &Paths, sent: &BTreeMap<String, String>) -> Result<(), PkiError> {
        let known = |name: &str| SHARED.contains(&name) || encryption::FILES.contains(&name);
        if let Some(foreign) = sent.keys().find(|name| !known(name)) {
            return Err(PkiError::Foreign(foreign.clone()));
        }
        files::private_dir(&paths.tls("etcd"))?;
        files::private_dir(&paths.server("cred"))?;
        for name in SHARED {
            let text = sent.get(*name).ok_or_else(|| PkiError::Missing((*name).to_owned()))?;
            files::write(&paths.server(name), text.as_bytes(), mode(name))?;
        }
        Ok(encryption::adopt(paths, |name| sent.get(name).cloned())?)
    }

    /// The certificates and kubeconfigs components and probes use. Returns the administrator's.
    pub fn write_clients(&self, program: &str, now: Timestamp) -> Result<Issued, PkiError> {
        let clients: [(&str, &str, &[&str]); 7] = [
            ("client-admin", "system:admin", &[MASTERS]),
            ("client-kube-apiserver", API_SERVER, &[MASTERS]),
            ("client-controller", "system:kube-controller-manager", &[]),
            ("client-scheduler", "system:kube-scheduler", &[]),
            ("client-supervisor", &format!("system:{program}-supervisor"), &[MASTERS]),
            ("client-kube-proxy", "system:kube-proxy", &[]),
            (&format!("client-{program}-controller"), &format!("system:{program}-controller"), &[]),
        ];
        let mut admin = None;
        for (file, user, groups) in clients {
            let issued = self.client(user, groups, now)?;
            self.write(file, &issued)?;
            admin = admin.or(Some(issued));
        }
        Ok(admin.expect("the administrator comes first"))
    }

    /// A certificate that authenticates to the API.
    pub fn client(&self, user: &str, groups: &[&str], now: Timestamp) -> Result<Issued, PkiError> {
        let failed = |source| PkiError::Issue { name: user.to_owned(), source };
        let credential = self.client_ca.issue_client(user, groups, now, LEAF_LIFETIME).map_err(failed)?;
        Ok(Issued { cert: credential.certificate_pem(), key: credential.key_pem().map_err(failed)? })
    }

    /// The certificate by which the API server uses kubelets.
    pub fn api_server(&self, now: Timestamp) -> Result<Issued, PkiError> {
        self.client(API_SERVER, &[MASTERS], now)
    }

    /// A certificate for a server reached by these names.
    pub fn serving(&self, name: &str, names: &BTreeSet<String>, now: Timestamp) -> Result<Issued, PkiError> {
        let failed = |source| PkiError::Issue { name: name.to_owned(), source };
        // A name that fits in no certificate must not keep the others out.
        let fits = |name: &&String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        let sans: Vec<San> = names.iter().filter(fits).map(|name| San::parse(name)).collect();
        let credential = self.server_ca.issue_server(name, &sans, now).map_err(failed)?;
        Ok(Issued { cert: credential.certificate_pem(), key: credential.key_pem().map_err(failed)? })
    }

    /// Certificates of this server's etcd, for its clients and its peers.
    pub fn write_etcd(&self, names: &BTreeSet<String>) -> Result<(), PkiError> {
        let server = both_ways(&self.etcd_server_ca, "etcd-server", names)?;
        let peer = both_ways(&self.etcd_peer_ca, "etcd-peer", names)?;
        self.write("etcd/server-client", &server)?;
        self.write("etcd/peer-server-client", &peer)
    }

    /// The certificate by which this server uses etcd.
    pub fn write_etcd_client(&self) -> Result<(), PkiError> {
        self.write("etcd/client", &both_ways(&self.etcd_server_ca, "etcd-client", &BTreeSet::new())?)
    }

    pub fn write(&self, file: &str, issued: &Issued) -> Result<(), PkiError> {
        files::write(&self.paths.tls(&format!("{file}.key")), issued.key.as_bytes(), PRIVATE)?;
        files::write(&self.paths.tls(&format!("{file}.crt")), issued.cert.as_bytes(), PUBLIC)?;
        Ok(())
    }
}

fn mode(name: &str) -> u32 {
    if name.ends_with(".crt") { PUBLIC } else { PRIVATE }
}

fn authority(paths: &Paths, name: &str, subject: &str, now: Timestamp) -> Result<Authority, PkiError> {
    let failed = |source| PkiError::Authority { name: name.to_owned(), source };
    let (cert, key) = (paths.tls(&format!("{name}.crt")), paths.tls(&format!("{name}.key")));
    match (files::read(&cert)?, files::read(&key)?) {
        (Some(cert), Some(key)) => Authority::from_pem(&cert, &key).map_err(failed),
        (Some(_), None) => Err(PkiError::Half { path: cert }),
        // The certificate is written second: a key alone is what a crash in between leaves.
        (None, _) => {
            let authority = Authority::generate(subject, now).map_err(failed)?;
            files::write(&key, authority.key_pem().map_err(failed)?.as_bytes(), PRIVATE)?;
            files::write(&cert, authority.certificate_pem().as_bytes(), PUBLIC)?;
            Ok(authority)
        }
    }
}

/// etcd shows the certificate it serves with when it connects, so it must be good for both.
fn both_ways(ca: &Authority, name: &str, names: &BTreeSet<String>) -> Result<Issued, PkiError> {
    let failed = |source| PkiError::Generate { name: name.to_owned(), source };
    let unusable = |source| PkiError::Issue { name: name.to_owned(), source };
    let ca_key = rcgen::KeyPair::from_pem(&ca.key_pem().map_err(unusable)?).map_err(failed)?;
    let issuer = Issuer::from_ca_cert_pem(&ca.certificate_pem(), ca_key).map_err(failed)?;
    let key = rcgen::KeyPair::generate().map_err(failed)?;
    let params =
        params(name, names, &[ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth])?;
    let cert = params.signed_by(&key, &issuer).map_err(failed)?;
    Ok(Issued { cert: cert.pem(), key: key.serialize_pem() })
}

/// A certificate that vouches for itself, as kube-controller-manager and kube-scheduler make theirs.
pub fn self_signed(name: &str, names: &BTreeSet<String>) -> Result<Issued, PkiError> {
    let failed = |source| PkiError::Generate { name: name.to_owned(), source };
    let key = rcgen::KeyPair::generate().map_err(failed)?;
    let cert =
        params(name, names, &[ExtendedKeyUsagePurpose::ServerAuth])?.self_signed(&key).map_err(failed)?;
    Ok(Issued { cert: cert.pem(), key: key.serialize_pem() })
}

fn params(
    name: &str,
    names: &BTreeSet<String>,
    uses: &[ExtendedKeyUsagePurpose],
) -> Result<CertificateParams, PkiError> {
    let failed = |source| PkiError::Generate { name: name.to_owned(), source };
    let mut params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>()).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = uses.to_vec();
    Ok(params)
}

/// A kubeconfig with one cluster and one user, both called `default` as K3s calls them.
pub fn kubeconfig(server: &str, ca: &str, identity: &Issued) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let (ca, cert, key) =
        (STANDARD.encode(ca), STANDARD.encode(&identity.cert), STANDARD.encode(&identity.key));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: default
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: default
  user:
    client-certificate-data: {cert}
    client-key-data: {key}
contexts:
- name: default
  context:
    cluster: default
    user: default
current-context: default
preferences: {{}}
"
    )
}

/// Reads a file with a certificate and one with its key.
pub fn read_pair(cert: &Path, key: &Path) -> Result<Option<Issued>, PkiError> {
    Ok(files::read(cert)?.zip(files::read(key)?).map(|(cert, key)| Issued { cert, key }))
}

/// Removes all certificates but those of authorities. A server makes what it misses when it starts.
pub fn remove_leaves(paths: &Paths) -> Result<(), PkiError> {
    fn below(paths: &Paths, dir: &std::path::Path) -> std::io::Result<()> {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.strip_prefix(paths.server("")).unwrap_or(&path).to_string_lossy().into_owned();
            let leaf = path.extension().is_some_and(|kind| kind == "crt" || kind == "key");
            if path.is_dir() {
                below(paths, &path)?;
            } else if leaf && !SHARED.contains(&name.as_str()) {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
    let dir = paths.tls("");
    below(paths, &dir).map_err(|source| FileError::Write { path: dir, source }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(root: &Path) -> Pki {
        Pki::open(&Paths::new(root.to_owned(), "/data"), Timestamp::now()).unwrap()
    }

    #[test]
    fn the_authorities_stay_the_same() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (open(root.path()), open(root.path()));
        assert_eq!(first.server_ca.certificate_pem(), second.server_ca.certificate_pem());
        assert_eq!(first.shared().unwrap(), second.shared().unwrap());
    }

    #[test]
    fn a_server_that_joins_has_the_same_authorities() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let pki = open(first.path());
        let mut shared = pki.shared().unwrap();
        Pki::adopt(&Paths::new(second.path().to_owned(), "/data"), &shared).unwrap();
        assert_eq!(open(second.path()).client_ca.certificate_pem(), pki.client_ca.certificate_pem());
        shared.insert("../../etc/passwd".to_owned(), "x".to_owned());
        let refused = Pki::adopt(&Paths::new(second.path().to_owned(), "/data"), &shared);
        assert!(matches!(refused, Err(PkiError::Foreign(_))));
    }

    #[test]
    fn a_lost_key_is_not_replaced_silently() {
        let root = tempfile::tempdir().unwrap();
        open(root.path());
        std::fs::remove_file(root.path().join("data/server/tls/server-ca.key")).unwrap();
        let reopened = Pki::open(&Paths::new(root.path().to_owned(), "/data"), Timestamp::now());
        assert!(matches!(reopened, Err(PkiError::Half { .. })));
    }

    #[test]
    fn the_files_probes_name_are_there() {
        let root = tempfile::tempdir().unwrap();
        let pki = open(root.path());
        pki.write_clients("k3s", Timestamp::now()).unwrap();
        for file in ["server-ca.crt", "client-kube-apiserver.crt", "client-kube-apiserver.key"] {
            assert!(root.path().join("data/server/tls").join(file).exists(), "{file}");
        }
    }

    #[test]
    fn only_authorities_survive_a_rotation() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path().to_owned(), "/data");
        let pki = open(root.path());
        pki.write_clients("k3s", Timestamp::now()).unwrap();
        assert!(paths.tls("client-admin.crt").exists());
        let shared = pki.shared().unwrap();
        remove_leaves(&paths).unwrap();
        assert!(!paths.tls("client-admin.crt").exists() && !paths.tls("client-admin.key").exists());
        assert_eq!(open(root.path()).shared().unwrap(), shared);
    }
}
