//! Which clusters are connected, now.
//!
//! The table is changed by the sessions themselves and by nothing else: what it says is so. It also keeps
//! what the newest agent of a cluster uploaded, and why the last one went.

use std::{collections::HashMap, fmt, sync::Arc};

use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use remuda_control::ObjectKey;
use remuda_tunnel::server::Server;
use tokio_util::sync::CancellationToken;

use crate::{route::Access, tokens::Digest};

/// Sessions one cluster may have at once. Agents run as two or three replicas; each may leave an old session
/// behind that has not noticed yet.
const MOST: usize = 16;

/// Whether a cluster is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// Since when.
    Connected(Timestamp),
    /// It was connected, until then, and ended with this.
    Lost { since: Timestamp, error: String },
    /// It was not connected since this server started.
    Never,
}

impl Connection {
    pub fn is_connected(&self) -> bool {
        matches!(self, Self::Connected(_))
    }
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected(since) => write!(f, "connected since {}", Clock(*since)),
            Self::Lost { since, error } => {
                write!(f, "not connected since {}; last error: {error}", Clock(*since))
            }
            Self::Never => {
                f.write_str("not connected: its agent has not connected since this server started")
            }
        }
    }
}

/// Minutes are enough for people.
struct Clock(Timestamp);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.strftime("%Y-%m-%d %H:%M UTC"))
    }
}

struct Live {
    id: u64,
    secret: ObjectKey,
    digest: Digest,
    stop: CancellationToken,
}

#[derive(Default)]
struct Entry {
    live: Vec<Live>,
    connected: Option<Timestamp>,
    lost: Option<(Timestamp, String)>,
    /// What the newest agent uploaded.
    access: Option<Arc<Access>>,
}

type Listener = Arc<dyn Fn(&str) + Send + Sync>;

pub(crate) struct Sessions {
    pub(crate) tunnel: Server,
    entries: Mutex<HashMap<String, Entry>>,
    next: std::sync::atomic::AtomicU64,
    listeners: RwLock<Vec<(u64, Listener)>>,
}

/// A place in the table; it is given up by [`Sessions::leave`], or when it is dropped.
pub(crate) struct Seat {
    sessions: Arc<Sessions>,
    cluster: String,
    id: u64,
    /// Ends the session.
    pub(crate) stop: CancellationToken,
}

/// Ends its listener when dropped.
pub(crate) struct Listening {
    sessions: Arc<Sessions>,
    id: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.sessions.listeners.write().retain(|(id, _)| *id != self.id);
    }
}

impl Sessions {
    pub(crate) fn new(tunnel: Server) -> Self {
        Self {
            tunnel,
            entries: Mutex::default(),
            next: std::sync::atomic::AtomicU64::new(1),
            listeners: RwLock::default(),
        }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }

    /// Calls `listener` whenever a cluster became connected, was lost, or uploaded something else.
    pub(crate) fn listen(self: &Arc<Self>, listener: impl Fn(&str) + Send + Sync + 'static) -> Listening {
        let id = self.number();
        self.listeners.write().push((id, Arc::new(listener)));
        Listening { sessions: self.clone(), id }
    }

    fn tell(&self, cluster: &str) {
        let listeners: Vec<Listener> =
            self.listeners.read().iter().map(|(_, listener)| listener.clone()).collect();
        listeners.iter().for_each(|listener| listener(cluster));
    }

    /// Whether one more session of a cluster is accepted.
    pub(crate) fn has_room(&self, cluster: &str) -> bool {
        self.entries.lock().get(cluster).is_none_or(|entry| entry.live.len() < MOST)
    }

    /// Enters a session that is about to be served; call [`Seat::take`] when it is.
    pub(crate) fn seat(
        self: &Arc<Self>,
        cluster: &str,
        secret: ObjectKey,
        digest: Digest,
        stop: CancellationToken,
    ) -> Seat {
        let id = self.number();
        let live = Live { id, secret, digest, stop: stop.clone() };
        self.entries.lock().entry(cluster.to_owned()).or_default().live.push(live);
        Seat { sessions: self.clone(), cluster: cluster.to_owned(), id, stop }
    }

    pub(crate) fn connection(&self, cluster: &str) -> Connection {
        let entries = self.entries.lock();
        let Some(entry) = entries.get(cluster) else { return Connection::Never };
        match (entry.connected, &entry.lost) {
            (Some(since), _) => Connection::Connected(since),
            (None, Some((since, error))) => Connection::Lost { since: *since, error: error.clone() },
            (None, None) => Connection::Never,
        }
    }

    /// All clusters that are connected.
    pub(crate) fn connected(&self) -> Vec<String> {
        let entries = self.entries.lock();
        let connected = entries.iter().filter(|(_, entry)| entry.connected.is_some());
        connected.map(|(cluster, _)| cluster.clone()).collect()
    }

    /// What the newest agent uploaded, while it is connected.
    pub(crate) fn access(&self, cluster: &str) -> Option<Arc<Access>> {
        let entries = self.entries.lock();
        entries.get(cluster).filter(|entry| entry.connected.is_some())?.access.clone()
    }

    /// Ends the sessions that were let in by a token of `secret` that is not among `left`.
    pub(crate) fn revoke(&self, secret: &ObjectKey, left: &[Vec<u8>]) {
        let entries = self.entries.lock();
        let revoked = entries.values().flat_map(|entry| &entry.live).filter(|live| {
            live.secret == *secret && !left.iter().any(|digest| digest.as_slice() == live.digest)
        });
        revoked.for_each(|live| live.stop.cancel());
    }

    /// Ends all sessions of a cluster and forgets it.
    pub(crate) fn forget(&self, cluster: &str) {
        if let Some(entry) = self.entries.lock().remove(cluster) {
            entry.live.iter().for_each(|live| live.stop.cancel());
        }
    }
}

impl Seat {
    /// The session is served from now on.
    pub(crate) fn take(&self, access: Option<Arc<Access>>, now: Timestamp) {
        let Some(access) = access else { return };
        {
            let mut entries = self.sessions.entries.lock();
            let Some(entry) = entries.get_mut(&self.cluster) else { return };
            let is_same = entry.connected.is_some() && entry.access.as_ref() == Some(&access);
            if is_same {
                return;
            }
            entry.connected.get_or_insert(now);
            entry.access = Some(access);
        }
        self.sessions.tell(&self.cluster);
    }

    /// The session has ended.
    pub(crate) fn leave(self, error: &str, now: Timestamp) {
        self.give_up(error, Some(now));
    }

    fn give_up(&self, error: &str, now: Option<Timestamp>) {
        {
            let mut entries = self.sessions.entries.lock();
            let Some(entry) = entries.get_mut(&self.cluster) else { return };
            let before = entry.live.len();
            entry.live.retain(|live| live.id != self.id);
            if entry.live.len() == before || !entry.live.is_empty() {
                return;
            }
            if entry.connected.take().is_none() {
                // Never came so far as to be served.
                if entry.lost.is_none() {
                    entries.remove(&self.cluster);
                }
                return;
            }
            let now = now.unwrap_or_else(Timestamp::now);
            entry.lost = Some((now, error.to_owned()));
            entry.access = None;
        }
        self.sessions.tell(&self.cluster);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.give_up("the connection was given up", None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> (Arc<Sessions>, Arc<Mutex<Vec<String>>>, Listening) {
        let sessions = Arc::new(Sessions::new(Server::new(remuda_tunnel::server::ServerOptions::default())));
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let (heard, table) = (told.clone(), sessions.clone());
        let listening = sessions.listen(move |cluster| {
            heard.lock().push(format!("{cluster} {}", table.connection(cluster).is_connected()));
        });
        (sessions, told, listening)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn seat(sessions: &Arc<Sessions>, token: &[u8]) -> Seat {
        let secret = ObjectKey::namespaced("c-1", "crt-token-default-token");
        sessions.seat("c-1", secret, crate::tokens::sha256(token), CancellationToken::new())
    }

    #[test]
    fn a_cluster_is_connected_while_it_has_a_session() {
        let (sessions, told, _listening) = table();
        let access = Arc::new(Access::for_tests("10.43.0.1:443"));
        assert_eq!(sessions.connection("c-1"), Connection::Never);
        let (first, second) = (seat(&sessions, b"t"), seat(&sessions, b"t"));
        assert_eq!(sessions.connection("c-1"), Connection::Never);
        first.take(Some(access.clone()), at(60));
        second.take(Some(access.clone()), at(61));
        assert_eq!(sessions.connection("c-1"), Connection::Connected(at(60)));
        first.leave("closed", at(62));
        assert!(sessions.connection("c-1").is_connected());
        second.leave("transport failed", at(120));
        let lost = sessions.connection("c-1");
        assert_eq!(
            lost.to_string(),
            "not connected since 1970-01-01 00:02 UTC; last error: transport failed"
        );
        assert!(sessions.access("c-1").is_none());
        let third = seat(&sessions, b"t");
        third.take(Some(access), at(180));
        drop(third);
        assert!(!sessions.connection("c-1").is_connected());
        assert_eq!(*told.lock(), ["c-1 true", "c-1 false", "c-1 true", "c-1 false"]);
    }

    #[test]
    fn a_session_ends_with_the_token_that_let_it_in() {
        let (sessions, ..) = table();
        let (old, new) = (seat(&sessions, b"old"), seat(&sessions, b"new"));
        let secret = ObjectKey::namespaced("c-1", "crt-token-default-token");
        let digest = |token: &[u8]| crate::tokens::sha256(token).to_vec();
        sessions.revoke(&secret, &[digest(b"old"), digest(b"new")]);
        assert!(!old.stop.is_cancelled());
        sessions.revoke(&secret, &[digest(b"new")]);
        assert!(old.stop.is_cancelled() && !new.stop.is_cancelled());
        sessions.revoke(&ObjectKey::namespaced("c-2", "crt-token-default-token"), &[]);
        assert!(!new.stop.is_cancelled());
        sessions.forget("c-1");
        assert!(new.stop.is_cancelled());
    }

    #[test]
    fn one_cluster_cannot_have_any_number_of_sessions() {
        let (sessions, ..) = table();
        let seats: Vec<Seat> = (0..MOST).map(|_| seat(&sessions, b"t")).collect();
        assert!(!sessions.has_room("c-1") && sessions.has_room("c-2"));
        drop(seats);
        assert!(sessions.has_room("c-1"));
    }
}
