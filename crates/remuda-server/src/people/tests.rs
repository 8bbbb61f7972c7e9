//! People on a whole server, through its socket.

mod auditor;
mod hostile;
mod identity;
mod kubeconfig;
mod list_api;
mod list_older;
mod list_rights;
mod list_use;
mod login;
mod preflight;
mod sso;
mod visible;

use std::{path::PathBuf, time::Duration};

use bytes::Bytes;
use futures::{AsyncBufReadExt, TryStreamExt};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioExecutor;
use kube::{
    Api, Client,
    api::PostParams,
    client::ConfigExt,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use remuda_api::management::{self, ClusterRoleTemplateBinding, GlobalRoleBinding, Token};
use serde_json::{Value, json};

use crate::{Running, Server, config::Options};

pub(crate) struct Site {
    pub(crate) server: Running,
    pub(crate) dir: tempfile::TempDir,
}

/// An answer: code, headers, body.
pub(crate) struct Got {
    pub(crate) code: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Site {
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = Self::up(dir.path().to_owned()).await;
        Self { server, dir }
    }

    pub(crate) async fn up(dir: PathBuf) -> Running {
        let options = Options {
            bind: Some("127.0.0.1:0".to_owned()),
            audit_log: Some(dir.join("audit.log")),
            data_dir: Some(dir),
            ..Options::default()
        };
        Server::start_with(options.resolve().unwrap(), |_| Vec::new()).await.unwrap()
    }

    async fn config(&self) -> kube::Config {
        let kubeconfig = Kubeconfig::read_from(self.server.kubeconfig()).unwrap();
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
    }

    /// The administrator by certificate.
    async fn root(&self) -> Client {
        Client::try_from(self.config().await).unwrap()
    }

    /// Somebody with a token, or with nothing.
    async fn client(&self, token: Option<&str>) -> Client {
        let mut config = self.config().await;
        config.auth_info =
            AuthInfo { token: token.map(|token| token.to_owned().into()), ..AuthInfo::default() };
        Client::try_from(config).unwrap()
    }

    pub(crate) async fn send(
        &self,
        token: Option<&str>,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Got {
        let kind = [("content-type", "application/json")];
        self.send_as(token, method, path, &[&kind, headers].concat(), body).await
    }

    /// The same, without a word about what is sent.
    pub(crate) async fn send_as(
        &self,
        token: Option<&str>,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Got {
        self.send_text(token, method, path, headers, body.to_string()).await
    }

    pub(crate) async fn send_text(
        &self,
        token: Option<&str>,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Got {
        // Not as a client of Kubernetes, which tries again by itself.
        let mut config = self.config().await;
        config.auth_info = AuthInfo::default();
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .build(config.rustls_https_connector().unwrap());
        let uri = format!("{}{path}", self.server.url());
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = Full::new(Bytes::from(body));
        let (head, body) = client.request(request.body(body).unwrap()).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Got { code: head.status, headers: head.headers, body, text }
    }

    pub(crate) async fn login(&self, username: &str, password: &str) -> Got {
        let body = json!({"username": username, "password": password});
        self.send(None, "POST", "/v1-public/login", &[], body).await
    }

    /// A user with a token, made by the administrator.
    async fn user(&self, name: &str, token: Value) -> String {
        let users: Api<management::User> = Api::all(self.root().await);
        let user = management::User { username: name.to_owned(), ..management::User::named(name) };
        users.create(&PostParams::default(), &user).await.unwrap();
        let mut token = token;
        token["userId"] = name.into();
        for _ in 0..100 {
            let made = self.post_as_root("/v3/tokens", &token).await;
            if let Some(bearer) = made["token"].as_str() {
                return bearer.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no token for {name}");
    }

    async fn post_as_root(&self, path: &str, body: &Value) -> Value {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(kube::client::Body::from(body.to_string().into_bytes())).unwrap();
        let body = self.root().await.send(request).await.unwrap().into_body().collect().await.unwrap();
        serde_json::from_slice(&body.to_bytes()).unwrap_or_default()
    }

    async fn bind(&self, cluster: &str, user: &str, role: &str) {
        let root = self.root().await;
        let mut namespace = k8s_openapi::api::core::v1::Namespace::default();
        namespace.metadata.name = Some(cluster.to_owned());
        let _ = Api::all(root.clone()).create(&PostParams::default(), &namespace).await;
        let bindings: Api<ClusterRoleTemplateBinding> = Api::namespaced(root, cluster);
        let binding = ClusterRoleTemplateBinding {
            cluster_name: cluster.to_owned(),
            user_name: user.to_owned(),
            role_template_name: role.to_owned(),
            ..ClusterRoleTemplateBinding::named(&format!("{user}-{role}"))
        };
        bindings.create(&PostParams::default(), &binding).await.unwrap();
    }

    async fn cluster(&self, name: &str) {
        let clusters: Api<management::Cluster> = Api::all(self.root().await);
        clusters.create(&PostParams::default(), &management::Cluster::named(name)).await.unwrap();
    }

    /// What a request to a cluster ends with, once it is `expected` or has had time to be.
    async fn enters(&self, token: &str, cluster: &str, expected: u16) -> Got {
        self.gets(token, &format!("/k8s/clusters/{cluster}/api/v1/nodes"), expected).await
    }

    /// What a request ends with, once it is `expected` or has had time to be: rights follow what is written.
    async fn gets(&self, token: &str, path: &str, expected: u16) -> Got {
        for _ in 0..500 {
            let got = self.send(Some(token), "GET", path, &[], json!(null)).await;
            if got.code.as_u16() == expected {
                return got;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.send(Some(token), "GET", path, &[], json!(null)).await
    }

    pub(crate) async fn stop(self) {
        self.server.shutdown().await;
    }
}

const SETTINGS: &str = "/apis/management.cattle.io/v3/settings";
const TOKENS: &str = "/apis/management.cattle.io/v3/tokens";

fn cookies(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    values.map(|value| value.split(';').next().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_user_is_told_their_password_once_and_may_everything() {
    let site = Site::start().await;
    let first = site.server.first_user().unwrap().clone();
    assert_eq!(first.username, "admin");
    let wrong = site.login("admin", "wrong").await;
    assert_eq!((wrong.code.as_u16(), wrong.body["message"].as_str()), (401, Some("authentication failed")));
    let nobody = site.login("nobody", "wrong").await;
    assert_eq!(nobody.body, wrong.body, "who there is cannot be found out");

    let got = site.login("Admin", &first.password).await;
    assert_eq!(got.code, StatusCode::CREATED, "{}", got.body);
    let token = got.body["token"].as_str().unwrap().to_owned();
    let listed = site.send(Some(&token), "GET", TOKENS, &[], json!(null)).await;
    assert_eq!(listed.code, StatusCode::OK);
    let stored = &listed.body["items"][0];
    assert!(stored["token"].as_str().unwrap().starts_with("$3:1:"), "only a hash is stored");
    assert_eq!(stored["labels"], json!(null));
    assert_eq!(stored["userId"], "user-admin");

    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let me = site.send(Some(&token), "POST", path, &[], review).await;
    assert_eq!(me.body["status"]["userInfo"]["username"], "user-admin");

    let Site { server, dir } = site;
    server.shutdown().await;
    let server = Site::up(dir.path().to_owned()).await;
    assert!(server.first_user().is_none(), "at the second start nobody is made");
    let site = Site { server, dir };
    assert_eq!(site.send(Some(&token), "GET", SETTINGS, &[], json!(null)).await.code, StatusCode::OK);
    assert_eq!(site.login("admin", &first.password).await.code, StatusCode::CREATED);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_a_cookie_needs_a_proof_to_change_something_and_ends_with_logout() {
    let site = Site::start().await;
    let password = site.server.first_user().unwrap().password.clone();
    let body = json!({"username": "admin", "password": password, "responseType": "cookie"});
    let path = "/v3-public/localProviders/local?action=login";
    let got = site.send(None, "POST", path, &[], body).await;
    assert_eq!(got.code, StatusCode::CREATED);
    assert_eq!(got.body["token"], json!(null), "scripts do not get it");
    let cookies = cookies(&got.headers);
    let (session, csrf) = (&cookies[0], cookies[1].strip_prefix("CSRF=").unwrap());
    let cookie = format!("{session}; CSRF={csrf}");

    let read = site.send(None, "GET", SETTINGS, &[("cookie", &cookie)], json!(null)).await;
    assert_eq!(read.code, StatusCode::OK);
    let setting = json!({"apiVersion": "management.cattle.io/v3", "kind": "Setting", "metadata": {"name": "x"}, "value": "y"});
    let forged = site.send(None, "POST", SETTINGS, &[("cookie", &cookie)], setting.clone()).await;
    assert_eq!(forged.code, StatusCode::FORBIDDEN);
    let proven = [("cookie", cookie.as_str()), ("x-api-csrf", csrf)];
    let made = site.send(None, "POST", SETTINGS, &proven, setting).await;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.body);

    assert_eq!(site.send(None, "POST", "/v1/logout", &proven, json!({})).await.code, StatusCode::OK);
    let after = site.send(None, "GET", SETTINGS, &[("cookie", &cookie)], json!(null)).await;
    assert_eq!(after.code, StatusCode::UNAUTHORIZED);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_ends_its_watches_within_a_second() {
    let site = Site::start().await;
    let bearer = site.user("ann", json!({"description": "test"})).await;
    let roles: Api<GlobalRoleBinding> = Api::all(site.root().await);
    let binding = GlobalRoleBinding {
        user_name: "ann".to_owned(),
        global_role_name: "user-base".to_owned(),
        ..GlobalRoleBinding::named("ann")
    };
    roles.create(&PostParams::default(), &binding).await.unwrap();
    for _ in 0..100 {
        if site.send(Some(&bearer), "GET", SETTINGS, &[], json!(null)).await.code == StatusCode::OK {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let client = site.client(Some(&bearer)).await;
    let request = Request::get(format!("{SETTINGS}?watch=true&timeoutSeconds=60")).body(Vec::new()).unwrap();
    let mut lines = client.request_stream(request).await.unwrap().lines();
    let (name, _) = bearer.split_once(':').unwrap();
    let tokens: Api<Token> = Api::all(site.root().await);
    let before = std::time::Instant::now();
    tokens.delete(name, &Default::default()).await.unwrap();
    let ended = async { while let Ok(Some(_)) = lines.try_next().await {} };
    tokio::time::timeout(Duration::from_secs(1), ended).await.expect("the watch ends");
    assert!(before.elapsed() < Duration::from_secs(1));
    let after = site.send(Some(&bearer), "GET", SETTINGS, &[], json!(null)).await;
    assert_eq!(after.code, StatusCode::UNAUTHORIZED);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_bound_to_one_cluster_is_refused_in_another_and_the_log_says_so() {
    let site = Site::start().await;
    for cluster in ["c-a", "c-b"] {
        site.cluster(cluster).await;
    }
    let ann = site.user("ann", json!({})).await;
    let scoped = site.post_as_root("/v3/tokens", &json!({"userId": "ann", "clusterId": "c-a"})).await;
    let scoped = scoped["token"].as_str().unwrap().to_owned();
    site.bind("c-a", "ann", "cluster-member").await;
    // There is no agent, so whoever may enter is told that the cluster is not there.
    let got = site.enters(&ann, "c-a", 503).await;
    assert_eq!(got.code, StatusCode::SERVICE_UNAVAILABLE, "{}", got.body);
    let got = site.enters(&ann, "c-b", 403).await;
    assert_eq!(got.code, StatusCode::FORBIDDEN);
    assert!(got.body["message"].as_str().unwrap().contains("has no role in cluster"), "{}", got.body);

    assert_eq!(site.enters(&scoped, "c-a", 503).await.code, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(site.enters(&scoped, "c-b", 401).await.code, StatusCode::UNAUTHORIZED);
    let elsewhere = site.send(Some(&scoped), "GET", "/api/v1/namespaces", &[], json!(null)).await;
    assert_eq!(elsewhere.code, StatusCode::UNAUTHORIZED, "a token for one cluster is for nothing else");

    // Not even if it is for the cluster whose API is this server's own: what it leads to could make other tokens.
    let local = site.post_as_root("/v3/tokens", &json!({"userId": "ann", "clusterId": "local"})).await;
    let local = local["token"].as_str().unwrap().to_owned();
    for path in [
        "/k8s/clusters/local/v1/schemas",
        "/k8s/clusters/local/v1/ext.cattle.io.tokens",
        "/k8s/clusters/local/api",
    ] {
        let got = site.send(Some(&local), "GET", path, &[], json!(null)).await;
        assert_eq!(got.code, StatusCode::UNAUTHORIZED, "{path}: {}", got.text);
    }
    let own = "/apis/management.cattle.io/v3/clusters";
    assert_eq!(
        site.send(Some(&ann), "GET", &format!("{own}/c-a"), &[], json!(null)).await.code,
        StatusCode::OK
    );
    assert_eq!(
        site.send(Some(&ann), "GET", &format!("{own}/c-b"), &[], json!(null)).await.code,
        StatusCode::FORBIDDEN
    );

    let log = std::fs::read_to_string(site.dir.path().join("audit.log")).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let refused: Vec<Value> =
        lines.filter(|line| line["requestURI"] == "/k8s/clusters/c-b/api/v1/nodes").collect();
    let line = refused.iter().find(|line| line["responseStatus"]["code"] == 403).expect("it is in the log");
    assert_eq!(line["user"]["username"], "ann");
    assert_eq!(line["annotations"]["authorization.k8s.io/decision"], "forbid");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_says_who_asked_and_as_whom() {
    let site = Site::start().await;
    site.cluster("c-a").await;
    site.user("ann", json!({})).await;
    let password = site.server.first_user().unwrap().password.clone();
    let admin = site.login("admin", &password).await.body["token"].as_str().unwrap().to_owned();
    let path = "/k8s/clusters/c-a/api/v1/secrets";
    let as_ann = [("impersonate-user", "ann")];
    let got = site.send(Some(&admin), "GET", path, &as_ann, json!(null)).await;
    assert_eq!(got.code, StatusCode::FORBIDDEN, "whoever acts as somebody may what they may: {}", got.text);
    let own = site.send(Some(&admin), "GET", path, &[], json!(null)).await;
    assert_eq!(own.code, StatusCode::SERVICE_UNAVAILABLE);
    let ann = site.user("eve", json!({})).await;
    let got = site.send(Some(&ann), "GET", path, &[("impersonate-user", "user-admin")], json!(null)).await;
    assert_eq!(got.code, StatusCode::FORBIDDEN, "not everybody may be anybody");

    let log = std::fs::read_to_string(site.dir.path().join("audit.log")).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found: Vec<(String, String, String, u64)> = lines
        .filter(|line| line["requestURI"] == path)
        .map(|line| {
            let text =
                |pointer: &str| line.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
            let code = line["responseStatus"]["code"].as_u64().unwrap();
            (text("/user/username"), text("/impersonatedUser/username"), text("/verb"), code)
        })
        .collect();
    let line = |who: &str, whom: &str, code| (who.to_owned(), whom.to_owned(), "get".to_owned(), code);
    assert!(found.contains(&line("user-admin", "ann", 403)), "{found:?}");
    assert!(found.contains(&line("user-admin", "-", 503)), "{found:?}");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_gives_what_they_do_not_have() {
    let site = Site::start().await;
    let ann = site.user("ann", json!({})).await;
    let roles: Api<GlobalRoleBinding> = Api::all(site.root().await);
    let by = |name: &str, role: &str| GlobalRoleBinding {
        user_name: "ann".to_owned(),
        global_role_name: role.to_owned(),
        ..GlobalRoleBinding::named(name)
    };
    roles.create(&PostParams::default(), &by("keeper", "users-manage")).await.unwrap();
    let own: Api<GlobalRoleBinding> = Api::all(site.client(Some(&ann)).await);
    let admin = by("grab", "admin");
    let refused = |error: kube::Error| matches!(error, kube::Error::Api(status) if status.code == 403);
    for _ in 0..100 {
        match own.list(&Default::default()).await {
            Ok(_) => break,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    let taken = own.create(&PostParams::default(), &admin).await;
    assert!(taken.is_err_and(refused), "a keeper of users makes no administrators");
    let given = own.create(&PostParams::default(), &by("again", "users-manage")).await;
    assert!(given.is_ok(), "what they have they may give: {given:?}");

    let path = "/v3/users/user-admin?action=setpassword";
    let body = json!({"newPassword": "a password of mine"});
    let taken = site.send(Some(&ann), "POST", path, &[], body.clone()).await;
    assert_eq!(taken.code, StatusCode::FORBIDDEN, "nor becomes one");
    let other = site.user("bob", json!({})).await;
    let path = "/v3/users/bob?action=setpassword";
    assert_eq!(site.send(Some(&ann), "POST", path, &[], body).await.code, StatusCode::OK);
    assert_eq!(site.login("bob", "a password of mine").await.code, StatusCode::CREATED);
    let change = json!({"currentPassword": "a password of mine", "newPassword": "another of my own"});
    let changed = site.send(Some(&other), "POST", "/v3/users?action=changepassword", &[], change).await;
    assert_eq!(changed.code, StatusCode::OK, "{}", changed.body);
    assert_eq!(site.login("bob", "a password of mine").await.code, StatusCode::UNAUTHORIZED);
    assert_eq!(site.login("bob", "another of my own").await.code, StatusCode::CREATED);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_have_their_own_tokens_and_see_no_others() {
    let site = Site::start().await;
    let (ann, bob) = (site.user("ann", json!({})).await, site.user("bob", json!({})).await);
    let made =
        site.send(Some(&ann), "POST", "/v3/tokens", &[], json!({"description": "ci", "ttl": 60000})).await;
    assert_eq!(made.code, StatusCode::CREATED, "{}", made.body);
    assert_eq!(made.body["ttl"], 60000);
    let name = made.body["name"].as_str().unwrap();
    let listed = site.send(Some(&ann), "GET", "/v3/tokens", &[], json!(null)).await;
    assert_eq!(listed.body["data"].as_array().unwrap().len(), 2);
    assert!(!listed.body.to_string().contains("$3:"), "hashes are not shown");
    // What is written as a token in its object is not stored as it is, and good all the same.
    let plain =
        Token { token: "a-key-of-mine".to_owned(), user_id: "ann".to_owned(), ..Token::named("token-plain") };
    let tokens: Api<Token> = Api::all(site.root().await);
    let stored = tokens.create(&PostParams::default(), &plain).await.unwrap();
    assert!(stored.token.starts_with("$3:1:"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let own = site.send(Some("token-plain:a-key-of-mine"), "GET", "/v3/tokens", &[], json!(null)).await;
    assert_eq!(own.code, StatusCode::OK);
    let others = site.send(Some(&bob), "GET", "/v3/tokens?userId=ann", &[], json!(null)).await;
    assert_eq!(others.code, StatusCode::FORBIDDEN);
    let one = format!("/v3/tokens/{name}");
    assert_eq!(site.send(Some(&bob), "DELETE", &one, &[], json!(null)).await.code, StatusCode::NOT_FOUND);
    let stolen = site.send(Some(&bob), "POST", "/v3/tokens", &[], json!({"userId": "ann"})).await;
    assert_eq!(stolen.code, StatusCode::FORBIDDEN);
    assert_eq!(site.send(Some(&ann), "DELETE", &one, &[], json!(null)).await.code, StatusCode::OK);
    let bearer = made.body["token"].as_str().unwrap();
    assert_eq!(
        site.send(Some(bearer), "GET", "/v3/tokens", &[], json!(null)).await.code,
        StatusCode::UNAUTHORIZED
    );
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_guesses_has_to_wait_and_who_must_choose_a_password_does() {
    let site = Site::start().await;
    let password = site.server.first_user().unwrap().password.clone();
    for _ in 0..5 {
        assert_eq!(site.login("admin", "guess").await.code, StatusCode::UNAUTHORIZED);
    }
    let got = site.login("admin", &password).await;
    assert_eq!(got.code, StatusCode::TOO_MANY_REQUESTS);
    assert!(got.headers.contains_key("retry-after"));

    site.user("bob", json!({})).await;
    let body = json!({"newPassword": "first password", "mustChangePassword": true});
    site.post_as_root("/v3/users/bob?action=setpassword", &body).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let told = site.login("bob", "first password").await;
    assert_eq!((told.code, told.body["reason"].as_str()), (StatusCode::CONFLICT, Some("MustChangePassword")));
    let body = json!({"username": "bob", "password": "first password", "newPassword": "second password"});
    let done = site.send(None, "POST", "/v1-public/login", &[], body).await;
    assert_eq!(done.code, StatusCode::CREATED, "{}", done.body);
    site.stop().await;
}
