//! The one way to say no: a `Status` object, or plain text for machines that print what they are told.

use http::{HeaderValue, Response, StatusCode, header};
use remuda_control::Chain;
use serde_json::{Value, json};

use crate::body::Body;

/// Why a request is not answered as it hoped. What it says is all the caller is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: StatusCode,
    /// As clients of the Kubernetes API branch on it.
    pub reason: &'static str,
    pub message: String,
    /// Seconds after which it may be tried again.
    pub retry_after: Option<u64>,
    /// Plain text instead of a `Status`.
    pub is_text: bool,
    /// The error object clients of Rancher's APIs know instead of a `Status`.
    pub is_error: bool,
    /// Methods that are allowed, of a refusal because of the method.
    pub allow: Option<String>,
    /// What else a program needs to go on; never in the audit log.
    pub details: Value,
}

/// What a refusal said, left in the extensions of its answer for the audit log.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Refusal {
    pub fn new(code: StatusCode, message: impl Into<String>) -> Self {
        let reason = match code {
            StatusCode::UNAUTHORIZED => "Unauthorized",
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
            StatusCode::CONFLICT => "Conflict",
            StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
            StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
            StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            StatusCode::GATEWAY_TIMEOUT => "Timeout",
            code if code.is_server_error() => "InternalError",
            _ => "BadRequest",
        };
        Self {
            code,
            reason,
            message: message.into(),
            retry_after: None,
            is_text: false,
            is_error: false,
            allow: None,
            details: Value::Null,
        }
    }

    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "the server could not find the requested resource")
    }

    pub fn method_not_allowed(allowed: &[&str]) -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self { allow: Some(allowed.join(", ")), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, message) }
    }

    /// Worth trying again.
    pub fn not_yet(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message).after(5)
    }

    /// The management API did not do as asked. Its answer is for the log: it may name what is none of the
    /// caller's business.
    pub fn failed(doing: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::warn!(error = %Chain(error), "{doing} failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{doing} failed; the server's log tells why"))
    }

    /// With another reason than the code has by itself.
    pub fn because(self, reason: &'static str) -> Self {
        Self { reason, ..self }
    }

    pub fn with_details(self, details: Value) -> Self {
        Self { details, ..self }
    }

    pub fn after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    pub fn in_text(self) -> Self {
        Self { is_text: true, ..self }
    }

    pub fn as_error(self) -> Self {
        Self { is_error: true, ..self }
    }

    pub fn response(self) -> Response<Body> {
        let (kind, body) = if self.is_text {
            ("text/plain; charset=utf-8", self.message.clone())
        } else if self.is_error {
            let error = json!({
                "type": "error", "baseType": "error", "links": {}, "actions": {}, "status": self.code.as_u16(),
                "code": self.reason, "message": self.message,
            });
            ("application/json", error.to_string())
        } else {
            let mut status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
            });
            if !self.details.is_null() {
                status["details"] = self.details;
            }
            ("application/json", status.to_string())
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        // Discovery of clients goes through a cache on disk that keeps whatever it is not told to forget.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow.as_deref().and_then(|allow| HeaderValue::from_str(allow).ok()) {
            headers.insert(header::ALLOW, allow);
        }
        response.extensions_mut().insert(Refused { reason: self.reason, message: self.message });
        response
    }
}
