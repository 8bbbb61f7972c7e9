//! Opaque bearer tokens: a fixed table, and bootstrap tokens kept in Secrets.

use std::{collections::HashMap, fmt, sync::Arc};

use aws_lc_rs::rand;
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use jiff::Timestamp;
use serde_json::Value;
use subtle::ConstantTimeEq;

use crate::{
    identity::{BOOTSTRAP_PREFIX, GROUP_AUTHENTICATED, GROUP_BOOTSTRAPPERS, User},
    keys::sha256,
};

/// Tokens given at start. Only their hashes are kept.
#[derive(Default)]
pub struct StaticTokens {
    /// By the first bytes of the hash; what remains is compared in constant time.
    entries: HashMap<[u8; 8], Vec<Entry>>,
}

struct Entry {
    hash: [u8; 32],
    user: Arc<User>,
}

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticTokens({})", self.entries.len())
    }
}

impl StaticTokens {
    /// An empty token would let in everybody without one, so it is ignored.
    pub fn insert(&mut self, token: &str, user: User) {
        if !token.is_empty() {
            self.insert_hash(sha256(token.as_bytes()), user);
        }
    }

    /// For tables that are stored hashed.
    pub fn insert_hash(&mut self, hash: [u8; 32], user: User) {
        self.entries
            .entry(prefix(&hash))
            .or_default()
            .push(Entry { hash, user: Arc::new(user.authenticated()) });
    }

    pub fn authenticate(&self, token: &str) -> Option<Arc<User>> {
        if self.entries.is_empty() {
            return None;
        }
        let hash = sha256(token.as_bytes());
        let candidates = self.entries.get(&prefix(&hash))?;
        let entry = candidates.iter().find(|entry| bool::from(entry.hash.ct_eq(&hash)))?;
        Some(entry.user.clone())
    }
}

fn prefix(hash: &[u8; 32]) -> [u8; 8] {
    let mut prefix = [0; 8];
    prefix.copy_from_slice(&hash[..8]);
    prefix
}

/// Type of the Secrets that hold bootstrap tokens.
pub const BOOTSTRAP_SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// Namespace of those Secrets.
pub const BOOTSTRAP_SECRET_NAMESPACE: &str = "kube-system";
const BOOTSTRAP_SECRET_PREFIX: &str = "bootstrap-token-";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

/// A token of the form `<id>.<secret>` by which machines join.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    pub id: String,
    secret: String,
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapToken({})", self.id)
    }
}

/// Why a Secret does not vouch for a bootstrap token. For the log: the caller only learns 401.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapRefusal {
    #[error("is deleted and awaiting removal")]
    Deleting,
    #[error("has invalid type, expected bootstrap.kubernetes.io/token")]
    Type,
    #[error("has invalid value for key token-secret")]
    Secret,
    #[error("has invalid value for key token-id")]
    Id,
    #[error("has expired")]
    Expired,
    #[error("has an unparseable expiration")]
    Expiration,
    #[error("not marked usage-bootstrap-authentication=true")]
    Usage,
    #[error("has invalid value for key auth-extra-groups: {0}")]
    Groups(String),
}

impl BootstrapToken {
    /// `None` if the text has another form: then it is some other kind of token.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.split_once('.')?;
        let plain = |part: &str| part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let valid = id.len() == ID_LENGTH && secret.len() == SECRET_LENGTH && plain(id) && plain(secret);
        valid.then(|| Self { id: id.to_owned(), secret: secret.to_owned() })
    }

    pub fn generate() -> Result<Self, RandomError> {
        let id = random_from(b"abcdefghijklmnopqrstuvwxyz0123456789", ID_LENGTH)?;
        let secret = random_from(b"abcdefghijklmnopqrstuvwxyz0123456789", SECRET_LENGTH)?;
        Ok(Self { id, secret })
    }

    /// The whole token. Secret.
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// The name of the Secret to evaluate.
    pub fn secret_name(&self) -> String {
        format!("{BOOTSTRAP_SECRET_PREFIX}{}", self.id)
    }

    /// The user this token stands for, if the Secret of that name vouches for it.
    pub fn authenticate(&self, secret: &Value, now: Timestamp) -> Result<User, BootstrapRefusal> {
        if secret.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
            return Err(BootstrapRefusal::Deleting);
        }
        if secret.get("type").and_then(Value::as_str) != Some(BOOTSTRAP_SECRET_TYPE) {
            return Err(BootstrapRefusal::Type);
        }
        let data = |key: &str| data(secret, key);
        if !bool::from(data("token-secret").as_bytes().ct_eq(self.secret.as_bytes())) {
            return Err(BootstrapRefusal::Secret);
        }
        if data("token-id") != self.id {
            return Err(BootstrapRefusal::Id);
        }
        if is_expired(&data("expiration"), now)? {
            return Err(BootstrapRefusal::Expired);
        }
        if data("usage-bootstrap-authentication") != "true" {
            return Err(BootstrapRefusal::Usage);
        }
        let mut groups = vec![GROUP_BOOTSTRAPPERS.to_owned()];
        groups.extend(extra_groups(&data("auth-extra-groups"))?);
        groups.sort();
        groups.dedup();
        groups.push(GROUP_AUTHENTICATED.to_owned());
        Ok(User::new(format!("{BOOTSTRAP_PREFIX}{}", self.id), groups))
    }
}

fn data(secret: &Value, key: &str) -> String {
    let encoded = secret.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    let bytes = encoded.and_then(|encoded| STANDARD.decode(encoded).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

fn is_expired(expiration: &str, now: Timestamp) -> Result<bool, BootstrapRefusal> {
    if expiration.is_empty() {
        return Ok(false);
    }
    let time: Timestamp = expiration.parse().map_err(|_| BootstrapRefusal::Expiration)?;
    Ok(now >= time)
}

/// One bad group spoils the token: it must not quietly lose or gain rights.
fn extra_groups(list: &str) -> Result<Vec<String>, BootstrapRefusal> {
    let groups = list.split(',').map(str::trim).filter(|_| !list.is_empty());
    groups
        .map(|group| {
            let rest = group.strip_prefix(GROUP_BOOTSTRAPPERS).and_then(|rest| rest.strip_prefix(':'));
            let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
            let valid = rest.is_some_and(|rest| {
                rest.len() <= 256
                    && rest.bytes().all(|b| letter(b) || b == b':' || b == b'-')
                    && rest.bytes().last().is_some_and(letter)
            });
            if valid { Ok(group.to_owned()) } else { Err(BootstrapRefusal::Groups(group.to_owned())) }
        })
        .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("read the system's random numbers")]
pub struct RandomError;

/// A token nobody can guess: `bytes` random bytes, at least 16, in base64url.
pub fn random_token(bytes: usize) -> Result<String, RandomError> {
    let mut data = vec![0; bytes.max(16)];
    rand::fill(&mut data).map_err(|_| RandomError)?;
    Ok(URL_SAFE_NO_PAD.encode(data))
}

/// Each letter equally likely: bytes beyond the last multiple of the alphabet's size are thrown away.
fn random_from(alphabet: &[u8], length: usize) -> Result<String, RandomError> {
    let limit = 256 - 256 % alphabet.len();
    let mut out = String::with_capacity(length);
    while out.len() < length {
        let mut data = [0; 32];
        rand::fill(&mut data).map_err(|_| RandomError)?;
        let letters = data.iter().map(|byte| usize::from(*byte)).filter(|byte| *byte < limit);
        out.extend(letters.take(length - out.len()).map(|byte| char::from(alphabet[byte % alphabet.len()])));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-11-15T12:00:00Z".parse().unwrap()
    }

    fn secret(changes: &[(&str, &str)]) -> Value {
        let mut data = json!({});
        let usual = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, value) in usual.iter().chain(changes) {
            data[*key] = STANDARD.encode(value).into();
        }
        json!({"type": "bootstrap.kubernetes.io/token", "metadata": {"name": "bootstrap-token-abcdef"}, "data": data})
    }

    #[test]
    fn only_tokens_in_the_table_are_known() {
        let mut tokens = StaticTokens::default();
        tokens.insert("s3cret", User::new("admin", ["system:masters"]));
        tokens.insert("", User::new("nobody", ["g"]));
        let user = tokens.authenticate("s3cret").unwrap();
        assert_eq!(user.groups, ["system:masters", "system:authenticated"]);
        for wrong in ["", "s3cre", "s3crets", "S3cret"] {
            assert_eq!(tokens.authenticate(wrong), None);
        }
    }

    #[test]
    fn bootstrap_tokens_have_one_form() {
        assert_eq!(
            BootstrapToken::parse("abcdef.0123456789abcdef").unwrap().secret_name(),
            "bootstrap-token-abcdef"
        );
        for text in [
            "",
            "abcdef",
            "abcde.0123456789abcdef",
            "abcdef.0123456789abcde",
            "Abcdef.0123456789abcdef",
            "abcdef.0123456789abcde.",
            "abcdef.0123456789abcdeé",
        ] {
            assert_eq!(BootstrapToken::parse(text), None, "{text}");
        }
        let token = BootstrapToken::generate().unwrap();
        assert_eq!(BootstrapToken::parse(&token.reveal()), Some(token.clone()));
        assert!(!format!("{token:?}").contains(&token.secret));
    }

    #[test]
    fn a_bootstrap_secret_vouches_or_says_why_not() {
        let token = BootstrapToken::parse("abcdef.0123456789abcdef").unwrap();
        let check = |secret: Value| token.authenticate(&secret, now());
        let user =
            check(secret(&[("auth-extra-groups", "system:bootstrappers:b, system:bootstrappers:a:1")]))
                .unwrap();
        assert_eq!(user.name, "system:bootstrap:abcdef");
        assert_eq!(
            user.groups,
            [
                "system:bootstrappers",
                "system:bootstrappers:a:1",
                "system:bootstrappers:b",
                "system:authenticated"
            ]
        );
        assert!(check(secret(&[("expiration", "2026-11-15T12:00:01Z")])).is_ok());
        assert!(check(secret(&[("expiration", "2026-11-15T14:00:01+02:00")])).is_ok());
        for (changes, expected) in [
            (("token-secret", "0123456789abcdeX"), BootstrapRefusal::Secret),
            (("token-secret", ""), BootstrapRefusal::Secret),
            (("token-id", "ghijkl"), BootstrapRefusal::Id),
            (("expiration", "2026-11-15T12:00:00Z"), BootstrapRefusal::Expired),
            (("expiration", "tomorrow"), BootstrapRefusal::Expiration),
            (("usage-bootstrap-authentication", "yes"), BootstrapRefusal::Usage),
            (("auth-extra-groups", "system:masters"), BootstrapRefusal::Groups("system:masters".into())),
            (
                ("auth-extra-groups", "system:bootstrappers:x-"),
                BootstrapRefusal::Groups("system:bootstrappers:x-".into()),
            ),
        ] {
            assert_eq!(check(secret(&[changes])), Err(expected));
        }
        let mut deleting = secret(&[]);
        deleting["metadata"]["deletionTimestamp"] = "2026-11-15T11:00:00Z".into();
        assert_eq!(check(deleting), Err(BootstrapRefusal::Deleting));
        let mut opaque = secret(&[]);
        opaque["type"] = "Opaque".into();
        assert_eq!(check(opaque), Err(BootstrapRefusal::Type));
    }

    #[test]
    fn random_tokens_are_long_and_differ() {
        let (a, b) = (random_token(32).unwrap(), random_token(32).unwrap());
        assert!(a != b && a.len() == 43 && random_token(0).unwrap().len() >= 22);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn arbitrary_secrets_never_panic(object in crate::testing::any_json()) {
            let token = BootstrapToken::parse("abcdef.0123456789abcdef").unwrap();
            prop_assert!(token.authenticate(&object, now()).is_err());
        }
    }
}
