//! Bytes to messages.

use bytes::{Buf, Bytes, BytesMut};

use super::{mask, opcode};
use crate::{
    protocol::Role,
    socket::{MAX_MESSAGE, SocketError},
};

/// Read at once when nothing is known about what comes: what a TLS record holds.
const READ: usize = 16 << 10;
/// The longest head of a frame: two bytes, eight of length, four of key.
const MAX_HEAD: usize = 14;
/// After a message of this size the head of the next is read alone, so that its data goes where it belongs.
const BULK: usize = 16 << 10;
/// Memory made for a message on the word of its head; more comes with its data.
const TRUST: usize = 256 << 10;
/// Control frames are no longer.
const MAX_CONTROL: usize = 125;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    Binary(Bytes),
    Text,
    Ping(Bytes),
    Pong,
    Close,
}

#[derive(Debug, Clone, Copy)]
struct Head {
    last: bool,
    opcode: u8,
    key: Option<[u8; 4]>,
    len: usize,
}

/// Puts messages together.
#[derive(Debug)]
pub(super) struct Decoder {
    role: Role,
    buffer: BytesMut,
    /// Of the frame whose data `buffer` begins with.
    head: Option<Head>,
    /// The message so far, between its first and its last fragment.
    fragments: Option<BytesMut>,
    bulk: bool,
}

impl Decoder {
    pub(super) fn new(role: Role, read: &[u8]) -> Self {
        Self { role, buffer: BytesMut::from(read), head: None, fragments: None, bulk: false }
    }

    /// The next message, if all of it is there.
    pub(super) fn next(&mut self) -> Result<Option<Message>, SocketError> {
        loop {
            let head = match self.head {
                Some(head) => head,
                None => match self.take_head()? {
                    Some(head) => head,
                    None => return Ok(None),
                },
            };
            if self.buffer.len() < head.len {
                return Ok(None);
            }
            self.head = None;
            let mut data = self.buffer.split_to(head.len);
            head.key.into_iter().for_each(|key| mask::apply(&mut data, key));
            match (head.opcode, &mut self.fragments) {
                (opcode::PING, _) => return Ok(Some(Message::Ping(data.freeze()))),
                (opcode::PONG, _) => return Ok(Some(Message::Pong)),
                (opcode::CLOSE, _) => return Ok(Some(Message::Close)),
                (opcode::BINARY, None) if head.last => {
                    self.bulk = head.len >= BULK;
                    return Ok(Some(Message::Binary(data.freeze())));
                }
                (opcode::BINARY, fragments @ None) => *fragments = Some(BytesMut::from(&data[..])),
                (opcode::CONTINUATION, Some(fragments)) => {
                    fragments.extend_from_slice(&data);
                    if head.last {
                        return Ok(self.fragments.take().map(|whole| Message::Binary(whole.freeze())));
                    }
                }
                (opcode::TEXT, None) => return Ok(Some(Message::Text)),
                (opcode::CONTINUATION, None) => return Err(SocketError::Frame("continues no message")),
                _ => return Err(SocketError::Frame("begins a message inside another")),
            }
        }
    }

    fn take_head(&mut self) -> Result<Option<Head>, SocketError> {
        let Some((head, used)) = parse(&self.buffer)? else { return Ok(None) };
        match (self.role, head.key) {
            (Role::Server, None) => return Err(SocketError::Frame("of a client is not masked")),
            (Role::Client, Some(_)) => return Err(SocketError::Frame("of a server is masked")),
            _ => {}
        }
        let before = self.fragments.as_ref().map_or(0, BytesMut::len);
        if head.len > MAX_MESSAGE - before {
            return Err(SocketError::Frame("makes its message too large"));
        }
        self.buffer.advance(used);
        self.head = Some(head);
        Ok(self.head)
    }

    /// Where to append what is read, and how much at most.
    pub(super) fn buffer(&mut self) -> (&mut BytesMut, usize) {
        let have = self.buffer.len();
        let most = match self.head {
            // To its end and no further: what follows starts in memory of its own.
            Some(head) => (head.len - have).min(have.max(TRUST)),
            None if self.bulk => MAX_HEAD,
            None => READ,
        };
        // Memory left from messages that are gone is used again; a little of it is not worth a read.
        let wanted = if self.head.is_some() || self.bulk { most } else { READ / 4 };
        if self.buffer.capacity() - have < wanted && !self.buffer.try_reclaim(most) {
            let mut larger = BytesMut::with_capacity(have + most);
            larger.extend_from_slice(&self.buffer);
            self.buffer = larger;
        }
        let most = most.min(self.buffer.capacity() - have);
        (&mut self.buffer, most)
    }

    /// Memory held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.buffer.capacity() + self.fragments.as_ref().map_or(0, BytesMut::capacity)
    }

    /// There is nothing to read for now.
    pub(super) fn rest(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
        self.bulk = false;
    }
}

/// The head of a frame and its length, if all of it is there.
fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, SocketError> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & 0x70 != 0 {
        return Err(SocketError::Frame("uses an extension"));
    }
    let (last, opcode) = (first & 0x80 != 0, first & 0x0f);
    let control = match opcode {
        opcode::CONTINUATION | opcode::TEXT | opcode::BINARY => false,
        opcode::CLOSE | opcode::PING | opcode::PONG => true,
        _ => return Err(SocketError::Frame("is of an unknown kind")),
    };
    let mut rest = rest;
    let len = match second & 0x7f {
        126 => rest.try_get_u16().map(u64::from),
        127 => rest.try_get_u64(),
        len => Ok(u64::from(len)),
    };
    let Ok(len) = len else { return Ok(None) };
    // Whatever does not fit is far above what is accepted.
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if control && (!last || len > MAX_CONTROL) {
        return Err(SocketError::Frame("of control is fragmented or too long"));
    }
    let key = match second & 0x80 != 0 {
        true => match rest.split_first_chunk::<4>() {
            Some((key, after)) => {
                rest = after;
                Some(*key)
            }
            None => return Ok(None),
        },
        false => None,
    };
    Ok(Some((Head { last, opcode, key, len }, bytes.len() - rest.len())))
}
