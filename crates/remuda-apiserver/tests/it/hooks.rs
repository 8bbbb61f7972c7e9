//! A webhook to talk to: HTTPS on a port of this machine, answering as a test wants.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

/// A running webhook. Dropping it stops it.
pub(crate) struct Webhook {
    pub(crate) port: u16,
    ca: String,
    /// The `request` of every review, with the query of its URL as `url`.
    asked: Arc<Mutex<Vec<Value>>>,
    _tasks: JoinSet<()>,
}

type Answering = Arc<dyn Fn(&Value) -> Value + Send + Sync>;

impl Webhook {
    /// `answer` turns a review's `request` into its `response`, without the uid.
    pub(crate) async fn start(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        Self::start_with(|_| {}, answer).await
    }

    /// With a self-signed certificate of one's own making.
    pub(crate) async fn start_with(
        certify: impl FnOnce(&mut CertificateParams),
        answer: impl Fn(&Value) -> Value + Send + Sync + 'static,
    ) -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "hook.default.svc".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        certify(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (told, answer): (_, Answering) = (asked.clone(), Arc::new(answer));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, told, answer) = (acceptor.clone(), told.clone(), answer.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = hyper::service::service_fn(move |request| {
                        respond(request, told.clone(), answer.clone())
                    });
                    let serving = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service);
                    let _ = serving.await;
                });
            }
        });
        let ca = STANDARD.encode(certificate.pem());
        Self { port, ca, asked, _tasks: tasks }
    }

    pub(crate) async fn allowing() -> Self {
        Self::start(|_| json!({"allowed": true})).await
    }

    pub(crate) fn client_config(&self) -> Value {
        json!({"url": format!("https://127.0.0.1:{}/review", self.port), "caBundle": self.ca})
    }

    pub(crate) fn service_config(&self) -> Value {
        json!({"service": {"namespace": "default", "name": "hook", "path": "/review"}, "caBundle": self.ca})
    }

    /// What was asked since the last time.
    pub(crate) fn asked(&self) -> Vec<Value> {
        std::mem::take(&mut *self.asked.lock())
    }
}

async fn respond(
    request: Request<Incoming>,
    told: Arc<Mutex<Vec<Value>>>,
    answer: Answering,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let url = request.uri().to_string();
    let body = request.into_body().collect().await?.to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    let uid = review["request"]["uid"].clone();
    let mut response = answer(&review["request"]);
    if response["slow"] == true {
        std::future::pending::<()>().await;
    }
    if response["uid"].is_null() {
        response["uid"] = uid;
    }
    review["request"]["url"] = url.into();
    told.lock().push(review["request"].take());
    let mut answer = json!({"kind": "AdmissionReview", "apiVersion": review["apiVersion"]});
    // Another type than the one that was asked for.
    for field in ["kind", "apiVersion"] {
        if let Some(other) = response.as_object_mut().and_then(|response| response.remove(field)) {
            answer[field] = other;
        }
    }
    answer["response"] = response;
    Ok(Response::new(Full::new(answer.to_string().into())))
}

/// A response that patches.
pub(crate) fn patch(operations: Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())})
}
