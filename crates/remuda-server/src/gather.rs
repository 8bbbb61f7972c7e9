//! What one HTTP/2 connection has to say at one moment goes out in one write.
//!
//! A change that a thousand watches wait for makes a thousand frames at once. Left to itself each is a task
//! switch, a TLS record and a system call. Here the streams of a connection are polled together, before the
//! connection, and what the connection writes is held until it has nothing more to write.

use std::{
    cell::Cell,
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Release},
        },
    },
    task::{Context, Poll, Wake, Waker, ready},
};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

type Stream = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes the streams of one connection from whoever serves it.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<Vec<Stream>>>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        self.0.lock().push(Box::pin(stream));
    }
}

/// The streams of one connection. Unlike a `FuturesUnordered`, one poll goes to all that are ready: a stream
/// that has sent something is woken by its own sending, which would count as being greedy there.
#[derive(Default)]
struct Running {
    streams: Vec<Option<Place>>,
    free: Vec<usize>,
    bell: Arc<Bell>,
    /// Kept for its room.
    batch: Vec<usize>,
}

struct Place {
    stream: Stream,
    slot: Arc<Slot>,
    /// Wakes the slot.
    waker: Waker,
}

/// Who is ready, and whom to tell.
#[derive(Default)]
struct Bell {
    ready: Mutex<Vec<usize>>,
    connection: AtomicWaker,
}

struct Slot {
    index: usize,
    queued: AtomicBool,
    bell: Arc<Bell>,
}

impl Wake for Slot {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, AcqRel) {
            self.bell.ready.lock().push(self.index);
            self.bell.connection.wake();
        }
    }
}

impl Running {
    fn add(&mut self, stream: Stream) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.streams.push(None);
            self.streams.len() - 1
        });
        let slot = Arc::new(Slot { index, queued: AtomicBool::new(true), bell: self.bell.clone() });
        self.streams[index] = Some(Place { stream, waker: Waker::from(slot.clone()), slot });
        self.bell.ready.lock().push(index);
    }

    /// Polls every stream that was ready, once.
    fn poll(&mut self, context: &Context<'_>) {
        self.bell.connection.register(context.waker());
        std::mem::swap(&mut *self.bell.ready.lock(), &mut self.batch);
        for index in self.batch.drain(..) {
            // A stream that has ended may be woken once more.
            let Some(Some(place)) = self.streams.get_mut(index) else { continue };
            place.slot.queued.store(false, Release);
            if place.stream.as_mut().poll(&mut Context::from_waker(&place.waker)).is_ready() {
                self.streams[index] = None;
                self.free.push(index);
            }
        }
    }
}

/// A connection, its streams and what it has to say as one future. The streams end with the connection.
pub(crate) struct Gathered<C, S> {
    connection: Pin<Box<C>>,
    arriving: Streams,
    streams: Running,
    cork: Cork<S>,
}

impl<C, S> Gathered<C, S> {
    pub(crate) fn new(connection: C, streams: Streams, cork: Cork<S>) -> Self {
        Self { connection: Box::pin(connection), arriving: streams, streams: Running::default(), cork }
    }

    pub(crate) fn connection(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }
}

impl<C: Future, S: AsyncWrite + Unpin> Future for Gathered<C, S> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        let this = self.get_mut();
        loop {
            this.streams.poll(context);
            if let Poll::Ready(ended) = this.connection.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
            let arrived = std::mem::take(&mut *this.arriving.0.lock());
            if arrived.is_empty() {
                break;
            }
            for stream in arrived {
                this.streams.add(stream);
            }
        }
        // Whatever goes wrong here the connection meets at its next read or write.
        let _ = this.cork.0.lock().poll_release(context);
        Poll::Pending
    }
}

/// Held bytes, at most.
const HELD: usize = 64 * 1024;

thread_local! {
    /// What held bytes are written into. Nearly always they go out before the thread turns to another connection,
    /// so one piece of memory, which stays in the processor's cache, serves them all.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Holds what is written until it is released or there is too much of it. A flush does not release: HTTP/2
/// flushes after every frame of some size.
pub(crate) struct Cork<S>(Arc<Mutex<Held<S>>>);

struct Held<S> {
    inner: S,
    bytes: Vec<u8>,
    written: usize,
    /// Something went to `inner` that it was not told to send.
    unflushed: bool,
}

impl<S> Cork<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self(Arc::new(Mutex::new(Held { inner, bytes: Vec::new(), written: 0, unflushed: false })))
    }
}

impl<S> Clone for Cork<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: AsyncWrite + Unpin> Held<S> {
    fn poll_release(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.bytes.len() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(context, &self.bytes[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.inner).poll_flush(context))?;
            self.unflushed = false;
        }
        // A silent connection holds no buffer.
        let mut room = std::mem::take(&mut self.bytes);
        if room.capacity() > 0 {
            room.clear();
            ROOM.set(room);
        }
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cork<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cork<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut held = self.0.lock();
        let size: usize = slices.iter().map(|slice| slice.len()).sum();
        if held.written > 0 || held.bytes.len() + size > HELD {
            ready!(held.poll_release(context))?;
        }
        if size > HELD {
            held.unflushed = true;
            return Pin::new(&mut held.inner).poll_write_vectored(context, slices);
        }
        if held.bytes.capacity() == 0 {
            held.bytes = ROOM.take();
        }
        for slice in slices {
            held.bytes.extend_from_slice(slice);
        }
        Poll::Ready(Ok(size))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.0.lock();
        ready!(held.poll_release(context))?;
        Pin::new(&mut held.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
