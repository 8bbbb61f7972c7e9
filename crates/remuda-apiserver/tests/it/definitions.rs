//! CustomResourceDefinitions: from creation to the end of their instances.

use serde_json::{Value, json};

use crate::{
    custom::{CRDS, FOOS, definition, foo, foo_crd, foo_definition},
    harness::{APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Server, config},
};

fn condition<'a>(crd: &'a Value, kind: &str) -> &'a Value {
    let conditions = crd["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

fn open_schema() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

fn version(name: &str, storage: bool, properties: Value) -> Value {
    let spec = json!({"type": "object", "properties": properties});
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    })
}

#[tokio::test]
async fn a_definition_is_established_and_served_when_its_creation_is_answered() {
    let server = Server::start().await;
    let created = server.post(CRDS, foo_crd()).await.expect(201);
    assert_eq!(
        created["spec"]["names"],
        json!({"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"})
    );
    assert_eq!(created["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(created["status"]["acceptedNames"], created["spec"]["names"]);
    assert_eq!(created["status"]["storedVersions"], json!(["v1"]));
    let established = condition(&created, "Established");
    assert_eq!(established["status"], "True");
    assert_eq!(established["reason"], "InitialNamesAccepted");
    assert_eq!(established["message"], "the initial names have been accepted");
    assert!(established["lastTransitionTime"].is_string());
    let names = condition(&created, "NamesAccepted");
    assert_eq!(
        (&names["status"], &names["reason"], &names["message"]),
        (&json!("True"), &json!("NoConflicts"), &json!("no conflicts found"))
    );
    server.post(FOOS, foo("a")).await.expect(201);
    let group = server.get("/apis/x.io").await.expect(200);
    assert_eq!(group["preferredVersion"]["groupVersion"], "x.io/v1");
}

#[tokio::test]
async fn names_are_taken_by_the_first_and_released() {
    let server = Server::start().await;
    let mut first = definition("foos", "Foo", open_schema(), json!({}));
    first["spec"]["names"]["shortNames"] = json!(["f", "fo"]);
    server.post(CRDS, first).await.expect(201);
    let mut second = definition("bars", "Foo", open_schema(), json!({}));
    second["spec"]["names"]["shortNames"] = json!(["f"]);
    second["spec"]["names"]["singular"] = "bar".into();
    second["spec"]["names"]["listKind"] = "BarList".into();
    let created = server.post(CRDS, second).await.expect(201);
    let names = condition(&created, "NamesAccepted");
    assert_eq!(names["status"], "False");
    assert_eq!(names["reason"], "KindConflict");
    assert_eq!(names["message"], "\"Foo\" is already in use");
    let established = condition(&created, "Established");
    assert_eq!((&established["status"], &established["reason"]), (&json!("False"), &json!("NotAccepted")));
    assert_eq!(
        created["status"]["acceptedNames"],
        json!({"plural": "bars", "singular": "bar", "kind": "", "listKind": "BarList"})
    );
    server.get("/apis/x.io/v1/namespaces/default/bars").await.fails(404, "NotFound");
    // A name of the waiting one is taken too.
    let mut third = definition("bazs", "Baz", open_schema(), json!({}));
    third["spec"]["names"]["shortNames"] = json!(["bar"]);
    let created = server.post(CRDS, third).await.expect(201);
    assert_eq!(condition(&created, "NamesAccepted")["reason"], "ShortNamesConflict");
    server.delete(&format!("{CRDS}/bazs.x.io")).await.expect(200);

    server.delete(&format!("{CRDS}/foos.x.io")).await.expect(200);
    let path = format!("{CRDS}/bars.x.io");
    let answer =
        server.until(&path, |answer| condition(&answer.body, "Established")["status"] == "True").await;
    assert_eq!(condition(&answer.body, "NamesAccepted")["reason"], "NoConflicts");
    assert_eq!(answer.body["status"]["acceptedNames"]["kind"], "Foo");
    server.get("/apis/x.io/v1/namespaces/default/bars").await.expect(200);
}

#[tokio::test]
async fn a_short_name_given_up_goes_to_the_one_that_waits() {
    let server = Server::start().await;
    let mut first = definition("foos", "Foo", open_schema(), json!({}));
    first["spec"]["names"]["shortNames"] = json!(["f"]);
    server.post(CRDS, first).await.expect(201);
    let mut second = definition("bars", "Bar", open_schema(), json!({}));
    server.post(CRDS, second.clone()).await.expect(201);
    second["spec"]["names"]["shortNames"] = json!(["f"]);
    let bars = format!("{CRDS}/bars.x.io");
    let changed =
        server.patch(&bars, MERGE_PATCH, json!({"spec": {"names": {"shortNames": ["f"]}}})).await.expect(200);
    // Once established it stays so, under the names it had.
    assert_eq!(condition(&changed, "Established")["status"], "True");
    assert_eq!(condition(&changed, "NamesAccepted")["reason"], "ShortNamesConflict");
    assert!(changed["status"]["acceptedNames"]["shortNames"].is_null());
    let resources = server.get("/apis/x.io/v1").await.expect(200);
    let of = |resources: &Value, name: &str| {
        resources["resources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|resource| resource["name"] == name)
            .unwrap()
            .clone()
    };
    assert!(of(&resources, "bars")["shortNames"].is_null());
    server
        .patch(&format!("{CRDS}/foos.x.io"), MERGE_PATCH, json!({"spec": {"names": {"shortNames": null}}}))
        .await
        .expect(200);
    server.until(&bars, |answer| condition(&answer.body, "NamesAccepted")["status"] == "True").await;
    let resources = server.get("/apis/x.io/v1").await.expect(200);
    assert_eq!(of(&resources, "bars")["shortNames"], json!(["f"]));
}

#[tokio::test]
async fn of_definitions_created_at_once_only_one_gets_the_name() {
    let server = Server::start().await;
    let posts = (0..8).map(|index| {
        let server = server.clone();
        async move {
            let crd = definition(&format!("r{index}s"), "Same", open_schema(), json!({}));
            let mut crd = crd;
            crd["spec"]["names"]["singular"] = format!("r{index}").into();
            server.post(CRDS, crd).await.expect(201)
        }
    });
    let created = futures::future::join_all(posts).await;
    let established = created.iter().filter(|crd| condition(crd, "Established")["status"] == "True").count();
    assert_eq!(established, 1);
}

#[tokio::test]
async fn definitions_are_validated() {
    let server = Server::start().await;
    let refused = |change: fn(&mut Value)| {
        let server = server.clone();
        async move {
            let mut crd = definition("foos", "Foo", open_schema(), json!({}));
            change(&mut crd);
            server.post(CRDS, crd).await.fails(422, "Invalid")
        }
    };
    let message = refused(|crd| crd["metadata"]["name"] = "bars.x.io".into()).await;
    assert!(
        message.contains(
            r#"metadata.name: Invalid value: "bars.x.io": must be spec.names.plural+"."+spec.group"#
        ),
        "{message}"
    );
    let message = refused(|crd| crd["spec"]["scope"] = "World".into()).await;
    assert!(
        message
            .contains(r#"spec.scope: Unsupported value: "World": supported values: "Cluster", "Namespaced""#),
        "{message}"
    );
    let message = refused(|crd| crd["spec"]["versions"][0]["storage"] = false.into()).await;
    assert!(message.contains("must have exactly one version marked as storage version"), "{message}");
    let message = refused(|crd| crd["spec"]["versions"][0]["schema"] = Value::Null).await;
    assert!(message.contains("spec.versions[0].schema.openAPIV3Schema: Required value"), "{message}");
    let message = refused(|crd| crd["spec"]["preserveUnknownFields"] = true.into()).await;
    assert!(message.contains("spec.preserveUnknownFields: Invalid value: true"), "{message}");
    let message = refused(|crd| {
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "string"}},
                "x-kubernetes-validations": [{"rule": "self.b == 1"}]},
        }});
    })
    .await;
    assert!(message.contains("x-kubernetes-validations[0].rule: Invalid value"), "{message}");
    assert!(message.contains("undefined field 'b'"), "{message}");
}

#[tokio::test]
async fn odd_formats_get_a_warning() {
    let server = Server::start().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "string", "format": "foo"}}});
    let answer = server.post(CRDS, definition("foos", "Foo", schema, json!({}))).await;
    assert_eq!(answer.warnings(), [r#"299 - "unrecognized format \"foo\"""#]);
    answer.expect(201);
}

#[tokio::test]
async fn community_groups_need_an_approval() {
    let server = Server::start().await;
    let mut crd = definition("foos", "Foo", open_schema(), json!({}));
    crd["spec"]["group"] = "x.k8s.io".into();
    crd["metadata"]["name"] = "foos.x.k8s.io".into();
    let message = server.post(CRDS, crd.clone()).await.fails(422, "Invalid");
    assert!(
        message.contains("metadata.annotations[api-approved.kubernetes.io]: Required value"),
        "{message}"
    );
    crd["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, a test"});
    let created = server.post(CRDS, crd).await.expect(201);
    let found = condition(&created, "KubernetesAPIApprovalPolicyConformant");
    assert_eq!((&found["status"], &found["reason"]), (&json!("False"), &json!("UnapprovedAnnotation")));
    assert_eq!(condition(&created, "Established")["status"], "True");
    let patch = json!({"metadata": {"annotations": {"api-approved.kubernetes.io": "https://example.org/1"}}});
    let changed = server.patch(&format!("{CRDS}/foos.x.k8s.io"), MERGE_PATCH, patch).await.expect(200);
    let found = condition(&changed, "KubernetesAPIApprovalPolicyConformant");
    assert_eq!(
        (&found["status"], &found["reason"], &found["message"]),
        (&json!("True"), &json!("ApprovedAnnotation"), &json!("approved in https://example.org/1"))
    );
}

#[tokio::test]
async fn deprecated_versions_warn() {
    let server = Server::start().await;
    let mut crd = definition("foos", "Foo", open_schema(), json!({"deprecated": true}));
    let mut other = crd["spec"]["versions"][0].clone();
    other["name"] = "v2".into();
    other["storage"] = false.into();
    other["deprecationWarning"] = "v2 goes in May".into();
    crd["spec"]["versions"].as_array_mut().unwrap().push(other);
    server.post(CRDS, crd).await.expect(201);
    assert_eq!(server.get(FOOS).await.warnings(), ["299 - \"x.io/v1 Foo is deprecated\""]);
    assert_eq!(server.get(&FOOS.replace("v1", "v2")).await.warnings(), ["299 - \"v2 goes in May\""]);
}

#[tokio::test]
async fn instances_and_their_finalizers_go_before_the_definition() {
    let server = Server::start().await;
    foo_definition(&server).await;
    server.post(FOOS, foo("a")).await.expect(201);
    let mut held = foo("b");
    held["metadata"]["finalizers"] = json!(["x.io/hold"]);
    server.post(FOOS, held).await.expect(201);
    let going = server.delete(&format!("{CRDS}/foos.x.io")).await.expect(200);
    assert_eq!(going["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert!(going["metadata"]["deletionTimestamp"].is_string());
    let terminating = condition(&going, "Terminating");
    assert_eq!(
        (&terminating["status"], &terminating["reason"]),
        (&json!("True"), &json!("InstanceDeletionInProgress"))
    );
    let answer = server.post(FOOS, foo("c")).await;
    assert_eq!(
        answer.fails(403, "Forbidden"),
        "foos.x.io \"c\" is forbidden: create not allowed while custom resource definition is terminating"
    );
    server.apply(&format!("{FOOS}/c"), "m", foo("c")).await.fails(403, "Forbidden");
    server.until(&format!("{FOOS}/a"), |answer| answer.code == 404).await;
    let held = server
        .until(&format!("{FOOS}/b"), |answer| !answer.body["metadata"]["deletionTimestamp"].is_null())
        .await;
    assert_eq!(held.code, 200);
    server.get(&format!("{CRDS}/foos.x.io")).await.expect(200);
    server
        .patch(&format!("{FOOS}/b"), MERGE_PATCH, json!({"metadata": {"finalizers": null}}))
        .await
        .expect(200);
    server.until(&format!("{CRDS}/foos.x.io"), |answer| answer.code == 404).await;
    server.get(FOOS).await.fails(404, "NotFound");
    server.get("/apis/x.io").await.fails(404, "NotFound");
    // Nothing is left for a definition of the same name.
    foo_definition(&server).await;
    assert_eq!(server.get(FOOS).await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn instances_of_an_unserved_definition_go_too() {
    let server = Server::start().await;
    server.post(CRDS, definition("foos", "Foo", open_schema(), json!({}))).await.expect(201);
    server.post(FOOS, foo("a")).await.expect(201);
    let patch = json!([{"op": "replace", "path": "/spec/versions/0/served", "value": false}]);
    server.patch(&format!("{CRDS}/foos.x.io"), JSON_PATCH, patch).await.expect(200);
    server.get(FOOS).await.fails(404, "NotFound");
    server.delete(&format!("{CRDS}/foos.x.io")).await.expect(200);
    server.until(&format!("{CRDS}/foos.x.io"), |answer| answer.code == 404).await;
    server.post(CRDS, definition("foos", "Foo", open_schema(), json!({}))).await.expect(201);
    assert_eq!(server.get(FOOS).await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn versions_come_and_go_and_share_objects() {
    let server = Server::start().await;
    let mut crd = definition("foos", "Foo", open_schema(), json!({}));
    crd["spec"]["versions"] =
        json!([version("v1", true, json!({"a": {"type": "string"}, "b": {"type": "string"}}))]);
    server.post(CRDS, crd).await.expect(201);
    let mut object = foo("a");
    object["spec"] = json!({"a": "1", "b": "2"});
    let created = server.post(FOOS, object).await.expect(201);
    let v2 = version("v2", true, json!({"a": {"type": "string"}, "c": {"type": "string", "default": "new"}}));
    let patch = json!([
        {"op": "replace", "path": "/spec/versions/0/storage", "value": false},
        {"op": "add", "path": "/spec/versions/-", "value": v2},
    ]);
    let crd = format!("{CRDS}/foos.x.io");
    let changed = server.patch(&crd, JSON_PATCH, patch).await.expect(200);
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    let new = "/apis/x.io/v2/namespaces/default/foos";
    // The object is still stored as v1; reading it as v2 prunes. The defaults of v2 are for its writers.
    let read = server.get(&format!("{new}/a")).await.expect(200);
    assert_eq!(read["apiVersion"], "x.io/v2");
    assert_eq!(read["spec"], json!({"a": "1"}));
    assert_eq!(read["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    let read = server.get(&format!("{FOOS}/a")).await.expect(200);
    assert_eq!(read["spec"], json!({"a": "1", "b": "2"}));
    assert_eq!(read["metadata"]["managedFields"], created["metadata"]["managedFields"]);
    // Writing the same again moves it to the new storage version.
    let read = server.get(&format!("{new}/a")).await.expect(200);
    let moved = server.put(&format!("{new}/a"), read.clone()).await.expect(200);
    assert_ne!(moved["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    let again = server.put(&format!("{new}/a"), moved.clone()).await.expect(200);
    assert_eq!(again["metadata"]["resourceVersion"], moved["metadata"]["resourceVersion"]);

    // A stored version cannot go before clients have said that nothing is stored in it any more.
    let removal = json!([{"op": "remove", "path": "/spec/versions/0"}]);
    let message = server.patch(&crd, JSON_PATCH, removal.clone()).await.fails(422, "Invalid");
    assert!(message.contains("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version"), "{message}");
    let mut watch = server.watch(FOOS).await;
    watch.expect("ADDED").await;
    let pruned = server
        .patch(&format!("{crd}/status"), MERGE_PATCH, json!({"status": {"storedVersions": ["v2"]}}))
        .await
        .expect(200);
    assert_eq!(pruned["status"]["storedVersions"], json!(["v2"]));
    server.patch(&crd, JSON_PATCH, removal).await.expect(200);
    assert_eq!(watch.next().await, None);
    server.get(FOOS).await.fails(404, "NotFound");
    let read = server.get(&format!("{new}/a")).await.expect(200);
    assert_eq!(read["spec"], json!({"a": "1", "c": "new"}));
}

#[tokio::test]
async fn status_writes_of_definitions_are_validated_and_leave_the_spec() {
    let server = Server::start().await;
    foo_definition(&server).await;
    let path = format!("{CRDS}/foos.x.io/status");
    let patch = json!({"spec": {"scope": "Cluster"}, "status": {"acceptedNames": {"plural": "UPPER"}}});
    let message = server.patch(&path, MERGE_PATCH, patch).await.fails(422, "Invalid");
    assert!(message.contains("status.acceptedNames.plural: Invalid value: \"UPPER\""), "{message}");
    let changed = server.patch(&path, MERGE_PATCH, json!({"spec": {"scope": "Cluster"}})).await.expect(200);
    assert_eq!(changed["spec"]["scope"], "Namespaced");
}

#[tokio::test]
async fn objects_older_than_their_schema_are_read_by_the_new_one_also_after_a_restart() {
    let server = Server::start().await;
    let mut crd = definition("foos", "Foo", open_schema(), json!({}));
    crd["spec"]["versions"] =
        json!([version("v1", true, json!({"a": {"type": "string"}, "old": {"type": "string"}}))]);
    server.post(CRDS, crd).await.expect(201);
    let mut object = foo("a");
    object["spec"] = json!({"a": "1", "old": "x"});
    server.post(FOOS, object.clone()).await.expect(201);
    let new = json!({"a": {"type": "string"}, "n": {"type": "integer", "default": 5}});
    let patch = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties", "value": new}]);
    server.patch(&format!("{CRDS}/foos.x.io"), JSON_PATCH, patch).await.expect(200);
    object["metadata"]["name"] = "b".into();
    server.post(FOOS, object).await.expect(201);
    let expected = json!({"a": "1", "n": 5});
    let check = async |server: &Server| {
        assert_eq!(server.get(&format!("{FOOS}/a")).await.expect(200)["spec"], expected);
        let list = server.get(FOOS).await.expect(200);
        assert_eq!((&list["items"][0]["spec"], &list["items"][1]["spec"]), (&expected, &expected));
        let mut watch = server.watch(FOOS).await;
        assert_eq!(watch.expect("ADDED").await["spec"], expected);
    };
    check(&server).await;
    // A later write of something else in the definition changes nothing.
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    server.patch(&format!("{CRDS}/foos.x.io"), MERGE_PATCH, labels).await.expect(200);
    check(&server).await;
    server.api.shutdown().await;
    let again = Server::on(server.store.clone(), config()).await;
    check(&again).await;
}

#[tokio::test]
async fn watches_survive_what_does_not_concern_them() {
    let server = Server::start().await;
    foo_definition(&server).await;
    let mut watch = server.watch(FOOS).await;
    server
        .patch(&format!("{CRDS}/foos.x.io"), MERGE_PATCH, json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .expect(200);
    server
        .patch(
            &format!("{CRDS}/foos.x.io/status"),
            MERGE_PATCH,
            json!({"status": {"storedVersions": ["v1"]}}),
        )
        .await
        .expect(200);
    server.post(FOOS, foo("a")).await.expect(201);
    watch.expect("ADDED").await;
}

#[tokio::test]
async fn definitions_can_be_applied() {
    let server = Server::start().await;
    let path = format!("{CRDS}/foos.x.io");
    let created = server.apply(&path, "m", foo_crd()).await.expect(201);
    assert_eq!(condition(&created, "Established")["status"], "True");
    let again = server.apply(&path, "m", foo_crd()).await.expect(200);
    assert_eq!(again["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    let mut changed = foo_crd();
    changed["spec"]["names"]["shortNames"] = json!(["fo"]);
    let changed = server
        .ask("PATCH", &format!("{path}?fieldManager=m"))
        .body(APPLY_PATCH, changed.to_string())
        .send()
        .await
        .expect(200);
    assert_eq!(changed["status"]["acceptedNames"]["shortNames"], json!(["fo"]));
    assert_eq!(changed["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_definition_whose_rules_may_cost_too_much_is_refused() {
    let server = Server::start().await;
    let schema = |bound: Value| {
        let mut list = json!({"type": "array", "items": {"type": "integer"},
            "x-kubernetes-validations": [{"rule": "self.all(x, self.exists_one(y, x == y))"}]});
        if !bound.is_null() {
            list["maxItems"] = bound;
        }
        json!({"type": "object", "properties": {"list": list}})
    };
    let refused = server.post(CRDS, definition("foos", "Foo", schema(Value::Null), json!({}))).await;
    let message = refused.fails(422, "Invalid");
    assert!(
        message.contains(
            "x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
        ),
        "{message}"
    );
    server.get(&format!("{CRDS}/foos.x.io")).await.fails(404, "NotFound");
    server.post(CRDS, definition("foos", "Foo", schema(json!(100)), json!({}))).await.expect(201);
    // A change of what is there is judged as well.
    let bound =
        json!([{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/list/maxItems"}]);
    let path = format!("{CRDS}/foos.x.io");
    let here = server.get(&path).await.expect(200);
    let pointer = bound[0]["path"].as_str().unwrap();
    assert!(here.pointer(pointer).is_some(), "{here}");
    let refused = server.patch(&path, JSON_PATCH, bound).await;
    assert!(refused.fails(422, "Invalid").contains("estimated rule cost exceeds budget"), "{refused:?}");
}
