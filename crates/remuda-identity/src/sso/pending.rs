//! A login that is under way at a provider.
//!
//! Everything about it is in a cookie of the browser that began it, sealed with a key of this process: whoever
//! begins logins and never ends them costs nothing here. A login is good once.

use std::collections::HashMap;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey},
    digest, rand,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use remuda_auth::tokens::RandomError;
use serde::{Deserialize, Serialize};

/// For people to log in at their provider.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);
/// Logins that came back and are not forgotten yet.
const MOST: usize = 10_000;
const LARGEST: usize = 4096;

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
    until: i64,
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
}

/// 256 random bits as text.
pub(crate) fn random() -> Result<String, RandomError> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).map_err(|_| RandomError)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// What is told of a secret until it is shown: `S256` of RFC 7636.
pub(crate) fn challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()))
}

/// Seals logins, and knows which have come back.
pub(crate) struct Seal {
    key: RandomizedNonceKey,
    used: Mutex<HashMap<String, i64>>,
}

impl Seal {
    pub(crate) fn new() -> Result<Self, RandomError> {
        let mut key = [0; 32];
        rand::fill(&mut key).map_err(|_| RandomError)?;
        let key = RandomizedNonceKey::new(&AES_256_GCM, &key).map_err(|_| RandomError)?;
        Ok(Self { key, used: Mutex::default() })
    }

    pub(crate) fn close(&self, pending: &Pending) -> Result<String, RandomError> {
        let mut text = serde_json::to_vec(pending).map_err(|_| RandomError)?;
        let nonce = self.key.seal_in_place_append_tag(Aad::empty(), &mut text).map_err(|_| RandomError)?;
        Ok(URL_SAFE_NO_PAD.encode([nonce.as_ref().as_slice(), &text].concat()))
    }

    /// The login that began with this cookie, if it is the one that comes back with `state`, for the first time
    /// and in time.
    pub(crate) fn open(&self, sealed: &str, state: &str, now: Timestamp) -> Option<Pending> {
        if sealed.len() > LARGEST {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_at_checked(aws_lc_rs::aead::NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let text = self.key.open_in_place(nonce, Aad::empty(), &mut text).ok()?;
        let pending: Pending = serde_json::from_slice(text).ok()?;
        let same = subtle::ConstantTimeEq::ct_eq(pending.state.as_bytes(), state.as_bytes());
        let now = now.as_second();
        if !bool::from(same) || pending.until <= now {
            return None;
        }
        let mut used = self.used.lock();
        if used.len() >= MOST {
            used.retain(|_, until| *until > now);
        }
        // Full of fresh ones: better nobody than somebody twice.
        if used.len() >= MOST || used.insert(pending.state.clone(), pending.until).is_some() {
            return None;
        }
        Some(pending)
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
    fn a_login_comes_back_once_to_where_it_began() {
        let seal = Seal::new().unwrap();
        let (pending, other) = (pending(), pending());
        let cookie = seal.close(&pending).unwrap();
        assert!(!cookie.contains(&pending.state));
        assert_eq!(seal.open(&cookie, &other.state, now()), None, "another login's state");
        assert_eq!(seal.open(&cookie, "", now()), None);
        assert_eq!(seal.open(&cookie, &pending.state, now() + SignedDuration::from_mins(10)), None, "late");
        assert_eq!(Seal::new().unwrap().open(&cookie, &pending.state, now()), None, "another server's");
        assert_eq!(seal.open(&cookie, &pending.state, now()), Some(pending.clone()));
        assert_eq!(seal.open(&cookie, &pending.state, now()), None, "again");
        for odd in ["", "AA", "!!", &"A".repeat(100), &"A".repeat(LARGEST + 1)] {
            assert_eq!(seal.open(odd, &pending.state, now()), None);
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
