//! Encryption at rest.
//!
//! Values under configured key prefixes reach the disk (or etcd) only sealed: AES-256-GCM under
//! the active key of a keyring, bound to the storage key they belong to, so that a sealed value
//! cannot be moved to another key. Memory holds plaintext.
//!
//! ```text
//! sealed value  format 1 │ key id 8 │ nonce 12 │ ciphertext │ tag 16
//! keyring file  one key per line, the active one first: <id, 16 hex digits> <key, 64 hex digits>
//! ```
//!
//! The keyring is a file of its own and in no backup: **a backup of sealed data is worthless
//! without the keyring, keep a copy of it elsewhere.** Processes that share an etcd may share the
//! keyring there instead, as part of their [identity](crate::Shared).

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand as random,
};
use parking_lot::{Mutex, RwLock};

const FORMAT: u8 = 1;
const KEY_LEN: usize = 32;
const PREFIX: usize = 1 + 8 + NONCE_LEN;
const TAG: usize = 16;
/// What a keyring without a file is called in messages.
const SHARED: &str = "the shared keyring";

#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("{path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}, line {line}: {detail}", path = path.display())]
    Keyring { path: PathBuf, line: usize, detail: &'static str },
    #[error("the value of {key} is sealed with key {id:016x}, which is not in the keyring")]
    MissingKey { key: String, id: u64 },
    #[error("the value of {key} is sealed, but no keyring is configured")]
    NoKeyring { key: String },
    #[error("the sealed value of {key} is damaged or was moved")]
    Damaged { key: String },
    #[error("the keyring is shared with other processes, and changed only together with them")]
    Shared,
}

struct Key {
    id: u64,
    bytes: [u8; KEY_LEN],
    aead: LessSafeKey,
}

/// The keys values are sealed with. The first is used for writing, all for reading.
pub struct Keyring {
    /// `None` for one that is shared through etcd.
    path: Option<PathBuf>,
    keys: RwLock<Vec<Arc<Key>>>,
    /// Serialises changes of the file.
    changing: Mutex<()>,
}

impl Key {
    fn new(id: u64, bytes: [u8; KEY_LEN]) -> Arc<Self> {
        let key = UnboundKey::new(&AES_256_GCM, &bytes).expect("the key has the algorithm's length");
        Arc::new(Self { id, bytes, aead: LessSafeKey::new(key) })
    }

    fn generate() -> Arc<Self> {
        let mut id = [0; 8];
        let mut bytes = [0; KEY_LEN];
        random::fill(&mut id).expect("the system gives random bytes");
        random::fill(&mut bytes).expect("the system gives random bytes");
        Self::new(u64::from_le_bytes(id), bytes)
    }

    fn line(&self) -> String {
        format!("{:016x} {}\n", self.id, remuda_base::hex(self.bytes))
    }
}

/// A new key, as a line of a keyring.
pub(crate) fn generate() -> (u64, String) {
    let key = Key::generate();
    (key.id, key.line())
}

impl Keyring {
    /// Reads the keyring; if there is no file, makes one with a new key.
    pub fn open_or_create(path: impl Into<PathBuf>) -> Result<Self, SealError> {
        let path = path.into();
        match fs::read_to_string(&path) {
            Ok(text) => {
                let keys = parse(&text, &path)?;
                Ok(Self { path: Some(path), keys: RwLock::new(keys), changing: Mutex::default() })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let ring = Self { path: Some(path), keys: RwLock::default(), changing: Mutex::default() };
                ring.rotate()?;
                Ok(ring)
            }
            Err(source) => Err(SealError::Io { path, source }),
        }
    }

    /// A keyring without a file, from its text.
    pub(crate) fn in_memory(text: &str) -> Result<Self, SealError> {
        let keys = parse(text, Path::new(SHARED))?;
        Ok(Self { path: None, keys: RwLock::new(keys), changing: Mutex::default() })
    }

    /// A keyring without a file, from keys and their identifiers. The first is the active one.
    pub fn of_keys(keys: &[(u64, [u8; KEY_LEN])]) -> Result<Self, SealError> {
        let text: String = keys.iter().map(|(id, bytes)| Key::new(*id, *bytes).line()).collect();
        Self::in_memory(&text)
    }

    /// The keys with their identifiers, the active one first. Secret.
    pub fn keys(&self) -> Vec<(u64, [u8; KEY_LEN])> {
        self.keys.read().iter().map(|key| (key.id, key.bytes)).collect()
    }

    /// The keyring as a file has it. Secret.
    pub fn text(&self) -> String {
        self.keys.read().iter().map(|key| key.line()).collect()
    }

    /// Takes over a newer text. Keys that are not in it any more stay readable in this process:
    /// it may yet meet what others have sealed anew since.
    pub fn take(&self, text: &str) -> Result<(), SealError> {
        let _changing = self.changing.lock();
        let mut keys = parse(text, Path::new(SHARED))?;
        let mut known = self.keys.write();
        for key in known.iter() {
            if keys.iter().all(|other| other.id != key.id) {
                keys.push(key.clone());
            }
        }
        *known = keys;
        Ok(())
    }

    /// Reads the file again, if there is one: another process may have rotated it.
    pub fn reload(&self) -> Result<(), SealError> {
        let _changing = self.changing.lock();
        let Some(path) = &self.path else { return Ok(()) };
        let text = fs::read_to_string(path).map_err(|source| SealError::Io { path: path.clone(), source })?;
        *self.keys.write() = parse(&text, path)?;
        Ok(())
    }

    /// Identifiers of the keys, the active one first.
    pub fn ids(&self) -> Vec<u64> {
        self.keys.read().iter().map(|key| key.id).collect()
    }

    /// Adds a new key and makes it the active one. What is stored stays readable; it moves to
    /// the new key when it is next written, or when the engine reseals.
    pub fn rotate(&self) -> Result<u64, SealError> {
        let _changing = self.changing.lock();
        let mut keys = self.keys.read().clone();
        let key = Key::generate();
        let id = key.id;
        keys.insert(0, key);
        self.save(&keys)?;
        *self.keys.write() = keys;
        Ok(id)
    }

    /// Drops keys. The active key and those not named stay. Only for keys nothing is sealed
    /// with any more: after an engine resealed, and no backup made before is needed.
    pub fn retire(&self, ids: &[u64]) -> Result<(), SealError> {
        let _changing = self.changing.lock();
        let mut keys = self.keys.read().clone();
        let active = keys.first().map(|key| key.id);
        keys.retain(|key| Some(key.id) == active || !ids.contains(&key.id));
        self.save(&keys)?;
        *self.keys.write() = keys;
        Ok(())
    }

    /// Written beside and renamed: a crash leaves the old keyring or the new one.
    fn save(&self, keys: &[Arc<Key>]) -> Result<(), SealError> {
        let path = self.path.as_ref().ok_or(SealError::Shared)?;
        let text: String = keys.iter().map(|key| key.line()).collect();
        let temporary = path.with_extension("tmp");
        let write = || {
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&temporary)?;
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            fs::File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(|source| SealError::Io { path: path.clone(), source })
    }

    fn active(&self) -> Arc<Key> {
        self.keys.read().first().cloned().expect("a keyring has a key")
    }

    fn find(&self, id: u64) -> Option<Arc<Key>> {
        self.keys.read().iter().find(|key| key.id == id).cloned()
    }
}

fn parse(text: &str, path: &Path) -> Result<Vec<Arc<Key>>, SealError> {
    let error = |line: usize, detail| SealError::Keyring { path: path.into(), line: line + 1, detail };
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let (Some(id), Some(key), None) = (words.next(), words.next(), words.next()) else {
            return Err(error(index, "expected a key id and a key"));
        };
        let id = u64::from_str_radix(id, 16).map_err(|_| error(index, "the key id is not hexadecimal"))?;
        let mut bytes = [0; KEY_LEN];
        if key.len() != KEY_LEN * 2 || !key.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(error(index, "the key is not 64 hexadecimal digits"));
        }
        for (byte, digits) in bytes.iter_mut().zip(key.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).unwrap_or_default();
            *byte = u8::from_str_radix(digits, 16).map_err(|_| error(index, "the key is not hexadecimal"))?;
        }
        keys.push(Key::new(id, bytes));
    }
    if keys.is_empty() {
        return Err(error(0, "the keyring has no key"));
    }
    Ok(keys)
}

/// Which values are sealed, and with what.
#[derive(Clone)]
pub struct Sealing {
    pub keyring: Arc<Keyring>,
    /// Values of keys that start with one of these, such as `/core/secrets/`.
    pub prefixes: Vec<String>,
}

impl Sealing {
    pub fn covers(&self, key: &str) -> bool {
        self.prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()))
    }

    /// Appends the sealed form of the concatenated parts.
    pub(crate) fn seal(&self, key: &str, parts: &[&[u8]], out: &mut Vec<u8>) {
        let with = self.keyring.active();
        let mut nonce = [0; NONCE_LEN];
        random::fill(&mut nonce).expect("the system gives random bytes");
        out.push(FORMAT);
        out.extend_from_slice(&with.id.to_le_bytes());
        out.extend_from_slice(&nonce);
        let start = out.len();
        for part in parts {
            out.extend_from_slice(part);
        }
        let tag = with
            .aead
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(key.as_bytes()),
                &mut out[start..],
            )
            .expect("values are far below the cipher's length limit");
        out.extend_from_slice(tag.as_ref());
    }

    pub(crate) fn open(&self, key: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let damaged = || SealError::Damaged { key: key.into() };
        let id = sealed_with(sealed).ok_or_else(damaged)?;
        let with = self.keyring.find(id).ok_or_else(|| SealError::MissingKey { key: key.into(), id })?;
        let nonce = Nonce::try_assume_unique_for_key(&sealed[9..PREFIX]).map_err(|_| damaged())?;
        let mut bytes = sealed[PREFIX..].to_vec();
        let len = with
            .aead
            .open_in_place(nonce, Aad::from(key.as_bytes()), &mut bytes)
            .map_err(|_| damaged())?
            .len();
        bytes.truncate(len);
        Ok(bytes)
    }
}

impl Sealing {
    /// As `open`; a key this process does not know yet may be in the file by now.
    pub(crate) fn open_or_reload(&self, key: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        match self.open(key, sealed) {
            Err(SealError::MissingKey { .. }) => {
                self.keyring.reload()?;
                self.open(key, sealed)
            }
            other => other,
        }
    }
}

/// The key a sealed value needs, if it is one.
pub(crate) fn sealed_with(sealed: &[u8]) -> Option<u64> {
    if sealed.len() < PREFIX + TAG || sealed[0] != FORMAT {
        return None;
    }
    sealed[1..9].try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealing(dir: &Path) -> Sealing {
        let keyring = Arc::new(Keyring::open_or_create(dir.join("keyring")).unwrap());
        Sealing { keyring, prefixes: vec!["/core/secrets/".into()] }
    }

    #[test]
    fn a_sealed_value_opens_under_its_own_key_only() {
        let dir = tempfile::tempdir().unwrap();
        let sealing = sealing(dir.path());
        let mut out = Vec::new();
        sealing.seal("/core/secrets/a", &[b"pass", b"word"], &mut out);
        assert!(!out.windows(4).any(|part| part == b"pass"));
        assert_eq!(sealing.open("/core/secrets/a", &out).unwrap(), b"password");
        assert!(matches!(sealing.open("/core/secrets/b", &out), Err(SealError::Damaged { .. })));
        for index in 9..out.len() {
            let mut bad = out.clone();
            bad[index] ^= 1;
            assert!(sealing.open("/core/secrets/a", &bad).is_err());
        }
        for len in 0..out.len() {
            assert!(sealing.open("/core/secrets/a", &out[..len]).is_err());
        }
    }

    #[test]
    fn old_keys_read_until_they_are_retired() {
        let dir = tempfile::tempdir().unwrap();
        let before = sealing(dir.path());
        let old = before.keyring.ids();
        let mut out = Vec::new();
        before.seal("/core/secrets/a", &[b"x"], &mut out);
        before.keyring.rotate().unwrap();
        let after = sealing(dir.path());
        assert_eq!(after.keyring.ids().len(), 2);
        assert_eq!(after.open("/core/secrets/a", &out).unwrap(), b"x");
        after.keyring.retire(&after.keyring.ids()).unwrap();
        assert_eq!(after.keyring.ids().len(), 1, "the active key stays");
        match sealing(dir.path()).open("/core/secrets/a", &out) {
            Err(SealError::MissingKey { id, .. }) => assert_eq!(id, old[0]),
            other => panic!("{other:?}"),
        }
        let mode = fs::metadata(dir.path().join("keyring")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
