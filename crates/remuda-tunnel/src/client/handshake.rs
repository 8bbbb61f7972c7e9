//! The client's half of the WebSocket upgrade.

use std::{io, time::Duration};

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, Uri};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::timeout,
};
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};

use crate::{frame, protocol::Role, websocket::WebSocket};

/// The whole upgrade may take this long, as in the original.
const LIMIT: Duration = Duration::from_secs(10);
/// Servers say in the body why they refuse; more than this is not a reason.
const MAX_BODY: usize = 512;
/// For that text to follow the status.
const BODY: Duration = Duration::from_secs(1);
/// An answer's head is no longer, and has no more lines.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 128;

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The server answered with something else than an upgrade.
    #[error("server refused the tunnel with status {status}: {body}")]
    Refused { status: u16, body: String },
    #[error("server did not answer within {0:?}")]
    Timeout(Duration),
    #[error("{0} is not the address of a server")]
    Address(Uri),
    #[error("upgrade to a websocket")]
    Upgrade(#[source] UpgradeError),
}

/// What went wrong with an upgrade that was not refused.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    #[error("connection failed")]
    Io(#[from] io::Error),
    #[error("the answer is not HTTP")]
    Http(#[from] httparse::Error),
    #[error("the answer has no end")]
    Long,
    #[error("the answer lacks a proper {0} header")]
    Header(&'static str),
}

/// Upgrades `io`, a connection to the server `uri` names, to a WebSocket.
pub async fn handshake<S>(io: S, uri: &Uri, headers: &HeaderMap) -> Result<WebSocket<S>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let key = generate_key();
    let request = request(uri, headers, &key).ok_or_else(|| HandshakeError::Address(uri.clone()))?;
    match timeout(LIMIT, upgrade(io, &request, &derive_accept_key(key.as_bytes()))).await {
        Ok(done) => done,
        Err(_) => Err(HandshakeError::Timeout(LIMIT)),
    }
}

fn request(uri: &Uri, headers: &HeaderMap, key: &str) -> Option<BytesMut> {
    let host = uri.authority()?.as_str();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = BytesMut::with_capacity(1024);
    request.put_slice(
        format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        )
        .as_bytes(),
    );
    for (name, value) in headers {
        request.put_slice(name.as_str().as_bytes());
        request.put_slice(b": ");
        request.put_slice(value.as_bytes());
        request.put_slice(b"\r\n");
    }
    request.put_slice(b"\r\n");
    Some(request)
}

async fn upgrade<S>(mut io: S, request: &[u8], accept: &str) -> Result<WebSocket<S>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error: io::Error| HandshakeError::Upgrade(error.into());
    io.write_all(request).await.map_err(failed)?;
    io.flush().await.map_err(failed)?;
    let mut answer = BytesMut::with_capacity(1024);
    let (head, answered) = loop {
        if io.read_buf(&mut answer).await.map_err(failed)? == 0 {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        if let Some(found) = parse(&answer, accept).map_err(HandshakeError::Upgrade)? {
            break found;
        }
        if answer.len() > MAX_HEAD {
            return Err(HandshakeError::Upgrade(UpgradeError::Long));
        }
    };
    match answered {
        Answer::Upgraded => Ok(WebSocket::with_read(io, Role::Client, &answer[head..])),
        Answer::Refused { status, length } => {
            let end = head + length.unwrap_or(MAX_BODY).min(MAX_BODY);
            let reading = async {
                while answer.len() < end && io.read_buf(&mut answer).await.is_ok_and(|count| count > 0) {}
            };
            // A body that does not come whole is still a reason, and its absence none to hide the status.
            let _ = timeout(BODY, reading).await;
            let body = String::from_utf8_lossy(&answer[head..end.min(answer.len())]);
            Err(HandshakeError::Refused { status, body: frame::cut(body.trim(), MAX_BODY).to_owned() })
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Upgraded,
    Refused { status: u16, length: Option<usize> },
}

/// What the answer says and where its head ends, once all of the head is there.
fn parse(answer: &[u8], accept: &str) -> Result<Option<(usize, Answer)>, UpgradeError> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = response.parse(answer)? else { return Ok(None) };
    let header = |name: &str| {
        let header = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(header.value).ok().map(str::trim)
    };
    let status = response.code.unwrap_or_default();
    if status != 101 {
        let length = header("content-length").and_then(|length| length.parse().ok());
        return Ok(Some((head, Answer::Refused { status, length })));
    }
    if !header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
        return Err(UpgradeError::Header("Upgrade"));
    }
    if !header("connection").is_some_and(|value| value.eq_ignore_ascii_case("upgrade")) {
        return Err(UpgradeError::Header("Connection"));
    }
    if header("sec-websocket-accept") != Some(accept) {
        return Err(UpgradeError::Header("Sec-WebSocket-Accept"));
    }
    Ok(Some((head, Answer::Upgraded)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expected: &str) {
        let parsed = parse(answer.as_bytes(), "good");
        let rendered = match parsed {
            Ok(Some((head, Answer::Upgraded))) => format!("upgraded, then {:?}", &answer[head..]),
            Ok(Some((_, Answer::Refused { status, length }))) => format!("refused {status} {length:?}"),
            Ok(None) => "more".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(rendered, expected);
    }

    #[test]
    fn an_answer_is_an_upgrade_only_when_it_proves_to_be_one() {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\n";
        check(&format!("{head}Sec-WebSocket-Accept: good\r\n\r\nrest"), "upgraded, then \"rest\"");
        check(&format!("{head}Sec-WebSocket-Accept: goo"), "more");
        check(
            &format!("{head}Sec-WebSocket-Accept: bad\r\n\r\n"),
            "the answer lacks a proper Sec-WebSocket-Accept header",
        );
        check("HTTP/1.1 101 Go\r\nUpgrade: h2c\r\n\r\n", "the answer lacks a proper Upgrade header");
        check("HTTP/1.1 101 Go\r\nUpgrade: websocket\r\n\r\n", "the answer lacks a proper Connection header");
        check("HTTP/1.1 400 Bad\r\nContent-Length: 3\r\n\r\nno\n", "refused 400 Some(3)");
        check("HTTP/1.1 502 Bad\r\n\r\n", "refused 502 None");
        check("SSH-2.0-OpenSSH\r\n\r\n", "the answer is not HTTP");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_without_an_end_is_told_all_the_same() {
        let (near, mut far) = tokio::io::duplex(4096);
        let server = async {
            let _ = far.read(&mut [0; 4096]).await;
            far.write_all(b"HTTP/1.1 401 No\r\nConnection: keep-alive\r\n\r\nwho are you?").await.unwrap();
            std::future::pending::<()>().await;
        };
        let uri: Uri = "wss://example.com/v3/connect".parse().unwrap();
        let headers = HeaderMap::new();
        tokio::select! {
            () = server => {}
            refused = handshake(near, &uri, &headers) => match refused.unwrap_err() {
                HandshakeError::Refused { status: 401, body } => assert_eq!(body, "who are you?"),
                other => panic!("{other}"),
            },
        }
    }

    #[test]
    fn a_request_names_the_host_without_the_user() {
        let uri: Uri = "wss://me@example.com:444/v3/connect?a=b".parse().unwrap();
        let request = request(&uri, &HeaderMap::new(), "k").unwrap();
        let text = std::str::from_utf8(&request).unwrap();
        assert!(text.starts_with("GET /v3/connect?a=b HTTP/1.1\r\nHost: example.com:444\r\n"), "{text}");
        assert!(text.ends_with("Sec-WebSocket-Key: k\r\n\r\n"), "{text}");
        assert!(request_of("/only/a/path").is_none());
    }

    fn request_of(uri: &str) -> Option<BytesMut> {
        request(&uri.parse().unwrap(), &HeaderMap::new(), "k")
    }
}
