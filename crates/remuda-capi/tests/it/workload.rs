//! Connections to workload clusters: made when they can be, kept, given up, made again.

use std::{
    collections::HashSet,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    client::Body,
};
use parking_lot::Mutex;
use remuda_api::core::Cluster;
use remuda_control::{Ctx, ObjectKey};
use remuda_workload::{Connect, Down, KubeconfigSecret, Options, Subscription, What, Workloads};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::world::World;

/// One API server stands for all clusters.
#[derive(Clone)]
struct Line {
    server: remuda_testkit::World,
    /// Clusters that never answer, not even to say no.
    hanging: Arc<Mutex<HashSet<ObjectKey>>>,
    unauthorized: Arc<AtomicBool>,
    connects: Arc<AtomicUsize>,
}

impl Line {
    async fn new() -> Self {
        let server = remuda_testkit::World::bare().await;
        Self { server, hanging: Arc::default(), unauthorized: Arc::default(), connects: Arc::default() }
    }

    fn connects(&self) -> usize {
        self.connects.load(Ordering::SeqCst)
    }

    fn probes(&self) -> usize {
        self.server.requests().iter().filter(|request| *request == "GET /").count()
    }
}

impl Connect for Line {
    fn connect(&self, cluster: &ObjectKey) -> BoxFuture<'_, Result<Client, Down>> {
        self.connects.fetch_add(1, Ordering::SeqCst);
        if self.hanging.lock().contains(cluster) {
            return Box::pin(std::future::pending());
        }
        let wire = Wire { client: self.server.client(), unauthorized: self.unauthorized.clone() };
        Box::pin(async { Ok(Client::new(wire, "default")) })
    }
}

/// Credentials that may expire.
#[derive(Clone)]
struct Wire {
    client: Client,
    unauthorized: Arc<AtomicBool>,
}

impl Service<Request<Body>> for Wire {
    type Response = Response<Body>;
    type Error = tower::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, tower::BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), tower::BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if self.unauthorized.load(Ordering::SeqCst) {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized",
                "message": "Unauthorized", "code": 401});
            let response = Response::builder().status(401).body(Body::from(status.to_string().into_bytes()));
            return Box::pin(async { Ok(response.unwrap()) });
        }
        let client = self.client.clone();
        Box::pin(async move { Ok(client.send(request).await?) })
    }
}

/// Connections at work, and everything they told.
struct Running {
    ctx: Arc<Ctx>,
    workloads: Workloads,
    told: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
    _subscription: Subscription,
}

impl Running {
    fn start(world: &World, connect: impl Fn(&Ctx) -> Arc<dyn Connect>) -> Self {
        let ctx = world.ctx();
        let workloads = Workloads::new(ctx.clone(), Options::default(), connect(&ctx));
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let telling = told.clone();
        let subscription = workloads.subscribe(move |event| {
            let what = match &event.what {
                What::Node { old, new } => format!("Node {} {}", old.is_some(), new.is_some()),
                what => format!("{what:?}"),
            };
            telling.lock().push(format!("{} {what}", event.cluster.name));
        });
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(remuda_workload::run(workloads.clone(), stop.clone()));
        Self { ctx, workloads, told, stop, tasks, _subscription: subscription }
    }

    fn on(world: &World, line: &Line) -> Self {
        Self::start(world, |_| Arc::new(line.clone()))
    }

    fn is_up(&self, name: &str) -> bool {
        self.workloads.client(&key(name)).is_ok()
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock())
    }

    async fn stop(self) {
        self.stop.cancel();
        self.tasks.join_all().await;
        self.ctx.stop().await;
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

async fn create_cluster(world: &World, name: &str) {
    let reference =
        json!({"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "FakeCluster", "name": name});
    let cluster = json!({"metadata": {"name": name}, "spec": {"infrastructureRef": reference}});
    let cluster = serde_json::from_value(cluster).unwrap();
    world.api::<Cluster>().create(&PostParams::default(), &cluster).await.unwrap();
}

async fn provision(world: &World, name: &str) {
    let patch = Patch::Merge(json!({"status": {"initialization": {"infrastructureProvisioned": true}}}));
    world.api::<Cluster>().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn create_node(line: &Line, name: &str) {
    let node = json!({"metadata": {"name": name}, "spec": {"providerID": format!("x://{name}")}});
    let nodes: Api<Node> = Api::all(line.server.client());
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
}

async fn until(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never happened: {what}");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_connected_to_once_there_is_something_to_connect_to() {
    let (world, line) = (World::start().await, Line::new().await);
    let running = Running::on(&world, &line);
    create_cluster(&world, "c").await;
    create_node(&line, "a").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(line.connects(), 0);
    assert!(running.workloads.node(&key("c"), "a").is_err());
    provision(&world, "c").await;
    until("connected", || running.is_up("c")).await;
    assert_eq!(running.told(), ["c Connected"]);
    let found = running.workloads.nodes_by_provider_id(&key("c"), "x://a").unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(running.workloads.node(&key("c"), "b"), Ok(None));
    create_node(&line, "b").await;
    until("the node is known", || running.workloads.node(&key("c"), "b").is_ok_and(|node| node.is_some()))
        .await;
    assert_eq!(running.told(), ["c Node false true"]);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn clusters_that_hang_hold_up_nobody() {
    let (world, line) = (World::start().await, Line::new().await);
    let name = |number: usize| format!("c{number}");
    for number in 0..200 {
        create_cluster(&world, &name(number)).await;
        provision(&world, &name(number)).await;
        if number % 5 < 2 {
            line.hanging.lock().insert(key(&name(number)));
        }
    }
    let started = Instant::now();
    let running = Running::on(&world, &line);
    let good = || (0..200).filter(|number| number % 5 >= 2 && running.is_up(&name(*number))).count();
    until("all that answer are connected", || good() == 120).await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    // One that comes later does not queue behind them either.
    create_cluster(&world, "late").await;
    provision(&world, "late").await;
    let started = Instant::now();
    until("the late one is connected", || running.is_up("late")).await;
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_cluster_is_asked_now_and_then_and_a_talkative_one_never() {
    let (world, line) = (World::start().await, Line::new().await);
    let running = Running::on(&world, &line);
    create_cluster(&world, "c").await;
    provision(&world, "c").await;
    create_node(&line, "a").await;
    until("connected", || running.is_up("c")).await;
    let before = line.probes();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!((9..=13).contains(&(line.probes() - before)), "{}", line.probes() - before);
    let nodes: Api<Node> = Api::all(line.server.client());
    let before = line.probes();
    for number in 0..20 {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"n": number.to_string()}}}));
        nodes.patch("a", &PatchParams::default(), &patch).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    // One may have been due at that very moment.
    assert!(line.probes() - before <= 1, "{}", line.probes() - before);
    let health = running.workloads.health(&key("c"));
    assert!(running.ctx.clock.now().duration_since(health.last_success.unwrap()).as_secs() < 15);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_cluster_is_down_but_its_nodes_are_not_missing() {
    let (world, line) = (World::start().await, Line::new().await);
    let running = Running::on(&world, &line);
    create_cluster(&world, "c").await;
    provision(&world, "c").await;
    create_node(&line, "a").await;
    until("the node is known", || running.workloads.node(&key("c"), "a").is_ok_and(|node| node.is_some()))
        .await;
    running.told();
    line.server.down().await;
    let started = Instant::now();
    until("disconnected", || !running.is_up("c")).await;
    assert!((35..90).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    assert!(running.workloads.node(&key("c"), "a").is_err());
    assert_eq!(running.workloads.nodes(&key("c")).unwrap().len(), 1);
    let health = running.workloads.health(&key("c"));
    assert!(!health.connected && health.failures >= 5 && health.why.is_some(), "{health:?}");
    until("the longer grace is over", || running.told.lock().len() == 3).await;
    assert_eq!(running.told(), ["c Silent(50s)", "c Disconnected", "c Silent(300s)"]);
    line.server.up().await;
    until("connected again", || running.is_up("c")).await;
    assert_eq!(running.told(), ["c Connected"]);
    assert_eq!(running.workloads.health(&key("c")).failures, 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn credentials_that_expired_are_replaced_at_once() {
    let (world, line) = (World::start().await, Line::new().await);
    let running = Running::on(&world, &line);
    create_cluster(&world, "c").await;
    provision(&world, "c").await;
    until("connected", || running.is_up("c")).await;
    let before = line.connects();
    line.unauthorized.store(true, Ordering::SeqCst);
    until("disconnected", || !running.is_up("c")).await;
    line.unauthorized.store(false, Ordering::SeqCst);
    until("connected again", || running.is_up("c")).await;
    assert!((1..4).contains(&(line.connects() - before)));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_way_is_taken_without_a_gap() {
    let (world, line) = (World::start().await, Line::new().await);
    let running = Running::on(&world, &line);
    create_cluster(&world, "c").await;
    provision(&world, "c").await;
    until("connected", || running.is_up("c")).await;
    running.told();
    running.workloads.renew(&key("c"));
    until("connected anew", || line.connects() == 2 && !running.told.lock().is_empty()).await;
    assert_eq!(running.told(), ["c Connected"]);
    // One that leads nowhere changes nothing.
    line.hanging.lock().insert(key("c"));
    running.workloads.renew(&key("c"));
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(running.is_up("c"));
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_cluster_is_forgotten() {
    let (world, line) = (World::start().await, Line::new().await);
    let running = Running::on(&world, &line);
    create_cluster(&world, "c").await;
    provision(&world, "c").await;
    until("connected", || running.is_up("c")).await;
    world.api::<Cluster>().delete("c", &DeleteParams::default()).await.unwrap();
    until("forgotten", || running.workloads.nodes(&key("c")).is_none()).await;
    let before = line.server.requests().len();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(line.server.requests().len(), before);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_is_taken_from_its_secret_as_soon_as_it_is_there() {
    let world = World::start().await;
    let running = Running::start(&world, |ctx| Arc::new(KubeconfigSecret::new(ctx)));
    create_cluster(&world, "c").await;
    provision(&world, "c").await;
    let why = || running.workloads.health(&key("c")).why.unwrap_or_default();
    until("it is missed", || why() == "Secret default/c-kubeconfig does not exist").await;
    // By now it is tried only twice a minute.
    tokio::time::sleep(Duration::from_secs(300)).await;
    let file = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                contexts: [{name: c, context: {cluster: c, user: u}}]\n\
                clusters: [{name: c, cluster: {server: 'https://[::1]:1'}}]\n\
                users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true}}}]\n";
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "c-kubeconfig", "labels": {"cluster.x-k8s.io/cluster-name": "c"}},
        "type": "cluster.x-k8s.io/secret",
        "stringData": {"value": file},
    }))
    .unwrap();
    world.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    let created = Instant::now();
    until("it is refused", || {
        why() == "kubeconfig in Secret default/c-kubeconfig: a user with exec is not allowed"
    })
    .await;
    assert!(created.elapsed() < Duration::from_secs(1), "{:?}", created.elapsed());
    running.stop().await;
}

type Sent = UnsyncBoxBody<Bytes, tower::BoxError>;

/// A cluster that sends without end, and counts how much of it was taken.
#[derive(Clone, Default)]
struct Hostile {
    flood: Arc<Mutex<&'static str>>,
    taken: Arc<AtomicUsize>,
}

impl Connect for Hostile {
    fn connect(&self, _: &ObjectKey) -> BoxFuture<'_, Result<Client, Down>> {
        let hostile = self.clone();
        Box::pin(async { Ok(Client::new(hostile, "default")) })
    }
}

impl Hostile {
    /// `begin`, then `piece` again and again, up to 700 MiB.
    fn endless(&self, begin: &str, piece: &str) -> Sent {
        let piece = piece.repeat((1 << 20) / piece.len());
        let taken = self.taken.clone();
        let begin = std::iter::once(begin.to_owned());
        let pieces = begin.chain(std::iter::repeat_n(piece, 700)).map(move |piece| {
            taken.fetch_add(piece.len(), Ordering::SeqCst);
            Ok::<_, tower::BoxError>(Frame::data(Bytes::from(piece)))
        });
        StreamBody::new(futures::stream::iter(pieces)).boxed_unsync()
    }
}

impl Service<Request<Body>> for Hostile {
    type Response = Response<Sent>;
    type Error = tower::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Sent>, tower::BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), tower::BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let flood = *self.flood.lock();
        let nodes = request.uri().path() == "/api/v1/nodes";
        let watch = request.uri().query().is_some_and(|query| query.contains("watch="));
        let list = r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#;
        let node = r#"{"metadata":{"name":"n"},"status":{"images":[{"names":["a"]}]}},"#;
        let large =
            format!(r#"{{"metadata":{{"name":"n","annotations":{{"x":"{}"}}}}}}"#, "y".repeat(1 << 20));
        let whole =
            |text: String| Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
        let body = match (nodes, watch, flood) {
            (false, ..) => whole("{}".to_owned()),
            (true, false, "list") => self.endless(list, node),
            (true, false, "numbers") => whole(format!("{list}{}0]}}", "0,".repeat(7 << 20))),
            (true, false, "object") => whole(format!("{list}{large}]}}")),
            (true, false, "pages") => {
                let page = self.taken.fetch_add(1, Ordering::SeqCst);
                let node = |index| format!(r#"{{"metadata":{{"name":"{page}-{index}"}}}}"#);
                let nodes: Vec<String> = (0..500).map(node).collect();
                let page = format!(r#"{{"metadata":{{"continue":"more"}},"items":[{}]}}"#, nodes.join(","));
                whole(page)
            }
            (true, false, _) => whole(format!("{list}]}}")),
            (true, true, "event") => self.endless(r#"{"type":"ADDED","object":{"x":""#, "yyyyyyyy"),
            (true, true, _) => StreamBody::new(futures::stream::pending()).boxed_unsync(),
        };
        Box::pin(async move { Ok(Response::new(body)) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_sends_too_much_is_disconnected_and_the_reason_is_told() {
    for (flood, reason) in [
        ("list", "the answer to /api/v1/nodes is larger than 16 MiB"),
        ("object", "nodes n is larger than 256 KiB"),
        ("pages", "there are more than 20000 nodes"),
        ("event", "an event of the watch of /api/v1/nodes is larger than 4 MiB"),
    ] {
        let (world, hostile) = (World::start().await, Hostile::default());
        *hostile.flood.lock() = flood;
        let running = Running::start(&world, |_| Arc::new(hostile.clone()));
        create_cluster(&world, "c").await;
        provision(&world, "c").await;
        let mut why = None;
        until("the reason is known", || {
            why = why.take().or(running.workloads.health(&key("c")).why);
            why.is_some()
        })
        .await;
        assert_eq!(why.as_deref(), Some(reason), "{flood}");
        let taken = hostile.taken.load(Ordering::SeqCst);
        assert!(taken < 400 << 20, "{flood}: {taken} bytes were read");
        // It is tried again, and found good.
        *hostile.flood.lock() = "";
        until("connected", || running.workloads.health(&key("c")).connected).await;
        running.stop().await;
    }
    // Very many very small objects are no list of nodes either.
    let (world, hostile) = (World::start().await, Hostile::default());
    *hostile.flood.lock() = "numbers";
    let running = Running::start(&world, |_| Arc::new(hostile.clone()));
    create_cluster(&world, "c").await;
    provision(&world, "c").await;
    until("the reason is known", || running.workloads.health(&key("c")).why.is_some()).await;
    assert!(!running.is_up("c"));
    running.stop().await;
}
