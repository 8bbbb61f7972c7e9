//! A small HTTP/1.1 client: one connection per request, everything bounded.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("{url:?} is no address of a server")]
    Address { url: String },
    #[error("connect to {host}")]
    Connect { host: String, source: io::Error },
    #[error("ask {host}")]
    Exchange { host: String, source: hyper::Error },
    #[error("{host} did not answer in time")]
    Silent { host: String },
    #[error("{host} sent more than was asked for, or broke off")]
    Body { host: String },
    #[error("{host} answered {status}: {text}")]
    Refused { host: String, status: StatusCode, text: String },
    #[error("{host} answered something that makes no sense")]
    Nonsense { host: String },
}

impl HttpError {
    /// Whether the other side has understood and said no.
    pub fn is_refusal(&self) -> bool {
        matches!(self, HttpError::Refused { status, .. }
            if status.is_client_error() && *status != StatusCode::TOO_MANY_REQUESTS && *status != StatusCode::REQUEST_TIMEOUT)
    }
}

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(30);
/// For what comes bit by bit, or takes its time.
const STREAM: Duration = Duration::from_secs(600);
const BODY_LIMIT: usize = 4 << 20;

/// Someone to ask.
#[derive(Clone)]
pub struct Peer {
    pub tls: Option<Arc<ClientConfig>>,
    /// `user:password`.
    pub basic: Option<String>,
}

impl Peer {
    pub async fn get(&self, url: &str) -> Result<Bytes, HttpError> {
        self.request(Method::GET, url, Bytes::new()).await
    }

    pub async fn post(&self, url: &str, body: &Value) -> Result<Value, HttpError> {
        let answer = self.request(Method::POST, url, body.to_string().into()).await?;
        serde_json::from_slice(&answer).map_err(|_| HttpError::Nonsense { host: url.to_owned() })
    }

    /// Posts what takes its time.
    pub async fn post_slowly(&self, url: &str, body: &Value) -> Result<Value, HttpError> {
        let answer = self.request_within(STREAM, Method::POST, url, body.to_string().into()).await?;
        serde_json::from_slice(&answer).map_err(|_| HttpError::Nonsense { host: url.to_owned() })
    }

    /// Posts, and calls `each` for every line of the answer as it comes. Lines are bounded, their number is not.
    pub async fn post_for_lines(
        &self,
        url: &str,
        body: &Value,
        mut each: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(), HttpError> {
        let host = url.to_owned();
        let read = async |response: Response<Incoming>| {
            let status = response.status();
            if !status.is_success() {
                return Err(HttpError::Refused { host: host.clone(), status, text: String::new() });
            }
            let broken = || HttpError::Body { host: host.clone() };
            let (mut body, mut pending) = (response.into_body(), Vec::new());
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map_err(|_| broken())?.into_data() else { continue };
                pending.extend_from_slice(&data);
                while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = pending.drain(..=end).collect();
                    each(&line[..end]).map_err(|_| broken())?;
                }
                if pending.len() > BODY_LIMIT {
                    return Err(broken());
                }
            }
            if pending.is_empty() { Ok(()) } else { each(&pending).map_err(|_| broken()) }
        };
        self.exchange(Method::POST, url, body.to_string().into(), STREAM, read).await
    }

    async fn request(&self, method: Method, url: &str, body: Bytes) -> Result<Bytes, HttpError> {
        self.request_within(ANSWER, method, url, body).await
    }

    async fn request_within(
        &self,
        patience: Duration,
        method: Method,
        url: &str,
        body: Bytes,
    ) -> Result<Bytes, HttpError> {
        let host = url.to_owned();
        let read = async |response: Response<Incoming>| {
            let status = response.status();
            let body = Limited::new(response.into_body(), BODY_LIMIT).collect().await;
            let body = body.map_err(|_| HttpError::Body { host: host.clone() })?.to_bytes();
            if status.is_success() {
                return Ok(body);
            }
            let text: String = String::from_utf8_lossy(&body).trim().chars().take(500).collect();
            Err(HttpError::Refused { host: host.clone(), status, text })
        };
        self.exchange(method, url, body, patience, read).await
    }

    async fn exchange<T>(
        &self,
        method: Method,
        url: &str,
        body: Bytes,
        patience: Duration,
        read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, HttpError>,
    ) -> Result<T, HttpError> {
        let uri: Uri = url.parse().map_err(|_| HttpError::Address { url: url.to_owned() })?;
        let host =
            uri.authority().map(ToString::to_string).ok_or(HttpError::Address { url: url.to_owned() })?;
        let name = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
        let failed = |source| HttpError::Connect { host: host.clone(), source };
        let silent = |_| HttpError::Silent { host: host.clone() };
        let target = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header(header::HOST, &host)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|_| HttpError::Address { url: url.to_owned() })?;
        if let Some(basic) = &self.basic {
            use base64::{Engine, engine::general_purpose::STANDARD};
            let value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(basic)));
            let value = value.map_err(|_| HttpError::Address { url: url.to_owned() })?;
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let stream = timeout(CONNECT, TcpStream::connect((name.as_str(), port)))
            .await
            .map_err(silent)?
            .map_err(failed)?;
        let exchange = async {
            match &self.tls {
                Some(config) if uri.scheme_str() != Some("http") => {
                    let server = ServerName::try_from(name.clone())
                        .map_err(|_| HttpError::Address { url: url.to_owned() })?;
                    let stream =
                        TlsConnector::from(config.clone()).connect(server, stream).await.map_err(failed)?;
                    exchange(&host, stream, request, read).await
                }
                _ => exchange(&host, stream, request, read).await,
            }
        };
        timeout(patience, exchange).await.map_err(silent)?
    }
}

async fn exchange<T>(
    host: &str,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, HttpError>,
) -> Result<T, HttpError> {
    let failed = |source| HttpError::Exchange { host: host.to_owned(), source };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let answer = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        read(response).await
    };
    // The connection moves only while it is polled; once the answer is there it is of no more use.
    tokio::pin!(answer);
    tokio::pin!(connection);
    let mut ended = false;
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            result = &mut connection, if !ended => {
                ended = true;
                if let Err(source) = result {
                    return Err(HttpError::Exchange { host: host.to_owned(), source });
                }
            }
        }
    }
}
