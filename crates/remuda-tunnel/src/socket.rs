//! The transport: anything that carries messages both ways.
//!
//! Sessions do not care how the WebSocket came to be, so callers bring their own TLS, proxying and upgrade;
//! [`crate::websocket::WebSocket`] makes messages of the bytes that come out of it.

use std::{
    io,
    task::{Context, Poll},
};

use bytes::Bytes;

/// Largest message accepted. The original knows no limit; its servers send one write of the application as
/// one message, which in practice is a TLS record or a copy buffer.
pub const MAX_MESSAGE: usize = 8 << 20;

/// What the other end sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    Binary(Bytes),
    /// Has no place in a tunnel, whatever it says.
    Text,
    /// Is answered by the socket itself, with the next flush.
    Ping,
    Pong,
    Close,
}

/// What the other end is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    Binary(Bytes),
    Ping,
    Close,
}

/// Why a transport carries nothing any more.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("connection ended")]
    Ended,
    #[error("connection failed")]
    Io(#[from] io::Error),
    #[error("websocket frame {0}")]
    Frame(&'static str),
}

/// A transport after its handshake. It answers pings itself and puts fragmented messages together.
pub trait Socket: Send + Unpin + 'static {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, SocketError>>;

    /// Whether [`Socket::send`] may be called: what waits to be written is bounded.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>>;

    /// Takes a message. It is on its way once [`Socket::poll_flush`] is ready.
    fn send(&mut self, message: Sent);

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>>;
}

pub type BoxSocket = Box<dyn Socket>;

impl Socket for BoxSocket {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, SocketError>> {
        (**self).poll_receive(cx)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        (**self).poll_ready(cx)
    }

    fn send(&mut self, message: Sent) {
        (**self).send(message);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        (**self).poll_flush(cx)
    }
}
