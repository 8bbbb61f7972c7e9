//! The way to the server for those who have no rights yet: machines and agents in clusters.

use std::{io, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use remuda_names::{agent::header::ID, gateway::path::CONNECT_AGENT};
use remuda_tunnel::dial::BoxIo;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::Error;

/// More than the answer to a registration needs.
const LARGEST: usize = 256 << 10;

/// Opens connections to a server.
pub trait Door: Send + Sync + 'static {
    fn open(&self) -> BoxFuture<'static, io::Result<BoxIo>>;

    /// What the server is called there, with its port.
    fn authority(&self) -> &str;
}

/// Why a kubeconfig does not lead to a door.
#[derive(Debug, thiserror::Error)]
pub enum BadServer {
    #[error("{0} is no address of a server")]
    Address(String),
    #[error("the server's certificate authority cannot be used")]
    Authority(#[source] rustls::Error),
}

/// The front door of the server a kubeconfig names.
#[derive(Clone)]
pub struct ServerDoor {
    authority: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl ServerDoor {
    pub fn of(config: &kube::Config) -> Result<Self, BadServer> {
        let url = &config.cluster_url;
        let bad = || BadServer::Address(url.to_string());
        let host = url.host().ok_or_else(bad)?;
        let secure = url.scheme_str() == Some("https");
        let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let authority = format!("{host}:{port}");
        if !secure {
            return Ok(Self { authority, tls: None });
        }
        let mut roots = RootCertStore::empty();
        for certificate in config.root_cert.iter().flatten() {
            roots.add(CertificateDer::from(certificate.clone())).map_err(BadServer::Authority)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(BadServer::Authority)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(name).map_err(|_| bad())?;
        Ok(Self { authority, tls: Some((TlsConnector::from(Arc::new(tls)), name)) })
    }
}

impl Door for ServerDoor {
    fn open(&self) -> BoxFuture<'static, io::Result<BoxIo>> {
        let Self { authority, tls } = self.clone();
        Box::pin(async move {
            let stream = TcpStream::connect(authority).await?;
            let _ = stream.set_nodelay(true);
            Ok(match tls {
                Some((tls, name)) => Box::new(tls.connect(name, stream).await?) as BoxIo,
                None => Box::new(stream) as BoxIo,
            })
        })
    }

    fn authority(&self) -> &str {
        &self.authority
    }
}

/// Registers a machine as its agent's installation does.
pub(super) async fn register(door: &dyn Door, machine: &str, id: &str, token: &str) -> Result<(), Error> {
    let io = door.open().await.map_err(Error::Unreachable)?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(io)).await;
    let (mut sender, connection) = handshake.map_err(Error::Http)?;
    let request = Request::get(CONNECT_AGENT)
        .header(header::HOST, door.authority())
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(ID, id)
        .body(Empty::<Bytes>::new());
    // A token that makes no header is none of the server's.
    let request = request.map_err(|_| Error::NoToken(machine.to_owned()))?;
    let machine = machine.to_owned();
    let ask = async move {
        let answer = sender.send_request(request).await.map_err(Error::Http)?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), LARGEST).collect().await;
        if code == StatusCode::OK {
            return Ok(());
        }
        let text =
            body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
        Err(Error::Refused { machine, code: code.as_u16(), text })
    };
    // The connection ends with the sender. If it breaks before, the sender tells.
    let (answer, _) = futures::future::join(ask, connection).await;
    answer
}
