//! How sessions begin, end and return.

use std::{
    io::ErrorKind,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use http::HeaderMap;
use remuda_tunnel::{
    client::{self, Backoff, Link},
    dial::{Inbound, Refusal},
    server::{DialError, Server, ServerOptions, SessionEvent},
    session::{SessionEnd, SessionOptions},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::support::{World, connector, echo, eventually, services, sockets, soon, world_with};

#[tokio::test]
async fn the_loss_of_a_session_fails_its_streams_with_a_reason() {
    let mut world = world_with(services()).await;
    let mut stream = world.server.dial("c-1", "tcp", "echo").await.unwrap();
    echo(&mut stream, b"alive").await;
    world.tasks.abort_all();
    let error = soon(stream.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::ConnectionAborted, "tunnel disconnect")
    );
    assert_eq!(stream.write(b"x").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    eventually("session gone", || !world.server.has_session("c-1")).await;
    assert!(matches!(world.server.dial("c-1", "tcp", "echo").await, Err(DialError::NoSession(_))));
}

#[tokio::test]
async fn an_unknown_client_is_named_in_the_error() {
    let world = World::new(ServerOptions::default());
    let error = world.server.dial("nobody", "tcp", "x").await.unwrap_err();
    assert_eq!(error.to_string(), "failed to find Session for client nobody");
}

#[tokio::test]
async fn the_newest_session_of_a_client_serves_and_the_older_one_takes_over() {
    let mut world = World::new(ServerOptions::default());
    world.client("c-1", services(), SessionOptions::default()).await;
    let newest = world.client("c-1", services(), SessionOptions::default()).await;
    let load = |server: &Server| -> Vec<usize> {
        server.sessions("c-1").iter().map(|session| session.load().0).collect()
    };
    let mut stream = world.server.dial("c-1", "tcp", "echo").await.unwrap();
    echo(&mut stream, b"one").await;
    assert_eq!(load(&world.server), [1, 0]);
    newest.cancel();
    eventually("newest gone", || world.server.sessions("c-1").len() == 1).await;
    let mut stream = world.server.dial("c-1", "tcp", "echo").await.unwrap();
    echo(&mut stream, b"two").await;
    assert_eq!(load(&world.server), [1]);
}

#[tokio::test]
async fn sessions_are_announced_to_subscribers() {
    let mut world = World::new(ServerOptions::default());
    let mut events = world.server.subscribe();
    let stop = world.client("c-1", services(), SessionOptions::default()).await;
    assert_eq!(world.server.clients(), ["c-1"]);
    let SessionEvent::Added { client, session, peer: false } = events.recv().await.unwrap() else { panic!() };
    stop.cancel();
    let removed = soon(events.recv()).await.unwrap();
    assert_eq!(removed, SessionEvent::Removed { client, session, peer: false });
    assert!(world.server.clients().is_empty());
}

#[tokio::test]
async fn a_revoked_client_is_cut_off_at_once() {
    let mut world = world_with(services()).await;
    let mut stream = world.server.dial("c-1", "tcp", "echo").await.unwrap();
    echo(&mut stream, b"alive").await;
    assert_eq!(world.server.disconnect("c-1"), 1);
    assert!(soon(stream.read(&mut [0; 1])).await.is_err());
    let mut ends = Vec::new();
    while let Some(end) = soon(world.tasks.join_next()).await {
        ends.push(end.unwrap().to_string());
    }
    ends.sort();
    assert_eq!(ends, ["closed by the other end", "stopped"]);
}

#[tokio::test]
async fn shutdown_ends_every_session_and_tells_the_clients() {
    let mut world = world_with(services()).await;
    let stream = world.server.dial("c-1", "tcp", "hold").await.unwrap();
    soon(world.server.shutdown()).await;
    while let Some(end) = soon(world.tasks.join_next()).await {
        assert!(matches!(end.unwrap(), SessionEnd::Stopped | SessionEnd::Closed));
    }
    drop(stream);
    assert_eq!(world.server.statistics().client_sessions, 0);
}

#[tokio::test]
async fn a_client_returns_after_every_loss_and_nothing_is_left_behind() {
    let server = Server::new(ServerOptions::default());
    let attempts = Arc::new(AtomicUsize::new(0));
    let stop = CancellationToken::new();
    let (link, state) = watch::channel(Link::default());
    let mut tasks = JoinSet::new();
    let backoff =
        Backoff { first: Duration::from_millis(1), max: Duration::from_millis(1), ..Backoff::default() };
    let (connect, client_stop) = (connector(server.clone(), attempts.clone()), stop.clone());
    tasks.spawn(async move {
        let options = SessionOptions::default();
        client::run(connect, HeaderMap::new(), services(), options, backoff, &link, &client_stop).await;
    });
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let mut baseline = 0;
    for round in 0..500 {
        eventually("session", || server.has_session("c-1")).await;
        let mut stream = match server.dial("c-1", "tcp", "echo").await {
            Ok(stream) => stream,
            Err(error) => panic!("round {round}: {error}"),
        };
        soon(echo(&mut stream, b"back")).await;
        baseline = if round == 0 { alive() } else { baseline };
        let added = server.statistics().sessions_added;
        server.disconnect("c-1");
        eventually("next session", || server.statistics().sessions_added > added).await;
    }
    eventually("session", || server.has_session("c-1")).await;
    eventually("only one session's tasks", || alive() <= baseline).await;
    stop.cancel();
    soon(tasks.join_next()).await.unwrap().unwrap();
    eventually("no session", || server.statistics().client_sessions == 0).await;
    let statistics = server.statistics();
    assert_eq!(statistics.sessions_added, statistics.sessions_removed);
    assert_eq!(statistics.counters.opened, statistics.counters.closed);
    assert_eq!((statistics.connections, statistics.unread_bytes), (0, 0));
    assert!(attempts.load(std::sync::atomic::Ordering::SeqCst) >= 500);
    assert!(matches!(*state.borrow(), Link::Connected | Link::Waiting { .. } | Link::Connecting));
}

#[tokio::test]
async fn a_failed_connect_is_reported_with_its_sources() {
    let stop = CancellationToken::new();
    let (link, mut state) = watch::channel(Link::default());
    let connect = |_: HeaderMap| async { Err("lookup rancher.example.com: no such host".into()) };
    let client_stop = stop.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let (inbound, options) = (services(), SessionOptions::default());
        client::run(connect, HeaderMap::new(), inbound, options, Backoff::default(), &link, &client_stop)
            .await;
    });
    let waiting = soon(state.wait_for(|link| matches!(link, Link::Waiting { .. }))).await.unwrap().clone();
    let Link::Waiting { error, .. } = waiting else { panic!() };
    assert_eq!(&*error, "lookup rancher.example.com: no such host");
    stop.cancel();
    soon(tasks.join_next()).await;
}

#[tokio::test]
async fn a_connect_that_is_not_allowed_ends_the_session() {
    let mut world = world_with(Inbound::net(|proto, _| proto == "tcp")).await;
    let _stream = world.server.dial("c-1", "unix", "/etc/passwd").await.unwrap();
    let end = soon(world.tasks.join_next()).await.unwrap().unwrap();
    assert!(matches!(
        end,
        SessionEnd::ConnectNotAllowed { .. } | SessionEnd::Closed | SessionEnd::Transport(_)
    ));
    eventually("session gone", || !world.server.has_session("c-1")).await;
}

#[tokio::test]
async fn a_lenient_client_refuses_only_the_connection() {
    let inbound = Inbound { refusal: Refusal::Connection, ..Inbound::net(|_, _| false) };
    let world = world_with(inbound).await;
    let mut stream = world.server.dial("c-1", "unix", "/etc/passwd").await.unwrap();
    let error = soon(stream.read(&mut [0; 1])).await.unwrap_err();
    assert_eq!(error.to_string(), "connect not allowed");
    assert!(world.server.has_session("c-1"));
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_lives_on_pings_alone() {
    let world = world_with(services()).await;
    let mut stream = world.server.dial("c-1", "tcp", "echo").await.unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    soon(echo(&mut stream, b"still there")).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_dropped_after_a_minute() {
    let server = Server::new(ServerOptions::default());
    let (theirs, ours) = sockets(1024);
    let since = Instant::now();
    let end = server.serve(remuda_tunnel::server::Identity::Client("mute".into()), theirs).await;
    assert!(matches!(end, SessionEnd::Violation(_)), "{end}");
    assert_eq!(since.elapsed().as_secs(), 60);
    drop(ours);
}

#[tokio::test(start_paused = true)]
async fn a_dial_through_a_dead_transport_does_not_hang() {
    let server = Server::new(ServerOptions::default());
    // The pipe holds a few bytes and nobody reads them.
    let (theirs, ours) = sockets(8);
    let mut tasks = JoinSet::new();
    let serving = server.clone();
    tasks.spawn(
        async move { serving.serve(remuda_tunnel::server::Identity::Client("c-1".into()), theirs).await },
    );
    eventually("session", || server.has_session("c-1")).await;
    let mut first = server.dial("c-1", "tcp", "x").await.unwrap();
    let error = first.read(&mut [0; 1]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    assert!(server.dial("c-1", "tcp", "x").await.is_err());
    drop(ours);
}
