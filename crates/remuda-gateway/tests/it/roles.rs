//! What a role is in a cluster.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::StatusCode;
use parking_lot::Mutex;
use remuda_gateway::{Authorize, Caller, Decision, Role};
use serde_json::json;

use crate::{
    downstream::{Agent, Downstream},
    world::{TOKEN, World},
};

/// Gives everybody the same roles.
#[derive(Clone, Default)]
struct Given(Arc<Mutex<Vec<Role>>>);

impl Authorize for Given {
    fn authorize<'a>(&'a self, _: &'a Caller, _: &'a str) -> BoxFuture<'a, Result<Decision, String>> {
        Box::pin(async { Ok(Decision::allow().with_roles(self.0.lock().clone())) })
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
    let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": ["list"]}]);
    Role { name: "reader".to_owned(), rules: Some(serde_json::from_value(rules).unwrap()) }
}

#[tokio::test]
async fn a_role_allows_what_it_says_for_as_long_as_somebody_has_it() {
    let given = Given::default();
    let (world, _downstream, _agent) = connected(&given).await;
    assert_eq!(world.get(NODES, &[ANN]).await.0, StatusCode::FORBIDDEN);
    *given.0.lock() = vec![reader("nodes")];
    let (status, text) = world.get(NODES, &[ANN]).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert_eq!(world.get(SECRETS, &[ANN]).await.0, StatusCode::FORBIDDEN);
    // A role that is changed is another one at once, and one that is taken away is gone.
    *given.0.lock() = vec![reader("secrets")];
    let (status, text) = world.get(SECRETS, &[ANN]).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    given.0.lock().clear();
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
    *given.0.lock() = vec![Role { name: "system:aggregate-to-view".to_owned(), rules: None }];
    // A cluster takes a moment until a binding counts.
    remuda_testkit::until("pods can be seen", async || world.get(PODS, &[ANN]).await.0 == StatusCode::OK)
        .await;
    assert_eq!(world.get(SECRETS, &[ANN]).await.0, StatusCode::FORBIDDEN);
}
