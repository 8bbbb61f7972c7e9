//! The words a session is described in: its settings, what goes in, what comes out.

use std::time::Duration;

use bytes::Bytes;

use crate::frame::{self, ConnId, FrameError};

/// Which end of the WebSocket this is. The client pings and lists its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// How much a session may hold. Defaults follow the original where it has a number.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections of one session, those still flushing included.
    pub connections: usize,
    /// Bytes a local writer may be ahead of the wire, per connection.
    ///
    /// Lowered when so many send at once that it would be more than `session_send` together.
    pub send_buffer: usize,
    /// Bytes all writers together should be ahead of the wire: more only leaves the cache before it is sent,
    /// and is what a connection with little to say waits behind.
    pub session_send: usize,
    /// Unread bytes at which the peer is asked to pause; it resumes below an eighth of this.
    ///
    /// Lowered when the session as a whole holds much of `session_receive`.
    pub high_water: usize,
    /// Unread bytes at which a connection is failed because its peer does not pause. Above `high_water` by
    /// what can be in flight, which TCP windows bound: up to 32 MiB where the system is set up for long ways.
    pub receive: usize,
    /// Unread bytes of all connections together at which the fullest one is failed.
    pub session_receive: usize,
    /// Data per message. The original sends up to 32 KiB and accepts any.
    pub frame: usize,
    /// Client sessions a peer may announce.
    pub remote_clients: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            send_buffer: 256 << 10,
            session_send: 1 << 20,
            high_water: 2 << 20,
            receive: 48 << 20,
            session_receive: 256 << 20,
            frame: 64 << 10,
            remote_clients: 100_000,
        }
    }
}

/// When a session acts on its own.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Between two pings of a client.
    pub ping: Duration,
    /// Without any sign of life from the peer the session ends.
    pub silence: Duration,
    /// Between two connection lists of a client.
    pub sync: Duration,
    /// A connection this young may be missing in a list that was already under way.
    pub sync_grace: Duration,
    /// How long a closed connection may take to deliver the rest of its data.
    pub linger: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ping: Duration::from_secs(5),
            silence: Duration::from_secs(60),
            sync: Duration::from_secs(60),
            sync_grace: Duration::from_secs(5),
            linger: Duration::from_secs(60),
        }
    }
}

/// Everything a machine is told at birth.
#[derive(Debug, Clone)]
pub struct Config {
    pub role: Role,
    /// Whom the peer is known as; appears in replies about unknown connections.
    pub client_key: String,
    pub session_key: i64,
    /// Start of the message counter; any number.
    pub first_message: i64,
    /// Remember the client sessions the peer announces.
    pub keep_remote_clients: bool,
    pub limits: Limits,
    pub timing: Timing,
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// In good order.
    #[error("EOF")]
    Eof,
    /// With the peer's text.
    #[error("{0}")]
    Remote(String),
    /// With a text of our own, told to the peer.
    #[error("{0}")]
    Local(String),
    /// The session ended.
    #[error("tunnel disconnect")]
    Disconnect,
    /// The client no longer lists it.
    #[error("sync from client")]
    Sync,
}

impl Reason {
    pub(super) fn from_wire(text: String) -> Self {
        if text == frame::EOF { Self::Eof } else { Self::Remote(text) }
    }
}

/// The peer broke the protocol or died; the session is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("malformed message")]
    Frame(#[from] FrameError),
    #[error("connection {0} opened twice")]
    Duplicate(ConnId),
    #[error("peer announces more than {0} clients")]
    RemoteClients(usize),
    #[error("more than {0} client changes wait for the peer to read them")]
    Announcements(usize),
    #[error("no sign of life for {0:?}")]
    Silence(Duration),
}

/// Why a connection cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("session has ended")]
    Ended,
    #[error("session already has {0} connections")]
    TooMany(usize),
    #[error("address {0} does not fit a connect message")]
    Address(String),
}

/// What happened to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer asks for a connection; it exists already and takes data.
    Connect { conn: ConnId, proto: String, address: String },
    /// The CONNECT of a connection opened here went out.
    Opened(ConnId),
    /// There is data, or the end, where there was none.
    Readable(ConnId),
    /// There is room again after a write was cut short, or the connection ended.
    Writable(ConnId),
    /// All data written so far went out after a flush was asked for.
    Flushed(ConnId),
    /// The peer has a session of a client, or has it no more.
    Remote { client: String, added: bool },
}

/// What to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transmit {
    Message(Bytes),
    Ping,
}

/// What a local read finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    Data(Bytes),
    Nothing,
    End(Reason),
}

/// Numbers for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    pub opened: u64,
    pub closed: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    pub pauses_sent: u64,
    pub pauses_received: u64,
    /// Connections failed because their peer ignored a pause.
    pub overflowed: u64,
    /// Courtesy replies not sent because too many waited.
    pub replies_dropped: u64,
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.opened += other.opened;
        self.closed += other.closed;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.pauses_sent += other.pauses_sent;
        self.pauses_received += other.pauses_received;
        self.overflowed += other.overflowed;
        self.replies_dropped += other.replies_dropped;
    }
}
