//! The upgrade of a request to a WebSocket.

use aws_lc_rs::digest;
use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use hyper::upgrade::OnUpgrade;

use crate::{body::Body, refusal::Refusal};

/// A subprotocol that is a credential: browsers cannot set other headers.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// Of RFC 6455: what a server adds to the key to show that it has understood.
const SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A request that becomes a WebSocket: its answer, and the stream once that is sent.
pub struct WebSocket {
    pub response: Response<Body>,
    pub upgrade: OnUpgrade,
}

impl WebSocket {
    pub fn accept(head: &Parts) -> Result<Self, Refusal> {
        let headers = &head.headers;
        let key = headers.get(header::SEC_WEBSOCKET_KEY);
        let is_current = headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
        let wanted = head.method == Method::GET
            && has(headers, &header::CONNECTION, "upgrade")
            && has(headers, &header::UPGRADE, "websocket");
        let (Some(key), true, true) = (key, is_current, wanted) else {
            return Err(Refusal::bad("a WebSocket of version 13 over HTTP/1.1 is expected here"));
        };
        let accept = HeaderValue::try_from(accept_key(key.as_bytes()));
        let accept = accept.map_err(|_| Refusal::bad("Sec-WebSocket-Key is no key"))?;
        let Some(upgrade) = head.extensions.get::<OnUpgrade>().cloned() else {
            return Err(Refusal::bad("this connection cannot become a WebSocket"));
        };
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let answered = response.headers_mut();
        answered.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        answered.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        answered.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        if let Some(chosen) = chosen(headers) {
            answered.insert(header::SEC_WEBSOCKET_PROTOCOL, chosen);
        }
        Ok(Self { response, upgrade })
    }
}

/// A client that offers protocols wants one chosen; a credential among them is none.
fn chosen(headers: &HeaderMap) -> Option<HeaderValue> {
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = offered.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut offered = offered.map(str::trim).filter(|name| !name.is_empty() && !name.starts_with(BEARER));
    offered.next().and_then(|name| HeaderValue::try_from(name).ok())
}

fn has(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}

fn accept_key(key: &[u8]) -> String {
    let bytes = [key, SUFFIX.as_bytes()].concat();
    BASE64_STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &bytes))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn the_key_is_answered_as_the_standard_says() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn credentials_are_no_protocols_and_other_requests_are_refused() {
        let mut headers = HeaderMap::new();
        headers.insert("sec-websocket-protocol", format!("{BEARER}c2VjcmV0, one, two").parse().unwrap());
        assert_eq!(chosen(&headers).unwrap(), "one");
        let (head, ()) = Request::get("/").body(()).unwrap().into_parts();
        assert_eq!(WebSocket::accept(&head).err().unwrap().code, 400);
    }
}
