//! Fewer, larger reads below TLS.
//!
//! TLS libraries ask for a few kilobytes at a time, which makes the system calls of a busy tunnel cost more than
//! its cryptography. This reads what there is at once and hands it out in the pieces that are asked for.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

/// Read at once.
const READ: usize = 64 << 10;

thread_local! {
    // An idle connection must not own a buffer: thousands of them would. One that was handed out whole is given
    // back before anybody else can want it.
    static SPARE: RefCell<Option<BytesMut>> = const { RefCell::new(None) };
}

/// A byte stream whose reads are larger than they are asked for.
#[derive(Debug)]
pub struct ReadAhead<T> {
    io: T,
    ahead: BytesMut,
}

impl<T> ReadAhead<T> {
    pub fn new(io: T) -> Self {
        Self { io, ahead: BytesMut::new() }
    }

    pub fn get_ref(&self) -> &T {
        &self.io
    }
}

fn give_back(mut buffer: BytesMut) {
    buffer.clear();
    SPARE.set(Some(buffer));
}

impl<T: AsyncRead + Unpin> AsyncRead for ReadAhead<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            if out.remaining() >= READ {
                return Pin::new(&mut this.io).poll_read(cx, out);
            }
            let mut buffer = SPARE.take().unwrap_or_default();
            buffer.reserve(READ);
            match poll_read_buf(Pin::new(&mut this.io), cx, &mut buffer) {
                Poll::Ready(Ok(_)) => this.ahead = buffer,
                other => {
                    give_back(buffer);
                    return other.map(|result| result.map(|_| ()));
                }
            }
        }
        let count = out.remaining().min(this.ahead.len());
        out.put_slice(&this.ahead[..count]);
        if count == this.ahead.len() {
            give_back(std::mem::take(&mut this.ahead));
        } else {
            this.ahead.advance(count);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ReadAhead<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn what_is_read_ahead_comes_out_in_order_and_leaves_nothing_behind() {
        let (near, mut far) = duplex(1 << 20);
        let mut reader = ReadAhead::new(near);
        let sent: Vec<u8> = (0..200_000u32).map(|at| at as u8).collect();
        far.write_all(&sent).await.unwrap();
        let mut got = Vec::new();
        for size in (1..).step_by(997) {
            let mut piece = vec![0; size.min(sent.len() - got.len())];
            reader.read_exact(&mut piece).await.unwrap();
            got.extend(piece);
            if got.len() == sent.len() {
                break;
            }
        }
        assert!(got == sent);
        assert_eq!(reader.ahead.capacity(), 0);
        drop(far);
        assert_eq!(reader.read(&mut [0; 8]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn two_readers_on_one_thread_do_not_share_what_they_read() {
        let ((a, mut to_a), (b, mut to_b)) = (duplex(4096), duplex(4096));
        let (mut a, mut b) = (ReadAhead::new(a), ReadAhead::new(b));
        to_a.write_all(b"for a").await.unwrap();
        to_b.write_all(b"for b").await.unwrap();
        let (mut first, mut second) = ([0; 2], [0; 2]);
        a.read_exact(&mut first).await.unwrap();
        b.read_exact(&mut second).await.unwrap();
        let (mut rest_a, mut rest_b) = ([0; 3], [0; 3]);
        b.read_exact(&mut rest_b).await.unwrap();
        a.read_exact(&mut rest_a).await.unwrap();
        assert_eq!((&first, &rest_a, &second, &rest_b), (b"fo", b"r a", b"fo", b"r b"));
    }
}
