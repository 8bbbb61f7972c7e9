//! A tunnel session as a state machine: no I/O, no clock, no randomness.
//!
//! The owner feeds it messages, local reads and writes and the time, and takes from it messages to send
//! ([`Protocol::poll_transmit`]) and events ([`Protocol::poll_event`]). Both ends of a tunnel are the same
//! machine with another [`Role`].
//!
//! What stays true whatever the peer does:
//! - A connection holds at most its receive limit of unread data, a session at most its own; beyond that the
//!   connection is failed, not the session.
//! - Everything queued for sending is bounded: data by the send buffer of its connection, control messages by
//!   being flags of connections, replies to stray messages by being dropped when too many wait.
//! - Connections with data take turns, one message each. A paused one takes none.

mod buffer;
mod input;
mod output;
mod terms;

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    time::Instant,
};

use bytes::Bytes;

pub use buffer::Chunk;
use buffer::{Inbox, Outbox};
pub use terms::{
    Config, Counters, Event, Limits, OpenError, Read, Reason, Role, Timing, Transmit, Violation,
};

use crate::frame::{self, ConnId, RemoteClient};

/// Ids of connections a client opens. The original counts both ends up from almost the same number; far apart
/// they cannot meet.
const CLIENT_IDS: i64 = 1 << 40;
/// Replies to stray messages that may wait. More are dropped: the other side has forgotten the id anyway.
const MAX_REPLIES: usize = 1024;
/// A connection is never asked to pause below this, however many there are.
const MIN_HIGH_WATER: usize = 16 << 10;
/// A writer may always be this far ahead of the wire, however many there are.
const MIN_SEND_BUFFER: usize = 32 << 10;

#[derive(Debug, PartialEq, Eq)]
enum Wire {
    /// Both ends know the connection.
    Open,
    /// Closed here; what is written goes out first, then the reason.
    Closing(Reason),
    /// The peer has forgotten it, or was told to.
    Closed,
}

#[derive(Debug)]
struct Conn {
    wire: Wire,
    /// The owner still holds a handle.
    attached: bool,
    /// What a reader finds behind the data.
    end: Option<Reason>,
    inbox: Inbox,
    outbox: Outbox,
    /// CONNECT still to be sent.
    connect: Option<(String, String)>,
    /// When it came to be on the wire.
    since: Instant,
    /// The peer asked us to stop.
    paused: bool,
    /// We want the peer to stop, and what it was last told.
    want_pause: bool,
    told_pause: bool,
    /// Tell it once more.
    tell_again: bool,
    /// Unread bytes at which to ask once more.
    repause_at: usize,
    /// A writer waits for room, an owner for the outbox to empty.
    write_blocked: bool,
    flush_wanted: bool,
    in_control: bool,
    in_ring: bool,
    /// Until when its data may take to leave.
    linger: Option<Instant>,
}

impl Conn {
    fn new(now: Instant) -> Self {
        Self {
            wire: Wire::Open,
            attached: true,
            end: None,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            connect: None,
            since: now,
            paused: false,
            want_pause: false,
            told_pause: false,
            tell_again: false,
            repause_at: 0,
            write_blocked: false,
            flush_wanted: false,
            in_control: false,
            in_ring: false,
            linger: None,
        }
    }

    fn has_control(&self) -> bool {
        self.connect.is_some() || self.has_pause()
    }

    /// Whether a PAUSE or RESUME is due.
    fn has_pause(&self) -> bool {
        self.wire == Wire::Open
            && (self.want_pause != self.told_pause || (self.want_pause && self.tell_again))
    }

    /// Whether the data ring has something to send for it.
    fn has_turn(&self) -> bool {
        match self.wire {
            Wire::Open => !self.paused && !self.outbox.is_empty(),
            Wire::Closing(_) => !self.paused || self.outbox.is_empty(),
            Wire::Closed => false,
        }
    }
}

/// The machine. See the module.
#[derive(Debug)]
pub struct Protocol {
    config: Config,
    conns: HashMap<ConnId, Conn>,
    next_conn: i64,
    next_message: i64,
    /// Unread bytes of all connections.
    unread: usize,
    /// Connections with a CONNECT, PAUSE or RESUME to send; they go before data.
    control: VecDeque<ConnId>,
    /// Connections with data or a close to send, in turn.
    ring: VecDeque<ConnId>,
    /// Finished courtesy replies.
    replies: VecDeque<Bytes>,
    announcements: VecDeque<(bool, RemoteClient)>,
    remote: HashMap<String, HashSet<i64>>,
    remote_count: usize,
    events: VecDeque<Event>,
    /// Closing connections that still have data, by the time they are given up.
    lingering: BTreeSet<(Instant, ConnId)>,
    heard: Instant,
    next_ping: Instant,
    next_sync: Instant,
    ping_due: bool,
    sync_due: bool,
    ended: bool,
    counters: Counters,
}

impl Protocol {
    pub fn new(config: Config, now: Instant) -> Self {
        let timing = &config.timing;
        Self {
            next_conn: if config.role == Role::Client { CLIENT_IDS } else { 2 },
            next_message: config.first_message,
            heard: now,
            next_ping: now + timing.ping,
            next_sync: now + timing.sync,
            config,
            conns: HashMap::new(),
            unread: 0,
            control: VecDeque::new(),
            ring: VecDeque::new(),
            replies: VecDeque::new(),
            announcements: VecDeque::new(),
            remote: HashMap::new(),
            remote_count: 0,
            events: VecDeque::new(),
            lingering: BTreeSet::new(),
            ping_due: false,
            sync_due: false,
            ended: false,
            counters: Counters::default(),
        }
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Connections that exist here, those still flushing or unread included.
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Unread bytes held for local readers.
    pub fn unread(&self) -> usize {
        self.unread
    }

    /// Whether the peer announced a session of client `key`.
    pub fn reaches(&self, key: &str) -> bool {
        !self.ended && self.remote.contains_key(key)
    }

    /// The clients the peer announced.
    pub fn remote_clients(&self) -> impl Iterator<Item = &str> {
        self.remote.keys().map(String::as_str)
    }

    /// Opens a connection. It takes data at once; [`Event::Opened`] follows when its CONNECT went out.
    pub fn open(&mut self, proto: &str, address: &str, now: Instant) -> Result<ConnId, OpenError> {
        if self.ended {
            return Err(OpenError::Ended);
        }
        if self.conns.len() >= self.config.limits.connections {
            return Err(OpenError::TooMany(self.conns.len()));
        }
        // The receiver would dial a cut address otherwise, or another protocol than was meant.
        if proto.len() + 1 + address.len() > frame::MAX_CONNECT || proto.contains('/') {
            return Err(OpenError::Address(format!("{proto}/{address}")));
        }
        let id = ConnId(self.next_conn);
        self.next_conn += 1;
        let mut conn = Conn::new(now);
        conn.connect = Some((proto.to_owned(), address.to_owned()));
        self.conns.insert(id, conn);
        self.counters.opened += 1;
        self.queue(id);
        Ok(id)
    }

    /// Queues data and returns how much was taken; 0 means wait for [`Event::Writable`].
    pub fn write(&mut self, id: ConnId, data: &[u8]) -> Result<usize, Reason> {
        let frame = self.config.limits.frame;
        let room = self.room(id)?;
        let Some(conn) = self.conns.get_mut(&id) else { return Err(Reason::Eof) };
        let take = data.len().min(room);
        conn.outbox.push(&data[..take], frame);
        self.queue(id);
        Ok(take)
    }

    /// Queues all of `data`, whatever the room: for owners that asked [`Protocol::room`] before.
    pub fn write_all(&mut self, id: ConnId, data: &[u8]) -> Result<(), Reason> {
        let frame = self.config.limits.frame;
        self.room(id)?;
        let Some(conn) = self.conns.get_mut(&id) else { return Err(Reason::Eof) };
        conn.outbox.push(data, frame);
        self.queue(id);
        Ok(())
    }

    /// Queues a chunk as one message without copying, whatever the room.
    pub fn write_chunk(&mut self, id: ConnId, chunk: Chunk) -> Result<(), Reason> {
        if chunk.len() > self.config.limits.frame {
            return self.write_all(id, chunk.data());
        }
        self.room(id)?;
        let Some(conn) = self.conns.get_mut(&id) else { return Err(Reason::Eof) };
        conn.outbox.push_chunk(chunk);
        self.queue(id);
        Ok(())
    }

    /// How much may be written; with 0 an [`Event::Writable`] follows.
    pub fn room(&mut self, id: ConnId) -> Result<usize, Reason> {
        let limit = self.send_buffer();
        let Some(conn) = self.conns.get_mut(&id) else { return Err(Reason::Eof) };
        if conn.wire != Wire::Open {
            return Err(conn.end.clone().unwrap_or(Reason::Eof));
        }
        let room = limit.saturating_sub(conn.outbox.len());
        conn.write_blocked = room == 0;
        Ok(room)
    }

    /// Whether all written data has been handed out; if not, an [`Event::Flushed`] follows.
    pub fn flushed(&mut self, id: ConnId) -> Result<bool, Reason> {
        let Some(conn) = self.conns.get_mut(&id) else { return Ok(true) };
        if conn.wire == Wire::Closed {
            return if conn.outbox.is_empty() {
                Ok(true)
            } else {
                Err(conn.end.clone().unwrap_or(Reason::Eof))
            };
        }
        conn.flush_wanted = !conn.outbox.is_empty();
        Ok(!conn.flush_wanted)
    }

    /// Takes up to `max` unread bytes without copying.
    pub fn read(&mut self, id: ConnId, max: usize) -> Read {
        let Some(conn) = self.conns.get_mut(&id) else { return Read::End(Reason::Eof) };
        let data = conn.inbox.pop(max);
        if data.is_empty() && max > 0 {
            return conn.end.clone().map_or(Read::Nothing, Read::End);
        }
        self.after_read(id, data.len());
        Read::Data(data)
    }

    /// Copies unread bytes to `out`; 0 means nothing yet, unless the connection ended.
    pub fn read_into(&mut self, id: ConnId, out: &mut [u8]) -> Result<usize, Reason> {
        let Some(conn) = self.conns.get_mut(&id) else { return Err(Reason::Eof) };
        let count = conn.inbox.copy_to(out);
        if count == 0 {
            return conn.end.clone().map_or(Ok(0), Err);
        }
        self.after_read(id, count);
        Ok(count)
    }

    fn after_read(&mut self, id: ConnId, count: usize) {
        self.unread -= count;
        let low = (self.high_water() / 8).max(1);
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.want_pause && conn.inbox.len() < low {
            conn.want_pause = false;
            self.queue(id);
        }
    }

    /// Closes a connection: written data still goes out, then the reason. Unread data is dropped.
    pub fn close(&mut self, id: ConnId, reason: Reason, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let unread = std::mem::take(&mut conn.inbox).len();
        self.unread -= unread;
        if conn.wire != Wire::Open {
            return;
        }
        if conn.connect.is_some() && conn.outbox.is_empty() {
            // The peer never heard of it.
            conn.connect = None;
            conn.wire = Wire::Closed;
            self.counters.closed += 1;
        } else {
            conn.wire = Wire::Closing(reason.clone());
            if !conn.outbox.is_empty() {
                let until = now + self.config.timing.linger;
                conn.linger = Some(until);
                self.lingering.insert((until, id));
            }
        }
        conn.end.get_or_insert(reason);
        conn.want_pause = false;
        self.wake(id);
        self.queue(id);
        self.forget_if_done(id);
    }

    /// The owner dropped its handle; an open connection is closed in good order.
    pub fn detach(&mut self, id: ConnId, now: Instant) {
        self.close(id, Reason::Eof, now);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.attached = false;
        }
        self.forget_if_done(id);
    }

    /// Tells the peer of a client session that came (`true`) or went.
    pub fn announce(&mut self, added: bool, client: RemoteClient) -> Result<(), Violation> {
        let limit = self.config.limits.remote_clients;
        if self.announcements.len() >= limit {
            return Err(Violation::Announcements(limit));
        }
        // Receivers cut longer ones and then fail to parse them, which would end the whole link.
        if client.to_string().len() <= frame::MAX_ANNOUNCEMENT && !client.key.contains('/') {
            self.announcements.push_back((added, client));
        }
        Ok(())
    }

    /// When [`Protocol::tick`] has something to do.
    pub fn next_timeout(&self) -> Instant {
        let mut next = self.heard + self.config.timing.silence;
        if self.config.role == Role::Client {
            next = next.min(self.next_ping).min(self.next_sync);
        }
        self.lingering.first().map_or(next, |(at, _)| next.min(*at))
    }

    /// Acts on the time.
    pub fn tick(&mut self, now: Instant) -> Result<(), Violation> {
        let timing = &self.config.timing;
        if now >= self.heard + timing.silence {
            return Err(Violation::Silence(timing.silence));
        }
        if self.config.role == Role::Client {
            if now >= self.next_ping {
                self.ping_due = true;
                self.next_ping = now + timing.ping;
            }
            if now >= self.next_sync {
                self.sync_due = true;
                self.next_sync = now + timing.sync;
            }
        }
        while let Some(&(at, id)) = self.lingering.first()
            && at <= now
        {
            self.lingering.pop_first();
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.linger = None;
                conn.outbox.clear();
                conn.paused = false;
                self.queue(id);
            }
        }
        Ok(())
    }

    /// The peer gave a sign of life other than a message.
    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// The session is over: every connection ends, nothing can be opened.
    ///
    /// `tell` queues the end of each connection for the peer, for sessions ended on purpose.
    pub fn end(&mut self, tell: bool) {
        if self.ended {
            return;
        }
        self.ended = true;
        let remote = std::mem::take(&mut self.remote);
        self.events.extend(remote.into_keys().map(|client| Event::Remote { client, added: false }));
        self.remote_count = 0;
        self.announcements.clear();
        let mut ids: Vec<ConnId> = self.conns.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            conn.end.get_or_insert(Reason::Disconnect);
            if tell && conn.wire != Wire::Closed && conn.connect.is_none() {
                conn.outbox.clear();
                conn.paused = false;
                if conn.wire == Wire::Open {
                    conn.wire = Wire::Closing(Reason::Disconnect);
                }
                self.queue(id);
            } else if conn.wire != Wire::Closed {
                conn.wire = Wire::Closed;
                conn.connect = None;
                conn.outbox.clear();
                self.counters.closed += 1;
            }
            self.wake(id);
            self.forget_if_done(id);
        }
    }

    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn wake(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if !conn.attached {
            return;
        }
        (conn.write_blocked, conn.flush_wanted) = (false, false);
        self.events.extend([Event::Readable(id), Event::Writable(id), Event::Flushed(id)]);
    }

    /// Puts a connection into the queues it belongs in.
    fn queue(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if !conn.in_control && conn.has_control() {
            conn.in_control = true;
            self.control.push_back(id);
        }
        if !conn.in_ring && conn.has_turn() {
            conn.in_ring = true;
            self.ring.push_back(id);
        }
    }

    fn forget_if_done(&mut self, id: ConnId) {
        if self.conns.get(&id).is_some_and(|conn| !conn.attached && conn.wire == Wire::Closed)
            && let Some(conn) = self.conns.remove(&id)
        {
            self.unread -= conn.inbox.len();
            conn.linger.into_iter().for_each(|at| _ = self.lingering.remove(&(at, id)));
        }
    }

    /// The pause threshold: a share of what is left of half the session's memory, so that any number of
    /// stalled connections comes to rest before the other half, which is for data under way, is touched.
    fn high_water(&self) -> usize {
        let limits = &self.config.limits;
        let left = (limits.session_receive / 2).saturating_sub(self.unread);
        (left / 8).clamp(MIN_HIGH_WATER.min(limits.high_water), limits.high_water)
    }

    /// How far a writer may be ahead: a share of the session's memory for that among all who are sending.
    fn send_buffer(&self) -> usize {
        let limits = &self.config.limits;
        let share = limits.session_send / self.ring.len().max(1);
        share.clamp(MIN_SEND_BUFFER.min(limits.send_buffer), limits.send_buffer)
    }

    fn message_id(&mut self) -> i64 {
        let id = self.next_message;
        self.next_message = id.wrapping_add(1);
        id
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
