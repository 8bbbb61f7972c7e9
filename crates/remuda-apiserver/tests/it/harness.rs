//! A server in this process, and requests to it as they come from the wire.

// Shared by modules that come and go; not each uses everything.
#![allow(dead_code)]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use remuda_apiserver::{ApiServer, Body, Config, Internal, Limits};
use remuda_auth::{
    identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, User},
    jwt::{LEGACY_ISSUER, issue::Issuer, verify::Verifier},
    keys::KeyPair,
    pki::authority::Authority,
    tokens::StaticTokens,
};
use remuda_store::{Memory, Store};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// How long anything that should happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

pub(crate) fn admin() -> User {
    User::new("admin", [GROUP_MASTERS, GROUP_AUTHENTICATED])
}

/// Somebody with valid credentials and nothing else.
pub(crate) fn somebody(name: &str) -> User {
    User::new(name, [GROUP_AUTHENTICATED])
}

/// A running server, seen by one user. Clones share the server.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) api: ApiServer,
    pub(crate) store: Arc<dyn Store>,
    user: Option<Arc<User>>,
}

/// What a server of the tests is made of.
pub(crate) fn config() -> Config {
    let key = Arc::new(KeyPair::generate().unwrap());
    let authority = Arc::new(Authority::generate("test-ca", Timestamp::now()).unwrap());
    let issuer = "https://kubernetes.default.svc";
    let verifier = Verifier::new(
        vec![key.public().unwrap()],
        vec![issuer.to_owned(), LEGACY_ISSUER.to_owned()],
        vec![issuer.to_owned()],
    );
    Config {
        advertise: "127.0.0.1:6443".to_owned(),
        root_ca_pem: authority.certificate_pem(),
        issuer: Issuer::new(key, issuer),
        verifier: Arc::new(verifier),
        signer: Some(authority),
        static_tokens: StaticTokens::default(),
        anonymous: true,
        audit: None,
        limits: Limits::default(),
        hooks: Vec::new(),
        conversions: BTreeMap::new(),
        version: None,
        descriptions: None,
        controllers: remuda_apiserver::Controllers::Always,
        clock: Timestamp::now,
        former_manager: |_| None,
        strict_fields: |_, _| false,
        watch_observer: None,
    }
}

impl Server {
    /// A server in memory, seen by an administrator.
    pub(crate) async fn start() -> Self {
        Self::on(Arc::new(Memory::default()), config()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = config();
        change(&mut config);
        Self::on(Arc::new(Memory::default()), config).await
    }

    /// A server where nobody writes but the test.
    pub(crate) async fn quiet() -> Self {
        Self::with(|config| config.controllers = remuda_apiserver::Controllers::Never).await
    }

    pub(crate) async fn on(store: Arc<dyn Store>, config: Config) -> Self {
        let api = ApiServer::start(config, store.clone()).await.unwrap();
        Self { api, store, user: Some(Arc::new(admin())) }
    }

    /// The same server, seen by somebody else.
    pub(crate) fn by(&self, user: User) -> Self {
        Self { user: Some(Arc::new(user)), ..self.clone() }
    }

    /// The same server, for requests that must bring credentials of their own.
    pub(crate) fn outside(&self) -> Self {
        Self { user: None, ..self.clone() }
    }

    pub(crate) fn kube(&self) -> kube::Client {
        let user = self.user.as_deref().expect("a client needs a user");
        kube::Client::new(self.api.client_service(user.clone()), "default")
    }

    /// Serves HTTP/1.1 on a local port; without a user, requests must bring credentials.
    pub(crate) async fn listen(&self, user: Option<User>) -> Listening {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (api, user) = (self.api.clone(), user.map(Arc::new));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (api, user) = (api.clone(), user.clone());
                let service =
                    hyper::service::service_fn(move |mut request: Request<hyper::body::Incoming>| {
                        if let Some(user) = &user {
                            request.extensions_mut().insert(Internal(user.clone()));
                        }
                        let api = api.clone();
                        async move { Ok::<_, std::convert::Infallible>(api.handle(request).await) }
                    });
                connections.spawn(async move {
                    let io = hyper_util::rt::TokioIo::new(socket);
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.serve_connection(io, service).with_upgrades().await;
                });
            }
        });
        Listening { address, _tasks: tasks }
    }

    pub(crate) fn ask(&self, method: &str, path: &str) -> Ask {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(user) = &self.user {
            request = request.extension(Internal(user.clone()));
        }
        Ask { server: self.clone(), request, body: Bytes::new() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path).send().await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask("POST", path).json(&body).send().await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.ask("PUT", path).json(&body).send().await
    }

    /// `kind` is the content type, one of the `…_PATCH` constants.
    pub(crate) async fn patch(&self, path: &str, kind: &str, body: Value) -> Answer {
        self.ask("PATCH", path).body(kind, body.to_string()).send().await
    }

    pub(crate) async fn apply(&self, path: &str, manager: &str, body: Value) -> Answer {
        let sign = if path.contains('?') { '&' } else { '?' };
        self.patch(&format!("{path}{sign}fieldManager={manager}"), APPLY_PATCH, body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.ask("DELETE", path).send().await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: Value) -> Answer {
        self.ask("DELETE", path).json(&options).send().await
    }

    /// Opens a watch; `path` has its query, `watch=true` is added.
    #[track_caller]
    pub(crate) fn watch(&self, path: &str) -> impl Future<Output = Watching> + use<> {
        let sign = if path.contains('?') { '&' } else { '?' };
        let ask = self.ask("GET", &format!("{path}{sign}watch=true"));
        async move { ask.stream().await }
    }

    pub(crate) async fn namespace(&self, name: &str) {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.post("/api/v1/namespaces", body).await.expect(201);
    }

    /// Asks again until the answer is as wanted.
    pub(crate) async fn until(&self, path: &str, mut wanted: impl FnMut(&Answer) -> bool) -> Answer {
        let started = std::time::Instant::now();
        loop {
            let answer = self.get(path).await;
            if wanted(&answer) {
                return answer;
            }
            assert!(started.elapsed() < PATIENCE, "{path} stays {answer:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A port the server is served on, until it is dropped.
pub(crate) struct Listening {
    pub(crate) address: std::net::SocketAddr,
    _tasks: JoinSet<()>,
}

/// A request being written.
pub(crate) struct Ask {
    server: Server,
    request: http::request::Builder,
    body: Bytes,
}

impl Ask {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    pub(crate) fn accept(self, value: &str) -> Self {
        self.header("accept", value)
    }

    /// For requests from outside.
    pub(crate) fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.body(JSON, body.to_string())
    }

    pub(crate) fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.header("content-type", content_type)
    }

    /// A body without a content type.
    pub(crate) fn bare_body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn extension(mut self, extension: impl Clone + Send + Sync + 'static) -> Self {
        self.request = self.request.extension(extension);
        self
    }

    pub(crate) async fn response(self) -> Response<Body> {
        let request = self.request.body(Full::new(self.body)).unwrap();
        tokio::time::timeout(PATIENCE, self.server.api.handle(request)).await.expect("an answer in time")
    }

    pub(crate) async fn send(self) -> Answer {
        let (parts, body) = self.response().await.into_parts();
        let bytes = tokio::time::timeout(PATIENCE, body.collect()).await.expect("a body in time");
        let bytes = bytes.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { code: parts.status.as_u16(), body, bytes, headers: parts.headers }
    }

    /// For watches: the answer must be 200.
    pub(crate) async fn stream(self) -> Watching {
        let (parts, body) = self.response().await.into_parts();
        let mut watching = Watching { headers: parts.headers, body, buffer: BytesMut::new() };
        if parts.status != 200 {
            while watching.more().await {}
            panic!("watch refused: {} {}", parts.status, String::from_utf8_lossy(&watching.buffer));
        }
        watching
    }
}

/// An answer, read to its end. `body` is null unless it is JSON.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) bytes: Bytes,
    pub(crate) headers: HeaderMap,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.text())
    }
}

impl Answer {
    /// The body, if the code is this one.
    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{self:?}");
        self.body
    }

    #[track_caller]
    pub(crate) fn expect_text(self, text: &str) {
        assert_eq!((self.code, self.text().as_str()), (200, text));
    }

    /// Asserts a failure by code and reason, and returns its message.
    #[track_caller]
    pub(crate) fn fails(&self, code: u16, reason: &str) -> String {
        assert_eq!((self.code, self.body["reason"].as_str()), (code, Some(reason)), "{self:?}");
        assert_eq!(self.body["kind"], "Status", "{self:?}");
        assert_eq!(self.body["apiVersion"], "v1", "{self:?}");
        assert_eq!(self.body["status"], "Failure", "{self:?}");
        assert_eq!(self.body["code"], code, "{self:?}");
        self.body["message"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub(crate) fn version(&self) -> &str {
        self.body["metadata"]["resourceVersion"].as_str().unwrap_or_default()
    }
}

/// A watch. Dropping it disconnects.
pub(crate) struct Watching {
    pub(crate) headers: HeaderMap,
    body: Body,
    buffer: BytesMut,
}

impl Watching {
    async fn more(&mut self) -> bool {
        let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("news in time");
        match frame {
            Some(frame) => {
                self.buffer.extend_from_slice(&frame.unwrap().into_data().unwrap());
                true
            }
            None => false,
        }
    }

    /// The next event, or `None` when the server has ended the watch.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let event = serde_json::from_slice(&self.buffer[..end]).expect("events are JSON lines");
                self.buffer.advance(end + 1);
                return Some(event);
            }
            if !self.more().await {
                assert!(self.buffer.is_empty(), "an event was cut short: {:?}", self.buffer);
                return None;
            }
        }
    }

    /// The next event, which must be of this type; returns its object.
    pub(crate) async fn expect(&mut self, kind: &str) -> Value {
        let mut event = self.next().await.expect("another event");
        assert_eq!(event["type"], kind, "{event}");
        event["object"].take()
    }

    /// What has arrived and can be read without waiting longer than this.
    pub(crate) async fn within(&mut self, time: Duration) -> Option<Value> {
        tokio::time::timeout(time, self.next()).await.ok().flatten()
    }
}

pub(crate) fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// The names of a list's items.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect()
}
