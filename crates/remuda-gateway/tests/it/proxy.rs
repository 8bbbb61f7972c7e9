use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use kube::{Api, api::PostParams};
use remuda_api::management::ClusterRoleTemplateBinding;
use remuda_testkit::until;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    downstream::{Agent, Downstream},
    world::{TOKEN, World},
};

const ADMIN: (&str, &str) = ("authorization", "Bearer root,system:masters");

async fn connected() -> (World, Downstream, Agent) {
    connected_with(World::start().await).await
}

async fn connected_with(world: World) -> (World, Downstream, Agent) {
    world.cluster("c-m-1", "demo", TOKEN).await;
    let downstream = Downstream::start().await;
    let agent = downstream.connect(world.address, TOKEN).await.unwrap();
    world.until_condition("c-m-1", "Ready", "True").await;
    (world, downstream, agent)
}

fn message(text: &str) -> String {
    let status: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("no Status: {text}"));
    assert_eq!((status["kind"].as_str(), status["status"].as_str()), (Some("Status"), Some("Failure")));
    status["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_caller_acts_in_the_cluster_under_their_own_name() {
    let (world, downstream, _agent) = connected().await;
    let (status, text) = world.get("/k8s/clusters/c-m-1/api/v1/namespaces?limit=5", &[ADMIN]).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert!(text.contains("NamespaceList"));
    let review = Bytes::from(r#"{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}"#);
    let mut request = world.request(
        "POST",
        "/k8s/proxy/c-m-1/apis/authentication.k8s.io/v1/selfsubjectreviews",
        &[
            ADMIN,
            ("content-type", "application/json"),
            ("impersonate-user", "mallory"),
            ("cookie", "R_SESS=x"),
        ],
    );
    *request.body_mut() = Full::new(review);
    let response = world.send(request).await;
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(review["status"]["userInfo"]["username"], "root");
    let seen = downstream.seen.lock().clone();
    let (_, headers) = seen.iter().find(|(line, _)| line.contains("selfsubjectreviews")).unwrap();
    assert_ne!(headers["authorization"], "Bearer agent-token", "not with the rights of the agent");
    assert_eq!(headers["impersonate-user"], "root");
    assert!(!headers.contains_key("cookie"));
    assert!(seen.iter().all(|(_, headers)| {
        headers.values().all(|value| !value.to_str().unwrap_or("").contains("Bearer root"))
    }));
}

#[tokio::test]
async fn who_may_not_see_the_cluster_may_not_use_it() {
    let (world, downstream, _agent) = connected().await;
    let before = downstream.seen.lock().len();
    let ann = ("authorization", "Bearer ann");
    let (status, text) = world.get("/k8s/clusters/c-m-1/api", &[ann]).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(message(&text).contains("\"ann\" cannot get the management Cluster"), "{text}");
    // Whether there is such a cluster is nobody's business either.
    let (status, _) = world.get("/k8s/clusters/c-m-9/api", &[ann]).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let (status, text) = world.get("/k8s/clusters/c-m-1/api", &[]).await;
    assert_eq!((status, message(&text).as_str()), (StatusCode::UNAUTHORIZED, "Unauthorized"));
    let (status, text) = world.get("/k8s/clusters/c-m-9/api", &[ADMIN]).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(message(&text).contains("\"c-m-9\" not found"), "{text}");
    let looks = downstream
        .seen
        .lock()
        .iter()
        .skip(before)
        .all(|(_, headers)| !headers.contains_key("impersonate-user"));
    assert!(looks, "nothing reached the cluster");

    let bind = async |namespace: &str, name: &str, role: &str, cluster: &str| {
        let bindings: Api<ClusterRoleTemplateBinding> = Api::namespaced(world.client.clone(), namespace);
        let binding = serde_json::from_value(json!({
            "apiVersion": "management.cattle.io/v3", "kind": "ClusterRoleTemplateBinding",
            "metadata": {"name": format!("{name}-{role}")}, "userName": name, "clusterName": cluster,
            "roleTemplateName": role,
        }))
        .unwrap();
        bindings.create(&PostParams::default(), &binding).await.unwrap();
    };
    // A binding in a namespace of one's own is worth nothing.
    bind("fleet-default", "ann", "cluster-owner", "c-m-1").await;
    bind("c-m-1", "bob", "cluster-member", "c-m-1").await;
    bind("c-m-1", "eve", "cluster-owner", "c-m-1").await;
    let path = "/k8s/clusters/c-m-1/api/v1/namespaces";
    until("eve is an owner", async || {
        world.get(path, &[("authorization", "Bearer eve")]).await.0 == StatusCode::OK
    })
    .await;
    let (status, text) = world.get(path, &[("authorization", "Bearer bob")]).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert!(
        message(&text).contains("User \"bob\" cannot list resource"),
        "the cluster itself says so: {text}"
    );
    assert_eq!(world.get(path, &[ann]).await.0, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_cluster_that_is_not_connected_says_since_when_and_why() {
    let world = World::start().await;
    world.cluster("c-m-1", "demo", TOKEN).await;
    let (status, headers, text) = world.get_all("/k8s/clusters/c-m-1/api", &[ADMIN]).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!headers.contains_key("retry-after"), "kubectl would try for minutes without showing why");
    assert_eq!(headers["cache-control"], "no-store", "kubectl keeps what it is not told to forget");
    assert!(
        message(&text).starts_with("cluster demo is not connected: its agent has not connected"),
        "{text}"
    );
    let downstream = Downstream::start().await;
    let agent = downstream.connect(world.address, TOKEN).await.unwrap();
    world.until_condition("c-m-1", "Ready", "True").await;
    drop(agent);
    world.until_condition("c-m-1", "Connected", "False").await;
    let (status, text) = world.get("/k8s/clusters/c-m-1/api", &[ADMIN]).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let text = message(&text);
    assert!(
        text.starts_with("cluster demo is not connected since 20") && text.contains("last error: "),
        "{text}"
    );
}

#[tokio::test]
async fn an_api_that_does_not_answer_is_told_from_one_that_is_not_there() {
    let world = World::with(|options| options.timing.answer = std::time::Duration::from_millis(200)).await;
    let (world, downstream, _agent) = connected_with(world).await;
    downstream.hang.send_replace(true);
    let (status, text) = world.get("/k8s/clusters/c-m-1/api", &[ADMIN]).await;
    assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{text}");
    assert!(message(&text).contains("no answer within 200ms"), "{text}");
    downstream.hang.send_replace(false);

    // An agent that leads to somewhere else.
    let mut params = downstream.params();
    params["cluster"]["address"] = "10.9.9.9:443".into();
    let _second = downstream.connect_with(world.address, "/v3/connect", TOKEN, &params).await.unwrap();
    let (status, text) = world.get("/k8s/clusters/c-m-1/api", &[ADMIN]).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY, "{text}");
    let text = message(&text);
    assert!(text.contains("cannot be reached") && text.contains("no route to host"), "{text}");
    world.until_condition("c-m-1", "Ready", "False the API of the cluster does not answer").await;
    assert_eq!(world.condition("c-m-1", "Connected").await, "True");
}

#[tokio::test]
async fn a_watch_streams_and_ends_with_the_credentials() {
    let (world, downstream, _agent) = connected().await;
    let path = "/k8s/clusters/c-m-1/api/v1/namespaces?watch=true";
    let mut watch = world.send(world.request("GET", path, &[ADMIN])).await.into_body();
    let first = watch.frame().await.unwrap().unwrap().into_data().unwrap();
    assert!(first.starts_with(b"{\"type\":\"ADDED\""), "{first:?}");
    let user = remuda_auth::identity::User::new("x", ["system:masters"]);
    let client = kube::Client::new(downstream.api.client_service(user), "default");
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client);
    let namespace = serde_json::from_value(json!({"metadata": {"name": "fresh"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let mut text = String::new();
    while !text.contains("fresh") {
        let frame = watch.frame().await.unwrap().unwrap().into_data().unwrap();
        text.push_str(&String::from_utf8_lossy(&frame));
    }
    world.doors.revoked.cancel();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(1), async {
        while let Some(Ok(_)) = watch.frame().await {}
    });
    ended.await.expect("the watch ends at once");
}

#[tokio::test]
async fn other_protocols_pass_both_ways() {
    let (world, _downstream, agent) = connected().await;
    let request = world.request(
        "POST",
        "/k8s/clusters/c-m-1/echo",
        &[ADMIN, ("connection", "Upgrade"), ("upgrade", "SPDY/3.1")],
    );
    let response = world.send(request).await;
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()["upgrade"], "SPDY/3.1");
    let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    let sent: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let mut back = vec![0; sent.len()];
    let (written, read) = tokio::join!(writer.write_all(&sent), reader.read_exact(&mut back));
    written.unwrap();
    read.unwrap();
    assert!(sent == back);
    drop(agent);
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(std::time::Duration::from_secs(10), stream.read_to_end(&mut rest));
    ended.await.expect("the stream ends with the tunnel").ok();
}

#[tokio::test]
async fn large_bodies_pass() {
    let (world, _downstream, _agent) = connected().await;
    let data = "x".repeat(900_000);
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"k": data}});
    let path = "/k8s/clusters/c-m-1/api/v1/namespaces/default/configmaps";
    let mut request = world.request("POST", path, &[ADMIN, ("content-type", "application/json")]);
    *request.body_mut() = Full::new(Bytes::from(object.to_string()));
    assert_eq!(world.send(request).await.status(), StatusCode::CREATED);
    let (status, text) = world.get(&format!("{path}/large"), &[ADMIN]).await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.len() > 900_000);
}

#[tokio::test]
async fn people_act_through_accounts_that_can_do_nothing_else() {
    let (world, downstream, _agent) = connected().await;
    let path = "/k8s/clusters/c-m-1/api/v1/namespaces";
    assert_eq!(world.get(path, &[ADMIN]).await.0, StatusCode::OK);
    let user = remuda_auth::identity::User::new("x", ["system:masters"]);
    let client = kube::Client::new(downstream.api.client_service(user), "default");
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(client.clone());
    let role = roles.get("cattle-impersonation-root").await.unwrap();
    let names: Vec<String> =
        role.rules.unwrap().into_iter().flat_map(|rule| rule.resource_names.unwrap()).collect();
    assert_eq!(names, ["root", "system:authenticated", "system:masters"]);
    // The account itself has no rights: without the headers the cluster says no.
    let token = {
        let seen = downstream.seen.lock();
        let (_, headers) = seen.iter().rev().find(|(line, _)| line == "GET /api/v1/namespaces").unwrap();
        headers["authorization"].clone()
    };
    let request = http::Request::get("/api/v1/namespaces")
        .header("authorization", token)
        .body(Full::<Bytes>::default());
    assert_eq!(downstream.api.handle(request.unwrap()).await.status(), StatusCode::FORBIDDEN);

    // Known from now on: one request there for one here.
    let count = || downstream.seen.lock().iter().filter(|(line, _)| !line.contains("/version")).count();
    let before = count();
    assert_eq!(world.get(path, &[ADMIN]).await.0, StatusCode::OK);
    assert_eq!(count(), before + 1);
    // Other groups, other rights of the account.
    assert_eq!(
        world.get(path, &[("authorization", "Bearer root,system:masters,ops")]).await.0,
        StatusCode::OK
    );
    let role = roles.get("cattle-impersonation-root").await.unwrap();
    assert!(role.rules.unwrap()[1].resource_names.as_ref().unwrap().contains(&"ops".to_owned()));
    // Removed by somebody: it comes back.
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(client, "cattle-impersonation-system");
    accounts.delete("cattle-impersonation-root", &kube::api::DeleteParams::default()).await.unwrap();
    let ops = [("authorization", "Bearer root,system:masters,ops")];
    let (status, headers, text) = world.get_all(path, &ops).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    assert!(headers.contains_key("retry-after"));
    assert_eq!(world.get(path, &ops).await.0, StatusCode::OK);
    // The same when its role is gone: that is no refusal of the caller.
    roles.delete("cattle-impersonation-root", &kube::api::DeleteParams::default()).await.unwrap();
    let (status, text) = world.get(path, &ops).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    assert!(!text.contains("system:serviceaccount"), "{text}");
    until("it is there again", async || world.get(path, &ops).await.0 == StatusCode::OK).await;
}

#[tokio::test]
async fn who_did_what_as_whom_is_told() {
    let (world, _downstream, _agent) = connected().await;
    world.doors.told.lock().clear();
    world.get("/k8s/clusters/c-m-1/api/v1/namespaces?limit=1", &[ADMIN]).await;
    world.get("/k8s/clusters/c-m-1/api", &[("authorization", "Bearer system:serviceaccount:a:b")]).await;
    world.get("/k8s/clusters/c-m-1/api", &[]).await;
    let echo = [ADMIN, ("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    world.send(world.request("POST", "/k8s/clusters/c-m-1/echo?command=sh", &echo)).await;
    let told = world.doors.told.lock().clone();
    assert_eq!(
        told,
        [
            "root: GET /k8s/clusters/c-m-1/api/v1/namespaces?limit=1 200",
            "system:serviceaccount:a:b as remuda:serviceaccount:a:b: GET /k8s/clusters/c-m-1/api 403",
            "system:anonymous: GET /k8s/clusters/c-m-1/api 401",
            "root: POST /k8s/clusters/c-m-1/echo?command=sh 101",
        ]
    );
}

#[tokio::test]
async fn a_hostile_cluster_has_no_say_in_the_browsers_of_its_users() {
    let (world, downstream, _agent) = connected().await;
    let (status, headers, text) = world.get_all("/k8s/clusters/c-m-1/evil", &[ADMIN]).await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "<script>evil()</script>"));
    for lost in [
        "set-cookie",
        "service-worker-allowed",
        "access-control-allow-origin",
        "access-control-allow-credentials",
        "clear-site-data",
        "strict-transport-security",
        "refresh",
        "location",
    ] {
        assert!(!headers.contains_key(lost), "{lost}: {headers:?}");
    }
    assert_eq!(headers["content-type"], "text/html");
    assert_eq!(headers["content-disposition"], "attachment");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["x-frame-options"], "DENY");
    assert!(headers["content-security-policy"].to_str().unwrap().starts_with("sandbox; default-src 'none'"));

    // A browser with a session: pages of other sites and documents get nothing, scripts of our own pages do.
    let count = || downstream.seen.lock().iter().filter(|(line, _)| line.ends_with("/evil")).count();
    let before = count();
    let session = ("cookie", "R_SESS=root,system:masters");
    let navigation = [session, ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    for site in ["none", "same-origin", "same-site", "cross-site"] {
        let lines = [navigation.as_slice(), &[("sec-fetch-site", site)]].concat();
        let (status, text) = world.get("/k8s/clusters/c-m-1/evil", &lines).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{site}: {text}");
    }
    let framed = [
        session,
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "iframe"),
    ];
    assert_eq!(world.get("/k8s/clusters/c-m-1/evil", &framed).await.0, StatusCode::FORBIDDEN);
    assert_eq!(world.get("/k8s/clusters/c-m-1/evil", &[session]).await.0, StatusCode::FORBIDDEN);
    let foreign = [
        session,
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "websocket"),
        ("sec-fetch-dest", "websocket"),
    ];
    assert_eq!(world.get("/k8s/clusters/c-m-1/echo", &foreign).await.0, StatusCode::FORBIDDEN);
    assert_eq!(count(), before, "nothing of it reached the cluster");
    let script =
        [session, ("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")];
    assert_eq!(world.get("/k8s/clusters/c-m-1/evil", &script).await.0, StatusCode::OK);
    let written = world.send(world.request("DELETE", "/k8s/clusters/c-m-1/evil", &script)).await;
    assert_eq!(written.status(), StatusCode::FORBIDDEN, "a change needs the proof");
}
