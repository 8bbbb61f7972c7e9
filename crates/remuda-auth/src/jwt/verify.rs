//! Checking tokens.
//!
//! A signature costs about a hundred microseconds, and agents send the same token with every request. So
//! outcomes of good signatures are remembered, by the hash of the token; everything that depends on the
//! time or on the audience asked for is checked again each time.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    LEGACY_ISSUER,
    claims::{ClaimsError, ServiceAccountToken},
};
use crate::keys::{PublicKey, sha256};

/// Clocks of nodes differ.
pub const LEEWAY_SECONDS: i64 = 60;

/// Longer than any token we sign; what is longer is not worth hashing.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Tokens remembered per generation.
const CACHE_SIZE: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Not a JSON web token of one of our issuers: other ways to authenticate may know it.
    #[error("not a service account token")]
    NotOurs,
    #[error("invalid signature, no keys found")]
    NoKey,
    #[error("invalid signature")]
    Signature,
    #[error("token audiences {} is invalid for the target audiences {}", list(.token), list(.wanted))]
    Audience { token: Vec<String>, wanted: Vec<String> },
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYetValid,
    #[error("service account token is issued in the future")]
    IssuedInFuture,
    #[error(transparent)]
    Claims(#[from] ClaimsError),
}

fn list(items: &[String]) -> String {
    let mut out = String::new();
    remuda_base::quote::push_list(&mut out, items);
    out
}

/// Verifies tokens with a fixed set of keys; to rotate keys, make a new one.
#[derive(Debug)]
pub struct Verifier {
    keys: Vec<PublicKey>,
    issuers: Vec<String>,
    audiences: Vec<String>,
    cache: Mutex<Cache>,
}

impl Verifier {
    /// `issuers` beside the one of legacy tokens; `audiences` are those of this API server.
    pub fn new(keys: Vec<PublicKey>, issuers: Vec<String>, audiences: Vec<String>) -> Self {
        Self { keys, issuers, audiences, cache: Mutex::default() }
    }

    pub fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// The audiences of this API server: the default of a TokenRequest.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// Accepts a token meant for this API server. `now` is in seconds since the epoch.
    pub fn verify(&self, token: &str, now: i64) -> Result<Arc<ServiceAccountToken>, VerifyError> {
        let verified = self.verify_signature(token)?;
        check_times(&verified, now)?;
        let meant = verified.audiences.is_empty()
            || verified.audiences.iter().any(|audience| self.audiences.contains(audience));
        if !meant {
            return Err(wrong_audience(&verified.audiences, &self.audiences));
        }
        Ok(verified)
    }

    /// Accepts a token meant for any of `wanted` (empty: this API server), and says for which.
    pub fn verify_for(
        &self,
        token: &str,
        now: i64,
        wanted: &[String],
    ) -> Result<(Arc<ServiceAccountToken>, Vec<String>), VerifyError> {
        let verified = self.verify_signature(token)?;
        check_times(&verified, now)?;
        let wanted = if wanted.is_empty() { &self.audiences } else { wanted };
        // Legacy tokens name no audience: they are for the API server alone.
        let given = if verified.audiences.is_empty() { &self.audiences } else { &verified.audiences };
        let common: Vec<String> =
            given.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
        if common.is_empty() {
            return Err(wrong_audience(given, wanted));
        }
        Ok((verified, common))
    }

    fn verify_signature(&self, token: &str) -> Result<Arc<ServiceAccountToken>, VerifyError> {
        if token.len() > MAX_TOKEN_BYTES || !token.starts_with("ey") {
            return Err(VerifyError::NotOurs);
        }
        let hash = sha256(token.as_bytes());
        if let Some(known) = self.cache.lock().get(&hash) {
            return Ok(known);
        }
        let verified = Arc::new(self.verify_afresh(token)?);
        self.cache.lock().insert(hash, verified.clone());
        Ok(verified)
    }

    fn verify_afresh(&self, token: &str) -> Result<ServiceAccountToken, VerifyError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(VerifyError::NotOurs)?;
        let (header, claims) = signed.split_once('.').ok_or(VerifyError::NotOurs)?;
        let header = decode_json(header).ok_or(VerifyError::NotOurs)?;
        let claims = decode_json(claims).ok_or(VerifyError::NotOurs)?;
        let issuer = claims.get("iss").and_then(Value::as_str).unwrap_or("");
        let legacy = issuer == LEGACY_ISSUER;
        if !legacy && !self.issuers.iter().any(|own| own == issuer) {
            return Err(VerifyError::NotOurs);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| VerifyError::Signature)?;
        let text = |key: &str| header.get(key).and_then(Value::as_str).unwrap_or("");
        let (kid, algorithm) = (text("kid"), text("alg"));
        let mut found = false;
        let good = self.keys.iter().filter(|key| kid.is_empty() || key.id() == kid).any(|key| {
            found = true;
            // The key decides how it is used, never the token.
            key.algorithm().name() == algorithm && key.verify(signed.as_bytes(), &signature)
        });
        if !found {
            return Err(VerifyError::NoKey);
        }
        if !good {
            return Err(VerifyError::Signature);
        }
        let token = ServiceAccountToken::parse(&claims)?;
        // Each form of claims belongs to its own issuer.
        if token.legacy != legacy {
            return Err(VerifyError::NotOurs);
        }
        Ok(token)
    }
}

fn decode_json(part: &str) -> Option<Value> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

fn wrong_audience(token: &[String], wanted: &[String]) -> VerifyError {
    VerifyError::Audience { token: token.to_vec(), wanted: wanted.to_vec() }
}

fn check_times(token: &ServiceAccountToken, now: i64) -> Result<(), VerifyError> {
    if token.not_before.is_some_and(|time| now.saturating_add(LEEWAY_SECONDS) < time) {
        return Err(VerifyError::NotYetValid);
    }
    if token.expires.is_some_and(|time| now.saturating_sub(LEEWAY_SECONDS) > time) {
        return Err(VerifyError::Expired);
    }
    if token.issued_at.is_some_and(|time| now.saturating_add(LEEWAY_SECONDS) < time) {
        return Err(VerifyError::IssuedInFuture);
    }
    Ok(())
}

/// Two generations: when the young one is full it becomes the old one, and what nobody asked for since
/// is dropped with the one before. Least recently used, roughly, at the price of a hash map.
#[derive(Debug, Default)]
struct Cache {
    young: HashMap<[u8; 32], Arc<ServiceAccountToken>>,
    old: HashMap<[u8; 32], Arc<ServiceAccountToken>>,
}

impl Cache {
    fn get(&mut self, hash: &[u8; 32]) -> Option<Arc<ServiceAccountToken>> {
        if let Some(known) = self.young.get(hash) {
            return Some(known.clone());
        }
        let known = self.old.remove(hash)?;
        self.insert(*hash, known.clone());
        Some(known)
    }

    fn insert(&mut self, hash: [u8; 32], token: Arc<ServiceAccountToken>) {
        if self.young.len() >= CACHE_SIZE {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, token);
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
