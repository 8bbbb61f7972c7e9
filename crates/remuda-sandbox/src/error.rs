//! What goes wrong with local machines.

pub(crate) use remuda_base::chain::chain;
use std::{fmt::Display, io};

/// A failed operation on local machines.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{doing}")]
    System { doing: String, source: io::Error },
    /// The host does not let us make namespaces. The text says what to change.
    #[error("{0}")]
    Forbidden(String),
    #[error("machine {0} not found")]
    NotFound(String),
    #[error("machine {0} is being removed")]
    Removing(String),
    #[error("machine {0} is not running")]
    NotRunning(String),
    #[error("another operation on {what} has not finished within {seconds} s")]
    Busy { what: String, seconds: u64 },
    #[error("record {path} is damaged: {problem}")]
    Record { path: String, problem: String },
    #[error("all addresses of the private network are taken")]
    NoAddress,
    /// A stage of the machine's start said so.
    #[error("{0}")]
    Stage(String),
    /// It ended without saying anything. The text is what else is known.
    #[error("a process of the machine's start ended without a word{0}")]
    Silent(String),
    #[error("usage: {0}")]
    Usage(&'static str),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds what was being done to an error of the system.
pub(crate) trait Doing<T> {
    fn doing<D: Display>(self, what: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing<D: Display>(self, what: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|source| Error::System { doing: what().to_string(), source: source.into() })
    }
}
