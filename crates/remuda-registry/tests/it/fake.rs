//! A small OCI registry, and images made up for it.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::Arc,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use remuda_oci::Digest;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, std::io::Error>;

pub(crate) const IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

#[derive(Default)]
pub(crate) struct State {
    pub(crate) blobs: BTreeMap<String, Bytes>,
    /// Manifests and their kinds, by `repository:tag` and `repository@digest`.
    pub(crate) manifests: HashMap<String, (String, Bytes)>,
    /// Methods and paths, in order.
    pub(crate) asked: Vec<String>,
    /// Credentials that came, in order.
    pub(crate) shown: Vec<String>,
    /// The next blob breaks off after this.
    pub(crate) break_after: Option<usize>,
    /// Everything is answered so.
    pub(crate) answer: Option<(StatusCode, Vec<(&'static str, String)>)>,
    /// Blobs are elsewhere.
    pub(crate) storage: Option<String>,
    /// A token is wanted, and given for this.
    pub(crate) password: Option<String>,
    uploads: usize,
}

/// One that runs.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) url: String,
    pub(crate) state: Arc<Mutex<State>>,
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}

pub(crate) fn content(seed: u8, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

impl Fake {
    pub(crate) async fn start() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let fake = Fake { url, state: Arc::default() };
        let serving = fake.clone();
        let tasks = TaskTracker::new();
        let connections = tasks.clone();
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let fake = serving.clone();
                let service = service_fn(move |request| {
                    let fake = fake.clone();
                    async move { Ok::<_, Infallible>(fake.answer(request).await) }
                });
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                connections.spawn(async move {
                    drop(server.serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        fake
    }

    /// An index of an image for each architecture; returns its digest.
    pub(crate) fn add(&self, repository: &str, tag: &str, architectures: &[&str], layer: &[u8]) -> String {
        let mut state = self.state.lock();
        let mut put = |bytes: &[u8]| {
            let digest = digest(bytes);
            state.blobs.insert(digest.clone(), Bytes::copy_from_slice(bytes));
            json!({"digest": digest, "size": bytes.len()})
        };
        let layer = put(layer);
        let mut manifests = Vec::new();
        for architecture in architectures {
            let config = put(json!({"architecture": architecture, "os": "linux"}).to_string().as_bytes());
            let manifest =
                json!({"schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": [layer]});
            manifests.push((manifest.to_string(), *architecture));
        }
        let mut named = Vec::new();
        for (text, architecture) in &manifests {
            let digest = digest(text.as_bytes());
            let place = (IMAGE.to_owned(), Bytes::from(text.clone()));
            state.manifests.insert(format!("{repository}@{digest}"), place);
            named.push(json!({
                "mediaType": IMAGE, "digest": digest, "size": text.len(),
                "platform": {"os": "linux", "architecture": architecture},
            }));
        }
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": named}).to_string();
        let digest = digest(index.as_bytes());
        for name in [format!("{repository}:{tag}"), format!("{repository}@{digest}")] {
            state.manifests.insert(name, (INDEX.to_owned(), Bytes::from(index.clone())));
        }
        digest
    }

    /// How often something was asked for whose path holds this text.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.state.lock().asked.iter().filter(|asked| asked.contains(text)).count()
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = head.uri.path().to_owned();
        let mut state = self.state.lock();
        state.asked.push(format!("{} {path}", head.method));
        let authorization = head.headers.get(header::AUTHORIZATION);
        if let Some(value) = authorization {
            state.shown.push(value.to_str().unwrap().to_owned());
        }
        if let Some((status, headers)) = state.answer.clone() {
            return plain(status, &headers, Bytes::new());
        }
        if path == "/token" {
            let expected = state.password.clone().unwrap_or_default();
            let good = authorization.is_some_and(|value| value == expected.as_str());
            let status = if good { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
            return plain(status, &[], json!({"token": "good"}).to_string().into());
        }
        if state.password.is_some() && authorization.is_none_or(|value| value != "Bearer good") {
            let challenge = format!("Bearer realm=\"{}/token\",service=\"fake\"", self.url);
            return plain(StatusCode::UNAUTHORIZED, &[("www-authenticate", challenge)], Bytes::new());
        }
        let Some(rest) = path.strip_prefix("/v2/") else { return missing() };
        if let Some((repository, _)) = rest.split_once("/blobs/uploads/") {
            return upload(&mut state, &head.method, &path, repository, head.uri.query(), body);
        }
        if let Some((repository, wanted)) = rest.split_once("/manifests/") {
            let separator = if wanted.contains(':') { '@' } else { ':' };
            let name = format!("{repository}{separator}{wanted}");
            if head.method == Method::PUT {
                let kind = head.headers[header::CONTENT_TYPE].to_str().unwrap().to_owned();
                assert_complete(&state, repository, &body);
                state.manifests.insert(name, (kind, body));
                return plain(StatusCode::CREATED, &[], Bytes::new());
            }
            return match state.manifests.get(&name) {
                Some((kind, bytes)) => {
                    plain(StatusCode::OK, &[("content-type", kind.clone())], bytes.clone())
                }
                None => missing(),
            };
        }
        let Some((_, digest)) = rest.split_once("/blobs/") else { return missing() };
        if let Some(storage) = &state.storage {
            let location = format!("{storage}{path}");
            return plain(StatusCode::TEMPORARY_REDIRECT, &[("location", location)], Bytes::new());
        }
        let Some(bytes) = state.blobs.get(digest).cloned() else { return missing() };
        blob(&head.headers, bytes, state.break_after.take())
    }
}

/// A registry takes no manifest whose parts it does not have.
fn assert_complete(state: &State, repository: &str, bytes: &[u8]) {
    let manifest: Value = serde_json::from_slice(bytes).unwrap();
    for layer in manifest["layers"].as_array().into_iter().flatten().chain([&manifest["config"]]) {
        if let Some(digest) = layer["digest"].as_str() {
            assert!(state.blobs.contains_key(digest), "{digest} was not pushed");
        }
    }
    for image in manifest["manifests"].as_array().into_iter().flatten().take(1) {
        let name = format!("{repository}@{}", image["digest"].as_str().unwrap());
        assert!(state.manifests.contains_key(&name), "{name} was not pushed");
    }
}

fn upload(
    state: &mut State,
    method: &Method,
    path: &str,
    repository: &str,
    query: Option<&str>,
    body: Bytes,
) -> Response<Body> {
    if *method == Method::POST {
        state.uploads += 1;
        let location = format!("/v2/{repository}/blobs/uploads/{}?state=x", state.uploads);
        return plain(StatusCode::ACCEPTED, &[("location", location)], Bytes::new());
    }
    let query = query.unwrap_or_default().replace("%3A", ":");
    let wanted = query.split('&').find_map(|pair| pair.strip_prefix("digest=")).unwrap_or_default();
    assert_eq!(digest(&body), wanted, "{path}");
    state.blobs.insert(wanted.to_owned(), body);
    plain(StatusCode::CREATED, &[], Bytes::new())
}

fn blob(headers: &HeaderMap, bytes: Bytes, break_after: Option<usize>) -> Response<Body> {
    let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let from = range.and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let (status, rest) = match from {
        Some(from) => (StatusCode::PARTIAL_CONTENT, bytes.slice(from..)),
        None => (StatusCode::OK, bytes),
    };
    let length = rest.len();
    let mut pieces: Vec<Result<Frame<Bytes>, std::io::Error>> = Vec::new();
    match break_after {
        Some(end) => {
            pieces.push(Ok(Frame::data(rest.slice(..end))));
            pieces.push(Err(std::io::Error::other("broken off")));
        }
        None => pieces.push(Ok(Frame::data(rest))),
    }
    let body = StreamBody::new(futures::stream::iter(pieces)).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    response
}

fn plain(status: StatusCode, headers: &[(&'static str, String)], bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    for (name, value) in headers {
        response.headers_mut().insert(*name, value.parse().unwrap());
    }
    response
}

fn missing() -> Response<Body> {
    plain(StatusCode::NOT_FOUND, &[], Bytes::new())
}
