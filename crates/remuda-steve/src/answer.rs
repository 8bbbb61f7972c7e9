//! Answers and errors in the form clients of the list API know.

use http::{HeaderValue, Response, StatusCode, header};
use remuda_control::bounded::LimitExceeded;
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

/// Longest message of another API that is passed on: it ends in the audit log as well.
const LONGEST: usize = 4 << 10;

/// What the Kubernetes API said no with. It may be that of a cluster, which says what it likes.
pub(crate) fn refused(error: kube::Error) -> Refusal {
    match error {
        kube::Error::Api(status) => {
            let code = StatusCode::from_u16(status.code).ok();
            let code = code.filter(|code| code.is_client_error() || code.is_server_error());
            let message = &status.message[..status.message.floor_char_boundary(LONGEST)];
            let refusal = Refusal::new(code.unwrap_or(StatusCode::BAD_GATEWAY), message);
            match REASONS.iter().find(|reason| **reason == status.reason) {
                Some(reason) => refusal.because(reason),
                None => refusal,
            }
        }
        error => match LimitExceeded::of(&error).cloned() {
            Some(too_much) => excessive(&too_much),
            None => Refusal::failed("the request to the Kubernetes API", &error),
        },
    }
}

/// A cluster has sent more than is read.
pub(crate) fn excessive(too_much: &LimitExceeded) -> Refusal {
    match too_much {
        LimitExceeded::Busy => Refusal::not_yet(too_much.to_string()),
        _ => Refusal::new(StatusCode::BAD_GATEWAY, too_much.to_string()),
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

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn what_a_cluster_says_no_with_is_a_refusal_of_a_bounded_length() {
        let told = |code: u16, message: &str| {
            let status = Status { code, message: message.to_owned(), ..Status::default() };
            refused(kube::Error::Api(status.boxed()))
        };
        assert_eq!(told(404, "gone").code, 404);
        for odd in [0, 101, 200, 302, 99, 1000] {
            assert_eq!(told(odd, "").code, 502, "{odd}");
        }
        assert_eq!(told(500, &"é".repeat(1 << 20)).message.len(), LONGEST);
        let error = kube::Error::Service(Box::new(LimitExceeded::Together { most: 8 << 20 }));
        assert_eq!((refused(error).code.as_u16(), excessive(&LimitExceeded::Busy).code.as_u16()), (502, 503));
    }
}
