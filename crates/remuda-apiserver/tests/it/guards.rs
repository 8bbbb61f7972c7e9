//! Evictions and their budgets, bindings, the audit log, and fair shares.

use std::{io::Write, sync::Arc, time::Duration};

use parking_lot::Mutex;
use remuda_apiserver::{AuditLog, Login, Peer, PeerCertificate};
use remuda_auth::{audit::policy::AuditPolicy, identity::User, tokens::StaticTokens};
use serde_json::{Value, json};

use crate::{harness::*, hooks::Webhook};

const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn pod(server: &Server, name: &str, phase: &str, ready: bool) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
    server.post(PODS, pod).await.expect(201);
    let status = json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]}});
    server.patch(&format!("{PODS}/{name}/status"), MERGE_PATCH, status).await.expect(200);
}

async fn budget(server: &Server, name: &str) -> String {
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    server.post(BUDGETS, budget).await.expect(201);
    format!("{BUDGETS}/{name}")
}

async fn evict(server: &Server, name: &str) -> Answer {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}});
    server.post(&format!("{PODS}/{name}/eviction"), eviction).await
}

#[tokio::test]
async fn an_eviction_without_a_budget_is_a_delete() {
    let server = Server::start().await;
    pod(&server, "p", "Running", true).await;
    let answer = evict(&server, "p").await.expect(201);
    assert_eq!((&answer["kind"], &answer["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(
        server.get(&format!("{PODS}/p")).await.expect(200)["metadata"]["deletionGracePeriodSeconds"],
        30
    );
    evict(&server, "missing").await.fails(404, "NotFound");
    let foreign = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}});
    server.post(&format!("{PODS}/p/eviction"), foreign).await.fails(400, "BadRequest");
}

#[tokio::test]
async fn a_budget_holds_up_evictions() {
    let server = Server::start().await;
    for name in ["a", "b", "c"] {
        pod(&server, name, "Running", true).await;
    }
    let path = budget(&server, "budget").await;
    // Nobody has said yet what it allows.
    let answer = evict(&server, "a").await;
    assert_eq!(
        answer.fails(429, "TooManyRequests"),
        "Cannot evict pod as it would violate the pod's disruption budget."
    );
    assert_eq!(answer.header("retry-after"), Some("10"));
    assert_eq!(
        answer.body["details"]["causes"],
        json!([{"reason": "DisruptionBudget", "message": "The disruption budget budget is still being processed by the server."}])
    );
    let status = |allowed: i64| {
        json!({"status": {"observedGeneration": 1, "disruptionsAllowed": allowed,
        "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3}})
    };
    server.patch(&format!("{path}/status"), MERGE_PATCH, status(0)).await.expect(200);
    let answer = evict(&server, "a").await;
    answer.fails(429, "TooManyRequests");
    assert_eq!(
        answer.body["details"]["causes"],
        json!([{"reason": "DisruptionBudget", "message": "The disruption budget budget needs 2 healthy pods and has 3 currently"}])
    );
    server.patch(&format!("{path}/status"), MERGE_PATCH, status(1)).await.expect(200);
    evict(&server, "a").await.expect(201);
    let spent = server.get(&path).await.expect(200);
    assert_eq!(spent["status"]["disruptionsAllowed"], 0);
    assert!(spent["status"]["disruptedPods"]["a"].is_string());
    evict(&server, "b").await.fails(429, "TooManyRequests");
    // Asking again for one that is going costs nothing.
    evict(&server, "a").await.expect(201);
    // Nor do pods that are over, or sick while the rest is healthy.
    pod(&server, "over", "Succeeded", false).await;
    evict(&server, "over").await.expect(201);
    pod(&server, "sick", "Running", false).await;
    evict(&server, "sick").await.expect(201);
    budget(&server, "second").await;
    let message = evict(&server, "c").await.fails(500, "InternalError");
    assert_eq!(
        message,
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    );
}

#[tokio::test]
async fn a_dry_run_of_an_eviction_takes_nothing() {
    let server = Server::start().await;
    pod(&server, "a", "Running", true).await;
    let path = budget(&server, "budget").await;
    let status = json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}});
    server.patch(&format!("{path}/status"), MERGE_PATCH, status).await.expect(200);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}, "deleteOptions": {"dryRun": ["All"]}});
    server.post(&format!("{PODS}/a/eviction"), eviction).await.expect(201);
    assert_eq!(server.get(&path).await.expect(200)["status"]["disruptionsAllowed"], 1);
    assert_eq!(
        server.get(&format!("{PODS}/a")).await.expect(200)["metadata"]["deletionTimestamp"],
        Value::Null
    );
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let server = Server::start().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    server.post(PODS, pod).await.expect(201);
    let bind = |node: &str| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    server.post(&format!("{PODS}/p/binding"), bind("")).await.fails(422, "Invalid");
    let answer = server.post(&format!("{PODS}/p/binding"), bind("n1")).await.expect(201);
    assert_eq!(answer["status"], "Success");
    let bound = server.get(&format!("{PODS}/p")).await.expect(200);
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    let message = server.post(&format!("{PODS}/p/binding"), bind("n2")).await.fails(409, "Conflict");
    assert!(message.contains("pod p is already assigned to node \"n1\""), "{message}");
    for sub in ["log", "exec", "attach", "portforward", "proxy"] {
        let there = server.get(&format!("{PODS}/p/{sub}")).await;
        assert!(matches!(there.code, 400 | 501), "{sub}: {there:?}");
        server.get(&format!("{PODS}/missing/{sub}")).await.fails(404, "NotFound");
    }
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn take(&self) -> Vec<Value> {
        let bytes = std::mem::take(&mut *self.0.lock());
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

async fn audited(policy: AuditPolicy) -> (Server, Lines) {
    let lines = Lines::default();
    let sink = lines.clone();
    let server = Server::with(|config| config.audit = Some(AuditLog::new(policy, Box::new(sink)))).await;
    lines.take();
    (server, lines)
}

#[tokio::test]
async fn every_request_leaves_one_line() {
    let (server, lines) = audited(AuditPolicy::default()).await;
    let made = server
        .ask("POST", &format!("{MAPS}?fieldManager=x"))
        .json(&config_map("a", json!({"secret": "value"})))
        .header("user-agent", "tester/1")
        .extension(Peer {
            address: "10.1.2.3:4".parse().unwrap(),
            certificate: PeerCertificate::None,
            login: Login::default(),
        })
        .send()
        .await;
    let id = made.header("audit-id").unwrap().to_owned();
    let line = lines.take();
    assert_eq!(line.len(), 1);
    let line = &line[0];
    assert_eq!((&line["kind"], &line["apiVersion"]), (&json!("Event"), &json!("audit.k8s.io/v1")));
    assert_eq!((&line["level"], &line["stage"]), (&json!("Metadata"), &json!("ResponseComplete")));
    assert_eq!(line["auditID"], id.as_str());
    assert_eq!(line["requestURI"], format!("{MAPS}?fieldManager=x"));
    assert_eq!((&line["verb"], &line["user"]["username"]), (&json!("create"), &json!("admin")));
    assert_eq!(line["sourceIPs"], json!(["10.1.2.3"]));
    assert_eq!(line["userAgent"], "tester/1");
    assert_eq!(line["objectRef"]["resource"], "configmaps");
    assert_eq!(line["objectRef"]["namespace"], "default");
    assert_eq!(line["objectRef"]["apiVersion"], "v1");
    assert_eq!(line["responseStatus"]["code"], 201);
    assert!(line["requestReceivedTimestamp"].is_string() && line["stageTimestamp"].is_string());
    assert_eq!(line["annotations"]["authorization.k8s.io/decision"], "allow");
    assert!(!line.to_string().contains("value"));

    server.by(somebody("ann")).get("/api/v1/secrets").await.fails(403, "Forbidden");
    let line = lines.take().remove(0);
    assert_eq!(line["responseStatus"]["code"], 403);
    assert_eq!(line["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(line["responseStatus"]["reason"], "Forbidden");
    server.ask("GET", "/version").header("impersonate-user", "bob").send().await.expect(200);
    let line = lines.take().remove(0);
    assert_eq!(
        (&line["user"]["username"], &line["impersonatedUser"]["username"]),
        (&json!("admin"), &json!("bob"))
    );
    assert_eq!((&line["verb"], &line["objectRef"]), (&json!("get"), &Value::Null));
    server.outside().ask("GET", "/api").bearer("junk").send().await.fails(401, "Unauthorized");
    let line = lines.take();
    assert_eq!((line.len(), &line[0]["responseStatus"]["code"]), (1, &json!(401)));
    assert_eq!(line[0]["annotations"]["authorization.k8s.io/decision"], Value::Null);
}

#[tokio::test]
async fn bodies_are_kept_where_the_policy_says_and_never_those_of_secrets() {
    let policy = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
        {"level": "None", "users": ["quiet"]},
        {"level": "RequestResponse", "resources": [{"group": "", "resources": ["services"]}]},
        {"level": "Request"}]});
    let (server, lines) = audited(AuditPolicy::parse(&policy).unwrap()).await;
    let pretty =
        "{\n  \"apiVersion\": \"v1\", \"kind\": \"ServiceAccount\",\n \"metadata\": {\"name\": \"robot\"}\n}";
    server
        .ask("POST", "/api/v1/namespaces/default/serviceaccounts")
        .body(JSON, pretty)
        .send()
        .await
        .expect(201);
    assert_eq!(lines.take()[0]["requestObject"]["metadata"]["name"], "robot");
    server.get("/api/v1/namespaces/default/services/kubernetes").await.expect(200);
    assert_eq!(lines.take()[0]["responseObject"]["metadata"]["name"], "kubernetes");
    server.by(User::new("quiet", ["system:masters"])).get("/version").await.expect(200);
    assert_eq!(lines.take().len(), 0);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    server.post("/api/v1/namespaces/default/secrets", secret).await.expect(201);
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    server.post("/api/v1/namespaces/default/serviceaccounts/robot/token", token).await.expect(201);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "hunter2"}});
    server.post("/apis/authentication.k8s.io/v1/tokenreviews", review).await.expect(201);
    let written = lines.take();
    assert_eq!(written.len(), 3);
    for line in written {
        assert_eq!((&line["level"], &line["requestObject"]), (&json!("Metadata"), &Value::Null));
        assert!(!line.to_string().contains("hunter2"));
    }
}

#[tokio::test]
async fn a_flood_of_one_user_does_not_keep_another_out() {
    let server = Server::with(|config| {
        let mut tokens = StaticTokens::default();
        for name in ["flood", "quiet"] {
            tokens.insert(name, User::new(name, ["writers"]));
        }
        config.static_tokens = tokens;
        config.limits.per_user = 1;
        config.limits.queue_per_user = 1;
        config.limits.concurrent_writes = 2;
    })
    .await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "writers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "writers"}]});
    server.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.expect(201);
    let slow = Webhook::start(
        |request| json!({"slow": request["userInfo"]["username"] == "flood", "allowed": true}),
    )
    .await;
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "slow"},
        "webhooks": [{"name": "slow.test.io", "clientConfig": slow.client_config(), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 1, "failurePolicy": "Ignore",
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}]}]});
    server
        .post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", hook)
        .await
        .expect(201);
    let outside = server.outside();
    let write = |who: &str, name: &str| {
        outside.ask("POST", MAPS).bearer(who).json(&config_map(name, json!({}))).send()
    };
    let mut flood = tokio::task::JoinSet::new();
    flood.spawn(write("flood", "a"));
    flood.spawn(write("flood", "b"));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let refused = write("flood", "c").await;
    assert_eq!(refused.fails(429, "TooManyRequests"), "Too many requests, please try again later.");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // Its reads, watches, leases and health have places of their own, and so has everybody else.
    outside.ask("GET", MAPS).bearer("flood").send().await.expect(200);
    outside.ask("GET", &format!("{MAPS}?watch=true")).bearer("flood").stream().await;
    outside.ask("GET", "/readyz").bearer("flood").send().await.expect(200);
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    outside.ask("POST", leases).bearer("flood").json(&lease).send().await.expect(201);
    write("quiet", "d").await.expect(201);
    server.post(MAPS, config_map("e", json!({}))).await.expect(201);
    while let Some(late) = flood.join_next().await {
        late.unwrap().expect(201);
    }
}
