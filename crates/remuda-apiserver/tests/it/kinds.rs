//! Built-in kinds: defaults, rules of their own, field validation, events, leases.

use serde_json::{Value, json};

use crate::harness::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "registry.x.io/a/b"}]}})
}

#[tokio::test]
async fn component_statuses_say_whether_the_store_is_well() {
    let server = Server::quiet().await;
    let path = "/api/v1/componentstatuses";
    let listed = server.get(path).await;
    assert_eq!(listed.warnings(), ["299 - \"v1 ComponentStatus is deprecated in v1.19+\""]);
    let condition = json!({"type": "Healthy", "status": "True", "message": "ok"});
    assert_eq!(
        listed.expect(200),
        json!({"kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {},
            "items": [{"metadata": {"name": "etcd-0"}, "conditions": [condition]}]})
    );
    let one = server.get(&format!("{path}/etcd-0")).await.expect(200);
    assert_eq!((&one["kind"], &one["conditions"]), (&json!("ComponentStatus"), &json!([condition])));
    let message = server.get(&format!("{path}/scheduler")).await.fails(404, "NotFound");
    assert_eq!(message, "componentstatus \"scheduler\" not found");
    assert_eq!(server.get(&format!("{path}?labelSelector=a%3Db")).await.expect(200)["items"], json!([]));
    let form = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let table = server.ask("GET", path).accept(form).send().await.expect(200);
    assert_eq!(table["rows"][0]["cells"], json!(["etcd-0", "Healthy", "ok", ""]));
    let one = server.ask("GET", &format!("{path}/etcd-0")).accept(form).send().await.expect(200);
    assert_eq!(one["metadata"], json!({}), "what is not stored has no version");
    for (method, path) in [("POST", path), ("DELETE", path), ("PUT", "/api/v1/componentstatuses/etcd-0")] {
        server.ask(method, path).json(&json!({})).send().await.fails(405, "MethodNotAllowed");
    }
    server.get(&format!("{path}?watch=true")).await.fails(405, "MethodNotAllowed");
    server.store.close().await;
    let sick = server.get(path).await.expect(200);
    assert_eq!(sick["items"][0]["conditions"][0]["status"], "False");
}

#[tokio::test]
async fn unknown_and_duplicate_fields_are_reported_as_asked() {
    let server = Server::start().await;
    let body = r#"{"metadata":{"name":"a","bogus":1},"data":{"k":"v"},"data":{"k":"w"},"nope":{"x":1}}"#;
    let ask = |query: &str| {
        let path = format!("{MAPS}?dryRun=All&fieldValidation={query}");
        server.ask("POST", &path).body(JSON, body).send()
    };
    for query in ["", "Warn"] {
        let warned = ask(query).await;
        assert_eq!(
            warned.warnings(),
            [
                r#"299 - "duplicate field \"data\"""#,
                r#"299 - "unknown field \"metadata.bogus\"""#,
                r#"299 - "unknown field \"nope\"""#
            ]
        );
        let created = warned.expect(201);
        assert_eq!((&created["data"], created.get("nope")), (&json!({"k": "w"}), None));
    }
    assert!(ask("Ignore").await.warnings().is_empty());
    assert_eq!(
        ask("Strict").await.fails(400, "BadRequest"),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: duplicate field \
         \"data\", unknown field \"metadata.bogus\", unknown field \"nope\""
    );
    let yaml = "metadata:\n  name: a\ndata:\n  k: v\n  k: w\n";
    let path = format!("{MAPS}?dryRun=All&fieldValidation=Strict");
    let message = server.ask("POST", &path).body(YAML, yaml).send().await.fails(400, "BadRequest");
    assert!(message.ends_with("strict decoding error: duplicate field \"data.k\""), "{message}");
    let ports = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80, "x": 1}]}});
    let answer = server.post("/api/v1/namespaces/default/services?dryRun=All", ports).await;
    assert_eq!(answer.warnings(), [r#"299 - "unknown field \"spec.ports[0].x\"""#]);
    server.post(MAPS, config_map("a", json!({"k": "v"}))).await.expect(201);
    let answer = server.patch(&format!("{MAPS}/a"), MERGE_PATCH, json!({"bogus": 1})).await;
    assert_eq!(answer.warnings(), [r#"299 - "unknown field \"bogus\"""#]);
}

#[tokio::test]
async fn a_flood_of_warnings_is_cut() {
    let server = Server::start().await;
    let mut map = config_map("a", json!({}));
    for n in 0..40_000 {
        map[format!("bogus-{n}")] = json!(1);
    }
    map["x".repeat(5000)] = json!(1);
    let answer = server.post(MAPS, map.clone()).await;
    let warnings = answer.warnings();
    assert!(!warnings.is_empty() && warnings.iter().map(|text| text.len()).sum::<usize>() < 8 << 10);
    assert!(warnings.iter().all(|text| text.len() < 300), "{warnings:?}");
    answer.expect(201);
    let foreign =
        server.post(&format!("{MAPS}?dryRun=All"), json!({"metadata": {"name": "b"}, "größe": 1})).await;
    let warning = foreign.headers.get("warning").unwrap().as_bytes();
    assert_eq!(warning, "299 - \"unknown field \\\"größe\\\"\"".as_bytes());
    let old = server.get("/api/v1/namespaces/default/endpoints").await;
    let text = "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"";
    assert_eq!(old.warnings(), [text]);
    server.put(&format!("{MAPS}/a?fieldValidation=Strict"), map).await.fails(400, "BadRequest");
}

#[tokio::test]
async fn secrets_have_a_type_and_keep_to_it() {
    let server = Server::start().await;
    let secret = json!({"metadata": {"name": "a"}, "stringData": {"k": "v"}, "data": {"l": "dw=="}});
    let created = server.post(SECRETS, secret).await.expect(201);
    assert_eq!(created["type"], "Opaque");
    assert_eq!(created["data"], json!({"k": "dg==", "l": "dw=="}));
    assert!(created.get("stringData").is_none());
    let a = format!("{SECRETS}/a");
    let message = server.patch(&a, MERGE_PATCH, json!({"type": "x.io/y"})).await.fails(422, "Invalid");
    assert!(message.contains("type: Invalid value: \"x.io/y\": field is immutable"), "{message}");
    let patched = server.patch(&a, MERGE_PATCH, json!({"stringData": {"m": "x"}})).await.expect(200);
    assert_eq!(patched["data"]["m"], "eA==");
    for (secret, expected) in [
        (json!({"type": "kubernetes.io/tls"}), "data[tls.crt]: Required value"),
        (json!({"type": "kubernetes.io/dockerconfigjson"}), "data[.dockerconfigjson]: Required value"),
        (
            json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}}),
            "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\"",
        ),
        (json!({"type": "kubernetes.io/basic-auth"}), "data[username]: Required value"),
        (json!({"type": "kubernetes.io/ssh-auth"}), "data[ssh-privatekey]: Required value"),
        (
            json!({"type": "kubernetes.io/service-account-token"}),
            "metadata.annotations[kubernetes.io/service-account.name]: Required value",
        ),
        (json!({"data": {"a/b": "eA=="}}), "data[a/b]: Invalid value: \"a/b\""),
        (
            json!({"stringData": {"k": "x".repeat((1 << 20) + 1)}}),
            "Too long: may not be more than 1048576 bytes",
        ),
    ] {
        let mut secret = secret;
        secret["metadata"] = json!({"name": "b"});
        let message = server.post(SECRETS, secret).await.fails(422, "Invalid");
        assert!(message.contains(expected), "{message}\n instead of {expected}");
    }
}

#[tokio::test]
async fn what_is_immutable_stays() {
    let server = Server::start().await;
    for path in [MAPS, SECRETS] {
        let object = json!({"metadata": {"name": "i"}, "data": {"k": "eA=="}, "immutable": true});
        server.post(path, object).await.expect(201);
        let i = format!("{path}/i");
        for patch in [json!({"data": {"k": "eQ=="}}), json!({"immutable": false}), json!({"immutable": null})]
        {
            let message = server.patch(&i, MERGE_PATCH, patch).await.fails(422, "Invalid");
            assert!(message.contains("Forbidden: field is immutable when `immutable` is set"), "{message}");
        }
        server.patch(&i, MERGE_PATCH, json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    }
}

#[tokio::test]
async fn workloads_get_their_defaults() {
    let server = Server::start().await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
        {"name": "c", "image": "i:1", "livenessProbe": {"httpGet": {"port": 80}}}],
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}]}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": selector, "template": template}});
    let created = server.post("/apis/apps/v1/namespaces/default/deployments", deployment).await.expect(201);
    let spec = &created["spec"];
    assert_eq!((&spec["replicas"], &spec["revisionHistoryLimit"]), (&json!(1), &json!(10)));
    assert_eq!(spec["progressDeadlineSeconds"], 600);
    assert_eq!(
        spec["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
    );
    let pod_spec = &spec["template"]["spec"];
    let container = &pod_spec["containers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(container["terminationMessagePath"], "/dev/termination-log");
    assert_eq!(container["resources"], json!({}));
    let probe = &container["livenessProbe"];
    assert_eq!(
        (&probe["timeoutSeconds"], &probe["periodSeconds"], &probe["failureThreshold"]),
        (&json!(1), &json!(10), &json!(3))
    );
    assert_eq!(pod_spec["volumes"][0]["secret"]["defaultMode"], 420);
    assert_eq!(pod_spec["terminationGracePeriodSeconds"], 30);
    let d = "/apis/apps/v1/namespaces/default/deployments/d";
    let other = json!({"spec": {"selector": {"matchLabels": {"a": "c"}}}});
    let message = server.patch(d, MERGE_PATCH, other).await.fails(422, "Invalid");
    assert!(message.contains("spec.selector: Invalid value: "), "{message}");
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let created = server.post("/apis/batch/v1/namespaces/default/jobs", job).await.expect(201);
    let uid = created["metadata"]["uid"].clone();
    assert_eq!(created["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"], uid);
    assert_eq!(created["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/controller-uid"], uid);
    assert_eq!((&created["spec"]["backoffLimit"], &created["spec"]["completions"]), (&json!(6), &json!(1)));
}

#[tokio::test]
async fn cron_jobs_leave_room_for_the_names_of_their_jobs() {
    let server = Server::start().await;
    let cron = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template":
            {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}})
    };
    let path = "/apis/batch/v1/namespaces/default/cronjobs";
    server.post(path, cron(&"a".repeat(52))).await.expect(201);
    let message = server.post(path, cron(&"a".repeat(53))).await.fails(422, "Invalid");
    assert!(message.contains("metadata.name: Invalid value: "), "{message}");
    assert!(message.ends_with("must be no more than 52 characters"), "{message}");
}

#[tokio::test]
async fn services_get_addresses_and_keep_them() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/default/services";
    let created = server
        .post(path, json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}))
        .await
        .expect(201);
    let spec = &created["spec"];
    assert_eq!((&spec["type"], &spec["sessionAffinity"]), (&json!("ClusterIP"), &json!("None")));
    assert_eq!(spec["ports"][0], json!({"port": 80, "protocol": "TCP", "targetPort": 80}));
    let address = spec["clusterIP"].as_str().unwrap();
    assert_eq!(spec["clusterIPs"], json!([address]));
    assert!(address.starts_with("10."), "{address}");
    let message = server
        .patch(
            &format!("{path}/s"),
            MERGE_PATCH,
            json!({"spec": {"clusterIP": "10.96.7.7", "clusterIPs": ["10.96.7.7"]}}),
        )
        .await
        .fails(422, "Invalid");
    assert!(
        message.contains("spec.clusterIPs[0]: Invalid value: ")
            && message.contains("may not change once set"),
        "{message}"
    );
    let headless = json!({"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}});
    assert_eq!(server.post(path, headless).await.expect(201)["spec"]["clusterIP"], "None");
    server
        .post(path, json!({"metadata": {"name": "1s"}, "spec": {"ports": [{"port": 80}]}}))
        .await
        .fails(422, "Invalid");
    // A PUT that leaves the address out keeps it.
    let put = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 81}]}});
    let kept = server.put(&format!("{path}/s"), put).await.expect(200);
    assert_eq!(kept["spec"]["clusterIP"], address);
    assert_eq!(
        server
            .put(&format!("{path}/p"), json!({"metadata": {"name": "p"}, "spec": {"ports": [{"port": 81}]}}))
            .await
            .code,
        201
    );
}

#[tokio::test]
async fn pods_are_admitted_with_an_account_tolerations_and_a_token() {
    let server = Server::start().await;
    server.until("/api/v1/namespaces/default/serviceaccounts/default", |answer| answer.code == 200).await;
    let created = server.post(PODS, pod("p")).await.expect(201);
    let spec = &created["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    assert_eq!((&spec["priority"], &spec["preemptionPolicy"]), (&json!(0), &json!("PreemptLowerPriority")));
    let tolerations: Vec<&str> =
        spec["tolerations"].as_array().unwrap().iter().map(|t| t["key"].as_str().unwrap()).collect();
    assert_eq!(tolerations, ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
    assert_eq!(spec["tolerations"][0]["tolerationSeconds"], 300);
    let volume = &spec["volumes"][0];
    assert!(volume["name"].as_str().unwrap().starts_with("kube-api-access-"), "{volume}");
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!(mount["name"], volume["name"]);
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    assert_eq!(spec["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(
        (&created["status"]["phase"], &created["status"]["qosClass"]),
        (&json!("Pending"), &json!("BestEffort"))
    );
    assert_eq!(created["metadata"]["generation"], 1);
    let mut other = pod("q");
    other["spec"]["serviceAccountName"] = json!("nobody");
    assert_eq!(
        server.post(PODS, other).await.fails(403, "Forbidden"),
        "pods \"q\" is forbidden: error looking up service account default/nobody: serviceaccount \"nobody\" not found"
    );
    // An account, or the pod itself, may refuse the token.
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    server
        .post(accounts, json!({"metadata": {"name": "shy"}, "automountServiceAccountToken": false}))
        .await
        .expect(201);
    let mut shy = pod("shy");
    shy["spec"]["serviceAccountName"] = json!("shy");
    assert!(server.post(PODS, shy).await.expect(201)["spec"].get("volumes").is_none());
    let mut own = pod("own");
    own["spec"]["automountServiceAccountToken"] = json!(false);
    assert!(server.post(PODS, own).await.expect(201)["spec"].get("volumes").is_none());
    let message = server
        .patch(&format!("{PODS}/p"), MERGE_PATCH, json!({"spec": {"nodeName": "n"}}))
        .await
        .fails(422, "Invalid");
    assert!(message.contains("pod updates may not change fields other than"), "{message}");
    // Priorities come from their classes.
    let mut critical = pod("critical");
    critical["spec"]["priorityClassName"] = json!("system-node-critical");
    assert_eq!(server.post(PODS, critical).await.expect(201)["spec"]["priority"], 2_000_001_000);
    let mut unknown = pod("unknown");
    unknown["spec"]["priorityClassName"] = json!("nope");
    let message = server.post(PODS, unknown).await.fails(403, "Forbidden");
    assert_eq!(message, "pods \"unknown\" is forbidden: no PriorityClass with name nope was found");
}

#[tokio::test]
async fn leases_keep_their_microseconds() {
    let server = Server::start().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let spec = json!({"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2026-11-15T18:07:58.123456Z", "renewTime": "2026-11-15T18:07:58.000000Z"});
    let created = server.post(leases, json!({"metadata": {"name": "l"}, "spec": spec})).await.expect(201);
    assert_eq!(created["spec"], spec);
    for time in ["2026-11-15T18:07:58Z", "2026-11-15T18:07:58.1Z", "yesterday"] {
        let lease = json!({"metadata": {"name": "m"}, "spec": {"renewTime": time}});
        let message = server.post(leases, lease).await.fails(400, "BadRequest");
        assert!(message.contains("parsing time"), "{message}");
    }
    let mut renewed = created.clone();
    renewed["spec"]["renewTime"] = json!("2026-11-15T18:08:00.500000Z");
    let l = format!("{leases}/l");
    server.put(&l, renewed.clone()).await.expect(200);
    server.put(&l, renewed).await.fails(409, "Conflict");
}

#[tokio::test]
async fn events_are_one_thing_with_two_faces() {
    let server = Server::start().await;
    let old = "/api/v1/namespaces/default/events";
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e.1"}, "reason": "Why", "message": "because", "type": "Normal", "count": 1,
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "source": {"component": "me"}, "firstTimestamp": "2026-11-15T18:07:58Z", "lastTimestamp": "2026-11-15T18:07:58Z"});
    server.post(old, event).await.expect(201);
    let seen = server.get(&format!("{new}/e.1")).await.expect(200);
    assert_eq!((&seen["apiVersion"], &seen["note"]), (&json!("events.k8s.io/v1"), &json!("because")));
    assert_eq!((&seen["regarding"]["name"], &seen["deprecatedCount"]), (&json!("p"), &json!(1)));
    assert_eq!(seen["deprecatedSource"], json!({"component": "me"}));
    assert!(seen.get("involvedObject").is_none() && seen.get("message").is_none());
    // A repeat is a patch.
    let patch = json!({"count": 2, "lastTimestamp": "2026-11-15T18:08:58Z"});
    assert_eq!(server.patch(&format!("{old}/e.1"), STRATEGIC_PATCH, patch).await.expect(200)["count"], 2);
    server.patch(&format!("{old}/none"), STRATEGIC_PATCH, json!({"count": 2})).await.fails(404, "NotFound");

    let event = json!({"metadata": {"name": "n.1"}, "eventTime": "2026-11-15T18:07:58.123456Z", "reason": "Why",
        "note": "because", "type": "Normal", "action": "Doing", "reportingController": "x.io/me",
        "reportingInstance": "me-1", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}});
    server.post(new, event.clone()).await.expect(201);
    let seen = server.get(&format!("{old}/n.1")).await.expect(200);
    assert_eq!((&seen["message"], &seen["reportingComponent"]), (&json!("because"), &json!("x.io/me")));
    assert_eq!(seen["eventTime"], "2026-11-15T18:07:58.123456Z");
    assert_eq!(names(&server.get(old).await.expect(200)), names(&server.get(new).await.expect(200)));
    let mut watch = server.watch(&format!("{new}?fieldSelector=metadata.name%3Dn.1")).await;
    assert_eq!(watch.expect("ADDED").await["note"], "because");
    for missing in ["eventTime", "reason", "action", "type", "reportingController", "reportingInstance"] {
        let mut bad = event.clone();
        bad["metadata"]["name"] = json!("bad");
        bad.as_object_mut().unwrap().remove(missing);
        let message = server.post(new, bad).await.fails(422, "Invalid");
        assert!(message.contains(missing), "{missing}: {message}");
    }
    let mut elsewhere = json!({"metadata": {"name": "x"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "other"}});
    let message = server.post(old, elsewhere.clone()).await.fails(422, "Invalid");
    assert!(
        message
            .contains("involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"),
        "{message}"
    );
    elsewhere["involvedObject"] = json!({"kind": "Node", "name": "n"});
    server.post(old, elsewhere).await.expect(201);
}

#[tokio::test]
async fn bindings_keep_their_role_and_roles_their_rules() {
    let server = Server::start().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let binding = json!({"metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "u"},
        {"kind": "ServiceAccount", "name": "s", "namespace": "d"}], "roleRef": {"kind": "ClusterRole", "name": "view"}});
    let created = server.post(&format!("{rbac}/clusterrolebindings"), binding).await.expect(201);
    assert_eq!(created["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io");
    assert!(created["subjects"][1].get("apiGroup").is_none());
    assert_eq!(created["roleRef"]["apiGroup"], "rbac.authorization.k8s.io");
    let message = server
        .patch(&format!("{rbac}/clusterrolebindings/b"), MERGE_PATCH, json!({"roleRef": {"name": "edit"}}))
        .await
        .fails(422, "Invalid");
    assert!(
        message.contains("roleRef: Invalid value: ") && message.contains("cannot change roleRef"),
        "{message}"
    );
    for (path, rule) in [
        ("namespaces/default/roles", json!({"apiGroups": [""], "resources": ["pods"]})),
        ("namespaces/default/roles", json!({"verbs": ["get"], "resources": ["pods"]})),
        ("namespaces/default/roles", json!({"verbs": ["get"], "nonResourceURLs": ["/x"]})),
        ("clusterroles", json!({"verbs": ["get"], "apiGroups": [""]})),
    ] {
        let role = json!({"metadata": {"name": "r"}, "rules": [rule]});
        server.post(&format!("{rbac}/{path}"), role).await.fails(422, "Invalid");
    }
    server
        .post(&format!("{rbac}/clusterroles"), json!({"metadata": {"name": "x:y.Z"}, "rules": []}))
        .await
        .expect(201);
    server
        .post(&format!("{rbac}/clusterroles"), json!({"metadata": {"name": "x/y"}, "rules": []}))
        .await
        .fails(422, "Invalid");
}

#[tokio::test]
async fn subresources_do_what_they_are_for() {
    let server = Server::start().await;
    server.until("/api/v1/namespaces/default/serviceaccounts/default", |answer| answer.code == 200).await;
    server.post(PODS, pod("p")).await.expect(201);
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    server.post(&format!("{PODS}/p/binding"), binding).await.expect(201);
    assert_eq!(server.get(&format!("{PODS}/p")).await.expect(200)["spec"]["nodeName"], "n1");
    server.get(&format!("{PODS}/none/log")).await.fails(404, "NotFound");
    // There is no process behind a stored pod.
    server.get(&format!("{PODS}/p/log")).await.fails(400, "BadRequest");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let evicted = server.post(&format!("{PODS}/p/eviction"), eviction).await.expect(201);
    assert_eq!((&evicted["kind"], &evicted["status"]), (&json!("Status"), &json!("Success")));
    let going = server.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!(going["metadata"]["deletionGracePeriodSeconds"], 30, "a scheduled pod leaves gracefully");
    server.delete(&format!("{PODS}/p?gracePeriodSeconds=0")).await.expect(200);
    server.get(&format!("{PODS}/p")).await.fails(404, "NotFound");

    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    server.post(deployments, deployment).await.expect(201);
    let scale = server.get(&format!("{deployments}/d/scale")).await.expect(200);
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(1), &json!("a=b")));
    let patched = server
        .patch(&format!("{deployments}/d/scale"), MERGE_PATCH, json!({"spec": {"replicas": 4}}))
        .await
        .expect(200);
    assert_eq!(patched["spec"]["replicas"], 4);
    let mut stale = scale.clone();
    stale["spec"]["replicas"] = json!(7);
    server.put(&format!("{deployments}/d/scale"), stale).await.fails(409, "Conflict");
    assert_eq!(server.get(&format!("{deployments}/d")).await.expect(200)["metadata"]["generation"], 2);
}

#[tokio::test]
async fn tolerations_that_admission_added_need_not_be_repeated() {
    let server = Server::start().await;
    let mut applied = pod("p");
    applied["apiVersion"] = "v1".into();
    applied["kind"] = "Pod".into();
    applied["spec"]["tolerations"] = json!([{"key": "a", "operator": "Exists"}]);
    let path = format!("{PODS}/p");
    let created = server.apply(&path, "m", applied.clone()).await.expect(201);
    assert_eq!(created["spec"]["tolerations"].as_array().unwrap().len(), 3);
    applied["spec"]["containers"][0]["image"] = "other".into();
    let changed = server.apply(&path, "m", applied).await.expect(200);
    assert_eq!(changed["spec"]["tolerations"], created["spec"]["tolerations"]);
    assert_eq!(changed["spec"]["containers"][0]["image"], "other");
}

#[tokio::test]
async fn a_job_has_the_labels_of_its_pods_from_the_start() {
    let server = Server::start().await;
    let path = "/apis/batch/v1/namespaces/default/jobs";
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let body = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    let created = server.post(path, body).await.expect(201);
    assert_eq!(created["metadata"]["labels"], created["spec"]["template"]["metadata"]["labels"]);
    assert_eq!(created["metadata"]["labels"]["job-name"], "j");
    let suspend = json!({"spec": {"suspend": true}});
    let changed = server.patch(&format!("{path}/j?fieldManager=m"), MERGE_PATCH, suspend).await.expect(200);
    assert_eq!(changed["metadata"]["labels"], created["metadata"]["labels"]);
    let fields = changed["metadata"]["managedFields"].to_string();
    assert!(!fields.contains("f:labels"), "{fields}");
}

#[tokio::test]
async fn labels_that_hold_the_name_hold_a_generated_one_too() {
    let server = Server::start().await;
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"metadata": {"generateName": "j-"}, "spec": {"template": template}});
    let job = server.post("/apis/batch/v1/namespaces/default/jobs", job).await.expect(201);
    let name = job["metadata"]["name"].clone();
    assert!(name.as_str().unwrap().len() == 7, "{name}");
    assert_eq!(job["spec"]["template"]["metadata"]["labels"]["job-name"], name);
    assert_eq!(job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]);
    let namespace = json!({"metadata": {"generateName": "n-"}});
    let namespace = server.post("/api/v1/namespaces", namespace).await.expect(201);
    let labels = json!({"kubernetes.io/metadata.name": namespace["metadata"]["name"]});
    assert_eq!(namespace["metadata"]["labels"], labels);
}

#[tokio::test]
async fn ephemeral_containers_are_only_ever_added_and_only_by_their_subresource() {
    let server = Server::start().await;
    server.post(PODS, pod("p")).await.expect(201);
    let path = format!("{PODS}/p");
    let debug =
        |name: &str, image: &str| json!({"spec": {"ephemeralContainers": [{"name": name, "image": image}]}});
    let refused = server.patch(&path, STRATEGIC_PATCH, debug("d", "i")).await.fails(422, "Invalid");
    assert!(refused.contains("pod updates may not change fields other than"), "{refused}");
    let sub = format!("{path}/ephemeralcontainers");
    server.patch(&sub, STRATEGIC_PATCH, debug("d", "i")).await.expect(200);
    assert_eq!(
        server.patch(&sub, STRATEGIC_PATCH, debug("d", "other")).await.fails(422, "Invalid"),
        "Pod \"p\" is invalid: spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may \
         not be changed"
    );
    server.patch(&sub, MERGE_PATCH, debug("e", "i")).await.fails(422, "Invalid");
    let both = server.patch(&sub, STRATEGIC_PATCH, debug("e", "i")).await.expect(200);
    assert_eq!(both["spec"]["ephemeralContainers"].as_array().unwrap().len(), 2);
    // Whoever sends the pod back as it is may still change what may change.
    let image = json!({"spec": {"containers": [{"name": "c", "image": "other"}]}});
    server.patch(&path, STRATEGIC_PATCH, image).await.expect(200);
}

#[tokio::test]
async fn an_api_service_of_another_server_does_not_pretend_to_be_available() {
    let server = Server::start().await;
    let path = "/apis/apiregistration.k8s.io/v1/apiservices";
    let spec = json!({"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "service": {"namespace": "kube-system", "name": "metrics-server"}, "insecureSkipTLSVerify": true});
    let object = json!({"metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": spec});
    let made = server.post(path, object).await;
    assert!(made.warnings()[0].contains("does not pass requests on"), "{:?}", made.warnings());
    let condition = made.expect(201)["status"]["conditions"][0].clone();
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Available"), &json!("False")));
    assert_eq!(condition["reason"], "NotProxied");
    let local = server.until(&format!("{path}/v1.apps"), |answer| answer.code == 200).await;
    assert_eq!(local.body["status"]["conditions"][0]["reason"], "Local");
}
