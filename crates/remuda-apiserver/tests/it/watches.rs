//! WATCH: no gap, no duplicate, in order.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn labelled(name: &str, tier: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"tier": tier}}})
}

#[tokio::test]
async fn a_watch_goes_on_where_a_list_ended() {
    let server = Server::quiet().await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    let list = server.get(MAPS).await.expect(200);
    let created = server.post(MAPS, config_map("b", json!({}))).await.expect(201);
    let mut watch = server.watch(&format!("{MAPS}?resourceVersion={}", version(&list))).await;
    assert_eq!(watch.headers["content-type"], JSON);
    assert_eq!(watch.expect("ADDED").await, created);
    let changed =
        server.patch(&format!("{MAPS}/a"), MERGE_PATCH, json!({"data": {"k": "v"}})).await.expect(200);
    assert_eq!(watch.expect("MODIFIED").await, changed);
    server.delete(&format!("{MAPS}/a")).await.expect(200);
    let last = watch.expect("DELETED").await;
    assert!(version(&last) > version(&changed));
    assert_eq!(last["data"], json!({"k": "v"}));
    // Others' namespaces are not ours.
    server.post("/api/v1/namespaces/kube-system/configmaps", config_map("z", json!({}))).await.expect(201);
    server.post(MAPS, config_map("c", json!({}))).await.expect(201);
    assert_eq!(watch.expect("ADDED").await["metadata"]["name"], "c");
}

#[tokio::test]
async fn a_watch_from_nowhere_begins_with_what_is_there() {
    let server = Server::quiet().await;
    server.post(MAPS, labelled("a", "x")).await.expect(201);
    server.post(MAPS, labelled("b", "x")).await.expect(201);
    for query in ["", "&resourceVersion=0", "&resourceVersion="] {
        let mut watch = server.watch(&format!("{MAPS}?labelSelector=tier{query}")).await;
        assert_eq!(watch.expect("ADDED").await["metadata"]["name"], "a");
        assert_eq!(watch.expect("ADDED").await["metadata"]["name"], "b");
        let marked = server.watch(&format!("{MAPS}?labelSelector=tier&allowWatchBookmarks=1{query}"));
        let mut marked = marked.await;
        marked.expect("ADDED").await;
        marked.expect("ADDED").await;
        let bookmark = marked.expect("BOOKMARK").await;
        assert_eq!(bookmark["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    }
}

#[tokio::test]
async fn selectors_turn_changes_into_arrivals_and_departures() {
    let server = Server::quiet().await;
    let created = server.post(MAPS, labelled("a", "x")).await.expect(201);
    let mut watch =
        server.watch(&format!("{MAPS}?labelSelector=tier%3Dx&resourceVersion={}", version(&created))).await;
    let a = format!("{MAPS}/a");
    let patch = async |tier: &str| {
        let patch = json!({"metadata": {"labels": {"tier": tier}}});
        server.patch(&a, MERGE_PATCH, patch).await.expect(200)
    };
    let left = patch("y").await;
    let departure = watch.expect("DELETED").await;
    assert_eq!(departure["metadata"]["labels"]["tier"], "x", "the state that still matched");
    assert_eq!(version(&departure), version(&left), "at the version of the change");
    patch("z").await;
    let back = patch("x").await;
    assert_eq!(watch.expect("ADDED").await, back);
    let same = server.patch(&a, MERGE_PATCH, json!({"data": {"k": "v"}})).await.expect(200);
    assert_eq!(watch.expect("MODIFIED").await, same);
    server.delete(&a).await.expect(200);
    let gone = watch.expect("DELETED").await;
    assert!(version(&gone) > version(&same));
}

#[tokio::test]
async fn a_version_outside_history_is_an_error_event() {
    let server = Server::quiet().await;
    let old = version(&server.post(MAPS, config_map("a", json!({}))).await.expect(201));
    for n in 0..3 {
        server
            .patch(&format!("{MAPS}/a"), MERGE_PATCH, json!({"data": {"k": n.to_string()}}))
            .await
            .expect(200);
    }
    server.store.compact(server.store.observed()).await.unwrap();
    let mut watch = server.watch(&format!("{MAPS}?resourceVersion={old}")).await;
    let status = watch.expect("ERROR").await;
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with(&format!("too old resource version: {old} (")), "{message}");
    assert_eq!(
        status,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": "Expired", "code": 410})
    );
    assert_eq!(watch.next().await, None);
    server.get(&format!("{MAPS}?watch=true&resourceVersion=x")).await.fails(400, "BadRequest");
}

#[tokio::test]
async fn a_version_of_the_future_is_waited_for_in_silence() {
    let server = Server::quiet().await;
    let ahead = server.store.observed() + 2;
    let mut watch = server.watch(&format!("{MAPS}?resourceVersion={ahead}")).await;
    for name in ["a", "b", "c"] {
        server.post(MAPS, config_map(name, json!({}))).await.expect(201);
    }
    assert_eq!(watch.expect("ADDED").await["metadata"]["name"], "c");
}

#[tokio::test]
async fn one_object_can_be_watched_by_its_name_in_a_selector() {
    let server = Server::quiet().await;
    let mut by_field = server.watch(&format!("{MAPS}?fieldSelector=metadata.name%3Da")).await;
    let mut everywhere = server.watch("/api/v1/configmaps?fieldSelector=metadata.name%3Da").await;
    for name in ["b", "a"] {
        server.post(MAPS, config_map(name, json!({}))).await.expect(201);
    }
    for watch in [&mut by_field, &mut everywhere] {
        assert_eq!(watch.expect("ADDED").await["metadata"]["name"], "a");
    }
    // In the path a name means one object, and `watch` nothing.
    assert_eq!(server.get(&format!("{MAPS}/a?watch=true")).await.expect(200)["kind"], "ConfigMap");
    server.get(&format!("{MAPS}/none?watch=true")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn watch_is_true_in_many_words() {
    let server = Server::quiet().await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    for word in ["watch=1", "watch=true", "watch=TRUE", "watch=t", "watch"] {
        let mut watch =
            server.ask("GET", &format!("{MAPS}?{word}&timeoutSeconds=9223372036854775807")).stream().await;
        watch.expect("ADDED").await;
    }
    for word in ["watch=0", "watch=false"] {
        assert_eq!(server.get(&format!("{MAPS}?{word}")).await.expect(200)["kind"], "ConfigMapList");
    }
}

#[tokio::test]
async fn initial_events_end_with_a_marked_bookmark() {
    let server = Server::quiet().await;
    server.post(MAPS, labelled("a", "x")).await.expect(201);
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let now = server.store.observed();
    for tail in [String::new(), format!("&resourceVersion={now}"), "&resourceVersion=0".to_owned()] {
        let mut watch = server.watch(&format!("{MAPS}?labelSelector=tier&{query}{tail}")).await;
        watch.expect("ADDED").await;
        let bookmark = watch.expect("BOOKMARK").await;
        assert_eq!(
            bookmark,
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
                "resourceVersion": bookmark["metadata"]["resourceVersion"],
                "annotations": {"k8s.io/initial-events-end": "true"}}})
        );
        assert!(version(&bookmark) >= now);
        let name = format!("b{}", tail.len());
        server.post(MAPS, labelled(&name, "y")).await.expect(201);
        assert_eq!(watch.expect("ADDED").await["metadata"]["name"], name);
        server.delete(&format!("{MAPS}/{name}")).await.expect(200);
    }
    let created = server.post(MAPS, labelled("c", "x")).await.expect(201);
    let plain = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let mut watch = server.watch(&format!("{MAPS}?{plain}&resourceVersion={}", version(&created) - 1)).await;
    assert_eq!(watch.expect("ADDED").await, created);
    // Neither what is there nor what has been is sent to who asks for no initial events.
    for (index, tail) in ["", "&resourceVersion=0"].into_iter().enumerate() {
        let mut watch = server.watch(&format!("{MAPS}?{plain}{tail}")).await;
        let created = server.post(MAPS, labelled(&format!("d{index}"), "x")).await.expect(201);
        assert_eq!(watch.expect("ADDED").await, created);
    }
    for (query, expected) in [
        (
            "sendInitialEvents=true",
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=5",
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "resourceVersionMatch=NotOlderThan&resourceVersion=5",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
             provided",
        ),
    ] {
        let message = server.get(&format!("{MAPS}?watch=true&{query}")).await.fails(422, "Invalid");
        assert_eq!(message, format!("ListOptions.meta.k8s.io \"\" is invalid: {expected}"));
    }
}

#[tokio::test]
async fn a_watch_ends_politely_after_its_timeout() {
    let server = Server::quiet().await;
    let now = server.store.observed();
    let started = Instant::now();
    let path = format!("{MAPS}?resourceVersion={now}&timeoutSeconds=3&allowWatchBookmarks=true");
    let (mut plain, mut marked) =
        tokio::join!(server.watch(&path.replace("&allowWatchBookmarks=true", "")), server.watch(&path));
    server.post("/api/v1/namespaces/kube-system/configmaps", config_map("z", json!({}))).await.expect(201);
    let newest = server.store.observed();
    let bookmark = marked.expect("BOOKMARK").await;
    assert!(started.elapsed() < Duration::from_millis(2500), "the bookmark comes before the end");
    assert_eq!(version(&bookmark), newest, "others' events move the position too");
    assert!(bookmark["metadata"]["annotations"].is_null());
    assert_eq!(marked.next().await, None);
    assert_eq!(plain.next().await, None, "no bookmarks for those who did not ask");
    let took = started.elapsed();
    assert!((2900..5000).contains(&(took.as_millis() as u64)), "{took:?}");
}

#[tokio::test]
async fn a_watch_that_never_rests_ends_after_its_timeout() {
    let server = Server::quiet().await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    let now = server.store.observed();
    let mut watch = server.watch(&format!("{MAPS}?resourceVersion={now}&timeoutSeconds=1")).await;
    let object = format!("{MAPS}/a");
    let write = async {
        for round in 0_u64.. {
            server.patch(&object, MERGE_PATCH, json!({"data": {"n": round.to_string()}})).await.expect(200);
            tokio::task::yield_now().await;
        }
    };
    let read = async {
        let mut events = 0;
        while watch.next().await.is_some() {
            events += 1;
        }
        events
    };
    let limited = tokio::time::timeout(Duration::from_secs(20), async {
        tokio::select! { () = write => 0, events = read => events }
    });
    assert!(limited.await.expect("it ends") > 1);
}

#[tokio::test]
async fn only_the_first_table_of_a_watch_has_columns() {
    let server = Server::quiet().await;
    server.post(MAPS, labelled("a", "x")).await.expect(201);
    let query = "watch=1&labelSelector=tier&allowWatchBookmarks=true";
    let mut watch = server.ask("GET", &format!("{MAPS}?{query}")).accept(TABLE).stream().await;
    let first = watch.expect("ADDED").await;
    assert_eq!((&first["kind"], &first["rows"][0]["cells"][0]), (&json!("Table"), &json!("a")));
    assert_eq!(first["columnDefinitions"][0]["name"], "Name");
    let bookmark = watch.expect("BOOKMARK").await;
    assert_eq!((&bookmark["kind"], &bookmark["columnDefinitions"]), (&json!("Table"), &Value::Null));
    let mark = &bookmark["rows"][0]["object"]["metadata"];
    assert_eq!(mark["annotations"], json!({"k8s.io/initial-events-end": "true"}), "{bookmark}");
    assert!(mark["resourceVersion"].is_string());
    server.post(MAPS, labelled("b", "x")).await.expect(201);
    let second = watch.expect("ADDED").await;
    assert!(second["columnDefinitions"].is_null());
    assert_eq!(second["rows"][0]["cells"][0], "b");
    server.patch(&format!("{MAPS}/b"), MERGE_PATCH, json!({"metadata": {"labels": null}})).await.expect(200);
    assert_eq!(watch.expect("DELETED").await["rows"][0]["cells"][0], "b");
    // A stream without initial events: its first change has them.
    let now = server.store.observed();
    let path = format!("{MAPS}?watch=1&resourceVersion={now}&includeObject=None");
    let mut watch = server.ask("GET", &path).accept(TABLE).stream().await;
    for name in ["c", "d"] {
        server.post(MAPS, config_map(name, json!({}))).await.expect(201);
    }
    let first = watch.expect("ADDED").await;
    assert!(first["columnDefinitions"].is_array() && first["rows"][0]["object"].is_null());
    assert!(watch.expect("ADDED").await["columnDefinitions"].is_null());
}

#[tokio::test]
async fn metadata_watches_show_metadata_alone() {
    let server = Server::quiet().await;
    server.post(MAPS, config_map("a", json!({"k": "v"}))).await.expect(201);
    let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json";
    let query = "watch=1&fieldSelector=metadata.name%3Da&allowWatchBookmarks=true";
    let mut watch = server.ask("GET", &format!("{MAPS}?{query}")).accept(accept).stream().await;
    let object = watch.expect("ADDED").await;
    assert_eq!((&object["kind"], object.get("data")), (&json!("PartialObjectMetadata"), None));
    let bookmark = watch.expect("BOOKMARK").await;
    assert_eq!(bookmark["kind"], "PartialObjectMetadata");
    server.delete(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(watch.expect("DELETED").await["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn a_crd_that_goes_takes_its_watches_with_it() {
    let server = Server::start().await;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let crd = json!({"metadata": {"name": "foos.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced",
        "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    server.post(crds, crd).await.expect(201);
    let foos = "/apis/x.io/v1/namespaces/default/foos";
    server.until(foos, |answer| answer.code == 200).await;
    let foo = json!({"apiVersion": "x.io/v1", "kind": "Foo", "metadata": {"name": "f"}});
    server.post(foos, foo).await.expect(201);
    let mut watch = server.watch(foos).await;
    watch.expect("ADDED").await;
    server.delete(&format!("{crds}/foos.x.io")).await.expect(200);
    while let Some(event) = watch.next().await {
        assert!(event["type"] == "MODIFIED" || event["type"] == "DELETED", "{event}");
    }
    server.until(foos, |answer| answer.code == 404).await;
}

#[tokio::test]
async fn a_stopped_server_ends_its_watches() {
    let server = Server::quiet().await;
    let mut watch = server.watch(&format!("{MAPS}?resourceVersion={}", server.store.observed())).await;
    server.api.shutdown().await;
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn the_watch_of_old_clients_has_its_verb_in_the_path() {
    let server = Server::quiet().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for name in ["a", "b"] {
        server.post(maps, config_map(name, json!({}))).await.expect(201);
    }
    let mut all = server.ask("GET", "/api/v1/watch/namespaces/default/configmaps").stream().await;
    assert_eq!(all.expect("ADDED").await["metadata"]["name"], "a");
    assert_eq!(all.expect("ADDED").await["metadata"]["name"], "b");
    let mut one = server.ask("GET", "/api/v1/watch/namespaces/default/configmaps/b").stream().await;
    assert_eq!(one.expect("ADDED").await["metadata"]["name"], "b");
    for name in ["a", "b"] {
        server.delete(&format!("{maps}/{name}")).await.expect(200);
    }
    assert_eq!(one.expect("DELETED").await["metadata"]["name"], "b");
    assert_eq!(server.ask("POST", "/api/v1/watch/namespaces/default/configmaps").send().await.code, 404);
}

#[tokio::test]
async fn initial_events_of_a_future_version_are_refused_in_the_stream() {
    let server = Server::quiet().await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999";
    let mut watch = server.watch(&format!("/api/v1/configmaps?{query}")).await;
    let error = watch.expect("ERROR").await;
    assert_eq!((&error["code"], &error["reason"]), (&json!(504), &json!("Timeout")), "{error}");
    assert_eq!(watch.next().await, None);
}
