//! Failures as the API tells them.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::kinds::Served;

/// A request that is not done.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) code: StatusCode,
    reason: &'static str,
    message: String,
    /// Reason and message of each cause.
    causes: Vec<(&'static str, String)>,
}

impl Failure {
    pub(super) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), causes: Vec::new() }
    }

    pub(super) fn because(mut self, reason: &'static str, message: String) -> Self {
        self.causes.push((reason, message));
        self
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(super) fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
    }

    pub(super) fn not_found(kind: &Served, name: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{} {name:?} not found", resource(kind)))
    }

    pub(super) fn exists(kind: &Served, name: &str) -> Self {
        let message = format!("{} {name:?} already exists", resource(kind));
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message)
    }

    pub(super) fn conflict(kind: &Served, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", resource(kind));
        Self::new(StatusCode::CONFLICT, "Conflict", message)
    }

    pub(super) fn expired() -> Self {
        Self::new(StatusCode::GONE, "Expired", "The resourceVersion for the provided watch is too old.")
    }

    pub(super) fn value(&self) -> Value {
        let causes: Vec<Value> = self
            .causes
            .iter()
            .map(|(reason, message)| json!({"reason": reason, "message": message}))
            .collect();
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": {"causes": causes},
            "code": self.code.as_u16(),
        })
    }

    pub(super) fn body(&self) -> Bytes {
        self.value().to_string().into()
    }
}

fn resource(kind: &Served) -> String {
    match kind.group {
        "" => kind.plural.to_owned(),
        group => format!("{}.{group}", kind.plural),
    }
}

pub(super) fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 200})
}
