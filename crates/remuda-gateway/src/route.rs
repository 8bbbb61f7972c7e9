//! The API of one cluster through its tunnel: HTTP/1.1 over TLS over virtual connections.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri, header, uri::Authority};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{
        self,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use remuda_control::{Chain, bounded::BoundedBody};
use remuda_tunnel::{
    server::{DialError, Server},
    stream::TunnelStream,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower::Service;

use crate::respond::{Body, BoxError};

/// How long a connection through a tunnel may take to be there, TLS included.
const DIAL: Duration = Duration::from_secs(15);
/// Connections that nobody uses cost the agent one too.
const IDLE: Duration = Duration::from_secs(60);
const MOST_IDLE: usize = 32;

/// How an agent says its cluster's API is reached.
#[derive(Clone)]
pub(crate) struct Access {
    /// Host and port.
    pub(crate) address: Authority,
    /// PEM.
    pub(crate) ca: String,
    pub(crate) token: String,
    authorization: HeaderValue,
}

impl PartialEq for Access {
    fn eq(&self, other: &Self) -> bool {
        (&self.address, &self.ca, &self.token) == (&other.address, &other.ca, &other.token)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({})", self.address)
    }
}

impl Access {
    /// Fails with what is wrong.
    pub(crate) fn new(address: &str, ca: String, token: String) -> Result<Self, String> {
        let address = bracketed(address);
        let parsed: Authority = address.parse().map_err(|_| format!("{address:?} is no address"))?;
        let odd_port = parsed.as_str() != parsed.host() && parsed.port_u16().is_none();
        if parsed.host().is_empty() || odd_port || address.contains('@') {
            return Err(format!("{address:?} is no address"));
        }
        server_name(&parsed)?;
        let mut authorization =
            HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| "token is no token".to_owned())?;
        authorization.set_sensitive(true);
        if roots(&ca)?.is_empty() {
            return Err("caCert holds no certificate".to_owned());
        }
        Ok(Self { address: parsed, ca, token, authorization })
    }

    /// As the management Cluster has it.
    pub(crate) fn endpoint(&self) -> String {
        format!("https://{}", self.address)
    }

    fn dial_address(&self) -> String {
        format!("{}:{}", self.address.host(), self.address.port_u16().unwrap_or(443))
    }

    #[cfg(test)]
    pub(crate) fn for_tests(address: &str) -> Self {
        let authorization = HeaderValue::from_static("Bearer t");
        Self { address: address.parse().unwrap(), ca: String::new(), token: "t".to_owned(), authorization }
    }
}

/// An IPv6 address without port needs brackets to be told from a port.
fn bracketed(address: &str) -> String {
    if address.parse::<std::net::Ipv6Addr>().is_ok() { format!("[{address}]") } else { address.to_owned() }
}

fn server_name(address: &Authority) -> Result<ServerName<'static>, String> {
    let host = address.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    ServerName::try_from(host).map_err(|_| format!("{address} is no name a certificate could have"))
}

fn roots(pem: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("caCert is not PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("caCert holds no certificate: {error}"))?;
    }
    Ok(roots)
}

/// Why the API of a cluster did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RouteError {
    #[error("{0}")]
    Down(String),
    #[error("no answer within {0:?}")]
    Silent(Duration),
    #[error("request through the tunnel")]
    Request(#[source] legacy::Error),
}

impl RouteError {
    /// Whether there was no session to go through.
    pub(crate) fn is_disconnected(&self) -> bool {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = source {
            if matches!(error.downcast_ref(), Some(DialError::NoSession(_))) {
                return true;
            }
            source = error.source();
        }
        matches!(self, Self::Down(_))
    }
}

/// Connections to one cluster. Clones share them.
#[derive(Clone)]
pub(crate) struct Route {
    access: Arc<Access>,
    client: legacy::Client<Dial, Body>,
}

impl Route {
    pub(crate) fn new(tunnel: Server, cluster: &str, access: Arc<Access>) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots(&access.ca)?)
            .with_no_client_auth();
        let dial = Dial {
            tunnel,
            cluster: cluster.into(),
            address: access.dial_address().into(),
            name: server_name(&access.address)?,
            tls: TlsConnector::from(Arc::new(tls)),
        };
        // Upgrades need HTTP/1.1, and so do agents that dial an API which knows nothing else.
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MOST_IDLE)
            .build(dial);
        Ok(Self { access, client })
    }

    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// Sends a request as the cluster's agent. Returns with the head of the answer.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
        patience: Duration,
    ) -> Result<Response<Incoming>, RouteError> {
        self.send_as(request, self.access.authorization.clone(), patience).await
    }

    /// Sends a request with other credentials.
    pub(crate) async fn send_as(
        &self,
        mut request: Request<Body>,
        authorization: HeaderValue,
        patience: Duration,
    ) -> Result<Response<Incoming>, RouteError> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let uri = Uri::builder().scheme("https").authority(self.access.address.clone()).path_and_query(path);
        *request.uri_mut() = uri.build().map_err(|error| RouteError::Down(error.to_string()))?;
        *request.version_mut() = http::Version::HTTP_11;
        request.headers_mut().insert(header::AUTHORIZATION, authorization);
        request.headers_mut().remove(header::HOST);
        match timeout(patience, self.client.request(request)).await {
            Err(_) => Err(RouteError::Silent(patience)),
            Ok(answer) => answer.map_err(RouteError::Request),
        }
    }
}

/// For clients in this process; the timeouts are theirs.
impl Service<Request<kube::client::Body>> for Route {
    type Response = Response<BoundedBody<Incoming>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        /// Longer than any request of a client lasts until it is answered.
        const LONG: Duration = Duration::from_secs(300);
        let route = self.clone();
        let uri = request.uri().clone();
        let request = request.map(Body::boxed);
        // For the server itself, which reads answers as a whole; what is passed on to others is not bounded.
        Box::pin(async move {
            let answer = route.send(request, LONG).await?;
            Ok(answer.map(|body| BoundedBody::new(&uri, body)))
        })
    }
}

/// Opens connections through the tunnel.
#[derive(Clone)]
struct Dial {
    tunnel: Server,
    cluster: Arc<str>,
    address: Arc<str>,
    name: ServerName<'static>,
    tls: TlsConnector,
}

impl Service<Uri> for Dial {
    type Response = TokioIo<TunnelIo>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dial = self.clone();
        Box::pin(async move {
            let opening = async {
                let stream = dial.tunnel.dial(&dial.cluster, "tcp", &dial.address).await?;
                let stream = dial.tls.connect(dial.name, stream).await.map_err(|error| {
                    BoxError::from(format!("TLS with {}: {}", dial.address, Chain(&error)))
                })?;
                Ok(TokioIo::new(TunnelIo(stream)))
            };
            match timeout(DIAL, opening).await {
                Ok(opened) => opened,
                Err(_) => Err(format!("{} did not answer within {DIAL:?}", dial.address).into()),
            }
        })
    }
}

/// A connection as the client's pool wants it.
struct TunnelIo(TlsStream<TunnelStream>);

impl Connection for TunnelIo {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for TunnelIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for TunnelIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_cannot_say_just_anything() {
        let certificate = rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap().cert.pem();
        let check = |address: &str, ca: &str, token: &str| {
            Access::new(address, ca.to_owned(), token.to_owned()).map(|access| access.endpoint())
        };
        assert_eq!(check("10.43.0.1:443", &certificate, "t").unwrap(), "https://10.43.0.1:443");
        assert_eq!(check("fd00::1", &certificate, "t").unwrap(), "https://[fd00::1]");
        assert_eq!(check("[fd00::1]:6443", &certificate, "t").unwrap(), "https://[fd00::1]:6443");
        for address in ["", "a b", "user@host:1", "/path", "host:port", "https://x", ":443", "-"] {
            assert!(check(address, &certificate, "t").is_err(), "{address}");
        }
        assert!(check("x:1", "", "t").is_err());
        assert!(check("x:1", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "t").is_err());
        assert!(check("x:1", &certificate, "line\nbreak").is_err());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]

        #[test]
        fn no_address_breaks_anything(address in "[\\PC]{0,40}|[a-z0-9.:@/\\[\\]-]{0,40}") {
            // With no certificate nothing is accepted, but everything is read.
            proptest::prop_assert!(Access::new(&address, String::new(), "t".to_owned()).is_err());
        }
    }
}
