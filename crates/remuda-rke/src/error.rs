//! Why a reconcile failed.

use std::fmt;

use remuda_control::{Retry, Retryable};
use remuda_planner::output::Failure;
use remuda_workload::Down;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Kit(#[from] remuda_control::Error),
    #[error("{verb} {what}")]
    Api { verb: &'static str, what: String, source: kube::Error },
    #[error(transparent)]
    Down(#[from] Down),
    #[error("plan cluster")]
    Plan(#[from] Failure),
    /// A kind whose objects cannot be listed.
    #[error("{kind} in group {group} cannot be listed")]
    NotServed { kind: String, group: String },
    #[error("read {what}")]
    Decode { what: String, source: serde_json::Error },
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    pub(crate) fn api(verb: &'static str, what: impl fmt::Display) -> impl FnOnce(kube::Error) -> Error {
        let what = what.to_string();
        move |source| Error::Api { verb, what, source }
    }
}

impl Retryable for Error {
    fn retry(&self) -> Retry {
        match self {
            Self::Kit(error) => error.retry(),
            Self::Api { source, .. } => source.retry(),
            Self::Down(_) => Retry::Unreachable,
            Self::NotServed { .. } => Retry::Transient,
            // What the input lacks comes with an event; what was lost may be restored without one.
            Self::Plan(Failure::StateMissing { .. }) => Retry::Transient,
            Self::Plan(_) | Self::Decode { .. } | Self::Invalid(_) => Retry::UserMustAct,
        }
    }
}

pub(crate) fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
