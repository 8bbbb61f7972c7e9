//! Errors of the API: every one becomes a `Status` object with the reason and code clients branch on.

use std::{borrow::Cow, fmt};

use remuda_schema::FieldError;
use serde_json::{Value, json};

/// A failed request. `message` is what the caller may know.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    pub code: u16,
    /// One of ours, or what a webhook said; empty for errors that have none.
    pub reason: Cow<'static, str>,
    pub message: String,
    pub details: Option<Value>,
    /// Seconds for `Retry-After`; clients retry any answer that carries it.
    pub retry_after: Option<u32>,
    /// Fresh continue token of an expired list (`metadata.continue`).
    pub continue_token: Option<String>,
}

pub type ApiResult<T> = Result<T, ApiError>;

/// What a message and `details` name an object by.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    pub group: &'a str,
    /// Plural for most errors, the kind for `Invalid`.
    pub kind: &'a str,
    pub name: &'a str,
}

impl Named<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    fn details(&self) -> Value {
        let mut details = json!({});
        for (key, text) in [("name", self.name), ("group", self.group), ("kind", self.kind)] {
            if !text.is_empty() {
                details[key] = text.into();
            }
        }
        details
    }
}

impl ApiError {
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
            retry_after: None,
            continue_token: None,
        }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn forbidden(named: Named<'_>, detail: &str) -> Self {
        let subject = named.qualified();
        let message = if named.name.is_empty() {
            format!("{subject} is forbidden: {detail}")
        } else {
            format!("{subject} {:?} is forbidden: {detail}", named.name)
        };
        Self { details: Some(named.details()), ..Self::new(403, "Forbidden", message) }
    }

    pub fn not_found(named: Named<'_>) -> Self {
        let message = format!("{} {:?} not found", named.qualified(), named.name);
        Self { details: Some(named.details()), ..Self::new(404, "NotFound", message) }
    }

    /// No such group, version or resource.
    pub fn unknown_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self { details: Some(json!({})), ..Self::new(404, "NotFound", message) }
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self { details: Some(json!({})), ..Self::new(405, "MethodNotAllowed", message) }
    }

    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    pub fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub fn already_exists(named: Named<'_>) -> Self {
        let message = format!("{} {:?} already exists", named.qualified(), named.name);
        Self { details: Some(named.details()), ..Self::new(409, "AlreadyExists", message) }
    }

    pub fn conflict(named: Named<'_>, detail: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} {:?}: {detail}", named.qualified(), named.name);
        Self { details: Some(named.details()), ..Self::new(409, "Conflict", message) }
    }

    pub fn modified(named: Named<'_>) -> Self {
        Self::conflict(
            named,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    pub fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// `named.kind` is the Kind here, not the plural.
    pub fn invalid(named: Named<'_>, errors: &[FieldError]) -> Self {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let list = if texts.len() == 1 { texts[0].clone() } else { format!("[{}]", texts.join(", ")) };
        let message = format!("{} {:?} is invalid: {list}", named.qualified(), named.name);
        let mut details = named.details();
        details["causes"] = errors
            .iter()
            .map(|error| json!({"reason": error.reason.as_str(), "message": error.message, "field": error.field}))
            .collect();
        Self { details: Some(details), ..Self::new(422, "Invalid", message) }
    }

    /// An unprocessable request without a field to blame, as for failed JSON patches.
    pub fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self { details: Some(json!({})), ..Self::new(422, "Invalid", message) }
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after: u32) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(429, "TooManyRequests", message) }
    }

    pub fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let details = json!({"causes": [{"message": message}]});
        Self {
            details: Some(details),
            ..Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
        }
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::new(503, "ServiceUnavailable", message) }
    }

    /// The client took too long to send its request.
    pub fn request_timeout(message: impl Into<String>) -> Self {
        Self::new(408, "Timeout", message)
    }

    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(504, "Timeout", message)
    }

    pub fn version_too_large(requested: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        });
        Self { details: Some(details), retry_after: Some(1), ..Self::new(504, "Timeout", message) }
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = token.as_str().into();
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        // Errors the reference does not classify have no reason.
        if !self.reason.is_empty() {
            status["reason"] = (*self.reason).into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        if let (Some(seconds), 409 | 429 | 503) = (self.retry_after, self.code)
            && status["details"]["retryAfterSeconds"].is_null()
        {
            status["details"]["retryAfterSeconds"] = seconds.into();
        }
        status
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_is_announced_in_the_details() {
        let named = Named { group: "", kind: "pods", name: "a-xyz12" };
        let taken = ApiError { retry_after: Some(1), ..ApiError::already_exists(named) };
        assert_eq!(
            taken.status()["details"],
            json!({"name": "a-xyz12", "kind": "pods", "retryAfterSeconds": 1})
        );
        assert!(ApiError::already_exists(named).status()["details"]["retryAfterSeconds"].is_null());
    }
}
