//! Discovery, OpenAPI, version and health.

use serde_json::{Value, json};

use crate::harness::*;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn find<'a>(list: &'a Value, key: &str, name: &str) -> &'a Value {
    list.as_array()
        .unwrap()
        .iter()
        .find(|item| item[key] == name)
        .unwrap_or_else(|| panic!("{name} in {list}"))
}

#[tokio::test]
async fn plain_discovery_lists_groups_and_resources() {
    let server = Server::start().await;
    let api = server.get("/api").await;
    assert_eq!(api.header("content-type"), Some(JSON));
    assert_eq!(
        api.expect(200),
        json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}]})
    );
    let groups = server.get("/apis").await.expect(200);
    assert_eq!((&groups["kind"], &groups["apiVersion"]), (&json!("APIGroupList"), &json!("v1")));
    let order: Vec<&str> =
        groups["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect();
    assert_eq!(&order[..3], ["apiregistration.k8s.io", "apps", "events.k8s.io"]);
    assert!(!order.iter().any(|group| group.starts_with("flowcontrol")));
    let apps = server.get("/apis/apps").await.expect(200);
    let version = json!({"groupVersion": "apps/v1", "version": "v1"});
    assert_eq!(
        apps,
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": "apps", "versions": [version], "preferredVersion": version})
    );
    let core = server.get("/api/v1").await.expect(200);
    assert_eq!((&core["kind"], &core["groupVersion"]), (&json!("APIResourceList"), &json!("v1")));
    let pods = find(&core["resources"], "name", "pods");
    assert_eq!(
        (&pods["singularName"], &pods["namespaced"], &pods["kind"], &pods["shortNames"], &pods["categories"]),
        (&json!("pod"), &json!(true), &json!("Pod"), &json!(["po"]), &json!(["all"]))
    );
    let full = json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    assert_eq!(pods["verbs"], full);
    let status = find(&core["resources"], "name", "pods/status");
    assert_eq!((&status["singularName"], &status["verbs"]), (&json!(""), &json!(["get", "patch", "update"])));
    let eviction = find(&core["resources"], "name", "pods/eviction");
    assert_eq!(
        (&eviction["group"], &eviction["version"], &eviction["kind"]),
        (&json!("policy"), &json!("v1"), &json!("Eviction"))
    );
    let token = find(&core["resources"], "name", "serviceaccounts/token");
    assert_eq!((&token["group"], &token["kind"]), (&json!("authentication.k8s.io"), &json!("TokenRequest")));
    let namespaces = find(&core["resources"], "name", "namespaces");
    assert_eq!(namespaces["verbs"], json!(["create", "delete", "get", "list", "patch", "update", "watch"]));
    let resources = server.get("/apis/apps/v1").await.expect(200);
    assert_eq!(resources["apiVersion"], "v1");
    let scale = find(&resources["resources"], "name", "deployments/scale");
    assert_eq!(
        (&scale["group"], &scale["version"], &scale["kind"]),
        (&json!("autoscaling"), &json!("v1"), &json!("Scale"))
    );
    let reviews = server.get("/apis/authorization.k8s.io/v1").await.expect(200);
    assert_eq!(find(&reviews["resources"], "name", "subjectaccessreviews")["verbs"], json!(["create"]));
    for (short, kind) in [
        ("ns", "Namespace"),
        ("cm", "ConfigMap"),
        ("svc", "Service"),
        ("sa", "ServiceAccount"),
        ("no", "Node"),
    ] {
        let resources = core["resources"].as_array().unwrap();
        let found =
            resources.iter().find(|r| r["shortNames"] == json!([short])).unwrap_or_else(|| panic!("{short}"));
        assert_eq!(found["kind"], kind);
    }
    for resource in core["resources"].as_array().unwrap() {
        let name = resource["name"].as_str().unwrap();
        assert_eq!(resource["singularName"] == "", name.contains('/'), "{resource}");
    }
}

#[tokio::test]
async fn aggregated_discovery_says_so_in_its_content_type() {
    let server = Server::start().await;
    let go = format!(
        "{AGGREGATED},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    );
    let answer = server.ask("GET", "/apis").accept(&go).send().await;
    assert_eq!(answer.header("content-type"), Some(AGGREGATED));
    assert_eq!((answer.header("vary"), answer.header("cache-control")), (Some("Accept"), Some("public")));
    let etag = answer.header("etag").unwrap().to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"'), "{etag}");
    let list = answer.expect(200);
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("APIGroupDiscoveryList"), &json!("apidiscovery.k8s.io/v2"))
    );
    let apps = list["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "apps").unwrap();
    let version = &apps["versions"][0];
    assert_eq!((&version["version"], &version["freshness"]), (&json!("v1"), &json!("Current")));
    let deployments = find(&version["resources"], "resource", "deployments");
    assert_eq!(deployments["responseKind"]["kind"], "Deployment");
    assert_eq!(
        (&deployments["scope"], &deployments["singularResource"]),
        (&json!("Namespaced"), &json!("deployment"))
    );
    let scale = find(&deployments["subresources"], "subresource", "scale");
    assert_eq!(scale["responseKind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    let fresh = server.ask("GET", "/apis").accept(&go).header("if-none-match", &etag).send().await;
    assert_eq!((fresh.code, fresh.bytes.len()), (304, 0));

    let core = server.ask("GET", "/api").accept(&go).send().await.expect(200);
    assert_eq!(core["items"].as_array().unwrap().len(), 1);
    assert!(core["items"][0]["metadata"].get("name").is_none());
    let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    let answer = server.ask("GET", "/api").accept(beta).send().await;
    assert_eq!(
        answer.header("content-type"),
        Some("application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList")
    );
    assert_eq!(answer.body["apiVersion"], "apidiscovery.k8s.io/v2beta1");
    for accept in [
        "application/json",
        "*/*",
        "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json",
        "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
    ] {
        let answer = server.ask("GET", "/apis").accept(accept).send().await;
        assert_eq!(
            (answer.header("content-type"), &answer.body["kind"]),
            (Some(JSON), &json!("APIGroupList")),
            "{accept}"
        );
    }
}

#[tokio::test]
async fn a_definition_is_discoverable_when_it_is_established() {
    let server = Server::start().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object",
                "properties": {"color": {"type": "string", "description": "Its color."}}}}}}})
    };
    let crd = json!({"metadata": {"name": "foos.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo", "shortNames": ["fo"], "categories": ["all"]},
        "versions": [version("v1alpha1", false), version("v1", true), version("v2beta1", false), version("v10", false)]}});
    server.post(crds, crd).await.expect(201);
    let mut watch = server.watch(&format!("{crds}?fieldSelector=metadata.name%3Dfoos.x.io")).await;
    loop {
        let object = watch.next().await.unwrap()["object"].take();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        if conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True") {
            break;
        }
    }
    let group = server.get("/apis/x.io").await.expect(200);
    let versions: Vec<&str> =
        group["versions"].as_array().unwrap().iter().map(|v| v["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["v10", "v1", "v2beta1", "v1alpha1"]);
    assert_eq!(group["preferredVersion"]["version"], "v10");
    let resources = server.get("/apis/x.io/v1").await.expect(200);
    let foos = find(&resources["resources"], "name", "foos");
    assert_eq!(
        (&foos["singularName"], &foos["shortNames"], &foos["categories"]),
        (&json!("foo"), &json!(["fo"]), &json!(["all"]))
    );
    let groups = server.get("/apis").await.expect(200);
    assert_eq!(
        groups["groups"].as_array().unwrap().last().unwrap()["name"],
        "x.io",
        "after the built-in ones"
    );
    let index = server.get("/openapi/v3").await.expect(200);
    let url = index["paths"]["apis/x.io/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = server.get(&url).await.expect(200);
    let schema = &document["components"]["schemas"]["io.x.v1.Foo"];
    assert_eq!(
        schema["x-kubernetes-group-version-kind"],
        json!([{"group": "x.io", "version": "v1", "kind": "Foo"}])
    );
    assert_eq!(schema["properties"]["spec"]["properties"]["color"]["description"], "Its color.");
    assert!(schema["properties"].get("metadata").is_some());
}

#[tokio::test]
async fn openapi_v3_is_indexed_by_hash() {
    let server = Server::start().await;
    let index = server.get("/openapi/v3").await.expect(200);
    let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    assert!(url.starts_with("/openapi/v3/api/v1?hash="), "{url}");
    let answer = server.get(&url).await;
    assert_eq!(answer.header("cache-control"), Some("public, immutable"));
    assert!(answer.header("etag").is_some() && answer.header("expires").is_some());
    let document = answer.expect(200);
    assert_eq!(document["openapi"], "3.0.0");
    let schemas = &document["components"]["schemas"];
    let pod = &schemas["io.k8s.api.core.v1.Pod"];
    assert_eq!(
        pod["x-kubernetes-group-version-kind"],
        json!([{"group": "", "version": "v1", "kind": "Pod"}])
    );
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(
        (&containers["x-kubernetes-patch-merge-key"], &containers["x-kubernetes-list-map-keys"]),
        (&json!("name"), &json!(["name"]))
    );
    let patch = &document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "", "version": "v1", "kind": "Pod"})
    );
    assert!(
        patch["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .any(|parameter| parameter["name"] == "fieldValidation"),
        "{}",
        patch["parameters"]
    );
    let moved = server.get("/openapi/v3/api/v1?hash=ABC").await;
    assert_eq!((moved.code, moved.header("location")), (301, Some(url.as_str())));
    let unhashed = server.get("/openapi/v3/api/v1").await;
    assert_eq!((unhashed.code, unhashed.header("cache-control")), (200, Some("no-cache, private")));
    server.get("/openapi/v3/apis/no.such/v1").await.fails(404, "NotFound");
    let protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf,application/json";
    let answer = server.ask("GET", &url).accept(protobuf).send().await;
    assert_eq!((answer.code, answer.header("content-type")), (200, Some(JSON)));
    // Every reference is answered within the document.
    let text = document.to_string();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.get(name).is_some(), "{name}");
    }
    let all = server.ask("GET", "/openapi/v2").accept(JSON).send().await.expect(200);
    assert_eq!(all["swagger"], "2.0");
    // Who has a document is not sent it again.
    for path in ["/openapi/v2", "/openapi/v3/api/v1", url.as_str()] {
        let first = server.get(path).await;
        let tag = first.header("etag").unwrap();
        let again = server.ask("GET", path).header("if-none-match", tag).send().await;
        assert_eq!((again.code, again.header("etag")), (304, Some(tag)), "{path}");
        let other = server.ask("GET", path).header("if-none-match", "\"x\"").send().await;
        assert_eq!(other.code, 200, "{path}");
    }
    assert!(all["definitions"]["io.k8s.api.core.v1.Pod"].is_object());
}

#[tokio::test]
async fn version_and_health_are_public() {
    let server = Server::start().await.outside();
    let version = server.get("/version").await.expect(200);
    for field in [
        "major",
        "minor",
        "gitVersion",
        "gitCommit",
        "gitTreeState",
        "buildDate",
        "goVersion",
        "compiler",
        "platform",
    ] {
        assert!(version[field].is_string(), "{field}");
    }
    let git = version["gitVersion"].as_str().unwrap();
    assert!(
        git.starts_with(&format!(
            "v{}.{}.",
            version["major"].as_str().unwrap(),
            version["minor"].as_str().unwrap()
        )),
        "{git}"
    );
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = server.get(path).await;
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        answer.expect_text("ok");
    }
    server.get("/readyz/ping").await.expect_text("ok");
    server.get("/readyz/etcd").await.expect_text("ok");
    server.get("/livez/poststarthook/rbac/bootstrap-roles").await.expect_text("ok");
    server.get("/readyz/nope").await.fails(404, "NotFound");
    let verbose = server.get("/readyz?verbose").await.text();
    assert!(verbose.contains("[+]ping ok\n[+]log ok\n[+]etcd ok\n"), "{verbose}");
    assert!(verbose.ends_with("readyz check passed\n"), "{verbose}");
    let excluded = server.get("/readyz?verbose&exclude=etcd&exclude=log").await.text();
    assert!(!excluded.contains("[+]etcd ok") && !excluded.contains("[+]log ok"), "{excluded}");
    server.get("/metrics").await.fails(403, "Forbidden");
    server.get("/apis").await.fails(403, "Forbidden");
}

#[tokio::test]
async fn the_root_lists_its_paths() {
    let server = Server::start().await;
    let root = server.get("/").await.expect(200);
    let paths = root["paths"].as_array().unwrap();
    for path in
        ["/api", "/api/v1", "/apis", "/apis/apps/v1", "/healthz", "/metrics", "/openapi/v3", "/version"]
    {
        assert!(paths.contains(&json!(path)), "{path}");
    }
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.code, 200);
    assert!(metrics.text().contains("# TYPE"), "{}", metrics.text());
    let keys = server.get("/openid/v1/jwks").await;
    assert_eq!(keys.header("content-type"), Some("application/jwk-set+json"));
    assert!(keys.body["keys"].is_array());
    assert!(server.get("/.well-known/openid-configuration").await.expect(200)["issuer"].is_string());
}

#[tokio::test]
async fn ways_to_pods_services_and_nodes_are_named() {
    let server = Server::quiet().await;
    let listed = server.get("/api/v1").await.expect(200)["resources"].clone();
    let ways = ["attach", "exec", "log", "portforward", "proxy"];
    let found: Vec<String> = listed
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| {
            one["name"].as_str().unwrap().split_once('/').is_some_and(|(_, sub)| ways.contains(&sub))
        })
        .map(|one| {
            format!("{} {} {} {}", one["name"], one["kind"], one["namespaced"], one["verbs"]).replace('"', "")
        })
        .collect();
    assert_eq!(
        found,
        [
            "nodes/proxy NodeProxyOptions false [create,delete,get,patch,update]",
            "pods/attach PodAttachOptions true [create,get]",
            "pods/exec PodExecOptions true [create,get]",
            "pods/log Pod true [get]",
            "pods/portforward PodPortForwardOptions true [create,get]",
            "pods/proxy PodProxyOptions true [create,delete,get,patch,update]",
            "services/proxy ServiceProxyOptions true [create,delete,get,patch,update]",
        ]
    );
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let aggregated = server.ask("GET", "/api").header("accept", accept).send().await.expect(200).clone();
    let resources = aggregated["items"][0]["versions"][0]["resources"].as_array().unwrap().clone();
    let pods = resources.iter().find(|one| one["resource"] == "pods").unwrap();
    let subs = pods["subresources"].as_array().unwrap().iter();
    let subs: Vec<&str> = subs.filter_map(|sub| sub["subresource"].as_str()).collect();
    assert!(ways.iter().all(|name| subs.contains(name)) && subs.is_sorted(), "{subs:?}");
}
