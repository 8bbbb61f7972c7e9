//! The OCI distribution API for machines, to read only: `/v2/…`.
//!
//! A machine shows the token of its plan, as a password or as a bearer token. What there is comes from bundles in the
//! server's directory and from registries this server was told to mirror, see `remuda-registry`.

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::TryStreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body::Frame;
use http_body_util::StreamBody;
use remuda_auth::request_info::parameter;
use remuda_door::Answer;
use remuda_names::gateway::{audit_user, registry::USER};
use remuda_registry::serve::{Content, Refused, Served};
use serde_json::json;

use super::machine;
use crate::{
    doors,
    gateway::Shared,
    respond::{Body, Refusal},
};

const VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");
/// How a client that showed nothing is asked for its credential.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Basic realm=\"remuda\"");

pub(crate) async fn handle(shared: &Shared, head: &Parts) -> Answer {
    match answer(shared, head).await {
        Ok(mut response) => {
            response.headers_mut().insert(VERSION, HeaderValue::from_static("registry/2.0"));
            Ok(response)
        }
        Err((refusal, code)) => {
            let text = json!({"errors": [{"code": code, "message": refusal.message}]}).to_string();
            let status = refusal.code;
            // As clients of registries read it; the reason stays with it for the audit log.
            let mut response = refusal.response().map(|_| Body::from(text));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response.headers_mut().insert(VERSION, HeaderValue::from_static("registry/2.0"));
            if status == StatusCode::UNAUTHORIZED {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, CHALLENGE);
            }
            Ok(response)
        }
    }
}

async fn answer(shared: &Shared, head: &Parts) -> Result<Response<Body>, (Refusal, &'static str)> {
    let unauthorized = |reason| (Refusal::unauthorized(reason), "UNAUTHORIZED");
    let token =
        token(&head.headers).ok_or_else(|| unauthorized("the token of a machine's plan is needed"))?;
    if !shared.is_ready() {
        return Err((Refusal::not_yet("this server has just started and is not ready yet"), "UNAVAILABLE"));
    }
    let machine = machine::by_plan_token(shared, &token).await.map_err(|refusal| (refusal, "UNKNOWN"))?;
    let machine = machine.ok_or_else(|| unauthorized("this is not the token of a machine's plan"))?;
    let registry = shared.registry.as_ref().ok_or_else(|| (Refusal::not_found(), "NAME_UNKNOWN"))?;
    let namespace = head.uri.query().and_then(|query| parameter(query, "ns"));
    let served = registry.serve(head.uri.path(), namespace.as_deref(), offset(&head.headers)).await;
    let mut response = match served {
        Ok(served) => respond(served, head.method == Method::HEAD),
        Err(refused) => return Err(told(&refused, &machine.key.to_string())),
    };
    response.extensions_mut().insert(doors::agent(audit_user::MACHINE, &machine.key.to_string()));
    Ok(response)
}

/// A password or a bearer token.
fn token(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = value.split_once(' ')?;
    let token = if scheme.eq_ignore_ascii_case("bearer") {
        rest.to_owned()
    } else if scheme.eq_ignore_ascii_case("basic") {
        let decoded = String::from_utf8(BASE64_STANDARD.decode(rest.trim()).ok()?).ok()?;
        let (user, password) = decoded.split_once(':')?;
        (user == USER).then(|| password.to_owned())?
    } else {
        return None;
    };
    Some(token).filter(|token| !token.is_empty())
}

/// Where a download that broke off goes on: `bytes=N-`. Other ranges are answered with all of it, as HTTP allows.
fn offset(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(header::RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

fn respond(served: Served, is_head: bool) -> Response<Body> {
    let Served { status, headers, content } = served;
    let body = match content {
        _ if is_head => Body::empty(),
        Content::Bytes(bytes) => Body::from(bytes),
        Content::Stream(pieces) => Body::boxed(StreamBody::new(pieces.map_ok(Frame::<Bytes>::data))),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn told(refused: &Refused, machine: &str) -> (Refusal, &'static str) {
    let (status, code) = refused.code();
    if status.is_server_error() {
        tracing::warn!(machine, error = %refused, "an image cannot be given to a machine");
    }
    let refusal = Refusal::new(status, refused.to_string());
    match refused {
        Refused::Upstream { after: Some(after), .. } => (refusal.after(after.as_secs()), code),
        _ => (refusal, code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn a_token_is_a_password_or_a_bearer_token() {
        let basic = |text: &str| format!("Basic {}", BASE64_STANDARD.encode(text));
        let found = |value: &str| token(&headers(header::AUTHORIZATION, value));
        assert_eq!(found("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(found(&basic(&format!("{USER}:a:b"))).as_deref(), Some("a:b"));
        for value in ["", "abc", "Bearer ", "Basic ?", &basic("other:abc"), &basic("abc"), "Digest abc"] {
            assert_eq!(found(value), None, "{value}");
        }
    }

    #[test]
    fn a_range_is_where_a_download_goes_on() {
        let found = |value: &str| offset(&headers(header::RANGE, value));
        assert_eq!(found("bytes=17-"), Some(17));
        for value in ["bytes=1-2", "bytes=-5", "bytes=1-,3-", "lines=1-", "bytes=x-"] {
            assert_eq!(found(value), None, "{value}");
        }
    }
}
