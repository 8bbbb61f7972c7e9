//! Errors of the kit, how errors are printed, and what to do about them.

use std::{error::Error as StdError, fmt};

use kube::core::Status;
use remuda_base::chain::Links;

/// What a failed reconcile calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// We acted on an old view; the new one is on its way.
    Conflict,
    /// The world failed; try again, less and less often.
    Transient,
    /// Somebody we depend on does not answer. They wake us when they are back; until then nobody is helped by
    /// asking many times a second.
    Unreachable,
    /// Trying again changes nothing until somebody changes an object.
    UserMustAct,
    /// The namespace written to is being removed, most likely with the object. If not, it may be made anew when it
    /// is gone, of which nobody hears: asked again, but seldom and silently.
    Terminating,
    /// The namespace written to is not there: not yet, or no longer. One or the other shows soon, so it is only told
    /// if it stays so.
    NoNamespace,
}

pub trait Retryable {
    fn retry(&self) -> Retry;
}

impl Retryable for std::convert::Infallible {
    fn retry(&self) -> Retry {
        match *self {}
    }
}

/// A refused write is never taken as the user's fault here: only the caller knows whose text it was.
impl Retryable for kube::Error {
    fn retry(&self) -> Retry {
        match self {
            Self::Api(status) if status.code == 409 || is_of_another(status) => Retry::Conflict,
            Self::Api(status) if is_terminating(status) => Retry::Terminating,
            Self::Api(status) if lacks_namespace(status) => Retry::NoNamespace,
            _ => Retry::Transient,
        }
    }
}

/// Whether a patch was refused because an object of the same name has taken the place of the one it was meant for.
fn is_of_another(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 422 && causes.into_iter().any(|cause| cause.field == "metadata.uid")
}

/// Whether a write was refused because the namespace it goes to is being removed.
fn is_terminating(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 403 && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Whether a write was refused because there is no namespace it could go to.
fn lacks_namespace(status: &Status) -> bool {
    status.code == 404 && status.details.as_ref().is_some_and(|details| details.kind == "namespaces")
}

/// Why one of the kit's operations failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{verb} {what}")]
    Api {
        verb: &'static str,
        /// Plural, group and key of the object.
        what: String,
        source: kube::Error,
    },
    #[error("{what} changed under us")]
    Stale { what: String, source: kube::Error },
    #[error("{what} is already controlled by {owner}")]
    Controlled { what: String, owner: String },
    #[error("{what} has no {field}")]
    Incomplete { what: String, field: &'static str },
    #[error("encode {what}")]
    Encode { what: String, source: serde_json::Error },
}

impl Retryable for Error {
    fn retry(&self) -> Retry {
        match self {
            Self::Api { source, .. } => source.retry(),
            Self::Stale { .. } => Retry::Conflict,
            Self::Controlled { .. } | Self::Incomplete { .. } => Retry::UserMustAct,
            Self::Encode { .. } => Retry::UserMustAct,
        }
    }
}

pub(crate) trait Context<T> {
    fn context(self, verb: &'static str, what: impl fmt::Display) -> Result<T, Error>;
}

impl<T> Context<T> for Result<T, kube::Error> {
    fn context(self, verb: &'static str, what: impl fmt::Display) -> Result<T, Error> {
        self.map_err(|source| Error::Api { verb, what: what.to_string(), source })
    }
}

pub(crate) fn status_of(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

pub(crate) fn is_code(error: &kube::Error, code: u16) -> bool {
    status_of(error).is_some_and(|status| status.code == code)
}

/// Prints an error and everything behind it on one line: `write status: conflict: …`.
///
/// Some libraries repeat the source in their own text; such sources are left out, and an answer of
/// the API is reduced to its message. Links to manuals of libraries are for who writes programs, and left out.
pub struct Chain<'a>(pub &'a (dyn StdError + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut links = Links::default();
        let mut next = Some(self.0);
        while let Some(error) = next {
            if let Some(kube::Error::Api(status)) = error.downcast_ref() {
                return links.write(f, status_text(status));
            }
            links.write(f, without_manual(&error.to_string()))?;
            next = error.source();
        }
        Ok(())
    }
}

/// A text without links to the documentation of Rust libraries.
fn without_manual(text: &str) -> String {
    const MANUAL: &str = "https://docs.rs/";
    let mut rest = text;
    let mut kept = String::new();
    while let Some((before, link)) = rest.split_once(MANUAL) {
        kept.push_str(before.trim_end_matches([':', ' ']));
        rest = link.find(char::is_whitespace).map_or("", |end| &link[end..]);
    }
    kept + rest
}

fn status_text(status: &Status) -> String {
    match (status.message.as_str(), status.reason.as_str()) {
        ("", "") => format!("the API answered {}", status.code),
        ("", reason) => reason.to_owned(),
        (message, _) => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("give machine m-1 its plan")]
    struct Outer(#[source] Error);

    fn refused(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, "Conflict").with_code(code).boxed())
    }

    #[test]
    fn a_chain_names_each_step_once_and_ends_with_the_apis_message() {
        let error = Outer(Error::Api {
            verb: "write status of",
            what: "machines.cluster.x-k8s.io a/m-1".to_owned(),
            source: refused(409, "the object has been modified"),
        });
        assert_eq!(
            Chain(&error).to_string(),
            "give machine m-1 its plan: write status of machines.cluster.x-k8s.io a/m-1: \
             the object has been modified"
        );
    }

    #[test]
    fn manuals_of_libraries_are_left_out() {
        let told = |text: &str| Chain(&std::io::Error::other(text.to_owned())).to_string();
        assert_eq!(
            told(
                "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/x#unexpected-eof"
            ),
            "peer closed connection without sending TLS close_notify"
        );
        assert_eq!(told("see https://docs.rs/a for more"), "see for more");
        assert_eq!(told("https://example.org/a"), "https://example.org/a");
    }

    #[test]
    fn a_source_already_told_is_left_out() {
        let inner = std::io::Error::other("disk on fire");
        let error = kube::Error::ReadEvents(inner);
        assert_eq!(Chain(&error).to_string(), "Error reading events stream: disk on fire");
    }

    #[test]
    fn a_namespace_that_goes_is_recognised() {
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "unable to create new content in namespace a because it is being terminated",
            "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]},
        });
        let status: Status = serde_json::from_value(status).unwrap();
        assert_eq!(kube::Error::Api(status.boxed()).retry(), Retry::Terminating);
    }

    #[test]
    fn a_namespace_that_is_not_there_is_told_from_an_object_that_is_not() {
        let missing = |kind: &str| {
            let status = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
                "message": "not found", "details": {"name": "a", "kind": kind},
            });
            let status: Status = serde_json::from_value(status).unwrap();
            kube::Error::Api(status.boxed()).retry()
        };
        assert_eq!(missing("namespaces"), Retry::NoNamespace);
        assert_eq!(missing("secrets"), Retry::Transient);
    }

    #[test]
    fn a_patch_meant_for_an_earlier_object_of_the_name_is_a_conflict() {
        let invalid = |field: &str| {
            let causes = serde_json::json!([{"reason": "FieldValueInvalid", "message": "", "field": field}]);
            let status = serde_json::json!({"status": "Failure", "code": 422, "details": {"causes": causes}});
            let status: Status = serde_json::from_value(status).unwrap();
            kube::Error::Api(status.boxed()).retry()
        };
        assert_eq!(invalid("metadata.uid"), Retry::Conflict);
        assert_eq!(invalid("spec.uid"), Retry::Transient);
    }

    #[test]
    fn only_conflicts_are_tried_again_at_once() {
        assert_eq!(refused(409, "").retry(), Retry::Conflict);
        assert_eq!(refused(422, "").retry(), Retry::Transient);
        assert_eq!(refused(500, "").retry(), Retry::Transient);
        assert_eq!(refused(403, "").retry(), Retry::Transient);
        assert_eq!(
            Error::Incomplete { what: "a Secret".to_owned(), field: "uid" }.retry(),
            Retry::UserMustAct
        );
    }
}
