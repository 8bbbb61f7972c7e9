//! Why a reconcile failed.

use std::fmt;

use remuda_control::{Retry, Retryable};

use crate::cluster::Problem;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Kit(#[from] remuda_control::Error),
    #[error("{verb} {what}")]
    Api { verb: &'static str, what: String, source: kube::Error },
    #[error("make a key")]
    Random(#[from] remuda_auth::tokens::RandomError),
    #[error("encode {what}")]
    Encode { what: &'static str, source: serde_json::Error },
    /// Somebody has to change an object; that wakes us.
    #[error(transparent)]
    Problem(#[from] Problem),
    /// A kind whose definition is there but whose objects cannot be listed.
    #[error("list {kind} in group {group}: no answer in time")]
    NotServed { kind: String, group: String },
}

impl Error {
    pub(crate) fn api(verb: &'static str, what: impl fmt::Display) -> impl FnOnce(kube::Error) -> Self {
        let what = what.to_string();
        move |source| Self::Api { verb, what, source }
    }
}

impl Retryable for Error {
    fn retry(&self) -> Retry {
        match self {
            Self::Kit(error) => error.retry(),
            Self::Api { source, .. } => source.retry(),
            Self::Encode { .. } | Self::Problem(_) => Retry::UserMustAct,
            Self::NotServed { .. } | Self::Random(_) => Retry::Transient,
        }
    }
}

pub(crate) fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
