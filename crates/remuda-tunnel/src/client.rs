//! The dialling end of a tunnel.

mod handshake;
mod reconnect;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::HeaderMap;
use tokio_util::sync::CancellationToken;

pub use handshake::{HandshakeError, UpgradeError, handshake};
pub use reconnect::{Backoff, Link, run};

use crate::{
    dial::Inbound,
    protocol::Role,
    session::{Session, SessionEnd, SessionIdentity, SessionOptions},
    socket::{BoxSocket, Socket},
};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Opens the WebSocket to a server, headers included; [`handshake`] does the last step.
pub trait Connector: Send + Sync + 'static {
    fn connect(&self, headers: HeaderMap) -> BoxFuture<'static, Result<BoxSocket, BoxError>>;
}

impl<F, T> Connector for F
where
    F: Fn(HeaderMap) -> T + Send + Sync + 'static,
    T: Future<Output = Result<BoxSocket, BoxError>> + Send + 'static,
{
    fn connect(&self, headers: HeaderMap) -> BoxFuture<'static, Result<BoxSocket, BoxError>> {
        Box::pin(self(headers))
    }
}

impl Connector for Arc<dyn Connector> {
    fn connect(&self, headers: HeaderMap) -> BoxFuture<'static, Result<BoxSocket, BoxError>> {
        (**self).connect(headers)
    }
}

/// Serves one WebSocket as a client until it ends: dials what the server asks for and `inbound` allows.
pub async fn serve<S: Socket>(
    socket: S,
    inbound: Inbound,
    options: SessionOptions,
    stop: &CancellationToken,
) -> SessionEnd {
    let (_, task) = Session::new(Role::Client, SessionIdentity::client(), socket, Some(inbound), options);
    task.run(stop).await
}
