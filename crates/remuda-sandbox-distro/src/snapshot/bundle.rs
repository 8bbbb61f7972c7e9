//! The identity of a cluster — authorities, keys — sealed with the token of its servers.
//!
//! It goes with the state, as it does in K3s: who has a snapshot and the token has the cluster, and neither is enough
//! alone.

use std::collections::BTreeMap;

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    digest, pbkdf2,
};

const SALT: usize = 16;
const ROUNDS: std::num::NonZeroU32 = std::num::NonZeroU32::new(10_000).expect("it is not zero");

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BundleError {
    #[error("the identity of the cluster cannot be opened with this token")]
    Token,
    #[error("the identity of the cluster is damaged")]
    Damaged,
}

/// Under which key a store holds it. It tells one token from another, and nothing about either.
pub fn name(password: &str) -> String {
    let hash = digest::digest(&digest::SHA256, password.as_bytes());
    format!("/bootstrap/{}", &remuda_base::hex(hash)[..12])
}

fn key(password: &str, salt: &[u8]) -> RandomizedNonceKey {
    let mut key = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, salt, password.as_bytes(), &mut key);
    RandomizedNonceKey::new(&AES_256_GCM, &key).expect("the key has the length of one")
}

pub fn seal(password: &str, files: &BTreeMap<String, String>) -> Vec<u8> {
    let mut salt = [0; SALT];
    aws_lc_rs::rand::fill(&mut salt).expect("the system gives random bytes");
    let mut sealed = serde_json::to_vec(files).expect("a map of text");
    let nonce =
        key(password, &salt).seal_in_place_append_tag(Aad::empty(), &mut sealed).expect("files are short");
    [&salt[..], nonce.as_ref(), &sealed].concat()
}

pub fn open(password: &str, bundle: &[u8]) -> Result<BTreeMap<String, String>, BundleError> {
    let (salt, rest) = bundle.split_at_checked(SALT).ok_or(BundleError::Damaged)?;
    let (nonce, sealed) = rest.split_at_checked(NONCE_LEN).ok_or(BundleError::Damaged)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| BundleError::Damaged)?;
    let mut sealed = sealed.to_vec();
    let opened = key(password, salt).open_in_place(nonce, Aad::empty(), &mut sealed);
    serde_json::from_slice(opened.map_err(|_| BundleError::Token)?).map_err(|_| BundleError::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_opens_it() {
        let files = BTreeMap::from([("tls/server-ca.key".to_owned(), "key".to_owned())]);
        let sealed = seal("secret", &files);
        assert_eq!(open("secret", &sealed), Ok(files));
        assert_eq!(open("other", &sealed), Err(BundleError::Token));
        assert_eq!(open("secret", &sealed[..20]), Err(BundleError::Damaged));
        assert_ne!(name("secret"), name("other"));
    }
}
