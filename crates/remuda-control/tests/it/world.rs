//! An API server that can be switched off, and a kind to control.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, CustomResource,
    api::{ListParams, PostParams},
};
use parking_lot::{Mutex, RwLock};
use remuda_apiserver::{ApiServer, Body, Config, Controllers, Limits};
use remuda_auth::{
    identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, User},
    jwt::{LEGACY_ISSUER, issue::Issuer, verify::Verifier},
    keys::KeyPair,
    pki::authority::Authority,
    tokens::StaticTokens,
};
use remuda_control::Ctx;
use remuda_store::{Memory, Store};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tower::Service;

/// What should happen happens by then.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Something with a spec, a status and no meaning.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "test.remuda",
    version = "v1",
    kind = "Thing",
    plural = "things",
    namespaced,
    status = "ThingStatus",
    schema = "disabled"
)]
pub(crate) struct ThingSpec {
    #[serde(default)]
    pub(crate) size: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uses: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ThingStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seen: Option<i64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) notes: BTreeMap<String, String>,
}

pub(crate) fn thing(name: &str) -> Thing {
    let mut thing = Thing::new(name, ThingSpec::default());
    thing.metadata.namespace = Some("default".to_owned());
    thing
}

fn things_crd() -> CustomResourceDefinition {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.remuda"},
        "spec": {
            "group": "test.remuda",
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}},
            }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

fn config() -> Config {
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
        descriptions: None,
        controllers: Controllers::Never,
        clock: Timestamp::now,
    }
}

/// A server, and the wire to it.
#[derive(Clone)]
pub(crate) struct World {
    wire: Wire,
    store: Arc<Mutex<Arc<dyn Store>>>,
}

impl World {
    /// With the kind of this module.
    pub(crate) async fn start() -> Self {
        let world = Self::bare().await;
        world.define_things().await;
        world
    }

    pub(crate) async fn bare() -> Self {
        let world = Self { wire: Wire::default(), store: Arc::new(Mutex::new(Arc::new(Memory::default()))) };
        world.up().await;
        world
    }

    pub(crate) async fn define_things(&self) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client());
        crds.create(&PostParams::default(), &things_crd()).await.unwrap();
        let things = self.things();
        until("things are served", async || things.list(&ListParams::default()).await.is_ok()).await;
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.wire.clone(), "default")
    }

    pub(crate) fn ctx(&self) -> Arc<Ctx> {
        Arc::new(Ctx::new(self.client(), "remuda-test"))
    }

    pub(crate) fn things(&self) -> Api<Thing> {
        Api::namespaced(self.client(), "default")
    }

    /// Cuts the wire, then stops the server.
    pub(crate) async fn down(&self) {
        let server = self.wire.server.write().take();
        if let Some(server) = server {
            server.shutdown().await;
        }
    }

    pub(crate) async fn up(&self) {
        let store = self.store.lock().clone();
        let server = ApiServer::start(config(), store).await.unwrap();
        *self.wire.server.write() = Some(server);
    }

    /// As after a restore from an empty backup.
    pub(crate) async fn up_empty(&self) {
        *self.store.lock() = Arc::new(Memory::default());
        self.up().await;
    }

    /// A server that does not answer: requests hang until it does again.
    pub(crate) fn hang(&self, hang: bool) {
        self.wire.hanging.send_replace(hang);
    }

    /// Every request so far, as `METHOD path`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.wire.log.lock().clone()
    }
}

#[derive(Clone, Default)]
struct Wire {
    server: Arc<RwLock<Option<ApiServer>>>,
    log: Arc<Mutex<Vec<String>>>,
    hanging: tokio::sync::watch::Sender<bool>,
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
        Box::pin(async move {
            let _ = hanging.wait_for(|hanging| !hanging).await;
            let server = server.ok_or_else(|| std::io::Error::other("connection refused"))?;
            let user = User::new("remuda", [GROUP_MASTERS, GROUP_AUTHENTICATED]);
            match server.client_service(user).call(request).await {
                Ok(response) => Ok(response),
                Err(never) => match never {},
            }
        })
    }
}

/// Polls until it is so, for at most a minute of the runtime's time.
pub(crate) async fn until<F: AsyncFnMut() -> bool>(what: &str, mut so: F) {
    for _ in 0..12_000 {
        if so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never happened: {what}");
}
