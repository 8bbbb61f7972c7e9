//! LIST: order, paging, versions, selectors.

use serde_json::{Value, json};

use crate::{
    custom::{FOOS, foo, foo_definition},
    harness::*,
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn make(server: &Server, namespace: &str, names: &[&str]) {
    for name in names {
        let mut map = config_map(name, json!({}));
        map["metadata"]["labels"] = json!({"mine": "yes", "name": name});
        server.post(&format!("/api/v1/namespaces/{namespace}/configmaps"), map).await.expect(201);
    }
}

fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

async fn select(server: &Server, label: &str) -> Vec<String> {
    let list = server.get(&format!("{MAPS}?labelSelector={}", encode(label))).await.expect(200);
    names(&list).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_list_is_a_snapshot_in_key_order() {
    let server = Server::quiet().await;
    server.namespace("a").await;
    make(&server, "default", &["b", "a.c", "a-b"]).await;
    make(&server, "a", &["z"]).await;
    let list = server.get("/api/v1/configmaps?labelSelector=mine").await.expect(200);
    assert_eq!(names(&list), ["z", "a-b", "a.c", "b"]);
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    server.post(leases, json!({"metadata": {"name": "l"}})).await.expect(201);
    // The version is the snapshot's, not the newest item's.
    let again = server.get("/api/v1/configmaps?labelSelector=mine").await.expect(200);
    let version =
        |list: &Value| list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(version(&again) > version(&list));
    let nowhere = server.get("/api/v1/namespaces/nowhere/configmaps").await.expect(200);
    assert_eq!(nowhere["items"], json!([]));
    assert!(nowhere["metadata"].get("remainingItemCount").is_none());
    let empty = server.get("/apis/apps/v1/deployments").await.expect(200);
    assert_eq!((&empty["kind"], &empty["items"]), (&json!("DeploymentList"), &json!([])));
}

#[tokio::test]
async fn pages_add_up_to_the_list_at_one_version() {
    let server = Server::quiet().await;
    make(&server, "default", &["a", "b", "c", "d", "e"]).await;
    let first = server.get(&format!("{MAPS}?limit=2")).await.expect(200);
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    let total = server.get(MAPS).await.expect(200)["items"].as_array().unwrap().len();
    assert_eq!(first["metadata"]["remainingItemCount"], total - 2);
    let version = first["metadata"]["resourceVersion"].clone();
    let mut seen: Vec<String> = names(&first).into_iter().map(str::to_owned).collect();
    // What happens meanwhile does not show.
    make(&server, "default", &["bb", "zz"]).await;
    server.delete(&format!("{MAPS}/e")).await.expect(200);
    let mut token = first["metadata"]["continue"].as_str().map(str::to_owned);
    while let Some(next) = token {
        let page = server.get(&format!("{MAPS}?limit=2&continue={}", encode(&next))).await.expect(200);
        assert_eq!(page["metadata"]["resourceVersion"], version);
        seen.extend(names(&page).into_iter().map(str::to_owned));
        token = page["metadata"]["continue"].as_str().map(str::to_owned);
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e"]);
    // With a selector the server reads on until the page is full, and does not count the rest.
    let page = server.get(&format!("{MAPS}?limit=1&labelSelector=name%3Dzz")).await.expect(200);
    assert_eq!((names(&page), page["metadata"].get("remainingItemCount")), (vec!["zz"], None));
    let page = server.get(&format!("{MAPS}?limit=2&labelSelector=mine")).await.expect(200);
    assert_eq!((names(&page), page["metadata"].get("remainingItemCount")), (vec!["a", "b"], None));
    let token = encode(page["metadata"]["continue"].as_str().unwrap());
    let page = server.get(&format!("{MAPS}?limit=50&labelSelector=mine&continue={token}")).await.expect(200);
    assert_eq!(names(&page), ["bb", "c", "d", "zz"]);
    assert!(page["metadata"].get("continue").is_none());
    let refused = server.get(&format!("{MAPS}?limit=2&continue={token}&resourceVersion=5")).await;
    assert_eq!(
        refused.fails(400, "BadRequest"),
        "specifying resource version is not allowed when using continue"
    );
    server.get(&format!("{MAPS}?limit=2&continue={token}&resourceVersion=0")).await.expect(200);
    for garbage in ["nonsense", "%25%25", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MH0"] {
        let message = server.get(&format!("{MAPS}?continue={garbage}")).await.fails(400, "BadRequest");
        assert!(message.starts_with("invalid continue token: "), "{message}");
    }
}

#[tokio::test]
async fn pages_expire_on_a_quiet_server_too() {
    use std::sync::atomic::{AtomicI64, Ordering};
    static LATER: AtomicI64 = AtomicI64::new(0);
    fn clock() -> jiff::Timestamp {
        let later = jiff::SignedDuration::from_secs(LATER.load(Ordering::Relaxed));
        jiff::Timestamp::now().saturating_add(later).unwrap()
    }
    let server = Server::with(|config| {
        config.controllers = remuda_apiserver::Controllers::Never;
        config.clock = clock;
    })
    .await;
    make(&server, "default", &["a", "b", "c"]).await;
    let page = |token: &str| format!("{MAPS}?limit=1&continue={}", encode(token));
    let first = server.get(&format!("{MAPS}?limit=1")).await.expect(200);
    let token = first["metadata"]["continue"].as_str().unwrap();
    LATER.store(290, Ordering::Relaxed);
    let second = server.get(&page(token)).await.expect(200);
    // All pages of a list are of one state, and go with it.
    LATER.store(310, Ordering::Relaxed);
    let expired = server.get(&page(second["metadata"]["continue"].as_str().unwrap())).await;
    expired.fails(410, "Expired");
    let rest = server.get(&page(expired.body["metadata"]["continue"].as_str().unwrap())).await.expect(200);
    assert_eq!(names(&rest), ["c"]);
}

#[tokio::test]
async fn an_expired_page_can_be_continued_inconsistently() {
    let server = Server::quiet().await;
    make(&server, "default", &["a", "b", "c"]).await;
    let first = server.get(&format!("{MAPS}?limit=1")).await.expect(200);
    make(&server, "default", &["d"]).await;
    server.delete(&format!("{MAPS}/b")).await.expect(200);
    server.store.compact(server.store.observed()).await.unwrap();
    let token = encode(first["metadata"]["continue"].as_str().unwrap());
    let expired = server.get(&format!("{MAPS}?limit=1&continue={token}")).await;
    let message = expired.fails(410, "Expired");
    assert!(
        message
            .starts_with("The provided continue parameter is too old to display a consistent list result.")
    );
    let fresh = encode(expired.body["metadata"]["continue"].as_str().unwrap());
    let rest = server.get(&format!("{MAPS}?limit=10&continue={fresh}")).await.expect(200);
    assert_eq!(names(&rest), ["c", "d"]);
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let exact = server.get(&format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")).await;
    assert!(exact.fails(410, "Expired").starts_with("too old resource version: "));
}

#[tokio::test]
async fn versions_are_matched_as_asked() {
    let server = Server::quiet().await;
    make(&server, "default", &["a"]).await;
    let old = server.get(&format!("{MAPS}?labelSelector=mine")).await.expect(200);
    let version = old["metadata"]["resourceVersion"].as_str().unwrap();
    make(&server, "default", &["b"]).await;
    let list = async |query: &str| server.get(&format!("{MAPS}?labelSelector=mine&{query}")).await;
    for (query, expected) in [
        (String::new(), vec!["a", "b"]),
        ("resourceVersion=0".to_owned(), vec!["a", "b"]),
        (format!("resourceVersion={version}"), vec!["a", "b"]),
        (format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"), vec!["a", "b"]),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".to_owned(), vec!["a", "b"]),
        (format!("resourceVersion={version}&resourceVersionMatch=Exact"), vec!["a"]),
        (format!("resourceVersion={version}&limit=10"), vec!["a"]),
    ] {
        let answer = list(&query).await.expect(200);
        assert_eq!(names(&answer), expected, "{query}");
    }
    for (query, expected) in [
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersion=5&resourceVersionMatch=Nope",
            "resourceVersionMatch: Unsupported value: \"Nope\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
        ),
        ("sendInitialEvents=true", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
    ] {
        let answer = list(query).await;
        let message = answer.fails(422, "Invalid");
        assert_eq!(message, format!("ListOptions.meta.k8s.io \"\" is invalid: {expected}"));
        assert_eq!(answer.body["details"]["kind"], "ListOptions");
        assert_eq!(answer.body["details"]["group"], "meta.k8s.io");
    }
    list("resourceVersion=abc").await.fails(400, "BadRequest");
    list("limit=x").await.fails(400, "BadRequest");
}

#[tokio::test]
async fn versions_of_the_future_are_waited_for() {
    let server = Server::quiet().await;
    let now = server.store.observed();
    let ahead = format!("{MAPS}?resourceVersion={}", now + 1);
    let (list, ()) = tokio::join!(server.get(&ahead), make(&server, "default", &["a"]));
    assert!(names(&list.expect(200)).contains(&"a"));
    let far = server.get(&format!("{MAPS}/a?resourceVersion=99999999")).await;
    let current = server.store.observed();
    assert_eq!(
        far.fails(504, "Timeout"),
        format!("Timeout: Too large resource version: 99999999, current: {current}")
    );
    assert_eq!(
        far.body["details"],
        json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1})
    );
    assert_eq!(far.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn label_selectors_select() {
    let server = Server::quiet().await;
    for (name, labels) in [
        ("a", json!({"tier": "front", "n": "3"})),
        ("b", json!({"tier": "back", "n": "10"})),
        ("c", json!({"x.io/other": ""})),
    ] {
        let map = json!({"metadata": {"name": name, "labels": labels}});
        server.post(MAPS, map).await.expect(201);
    }
    for (selector, expected) in [
        ("tier=front", vec!["a"]),
        ("tier==front", vec!["a"]),
        ("tier!=front", vec!["b", "c"]),
        ("tier in (front, back)", vec!["a", "b"]),
        ("tier notin (front)", vec!["b", "c"]),
        ("tier", vec!["a", "b"]),
        ("!tier", vec!["c"]),
        ("tier,tier!=back", vec!["a"]),
        ("n>5", vec!["b"]),
        ("n<5", vec!["a"]),
        ("x.io/other=", vec!["c"]),
        ("x.io/other", vec!["c"]),
        ("tier in (front),n in (3)", vec!["a"]),
    ] {
        assert_eq!(select(&server, selector).await, expected, "{selector}");
    }
    for bad in ["tier in front", "=x", "tier=a b", "a,,b", "tier in (", "n>x", "-x=y", "!"] {
        let message =
            server.get(&format!("{MAPS}?labelSelector={}", encode(bad))).await.fails(400, "BadRequest");
        let known =
            ["unable to parse requirement: ", "found '"].iter().any(|begin| message.starts_with(begin));
        assert!(known, "{bad}: {message}");
    }
}

#[tokio::test]
async fn field_selectors_select_what_the_kind_offers() {
    let server = Server::quiet().await;
    make(&server, "default", &["a", "b"]).await;
    let list = async |path: &str, selector: &str| {
        server.get(&format!("{path}?fieldSelector={}", encode(selector))).await
    };
    assert_eq!(names(&list(MAPS, "metadata.name=a").await.expect(200)), ["a"]);
    assert_eq!(names(&list(MAPS, "metadata.name==a").await.expect(200)), ["a"]);
    assert_eq!(names(&list(MAPS, "metadata.name!=a").await.expect(200)), ["b"]);
    assert_eq!(names(&list(MAPS, "metadata.name=a,metadata.name!=a").await.expect(200)), [""; 0]);
    assert_eq!(
        names(&list("/api/v1/configmaps", "metadata.namespace=default,metadata.name=b").await.expect(200)),
        ["b"]
    );
    assert_eq!(
        list(MAPS, "spec.nope=x").await.fails(400, "BadRequest"),
        "\"spec.nope\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    assert_eq!(
        list("/api/v1/pods", "spec.nope=x").await.fails(400, "BadRequest"),
        "field label not supported: spec.nope"
    );
    list(MAPS, "nonsense").await.fails(400, "BadRequest");
    let secrets = "/api/v1/namespaces/default/secrets";
    server.post(secrets, json!({"metadata": {"name": "o"}})).await.expect(201);
    server.post(secrets, json!({"metadata": {"name": "x"}, "type": "x.io/mine"})).await.expect(201);
    assert_eq!(names(&list(secrets, "type=Opaque").await.expect(200)), ["o"]);
    assert_eq!(names(&list(secrets, "type!=Opaque").await.expect(200)), ["x"]);
    server
        .post("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "default"}}))
        .await
        .expect(201);
    let pods = "/api/v1/namespaces/default/pods";
    for (name, node) in [("p", "n1"), ("q", "")] {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
        server.post(pods, pod).await.expect(201);
    }
    assert_eq!(names(&list(pods, "spec.nodeName=n1").await.expect(200)), ["p"]);
    assert_eq!(names(&list(pods, "spec.nodeName=").await.expect(200)), ["q"]);
    assert_eq!(names(&list(pods, "status.phase=Pending").await.expect(200)), ["p", "q"]);
    let events = "/api/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "reason": "Why", "type": "Warning",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default", "uid": "u"}});
    server.post(events, event).await.expect(201);
    let selector =
        "involvedObject.uid=u,involvedObject.kind=Pod,involvedObject.name=p,involvedObject.namespace=default";
    assert_eq!(names(&list(events, selector).await.expect(200)), ["e"]);
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    assert_eq!(names(&list(new, "regarding.name=p,reason=Why,type=Warning").await.expect(200)), ["e"]);
    assert_eq!(names(&list(new, "regarding.name=z").await.expect(200)), [""; 0]);
    assert_eq!(names(&list("/api/v1/namespaces", "status.phase=Terminating").await.expect(200)), [""; 0]);
}

#[tokio::test]
async fn a_selected_name_is_authorized_as_that_name() {
    let server = Server::quiet().await;
    make(&server, "default", &["plan", "other"]).await;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let role = json!({"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["plan"], "verbs": ["get", "list", "watch"]}]});
    server.post(roles, role).await.expect(201);
    let binding = json!({"metadata": {"name": "r"}, "subjects": [{"kind": "User", "name": "agent"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}});
    server
        .post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding)
        .await
        .expect(201);
    let agent = server.by(somebody("agent"));
    let own = format!("{MAPS}?fieldSelector=metadata.name%3Dplan");
    assert_eq!(names(&agent.get(&own).await.expect(200)), ["plan"]);
    let mut watch = agent.watch(&own).await;
    assert_eq!(watch.expect("ADDED").await["metadata"]["name"], "plan");
    let refused = agent.get(MAPS).await;
    assert_eq!(
        refused.fails(403, "Forbidden"),
        "configmaps is forbidden: User \"agent\" cannot list resource \"configmaps\" in API group \"\" in the \
         namespace \"default\""
    );
    let refused = agent.get(&format!("{MAPS}/other")).await;
    assert_eq!(
        refused.fails(403, "Forbidden"),
        "configmaps \"other\" is forbidden: User \"agent\" cannot get resource \"configmaps\" in API group \"\" in \
         the namespace \"default\""
    );
    assert_eq!(refused.body["details"], json!({"name": "other", "kind": "configmaps"}));
    agent.get(&format!("{MAPS}?fieldSelector=metadata.name%3Dother")).await.fails(403, "Forbidden");
    agent.get(&format!("{MAPS}?fieldSelector=metadata.name!%3Dplan")).await.fails(403, "Forbidden");
    let refused = agent.get("/api/v1/nodes").await.fails(403, "Forbidden");
    assert!(
        refused.ends_with("cannot list resource \"nodes\" in API group \"\" at the cluster scope"),
        "{refused}"
    );
    let refused = agent.get("/apis/apps/v1/namespaces/d/deployments/x/scale").await.fails(403, "Forbidden");
    assert!(refused.contains("cannot get resource \"deployments/scale\" in API group \"apps\""), "{refused}");
    assert_eq!(
        agent.get("/logs").await.fails(403, "Forbidden"),
        "forbidden: User \"agent\" cannot get path \"/logs\""
    );
    let outside = server.outside();
    outside.get("/api").await.fails(403, "Forbidden");
    outside.get("/version").await.expect(200);
    let bad = outside.ask("GET", "/api").bearer("nonsense").send().await;
    assert_eq!(bad.fails(401, "Unauthorized"), "Unauthorized");
    assert!(bad.body.get("details").is_none());
    agent.get("/api").await.expect(200);
}

#[tokio::test]
async fn items_of_typed_lists_name_no_kind_and_those_of_custom_resources_do() {
    let server = Server::start().await;
    server.post(MAPS, config_map("a", json!({"kind": "ConfigMap", "apiVersion": "v1"}))).await.expect(201);
    server.post(MAPS, json!({"metadata": {"name": "b"}})).await.expect(201);
    let is_typed = |object: &Value| object.get("kind").is_some() || object.get("apiVersion").is_some();
    let list = server.get(&format!("{MAPS}?limit=100")).await.expect(200);
    let items = list["items"].as_array().unwrap();
    assert!(items.len() >= 2 && !items.iter().any(is_typed), "{list}");
    let one = items.iter().find(|item| item["metadata"]["name"] == "a").unwrap();
    assert_eq!(one["data"], json!({"kind": "ConfigMap", "apiVersion": "v1"}));
    let mut whole = server.get(&format!("{MAPS}/a")).await.expect(200);
    assert!(is_typed(&whole));
    whole.as_object_mut().unwrap().retain(|field, _| !matches!(field.as_str(), "kind" | "apiVersion"));
    assert_eq!(*one, whole, "nothing else is left out");
    // In whatever form: other fields before the version, pretty, YAML, converted, metadata only.
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let list = server.get(roles).await.expect(200);
    let aggregated =
        list["items"].as_array().unwrap().iter().filter(|role| role.get("aggregationRule").is_some());
    assert!(aggregated.count() > 0 && !list["items"].as_array().unwrap().iter().any(is_typed));
    let pretty = server.get(&format!("{MAPS}?pretty=true")).await.expect(200);
    assert!(!pretty["items"].as_array().unwrap().iter().any(is_typed));
    let yaml = server.ask("GET", MAPS).accept("application/yaml").send().await.text();
    assert_eq!(yaml.lines().filter(|line| line.starts_with("kind:")).count(), 1, "{yaml}");
    assert_eq!(
        yaml.lines().filter(|line| line.trim_start_matches("- ").trim() == "kind: ConfigMap").count(),
        1,
        "{yaml}"
    );
    let form = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let partial = server.ask("GET", MAPS).accept(form).send().await.expect(200);
    assert!(partial["items"].as_array().unwrap().iter().all(|item| item["kind"] == "PartialObjectMetadata"));
    let deleted = server.delete(&format!("{MAPS}?fieldSelector=metadata.name%3Db")).await.expect(200);
    assert_eq!(names(&deleted), ["b"]);
    assert!(!is_typed(&deleted["items"][0]), "{deleted}");
    // Watches and custom resources name them.
    let mut watch = server.watch(&format!("{MAPS}?fieldSelector=metadata.name%3Da")).await;
    assert_eq!(watch.expect("ADDED").await["kind"], "ConfigMap");
    foo_definition(&server).await;
    server.post(FOOS, foo("f")).await.expect(201);
    let list = server.get(FOOS).await.expect(200);
    assert_eq!(
        (&list["items"][0]["kind"], &list["items"][0]["apiVersion"]),
        (&json!("Foo"), &json!("x.io/v1"))
    );
}

#[tokio::test]
async fn the_length_of_a_list_is_known_before_it_is_sent() {
    let server = Server::quiet().await;
    for index in 0..300 {
        let data = json!({"kind": "x".repeat(index * 3), "k": "\"{[\\"});
        server.post(MAPS, config_map(&format!("m{index}"), data)).await.expect(201);
    }
    let answer = server.ask("GET", MAPS).response().await;
    let announced = http_body::Body::size_hint(answer.body()).exact().unwrap();
    let sent = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    assert_eq!(announced, sent.len() as u64);
    assert!(sent.len() > 64 << 10, "in several pieces");
    let list: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 300);
}

#[tokio::test]
async fn a_past_state_ends_though_nothing_happens_any_more() {
    use remuda_store::{Memory, Policy};
    let ended = |past| {
        let store = Memory::new(Policy { past, ..Policy::default() });
        async move {
            let mut config = config();
            config.controllers = remuda_apiserver::Controllers::Never;
            let server = Server::on(std::sync::Arc::new(store), config).await;
            server.post(MAPS, config_map("a", json!({}))).await.expect(201);
            let page = server.get(&format!("{MAPS}?limit=1")).await.expect(200).clone();
            let version = page["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            // What is current can be named, however old it is.
            let exact = format!("{MAPS}?resourceVersionMatch=Exact&resourceVersion={version}");
            server.get(&exact).await.expect(200);
            server.post(MAPS, config_map("b", json!({}))).await.expect(201);
            let named = format!("{exact}&fieldSelector=metadata.name%3Da");
            let newer = format!("{MAPS}?resourceVersionMatch=NotOlderThan&resourceVersion={version}");
            server.get(&newer).await.expect(200);
            // Events are kept for longer than states, as in the watch cache of Kubernetes.
            let mut watch = server.watch(&format!("{MAPS}?resourceVersion={version}")).await;
            assert_eq!(watch.expect("ADDED").await["metadata"]["name"], "b");
            (server.get(&exact).await, server.get(&named).await)
        }
    };
    let (exact, named) = ended(std::time::Duration::from_secs(300)).await;
    assert_eq!(exact.expect(200)["items"].as_array().unwrap().len(), 1);
    named.expect(200);
    let (exact, named) = ended(std::time::Duration::ZERO).await;
    let message = exact.fails(410, "Expired").to_owned();
    assert!(message.starts_with("too old resource version: "), "{message}");
    named.fails(410, "Expired");
}
