//! Bytes through tunnels: many, slow, large.

use remuda_tunnel::{dial::Inbound, protocol::Limits, server::ServerOptions, session::SessionOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinSet,
};

use crate::support::{World, echo, eventually, service, services, soon, tcp_echo, world_with};

#[tokio::test]
async fn a_stream_reaches_what_the_client_dials() {
    let world = world_with(services()).await;
    let mut stream = soon(world.server.dial("c-1", "tcp", "echo")).await.unwrap();
    soon(echo(&mut stream, b"hello")).await;
}

#[tokio::test]
async fn a_client_dials_real_sockets() {
    let address = tcp_echo().await;
    let world = world_with(Inbound::net(|proto, _| proto == "tcp")).await;
    let mut stream = soon(world.server.dial("c-1", "tcp", &address.to_string())).await.unwrap();
    soon(echo(&mut stream, &vec![42; 300_000])).await;
}

#[tokio::test]
async fn an_orderly_close_delivers_everything_first() {
    let world = world_with(services()).await;
    let mut stream = world.server.dial("c-1", "tcp", "source:5000000").await.unwrap();
    let mut all = Vec::new();
    soon(stream.read_to_end(&mut all)).await.unwrap();
    assert_eq!(all.len(), 5_000_000);
}

#[tokio::test]
async fn what_was_written_before_a_drop_arrives() {
    let (send, mut receive) = tokio::sync::mpsc::channel(1);
    let world = world_with(Inbound::all(move |_: String, _: String| {
        let send = send.clone();
        async move {
            let (near, mut far) = tokio::io::duplex(1024);
            tokio::task::spawn(async move {
                let mut all = Vec::new();
                far.read_to_end(&mut all).await.unwrap();
                send.send(all.len()).await.unwrap();
            });
            Ok(Box::new(near) as remuda_tunnel::dial::BoxIo)
        }
    }))
    .await;
    let mut stream = world.server.dial("c-1", "tcp", "x").await.unwrap();
    stream.write_all(&vec![1; 200_000]).await.unwrap();
    drop(stream);
    assert_eq!(soon(receive.recv()).await, Some(200_000));
}

#[tokio::test]
async fn shutdown_waits_for_the_data_and_reading_goes_on() {
    let world = world_with(services()).await;
    let mut stream = world.server.dial("c-1", "tcp", "echo").await.unwrap();
    stream.write_all(b"last words").await.unwrap();
    soon(stream.shutdown()).await.unwrap();
    assert!(stream.write_all(b"no").await.is_err());
    let mut back = [0; 10];
    soon(stream.read_exact(&mut back)).await.unwrap();
    assert_eq!(&back, b"last words");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_streams_share_a_session_without_mixing() {
    let world = world_with(services()).await;
    let mut tasks = JoinSet::new();
    for number in 0..2000u32 {
        let server = world.server.clone();
        tasks.spawn(async move {
            let mut stream = server.dial("c-1", "tcp", "echo").await.unwrap();
            for round in 0..3u32 {
                let text = (number * 3 + round).to_le_bytes().repeat(50 + (number % 97) as usize);
                echo(&mut stream, &text).await;
            }
            stream
        });
    }
    let streams = soon(tasks.join_all()).await;
    assert_eq!(world.server.statistics().connections, 2000);
    drop(streams);
    eventually("all connections gone", || world.server.statistics().connections == 0).await;
}

#[tokio::test]
async fn a_stalled_reader_holds_a_bounded_amount_and_no_one_else_up() {
    let mut world = World::new(ServerOptions::default());
    let limits = Limits { high_water: 256 << 10, ..Limits::default() };
    let options = SessionOptions { limits, ..SessionOptions::default() };
    world.server = remuda_tunnel::server::Server::new(ServerOptions {
        session: options.clone(),
        ..ServerOptions::default()
    });
    world.client("c-1", services(), options).await;
    let mut stalled = world.server.dial("c-1", "tcp", "source:100000000").await.unwrap();
    eventually("pause", || world.server.statistics().counters.pauses_sent > 0).await;
    for _ in 0..50 {
        let mut stream = world.server.dial("c-1", "tcp", "echo").await.unwrap();
        soon(echo(&mut stream, b"not stalled")).await;
        let unread = world.server.statistics().unread_bytes;
        assert!(unread < 1 << 20, "{unread}");
    }
    // And it picks up where it stopped.
    let (mut rest, mut sink) = ((&mut stalled).take(10_000_000), tokio::io::sink());
    assert_eq!(soon(tokio::io::copy(&mut rest, &mut sink)).await.unwrap(), 10_000_000);
}

#[tokio::test]
async fn a_stalled_service_stops_the_writer_with_bounded_memory() {
    let world = world_with(services()).await;
    let mut stuck = world.server.dial("c-1", "tcp", "hold").await.unwrap();
    let chunk = vec![0; 64 << 10];
    let mut written = 0;
    while let Ok(result) =
        tokio::time::timeout(std::time::Duration::from_millis(300), stuck.write(&chunk)).await
    {
        written += result.unwrap();
        assert!(written < 8 << 20, "{written}");
    }
    // High water of the client, the send buffer here and what is under way.
    assert!((2 << 20..4 << 20).contains(&written), "{written}");
    let mut stream = world.server.dial("c-1", "tcp", "echo").await.unwrap();
    soon(echo(&mut stream, b"not stuck")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_leaves_small_exchanges_their_turn() {
    let world = world_with(services()).await;
    let mut floods = JoinSet::new();
    for _ in 0..4 {
        let mut stream = world.server.dial("c-1", "tcp", "source:200000000").await.unwrap();
        floods.spawn(async move { tokio::io::copy(&mut stream, &mut tokio::io::sink()).await });
    }
    let mut stream = world.server.dial("c-1", "tcp", "echo").await.unwrap();
    for _ in 0..20 {
        soon(echo(&mut stream, b"quick")).await;
    }
    floods.abort_all();
}

#[tokio::test]
async fn a_refused_dial_shows_the_text_of_the_client() {
    let world = world_with(services()).await;
    let mut stream = world.server.dial("c-1", "tcp", "refuse").await.unwrap();
    let error = soon(stream.read(&mut [0; 10])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(error.to_string(), "dial tcp refuse: connect: connection refused");
    eventually("forgotten", || service("echo").is_ok()).await;
}

#[tokio::test]
async fn a_closed_port_is_refused_with_the_words_of_the_original() {
    let port = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let world = world_with(Inbound::net(|_, _| true)).await;
    let mut stream = world.server.dial("c-1", "tcp", &port.to_string()).await.unwrap();
    let error = soon(stream.read(&mut [0; 10])).await.unwrap_err();
    assert_eq!(error.to_string(), format!("dial tcp {port}: connect: connection refused"));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_never_takes_its_data_does_not_keep_a_closed_connection() {
    let (send, mut receive) = tokio::sync::mpsc::channel(1);
    let world = world_with(Inbound::all(move |_: String, _: String| {
        let send = send.clone();
        async move {
            let (near, far) = tokio::io::duplex(16);
            send.send(far).await.unwrap();
            Ok(Box::new(near) as remuda_tunnel::dial::BoxIo)
        }
    }))
    .await;
    let mut stream = world.server.dial("c-1", "tcp", "x").await.unwrap();
    stream.write_all(&[1; 1000]).await.unwrap();
    let mut far = soon(receive.recv()).await.unwrap();
    drop(stream);
    tokio::time::sleep(std::time::Duration::from_secs(130)).await;
    // The near end is gone: what it had written is there, then the end.
    let mut all = Vec::new();
    soon(far.read_to_end(&mut all)).await.unwrap();
    assert!(all.len() <= 32, "{}", all.len());
}
