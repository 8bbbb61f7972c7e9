//! Why a reconcile failed.

use std::fmt;

use remuda_control::{Retry, Retryable};
use remuda_rollout::contract::{NoContract, WrongType};
use remuda_workload::Down;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Kit(#[from] remuda_control::Error),
    #[error("{verb} {what}")]
    Api { verb: &'static str, what: String, source: kube::Error },
    /// The kind of a provider is not installed. Not the same as an object that does not exist.
    #[error("CRD {crd} for kind {kind} in group {group} does not exist")]
    NoCrd { crd: String, kind: String, group: String },
    #[error(transparent)]
    NoContract(#[from] NoContract),
    /// A kind whose definition is there but whose objects cannot be listed.
    #[error("{kind} in group {group} cannot be listed")]
    NotServed { kind: String, group: String },
    #[error(transparent)]
    WrongType(#[from] WrongType),
    #[error(transparent)]
    Down(#[from] Down),
    #[error("{0}")]
    Invalid(String),
    /// Workload clusters did not take what they were given.
    #[error("{0}")]
    NotApplied(String),
    #[error("Cluster {namespace}/{name} does not exist")]
    NoCluster { namespace: String, name: String },
    #[error("{}", Joined(.0))]
    Several(Vec<Error>),
}

struct Joined<'a>(&'a [Error]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{}", remuda_control::Chain(error))?;
        }
        Ok(())
    }
}

impl Error {
    /// One error of several steps, `None` if all went well.
    pub(crate) fn join(mut errors: Vec<Error>) -> Option<Error> {
        match errors.len() {
            0 => None,
            1 => errors.pop(),
            _ => Some(Error::Several(errors)),
        }
    }

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
            // What is missing wakes whoever waits for it when it comes.
            Self::NoCrd { .. } | Self::NoContract(_) | Self::WrongType(_) | Self::Invalid(_) => {
                Retry::UserMustAct
            }
            Self::Down(_) => Retry::Unreachable,
            Self::NotServed { .. } | Self::NoCluster { .. } | Self::NotApplied(_) => Retry::Transient,
            // The one that is tried again soonest.
            Self::Several(errors) => errors
                .iter()
                .map(Self::retry)
                .min_by_key(|retry| urgency(*retry))
                .unwrap_or(Retry::UserMustAct),
        }
    }
}

fn urgency(retry: Retry) -> u8 {
    match retry {
        Retry::Conflict => 0,
        Retry::Transient => 1,
        Retry::NoNamespace => 2,
        Retry::Unreachable => 3,
        Retry::UserMustAct => 4,
        Retry::Terminating => 5,
    }
}

pub(crate) fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
