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
    /// Since when it is connected to another server.
    remote: Option<Timestamp>,
    /// What its agent uploaded to whichever server, as that has kept it.
    kept: Option<Arc<Access>>,
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.live.is_empty()
            && self.connected.is_none()
            && self.remote.is_none()
            && self.lost.is_none()
            && self.kept.is_none()
    }
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
        match (entry.connected.or(entry.remote), &entry.lost) {
            (Some(since), _) => Connection::Connected(since),
            (None, Some((since, error))) => Connection::Lost { since: *since, error: error.clone() },
            (None, None) => Connection::Never,
        }
    }

    /// All clusters that are connected.
    pub(crate) fn connected(&self) -> Vec<String> {
        let entries = self.entries.lock();
        let connected = entries.iter().filter(|(_, entry)| entry.connected.or(entry.remote).is_some());
        connected.map(|(cluster, _)| cluster.clone()).collect()
    }

    /// What the newest agent uploaded, while it is connected.
    pub(crate) fn access(&self, cluster: &str) -> Option<Arc<Access>> {
        let entries = self.entries.lock();
        let entry = entries.get(cluster)?;
        match (entry.connected, entry.remote) {
            (Some(_), _) => entry.access.clone(),
            (None, Some(_)) => entry.kept.clone(),
            (None, None) => None,
        }
    }

    /// What an agent that is connected to this server uploaded.
    pub(crate) fn uploaded(&self, cluster: &str) -> Option<Arc<Access>> {
        let entries = self.entries.lock();
        entries.get(cluster).filter(|entry| entry.connected.is_some())?.access.clone()
    }

    /// An agent came with a good token and was turned away all the same. Told while the cluster is not connected.
    pub(crate) fn refused(&self, cluster: &str, why: &str, now: Timestamp) {
        {
            let mut entries = self.entries.lock();
            let entry = entries.entry(cluster.to_owned()).or_default();
            let error = format!("authorization: {why}");
            let known = entry.lost.as_ref().is_some_and(|(_, known)| *known == error);
            if known || entry.connected.or(entry.remote).is_some() {
                return;
            }
            let since = entry.lost.as_ref().map_or(now, |(since, _)| *since);
            entry.lost = Some((since, error));
        }
        self.tell(cluster);
    }

    /// A cluster can be reached through another server, or not any more.
    pub(crate) fn set_remote(&self, cluster: &str, reachable: bool, now: Timestamp) {
        {
            let mut entries = self.entries.lock();
            let entry = entries.entry(cluster.to_owned()).or_default();
            let was = entry.remote.is_some();
            if reachable {
                entry.remote.get_or_insert(now);
            } else if entry.remote.take().is_some() && entry.connected.is_none() {
                let error = "its agent is not connected to the other server any more".to_owned();
                entry.lost = Some((now, error));
            }
            let tells = was != reachable && entry.connected.is_none();
            if entry.is_empty() {
                entries.remove(cluster);
            }
            if !tells {
                return;
            }
        }
        self.tell(cluster);
    }

    /// What has been kept of a cluster, for when it is connected to another server.
    pub(crate) fn set_kept(&self, cluster: &str, access: Option<Arc<Access>>) {
        {
            let mut entries = self.entries.lock();
            let entry = entries.entry(cluster.to_owned()).or_default();
            let tells = entry.kept != access && entry.remote.is_some() && entry.connected.is_none();
            entry.kept = access;
            if entry.is_empty() {
                entries.remove(cluster);
            }
            if !tells {
                return;
            }
        }
        self.tell(cluster);
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
                if entry.is_empty() {
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
    fn an_agent_that_is_turned_away_shows_while_there_is_no_other() {
        let (sessions, told, _listening) = table();
        sessions.refused("c-1", "invalid input, token empty", at(60));
        sessions.refused("c-1", "invalid input, token empty", at(120));
        assert_eq!(
            sessions.connection("c-1").to_string(),
            "not connected since 1970-01-01 00:01 UTC; last error: authorization: invalid input, token empty"
        );
        let seat = seat(&sessions, b"t");
        seat.take(Some(Arc::new(Access::for_tests("10.43.0.1:443"))), at(180));
        sessions.refused("c-1", "too many", at(190));
        assert!(sessions.connection("c-1").is_connected());
        assert_eq!(*told.lock(), ["c-1 false", "c-1 true"]);
    }

    #[test]
    fn a_cluster_is_connected_while_another_server_has_it() {
        let (sessions, told, _listening) = table();
        let kept = Arc::new(Access::for_tests("10.43.0.1:443"));
        sessions.set_kept("c-1", Some(kept.clone()));
        assert_eq!(sessions.connection("c-1"), Connection::Never);
        assert!(sessions.access("c-1").is_none());
        sessions.set_remote("c-1", true, at(60));
        assert_eq!(sessions.connection("c-1"), Connection::Connected(at(60)));
        assert_eq!(sessions.access("c-1"), Some(kept));
        assert!(sessions.uploaded("c-1").is_none());
        // Its own session goes before that of another.
        let own = Arc::new(Access::for_tests("10.43.0.2:443"));
        let seat = seat(&sessions, b"t");
        seat.take(Some(own.clone()), at(70));
        assert_eq!(sessions.access("c-1"), Some(own));
        seat.leave("closed", at(80));
        assert!(sessions.connection("c-1").is_connected());
        sessions.set_remote("c-1", false, at(90));
        assert!(matches!(sessions.connection("c-1"), Connection::Lost { since, .. } if since == at(90)));
        // Nothing is kept of a name nobody uses.
        sessions.set_remote("c-2", true, at(90));
        sessions.set_kept("c-3", None);
        assert_eq!(sessions.connected(), ["c-2"]);
        assert_eq!(*told.lock(), ["c-1 true", "c-1 true", "c-1 true", "c-1 false", "c-2 true"]);
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
