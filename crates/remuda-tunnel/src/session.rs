//! One task drives a [`Protocol`] over a WebSocket; handles reach into it under a short lock.

mod driver;

use std::{collections::HashMap, fmt, future::poll_fn, sync::Arc, task::Waker, time::Duration};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
pub(crate) use remuda_base::chain::chain;
use tokio::{
    sync::broadcast,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    dial::Inbound,
    frame::{ConnId, RemoteClient},
    protocol::{Config, Counters, Event, Limits, OpenError, Protocol, Reason, Role, Timing, Violation},
    server::SessionEvent,
    socket::{Socket, SocketError},
    stream::TunnelStream,
};

/// How sessions behave. The defaults are those of the original.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    pub limits: Limits,
    pub timing: Timing,
    /// How long a CONNECT may take to reach the transport, and a local dial to succeed.
    pub dial: Duration,
    /// The session ends when the transport takes nothing for this long.
    pub write_stall: Duration,
    /// For telling the other end about a shutdown, and for local connections to finish after it.
    pub farewell: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            timing: Timing::default(),
            dial: Duration::from_secs(60),
            write_stall: Duration::from_secs(60),
            farewell: Duration::from_secs(5),
        }
    }
}

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionEnd {
    #[error("stopped")]
    Stopped,
    #[error("closed by the other end")]
    Closed,
    #[error("transport failed")]
    Transport(#[source] SocketError),
    #[error("wrong websocket message type")]
    MessageType,
    #[error("protocol broken by the other end")]
    Violation(#[from] Violation),
    #[error("connect not allowed: {proto}/{address}")]
    ConnectNotAllowed { proto: String, address: String },
    #[error("the other end took no data for {0:?}")]
    WriteStall(Duration),
}

/// Why a connection could not be opened through a session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("open connection")]
    Open(#[from] OpenError),
    #[error("connection ended while it was opened")]
    Ended(#[source] Reason),
    #[error("session did not take the request within {0:?}")]
    Timeout(Duration),
}

#[derive(Debug, Default)]
pub(crate) struct Wakers {
    pub(crate) read: Option<Waker>,
    pub(crate) write: Option<Waker>,
    pub(crate) opened: bool,
}

pub(crate) struct State {
    pub(crate) protocol: Protocol,
    pub(crate) wakers: HashMap<ConnId, Wakers>,
    /// CONNECTs for the driver to serve.
    incoming: Vec<(ConnId, String, String)>,
    /// Is told of the clients a peer has.
    remote: Option<broadcast::Sender<SessionEvent>>,
}

impl State {
    fn dispatch(&mut self) {
        while let Some(event) = self.protocol.poll_event() {
            let waker = match event {
                Event::Connect { conn, proto, address } => {
                    self.incoming.push((conn, proto, address));
                    continue;
                }
                Event::Remote { client, added } => {
                    if let Some(remote) = &self.remote {
                        let _ = remote.send(SessionEvent::Remote { client, added });
                    }
                    continue;
                }
                Event::Readable(id) => self.wakers.get_mut(&id).and_then(|wakers| wakers.read.take()),
                Event::Writable(id) | Event::Flushed(id) => {
                    self.wakers.get_mut(&id).and_then(|wakers| wakers.write.take())
                }
                Event::Opened(id) => self.wakers.get_mut(&id).and_then(|wakers| {
                    wakers.opened = true;
                    wakers.write.take()
                }),
            };
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

pub(crate) struct Shared {
    key: String,
    session_key: i64,
    options: SessionOptions,
    state: Mutex<State>,
    driver: AtomicWaker,
    stop: CancellationToken,
}

impl Shared {
    /// Runs `action` under the lock, wakes whom it concerns, and the driver if there is something to send.
    pub(crate) fn with<T>(&self, action: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = action(&mut state);
        state.dispatch();
        let wake = state.protocol.wants_transmit();
        drop(state);
        if wake {
            self.driver.wake();
        }
        result
    }

    /// Data per message.
    pub(crate) fn frame(&self) -> usize {
        self.options.limits.frame
    }

    pub(crate) fn name(&self) -> impl fmt::Display {
        format!("{}/{}", self.key, self.session_key)
    }
}

/// A handle to a running session. Cheap to clone; does not keep the session alive.
#[derive(Clone)]
pub struct Session(pub(crate) Arc<Shared>);

impl Session {
    /// Prepares a session over `socket`; it lives while [`SessionTask::run`] does.
    ///
    /// Without `inbound` every CONNECT of the other end is refused, which ends the session.
    pub fn new<S: Socket>(
        role: Role,
        identity: SessionIdentity,
        socket: S,
        inbound: Option<Inbound>,
        options: SessionOptions,
    ) -> (Self, SessionTask<S>) {
        let config = Config {
            role,
            client_key: identity.key.clone(),
            session_key: identity.session,
            first_message: positive(),
            keep_remote_clients: identity.peer,
            limits: options.limits.clone(),
            timing: options.timing.clone(),
        };
        let protocol = Protocol::new(config, Instant::now().into_std());
        let shared = Arc::new(Shared {
            key: identity.key,
            session_key: identity.session,
            options,
            state: Mutex::new(State { protocol, wakers: HashMap::new(), incoming: Vec::new(), remote: None }),
            driver: AtomicWaker::new(),
            stop: CancellationToken::new(),
        });
        (Self(shared.clone()), SessionTask { shared, socket, inbound })
    }

    /// The client key the session was registered under; `client` on the client's side.
    pub fn key(&self) -> &str {
        &self.0.key
    }

    pub fn session_key(&self) -> i64 {
        self.0.session_key
    }

    /// Opens a connection; the other end dials `address` and tells by closing when it cannot.
    ///
    /// Returns when the request is with the transport: the protocol has no acknowledgement.
    pub async fn dial(&self, proto: &str, address: &str) -> Result<TunnelStream, ConnectError> {
        let limit = self.0.options.dial;
        let now = Instant::now().into_std();
        let stream = self.0.with(|state| {
            let id = state.protocol.open(proto, address, now)?;
            state.wakers.insert(id, Wakers::default());
            Ok::<_, OpenError>(TunnelStream::new(self.0.clone(), id))
        })?;
        match timeout(limit, poll_fn(|cx| stream.poll_opened(cx))).await {
            Ok(Ok(())) => Ok(stream),
            Ok(Err(reason)) => Err(ConnectError::Ended(reason)),
            Err(_) => Err(ConnectError::Timeout(limit)),
        }
    }

    /// Ends the session in good order: connections are told, the WebSocket is closed.
    pub fn close(&self) {
        self.0.stop.cancel();
    }

    pub fn counters(&self) -> Counters {
        self.0.state.lock().protocol.counters()
    }

    /// Open connections and the bytes waiting for their local readers.
    pub fn load(&self) -> (usize, usize) {
        let state = self.0.state.lock();
        (state.protocol.connections(), state.protocol.unread())
    }

    /// Tells `events` of the clients the peer announces from now on.
    pub(crate) fn follow_remote(&self, events: broadcast::Sender<SessionEvent>) {
        self.0.state.lock().remote = Some(events);
    }

    pub(crate) fn reaches(&self, key: &str) -> bool {
        self.0.state.lock().protocol.reaches(key)
    }

    pub(crate) fn remote_clients(&self) -> Vec<String> {
        self.0.state.lock().protocol.remote_clients().map(str::to_owned).collect()
    }

    /// Tells the other end of a client session; a link that cannot keep up is cut and starts over.
    pub(crate) fn announce(&self, added: bool, client: RemoteClient) {
        if self.0.with(|state| state.protocol.announce(added, client)).is_err() {
            self.close();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({})", self.0.name())
    }
}

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionIdentity {
    pub key: String,
    pub session: i64,
    /// Another server, which announces its clients.
    pub peer: bool,
}

impl SessionIdentity {
    /// How clients name their only session.
    pub fn client() -> Self {
        Self { key: "client".to_owned(), session: 0, peer: false }
    }
}

/// The running part of a session.
pub struct SessionTask<S> {
    shared: Arc<Shared>,
    socket: S,
    inbound: Option<Inbound>,
}

/// A random number that fits the wire's signed integers without a sign.
pub(crate) fn positive() -> i64 {
    (rand::random::<u64>() >> 1) as i64
}
