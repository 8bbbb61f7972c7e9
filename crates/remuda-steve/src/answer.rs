//! Answers and errors in the form clients of the list API know.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
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

/// Shorter answers are sent as they are.
const WORTH_IT: usize = 8 << 10;

/// The same answer compressed, where that is worth it. Schemas and pages of rows are a tenth of their size then.
pub(crate) fn compressed(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    let plain = match body {
        Body::Full(plain) if plain.len() >= WORTH_IT => plain,
        body => return Response::from_parts(head, body),
    };
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 8), Compression::fast());
    let Ok(packed) = encoder.write_all(&plain).and_then(|()| encoder.finish()) else {
        return Response::from_parts(head, Body::Full(plain));
    };
    head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    head.headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    Response::from_parts(head, Body::from(packed))
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
    fn long_answers_are_compressed_and_short_ones_are_not() {
        use std::io::Read;
        let base = Base { api: "https://h".to_owned() };
        let of =
            |text: &str| compressed(answer(&base, StatusCode::OK, &serde_json::json!({"a": text}), false));
        assert!(!of("short").headers().contains_key(header::CONTENT_ENCODING));
        let long = "long ".repeat(10_000);
        let packed = of(&long);
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        let Body::Full(bytes) = packed.into_body() else { panic!("it is whole") };
        assert!(bytes.len() < 2_000, "{}", bytes.len());
        let mut plain = String::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut plain).unwrap();
        assert_eq!(plain, serde_json::json!({"a": long}).to_string());
    }

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
