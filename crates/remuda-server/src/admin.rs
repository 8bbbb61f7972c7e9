//! Asking a running server for what only it can do: the client side of the server's own endpoints.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use remuda_names::path;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde::Deserialize;
use tokio::{
    fs::File,
    io::AsyncWriteExt,
    net::TcpStream,
    task::JoinSet,
    time::{error::Elapsed, timeout},
};
use tokio_rustls::TlsConnector;

use crate::{archive, archive::ArchiveError, kubeconfig::Access, tls};

#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error("{server} is not the address of a server")]
    Address { server: String },
    #[error("{server} is not the address of a server")]
    Name { server: String, source: InvalidDnsNameError },
    #[error("the kubeconfig's certificates are not usable")]
    Credentials(#[source] rustls::Error),
    #[error("connect to {server}")]
    Connect { server: String, source: io::Error },
    #[error("connect to {server}: no answer")]
    Silent { server: String, source: Elapsed },
    #[error("ask the server")]
    Exchange(#[source] hyper::Error),
    #[error("{0}")]
    Refused(String),
    #[error("the server answered {0}")]
    Unexpected(StatusCode),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the backup ended early")]
    Truncated,
}

impl AdminError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            AdminError::Connect { .. } | AdminError::Silent { .. } => {
                Some("is the server running, and is --kubeconfig the right file?".to_owned())
            }
            AdminError::Credentials(_) => {
                Some("restart the server to write admin.kubeconfig anew".to_owned())
            }
            AdminError::Archive(error) => error.hint(),
            _ => None,
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to a running server.
pub struct Admin {
    sender: http1::SendRequest<Empty<Bytes>>,
    authority: String,
    token: Option<String>,
    /// Drives the connection for as long as this is kept.
    _connection: JoinSet<()>,
}

impl Admin {
    pub async fn connect(access: &Access) -> Result<Admin, AdminError> {
        let address = || AdminError::Address { server: access.server.clone() };
        let uri: Uri = access.server.parse().map_err(|_| address())?;
        let authority = uri.authority().ok_or_else(address)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(443);
        let name = ServerName::try_from(access.server_name.clone().unwrap_or_else(|| host.clone()))
            .map_err(|source| AdminError::Name { server: access.server.clone(), source })?;
        let connector = TlsConnector::from(Arc::new(client_config(access).map_err(AdminError::Credentials)?));
        let connect = async {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            connector.connect(name, stream).await
        };
        let stream = match timeout(PATIENCE, connect).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(source)) => return Err(AdminError::Connect { server: access.server.clone(), source }),
            Err(source) => return Err(AdminError::Silent { server: access.server.clone(), source }),
        };
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(AdminError::Exchange)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _ = connection.await;
        });
        let authority = authority.to_string();
        Ok(Admin { sender, authority, token: access.token.clone(), _connection: tasks })
    }

    /// Has the server make a backup and writes it to `output`, a file that must not exist yet.
    /// `progress` is called with how many bytes have come and how many there will be.
    pub async fn backup(
        &mut self,
        output: &std::path::Path,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<u64, AdminError> {
        let write = |source| AdminError::Write { path: output.to_owned(), source };
        let response = self.post(path::BACKUP).await?;
        let total = content_length(&response).unwrap_or(0);
        let mut file = File::from_std(archive::create(output)?);
        let mut body = response.into_body();
        let mut done = 0;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(AdminError::Exchange)?.into_data() else { continue };
            file.write_all(&data).await.map_err(write)?;
            done += data.len() as u64;
            progress(done, total);
        }
        file.sync_all().await.map_err(write)?;
        if done < total {
            return Err(AdminError::Truncated);
        }
        Ok(done)
    }

    /// Has the server encrypt everything with a new key.
    pub async fn rotate_keys(&mut self) -> Result<Rotated, AdminError> {
        let response = self.post(path::ROTATE_KEYS).await?;
        let body = response.into_body().collect().await.map_err(AdminError::Exchange)?.to_bytes();
        serde_json::from_slice(&body).map_err(|_| AdminError::Unexpected(StatusCode::OK))
    }

    async fn post(&mut self, path: &str) -> Result<Response<Incoming>, AdminError> {
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = path.parse().map_err(|_| AdminError::Address { server: path.to_owned() })?;
        let headers = request.headers_mut();
        if let Ok(host) = self.authority.parse() {
            headers.insert(header::HOST, host);
        }
        if let Some(Ok(token)) = self.token.as_ref().map(|token| format!("Bearer {token}").parse()) {
            headers.insert(header::AUTHORIZATION, token);
        }
        self.sender.ready().await.map_err(AdminError::Exchange)?;
        let response = self.sender.send_request(request).await.map_err(AdminError::Exchange)?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let status = response.status();
        let body = response.into_body().collect().await.map_err(AdminError::Exchange)?.to_bytes();
        Err(match serde_json::from_slice::<Status>(&body) {
            Ok(answer) if !answer.message.is_empty() => AdminError::Refused(answer.message),
            _ => AdminError::Unexpected(status),
        })
    }
}

/// What a rotation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
pub struct Rotated {
    /// Identifies the new key.
    pub key: u64,
    /// Keys that are no longer needed and were removed.
    pub retired: usize,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    message: String,
}

fn content_length(response: &Response<Incoming>) -> Option<u64> {
    response.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn client_config(access: &Access) -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&access.ca).flatten());
    let builder = ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let Some(identity) = &access.identity else { return Ok(builder.with_no_client_auth()) };
    let unusable = |error: rustls::pki_types::pem::Error| rustls::Error::General(error.to_string());
    let chain = CertificateDer::pem_slice_iter(&identity.cert).collect::<Result<_, _>>().map_err(unusable)?;
    let key = PrivateKeyDer::from_pem_slice(&identity.key).map_err(unusable)?;
    builder.with_client_auth_cert(chain, key)
}
