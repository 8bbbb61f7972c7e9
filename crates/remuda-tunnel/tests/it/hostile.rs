//! Other ends that do not behave.

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use remuda_tunnel::{
    client,
    frame::{Body, ConnId, Frame},
    protocol::{Limits, Role},
    server::{Identity, Server, ServerOptions},
    session::{SessionEnd, SessionOptions},
    websocket::WebSocket,
};
use tokio::{
    io::{AsyncWriteExt, DuplexStream},
    task::JoinSet,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};
use tokio_util::sync::CancellationToken;

use crate::support::{World, echo, eventually, half, services, soon};

type Raw = WebSocketStream<DuplexStream>;

/// A server session whose client is in the hands of the test.
async fn raw_client(options: ServerOptions) -> (Server, Raw, JoinSet<SessionEnd>) {
    let server = Server::new(options);
    let (theirs, ours) = half(Role::Server, 1 << 20).await;
    let mut tasks = JoinSet::new();
    let serving = server.clone();
    tasks.spawn(async move { serving.serve(Identity::Client("c-1".into()), theirs).await });
    eventually("session", || server.has_session("c-1")).await;
    (server, ours, tasks)
}

fn binary(conn: i64, body: Body) -> Message {
    Message::Binary(Frame { id: 1, conn: ConnId(conn), body }.encode())
}

async fn end_after(message: Message) -> SessionEnd {
    let (_server, mut client, mut tasks) = raw_client(ServerOptions::default()).await;
    client.send(message).await.unwrap();
    soon(tasks.join_next()).await.unwrap().unwrap()
}

#[tokio::test]
async fn broken_and_foreign_messages_end_the_session() {
    let broken = Message::Binary(Bytes::from_static(&[0x80]));
    assert!(matches!(end_after(broken).await, SessionEnd::Violation(_)));
    assert!(matches!(end_after(Message::text("hello")).await, SessionEnd::MessageType));
    let connect = Body::Connect { proto: "tcp".into(), address: "127.0.0.1:22".into() };
    assert!(matches!(end_after(binary(9, connect)).await, SessionEnd::ConnectNotAllowed { .. }));
    assert!(matches!(end_after(Message::Close(None)).await, SessionEnd::Closed));
}

#[tokio::test]
async fn strays_are_answered_or_skipped_and_the_session_goes_on() {
    let (server, mut client, _tasks) = raw_client(ServerOptions::default()).await;
    for body in [Body::Pause, Body::Resume, Body::Error("EOF".into()), Body::Unknown(42)] {
        client.send(binary(1234, body)).await.unwrap();
    }
    client.send(binary(1234, Body::Data(Bytes::from_static(b"?")))).await.unwrap();
    let Message::Binary(reply) = soon(client.next()).await.unwrap().unwrap() else { panic!() };
    let Frame { conn, body: Body::Error(text), .. } = Frame::decode(reply).unwrap() else { panic!() };
    assert_eq!(conn, ConnId(1234));
    assert!(text.starts_with("connection not found c-1/"), "{text}");
    assert!(server.has_session("c-1"));
}

#[tokio::test]
async fn a_client_that_ignores_pauses_loses_the_stream_not_the_session() {
    let limits = Limits { high_water: 64 << 10, receive: 512 << 10, ..Limits::default() };
    let session = SessionOptions { limits, ..SessionOptions::default() };
    let (server, mut client, _tasks) =
        raw_client(ServerOptions { session, ..ServerOptions::default() }).await;
    let stream = server.dial("c-1", "tcp", "x").await.unwrap();
    let id = stream.id().0;
    let mut pauses = 0;
    let mut text = None;
    for _ in 0..64 {
        client.feed(binary(id, Body::Data(vec![0; 16 << 10].into()))).await.unwrap();
        assert!(server.statistics().unread_bytes <= 512 << 10);
    }
    client.flush().await.unwrap();
    while text.is_none() {
        let Message::Binary(message) = soon(client.next()).await.unwrap().unwrap() else { continue };
        match Frame::decode(message).unwrap().body {
            Body::Pause => pauses += 1,
            Body::Error(reason) => text = Some(reason),
            _ => {}
        }
    }
    assert!(pauses > 0);
    assert_eq!(text.as_deref(), Some("receive buffer exceeded"));
    assert!(server.has_session("c-1"));
    assert_eq!(server.statistics().unread_bytes, 0);
}

#[tokio::test]
async fn thousands_of_half_open_connections_are_bounded() {
    let (client, mut server) = half(Role::Client, 1 << 20).await;
    let limits = Limits { connections: 100, ..Limits::default() };
    let options = SessionOptions { limits, ..SessionOptions::default() };
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let client_stop = stop.clone();
    tasks.spawn(async move { client::serve(client, services(), options, &client_stop).await });
    for id in 2..5002 {
        let connect = Body::Connect { proto: "tcp".into(), address: "hold".into() };
        server.feed(binary(id, connect)).await.unwrap();
    }
    server.flush().await.unwrap();
    let mut refused = 0;
    while refused < 1024 {
        let Message::Binary(message) = soon(server.next()).await.unwrap().unwrap() else { continue };
        let Body::Error(text) = Frame::decode(message).unwrap().body else { panic!() };
        assert_eq!(text, "too many connections: 100");
        refused += 1;
    }
    stop.cancel();
    soon(tasks.join_next()).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_dropped() {
    let server = Server::new(ServerOptions::default());
    let (theirs, mut ours) = half(Role::Server, 4096).await;
    let mut tasks = JoinSet::new();
    let serving = server.clone();
    tasks.spawn(async move { serving.serve(Identity::Client("c-1".into()), theirs).await });
    eventually("session", || server.has_session("c-1")).await;
    let mut stream = server.dial("c-1", "tcp", "x").await.unwrap();
    tasks.spawn(async move {
        // Pings keep coming, so it is not silence that ends it.
        while ours.send(Message::Ping(Bytes::new())).await.is_ok() {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        SessionEnd::Stopped
    });
    let copy = tokio::io::copy(&mut tokio::io::repeat(1), &mut stream).await;
    assert!(copy.is_err());
    let ends = tasks.join_next().await.unwrap().unwrap();
    assert!(matches!(ends, SessionEnd::WriteStall(_) | SessionEnd::Stopped), "{ends}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_finishes_a_message_is_dropped_and_nobody_else() {
    let mut world = World::new(ServerOptions::default());
    world.client("c-1", services(), SessionOptions::default()).await;
    let (mut loris, theirs) = tokio::io::duplex(1 << 20);
    let (serving, theirs) = (world.server.clone(), WebSocket::new(theirs, Role::Server));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { serving.serve(Identity::Client("slow".into()), theirs).await });
    eventually("session", || world.server.has_session("slow")).await;
    let began = tokio::time::Instant::now();
    // A message of 64 KiB, masked, of which a byte comes each second.
    loris.write_all(&[0x82, 0xfe, 0xff, 0xff, 0, 0, 0, 0]).await.unwrap();
    let mut stream = world.server.dial("c-1", "tcp", "echo").await.unwrap();
    while loris.write_all(&[0]).await.is_ok() && world.server.has_session("slow") {
        soon(echo(&mut stream, b"the others go on")).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(began.elapsed() < Duration::from_secs(90), "it is still there");
    }
    let end = soon(tasks.join_next()).await.unwrap().unwrap();
    assert!(matches!(end, SessionEnd::Violation(_)), "{end}");
    assert!(world.server.has_session("c-1"));
}
