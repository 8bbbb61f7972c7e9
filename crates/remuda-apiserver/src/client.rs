//! The API as a service in the same process: a transport without sockets, TLS or credentials.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, Map},
};
use http::{Request, Response};
use remuda_auth::identity::User;
use tower::Service;

use crate::{body::Body, front::Internal, server::ApiServer};

/// Requests to the server as one user. `kube::Client::new(service, namespace)` takes it as it is.
#[derive(Clone)]
pub struct InProcess {
    server: ApiServer,
    user: Arc<User>,
}

impl ApiServer {
    /// A transport for clients in this process, acting as `user`.
    pub fn client_service(&self, user: User) -> InProcess {
        InProcess { server: self.clone(), user: Arc::new(user) }
    }
}

impl<B> Service<Request<B>> for InProcess
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future =
        Map<BoxFuture<'static, Response<Body>>, fn(Response<Body>) -> Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(Internal(self.user.clone()));
        self.server.handle(request).map(Ok)
    }
}
