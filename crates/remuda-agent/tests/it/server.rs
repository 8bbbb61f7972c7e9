//! A hand-written HTTP/1.1 server, so that tests control every byte.

use std::{collections::HashMap, future::Future, net::SocketAddr, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: HashMap<String, String>,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

pub(crate) enum Answer {
    Full(u16, Vec<(String, String)>, Vec<u8>),
    Stream(mpsc::Receiver<Vec<u8>>),
    HangUp,
}

impl Answer {
    pub(crate) fn json(status: u16, value: &serde_json::Value) -> Self {
        Self::Full(
            status,
            vec![("Content-Type".into(), "application/json".into())],
            value.to_string().into_bytes(),
        )
    }

    pub(crate) fn text(status: u16, text: &str) -> Self {
        Self::Full(status, Vec::new(), text.as_bytes().to_vec())
    }
}

/// A server that lives as long as this value.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

pub(crate) async fn serve<H, F>(tls: Option<Arc<rustls::ServerConfig>>, handler: H) -> Running
where
    H: Fn(Ask) -> F + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    serve_at(([127, 0, 0, 1], 0).into(), tls, handler).await
}

pub(crate) async fn serve_at<H, F>(
    at: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
    handler: H,
) -> Running
where
    H: Fn(Ask) -> F + Send + Sync + 'static,
    F: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind(at).await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler = Arc::new(handler);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((tcp, _)) = listener.accept().await {
            let (handler, tls) = (handler.clone(), tls.clone());
            connections.spawn(async move {
                match tls {
                    None => exchange(tcp, &*handler).await,
                    Some(config) => {
                        if let Ok(stream) = TlsAcceptor::from(config).accept(tcp).await {
                            exchange(stream, &*handler).await;
                        }
                    }
                }
            });
            while connections.try_join_next().is_some() {}
        }
    });
    Running { address, _tasks: tasks }
}

async fn exchange<S, H, F>(mut stream: S, handler: &H)
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: Fn(Ask) -> F,
    F: Future<Output = Answer>,
{
    let Some(ask) = read(&mut stream).await else { return };
    match handler(ask).await {
        Answer::HangUp => {}
        Answer::Full(status, headers, body) => {
            let mut head =
                format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            head.push_str("\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(&body).await;
        }
        Answer::Stream(mut chunks) => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await;
            let _ = stream.flush().await;
            while let Some(chunk) = chunks.recv().await {
                if stream.write_all(&chunk).await.is_err() || stream.flush().await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = stream.shutdown().await;
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Ask> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
        // TLS where there is none: every real server hangs up.
        if head[0] == 0x16 {
            return None;
        }
    }
    let text = String::from_utf8(head).ok()?;
    let mut lines = text.lines();
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let query = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| {
            (name.to_owned(), value.replace("%3D", "=").replace("%2F", "/").replace("%3A", ":"))
        })
        .collect();
    Some(Ask { method, path: path.to_owned(), query, headers, body })
}
