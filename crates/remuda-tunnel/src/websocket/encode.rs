//! Messages to bytes: one frame each, never a fragment.

use std::{collections::VecDeque, io::IoSlice};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{WRITE_BUFFER, mask, opcode};
use crate::protocol::Role;

/// Messages below this size are gathered in one piece of memory, others written from where they lie.
const GATHER: usize = 4 << 10;
/// A peer that pings but does not read gets no answers while this much waits. Messages alone never make it so
/// much: they are not taken when a fraction of it waits.
const MAX_WITH_PONGS: usize = 4 * WRITE_BUFFER;
const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;

/// Frames that wait to be written.
#[derive(Debug)]
pub(super) struct Encoder {
    role: Role,
    pieces: VecDeque<BytesMut>,
    /// The last piece takes more: it is not a message in its own memory.
    gathering: bool,
    len: usize,
}

impl Encoder {
    pub(super) fn new(role: Role) -> Self {
        Self { role, pieces: VecDeque::new(), gathering: false, len: 0 }
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Memory held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.pieces.iter().map(BytesMut::capacity).sum()
    }

    pub(super) fn pong(&mut self, data: &[u8]) {
        if self.len < MAX_WITH_PONGS {
            self.push(opcode::PONG, Bytes::copy_from_slice(data));
        }
    }

    pub(super) fn push(&mut self, opcode: u8, data: Bytes) {
        // Servers do not mask. Clients take a fresh key for every frame, as they must.
        let key = (self.role == Role::Client).then(rand::random::<[u8; 4]>);
        let gathered = data.len() < GATHER;
        let piece = self.gathering_piece(if gathered { data.len() } else { 0 });
        let before = piece.len();
        head(piece, opcode, data.len(), key);
        let mut own = None;
        if gathered {
            let start = piece.len();
            piece.put_slice(&data);
            key.into_iter().for_each(|key| mask::apply(&mut piece[start..], key));
        } else {
            // Whoever made the message has given it away; only a copy kept elsewhere costs another one here.
            let mut data = data.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
            key.into_iter().for_each(|key| mask::apply(&mut data, key));
            own = Some(data);
        }
        self.len += piece.len() - before;
        if let Some(data) = own {
            self.len += data.len();
            self.pieces.push_back(data);
            self.gathering = false;
        }
    }

    /// The piece that small things are appended to.
    fn gathering_piece(&mut self, data: usize) -> &mut BytesMut {
        if !self.gathering || self.pieces.is_empty() {
            self.pieces.push_back(BytesMut::with_capacity(MAX_HEAD + data));
            self.gathering = true;
        }
        self.pieces.back_mut().expect("a piece was pushed if there was none")
    }

    /// Puts what is to be written next into `slices` and returns how many.
    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    /// So many bytes have been written.
    pub(super) fn written(&mut self, mut count: usize) {
        self.len -= count;
        while let Some(piece) = self.pieces.front_mut() {
            if piece.len() > count {
                piece.advance(count);
                break;
            }
            count -= piece.len();
            self.pieces.pop_front();
        }
        if self.len == 0 {
            // An idle socket holds nothing.
            *self = Self::new(self.role);
        }
    }
}

/// Two bytes, eight of length, four of key.
const MAX_HEAD: usize = 14;

fn head(out: &mut BytesMut, opcode: u8, len: usize, key: Option<[u8; 4]>) {
    let masked = if key.is_some() { MASKED } else { 0 };
    out.put_u8(FIN | opcode);
    match len {
        0..126 => out.put_u8(masked | len as u8),
        126..=0xffff => {
            out.put_u8(masked | 126);
            out.put_u16(len as u16);
        }
        _ => {
            out.put_u8(masked | 127);
            out.put_u64(len as u64);
        }
    }
    key.into_iter().for_each(|key| out.put_slice(&key));
}
