//! Clients that send slowly, and a store that does not answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use http::Request;
use http_body::Frame;
use http_body_util::StreamBody;
use remuda_apiserver::{Config, Login, Peer, PeerCertificate};
use remuda_auth::{identity::User, tokens::StaticTokens};
use remuda_store::{
    Error, ListQuery, Memory, Page, Reading, Record, Revision, Scope, Store, Watch, Write as StoreWrite,
};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

use crate::harness::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn users(config: &mut Config, names: &[&str]) {
    let mut tokens = StaticTokens::default();
    for name in names {
        tokens.insert(name, User::new(*name, ["writers"]));
    }
    config.static_tokens = tokens;
}

async fn allow_writers(server: &Server) {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "writers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "writers"}]});
    server.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.expect(201);
}

/// A write whose body begins with `sent` and never ends. Returns the code of its answer.
fn unfinished(server: &Server, user: &str, sent: usize) -> impl Future<Output = u16> + Send + use<> {
    let begun = stream::iter([Ok::<_, Error>(Frame::data(Bytes::from(vec![b' '; sent])))]);
    let body = StreamBody::new(begun.chain(stream::pending()));
    let request = Request::post(MAPS)
        .header("authorization", format!("Bearer {user}"))
        .header("content-type", JSON)
        .body(body)
        .unwrap();
    let answer = server.api.handle(request);
    async move { answer.await.status().as_u16() }
}

#[tokio::test]
async fn slow_bodies_keep_nobody_from_writing() {
    let server = Server::with(|config| {
        users(config, &["slow-1", "slow-2", "quick"]);
        config.limits.concurrent_writes = 4;
        config.limits.per_user = 2;
        config.limits.queue_per_user = 4;
    })
    .await;
    allow_writers(&server).await;
    let outside = server.outside();
    let mut slow = JoinSet::new();
    for user in ["slow-1", "slow-2"] {
        for _ in 0..4 {
            slow.spawn(unfinished(&outside, user, 10));
        }
    }
    tokio::task::yield_now().await;
    let write = outside.ask("POST", MAPS).bearer("quick").json(&config_map("a", json!({}))).send();
    tokio::time::timeout(Duration::from_secs(5), write).await.expect("not held up").expect(201);
    // Even where its own writes are held up, a user can read.
    outside.ask("GET", MAPS).bearer("slow-1").send().await.expect(200);
    assert!(slow.try_join_next().is_none(), "the slow ones are still at it");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_get_on_is_let_go() {
    let server = Server::with(|config| users(config, &["slow"])).await;
    allow_writers(&server).await;
    let outside = server.outside();
    let started = Instant::now();
    assert_eq!(unfinished(&outside, "slow", 10).await, 408);
    assert!((10..12).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    // What arrived earns time, as much as an ordinary line needs for it.
    let started = Instant::now();
    assert_eq!(unfinished(&outside, "slow", 160 << 10).await, 408);
    assert!((20..22).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

#[tokio::test]
async fn the_memory_of_bodies_is_bounded_for_each_user_and_small_ones_always_fit() {
    let server = Server::with(|config| {
        users(config, &["large-1", "large-2", "large-3", "small"]);
        config.limits.body_bytes = 1 << 20;
        config.limits.bodies_bytes_per_user = 2 << 20;
        config.limits.bodies_bytes = 4 << 20;
    })
    .await;
    allow_writers(&server).await;
    let outside = server.outside();
    let mut large = JoinSet::new();
    for user in ["large-1", "large-2", "large-3"] {
        for _ in 0..3 {
            large.spawn(unfinished(&outside, user, 512 << 10));
        }
    }
    tokio::task::yield_now().await;
    // Of all memory for large bodies nothing is left; what most clients send needs none of it.
    let write = outside.ask("POST", MAPS).bearer("small").json(&config_map("a", json!({}))).send();
    tokio::time::timeout(Duration::from_secs(5), write).await.expect("not held up").expect(201);
    let big = json!({"x": "y".repeat(512 << 10)});
    let waiting = outside.ask("POST", MAPS).bearer("small").json(&config_map("b", big.clone())).send();
    let mut waiting = std::pin::pin!(waiting);
    assert!(tokio::time::timeout(Duration::from_millis(200), waiting.as_mut()).await.is_err());
    large.abort_all();
    while large.join_next().await.is_some() {}
    waiting.await.expect(201);
    // And again, since all of it was given back.
    for index in 0..10 {
        let map = config_map(&format!("c{index}"), big.clone());
        outside.ask("POST", MAPS).bearer("small").json(&map).send().await.expect(201);
    }
}

#[tokio::test]
async fn a_body_that_says_it_is_too_large_is_refused_before_it_is_sent() {
    let server = Server::start().await;
    let map = config_map("a", json!({"x": "y".repeat(4 << 20)}));
    server.post(MAPS, map).await.fails(413, "RequestEntityTooLarge");
}

#[tokio::test]
async fn a_connection_is_known_by_the_first_request_of_somebody_who_logged_in() {
    let server = Server::with(|config| users(config, &["somebody"])).await;
    let peer = Peer {
        address: "10.1.2.3:4".parse().unwrap(),
        certificate: PeerCertificate::None,
        login: Login::default(),
    };
    let outside = server.outside();
    outside.ask("GET", "/version").extension(peer.clone()).send().await.expect(200);
    outside.ask("GET", "/version").extension(peer.clone()).bearer("wrong").send().await.expect(401);
    assert!(!peer.login.is_known());
    outside.ask("GET", "/version").extension(peer.clone()).bearer("somebody").send().await.expect(200);
    assert!(peer.login.is_known());
}

/// A store that may stop to answer whatever needs the agreement of others, as etcd without a quorum.
struct Stuck {
    memory: Memory,
    stuck: AtomicBool,
}

impl Stuck {
    async fn wait(&self) {
        if self.stuck.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    async fn fresh(&self, at: Option<Revision>) {
        if at.is_none_or(|at| at > self.memory.observed()) {
            self.wait().await;
        }
    }
}

impl Store for Stuck {
    fn get<'a>(&'a self, key: &'a str) -> Reading<'a, Option<Arc<Record>>> {
        async move {
            self.wait().await;
            self.memory.get(key).await
        }
        .boxed()
    }

    fn get_many<'a>(
        &'a self,
        keys: &'a [String],
        at: Option<Revision>,
    ) -> Reading<'a, Vec<Option<Arc<Record>>>> {
        async move {
            self.fresh(at).await;
            self.memory.get_many(keys, at).await
        }
        .boxed()
    }

    fn list(&self, query: ListQuery) -> BoxFuture<'_, Result<Page, Error>> {
        async move {
            self.fresh(query.at).await;
            self.memory.list(query).await
        }
        .boxed()
    }

    fn write(&self, write: StoreWrite) -> BoxFuture<'_, Result<Arc<Record>, Error>> {
        async move {
            self.wait().await;
            self.memory.write(write).await
        }
        .boxed()
    }

    fn watch(&self, scope: Scope, after: Revision) -> Result<Watch, Error> {
        self.memory.watch(scope, after)
    }

    fn current(&self) -> BoxFuture<'_, Result<Revision, Error>> {
        async move {
            self.wait().await;
            self.memory.current().await
        }
        .boxed()
    }

    fn observed(&self) -> Revision {
        self.memory.observed()
    }

    fn wait_for(&self, revision: Revision) -> BoxFuture<'_, ()> {
        self.memory.wait_for(revision)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), Error>> {
        self.memory.compact(revision)
    }

    fn health(&self) -> BoxFuture<'_, Result<(), Error>> {
        async move {
            self.wait().await;
            self.memory.health().await
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.memory.close()
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_unhealthy_within_two_seconds() {
    let store = Arc::new(Stuck { memory: Memory::default(), stuck: AtomicBool::new(false) });
    let server = Server::on(store.clone(), config()).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    server.post("/api/v1/namespaces/default/serviceaccounts", account).await.expect(201);
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token =
        server.post("/api/v1/namespaces/default/serviceaccounts/robot/token", token).await.expect(201);
    let token = token["status"]["token"].as_str().unwrap();
    server.post(MAPS, config_map("a", json!({"x": "y"}))).await.expect(201);
    store.stuck.store(true, Ordering::Relaxed);
    let outside = server.outside();
    for path in ["/livez", "/healthz", "/readyz", "/readyz?verbose", "/livez/etcd"] {
        for bearer in [None, Some(token)] {
            let ask = outside.ask("GET", path);
            let ask = if let Some(token) = bearer { ask.bearer(token) } else { ask };
            let started = Instant::now();
            let answer = ask.send().await;
            assert!(started.elapsed() < Duration::from_secs(2), "{path}: {:?}", started.elapsed());
            assert_eq!(answer.code, 500, "{path}: {answer:?}");
            assert!(answer.text().contains("no answer within"), "{path}: {}", answer.text());
        }
    }
    // Who is content with what this server has seen gets it.
    let quick = Duration::from_secs(2);
    for path in [
        format!("{MAPS}?resourceVersion=0"),
        format!("{MAPS}/a?resourceVersion=0"),
        format!("{MAPS}?resourceVersion=0&fieldSelector=metadata.name%3Da"),
        format!("{MAPS}?resourceVersion=0&limit=1"),
    ] {
        let answer = tokio::time::timeout(quick, server.get(&path)).await.expect("from memory").expect(200);
        assert!(answer.to_string().contains("\"x\":\"y\""), "{path}: {answer}");
    }
    let watching = server.watch(&format!("{MAPS}?watch=true&resourceVersion=0"));
    let mut watching = tokio::time::timeout(quick, watching).await.expect("from memory");
    assert_eq!(watching.expect("ADDED").await["metadata"]["name"], "a");
    // Everybody else waits for what is true.
    assert!(tokio::time::timeout(Duration::from_millis(200), server.get(MAPS)).await.is_err());
    store.stuck.store(false, Ordering::Relaxed);
    outside.ask("GET", "/readyz").send().await.expect(200);
}
