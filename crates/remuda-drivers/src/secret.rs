//! Secrets and the places they must not reach.
//!
//! [`Secret`] is for our own fields; [`Redactor`] is for text that others write (plugins, scripts, cloud
//! APIs), which may repeat a credential we gave them.

use std::{borrow::Cow, fmt, sync::Arc};

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

/// What stands where a secret stood.
pub const REDACTED: &str = "[redacted]";

/// Shorter values are not searched for: they would turn ordinary words into holes.
const SHORTEST: usize = 4;

/// A string that does not show itself. It does serialise: a driver's record holds its credentials.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself; the name makes uses easy to find.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { REDACTED })
    }
}

/// Removes known secrets from text. Clones share the same list.
#[derive(Clone, Default)]
pub struct Redactor(Arc<RwLock<Vec<String>>>);

impl Redactor {
    /// Learns a secret. Every line of a long one (a key file) counts by itself, because output is
    /// read line by line.
    pub fn learn(&self, secret: &str) {
        let mut known = self.0.write();
        let mut add = |value: &str| {
            if value.len() >= SHORTEST && !known.iter().any(|old| old == value) {
                known.push(value.to_owned());
            }
        };
        add(secret);
        if secret.contains('\n') {
            // The frame lines of PEM files are no secret and would hide useful messages.
            secret.lines().map(str::trim).filter(|line| !line.starts_with("-----")).for_each(&mut add);
        }
        if let Ok(quoted) = serde_json::to_string(secret)
            && quoted.len() > secret.len() + 2
        {
            add(&quoted[1..quoted.len() - 1]);
        }
        // The longest first, so that a secret which contains another is hidden whole.
        known.sort_by_key(|value| std::cmp::Reverse(value.len()));
    }

    pub fn scrub<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let known = self.0.read();
        let mut text = Cow::Borrowed(text);
        for secret in known.iter() {
            if text.contains(secret.as_str()) {
                text = Cow::Owned(text.replace(secret.as_str(), REDACTED));
            }
        }
        text
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.0.read().len())
    }
}

/// Whether a flag, field or variable of this name holds a credential, by the words in it.
pub fn names_a_secret(name: &str) -> bool {
    const WORDS: &[&str] = &[
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "accesskey",
        "apikey",
        "private",
        "credential",
        "authencoded",
        "kubeconfig",
        "rootpass",
        "sshkeycontents",
    ];
    let flat: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    // Private addresses and networks are settings that merely share the word.
    let flat = flat
        .replace("privateaddress", "")
        .replace("privatenetwork", "")
        .replace("privateip", "")
        .replace("httptokens", "");
    WORDS.iter().any(|word| flat.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_shows_in_debug() {
        assert_eq!(format!("{:?}", Secret::new("canary")), REDACTED);
    }

    #[test]
    fn known_secrets_are_cut_out_of_text_line_by_line() {
        let redactor = Redactor::default();
        redactor.learn("canary-1");
        redactor.learn("canary-1-longer");
        redactor.learn("-----BEGIN KEY-----\nAAAABBBB\n-----END KEY-----\n");
        redactor.learn("say \"hi\"");
        redactor.learn("ab");
        assert_eq!(redactor.scrub("x canary-1-longer canary-1 ab"), "x [redacted] [redacted] ab");
        assert_eq!(redactor.scrub("key AAAABBBB"), "key [redacted]");
        assert_eq!(redactor.scrub(r#"{"p":"say \"hi\""}"#), r#"{"p":"[redacted]"}"#);
        assert!(matches!(redactor.scrub("nothing here"), Cow::Borrowed(_)));
    }

    #[test]
    fn credential_names_are_recognised() {
        for name in
            ["digitalocean-access-token", "AWS_SECRET_KEY", "amazonec2-access-key", "linode-root-pass"]
        {
            assert!(names_a_secret(name), "{name}");
        }
        for name in ["digitalocean-private-networking", "amazonec2-use-private-address", "digitalocean-size"]
        {
            assert!(!names_a_secret(name), "{name}");
        }
    }
}
