//! What a role is in a cluster.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use remuda_gateway::{Authorize, Caller, Decision, Role};
use serde_json::json;
use tokio::{io::AsyncReadExt, sync::watch};

use crate::{
    downstream::{Agent, Downstream},
    world::{TOKEN, World},
};

/// Decides the same about everybody, and tells when it is otherwise.
#[derive(Clone)]
struct Given {
    now: Arc<Mutex<Decision>>,
    told: watch::Sender<()>,
}

impl Default for Given {
    fn default() -> Self {
        Self { now: Arc::new(Mutex::new(Decision::allow())), told: watch::Sender::default() }
    }
}

impl Given {
    fn decide(&self, decision: Decision) {
        *self.now.lock() = decision;
        self.told.send_replace(());
    }

    fn roles(&self, roles: Vec<Role>) {
        self.decide(Decision::allow().with_roles(roles));
    }
}

impl Authorize for Given {
    fn authorize<'a>(&'a self, _: &'a Caller, _: &'a str) -> BoxFuture<'a, Result<Decision, String>> {
        Box::pin(async { Ok(self.now.lock().clone()) })
    }

    fn changes(&self) -> Option<watch::Receiver<()>> {
        Some(self.told.subscribe())
    }
}

const ANN: (&str, &str) = ("authorization", "Bearer ann");
const NODES: &str = "/k8s/clusters/c-m-1/api/v1/nodes";
const SECRETS: &str = "/k8s/clusters/c-m-1/api/v1/namespaces/default/secrets";
const PODS: &str = "/k8s/clusters/c-m-1/api/v1/namespaces/default/pods";

async fn connected(given: &Given) -> (World, Downstream, Agent) {
    let given = given.clone();
    let world = World::with(move |options| options.authorize = Some(Arc::new(given))).await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    let downstream = Downstream::start().await;
    let agent = downstream.connect(world.address, TOKEN).await.unwrap();
    world.until_condition("c-m-1", "Ready", "True").await;
    (world, downstream, agent)
}

fn reader(resource: &str) -> Role {
    let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": ["list", "watch"]}]);
    Role { name: "reader".to_owned(), rules: Some(serde_json::from_value(rules).unwrap()) }
}

#[tokio::test]
async fn a_role_allows_what_it_says_for_as_long_as_somebody_has_it() {
    let given = Given::default();
    let (world, _downstream, _agent) = connected(&given).await;
    assert_eq!(world.get(NODES, &[ANN]).await.0, StatusCode::FORBIDDEN);
    given.roles(vec![reader("nodes")]);
    let (status, text) = world.get(NODES, &[ANN]).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert_eq!(world.get(SECRETS, &[ANN]).await.0, StatusCode::FORBIDDEN);
    // A role that is changed is another one at once, and one that is taken away is gone.
    given.roles(vec![reader("secrets")]);
    let (status, text) = world.get(SECRETS, &[ANN]).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    given.roles(Vec::new());
    assert_eq!(world.get(SECRETS, &[ANN]).await.0, StatusCode::FORBIDDEN);
    // Nobody has a role because they say so.
    let liar = ("authorization", "Bearer mallory,remuda:role:reader");
    assert_eq!(world.get(SECRETS, &[liar]).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_role_of_the_clusters_own_is_bound_and_not_written() {
    let given = Given::default();
    let (world, _downstream, _agent) = connected(&given).await;
    // `view` itself is put together by a controller, which does not run there.
    given.roles(vec![Role { name: "system:aggregate-to-view".to_owned(), rules: None }]);
    // A cluster takes a moment until a binding counts.
    remuda_testkit::until("pods can be seen", async || world.get(PODS, &[ANN]).await.0 == StatusCode::OK)
        .await;
    assert_eq!(world.get(SECRETS, &[ANN]).await.0, StatusCode::FORBIDDEN);
}

/// A watch that has begun to answer.
async fn watching(world: &World, path: &str) -> Incoming {
    let response = world.send(world.request("GET", &format!("{path}?watch=true"), &[ANN])).await;
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body()
}

/// Whether it ends, and not as an answer that is complete does.
async fn is_cut(watch: &mut Incoming) -> bool {
    tokio::time::timeout(Duration::from_secs(1), async {
        loop {
            match watch.frame().await {
                Some(Ok(_)) => {}
                Some(Err(_)) => return true,
                None => return false,
            }
        }
    })
    .await
    .unwrap_or_default()
}

#[tokio::test]
async fn what_is_under_way_ends_with_the_role_it_needs() {
    let given = Given::default();
    let (world, _downstream, _agent) = connected(&given).await;
    given.roles(vec![reader("nodes")]);
    let mut nodes = watching(&world, NODES).await;
    // More takes nothing away, and nor does a change elsewhere.
    let mut wider = reader("nodes");
    wider.rules.as_mut().unwrap().extend(reader("secrets").rules.unwrap());
    given.roles(vec![wider.clone()]);
    let mut secrets = watching(&world, SECRETS).await;
    given.told.send_replace(());
    assert!(!is_cut(&mut nodes).await && !is_cut(&mut secrets).await);
    // The rule is gone from the role, and only what needs it ends.
    given.roles(vec![reader("secrets")]);
    let (first, second) = tokio::join!(is_cut(&mut nodes), is_cut(&mut secrets));
    assert!(first && !second, "{first} {second}");
    // Another role may do as well, and then none is left.
    given.roles(vec![Role { name: "other".to_owned(), ..wider }]);
    assert!(!is_cut(&mut secrets).await);
    given.roles(Vec::new());
    assert!(is_cut(&mut secrets).await);
}

#[tokio::test]
async fn who_is_no_owner_any_more_keeps_what_the_cluster_itself_allows() {
    let given = Given::default();
    let (world, _downstream, _agent) = connected(&given).await;
    given.decide(Decision::owner());
    let (mut nodes, mut pods) = (watching(&world, NODES).await, watching(&world, PODS).await);
    let view = Role { name: "system:aggregate-to-view".to_owned(), rules: None };
    given.decide(Decision::owner().with_roles(vec![view.clone()]));
    // That a role of the cluster is bound there takes a request.
    assert_eq!(world.get(PODS, &[ANN]).await.0, StatusCode::OK);
    let echo = [ANN, ("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    let response = world.send(world.request("POST", "/k8s/clusters/c-m-1/echo", &echo)).await;
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    tokio::time::sleep(Duration::from_millis(200)).await;
    given.roles(vec![view]);
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(1), stream.read_to_end(&mut rest));
    let (nodes, pods, ended) = tokio::join!(is_cut(&mut nodes), is_cut(&mut pods), ended);
    assert!(nodes && !pods, "{nodes} {pods}");
    ended.expect("a shell ends too").ok();
}

#[tokio::test]
async fn who_may_not_enter_any_more_is_out() {
    let given = Given::default();
    let (world, _downstream, _agent) = connected(&given).await;
    given.decide(Decision::owner());
    let mut nodes = watching(&world, NODES).await;
    given.decide(Decision::deny("no"));
    assert!(is_cut(&mut nodes).await);
    assert_eq!(world.get(NODES, &[ANN]).await.0, StatusCode::FORBIDDEN);
}
