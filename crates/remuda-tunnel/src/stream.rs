//! A virtual connection as a byte stream.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use crate::{
    frame::ConnId,
    protocol::{Chunk, Read, Reason},
    session::Shared,
};

/// Writes from this size on become a message before the lock is taken; smaller ones share one.
const COPY_OUTSIDE: usize = 4 << 10;

/// One virtual connection through a tunnel.
///
/// - Reads return what the other side sent, then `Ok(0)` if it closed in good order or an error with its text.
///   When the session is lost, data that already arrived is still returned before the error.
/// - The protocol has no half-close. `shutdown` waits until everything written has been handed to the
///   transport and refuses later writes; the other side learns of the end when the stream is dropped.
/// - Dropping it closes the connection in good order: written data still goes out.
pub struct TunnelStream {
    shared: Arc<Shared>,
    id: ConnId,
    shut: bool,
}

impl TunnelStream {
    pub(crate) fn new(shared: Arc<Shared>, id: ConnId) -> Self {
        Self { shared, id, shut: false }
    }

    /// The id within its session, for logs.
    pub fn id(&self) -> ConnId {
        self.id
    }

    /// Closes with a text for the other side instead of in good order. Written data still goes out first.
    pub fn close_with(self, text: impl Into<String>) {
        let reason = Reason::Local(text.into());
        self.shared.with(|state| state.protocol.close(self.id, reason, Instant::now().into_std()));
    }

    /// Waits until the connection is known to the transport.
    pub(crate) fn poll_opened(&self, cx: &mut Context<'_>) -> Poll<Result<(), Reason>> {
        self.shared.with(|state| {
            let Some(wakers) = state.wakers.get_mut(&self.id) else {
                return Poll::Ready(Err(Reason::Disconnect));
            };
            if wakers.opened {
                return Poll::Ready(Ok(()));
            }
            wakers.write = Some(cx.waker().clone());
            // Only the end of the session can keep a fresh connection from taking data.
            match state.protocol.room(self.id) {
                Ok(_) => Poll::Pending,
                Err(reason) => Poll::Ready(Err(reason)),
            }
        })
    }

    /// Takes received data without copying; `Err(Eof)` is the orderly end.
    pub(crate) fn poll_chunk(&self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Reason>> {
        self.shared.with(|state| match state.protocol.read(self.id, usize::MAX) {
            Read::Data(data) => Poll::Ready(Ok(data)),
            Read::End(reason) => Poll::Ready(Err(reason)),
            Read::Nothing => {
                state.wakers.entry(self.id).or_default().read = Some(cx.waker().clone());
                Poll::Pending
            }
        })
    }

    /// Waits until something may be written.
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<usize, Reason>> {
        self.shared.with(|state| match state.protocol.room(self.id) {
            Ok(0) => {
                state.wakers.entry(self.id).or_default().write = Some(cx.waker().clone());
                Poll::Pending
            }
            room => Poll::Ready(room),
        })
    }

    /// Writes one message, which is made before the lock is taken.
    fn poll_write_large(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let room = ready!(self.poll_room(cx)).map_err(write_error)?;
        let count = data.len().min(room).min(self.shared.frame());
        let mut chunk = Chunk::with_capacity(count);
        chunk.buffer().extend_from_slice(&data[..count]);
        let written = self.shared.with(|state| state.protocol.write_chunk(self.id, chunk));
        Poll::Ready(written.map(|()| count).map_err(write_error))
    }

    /// Queues a chunk after [`TunnelStream::poll_room`]; a small one is copied and handed back for reuse.
    pub(crate) fn write_chunk(&self, chunk: Chunk) -> Result<Option<Chunk>, Reason> {
        self.shared.with(|state| {
            if chunk.len() * 4 >= chunk.capacity() {
                return state.protocol.write_chunk(self.id, chunk).map(|()| None);
            }
            state.protocol.write_all(self.id, chunk.data()).map(|()| Some(chunk))
        })
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        // Each piece is taken under the lock and copied without it: the driver must not wait for a copy.
        while buf.remaining() > 0 {
            let read = this.shared.with(|state| {
                let read = state.protocol.read(this.id, buf.remaining());
                if read == Read::Nothing && buf.filled().len() == before {
                    state.wakers.entry(this.id).or_default().read = Some(cx.waker().clone());
                }
                read
            });
            match read {
                Read::Data(data) => buf.put_slice(&data),
                _ if buf.filled().len() > before => break,
                Read::End(Reason::Eof) => break,
                Read::End(reason) => return Poll::Ready(Err(read_error(reason))),
                Read::Nothing => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.shut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if data.len() >= COPY_OUTSIDE {
            return this.poll_write_large(cx, data);
        }
        this.shared.with(|state| match state.protocol.write(this.id, data) {
            Ok(0) => {
                state.wakers.entry(this.id).or_default().write = Some(cx.waker().clone());
                Poll::Pending
            }
            Ok(count) => Poll::Ready(Ok(count)),
            Err(reason) => Poll::Ready(Err(write_error(reason))),
        })
    }

    /// Written data is on its way by itself; there is nothing to push.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.shut = true;
        this.shared.with(|state| match state.protocol.flushed(this.id) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => {
                state.wakers.entry(this.id).or_default().write = Some(cx.waker().clone());
                Poll::Pending
            }
            Err(reason) => Poll::Ready(Err(write_error(reason))),
        })
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        self.shared.with(|state| {
            state.wakers.remove(&self.id);
            state.protocol.detach(self.id, Instant::now().into_std());
        });
    }
}

impl fmt::Debug for TunnelStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TunnelStream({}/{})", self.shared.name(), self.id)
    }
}

fn read_error(reason: Reason) -> io::Error {
    let kind = match &reason {
        Reason::Remote(text) if text.ends_with("connection refused") => io::ErrorKind::ConnectionRefused,
        Reason::Remote(text) if text.ends_with("i/o timeout") => io::ErrorKind::TimedOut,
        Reason::Remote(_) | Reason::Local(_) | Reason::Eof => io::ErrorKind::ConnectionReset,
        Reason::Disconnect | Reason::Sync => io::ErrorKind::ConnectionAborted,
    };
    io::Error::new(kind, reason)
}

fn write_error(reason: Reason) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, reason)
}
