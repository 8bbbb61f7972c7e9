//! CertificateSigningRequests, from asking to a certificate that opens the door.

use base64::{Engine, engine::general_purpose::STANDARD};
use remuda_auth::{identity::User, pki::certificate::client_user};
use serde_json::{Value, json};

use crate::harness::*;

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

fn pem(name: &str, group: Option<&str>) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    if let Some(group) = group {
        params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
    }
    params.serialize_request(&key).unwrap().pem().unwrap()
}

fn request(name: &str, pem: &str) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": STANDARD.encode(pem), "signerName": CLIENT, "usages": ["client auth"], "expirationSeconds": 3600,
            "username": "forged", "groups": ["forged"]}})
}

fn verdict(kind: &str) -> Value {
    json!([{"type": kind, "status": "True", "reason": "Test", "message": "because"}])
}

async fn allow(server: &Server, who: &str, rules: Value) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": who}, "rules": rules});
    server.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await.expect(201);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": who},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": who},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": who}]});
    server.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.expect(201);
}

#[tokio::test]
async fn an_approved_request_gets_a_certificate_of_its_subject() {
    let server = Server::start().await;
    allow(&server, "ann", json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create", "get"]}])).await;
    let ann = server.by(User::new("ann", ["devs", "system:authenticated"]));
    let made = ann.post(CSRS, request("r", &pem("ann-laptop", Some("devs")))).await.expect(201);
    assert_eq!(made["spec"]["username"], "ann");
    assert_eq!(made["spec"]["groups"], json!(["devs", "system:authenticated"]));
    assert_eq!(made["status"].as_object().map(serde_json::Map::len).unwrap_or(0), 0);
    let mut approved = made.clone();
    approved["status"]["conditions"] = verdict("Approved");
    approved["spec"]["usages"] = json!(["server auth"]);
    approved["status"]["certificate"] = STANDARD.encode("forged").into();
    let approved = server.put(&format!("{CSRS}/r/approval"), approved).await.expect(200);
    assert_eq!(approved["spec"], made["spec"]);
    assert_eq!(approved["status"]["certificate"], Value::Null);
    assert!(approved["status"]["conditions"][0]["lastUpdateTime"].is_string());
    let signed =
        server.until(&format!("{CSRS}/r"), |answer| answer.body["status"]["certificate"].is_string()).await;
    let pem = STANDARD.decode(signed.body["status"]["certificate"].as_str().unwrap()).unwrap();
    let der = rustls_der(&pem);
    let user = client_user(&der).unwrap();
    assert_eq!((user.name.as_str(), user.in_group("devs")), ("ann-laptop", true));
}

fn rustls_der(pem: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(pem).unwrap();
    let body: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
    STANDARD.decode(body).unwrap()
}

#[tokio::test]
async fn whoever_approves_may_note_why() {
    let server = Server::quiet().await;
    server.post(CSRS, request("r", &pem("x", None))).await.expect(201);
    let patch = json!({"metadata": {"annotations": {"why": "known laptop"}, "labels": {"a": "b"}},
        "spec": {"signerName": "other.io/x"}, "status": {"conditions": verdict("Approved")}});
    let path = format!("{CSRS}/r/approval");
    let approved = server.patch(&path, MERGE_PATCH, patch).await.expect(200);
    assert_eq!(approved["metadata"]["annotations"], json!({"why": "known laptop"}));
    assert_eq!(approved["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(approved["spec"]["signerName"], CLIENT);
    let mut plain = approved.clone();
    plain["metadata"].as_object_mut().unwrap().remove("annotations");
    let plain = server.put(&path, plain).await.expect(200);
    assert_eq!(
        (&plain["metadata"]["annotations"], &plain["metadata"]["labels"]),
        (&Value::Null, &json!({"a": "b"}))
    );
}

#[tokio::test]
async fn a_denied_request_gets_nothing() {
    let server = Server::start().await;
    server.post(CSRS, request("r", &pem("x", None))).await.expect(201);
    let patch = json!({"status": {"conditions": verdict("Denied")}});
    server.patch(&format!("{CSRS}/r/approval"), MERGE_PATCH, patch).await.expect(200);
    let both = json!([{"op": "add", "path": "/status/conditions/-", "value": verdict("Approved")[0]}]);
    let message = server.patch(&format!("{CSRS}/r/approval"), JSON_PATCH, both).await.fails(422, "Invalid");
    assert!(message.contains("Approved and Denied conditions are mutually exclusive"), "{message}");
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(server.get(&format!("{CSRS}/r")).await.expect(200)["status"]["certificate"], Value::Null);
}

#[tokio::test]
async fn approving_and_signing_need_permission_on_the_signer() {
    let server = Server::start().await;
    let base = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/approval", "certificatesigningrequests/status"], "verbs": ["update", "patch"]});
    allow(&server, "clerk", json!([base])).await;
    let approve = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["kubernetes.io/*"], "verbs": ["approve"]});
    allow(&server, "officer", json!([base, approve])).await;
    let sign = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["test.io/own"], "verbs": ["sign"]});
    allow(&server, "signer", json!([base, sign])).await;
    server.post(CSRS, request("r", &pem("x", None))).await.expect(201);
    let mut own = request("own", &pem("x", None));
    own["spec"]["signerName"] = "test.io/own".into();
    server.post(CSRS, own).await.expect(201);
    let patch = json!({"status": {"conditions": verdict("Approved")}});
    let message = server
        .by(somebody("clerk"))
        .patch(&format!("{CSRS}/r/approval"), MERGE_PATCH, patch.clone())
        .await
        .fails(403, "Forbidden");
    assert_eq!(
        message,
        format!(
            "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to approve requests with signerName {CLIENT:?}"
        )
    );
    server
        .by(somebody("officer"))
        .patch(&format!("{CSRS}/own/approval"), MERGE_PATCH, patch.clone())
        .await
        .fails(403, "Forbidden");
    server
        .by(somebody("officer"))
        .patch(&format!("{CSRS}/r/approval"), MERGE_PATCH, patch.clone())
        .await
        .expect(200);
    server.patch(&format!("{CSRS}/own/approval"), MERGE_PATCH, patch).await.expect(200);

    let certificate = rcgen::generate_simple_self_signed(vec!["x".to_owned()]).unwrap().cert.pem();
    let issue = json!({"status": {"certificate": STANDARD.encode(certificate)}});
    let message = server
        .by(somebody("officer"))
        .patch(&format!("{CSRS}/own/status"), MERGE_PATCH, issue.clone())
        .await
        .fails(403, "Forbidden");
    assert!(
        message.ends_with("user not permitted to sign requests with signerName \"test.io/own\""),
        "{message}"
    );
    let signed = server
        .by(somebody("signer"))
        .patch(&format!("{CSRS}/own/status"), MERGE_PATCH, issue)
        .await
        .expect(200);
    assert_eq!(signed["status"]["conditions"][0]["type"], "Approved");
    // A signer does not approve.
    server
        .post(CSRS, {
            let mut own = request("own2", &pem("x", None));
            own["spec"]["signerName"] = "test.io/own".into();
            own
        })
        .await
        .expect(201);
    let verdict = json!({"status": {"conditions": verdict("Approved")}});
    let kept =
        server.by(somebody("signer")).patch(&format!("{CSRS}/own2/status"), MERGE_PATCH, verdict).await;
    assert!(kept.code == 200 || kept.code == 422, "{kept:?}");
    let after = server.get(&format!("{CSRS}/own2")).await.expect(200);
    assert!(after["status"]["conditions"].as_array().is_none_or(Vec::is_empty), "{after}");
}

#[tokio::test]
async fn nobody_asks_to_become_an_administrator() {
    let server = Server::start().await;
    let message =
        server.post(CSRS, request("r", &pem("x", Some("system:masters")))).await.fails(403, "Forbidden");
    assert!(
        message.ends_with(
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
        ),
        "{message}"
    );
    let mut junk = request("junk", "junk");
    junk["spec"]["request"] = STANDARD.encode("junk").into();
    server.post(CSRS, junk).await.fails(422, "Invalid");
}

#[tokio::test]
async fn a_request_that_cannot_be_signed_says_so() {
    let server = Server::start().await;
    let mut odd = request("odd", &pem("x", None));
    odd["spec"]["usages"] = json!(["server auth"]);
    server.post(CSRS, odd).await.expect(201);
    server
        .patch(
            &format!("{CSRS}/odd/approval"),
            MERGE_PATCH,
            json!({"status": {"conditions": verdict("Approved")}}),
        )
        .await
        .expect(200);
    let failed = server
        .until(&format!("{CSRS}/odd"), |answer| {
            answer.body["status"]["conditions"].as_array().is_some_and(|list| list.len() == 2)
        })
        .await;
    assert_eq!(failed.body["status"]["conditions"][1]["type"], "Failed");
}
