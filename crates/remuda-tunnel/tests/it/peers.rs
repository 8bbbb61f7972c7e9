//! Servers that reach each other's clients.

use std::sync::{Arc, atomic::AtomicUsize};

use http::{HeaderMap, HeaderValue};
use remuda_tunnel::{
    server::{ID_HEADER, Identity, Peer, PeerIdentity, Server, ServerOptions, SessionEvent, TOKEN_HEADER},
    session::SessionOptions,
};
use tokio::io::AsyncReadExt;

use crate::support::{World, connector, echo, eventually, services, soon};

fn server(id: &str) -> World {
    let identity = PeerIdentity { id: id.into(), token: format!("token of {id}") };
    World::new(ServerOptions { identity: Some(identity), ..ServerOptions::default() })
}

fn peer(id: &str) -> Peer {
    Peer { url: format!("wss://{id}/v3/connect"), id: id.into(), token: format!("token of {id}") }
}

/// Links both ways, as replicas do.
fn link(a: &Server, b: &Server) {
    let attempts = Arc::new(AtomicUsize::new(0));
    a.add_peer(peer("b"), connector(b.clone(), attempts.clone()));
    b.add_peer(peer("a"), connector(a.clone(), attempts));
}

#[tokio::test(start_paused = true)]
async fn a_client_is_reached_through_the_server_it_is_connected_to() {
    let (mut a, b) = (server("a"), server("b"));
    a.client("before", services(), SessionOptions::default()).await;
    link(&a.server, &b.server);
    eventually("announced", || b.server.has_session("before")).await;
    let stop = a.client("after", services(), SessionOptions::default()).await;
    eventually("announced", || b.server.has_session("after")).await;
    assert!(b.server.clients().is_empty());
    for key in ["before", "after"] {
        let mut stream = b.server.dial(key, "tcp", "echo").await.unwrap();
        soon(echo(&mut stream, &vec![9; 500_000])).await;
    }
    let mut refused = b.server.dial("after", "tcp", "refuse").await.unwrap();
    let error = soon(refused.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(error.to_string(), "dial tcp refuse: connect: connection refused");
    stop.cancel();
    eventually("withdrawn", || !b.server.has_session("after")).await;
    assert!(b.server.has_session("before"));
}

#[tokio::test(start_paused = true)]
async fn a_lost_link_comes_back_and_announces_again() {
    let (mut a, b) = (server("a"), server("b"));
    a.client("c", services(), SessionOptions::default()).await;
    link(&a.server, &b.server);
    eventually("announced", || b.server.has_session("c")).await;
    b.server.remove_peer("a");
    eventually("forgotten", || !b.server.has_session("c")).await;
    b.server.add_peer(peer("a"), connector(a.server.clone(), Arc::new(AtomicUsize::new(0))));
    eventually("announced again", || b.server.has_session("c")).await;
    soon(a.server.shutdown()).await;
    eventually("gone with its server", || !b.server.has_session("c")).await;
    soon(b.server.shutdown()).await;
}

#[tokio::test(start_paused = true)]
async fn the_clients_of_a_peer_are_announced_to_subscribers() {
    let (mut a, b) = (server("a"), server("b"));
    link(&a.server, &b.server);
    eventually("linked", || b.server.statistics().peer_sessions == 1).await;
    let mut events = b.server.subscribe();
    let mut next = async move |wanted: bool| {
        loop {
            // Servers announce each other too.
            match soon(events.recv()).await.unwrap() {
                SessionEvent::Remote { client, added } if client == "c" => {
                    assert_eq!(added, wanted);
                    return;
                }
                _ => {}
            }
        }
    };
    let stop = a.client("c", services(), SessionOptions::default()).await;
    next(true).await;
    stop.cancel();
    next(false).await;
    a.client("c", services(), SessionOptions::default()).await;
    next(true).await;
    // With the link goes what is behind it.
    soon(a.server.shutdown()).await;
    next(false).await;
    assert!(!b.server.has_session("c"));
}

#[tokio::test(start_paused = true)]
async fn an_equal_peer_is_not_linked_twice() {
    let (a, b) = (server("a"), server("b"));
    let attempts = Arc::new(AtomicUsize::new(0));
    b.server.add_peer(peer("a"), connector(a.server.clone(), Arc::default()));
    for _ in 0..3 {
        a.server.add_peer(peer("b"), connector(b.server.clone(), attempts.clone()));
    }
    eventually("linked", || b.server.statistics().peer_sessions == 1).await;
    assert_eq!(attempts.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn only_known_peers_with_their_token_are_recognised() {
    let (a, b) = (server("a"), server("b"));
    a.server.add_peer(peer("b"), connector(b.server.clone(), Arc::default()));
    let headers = |id: &'static str, token: &'static str| {
        HeaderMap::from_iter(
            [(ID_HEADER, id), (TOKEN_HEADER, token)]
                .map(|(name, value)| (http::HeaderName::from_static(name), HeaderValue::from_static(value))),
        )
    };
    let known = |id, token| a.server.authenticate_peer(&headers(id, token));
    assert_eq!(known("b", "token of b"), Some(Identity::Peer("b".into())));
    assert_eq!(known("b", "token of a"), None);
    assert_eq!(known("c", "token of c"), None);
    assert_eq!(known("b", ""), None);
    assert_eq!(a.server.authenticate_peer(&HeaderMap::new()), None);
}

#[tokio::test]
async fn without_an_identity_there_are_no_peers() {
    let (a, b) = (World::new(ServerOptions::default()), server("b"));
    a.server.add_peer(peer("b"), connector(b.server.clone(), Arc::default()));
    assert_eq!(a.server.authenticate_peer(&HeaderMap::new()), None);
    assert_eq!(b.server.statistics().peer_sessions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_cannot_pose_as_a_way_to_others() {
    use futures::SinkExt;
    use remuda_tunnel::{
        frame::{Body, ConnId, Frame, RemoteClient},
        protocol::Role,
    };
    use tokio_tungstenite::tungstenite::Message;

    let a = server("a");
    let (theirs, mut ours) = crate::support::half(Role::Server, 4096).await;
    let serving = a.server.clone();
    tokio::task::spawn(async move { serving.serve(Identity::Client("evil".into()), theirs).await });
    let claim = Body::AddClient(RemoteClient { key: "victim".into(), session: 1 });
    ours.send(Message::Binary(Frame { id: 1, conn: ConnId(0), body: claim }.encode())).await.unwrap();
    eventually("session", || a.server.has_session("evil")).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(!a.server.has_session("victim"));
}
