//! The authenticator, asked as the API of a node asks it.

use std::net::SocketAddr;

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_auth::bearer;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::world::{Cluster, eventually, soon};

/// Sends a request on a connection of its own. Answers with the status and the body.
async fn exchange(address: SocketAddr, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("{head}\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

async fn review(address: SocketAddr, token: &str) -> (u16, Value) {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1beta1", "kind": "TokenReview", "metadata": {}, "spec": {"token": token},
    });
    let (status, text) = exchange(address, "POST /v1/authenticate HTTP/1.1", &review.to_string()).await;
    (status, serde_json::from_str(&text).unwrap_or_default())
}

#[tokio::test]
async fn the_api_is_told_who_somebody_is_for_as_long_as_the_cluster_knows_them() {
    let cluster = Cluster::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(cluster.authenticator().serve(vec![listener], stop.clone()));
    {
        let mut state = cluster.state.lock();
        let hash = BASE64_STANDARD.encode(bearer::hash("key").unwrap());
        state.secrets.insert("token-a".to_owned(), json!({"data": {"hash": hash}}));
        let token =
            json!({"userName": "u-1", "enabled": true, "expiresAt": "2999-01-01T00:00:00Z", "hash": ""});
        state.people.insert("clusterauthtokens/token-a".to_owned(), token);
        let user = json!({"enabled": true, "groups": ["dev", "remuda:role:viewer"], "needsRefresh": false});
        state.people.insert("clusteruserattributes/u-1".to_owned(), user);
    }
    let (status, answer) = review(address, "token-a:key").await;
    assert_eq!(status, 200);
    assert_eq!(
        answer,
        json!({
            "apiVersion": "authentication.k8s.io/v1beta1", "kind": "TokenReview",
            "status": {"authenticated": true, "user": {"username": "u-1", "groups": ["dev", "remuda:role:viewer"]}},
        })
    );
    eventually("the use is written", || {
        cluster.state.lock().people["clusterauthtokens/token-a"]["lastUsedAt"].is_string()
    })
    .await;
    for wrong in
        ["token-a:kez", "token-b:key", "token-a", "../clusteruserattributes/u-1:key", ":", "eyJ.eyJ.x"]
    {
        let (status, answer) = review(address, wrong).await;
        assert_eq!((status, &answer["status"]["authenticated"]), (401, &json!(false)), "{wrong}");
    }
    for (head, body, expected) in [
        ("GET /healthcheck HTTP/1.1", "", 200),
        ("GET /v1/authenticate HTTP/1.1", "", 404),
        ("POST /elsewhere HTTP/1.1", "{}", 404),
        ("POST /v1/authenticate HTTP/1.1", "{", 400),
        ("POST /v1/authenticate HTTP/1.1", "{\"kind\":\"Pod\"}", 400),
    ] {
        assert_eq!(exchange(address, head, body).await.0, expected, "{head}");
    }
    // An API that does not let us ask says nothing about the token.
    cluster.state.lock().forbidden = true;
    assert_eq!(review(address, "token-a:key").await.0, 500);
    cluster.state.lock().forbidden = false;
    assert_eq!(review(address, "token-a:key").await.0, 200);
    cluster.state.lock().people.get_mut("clusteruserattributes/u-1").unwrap()["enabled"] = json!(false);
    assert_eq!(review(address, "token-a:key").await.0, 401);
    cluster.state.lock().people.remove("clusterauthtokens/token-a");
    assert_eq!(review(address, "token-a:key").await.0, 401);
    stop.cancel();
    soon(running.join_next()).await.unwrap().unwrap();
}
