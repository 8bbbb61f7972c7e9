//! Accepting connections: the TLS handshake, then HTTP/1.1 or HTTP/2 on what comes out of it.
//!
//! Most connections of a busy server are watches that say nothing for minutes, so what counts is
//! how little an idle one costs: one task, no read buffer larger than it needs, keep-alives on the
//! socket rather than timers here.
//!
//! Clients that have not logged in get seconds, not minutes, and leave room for those that have: see
//! `unauthenticated`.

mod unauthenticated;

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body::{Frame, SizeHint};
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use remuda_tunnel::readahead::ReadAhead;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};
use tracing::{debug, warn};

pub use self::unauthenticated::Bounds;
use self::unauthenticated::{Guest, Serving, Unauthenticated};
use crate::{
    gather::{Cork, Gathered, Streams},
    tls,
};

/// Who is at the other end of a connection, as far as TLS can tell.
#[derive(Debug, Clone)]
pub struct Remote {
    pub address: SocketAddr,
    /// The address of ours the client connected to.
    pub local: SocketAddr,
    /// The certificates the client has shown, its own first. Not judged yet.
    pub certificates: Option<Arc<[rustls::pki_types::CertificateDer<'static>]>>,
}

/// What happens to requests. One call of `connect` per connection, then `handle` per request.
pub trait Handler: Clone + Send + Sync + 'static {
    type Peer: Clone + Send + Sync + 'static;
    type Body: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Unpin
        + Send
        + 'static;

    fn connect(&self, remote: Remote) -> Self::Peer;

    /// Whether the client has shown who it is: by its certificate, or in a request that was answered.
    fn is_logged_in(&self, peer: &Self::Peer) -> bool;

    fn handle(
        &self,
        peer: Self::Peer,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// What the accept loop counts.
#[derive(Debug, Default)]
pub struct Counters {
    pub accepted: AtomicU64,
    pub open: AtomicU64,
    pub handshakes_failed: AtomicU64,
    /// Closed without a word, since all connections for clients that are not logged in were busy.
    pub refused: AtomicU64,
}

#[derive(Clone)]
pub struct Acceptor<H> {
    pub tls: TlsAcceptor,
    pub handler: H,
    pub counters: Arc<Counters>,
    /// From connecting to the end of the handshake.
    pub handshake: Duration,
    /// For the head of a request to arrive, and for a kept connection to be used again: [`HEAD`].
    pub head: Duration,
    /// For clients that have not logged in.
    pub unauthenticated: Bounds,
    /// Told to finish what they are doing and close.
    pub stop: CancellationToken,
    pub tasks: TaskTracker,
}

/// A request's head must arrive within this time, and a kept connection must be used again within it, once
/// its client has logged in.
pub const HEAD: Duration = Duration::from_secs(300);
/// After this silence the kernel asks whether the client is still there.
const IDLE_PROBE: Duration = Duration::from_secs(30);
const MAX_HEADER_BYTES: u32 = 256 * 1024;
/// Watches of one client share a connection; an informer-heavy one has hundreds.
const MAX_STREAMS: u32 = 1000;
/// Unsent bytes of one HTTP/2 stream.
const SEND_BUFFER: usize = 256 * 1024;
const HTTP2_WINDOW: u32 = 256 * 1024;
const HTTP2_CONNECTION_WINDOW: u32 = 1024 * 1024;
/// Header lines of an answer. Many clients take no more than a hundred, and a few are added later.
const MAX_HEADER_LINES: usize = 90;

impl<H: Handler> Acceptor<H> {
    /// Accepts until told to stop. The number of open connections never exceeds `limit`.
    pub async fn run(self, listener: TcpListener, limit: usize) {
        let slots = Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
        let unauthenticated = Unauthenticated::new(self.unauthenticated);
        loop {
            let next = async {
                // Waiting for a slot before accepting leaves the surplus in the kernel's queue.
                let slot = slots.clone().acquire_owned().await;
                (slot, listener.accept().await)
            };
            let (slot, accepted) = tokio::select! {
                () = self.stop.cancelled() => return,
                next = next => next,
            };
            match (slot, accepted) {
                (Ok(slot), Ok((stream, address))) => match unauthenticated.enter(address.ip()) {
                    Some(guest) => {
                        let connection = self.clone().connection(stream, address, slot, Arc::new(guest));
                        self.tasks.spawn(connection);
                    }
                    None => {
                        self.counters.refused.fetch_add(1, Relaxed);
                        debug!(%address, "too many connections that are not logged in");
                    }
                },
                (Err(_), _) => return,
                (_, Err(error)) => self.pause(&error).await,
            }
        }
    }

    /// A connection that died in the queue is no matter; running out of descriptors passes only with time.
    async fn pause(&self, error: &io::Error) {
        use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
        if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
            return;
        }
        warn!(%error, "cannot accept connections");
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
    }

    async fn connection(
        self,
        stream: TcpStream,
        address: SocketAddr,
        _slot: OwnedSemaphorePermit,
        guest: Arc<Guest>,
    ) {
        self.counters.accepted.fetch_add(1, Relaxed);
        self.counters.open.fetch_add(1, Relaxed);
        let _open = Open(self.counters.clone());
        prepare(&stream);
        let Ok(local) = stream.local_addr() else { return };
        // A socket for both families shows IPv4 addresses inside IPv6 ones.
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let (address, local) = (plain(address), plain(local));
        let stream = tokio::select! {
            () = self.stop.cancelled() => return,
            () = guest.overstayed() => return,
            handshake = timeout(self.handshake, self.tls.accept(ReadAhead::new(stream))) => match handshake {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    self.counters.handshakes_failed.fetch_add(1, Relaxed);
                    debug!(%address, %error, "TLS handshake failed");
                    return;
                }
                Err(_) => {
                    self.counters.handshakes_failed.fetch_add(1, Relaxed);
                    debug!(%address, "TLS handshake took too long");
                    return;
                }
            }
        };
        let (_, session) = stream.get_ref();
        let certificates = session.peer_certificates().map(|chain| chain.iter().cloned().collect());
        let http2 = session.alpn_protocol() == Some(tls::H2);
        let peer = self.handler.connect(Remote { address, local, certificates });
        guest.connected();
        if self.handler.is_logged_in(&peer) {
            guest.logged_in();
        }
        // Boxed each on its own: a connection of one kind need not carry the other's size.
        if http2 {
            Box::pin(self.http2(stream, peer, &guest)).await;
        } else {
            Box::pin(self.http1(stream, peer, &guest)).await;
        }
    }

    /// Handles a request, and notes for how long that keeps the connection busy.
    fn serve(
        &self,
        peer: &H::Peer,
        guest: &Arc<Guest>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Served<H::Body>>> + Send + use<H> {
        let (handler, peer) = (self.handler.clone(), peer.clone());
        let (guest, serving) = (guest.clone(), guest.serve());
        async move {
            let mut response = handler.handle(peer.clone(), request).await;
            if handler.is_logged_in(&peer) {
                guest.logged_in();
            }
            bound_lines(response.headers_mut());
            response.map(|body| Served { body, _serving: serving })
        }
    }

    async fn http1(self, stream: TlsStream<ReadAhead<TcpStream>>, peer: H::Peer, guest: &Arc<Guest>) {
        let service = service_fn(|request| {
            let answer = self.serve(&peer, guest, request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.head)
            .max_header_size(MAX_HEADER_BYTES as usize)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = guest.overstayed() => return,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        log_end(ended);
    }

    async fn http2(self, stream: TlsStream<ReadAhead<TcpStream>>, peer: H::Peer, guest: &Arc<Guest>) {
        // Requests are tasks of their own, so that those of one client use all cores.
        let service =
            service_fn(|request| AbortOnDropHandle::new(self.tasks.spawn(self.serve(&peer, guest, request))));
        let (streams, stream) = (Streams::default(), Cork::new(stream));
        let connection = http2::Builder::new(streams.clone())
            .timer(TokioTimer::new())
            .keep_alive_interval(IDLE_PROBE)
            .keep_alive_timeout(Duration::from_secs(20))
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .max_send_buf_size(SEND_BUFFER)
            .initial_stream_window_size(HTTP2_WINDOW)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
            .serve_connection(TokioIo::new(stream.clone()), service);
        let mut connection = Gathered::new(connection, streams, stream);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = guest.overstayed() => return,
            () = self.stop.cancelled() => {
                connection.connection().graceful_shutdown();
                connection.await
            }
        };
        log_end(ended);
    }
}

/// A body, and the note that its connection is busy until it is sent.
struct Served<B> {
    body: B,
    _serving: Serving,
}

impl<B: http_body::Body + Unpin> http_body::Body for Served<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Leaves out header lines that are too many for clients, wherever they come from. What is said once
/// stays before what is said often, and what a body cannot be read without stays in any case.
fn bound_lines(headers: &mut HeaderMap) {
    if headers.len() <= MAX_HEADER_LINES {
        return;
    }
    let needed = [
        header::CONTENT_TYPE,
        header::CONTENT_LENGTH,
        header::CONTENT_ENCODING,
        header::LOCATION,
        header::UPGRADE,
        header::CONNECTION,
        header::SET_COOKIE,
    ];
    let all = std::mem::take(headers);
    let names = needed.iter().chain(all.keys().filter(|name| !needed.contains(name)));
    for name in names.take(MAX_HEADER_LINES) {
        if let Some(value) = all.get(name) {
            headers.append(name, value.clone());
        }
    }
    for name in all.keys() {
        for value in all.get_all(name).iter().skip(1) {
            if headers.len() < MAX_HEADER_LINES && headers.contains_key(name) {
                headers.append(name, value.clone());
            }
        }
    }
}

struct Open(Arc<Counters>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

fn prepare(stream: &TcpStream) {
    // Answers and events are small and somebody waits for each of them.
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new().with_time(IDLE_PROBE).with_interval(IDLE_PROBE).with_retries(3);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}

/// Clients go away in many ways, none of which is our trouble.
fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        debug!(%error, "connection ended");
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use jiff::Timestamp;
    use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        task::JoinSet,
    };
    use tokio_rustls::{TlsConnector, client};

    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::{datadir::DataDir, pki::Pki};

    #[derive(Clone)]
    struct Hello;

    impl Handler for Hello {
        type Peer = Arc<AtomicBool>;
        type Body = Full<Bytes>;

        fn connect(&self, _: Remote) -> Arc<AtomicBool> {
            Arc::default()
        }

        fn is_logged_in(&self, peer: &Arc<AtomicBool>) -> bool {
            peer.load(Relaxed)
        }

        async fn handle(&self, peer: Arc<AtomicBool>, request: Request<Incoming>) -> Response<Full<Bytes>> {
            peer.fetch_or(request.uri().path() == "/login", Relaxed);
            let mut response = Response::new(Full::from("hello"));
            let lines = request.uri().query().map_or(0, |lines| lines.parse().unwrap());
            for _ in 0..lines {
                response.headers_mut().append("warning", header::HeaderValue::from_static("299 - x"));
            }
            response
        }
    }

    struct Listening {
        address: SocketAddr,
        connector: TlsConnector,
        counters: Arc<Counters>,
        stop: CancellationToken,
        tasks: TaskTracker,
        _accepting: JoinSet<()>,
    }

    impl Listening {
        async fn start(limit: usize, handshake: Duration) -> Listening {
            Self::with(limit, handshake, Bounds::of(limit)).await
        }

        async fn with(limit: usize, handshake: Duration, unauthenticated: Bounds) -> Listening {
            let dir = tempfile::tempdir().unwrap();
            let pki = Pki::open(&DataDir::open(dir.path()).unwrap(), Timestamp::now()).unwrap();
            let names = std::collections::BTreeSet::from(["localhost".to_owned()]);
            let issued = pki.serving(&names, Timestamp::now()).unwrap();
            let presented = tls::Presented::new(tls::certified_key(&issued.cert, &issued.key).unwrap(), None);
            let clients = tls::Clients::new(pki.ca_pem().as_bytes()).unwrap();
            let config = tls::server_config(Arc::new(presented), Arc::new(clients)).unwrap();
            let mut roots = RootCertStore::empty();
            roots.add(pki.authority().certificate().to_vec().into()).unwrap();
            let client = ClientConfig::builder_with_provider(tls::provider())
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (counters, stop, tasks) =
                (Arc::<Counters>::default(), CancellationToken::new(), TaskTracker::new());
            let acceptor = Acceptor {
                tls: TlsAcceptor::from(Arc::new(config)),
                handler: Hello,
                counters: counters.clone(),
                handshake,
                head: Duration::from_millis(300),
                unauthenticated,
                stop: stop.clone(),
                tasks: tasks.clone(),
            };
            let mut accepting = JoinSet::new();
            accepting.spawn(acceptor.run(listener, limit));
            let connector = TlsConnector::from(Arc::new(client));
            Listening { address, connector, counters, stop, tasks, _accepting: accepting }
        }

        async fn connect(&self) -> io::Result<client::TlsStream<TcpStream>> {
            let stream = TcpStream::connect(self.address).await?;
            self.connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
        }
    }

    async fn ask(stream: &mut client::TlsStream<TcpStream>) -> String {
        ask_for(stream, "/").await
    }

    async fn ask_for(stream: &mut client::TlsStream<TcpStream>, path: &str) -> String {
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut buffer = [0; 8192];
        let read = stream.read(&mut buffer).await.unwrap();
        String::from_utf8_lossy(&buffer[..read]).into_owned()
    }

    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_client_that_says_nothing_is_let_go() {
        let listening = Listening::start(10, Duration::from_millis(50)).await;
        let mut silent = TcpStream::connect(listening.address).await.unwrap();
        assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(listening.counters.handshakes_failed.load(Relaxed), 1);
    }

    #[tokio::test]
    async fn a_client_that_takes_its_time_with_a_request_is_let_go() {
        let listening = Listening::start(10, LONG).await;
        let mut slow = listening.connect().await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        // A line now and then does not make it last.
        let dribble = async {
            while slow.write_all(b"x: y\r\n").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(LONG, dribble).await;
        let gone = timeout(LONG, async {
            while listening.counters.open.load(Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        gone.await.expect("it is let go");
    }

    #[tokio::test]
    async fn a_client_that_asks_nothing_after_the_handshake_is_let_go_in_seconds() {
        let bounds = Bounds { first: Duration::from_millis(100), ..Bounds::of(10) };
        let listening = Listening::with(10, LONG, bounds).await;
        let mut idle = listening.connect().await.unwrap();
        assert_eq!(timeout(LONG, idle.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
    }

    #[tokio::test]
    async fn idle_connections_of_strangers_make_room_and_those_logged_in_stay() {
        let bounds = Bounds { total: 3, per_address: 2, first: LONG, idle: LONG };
        let listening = Listening::with(4, LONG, bounds).await;
        let mut known = listening.connect().await.unwrap();
        assert!(ask_for(&mut known, "/login").await.ends_with("hello"));
        let mut idle = Vec::new();
        for _ in 0..5 {
            idle.push(listening.connect().await.unwrap());
        }
        let mut newest = idle.pop().unwrap();
        assert!(ask(&mut newest).await.ends_with("hello"));
        // Of the others only as many are left as one address may have.
        for gone in &mut idle[..3] {
            assert_eq!(timeout(LONG, gone.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
        }
        assert!(ask(&mut idle[3]).await.ends_with("hello"));
        assert!(ask(&mut known).await.ends_with("hello"));
    }

    #[tokio::test]
    async fn an_answer_never_has_more_header_lines_than_clients_take() {
        let listening = Listening::start(10, LONG).await;
        let mut client = listening.connect().await.unwrap();
        let answer = ask_for(&mut client, "/?300").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "hello");
        assert!(head.contains("content-length: 5"), "{head}");
        let lines = head.lines().count() - 1;
        assert!((MAX_HEADER_LINES..100).contains(&lines), "{lines} lines");
    }

    #[tokio::test]
    async fn a_client_too_many_waits_for_one_to_leave() {
        let listening = Listening::start(1, LONG).await;
        let mut first = listening.connect().await.unwrap();
        assert!(ask(&mut first).await.ends_with("hello"));
        let second = listening.connect();
        let mut second = pin!(second);
        assert!(timeout(Duration::from_millis(100), second.as_mut()).await.is_err());
        assert_eq!(listening.counters.open.load(Relaxed), 1);
        drop(first);
        assert!(ask(&mut second.await.unwrap()).await.ends_with("hello"));
    }

    #[tokio::test]
    async fn idle_connections_close_when_told_to_stop() {
        let listening = Listening::start(10, LONG).await;
        let mut idle = listening.connect().await.unwrap();
        assert!(ask(&mut idle).await.ends_with("hello"));
        let _unfinished = TcpStream::connect(listening.address).await.unwrap();
        listening.stop.cancel();
        listening.tasks.close();
        timeout(LONG, listening.tasks.wait()).await.unwrap();
        assert_eq!(idle.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(listening.counters.open.load(Relaxed), 0);
    }
}
