//! What Rancher's dashboard asks for before it shows a page, and the kinds of the older API it cannot do without.

use super::*;

const CLUSTER: &str = "c-m-abcd2345";

async fn admin(site: &Site) -> String {
    let first = site.server.first_user().unwrap().clone();
    site.login(&first.username, &first.password).await.body["token"].as_str().unwrap().to_owned()
}

async fn post(site: &Site, token: &str, path: &str, body: Value) -> Got {
    site.send(Some(token), "POST", path, &[], body).await
}

/// What the server of a whole product has made before people come.
async fn furnish(site: &Site, token: &str) {
    for name in ["cattle-global-data", "fleet-default", CLUSTER] {
        let made = post(site, token, "/v1/namespaces", json!({"metadata": {"name": name}})).await;
        assert!(matches!(made.code.as_u16(), 201 | 409), "{name}: {}", made.text);
    }
    for name in SETTINGS_OF_PAGES {
        let setting = json!({"metadata": {"name": name}, "value": "", "default": ""});
        let made = post(site, token, "/v1/management.cattle.io.settings", setting).await;
        assert!(matches!(made.code.as_u16(), 201 | 409), "{name}: {}", made.text);
    }
}

/// Settings Rancher's dashboard reads one by one. That a whole server has them is a test of settings.
const SETTINGS_OF_PAGES: &[&str] = &[
    "first-login",
    "ui-pl",
    "ui-brand",
    "ui-banners",
    "ui-issues",
    "ui-performance",
    "ui-custom-links",
    "ui-community-links",
    "server-version",
    "server-url",
    "k8s-version",
];

/// Asks until an answer is as it should become.
async fn until(site: &Site, token: &str, path: &str, so: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..500 {
        let got = site.gets(token, path, 200).await;
        if so(&got.body) {
            return got.body;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{path} stays {}", site.gets(token, path, 200).await.text);
}

fn ids(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect()
}

/// A role in the namespace of the cluster.
async fn allow(site: &Site, user: &str, resource: &str, group: &str) {
    let root = site.root().await;
    let send = async |path: &str, body: Value| {
        let request = Request::post(path).header("content-type", "application/json");
        root.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await.unwrap();
    };
    let api = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{CLUSTER}");
    let name = format!("{user}-{resource}");
    let rules = json!([{"apiGroups": [group], "resources": [resource], "verbs": ["get", "list"]}]);
    send(&format!("{api}/roles"), json!({"metadata": {"name": name}, "rules": rules})).await;
    let binding = json!({
        "metadata": {"name": name}, "subjects": [{"kind": "User", "name": user}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
    });
    send(&format!("{api}/rolebindings"), binding).await;
}

/// Each of these was the first request that failed, and some of them left a page empty.
#[tokio::test(flavor = "multi_thread")]
async fn the_requests_that_ranchers_dashboard_begins_with_are_answered() {
    let site = Site::start().await;
    let password = site.server.first_user().unwrap().password.clone();
    furnish(&site, &admin(&site).await).await;
    let get = async |cookie: &str, path: &str| {
        let headers = [("cookie", cookie), ("sec-fetch-site", "same-origin")];
        let headers = if cookie.is_empty() { &headers[1..] } else { &headers[..] };
        site.send(None, "GET", path, headers, json!(null)).await
    };
    for path in ["/rancherversion", "/v1/uiplugins", "/v1-public/authproviders"] {
        assert_eq!(get("", path).await.code.as_u16(), 200, "{path} before a login");
    }
    let version = get("", "/rancherversion").await.body;
    assert!(version["Version"].as_str().unwrap().starts_with("v2.") && version["RancherPrime"] == "false");
    assert_eq!(get("", "/v1/uiplugins").await.body["entries"], json!({}));

    let body =
        json!({"type": "localProvider", "username": "admin", "password": password, "responseType": "cookie"});
    let login = site.send(None, "POST", "/v1-public/login", &[], body).await;
    let cookie = cookies(&login.headers).join("; ");
    let csrf = cookie.split("CSRF=").nth(1).unwrap().to_owned();
    let headers =
        [("cookie", cookie.as_str()), ("x-api-csrf", csrf.as_str()), ("sec-fetch-site", "same-origin")];
    let me = site.send(None, "POST", "/v1/ext.cattle.io.selfuser", &headers, json!({})).await;
    assert_eq!(me.body["status"]["userID"], "user-admin", "{}", me.text);
    // Schemas are the largest of them, and not sent as they are to those who can read them otherwise.
    let headers =
        [("cookie", cookie.as_str()), ("sec-fetch-site", "same-origin"), ("accept-encoding", "gzip")];
    let packed = site.send(None, "GET", "/v1/schemas", &headers, json!(null)).await;
    assert_eq!((packed.code.as_u16(), &packed.headers["content-encoding"]), (200, &"gzip".parse().unwrap()));
    let plain = get(&cookie, "/v1/schemas").await;
    assert!(!plain.headers.contains_key("content-encoding") && packed.text.len() * 3 < plain.text.len());
    let kinds = "management.cattle.io.clusters?exclude=metadata.managedFields";
    for path in [
        "/v1/management.cattle.io.users/user-admin",
        "/v3/principals",
        "/v1/schemas",
        "/v3/schemas",
        "/v1/management.cattle.io.features",
        "/v1/userpreferences",
        "/v1/counts",
        "/v1/management.cattle.io.settings",
        "/v1/namespaces",
        "/v1/management.cattle.io.fleetworkspaces",
        &format!("/v1/{kinds}"),
        "/v3/clusters",
        "/v3/clusters/local",
        "/v1/provisioning.cattle.io.clusters?page=1&pagesize=100&sort=metadata.name&filter=metadata.name~a",
        "/v1/cluster.x-k8s.io.machinedeployments",
        "/v1/cluster.x-k8s.io.machines",
        "/v1/rke.cattle.io.etcdsnapshots",
        "/v3/clusterRegistrationTokens",
        "/v3/nodeDrivers",
        "/v3/cloudcredentials",
        "/v1-k3s-release/releases",
        "/v1-rke2-release/releases",
        "/v1/schemaDefinitions/provisioning.cattle.io.cluster",
    ] {
        let got = get(&cookie, path).await;
        assert_eq!(got.code.as_u16(), 200, "{path}: {}", got.text);
    }
    for setting in SETTINGS_OF_PAGES {
        let got = get(&cookie, &format!("/v3/settings/{setting}")).await;
        assert_eq!(got.code.as_u16(), 200, "{setting}: {}", got.text);
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_and_their_registration_tokens_are_read_by_those_who_may() {
    let site = Site::start().await;
    let token = admin(&site).await;
    furnish(&site, &token).await;
    site.cluster(CLUSTER).await;
    let list = until(&site, &token, "/v3/clusters", |list| ids(list).contains(&CLUSTER)).await;
    assert_eq!((&list["type"], &list["resourceType"]), (&json!("collection"), &json!("cluster")));
    let own = format!("/v3/clusters/{CLUSTER}");
    let cluster = site.gets(&token, &own, 200).await.body;
    assert_eq!((&cluster["type"], &cluster["state"]), (&json!("cluster"), &json!("pending")), "{cluster}");
    assert!(cluster["links"]["self"].as_str().unwrap().ends_with(&own));
    assert!(
        cluster["actions"]["generateKubeconfig"].as_str().unwrap().ends_with("?action=generateKubeconfig")
    );
    assert_eq!(site.gets(&token, "/v3/clusters?state=active", 200).await.body["data"], json!([]));
    assert_eq!(site.gets(&token, "/v3/clusters/c-none", 404).await.body["type"], "error");
    let local = site.gets(&token, "/v3/clusters/local", 200).await.body;
    assert_eq!((&local["id"], &local["state"]), (&json!("local"), &json!("active")));

    // Another user sees none of it, and makes none.
    let ann = site.user("u-ann", json!({})).await;
    assert_eq!(site.gets(&ann, "/v3/clusters", 200).await.body["data"], json!([]));
    assert_eq!(site.gets(&ann, &own, 403).await.code.as_u16(), 403);
    let tokens = "/v3/clusterregistrationtokens";
    let body =
        json!({"type": "clusterRegistrationToken", "clusterId": CLUSTER, "name": "mine", "links": null});
    assert_eq!(post(&site, &ann, tokens, body.clone()).await.code.as_u16(), 403);
    assert_eq!(post(&site, &token, tokens, json!({"name": "mine"})).await.body["code"], "MissingRequired");

    let made = post(&site, &token, tokens, body.clone()).await;
    assert_eq!((made.code.as_u16(), made.body["clusterId"].as_str()), (201, Some(CLUSTER)), "{}", made.text);
    let one = format!("/v3/clusterRegistrationTokens/{CLUSTER}:mine");
    assert!(made.body["links"]["self"].as_str().unwrap().ends_with(&one), "{}", made.text);
    assert_eq!(post(&site, &token, tokens, body).await.code.as_u16(), 409, "there is one");
    // As its controller would.
    let secret = "canary-token".to_owned();
    let stored = json!({"metadata": {"name": "crt-token-mine", "namespace": CLUSTER}, "stringData": {"token": secret}});
    assert_eq!(post(&site, &token, "/v1/secrets", stored).await.code.as_u16(), 201);
    let status = json!({"status": {"command": "apply {token}.yaml", "nodeCommand": "join --token {token}"}});
    let object = format!("/v1/management.cattle.io.clusterregistrationtokens/{CLUSTER}/mine");
    let written = site.send(Some(&token), "PATCH", &object, &[], status).await;
    assert_eq!(written.code.as_u16(), 200, "{}", written.text);
    let filled = until(&site, &token, &one, |told| told["command"].is_string()).await;
    assert_eq!(
        (&filled["command"], &filled["nodeCommand"], &filled["token"]),
        (&json!("apply canary-token.yaml"), &json!("join --token canary-token"), &json!(secret)),
        "{filled}"
    );
    // A user who may read the object and not its Secret is told no token, and no half of a command.
    allow(&site, "u-ann", "clusterregistrationtokens", "management.cattle.io").await;
    let hers = until(&site, &ann, tokens, |list| !ids(list).is_empty()).await;
    assert!(!hers.to_string().contains(&secret), "{hers}");
    let hers = hers["data"].as_array().unwrap().iter().find(|one| one["name"] == "mine").unwrap().clone();
    assert_eq!((&hers["command"], &hers["token"]), (&json!(""), &json!(null)), "{hers}");
    let gone = site.send(Some(&token), "DELETE", &one, &[], json!(null)).await;
    assert!(gone.code.is_success(), "{}", gone.text);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_and_drivers_are_made_used_and_never_told() {
    const CREDENTIALS: &str = "/v3/cloudcredentials";
    let site = Site::start().await;
    let token = admin(&site).await;
    furnish(&site, &token).await;
    let ann = site.user("u-ann", json!({})).await;
    let schema = json!({"metadata": {"name": "skycredentialconfig"}, "spec": {"resourceFields": {
        "key": {"type": "password", "create": true, "default": {"stringValue": ""}},
        "region": {"type": "string", "create": true, "default": {"stringValue": "north"}},
    }}});
    let made = post(&site, &token, "/v1/management.cattle.io.dynamicschemas", schema).await;
    assert_eq!(made.code.as_u16(), 201, "{}", made.text);
    let fields = site.gets(&token, "/v3/schemas/skyCredentialConfig", 200).await.body;
    assert_eq!(fields["resourceFields"]["region"]["default"], "north", "{fields}");
    assert_eq!(fields["links"]["collection"], json!(null));

    let body = json!({
        "type": "cloudCredential", "name": "mine", "skycredentialConfig": {"key": "canary-1", "region": "south"},
        "links": null, "actions": null,
    });
    assert_eq!(post(&site, &ann, CREDENTIALS, body.clone()).await.code.as_u16(), 403);
    let made = post(&site, &token, CREDENTIALS, body).await;
    assert_eq!((made.code.as_u16(), made.body["name"].as_str()), (201, Some("mine")), "{}", made.text);
    let id = made.body["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("cattle-global-data:cc-"), "{id}");
    let one = format!("/v3/cloudCredentials/{id}");
    for body in [made.body, site.gets(&token, &one, 200).await.body] {
        assert_eq!(body["skycredentialConfig"], json!({"region": "south"}));
        assert!(!body.to_string().contains("canary") && !body.to_string().contains("Y2FuYXJ5"), "{body}");
        assert!(!body["labels"].as_object().unwrap().is_empty());
    }
    let change = json!({"skycredentialConfig": {"key": "canary-2"}, "description": "for tests"});
    let changed = site.send(Some(&token), "PUT", &one, &[], change).await;
    assert_eq!(
        (changed.code.as_u16(), &changed.body["description"]),
        (200, &json!("for tests")),
        "{}",
        changed.text
    );
    assert_eq!(changed.body["skycredentialConfig"], json!({"region": "south"}), "what was not given stays");
    let secret = id.split_once(':').unwrap().1;
    let stored = site.gets(&token, &format!("/v1/secrets/cattle-global-data/{secret}"), 200).await.body;
    assert_eq!(stored["data"]["skycredentialConfig-key"], "Y2FuYXJ5LTI=");
    // A Secret there that is no credential is none here.
    let other =
        json!({"metadata": {"name": "other", "namespace": "cattle-global-data"}, "stringData": {"a": "b"}});
    assert_eq!(post(&site, &token, "/v1/secrets", other).await.code.as_u16(), 201);
    assert_eq!(ids(&site.gets(&token, CREDENTIALS, 200).await.body), [id.as_str()]);
    assert_eq!(
        site.gets(&token, "/v3/cloudCredentials/cattle-global-data:other", 404).await.code.as_u16(),
        404
    );
    assert_eq!(site.gets(&ann, CREDENTIALS, 200).await.body["data"], json!([]));
    assert_eq!(site.gets(&ann, &one, 403).await.code.as_u16(), 403);
    assert_eq!(site.gets(&ann, "/v3/schemas/cloudCredential", 404).await.code.as_u16(), 404);

    // One that a cluster names stays.
    let cluster = json!({
        "metadata": {"name": "demo", "namespace": "fleet-default"}, "spec": {"cloudCredentialSecretName": id},
    });
    let made = post(&site, &token, "/v1/provisioning.cattle.io.clusters", cluster).await;
    assert_eq!(made.code.as_u16(), 201, "{}", made.text);
    let kept = site.send(Some(&token), "DELETE", &one, &[], json!(null)).await;
    assert_eq!((kept.code.as_u16(), &kept.body["code"]), (422, &json!("InvalidAction")), "{}", kept.text);
    let spare = json!({"type": "cloudCredential", "skycredentialConfig": {}});
    let spare = post(&site, &token, CREDENTIALS, spare).await;
    assert_eq!(
        spare.body["skycredentialConfig"],
        json!(null),
        "without a value it is of no driver: {}",
        spare.text
    );

    let driver = json!({"metadata": {"name": "sky"}, "spec": {"displayName": "sky", "active": false}});
    let made = post(&site, &token, "/v1/management.cattle.io.nodedrivers", driver).await;
    assert_eq!(made.code.as_u16(), 201, "{}", made.text);
    let read = until(&site, &token, "/v3/nodedrivers/sky", |told| told["state"] == "inactive").await;
    assert!(
        read["actions"]["activate"].as_str().unwrap().ends_with("/v3/nodeDrivers/sky?action=activate"),
        "{read}"
    );
    let act = async |token: &str, action: &str| {
        post(&site, token, &format!("/v3/nodeDrivers/sky?action={action}"), json!(null)).await
    };
    assert_eq!(act(&ann, "activate").await.code.as_u16(), 403);
    assert_eq!(act(&token, "explode").await.body["code"], "InvalidAction");
    let active = act(&token, "activate").await;
    assert_eq!((active.code.as_u16(), &active.body["state"]), (200, &json!("active")), "{}", active.text);
    assert!(active.body["actions"]["deactivate"].is_string());
    site.stop().await;
}

/// Who may read a credential may have it tried, where the server knows where its provider is. Those here are refused
/// before one is asked.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_tried_by_those_who_may_read_them() {
    let site = Site::start().await;
    let token = admin(&site).await;
    furnish(&site, &token).await;
    let ann = site.user("u-ann", json!({})).await;
    let make = async |name: &str, key: &str| {
        let metadata = json!({"name": name, "namespace": "cattle-global-data"});
        let secret = json!({"metadata": metadata, "stringData": {key: "canary"}});
        let made = post(&site, &token, "/v1/secrets", secret).await;
        assert_eq!(made.code.as_u16(), 201, "{}", made.text);
        format!("/v1/secrets/cattle-global-data/{name}")
    };
    let half = make("cc-half", "digitaloceancredentialConfig-apiUrl").await;
    let host = make("cc-host", "proxmoxvecredentialConfig-proxmoxHost").await;
    let none = make("cc-none", "accessToken").await;
    let list = site.gets(&token, "/v1/secrets/cattle-global-data?excludeValues=data", 200).await.body;
    let offered: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["actions"]["test"].is_string())
        .map(|one| one["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(offered, ["cc-half"]);
    let test =
        async |token: &str, path: &str| post(&site, token, &format!("{path}?action=test"), json!(null)).await;
    let told = test(&token, &half).await;
    assert_eq!((told.code.as_u16(), &told.body["works"]), (200, &json!(false)), "{}", told.text);
    assert!(told.body["message"].as_str().unwrap().contains("access-token"), "{}", told.text);
    assert!(!told.text.contains("canary"), "{}", told.text);
    for other in [&host, &none] {
        assert_eq!(test(&token, other).await.body["code"], "InvalidAction", "{other}");
    }
    assert_eq!(test(&ann, &half).await.code.as_u16(), 403);
    let read = site.send(Some(&token), "GET", &format!("{half}?action=test"), &[], json!(null)).await;
    assert_eq!(read.code.as_u16(), 405, "{}", read.text);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_kinds_are_told_to_those_who_have_their_schemas() {
    let site = Site::start().await;
    let token = admin(&site).await;
    let told = site.gets(&token, "/v1/schemaDefinitions/provisioning.cattle.io.cluster", 200).await.body;
    let own = told["definitionType"].as_str().unwrap();
    let spec = &told["definitions"][own]["resourceFields"]["spec"];
    let fields = &told["definitions"][spec["type"].as_str().unwrap()]["resourceFields"];
    assert_eq!(fields["kubernetesVersion"]["type"], "string", "{told}");
    let map = site.gets(&token, "/v1/schemaDefinitions/ConfigMaps", 200).await.body;
    let own = map["definitionType"].as_str().unwrap();
    let data = &map["definitions"][own]["resourceFields"]["data"];
    assert_eq!((&data["type"], &data["subtype"]), (&json!("map"), &json!("string")), "{data}");
    let ann = site.user("u-ann", json!({})).await;
    for unknown in ["secret", "no.such.kind"] {
        let got = site.gets(&ann, &format!("/v1/schemaDefinitions/{unknown}"), 404).await;
        assert_eq!((got.code.as_u16(), &got.body["type"]), (404, &json!("error")), "{unknown}");
    }
    site.stop().await;
}
