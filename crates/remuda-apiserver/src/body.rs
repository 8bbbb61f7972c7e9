//! Response bodies: finished bytes, a list assembled while it is sent, or a live stream.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures::stream::{BoxStream, StreamExt};
use http_body::{Frame, SizeHint};
use remuda_store::Record;

use crate::typeless::Cut;

/// Lists are sent in pieces of about this size, so that a large one never stands in memory twice.
const PIECE: usize = 64 << 10;

/// The body of every answer.
pub enum Body {
    Full(Bytes),
    Items(Items),
    Stream(BoxStream<'static, Bytes>),
}

/// A list of stored objects, joined by commas between a head and a tail.
pub struct Items {
    head: Bytes,
    records: std::vec::IntoIter<Arc<Record>>,
    /// What is left out of each record; empty if they go out whole.
    cuts: std::vec::IntoIter<Cut>,
    tail: Bytes,
    left: u64,
    first: bool,
}

impl Items {
    pub fn new(head: Bytes, records: Vec<Arc<Record>>, tail: Bytes) -> Self {
        Self::cut(head, records, Vec::new(), tail)
    }

    /// As [`Items::new`], of a kind whose objects begin with `usual` and go out without their type.
    pub(crate) fn typeless(head: Bytes, records: Vec<Arc<Record>>, tail: Bytes, usual: &str) -> Self {
        let cuts = records.iter().map(|record| Cut::of(&record.value, usual.as_bytes())).collect();
        Self::cut(head, records, cuts, tail)
    }

    fn cut(head: Bytes, records: Vec<Arc<Record>>, cuts: Vec<Cut>, tail: Bytes) -> Self {
        let values: usize = records.iter().map(|record| record.value.len()).sum();
        let removed: usize = cuts.iter().map(Cut::len).sum();
        let commas = records.len().saturating_sub(1);
        let left = (head.len() + tail.len() + values + commas - removed) as u64;
        Self { head, records: records.into_iter(), cuts: cuts.into_iter(), tail, left, first: true }
    }

    pub fn len(&self) -> u64 {
        self.left
    }

    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    fn piece(&mut self) -> Option<Bytes> {
        if self.left == 0 {
            return None;
        }
        let mut piece = BytesMut::with_capacity(PIECE.min(self.left as usize) + 4096);
        piece.extend_from_slice(&std::mem::take(&mut self.head));
        while piece.len() < PIECE {
            let Some(record) = self.records.next() else {
                piece.extend_from_slice(&std::mem::take(&mut self.tail));
                break;
            };
            if !std::mem::take(&mut self.first) {
                piece.extend_from_slice(b",");
            }
            match self.cuts.next() {
                Some(cut) => cut.rest(&record.value).iter().for_each(|part| piece.extend_from_slice(part)),
                None => piece.extend_from_slice(&record.value),
            }
        }
        self.left = self.left.saturating_sub(piece.len() as u64);
        Some(piece.freeze())
    }

    /// All of it at once, for compression and other representations.
    pub fn collect(mut self) -> Bytes {
        let mut whole = BytesMut::with_capacity(self.left as usize);
        while let Some(piece) = self.piece() {
            whole.extend_from_slice(&piece);
        }
        whole.freeze()
    }
}

impl Body {
    pub fn empty() -> Self {
        Self::Full(Bytes::new())
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::Full(bytes.into())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match &mut *self {
            Self::Full(bytes) if bytes.is_empty() => None,
            Self::Full(bytes) => Some(std::mem::take(bytes)),
            Self::Items(items) => items.piece(),
            Self::Stream(stream) => match stream.poll_next_unpin(cx) {
                Poll::Ready(next) => next,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_empty(),
            Self::Items(items) => items.is_empty(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Items(items) => SizeHint::with_exact(items.len()),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}
