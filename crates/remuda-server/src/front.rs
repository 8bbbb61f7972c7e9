//! The front door: turns connections into peers, answers what is ours, passes the rest to the API.
//!
//! Our own endpoints know no credentials: who may use them is asked of the API itself, in the
//! caller's name, so every way to log in and every rule counts for them as for anything else.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use remuda_apiserver::{ApiServer, Body, Peer, PeerCertificate};
use remuda_gateway::Gateway;
use remuda_names::path;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio_util::io::ReaderStream;
use tracing::{info, warn};

use crate::{
    accept::{Counters, Handler, Remote},
    chain::Chain,
    engine::{Engine, MaintenanceError},
    metrics,
    people::{self, People},
    pki,
    serving::Serving,
    tls::Clients,
};

/// Shared by all connections.
#[derive(Clone)]
pub(crate) struct Front(pub(crate) Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) api: ApiServer,
    pub(crate) clients: Arc<Clients>,
    pub(crate) serving: Arc<Serving>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) data_dir: PathBuf,
    pub(crate) counters: Arc<Counters>,
    /// What the controllers count.
    pub(crate) controllers: Registry,
    /// Registration, tunnels and the way into clusters, where controllers run.
    pub(crate) gateway: Option<Gateway>,
    /// Users and their sessions, where controllers run.
    pub(crate) people: Option<People>,
}

/// Who is at the other end, and until when that is true: connections outlive certificates.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    peer: Peer,
    until: Timestamp,
}

impl Handler for Front {
    type Peer = Client;
    type Body = Either<Body, remuda_gateway::Body>;

    fn connect(&self, remote: Remote) -> Client {
        self.0.serving.reached_at(remote.local.ip());
        let (certificate, until) = match remote.certificates.as_deref() {
            None => (PeerCertificate::None, Timestamp::MAX),
            Some(chain) => self.0.identify(chain),
        };
        Client { peer: Peer { address: remote.address, certificate }, until }
    }

    async fn handle(&self, client: Client, mut request: Request<Incoming>) -> Response<Self::Body> {
        let mut peer = client.peer;
        if client.until != Timestamp::MAX && client.until < Timestamp::now() {
            peer.certificate = PeerCertificate::Rejected;
        }
        let address = peer.address;
        let shown = !matches!(peer.certificate, PeerCertificate::None);
        request.extensions_mut().insert(peer);
        if let Some(people) = &self.0.people {
            if People::is_login(request.uri().path()) {
                return people.handle(address.ip(), request).await.map(Either::Left);
            }
            // Who showed a certificate is known by it.
            if !shown && let Some(refusal) = people::adopt(&mut request) {
                return refusal.map(Either::Left);
            }
            if People::owns(request.uri().path()) {
                return people.handle(address.ip(), request).await.map(Either::Left);
            }
        }
        if let Some(gateway) = &self.0.gateway {
            if Gateway::owns(request.uri().path()) {
                return gateway.handle(address, request).await.map(Either::Right);
            }
            if let Some(uri) = Gateway::local(request.uri()) {
                *request.uri_mut() = uri;
            }
        }
        self.0.answer(request).await.map(Either::Left)
    }
}

impl Parts {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        if path.starts_with(path::PREFIX) {
            return self.ours(request).await;
        }
        if path == path::METRICS && request.method() == Method::GET {
            return self.metrics(request).await;
        }
        self.api.handle(request).await
    }

    fn identify(&self, chain: &[CertificateDer<'_>]) -> (PeerCertificate, Timestamp) {
        let rejected = (PeerCertificate::Rejected, Timestamp::MAX);
        if self.clients.judge(chain).is_err() {
            return rejected;
        }
        match chain.first().and_then(|certificate| pki::user_of(certificate)) {
            Some((user, until)) => (PeerCertificate::Verified(Arc::new(user)), until),
            None => rejected,
        }
    }

    async fn metrics(&self, mut request: Request<Incoming>) -> Response<Body> {
        // Ours are put behind those of the API, which must be text for that.
        request.headers_mut().remove(header::ACCEPT_ENCODING);
        let response = self.api.handle(request).await;
        if response.status() != StatusCode::OK {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        let Ok(body) = body.collect().await;
        let text =
            metrics::extend(&String::from_utf8_lossy(&body.to_bytes()), &self.counters, &self.controllers);
        parts.headers.remove(header::CONTENT_LENGTH);
        Response::from_parts(parts, Body::from(text))
    }

    async fn ours(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, _) = request.into_parts();
        let known = [path::BACKUP, path::ROTATE_KEYS].contains(&head.uri.path());
        if let Err(refusal) = self.authorize(&head).await {
            return refusal;
        }
        if !known {
            return status(
                StatusCode::NOT_FOUND,
                "NotFound",
                "the server could not find the requested resource",
            );
        }
        if head.method != Method::POST {
            let message = "the server does not allow this method on the requested resource";
            return status(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
        }
        if head.uri.path() == path::BACKUP { self.backup().await } else { self.rotate_keys().await }
    }

    /// Asks the API whether the caller may use this path with this method.
    async fn authorize(&self, head: &http::request::Parts) -> Result<(), Response<Body>> {
        let verb = head.method.as_str().to_ascii_lowercase();
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"nonResourceAttributes": {"verb": verb, "path": head.uri.path()}},
        });
        let mut request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(review.to_string())))
            .expect("the parts are constant");
        copy_credentials(head, &mut request);
        if let Some(peer) = head.extensions.get::<Peer>() {
            request.extensions_mut().insert(peer.clone());
        }
        let response = self.api.handle(request).await;
        if !response.status().is_success() {
            return Err(response);
        }
        let Ok(body) = response.into_body().collect().await;
        let review: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
        if review["status"]["allowed"] == true {
            return Ok(());
        }
        let message = format!("forbidden: you cannot {verb} path \"{}\"", head.uri.path());
        Err(status(StatusCode::FORBIDDEN, "Forbidden", &message))
    }

    async fn backup(&self) -> Response<Body> {
        let (file, manifest) = match self.engine.backup(&self.data_dir).await {
            Ok(made) => made,
            Err(error) => return failed("backup", &error),
        };
        info!(revision = manifest.revision, "backup made");
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let file = tokio::fs::File::from_std(file);
        // A failed read ends the stream short of its announced length, which the client notices.
        let pieces =
            ReaderStream::with_capacity(file, 1 << 16).take_while(|piece| std::future::ready(piece.is_ok()));
        let pieces = pieces.filter_map(|piece| std::future::ready(piece.ok()));
        let mut response = Response::new(Body::Stream(pieces.boxed()));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        response
    }

    async fn rotate_keys(&self) -> Response<Body> {
        match self.engine.rotate_keys().await {
            Ok(rotated) => {
                info!(retired = rotated.retired, "encryption key rotated");
                let body = serde_json::to_string(&rotated).expect("numbers serialise");
                json_response(StatusCode::OK, body)
            }
            Err(error) => failed("key rotation", &error),
        }
    }
}

/// Lets another request speak for whoever sent this one.
pub(crate) fn copy_credentials<B>(head: &http::request::Parts, request: &mut Request<B>) {
    let credentials = |name: &header::HeaderName| {
        *name == header::AUTHORIZATION
            || *name == header::USER_AGENT
            || name.as_str().starts_with("impersonate-")
    };
    for (name, value) in head.headers.iter().filter(|(name, _)| credentials(name)) {
        request.headers_mut().append(name, value.clone());
    }
}

fn failed(what: &str, error: &MaintenanceError) -> Response<Body> {
    let message = Chain(error).to_string();
    match error {
        MaintenanceError::Unsupported(_) => status(StatusCode::NOT_IMPLEMENTED, "MethodNotAllowed", &message),
        _ => {
            warn!(error = %message, "{what} failed");
            status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message)
        }
    }
}

pub(crate) fn status(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    json_response(code, body.to_string())
}

pub(crate) fn json_response(code: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
