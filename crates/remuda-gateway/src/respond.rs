//! Answers: texts for machines, `Status` objects for clients of the Kubernetes API.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Whatever comes back: a text, a file, or what a cluster streams.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn answer(code: StatusCode, kind: HeaderValue, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(bytes));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

pub(crate) fn text(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    answer(code, TEXT, text.into())
}

pub(crate) fn json(value: &Value) -> Response<Body> {
    answer(StatusCode::OK, JSON, value.to_string())
}

/// For people and machines: indented, with sorted keys.
pub(crate) fn pretty(value: &Value) -> Response<Body> {
    answer(StatusCode::OK, JSON, format!("{value:#}"))
}

/// As the Kubernetes API says no.
pub(crate) fn status(code: StatusCode, message: &str) -> Response<Body> {
    let reason = match code {
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "InternalError",
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    unstored(answer(code, JSON, body.to_string()))
}

/// Discovery of clients goes through a cache on disk that keeps whatever it is not told to forget, refusals
/// and all.
fn unstored(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// For refusals that pass by themselves in a moment. Clients try such requests again for minutes without
/// showing why, so this is for nothing else.
pub(crate) fn in_a_moment(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Why a machine or an agent is sent away. What it says is all they are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: StatusCode,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// Worth trying again.
    pub(crate) fn not_yet(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// The management API did not do as asked. Its answer is for the log: it may name what is none of the
    /// caller's business.
    pub(crate) fn failed(doing: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::warn!(error = %remuda_control::Chain(error), "{doing} failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, format!("{doing} failed; the server's log tells why"))
    }

    pub(crate) fn response(self) -> Response<Body> {
        let mut response = unstored(text(self.code, self.message));
        if self.code == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}
