//! Why something simulated did not happen this time.

use remuda_control::{Retry, Retryable};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{verb} {what}")]
    Api { verb: &'static str, what: String, source: kube::Error },
    #[error(transparent)]
    Control(#[from] remuda_control::Error),
    #[error("bootstrap data {0} holds no token")]
    NoToken(String),
    #[error("pack the record of a machine")]
    Record(#[source] std::io::Error),
    #[error("reach the server")]
    Unreachable(#[source] std::io::Error),
    #[error("speak to the server")]
    Http(#[source] hyper::Error),
    #[error("the server answered {code} to machine {machine}: {text}")]
    Refused { machine: String, code: u16, text: String },
}

impl Error {
    pub(crate) fn api(verb: &'static str, what: impl std::fmt::Display) -> impl FnOnce(kube::Error) -> Self {
        let what = what.to_string();
        move |source| Self::Api { verb, what, source }
    }
}

impl Retryable for Error {
    fn retry(&self) -> Retry {
        match self {
            Self::Api { source, .. } => source.retry(),
            Self::Control(error) => error.retry(),
            _ => Retry::Transient,
        }
    }
}
