//! Keys for Secrets that are made, changed and forgotten step by step, as K3s has it (`secrets-encryption`).
//!
//! ```text
//! <data>/server/cred/encryption-config.json  an EncryptionConfiguration: the first key seals, all open
//! <data>/server/cred/encryption-state.json   <stage>-<SHA-256 of that file>
//!
//! start ── prepare ──► prepare ── rotate ──► rotate ── reencrypt ──► reencrypt_request ─► reencrypt_active ─► reencrypt_finished
//!       a key is added     it becomes the first           all Secrets are sealed with it, the other key goes
//! ```
//!
//! A server reads the keys when it starts, so all are started again between two steps: a step is refused until every
//! server tells the same stage and hash of itself. Where the state is in etcd, the keys are there too, with the
//! identity of the cluster ([`crate::snapshot::bundle`]), and what is there counts.
//!
//! Secrets are sealed in any case, by the store and with AES-256-GCM; the setting makes its keys ones that can be
//! changed. So the provider in the file is `aesgcm`, where K3s writes `aescbc` or `secretbox`.

pub mod command;
pub mod server;

use aws_lc_rs::digest;
use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_store::{Keyring, SealError};
use serde::{Deserialize, Serialize};

use crate::{
    files::{self, FileError, PRIVATE},
    paths::Paths,
};

/// Below `server/`: what the servers of a cluster have in common, once there is such a thing.
pub const FILES: [&str; 2] = ["cred/encryption-config.json", "cred/encryption-state.json"];
/// What names of keys begin with. The identifier that sealed values carry follows.
const KEY_PREFIX: &str = "aesgcmkey-";
/// As `secrets-encrypt status` calls the provider.
const KEY_TYPE: &str = "AES-GCM";

#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path}: {reason}")]
    Invalid { path: &'static str, reason: &'static str },
    #[error("use the keys for Secrets")]
    Keyring(#[from] SealError),
}

/// How far a rotation is, in the words of K3s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    Start,
    Prepare,
    Rotate,
    ReencryptRequest,
    ReencryptActive,
    ReencryptFinished,
}

const STAGES: [(Stage, &str); 6] = [
    (Stage::Start, "start"),
    (Stage::Prepare, "prepare"),
    (Stage::Rotate, "rotate"),
    (Stage::ReencryptRequest, "reencrypt_request"),
    (Stage::ReencryptActive, "reencrypt_active"),
    (Stage::ReencryptFinished, "reencrypt_finished"),
];

impl Stage {
    pub fn name(self) -> &'static str {
        STAGES.iter().find(|(stage, _)| *stage == self).map_or("", |(_, name)| name)
    }

    fn of(name: &str) -> Option<Stage> {
        STAGES.iter().find(|(_, known)| *known == name).map(|(stage, _)| *stage)
    }

    /// Nothing is under way.
    pub fn is_at_rest(self) -> bool {
        matches!(self, Stage::Start | Stage::ReencryptFinished)
    }

    /// Secrets are being sealed anew, or were when the server was killed.
    pub fn is_sealing(self) -> bool {
        matches!(self, Stage::ReencryptRequest | Stage::ReencryptActive)
    }

    /// The stage that comes with the next change of the keys.
    fn after_change(self) -> Stage {
        match self {
            Stage::Start | Stage::ReencryptFinished => Stage::Prepare,
            Stage::Prepare => Stage::Rotate,
            Stage::Rotate | Stage::ReencryptRequest | Stage::ReencryptActive => Stage::ReencryptFinished,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    id: u64,
    bytes: [u8; 32],
}

/// The keys and the stage they are in.
#[derive(Clone, PartialEq, Eq)]
pub struct Encryption {
    pub stage: Stage,
    keys: Vec<Key>,
}

/// As Kubernetes reads it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Configuration {
    kind: String,
    api_version: String,
    resources: Vec<Resources>,
}

#[derive(Serialize, Deserialize)]
struct Resources {
    resources: Vec<String>,
    providers: Vec<Provider>,
}

#[derive(Serialize, Deserialize)]
struct Provider {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aesgcm: Option<Keys>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<Identity>,
}

#[derive(Serialize, Deserialize)]
struct Keys {
    keys: Vec<NamedKey>,
}

#[derive(Serialize, Deserialize)]
struct NamedKey {
    name: String,
    secret: String,
}

#[derive(Serialize, Deserialize)]
struct Identity {}

impl Encryption {
    /// Those a store has used so far become the ones that can be changed: no server has to learn another one for it.
    pub fn of_keyring(keyring: &Keyring) -> Encryption {
        let keys = keyring.keys().into_iter().map(|(id, bytes)| Key { id, bytes }).collect();
        Encryption { stage: Stage::Start, keys }
    }

    /// `None` where the setting was never made.
    pub fn read(paths: &Paths) -> Result<Option<Encryption>, EncryptionError> {
        let Some(config) = files::read(&paths.encryption_config())? else { return Ok(None) };
        let state = files::read(&paths.encryption_state())?;
        Encryption::parse(&config, state.as_deref()).map(Some)
    }

    /// The keys come first when both are written: a state that is about others is the one of the step before.
    fn parse(config: &str, state: Option<&str>) -> Result<Encryption, EncryptionError> {
        let bad = |reason| EncryptionError::Invalid { path: FILES[0], reason };
        let parsed: Configuration =
            serde_json::from_str(config).map_err(|_| bad("is no EncryptionConfiguration"))?;
        let providers = parsed.resources.into_iter().flat_map(|resources| resources.providers);
        let named = providers.filter_map(|provider| provider.aesgcm).flat_map(|provider| provider.keys);
        let key = |named: NamedKey| {
            let id = named.name.strip_prefix(KEY_PREFIX).and_then(|id| u64::from_str_radix(id, 16).ok());
            let bytes = BASE64_STANDARD.decode(named.secret).ok().and_then(|bytes| bytes.try_into().ok());
            id.zip(bytes).map(|(id, bytes)| Key { id, bytes })
        };
        let keys: Option<Vec<Key>> = named.map(key).collect();
        let keys = keys.ok_or(bad("has a key of another form"))?;
        if keys.is_empty() {
            return Err(bad("has no key"));
        }
        let bad = |reason| EncryptionError::Invalid { path: FILES[1], reason };
        let stage = match state {
            None => Stage::Start,
            Some(state) => {
                let (stage, of) = state.trim().split_once('-').ok_or(bad("has no stage and hash"))?;
                let stage = Stage::of(stage).ok_or(bad("has an unknown stage"))?;
                if of == hash(config) { stage } else { stage.after_change() }
            }
        };
        Ok(Encryption { stage, keys })
    }

    fn config(&self) -> String {
        let named = self
            .keys
            .iter()
            .map(|key| NamedKey { name: name(key), secret: BASE64_STANDARD.encode(key.bytes) });
        let sealed = Provider { aesgcm: Some(Keys { keys: named.collect() }), identity: None };
        let configuration = Configuration {
            kind: "EncryptionConfiguration".to_owned(),
            api_version: "apiserver.config.k8s.io/v1".to_owned(),
            resources: vec![Resources {
                resources: vec!["secrets".to_owned()],
                providers: vec![sealed, Provider { aesgcm: None, identity: Some(Identity {}) }],
            }],
        };
        serde_json::to_string(&configuration).expect("keys are text")
    }

    /// Stage and hash, as servers tell them of themselves.
    pub fn mark(&self) -> String {
        format!("{}-{}", self.stage.name(), hash(&self.config()))
    }

    /// By their names in [`FILES`].
    pub fn files(&self) -> [(&'static str, String); 2] {
        [(FILES[0], self.config()), (FILES[1], self.mark())]
    }

    /// After a crash the files are those of before, or of after, or new keys with the state of before.
    pub fn write(&self, paths: &Paths) -> Result<(), FileError> {
        for (name, text) in self.files() {
            files::keep(&paths.server(name), text.as_bytes(), PRIVATE)?;
        }
        Ok(())
    }

    pub fn keyring(&self) -> Result<Keyring, SealError> {
        let keys: Vec<(u64, [u8; 32])> = self.keys.iter().map(|key| (key.id, key.bytes)).collect();
        Keyring::of_keys(&keys)
    }

    /// Names of the keys, the active one first.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.keys.iter().map(name)
    }

    /// Another key, which seals nothing yet.
    #[must_use]
    pub fn prepared(&self) -> Encryption {
        let mut keys = self.keys.clone();
        let (mut id, mut bytes) = ([0; 8], [0; 32]);
        for random in [&mut id[..], &mut bytes[..]] {
            aws_lc_rs::rand::fill(random).expect("the system gives random bytes");
        }
        keys.push(Key { id: u64::from_le_bytes(id), bytes });
        Encryption { stage: Stage::Prepare, keys }
    }

    /// The key that was added last seals from now on.
    #[must_use]
    pub fn rotated(&self) -> Encryption {
        let mut keys = self.keys.clone();
        keys.rotate_right(1);
        Encryption { stage: Stage::Rotate, keys }
    }

    #[must_use]
    pub fn at(&self, stage: Stage) -> Encryption {
        Encryption { stage, keys: self.keys.clone() }
    }

    /// Only the active key is left: everything is sealed with it.
    #[must_use]
    pub fn finished(&self) -> Encryption {
        Encryption { stage: Stage::ReencryptFinished, keys: self.keys[..1].to_vec() }
    }
}

fn name(key: &Key) -> String {
    format!("{KEY_PREFIX}{:016x}", key.id)
}

fn hash(text: &str) -> String {
    remuda_base::hex(digest::digest(&digest::SHA256, text.as_bytes()))
}

/// Takes over what others have, or that they have nothing. The state goes first: keys without one are in no stage.
pub fn adopt(paths: &Paths, of: impl Fn(&str) -> Option<String>) -> Result<(), FileError> {
    let known = |name: &str| files::read(&paths.server(name));
    if FILES.iter().all(|name| known(name).is_ok_and(|text| text == of(name))) {
        return Ok(());
    }
    files::remove(&paths.encryption_state())?;
    for name in FILES {
        match of(name) {
            Some(text) => files::write(&paths.server(name), text.as_bytes(), PRIVATE)?,
            None => files::remove(&paths.server(name))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> (tempfile::TempDir, Paths, Encryption) {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path().to_owned(), "/data");
        files::private_dir(&paths.server("cred")).unwrap();
        let keyring = Keyring::open_or_create(paths.keyring()).unwrap();
        (root, paths, Encryption::of_keyring(&keyring))
    }

    #[test]
    fn the_files_have_the_form_of_k3s() {
        let (_root, paths, first) = first();
        let text = first.config();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["kind"], "EncryptionConfiguration");
        assert_eq!(value["apiVersion"], "apiserver.config.k8s.io/v1");
        assert_eq!(value["resources"][0]["resources"][0], "secrets");
        let providers = &value["resources"][0]["providers"];
        assert_eq!(providers[0]["aesgcm"]["keys"][0]["secret"].as_str().unwrap().len(), 44);
        assert_eq!(providers[1], serde_json::json!({"identity": {}}));
        first.write(&paths).unwrap();
        let state = files::read(&paths.encryption_state()).unwrap().unwrap();
        assert_eq!(state, format!("start-{}", hash(&text)));
        assert!(Encryption::read(&paths).unwrap().unwrap() == first);
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(paths.encryption_config()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// A process that is killed has written none, one or both of the files.
    #[test]
    fn a_step_that_was_cut_short_is_the_one_before_or_whole() {
        let (_root, paths, first) = first();
        let prepared = first.prepared();
        let rotated = prepared.rotated();
        let active = rotated.at(Stage::ReencryptActive);
        let finished = active.finished();
        let again = finished.prepared();
        assert_eq!(rotated.names().next(), prepared.names().nth(1), "the new key seals");
        assert_eq!(finished.names().collect::<Vec<_>>(), [rotated.names().next().unwrap()]);
        for (before, after) in [
            (&first, &prepared),
            (&prepared, &rotated),
            (&rotated, &active),
            (&active, &finished),
            (&finished, &again),
        ] {
            before.write(&paths).unwrap();
            files::write(&paths.encryption_config(), after.config().as_bytes(), PRIVATE).unwrap();
            let read = Encryption::read(&paths).unwrap().unwrap();
            // Without new keys only the state tells, and it is the one of before.
            let expected = if before.keys == after.keys { before } else { after };
            assert!(read == *expected, "{}", after.stage.name());
            after.write(&paths).unwrap();
            assert!(Encryption::read(&paths).unwrap().unwrap() == *after);
        }
    }

    #[test]
    fn what_others_have_is_taken_over_whole() {
        let (_root, paths, first) = first();
        let rotated = first.prepared().rotated();
        let of = |encryption: &Encryption| {
            let files = encryption.files();
            move |name: &str| files.iter().find(|(known, _)| *known == name).map(|(_, text)| text.clone())
        };
        adopt(&paths, of(&rotated)).unwrap();
        assert!(Encryption::read(&paths).unwrap().unwrap() == rotated);
        adopt(&paths, of(&first)).unwrap();
        assert!(Encryption::read(&paths).unwrap().unwrap() == first);
        adopt(&paths, |_| None).unwrap();
        assert!(Encryption::read(&paths).unwrap().is_none());
        assert!(!paths.encryption_state().exists());
    }

    #[test]
    fn what_is_no_configuration_is_an_error() {
        for (config, state) in [
            ("{}", None),
            (r#"{"kind":"","apiVersion":"","resources":[]}"#, None),
            (
                r#"{"kind":"","apiVersion":"","resources":[{"resources":[],"providers":[{"aesgcm":{"keys":[{"name":"x","secret":""}]}}]}]}"#,
                None,
            ),
        ] {
            assert!(Encryption::parse(config, state).is_err(), "{config}");
        }
        let (_root, _paths, first) = first();
        assert!(Encryption::parse(&first.config(), Some("dance-00")).is_err());
        assert!(Encryption::parse(&first.config(), Some("")).is_err());
    }
}
