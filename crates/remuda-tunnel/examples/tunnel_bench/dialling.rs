//! The dialling end, a process of its own: what the agents of clusters are.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    pin::Pin,
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use remuda_tunnel::{
    client::{handshake, serve},
    dial::{BoxIo, Dialer, Inbound, NetDialer},
    readahead::ReadAhead,
    server::ID_HEADER,
    session::SessionOptions,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::{Outcome, accepting::Accepting, say};

/// The first session.
pub(crate) const KEY: &str = "agent-0";
/// Dialled for as many zeros as one likes, and to get rid of data; all else is dialled for real.
pub(crate) const ZERO: &str = "zero";
pub(crate) const NULL: &str = "null";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    server: String,
    #[arg(long)]
    authority: PathBuf,
    #[arg(long, default_value_t = 1)]
    sessions: usize,
}

/// The process; it ends when this is dropped.
pub(crate) struct Dialling {
    child: Child,
    echo: String,
    _stdin: Option<ChildStdin>,
}

impl Dialling {
    pub(crate) fn start(accepting: &Accepting, sessions: usize) -> Outcome<Dialling> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["dial", "--sessions", &sessions.to_string(), "--server", &accepting.address.to_string()])
            .arg("--authority")
            .arg(&accepting.authority)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let mut echo = String::new();
        let stdout = child.stdout.take();
        let mut dialling = Dialling { child, echo: String::new(), _stdin: stdin };
        BufReader::new(stdout.ok_or("no output")?).read_line(&mut echo)?;
        echo.trim().clone_into(&mut dialling.echo);
        if dialling.echo.is_empty() {
            return Err("the dialling end did not start".into());
        }
        Ok(dialling)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it echoes.
    pub(crate) fn echo(&self) -> &str {
        &self.echo
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The whole of that process. On one thread, as in clusters.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Whoever started this holds the other end.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    runtime.block_on(async {
        let echo = TcpListener::bind("127.0.0.1:0").await?;
        say(&echo.local_addr()?.to_string());
        let mut tasks = JoinSet::new();
        tasks.spawn(echoing(echo));
        let connector = connector(&arguments.authority)?;
        for number in 0..arguments.sessions {
            let (connector, server) = (connector.clone(), arguments.server.clone());
            // The second process of this kind must not take the place of the first.
            let key = if arguments.sessions == 1 { KEY.to_owned() } else { format!("idle-{number}") };
            tasks.spawn(async move { session(connector, &server, &key).await });
            // Connecting all at once would measure queues.
            if number % 50 == 49 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Outcome::Ok(())
    })
}

fn connector(authority: &Path) -> Outcome<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_file_iter(authority)?.flatten());
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn session(connector: TlsConnector, server: &str, key: &str) -> Outcome {
    let socket = {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let stream =
            Box::pin(connector.connect(ServerName::try_from("localhost")?, ReadAhead::new(stream))).await?;
        let uri: Uri = "wss://localhost/v3/connect".parse()?;
        let headers =
            HeaderMap::from_iter([(HeaderName::from_static(ID_HEADER), HeaderValue::try_from(key)?)]);
        handshake(stream, &uri, &headers).await?
    };
    let inbound = Inbound::all(|proto: String, address: String| async move {
        match address.as_str() {
            ZERO => Ok(Box::new(Endless { gives: true }) as BoxIo),
            NULL => Ok(Box::new(Endless { gives: false }) as BoxIo),
            _ => NetDialer.dial(proto, address).await,
        }
    });
    serve(socket, inbound, SessionOptions::default(), &CancellationToken::new()).await;
    Ok(())
}

async fn echoing(listener: TcpListener) -> Outcome {
    let mut tasks = JoinSet::new();
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tasks.spawn(async move {
            let (mut reader, mut writer) = stream.split();
            let _ = tokio::io::copy(&mut reader, &mut writer).await;
        });
    }
}

/// Takes anything, and gives zeros or nothing.
struct Endless {
    gives: bool,
}

impl AsyncRead for Endless {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if !self.gives {
            return Poll::Pending;
        }
        // As a socket does, let others run from time to time.
        ready!(tokio::task::coop::poll_proceed(cx)).made_progress();
        let count = buffer.remaining();
        buffer.initialize_unfilled();
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Endless {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<std::io::Result<usize>> {
        ready!(tokio::task::coop::poll_proceed(cx)).made_progress();
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
