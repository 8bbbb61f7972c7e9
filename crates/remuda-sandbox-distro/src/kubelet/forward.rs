//! Ports of a Pod for somebody outside. Pods have the network of their node, so its loopback address is theirs.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use bytes::Bytes;
use futures::{SinkExt, StreamExt, future::join_all};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_tungstenite::{WebSocketStream, tungstenite::Message};

use super::channels::{self, PING};
use crate::spdy;

const CONNECT: Duration = Duration::from_secs(10);
const CHUNK: usize = 16 << 10;
const QUEUE: usize = 8;
/// Channels are numbered by a byte, and each port has two.
pub const MOST_PORTS: usize = 127;

/// A connection to a port of a Pod.
pub async fn connect(port: u16) -> Result<TcpStream, String> {
    let attempt = async {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
            // A program may listen on one of the two only.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.map_err(|_| error)
            }
            connected => connected,
        }
    };
    match timeout(CONNECT, attempt).await {
        Ok(Ok(stream)) => {
            let _ = stream.set_nodelay(true);
            Ok(stream)
        }
        Ok(Err(error)) => Err(format!("failed to connect to localhost:{port}: {error}")),
        Err(_) => Err(format!("failed to connect to localhost:{port}: no answer in time")),
    }
}

/// The way back of a connection.
pub trait Back {
    /// False if nobody takes any more.
    fn give(&self, bytes: Bytes) -> impl Future<Output = bool> + Send;
}

impl Back for &spdy::Sender {
    fn give(&self, bytes: Bytes) -> impl Future<Output = bool> + Send {
        self.send(bytes)
    }
}

/// A channel of a WebSocket.
struct Channel<'a>(u8, &'a mpsc::Sender<Message>);

impl Back for Channel<'_> {
    async fn give(&self, bytes: Bytes) -> bool {
        self.1.send(channels::message(self.0, &bytes)).await.is_ok()
    }
}

/// Carries one connection. Returns why it could not be made.
pub async fn carry(port: u16, mut from: mpsc::Receiver<Bytes>, to: impl Back) -> Result<(), String> {
    let (mut reader, mut writer) = connect(port).await?.into_split();
    let up = async {
        while let Some(bytes) = from.recv().await {
            if writer.write_all(&bytes).await.is_err() {
                break;
            }
        }
        let _ = writer.shutdown().await;
    };
    let down = async {
        let mut chunk = vec![0; CHUNK];
        while let Ok(read @ 1..) = reader.read(&mut chunk).await {
            if !to.give(Bytes::copy_from_slice(&chunk[..read])).await {
                break;
            }
        }
    };
    tokio::pin!(up, down);
    // The Pod's answer may follow the last of what it was told; with its end there is nothing more to say.
    tokio::select! {
        () = &mut down => {}
        () = &mut up => down.await,
    }
    Ok(())
}

/// Forwards ports over a WebSocket of channels: for the n-th port `2n` for bytes and `2n + 1` for an error, each
/// beginning with the port's number.
pub async fn serve<S>(socket: WebSocketStream<S>, ports: &[u16])
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sink, mut messages) = socket.split();
    let (out, mut outputs) = mpsc::channel::<Message>(QUEUE);
    let mut inputs = Vec::new();
    let mut connections = Vec::new();
    for (channel, port) in (0..).step_by(2).zip(ports.iter().copied().take(MOST_PORTS)) {
        let (input, from) = mpsc::channel(QUEUE);
        inputs.push(input);
        let out = out.clone();
        connections.push(async move {
            for channel in [channel, channel + 1] {
                let _ = out.send(channels::message(channel, &port.to_le_bytes())).await;
            }
            if let Err(why) = carry(port, from, Channel(channel, &out)).await {
                let _ = out.send(channels::message(channel + 1, why.as_bytes())).await;
            }
        });
    }
    drop(out);
    let connections = async {
        join_all(connections).await;
        // What is on its way goes out; then the last sender is gone and the writer ends.
        std::future::pending::<()>().await;
    };
    let reading = async {
        while let Some(Ok(message)) = messages.next().await {
            let Message::Binary(mut data) = message else {
                if message.is_close() {
                    return;
                }
                continue;
            };
            if data.len() < 2 {
                continue;
            }
            let rest = data.split_off(1);
            if data[0].is_multiple_of(2)
                && let Some(input) = inputs.get(usize::from(data[0] / 2))
            {
                // One whose connection is over is not told any more.
                let _ = input.send(rest).await;
            }
        }
    };
    let writing = async {
        let mut ping = tokio::time::interval_at(Instant::now() + PING, PING);
        loop {
            let message = tokio::select! {
                message = outputs.recv() => message,
                _ = ping.tick() => Some(Message::Ping(Bytes::new())),
            };
            match message {
                Some(message) => {
                    if sink.send(message).await.is_err() {
                        return;
                    }
                }
                None => return channels::goodbye(&mut sink).await,
            }
        }
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
        () = connections => {}
    }
}
