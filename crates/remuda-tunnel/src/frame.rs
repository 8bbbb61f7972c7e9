//! The remotedialer message format: what one binary WebSocket message holds.
//!
//! ```text
//! message  = id connection type [deadline] payload
//! deadline = only in DATA and CONNECT, always 15000, ignored by receivers
//! ```
//!
//! All header fields are signed varints. The id is a counter of the sender that receivers ignore.

pub mod varint;

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The deadline field that older peers expect in DATA and CONNECT.
const LEGACY_DEADLINE_MS: i64 = 15_000;
/// Space for the header of any known type: two varints of up to ten bytes, one byte of type, three of deadline.
pub const MAX_HEADER: usize = 2 * varint::MAX_LEN + 4;
/// Scratch space for a header of any type.
type Header = [u8; 32];
/// Receivers read no more of an error text.
pub const MAX_ERROR: usize = 100;
/// Receivers read no more of a CONNECT payload.
pub const MAX_CONNECT: usize = 266;
/// Receivers read no more of an ADDCLIENT or REMOVECLIENT payload.
pub const MAX_ANNOUNCEMENT: usize = 100;
/// The error text that means an orderly close.
pub const EOF: &str = "EOF";

/// A virtual connection within one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub i64);

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a message is not a frame. Fatal for the session, as in the original.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("message header is truncated")]
    Truncated,
    #[error("message header holds a number of more than 64 bits")]
    Overflow,
    #[error("failed to parse connect address")]
    ConnectAddress,
    #[error("client announcement is not <key>/<number>")]
    Announcement,
    #[error("connection list is not a multiple of 8 bytes")]
    ConnectionList,
}

/// A client session somewhere behind a peer: `<client key>/<session key>` on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RemoteClient {
    pub key: String,
    pub session: i64,
}

impl RemoteClient {
    fn parse(payload: &[u8]) -> Result<Self, FrameError> {
        let text = String::from_utf8_lossy(head(payload, MAX_ANNOUNCEMENT));
        let (key, session) = text.split_once('/').ok_or(FrameError::Announcement)?;
        let session = session.parse().map_err(|_| FrameError::Announcement)?;
        Ok(Self { key: key.to_owned(), session })
    }
}

impl fmt::Display for RemoteClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.key, self.session)
    }
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    Data(Bytes),
    Connect {
        proto: String,
        address: String,
    },
    Error(String),
    AddClient(RemoteClient),
    RemoveClient(RemoteClient),
    Pause,
    Resume,
    /// The sender's open connections.
    Sync(ConnectionList),
    /// A type this version does not know; receivers skip it.
    Unknown(i64),
}

impl Body {
    fn kind(&self) -> i64 {
        match self {
            Self::Data(_) => 1,
            Self::Connect { .. } => 2,
            Self::Error(_) => 3,
            Self::AddClient(_) => 4,
            Self::RemoveClient(_) => 5,
            Self::Pause => 6,
            Self::Resume => 7,
            Self::Sync(_) => 8,
            Self::Unknown(kind) => *kind,
        }
    }
}

/// Connection ids as they stand in a SYNCCONNECTIONS payload; read in place, because a peer chooses its length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionList(Bytes);

impl ConnectionList {
    pub fn new(ids: impl IntoIterator<Item = ConnId>) -> Self {
        let mut bytes = BytesMut::new();
        ids.into_iter().for_each(|id| bytes.put_i64_le(id.0));
        Self(bytes.freeze())
    }

    pub fn iter(&self) -> impl Iterator<Item = ConnId> {
        let mut rest = self.0.clone();
        std::iter::from_fn(move || rest.try_get_i64_le().ok().map(ConnId))
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub id: i64,
    /// `ConnId(0)` in messages that belong to no connection.
    pub conn: ConnId,
    pub body: Body,
}

impl Frame {
    /// Reads one message. DATA and SYNC payloads are slices of `message`, nothing is copied.
    ///
    /// Over-long texts are cut at the limits the original reads, invalid UTF-8 is replaced.
    pub fn decode(mut message: Bytes) -> Result<Self, FrameError> {
        let mut number = || {
            let (value, used) = varint::get(&message)?;
            message.advance(used);
            Ok(value)
        };
        let (id, conn, kind) = (number()?, ConnId(number()?), number()?);
        if matches!(kind, 1 | 2) {
            number()?;
        }
        let body = match kind {
            1 => Body::Data(message),
            2 => {
                let text = String::from_utf8_lossy(head(&message, MAX_CONNECT));
                let (proto, address) = text.split_once('/').ok_or(FrameError::ConnectAddress)?;
                Body::Connect { proto: proto.to_owned(), address: address.to_owned() }
            }
            3 => Body::Error(String::from_utf8_lossy(head(&message, MAX_ERROR)).into_owned()),
            4 => Body::AddClient(RemoteClient::parse(&message)?),
            5 => Body::RemoveClient(RemoteClient::parse(&message)?),
            6 => Body::Pause,
            7 => Body::Resume,
            8 if !message.len().is_multiple_of(8) => return Err(FrameError::ConnectionList),
            8 => Body::Sync(ConnectionList(message)),
            other => Body::Unknown(other),
        };
        Ok(Self { id, conn, body })
    }

    /// Writes one message. Texts are written whole; keeping them within what receivers read is the caller's part.
    pub fn encode(&self) -> Bytes {
        let (header, len) = header(self.id, self.conn, self.body.kind());
        let mut out = BytesMut::with_capacity(len + 32);
        out.put_slice(&header[..len]);
        match &self.body {
            Body::Data(data) => out.put_slice(data),
            Body::Connect { proto, address } => {
                out.put_slice(proto.as_bytes());
                out.put_u8(b'/');
                out.put_slice(address.as_bytes());
            }
            Body::Error(text) => out.put_slice(text.as_bytes()),
            Body::AddClient(client) | Body::RemoveClient(client) => {
                out.put_slice(client.to_string().as_bytes());
            }
            Body::Sync(list) => out.put_slice(&list.0),
            Body::Pause | Body::Resume | Body::Unknown(_) => {}
        }
        out.freeze()
    }
}

/// The header of a DATA message, and how much of the array it fills.
///
/// Senders keep [`MAX_HEADER`] bytes free in front of their data and put this there, which spares a copy.
pub(crate) fn data_header(id: i64, conn: ConnId) -> (Header, usize) {
    header(id, conn, 1)
}

fn header(id: i64, conn: ConnId, kind: i64) -> (Header, usize) {
    let mut out = Header::default();
    let mut end = varint::put(&mut out, 0, id);
    end = varint::put(&mut out, end, conn.0);
    end = varint::put(&mut out, end, kind);
    if matches!(kind, 1 | 2) {
        end = varint::put(&mut out, end, LEGACY_DEADLINE_MS);
    }
    (out, end)
}

fn head(bytes: &[u8], limit: usize) -> &[u8] {
    &bytes[..bytes.len().min(limit)]
}

/// Cuts `text` to at most `limit` bytes at a character boundary.
pub(crate) fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests;
