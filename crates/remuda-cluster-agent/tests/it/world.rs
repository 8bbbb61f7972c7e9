//! A server and the API of a cluster, both over TLS on loopback.

use std::{
    collections::BTreeMap, convert::Infallible, fs, net::SocketAddr, path::Path, sync::Arc, time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use remuda_agent::environment::Environment;
use remuda_cluster_agent::{Authenticator, Config};
use remuda_tunnel::{
    protocol::Role,
    server::{Identity, PARAMS_HEADER, Server, ServerOptions, TOKEN_HEADER},
    websocket::WebSocket,
};
use rustls::ServerConfig;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet, time::timeout};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::task::TaskTracker;

pub(crate) type Answer = Response<Full<Bytes>>;

/// Fails instead of hanging.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), future).await.expect("took too long")
}

/// Waits for a state that other tasks bring about.
pub(crate) async fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if check() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("{what} never happened");
}

/// A certificate for loopback, and its PEM.
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    pub(crate) pem: String,
}

impl Tls {
    pub(crate) fn new() -> Tls {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let issued = rcgen::generate_simple_self_signed(names).unwrap();
        let (certificate, key) = (issued.cert.der().clone(), issued.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.try_into().unwrap())
            .unwrap();
        Tls { acceptor: TlsAcceptor::from(Arc::new(config)), pem: issued.cert.pem() }
    }
}

pub(crate) fn answer(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer
}

/// Serves until the returned tasks are dropped.
async fn listen<F, T>(address: SocketAddr, tls: &Tls, service: F) -> (SocketAddr, JoinSet<()>)
where
    F: Fn(Request<Incoming>) -> T + Clone + Send + 'static,
    T: Future<Output = Answer> + Send + 'static,
{
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let (bound, acceptor) = (listener.local_addr().unwrap(), tls.acceptor.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            while connections.try_join_next().is_some() {}
            let (acceptor, service) = (acceptor.clone(), service.clone());
            connections.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = service_fn(move |request| {
                    let answer = service(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                let _ = connection.with_upgrades().await;
            });
        }
    });
    (bound, tasks)
}

/// The management server.
pub(crate) struct Management {
    pub(crate) address: SocketAddr,
    pub(crate) tunnel: Server,
    /// Path and parameters of every tunnel that was let in.
    pub(crate) admitted: Arc<Mutex<Vec<(String, Value)>>>,
    tasks: JoinSet<()>,
}

pub(crate) const TOKEN: &str = "registration-token";
pub(crate) const CLUSTER: &str = "c-m-abcdefgh";

impl Management {
    pub(crate) async fn start(tls: &Tls) -> Management {
        Management::start_at(([127, 0, 0, 1], 0).into(), tls).await
    }

    pub(crate) async fn start_at(address: SocketAddr, tls: &Tls) -> Management {
        let tunnel = Server::new(ServerOptions::default());
        let admitted = Arc::new(Mutex::new(Vec::new()));
        let (server, log, pem) = (tunnel.clone(), admitted.clone(), tls.pem.clone());
        let sessions = TaskTracker::new();
        let service = move |request: Request<Incoming>| {
            let (server, log, pem, sessions) = (server.clone(), log.clone(), pem.clone(), sessions.clone());
            async move {
                match request.uri().path() {
                    "/cacerts" => answer(StatusCode::OK, pem),
                    "/healthz" => answer(StatusCode::OK, "ok"),
                    "/v3/connect" | "/v3/connect/register" => upgrade(request, server, &log, &sessions),
                    _ => answer(StatusCode::NOT_FOUND, "not found"),
                }
            }
        };
        let (address, tasks) = listen(address, tls, service).await;
        Management { address, tunnel, admitted, tasks }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.tunnel.has_session(CLUSTER)
    }

    pub(crate) fn admitted(&self) -> Vec<(String, Value)> {
        self.admitted.lock().clone()
    }

    /// Goes away without a word.
    pub(crate) async fn kill(mut self) -> SocketAddr {
        self.tunnel.shutdown().await;
        self.tasks.shutdown().await;
        self.address
    }
}

fn upgrade(
    mut request: Request<Incoming>,
    server: Server,
    log: &Mutex<Vec<(String, Value)>>,
    sessions: &TaskTracker,
) -> Answer {
    let header =
        |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok().map(str::to_owned));
    if header(TOKEN_HEADER).as_deref() != Some(TOKEN) {
        return answer(StatusCode::UNAUTHORIZED, "failed authentication");
    }
    let parameters = BASE64_STANDARD.decode(header(PARAMS_HEADER).unwrap_or_default()).unwrap();
    let parameters = serde_json::from_slice(&parameters).unwrap();
    log.lock().push((request.uri().path().to_owned(), parameters));
    let accept = derive_accept_key(header("sec-websocket-key").unwrap_or_default().as_bytes());
    let upgrading = hyper::upgrade::on(&mut request);
    sessions.spawn(async move {
        if let Ok(upgraded) = upgrading.await {
            let socket = WebSocket::new(TokioIo::new(upgraded), Role::Server);
            server.serve(Identity::Client(CLUSTER.into()), socket).await;
        }
    });
    let mut answer = answer(StatusCode::SWITCHING_PROTOCOLS, "");
    for (name, value) in [
        (header::CONNECTION, "Upgrade"),
        (header::UPGRADE, "websocket"),
        (header::SEC_WEBSOCKET_ACCEPT, &accept),
    ] {
        answer.headers_mut().insert(name, value.parse().unwrap());
    }
    answer
}

/// The API of the cluster the agent is in: one account and Secrets, which are filled in as clusters do.
pub(crate) struct Cluster {
    pub(crate) address: SocketAddr,
    pub(crate) state: Arc<Mutex<ClusterState>>,
    root: tempfile::TempDir,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
pub(crate) struct ClusterState {
    /// Nobody may do anything.
    pub(crate) forbidden: bool,
    /// Nobody fills in Secrets.
    pub(crate) idle: bool,
    pub(crate) secrets: BTreeMap<String, Value>,
    /// Objects of `cluster.cattle.io/v3`, by resource and name.
    pub(crate) people: BTreeMap<String, Value>,
    pub(crate) reference: Option<String>,
}

impl Cluster {
    pub(crate) async fn start() -> Cluster {
        let tls = Tls::new();
        let state = Arc::new(Mutex::new(ClusterState::default()));
        let shared = state.clone();
        let service = move |request: Request<Incoming>| {
            let state = shared.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                state.lock().answer(&head.method, head.uri.path(), &body)
            }
        };
        let (address, tasks) = listen(([127, 0, 0, 1], 0).into(), &tls, service).await;
        let root = tempfile::tempdir().unwrap();
        let cluster = Cluster { address, state, root, _tasks: tasks };
        cluster.mount("var/run/secrets/kubernetes.io/serviceaccount/ca.crt", &tls.pem);
        cluster.mount("var/run/secrets/kubernetes.io/serviceaccount/namespace", "cattle-system");
        cluster.mount_token("mounted");
        cluster.mount("cattle-credentials/token", TOKEN);
        cluster
    }

    pub(crate) fn mount_token(&self, token: &str) {
        self.mount("var/run/secrets/kubernetes.io/serviceaccount/token", token);
    }

    fn mount(&self, path: &str, content: &str) {
        let path = self.root.path().join(Path::new(path));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn authenticator(&self) -> Authenticator {
        Authenticator { root: self.root.path().to_owned(), api: self.address.to_string() }
    }

    /// What a manifest would tell an agent in this cluster.
    pub(crate) fn config(&self, server: &str, tls: &Tls) -> Config {
        Config {
            server: server.to_owned(),
            token: None,
            ca_checksum: Some(sha256(&tls.pem)),
            strict: true,
            registered: false,
            root: self.root.path().to_owned(),
            api: self.address.to_string(),
            health: None,
            environment: Environment::default(),
        }
    }
}

fn sha256(text: &str) -> String {
    let digest = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let rustls::SupportedCipherSuite::Tls13(suite) = digest else { unreachable!() };
    let hash = suite.common.hash_provider.hash(text.as_bytes());
    remuda_base::hex(hash)
}

impl ClusterState {
    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> Answer {
        let json = |value: &Value| answer(StatusCode::OK, value.to_string());
        if self.forbidden {
            return answer(StatusCode::FORBIDDEN, "{}");
        }
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if let Some(path) = path.strip_prefix("/apis/cluster.cattle.io/v3/namespaces/cattle-system/") {
            return match (method, self.people.get_mut(path)) {
                (&Method::GET, Some(object)) => json(object),
                (&Method::PATCH, Some(object)) => {
                    object["lastUsedAt"] = body["lastUsedAt"].clone();
                    json(object)
                }
                _ => answer(StatusCode::NOT_FOUND, "{}"),
            };
        }
        let path = path.strip_prefix("/api/v1/namespaces/cattle-system/").unwrap();
        let reference = "rancher.io/service-account.secret-ref";
        match (method, path.split_once('/')) {
            (&Method::GET, Some(("serviceaccounts", "cattle"))) => {
                json(&json!({"metadata": {"annotations": {reference: self.reference}}}))
            }
            (&Method::PATCH, Some(("serviceaccounts", "cattle"))) => {
                let text = body["metadata"]["annotations"][reference].as_str().unwrap();
                self.reference = Some(text.to_owned());
                json(&body)
            }
            (&Method::GET, Some(("secrets", name))) => match self.secrets.get(name) {
                Some(secret) => json(secret),
                None => answer(StatusCode::NOT_FOUND, "{}"),
            },
            (&Method::POST, None) if path == "secrets" => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                if self.secrets.contains_key(&name) {
                    return answer(StatusCode::CONFLICT, "{}");
                }
                let mut secret = body.clone();
                if !self.idle {
                    secret["data"] = json!({"token": BASE64_STANDARD.encode("lasting")});
                }
                self.secrets.insert(name, secret);
                answer(StatusCode::CREATED, body.to_string())
            }
            _ => answer(StatusCode::METHOD_NOT_ALLOWED, "{}"),
        }
    }
}
