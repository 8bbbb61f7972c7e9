//! Answers: texts for machines, `Status` objects for clients of the Kubernetes API.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
pub(crate) use remuda_door::{Body, BoxError, Refusal};
use serde_json::Value;

pub(crate) const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

pub(crate) fn answer(code: StatusCode, kind: HeaderValue, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
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
