//! Watches over WebSocket, for browsers: one text message per event.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures::{SinkExt, StreamExt, stream::BoxStream};
use http::{HeaderMap, HeaderName, header, request::Parts};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message, Utf8Bytes,
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};

use crate::{
    body::Body,
    call::{Answer, Content},
    server::Inner,
    status::{ApiError, ApiResult},
};

/// A subprotocol that is a credential: browsers cannot set other headers.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// Watchers have nothing to say; what they send beyond control frames is ignored, up to this size.
const LARGEST_MESSAGE: usize = 64 << 10;

/// Whether the client wants to go on as a WebSocket.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let has = |name: &HeaderName, word: &str| {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    };
    has(&header::CONNECTION, "upgrade") && has(&header::UPGRADE, "websocket")
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty())
}

/// The subprotocols a client offers, without the credential among them.
pub(crate) fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    protocols(headers).filter(|protocol| !protocol.starts_with(BEARER))
}

/// The token among the subprotocols.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<String> {
    if !is_wanted(headers) {
        return None;
    }
    let encoded = protocols(headers).find_map(|protocol| protocol.strip_prefix(BEARER))?;
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok().filter(|token| !token.is_empty())
}

impl Inner {
    /// Turns the answer to a watch into a switch of protocols.
    pub(crate) fn over_websocket(self: &Arc<Self>, parts: &Parts, answer: Answer) -> ApiResult<Answer> {
        let headers = &parts.headers;
        let key = headers.get(header::SEC_WEBSOCKET_KEY);
        let is_current = headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
        let (Some(key), true) = (key, is_current) else {
            return Err(ApiError::bad_request("the WebSocket handshake is not one of version 13"));
        };
        let Some(upgrade) = parts.extensions.get::<OnUpgrade>().cloned() else {
            return Err(ApiError::bad_request("this connection cannot become a WebSocket"));
        };
        let Content::Body(Body::Stream(events)) = answer.content else {
            return Err(ApiError::internal("a watch is not a stream"));
        };
        let mut answers = vec![
            (header::CONNECTION, "Upgrade".to_owned()),
            (header::UPGRADE, "websocket".to_owned()),
            (header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(key.as_bytes())),
        ];
        // A client that offers protocols wants one chosen; the token is not one.
        if let Some(chosen) = offered(headers).next() {
            answers.push((header::SEC_WEBSOCKET_PROTOCOL, chosen.to_owned()));
        }
        self.tasks.spawn(async move {
            match upgrade.await {
                Ok(upgraded) => {
                    let config = WebSocketConfig::default().max_message_size(Some(LARGEST_MESSAGE));
                    let io = TokioIo::new(upgraded);
                    send(WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await, events)
                        .await;
                }
                Err(error) => tracing::debug!(%error, "a client asked for a WebSocket and left"),
            }
        });
        Ok(Answer { code: 101, content: Content::Switch(answers) })
    }
}

/// Sends events until they end or the client does.
async fn send<S>(socket: WebSocketStream<S>, mut events: BoxStream<'static, Bytes>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (mut out, mut input) = socket.split();
    loop {
        let piece = tokio::select! {
            piece = events.next() => piece,
            // Reading also answers pings.
            message = input.next() => match message {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
        };
        let Some(piece) = piece else {
            let _ = out.close().await;
            return;
        };
        for line in piece.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(text) = Utf8Bytes::try_from(piece.slice_ref(line)) else { return };
            if out.feed(Message::Text(text)).await.is_err() {
                return;
            }
        }
        if out.flush().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_hides_among_the_protocols() {
        let mut headers = HeaderMap::new();
        let offered = "base64.binary.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0";
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, offered.parse().unwrap());
        assert_eq!(bearer(&headers), None, "only in a handshake");
        headers.insert(header::CONNECTION, "keep-alive, Upgrade".parse().unwrap());
        headers.insert(header::UPGRADE, "WebSocket".parse().unwrap());
        assert_eq!(bearer(&headers).as_deref(), Some("secret"));
    }
}
