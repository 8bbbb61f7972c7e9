//! The accepting end: connections are taken, encrypted and upgraded as the server does it.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use remuda_server::{
    accept::{Acceptor, Counters, Handler, Remote},
    datadir::DataDir,
    pki::Pki,
    tls,
};
use remuda_tunnel::{
    server::{ID_HEADER, Identity, Server, ServerOptions},
    socket::websocket_config,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{MissedTickBehavior, interval_at, sleep},
};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{handshake::derive_accept_key, protocol::Role},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::dialling::{Dialling, KEY, NULL, ZERO};

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

impl Handler for Door {
    type Peer = ();
    type Body = Full<Bytes>;

    fn connect(&self, _: Remote) {}

    async fn handle(&self, (): (), mut request: Request<Incoming>) -> Response<Full<Bytes>> {
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
            let config = Some(websocket_config());
            let socket = WebSocketStream::from_raw_socket(TokioIo::new(io), Role::Server, config).await;
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
    pub(crate) async fn start() -> anyhow::Result<Accepting> {
        let dir = tempfile::tempdir().context("make a temporary directory")?;
        let now = Timestamp::now();
        let pki = Pki::open(&DataDir::open(&dir.path().join("data"))?, now)?;
        let authority = dir.path().join("authority.pem");
        std::fs::write(&authority, pki.ca_pem())?;
        let issued = pki.serving(&BTreeSet::from(["localhost".to_owned()]), now)?;
        let presented = tls::Presented::new(tls::certified_key(&issued.cert, &issued.key)?, None);
        let clients = tls::Clients::new(pki.ca_pem().as_bytes())?;
        let config = tls::server_config(Arc::new(presented), Arc::new(clients))?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let tunnel = Server::new(ServerOptions::default());
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let acceptor = Acceptor {
            tls: TlsAcceptor::from(Arc::new(config)),
            handler: Door { tunnel: tunnel.clone(), tasks: tasks.clone() },
            counters: Arc::<Counters>::default(),
            handshake: PATIENCE,
            stop: stop.clone(),
            tasks: tasks.clone(),
        };
        tasks.spawn(acceptor.run(listener, 100_000));
        Ok(Accepting { address, authority, tunnel, stop, tasks, _dir: dir })
    }

    /// Waits until so many tunnels are there.
    pub(crate) async fn wait_for(&self, count: usize) -> anyhow::Result<()> {
        let started = Instant::now();
        while self.tunnel.statistics().client_sessions < count {
            if started.elapsed() > PATIENCE {
                bail!("{} of {count} tunnels are connected", self.tunnel.statistics().client_sessions);
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
    pub(crate) async fn throughput(&self, streams: usize, bytes: u64, to_agent: bool) -> anyhow::Result<f64> {
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
                        bail!("a stream ended early");
                    }
                    left = left.saturating_sub(count as u64);
                }
                if to_agent {
                    stream.shutdown().await?;
                }
                anyhow::Ok(())
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
    ) -> anyhow::Result<(Vec<Duration>, Vec<Duration>)> {
        let address = dialling.echo().to_owned();
        let (mut direct, mut through) = (Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            direct.push(stream);
            through.push(self.tunnel.dial(KEY, "tcp", &address).await?);
        }
        let direct = exchanges(direct, rate, seconds).await?;
        Ok((exchanges(through, rate, seconds).await?, direct))
    }
}

/// Exchanges at a steady rate, spread over all streams; a slow one does not delay the others.
async fn exchanges<S>(streams: Vec<S>, rate: u32, seconds: u32) -> anyhow::Result<Vec<Duration>>
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
            for _ in 0..rate * seconds / count {
                pace.tick().await;
                let since = Instant::now();
                stream.write_all(&[1; EXCHANGE]).await?;
                stream.read_exact(&mut [0; EXCHANGE]).await?;
                times.push(since.elapsed());
            }
            anyhow::Ok(times)
        });
    }
    let mut all = Vec::new();
    while let Some(times) = tasks.join_next().await {
        all.extend(times??);
    }
    all.sort_unstable();
    Ok(all)
}
