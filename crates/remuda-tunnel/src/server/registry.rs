//! Which sessions there are.

use std::collections::{BTreeSet, HashMap};

use tokio::sync::broadcast;

use crate::{frame::RemoteClient, protocol::Counters, session::Session};

/// Changes a subscriber may be behind before it has to list again.
const EVENTS: usize = 1024;

/// A session came or went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionEvent {
    Added {
        client: String,
        session: i64,
        peer: bool,
    },
    Removed {
        client: String,
        session: i64,
        peer: bool,
    },
    /// A peer has a session of this client, or has it no more. Another peer may have one all the same.
    Remote {
        client: String,
        added: bool,
    },
}

/// Numbers over the life of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    pub client_sessions: usize,
    pub peer_sessions: usize,
    pub sessions_added: u64,
    pub sessions_removed: u64,
    /// Connections that exist now, and bytes waiting for their readers.
    pub connections: usize,
    pub unread_bytes: usize,
    /// Sums over running and ended sessions.
    pub counters: Counters,
}

pub(super) struct Registry {
    clients: HashMap<String, Vec<Session>>,
    peers: HashMap<String, Vec<Session>>,
    /// Our links to peers, which are told of every session.
    links: Vec<Session>,
    events: broadcast::Sender<SessionEvent>,
    added: u64,
    removed: u64,
    finished: Counters,
}

impl Registry {
    pub(super) fn new() -> Self {
        Self {
            clients: HashMap::new(),
            peers: HashMap::new(),
            links: Vec::new(),
            events: broadcast::channel(EVENTS).0,
            added: 0,
            removed: 0,
            finished: Counters::default(),
        }
    }

    pub(super) fn add(&mut self, session: Session, peer: bool) {
        self.added += 1;
        self.announce(true, &session);
        let (client, key) = (session.key().to_owned(), session.session_key());
        let table = if peer { &mut self.peers } else { &mut self.clients };
        table.entry(client.clone()).or_default().push(session);
        let _ = self.events.send(SessionEvent::Added { client, session: key, peer });
    }

    pub(super) fn remove(&mut self, session: &Session, peer: bool) {
        self.removed += 1;
        self.finished += session.counters();
        let table = if peer { &mut self.peers } else { &mut self.clients };
        if let Some(sessions) = table.get_mut(session.key()) {
            sessions.retain(|other| other.session_key() != session.session_key());
            if sessions.is_empty() {
                table.remove(session.key());
            }
        }
        self.announce(false, session);
        let client = session.key().to_owned();
        let _ = self.events.send(SessionEvent::Removed { client, session: session.session_key(), peer });
    }

    fn announce(&self, added: bool, session: &Session) {
        for link in &self.links {
            link.announce(added, remote(session));
        }
    }

    /// Tells a new link of every session there is, and of all changes from now on.
    pub(super) fn add_link(&mut self, link: Session) {
        for session in self.clients.values().chain(self.peers.values()).flatten() {
            link.announce(true, remote(session));
        }
        self.links.push(link);
    }

    pub(super) fn remove_link(&mut self, link: &Session) {
        self.links.retain(|other| other.session_key() != link.session_key());
        self.finished += link.counters();
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.clients.contains_key(key)
    }

    /// Newest first.
    pub(super) fn sessions(&self, key: &str) -> Vec<Session> {
        self.clients.get(key).map(|sessions| sessions.iter().rev().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn peer_sessions(&self, id: &str) -> Vec<Session> {
        self.peers.get(id).cloned().unwrap_or_default()
    }

    pub(super) fn peers_reaching(&self, key: &str) -> Vec<Session> {
        let mut sessions: Vec<Session> =
            self.peers.values().flat_map(|sessions| sessions.iter().rev()).cloned().collect();
        sessions.retain(|session| session.reaches(key));
        sessions
    }

    pub(super) fn clients(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.clients.keys().cloned().collect();
        keys.sort_unstable();
        keys
    }

    pub(super) fn remote_clients(&self) -> Vec<String> {
        let keys: BTreeSet<String> =
            self.peers.values().flatten().flat_map(Session::remote_clients).collect();
        keys.into_iter().collect()
    }

    pub(super) fn events(&self) -> broadcast::Sender<SessionEvent> {
        self.events.clone()
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<SessionEvent> {
        self.events.subscribe()
    }

    pub(super) fn statistics(&self) -> Statistics {
        let mut all = Statistics {
            client_sessions: self.clients.values().map(Vec::len).sum(),
            peer_sessions: self.peers.values().map(Vec::len).sum(),
            sessions_added: self.added,
            sessions_removed: self.removed,
            counters: self.finished,
            ..Statistics::default()
        };
        for session in self.clients.values().chain(self.peers.values()).flatten().chain(&self.links) {
            let (connections, unread) = session.load();
            all.connections += connections;
            all.unread_bytes += unread;
            all.counters += session.counters();
        }
        all
    }
}

fn remote(session: &Session) -> RemoteClient {
    RemoteClient { key: session.key().to_owned(), session: session.session_key() }
}
