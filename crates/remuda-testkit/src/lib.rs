//! An API server in memory that can be switched off, with a time of its own and controllers at work, for tests of
//! controllers.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

pub mod doors;
pub mod oidc;
mod running;
pub mod time;

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, api::PostParams, core::ApiResource};
use parking_lot::{Mutex, RwLock};
use remuda_apiserver::{ApiServer, Body, Config, Controllers, Limits};
use remuda_auth::{
    component,
    identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, User},
    jwt::{LEGACY_ISSUER, issue::Issuer, verify::Verifier},
    keys::KeyPair,
    pki::authority::Authority,
    tokens::StaticTokens,
};
use remuda_store::{Memory, Store};
use serde_json::{Value, json};
use tower::Service;

pub use self::running::Running;
pub use remuda_auth::component::Component;

/// What a server is started with, unless a test says otherwise.
pub fn config() -> Config {
    let key = Arc::new(KeyPair::generate().unwrap());
    let authority = Arc::new(Authority::generate("test-ca", Timestamp::now()).unwrap());
    let issuer = "https://kubernetes.default.svc";
    let issuers = vec![issuer.to_owned(), LEGACY_ISSUER.to_owned()];
    let verifier = Verifier::new(vec![key.public().unwrap()], issuers, vec![issuer.to_owned()]);
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
        controllers: Controllers::Never,
        clock: time::now,
        former_manager: |_| None,
        strict_fields: |_, _| false,
        watch_observer: None,
    }
}

/// The same for a server that knows how kinds of Cluster API are converted.
pub fn management_config() -> Config {
    let mut config = config();
    for name in remuda_api::crd::names() {
        if let Some(conversion) = remuda_api::convert::conversion(name, |_, _| None) {
            config.conversions.insert(name.to_owned(), Arc::new(conversion));
        }
    }
    config
}

/// A definition of a kind of tests: namespaced, with whatever fields, and a status of its own.
pub fn definition(resource: &ApiResource) -> Value {
    let (kind, plural) = (&resource.kind, &resource.plural);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{}", resource.group)},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List"),
            },
            "versions": [{
                "name": resource.version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                "subresources": {"status": {}},
            }],
        },
    })
}

/// The same with the API's own controllers at work.
pub fn working_config() -> Config {
    Config { controllers: Controllers::Always, ..management_config() }
}

type MakeConfig = Arc<dyn Fn() -> Config + Send + Sync>;

/// A server, and the wire to it. Clones share both.
#[derive(Clone)]
pub struct World {
    wire: Wire,
    store: Arc<Mutex<Arc<dyn Store>>>,
    config: MakeConfig,
}

impl World {
    /// A server that knows built-in kinds only.
    pub async fn bare() -> Self {
        Self::with(config).await
    }

    /// A server with another configuration, which is made anew at each start.
    pub async fn with(config: impl Fn() -> Config + Send + Sync + 'static) -> Self {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let world =
            Self { wire: Wire::default(), store: Arc::new(Mutex::new(store)), config: Arc::new(config) };
        world.up().await;
        world
    }

    /// Defines a kind and waits until it is served.
    pub async fn define(&self, definition: Value) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client());
        let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
        let name = definition.metadata.name.clone().unwrap();
        crds.create(&PostParams::default(), &definition).await.unwrap();
        until(&format!("{name} is served"), async || {
            let status = crds.get(&name).await.unwrap().status.unwrap_or_default();
            let mut conditions = status.conditions.iter().flatten();
            conditions.any(|condition| condition.type_ == "Established" && condition.status == "True")
        })
        .await;
    }

    pub fn client(&self) -> Client {
        Client::new(self.wire.clone(), "default")
    }

    /// A client that acts as this user.
    pub fn client_as(&self, user: User) -> Client {
        Client::new(Wire { user: Some(user), ..self.wire.clone() }, "default")
    }

    /// A client with the rights of a component, and no others. The test fails in the end if they did not suffice.
    pub fn client_of(&self, component: Component) -> Client {
        let wire = Wire { component: Some(component), ..self.wire.clone() };
        Client::new(Wire { user: Some(component.user()), ..wire }, "default")
    }

    /// Cuts the wire, then stops the server.
    pub async fn down(&self) {
        let server = self.wire.server.write().take();
        if let Some(server) = server {
            server.shutdown().await;
        }
    }

    pub async fn up(&self) {
        let store = self.store.lock().clone();
        let server = ApiServer::start((self.config)(), store).await.unwrap();
        component::grant(server.policy());
        *self.wire.server.write() = Some(server);
    }

    /// As after a restore from an empty backup.
    pub async fn up_empty(&self) {
        *self.store.lock() = Arc::new(Memory::default());
        self.up().await;
    }

    /// A server that does not answer: requests hang until it does again.
    pub fn hang(&self, hang: bool) {
        self.wire.hanging.send_replace(hang);
    }

    /// A wire of its own to the same server, which can be cut while others still have theirs.
    pub fn line(&self) -> Line {
        let line = Line { wire: Wire::default(), world: self.clone() };
        line.mend();
        line
    }

    /// Every request so far, as `METHOD path`, or `METHOD watch path`.
    pub fn requests(&self) -> Vec<String> {
        self.wire.log.lock().clone()
    }

    /// Every request so far that was to change something.
    pub fn writes(&self) -> Vec<String> {
        self.requests().into_iter().filter(|request| !request.starts_with("GET ")).collect()
    }
}

/// One of several wires to a server. Clones share it.
#[derive(Clone)]
pub struct Line {
    wire: Wire,
    world: World,
}

impl Line {
    pub fn client(&self) -> Client {
        Client::new(self.wire.clone(), "default")
    }

    /// From now on requests fail. Those under way go on.
    pub fn cut(&self) {
        self.wire.server.write().take();
    }

    pub fn mend(&self) {
        let server = self.world.wire.server.read().clone();
        *self.wire.server.write() = server;
    }
}

#[derive(Clone, Default)]
struct Wire {
    server: Arc<RwLock<Option<ApiServer>>>,
    log: Arc<Mutex<Vec<String>>>,
    hanging: tokio::sync::watch::Sender<bool>,
    /// Whoever asks; one who may everything if that is not told.
    user: Option<User>,
    component: Option<Component>,
    refused: Arc<Refused>,
}

/// What components were refused because a right is missing in their table.
#[derive(Default)]
struct Refused(Mutex<Vec<String>>);

impl Drop for Refused {
    fn drop(&mut self) {
        let refused = self.0.lock();
        let missing = format!("rights are missing in remuda_auth::component: {refused:#?}");
        match std::thread::panicking() {
            true if !refused.is_empty() => eprintln!("{missing}"),
            true => {}
            false => assert!(refused.is_empty(), "{missing}"),
        }
    }
}

impl Service<Request<kube::client::Body>> for Wire {
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let uri = request.uri();
        let watch = uri.query().is_some_and(|query| query.contains("watch=true"));
        let line = format!("{}{} {}", request.method(), if watch { " watch" } else { "" }, uri.path());
        self.log.lock().push(line);
        let server = self.server.read().clone();
        let mut hanging = self.hanging.subscribe();
        let user = self.user.clone();
        let refused = self.component.map(|_| self.refused.clone());
        Box::pin(async move {
            let _ = hanging.wait_for(|hanging| !hanging).await;
            let server = server.ok_or_else(|| std::io::Error::other("connection refused"))?;
            let user = user.unwrap_or_else(|| User::new("remuda", [GROUP_MASTERS, GROUP_AUTHENTICATED]));
            match server.client_service(user).call(request).await {
                Ok(response) => match refused {
                    Some(refused) if response.status() == StatusCode::FORBIDDEN => {
                        Ok(noted(response, &refused).await)
                    }
                    _ => Ok(response),
                },
                Err(never) => match never {},
            }
        })
    }
}

/// Notes a refusal of RBAC. Admission refuses with the same code, and rightly.
async fn noted(response: Response<Body>, refused: &Refused) -> Response<Body> {
    let (head, body) = response.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let status: Value = serde_json::from_slice(&body).unwrap_or_default();
    let message = status["message"].as_str().unwrap_or_default();
    if message.contains(" cannot ") {
        refused.0.lock().push(message.to_owned());
    }
    Response::from_parts(head, Body::from(body))
}

/// Polls until it is so, for at most a minute of the runtime's time.
pub async fn until<F: AsyncFnMut() -> bool>(what: &str, mut so: F) {
    for _ in 0..12_000 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never happened: {what}");
}
