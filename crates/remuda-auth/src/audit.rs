//! The audit log: [`policy`] decides how much of a request is recorded, [`event`] is what is written.

pub mod event;
pub mod policy;

use std::net::IpAddr;

use serde::Serialize;

use crate::identity::User;

/// An answered request, as the audit log is told of it by doors beside the Kubernetes API.
#[derive(Debug, Clone, Copy)]
pub struct AuditLine<'a> {
    pub user: &'a User,
    /// The user they impersonated, if any.
    pub as_user: Option<&'a User>,
    /// Of HTTP.
    pub method: &'a str,
    /// What the audit policy is asked about.
    pub path: &'a str,
    /// Path and the part of the query that is shown.
    pub uri: &'a str,
    pub source: IpAddr,
    pub user_agent: &'a str,
    /// The status of the answer.
    pub code: u16,
    /// Reason and message of a refusal.
    pub refusal: Option<(&'a str, &'a str)>,
    /// What authorization said; nothing if it was never asked.
    pub allowed: Option<bool>,
}

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
