//! The admission chain: every verb takes it, and what webhooks say arrives as they said it.

use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa};
use serde_json::{Value, json};

use crate::{
    harness::*,
    hooks::{Webhook, patch},
    webhooks::{MUTATING, VALIDATING, hook, install},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// A webhook for one resource of a group, wherever it is and whatever its labels.
fn on(webhook: &Webhook, group: &str, resource: &str) -> Value {
    let rules = json!({"rules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": ["*"]}],
        "objectSelector": {}, "namespaceSelector": {}});
    hook("v.test.io", webhook.client_config(), rules)
}

/// The same under another name: those of one configuration are unique.
fn also_on(webhook: &Webhook, group: &str, resource: &str) -> Value {
    let mut hook = on(webhook, group, resource);
    hook["name"] = "w.test.io".into();
    hook
}

/// A policy that refuses everything of one resource.
async fn forbid(server: &Server, group: &str, resource: &str) {
    let base = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": ["*"]}]},
            "validations": [{"expression": "false", "message": "never"}]}});
    server.post(&format!("{base}/validatingadmissionpolicies"), policy).await.expect(201);
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    server.post(&format!("{base}/validatingadmissionpolicybindings"), binding).await.expect(201);
}

async fn pod(server: &Server, name: &str) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    server.post(PODS, pod).await.expect(201);
}

#[tokio::test]
async fn webhooks_and_policies_see_requests_for_tokens() {
    let server = Server::start().await;
    server.until(&format!("{ACCOUNTS}/default"), |answer| answer.code == 200).await;
    let webhook = Webhook::start(|request| {
        json!({"allowed": request["object"]["spec"]["expirationSeconds"] != 1000, "status": {"code": 403, "message": "short"}})
    })
    .await;
    install(&server, VALIDATING, "v", &[on(&webhook, "", "serviceaccounts/token")]).await;
    let path = format!("{ACCOUNTS}/default/token");
    server.post(&path, json!({"spec": {"expirationSeconds": 3600}})).await.expect(201);
    let request = webhook.asked().remove(0);
    assert_eq!(
        request["kind"],
        json!({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"})
    );
    assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "serviceaccounts"}));
    let told = [&request["operation"], &request["subResource"], &request["name"], &request["namespace"]];
    assert_eq!(told, [&json!("CREATE"), &json!("token"), &json!("default"), &json!("default")]);
    assert_eq!(request["object"]["apiVersion"], "authentication.k8s.io/v1");
    assert_eq!(request["object"]["spec"]["audiences"], json!(["https://kubernetes.default.svc"]));
    assert_eq!(request["options"]["kind"], "CreateOptions");
    let refused = server.post(&path, json!({"spec": {"expirationSeconds": 1000}})).await;
    assert_eq!(refused.body["message"], "admission webhook \"v.test.io\" denied the request: short");
    refused.expect(403);
    server.delete(&format!("{VALIDATING}/v")).await.expect(200);
    forbid(&server, "", "serviceaccounts/token").await;
    let message = server.post(&path, json!({"spec": {}})).await.fails(422, "Invalid");
    assert!(message.contains("denied request: never"), "{message}");
}

#[tokio::test]
async fn webhooks_change_requests_for_tokens() {
    let server = Server::start().await;
    server.until(&format!("{ACCOUNTS}/default"), |answer| answer.code == 200).await;
    let webhook =
        Webhook::start(|_| patch(json!([{"op": "add", "path": "/spec/audiences", "value": ["theirs"]}])))
            .await;
    install(&server, MUTATING, "m", &[on(&webhook, "", "serviceaccounts/token")]).await;
    let made = server.post(&format!("{ACCOUNTS}/default/token"), json!({"spec": {}})).await.expect(201);
    assert_eq!(made["spec"]["audiences"], json!(["theirs"]));
}

#[tokio::test]
async fn webhooks_see_reviews_and_policies_do_not() {
    let server = Server::start().await;
    let webhook =
        Webhook::start(|request| json!({"allowed": request["object"]["spec"]["token"] != "bad"})).await;
    let hooks = [on(&webhook, "authentication.k8s.io", "*"), also_on(&webhook, "authorization.k8s.io", "*")];
    install(&server, VALIDATING, "v", &hooks).await;
    forbid(&server, "*", "*").await;
    let review = |token: &str| json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    server.post(path, review("x")).await.expect(201);
    let request = webhook.asked().remove(0);
    assert_eq!((&request["operation"], &request["kind"]["kind"]), (&json!("CREATE"), &json!("TokenReview")));
    server.post(path, review("bad")).await.expect(400);
    let access = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    server.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", access).await.expect(201);
    assert_eq!(webhook.asked().last().unwrap()["kind"]["kind"], "SelfSubjectAccessReview");
}

#[tokio::test]
async fn policies_judge_webhook_configurations_but_not_policies() {
    let server = Server::start().await;
    forbid(&server, "admissionregistration.k8s.io", "*").await;
    let webhook = Webhook::allowing().await;
    let body = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "v"}, "webhooks": [on(&webhook, "", "pods")]});
    server.post(VALIDATING, body).await.fails(422, "Invalid");
    let base = "/apis/admissionregistration.k8s.io/v1";
    server.delete(&format!("{base}/validatingadmissionpolicybindings/b")).await.expect(200);
    server.delete(&format!("{base}/validatingadmissionpolicies/p")).await.expect(200);
}

#[tokio::test]
async fn a_stream_is_a_connect_with_its_parameters_as_the_object() {
    let server = Server::start().await;
    server.until(&format!("{ACCOUNTS}/default"), |answer| answer.code == 200).await;
    pod(&server, "p").await;
    let webhook = Webhook::start(|request| {
        json!({"allowed": request["object"]["command"] != json!(["rm"]), "status": {"code": 403, "message": "no"}})
    })
    .await;
    install(&server, VALIDATING, "v", &[on(&webhook, "", "pods/*"), also_on(&webhook, "", "services/proxy")])
        .await;
    // Nothing runs here, which is only said after admission.
    let exec = format!("{PODS}/p/exec?command=ls&command=-l&container=c&stdin=true");
    server.ask("POST", &exec).send().await.fails(400, "BadRequest");
    let request = webhook.asked().remove(0);
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "PodExecOptions"}));
    let told = [&request["operation"], &request["subResource"], &request["name"], &request["options"]];
    assert_eq!(told, [&json!("CONNECT"), &json!("exec"), &json!("p"), &Value::Null]);
    assert_eq!(
        request["object"],
        json!({"apiVersion": "v1", "kind": "PodExecOptions", "command": ["ls", "-l"], "container": "c", "stdin": true})
    );
    let refused = server.ask("GET", &format!("{PODS}/p/exec?command=rm")).send().await;
    assert_eq!(refused.body["message"], "admission webhook \"v.test.io\" denied the request: no");
    refused.expect(403);
    webhook.asked();
    let streams = [
        (format!("{PODS}/p/attach"), "PodAttachOptions"),
        (format!("{PODS}/p/portforward?ports=80"), "PodPortForwardOptions"),
        (format!("{PODS}/p/proxy/healthz"), "PodProxyOptions"),
        ("/api/v1/namespaces/default/services/kubernetes/proxy/x".to_owned(), "ServiceProxyOptions"),
    ];
    for (path, kind) in streams {
        server.get(&path).await.fails(400, "BadRequest");
        let request = webhook.asked().remove(0);
        assert_eq!((&request["operation"], &request["kind"]["kind"]), (&json!("CONNECT"), &json!(kind)));
    }
    // Reading a log changes nothing and connects to nothing.
    server.get(&format!("{PODS}/p/log")).await;
    assert_eq!(webhook.asked(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_pod_is_bound_by_the_creation_of_a_binding() {
    let server = Server::start().await;
    server.until(&format!("{ACCOUNTS}/default"), |answer| answer.code == 200).await;
    pod(&server, "p").await;
    let webhook =
        Webhook::start(|request| json!({"allowed": request["object"]["target"]["name"] != "bad"})).await;
    install(&server, VALIDATING, "v", &[on(&webhook, "", "pods/binding"), also_on(&webhook, "", "pods")])
        .await;
    let binding = |node: &str| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": node}});
    let path = format!("{PODS}/p/binding");
    server.post(&path, binding("bad")).await.expect(400);
    webhook.asked();
    server.post(&path, binding("n")).await.expect(201);
    let asked = webhook.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0]["kind"], json!({"group": "", "version": "v1", "kind": "Binding"}));
    let told = [&asked[0]["operation"], &asked[0]["subResource"], &asked[0]["name"], &asked[0]["oldObject"]];
    assert_eq!(told, [&json!("CREATE"), &json!("binding"), &json!("p"), &Value::Null]);
    assert_eq!(asked[0]["object"]["target"]["name"], "n");
    assert_eq!(server.get(&format!("{PODS}/p")).await.expect(200)["spec"]["nodeName"], "n");
}

#[tokio::test]
async fn what_a_webhook_says_of_its_refusal_arrives_unchanged() {
    let server = Server::start().await;
    let details = json!({"name": "a", "causes": [{"reason": "X", "message": "y", "field": "spec.z"}], "retryAfterSeconds": 7});
    let status =
        json!({"code": 429, "reason": "EnhanceYourCalm", "message": "slow down", "details": details});
    let webhook = Webhook::start(move |_| json!({"allowed": false, "status": status})).await;
    install(&server, VALIDATING, "v", &[hook("v.test.io", webhook.client_config(), json!({}))]).await;
    let answer = server.post(MAPS, config_map("a", json!({}))).await;
    assert_eq!(answer.header("retry-after"), Some("7"));
    assert_eq!(
        answer.expect(429),
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 429,
            "reason": "EnhanceYourCalm", "details": details,
            "message": "admission webhook \"v.test.io\" denied the request: slow down"})
    );
}

#[tokio::test]
async fn answers_that_are_no_reviews_are_errors() {
    let server = Server::start().await;
    let cases = [
        (
            VALIDATING,
            json!({"allowed": true, "apiVersion": "admission.k8s.io/v1beta1"}),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1beta1, Kind=AdmissionReview",
        ),
        (
            VALIDATING,
            json!({"allowed": true, "kind": "Status", "apiVersion": "v1"}),
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /v1, Kind=Status",
        ),
        (VALIDATING, patch(json!([])), "validating webhook may not return response.patch"),
        (
            MUTATING,
            json!({"allowed": true, "patch": "W10="}),
            "webhook returned response.patch but not response.patchType",
        ),
        (
            MUTATING,
            json!({"allowed": true, "patchType": "JSONPatch"}),
            "webhook returned response.patchType but not response.patch",
        ),
    ];
    for (path, response, cause) in cases {
        let webhook = Webhook::start(move |_| response.clone()).await;
        install(&server, path, "w", &[hook("v.test.io", webhook.client_config(), json!({}))]).await;
        let message = server.post(MAPS, config_map("a", json!({}))).await.fails(500, "InternalError");
        let expected = format!(
            "Internal error occurred: failed calling webhook \"v.test.io\": received invalid webhook response: {cause}"
        );
        assert_eq!(message, expected);
        server.delete(&format!("{path}/w")).await.expect(200);
    }
}

#[tokio::test]
async fn a_certificate_that_is_its_own_authority_is_believed_if_the_bundle_holds_it() {
    let server = Server::start().await;
    let allow = |_: &Value| json!({"allowed": true});
    let ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let webhook = Webhook::start_with(move |params| params.is_ca = ca, allow).await;
    install(&server, VALIDATING, "v", &[hook("v.test.io", webhook.client_config(), json!({}))]).await;
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    server.delete(&format!("{VALIDATING}/v")).await.expect(200);
    // It must still be in its time, for servers, and for this name.
    let old = |params: &mut rcgen::CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    };
    let client = |params: &mut rcgen::CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    };
    let elsewhere = |params: &mut rcgen::CertificateParams| params.subject_alt_names.clear();
    let wrong: [&dyn Fn(&mut rcgen::CertificateParams); 3] = [&old, &client, &elsewhere];
    for spoil in wrong {
        let webhook = Webhook::start_with(
            |params| {
                params.is_ca = ca;
                spoil(params);
            },
            allow,
        )
        .await;
        install(&server, VALIDATING, "v", &[hook("v.test.io", webhook.client_config(), json!({}))]).await;
        let message = server.post(MAPS, config_map("b", json!({}))).await.fails(500, "InternalError");
        assert!(message.contains("certificate"), "{message}");
        server.delete(&format!("{VALIDATING}/v")).await.expect(200);
    }
}
