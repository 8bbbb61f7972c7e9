//! What is kept of a second factor.

use std::collections::BTreeMap;

use aws_lc_rs::rand;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use remuda_api::management::User;
use remuda_auth::{bearer, tokens::RandomError};
use remuda_control::write::owner_reference;
use remuda_names::identity::second_factor::{CONFIRMED, LAST_STEP, NAMESPACE, RECOVERY, SECRET};

use super::totp;

/// As long as the hash, which RFC 4226 recommends.
const SECRET_BYTES: usize = 20;
const RECOVERY_CODES: usize = 10;
/// 80 bits in 16 letters.
const RECOVERY_BYTES: usize = 10;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Factor {
    pub(super) secret: Vec<u8>,
    /// A code of it was seen.
    pub(super) confirmed: bool,
    /// Step of the last code that was used.
    pub(super) last_step: u64,
    /// Hashes of the codes that were not used.
    pub(super) recovery: Vec<String>,
}

impl Factor {
    pub(super) fn new() -> Result<Self, RandomError> {
        let mut secret = vec![0; SECRET_BYTES];
        rand::fill(&mut secret).map_err(|_| RandomError)?;
        Ok(Self { secret, confirmed: false, last_step: 0, recovery: Vec::new() })
    }

    /// The factor after a code was used; nothing if it is not good.
    pub(super) fn with_code_used(&self, code: &str, now: i64) -> Option<Self> {
        if let Some(step) = totp::matching_step(&self.secret, code, now, self.last_step) {
            return Some(Self { last_step: step, ..self.clone() });
        }
        let code = normal(code);
        let used = self.recovery.iter().position(|hash| bearer::matches(hash, &code))?;
        let mut rest = self.clone();
        rest.recovery.remove(used);
        Some(rest)
    }

    pub(super) fn read(secret: &Secret) -> Option<Self> {
        let data = secret.data.as_ref()?;
        let text = |key: &str| std::str::from_utf8(&data.get(key)?.0).ok();
        Some(Self {
            secret: data.get(SECRET)?.0.clone(),
            confirmed: text(CONFIRMED)? == "true",
            last_step: text(LAST_STEP)?.parse().ok()?,
            recovery: serde_json::from_str(text(RECOVERY)?).ok()?,
        })
    }

    pub(super) fn secret_of(&self, user: &User) -> Secret {
        let recovery = serde_json::json!(self.recovery).to_string();
        let data = [
            (SECRET, self.secret.clone()),
            (CONFIRMED, self.confirmed.to_string().into_bytes()),
            (LAST_STEP, self.last_step.to_string().into_bytes()),
            (RECOVERY, recovery.into_bytes()),
        ];
        let mut secret = Secret {
            data: Some(BTreeMap::from(data.map(|(key, bytes)| (key.to_owned(), ByteString(bytes))))),
            ..Secret::default()
        };
        secret.metadata.name.clone_from(&user.metadata.name);
        secret.metadata.namespace = Some(NAMESPACE.to_owned());
        secret.metadata.owner_references = owner_reference(user, &()).ok().map(|mut owner| {
            owner.controller = None;
            owner.block_owner_deletion = None;
            vec![owner]
        });
        secret
    }
}

/// Codes for those who have lost their authenticator, in groups that can be copied from paper.
pub(super) fn recovery_codes() -> Result<Vec<String>, RandomError> {
    let code = |_| {
        let mut bytes = [0; RECOVERY_BYTES];
        rand::fill(&mut bytes).map_err(|_| RandomError)?;
        let letters = totp::base32(&bytes).to_lowercase();
        let groups: Vec<&str> = (0..4).filter_map(|group| letters.get(group * 4..group * 4 + 4)).collect();
        Ok(groups.join("-"))
    };
    (0..RECOVERY_CODES).map(code).collect()
}

/// However a user writes a recovery code.
pub(super) fn normal(code: &str) -> String {
    code.chars()
        .filter(char::is_ascii_alphanumeric)
        .take(64)
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_recovery_code_is_good_once() {
        let codes = recovery_codes().unwrap();
        assert_eq!(codes.len(), 10);
        assert!(codes.iter().all(|code| code.len() == 19), "{codes:?}");
        let recovery = codes.iter().map(|code| bearer::hash(&normal(code)).unwrap()).collect();
        let factor = Factor { confirmed: true, recovery, ..Factor::new().unwrap() };
        assert!(factor.with_code_used("", 0).is_none() && factor.with_code_used("aaaa-aaaa", 0).is_none());
        let typed = codes[3].to_uppercase().replace('-', " ");
        let after = factor.with_code_used(&typed, 0).unwrap();
        assert_eq!(after.recovery.len(), 9);
        assert!(after.with_code_used(&codes[3], 0).is_none());
        assert!(after.with_code_used(&codes[4], 0).is_some());
    }

    #[test]
    fn what_is_stored_is_read_again_and_nothing_else() {
        let factor = Factor {
            confirmed: true,
            last_step: 7,
            recovery: vec!["$3:1:a:b".to_owned()],
            ..Factor::new().unwrap()
        };
        let mut secret = factor.secret_of(&User::named("ann"));
        assert!(Factor::read(&secret).is_some_and(|read| read == factor));
        secret.data.as_mut().unwrap().remove(CONFIRMED);
        assert!(Factor::read(&secret).is_none());
    }
}
