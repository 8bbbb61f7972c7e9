//! Answers as HTTP responses, as a service in this process.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use tokio::{sync::watch, time::Instant};
use tower::Service;

use super::{
    api::{Answer, Filter},
    cluster::{Reach, WorkloadCluster},
    store::{Event, Watch},
};

pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Nothing sent to a workload cluster is larger.
const LARGEST_BODY: usize = 4 << 20;
/// A watch that says for how long has that long; others get this.
const WATCH: Duration = Duration::from_secs(3600);

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused")
}

/// Waits while the cluster hangs. An error if it refuses.
async fn reached(reach: &mut watch::Receiver<Reach>) -> Result<(), io::Error> {
    // The sender is part of the cluster, which is alive as long as somebody asks it.
    let reach = reach.wait_for(|reach| *reach != Reach::Hangs).await.map_err(|_| refused())?;
    match *reach {
        Reach::Refuses => Err(refused()),
        Reach::Answers | Reach::Hangs => Ok(()),
    }
}

impl WorkloadCluster {
    /// Answers a request with its path as the cluster sees it.
    pub(super) async fn serve<B>(self: Arc<Self>, request: Request<B>) -> Result<Response<Body>, io::Error>
    where
        B: hyper::body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut reach = self.follow_reach();
        reached(&mut reach).await?;
        if !self.is_serving() {
            return Err(refused());
        }
        self.world.requests.fetch_add(1, Ordering::Relaxed);
        let (parts, body) = request.into_parts();
        let body = http_body_util::Limited::new(body, LARGEST_BODY).collect().await;
        let body = body.map_err(io::Error::other)?.to_bytes();
        let query = parts.uri.query().unwrap_or_default();
        match self.answer(&parts.method, parts.uri.path(), query, &parts.headers, &body) {
            Ok(Answer::Body(code, body)) => Ok(response(code, full(body))),
            Ok(Answer::Watch(watch, filter, duration)) => {
                Ok(response(StatusCode::OK, follow(watch, filter, duration.unwrap_or(WATCH), reach)))
            }
            Err(failure) => Ok(response(failure.code, full(failure.body()))),
        }
    }
}

pub(super) fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

pub(super) fn response(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn line(event: &Event) -> Bytes {
    let body = &event.object.body;
    let mut line = Vec::with_capacity(body.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(event.verb.as_str().as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(body);
    line.extend_from_slice(b"}\n");
    line.into()
}

/// Events as they come, until the time is over. While the cluster hangs nothing is said, and it is not forgotten.
fn follow(watch: Watch, filter: Filter, duration: Duration, reach: watch::Receiver<Reach>) -> Body {
    let end = Instant::now() + duration;
    let events = stream::unfold((watch, filter, reach), move |(mut watch, filter, mut reach)| async move {
        loop {
            let event = match watch.missed.pop_front() {
                Some(event) => Some(event),
                None => tokio::time::timeout_at(end, watch.events.recv()).await.ok()?,
            };
            if let Err(error) = reached(&mut reach).await {
                return Some((Err(error), (watch, filter, reach)));
            }
            let event = event?;
            if filter.passes(&event.object) {
                return Some((Ok(Frame::data(line(&event))), (watch, filter, reach)));
            }
        }
    });
    StreamBody::new(events).boxed_unsync()
}

/// The way to one cluster in this process.
#[derive(Clone)]
pub(super) struct Wire(pub(super) Arc<WorkloadCluster>);

impl Service<Request<kube::client::Body>> for Wire {
    type Response = Response<Body>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(self.0.clone().serve(request))
    }
}
