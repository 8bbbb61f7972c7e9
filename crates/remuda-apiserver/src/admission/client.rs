//! Calling webhooks: HTTPS to a URL or to a Service's endpoints, with the given CA.

use std::{collections::HashMap, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpStream;

use super::trust::Bundle;
use crate::server::Inner;

/// Answers larger than this are not read.
const ANSWER_LIMIT: usize = 8 << 20;

/// Where a webhook is and how to trust it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientConfig {
    target: Target,
    ca_bundle: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
enum Target {
    Url(Uri),
    Service { namespace: String, name: String, port: u16, path: String },
}

impl ClientConfig {
    /// Reads a `clientConfig`.
    pub(crate) fn parse(config: &Value) -> Result<Self, String> {
        let ca_bundle = match config["caBundle"].as_str() {
            Some(text) => STANDARD.decode(text).map_err(|_| "caBundle is not base64".to_owned())?,
            None => Vec::new(),
        };
        let target = match config["url"].as_str() {
            Some(url) => {
                let uri: Uri = url.parse().map_err(|_| format!("url {url:?} is not a URL"))?;
                if uri.scheme_str() != Some("https") || uri.host().is_none() {
                    return Err(format!("url {url:?} is not https"));
                }
                Target::Url(uri)
            }
            None => {
                let service = &config["service"];
                let text = |field: &str| service[field].as_str().map(str::to_owned);
                Target::Service {
                    namespace: text("namespace").ok_or("service.namespace is missing")?,
                    name: text("name").ok_or("service.name is missing")?,
                    port: service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
                    path: text("path").unwrap_or_default(),
                }
            }
        };
        Ok(Self { target, ca_bundle })
    }

    fn server_name(&self) -> String {
        match &self.target {
            Target::Url(uri) => {
                let host = uri.host().unwrap_or_default();
                host.trim_start_matches('[').trim_end_matches(']').to_owned()
            }
            Target::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }

    /// Host and port, as URLs have them.
    fn authority(&self) -> String {
        match &self.target {
            Target::Url(uri) => uri.authority().map(ToString::to_string).unwrap_or_default(),
            Target::Service { port, .. } => format!("{}:{port}", self.server_name()),
        }
    }

    /// The path and query, which tells the webhook how long it has.
    fn path(&self, timeout: Duration) -> String {
        let path = match &self.target {
            Target::Url(uri) => uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
            Target::Service { path, .. } => format!("/{}", path.trim_start_matches('/')),
        };
        let separator = if path.contains('?') { '&' } else { '?' };
        format!("{path}{separator}timeout={}s", timeout.as_secs())
    }
}

/// TLS configurations by CA bundle; building one is not free.
#[derive(Default)]
pub(crate) struct Client {
    tls: Mutex<HashMap<Vec<u8>, Arc<rustls::ClientConfig>>>,
}

impl Client {
    /// Posts a review and returns the answer's JSON.
    pub(crate) async fn post(
        &self,
        server: &Inner,
        config: &ClientConfig,
        review: &impl Serialize,
        timeout: Duration,
    ) -> Result<Value, String> {
        match tokio::time::timeout(timeout, self.call(server, config, review, timeout)).await {
            Ok(result) => result,
            Err(_) => {
                let url = format!("https://{}{}", config.authority(), config.path(timeout));
                Err(format!("Post {url:?}: context deadline exceeded"))
            }
        }
    }

    async fn call(
        &self,
        server: &Inner,
        config: &ClientConfig,
        review: &impl Serialize,
        timeout: Duration,
    ) -> Result<Value, String> {
        let (authority, path) = (config.authority(), config.path(timeout));
        let fail = |cause: String| format!("Post {:?}: {cause}", format!("https://{authority}{path}"));
        let body = serde_json::to_vec(review).map_err(|error| fail(error.to_string()))?;
        let stream = self.connect(server, config).await.map_err(fail)?;
        let name = ServerName::try_from(config.server_name()).map_err(|error| fail(error.to_string()))?;
        let connector = tokio_rustls::TlsConnector::from(self.tls_for(config).map_err(fail)?);
        let tls = connector.connect(name, stream).await.map_err(|error| fail(error.to_string()))?;
        let h2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        let request = Request::post(&path)
            .header(header::HOST, &authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| fail(error.to_string()))?;
        let io = TokioIo::new(tls);
        let response = if h2 {
            let mut request = request;
            *request.uri_mut() = Uri::builder()
                .scheme("https")
                .authority(authority.as_str())
                .path_and_query(request.uri().to_string())
                .build()
                .map_err(|error| fail(error.to_string()))?;
            let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
                .await
                .map_err(|error| fail(error.to_string()))?;
            server.tasks.spawn(connection);
            sender.send_request(request).await
        } else {
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(io).await.map_err(|error| fail(error.to_string()))?;
            server.tasks.spawn(connection);
            sender.send_request(request).await
        };
        let response = response.map_err(|error| fail(error.to_string()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_LIMIT)
            .collect()
            .await
            .map_err(|error| fail(error.to_string()))?
            .to_bytes();
        if !status.is_success() {
            let text: String = String::from_utf8_lossy(&body).chars().take(512).collect();
            return Err(fail(format!("the server answered {status}: {text}")));
        }
        serde_json::from_slice(&body).map_err(|error| fail(format!("the answer is not JSON: {error}")))
    }

    async fn connect(&self, server: &Inner, config: &ClientConfig) -> Result<TcpStream, String> {
        let addresses = match &config.target {
            Target::Url(uri) => vec![(config.server_name(), uri.port_u16().unwrap_or(443))],
            Target::Service { namespace, name, port, .. } => {
                server.service_endpoints(namespace, name, *port).await?
            }
        };
        let mut last = "no address".to_owned();
        for (host, port) in addresses {
            match TcpStream::connect((host.as_str(), port)).await {
                Ok(stream) => {
                    // Small requests, waited for.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => last = format!("dial tcp {host}:{port}: {error}"),
            }
        }
        Err(last)
    }

    fn tls_for(&self, config: &ClientConfig) -> Result<Arc<rustls::ClientConfig>, String> {
        if let Some(known) = self.tls.lock().get(&config.ca_bundle) {
            return Ok(known.clone());
        }
        let mut roots = rustls::RootCertStore::empty();
        let mut members = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(&config.ca_bundle) {
            let certificate = certificate.map_err(|error| format!("read caBundle: {error}"))?;
            roots.add(certificate.clone()).map_err(|error| format!("read caBundle: {error}"))?;
            members.push(certificate);
        }
        if roots.is_empty() && !config.ca_bundle.is_empty() {
            // A placeholder somebody still has to fill in; it must not mean trust in everybody else.
            return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
        }
        if roots.is_empty() {
            for certificate in system_roots() {
                // A root this library does not take is one it cannot verify with.
                let _ = roots.add(certificate);
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Bundle::new(roots, members, provider)?))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tls = Arc::new(tls);
        let mut known = self.tls.lock();
        if known.len() > 256 {
            known.clear();
        }
        known.insert(config.ca_bundle.clone(), tls.clone());
        Ok(tls)
    }
}

/// The host's trusted roots, where Linux distributions keep them.
fn system_roots() -> Vec<CertificateDer<'static>> {
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"]
        .iter()
        .find_map(|path| std::fs::read(path).ok())
        .map(|pem| CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok).collect())
        .unwrap_or_default()
}

impl Inner {
    /// Addresses behind a Service port, from its EndpointSlices, else its own address.
    async fn service_endpoints(
        &self,
        namespace: &str,
        name: &str,
        port: u16,
    ) -> Result<Vec<(String, u16)>, String> {
        let service = self
            .read_value(&format!("/core/services/{namespace}/{name}"))
            .await
            .ok_or_else(|| format!("service {name:?} not found"))?;
        let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
        let service_port = ports
            .iter()
            .find(|known| known["port"].as_u64() == Some(u64::from(port)))
            .ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
        if service["spec"]["type"] == "ExternalName" {
            let host = service["spec"]["externalName"].as_str().unwrap_or_default();
            return Ok(vec![(host.to_owned(), port)]);
        }
        let query = remuda_store::ListQuery {
            prefix: format!("/discovery.k8s.io/endpointslices/{namespace}/"),
            ..Default::default()
        };
        let slices = self.store.list(query).await.map_err(|error| error.to_string())?;
        let mut addresses = Vec::new();
        for record in slices.records {
            let Ok(slice) = serde_json::from_slice::<Value>(&record.value) else { continue };
            if slice["metadata"]["labels"]["kubernetes.io/service-name"] != name {
                continue;
            }
            let wanted = service_port["name"].as_str().unwrap_or_default();
            let slice_ports = slice["ports"].as_array().cloned().unwrap_or_default();
            let Some(target) = slice_ports
                .iter()
                .find(|known| known["name"].as_str().unwrap_or_default() == wanted)
                .and_then(|known| known["port"].as_u64())
                .and_then(|port| u16::try_from(port).ok())
            else {
                continue;
            };
            for endpoint in slice["endpoints"].as_array().into_iter().flatten() {
                if endpoint["conditions"]["ready"] != false {
                    let list = endpoint["addresses"].as_array().into_iter().flatten();
                    addresses
                        .extend(list.filter_map(Value::as_str).map(|address| (address.to_owned(), target)));
                }
            }
        }
        if addresses.is_empty() {
            return Err(format!("no endpoints available for service {name:?}"));
        }
        Ok(addresses)
    }
}
