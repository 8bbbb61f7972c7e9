//! The answering side: any [`Driver`] over the plugin protocol.
//!
//! Calls of one connection run concurrently, because heartbeats must be answered while a machine is being
//! created.

use std::{sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Mutex as AsyncMutex, Notify},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::{
    CONNECT, CONNECTED, OLD_SERVICE, SERVICE,
    codec::{Arrival, Received, Side},
};
use crate::{
    driver::{Config, Driver},
    error::Error,
    gob::{
        self, Encoder, Limits,
        encode::{Body, Header},
    },
};

/// A server without a heartbeat for this long has been forgotten by its parent.
pub const HEARTBEAT: Duration = Duration::from_secs(10);
/// Calls of one connection that may run at the same time.
const IN_FLIGHT: usize = 64;

/// Why serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The parent called `Close`.
    Closed,
    /// The parent went silent.
    Abandoned,
}

/// Serves `driver` to every connection until the parent closes it or goes silent for `patience`.
pub async fn serve(driver: Arc<dyn Driver>, listener: TcpListener, patience: Duration) -> Ended {
    let shared = Arc::new(Shared { driver, alive: Notify::new(), close: Notify::new() });
    let mut connections = JoinSet::new();
    let mut deadline = Instant::now() + patience;
    loop {
        tokio::select! {
            () = shared.close.notified() => {
                // The reply to Close is still being written.
                let _ = timeout(Duration::from_millis(200), connections.join_next()).await;
                return Ended::Closed;
            }
            alive = timeout_at(deadline, shared.alive.notified()) => match alive {
                Ok(()) => deadline = Instant::now() + patience,
                Err(_) => return Ended::Abandoned,
            },
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, shared.clone()));
                }
                // Out of descriptors, most likely; the next one will not be there at once.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

struct Shared {
    driver: Arc<dyn Driver>,
    alive: Notify,
    close: Notify,
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    if let Err(error) = converse(stream, shared).await {
        tracing::debug!(%error, "driver connection ended");
    }
}

#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("read or write")]
    Io(#[from] std::io::Error),
    #[error("decode a request")]
    Gob(#[from] gob::Error),
    #[error("the first line is not the expected CONNECT")]
    Handshake,
}

async fn converse(mut stream: TcpStream, shared: Arc<Shared>) -> Result<(), ConnectionError> {
    let mut hello = [0; CONNECT.len()];
    match timeout(HEARTBEAT, stream.read_exact(&mut hello)).await {
        Ok(read) => read?,
        Err(_) => return Err(ConnectionError::Handshake),
    };
    if hello != CONNECT {
        stream.write_all(b"HTTP/1.0 405 must CONNECT\n\n").await?;
        return Err(ConnectionError::Handshake);
    }
    stream.write_all(CONNECTED).await?;
    let (mut read, write) = stream.into_split();
    let writer = Arc::new(AsyncMutex::new((write, Encoder::default())));
    let mut calls = JoinSet::new();
    let mut arrival = Arrival::new(Side::Requests, Limits::default());
    let outcome = loop {
        match next_request(&mut read, &mut arrival).await {
            Ok(Some((header, body))) => {
                if calls.len() >= IN_FLIGHT {
                    calls.join_next().await;
                }
                calls.spawn(answer(header, body, shared.clone(), writer.clone()));
                while calls.try_join_next().is_some() {}
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // A parent that hung up takes no replies, but what it asked for is not torn off half way.
    while calls.join_next().await.is_some() {}
    outcome
}

async fn next_request(
    read: &mut OwnedReadHalf,
    arrival: &mut Arrival,
) -> Result<Option<(Header, Received)>, ConnectionError> {
    let mut buffer = [0; 4 << 10];
    loop {
        if let Some(call) = arrival.next_call()? {
            return Ok(Some(call));
        }
        match read.read(&mut buffer).await? {
            0 => return Ok(None),
            count => arrival.feed(&buffer[..count]),
        }
    }
}

async fn answer(
    header: Header,
    body: Received,
    shared: Arc<Shared>,
    writer: Arc<AsyncMutex<(OwnedWriteHalf, Encoder)>>,
) {
    let closing = header.method.ends_with(".Close");
    let (error, reply) = match dispatch(&header.method, body, &shared).await {
        Ok(reply) => (String::new(), reply),
        // An error with an empty text would look like success.
        Err(error) => {
            (format!("{error}{}", if error.to_string().is_empty() { "failed" } else { "" }), Body::Empty)
        }
    };
    let mut bytes = Vec::new();
    let mut writer = writer.lock().await;
    let (half, encoder) = &mut *writer;
    encoder.response(&Header { error, ..header }, &reply, &mut bytes);
    let _ = half.write_all(&bytes).await;
    if closing {
        shared.close.notify_one();
    }
}

async fn dispatch(method: &str, body: Received, shared: &Shared) -> Result<Body, Error> {
    let missing = |what: &str| Error::from_text(format!("rpc: can't find {what} {method}"));
    let (service, name) = method
        .split_once('.')
        .ok_or_else(|| Error::other(format!("rpc: service/method request ill-formed: {method}")))?;
    if service != SERVICE && service != OLD_SERVICE {
        return Err(missing("service"));
    }
    let driver = &shared.driver;
    let wrong = |error: gob::Error| Error::other(format!("argument of {name}: {error}"));
    let empty = |()| Body::Empty;
    // Arguments of methods without any are not looked at.
    match name {
        "GetVersion" => Ok(Body::Int(1)),
        "Heartbeat" => {
            shared.alive.notify_one();
            Ok(Body::Empty)
        }
        "Close" => Ok(Body::Empty),
        "SetConfigRaw" => {
            let config = Config::from_json(&body.into_bytes().map_err(wrong)?)?;
            driver.load(config).await.map(empty)
        }
        "GetConfigRaw" => Ok(Body::Bytes(driver.config().await?.to_json())),
        "GetCreateFlags" => Ok(Body::FlagList(driver.flags().await?)),
        "SetConfigFromFlags" => driver.configure(body.into_flag_values().map_err(wrong)?).await.map(empty),
        "DriverName" => Ok(Body::String(driver.name().to_owned())),
        "GetMachineName" => Ok(Body::String(driver.machine_name().await?)),
        "GetIP" => known(driver.addresses().await?.ip, "IPv4 address is not set"),
        "GetIPv6" => known(driver.addresses().await?.ipv6, "IPv6 address is not set"),
        "GetURL" => Ok(Body::String(driver.url().await?)),
        "GetSSHHostname" => Ok(Body::String(driver.ssh().await?.host)),
        "GetSSHKeyPath" => Ok(Body::String(driver.ssh().await?.key_path)),
        "GetSSHUsername" => Ok(Body::String(driver.ssh().await?.user)),
        "GetSSHPort" => Ok(Body::Int(i64::from(driver.ssh().await?.port))),
        "GetState" => Ok(Body::Int(driver.state().await?.to_wire())),
        "PreCreateCheck" => driver.pre_create_check().await.map(empty),
        "Create" => driver.create().await.map(empty),
        "Remove" => driver.remove().await.map(empty),
        "Start" => driver.start().await.map(empty),
        "Stop" => driver.stop().await.map(empty),
        "Restart" => driver.restart().await.map(empty),
        "Kill" => driver.kill().await.map(empty),
        "Upgrade" => driver.upgrade().await.map(empty),
        _ => Err(missing("method")),
    }
}

fn known(address: String, missing: &str) -> Result<Body, Error> {
    if address.is_empty() { Err(Error::other(missing)) } else { Ok(Body::String(address)) }
}
