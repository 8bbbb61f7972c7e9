//! The calling side.
//!
//! One task writes requests and one reads replies and hands them to the waiting calls by sequence number, so
//! that heartbeats pass while a long call runs and a call that is given up never leaves half a message on the
//! wire. Dropping the client ends both tasks and the connection.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot},
    task::JoinSet,
};

use super::{
    CONNECT, CONNECTED,
    codec::{Arrival, Received, Side},
};
use crate::gob::{
    self, Encoder, Limits,
    encode::{Body, Header},
};

/// Why a call has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The method ran and failed, or does not exist; the text is the server's.
    #[error("{0}")]
    Remote(String),
    /// The connection is gone or was never there.
    #[error("connection lost: {0}")]
    Lost(String),
    /// The peer does not speak the protocol.
    #[error("protocol error: {0}")]
    Protocol(String),
}

impl From<gob::Error> for CallError {
    fn from(error: gob::Error) -> Self {
        Self::Protocol(error.to_string())
    }
}

type Reply = Result<Received, CallError>;

/// A connection to a driver. Calls may be made concurrently.
#[derive(Debug)]
pub struct Client {
    requests: mpsc::Sender<Outgoing>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Outgoing {
    method: String,
    body: Body,
    reply: oneshot::Sender<Reply>,
}

#[derive(Debug, Default)]
struct Waiting {
    calls: HashMap<u64, oneshot::Sender<Reply>>,
    /// Set once; every later call fails with it.
    ended: Option<CallError>,
}

impl Waiting {
    fn end(&mut self, error: &CallError) {
        self.ended.get_or_insert_with(|| error.clone());
        for (_, call) in self.calls.drain() {
            let _ = call.send(Err(error.clone()));
        }
    }
}

impl Client {
    /// Connects and switches the connection to RPC. The caller bounds the time.
    pub async fn connect(address: SocketAddr) -> Result<Self, CallError> {
        let lost = |error: std::io::Error| CallError::Lost(error.to_string());
        let mut stream = TcpStream::connect(address).await.map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        stream.write_all(CONNECT).await.map_err(lost)?;
        // The answer is fixed to the byte, and a Go server sends nothing after it unasked.
        let mut answer = [0; CONNECTED.len()];
        stream.read_exact(&mut answer).await.map_err(lost)?;
        if answer != CONNECTED {
            let shown = String::from_utf8_lossy(&answer).escape_debug().to_string();
            return Err(CallError::Protocol(format!("unexpected answer to CONNECT: {shown}")));
        }
        let (read, write) = stream.into_split();
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let (requests, queue) = mpsc::channel(16);
        let mut tasks = JoinSet::new();
        tasks.spawn(receive(read, waiting.clone()));
        tasks.spawn(send(write, queue, waiting));
        Ok(Self { requests, _tasks: tasks })
    }

    /// Calls `method` (`Service.Name`) and waits for its reply, however long it takes.
    pub async fn call(&self, method: &str, body: Body) -> Reply {
        let (reply, answer) = oneshot::channel();
        let gone = || CallError::Lost("closed".into());
        let request = Outgoing { method: method.to_owned(), body, reply };
        self.requests.send(request).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

async fn send(mut half: OwnedWriteHalf, mut queue: mpsc::Receiver<Outgoing>, waiting: Arc<Mutex<Waiting>>) {
    let mut encoder = Encoder::default();
    let mut sequence = 0;
    while let Some(request) = queue.recv().await {
        {
            let mut waiting = waiting.lock();
            if let Some(error) = &waiting.ended {
                let _ = request.reply.send(Err(error.clone()));
                continue;
            }
            // Calls that were given up and never answered do not pile up.
            waiting.calls.retain(|_, call| !call.is_closed());
            waiting.calls.insert(sequence, request.reply);
        }
        let header = Header { method: request.method, sequence, error: String::new() };
        sequence += 1;
        let mut bytes = Vec::new();
        encoder.request(&header, &request.body, &mut bytes);
        if let Err(error) = half.write_all(&bytes).await {
            waiting.lock().end(&CallError::Lost(error.to_string()));
        }
    }
}

async fn receive(mut half: OwnedReadHalf, waiting: Arc<Mutex<Waiting>>) {
    let mut arrival = Arrival::new(Side::Responses, Limits::default());
    let mut buffer = vec![0; 16 << 10];
    let end = loop {
        match half.read(&mut buffer).await {
            Ok(0) => break CallError::Lost("closed by the driver".into()),
            Err(error) => break CallError::Lost(error.to_string()),
            Ok(count) => arrival.feed(&buffer[..count]),
        }
        if let Err(error) = deliver(&mut arrival, &waiting) {
            break error.into();
        }
    };
    waiting.lock().end(&end);
}

fn deliver(arrival: &mut Arrival, waiting: &Mutex<Waiting>) -> Result<(), gob::Error> {
    while let Some((header, body)) = arrival.next_call()? {
        // A reply nobody waits for belongs to a call that was given up.
        let Some(call) = waiting.lock().calls.remove(&header.sequence) else { continue };
        let reply = if header.error.is_empty() { Ok(body) } else { Err(CallError::Remote(header.error)) };
        let _ = call.send(reply);
    }
    Ok(())
}
