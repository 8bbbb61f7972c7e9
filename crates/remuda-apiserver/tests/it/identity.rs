//! Who is asking: tokens, certificates, impersonation, anonymity.

use std::sync::Arc;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use futures::future::BoxFuture;
use remuda_apiserver::{Peer, PeerCertificate, Remote};
use remuda_auth::{
    identity::{GROUP_CONTROLLERS, User},
    tokens::StaticTokens,
};
use serde_json::{Value, json};

use crate::harness::*;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const ISSUER: &str = "https://kubernetes.default.svc";

fn whoami() -> Value {
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
}

fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
}

fn claims(token: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

async fn who(server: &Server, token: &str) -> Answer {
    server.outside().ask("POST", WHOAMI).bearer(token).json(&whoami()).send().await
}

async fn request_token(server: &Server, spec: Value) -> Answer {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    server.post(&format!("{ACCOUNTS}/robot/token"), request).await
}

async fn review(server: &Server, token: &str, audiences: Value) -> Value {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": audiences}});
    server.post("/apis/authentication.k8s.io/v1/tokenreviews", body).await.expect(201)["status"].clone()
}

#[tokio::test]
async fn without_credentials_only_health_and_version_are_open() {
    let server = Server::start().await;
    let outside = server.outside();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        outside.get(path).await.expect(200);
    }
    let answer = outside.get("/api").await;
    assert_eq!(
        answer.fails(403, "Forbidden"),
        "forbidden: User \"system:anonymous\" cannot get path \"/api\""
    );
    let message = outside.get("/api/v1/namespaces/default/configmaps").await.fails(403, "Forbidden");
    assert_eq!(
        message,
        "configmaps is forbidden: User \"system:anonymous\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    for header in ["Bearer nonsense", "Basic YTpi", "Bearer"] {
        let answer = outside.ask("GET", "/healthz").header("authorization", header).send().await;
        assert_eq!(answer.fails(401, "Unauthorized"), "Unauthorized");
    }
    let closed = Server::with(|config| config.anonymous = false).await.outside();
    closed.get("/version").await.fails(401, "Unauthorized");
}

#[tokio::test]
async fn static_tokens_and_client_certificates_say_who_it_is() {
    let server = Server::with(|config| {
        let mut tokens = StaticTokens::default();
        tokens.insert("opensesame", User::new("ali", ["thieves"]));
        config.static_tokens = tokens;
    })
    .await;
    let info = who(&server, "opensesame").await.expect(201)["status"]["userInfo"].clone();
    assert_eq!(info, json!({"username": "ali", "groups": ["thieves", "system:authenticated"]}));
    let peer =
        |certificate| Peer { address: "10.1.2.3:4".parse().unwrap(), certificate, login: Default::default() };
    let user = User::new("cert", ["ops"]).authenticated();
    let ask = || server.outside().ask("POST", WHOAMI).json(&whoami());
    let answer = ask().extension(peer(PeerCertificate::Verified(Arc::new(user)))).send().await.expect(201);
    assert_eq!(answer["status"]["userInfo"]["username"], "cert");
    ask().extension(peer(PeerCertificate::Rejected)).send().await.fails(401, "Unauthorized");
    ask().extension(peer(PeerCertificate::None)).send().await.fails(403, "Forbidden");
}

#[tokio::test]
async fn a_requested_token_says_who_for_whom_and_how_long() {
    let server = Server::start().await;
    let robot = server.post(ACCOUNTS, account("robot")).await.expect(201);
    let answer = request_token(&server, json!({})).await.expect(201);
    assert_eq!(answer["kind"], "TokenRequest");
    assert_eq!(answer["spec"]["expirationSeconds"], 3600);
    assert_eq!(answer["spec"]["audiences"], json!([ISSUER]));
    assert!(answer["status"]["expirationTimestamp"].is_string());
    let token = answer["status"]["token"].as_str().unwrap();
    let claims = claims(token);
    assert_eq!(claims["iss"], ISSUER);
    assert_eq!(claims["sub"], "system:serviceaccount:default:robot");
    assert_eq!(claims["aud"], json!([ISSUER]));
    assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 3600);
    assert_eq!(claims["nbf"], claims["iat"]);
    assert_eq!(claims["kubernetes.io"]["namespace"], "default");
    assert_eq!(
        claims["kubernetes.io"]["serviceaccount"],
        json!({"name": "robot", "uid": robot["metadata"]["uid"]})
    );
    let info = who(&server, token).await.expect(201)["status"]["userInfo"].clone();
    assert_eq!(info["username"], "system:serviceaccount:default:robot");
    assert_eq!(info["uid"], robot["metadata"]["uid"]);
    assert_eq!(
        info["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"])
    );
    assert_eq!(
        info["extra"]["authentication.kubernetes.io/credential-id"],
        json!([format!("JTI={}", claims["jti"].as_str().unwrap())])
    );
    let short = request_token(&server, json!({"expirationSeconds": 60})).await;
    assert!(short.fails(422, "Invalid").contains("may not specify a duration less than 10 minutes"));
    let long = request_token(&server, json!({"expirationSeconds": (1_i64 << 32) + 1})).await;
    assert!(long.fails(422, "Invalid").contains("may not specify a duration larger than 2^32 seconds"));
    let message = server
        .post(
            &format!("{ACCOUNTS}/nobody/token"),
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
        )
        .await
        .fails(404, "NotFound");
    assert_eq!(message, "serviceaccounts \"nobody\" not found");
}

#[tokio::test]
async fn a_token_ends_with_its_account_even_if_another_takes_the_name() {
    let server = Server::start().await;
    server.post(ACCOUNTS, account("robot")).await.expect(201);
    let token =
        request_token(&server, json!({})).await.expect(201)["status"]["token"].as_str().unwrap().to_owned();
    who(&server, &token).await.expect(201);
    server.delete(&format!("{ACCOUNTS}/robot")).await.expect(200);
    who(&server, &token).await.fails(401, "Unauthorized");
    server.post(ACCOUNTS, account("robot")).await.expect(201);
    who(&server, &token).await.fails(401, "Unauthorized");
}

#[tokio::test]
async fn a_token_for_others_is_not_for_the_api() {
    let server = Server::start().await;
    server.post(ACCOUNTS, account("robot")).await.expect(201);
    let answer = request_token(&server, json!({"audiences": ["vault"]})).await.expect(201);
    let token = answer["status"]["token"].as_str().unwrap();
    who(&server, token).await.fails(401, "Unauthorized");
    let status = review(&server, token, json!(["vault", "other"])).await;
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["audiences"], json!(["vault"]));
    assert_eq!(status["user"]["username"], "system:serviceaccount:default:robot");
    let status = review(&server, token, json!(["other"])).await;
    assert_eq!(status, json!({"user": {}, "error": "invalid bearer token"}));
    let status = review(&server, "junk", json!([])).await;
    assert_eq!(status, json!({"user": {}, "error": "invalid bearer token"}));
}

#[tokio::test]
async fn an_expired_token_is_no_token() {
    static NOW: std::sync::atomic::AtomicI64 = std::sync::atomic::AtomicI64::new(2_000_000_000);
    let server = Server::with(|config| {
        config.clock =
            || jiff::Timestamp::from_second(NOW.load(std::sync::atomic::Ordering::Relaxed)).unwrap();
    })
    .await;
    server.post(ACCOUNTS, account("robot")).await.expect(201);
    let answer = request_token(&server, json!({"expirationSeconds": 600})).await.expect(201);
    let token = answer["status"]["token"].as_str().unwrap();
    who(&server, token).await.expect(201);
    NOW.fetch_add(700, std::sync::atomic::Ordering::Relaxed);
    who(&server, token).await.fails(401, "Unauthorized");
}

#[tokio::test]
async fn a_bound_token_ends_with_what_it_is_bound_to() {
    let server = Server::start().await;
    server.post(ACCOUNTS, account("robot")).await.expect(201);
    server
        .post("/api/v1/nodes", json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}))
        .await
        .expect(201);
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |account: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": account},
        "spec": {"serviceAccountName": account, "nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}})
    };
    server.until(&format!("{ACCOUNTS}/default"), |answer| answer.code == 200).await;
    let made = server.post(pods, pod("robot")).await.expect(201);
    let bind = |kind: &str, name: &str, uid: &Value| json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}});
    let answer = request_token(&server, bind("Pod", "robot", &made["metadata"]["uid"])).await.expect(201);
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(
        claims(&token)["kubernetes.io"]["pod"],
        json!({"name": "robot", "uid": made["metadata"]["uid"]})
    );
    assert_eq!(claims(&token)["kubernetes.io"]["node"]["name"], "n1");
    let extra = who(&server, &token).await.expect(201)["status"]["userInfo"]["extra"].clone();
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["robot"]));
    assert_eq!(extra["authentication.kubernetes.io/node-name"], json!(["n1"]));
    server.delete_with(&format!("{pods}/robot"), json!({"gracePeriodSeconds": 0})).await.expect(200);
    who(&server, &token).await.fails(401, "Unauthorized");

    request_token(&server, bind("Pod", "missing", &Value::Null)).await.fails(404, "NotFound");
    request_token(&server, bind("ConfigMap", "x", &Value::Null)).await.fails(400, "BadRequest");
    server.post(pods, pod("default")).await.expect(201);
    let message = request_token(&server, bind("Pod", "default", &Value::Null)).await.fails(400, "BadRequest");
    assert_eq!(
        message,
        "cannot bind token for serviceaccount \"robot\" to pod running with different serviceaccount name."
    );
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "finalizers": ["x.io/f"]}});
    server.post(SECRETS, secret).await.expect(201);
    request_token(&server, bind("Secret", "s", &json!("other"))).await.fails(409, "Conflict");
    let answer = request_token(&server, bind("Secret", "s", &Value::Null)).await.expect(201);
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    who(&server, &token).await.expect(201);
    server.delete(&format!("{SECRETS}/s")).await.expect(200);
    who(&server, &token).await.fails(401, "Unauthorized");
}

fn token_secret(name: &str, account: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}}})
}

#[tokio::test]
async fn a_token_secret_is_filled_and_is_good_while_it_exists() {
    let server = Server::start().await;
    let robot = server.post(ACCOUNTS, account("robot")).await.expect(201);
    server.post(SECRETS, token_secret("t", "robot")).await.expect(201);
    let path = format!("{SECRETS}/t");
    let filled = server.until(&path, |answer| answer.body["data"]["token"].is_string()).await.body;
    assert_eq!(
        filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"],
        robot["metadata"]["uid"]
    );
    let data = |key: &str| {
        String::from_utf8(STANDARD.decode(filled["data"][key].as_str().unwrap()).unwrap()).unwrap()
    };
    assert_eq!(data("namespace"), "default");
    assert!(data("ca.crt").starts_with("-----BEGIN CERTIFICATE-----"));
    let token = data("token");
    let claims = claims(&token);
    assert_eq!(claims["iss"], "kubernetes/serviceaccount");
    assert_eq!(claims["sub"], "system:serviceaccount:default:robot");
    assert_eq!(claims["kubernetes.io/serviceaccount/secret.name"], "t");
    assert_eq!(claims["kubernetes.io/serviceaccount/service-account.uid"], robot["metadata"]["uid"]);
    assert_eq!(claims["exp"], Value::Null);
    let info = who(&server, &token).await.expect(201);
    assert_eq!(info["status"]["userInfo"]["username"], "system:serviceaccount:default:robot");
    server.delete(&path).await.expect(200);
    who(&server, &token).await.fails(401, "Unauthorized");
}

#[tokio::test]
async fn token_secrets_go_with_their_account_and_do_not_stay_without_one() {
    let server = Server::start().await;
    server.post(ACCOUNTS, account("robot")).await.expect(201);
    server.post(SECRETS, token_secret("t", "robot")).await.expect(201);
    let path = format!("{SECRETS}/t");
    server.until(&path, |answer| answer.body["data"]["token"].is_string()).await;
    server.delete(&format!("{ACCOUNTS}/robot")).await.expect(200);
    server.post(ACCOUNTS, account("robot")).await.expect(201);
    server.until(&path, |answer| answer.code == 404).await;
    server.post(SECRETS, token_secret("homeless", "nobody")).await.expect(201);
    server.until(&format!("{SECRETS}/homeless"), |answer| answer.code == 404).await;
    let mut nameless = token_secret("nameless", "x");
    nameless["metadata"].as_object_mut().unwrap().remove("annotations");
    server.post(SECRETS, nameless).await.fails(422, "Invalid");
}

#[tokio::test]
async fn bootstrap_tokens_work_until_they_expire() {
    let server = Server::start().await;
    let path = "/api/v1/namespaces/kube-system/secrets";
    let secret = |id: &str, expiration: &str| {
        json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "expiration": expiration, "auth-extra-groups": "system:bootstrappers:workers"}})
    };
    server.post(path, secret("abcdef", "2099-01-01T00:00:00Z")).await.expect(201);
    server.post(path, secret("expire", "2020-01-01T00:00:00Z")).await.expect(201);
    let info = who(&server, "abcdef.0123456789abcdef").await.expect(201)["status"]["userInfo"].clone();
    assert_eq!(info["username"], "system:bootstrap:abcdef");
    assert_eq!(
        info["groups"],
        json!(["system:bootstrappers", "system:bootstrappers:workers", "system:authenticated"])
    );
    who(&server, "abcdef.0123456789abcdee").await.fails(401, "Unauthorized");
    who(&server, "expire.0123456789abcdef").await.fails(401, "Unauthorized");
    who(&server, "nosuch.0123456789abcdef").await.fails(401, "Unauthorized");
}

#[tokio::test]
async fn the_issuer_publishes_its_keys() {
    let server = Server::start().await;
    let reader = server.by(User::service_account("default", "x", ""));
    let document = reader.get("/.well-known/openid-configuration").await.expect(200);
    assert_eq!(document["issuer"], ISSUER);
    assert!(document["jwks_uri"].as_str().unwrap().ends_with("/openid/v1/jwks"));
    assert_eq!(document["response_types_supported"], json!(["id_token"]));
    assert_eq!(document["subject_types_supported"], json!(["public"]));
    let keys = reader.get("/openid/v1/jwks").await;
    assert_eq!(keys.header("content-type"), Some("application/jwk-set+json"));
    let key = keys.expect(200)["keys"][0].clone();
    assert_eq!(document["id_token_signing_alg_values_supported"], json!([key["alg"]]));
    server.post(ACCOUNTS, account("robot")).await.expect(201);
    let token = request_token(&server, json!({})).await.expect(201);
    let head = token["status"]["token"].as_str().unwrap().split('.').next().unwrap();
    let head: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).unwrap()).unwrap();
    assert_eq!(head["kid"], key["kid"]);
    server.outside().get("/openid/v1/jwks").await.fails(403, "Forbidden");
}

#[tokio::test]
async fn impersonation_needs_a_permission_for_every_part() {
    let server = Server::start().await;
    let proxy = somebody("proxy");
    let act = |name: &'static str, value: &'static str| {
        let ask = server.by(somebody("proxy")).ask("POST", WHOAMI).json(&whoami());
        ask.header("impersonate-user", "ann").header(name, value).send()
    };
    let message = act("x", "y").await.fails(403, "Forbidden");
    assert_eq!(
        message,
        "users \"ann\" is forbidden: User \"proxy\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    );
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "impersonator"},
        "rules": [
            {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["ann"]},
            {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": ["devs"]},
            {"apiGroups": ["authentication.k8s.io"], "resources": ["uids"], "verbs": ["impersonate"], "resourceNames": ["7"]},
            {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scopes"], "verbs": ["impersonate"], "resourceNames": ["view"]},
            {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}]});
    server.post(roles, role).await.expect(201);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "impersonator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "impersonator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "proxy"}]});
    server.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.expect(201);
    let full = server
        .by(proxy.clone())
        .ask("POST", WHOAMI)
        .json(&whoami())
        .header("impersonate-user", "ann")
        .header("impersonate-group", "devs")
        .header("impersonate-uid", "7")
        .header("Impersonate-Extra-Scopes", "view")
        .send()
        .await
        .expect(201);
    assert_eq!(
        full["status"]["userInfo"],
        json!({"username": "ann", "uid": "7", "groups": ["devs", "system:authenticated"], "extra": {"scopes": ["view"]}})
    );
    assert_eq!(
        act("impersonate-group", "system:masters").await.fails(403, "Forbidden"),
        "groups \"system:masters\" is forbidden: User \"proxy\" cannot impersonate resource \"groups\" in API group \"\" at the cluster scope"
    );
    act("impersonate-uid", "8").await.fails(403, "Forbidden");
    act("impersonate-extra-scopes", "edit").await.fails(403, "Forbidden");
    act("impersonate-extra-other", "view").await.fails(403, "Forbidden");
    let alone = server.by(proxy.clone()).ask("GET", "/api").header("impersonate-group", "devs").send().await;
    alone.fails(400, "BadRequest");
    let robot = server
        .by(proxy)
        .ask("POST", WHOAMI)
        .json(&whoami())
        .header("impersonate-user", "system:serviceaccount:default:robot")
        .send()
        .await
        .expect(201);
    assert_eq!(
        robot["status"]["userInfo"]["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"])
    );
    let nobody = server.ask("POST", WHOAMI).json(&whoami()).header("impersonate-user", "system:anonymous");
    let message = nobody.send().await.fails(403, "Forbidden");
    assert!(message.contains("User \"system:anonymous\" cannot create"), "{message}");
}

#[tokio::test]
async fn the_group_of_controllers_cannot_be_claimed() {
    let claims = User::new("mallory", [GROUP_CONTROLLERS]);
    let certified = Peer {
        address: "192.0.2.1:1".parse().unwrap(),
        certificate: PeerCertificate::Verified(Arc::new(claims.clone())),
        login: Default::default(),
    };
    let server = Server::with(|config| config.static_tokens.insert("forged", claims)).await;
    who(&server.outside(), "forged").await.fails(401, "Unauthorized");
    let presented = server.outside().ask("POST", WHOAMI).json(&whoami()).extension(certified).send().await;
    presented.fails(401, "Unauthorized");
    let acting = server.ask("POST", WHOAMI).json(&whoami()).header("impersonate-user", "ann");
    let refused = acting.header("impersonate-group", GROUP_CONTROLLERS).send().await;
    assert_eq!(
        refused.fails(403, "Forbidden"),
        "group system:remuda:controllers is reserved for controllers inside the server"
    );
}

#[tokio::test]
async fn a_token_review_needs_a_token() {
    let server = Server::start().await;
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}});
    let message =
        server.post("/apis/authentication.k8s.io/v1/tokenreviews", body).await.fails(400, "BadRequest");
    assert_eq!(message, "token is required for TokenReview in authentication");
}

/// Vouches for one token, and counts what it is asked.
#[derive(Default)]
struct FarAway(std::sync::atomic::AtomicUsize);

impl Remote for FarAway {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Option<Arc<User>>> {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let known = (token == "far:key").then(|| Arc::new(User::new("ann", ["dev", "system:authenticated"])));
        Box::pin(std::future::ready(known))
    }
}

#[tokio::test]
async fn somebody_far_away_is_asked_about_tokens_nobody_else_knows() {
    let mut tokens = StaticTokens::default();
    tokens.insert("static", User::new("root", Vec::<String>::new()));
    let server = Server::with(|config| config.static_tokens = tokens).await;
    let remote = Arc::new(FarAway::default());
    server.api.ask_remote(remote.clone());
    let asked = || remote.0.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(who(&server, "static").await.expect(201)["status"]["userInfo"]["username"], "root");
    assert_eq!(asked(), 0);
    let ann = who(&server, "far:key").await.expect(201)["status"]["userInfo"].clone();
    assert_eq!((&ann["username"], &ann["groups"]), (&json!("ann"), &json!(["dev", "system:authenticated"])));
    who(&server, "far:kez").await.fails(401, "Unauthorized");
    assert_eq!(asked(), 2);
    assert_eq!(review(&server, "far:key", json!([])).await["user"]["username"], "ann");
    assert_eq!(review(&server, "far:key", json!(["elsewhere"])).await["authenticated"], Value::Null);
    assert_eq!(asked(), 3, "what is not for the API is not asked about");
}
