//! A small HTTP/1.1 client: one connection per request, every wait bounded.
//!
//! The agent makes a handful of requests a minute, so there is nothing to pool, and a connection that
//! does not exist costs no memory.

use std::{
    fmt, io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, lookup_host},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::proxy::Proxies;

/// How long each phase of a request may take.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// Name resolution, TCP, proxy and TLS.
    pub connect: Duration,
    /// Until the head of the response.
    pub response: Duration,
    /// Between two pieces of the body.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(30), response: seconds(60), idle: seconds(60) }
    }
}

/// Where in an exchange something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// TCP, proxy and TLS.
    Connect,
    /// Until the head of the answer is there.
    Answer,
    /// Between two pieces of the answer.
    Data,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Connect => "connecting to",
            Phase::Answer => "waiting for",
            Phase::Data => "waiting for data from",
        })
    }
}

/// What went wrong with a request.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be used.
    #[error("unusable address {uri}: {reason}")]
    Address {
        /// As given.
        uri: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Nobody knows the host.
    #[error("look up {host}")]
    Resolve {
        /// Whom.
        host: String,
        /// Why not.
        source: io::Error,
    },
    /// No connection.
    #[error("connect to {host}")]
    Connect {
        /// Where to.
        host: String,
        /// Why not.
        source: io::Error,
    },
    /// No agreement on TLS.
    #[error("TLS handshake with {host}")]
    Tls {
        /// With whom.
        host: String,
        /// Why not.
        source: io::Error,
    },
    /// The proxy refused.
    #[error("proxy {proxy} answered {answer}")]
    Proxy {
        /// Which.
        proxy: String,
        /// First line of its answer.
        answer: String,
    },
    /// Not HTTP, or cut off.
    #[error("exchange with {host}")]
    Exchange {
        /// With whom.
        host: String,
        /// Why not.
        source: hyper::Error,
    },
    /// Too slow.
    #[error("{phase} {host} took longer than {seconds} s")]
    Timeout {
        /// What it took too long with.
        phase: Phase,
        /// With whom.
        host: String,
        /// The limit.
        seconds: u64,
    },
    /// Too large.
    #[error("answer of {host} is larger than {limit} bytes")]
    TooLarge {
        /// Whose.
        host: String,
        /// The limit.
        limit: usize,
    },
}

impl HttpError {
    /// Whether the server's certificate comes from an authority that is not trusted. One of the same name
    /// with another key shows as a bad signature.
    pub fn is_unknown_issuer(&self) -> bool {
        use rustls::{
            CertificateError::{BadSignature, UnknownIssuer},
            Error::InvalidCertificate,
        };
        let Self::Tls { source, .. } = self else { return false };
        let inner = source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        matches!(inner, Some(InvalidCertificate(UnknownIssuer | BadSignature)))
    }
}

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Method.
    pub method: Method,
    /// Absolute address.
    pub uri: Uri,
    /// Headers beside `Host` and `Connection`.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Request {
    /// A GET without further headers.
    pub fn get(uri: Uri) -> Self {
        Self { method: Method::GET, uri, headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// Adds a header; a value that cannot be one is left out.
    #[must_use]
    pub fn header(mut self, name: http::HeaderName, value: &str) -> Self {
        if let Ok(mut value) = HeaderValue::from_str(value) {
            value.set_sensitive(name == header::AUTHORIZATION);
            self.headers.insert(name, value);
        }
        self
    }
}

/// A response whose body is still on the wire.
#[derive(Debug)]
pub struct Response {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Body,
}

/// A body on the wire, with the connection that brings it.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    host: String,
    idle: Duration,
    // Dropping it ends the connection.
    _connection: JoinSet<()>,
}

impl Body {
    /// The next piece, or `None` at the end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let next = timeout(self.idle, self.incoming.frame()).await;
            let frame = next.map_err(|_| HttpError::Timeout {
                phase: Phase::Data,
                host: self.host.clone(),
                seconds: self.idle.as_secs(),
            })?;
            match frame {
                None => return Ok(None),
                Some(Err(source)) => return Err(HttpError::Exchange { host: self.host.clone(), source }),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// All of it, if it is not larger than `limit`.
    pub async fn read(mut self, limit: usize) -> Result<Vec<u8>, HttpError> {
        let mut content = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if content.len() + chunk.len() > limit {
                return Err(HttpError::TooLarge { host: self.host, limit });
            }
            content.extend_from_slice(&chunk);
        }
        Ok(content)
    }
}

/// Makes requests with one set of TLS and proxy settings.
#[derive(Debug, Clone)]
pub struct Client {
    /// TLS settings.
    pub tls: Arc<ClientConfig>,
    /// Name to check the certificate against instead of the host's.
    pub server_name: Option<String>,
    /// Proxies.
    pub proxies: Proxies,
    /// Limits.
    pub timeouts: Timeouts,
}

struct Destination {
    https: bool,
    host: String,
    port: u16,
}

impl Destination {
    fn of(uri: &Uri) -> Result<Self, HttpError> {
        let unusable = |reason| HttpError::Address { uri: redact(uri), reason };
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(unusable("scheme must be http or https")),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| unusable("host is missing"))?;
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        Ok(Self { https, host: host.trim_matches(['[', ']']).to_owned(), port })
    }

    fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

fn redact(uri: &Uri) -> String {
    let text = uri.to_string();
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}{}", &text[..scheme + 3], &text[at + 1..]),
        _ => text,
    }
}

impl Client {
    /// Sends a request and waits for the head of the response. Redirects are the caller's business.
    pub async fn send(&self, request: Request) -> Result<Response, HttpError> {
        let body = Full::new(request.body.clone());
        self.send_with(request, body).await
    }

    /// The same with a body that is not in memory, in place of the request's own. The time for an answer counts from
    /// the beginning of the body.
    pub async fn send_with<B>(&self, request: Request, body: B) -> Result<Response, HttpError>
    where
        B: hyper::body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let to = Destination::of(&request.uri)?;
        let host = to.authority();
        let proxy = self.proxies.select(to.https, &to.host, to.port).cloned();
        let stream = self.connect_in_time(&to, proxy.as_ref(), |tcp| tcp).await?;
        let absolute = !to.https && proxy.is_some();
        let request = encode(request, &to, absolute, proxy.as_ref()).map(|_| body);
        let exchange = |source| HttpError::Exchange { host: host.clone(), source };
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(16 << 10)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(exchange)?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Errors reach the caller through the request or the body.
            let _ = connection.await;
        });
        let response = timeout(self.timeouts.response, sender.send_request(request))
            .await
            .map_err(|_| timed_out(Phase::Answer, &to, self.timeouts.response))?
            .map_err(exchange)?;
        let (head, incoming) = response.into_parts();
        let body = Body { incoming, host, idle: self.timeouts.idle, _connection: driver };
        Ok(Response { status: head.status, headers: head.headers, body })
    }

    /// Opens a connection to the host of `uri`, through a proxy if it takes one, and secures it. What is said
    /// over it is the caller's business, and so is what lies between TLS and the network.
    pub async fn open<T: Stream + 'static>(
        &self,
        uri: &Uri,
        below: impl FnOnce(TcpStream) -> T,
    ) -> Result<Box<dyn Stream>, HttpError> {
        let to = Destination::of(uri)?;
        let proxy = self.proxies.select(to.https, &to.host, to.port);
        if let (false, Some(uri)) = (to.https, proxy) {
            return Err(HttpError::Address { uri: redact(uri), reason: "proxies only pass on https" });
        }
        self.connect_in_time(&to, proxy, below).await
    }

    async fn connect_in_time<T: Stream + 'static>(
        &self,
        to: &Destination,
        proxy: Option<&Uri>,
        below: impl FnOnce(TcpStream) -> T,
    ) -> Result<Box<dyn Stream>, HttpError> {
        timeout(self.timeouts.connect, self.connect(to, proxy, below))
            .await
            .map_err(|_| timed_out(Phase::Connect, to, self.timeouts.connect))?
    }

    async fn connect<T: Stream + 'static>(
        &self,
        to: &Destination,
        proxy: Option<&Uri>,
        below: impl FnOnce(TcpStream) -> T,
    ) -> Result<Box<dyn Stream>, HttpError> {
        let tcp = match proxy {
            None => dial(to).await?,
            Some(uri) => {
                let via = Destination::of(uri)?;
                if via.https {
                    return Err(HttpError::Address {
                        uri: redact(uri),
                        reason: "proxies are spoken to over plain http only",
                    });
                }
                let mut tcp = dial(&via).await?;
                if to.https {
                    tunnel(&mut tcp, &via, to, uri).await?;
                }
                tcp
            }
        };
        if !to.https {
            return Ok(Box::new(tcp));
        }
        let failed = |source| HttpError::Tls { host: to.authority(), source };
        let name = self.server_name.as_ref().unwrap_or(&to.host).clone();
        let name = ServerName::try_from(name).map_err(|error| failed(io::Error::other(error)))?;
        let connector = TlsConnector::from(self.tls.clone());
        Ok(Box::new(connector.connect(name, below(tcp)).await.map_err(failed)?))
    }
}

/// A connection of whatever kind.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

fn timed_out(phase: Phase, to: &Destination, limit: Duration) -> HttpError {
    HttpError::Timeout { phase, host: to.authority(), seconds: limit.as_secs() }
}

/// Where a host is. This machine is asked for every few seconds, by probes, and is where it always is; the resolver
/// would read its files in a thread for each of them.
async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if host.eq_ignore_ascii_case("localhost") {
        return Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]);
    }
    let found: Vec<_> = lookup_host((host, port)).await?.collect();
    if found.is_empty() { Err(io::Error::other("no address")) } else { Ok(found) }
}

async fn dial(to: &Destination) -> Result<TcpStream, HttpError> {
    let addresses = addresses(&to.host, to.port)
        .await
        .map_err(|source| HttpError::Resolve { host: to.host.clone(), source })?;
    let connected = TcpStream::connect(addresses.as_slice()).await;
    let tcp = connected.map_err(|source| HttpError::Connect { host: to.authority(), source })?;
    // A watch is silent for minutes; a peer that vanished has to be noticed all the same.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(30))
        .with_interval(Duration::from_secs(10))
        .with_retries(3);
    let _ = SockRef::from(&tcp).set_tcp_keepalive(&keepalive);
    let _ = tcp.set_nodelay(true);
    Ok(tcp)
}

async fn tunnel(
    tcp: &mut TcpStream,
    via: &Destination,
    to: &Destination,
    proxy: &Uri,
) -> Result<(), HttpError> {
    const HEAD_LIMIT: usize = 16 << 10;
    let target = to.authority();
    let credentials =
        proxy_authorization(proxy).map_or(String::new(), |value| format!("Proxy-Authorization: {value}\r\n"));
    let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{credentials}\r\n");
    let failed = |source| HttpError::Connect { host: via.authority(), source };
    tcp.write_all(head.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    // Byte by byte: what follows the head belongs to the TLS handshake.
    while !answer.ends_with(b"\r\n\r\n") && answer.len() < HEAD_LIMIT {
        answer.push(tcp.read_u8().await.map_err(failed)?);
    }
    let line =
        String::from_utf8_lossy(answer.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
    if line.starts_with("HTTP/1.") && line.split(' ').nth(1).is_some_and(|status| status.starts_with('2')) {
        Ok(())
    } else {
        Err(HttpError::Proxy { proxy: via.authority(), answer: line })
    }
}

fn proxy_authorization(proxy: &Uri) -> Option<String> {
    let (credentials, _) = proxy.authority()?.as_str().rsplit_once('@')?;
    Some(format!("Basic {}", STANDARD.encode(percent_decode(credentials))))
}

/// Undoes percent-encoding; what is not encoded properly stays as it is.
pub(crate) fn percent_decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let pair = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                decoded.push(byte);
                at += 3;
            }
            _ => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    decoded
}

/// Percent-encodes everything but unreserved characters.
pub(crate) fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte as char);
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn encode(
    request: Request,
    to: &Destination,
    absolute: bool,
    proxy: Option<&Uri>,
) -> hyper::Request<Full<Bytes>> {
    let Request { method, uri, mut headers, body } = request;
    let default_port = if to.https { 443 } else { 80 };
    let authority = to.authority();
    let host = if to.port == default_port {
        authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host)
    } else {
        &authority
    };
    if let Ok(host) = HeaderValue::from_str(host) {
        headers.insert(header::HOST, host);
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let target = if absolute {
        if let Some(value) =
            proxy.and_then(proxy_authorization).and_then(|value| HeaderValue::from_str(&value).ok())
        {
            headers.insert(header::PROXY_AUTHORIZATION, value);
        }
        format!("http://{host}{path}").parse().unwrap_or_else(|_| uri.clone())
    } else {
        path.parse().unwrap_or_else(|_| Uri::from_static("/"))
    };
    let mut encoded = hyper::Request::new(Full::new(body));
    *encoded.method_mut() = method;
    *encoded.uri_mut() = target;
    *encoded.headers_mut() = headers;
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_machine_is_where_it_always_is() {
        let expected: [SocketAddr; 2] = ["127.0.0.1:6443".parse().unwrap(), "[::1]:6443".parse().unwrap()];
        assert_eq!(addresses("LocalHost", 6443).await.unwrap(), expected);
        assert_eq!(addresses("127.0.0.2", 1).await.unwrap(), ["127.0.0.2:1".parse().unwrap()]);
    }

    #[test]
    fn credentials_in_an_address_are_not_shown() {
        assert_eq!(redact(&"http://u:p@h:1/x".parse().unwrap()), "http://h:1/x");
        assert_eq!(redact(&"http://h/x".parse().unwrap()), "http://h/x");
    }

    #[test]
    fn percent_encoding_round_trips() {
        let text = "a b/ü%41&=";
        assert_eq!(percent_decode(&percent_encode(text)), text.as_bytes());
        assert_eq!(percent_decode("%4"), b"%4");
        assert_eq!(percent_decode("%zz%41"), b"%zzA");
    }

    #[test]
    fn the_host_header_leaves_out_default_ports() {
        for (uri, host) in [
            ("https://a/", "a"),
            ("https://a:443/", "a"),
            ("https://a:8443/", "a:8443"),
            ("http://[::1]:80/", "[::1]"),
            ("http://[::1]:81/", "[::1]:81"),
        ] {
            let uri: Uri = uri.parse().unwrap();
            let to = Destination::of(&uri).unwrap();
            let request = encode(Request::get(uri), &to, false, None);
            assert_eq!(request.headers()[header::HOST], host);
        }
    }
}
