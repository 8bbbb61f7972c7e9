//! The whole way: TCP, TLS, the HTTP upgrade, the tunnel.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use remuda_tunnel::{
    client::{HandshakeError, handshake, serve},
    protocol::Role,
    readahead::ReadAhead,
    server::{Identity, Server, ServerOptions, TOKEN_HEADER},
    session::SessionOptions,
    websocket::WebSocket,
};
use rustls::{ClientConfig, RootCertStore, ServerConfig, pki_types::ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::handshake::server::{ErrorResponse, Request, Response},
};
use tokio_util::sync::CancellationToken;

use crate::support::{echo, eventually, services, soon};

fn tls() -> (TlsAcceptor, TlsConnector) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (issued.cert.der().clone(), issued.signing_key.serialize_der());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.try_into().unwrap())
        .unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)))
}

#[expect(clippy::result_large_err, reason = "the signature of the handshake callback")]
fn authorize(request: &Request, response: Response) -> Result<Response, ErrorResponse> {
    if request.headers().get(TOKEN_HEADER).is_some_and(|token| token == "good") {
        return Ok(response);
    }
    let mut refusal = ErrorResponse::new(Some("failed authentication".to_owned()));
    *refusal.status_mut() = StatusCode::UNAUTHORIZED;
    Err(refusal)
}

async fn listen(server: Server, acceptor: TlsAcceptor) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::task::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (server, acceptor) = (server.clone(), acceptor.clone());
            tokio::task::spawn(async move {
                let stream = acceptor.accept(ReadAhead::new(stream)).await.unwrap();
                if let Ok(upgraded) = accept_hdr_async(stream, authorize).await {
                    // Clients say nothing before they have read the answer, so nothing is left inside.
                    let socket = WebSocket::new(upgraded.into_inner(), Role::Server);
                    server.serve(Identity::Client("c-1".into()), socket).await;
                }
            });
        }
    });
    port
}

async fn dial(port: u16, connector: &TlsConnector) -> (TlsStream<ReadAhead<TcpStream>>, Uri) {
    let stream = ReadAhead::new(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    let stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap();
    (stream, format!("wss://localhost:{port}/v3/connect").parse().unwrap())
}

#[tokio::test]
async fn a_tunnel_runs_over_tls_and_a_wrong_token_is_told_why() {
    let (acceptor, connector) = tls();
    let server = Server::new(ServerOptions::default());
    let port = listen(server.clone(), acceptor).await;

    let (stream, uri) = dial(port, &connector).await;
    let error = soon(handshake(stream, &uri, &HeaderMap::new())).await.unwrap_err();
    let HandshakeError::Refused { status: 401, body } = error else { panic!("{error}") };
    assert_eq!(body, "failed authentication");

    let headers = HeaderMap::from_iter([(
        http::HeaderName::from_static(TOKEN_HEADER),
        HeaderValue::from_static("good"),
    )]);
    let (stream, uri) = dial(port, &connector).await;
    let socket = soon(handshake(stream, &uri, &headers)).await.unwrap();
    let stop = CancellationToken::new();
    let client = tokio::task::spawn({
        let stop = stop.clone();
        async move { serve(socket, services(), SessionOptions::default(), &stop).await }
    });
    eventually("session", || server.has_session("c-1")).await;
    let mut stream = soon(server.dial("c-1", "tcp", "echo")).await.unwrap();
    soon(echo(&mut stream, &vec![3; 1 << 20])).await;
    stop.cancel();
    soon(client).await.unwrap();
    eventually("session gone", || !server.has_session("c-1")).await;
}
