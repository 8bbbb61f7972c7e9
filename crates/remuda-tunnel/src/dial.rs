//! Where connections that the other end asks for lead.

use std::{io, sync::Arc};

use futures::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// A byte stream of any kind.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

pub type BoxIo = Box<dyn Io>;

/// Opens local connections on behalf of the other end. The error text travels to it.
pub trait Dialer: Send + Sync + 'static {
    fn dial(&self, proto: String, address: String) -> BoxFuture<'static, io::Result<BoxIo>>;
}

impl<F, T> Dialer for F
where
    F: Fn(String, String) -> T + Send + Sync + 'static,
    T: Future<Output = io::Result<BoxIo>> + Send + 'static,
{
    fn dial(&self, proto: String, address: String) -> BoxFuture<'static, io::Result<BoxIo>> {
        Box::pin(self(proto, address))
    }
}

/// Dials `tcp` and, where the system has them, `unix` addresses.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetDialer;

impl Dialer for NetDialer {
    fn dial(&self, proto: String, address: String) -> BoxFuture<'static, io::Result<BoxIo>> {
        Box::pin(async move {
            let dialled: io::Result<BoxIo> = match proto.as_str() {
                "tcp" => TcpStream::connect(&address).await.map(|stream| {
                    // The tunnel already gathers small writes; waiting once more only adds delay.
                    let _ = stream.set_nodelay(true);
                    Box::new(stream) as BoxIo
                }),
                #[cfg(unix)]
                "unix" => {
                    tokio::net::UnixStream::connect(&address).await.map(|stream| Box::new(stream) as BoxIo)
                }
                other => Err(io::Error::new(io::ErrorKind::Unsupported, format!("unknown network {other}"))),
            };
            dialled.map_err(|error| io::Error::new(error.kind(), describe(&proto, &address, &error)))
        })
    }
}

/// The text the original produces for the same failure; users search for it.
fn describe(proto: &str, address: &str, error: &io::Error) -> String {
    let cause = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    };
    format!("dial {proto} {address}: {cause}")
}

/// Decides over `(proto, address)`.
pub type Authorizer = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// What a refused CONNECT costs the peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Refusal {
    /// The whole session, as in the original.
    #[default]
    Session,
    /// Only the connection it asked for.
    Connection,
}

/// How CONNECTs of the other end are served.
#[derive(Clone)]
pub struct Inbound {
    pub authorizer: Authorizer,
    pub refusal: Refusal,
    pub dialer: Arc<dyn Dialer>,
}

impl Inbound {
    /// Dials whatever `authorizer` lets through with a [`NetDialer`].
    pub fn net(authorizer: impl Fn(&str, &str) -> bool + Send + Sync + 'static) -> Self {
        Self { authorizer: Arc::new(authorizer), refusal: Refusal::default(), dialer: Arc::new(NetDialer) }
    }

    /// Hands everything to `dialer`.
    pub fn all(dialer: impl Dialer) -> Self {
        Self { authorizer: Arc::new(|_, _| true), refusal: Refusal::default(), dialer: Arc::new(dialer) }
    }
}

impl std::fmt::Debug for Inbound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbound").field("refusal", &self.refusal).finish_non_exhaustive()
    }
}
