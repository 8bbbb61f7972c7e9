//! What a workload cluster may send.
//!
//! A cluster belongs to whoever administers it, so its answers are input like any other: an answer larger than
//! anything we ask for is not read to its end, and neither is an event of a watch. The connection is then given
//! up with the reason, which ends in the conditions of the Cluster.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body::{Frame, SizeHint};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tower::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An answer as a whole. A page of a hundred nodes with all their images has some five MiB.
pub(crate) const ANSWER: usize = 16 << 20;
/// An event of a watch. No object is larger than what etcd takes, 1.5 MiB unless configured otherwise.
pub(crate) const EVENT: usize = 4 << 20;

/// A cluster has sent more than we take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TooMuch {
    #[error("the answer to {path} is larger than {} MiB", ANSWER >> 20)]
    Answer { path: String },
    #[error("an event of the watch of {path} is larger than {} MiB", EVENT >> 20)]
    Event { path: String },
}

impl TooMuch {
    /// Whether this is why a request failed.
    pub fn of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |error| error.source()).find_map(|error| error.downcast_ref())
    }
}

/// Notes that a cluster has sent too much.
#[derive(Debug, Clone, Default)]
pub(crate) struct Excess(Arc<ExcessState>);

#[derive(Debug, Default)]
struct ExcessState {
    why: Mutex<Option<String>>,
    noted: Notify,
}

impl Excess {
    pub(crate) fn note(&self, why: &str) {
        self.0.why.lock().get_or_insert_with(|| why.to_owned());
        self.0.noted.notify_one();
    }

    /// Waits until the cluster has sent too much, and says what.
    pub(crate) async fn noted(&self) -> String {
        loop {
            let noted = self.0.noted.notified();
            if let Some(why) = self.0.why.lock().clone() {
                return why;
            }
            noted.await;
        }
    }
}

/// The same client, with bounds on all answers.
pub(crate) fn client(client: Client, excess: Excess) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(Bounded { client, excess }, namespace)
}

#[derive(Clone)]
struct Bounded {
    client: Client,
    excess: Excess,
}

impl Service<Request<Body>> for Bounded {
    type Response = Response<BoundedBody<Body>>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { client, excess } = self.clone();
        Box::pin(async move {
            let uri = request.uri().clone();
            let response = client.send(request).await?;
            Ok(response.map(|body| BoundedBody { excess: Some(excess), ..BoundedBody::new(&uri, body) }))
        })
    }
}

/// The body of an answer that ends with [`TooMuch`] when it gets too large.
pub struct BoundedBody<B> {
    body: B,
    path: String,
    /// Events are bounded one by one: a watch may last for ever.
    watch: bool,
    /// Bytes of the answer, or of the event that is being received.
    received: usize,
    excess: Option<Excess>,
}

impl<B> BoundedBody<B> {
    /// `uri` is what was asked for.
    pub fn new(uri: &Uri, body: B) -> Self {
        let mut words = uri.query().unwrap_or_default().split('&');
        let watch = words.any(|word| matches!(word, "watch" | "watch=true" | "watch=1"));
        Self { body, path: uri.path().to_owned(), watch, received: 0, excess: None }
    }

    fn count(&mut self, data: &[u8]) -> Result<(), TooMuch> {
        let path = || self.path.clone();
        if !self.watch {
            self.received = self.received.saturating_add(data.len());
            return if self.received > ANSWER { Err(TooMuch::Answer { path: path() }) } else { Ok(()) };
        }
        for part in data.split_inclusive(|byte| *byte == b'\n') {
            self.received += part.len();
            if self.received > EVENT {
                return Err(TooMuch::Event { path: path() });
            }
            if part.ends_with(b"\n") {
                self.received = 0;
            }
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
            if let Some(excess) = &self.excess {
                excess.note(&error.to_string());
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

    /// Endless: whoever reads it to its end never returns.
    async fn read(uri: &str, line: usize) -> Result<usize, BoxError> {
        let piece = Bytes::from(vec![b'x'; 1 << 16]);
        let pieces = stream::iter(0_usize..).map(move |index| {
            let mut piece = piece.to_vec();
            if line > 0 && index % line == 0 {
                piece.push(b'\n');
            }
            Ok::<_, BoxError>(Frame::data(Bytes::from(piece)))
        });
        let mut body = BoundedBody::new(&uri.parse().unwrap(), StreamBody::new(pieces.take(4096)));
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            read += frame?.into_data().map_or(0, |data| data.len());
        }
        Ok(read)
    }

    #[tokio::test]
    async fn an_answer_and_an_event_are_bounded_and_a_watch_is_not() {
        let error = read("/api/v1/nodes?limit=100", 1).await.unwrap_err();
        assert_eq!(error.to_string(), "the answer to /api/v1/nodes is larger than 16 MiB");
        let error = read("/api/v1/nodes?watch=true", 0).await.unwrap_err();
        assert_eq!(error.to_string(), "an event of the watch of /api/v1/nodes is larger than 4 MiB");
        assert!(read("/api/v1/nodes?allowWatchBookmarks=true&watch=true", 8).await.unwrap() > 4096 << 16);
    }
}
