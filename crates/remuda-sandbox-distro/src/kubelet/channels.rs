//! The WebSocket protocols of Kubernetes: the first byte of each message says which stream it is of.
//!
//! `v4.channel.k8s.io` and `v5.channel.k8s.io`; the latter can also say that a stream has no more.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::{SinkExt, StreamExt, stream::SplitSink};
use http::{HeaderMap, header};
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::remote::{Input, Output, Transport};

pub const V4: &str = "v4.channel.k8s.io";
pub const V5: &str = "v5.channel.k8s.io";

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// Clients send a buffer of theirs at a time, which is far less.
const LARGEST: usize = 1 << 20;
/// Somebody who left without a word is noticed by this.
pub(super) const PING: Duration = Duration::from_secs(20);
/// For the client to close its side.
const FAREWELL: Duration = Duration::from_secs(2);

/// Whether a request begins a WebSocket.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// The first of our protocols that the client offers.
pub fn choose(headers: &HeaderMap, ours: &[&'static str]) -> Option<&'static str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let offered: Vec<&str> = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    ours.iter().copied().find(|protocol| offered.contains(protocol))
}

/// The server's side of a connection that has become a WebSocket.
pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(io: S) -> WebSocketStream<S> {
    let config = WebSocketConfig::default().max_message_size(Some(LARGEST)).max_frame_size(Some(LARGEST));
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

/// A message on a channel.
pub fn message(channel: u8, bytes: &[u8]) -> Message {
    let mut data = BytesMut::with_capacity(bytes.len() + 1);
    data.put_u8(channel);
    data.put_slice(bytes);
    Message::Binary(data.freeze())
}

/// What a client means by a message.
fn read(message: Message, closes: bool) -> Option<Input> {
    let Message::Binary(mut data) = message else { return None };
    if data.is_empty() {
        return None;
    }
    let rest = data.split_off(1);
    match (data[0], &rest[..]) {
        (STDIN, []) => None,
        (STDIN, _) => Some(Input::Stdin(rest)),
        (RESIZE, text) => resize(text),
        (CLOSE, [STDIN]) if closes => Some(Input::End),
        _ => None,
    }
}

/// A size as clients write it.
pub fn resize(text: &[u8]) -> Option<Input> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Size {
        width: u16,
        height: u16,
    }
    let Size { width, height } = serde_json::from_slice(text).ok()?;
    Some(Input::Resize { columns: width, rows: height })
}

/// Carries a session over a WebSocket until either ends.
pub async fn serve<S>(socket: WebSocketStream<S>, protocol: &str, transport: Transport)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Transport { inputs, mut outputs } = transport;
    let (mut sink, mut messages) = socket.split();
    let closes = protocol == V5;
    let reading = async {
        while let Some(Ok(message)) = messages.next().await {
            if let Message::Close(_) = message {
                return;
            }
            if let Some(input) = read(message, closes)
                && inputs.send(input).await.is_err()
            {
                // The session ends; what it still says goes out on the other side.
                return std::future::pending().await;
            }
        }
    };
    let writing = async {
        // Clients wait for a first message to know that the stream is there.
        sink.send(message(STDOUT, b"")).await.ok()?;
        let mut ping = tokio::time::interval_at(Instant::now() + PING, PING);
        loop {
            let output = tokio::select! {
                output = outputs.recv() => output,
                _ = ping.tick() => {
                    sink.send(Message::Ping(Bytes::new())).await.ok()?;
                    continue;
                }
            };
            let Some(output) = output else { break };
            let message = match output {
                Output::Stdout(bytes) => message(STDOUT, &bytes),
                Output::Stderr(bytes) => message(STDERR, &bytes),
                Output::Status(status) => message(ERROR, status.to_string().as_bytes()),
            };
            sink.send(message).await.ok()?;
        }
        Some(())
    };
    let finished = tokio::select! {
        () = reading => None,
        finished = writing => finished,
    };
    if finished.is_some() {
        let farewell = async {
            goodbye(&mut sink).await;
            while let Some(Ok(_)) = messages.next().await {}
        };
        let _ = timeout(FAREWELL, farewell).await;
    }
}

/// Says that there is no more.
pub async fn goodbye<S: AsyncRead + AsyncWrite + Unpin>(sink: &mut SplitSink<WebSocketStream<S>, Message>) {
    let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    let _ = sink.send(Message::Close(Some(frame))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_by_their_first_byte() {
        let read =
            |bytes: &'static [u8], closes| super::read(Message::Binary(Bytes::from_static(bytes)), closes);
        assert_eq!(read(b"\0hi", false), Some(Input::Stdin("hi".into())));
        assert_eq!(
            read(b"\x04{\"Width\":80,\"Height\":24}", false),
            Some(Input::Resize { columns: 80, rows: 24 })
        );
        assert_eq!(read(b"\xff\0", true), Some(Input::End));
        for (bytes, closes) in [
            (&b"\xff\0"[..], false),
            (b"\xff\x01", true),
            (b"\xff", true),
            (b"", true),
            (b"\0", true),
            (b"\x01x", true),
            (b"\x04{", true),
            (b"\x04{\"Width\":99999,\"Height\":1}", true),
        ] {
            assert_eq!(read(bytes, closes), None, "{bytes:?}");
        }
    }

    #[test]
    fn the_newest_protocol_both_know_is_taken() {
        let offers = |text: &'static str| {
            HeaderMap::from_iter([(header::SEC_WEBSOCKET_PROTOCOL, http::HeaderValue::from_static(text))])
        };
        assert_eq!(choose(&offers("v4.channel.k8s.io,v5.channel.k8s.io"), &[V5, V4]), Some(V5));
        assert_eq!(choose(&offers("channel.k8s.io"), &[V5, V4]), None);
    }
}
