//! The list API, through a whole server and its socket.

use serde_json::{Value, json};

use super::Site;

const MACHINES: &str = "/v1/cluster.x-k8s.io.machines";

struct Desk {
    site: Site,
    token: String,
}

impl Desk {
    async fn open() -> Self {
        let site = Site::start().await;
        let first = site.server.first_user().unwrap().clone();
        let token =
            site.login(&first.username, &first.password).await.body["token"].as_str().unwrap().to_owned();
        Self { site, token }
    }

    async fn get(&self, path: &str) -> Value {
        let got = self.site.send(Some(&self.token), "GET", path, &[], json!(null)).await;
        assert_eq!(got.code.as_u16(), 200, "{path}: {}", got.text);
        got.body
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let got = self.site.send(Some(&self.token), method, path, &[], body).await;
        (got.code.as_u16(), got.body)
    }

    async fn secret(&self, name: &str, labels: Value) -> Value {
        let body =
            json!({"metadata": {"name": name, "namespace": "default", "labels": labels}, "_type": "Opaque"});
        let (code, made) = self.send("POST", "/v1/secrets", body).await;
        assert_eq!(code, 201, "{made}");
        made
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["data"].as_array().unwrap().iter().map(|row| row["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_say_what_there_is_and_what_the_caller_may() {
    let desk = Desk::open().await;
    let schemas = desk.get("/v1/schemas").await;
    let find =
        |id: &str| schemas["data"].as_array().unwrap().iter().find(|schema| schema["id"] == id).cloned();
    for id in
        ["provisioning.cattle.io.cluster", "cluster.x-k8s.io.machine", "secret", "node", "count", "schema"]
    {
        assert!(find(id).is_some(), "{id}");
    }
    let machine = find("cluster.x-k8s.io.machine").unwrap();
    assert_eq!(machine["resourceMethods"], json!(["GET", "DELETE", "PUT", "PATCH"]));
    assert_eq!(machine["collectionMethods"], json!(["GET", "POST"]));
    assert_eq!(machine["attributes"]["kind"], "Machine");
    assert_eq!(machine["attributes"]["columns"][0]["field"], "$.metadata.fields[0]");
    assert!(find("management.cattle.io.token").is_none(), "tokens are not shown");
    let one = desk.get("/v1/schemas/secrets").await;
    assert_eq!(one["id"], "secret");
    let root = desk.get("/v1").await;
    assert!(root["data"][0]["links"]["secret"].as_str().unwrap().ends_with("/v1/secrets"));
    // Every list that is offered can be had, and its objects lead to themselves.
    for schema in schemas["data"].as_array().unwrap() {
        let offers = schema["collectionMethods"].as_array().unwrap().contains(&json!("GET"));
        if !offers || schema["id"] == "subscribe" {
            continue;
        }
        let url = schema["links"]["collection"].as_str().unwrap();
        let path = url.strip_prefix("https://").unwrap().split_once('/').unwrap().1;
        let list = desk.get(&format!("/{path}?pagesize=1")).await;
        for object in list["data"].as_array().unwrap() {
            if schema["attributes"]["kind"].is_null() {
                continue;
            }
            assert_eq!(object["type"], schema["id"]);
            let own = object["links"]["self"].as_str().unwrap();
            let path = own.strip_prefix("https://").unwrap().split_once('/').unwrap().1;
            assert_eq!(desk.get(&format!("/{path}")).await["id"], object["id"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_filtered_sorted_and_cut_into_pages() {
    let desk = Desk::open().await;
    for number in 0..12 {
        desk.secret(&format!("s-{number:02}"), json!({"pool": format!("p{}", number % 2), "test": "yes"}))
            .await;
    }
    let list = desk.get("/v1/secrets?filter=metadata.labels[test]=yes").await;
    assert_eq!(list["count"], 12, "{list}");
    assert_eq!(list["type"], "collection");
    assert_eq!(list["resourceType"], "secret");
    let page = desk
        .get("/v1/secrets/default?filter=metadata.labels[pool]=p1&filter=metadata.name~s-&sort=-metadata.name&page=2&pagesize=4")
        .await;
    assert_eq!((page["count"].as_u64(), page["pages"].as_u64()), (Some(6), Some(2)));
    assert_eq!(names(&page), ["s-03", "s-01"]);
    let row = &page["data"][0];
    assert_eq!(row["id"], "default/s-03");
    assert_eq!(row["_type"], "Opaque");
    assert_eq!(row["metadata"]["state"]["name"], "active");
    assert_eq!(row["metadata"]["fields"][0], "s-03");
    assert!(row["links"]["update"].is_string());
    let none = desk.get("/v1/secrets?projectsornamespaces=p-other&filter=metadata.labels[test]=yes").await;
    assert_eq!(none["count"], 0);
    let sum = desk
        .get("/v1/secrets?filter=metadata.labels[test]=yes&summary=metadata.labels[pool]&summaryonly")
        .await;
    assert_eq!(sum["summary"][0]["counts"]["p0"]["total"], 6);
    assert_eq!(sum["data"], json!([]));
    let counts = desk.get("/v1/counts").await;
    assert_eq!(counts["data"][0]["counts"]["secret"]["namespaces"]["default"]["count"], 12);
    let local = desk.get("/k8s/clusters/local/v1/secrets?filter=metadata.name=s-01").await;
    assert!(
        local["data"][0]["links"]["self"]
            .as_str()
            .unwrap()
            .ends_with("/k8s/clusters/local/v1/secrets/default/s-01")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_written_as_the_caller() {
    let desk = Desk::open().await;
    let made = desk.secret("one", json!({"a": "b"})).await;
    let path = "/v1/secrets/default/one";
    // What was read can be written again and changes nothing.
    let read = desk.get(path).await;
    let (code, again) = desk.send("PUT", path, read.clone()).await;
    assert_eq!(code, 200, "{again}");
    assert_eq!(again["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    let mut changed = read.clone();
    changed["metadata"]["labels"]["a"] = "c".into();
    let (code, _) = desk.send("PUT", path, changed.clone()).await;
    assert_eq!(code, 200);
    let (code, stale) = desk.send("PUT", path, changed.clone()).await;
    assert_eq!(
        (code, stale["type"].as_str(), stale["code"].as_str()),
        (409, Some("error"), Some("Conflict"))
    );
    changed["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let (code, _) = desk.send("PUT", path, changed).await;
    assert_eq!(code, 422);
    let (code, patched) = desk.send("PATCH", path, json!({"metadata": {"labels": {"z": "y"}}})).await;
    assert_eq!((code, &patched["metadata"]["labels"]), (200, &json!({"a": "c", "z": "y"})));
    let (code, _) = desk.send("DELETE", path, json!(null)).await;
    assert_eq!(code, 204);
    let (code, gone) = desk.send("GET", path, json!(null)).await;
    assert_eq!((code, gone["code"].as_str()), (404, Some("NotFound")));
}

/// No input is answered with 500, and errors have the body clients know.
#[tokio::test(flavor = "multi_thread")]
async fn odd_requests_are_refused_with_an_error() {
    let desk = Desk::open().await;
    for (method, path, body, expected) in [
        ("GET", "/v1/nothing.of.this", json!(null), 404),
        ("GET", "/v1/schemas/nothing", json!(null), 404),
        ("GET", "/v1/secrets/a/b/c/d", json!(null), 404),
        ("GET", "/v1/secrets/default/x?link=shell", json!(null), 404),
        ("POST", "/v1/secrets/default/x?action=boom", json!({}), 404),
        ("POST", "/v1/secrets", json!([]), 422),
        ("POST", "/v1/secrets", json!({"metadata": 7}), 422),
        ("POST", "/v1/secrets", json!({"metadata": {"name": "x"}}), 422),
        ("POST", "/v1/secrets/default", json!({"metadata": {"name": "NOT A NAME"}}), 422),
        ("PUT", "/v1/secrets/default/x", json!("x"), 422),
        ("PATCH", "/v1/secrets/default/x", json!({}), 404),
        ("TRACE", "/v1/secrets", json!(null), 405),
        ("GET", "/v1/secrets?filter=a%20isnot%20b", json!(null), 400),
        ("GET", "/v1/secrets?labelSelector=%3D%3D", json!(null), 400),
        ("GET", "/v1/secrets?revision=999999999", json!(null), 400),
        ("GET", "/v1/secrets/default/..%2f..%2fx", json!(null), 404),
        ("GET", "/v1/subscribe", json!(null), 400),
    ] {
        let (code, told) = desk.send(method, path, body).await;
        assert_eq!(code, expected, "{method} {path}: {told}");
        assert_eq!(told["type"], "error", "{method} {path}: {told}");
        assert_eq!(told["status"], expected, "{method} {path}: {told}");
    }
}

/// Who may read one object sees it and no other: no row, count or relationship.
#[tokio::test(flavor = "multi_thread")]
async fn others_see_what_they_may_read() {
    let desk = Desk::open().await;
    let map = json!({"metadata": {"name": "owner", "namespace": "default"}});
    let (_, owner) = desk.send("POST", "/v1/configmaps", map).await;
    let owned = json!({
        "metadata": {"name": "hers", "namespace": "default", "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
        }]},
    });
    assert_eq!(desk.send("POST", "/v1/secrets", owned).await.0, 201);
    let related = desk.get("/v1/secrets/default/hers").await["metadata"]["relationships"].clone();
    let expected = json!({"rel": "owner", "fromType": "configmap", "fromId": "default/owner"});
    assert_eq!(related, json!([expected]));
    desk.secret("other", json!({})).await;
    let ann = desk.site.user("u-ann", json!({})).await;
    let rule =
        json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["hers"]}]);
    let role = json!({"metadata": {"name": "ann", "namespace": "default"}, "rules": rule});
    assert_eq!(desk.send("POST", "/v1/rbac.authorization.k8s.io.roles", role).await.0, 201);
    let binding = json!({
        "metadata": {"name": "ann", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ann"},
        "subjects": [{"kind": "User", "name": "u-ann"}],
    });
    assert_eq!(desk.send("POST", "/v1/rbac.authorization.k8s.io.rolebindings", binding).await.0, 201);
    let got = desk.site.gets(&ann, "/v1/secrets", 200).await;
    assert_eq!(names(&got.body), ["hers"], "{}", got.text);
    assert_eq!(got.body["count"], 1);
    assert_eq!(got.body["data"][0]["metadata"]["relationships"], json!([]), "she may not read the owner");
    let links = got.body["data"][0]["links"].as_object().unwrap();
    assert!(links.contains_key("view") && !links.contains_key("update") && !links.contains_key("remove"));
    let counts = desk.site.gets(&ann, "/v1/counts", 200).await;
    assert_eq!(counts.body["data"][0]["counts"]["secret"]["summary"]["count"], 1);
    assert!(counts.body["data"][0]["counts"].get("cluster.x-k8s.io.machine").is_none());
    let refused = desk.site.gets(&ann, MACHINES, 403).await;
    assert_eq!(refused.body["type"], "error", "{}", refused.text);
    let schemas = desk.site.gets(&ann, "/v1/schemas", 200).await;
    let schemas = schemas.body["data"].as_array().unwrap().clone();
    assert!(schemas.iter().all(|schema| schema["id"] != "cluster.x-k8s.io.machine"));
    let own = schemas.iter().find(|schema| schema["id"] == "secret").unwrap();
    assert_eq!(own["resourceMethods"], json!(["GET"]));
    assert_eq!(own["collectionMethods"], json!(["GET"]));
}

/// Members of a cluster see its parts and no others, in lists, counts and one by one; who has no cluster sees none.
#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_cluster_see_its_machines() {
    let desk = Desk::open().await;
    let (ann, otto) = (desk.site.user("u-ann", json!({})).await, desk.site.user("u-otto", json!({})).await);
    for name in ["hers", "other", "taken"] {
        let cluster = json!({"metadata": {"name": name, "namespace": "fleet-default"}, "spec": {}});
        let (code, made) = desk.send("POST", "/v1/provisioning.cattle.io.clusters", cluster).await;
        assert_eq!(code, 201, "{made}");
        let uid = if name == "taken" { json!("another") } else { made["metadata"]["uid"].clone() };
        let owner =
            json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "name": name, "uid": uid});
        let reference = |kind: &str| json!({"apiGroup": "rke.cattle.io", "kind": kind, "name": name});
        let capi = json!({
            "metadata": {"name": name, "namespace": "fleet-default", "ownerReferences": [owner]},
            "spec": {"infrastructureRef": reference("RKECluster"), "controlPlaneRef": reference("RKEControlPlane")},
        });
        assert_eq!(desk.send("POST", "/v1/cluster.x-k8s.io.clusters", capi).await.0, 201);
        let labels = json!({"cluster.x-k8s.io/cluster-name": name});
        let machine = json!({
            "metadata": {"name": format!("{name}-1"), "namespace": "fleet-default", "labels": labels},
            "spec": {"clusterName": name, "bootstrap": {"dataSecretName": "x"},
                     "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "CustomMachine", "name": "x"}},
        });
        let (code, made) = desk.send("POST", MACHINES, machine).await;
        assert_eq!(code, 201, "{made}");
        let bootstrap = json!({
            "metadata": {"name": format!("{name}-1"), "namespace": "fleet-default", "labels": labels},
            "spec": {"clusterName": name, "userdata": {"inlineUserdata": "a password"}},
        });
        assert_eq!(desk.send("POST", "/v1/rke.cattle.io.rkebootstraps", bootstrap).await.0, 201);
    }
    let rule = json!([{"apiGroups": ["provisioning.cattle.io"], "resources": ["clusters"], "verbs": ["get", "list", "watch"],
                       "resourceNames": ["hers", "taken"]}]);
    let metadata = json!({"name": "member", "namespace": "fleet-default"});
    let role = json!({"metadata": metadata, "rules": rule});
    assert_eq!(desk.send("POST", "/v1/rbac.authorization.k8s.io.roles", role).await.0, 201);
    let binding = json!({
        "metadata": metadata, "subjects": [{"kind": "User", "name": "u-ann"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "member"},
    });
    assert_eq!(desk.send("POST", "/v1/rbac.authorization.k8s.io.rolebindings", binding).await.0, 201);

    let list = desk.site.gets(&ann, MACHINES, 200).await;
    assert_eq!(names(&list.body), ["hers-1"], "a name that was taken shows nothing: {}", list.text);
    let links = list.body["data"][0]["links"].as_object().unwrap();
    assert!(!links.contains_key("update") && !links.contains_key("remove") && !links.contains_key("view"));
    let one = desk.site.gets(&ann, &format!("{MACHINES}/fleet-default/hers-1"), 200).await;
    assert_eq!(one.body["spec"]["clusterName"], "hers");
    for other in ["other-1", "taken-1", "nothing"] {
        desk.site.gets(&ann, &format!("{MACHINES}/fleet-default/{other}"), 403).await;
    }
    assert_eq!(names(&desk.site.gets(&ann, "/v1/cluster.x-k8s.io.clusters", 200).await.body), ["hers"]);
    let counts = desk.site.gets(&ann, "/v1/counts", 200).await;
    assert_eq!(counts.body["data"][0]["counts"]["cluster.x-k8s.io.machine"]["summary"]["count"], 1);
    let schemas = desk.site.gets(&ann, "/v1/schemas/cluster.x-k8s.io.machine", 200).await;
    assert_eq!(schemas.body["resourceMethods"], json!(["GET"]));
    // What may hold a secret is no part that is shown, and writes are the API's to decide.
    desk.site.gets(&ann, "/v1/rke.cattle.io.rkebootstraps", 403).await;
    let path = format!("{MACHINES}/fleet-default/hers-1");
    let refused = desk.site.send(Some(&ann), "DELETE", &path, &[], json!(null)).await;
    assert_eq!(refused.code.as_u16(), 403, "{}", refused.text);

    // Who has no cluster has an empty Home, and no list of machines.
    let none = desk.site.gets(&otto, "/v1/provisioning.cattle.io.clusters", 200).await;
    assert_eq!((none.body["count"].as_u64(), &none.body["data"]), (Some(0), &json!([])));
    desk.site.gets(&otto, MACHINES, 403).await;
    desk.site.gets(&otto, "/v1/schemas/cluster.x-k8s.io.machine", 404).await;
}

/// Tokens and kubeconfigs of the caller, as Rancher's dashboard makes them.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_made_and_their_value_is_told_once() {
    const TOKENS: &str = "/v1/ext.cattle.io.tokens";
    let desk = Desk::open().await;
    let spec = json!({"spec": {"description": "for a script", "ttl": 3_600_000}});
    let (code, made) = desk.send("POST", TOKENS, spec).await;
    assert_eq!(code, 201, "{made}");
    let (name, value) = (made["id"].as_str().unwrap(), made["status"]["value"].as_str().unwrap());
    let bearer = made["status"]["bearerToken"].as_str().unwrap();
    assert_eq!((bearer, value.len() > 20), (format!("{name}:{value}").as_str(), true));
    desk.site.gets(bearer, "/v1/schemas", 200).await;
    let list = desk.get(TOKENS).await;
    assert!(names(&list).contains(&name) && !list.to_string().contains(value), "{list}");
    let path = format!("{TOKENS}/{name}");
    let one = desk.get(&path).await;
    assert_eq!(one["spec"]["description"], "for a script");
    assert!(!one.to_string().contains(value) && !one.to_string().contains("hash"));
    let activity = format!("/v1/ext.cattle.io.useractivities/{name}");
    let seen = desk.get(&activity).await;
    assert_eq!((&seen["id"], &seen["status"]["expiresAt"]), (&json!(name), &one["status"]["expiresAt"]));
    assert_eq!(desk.send("PUT", &activity, seen.clone()).await, (200, seen));
    assert_eq!(desk.send("POST", "/v1/ext.cattle.io.useractivities", json!({})).await.0, 405);
    // Others know nothing of it.
    let ann = desk.site.user("u-ann", json!({})).await;
    desk.site.gets(&ann, &path, 404).await;
    assert!(!names(&desk.site.gets(&ann, TOKENS, 200).await.body).contains(&name));
    let refused = desk.site.send(Some(&ann), "DELETE", &path, &[], json!(null)).await;
    assert_eq!(refused.code.as_u16(), 404);
    assert_eq!(desk.send("DELETE", &path, json!(null)).await.0, 204);
    desk.site.gets(bearer, "/v1/schemas", 401).await;
    assert_eq!(desk.send("POST", TOKENS, json!({"spec": {"ttl": "x"}})).await.0, 422);

    let kubeconfigs = "/v1/ext.cattle.io.kubeconfigs";
    let of = |clusters: Value| json!({"spec": {"clusters": clusters}});
    assert_eq!(desk.send("POST", kubeconfigs, of(json!([]))).await.0, 400);
    assert_eq!(desk.send("GET", kubeconfigs, json!(null)).await.0, 405);
    let before = desk.get(TOKENS).await["count"].clone();
    let foreign = desk.site.send(Some(&ann), "POST", kubeconfigs, &[], of(json!(["c-m-other"]))).await;
    assert_eq!(foreign.code.as_u16(), 403, "{}", foreign.text);
    let cluster = json!({"metadata": {"name": "c-m-abcd2345"}, "spec": {"displayName": "demo"}});
    assert_eq!(desk.send("POST", "/v1/management.cattle.io.clusters", cluster).await.0, 201);
    let mut made = (0, Value::Null);
    for _ in 0..100 {
        made = desk.send("POST", kubeconfigs, of(json!(["c-m-abcd2345"]))).await;
        if made.0 == 201 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(made.0, 201, "{}", made.1);
    let value = made.1["status"]["value"].as_str().unwrap();
    assert!(value.contains("/k8s/clusters/c-m-abcd2345") && value.contains("token:"), "{value}");
    assert!(desk.get(TOKENS).await["count"].as_u64() > before.as_u64(), "it holds a token of its own");
    let wrong = json!({"spec": {"currentPassword": "wrong", "newPassword": "correct horse battery"}});
    assert_eq!(desk.send("POST", "/v1/ext.cattle.io.passwordchangerequests", wrong).await.0, 401);
}
