//! Auditors on a whole server, through its socket: they read what happened and what there is, and no secret.

use kube::{Api, api::PostParams};
use remuda_api::management::GlobalRoleBinding;
use serde_json::json;

use super::Site;

const AUDIT: &str = "/remuda/v1/audit";

async fn give(site: &Site, user: &str, role: &str) {
    let bindings: Api<GlobalRoleBinding> = Api::all(site.root().await);
    let binding = GlobalRoleBinding {
        user_name: user.to_owned(),
        global_role_name: role.to_owned(),
        ..GlobalRoleBinding::named(&format!("{user}-{role}"))
    };
    bindings.create(&PostParams::default(), &binding).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn auditors_read_everything_but_what_opens_something() {
    let site = Site::start().await;
    let auditor = site.user("ann", json!({})).await;
    let other = site.user("bob", json!({})).await;
    give(&site, "ann", "auditor").await;
    give(&site, "bob", "user").await;
    site.cluster("c-abc12").await;
    for path in [
        "/api/v1/namespaces",
        "/api/v1/configmaps",
        "/api/v1/pods",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/provisioning.cattle.io/v1/clusters",
        "/apis/management.cattle.io/v3/clusters",
        "/apis/management.cattle.io/v3/users",
        "/apis/management.cattle.io/v3/globalrolebindings",
        "/apis/cluster.x-k8s.io/v1beta2/machines",
        "/apis/rke.cattle.io/v1/rkecontrolplanes",
        "/apis/remuda.io/v1/workspacequotas",
        AUDIT,
    ] {
        let got = site.gets(&auditor, path, 200).await;
        assert_eq!(got.code.as_u16(), 200, "{path}: {}", got.text);
    }
    for path in [
        "/api/v1/secrets",
        "/api/v1/namespaces/cattle-local-user-passwords/secrets/user-admin",
        "/apis/management.cattle.io/v3/tokens",
        "/apis/management.cattle.io/v3/clusterregistrationtokens",
        "/apis/management.cattle.io/v3/authconfigs",
        "/k8s/clusters/c-abc12/api/v1/nodes",
    ] {
        let got = site.send(Some(&auditor), "GET", path, &[], json!(null)).await;
        assert_eq!(got.code.as_u16(), 403, "{path}: {}", got.text);
    }
    for (method, path) in [
        ("POST", "/api/v1/namespaces"),
        ("POST", "/remuda/v1/backup"),
        ("POST", "/remuda/v1/rotate-keys"),
        ("DELETE", "/apis/management.cattle.io/v3/clusters/c-abc12"),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token"),
        ("POST", "/v3/clusters/c-abc12?action=generateKubeconfig"),
    ] {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}});
        let got = site.send(Some(&auditor), method, path, &[], body).await;
        assert!(matches!(got.code.as_u16(), 403 | 404), "{method} {path}: {} {}", got.code, got.text);
    }
    // A role in the cluster opens it.
    site.bind("c-abc12", "ann", "cluster-viewer").await;
    let got = site.enters(&auditor, "c-abc12", 503).await;
    assert_ne!(got.code.as_u16(), 403, "{}", got.text);

    assert_eq!(site.send(Some(&other), "GET", AUDIT, &[], json!(null)).await.code.as_u16(), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_is_read_from_its_end_and_by_user() {
    let site = Site::start().await;
    let auditor = site.user("ann", json!({})).await;
    let other = site.user("bob", json!({})).await;
    give(&site, "ann", "auditor").await;
    site.gets(&auditor, AUDIT, 200).await;
    site.send(Some(&other), "GET", "/api/v1/secrets?first", &[], json!(null)).await;
    site.send(Some(&other), "GET", "/api/v1/secrets?second", &[], json!(null)).await;

    let got = site.send(Some(&auditor), "GET", &format!("{AUDIT}?user=bob&limit=2"), &[], json!(null)).await;
    let items = got.body["items"].as_array().unwrap();
    let told: Vec<_> =
        items.iter().map(|item| (&item["requestURI"], &item["responseStatus"]["code"])).collect();
    let expected =
        [(json!("/api/v1/secrets?second"), json!(403)), (json!("/api/v1/secrets?first"), json!(403))];
    assert_eq!(told, expected.iter().map(|(uri, code)| (uri, code)).collect::<Vec<_>>(), "{}", got.text);
    assert_eq!(got.body["kind"], "EventList");
    let none = format!("{AUDIT}?user=bob&since=2999-01-01T00:00:00Z");
    assert_eq!(site.send(Some(&auditor), "GET", &none, &[], json!(null)).await.body["items"], json!([]));
    let wrong = site.send(Some(&auditor), "GET", &format!("{AUDIT}?limit=many"), &[], json!(null)).await;
    assert_eq!(wrong.code.as_u16(), 400, "{}", wrong.text);
    assert!(wrong.text.contains("limit: must be a number from 1 to 1000"), "{}", wrong.text);
}
