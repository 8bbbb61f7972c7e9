//! Figures of a tunnel on this machine: `cargo run --release -p remuda-tunnel --example tunnel_bench`.
//!
//! Server and client run in one process and talk over loopback TCP with TLS. Printed are the throughput of
//! one stream and of many, in both directions, the latency of small exchanges beside idle and busy streams,
//! and the resident memory of idle sessions.

use std::{
    error::Error,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, Uri};
use remuda_tunnel::{
    client::{handshake, serve},
    dial::{BoxIo, Inbound},
    server::{Identity, Server, ServerOptions},
    session::SessionOptions,
    socket::websocket_config,
};
use rustls::{ClientConfig, RootCertStore, ServerConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, duplex},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_tungstenite::accept_async_with_config;
use tokio_util::sync::CancellationToken;

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const MIB: u64 = 1 << 20;

/// Services in the client's process, so that only the tunnel is measured.
fn services() -> Inbound {
    Inbound::all(|_: String, address: String| async move {
        if address != "echo" {
            return Ok(Box::new(Endless { gives: address == "zero" }) as BoxIo);
        }
        let (near, far) = duplex(64 << 10);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(far);
            tokio::io::copy(&mut reader, &mut writer).await
        });
        tasks.detach_all();
        Ok(Box::new(near) as BoxIo)
    })
}

/// Takes anything, and gives zeros or nothing.
struct Endless {
    gives: bool,
}

impl AsyncRead for Endless {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        if !self.gives {
            return std::task::Poll::Pending;
        }
        // As a socket does, let others run from time to time.
        let coop = std::task::ready!(tokio::task::coop::poll_proceed(cx));
        coop.made_progress();
        let count = buf.remaining();
        buf.initialize_unfilled();
        buf.advance(count);
        std::task::Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        data: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        let coop = std::task::ready!(tokio::task::coop::poll_proceed(cx));
        coop.made_progress();
        std::task::Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

struct Rig {
    server: Server,
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Rig {
    fn new() -> Outcome<Self> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        let (certificate, key) = (issued.cert.der().clone(), issued.signing_key.serialize_der());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.try_into()?)?;
        let mut roots = RootCertStore::empty();
        roots.add(certificate)?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            server: Server::new(ServerOptions::default()),
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: TlsConnector::from(Arc::new(client)),
            tasks: JoinSet::new(),
            stop: CancellationToken::new(),
        })
    }

    async fn connect(&mut self, listener: &TcpListener, key: String) -> Outcome {
        let address = listener.local_addr()?;
        let (connector, stop) = (self.connector.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let served = async {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                let stream = connector.connect(ServerName::try_from("localhost")?, stream).await?;
                let uri: Uri = "wss://localhost/v3/connect".parse()?;
                let socket = handshake(stream, &uri, &HeaderMap::new()).await?;
                serve(socket, services(), SessionOptions::default(), &stop).await;
                Outcome::Ok(())
            };
            let _ = Box::pin(served).await;
        });
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (server, acceptor, name) = (self.server.clone(), self.acceptor.clone(), key.clone());
        self.tasks.spawn(async move {
            let served = async {
                let stream = acceptor.accept(stream).await?;
                let socket = accept_async_with_config(stream, Some(websocket_config())).await?;
                server.serve(Identity::Client(name), socket).await;
                Outcome::Ok(())
            };
            let _ = Box::pin(served).await;
        });
        while !self.server.has_session(&key) {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        Ok(())
    }

    /// MiB per second through `streams` connections.
    async fn throughput(&self, streams: u64, total: u64, upload: bool) -> Outcome<f64> {
        let mut tasks = JoinSet::new();
        let since = Instant::now();
        for _ in 0..streams {
            let mut stream = self.server.dial("bench", "tcp", if upload { "null" } else { "zero" }).await?;
            let share = total / streams;
            tasks.spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                let mut left = share;
                while left > 0 {
                    left = left.saturating_sub(if upload {
                        stream.write(&buffer).await? as u64
                    } else {
                        stream.read(&mut buffer).await? as u64
                    });
                }
                if upload {
                    stream.shutdown().await?;
                }
                std::io::Result::Ok(())
            });
        }
        for done in tasks.join_all().await {
            done?;
        }
        Ok(total as f64 / MIB as f64 / since.elapsed().as_secs_f64())
    }

    /// Median and 99th percentile of small exchanges, in microseconds.
    async fn latency(&self, rounds: usize) -> Outcome<(u128, u128)> {
        let mut stream = self.server.dial("bench", "tcp", "echo").await?;
        let mut times = Vec::with_capacity(rounds);
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        for _ in 0..rounds {
            pace.tick().await;
            let since = Instant::now();
            stream.write_all(&[1; 100]).await?;
            stream.read_exact(&mut [0; 100]).await?;
            times.push(since.elapsed().as_micros());
        }
        times.sort_unstable();
        Ok((times[rounds / 2], times[rounds * 99 / 100]))
    }
}

fn resident_kib() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse()?)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Outcome {
    let mut out = std::io::stdout();
    let mut rig = Rig::new()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let before = resident_kib()?;
    let idle = 500;
    for number in 0..idle {
        rig.connect(&listener, format!("idle-{number}")).await?;
    }
    // Pings touch the buffers that a session keeps.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let each = (resident_kib()? - before) as f64 / f64::from(idle);
    writeln!(out, "idle session, both ends with TLS: {each:.1} KiB resident")?;

    rig.connect(&listener, "bench".to_owned()).await?;
    let (median, tail) = rig.latency(2000).await?;
    writeln!(out, "exchange at 1,000/s: p50 {median} us, p99 {tail} us")?;
    for (streams, total) in [(1, 1024 * MIB), (64, 1024 * MIB), (1000, 1024 * MIB)] {
        let down = rig.throughput(streams, total, false).await?;
        let up = rig.throughput(streams, total, true).await?;
        writeln!(out, "{streams} streams: {down:.0} MiB/s from the client, {up:.0} MiB/s to it")?;
    }
    rig.stop.cancel();
    rig.server.shutdown().await;
    rig.tasks.shutdown().await;
    Ok(())
}
