//! Sessions and ports over SPDY: each stream of a connection says by its headers what it is.

use std::{collections::HashMap, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{SinkExt, StreamExt, stream::FuturesUnordered};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};
use tracing::debug;

use super::{
    channels::{self, PING},
    forward,
    remote::{Input, Output, Transport},
};
use crate::spdy::{self, Stream};

/// The protocol of commands.
pub const COMMANDS: &str = "v4.channel.k8s.io";
/// The protocol of ports.
pub const PORTS: &str = "portforward.k8s.io";
/// The same inside a WebSocket.
pub const TUNNELLED_PORTS: &str = "SPDY/3.1+portforward.k8s.io";

/// For a client to open the streams it said it wants.
const OPENING: Duration = Duration::from_secs(30);
/// A terminal's size is a few dozen bytes.
const SIZE: usize = 1 << 10;
/// Halves of connections that wait for their others.
const HALVES: usize = 64;

/// The streams of a session, as the request said.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub terminal: bool,
}

/// Carries a session over a connection until either ends.
pub async fn session(io: impl AsyncRead + AsyncWrite + Unpin, wanted: Wanted, transport: Transport) {
    let served = spdy::serve(io, |streams| run(streams, wanted, transport)).await;
    if let Err(error) = served {
        debug!(%error, "a session over SPDY ended");
    }
}

async fn run(mut streams: mpsc::Receiver<Stream>, wanted: Wanted, transport: Transport) {
    let Transport { inputs, mut outputs } = transport;
    let mut names = vec!["error"];
    let optional = [
        (wanted.stdin, "stdin"),
        (wanted.stdout, "stdout"),
        (wanted.stderr && !wanted.terminal, "stderr"),
        (wanted.terminal, "resize"),
    ];
    names.extend(optional.iter().filter(|(wanted, _)| *wanted).map(|(_, name)| *name));
    let mut opened: HashMap<String, Stream> = HashMap::new();
    let opening = async {
        while opened.len() < names.len() {
            let Some(stream) = streams.recv().await else { return };
            match stream.header("streamtype").map(str::to_owned) {
                Some(name) if names.contains(&name.as_str()) => drop(opened.insert(name, stream)),
                _ => stream.sender.end().await,
            }
        }
    };
    if timeout(OPENING, opening).await.is_err() || opened.len() < names.len() {
        return;
    }
    let (stdin, resize) = (opened.remove("stdin"), opened.remove("resize"));
    let sender = |name: &str| opened.get(name).map(|stream| stream.sender.clone());
    let (stdout, stderr, error) = (sender("stdout"), sender("stderr"), sender("error"));
    let typing = async {
        if let Some(mut stdin) = stdin {
            while let Some(bytes) = stdin.bytes.recv().await {
                if inputs.send(Input::Stdin(bytes)).await.is_err() {
                    return;
                }
            }
            let _ = inputs.send(Input::End).await;
        }
        std::future::pending::<()>().await;
    };
    let resizing = async {
        if let Some(mut resize) = resize {
            let mut text = BytesMut::new();
            while let Some(bytes) = resize.bytes.recv().await {
                text.extend_from_slice(&bytes);
                while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                    let line = text.split_to(end + 1);
                    if let Some(input) = channels::resize(&line)
                        && inputs.send(input).await.is_err()
                    {
                        return;
                    }
                }
                if text.len() > SIZE {
                    return;
                }
            }
        }
        std::future::pending::<()>().await;
    };
    let saying = async {
        while let Some(output) = outputs.recv().await {
            let (to, bytes) = match output {
                Output::Stdout(bytes) => (&stdout, bytes),
                Output::Stderr(bytes) => (&stderr, bytes),
                Output::Status(status) => (&error, Bytes::from(status.to_string())),
            };
            if let Some(to) = to
                && !to.send(bytes).await
            {
                return;
            }
        }
        for sender in [stdout, stderr, error].iter().flatten() {
            sender.end().await;
        }
    };
    tokio::pin!(saying);
    tokio::select! {
        () = &mut saying => {}
        // The session takes no more; what it has said goes out.
        () = typing => saying.await,
        () = resizing => saying.await,
    }
}

/// Forwards ports until the client leaves.
pub async fn ports(io: impl AsyncRead + AsyncWrite + Unpin) {
    if let Err(error) = spdy::serve(io, pair).await {
        debug!(%error, "forwarding of ports ended");
    }
}

/// Brings together the two streams of each connection: one for bytes, one for an error.
async fn pair(mut streams: mpsc::Receiver<Stream>) {
    let mut halves: HashMap<String, Stream> = HashMap::new();
    let mut connections = FuturesUnordered::new();
    loop {
        let stream = tokio::select! {
            stream = streams.recv() => stream,
            Some(()) = connections.next() => continue,
        };
        let Some(stream) = stream else { return };
        let id = stream.header("requestid").unwrap_or_default().to_owned();
        let Some(other) = halves.remove(&id) else {
            if halves.len() < HALVES {
                halves.insert(id, stream);
            } else {
                stream.sender.end().await;
            }
            continue;
        };
        let (data, error) = match stream.header("streamtype") {
            Some("data") => (stream, other),
            _ => (other, stream),
        };
        connections.push(connection(data, error));
    }
}

async fn connection(data: Stream, error: Stream) {
    let port = data.header("port").and_then(|port| port.parse::<u16>().ok()).filter(|port| *port != 0);
    let Stream { bytes, sender, .. } = data;
    let result = match port {
        Some(port) => forward::carry(port, bytes, &sender).await,
        None => Err("the stream names no port".to_owned()),
    };
    if let Err(why) = result {
        error.sender.send(why.into()).await;
    }
    error.sender.end().await;
    sender.end().await;
}

/// Forwards ports over SPDY inside a WebSocket.
pub async fn tunnelled_ports<S: AsyncRead + AsyncWrite + Unpin>(socket: WebSocketStream<S>) {
    let (inner, outer) = duplex(64 << 10);
    tokio::join!(tunnel(socket, inner), ports(outer));
}

/// Messages on one side, their bytes one after the other on the other side.
async fn tunnel<S: AsyncRead + AsyncWrite + Unpin>(socket: WebSocketStream<S>, inner: DuplexStream) {
    let (mut sink, mut messages) = socket.split();
    let (mut from, mut to) = tokio::io::split(inner);
    let up = async {
        while let Some(Ok(message)) = messages.next().await {
            if message.is_close() {
                return;
            }
            if let Message::Binary(bytes) = message
                && to.write_all(&bytes).await.is_err()
            {
                return;
            }
        }
    };
    let down = async {
        let mut ping = tokio::time::interval_at(Instant::now() + PING, PING);
        let mut chunk = vec![0; 16 << 10];
        loop {
            let message = tokio::select! {
                read = from.read(&mut chunk) => match read {
                    Ok(read @ 1..) => Message::Binary(Bytes::copy_from_slice(&chunk[..read])),
                    _ => return channels::goodbye(&mut sink).await,
                },
                _ = ping.tick() => Message::Ping(Bytes::new()),
            };
            if sink.send(message).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::net::TcpListener;

    use super::*;
    use crate::{kubelet::remote, spdy::client::client};

    #[tokio::test]
    async fn a_session_has_a_stream_for_each_thing() {
        let (mut client, io) = client();
        let (mut session, transport) = remote::session();
        let wanted = Wanted { stdin: true, stdout: true, stderr: true, terminal: false };
        let talk = async {
            // One that nobody asked for is closed and does no harm.
            for (id, name) in [(1, "error"), (3, "other"), (5, "stdin"), (7, "stdout"), (9, "stderr")] {
                client.open(id, &[("streamType", name)]).await;
            }
            client.say(5, 0, "typed").await;
            client.end(5).await;
            let said = client.all(&[1, 3, 7, 9]).await;
            drop(client);
            said
        };
        let work = async {
            assert_eq!(session.inputs.recv().await, Some(Input::Stdin("typed".into())));
            assert_eq!(session.inputs.recv().await, Some(Input::End));
            for output in
                [Output::Stdout("out".into()), Output::Stderr("err".into()), Output::Status(json!({"a": 1}))]
            {
                session.outputs.send(output).await.unwrap();
            }
            drop(session);
        };
        let (_, said, ()) = tokio::join!(super::session(io, wanted, transport), talk, work);
        assert_eq!((said[&1].as_str(), said[&7].as_str(), said[&9].as_str()), ("{\"a\":1}", "out", "err"));
    }

    #[tokio::test]
    async fn a_terminal_has_a_size_and_no_errors_apart() {
        let (mut client, io) = client();
        let (mut session, transport) = remote::session();
        let wanted = Wanted { stdin: false, stdout: true, stderr: true, terminal: true };
        let talk = async {
            for (id, name) in [(1, "error"), (3, "stdout"), (5, "resize")] {
                client.open(id, &[("streamType", name)]).await;
            }
            client.say(5, 0, "{\"Width\":80,").await;
            client.say(5, 0, "\"Height\":24}\nnonsense\n").await;
            client.all(&[1, 3]).await;
        };
        let work = async {
            assert_eq!(session.inputs.recv().await, Some(Input::Resize { columns: 80, rows: 24 }));
            drop(session);
        };
        tokio::join!(super::session(io, wanted, transport), talk, work);
    }

    #[tokio::test]
    async fn a_port_has_two_streams_and_many_connections() {
        let (mut client, io) = client();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port().to_string();
        let serving = async {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).await.unwrap();
                stream.write_all(text.to_uppercase().as_bytes()).await.unwrap();
            }
        };
        let talk = async {
            for (id, name, request, port) in [
                (1, "error", "0", &port),
                (3, "data", "0", &port),
                (5, "data", "1", &port),
                (7, "error", "1", &port),
                (9, "error", "2", &closed),
                (11, "data", "2", &closed),
            ] {
                client.open(id, &[("streamType", name), ("requestID", request), ("port", port)]).await;
            }
            client.say(3, 0, "first").await;
            client.say(5, 0, "second").await;
            client.end(5).await;
            client.end(3).await;
            let said = client.all(&[1, 3, 5, 7, 9, 11]).await;
            drop(client);
            said
        };
        let ((), (), said) = tokio::join!(ports(io), serving, talk);
        assert_eq!((said[&3].as_str(), said[&5].as_str()), ("FIRST", "SECOND"));
        assert_eq!((said[&1].as_str(), said[&7].as_str()), ("", ""));
        assert!(said[&9].starts_with("failed to connect to localhost:"), "{}", said[&9]);
    }
}
