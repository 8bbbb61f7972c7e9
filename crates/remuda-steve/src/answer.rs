//! Answers and errors in the form clients of the list API know.

use http::{HeaderValue, Response, StatusCode, header};
use remuda_door::{Body, Refusal};
use remuda_names::list_api::header as name;
use serde_json::Value;

use crate::show::Base;

/// Reasons of the Kubernetes API, which are the codes of errors here.
const REASONS: &[&str] = &[
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "Expired",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "RequestEntityTooLarge",
    "ServerTimeout",
    "ServiceUnavailable",
    "Timeout",
    "TooManyRequests",
    "Unauthorized",
    "UnsupportedMediaType",
];

/// What the Kubernetes API said no with.
pub(crate) fn refused(error: kube::Error) -> Refusal {
    match error {
        kube::Error::Api(status) => {
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let refusal = Refusal::new(code, status.message.clone());
            match REASONS.iter().find(|reason| **reason == status.reason) {
                Some(reason) => refusal.because(reason),
                None => refusal,
            }
        }
        error => Refusal::failed("the request to the Kubernetes API", &error),
    }
}

pub(crate) fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, message)
}

/// An answer in JSON or YAML, with the headers clients begin with.
pub(crate) fn answer(base: &Base, code: StatusCode, value: &Value, yaml: bool) -> Response<Body> {
    let (kind, body) = match yaml.then(|| serde_saphyr::to_string(value)) {
        Some(Ok(text)) => ("application/yaml", text),
        _ => ("application/json", value.to_string()),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    mark(base, &mut response);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// An answer without a body.
pub(crate) fn nothing(base: &Base) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    mark(base, &mut response);
    response
}

/// An error as an answer. The caller is known: the door asks for that.
pub(crate) fn failure(base: &Base, refusal: Refusal) -> Response<Body> {
    let mut response = refusal.as_error().response();
    mark(base, &mut response);
    response
}

fn mark(base: &Base, response: &mut Response<Body>) {
    let headers = response.headers_mut();
    if let Ok(schemas) = HeaderValue::try_from(format!("{}/schemas", base.root())) {
        headers.insert(name::SCHEMAS, schemas);
    }
    headers.insert(name::AUTHENTICATED, HeaderValue::from_static("true"));
}
