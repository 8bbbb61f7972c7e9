//! What the peer says.

use std::{collections::HashSet, time::Instant};

use bytes::Bytes;

use super::{Conn, Event, MAX_REPLIES, Protocol, Reason, Role, Violation, Wire};
use crate::frame::{Body, ConnId, ConnectionList, Frame, FrameError, RemoteClient};

impl Protocol {
    /// Takes one binary message. An error ends the session.
    pub fn receive(&mut self, message: Bytes, now: Instant) -> Result<(), Violation> {
        self.heard = now;
        if self.ended {
            return Ok(());
        }
        let Frame { conn, body, .. } = match Frame::decode(message) {
            // A client keeps no record of other clients and does not look at what it is told of them.
            Err(FrameError::Announcement) if self.config.role == Role::Client => return Ok(()),
            other => other?,
        };
        match body {
            Body::Data(data) => self.on_data(conn, data),
            Body::Connect { proto, address } => return self.on_connect(conn, proto, address, now),
            Body::Error(text) => self.on_error(conn, text),
            Body::AddClient(client) => return self.on_add_client(client),
            Body::RemoveClient(client) => self.on_remove_client(&client),
            Body::Pause => self.on_pause(conn),
            Body::Resume => self.on_resume(conn),
            Body::Sync(list) => self.on_sync(&list, now),
            Body::Unknown(_) => {}
        }
        Ok(())
    }

    fn on_data(&mut self, id: ConnId, data: Bytes) {
        let Some(conn) = self.conns.get_mut(&id) else {
            let text =
                format!("connection not found {}/{}/{id}", self.config.client_key, self.config.session_key);
            self.reply(id, text);
            return;
        };
        // After a close there is nobody to read it; the peer will hear of the close.
        if conn.wire != Wire::Open || data.is_empty() {
            return;
        }
        self.counters.received_bytes += data.len() as u64;
        self.unread += data.len();
        conn.inbox.push(data);
        let unread = conn.inbox.len();
        self.events.push_back(Event::Readable(id));
        if unread > self.config.limits.receive {
            self.overflow(id);
            return;
        }
        self.pause_if_full(id, unread);
        if self.unread > self.config.limits.session_receive {
            let fullest =
                self.conns.iter().max_by_key(|(id, conn)| (conn.inbox.len(), **id)).map(|(id, _)| *id);
            fullest.into_iter().for_each(|id| self.overflow(id));
        }
    }

    fn pause_if_full(&mut self, id: ConnId, unread: usize) {
        let high = self.high_water();
        // Peers of the original forget a pause when they read something themselves.
        let again = unread + self.config.limits.high_water / 4;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if unread <= high {
            return;
        }
        if !conn.want_pause {
            conn.want_pause = true;
            conn.repause_at = again;
        } else if unread >= conn.repause_at {
            conn.repause_at = again;
            conn.tell_again = true;
        }
        self.queue(id);
    }

    /// Fails one connection whose peer sends on although it was told to pause.
    fn overflow(&mut self, id: ConnId) {
        self.counters.overflowed += 1;
        let Some(conn) = self.conns.get_mut(&id) else { return };
        self.unread -= std::mem::take(&mut conn.inbox).len();
        conn.outbox.clear();
        conn.paused = false;
        conn.want_pause = false;
        if conn.wire != Wire::Closed {
            let reason = Reason::Local("receive buffer exceeded".to_owned());
            conn.end = Some(reason.clone());
            conn.wire = Wire::Closing(reason);
        }
        self.wake(id);
        self.queue(id);
    }

    fn on_connect(
        &mut self,
        id: ConnId,
        proto: String,
        address: String,
        now: Instant,
    ) -> Result<(), Violation> {
        if self.conns.contains_key(&id) {
            return Err(Violation::Duplicate(id));
        }
        if self.conns.len() >= self.config.limits.connections {
            self.reply(id, format!("too many connections: {}", self.conns.len()));
            return Ok(());
        }
        self.conns.insert(id, Conn::new(now));
        self.counters.opened += 1;
        self.events.push_back(Event::Connect { conn: id, proto, address });
        Ok(())
    }

    fn on_error(&mut self, id: ConnId, text: String) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.wire == Wire::Closed {
            return;
        }
        conn.wire = Wire::Closed;
        conn.outbox.clear();
        conn.connect = None;
        conn.want_pause = false;
        let reason = Reason::from_wire(text);
        let echo = reason.to_string();
        conn.end.get_or_insert(reason);
        self.counters.closed += 1;
        self.reply(id, echo);
        self.wake(id);
        self.forget_if_done(id);
    }

    fn on_pause(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.paused = true;
            self.counters.pauses_received += 1;
        }
    }

    fn on_resume(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.paused = false;
            self.queue(id);
        }
    }

    fn on_add_client(&mut self, client: RemoteClient) -> Result<(), Violation> {
        if !self.config.keep_remote_clients {
            return Ok(());
        }
        let limit = self.config.limits.remote_clients;
        if self.remote_count >= limit {
            return Err(Violation::RemoteClients(limit));
        }
        if self.remote.entry(client.key.clone()).or_default().insert(client.session) {
            self.remote_count += 1;
            self.events.push_back(Event::Remote { client: client.key, added: true });
        }
        Ok(())
    }

    fn on_remove_client(&mut self, client: &RemoteClient) {
        let Some(sessions) = self.remote.get_mut(&client.key) else { return };
        if sessions.remove(&client.session) {
            self.remote_count -= 1;
            self.events.push_back(Event::Remote { client: client.key.clone(), added: false });
        }
        if sessions.is_empty() {
            self.remote.remove(&client.key);
        }
    }

    /// Drops connections the peer no longer has. Nothing is sent: there is nobody to tell.
    fn on_sync(&mut self, list: &ConnectionList, now: Instant) {
        let grace = self.config.timing.sync_grace;
        let mut missing: HashSet<ConnId> = self
            .conns
            .iter()
            .filter(|(_, conn)| {
                conn.wire != Wire::Closed && conn.connect.is_none() && now >= conn.since + grace
            })
            .map(|(id, _)| *id)
            .collect();
        for id in list.iter() {
            missing.remove(&id);
        }
        let mut missing: Vec<ConnId> = missing.into_iter().collect();
        missing.sort_unstable();
        for id in missing {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            conn.wire = Wire::Closed;
            conn.outbox.clear();
            conn.want_pause = false;
            conn.end.get_or_insert(Reason::Sync);
            self.counters.closed += 1;
            self.wake(id);
            self.forget_if_done(id);
        }
    }

    /// Queues an ERROR the peer can do without.
    fn reply(&mut self, conn: ConnId, text: String) {
        if self.replies.len() >= MAX_REPLIES {
            self.counters.replies_dropped += 1;
            return;
        }
        let id = self.message_id();
        self.replies.push_back(Frame { id, conn, body: Body::Error(text) }.encode());
    }
}
