//! Joins a virtual connection with a local one.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    time::timeout,
};
use tokio_util::io::poll_read_buf;

use crate::{protocol::Chunk, stream::TunnelStream};

/// Read from the local side at once; becomes one message.
const READ: usize = 64 << 10;

thread_local! {
    // An idle connection must not own a read buffer: thousands of them would. A read that finds nothing
    // gives the buffer back before anybody else can want it.
    static SPARE: RefCell<Option<Chunk>> = const { RefCell::new(None) };
}

enum End {
    Tunnel,
    Local(io::Result<()>),
}

/// Copies both ways until either side ends, then ends the other. As in the original there is no half-close.
///
/// After the tunnel ended the local side has `linger` to take what already arrived.
pub(crate) async fn pipe<T: AsyncRead + AsyncWrite + Unpin>(
    tunnel: TunnelStream,
    mut local: T,
    linger: Duration,
) {
    let mut inbound = Bytes::new();
    let mut dirty = false;
    let copying = poll_fn(|cx| {
        if let Poll::Ready(end) = poll_inbound(&tunnel, &mut local, &mut inbound, &mut dirty, cx) {
            return Poll::Ready(Some(end));
        }
        poll_outbound(&tunnel, &mut local, cx)
    });
    let end = match copying.await {
        Some(end) => end,
        None => {
            let rest = poll_fn(|cx| poll_inbound(&tunnel, &mut local, &mut inbound, &mut dirty, cx));
            timeout(linger, rest).await.unwrap_or(End::Tunnel)
        }
    };
    match end {
        End::Tunnel => {
            let _ = timeout(linger, local.shutdown()).await;
        }
        End::Local(Ok(())) => drop(tunnel),
        End::Local(Err(error)) => tunnel.close_with(error.to_string()),
    }
}

fn poll_inbound<T: AsyncWrite + Unpin>(
    tunnel: &TunnelStream,
    local: &mut T,
    rest: &mut Bytes,
    dirty: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<End> {
    loop {
        if rest.is_empty() {
            match tunnel.poll_chunk(cx) {
                Poll::Ready(Ok(data)) => *rest = data,
                Poll::Ready(Err(_)) => {
                    // What arrived before the end still belongs to the local side.
                    if *dirty {
                        let _ = ready!(Pin::new(&mut *local).poll_flush(cx));
                    }
                    return Poll::Ready(End::Tunnel);
                }
                Poll::Pending => {
                    if *dirty && let Err(error) = ready!(Pin::new(&mut *local).poll_flush(cx)) {
                        return Poll::Ready(End::Local(Err(error)));
                    }
                    *dirty = false;
                    return Poll::Pending;
                }
            }
        }
        match ready!(Pin::new(&mut *local).poll_write(cx, rest)) {
            Ok(0) => return Poll::Ready(End::Local(Err(io::ErrorKind::WriteZero.into()))),
            Ok(count) => {
                *dirty = true;
                rest.advance(count);
            }
            Err(error) => return Poll::Ready(End::Local(Err(error))),
        }
    }
}

/// Ends with `None` when the tunnel has: unread data may still wait for the local side.
fn poll_outbound<T: AsyncRead + Unpin>(
    tunnel: &TunnelStream,
    local: &mut T,
    cx: &mut Context<'_>,
) -> Poll<Option<End>> {
    loop {
        let Ok(room) = ready!(tunnel.poll_room(cx)) else { return Poll::Ready(None) };
        let mut chunk = SPARE.take().unwrap_or_else(|| Chunk::with_capacity(READ));
        let most = room.min(chunk.capacity());
        match poll_read_buf(Pin::new(&mut *local), cx, &mut chunk.buffer().limit(most)) {
            Poll::Ready(Ok(count)) if count > 0 => match tunnel.write_chunk(chunk) {
                Ok(Some(mut spare)) => {
                    spare.clear();
                    SPARE.set(Some(spare));
                }
                Ok(None) => {}
                Err(_) => return Poll::Ready(None),
            },
            other => {
                SPARE.set(Some(chunk));
                return other.map(|result| Some(End::Local(result.map(|_| ()))));
            }
        }
    }
}
