//! Watches over WebSocket.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use futures::StreamExt;
use remuda_auth::tokens::StaticTokens;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest},
};

use crate::harness::*;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn connect(
    address: std::net::SocketAddr,
    path: &str,
    protocols: Option<&str>,
) -> Result<(WebSocketStream<TcpStream>, Option<String>), Error> {
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    if let Some(protocols) = protocols {
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
    }
    let socket = TcpStream::connect(address).await.unwrap();
    let (socket, response) = client_async(request, socket).await?;
    let chosen = response.headers().get("sec-websocket-protocol");
    Ok((socket, chosen.map(|value| value.to_str().unwrap().to_owned())))
}

async fn next(socket: &mut WebSocketStream<TcpStream>) -> Value {
    let message = tokio::time::timeout(PATIENCE, socket.next()).await.expect("a message in time");
    match message.unwrap().unwrap() {
        Message::Text(text) => serde_json::from_str(&text).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_event_is_one_message() {
    let server = Server::quiet().await;
    let listening = server.listen(Some(admin())).await;
    let address = listening.address;
    for name in ["a", "b"] {
        server.post(MAPS, config_map(name, json!({}))).await.expect(201);
    }
    let (mut socket, chosen) = connect(address, &format!("{MAPS}?watch=true"), None).await.unwrap();
    assert_eq!(chosen, None);
    for name in ["a", "b"] {
        let event = next(&mut socket).await;
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
    }
    server.delete(&format!("{MAPS}/a")).await.expect(200);
    assert_eq!(next(&mut socket).await["type"], "DELETED");
    // The client leaves; the server goes on, and can stop.
    drop(socket);
    let (mut socket, _) =
        connect(address, &format!("{MAPS}?watch=true&timeoutSeconds=1"), None).await.unwrap();
    next(&mut socket).await;
    let end = tokio::time::timeout(PATIENCE, socket.next()).await.expect("the end in time");
    assert!(matches!(end, Some(Ok(Message::Close(_)))), "{end:?}");
    server.api.shutdown().await;
}

#[tokio::test]
async fn a_token_may_come_as_a_protocol() {
    let mut tokens = StaticTokens::default();
    tokens.insert("open-sesame", admin());
    let server = Server::with(|config| config.static_tokens = tokens).await;
    let listening = server.listen(None).await;
    let address = listening.address;
    let path = format!("{MAPS}?watch=true");
    let offer = |token: &str| {
        let token = URL_SAFE_NO_PAD.encode(token);
        format!("base64url.bearer.authorization.k8s.io.{token}, base64.binary.k8s.io")
    };
    let (mut socket, chosen) = connect(address, &path, Some(&offer("open-sesame"))).await.unwrap();
    assert_eq!(chosen.as_deref(), Some("base64.binary.k8s.io"), "the token is not sent back");
    server.post(MAPS, config_map("a", json!({}))).await.expect(201);
    loop {
        if next(&mut socket).await["object"]["metadata"]["name"] == "a" {
            break;
        }
    }
    for (protocols, code) in [(Some(offer("wrong")), 401), (None, 403)] {
        match connect(address, &path, protocols.as_deref()).await {
            Err(Error::Http(response)) => assert_eq!(response.status().as_u16(), code),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn what_cannot_be_upgraded_says_so() {
    let server = Server::start().await;
    let ask = server
        .ask("GET", &format!("{MAPS}?watch=true"))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    ask.send().await.fails(400, "BadRequest");
    let bad = server
        .ask("GET", &format!("{MAPS}?watch=true"))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket");
    bad.send().await.fails(400, "BadRequest");
    // Only watches are streams.
    let list = server.ask("GET", MAPS).header("connection", "Upgrade").header("upgrade", "websocket");
    assert_eq!(list.send().await.expect(200)["kind"], "ConfigMapList");
}
