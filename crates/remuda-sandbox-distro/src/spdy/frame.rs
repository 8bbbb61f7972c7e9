//! Frames: eight bytes that say what follows.

pub(super) const VERSION: u16 = 3;
pub(super) const HEAD: usize = 8;
/// The last frame of its sender on a stream.
pub(super) const FIN: u8 = 1;
/// Headers of streams are a few dozen bytes.
pub(super) const LARGEST_CONTROL: usize = 32 << 10;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
/// The status of a stream that is not taken.
const REFUSED: u32 = 3;

/// The beginning of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    Data { id: u32, flags: u8, length: usize },
    Control { version: u16, kind: u16, flags: u8, length: usize },
}

impl Head {
    pub(super) fn parse(head: [u8; HEAD]) -> Head {
        let word = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let flags = head[4];
        let length = u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize;
        match word >> 31 {
            0 => Head::Data { id: word, flags, length },
            _ => Head::Control { version: (word >> 16) as u16 & 0x7fff, kind: word as u16, flags, length },
        }
    }
}

/// What a control frame says, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Control<'a> {
    SynStream { id: u32, block: &'a [u8] },
    Headers { block: &'a [u8] },
    Reset { id: u32 },
    Ping { id: u32 },
    GoAway,
    Other,
}

fn id(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?) & 0x7fff_ffff)
}

impl Control<'_> {
    /// `None` if it is cut off.
    pub(super) fn parse(kind: u16, payload: &[u8]) -> Option<Control<'_>> {
        Some(match kind {
            // The stream it belongs to, its priority and its slot mean nothing here.
            SYN_STREAM => Control::SynStream { id: id(payload)?, block: payload.get(10..)? },
            // Replies are only to streams of ours, of which there are none; but they hold headers.
            HEADERS | SYN_REPLY => Control::Headers { block: payload.get(4..)? },
            RST_STREAM => Control::Reset { id: id(payload)? },
            PING => Control::Ping { id: id(payload)? },
            GOAWAY => Control::GoAway,
            _ => Control::Other,
        })
    }
}

fn control(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD + payload.len());
    frame.extend_from_slice(&(0x8000 | VERSION).to_be_bytes());
    frame.extend_from_slice(&kind.to_be_bytes());
    // No flags, and a length of three bytes.
    frame.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

pub(super) fn syn_reply(id: u32, block: &[u8]) -> Vec<u8> {
    control(SYN_REPLY, &[&id.to_be_bytes(), block].concat())
}

pub(super) fn refuse(id: u32) -> Vec<u8> {
    control(RST_STREAM, &[id.to_be_bytes(), REFUSED.to_be_bytes()].concat())
}

pub(super) fn ping(id: u32) -> Vec<u8> {
    control(PING, &id.to_be_bytes())
}

pub(super) fn go_away() -> Vec<u8> {
    control(GOAWAY, &[0; 8])
}

pub(super) fn data_head(id: u32, flags: u8, length: usize) -> [u8; HEAD] {
    let [a, b, c, d] = id.to_be_bytes();
    let [_, x, y, z] = (length as u32).to_be_bytes();
    [a, b, c, d, flags, x, y, z]
}

#[cfg(test)]
pub(super) fn syn_stream(id: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    let mut frame = control(SYN_STREAM, &[&id.to_be_bytes()[..], &[0; 6], block].concat());
    frame[4] = flags;
    frame
}
