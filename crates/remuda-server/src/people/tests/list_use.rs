//! The list API as clients of Rancher's use it: before a login, at a login, several at the same object, and with
//! whatever they send.

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngSeed, TestRunner},
};
use remuda_names::fuzz;

use super::*;

async fn admin(site: &Site) -> String {
    let first = site.server.first_user().unwrap().clone();
    let got = site.login(&first.username, &first.password).await;
    got.body["token"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_see_the_settings_of_a_login_page_and_nothing_else() {
    const SETTINGS: &str = "/v1/management.cattle.io.settings";
    let site = Site::start().await;
    let token = admin(&site).await;
    let get = async |token: Option<&str>, path: &str| site.send(token, "GET", path, &[], json!(null)).await;
    // As the server of a whole product has them.
    for (name, default) in [
        ("cacerts", "PEM"),
        ("k8s-version", ""),
        ("rke-metadata-config", ""),
        ("server-url", "https://here"),
        ("server-version", "v0.0.0"),
        ("telemetry-opt", "out"),
        ("ui-banners", "{}"),
        ("ui-default-landing", "vue"),
        ("ui-performance", ""),
    ] {
        let setting = json!({"metadata": {"name": name}, "value": "", "default": default});
        let made = site.send(Some(&token), "POST", SETTINGS, &[], setting).await;
        assert!(matches!(made.code.as_u16(), 201 | 409), "{name}: {}", made.text);
    }
    let list = site.gets(&token, SETTINGS, 200).await;
    assert_eq!(list.headers["x-api-cattle-auth"], "true");
    let all = list.body["count"].as_u64().unwrap();
    let open = get(None, &format!("{SETTINGS}?page=1&pagesize=100&exclude=metadata.managedFields")).await;
    assert_eq!((open.code.as_u16(), &open.headers["x-api-cattle-auth"]), (200, &"false".parse().unwrap()));
    let names: Vec<&str> =
        open.body["data"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(names, ["cacerts", "ui-banners", "ui-default-landing"], "{}", open.text);
    assert_eq!(open.body["data"][1]["value"], "{}", "the value that counts: {}", open.text);
    assert!(all > 3 && open.body["count"] == 3, "how many others there are is not told");
    let related = "sort=metadata.name=%3E[v1][Secret][metadata.name][metadata.namespace]";
    assert_eq!(get(None, &format!("{SETTINGS}?{related}")).await.body["count"], 3);
    let links = open.body["data"][0]["links"].as_object().unwrap();
    assert_eq!(links.keys().collect::<Vec<_>>(), ["self"]);
    assert_eq!(get(None, &format!("{SETTINGS}/ui-default-landing")).await.code.as_u16(), 200);
    for path in [
        "/v1",
        "/v1/schemas",
        "/v1/secrets",
        "/v1/subscribe",
        "/v1/userpreferences",
        "/v1/management.cattle.io.settings/server-url",
        "/v1/management.cattle.io.settings/server-url/view",
        "/v1/management.cattle.io.settings/cacerts?action=x",
        "/v1/management.cattle.io.settings/../secrets",
        "/v1/management.cattle.io.settings%2f..%2fsecrets",
        "/v3/settings/server-url",
        "/v3/settings/no-such-setting",
    ] {
        let refused = get(None, path).await;
        let expected = if path.ends_with("action=x") { 200 } else { 401 };
        assert_eq!(refused.code.as_u16(), expected, "{path}: {}", refused.text);
        assert_eq!(refused.headers["x-api-cattle-auth"], "false", "{path}");
    }
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let path = format!("{SETTINGS}/cacerts");
        let refused = site.send(None, method, &path, &[], json!({"value": "mine"})).await;
        assert_eq!((refused.code.as_u16(), refused.body["type"].as_str()), (401, Some("error")), "{method}");
    }
    // One by one, with the value that counts.
    let landing = get(None, "/v3/settings/ui-default-landing").await;
    assert_eq!(
        (landing.body["value"].as_str(), landing.body["type"].as_str()),
        (Some("vue"), Some("setting"))
    );
    let ann = site.user("u-ann", json!({})).await;
    for name in ["k8s-version", "server-version", "server-url", "telemetry-opt", "ui-default-landing"] {
        let read = get(Some(&ann), &format!("/v3/settings/{name}")).await;
        assert_eq!((read.code.as_u16(), read.body["id"].as_str()), (200, Some(name)), "{}", read.text);
        assert_eq!(read.headers["x-api-cattle-auth"], "true");
    }
    assert_eq!(get(Some(&ann), "/v3/settings/telemetry-opt").await.body["value"], "out");
    assert_eq!(get(Some(&ann), "/v3/settings/rke-metadata-config").await.code.as_u16(), 404);
    assert_eq!(get(Some("token-a:wrong"), SETTINGS).await.code.as_u16(), 401);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_find_kinds_and_themselves_below_v3() {
    let site = Site::start().await;
    let ann = site.user("u-ann", json!({})).await;
    let get = async |token: Option<&str>, path: &str| site.send(token, "GET", path, &[], json!(null)).await;
    let schemas = site.gets(&ann, "/v3/schemas", 200).await;
    assert_eq!(schemas.headers["x-api-cattle-auth"], "true");
    let known = schemas.body["data"].as_array().unwrap();
    assert!(!known.is_empty());
    let own =
        |url: &Value| url.as_str().unwrap().splitn(4, '/').last().map(|path| format!("/{path}")).unwrap();
    for schema in known {
        assert_eq!(get(Some(&ann), &own(&schema["links"]["self"])).await.body["id"], schema["id"]);
        if schema["links"]["collection"].is_null() {
            // Of drivers: what is filled in, and no list of it.
            continue;
        }
        let list = get(Some(&ann), &own(&schema["links"]["collection"])).await;
        assert_eq!((list.code.as_u16(), &list.body["type"]), (200, &json!("collection")), "{schema}");
    }
    assert_eq!(get(Some(&ann), "/v3/schemas/Token").await.body["id"], "token");
    assert_eq!(get(Some(&ann), "/v3/schemas/nodepool").await.code.as_u16(), 404);

    let principals = get(Some(&ann), "/v3/principals").await;
    let me = &principals.body["data"][0];
    assert_eq!(
        (&me["id"], &me["me"], &me["provider"], &me["loginName"]),
        (&json!("local://u-ann"), &json!(true), &json!("local"), &json!("u-ann")),
        "{}",
        principals.text
    );
    assert_eq!(principals.body["data"].as_array().unwrap().len(), 1, "others are not told of");
    for path in ["/v3/schemas", "/v3/principals"] {
        let refused = get(None, path).await;
        assert_eq!(
            (refused.code.as_u16(), &refused.headers["x-api-cattle-auth"]),
            (401, &"false".parse().unwrap()),
            "{path}"
        );
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_log_in_without_saying_what_they_send_and_get_no_cookie() {
    let site = Site::start().await;
    let first = site.server.first_user().unwrap().clone();
    let body = |kind: &str| json!({"type": "localProvider", "username": "admin", "password": first.password, "responseType": kind});
    let plain = [("content-type", "text/plain")];
    for kind in ["json", "", "kubeconfig"] {
        let got = site.send_as(None, "POST", "/v1-public/login", &plain, body(kind)).await;
        assert_eq!(got.code.as_u16(), 201, "{kind}: {}", got.text);
        let token = got.body["token"].as_str().unwrap();
        assert!(
            token.contains(':')
                && got.body["kind"].as_str().is_some_and(|of| kind != "kubeconfig" || of == kind),
            "{}",
            got.text
        );
        assert!(!got.headers.contains_key("set-cookie"), "a form of another site could have sent this");
    }
    let none = site.send_as(None, "POST", "/v1-public/login", &[], body("json")).await;
    assert_eq!(none.code.as_u16(), 201, "{}", none.text);
    let cookie = site.send_as(None, "POST", "/v1-public/login", &plain, body("cookie")).await;
    assert_eq!(cookie.code.as_u16(), 415, "{}", cookie.text);
    assert!(!cookie.headers.contains_key("set-cookie"));
    let json_kind = [("content-type", "application/json")];
    let cookie = site.send_as(None, "POST", "/v1-public/login", &json_kind, body("cookie")).await;
    assert!(cookie.headers.contains_key("set-cookie"), "{}", cookie.text);

    let providers = site.send(None, "GET", "/v1-public/authproviders", &[], json!(null)).await;
    let local = &providers.body["data"][0];
    assert_eq!((local["id"].as_str(), local["type"].as_str()), (Some("local"), Some("localProvider")));
    let login = local["actions"]["login"].as_str().unwrap();
    assert!(login.starts_with("https://") && login.ends_with("/v3-public/localProviders/local?action=login"));
    // Clients go on to the other root if one knows nothing.
    for path in
        ["/v1-public", "/v1-public/authtokens/x", "/v3-public/samlProviders/x?action=login", "/v3-public/"]
    {
        let unknown = site.send(None, "POST", path, &[], json!({})).await;
        assert_eq!(
            (unknown.code.as_u16(), &unknown.headers["x-api-cattle-auth"]),
            (404, &"false".parse().unwrap()),
            "{path}"
        );
    }
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn preferences_belong_to_one_user_and_go_with_them() {
    const PREFERENCES: &str = "/v1/userpreferences";
    let site = Site::start().await;
    let (ann, bob) = (site.user("u-ann", json!({})).await, site.user("u-bob", json!({})).await);
    let list = site.gets(&ann, PREFERENCES, 200).await;
    assert_eq!(
        list.body["data"],
        json!([{
            "id": "u-ann", "type": "userpreference", "data": {}, "links": list.body["data"][0]["links"],
        }])
    );
    let own = format!("{PREFERENCES}/u-ann");
    let send =
        async |token: &str, method: &str, body: Value| site.send(Some(token), method, &own, &[], body).await;
    let wanted =
        json!({"id": "u-ann", "type": "userpreference", "data": {"theme": "ui-dark", "locale": "en-us"}});
    assert_eq!(send(&ann, "PUT", wanted).await.body["data"]["theme"], "ui-dark");
    let less = send(&ann, "PUT", json!({"data": {"theme": "ui-light"}})).await;
    assert_eq!(less.code.as_u16(), 200, "{}", less.text);
    let read = site.send(Some(&ann), "GET", &own, &[], json!(null)).await;
    assert_eq!(read.body["data"], json!({"theme": "ui-light"}), "keys that are not sent go");
    for method in ["GET", "PUT", "DELETE"] {
        assert_eq!(send(&bob, method, json!({"data": {}})).await.code.as_u16(), 404, "{method}");
    }
    assert_eq!(site.gets(&bob, PREFERENCES, 200).await.body["data"][0]["data"], json!({}));
    assert_eq!(send(&ann, "PUT", json!({"data": {"a": 7}})).await.code.as_u16(), 422);
    assert_eq!(send(&ann, "POST", json!({})).await.code.as_u16(), 405);
    let schema = site.gets(&ann, "/v1/schemas/userpreference", 200).await;
    assert_eq!(schema.body["resourceMethods"], json!(["GET", "PUT", "DELETE"]));
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> =
        Api::namespaced(site.root().await, "cattle-global-data");
    let kept = maps.get("preferences-u-ann").await.unwrap();
    assert_eq!(kept.metadata.owner_references.unwrap()[0].name, "u-ann");
    assert_eq!(send(&ann, "DELETE", json!(null)).await.code.as_u16(), 204);
    assert!(maps.get_opt("preferences-u-ann").await.unwrap().is_none());
    site.stop().await;
}

/// A kubeconfig, by the action Rancher's clients know, and the object as the Kubernetes API has it, by its link.
#[tokio::test(flavor = "multi_thread")]
async fn clusters_offer_a_kubeconfig_and_objects_their_raw_form() {
    let site = Site::start().await;
    let token = admin(&site).await;
    site.cluster("c-m-abcd2345").await;
    let path = "/v1/management.cattle.io.clusters/c-m-abcd2345";
    let mut cluster = site.gets(&token, path, 200).await;
    assert_eq!(cluster.body["metadata"]["state"]["name"], "pending", "{}", cluster.text);
    let action = cluster.body["actions"]["generateKubeconfig"].take();
    assert!(action.as_str().unwrap().ends_with("c-m-abcd2345?action=generateKubeconfig"));
    let action = format!("{path}?action=generateKubeconfig");
    let mut made = site.send(Some(&token), "POST", &action, &[], json!(null)).await;
    for _ in 0..100 {
        if made.code == StatusCode::OK {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        made = site.send(Some(&token), "POST", &action, &[], json!(null)).await;
    }
    assert!(made.body["config"].as_str().unwrap_or_default().contains("c-m-abcd2345"), "{}", made.text);
    let raw = site.gets(&token, &format!("{path}/view"), 200).await;
    assert_eq!((raw.body["kind"].as_str(), &raw.body["links"]), (Some("Cluster"), &json!(null)));
    assert_eq!(site.gets(&token, &format!("{path}?link=view"), 200).await.body, raw.body);
    assert_eq!(site.gets(&token, &format!("{path}/shell"), 404).await.body["type"], "error");
    let ann = site.user("u-ann", json!({})).await;
    let refused = site.send(Some(&ann), "POST", &action, &[], json!({})).await;
    assert_eq!(refused.code.as_u16(), 403, "{}", refused.text);
    assert_eq!(site.gets(&ann, &format!("{path}/view"), 403).await.code.as_u16(), 403);
    site.stop().await;
}

/// Sorted and filtered by what related objects say, as far as the caller may see them.
#[tokio::test(flavor = "multi_thread")]
async fn lists_are_sorted_by_related_objects_the_caller_may_see() {
    let site = Site::start().await;
    let token = admin(&site).await;
    let post = async |path: &str, body: Value| {
        let made = site.send(Some(&token), "POST", path, &[], body).await;
        assert_eq!(made.code.as_u16(), 201, "{path}: {}", made.text);
    };
    for (name, rank) in [("a", "3"), ("b", "1"), ("c", "2")] {
        post(
            "/v1/configmaps",
            json!({"metadata": {"name": name, "namespace": "default"}, "data": {"rank": rank}}),
        )
        .await;
    }
    for (name, of) in [("w", "a"), ("x", "b"), ("y", "c"), ("z", "none")] {
        let labels = json!({"of": of, "test": "yes"});
        post("/v1/secrets", json!({"metadata": {"name": name, "namespace": "default", "labels": labels}}))
            .await;
    }
    let names = async |token: &str, query: &str| -> Vec<String> {
        let path = format!("/v1/secrets?filter=metadata.labels[test]=yes&{query}");
        let list = site.gets(token, &path, 200).await;
        let rows = list.body["data"].as_array().unwrap_or_else(|| panic!("{}", list.text)).clone();
        rows.iter().map(|row| row["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    const RELATION: &str = "metadata.labels[of]=%3E[_v1][ConfigMap][metadata.name][data.rank]";
    assert_eq!(names(&token, &format!("sort={RELATION}")).await, ["x", "y", "w", "z"], "the unrelated last");
    assert_eq!(names(&token, &format!("sort=-{RELATION}")).await, ["z", "w", "y", "x"]);
    assert_eq!(names(&token, &format!("filter={RELATION}=2")).await, ["y"]);
    assert_eq!(
        names(&token, &format!("filter={RELATION}%20in%20(1,3)&sort=metadata.name")).await,
        ["w", "x"]
    );
    assert_eq!(names(&token, "sort=metadata.name=%3E[nothing/v1][Thing][a][b]").await, ["w", "x", "y", "z"]);
    let ann = site.user("u-ann", json!({})).await;
    let rule = json!([
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["c"]},
    ]);
    let metadata = json!({"name": "ann", "namespace": "default"});
    post("/v1/rbac.authorization.k8s.io.roles", json!({"metadata": metadata, "rules": rule})).await;
    let binding = json!({
        "metadata": metadata, "subjects": [{"kind": "User", "name": "u-ann"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ann"},
    });
    post("/v1/rbac.authorization.k8s.io.rolebindings", binding).await;
    assert_eq!(names(&ann, &format!("filter={RELATION}=2")).await, ["y"]);
    assert_eq!(names(&ann, &format!("filter={RELATION}=1")).await, [""; 0], "she may not read that one");
    assert_eq!(names(&ann, &format!("sort={RELATION}")).await, ["y", "w", "x", "z"]);
    site.stop().await;
}

/// Each writes a field of its own, reads again when another was faster, and no field is lost.
#[tokio::test(flavor = "multi_thread")]
async fn five_clients_write_one_object_and_lose_nothing() {
    const WRITERS: usize = 5;
    const ROUNDS: usize = 6;
    let site = Site::start().await;
    let token = admin(&site).await;
    let path = "/v1/configmaps/default/shared";
    let map = json!({"metadata": {"name": "shared", "namespace": "default"}, "data": {}});
    assert_eq!(site.send(Some(&token), "POST", "/v1/configmaps", &[], map).await.code.as_u16(), 201);
    let (site, token) = (&site, token.as_str());
    let writers = (0..WRITERS).map(|writer| async move {
        let mut conflicts = 0;
        for round in 0..ROUNDS {
            loop {
                let mut read = site.send(Some(token), "GET", path, &[], json!(null)).await.body;
                if read["data"].is_null() {
                    read["data"] = json!({});
                }
                read["data"][format!("w{writer}-r{round}")] = "here".into();
                let put = site.send(Some(token), "PUT", path, &[], read).await;
                match put.code.as_u16() {
                    200 => break,
                    409 => conflicts += 1,
                    code => panic!("{code}: {}", put.text),
                }
                assert!(conflicts < 1000, "somebody gets through each time");
            }
            // Without a version: never a conflict.
            let patch = json!({"metadata": {"labels": {format!("w{writer}-r{round}"): "yes"}}});
            let patched = site.send(Some(token), "PATCH", path, &[], patch).await;
            assert_eq!(patched.code.as_u16(), 200, "{}", patched.text);
        }
    });
    futures::future::join_all(writers).await;
    let last = site.send(Some(token), "GET", path, &[], json!(null)).await.body;
    assert_eq!(last["data"].as_object().unwrap().len(), WRITERS * ROUNDS, "{last}");
    assert_eq!(last["metadata"]["labels"].as_object().unwrap().len(), WRITERS * ROUNDS, "{last}");
}

/// Any request of an administrator is answered, and never with 500.
#[tokio::test(flavor = "multi_thread")]
async fn no_request_makes_the_server_fail() {
    let site = Site::start().await;
    let token = admin(&site).await;
    let number = |name: &str, usual: u32| {
        std::env::var_os(name).and_then(|told| told.to_str()?.parse().ok()).unwrap_or(usual)
    };
    let config = Config { rng_seed: RngSeed::Fixed(number(fuzz::SEED, 1).into()), ..Config::default() };
    let mut runner = TestRunner::new(config);
    let types = "(secrets?|configmaps|nodes|namespaces|events|pods|count|counts|schemas?|subscribe|userpreferences?|\
                 management.cattle.io.(clusters|settings|users|nodes|clusterregistrationtokens|nodedrivers)|\
                 provisioning.cattle.io.clusters|cluster.x-k8s.io.machines|core.v1.secret|apps.v1.deployments|\
                 ext.cattle.io.(tokens|kubeconfigs|selfuser|passwordchangerequests)|authorization.k8s.io.selfsubjectaccessreviews|\
                 apiextensions.k8s.io.customresourcedefinitions|[a-z.]{1,8})";
    let path = format!(
        "(/v1|/v1/schemaDefinitions|/k8s/clusters/local/v1|/v3/(settings|schemas|nodeDrivers|cloudcredentials|clusterregistrationtokens))/{types}(/(default|kube-system|x|%2e%2e|%00|%ff|[a-zA-Z0-9.:_-]{{1,6}})){{0,3}}"
    );
    let query = "(\\?((filter|sort|page|pagesize|summary|summarynamespaced|include|exclude|excludeValues|revision|labelSelector|\
                  fieldSelector|limit|continue|projectsornamespaces|checkPermissions|action|link|dryRun|fieldManager|\
                  propagationPolicy|gracePeriodSeconds|fieldValidation|watch|_format)=\
                  (-1|0|1|99999999999999999999|true|yaml|All|view|metadata.name|a=>\\[v1\\]\\[Secret\\]\\[a\\]\\[b\\]|\
                  [a-z.=,!~()\\[\\]]{0,8})&?){0,4})?";
    let body = "null|true|7|\"x\"|\\[\\]|\\{\\}|\\{|\\{\"metadata\":(null|7|\\[\\]|\\{\"(name|namespace|generateName|labels|resourceVersion|\
                finalizers|ownerReferences)\":(null|7|\"a\"|\"A B\"|\\[7\\]|\\{\"a\":7\\})\\})(,\"(spec|data|type|kind|apiVersion|status)\":\
                (null|7|\"x\"|\\[\\]|\\{\"a\":\\{\"b\":\\[\\]\\}\\}))?\\}";
    let request = (
        "GET|GET|GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS",
        proptest::string::string_regex(&path).unwrap(),
        proptest::string::string_regex(query).unwrap(),
        proptest::string::string_regex(body).unwrap(),
        "application/json|application/json-patch\\+json|application/apply-patch\\+yaml|application/merge-patch\\+json|\
         application/strategic-merge-patch\\+json|text/plain",
    );
    let mut codes: std::collections::BTreeMap<u16, usize> = std::collections::BTreeMap::new();
    for _ in 0..number(fuzz::CASES, 512) {
        let (method, path, query, body, kind) = request.new_tree(&mut runner).unwrap().current();
        let uri = format!("{path}{query}").replace('[', "%5B").replace(']', "%5D").replace('>', "%3E");
        if uri.parse::<http::Uri>().is_err() {
            continue;
        }
        let headers = [("content-type", kind.as_str())];
        let got = site.send_text(Some(&token), &method, &uri, &headers, body.clone()).await;
        let code = got.code.as_u16();
        *codes.entry(code).or_default() += 1;
        // 503 is a passing reason, which clients try again.
        assert!(code < 500 || code == 503, "{method} {uri} {kind} {body}: {code} {}", got.text);
        if code >= 400 && method != "HEAD" {
            let is_error = got.body["type"] == "error" && got.body["status"] == code;
            assert!(is_error, "{method} {uri} {kind} {body}: {code} {}", got.text);
        }
    }
    assert!(codes.contains_key(&200) && codes.len() > 4, "it reached something: {codes:?}");
    site.stop().await;
}
