//! Byte queues of one connection: what arrived and waits for the local reader, what was written and waits
//! for its turn on the wire.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use crate::frame::{self, ConnId, MAX_HEADER};

/// A slice of a WebSocket message keeps the whole read buffer behind it alive. Payloads below this size are
/// copied, so that what a connection holds in memory stays within a small factor of what it counts.
const SHARE_FROM: usize = 8 * 1024;
/// Room for later small payloads in a buffer made for copies.
const COPY_CHUNK: usize = 16 * 1024;

/// Received data, in order.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    chunks: VecDeque<Bytes>,
    /// Small payloads gather here behind `chunks`.
    tail: BytesMut,
    len: usize,
}

impl Inbox {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        self.len += data.len();
        if self.len == data.len() && data.len() >= SHARE_FROM {
            self.chunks.push_back(data);
            return;
        }
        if self.tail.capacity() - self.tail.len() < data.len() {
            if !self.tail.is_empty() {
                self.chunks.push_back(std::mem::take(&mut self.tail).freeze());
            }
            let room = if self.len == data.len() { data.len() } else { data.len().max(COPY_CHUNK) };
            self.tail = BytesMut::with_capacity(room);
        }
        self.tail.extend_from_slice(&data);
    }

    /// Takes up to `max` bytes from the front; empty when there are none.
    pub(super) fn pop(&mut self, max: usize) -> Bytes {
        let Some(front) = self.chunks.front_mut() else {
            let taken = self.tail.split_to(max.min(self.tail.len())).freeze();
            self.len -= taken.len();
            if self.len == 0 {
                self.tail = BytesMut::new();
            }
            return taken;
        };
        let taken =
            if front.len() > max { front.split_to(max) } else { self.chunks.pop_front().unwrap_or_default() };
        self.len -= taken.len();
        taken
    }

    /// Copies to `out` and returns how much.
    pub(super) fn copy_to(&mut self, out: &mut [u8]) -> usize {
        let mut done = 0;
        while done < out.len() {
            let chunk = self.pop(out.len() - done);
            if chunk.is_empty() {
                break;
            }
            out[done..done + chunk.len()].copy_from_slice(&chunk);
            done += chunk.len();
        }
        done
    }
}

/// Data of one future DATA message, with space for its header in front.
#[derive(Debug)]
pub struct Chunk(BytesMut);

impl Chunk {
    pub fn with_capacity(data: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(MAX_HEADER + data);
        bytes.resize(MAX_HEADER, 0);
        Self(bytes)
    }

    pub fn len(&self) -> usize {
        self.0.len() - MAX_HEADER
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The data written so far.
    pub fn data(&self) -> &[u8] {
        &self.0[MAX_HEADER..]
    }

    /// Where to append data.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.0
    }

    pub fn clear(&mut self) {
        self.0.truncate(MAX_HEADER);
    }

    /// How much data it can take without growing.
    pub fn capacity(&self) -> usize {
        self.0.capacity() - MAX_HEADER
    }

    fn room(&self, max_frame: usize) -> usize {
        max_frame.saturating_sub(self.len())
    }

    fn into_message(mut self, id: i64, conn: ConnId) -> Bytes {
        let (header, len) = frame::data_header(id, conn);
        let start = MAX_HEADER - len;
        self.0[start..MAX_HEADER].copy_from_slice(&header[..len]);
        self.0.advance(start);
        self.0.freeze()
    }
}

/// Written data, cut into messages. Small writes share one.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    chunks: VecDeque<Chunk>,
    len: usize,
}

impl Outbox {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn push(&mut self, mut data: &[u8], max_frame: usize) {
        self.len += data.len();
        while !data.is_empty() {
            let tail = match self.chunks.back_mut() {
                Some(tail) if tail.room(max_frame) > 0 => tail,
                _ => {
                    self.chunks.push_back(Chunk::with_capacity(data.len().min(max_frame)));
                    self.chunks.back_mut().expect("a chunk was just pushed")
                }
            };
            let take = tail.room(max_frame).min(data.len());
            tail.0.extend_from_slice(&data[..take]);
            data = &data[take..];
        }
    }

    pub(super) fn push_chunk(&mut self, chunk: Chunk) {
        if !chunk.is_empty() {
            self.len += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    pub(super) fn pop(&mut self, id: i64, conn: ConnId) -> Option<Bytes> {
        let chunk = self.chunks.pop_front()?;
        self.len -= chunk.len();
        Some(chunk.into_message(id, conn))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{Body, Frame};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn an_inbox_returns_what_was_pushed_in_order(
            pushes in proptest::collection::vec((0usize..20_000, 1usize..30_000), 1..20)
        ) {
            let mut inbox = Inbox::default();
            let (mut written, mut read) = (0u64, 0u64);
            for (push, take) in pushes {
                inbox.push((0..push).map(|at| (written + at as u64) as u8).collect());
                written += push as u64;
                let mut out = vec![0; take];
                let got = inbox.copy_to(&mut out);
                for byte in &out[..got] {
                    prop_assert_eq!(*byte, read as u8);
                    read += 1;
                }
                prop_assert_eq!(inbox.len() as u64, written - read);
            }
        }

        #[test]
        fn an_outbox_sends_what_was_written_in_bounded_frames(
            writes in proptest::collection::vec(0usize..300, 0..20)
        ) {
            let mut outbox = Outbox::default();
            let mut written = Vec::new();
            for (at, len) in writes.into_iter().enumerate() {
                let data = vec![at as u8; len];
                outbox.push(&data, 100);
                written.extend(data);
            }
            prop_assert_eq!(outbox.len(), written.len());
            let mut sent = Vec::new();
            while let Some(message) = outbox.pop(i64::MAX, ConnId(i64::MIN)) {
                let Body::Data(data) = Frame::decode(message).unwrap().body else { panic!() };
                prop_assert!((1..=100).contains(&data.len()));
                sent.extend_from_slice(&data);
            }
            prop_assert_eq!(sent, written);
            prop_assert!(outbox.is_empty());
        }
    }

    #[test]
    fn small_payloads_do_not_keep_their_message_alive() {
        let message = Bytes::from(vec![7; 100_000]);
        let mut inbox = Inbox::default();
        inbox.push(message.slice(0..10));
        inbox.push(message.slice(10..20));
        assert!(message.is_unique());
        assert_eq!(inbox.copy_to(&mut [0; 30]), 20);
    }
}
