//! The other side: a cluster's API behind an agent.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderMap, Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use remuda_apiserver::ApiServer;
use remuda_auth::identity::{GROUP_MASTERS, User};
use remuda_store::Memory;
use remuda_tunnel::{
    client,
    dial::{BoxIo, Inbound},
    session::SessionOptions,
};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub(crate) const ADDRESS: &str = "10.43.0.1:443";
const AGENT_TOKEN: &str = "agent-token";

/// A cluster nobody reaches but its agent.
#[derive(Clone)]
pub(crate) struct Downstream {
    pub(crate) api: ApiServer,
    acceptor: TlsAcceptor,
    pub(crate) ca: String,
    /// Heads of the requests that came in.
    pub(crate) seen: Arc<Mutex<Vec<(String, HeaderMap)>>>,
    /// Requests are not answered while it is set.
    pub(crate) hang: tokio::sync::watch::Sender<bool>,
}

impl Downstream {
    pub(crate) async fn start() -> Self {
        let mut config = remuda_testkit::config();
        config.static_tokens.insert(AGENT_TOKEN, User::new("agent", [GROUP_MASTERS]));
        let api = ApiServer::start(config, Arc::new(Memory::default())).await.unwrap();
        let made = rcgen::generate_simple_self_signed(["10.43.0.1".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        Self {
            api,
            acceptor: TlsAcceptor::from(Arc::new(tls)),
            ca: made.cert.pem(),
            seen: Arc::default(),
            hang: tokio::sync::watch::Sender::new(false),
        }
    }

    /// What its agent uploads.
    pub(crate) fn params(&self) -> Value {
        json!({"cluster": {
            "address": ADDRESS, "token": AGENT_TOKEN, "caCert": BASE64_STANDARD.encode(&self.ca),
        }})
    }

    fn inbound(&self) -> Inbound {
        let downstream = self.clone();
        Inbound::all(move |proto: String, address: String| {
            let downstream = downstream.clone();
            async move {
                if proto != "tcp" || address != ADDRESS {
                    return Err(io::Error::other(format!("dial {proto} {address}: no route to host")));
                }
                let (near, far) = tokio::io::duplex(64 << 10);
                tokio::spawn(downstream.serve(far));
                Ok(Box::new(near) as BoxIo)
            }
        })
    }

    async fn serve(self, io: tokio::io::DuplexStream) {
        let Ok(stream) = self.acceptor.accept(io).await else { return };
        let service = service_fn(move |mut request: Request<Incoming>| {
            let downstream = self.clone();
            async move {
                let line = format!("{} {}", request.method(), request.uri());
                downstream.seen.lock().push((line, request.headers().clone()));
                let mut hanging = downstream.hang.subscribe();
                let _ = hanging.wait_for(|hanging| !hanging).await;
                if request.uri().path() == "/echo" {
                    return Ok(echo(&mut request));
                }
                if request.uri().path() == "/evil" {
                    return Ok(evil());
                }
                Ok::<_, std::convert::Infallible>(downstream.api.handle(request).await)
            }
        });
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    }

    /// Connects an agent, which stays until it is dropped.
    pub(crate) async fn connect(&self, server: SocketAddr, token: &str) -> Result<Agent, String> {
        self.connect_with(server, "/v3/connect/register", token, &self.params()).await
    }

    pub(crate) async fn connect_with(
        &self,
        server: SocketAddr,
        path: &str,
        token: &str,
        params: &Value,
    ) -> Result<Agent, String> {
        let mut headers = HeaderMap::new();
        headers.insert("x-api-tunnel-token", token.parse().unwrap());
        headers.insert("x-api-tunnel-params", BASE64_STANDARD.encode(params.to_string()).parse().unwrap());
        self.dial(server, path, headers).await
    }

    pub(crate) async fn dial(
        &self,
        server: SocketAddr,
        path: &str,
        headers: HeaderMap,
    ) -> Result<Agent, String> {
        let stream = TcpStream::connect(server).await.unwrap();
        let uri = format!("ws://{server}{path}").parse().unwrap();
        let socket = client::handshake(stream, &uri, &headers).await.map_err(|error| error.to_string())?;
        let stop = CancellationToken::new();
        let (ended, inbound) = (stop.clone(), self.inbound());
        let task = tokio::spawn(async move {
            client::serve(socket, inbound, SessionOptions::default(), &ended).await.to_string()
        });
        Ok(Agent { stop, task })
    }
}

/// Speaks a protocol of its own after an upgrade: everything comes back.
fn echo(request: &mut Request<Incoming>) -> http::Response<remuda_apiserver::Body> {
    let upgrade = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let Ok(io) = upgrade.await else { return };
        let (mut reader, mut writer) = tokio::io::split(TokioIo::new(io));
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    });
    let mut response = http::Response::new(remuda_apiserver::Body::from(String::new()));
    *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert("connection", "Upgrade".parse().unwrap());
    response.headers_mut().insert("upgrade", "SPDY/3.1".parse().unwrap());
    response
}

/// What a cluster serves that is after the browsers of its users.
fn evil() -> http::Response<remuda_apiserver::Body> {
    let mut response =
        http::Response::new(remuda_apiserver::Body::from("<script>evil()</script>".to_owned()));
    for (name, value) in [
        ("content-type", "text/html"),
        ("set-cookie", "R_SESS=evil; Path=/"),
        ("service-worker-allowed", "/"),
        ("access-control-allow-origin", "https://evil.example"),
        ("access-control-allow-credentials", "true"),
        ("clear-site-data", "\"*\""),
        ("strict-transport-security", "max-age=31536000"),
        ("refresh", "0;url=https://evil.example"),
        ("location", "https://evil.example"),
        ("content-security-policy", "default-src *"),
        ("x-content-type-options", "sniff"),
    ] {
        response.headers_mut().append(name, value.parse().unwrap());
    }
    response
}

pub(crate) struct Agent {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<String>,
}

impl Agent {
    /// Waits until the server has ended the session.
    pub(crate) async fn ended(mut self) -> String {
        tokio::time::timeout(Duration::from_secs(10), &mut self.task).await.unwrap().unwrap()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
