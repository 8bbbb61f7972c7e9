//! A server, clients that dial it, and services for them to reach.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::HeaderMap;
use remuda_tunnel::{
    client::{self, Connector},
    dial::{BoxIo, Inbound},
    protocol::Role,
    server::{Identity, Server, ServerOptions},
    session::{SessionEnd, SessionOptions},
    socket::BoxSocket,
    websocket::WebSocket,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::TcpListener,
    task::JoinSet,
    time::timeout,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol};
use tokio_util::sync::CancellationToken;

/// Fails instead of hanging.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), future).await.expect("took too long")
}

/// Waits for a state that other tasks bring about.
pub(crate) async fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if check() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{what} never happened");
}

/// Both ends of a WebSocket over an in-memory pipe: server's, client's.
pub(crate) fn sockets(buffer: usize) -> (WebSocket<DuplexStream>, WebSocket<DuplexStream>) {
    let (server, client) = duplex(buffer);
    (WebSocket::new(server, Role::Server), WebSocket::new(client, Role::Client))
}

/// The same, with the end of the other role in the hands of another implementation.
pub(crate) async fn half(
    role: Role,
    buffer: usize,
) -> (WebSocket<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (ours, theirs) = duplex(buffer);
    let other = if role == Role::Server { protocol::Role::Client } else { protocol::Role::Server };
    (WebSocket::new(ours, role), WebSocketStream::from_raw_socket(theirs, other, None).await)
}

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<SessionEnd>,
}

impl World {
    pub(crate) fn new(options: ServerOptions) -> Self {
        Self { server: Server::new(options), stop: CancellationToken::new(), tasks: JoinSet::new() }
    }

    /// Connects a client to the server in memory.
    pub(crate) async fn client(
        &mut self,
        key: &str,
        inbound: Inbound,
        options: SessionOptions,
    ) -> CancellationToken {
        let (theirs, ours) = sockets(64 << 10);
        let (server, key) = (self.server.clone(), key.to_owned());
        let before = server.sessions(&key).len();
        let stop = self.stop.child_token();
        let client_stop = stop.clone();
        let watched = key.clone();
        self.tasks.spawn(async move { server.serve(Identity::Client(key), theirs).await });
        self.tasks.spawn(async move { client::serve(ours, inbound, options, &client_stop).await });
        eventually("session", || self.server.sessions(&watched).len() > before).await;
        stop
    }
}

/// A world with one client `c-1` whose dials all end in `service`, by address.
pub(crate) async fn world_with(inbound: Inbound) -> World {
    let mut world = World::new(ServerOptions::default());
    world.client("c-1", inbound, SessionOptions::default()).await;
    world
}

/// In-memory services by address: `echo`, `source:<bytes>`, `sink`, `refuse`, `hold`.
pub(crate) fn services() -> Inbound {
    Inbound::all(|_: String, address: String| async move { service(&address) })
}

pub(crate) fn service(address: &str) -> io::Result<BoxIo> {
    let (near, mut far) = duplex(64 << 10);
    let address = address.to_owned();
    if address == "refuse" {
        return Err(io::Error::new(
            io::ErrorKind::ConnectionRefused,
            "dial tcp refuse: connect: connection refused",
        ));
    }
    tokio::task::spawn(async move {
        match address.split_once(':') {
            Some(("source", count)) => {
                let count: u64 = count.parse().unwrap();
                let mut source = tokio::io::repeat(7).take(count);
                let _ = tokio::io::copy(&mut source, &mut far).await;
            }
            _ if address == "sink" => {
                let _ = tokio::io::copy(&mut far, &mut tokio::io::sink()).await;
            }
            _ if address == "hold" => std::future::pending().await,
            _ => {
                let (mut reader, mut writer) = tokio::io::split(far);
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            }
        }
    });
    Ok(Box::new(near))
}

/// Sends `text` through a stream to an echo service and expects it back.
pub(crate) async fn echo<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(
    stream: &mut S,
    text: &[u8],
) {
    stream.write_all(text).await.unwrap();
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await.unwrap();
    assert!(back == text);
}

/// A TCP echo server on loopback.
pub(crate) async fn tcp_echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::task::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::task::spawn(async move {
                let (mut reader, mut writer) = stream.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
            });
        }
    });
    address
}

/// A connector that reaches `server` in memory and is recognised by its headers as a peer, or is client `c-1`.
pub(crate) fn connector(server: Server, attempts: Arc<AtomicUsize>) -> Arc<dyn Connector> {
    Arc::new(move |headers: HeaderMap| {
        attempts.fetch_add(1, Ordering::SeqCst);
        let server = server.clone();
        async move {
            let (theirs, ours) = sockets(64 << 10);
            let identity = server.authenticate_peer(&headers).unwrap_or(Identity::Client("c-1".into()));
            tokio::task::spawn(async move { server.serve(identity, theirs).await });
            Ok(Box::new(ours) as BoxSocket)
        }
    })
}
