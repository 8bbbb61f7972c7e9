//! The one type of bodies, of requests and of answers.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Limited, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::refusal::Refusal;

/// Bodies that are read as a whole are there soon.
const SOON: Duration = Duration::from_secs(30);

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Finished bytes, what a connection brings, or anything else that streams. The first two cost no allocation.
pub enum Body {
    Full(Bytes),
    Incoming(Incoming),
    Boxed(UnsyncBoxBody<Bytes, BoxError>),
}

impl Body {
    pub fn empty() -> Self {
        Self::Full(Bytes::new())
    }

    pub fn boxed<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::Boxed(body.map_err(Into::into).boxed_unsync())
    }

    /// All of it as JSON; an empty one is an empty object.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, Refusal> {
        let bytes: Bytes = match timeout(SOON, self.collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            _ => return Err(Refusal::bad("the body is too long or did not arrive")),
        };
        let bytes = if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes };
        // What the parser says may quote a password.
        serde_json::from_slice(&bytes).map_err(|_| Refusal::bad("the body is not the JSON that belongs here"))
    }

    /// The same body, which ends with an error after so many bytes.
    pub fn limited(self, bytes: usize) -> Self {
        match self {
            Self::Full(full) if full.len() <= bytes => Self::Full(full),
            body => Self::Boxed(Limited::new(body, bytes).boxed_unsync()),
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::Full(bytes.into())
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Body")
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Incoming(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Boxed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_empty(),
            Self::Incoming(body) => body.is_end_stream(),
            Self::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Incoming(body) => body.size_hint(),
            Self::Boxed(body) => body.size_hint(),
        }
    }
}
