//! Bounds on what a workload cluster sends: a cluster that sends more is given up with the reason, which ends in the
//! conditions of the Cluster.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use remuda_control::bounded::BoundedBody;
use tokio::sync::Notify;
use tower::Service;

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
            Ok(response
                .map(|body| BoundedBody::new(&uri, body).telling(move |why| excess.note(&why.to_string()))))
        })
    }
}
