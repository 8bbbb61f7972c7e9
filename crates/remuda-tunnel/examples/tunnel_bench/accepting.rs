//! The accepting end: connections are taken, encrypted and upgraded as the server does it.

use std::{
    convert::Infallible,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use remuda_tunnel::{
    protocol::Role,
    readahead::ReadAhead,
    server::{ID_HEADER, Identity, Server, ServerOptions},
    websocket::WebSocket,
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{MissedTickBehavior, interval_at, sleep},
};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Outcome,
    dialling::{Dialling, KEY, NULL, ZERO},
};

/// Nothing takes longer to be connected.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of one exchange, each way: a small request and its answer.
const EXCHANGE: usize = 512;
/// Connections that exchanges are spread over, as clients have several.
const CONNECTIONS: u32 = 16;

pub(crate) struct Accepting {
    pub(crate) address: SocketAddr,
    /// The authority of our certificate, as a file.
    pub(crate) authority: PathBuf,
    tunnel: Server,
    stop: CancellationToken,
    tasks: TaskTracker,
    _dir: tempfile::TempDir,
}

/// Upgrades whatever comes: the session is called what its header says.
#[derive(Clone)]
struct Door {
    tunnel: Server,
    tasks: TaskTracker,
}

impl Door {
    async fn connection(self, stream: TcpStream, tls: TlsAcceptor) -> Outcome {
        stream.set_nodelay(true)?;
        let stream = tls.accept(ReadAhead::new(stream)).await?;
        let service = service_fn(|request| {
            let answer = self.upgrade(request);
            async move { Ok::<_, Infallible>(answer) }
        });
        let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades();
        Ok(serving.await?)
    }

    fn upgrade(&self, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::default());
        let header = |name: &str| request.headers().get(name).map(|value| value.as_bytes().to_vec());
        let (Some(key), Some(name)) = (header("sec-websocket-key"), header(ID_HEADER)) else {
            *response.status_mut() = StatusCode::BAD_REQUEST;
            return response;
        };
        let Ok(accept) = HeaderValue::try_from(derive_accept_key(&key)) else { return response };
        let upgrade = hyper::upgrade::on(&mut request);
        let tunnel = self.tunnel.clone();
        let name = String::from_utf8_lossy(&name).into_owned();
        self.tasks.spawn(async move {
            let Ok(io) = upgrade.await else { return };
            let socket = WebSocket::new(TokioIo::new(io), Role::Server);
            tunnel.serve(Identity::Client(name), socket).await;
        });
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        response
    }
}

impl Accepting {
    pub(crate) async fn start() -> Outcome<Accepting> {
        let dir = tempfile::tempdir()?;
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let authority = dir.path().join("authority.pem");
        std::fs::write(&authority, issued.cert.pem())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(
                vec![issued.cert.der().clone()],
                issued.signing_key.serialize_der().try_into()?,
            )?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let tunnel = Server::new(ServerOptions::default());
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let accepting = {
            let door = Door { tunnel: tunnel.clone(), tasks: tasks.clone() };
            let tls = TlsAcceptor::from(Arc::new(config));
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let connection = door.clone().connection(stream, tls.clone());
                    door.tasks.spawn(connection);
                }
            }
        };
        let stopped = stop.clone();
        tasks.spawn(async move { stopped.run_until_cancelled(accepting).await });
        Ok(Accepting { address, authority, tunnel, stop, tasks, _dir: dir })
    }

    /// Waits until so many tunnels are there.
    pub(crate) async fn wait_for(&self, count: usize) -> Outcome {
        let started = Instant::now();
        while self.tunnel.statistics().client_sessions < count {
            if started.elapsed() > PATIENCE {
                let there = self.tunnel.statistics().client_sessions;
                return Err(format!("{there} of {count} tunnels are connected").into());
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.tunnel.shutdown().await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Megabytes per second through so many streams together.
    pub(crate) async fn throughput(&self, streams: usize, bytes: u64, to_agent: bool) -> Outcome<f64> {
        let share = bytes / streams as u64;
        let mut tasks = JoinSet::new();
        let started = Instant::now();
        for _ in 0..streams {
            let mut stream = self.tunnel.dial(KEY, "tcp", if to_agent { NULL } else { ZERO }).await?;
            tasks.spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                let mut left = share;
                while left > 0 {
                    let count = match to_agent {
                        true => stream.write(&buffer).await?,
                        false => stream.read(&mut buffer).await?,
                    };
                    if count == 0 {
                        return Err("a stream ended early".into());
                    }
                    left = left.saturating_sub(count as u64);
                }
                if to_agent {
                    stream.shutdown().await?;
                }
                Outcome::Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok((share * streams as u64) as f64 / 1e6 / started.elapsed().as_secs_f64())
    }

    /// How long exchanges take, sorted: through the tunnel, and without it.
    pub(crate) async fn latencies(
        &self,
        dialling: &Dialling,
        rate: u32,
        seconds: u32,
    ) -> Outcome<(Vec<Duration>, Vec<Duration>)> {
        let address = dialling.echo().to_owned();
        let (mut direct, mut through) = (Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            direct.push(stream);
            through.push(self.tunnel.dial(KEY, "tcp", &address).await?);
        }
        // In turns, so that what else the machine does meets both.
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..seconds {
            direct = exchanges(direct, rate, &mut without).await?;
            through = exchanges(through, rate, &mut with).await?;
        }
        without.sort_unstable();
        with.sort_unstable();
        Ok((with, without))
    }
}

/// A second of exchanges at a steady rate, spread over all streams; a slow one does not delay the others.
async fn exchanges<S>(streams: Vec<S>, rate: u32, all: &mut Vec<Duration>) -> Outcome<Vec<S>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let (count, start) = (streams.len() as u32, tokio::time::Instant::now() + Duration::from_millis(50));
    for (number, mut stream) in streams.into_iter().enumerate() {
        tasks.spawn(async move {
            let offset = Duration::from_secs(1) / rate * number as u32;
            let mut pace = interval_at(start + offset, Duration::from_secs(1) / rate * count);
            pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let mut times = Vec::new();
            for _ in 0..rate / count {
                pace.tick().await;
                let since = Instant::now();
                stream.write_all(&[1; EXCHANGE]).await?;
                stream.read_exact(&mut [0; EXCHANGE]).await?;
                times.push(since.elapsed());
            }
            Outcome::Ok((stream, times))
        });
    }
    let mut streams = Vec::new();
    while let Some(done) = tasks.join_next().await {
        let (stream, times) = done??;
        streams.push(stream);
        all.extend(times);
    }
    Ok(streams)
}
