//! What the processes on one etcd share beside the objects: the keyring, and a payload that is
//! the caller's business (certificates and signing keys).
//!
//! It is one value, encrypted with a key derived from a secret that every process is given. The
//! value lies outside of the range the store loads and watches.
//!
//! ```text
//! value      format 1 │ rounds 4 │ salt 16 │ nonce 12 │ ciphertext │ tag 16
//! plaintext  keyring length 4 │ keyring │ payload
//! ```
//!
//! **Rotation.** A key is used only once it is in etcd, so whoever meets a key it does not know
//! finds it there. And every write of a sealed value demands, in its transaction, that the
//! identity is still the one it was sealed under: from the moment a new key is published nothing
//! is sealed with an old one by anybody. What was sealed before is then sealed anew, and the old
//! keys are dropped only if the identity has not changed meanwhile.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    pbkdf2, rand as random,
};
use bytes::Bytes;
use tokio::sync::Mutex;

use super::{
    EtcdOptions,
    client::{Client, EtcdError},
    layout::Layout,
    proto::{Compare, KeyValue, PutRequest, RangeRequest, Request, Response, TxnRequest},
};
use crate::seal::{self, Keyring};

const FORMAT: u8 = 1;
/// What OWASP asks of PBKDF2 with SHA-256; about a fifth of a second.
const ROUNDS: u32 = 600_000;
/// More than this is an attempt to keep us busy.
const MOST_ROUNDS: u32 = 10_000_000;
const SALT: usize = 16;
const HEADER: usize = 1 + 4 + SALT;
const TAG: usize = 16;
/// How often a change is tried whose outcome got lost.
const ATTEMPTS: usize = 5;

/// An identity that processes share through etcd.
pub struct Shared {
    pub(super) client: Arc<Client>,
    key: Bytes,
    cipher: Cipher,
    payload: Vec<u8>,
    keyring: Arc<Keyring>,
    /// When the identity was written that the keyring is from. Read before sealing, set after
    /// the keyring: a value is never sealed with an older key than this revision has.
    revision: AtomicI64,
    /// The keyring as it is in etcd, without the keys only this process still knows.
    published: Mutex<String>,
}

/// An identity as it is stored.
struct Contents {
    keyring: String,
    payload: Vec<u8>,
}

impl Shared {
    /// Whether there is an identity.
    pub async fn exists(options: &EtcdOptions) -> Result<bool, EtcdError> {
        let client = Client::new(&options.endpoints, options.tls.as_ref())?;
        let key = Layout::new(&options.prefix, None).identity();
        Ok(find(&client, &key).await?.is_some())
    }

    /// Opens the identity, if there is one.
    pub async fn open(options: &EtcdOptions, secret: &str) -> Result<Option<Self>, EtcdError> {
        let client = Arc::new(Client::new(&options.endpoints, options.tls.as_ref())?);
        let key = Layout::new(&options.prefix, None).identity();
        match find(&client, &key).await? {
            Some(kv) => Self::from_stored(client, key, &kv, secret).await.map(Some),
            None => Ok(None),
        }
    }

    /// Stores the first identity, or opens the one of whoever was faster. Without a keyring it
    /// gets a new one, which is refused where objects are: they belong to another identity.
    pub async fn create(
        options: &EtcdOptions,
        secret: &str,
        payload: &[u8],
        keyring: Option<&Keyring>,
    ) -> Result<Self, EtcdError> {
        let client = Arc::new(Client::new(&options.endpoints, options.tls.as_ref())?);
        let layout = Layout::new(&options.prefix, None);
        let key = layout.identity();
        let text = keyring.map_or_else(|| seal::generate().1, Keyring::text);
        let contents = Contents { keyring: text, payload: payload.to_vec() };
        let cipher = Cipher::generate(secret).await?;
        let mut compare = vec![Compare::unchanged(key.clone(), 0)];
        if keyring.is_none() {
            compare.push(Compare::unchanged(layout.head(), 0));
        }
        let put = PutRequest { key: key.clone(), value: cipher.seal(&key, &contents) };
        let look = RangeRequest { key: key.clone(), limit: 1, ..RangeRequest::default() };
        let request = TxnRequest {
            compare,
            success: vec![Request::Put(put).into()],
            failure: vec![Request::Range(look).into()],
        };
        let mut failure = None;
        for _ in 0..ATTEMPTS {
            match client.txn(request.clone()).await {
                Ok(response) if response.succeeded => {
                    let revision = response.header.unwrap_or_default().revision;
                    return Self::new(client, key, cipher, contents, revision);
                }
                Ok(mut response) => {
                    let found = response.responses.pop().and_then(|op| op.response);
                    let Some(Response::Range(mut range)) = found else { break };
                    let Some(kv) = range.kvs.pop() else { return Err(EtcdError::Unshared) };
                    return Self::from_stored(client, key, &kv, secret).await;
                }
                // If it happened after all, the next attempt finds it.
                Err(error) => failure = Some(error.status.message().to_owned()),
            }
        }
        Err(EtcdError::Request(failure.unwrap_or_else(|| "the answer makes no sense".to_owned())))
    }

    async fn from_stored(
        client: Arc<Client>,
        key: Bytes,
        kv: &KeyValue,
        secret: &str,
    ) -> Result<Self, EtcdError> {
        let foreign = |detail: &str| foreign(&key, detail);
        if kv.value.len() < HEADER + NONCE_LEN + TAG || kv.value[0] != FORMAT {
            return Err(foreign("the identity has a format this program does not know"));
        }
        let header: [u8; HEADER] = kv.value[..HEADER].try_into().map_err(|_| foreign("it is too short"))?;
        let cipher = Cipher::derive(header, secret).await?;
        let contents = cipher.open(&key, &kv.value)?.ok_or(EtcdError::WrongSecret)?;
        Self::new(client, key, cipher, contents, kv.mod_revision)
    }

    fn new(
        client: Arc<Client>,
        key: Bytes,
        cipher: Cipher,
        contents: Contents,
        revision: i64,
    ) -> Result<Self, EtcdError> {
        let Contents { keyring: published, payload } = contents;
        let keyring = Arc::new(Keyring::in_memory(&published)?);
        let (revision, published) = (AtomicI64::new(revision), Mutex::new(published));
        Ok(Self { client, key, cipher, payload, keyring, revision, published })
    }

    /// What was given at the creation.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    pub fn keyring(&self) -> &Arc<Keyring> {
        &self.keyring
    }

    pub(super) fn revision(&self) -> i64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Takes over what others have published.
    pub(super) async fn refresh(&self) -> Result<(), EtcdError> {
        self.read(&mut *self.published.lock().await).await
    }

    async fn read(&self, published: &mut String) -> Result<(), EtcdError> {
        let kv = find(&self.client, &self.key).await?.ok_or(EtcdError::IdentityChanged)?;
        let contents = self.cipher.open(&self.key, &kv.value)?.ok_or(EtcdError::IdentityChanged)?;
        self.adopt(contents.keyring, kv.mod_revision, published)
    }

    fn adopt(&self, text: String, revision: i64, published: &mut String) -> Result<(), EtcdError> {
        self.keyring.take(&text)?;
        *published = text;
        self.revision.store(revision, Ordering::Release);
        Ok(())
    }

    /// Publishes a new key. When this returns it is in use here, and nothing is sealed with
    /// another one anywhere. Returns how many older ones there are.
    pub(super) async fn add_key(&self) -> Result<usize, EtcdError> {
        let mut published = self.published.lock().await;
        let (id, line) = seal::generate();
        for _ in 0..ATTEMPTS {
            self.read(&mut published).await?;
            if !published.contains(&line) {
                let text = format!("{line}{published}");
                self.publish(text, &mut published).await?;
            }
            if self.keyring.ids().contains(&id) {
                return Ok(published.lines().filter(|other| !line.starts_with(other)).count());
            }
        }
        Err(EtcdError::Request("the identity keeps changing".to_owned()))
    }

    /// Drops all keys but the active one, if the identity is still that of `revision`.
    pub(super) async fn retire_keys(&self, revision: i64) -> Result<bool, EtcdError> {
        let mut published = self.published.lock().await;
        if self.revision() != revision {
            return Ok(false);
        }
        let text: String = published.lines().take(1).flat_map(|line| [line, "\n"]).collect();
        if *published == text || self.publish(text, &mut published).await? {
            return Ok(true);
        }
        self.read(&mut published).await?;
        Ok(false)
    }

    /// Replaces the keyring, unless somebody else has changed it. `false` may also mean that the
    /// outcome is not known; whoever reads again learns it.
    async fn publish(&self, text: String, published: &mut String) -> Result<bool, EtcdError> {
        let contents = Contents { keyring: text, payload: self.payload.clone() };
        let put = PutRequest { key: self.key.clone(), value: self.cipher.seal(&self.key, &contents) };
        let request = TxnRequest {
            compare: vec![Compare::unchanged(self.key.clone(), self.revision())],
            success: vec![Request::Put(put).into()],
            failure: Vec::new(),
        };
        match self.client.txn(request).await {
            Ok(response) if response.succeeded => {
                let revision = response.header.unwrap_or_default().revision;
                self.adopt(contents.keyring, revision, published)?;
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(failure) if failure.is_definite() => {
                Err(EtcdError::Request(failure.status.message().to_owned()))
            }
            Err(_) => Ok(false),
        }
    }
}

async fn find(client: &Client, key: &Bytes) -> Result<Option<KeyValue>, EtcdError> {
    let request = RangeRequest { key: key.clone(), limit: 1, ..RangeRequest::default() };
    let found = client.range(request).await;
    let mut found = found.map_err(|status| EtcdError::Request(status.message().to_owned()))?;
    Ok(found.kvs.pop())
}

fn foreign(key: &[u8], detail: &str) -> EtcdError {
    EtcdError::Foreign { key: String::from_utf8_lossy(key).into_owned(), detail: detail.to_owned() }
}

/// The key derived from the secret. The secret itself is not kept.
struct Cipher {
    header: [u8; HEADER],
    aead: LessSafeKey,
}

impl Cipher {
    async fn generate(secret: &str) -> Result<Self, EtcdError> {
        let mut header = [0; HEADER];
        header[0] = FORMAT;
        header[1..5].copy_from_slice(&ROUNDS.to_le_bytes());
        random::fill(&mut header[5..]).expect("the system gives random bytes");
        Self::derive(header, secret).await
    }

    async fn derive(header: [u8; HEADER], secret: &str) -> Result<Self, EtcdError> {
        let rounds = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
        let rounds = std::num::NonZeroU32::new(rounds).filter(|rounds| rounds.get() <= MOST_ROUNDS);
        let rounds = rounds.ok_or_else(|| foreign(b"the identity", "it makes no sense"))?;
        let secret = secret.to_owned();
        let deriving = tokio::task::spawn_blocking(move || {
            let mut key = [0; 32];
            let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
            pbkdf2::derive(algorithm, rounds, &header[5..], secret.as_bytes(), &mut key);
            LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).expect("the key has the right length"))
        });
        let aead = deriving.await.map_err(|error| EtcdError::Request(error.to_string()))?;
        Ok(Self { header, aead })
    }

    /// Binds a value to its format, its salt and the place where it is stored.
    fn bound_to(&self, key: &[u8]) -> Vec<u8> {
        [&self.header[..], key].concat()
    }

    fn seal(&self, key: &[u8], contents: &Contents) -> Bytes {
        let mut nonce = [0; NONCE_LEN];
        random::fill(&mut nonce).expect("the system gives random bytes");
        let mut text = (contents.keyring.len() as u32).to_le_bytes().to_vec();
        text.extend_from_slice(contents.keyring.as_bytes());
        text.extend_from_slice(&contents.payload);
        let aad = Aad::from(self.bound_to(key));
        self.aead
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut text)
            .expect("an identity is far below the cipher's length limit");
        [&self.header[..], &nonce, &text].concat().into()
    }

    /// `None` if it was sealed with another secret, or is damaged.
    fn open(&self, key: &[u8], value: &[u8]) -> Result<Option<Contents>, EtcdError> {
        let Some(rest) = value.strip_prefix(&self.header) else { return Ok(None) };
        let Some((nonce, sealed)) = rest.split_at_checked(NONCE_LEN) else { return Ok(None) };
        let Ok(nonce) = Nonce::try_assume_unique_for_key(nonce) else { return Ok(None) };
        let mut sealed = sealed.to_vec();
        let Ok(text) = self.aead.open_in_place(nonce, Aad::from(self.bound_to(key)), &mut sealed) else {
            return Ok(None);
        };
        let parse = || {
            let (len, rest) = text.split_first_chunk::<4>()?;
            let (keyring, payload) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
            let keyring = std::str::from_utf8(keyring).ok()?.to_owned();
            Some(Contents { keyring, payload: payload.to_vec() })
        };
        parse().map(Some).ok_or_else(|| foreign(key, "the identity makes no sense"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_identity_opens_with_its_secret_in_its_place_only() {
        let mut header = [7; HEADER];
        header[..5].copy_from_slice(&[FORMAT, 9, 0, 0, 0]);
        let cipher = Cipher::derive(header, "correct horse battery").await.unwrap();
        let contents = Contents { keyring: "ring".to_owned(), payload: b"payload".to_vec() };
        let sealed = cipher.seal(b"/remuda-identity", &contents);
        assert!(!sealed.windows(4).any(|part| part == b"ring" || part == b"payl"));
        let opened = cipher.open(b"/remuda-identity", &sealed).unwrap().unwrap();
        assert_eq!((opened.keyring.as_str(), &opened.payload[..]), ("ring", &b"payload"[..]));
        assert!(cipher.open(b"/other-identity", &sealed).unwrap().is_none());
        let other = Cipher::derive(header, "incorrect horse battery").await.unwrap();
        assert!(other.open(b"/remuda-identity", &sealed).unwrap().is_none());
        for index in 0..sealed.len() {
            let mut bad = sealed.to_vec();
            bad[index] ^= 1;
            assert!(cipher.open(b"/remuda-identity", &bad).unwrap().is_none());
            assert!(cipher.open(b"/remuda-identity", &sealed[..index]).unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn an_identity_that_would_keep_us_busy_is_refused() {
        for rounds in [0, MOST_ROUNDS + 1] {
            let mut header = [FORMAT; HEADER];
            header[1..5].copy_from_slice(&rounds.to_le_bytes());
            assert!(matches!(Cipher::derive(header, "secret").await, Err(EtcdError::Foreign { .. })));
        }
    }
}
