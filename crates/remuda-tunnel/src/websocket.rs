//! WebSocket messages over a byte stream (RFC 6455), as far as tunnels need them: no extensions, no text.
//!
//! Made for the two things tunnels are: bulk, where a message is read into memory of its own size and written
//! from where it lies, and idle, where a socket holds no buffer at all.

mod decode;
mod encode;
mod mask;

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{BufMut, Bytes};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::poll_read_buf;

use self::{decode::Decoder, encode::Encoder};
use crate::{
    protocol::Role,
    socket::{Received, Sent, Socket, SocketError},
};

/// What may wait to be written before more is taken. Two messages of bulk: one is encrypted while another comes.
const WRITE_BUFFER: usize = 128 << 10;
/// Pieces handed to one write.
const SLICES: usize = 16;

/// Kinds of frames, as numbered on the wire.
mod opcode {
    pub(super) const CONTINUATION: u8 = 0;
    pub(super) const TEXT: u8 = 1;
    pub(super) const BINARY: u8 = 2;
    pub(super) const CLOSE: u8 = 8;
    pub(super) const PING: u8 = 9;
    pub(super) const PONG: u8 = 10;
}

/// A WebSocket after its handshake.
#[derive(Debug)]
pub struct WebSocket<T> {
    io: T,
    decoder: Decoder,
    encoder: Encoder,
}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> WebSocket<T> {
    /// Speaks as one end of a connection that was upgraded.
    pub fn new(io: T, role: Role) -> Self {
        Self::with_read(io, role, &[])
    }

    /// The same, when reading the handshake brought some of what follows it.
    pub(crate) fn with_read(io: T, role: Role, read: &[u8]) -> Self {
        Self { io, decoder: Decoder::new(role, read), encoder: Encoder::new(role) }
    }

    /// Writes until no more than `rest` bytes wait.
    fn poll_write_down_to(&mut self, rest: usize, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        while self.encoder.len() > rest {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.encoder.slices(&mut slices);
            let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, &slices[..count]))?;
            if written == 0 {
                return Poll::Ready(Err(io::Error::from(io::ErrorKind::WriteZero).into()));
            }
            self.encoder.written(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Socket for WebSocket<T> {
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, SocketError>> {
        loop {
            if let Some(message) = self.decoder.next()? {
                return Poll::Ready(Ok(match message {
                    decode::Message::Binary(data) => Received::Binary(data),
                    decode::Message::Text => Received::Text,
                    decode::Message::Ping(data) => {
                        self.encoder.pong(&data);
                        Received::Ping
                    }
                    decode::Message::Pong => Received::Pong,
                    decode::Message::Close => Received::Close,
                }));
            }
            let (buffer, most) = self.decoder.buffer();
            match poll_read_buf(Pin::new(&mut self.io), cx, &mut buffer.limit(most)) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(SocketError::Ended)),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => {
                    self.decoder.rest();
                    return Poll::Pending;
                }
            }
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        if self.encoder.len() < WRITE_BUFFER {
            return Poll::Ready(Ok(()));
        }
        self.poll_write_down_to(WRITE_BUFFER - 1, cx)
    }

    fn send(&mut self, message: Sent) {
        match message {
            Sent::Binary(data) => self.encoder.push(opcode::BINARY, data),
            Sent::Ping => self.encoder.push(opcode::PING, Bytes::new()),
            Sent::Close => self.encoder.push(opcode::CLOSE, Bytes::new()),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SocketError>> {
        ready!(self.poll_write_down_to(0, cx))?;
        Poll::Ready(ready!(Pin::new(&mut self.io).poll_flush(cx)).map_err(SocketError::from))
    }
}

#[cfg(test)]
mod tests;
