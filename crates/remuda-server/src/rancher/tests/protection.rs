//! Protection against deletion, on a whole server: no way leads around it.

use http::Method;
use remuda_auth::identity::{GROUP_AUTHENTICATED, GROUP_MASTERS};
use remuda_names::provisioning::annotation::PROTECTED;
use serde_json::{Value, json};

use super::writers::{CLUSTERS, Site, cluster};
use crate::controllers::Component;

const TEAM: &str = "/apis/provisioning.cattle.io/v1/namespaces/team-a/clusters";
const DEPLOYMENTS: &str = "/apis/cluster.x-k8s.io/v1beta2/namespaces/fleet-default/machinedeployments";

fn protected(name: &str, spec: Value) -> Value {
    let mut object = cluster(name, spec);
    object["metadata"]["annotations"] = json!({PROTECTED: "true"});
    object
}

fn pool(name: &str, mark: Option<&str>, quantity: i64) -> Value {
    let mut pool = json!({
        "name": name, "quantity": quantity, "etcdRole": true, "controlPlaneRole": true,
        "machineConfigRef": {"kind": "TestConfig", "name": "nc"}});
    if let Some(mark) = mark {
        pool["machineDeploymentAnnotations"] = json!({PROTECTED: mark});
    }
    pool
}

fn pools(pools: &[Value]) -> Value {
    json!({"spec": {"rkeConfig": {"machinePools": pools}}})
}

#[track_caller]
fn refused(answer: Result<Value, Value>, code: u64, says: &str) -> Value {
    let status = answer.expect_err(says);
    assert_eq!(status["code"], code, "{status}");
    assert!(status["message"].as_str().unwrap().contains(says), "{status}");
    status
}

async fn is_whole(site: &Site, path: &str) -> bool {
    let found = site.send(&site.root(), Method::GET, path, &Value::Null).await.unwrap();
    found["metadata"]["deletionTimestamp"].is_null()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protected_cluster_is_deleted_in_no_way() {
    let site = Site::start().await;
    let delete = async |path: &str| site.send(&site.root(), Method::DELETE, path, &json!({})).await;
    site.make(TEAM, protected("demo", json!({"rkeConfig": {}}))).await;
    site.make(TEAM, cluster("other", json!({"rkeConfig": {}}))).await;
    let demo = format!("{TEAM}/demo");
    let says = "cluster team-a/demo is protected against deletion; to take that off: remuda cluster unprotect demo -n \
                team-a";

    let status = refused(delete(&demo).await, 403, says);
    assert_eq!(
        status["details"]["causes"][0]["field"], "metadata.annotations[remuda.io/protected]",
        "{status}"
    );
    refused(delete(&format!("{demo}?dryRun=All")).await, 403, says);
    // All of the namespace: the one that is protected stays, and the answer says so.
    refused(delete(TEAM).await, 403, says);
    refused(delete("/api/v1/namespaces/team-a").await, 403, says);
    assert!(is_whole(&site, "/api/v1/namespaces/team-a").await);
    let managed = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": "c-m-abcd2345"}, "spec": {}});
    site.make("/apis/management.cattle.io/v3/clusters", managed).await;
    let status = json!({"status": {"clusterName": "c-m-abcd2345"}});
    site.send(&site.root(), Method::PATCH, &format!("{demo}/status"), &status).await.unwrap();
    let managed = "/apis/management.cattle.io/v3/clusters/c-m-abcd2345";
    refused(delete(managed).await, 403, says);
    let definition =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusters.provisioning.cattle.io";
    refused(delete(definition).await, 403, says);
    // Nor by what collects garbage, or a component of the server.
    let collector =
        site.client("system:serviceaccount:kube-system:generic-garbage-collector", &[GROUP_MASTERS]);
    refused(site.send(&collector, Method::DELETE, &demo, &json!({})).await, 403, says);
    for path in [demo.as_str(), managed, definition] {
        assert!(is_whole(&site, path).await, "{path}");
    }

    let off = json!({"metadata": {"annotations": {PROTECTED: null}}});
    site.send(&site.root(), Method::PATCH, &demo, &off).await.unwrap();
    delete(managed).await.unwrap();
    delete(&demo).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protected_pool_is_neither_removed_nor_emptied() {
    let site = Site::start().await;
    let patch = async |path: &str, body: Value| site.send(&site.root(), Method::PATCH, path, &body).await;
    let (keep, spare) = (pool("keep", Some("true"), 2), pool("spare", None, 1));
    site.make(CLUSTERS, cluster("demo", json!({"rkeConfig": {"machinePools": [keep, spare]}}))).await;
    let demo = format!("{CLUSTERS}/demo");
    let says = "remuda cluster unprotect demo --pool keep -n fleet-default";

    for (change, field) in [
        (pools(std::slice::from_ref(&spare)), "spec.rkeConfig.machinePools"),
        (pools(&[]), "spec.rkeConfig.machinePools"),
        (pools(&[pool("keep", Some("true"), 0)]), "spec.rkeConfig.machinePools[0].quantity"),
        (pools(&[spare.clone(), pool("keep", None, 0)]), "spec.rkeConfig.machinePools[1].quantity"),
    ] {
        let status = refused(patch(&demo, change).await, 403, says);
        assert_eq!(status["details"]["causes"][0]["field"], field, "{status}");
    }
    refused(site.send(&site.root(), Method::DELETE, &demo, &json!({})).await, 403, says);
    // A misspelt value protects nothing, so it is none.
    let status = refused(
        patch(&demo, pools(&[keep.clone(), pool("spare", Some("yes"), 1)])).await,
        422,
        "true or false",
    );
    let field = "spec.rkeConfig.machinePools[1].machineDeploymentAnnotations[remuda.io/protected]";
    assert_eq!(status["details"]["causes"][0]["field"], field);

    let deployment = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "metadata": {"name": "demo-keep"},
        "spec": {
            "clusterName": "demo", "replicas": 2, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "clusterName": "demo", "bootstrap": {"dataSecretName": "x"},
                "infrastructureRef": {"apiGroup": "rke-machine.cattle.io", "kind": "TestMachineTemplate", "name": "x"}}},
        },
    });
    site.make(DEPLOYMENTS, deployment).await;
    let (none, one) = (json!({"spec": {"replicas": 0}}), json!({"spec": {"replicas": 1}}));
    for path in ["demo-keep", "demo-keep/scale"] {
        refused(patch(&format!("{DEPLOYMENTS}/{path}"), none.clone()).await, 403, says);
    }
    patch(&format!("{DEPLOYMENTS}/demo-keep/scale"), one).await.unwrap();

    patch(&demo, pools(&[pool("keep", None, 2), spare.clone()])).await.unwrap();
    patch(&format!("{DEPLOYMENTS}/demo-keep/scale"), none).await.unwrap();
    patch(&demo, pools(&[spare])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn protection_is_taken_off_by_those_who_may_delete() {
    let site = Site::start().await;
    site.make(
        TEAM,
        protected("demo", json!({"rkeConfig": {"machinePools": [pool("keep", Some("true"), 1)]}})),
    )
    .await;
    let demo = format!("{TEAM}/demo");
    let group = "provisioning.cattle.io";
    site.grant("bob", "team-a", group, "clusters", "demo", &["get", "update", "patch"]).await;
    site.until("bob may read", async || site.get("bob", &demo).await.is_ok()).await;

    let says = "user \"bob\" cannot delete clusters.provisioning.cattle.io \"demo\" in namespace \"team-a\"";
    let off = json!({"metadata": {"annotations": {PROTECTED: null}}});
    for change in [
        off.clone(),
        json!({"metadata": {"annotations": {PROTECTED: "false"}}}),
        json!({"metadata": {"annotations": null}}),
        pools(&[pool("keep", None, 1)]),
    ] {
        refused(site.patch("bob", &demo, &change).await, 403, says);
    }
    // Everything else, and to protect more, is as ever.
    site.patch("bob", &demo, &pools(&[pool("keep", Some("true"), 3), pool("more", Some("true"), 1)]))
        .await
        .unwrap();
    // Controllers do not take protection off, not even the one that deletes clusters.
    let controller = Component::Provisioning.user();
    let groups: Vec<&str> = controller.groups.iter().map(String::as_str).collect();
    let client = site.client(&controller.name, &groups);
    refused(site.send(&client, Method::PATCH, &demo, &off).await, 403, "cannot delete");

    let id = site.client("ann", &[GROUP_AUTHENTICATED]);
    site.grant("ann", "team-a", group, "clusters", "demo", &["get", "patch", "delete"]).await;
    site.until("ann may read", async || site.get("ann", &demo).await.is_ok()).await;
    refused(site.send(&id, Method::DELETE, &demo, &json!({})).await, 403, "is protected");
    site.patch("ann", &demo, &off).await.unwrap();
    refused(site.send(&id, Method::DELETE, &demo, &json!({})).await, 403, "pool keep of cluster team-a/demo");
    site.patch("ann", &demo, &pools(&[pool("keep", None, 3), pool("more", None, 1)])).await.unwrap();
    site.send(&id, Method::DELETE, &demo, &json!({})).await.unwrap();
}
