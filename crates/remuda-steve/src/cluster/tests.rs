use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::stream;
use http::{Method, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use remuda_auth::{attributes::Attributes, audit::AuditLine, identity::User, rbac::policy::Policy};
use remuda_control::clock::SystemClock;
use remuda_door::{ANY_METHOD, Access, Caller, Cookie, Denied, Management, Owned, Shown};
use tokio::task::JoinSet;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::*;
use crate::{ListApi, ListApiOptions};

#[test]
fn only_paths_of_the_list_api_are_taken() {
    assert_eq!(target("/k8s/clusters/c-1/v1"), Some(("c-1", "")));
    assert_eq!(target("/k8s/clusters/c-1/v1/nodes"), Some(("c-1", "/nodes")));
    for other in [
        "/k8s/clusters/c-1/v1beta",
        "/k8s/clusters/c-1/api/v1",
        "/k8s/clusters/c-1",
        "/k8s/proxy/c-1/v1",
        "/k8s/clusters//v1",
    ] {
        assert_eq!(target(other), None, "{other}");
    }
}

static DOOR: Door = Door {
    name: "clusters",
    purpose: "",
    paths: &[Owned::Below(CLUSTERS)],
    methods: ANY_METHOD,
    access: Access::Authenticated,
    cookie: Cookie::Never,
    shown: Shown::Path,
    body: usize::MAX,
    personal: true,
};

fn nobody() -> Client {
    let service = tower::service_fn(|_: Request<kube::client::Body>| async {
        Ok::<_, Infallible>(Response::new(kube::client::Body::empty()))
    });
    Client::new(service, "default")
}

struct Nothing;

impl Management for Nothing {
    fn authenticate<'a>(&'a self, _: &'a http::request::Parts) -> BoxFuture<'a, Result<Caller, Denied>> {
        Box::pin(std::future::ready(Ok(Caller::anonymous())))
    }

    fn authorize<'a>(&'a self, _: &'a User, _: Attributes<'a>) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn client(&self, _: &Caller) -> Client {
        nobody()
    }

    fn audit(&self, _: &AuditLine<'_>) {}
}

/// A cluster whose ConfigMaps are a flood, and which counts how much of it was taken.
struct Hostile {
    flood: &'static str,
    taken: Arc<AtomicUsize>,
}

impl Hostile {
    /// `begin`, and then without end.
    fn endless(&self, begin: &str, piece: &str) -> Response<Body> {
        let (taken, piece) = (self.taken.clone(), Bytes::from(piece.repeat((1 << 18) / piece.len())));
        let pieces = std::iter::once(Bytes::from(begin.to_owned())).chain(std::iter::repeat_n(piece, 2800));
        let pieces = pieces.map(move |piece| {
            taken.fetch_add(piece.len(), Ordering::SeqCst);
            Ok::<_, Infallible>(Frame::data(piece))
        });
        Response::new(Body::boxed(StreamBody::new(stream::iter(pieces))))
    }

    fn page(rows: usize, size: usize, next: &str) -> Response<Body> {
        let row = |number: usize| {
            let metadata = json!({"name": format!("m{number}"), "annotations": {"x": "y".repeat(size)}});
            json!({"cells": ["m"], "object": {"metadata": metadata}})
        };
        let rows: Vec<Value> = (0..rows).map(row).collect();
        Response::new(Body::from(json!({"metadata": {"continue": next}, "rows": rows}).to_string()))
    }
}

impl Handler for Hostile {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        let path = call.path().strip_prefix("/k8s/clusters/c-1").unwrap().to_owned();
        let query = call.head.uri.query().unwrap_or_default().to_owned();
        let limit: usize = remuda_auth::request_info::parameter(&query, "limit")
            .and_then(|limit| limit.parse().ok())
            .unwrap_or_default();
        let maps = path == "/api/v1/configmaps" && query.contains("includeObject=Object");
        Box::pin(async move {
            Ok(match (path.as_str(), self.flood) {
                ("/api", "kinds") => self.endless(r#"{"items":["#, r#"{"metadata":{"name":"x"}},"#),
                ("/api", _) => Response::new(Body::from(
                    json!({"items": [{"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [{
                        "resource": "configmaps", "responseKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                        "scope": "Namespaced", "singularResource": "configmap", "verbs": ["get", "list", "watch"],
                    }]}]}]})
                    .to_string(),
                )),
                (_, "list") if maps => self.endless(r#"{"rows":["#, r#"{"object":{"metadata":{"name":"m"}}},"#),
                // Each page is small enough, and there is no last one.
                (_, "pages") if maps => Self::page(20, 256 << 10, "more"),
                (_, "empty pages") if maps => Self::page(0, 0, "more"),
                (_, "silence") if maps => std::future::pending().await,
                // What does not fit on a page of five hundred fits on smaller ones.
                (_, "large") if maps => Self::page(limit.min(500), 200 << 10, ""),
                _ => Response::new(Body::from("{}")),
            })
        })
    }
}

fn list_api() -> ListApi {
    ListApi::new(ListApiOptions {
        client: nobody(),
        policy: Arc::new(Policy::new()),
        clock: Arc::new(SystemClock),
        part_of: |_, _| None,
        nodes: None,
        credentials: None,
        people: None,
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
    })
}

async fn ask(opening: &Opening, path: &str) -> (u16, Value) {
    let request = Request::builder().method(Method::GET).uri(path).header(header::HOST, "h").body(());
    let (head, ()) = request.unwrap().into_parts();
    let peer = "127.0.0.1:1".parse().unwrap();
    let caller = Caller { name: "ann".to_owned(), ..Caller::default() };
    let call = Call { door: &DOOR, peer, caller, management: Arc::new(Nothing), head };
    let answer = opening.handler.handle(call, Body::empty()).await.unwrap_or_else(Refusal::response);
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_not_read_without_end() {
    for (flood, code, message) in [
        ("kinds", 502, "the answer to /k8s/clusters/c-1/api is larger than 16 MiB"),
        ("list", 502, "the answer to /k8s/clusters/c-1/api/v1/configmaps is larger than 16 MiB"),
        ("pages", 502, "what was asked for is larger than 160 MiB"),
        ("empty pages", 502, "the cluster did not end its list of configmaps"),
        ("silence", 504, "the cluster did not list its configmaps in 60s"),
    ] {
        let taken = Arc::<AtomicUsize>::default();
        let handler = Arc::new(Hostile { flood, taken: taken.clone() });
        let api = list_api();
        let opening = api.in_front_of(Opening { door: &DOOR, handler });
        let (status, told) = ask(&opening, "/k8s/clusters/c-1/v1/configmaps").await;
        assert_eq!((status, told["message"].as_str()), (code, Some(message)), "{flood}: {told}");
        let taken = taken.load(Ordering::SeqCst);
        assert!(taken < 100 << 20, "{flood}: {taken} bytes were read");
        assert_eq!(api.shared().room.left(), ROOM, "{flood}: everything is given back");
    }
}

#[tokio::test(start_paused = true)]
async fn large_objects_are_read_in_smaller_pages() {
    let api = list_api();
    let handler = Arc::new(Hostile { flood: "large", taken: Arc::default() });
    let opening = api.in_front_of(Opening { door: &DOOR, handler });
    let (code, list) = ask(&opening, "/k8s/clusters/c-1/v1/configmaps").await;
    assert_eq!((code, list["count"].as_u64()), (200, Some(20)), "{}", list["message"]);
}

/// Requests that wait for a cluster hold up no others: there are as many places as lists that are put together here.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_says_nothing_takes_no_place_of_others() {
    let api = list_api();
    let handler = Arc::new(Hostile { flood: "silence", taken: Arc::default() });
    let opening = api.in_front_of(Opening { door: &DOOR, handler });
    let mut waiting = JoinSet::new();
    for _ in 0..64 {
        let opening = opening.clone();
        waiting.spawn(async move { ask(&opening, "/k8s/clusters/c-1/v1/configmaps").await.0 });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(api.shared().turns.available_permits(), crate::api::AT_ONCE);
    assert_eq!(waiting.join_all().await, [504; 64]);
}
