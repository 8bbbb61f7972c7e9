//! A tunnel on the command line, to try against other implementations.
//!
//! ```text
//! tunnel server 127.0.0.1:8123 [ID:TOKEN [PEER_ID:PEER_TOKEN:127.0.0.1:8124 ...]]
//! tunnel client 127.0.0.1:8123 NAME
//! ```
//!
//! The server takes tunnels at any path from clients that send `X-Tunnel-ID`. On the same port it is an HTTP
//! proxy: `curl -p -x http://127.0.0.1:8123 --proxy-header 'X-Client: NAME' URL`.

use std::{error::Error, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use remuda_tunnel::{
    client::{self, Backoff, BoxError, Connector, Link, handshake},
    dial::Inbound,
    protocol::Role,
    server::{Identity, Peer, PeerIdentity, Server, ServerOptions},
    session::SessionOptions,
    socket::BoxSocket,
    websocket::WebSocket,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::handshake::server::{ErrorResponse, Request, Response},
};
use tokio_util::sync::CancellationToken;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

fn connector(address: String) -> impl Connector {
    move |headers: HeaderMap| {
        let address = address.clone();
        async move {
            let uri: Uri = format!("ws://{address}/connect").parse()?;
            let stream = TcpStream::connect(&address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, BoxError>(Box::new(handshake(stream, &uri, &headers).await?) as BoxSocket)
        }
    }
}

async fn accept(server: Server, stream: TcpStream) -> Outcome {
    stream.set_nodelay(true)?;
    let mut start = [0; 8];
    while stream.peek(&mut start).await? < start.len() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    if &start == b"CONNECT " {
        return forward(server, stream).await;
    }
    let mut identity = None;
    #[expect(clippy::result_large_err, reason = "the signature of the handshake callback")]
    let authorize = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        let client =
            || request.headers().get("x-tunnel-id")?.to_str().ok().map(|id| Identity::Client(id.to_owned()));
        identity = server.authenticate_peer(request.headers()).or_else(client);
        if identity.is_some() {
            return Ok(response);
        }
        let mut refusal = ErrorResponse::new(Some("failed authentication".to_owned()));
        *refusal.status_mut() = StatusCode::UNAUTHORIZED;
        Err(refusal)
    };
    let upgraded = Box::pin(accept_hdr_async(stream, authorize)).await?;
    if let Some(identity) = identity {
        // Clients say nothing before they have read the answer, so nothing is left inside.
        server.serve(identity, WebSocket::new(upgraded.into_inner(), Role::Server)).await;
    }
    Ok(())
}

/// Joins a plain connection with one through a client.
async fn forward(server: Server, mut stream: TcpStream) -> Outcome {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < 4096 {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let address = head.split(' ').nth(1).ok_or("no address")?;
    let client = head.lines().find_map(|line| line.strip_prefix("X-Client: ")).ok_or("no X-Client header")?;
    match server.dial(client, "tcp", address).await {
        Ok(mut tunnel) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            copy_bidirectional(&mut stream, &mut tunnel).await?;
        }
        Err(error) => stream.write_all(format!("HTTP/1.1 502 Bad Gateway\r\n\r\n{error}").as_bytes()).await?,
    }
    Ok(())
}

async fn serve(listen: &str, identity: Option<&str>, peers: &[String]) -> Outcome {
    let identity = identity
        .and_then(|text| text.split_once(':'))
        .map(|(id, token)| PeerIdentity { id: id.to_owned(), token: token.to_owned() });
    let server = Server::new(ServerOptions { identity, ..ServerOptions::default() });
    for peer in peers {
        let mut parts = peer.splitn(3, ':').map(str::to_owned);
        let (Some(id), Some(token), Some(url)) = (parts.next(), parts.next(), parts.next()) else { continue };
        server.add_peer(Peer { url: url.clone(), id, token }, Arc::new(connector(url)));
    }
    let listener = TcpListener::bind(listen).await?;
    let mut tasks = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        tasks.spawn(accept(server.clone(), stream));
        while tasks.try_join_next().is_some() {}
    }
}

async fn connect(server: &str, name: &str) -> Outcome {
    let headers =
        HeaderMap::from_iter([(HeaderName::from_static("x-tunnel-id"), HeaderValue::from_str(name)?)]);
    let (link, _) = watch::channel(Link::default());
    let stop = CancellationToken::new();
    let inbound = Inbound::net(|_, _| true);
    let options = SessionOptions::default();
    client::run(connector(server.to_owned()), headers, inbound, options, Backoff::default(), &link, &stop)
        .await;
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["server", listen] => serve(listen, None, &[]).await,
        ["server", listen, identity, ..] => serve(listen, Some(identity), &arguments[3..]).await,
        ["client", server, name] => connect(server, name).await,
        _ => Err("usage: tunnel server LISTEN [ID:TOKEN [PEER ...]] | tunnel client SERVER NAME".into()),
    }
}
