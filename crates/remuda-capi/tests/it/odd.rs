//! Workload clusters whose answers are unusual: what is in front of an API server may change how things are sent.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::json;
use tower::Service;

/// What is unusual.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manners {
    /// Events have no newlines between them, and come in pieces.
    pub(crate) unsplit: bool,
    /// The watch of nodes is forbidden, lists are not.
    pub(crate) forbidden: bool,
    /// The answer to a DELETE that was carried out.
    pub(crate) deleted: Option<(u16, &'static str)>,
}

/// A client of a cluster with such manners, which may change while it is used.
pub(crate) fn client(client: Client, manners: Arc<Mutex<Manners>>) -> Client {
    Client::new(Odd { client, manners }, "default")
}

#[derive(Clone)]
struct Odd {
    client: Client,
    manners: Arc<Mutex<Manners>>,
}

type Sent = UnsyncBoxBody<Bytes, tower::BoxError>;

impl Service<Request<Body>> for Odd {
    type Response = Response<Sent>;
    type Error = tower::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Sent>, tower::BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), tower::BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, manners) = (self.client.clone(), *self.manners.lock());
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let delete = request.method() == Method::DELETE;
        Box::pin(async move {
            if watch && manners.forbidden {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
                    "message": "nodes is forbidden: cannot watch", "code": 403});
                return Ok(whole(StatusCode::FORBIDDEN, status.to_string()));
            }
            let response = client.send(request).await?;
            match manners.deleted {
                Some((code, text)) if delete && response.status().is_success() => {
                    Ok(whole(StatusCode::from_u16(code)?, text.to_owned()))
                }
                _ if watch && manners.unsplit => Ok(response.map(unsplit)),
                _ => Ok(response.map(|body| body.map_err(Into::into).boxed_unsync())),
            }
        })
    }
}

fn whole(code: StatusCode, text: String) -> Response<Sent> {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response
}

/// The same events without newlines, some forty bytes at a time.
fn unsplit(body: Body) -> Sent {
    use futures::StreamExt;
    let pieces = body.into_data_stream().flat_map(|data| {
        let data: Result<Bytes, tower::BoxError> = data.map_err(Into::into);
        let pieces: Vec<Result<Frame<Bytes>, tower::BoxError>> = match data {
            Ok(data) => {
                let kept: Vec<u8> = data.iter().copied().filter(|byte| *byte != b'\n').collect();
                kept.chunks(41).map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece)))).collect()
            }
            Err(error) => vec![Err(error)],
        };
        futures::stream::iter(pieces)
    });
    StreamBody::new(pieces).boxed_unsync()
}
