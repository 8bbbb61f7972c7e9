//! Go's `net/rpc` over a connection opened with HTTP `CONNECT`, for the driver protocol.

pub mod client;
pub mod codec;
pub mod server;

/// What a client says first, to the byte.
pub(crate) const CONNECT: &[u8] = b"CONNECT /_goRPC_ HTTP/1.0\n\n";
/// What a server answers, to the byte.
pub(crate) const CONNECTED: &[u8] = b"HTTP/1.0 200 Connected to Go RPC\n\n";

/// The service name, and the one peers from before 0.5.1 use.
pub(crate) const SERVICE: &str = "RPCServerDriver";
pub(crate) const OLD_SERVICE: &str = "RpcServerDriver";
