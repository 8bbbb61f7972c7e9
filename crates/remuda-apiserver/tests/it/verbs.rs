//! What each verb does and answers.

use serde_json::{Value, json};

use crate::harness::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[tokio::test]
async fn an_object_lives_from_create_to_delete() {
    let server = Server::start().await;
    let created = server.post(MAPS, config_map("a", json!({"k": "v"}))).await.expect(201);
    let a = format!("{MAPS}/a");
    assert_eq!(server.get(&a).await.expect(200), created);
    assert_eq!(created["metadata"]["namespace"], "default");
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let parsed: uuid::Uuid = uid.parse().unwrap();
    assert_eq!((parsed.get_version_num(), parsed.to_string()), (4, uid.to_owned()));
    let born = created["metadata"]["creationTimestamp"].as_str().unwrap();
    assert!(born.len() == 20 && born.ends_with('Z') && born.parse::<jiff::Timestamp>().is_ok(), "{born}");
    assert!(created["metadata"]["generation"].is_null(), "ConfigMaps have no generation");

    let mut changed = created.clone();
    changed["data"]["k"] = json!("w");
    let updated = server.put(&a, changed).await.expect(200);
    let version = |object: &serde_json::Value| -> u64 {
        object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    };
    assert!(version(&updated) > version(&created));
    let patched = server.patch(&a, MERGE_PATCH, json!({"data": {"l": "x"}})).await.expect(200);
    assert_eq!(patched["data"], json!({"k": "w", "l": "x"}));

    let deleted = server.delete(&a).await.expect(200);
    assert_eq!(
        deleted,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": "a", "kind": "configmaps", "uid": uid}})
    );
    let missing = server.get(&a).await;
    assert_eq!(
        missing.expect(404),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "configmaps \"a\" not found", "reason": "NotFound",
            "details": {"name": "a", "kind": "configmaps"}, "code": 404})
    );
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_not_performed() {
    let server = Server::start().await;
    let created = server.post(MAPS, config_map("a", json!({"k": "v"}))).await.expect(201);
    let a = format!("{MAPS}/a");
    let mut watch = server.watch(&format!("{MAPS}?resourceVersion={}", version(&created))).await;
    let same = server.put(&a, created.clone()).await.expect(200);
    assert_eq!(version(&same), version(&created));
    let same = server.patch(&a, MERGE_PATCH, json!({"data": {"k": "v"}})).await.expect(200);
    assert_eq!(version(&same), version(&created));
    let same = server.patch(&a, JSON_PATCH, json!([])).await.expect(200);
    assert_eq!(version(&same), version(&created));
    server.patch(&a, MERGE_PATCH, json!({"data": {"k": "w"}})).await.expect(200);
    // The first the watch hears of is the change that was one.
    assert_eq!(watch.expect("MODIFIED").await["data"]["k"], "w");
}

fn version(object: &serde_json::Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

#[tokio::test]
async fn optimistic_locking_refuses_stale_versions() {
    let server = Server::start().await;
    let first = server.post(MAPS, config_map("a", json!({"k": "1"}))).await.expect(201);
    let a = format!("{MAPS}/a");
    server.patch(&a, MERGE_PATCH, json!({"data": {"k": "2"}})).await.expect(200);
    let stale = server.put(&a, first.clone()).await;
    assert_eq!(
        stale.fails(409, "Conflict"),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
         changes to the latest version and try again"
    );
    assert_eq!(stale.body["details"], json!({"name": "a", "kind": "configmaps"}));
    // A patch is unconditional unless it says otherwise.
    let patch = json!({"metadata": {"resourceVersion": version(&first)}, "data": {"k": "3"}});
    server.patch(&a, MERGE_PATCH, patch).await.fails(409, "Conflict");
    // Without a version the last writer wins, for kinds that allow it.
    server.put(&a, config_map("a", json!({"k": "4"}))).await.expect(200);
    let mut other = config_map("a", json!({}));
    other["metadata"]["uid"] = json!("8d3b6a2e-0000-4000-8000-000000000000");
    let conflict = server.put(&a, other).await.fails(409, "Conflict");
    assert!(
        conflict.starts_with(
            "Operation cannot be fulfilled on configmaps \"a\": Precondition failed: UID in precondition: \
             8d3b6a2e-0000-4000-8000-000000000000, UID in object meta: "
        ),
        "{conflict}"
    );
}

#[tokio::test]
async fn put_creates_only_what_may_be_created_so() {
    let server = Server::start().await;
    server.put(&format!("{MAPS}/a"), config_map("a", json!({}))).await.fails(404, "NotFound");
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}});
    let created = server.put(&format!("{leases}/l"), lease.clone()).await.expect(201);
    // Updates of a Lease need its version.
    let refused = server.put(&format!("{leases}/l"), lease.clone()).await;
    assert_eq!(
        refused.fails(422, "Invalid"),
        "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
         specified for an update"
    );
    assert_eq!(refused.body["details"]["kind"], "leases");
    server.delete(&format!("{leases}/l")).await.expect(200);
    // The holder's renewal brings a deleted lease back, but not with the uid of the old one.
    server.put(&format!("{leases}/l"), created.clone()).await.fails(409, "Conflict");
    let mut anonymous = created;
    anonymous["metadata"].as_object_mut().unwrap().remove("uid");
    server.put(&format!("{leases}/l"), anonymous).await.expect(201);
    // Missing comes before the missing version, for kinds that PUT does not create.
    let budget = json!({"metadata": {"name": "b"}, "spec": {"selector": {}}});
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    server.put(&format!("{budgets}/b"), budget).await.fails(404, "NotFound");
}

#[tokio::test]
async fn names_and_namespaces_of_body_and_url_agree() {
    let server = Server::start().await;
    let mut map = config_map("a", json!({}));
    map["metadata"]["namespace"] = json!("other");
    assert_eq!(
        server.post(MAPS, map.clone()).await.fails(400, "BadRequest"),
        "the namespace of the provided object does not match the namespace sent on the request"
    );
    map["metadata"]["namespace"] = json!("default");
    server.post(MAPS, map.clone()).await.expect(201);
    assert_eq!(
        server.put(&format!("{MAPS}/b"), map).await.fails(400, "BadRequest"),
        "the name of the object (a) does not match the name on the URL (b)"
    );
    // Charts give all they hold one namespace: an object outside of them all comes without.
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "r", "namespace": "default"}, "rules": []});
    let made = server.post(roles, role.clone()).await.expect(201);
    assert_eq!(made["metadata"]["namespace"], Value::Null);
    let path = format!("{roles}/r");
    assert_eq!(server.put(&path, role.clone()).await.expect(200), made);
    let moved = json!({"metadata": {"namespace": "other"}});
    assert_eq!(server.patch(&path, MERGE_PATCH, moved).await.expect(200), made);
    let mut role = role;
    role["metadata"]["name"] = json!("s");
    let applied = server.apply(&format!("{roles}/s"), "m", role).await.expect(201);
    assert_eq!(applied["metadata"]["namespace"], Value::Null);
    let missing = server.post("/api/v1/namespaces/nope/configmaps", config_map("a", json!({}))).await;
    assert_eq!(missing.fails(404, "NotFound"), "namespaces \"nope\" not found");
    assert_eq!(missing.body["details"], json!({"name": "nope", "kind": "namespaces"}));
    let unnamed = json!({"metadata": {}});
    let unnamed = server.post(MAPS, unnamed).await;
    assert_eq!(
        unnamed.fails(422, "Invalid"),
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
    );
    assert_eq!(
        unnamed.body["details"],
        json!({"kind": "ConfigMap", "causes": [{"reason": "FieldValueRequired",
            "message": "Required value: name or generateName is required", "field": "metadata.name"}]})
    );
    let taken = server.post(MAPS, config_map("a", json!({}))).await;
    assert_eq!(taken.fails(409, "AlreadyExists"), "configmaps \"a\" already exists");
    let mut versioned = config_map("v", json!({}));
    versioned["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(
        server.post(MAPS, versioned).await.fails(400, "BadRequest"),
        "resourceVersion should not be set on objects to be created"
    );
}

#[tokio::test]
async fn generated_names_are_the_prefix_and_five_letters() {
    let server = Server::start().await;
    let long = "p".repeat(70);
    let created = server.post(MAPS, json!({"metadata": {"generateName": long}})).await.expect(201);
    let name = created["metadata"]["name"].as_str().unwrap();
    assert_eq!((name.len(), &name[..58]), (63, &long[..58]));
    assert!(name[58..].chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)), "{name}");
    assert_eq!(created["metadata"]["generateName"], long);
    let both = server.post(MAPS, json!({"metadata": {"generateName": "x-", "name": "y"}})).await.expect(201);
    assert_eq!(both["metadata"]["name"], "y");
}

#[tokio::test]
async fn bad_metadata_is_refused_field_by_field() {
    let server = Server::start().await;
    for (metadata, expected) in [
        (json!({"name": "A"}), "metadata.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain"),
        (json!({"name": "a", "labels": {"-x": "v"}}), "metadata.labels: Invalid value: \"-x\": name part"),
        (
            json!({"name": "a", "labels": {"x": "v v"}}),
            "metadata.labels: Invalid value: \"v v\": a valid label",
        ),
        (json!({"name": "a", "annotations": {"a b": "v"}}), "metadata.annotations: Invalid value: \"a b\""),
        (
            json!({"name": "a", "annotations": {"big": "x".repeat(262_145)}}),
            "metadata.annotations: Too long: may not be more than 262144 bytes",
        ),
        (
            json!({"name": "a", "finalizers": ["plain"]}),
            "metadata.finalizers[0]: Invalid value: \"plain\": name is neither a standard finalizer name nor is it \
             fully qualified",
        ),
        (json!({"name": "a", "finalizers": ["orphan", "foregroundDeletion"]}), "metadata.finalizers"),
        (
            json!({"name": "a", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true},
                {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "2", "controller": true}]}),
            "metadata.ownerReferences: Invalid value:",
        ),
        (
            json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]}),
            "metadata.ownerReferences[0].uid: ",
        ),
    ] {
        let answer = server.post(MAPS, json!({"metadata": metadata})).await;
        let message = answer.fails(422, "Invalid");
        let begin = format!("ConfigMap {:?} is invalid: ", metadata["name"].as_str().unwrap());
        let rest = message.strip_prefix(&begin).unwrap_or_else(|| panic!("{message}"));
        assert!(rest.trim_start_matches('[').starts_with(expected), "{message}\n  instead of {expected}");
        assert_eq!(answer.body["details"]["kind"], "ConfigMap");
    }
    let unknown_owner = json!({"metadata": {"name": "a", "ownerReferences": [
        {"apiVersion": "x.io/v1", "kind": "Nobody", "name": "p", "uid": "1"}]}});
    server.post(&format!("{MAPS}?dryRun=All"), unknown_owner).await.expect(201);
}

#[tokio::test]
async fn the_server_owns_its_metadata() {
    let server = Server::start().await;
    let mut map = config_map("a", json!({}));
    map["metadata"]["uid"] = json!("mine");
    map["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    map["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    map["metadata"]["deletionGracePeriodSeconds"] = json!(5);
    map["metadata"]["generation"] = json!(7);
    map["metadata"]["selfLink"] = json!("/x");
    let created = server.post(MAPS, map).await.expect(201);
    let metadata = created["metadata"].as_object().unwrap();
    assert_ne!(metadata["uid"], "mine");
    assert_ne!(metadata["creationTimestamp"], "2001-01-01T00:00:00Z");
    for absent in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"] {
        assert!(!metadata.contains_key(absent), "{absent}");
    }
    let mut changed = created.clone();
    changed["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    changed["metadata"]["selfLink"] = json!("/x");
    let kept = server.put(&format!("{MAPS}/a"), changed).await.expect(200);
    assert_eq!(kept["metadata"], created["metadata"]);
    let mut without = created.clone();
    without["metadata"].as_object_mut().unwrap().remove("creationTimestamp");
    without["metadata"].as_object_mut().unwrap().remove("uid");
    let kept = server.put(&format!("{MAPS}/a"), without).await.expect(200);
    assert_eq!(kept["metadata"], created["metadata"]);
}

fn deployment(name: &str) -> serde_json::Value {
    json!({"metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": "x"}},
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec_alone() {
    let server = Server::start().await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let mut new = deployment("d");
    new["status"] = json!({"replicas": 9});
    let created = server.post(deployments, new).await.expect(201);
    assert_eq!(created["metadata"]["generation"], 1);
    assert!(created["status"]["replicas"].is_null(), "{}", created["status"]);
    let d = format!("{deployments}/d");
    let labelled =
        server.patch(&d, MERGE_PATCH, json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    assert_eq!(labelled["metadata"]["generation"], 1);
    let ignored = server.patch(&d, MERGE_PATCH, json!({"status": {"replicas": 3}})).await.expect(200);
    assert!(ignored["status"]["replicas"].is_null());
    assert_eq!(version(&ignored), version(&labelled), "a status sent to the main endpoint is no change");
    let status = json!({"status": {"replicas": 3}, "spec": {"replicas": 5}});
    let reported = server.patch(&format!("{d}/status"), MERGE_PATCH, status).await.expect(200);
    assert_eq!((&reported["status"]["replicas"], &reported["spec"]["replicas"]), (&json!(3), &json!(1)));
    assert_eq!(reported["metadata"]["generation"], 1);
    let scaled = server.patch(&d, MERGE_PATCH, json!({"spec": {"replicas": 2}})).await.expect(200);
    assert_eq!(scaled["metadata"]["generation"], 2);
    assert_eq!(scaled["status"]["replicas"], 3);
    server
        .patch(&d, MERGE_PATCH, json!({"metadata": {"finalizers": ["x.io/f"], "generation": 40}}))
        .await
        .expect(200);
    let going = server.delete(&d).await.expect(200);
    assert_eq!((&going["kind"], &going["metadata"]["generation"]), (&json!("Deployment"), &json!(3)));
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    // What is going cannot be called back.
    let mut back = going.clone();
    back["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    let still = server.put(&d, back).await.expect(200);
    assert_eq!(still["metadata"]["deletionTimestamp"], going["metadata"]["deletionTimestamp"]);
}

#[tokio::test]
async fn dry_runs_answer_as_if_and_write_nothing() {
    let server = Server::start().await;
    let created = server.post(&format!("{MAPS}?dryRun=All"), config_map("a", json!({}))).await.expect(201);
    assert!(created["metadata"]["resourceVersion"].is_null());
    assert!(created["metadata"]["uid"].is_string());
    server.get(&format!("{MAPS}/a")).await.fails(404, "NotFound");
    server.post(MAPS, config_map("a", json!({"k": "v"}))).await.expect(201);
    let a = format!("{MAPS}/a?dryRun=All");
    let put = server.put(&a, config_map("a", json!({"k": "w"}))).await.expect(200);
    assert_eq!(put["data"]["k"], "w");
    server.patch(&a, MERGE_PATCH, json!({"data": {"k": "x"}})).await.expect(200);
    server
        .apply(&a, "m", json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"q": "x"}}))
        .await
        .expect(200);
    server.delete(&a).await.expect(200);
    server.delete_with(&format!("{MAPS}/a"), json!({"dryRun": ["All"]})).await.expect(200);
    server.delete(&format!("{MAPS}?dryRun=All")).await.expect(200);
    assert_eq!(server.get(&format!("{MAPS}/a")).await.expect(200)["data"], json!({"k": "v"}));
    let bad = server.post(&format!("{MAPS}?dryRun=Foo"), config_map("b", json!({}))).await;
    let message = bad.fails(422, "Invalid");
    assert!(
        message.ends_with("dryRun: Unsupported value: [\"Foo\"]: supported values: \"All\""),
        "{message}"
    );
    server.delete(&format!("{MAPS}/a?dryRun=Foo")).await.fails(422, "Invalid");
}

#[tokio::test]
async fn options_that_make_no_sense_are_refused() {
    let server = Server::start().await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    let a = format!("{MAPS}/a");
    for (query, expected) in [
        ("force=true", "force: Forbidden: may not be specified for non-apply patch"),
        ("fieldValidation=Loose", "fieldValidation: Unsupported value: \"Loose\": supported values: "),
    ] {
        let message =
            server.patch(&format!("{a}?{query}"), MERGE_PATCH, json!({})).await.fails(422, "Invalid");
        assert!(message.contains(expected), "{message}");
        assert!(message.starts_with("PatchOptions.meta.k8s.io \"\" is invalid: "), "{message}");
    }
    let long = "m".repeat(129);
    let message = server
        .put(&format!("{a}?fieldManager={long}"), config_map("a", json!({})))
        .await
        .fails(422, "Invalid");
    assert!(message.contains("fieldManager: Too long: may not be more than 128 bytes"), "{message}");
    server.put(&format!("{a}?fieldManager=a%00b"), config_map("a", json!({}))).await.fails(422, "Invalid");
    let message = server.delete(&format!("{a}?propagationPolicy=Foo")).await.fails(422, "Invalid");
    assert!(
        message.contains(
            "propagationPolicy: Unsupported value: \"Foo\": supported values: \"Foreground\", \"Background\", \
             \"Orphan\", \"nil\""
        ),
        "{message}"
    );
    let message = server
        .delete(&format!("{a}?propagationPolicy=Orphan&orphanDependents=true"))
        .await
        .fails(422, "Invalid");
    assert!(message.contains("orphanDependents and deletionPropagation cannot be both set"), "{message}");
    let message = server.get(&format!("{MAPS}?timeout=x")).await.fails(400, "BadRequest");
    assert_eq!(message, "invalid timeout specified in the request URL");
    server.get(&format!("{MAPS}?timeout=0s")).await.expect(200);
    server.get(&format!("{MAPS}?timeout=999h")).await.expect(200);
    server.get(&format!("{MAPS}?what=ever&nonsense")).await.expect(200);
    server.get(&format!("{a}?resourceVersion=abc")).await.fails(400, "BadRequest");
}

#[tokio::test]
async fn methods_meet_only_what_offers_them() {
    let server = Server::start().await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    let refusal = "the server does not allow this method on the requested resource";
    for (method, path) in [
        ("PUT", MAPS),
        ("PATCH", MAPS),
        ("POST", "/api/v1/namespaces/default/configmaps/a"),
        ("POST", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/namespaces"),
        ("OPTIONS", MAPS),
        ("TRACE", MAPS),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("DELETE", "/apis/apps/v1/namespaces/default/deployments/a/status"),
        ("POST", "/apis/apps/v1/namespaces/default/deployments/a/scale"),
        ("GET", "/api/v1/namespaces/default/serviceaccounts/default/token"),
        ("POST", "/version"),
        ("DELETE", "/apis/apps/v1"),
    ] {
        let answer = server.ask(method, path).json(&json!({})).send().await;
        assert_eq!(answer.fails(405, "MethodNotAllowed"), refusal, "{method} {path}");
        assert_eq!(answer.body["details"], json!({}), "{method} {path}");
    }
    let unknown = "the server could not find the requested resource";
    for path in [
        "/api/v1/nonsense",
        "/api/v2/pods",
        "/apis/no.such.group/v1/things",
        "/apis/apps/v7/deployments",
        "/apis/no.such.group",
        "/apis/apps/v7",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/namespaces/default/configmaps/a/nonsense",
        "/api/v1/configmaps/a",
        "/nonsense",
        "/api/v1/proxy/configmaps",
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.fails(404, "NotFound"), unknown, "{path}");
        assert_eq!(answer.body["details"], json!({}), "{path}");
    }
    let head = server.ask("HEAD", &format!("{MAPS}/a")).send().await;
    assert_eq!((head.code, head.bytes.len(), head.header("content-type")), (200, 0, Some(JSON)));
    assert_eq!(server.ask("HEAD", &format!("{MAPS}/b")).send().await.code, 404);
    // Slashes at the end, and escapes in names.
    server.get(&format!("{MAPS}/")).await.expect(200);
    server.get(&format!("{MAPS}/a/")).await.expect(200);
    server.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Adiscovery").await.expect(200);
    server.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:discovery").await.expect(200);
}

#[tokio::test]
async fn delete_keeps_its_preconditions() {
    let server = Server::start().await;
    let created = server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    let a = format!("{MAPS}/a");
    let uid = created["metadata"]["uid"].as_str().unwrap();
    let wrong = server.delete_with(&a, json!({"preconditions": {"uid": "other"}})).await;
    assert_eq!(
        wrong.fails(409, "Conflict"),
        format!(
            "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition (other) does not match \
             the UID in record ({uid}). The object might have been deleted and then recreated"
        )
    );
    assert_eq!(wrong.body["details"]["kind"], "ConfigMap");
    let message = server
        .delete_with(
            &a,
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": "1"}}),
        )
        .await
        .fails(409, "Conflict");
    assert!(message.contains("the ResourceVersion in the precondition (1) does not match"), "{message}");
    let options = json!({"kind": "DeleteOptions", "apiVersion": "apps/v1",
        "preconditions": {"uid": uid, "resourceVersion": version(&created)}});
    server.delete_with(&a, options).await.expect(200);
    server.delete(&a).await.fails(404, "NotFound");
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector_and_answered_as_a_list() {
    let server = Server::start().await;
    for (name, tier) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut map = config_map(name, json!({}));
        map["metadata"]["labels"] = json!({"tier": tier});
        server.post(MAPS, map).await.expect(201);
    }
    let deleted = server.delete(&format!("{MAPS}?labelSelector=tier%3Dx")).await.expect(200);
    assert_eq!((&deleted["kind"], names(&deleted)), (&json!("ConfigMapList"), vec!["a", "b"]));
    let left = server.get(&format!("{MAPS}?labelSelector=tier")).await.expect(200);
    assert_eq!(names(&left), ["c"]);
    let group = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    server.post(group, json!({"metadata": {"name": "l"}})).await.expect(201);
    let gone = server.delete(&format!("{group}/l")).await.expect(200);
    assert_eq!(gone["details"]["group"], "coordination.k8s.io");
}

#[tokio::test]
async fn deleted_objects_answer_with_themselves_while_finalizers_hold_them() {
    let server = Server::start().await;
    let mut map = config_map("a", json!({}));
    map["metadata"]["finalizers"] = json!(["x.io/hold"]);
    let created = server.post(MAPS, map).await.expect(201);
    let a = format!("{MAPS}/a");
    let mut watch = server.watch(&format!("{MAPS}?resourceVersion={}", version(&created))).await;
    let pending = server.delete(&a).await.expect(200);
    assert_eq!(pending["kind"], "ConfigMap");
    let marked = watch.expect("MODIFIED").await;
    assert_eq!(marked, pending);
    let again = server.delete(&a).await.expect(200);
    assert_eq!(version(&again), version(&pending), "a second delete changes nothing");
    server.patch(&a, MERGE_PATCH, json!({"metadata": {"finalizers": null}})).await.expect(200);
    let last = watch.expect("DELETED").await;
    assert!(version(&last).parse::<u64>().unwrap() > version(&pending).parse().unwrap());
    server.get(&a).await.fails(404, "NotFound");
}

#[tokio::test]
async fn an_empty_dry_run_is_refused_rather_than_written() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let message = server.post(&format!("{path}?dryRun="), config_map("a", json!({}))).await;
    assert_eq!(
        message.fails(422, "Invalid"),
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"\"]: supported values: \"All\""
    );
    server.get(&format!("{path}/a")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn what_is_put_somewhere_says_its_name() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    server.post(path, config_map("a", json!({}))).await.expect(201);
    assert_eq!(
        server.put(&format!("{path}/a"), json!({"data": {"k": "v"}})).await.fails(400, "BadRequest"),
        "the name of the object (a based on URL) was undeterminable: name must be provided"
    );
}

#[tokio::test]
async fn what_only_the_server_sets_is_dropped_from_a_new_object_and_owned_by_nobody() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let body = json!({"metadata": {"name": "a", "deletionTimestamp": "2020-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 5, "selfLink": "x", "uid": "u"}});
    let created = server.post(path, body).await.expect(201);
    let fields: Vec<&String> = created["metadata"].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["creationTimestamp", "name", "namespace", "resourceVersion", "uid"]);
}

#[tokio::test]
async fn an_owner_named_twice_is_one_owner() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "u"});
    let body = json!({"metadata": {"name": "a", "ownerReferences": [owner("o"), owner("o"), owner("p")]}});
    let answer = server.post(&format!("{path}?dryRun=All"), body.clone()).await;
    let warnings = answer.warnings();
    assert!(warnings.len() == 1 && warnings[0].ends_with("duplicate UID(s) observed: u\""), "{warnings:?}");
    assert_eq!(answer.expect(201)["metadata"]["ownerReferences"], json!([owner("o"), owner("p")]));
    let mut lone = body;
    lone["metadata"]["ownerReferences"] = json!([]);
    lone["metadata"]["finalizers"] = json!(["x.io/f"]);
    server.post(path, lone).await.expect(201);
    let twice = json!({"metadata": {"ownerReferences": [owner("o"), owner("o")]}});
    let patched = server.patch(&format!("{path}/a?dryRun=All"), MERGE_PATCH, twice).await;
    assert_eq!(patched.warnings().len(), 1);
    assert_eq!(patched.expect(200)["metadata"]["ownerReferences"], json!([owner("o")]));
}
