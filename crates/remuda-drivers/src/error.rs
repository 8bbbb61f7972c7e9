//! What goes wrong with a driver, sorted by what one can do about it.
//!
//! Controllers choose retries by [`Class`]; people read the message. A message is scrubbed of known
//! secrets before it becomes an [`Error`] wherever it comes from outside (plugins, scripts, APIs).

use std::fmt;

/// The failure classes a machine's owner is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A limit of the account or the provider's capacity; waiting or asking for more helps.
    Quota,
    /// The provider refused the credentials.
    Credentials,
    /// The image does not exist or cannot be used.
    Image,
    /// The provider or the machine could not be reached, or answered with a server error.
    Network,
    /// Something took longer than it may.
    Timeout,
    /// The driver's process died or broke the protocol.
    DriverCrash,
    /// Everything else; usually a wrong setting.
    Other,
}

impl Class {
    /// The stable name, as it appears in conditions and in the `exec` protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Credentials => "credentials",
            Self::Image => "image",
            Self::Network => "network",
            Self::Timeout => "timeout",
            Self::DriverCrash => "driver-crash",
            Self::Other => "other",
        }
    }

    /// The class of that name; unknown names are `Other`.
    pub fn parse(name: &str) -> Self {
        match name {
            "quota" => Self::Quota,
            "credentials" => Self::Credentials,
            "image" => Self::Image,
            "network" => Self::Network,
            "timeout" => Self::Timeout,
            "driver-crash" => Self::DriverCrash,
            _ => Self::Other,
        }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Quota | Self::Network | Self::Timeout | Self::DriverCrash)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A special meaning an error may have beside its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Plain,
    NotFound,
    Unsupported,
    HostKeyChanged,
}

/// A failed driver call.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    class: Class,
    message: String,
    meaning: Meaning,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), meaning: Meaning::Plain }
    }

    pub fn other(message: impl Into<String>) -> Self {
        Self::new(Class::Other, message)
    }

    pub fn crash(message: impl Into<String>) -> Self {
        Self::new(Class::DriverCrash, message)
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(Class::Timeout, message)
    }

    pub fn network(message: impl Into<String>) -> Self {
        Self::new(Class::Network, message)
    }

    /// The thing asked about does not exist (any more).
    pub fn not_found(message: impl Into<String>) -> Self {
        Self { class: Class::Other, message: message.into(), meaning: Meaning::NotFound }
    }

    /// The driver has no such operation.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self { class: Class::Other, message: message.into(), meaning: Meaning::Unsupported }
    }

    /// A host has another key than the one it is known by.
    pub fn host_key_changed(message: impl Into<String>) -> Self {
        Self { class: Class::Other, message: message.into(), meaning: Meaning::HostKeyChanged }
    }

    /// An error known only by its text, as plugins report them.
    pub fn from_text(message: impl Into<String>) -> Self {
        let message = message.into();
        let meaning = if message.starts_with("rpc: can't find method") {
            Meaning::Unsupported
        } else if message.starts_with("machine ") && message.ends_with(" not found") {
            Meaning::NotFound
        } else {
            Meaning::Plain
        };
        Self { class: classify(&message), message, meaning }
    }

    /// The same error with what was being done in front.
    #[must_use]
    pub fn context(mut self, doing: &str) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// The same error with its text rewritten, for scrubbing.
    #[must_use]
    pub fn map_message(mut self, rewrite: impl FnOnce(&str) -> String) -> Self {
        self.message = rewrite(&self.message);
        self
    }

    pub fn class(&self) -> Class {
        self.class
    }

    pub fn is_not_found(&self) -> bool {
        self.meaning == Meaning::NotFound
    }

    /// Whether what was to be removed is not there. Plugins have many sentences for it, all with these words.
    pub fn is_gone(&self) -> bool {
        self.is_not_found() || self.message.contains("not found")
    }

    pub fn is_host_key_changed(&self) -> bool {
        self.meaning == Meaning::HostKeyChanged
    }

    pub fn is_unsupported(&self) -> bool {
        self.meaning == Meaning::Unsupported
    }
}

/// Words in driver messages that give their class away, tried from the top: `no credentials ... image`
/// is about credentials.
const WORDS: &[(Class, &[&str])] = &[
    (
        Class::Quota,
        &[
            "quota",
            "limitexceeded",
            "limit exceeded",
            "too many requests",
            "rate limit",
            "requestlimit",
            "throttl",
            "insufficientinstancecapacity",
            "insufficient capacity",
            "will exceed your",
        ],
    ),
    (
        Class::Credentials,
        &[
            "authfailure",
            "unauthorized",
            "unauthorised",
            "unable to authenticate",
            "authentication failed",
            "unauthenticated",
            "invalid credential",
            "no valid credential",
            "requires aws credentials",
            "permission denied",
            "forbidden",
            "access denied",
            "accessdenied",
            "invalid api key",
            "invalid token",
            "invalidclienttokenid",
            "signaturedoesnotmatch",
            "expiredtoken",
        ],
    ),
    (Class::Image, &["invalidamiid", "image not found", "no such image", "invalid image", "ami not found"]),
    (Class::Timeout, &["timed out", "timeout", "deadline exceeded", "maximum number of retries"]),
    (
        Class::Network,
        &[
            "connection refused",
            "connection reset",
            "no such host",
            "no route to host",
            "network is unreachable",
            "tls handshake",
            "unexpected eof",
            "service unavailable",
            "internal server error",
            "bad gateway",
        ],
    ),
];

/// Guesses the class of an error from its text.
pub fn classify(message: &str) -> Class {
    let text = message.to_lowercase();
    let hit = WORDS.iter().find(|(_, words)| words.iter().any(|word| text.contains(word)));
    hit.map_or(Class::Other, |(class, _)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_messages_are_sorted_by_their_words() {
        for (text, class) in [
            ("VcpuLimitExceeded: You have requested more vCPU capacity", Class::Quota),
            ("GET https://api: 401 (request \"x\") Unable to authenticate you", Class::Credentials),
            ("InvalidAMIID.NotFound: The image id '[ami-1]' does not exist", Class::Image),
            ("dial tcp 1.2.3.4:443: connect: connection refused", Class::Network),
            ("Maximum number of retries (60) exceeded", Class::Timeout),
            ("size is not available in this region", Class::Other),
        ] {
            assert_eq!(classify(text), class, "{text}");
        }
    }

    #[test]
    fn a_missing_method_is_unsupported_and_class_names_round_trip() {
        assert!(Error::from_text("rpc: can't find method RPCServerDriver.GetIPv6").is_unsupported());
        assert!(Error::from_text("machine m1 not found").is_not_found());
        for class in [Class::Quota, Class::Credentials, Class::Image, Class::Network, Class::DriverCrash] {
            assert_eq!(Class::parse(class.as_str()), class);
        }
    }
}
