//! How far an attempt came.

use std::{error::Error, fmt};

use remuda_agent::{
    Chain,
    client::{HttpError, Phase},
    install::RegisterError,
};
use remuda_tunnel::client::HandshakeError;

/// A step on the way to the server, in the order they are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hop {
    /// The API of the cluster the agent is in, or its mounted account.
    Cluster,
    /// Looking up the server's name.
    Dns,
    /// Reaching its port.
    Tcp,
    /// A proxy on the way.
    Proxy,
    /// Trusting its certificate.
    Tls,
    /// Becoming a WebSocket.
    Upgrade,
    /// Being known by the registration token.
    Token,
    /// Being let in, once known.
    Authorization,
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hop::Cluster => "cluster",
            Hop::Dns => "DNS",
            Hop::Tcp => "TCP",
            Hop::Proxy => "proxy",
            Hop::Tls => "TLS",
            Hop::Upgrade => "upgrade",
            Hop::Token => "token",
            Hop::Authorization => "authorization",
        })
    }
}

/// Why there is no tunnel: at which hop, and what it said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{hop}: {reason}")]
pub struct Failure {
    /// Where it ended.
    pub hop: Hop,
    /// Everything known about it.
    pub reason: String,
}

impl Failure {
    /// A failure with everything that led to it.
    pub fn new(hop: Hop, error: &dyn Error) -> Failure {
        Failure { hop, reason: Chain(error).to_string() }
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        let hop = match &error {
            HttpError::Resolve { .. } => Hop::Dns,
            HttpError::Connect { .. } | HttpError::Address { .. } => Hop::Tcp,
            HttpError::Timeout { phase: Phase::Connect, .. } => Hop::Tcp,
            HttpError::Proxy { .. } => Hop::Proxy,
            HttpError::Tls { .. } => Hop::Tls,
            HttpError::Exchange { .. } | HttpError::Timeout { .. } | HttpError::TooLarge { .. } => {
                Hop::Upgrade
            }
        };
        Failure::new(hop, &error)
    }
}

impl From<RegisterError> for Failure {
    fn from(error: RegisterError) -> Failure {
        match error {
            RegisterError::Http(error) => error.into(),
            RegisterError::Refused { .. } | RegisterError::Address(_) => Failure::new(Hop::Upgrade, &error),
            _ => Failure::new(Hop::Tls, &error),
        }
    }
}

impl From<HandshakeError> for Failure {
    fn from(error: HandshakeError) -> Failure {
        let hop = match &error {
            HandshakeError::Refused { status: 401, .. } => Hop::Token,
            // Servers answer a token they do not know, and parameters they do not like, with the same status.
            HandshakeError::Refused { status: 400, body } if body.contains("not found") => Hop::Token,
            HandshakeError::Refused { status: 400 | 403, .. } => Hop::Authorization,
            _ => Hop::Upgrade,
        };
        Failure::new(hop, &error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_of_the_token_or_of_what_it_is_used_for() {
        for (status, body, hop) in [
            (401, "failed authentication", Hop::Token),
            (400, "cluster not found", Hop::Token),
            (400, "invalid input, token empty", Hop::Authorization),
            (403, "forbidden", Hop::Authorization),
            (404, "page not found", Hop::Upgrade),
            (502, "bad gateway", Hop::Upgrade),
        ] {
            let failure = Failure::from(HandshakeError::Refused { status, body: body.into() });
            assert_eq!(failure.hop, hop, "{status} {body}");
            assert!(failure.to_string().contains(body));
        }
    }
}
