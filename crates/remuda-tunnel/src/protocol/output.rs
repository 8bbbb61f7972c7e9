//! What the peer is told, and in which order: signs of life, control, courtesy, then data in turns.

use std::time::Instant;

use super::{Event, Protocol, Transmit, Wire};
use crate::frame::{self, Body, ConnId, ConnectionList, Frame};

impl Protocol {
    /// The next thing to send, if any.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        if std::mem::take(&mut self.ping_due) {
            return Some(Transmit::Ping);
        }
        if let Some(message) = self.control_message(now) {
            return Some(message);
        }
        if let Some((added, client)) = self.announcements.pop_front() {
            let body = if added { Body::AddClient(client) } else { Body::RemoveClient(client) };
            return Some(self.message(ConnId(0), body));
        }
        if std::mem::take(&mut self.sync_due) {
            // Made when it is sent, so that it holds every connection the peer asked for until now.
            let mut ids: Vec<ConnId> =
                self.conns.iter().filter(|(_, conn)| conn.wire != Wire::Closed).map(|(id, _)| *id).collect();
            ids.sort_unstable();
            return Some(self.message(ConnId(0), Body::Sync(ConnectionList::new(ids))));
        }
        if let Some(reply) = self.replies.pop_front() {
            return Some(Transmit::Message(reply));
        }
        self.turn()
    }

    /// Whether [`Protocol::poll_transmit`] may have something.
    pub fn wants_transmit(&self) -> bool {
        self.ping_due
            || self.sync_due
            || !(self.control.is_empty()
                && self.announcements.is_empty()
                && self.replies.is_empty()
                && self.ring.is_empty())
    }

    fn control_message(&mut self, now: Instant) -> Option<Transmit> {
        while let Some(&id) = self.control.front() {
            let Some(conn) = self.conns.get_mut(&id) else {
                self.control.pop_front();
                continue;
            };
            if let Some((proto, address)) = conn.connect.take() {
                conn.since = now;
                if conn.attached {
                    self.events.push_back(Event::Opened(id));
                }
                return Some(self.message(id, Body::Connect { proto, address }));
            }
            conn.in_control = false;
            self.control.pop_front();
            if conn.has_pause() {
                (conn.told_pause, conn.tell_again) = (conn.want_pause, false);
                let body = if conn.want_pause { Body::Pause } else { Body::Resume };
                self.counters.pauses_sent += u64::from(conn.told_pause);
                return Some(self.message(id, body));
            }
        }
        None
    }

    fn turn(&mut self) -> Option<Transmit> {
        let low = self.send_buffer() / 2;
        while let Some(id) = self.ring.pop_front() {
            let message_id = self.next_message;
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            conn.in_ring = false;
            if !conn.has_turn() {
                continue;
            }
            let before = conn.outbox.len();
            if let Some(message) = conn.outbox.pop(message_id, id) {
                self.next_message = message_id.wrapping_add(1);
                self.counters.sent_bytes += (before - conn.outbox.len()) as u64;
                if conn.write_blocked && conn.outbox.len() <= low {
                    conn.write_blocked = false;
                    self.events.push_back(Event::Writable(id));
                }
                if conn.flush_wanted && conn.outbox.is_empty() {
                    conn.flush_wanted = false;
                    self.events.push_back(Event::Flushed(id));
                }
                self.queue(id);
                return Some(Transmit::Message(message));
            }
            if let Wire::Closing(reason) = std::mem::replace(&mut conn.wire, Wire::Closed) {
                self.counters.closed += 1;
                let text = frame::cut(&reason.to_string(), frame::MAX_ERROR).to_owned();
                self.forget_if_done(id);
                return Some(self.message(id, Body::Error(text)));
            }
        }
        None
    }

    fn message(&mut self, conn: ConnId, body: Body) -> Transmit {
        let id = self.message_id();
        Transmit::Message(Frame { id, conn, body }.encode())
    }
}
