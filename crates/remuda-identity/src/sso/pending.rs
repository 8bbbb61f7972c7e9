//! A login that is under way at a provider.
//!
//! Everything about it is in a cookie of the browser that began it, sealed with a key all servers have: it ends at
//! any of them, and whoever begins logins and never ends them costs nothing.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey},
    digest, rand,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use remuda_auth::tokens::RandomError;
use serde::{Deserialize, Serialize};

/// For people to log in at their provider.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);
const LARGEST: usize = 4096;
/// Bytes of a key.
pub(crate) const KEY_LENGTH: usize = 32;

/// Where somebody goes who has logged in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Back {
    /// A page of this server.
    Page(String),
    /// A program on the same machine that waits at a port. It knows what `challenge` is the hash of.
    Program { port: u16, state: String, challenge: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) state: String,
    pub(crate) nonce: String,
    pub(crate) verifier: String,
    /// As it was told to the provider.
    pub(crate) redirect: String,
    pub(crate) back: Back,
    /// Second it ends.
    pub(crate) until: i64,
}

impl Pending {
    pub(crate) fn new(redirect: String, back: Back, now: Timestamp) -> Result<Self, RandomError> {
        Ok(Self {
            state: random()?,
            nonce: random()?,
            verifier: random()?,
            redirect,
            back,
            until: (now + PATIENCE).as_second(),
        })
    }

    pub(crate) fn challenge(&self) -> String {
        challenge(&self.verifier)
    }

    /// Whether this is the login that comes back with `state`, and in time.
    pub(crate) fn comes_back(&self, state: &str, now: Timestamp) -> bool {
        let same = subtle::ConstantTimeEq::ct_eq(self.state.as_bytes(), state.as_bytes());
        bool::from(same) && now.as_second() < self.until
    }
}

/// 256 random bits as text.
pub(crate) fn random() -> Result<String, RandomError> {
    Ok(URL_SAFE_NO_PAD.encode(key()?))
}

/// 256 random bits.
pub(crate) fn key() -> Result<[u8; KEY_LENGTH], RandomError> {
    let mut bytes = [0; KEY_LENGTH];
    rand::fill(&mut bytes).map_err(|_| RandomError)?;
    Ok(bytes)
}

/// What is told of a secret until it is shown: `S256` of RFC 7636.
pub(crate) fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()))
}

/// Seals logins with a key.
pub(crate) struct Seal {
    key: RandomizedNonceKey,
}

impl Seal {
    pub(crate) fn new(key: &[u8; KEY_LENGTH]) -> Result<Self, RandomError> {
        let key = RandomizedNonceKey::new(&AES_256_GCM, key).map_err(|_| RandomError)?;
        Ok(Self { key })
    }

    pub(crate) fn close(&self, pending: &Pending) -> Result<String, RandomError> {
        let mut text = serde_json::to_vec(pending).map_err(|_| RandomError)?;
        let nonce = self.key.seal_in_place_append_tag(Aad::empty(), &mut text).map_err(|_| RandomError)?;
        Ok(URL_SAFE_NO_PAD.encode([nonce.as_ref().as_slice(), &text].concat()))
    }

    /// The login that began with this cookie. Whether it is the one that comes back is for
    /// [`Pending::comes_back`] to say.
    pub(crate) fn open(&self, sealed: &str) -> Option<Pending> {
        if sealed.len() > LARGEST {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_at_checked(aws_lc_rs::aead::NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let text = self.key.open_in_place(nonce, Aad::empty(), &mut text).ok()?;
        serde_json::from_slice(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-11-16T04:00:00Z".parse().unwrap()
    }

    fn pending() -> Pending {
        Pending::new("https://r/verify-auth".to_owned(), Back::Page("/x".to_owned()), now()).unwrap()
    }

    #[test]
    fn a_login_comes_back_to_any_server_with_its_key_and_in_time() {
        let (shared, own) = (key().unwrap(), key().unwrap());
        let seal = Seal::new(&shared).unwrap();
        let (pending, other) = (pending(), pending());
        let cookie = seal.close(&pending).unwrap();
        assert!(!cookie.contains(&pending.state));
        assert_eq!(Seal::new(&own).unwrap().open(&cookie), None, "another key");
        let opened = Seal::new(&shared).unwrap().open(&cookie).unwrap();
        assert_eq!(opened, pending);
        assert!(opened.comes_back(&pending.state, now()));
        assert!(!opened.comes_back(&other.state, now()), "another login's state");
        assert!(!opened.comes_back("", now()));
        assert!(!opened.comes_back(&pending.state, now() + PATIENCE), "late");
        for odd in ["", "AA", "!!", &"A".repeat(100), &"A".repeat(LARGEST + 1)] {
            assert_eq!(seal.open(odd), None);
        }
    }

    #[test]
    fn a_challenge_is_that_of_the_standard() {
        assert_eq!(
            challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }
}
