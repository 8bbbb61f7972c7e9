//! A connection to the server, as thin as it can be.

use std::sync::Arc;

use anyhow::{Context, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use remuda_server::{kubeconfig::Access, tls};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::{net::TcpStream, task::JoinSet};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Where connections go, and as whom.
pub(crate) struct Target {
    address: String,
    name: ServerName<'static>,
    connector: TlsConnector,
}

impl Target {
    pub(crate) fn new(access: &Access) -> anyhow::Result<Target> {
        let address = access.server.strip_prefix("https://").context("not https")?.to_owned();
        let host = address.rsplit_once(':').context("no port")?.0.to_owned();
        let identity = access.identity.as_ref().context("no client certificate")?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&access.ca).flatten());
        let chain = CertificateDer::pem_slice_iter(&identity.cert).collect::<Result<_, _>>()?;
        let config = ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&identity.key)?)?;
        Ok(Target { address, name: ServerName::try_from(host)?, connector: Arc::new(config).into() })
    }

    /// A connection nothing is said on yet.
    pub(crate) async fn stream(&self) -> anyhow::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(self.connector.connect(self.name.clone(), stream).await?)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = self.stream().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _ = connection.await;
        });
        Ok(Connection { sender, host: self.address.clone(), _tasks: tasks })
    }
}

pub(crate) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    host: String,
    _tasks: JoinSet<()>,
}

/// Method and content type.
#[derive(Clone, Copy)]
pub(crate) enum Verb {
    Get,
    Post,
    MergePatch,
    Apply,
}

impl Connection {
    /// Sends a request and returns the answer's body as it comes.
    pub(crate) async fn open(&mut self, verb: Verb, path: &str, body: Bytes) -> anyhow::Result<Incoming> {
        let (method, content) = match verb {
            Verb::Get => ("GET", "application/json"),
            Verb::Post => ("POST", "application/json"),
            Verb::MergePatch => ("PATCH", "application/merge-patch+json"),
            Verb::Apply => ("PATCH", "application/apply-patch+yaml"),
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("content-type", content)
            .header("accept", "application/json")
            .body(Full::new(body))?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let status = response.status();
        let text = response.into_body().collect().await?.to_bytes();
        bail!("{method} {path}: {status} {}", String::from_utf8_lossy(&text))
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn call(&mut self, verb: Verb, path: &str, body: Bytes) -> anyhow::Result<Bytes> {
        Ok(self.open(verb, path, body).await?.collect().await?.to_bytes())
    }
}
