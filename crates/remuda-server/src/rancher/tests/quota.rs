//! Limits of workspaces, on a whole server.

use futures::future::join_all;
use http::Method;
use remuda_auth::identity::GROUP_AUTHENTICATED;
use serde_json::{Value, json};

use super::writers::{Site, cluster};

const TEAM: &str = "/apis/provisioning.cattle.io/v1/namespaces/team-a/clusters";
const QUOTAS: &str = "/apis/remuda.io/v1/namespaces/team-a/workspacequotas";
const DEPLOYMENTS: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/team-a/machinedeployments";

fn quota(hard: Value) -> Value {
    json!({
        "apiVersion": "remuda.io/v1", "kind": "WorkspaceQuota", "metadata": {"name": "team"}, "spec": {"hard": hard}})
}

fn spec(kind: &str, quantity: i64) -> Value {
    json!({"rkeConfig": {"machinePools": [{
        "name": "a", "quantity": quantity, "etcdRole": true, "controlPlaneRole": true,
        "machineConfigRef": {"kind": kind, "name": "nc"}}]}})
}

#[track_caller]
fn refused(answer: Result<Value, Value>, field: &str, says: &str) {
    let status = answer.expect_err(says);
    assert_eq!(status["code"], 403, "{status}");
    assert_eq!(status["details"]["causes"][0]["field"], field, "{status}");
    assert!(status["message"].as_str().unwrap().contains(says), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_gets_no_more_than_its_quota() {
    let site = Site::start().await;
    let root = site.root();
    let post = async |path: &str, body: Value| site.send(&root, Method::POST, path, &body).await;
    let patch = async |path: &str, body: Value| site.send(&root, Method::PATCH, path, &body).await;
    let delete = async |path: &str| site.send(&root, Method::DELETE, path, &json!({})).await;
    let hard = json!({"clusters": 2, "machines": 5, "driverClasses": {"host": 0}});
    site.make(QUOTAS, quota(hard)).await;
    let field = "spec.rkeConfig.machinePools[0].quantity";

    refused(
        post(TEAM, cluster("demo", spec("LocalConfig", 1))).await,
        field,
        "WorkspaceQuota \"team\" allows 0 machines of drivers of class \"host\"; 0 are used, and this asks for 1 more",
    );
    post(TEAM, cluster("one", spec("TestConfig", 3))).await.unwrap();
    let says = "allows 5 machines; 3 are used, and this asks for 3 more";
    refused(post(TEAM, cluster("two", spec("TestConfig", 3))).await, field, says);
    post(TEAM, cluster("two", spec("TestConfig", 2))).await.unwrap();
    refused(
        post(TEAM, cluster("three", json!({"rkeConfig": {}}))).await,
        "metadata.namespace",
        "allows 2 clusters; 2 are used, and this asks for 1 more",
    );
    // Growing, and changing the driver; other namespaces are not concerned.
    let one = format!("{TEAM}/one");
    let says = "allows 5 machines; 5 are used, and this asks for 1 more";
    refused(patch(&one, json!({"spec": spec("TestConfig", 4)})).await, field, says);
    refused(
        patch(&one, json!({"spec": spec("LocalConfig", 3)})).await,
        "spec.rkeConfig.machinePools[0].machineConfigRef",
        "class \"host\"",
    );
    post(super::CLUSTERS, cluster("elsewhere", spec("TestConfig", 9))).await.unwrap();
    patch(&one, json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();

    // A MachineDeployment is scaled within the same limits.
    let deployment = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": {"name": "one-a"},
        "spec": {
            "clusterName": "one", "replicas": 3, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "clusterName": "one", "bootstrap": {"dataSecretName": "x"},
                "infrastructureRef": {"apiGroup": "rke-machine.cattle.io", "kind": "TestMachineTemplate", "name": "x"}}},
        },
    });
    site.make(DEPLOYMENTS, deployment).await;
    let scale = format!("{DEPLOYMENTS}/one-a/scale");
    let says = "allows 5 machines; 5 are used, and this asks for 4 more";
    refused(patch(&scale, json!({"spec": {"replicas": 7}})).await, field, says);
    patch(&scale, json!({"spec": {"replicas": 1}})).await.unwrap();

    // A lower limit takes nothing away and lets it shrink.
    patch(&format!("{QUOTAS}/team"), json!({"spec": {"hard": {"machines": 1}}})).await.unwrap();
    patch(&one, json!({"spec": spec("TestConfig", 2)})).await.unwrap();
    let says = "allows 1 machines; 4 are used, and this asks for 1 more";
    refused(patch(&one, json!({"spec": spec("TestConfig", 3)})).await, field, says);
    delete(&one).await.unwrap();
    delete(&format!("{TEAM}/two")).await.unwrap();
    post(TEAM, cluster("four", spec("TestConfig", 1))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_at_the_same_moment_share_a_quota() {
    let site = Site::start().await;
    site.make(QUOTAS, quota(json!({"clusters": 3}))).await;
    let root = site.root();
    let writes = (0..24).map(|number| {
        let body = cluster(&format!("demo-{number}"), json!({"rkeConfig": {}}));
        let (site, root) = (&site, &root);
        async move { site.send(root, Method::POST, TEAM, &body).await.is_ok() }
    });
    let made = join_all(writes).await.into_iter().filter(|made| *made).count();
    assert_eq!(made, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_set_by_those_who_may_and_are_what_they_seem() {
    let site = Site::start().await;
    for hard in [json!({"clusters": -1}), json!({"driverClasses": {"clod": 1}}), json!({"machines": "many"})]
    {
        let status =
            site.send(&site.root(), Method::POST, QUOTAS, &quota(hard.clone())).await.expect_err("refused");
        assert_eq!(status["code"], 422, "{hard} {status}");
    }
    let ann = site.client("ann", &[GROUP_AUTHENTICATED]);
    let status = site.send(&ann, Method::POST, QUOTAS, &quota(json!({}))).await.expect_err("refused");
    assert_eq!(status["code"], 403, "{status}");
}
