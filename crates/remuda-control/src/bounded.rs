//! What another API may send.
//!
//! A workload cluster has administrators of its own, so its answers are input like any other: an answer larger
//! than anything we ask for is not read to its end, and neither is an event of a watch. Where many answers are read
//! for people at the same time, all of them together have a bound, too ([`Room`]).

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Uri;
use http_body::{Frame, SizeHint};
use remuda_base::json_stream::Scanner;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An answer as a whole. A page of a hundred nodes with all their images has some five MiB.
pub const ANSWER: usize = 16 << 20;
/// An event of a watch. No object is larger than what etcd takes, 1.5 MiB unless configured otherwise.
pub const EVENT: usize = 4 << 20;

/// A cluster has sent more than we take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitExceeded {
    #[error("the answer to {path} is larger than {} MiB", ANSWER >> 20)]
    Answer { path: String },
    #[error("an event of the watch of {path} is larger than {} MiB", EVENT >> 20)]
    Event { path: String },
    #[error("what was asked for is larger than {} MiB", most >> 20)]
    Together { most: usize },
    #[error("too much of what clusters answer is being read at the same time; try again")]
    Busy,
}

impl LimitExceeded {
    /// Whether this is why a request failed.
    pub fn of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref())
    }
}

/// Bytes that may be held at the same time of what other APIs answer.
#[derive(Debug)]
pub struct Room {
    left: AtomicUsize,
}

impl Room {
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(bytes) })
    }

    /// A part of it, which begins empty and never grows beyond `most`.
    pub fn share(self: &Arc<Self>, most: usize) -> Share {
        Share { room: self.clone(), most, taken: 0 }
    }

    /// Bytes that no [`Share`] holds.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }
}

/// What one answer, or one list, holds of a [`Room`], until it is dropped.
#[derive(Debug)]
pub struct Share {
    room: Arc<Room>,
    most: usize,
    taken: usize,
}

impl Share {
    pub fn take(&mut self, bytes: usize) -> Result<(), LimitExceeded> {
        if self.taken.saturating_add(bytes) > self.most {
            return Err(LimitExceeded::Together { most: self.most });
        }
        let less = |left: usize| left.checked_sub(bytes);
        self.room
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .map_err(|_| LimitExceeded::Busy)?;
        self.taken += bytes;
        Ok(())
    }

    /// Gives back everything.
    pub fn clear(&mut self) {
        self.room.left.fetch_add(std::mem::take(&mut self.taken), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}

type Tell = Arc<dyn Fn(&LimitExceeded) + Send + Sync>;

/// The body of an answer that ends with [`LimitExceeded`] when it gets too large.
pub struct BoundedBody<B> {
    body: B,
    path: String,
    /// Events are bounded one by one: a watch may last for ever.
    watch: bool,
    /// Bytes of the answer, or of the event that is being received.
    received: usize,
    /// Where that event is.
    event: Scanner,
    /// Whether an event has ended since something was given back.
    passed: bool,
    share: Option<Share>,
    tell: Option<Tell>,
}

impl<B> BoundedBody<B> {
    /// `uri` is what was asked for.
    pub fn new(uri: &Uri, body: B) -> Self {
        let mut words = uri.query().unwrap_or_default().split('&');
        let watch = words.any(|word| matches!(word, "watch" | "watch=true" | "watch=1"));
        let path = uri.path().to_owned();
        Self {
            body,
            path,
            watch,
            received: 0,
            event: Scanner::default(),
            passed: false,
            share: None,
            tell: None,
        }
    }

    /// Also bounded by what is left for all. An event is held until the next one begins: the reader of a watch has
    /// done with one before it asks for another.
    pub fn within(self, share: Share) -> Self {
        Self { share: Some(share), ..self }
    }

    /// Calls `tell` when it is too much.
    pub fn telling(self, tell: impl Fn(&LimitExceeded) + Send + Sync + 'static) -> Self {
        Self { tell: Some(Arc::new(tell)), ..self }
    }

    fn hold(&mut self, bytes: usize) -> Result<(), LimitExceeded> {
        self.share.as_mut().map_or(Ok(()), |share| share.take(bytes))
    }

    fn count(&mut self, data: &[u8]) -> Result<(), LimitExceeded> {
        let path = || self.path.clone();
        if !self.watch {
            self.received = self.received.saturating_add(data.len());
            if self.received > ANSWER {
                return Err(LimitExceeded::Answer { path: path() });
            }
            return self.hold(data.len());
        }
        if std::mem::take(&mut self.passed)
            && let Some(share) = &mut self.share
        {
            // All but the beginning of the next event.
            share.clear();
            share.take(self.received)?;
        }
        self.hold(data.len())?;
        // Events need not be lines: any stream of JSON objects is a watch.
        let mut rest = data;
        while !rest.is_empty() {
            let end = self.event.end(rest);
            let part = end.unwrap_or(rest.len());
            self.received = self.received.saturating_add(part);
            if self.received > EVENT {
                return Err(LimitExceeded::Event { path: self.path.clone() });
            }
            if end.is_some() || (self.event.is_between() && rest.ends_with(b"\n")) {
                (self.received, self.passed) = (0, true);
            }
            rest = &rest[part..];
        }
        Ok(())
    }
}

impl<B> http_body::Body for BoundedBody<B>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => return Poll::Ready(None),
        };
        let counted = frame.data_ref().map_or(Ok(()), |data| self.count(data));
        if let Err(error) = counted {
            if let Some(tell) = &self.tell {
                tell(&error);
            }
            return Poll::Ready(Some(Err(error.into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, stream};
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    type Pieces = std::pin::Pin<Box<dyn futures::Stream<Item = Result<Frame<Bytes>, BoxError>> + Send>>;

    /// 256 MiB in pieces of 64 KiB, with the end of a line behind every so many; no lines for 0.
    fn endless(uri: &str, line: usize) -> BoundedBody<StreamBody<Pieces>> {
        let piece = Bytes::from(vec![b'x'; 1 << 16]);
        let pieces = stream::iter(0_usize..).map(move |index| {
            let mut piece = piece.to_vec();
            if line > 0 && index % line == 0 {
                piece.push(b'\n');
            }
            Ok::<_, BoxError>(Frame::data(Bytes::from(piece)))
        });
        let pieces: Pieces = Box::pin(pieces.take(4096));
        BoundedBody::new(&uri.parse().unwrap(), StreamBody::new(pieces))
    }

    /// Reads a body to its end.
    async fn read(mut body: BoundedBody<StreamBody<Pieces>>) -> Result<usize, BoxError> {
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            read += frame?.into_data().map_or(0, |data| data.len());
        }
        Ok(read)
    }

    #[test]
    fn events_are_told_apart_without_newlines() {
        let mut body = BoundedBody::new(&"/api/v1/nodes?watch=1".parse().unwrap(), ());
        let event = format!("{{\"type\":\"ADDED\",\"object\":{{\"a\":\"{}\"}}}}", "}".repeat(1 << 20));
        for _ in 0..16 {
            for piece in event.as_bytes().chunks(100_000) {
                body.count(piece).unwrap();
            }
        }
        body.count(b"{\"a\":\"").unwrap();
        let more = vec![b'x'; 1 << 20];
        assert!((0..8).any(|_| body.count(&more).is_err()));
    }

    #[tokio::test]
    async fn an_answer_and_an_event_are_bounded_and_a_watch_is_not() {
        let error = read(endless("/api/v1/nodes?limit=100", 1)).await.unwrap_err();
        assert_eq!(error.to_string(), "the answer to /api/v1/nodes is larger than 16 MiB");
        let error = read(endless("/api/v1/nodes?watch=true", 0)).await.unwrap_err();
        assert_eq!(error.to_string(), "an event of the watch of /api/v1/nodes is larger than 4 MiB");
        let watch = endless("/api/v1/nodes?allowWatchBookmarks=true&watch=true", 8);
        assert!(read(watch).await.unwrap() > 4096 << 16);
    }

    #[tokio::test]
    async fn all_answers_together_have_the_room_there_is() {
        let room = Room::new(20 << 20);
        let (first, second) = (room.share(8 << 20), room.share(64 << 20));
        let error = read(endless("/a", 0).within(first)).await.unwrap_err();
        assert_eq!(error.to_string(), "what was asked for is larger than 8 MiB");
        assert_eq!(room.left(), 20 << 20, "what is dropped is given back");
        let mut held = room.share(64 << 20);
        held.take(10 << 20).unwrap();
        let error = read(endless("/a", 0).within(second)).await.unwrap_err();
        assert!(matches!(LimitExceeded::of(&*error), Some(LimitExceeded::Busy)), "{error}");
        // A watch holds one event at a time, for as long as it lasts.
        let watch = endless("/a?watch=1", 8).within(room.share(64 << 20));
        assert!(read(watch).await.unwrap() > 4096 << 16);
        held.clear();
        assert_eq!(room.left(), 20 << 20);
    }
}
