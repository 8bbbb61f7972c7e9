#![allow(clippy::disallowed_methods, reason = "the runtime of a test ends its tasks")]

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::join_all};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    client::conn::http2::{self as client, SendRequest},
    server::conn::http2,
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::{broadcast, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tokio_stream::wrappers::BroadcastStream;

use super::*;

const LONG: Duration = Duration::from_secs(20);

/// Counts writes.
struct Counted {
    inner: DuplexStream,
    writes: Arc<AtomicUsize>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes.fetch_add(1, Relaxed);
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// A connection whose every stream repeats what is published.
struct Serving {
    publish: broadcast::Sender<Bytes>,
    writes: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<hyper::Result<()>>,
    client: SendRequest<Empty<Bytes>>,
}

impl Serving {
    async fn start(pipe: usize) -> Serving {
        let (near, far) = duplex(pipe);
        let (publish, _) = broadcast::channel(4096);
        let writes = Arc::new(AtomicUsize::new(0));
        let (stop, stopped) = oneshot::channel();
        let (published, inner) = (publish.clone(), Counted { inner: near, writes: writes.clone() });
        let task = tokio::spawn(async move {
            let service = service_fn(move |_: Request<Incoming>| {
                let changes = BroadcastStream::new(published.subscribe());
                let body = changes.map(|bytes| bytes.map(Frame::data));
                async { Ok::<_, Infallible>(Response::new(StreamBody::new(body))) }
            });
            let (streams, cork) = (Streams::default(), Cork::new(inner));
            let connection = http2::Builder::new(streams.clone())
                .max_concurrent_streams(1000)
                .max_send_buf_size(64 * 1024)
                .serve_connection(TokioIo::new(cork.clone()), service);
            let mut connection = Gathered::new(connection, streams, cork);
            tokio::select! {
                ended = &mut connection => ended,
                _ = stopped => {
                    connection.connection().graceful_shutdown();
                    connection.await
                }
            }
        });
        let (client, connection) =
            client::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(far)).await.unwrap();
        tokio::spawn(connection);
        Serving { publish, writes, stop: Some(stop), task, client }
    }

    async fn watch(&self) -> Incoming {
        let request = Request::get("http://x/").body(Empty::new()).unwrap();
        let answer = self.client.clone().send_request(request).await.unwrap();
        answer.into_body()
    }

    async fn watches(&self, count: usize) -> Vec<Incoming> {
        join_all((0..count).map(|_| self.watch())).await
    }
}

async fn next(body: &mut Incoming) -> Bytes {
    let frame = timeout(LONG, body.frame()).await.expect("in time").expect("goes on").unwrap();
    frame.into_data().unwrap()
}

#[tokio::test]
async fn a_change_that_many_watch_is_a_few_writes() {
    let serving = Serving::start(1 << 20).await;
    let mut watches = serving.watches(500).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let before = serving.writes.load(Relaxed);
    serving.publish.send(Bytes::from(vec![b'x'; 100])).unwrap();
    for watch in &mut watches {
        assert_eq!(next(watch).await, vec![b'x'; 100]);
    }
    let writes = serving.writes.load(Relaxed) - before;
    assert!(writes <= 20, "{writes} writes for one change");
}

#[tokio::test]
async fn every_stream_gets_everything_in_order_through_a_narrow_pipe() {
    let serving = Serving::start(300).await;
    let mut watches = serving.watches(20).await;
    let sizes = [1, 100, 5000, 3, 70_000, 16_384, 2];
    for (number, size) in sizes.iter().enumerate() {
        serving.publish.send(Bytes::from(vec![number as u8; *size])).unwrap();
    }
    let expected: Vec<u8> =
        sizes.iter().enumerate().flat_map(|(number, size)| vec![number as u8; *size]).collect();
    let read = watches.iter_mut().map(async |watch| {
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            seen.extend_from_slice(&next(watch).await);
            // The window opens by what was read.
        }
        seen
    });
    for seen in join_all(read).await {
        assert!(seen == expected);
    }
}

#[tokio::test]
async fn a_stream_nobody_reads_does_not_stall_the_others() {
    let serving = Serving::start(1 << 20).await;
    let _unread = serving.watch().await;
    let mut read = serving.watch().await;
    let change = Bytes::from(vec![7; 10_000]);
    // Far more than the window of the stream that is not read.
    for _ in 0..200 {
        serving.publish.send(change.clone()).unwrap();
        let mut left = change.len();
        while left > 0 {
            left -= next(&mut read).await.len();
        }
    }
}

#[tokio::test]
async fn told_to_stop_it_takes_no_more_and_ends_with_the_last_stream() {
    let mut serving = Serving::start(1 << 20).await;
    let mut open = serving.watch().await;
    serving.stop.take().unwrap().send(()).unwrap();
    serving.publish.send(Bytes::from_static(b"still here")).unwrap();
    assert_eq!(next(&mut open).await, "still here");
    assert!(!serving.task.is_finished());
    drop(open);
    timeout(LONG, serving.task).await.expect("ends").unwrap().unwrap();
}

#[tokio::test]
async fn streams_end_when_the_other_side_goes_away() {
    let serving = Serving::start(1 << 20).await;
    let watches = serving.watches(10).await;
    assert_eq!(serving.publish.receiver_count(), 10);
    let (publish, task) = (serving.publish, serving.task);
    drop((watches, serving.client));
    let _ = timeout(LONG, task).await.expect("ends");
    assert_eq!(publish.receiver_count(), 0);
}

#[tokio::test]
async fn slots_are_used_again() {
    let serving = Serving::start(1 << 20).await;
    for _ in 0..50 {
        let mut watches = serving.watches(5).await;
        serving.publish.send(Bytes::from_static(b"x")).unwrap();
        for watch in &mut watches {
            assert_eq!(next(watch).await, "x");
        }
    }
}

/// Takes as much at a time as it is told to, and nothing in between.
struct Reluctant {
    appetite: VecDeque<usize>,
    taken: Vec<u8>,
    flushed: usize,
}

impl AsyncWrite for Reluctant {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.appetite.pop_front() {
            Some(0) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            appetite => {
                let taken = appetite.unwrap_or(usize::MAX).min(bytes.len());
                self.taken.extend_from_slice(&bytes[..taken]);
                Poll::Ready(Ok(taken))
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushed = self.taken.len();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_lost_or_reordered_by_holding_it(
        sizes in prop::collection::vec(prop_oneof![0..2000usize, 60_000..70_000usize], 1..12),
        appetite in prop::collection::vec(prop_oneof![Just(0usize), 1..50_000usize], 0..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let inner = Reluctant { appetite: appetite.into(), taken: Vec::new(), flushed: 0 };
            let cork = Cork::new(inner);
            let mut expected = Vec::new();
            for (number, size) in sizes.into_iter().enumerate() {
                let bytes = vec![number as u8; size];
                cork.clone().write_all(&bytes).await.unwrap();
                expected.extend_from_slice(&bytes);
                prop_assert!(cork.0.lock().bytes.len() <= HELD);
            }
            cork.clone().shutdown().await.unwrap();
            let held = cork.0.lock();
            prop_assert!(held.inner.taken == expected);
            prop_assert_eq!(held.inner.flushed, expected.len());
            prop_assert_eq!(held.bytes.capacity(), 0);
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_flush_does_not_let_go_and_a_release_does() {
    let (near, mut far) = duplex(1024);
    let mut cork = Cork::new(near);
    cork.write_all(b"held").await.unwrap();
    cork.flush().await.unwrap();
    let mut bytes = [0; 4];
    assert!(timeout(Duration::from_millis(20), far.read_exact(&mut bytes)).await.is_err());
    let released = std::future::poll_fn(|context| cork.0.lock().poll_release(context)).await;
    released.unwrap();
    far.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"held");
}
