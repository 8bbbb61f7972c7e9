//! The transport: anything that carries WebSocket messages both ways.
//!
//! Sessions do not care how the WebSocket came to be, so callers bring their own TLS, proxying and upgrade.

use futures::{Sink, Stream};
use tokio_tungstenite::tungstenite::{Error, Message, protocol::WebSocketConfig};

/// A WebSocket after its handshake, such as `tokio_tungstenite::WebSocketStream` over any byte stream.
///
/// It must answer pings itself and put fragmented messages together.
pub trait Socket:
    Stream<Item = Result<Message, Error>> + Sink<Message, Error = Error> + Send + Unpin + 'static
{
}

impl<T> Socket for T where
    T: Stream<Item = Result<Message, Error>> + Sink<Message, Error = Error> + Send + Unpin + 'static
{
}

pub type BoxSocket = Box<dyn Socket>;

/// Largest message accepted. The original knows no limit; its servers send one write of the application as
/// one message, which in practice is a TLS record or a copy buffer.
pub const MAX_MESSAGE: usize = 8 << 20;

/// The WebSocket settings that tunnels are tuned for: small when idle, bounded whatever the peer sends.
pub fn websocket_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(16 << 10)
        .write_buffer_size(128 << 10)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
}
