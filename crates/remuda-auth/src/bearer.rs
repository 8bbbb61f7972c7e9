//! Keys of tokens that look like `name:key`, and how they are stored.
//!
//! A key is random and long, so a single round of a hash is enough: nobody can try them all. The formats are
//! Rancher's; version 1, which is slow and was replaced long ago, is not taken.

use aws_lc_rs::{digest, rand};
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use subtle::ConstantTimeEq;

use crate::tokens::RandomError;

/// Letters that are hard to confuse and make no words.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const LENGTH: usize = 54;
const SALT: usize = 8;
/// How hashes of the newest kind begin.
const CURRENT: &str = "$3:1:";

/// The key of a new token.
pub fn generate() -> Result<String, RandomError> {
    letters(LENGTH)
}

/// Random letters, each equally likely.
pub fn letters(length: usize) -> Result<String, RandomError> {
    let limit = 256 - 256 % LETTERS.len();
    let mut out = String::with_capacity(length);
    while out.len() < length {
        let mut bytes = [0; 64];
        rand::fill(&mut bytes).map_err(|_| RandomError)?;
        let good = bytes.iter().map(|byte| usize::from(*byte)).filter(|byte| *byte < limit);
        out.extend(good.take(length - out.len()).map(|byte| char::from(LETTERS[byte % LETTERS.len()])));
    }
    Ok(out)
}

/// What is stored of a key.
pub fn hash(key: &str) -> Result<String, RandomError> {
    let mut salt = [0; SALT];
    rand::fill(&mut salt).map_err(|_| RandomError)?;
    Ok(with_salt(key, &salt))
}

fn with_salt(key: &str, salt: &[u8]) -> String {
    let digest = salted(&digest::SHA3_512, salt, key);
    format!("{CURRENT}{}:{}", STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(digest))
}

fn salted(algorithm: &'static digest::Algorithm, salt: &[u8], key: &str) -> digest::Digest {
    let mut context = digest::Context::new(algorithm);
    context.update(salt);
    context.update(key.as_bytes());
    context.finish()
}

/// Whether this is a hash of the newest kind, which every server and authenticator can check.
pub fn is_current(stored: &str) -> bool {
    stored.starts_with(CURRENT) && Stored::parse(stored, true).is_some()
}

/// Whether a key is the one of which this is stored.
pub fn matches(stored: &str, key: &str) -> bool {
    Stored::parse(stored, true).is_some_and(|stored| stored.verify(key))
}

/// What is stored of a token, taken apart once.
#[derive(Clone, PartialEq, Eq)]
pub enum Stored {
    /// As it is, by servers that do not hash.
    Plain(String),
    Hashed {
        algorithm: &'static digest::Algorithm,
        salt: Vec<u8>,
        digest: Vec<u8>,
    },
}

impl Stored {
    /// Nothing if it is empty or of an unknown kind: then no key is right.
    pub fn parse(text: &str, hashed: bool) -> Option<Self> {
        if !hashed && !text.starts_with('$') {
            return Some(Self::Plain(text.to_owned())).filter(|_| !text.is_empty());
        }
        let (algorithm, rest) = if let Some(rest) = text.strip_prefix(CURRENT) {
            (&digest::SHA3_512, rest)
        } else {
            (&digest::SHA256, text.strip_prefix("$2:")?)
        };
        let (salt, digest) = rest.split_once(':')?;
        let salt = STANDARD_NO_PAD.decode(salt).ok()?;
        let digest = STANDARD_NO_PAD.decode(digest).ok()?;
        (digest.len() == algorithm.output_len()).then_some(Self::Hashed { algorithm, salt, digest })
    }

    pub fn verify(&self, key: &str) -> bool {
        match self {
            Self::Plain(stored) => bool::from(stored.as_bytes().ct_eq(key.as_bytes())),
            Self::Hashed { algorithm, salt, digest } => {
                bool::from(salted(algorithm, salt, key).as_ref().ct_eq(digest))
            }
        }
    }
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stored")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_long_and_of_few_letters() {
        let (one, other) = (generate().unwrap(), generate().unwrap());
        assert!(one != other && one.len() == 54 && one.bytes().all(|letter| LETTERS.contains(&letter)));
    }

    #[test]
    fn only_the_key_itself_is_right() {
        let stored = hash("secret").unwrap();
        assert!(stored.starts_with("$3:1:") && stored != hash("secret").unwrap());
        let stored = Stored::parse(&stored, true).unwrap();
        assert!(stored.verify("secret"));
        for wrong in ["", "secre", "secrets", "Secret"] {
            assert!(!stored.verify(wrong));
        }
        let plain = Stored::parse("secret", false).unwrap();
        assert!(plain.verify("secret") && !plain.verify("secre"));
    }

    #[test]
    fn the_former_format_is_read() {
        let digest = STANDARD_NO_PAD.encode(salted(&digest::SHA256, b"saltsalt", "secret"));
        let text = format!("$2:{}:{digest}", STANDARD_NO_PAD.encode("saltsalt"));
        assert!(Stored::parse(&text, true).unwrap().verify("secret"));
        assert!(!is_current(&text) && !is_current("secret") && !is_current("$3:1:x"));
        assert!(is_current(&hash("secret").unwrap()));
    }

    #[test]
    fn a_hash_is_never_a_key_and_nonsense_fits_nothing() {
        let text = hash("secret").unwrap();
        assert!(!Stored::parse(&text, false).unwrap().verify(&text), "whoever reads a hash cannot log in");
        for bad in ["", "$1:aa:15:8:1:bb", "$3:1:x", "$3:1::", "$3:2:YQ:YQ", "$2:YQ:YQ", "$"] {
            assert!(Stored::parse(bad, true).is_none(), "{bad}");
        }
        assert!(Stored::parse("", false).is_none());
    }
}
