//! The audit log: [`policy`] decides how much of a request is recorded, [`event`] is what is written.

pub mod event;
pub mod policy;

use serde::Serialize;

/// How much is recorded. Ordered: each level includes the ones before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Level {
    #[default]
    None,
    Metadata,
    Request,
    RequestResponse,
}

impl Level {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "None" => Self::None,
            "Metadata" => Self::Metadata,
            "Request" => Self::Request,
            "RequestResponse" => Self::RequestResponse,
            _ => return None,
        })
    }
}

/// When an event is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Stage {
    RequestReceived,
    /// Headers are out, the body is not: watches and other streams.
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Stage {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "RequestReceived" => Self::RequestReceived,
            "ResponseStarted" => Self::ResponseStarted,
            "ResponseComplete" => Self::ResponseComplete,
            "Panic" => Self::Panic,
            _ => return None,
        })
    }
}
