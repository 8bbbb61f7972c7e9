//! Why a reconcile failed.

use std::fmt;

use remuda_control::{Retry, Retryable};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Kit(#[from] remuda_control::Error),
    #[error("{verb} {what}")]
    Api { verb: &'static str, what: String, source: kube::Error },
    #[error("{doing}")]
    File { doing: String, source: std::io::Error },
    #[error("the Secret {name} that the job needs does not exist")]
    NoSecret { name: String },
    #[error("encode {what}")]
    Encode { what: String, source: serde_json::Error },
}

impl Error {
    pub(crate) fn api(verb: &'static str, what: impl fmt::Display) -> impl FnOnce(kube::Error) -> Self {
        let what = what.to_string();
        move |source| Self::Api { verb, what, source }
    }

    pub(crate) fn file(doing: impl fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.to_string();
        move |source| Self::File { doing, source }
    }
}

impl Retryable for Error {
    fn retry(&self) -> Retry {
        match self {
            Self::Kit(error) => error.retry(),
            Self::Api { source, .. } => source.retry(),
            Self::File { .. } | Self::NoSecret { .. } => Retry::Transient,
            Self::Encode { .. } => Retry::UserMustAct,
        }
    }
}

/// Whether the API said that there is no such thing.
pub(crate) fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether somebody else was first.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}
