//! Reverse tunnel: reach machines that only dial out.
//!
//! A client behind a firewall opens one WebSocket to a server; over it the server opens any number of
//! virtual TCP connections which the client dials on its side. The wire format is that of
//! rancher/remotedialer, byte for byte, so either end may be the Go original.
//!
//! | module | is |
//! |---|---|
//! | [`frame`] | the codec: one WebSocket message to and from bytes |
//! | [`protocol`] | the session as a state machine without I/O, clock or randomness |
//! | [`session`] | one task driving a state machine over a WebSocket, and [`stream::TunnelStream`] handles |
//! | [`websocket`] | the transport: messages over a byte stream, and [`readahead`] below TLS |
//! | [`client`] | the dialling end: handshake, serving, reconnecting |
//! | [`server`] | sessions by client key, dialling through them, peering between servers |
//!
//! Guarantees: a stalled reader costs at most its receive limit and never delays another stream; every
//! queue is bounded; when a session ends all of its streams fail with an error that says so.

pub mod client;
pub mod dial;
pub mod frame;
mod pipe;
pub mod protocol;
pub mod readahead;
pub mod server;
pub mod session;
pub mod socket;
pub mod stream;
pub mod websocket;
