//! All doors of this server, and what is behind its own.

use std::{path::PathBuf, sync::Arc};

use futures::{StreamExt, future::BoxFuture};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use prometheus_client::registry::Registry;
use remuda_apiserver::ApiServer;
use remuda_base::Chain;
use remuda_door::{
    ANY_METHOD, Access, Answer, Api, Body, Call, Cookie, Door, Handler, Opening, Owned, Refusal, Shown,
};
use remuda_gateway::doors::uri_in_cluster;
use remuda_names::path;
use tokio_util::io::ReaderStream;
use tracing::{info, warn};

use crate::{
    accept::Counters,
    capi::repository::REPOSITORY,
    engine::{Engine, MaintenanceError},
    metrics::{self, fleet::Fleet},
    preflight::PREFLIGHT,
    releases::RELEASES,
    visible::VISIBLE,
};

/// A door whose duties are the API's.
const fn api(
    name: &'static str,
    purpose: &'static str,
    paths: &'static [Owned],
    methods: &'static [&'static str],
) -> Door {
    Door {
        name,
        purpose,
        paths,
        methods,
        access: Access::Api,
        cookie: Cookie::Proof,
        shown: Shown::Query,
        body: usize::MAX,
        personal: true,
    }
}

pub static KUBERNETES: Door =
    api("kubernetes", "the Kubernetes API: resources, discovery, health", &[Owned::Rest], ANY_METHOD);

pub static LOCAL: Door = api(
    "local",
    "the same, as the cluster `local`",
    &[Owned::Tree("/k8s/clusters/local"), Owned::Tree("/k8s/proxy/local")],
    ANY_METHOD,
);

pub static METRICS: Door = api(
    "metrics",
    "metrics of the API, the process and the controllers",
    &[Owned::Exact(path::METRICS)],
    ANY_METHOD,
);

/// What only administrators of the server do, with a token or a certificate.
const fn maintenance(name: &'static str, purpose: &'static str, paths: &'static [Owned]) -> Door {
    Door {
        name,
        purpose,
        paths,
        methods: &["POST"],
        access: Access::Permission,
        cookie: Cookie::Never,
        shown: Shown::Path,
        body: 64 << 10,
        personal: true,
    }
}

pub static BACKUP: Door =
    maintenance("backup", "a backup of everything, keys included", &[Owned::Exact(path::BACKUP)]);

pub static ROTATE_KEYS: Door =
    maintenance("rotate-keys", "a new encryption key for what is stored", &[Owned::Exact(path::ROTATE_KEYS)]);

/// Filters may be shown: they hold nothing that opens anything. There is a page of it in the dashboard.
pub static AUDIT: Door = Door {
    methods: &["GET"],
    cookie: Cookie::Fetch,
    shown: Shown::Query,
    ..maintenance("audit", "the newest lines of the audit log", &[Owned::Exact(path::AUDIT)])
};

/// Doors the API does the duties of.
pub(crate) static OF_API: [&Door; 3] = [&KUBERNETES, &LOCAL, &METRICS];

/// Every door a server can have. Without controllers it has only its own.
pub fn all() -> Vec<&'static Door> {
    let own = [
        &BACKUP,
        &ROTATE_KEYS,
        &AUDIT,
        &VISIBLE,
        &RELEASES,
        &PREFLIGHT,
        &REPOSITORY,
        &remuda_dashboard::DASHBOARD,
    ];
    let (people, clusters) = (remuda_login::doors::ALL, remuda_gateway::doors::ALL);
    let pages = [&remuda_terminal::TERMINAL_DOOR];
    OF_API
        .into_iter()
        .chain(own)
        .chain(people)
        .chain(clusters)
        .chain(remuda_steve::doors::ALL)
        .chain(pages)
        .collect()
}

/// The API, with what this server adds to its metrics.
pub(crate) struct KubernetesApi {
    pub(crate) api: ApiServer,
    pub(crate) counters: Arc<Counters>,
    /// What the controllers count.
    pub(crate) controllers: Registry,
    pub(crate) fleet: Fleet,
}

impl Api for KubernetesApi {
    async fn handle(&self, door: &'static Door, mut request: Request<Body>) -> Response<Body> {
        if std::ptr::eq(door, &LOCAL)
            && let Some(uri) = uri_in_cluster(request.uri())
        {
            *request.uri_mut() = uri;
        }
        if request.uri().path() == "/"
            && request.method() == Method::GET
            && remuda_dashboard::wants_page(request.headers())
        {
            return to_dashboard();
        }
        if std::ptr::eq(door, &METRICS) && request.method() == Method::GET {
            return Box::pin(self.metrics(request)).await;
        }
        answered(self.api.handle(request).await)
    }
}

/// Whoever types the address of the server into a browser is not looking for the list of its paths.
fn to_dashboard() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::FOUND;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(path::DASHBOARD));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// The answer of the API in the type of the doors. Finished bytes, which most are, cost nothing.
fn answered(response: Response<remuda_apiserver::Body>) -> Response<Body> {
    response.map(|body| match body {
        remuda_apiserver::Body::Full(bytes) => Body::Full(bytes),
        body => Body::boxed(body),
    })
}

impl KubernetesApi {
    async fn metrics(&self, mut request: Request<Body>) -> Response<Body> {
        // Ours are put behind those of the API, which must be text for that.
        request.headers_mut().remove(header::ACCEPT_ENCODING);
        let response = self.api.handle(request).await;
        if response.status() != StatusCode::OK {
            return answered(response);
        }
        let (mut parts, body) = response.into_parts();
        let Ok(body) = body.collect().await;
        let text = metrics::extend(
            &String::from_utf8_lossy(&body.to_bytes()),
            &self.counters,
            &self.controllers,
            |text| self.fleet.write(text),
        );
        parts.headers.remove(header::CONTENT_LENGTH);
        Response::from_parts(parts, Body::from(text))
    }
}

/// Backup and key rotation.
pub(crate) struct Maintenance {
    pub(crate) engine: Arc<Engine>,
    pub(crate) data_dir: PathBuf,
}

impl Maintenance {
    pub(crate) fn openings(self) -> Vec<Opening> {
        let handler = Arc::new(self);
        [&BACKUP, &ROTATE_KEYS].map(|door| Opening { door, handler: handler.clone() }).to_vec()
    }

    async fn backup(&self) -> Answer {
        let made = self.engine.backup(&self.data_dir).await;
        let (file, manifest) = made.map_err(|error| failed("backup", &error))?;
        info!(revision = manifest.revision, "backup made");
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let file = tokio::fs::File::from_std(file);
        // A failed read ends the stream short of its announced length, which the client notices.
        let pieces =
            ReaderStream::with_capacity(file, 1 << 16).map(|piece| piece.map(http_body::Frame::data));
        let mut response = Response::new(Body::boxed(StreamBody::new(pieces)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        Ok(response)
    }

    async fn rotate_keys(&self) -> Answer {
        let rotated = self.engine.rotate_keys().await.map_err(|error| failed("key rotation", &error))?;
        info!(retired = rotated.retired, "encryption key rotated");
        let body = serde_json::to_string(&rotated).expect("numbers serialise");
        let mut response = Response::new(Body::from(body));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }
}

impl Handler for Maintenance {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        let backup = std::ptr::eq(call.door, &BACKUP);
        Box::pin(async move { if backup { self.backup().await } else { self.rotate_keys().await } })
    }
}

fn failed(what: &str, error: &MaintenanceError) -> Refusal {
    let message = Chain(error).to_string();
    match error {
        MaintenanceError::Unsupported(_) => {
            Refusal::new(StatusCode::NOT_IMPLEMENTED, message).because("MethodNotAllowed")
        }
        _ => {
            warn!(error = %message, "{what} failed");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
        }
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
