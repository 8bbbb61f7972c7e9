//! Listening: the API and the supervisor over TLS, and the health of components.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::{ServerConfig, pki_types::CertificateDer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, warn};

#[derive(Debug, thiserror::Error)]
#[error("listen on port {port}")]
pub struct ListenError {
    pub port: u16,
    pub source: io::Error,
}

/// Listens on one address, or on all of the machine.
pub async fn bind(address: Option<IpAddr>, port: u16) -> Result<TcpListener, ListenError> {
    let failed = |source| ListenError { port, source };
    if let Some(address) = address {
        return TcpListener::bind((address, port)).await.map_err(failed);
    }
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        // A machine without IPv6.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await.map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Listens on the loopback addresses: `localhost` may mean either of them.
pub async fn bind_local(port: u16) -> Result<Vec<TcpListener>, ListenError> {
    let first = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(|source| ListenError { port, source })?;
    let chosen = first.local_addr().map_or(port, |address| address.port());
    let second = TcpListener::bind((Ipv6Addr::LOCALHOST, chosen)).await.ok();
    Ok([Some(first), second].into_iter().flatten().collect())
}

/// Who is at the other end of a connection.
pub struct Remote<'a> {
    pub address: SocketAddr,
    pub certificates: Option<&'a [CertificateDer<'static>]>,
}

/// What happens to requests of the API's listener.
pub trait Handler: Clone + Send + Sync + 'static {
    type Peer: Clone + Send + Sync + 'static;

    /// A connection has come to this address of ours, before the handshake.
    fn reached(&self, local: IpAddr);

    fn connect(&self, remote: Remote<'_>) -> Self::Peer;

    fn handle(
        &self,
        peer: Self::Peer,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<remuda_apiserver::Body>> + Send;
}

const HANDSHAKE: Duration = Duration::from_secs(10);
const HEAD: Duration = Duration::from_secs(300);

/// Serves until told to stop.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    handler: H,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let acceptor = TlsAcceptor::from(tls);
    accept(listener, &stop.clone(), |stream, address| {
        let (acceptor, handler, stop) = (acceptor.clone(), handler.clone(), stop.clone());
        tasks.spawn(async move {
            let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
            let Ok(local) = stream.local_addr() else { return };
            let _ = stream.set_nodelay(true);
            handler.reached(plain(local).ip());
            let Some(Ok(Ok(stream))) =
                stop.run_until_cancelled(timeout(HANDSHAKE, acceptor.accept(stream))).await
            else {
                return debug!(%address, "TLS handshake failed");
            };
            let remote =
                Remote { address: plain(address), certificates: stream.get_ref().1.peer_certificates() };
            let peer = handler.connect(remote);
            let service = service_fn(move |request| {
                let (handler, peer) = (handler.clone(), peer.clone());
                async move { Ok::<_, Infallible>(handler.handle(peer, request).await) }
            });
            connection(stream, service, &stop).await;
        });
    })
    .await;
}

async fn connection<S, B>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: S,
    stop: &CancellationToken,
) where
    S: hyper::service::Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_concurrent_streams(1000);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection ended");
    }
}

/// Whether a component is well: `Err` says why not.
pub type Health = Arc<dyn Fn() -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// One that is well as long as it answers.
pub fn well(answer: &'static str) -> Health {
    Arc::new(move || Box::pin(async move { Ok(answer.to_owned()) }))
}

const CHECK: Duration = Duration::from_secs(4);

/// Answers every GET with the health of a component, with or without TLS.
pub async fn serve_health(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    health: Health,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let acceptor = tls.map(TlsAcceptor::from);
    accept(listener, &stop.clone(), |stream, _| {
        let (acceptor, health, stop) = (acceptor.clone(), health.clone(), stop.clone());
        tasks.spawn(async move {
            let service = service_fn(move |_| {
                let health = health.clone();
                async move {
                    let answer = timeout(CHECK, health()).await;
                    let (status, text) = match answer {
                        Ok(Ok(text)) => (StatusCode::OK, text),
                        Ok(Err(text)) => (StatusCode::SERVICE_UNAVAILABLE, text),
                        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "no answer in time".to_owned()),
                    };
                    let mut response = Response::new(Full::new(Bytes::from(text)));
                    *response.status_mut() = status;
                    Ok::<_, Infallible>(response)
                }
            });
            match acceptor {
                None => connection(stream, service, &stop).await,
                Some(acceptor) => {
                    if let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await {
                        connection(stream, service, &stop).await;
                    }
                }
            }
        });
    })
    .await;
}

/// Accepts until told to stop.
pub async fn accept(
    listener: TcpListener,
    stop: &CancellationToken,
    mut take: impl FnMut(TcpStream, SocketAddr),
) {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => take(stream, address),
            Err(error) => {
                use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
                if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
                    continue;
                }
                // Running out of descriptors passes only with time.
                warn!(%error, "cannot accept connections");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(Duration::from_millis(200)) => {}
                }
            }
        }
    }
}
