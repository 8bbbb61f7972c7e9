//! The client's half of the WebSocket upgrade.

use std::time::Duration;

use http::{HeaderMap, Request, Uri, header};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Error, handshake::client::generate_key},
};

use crate::{frame, socket::websocket_config};

/// The whole upgrade may take this long, as in the original.
const LIMIT: Duration = Duration::from_secs(10);
/// Servers say in the body why they refuse; more than this is not a reason.
const MAX_BODY: usize = 512;

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The server answered with something else than an upgrade.
    #[error("server refused the tunnel with status {status}: {body}")]
    Refused { status: u16, body: String },
    #[error("server did not answer within {0:?}")]
    Timeout(Duration),
    #[error("{0} is not the address of a server")]
    Address(Uri),
    #[error("upgrade to a websocket")]
    Upgrade(#[source] Box<Error>),
}

/// Upgrades `io`, a connection to the server `uri` names, to a WebSocket.
pub async fn handshake<S>(io: S, uri: &Uri, headers: &HeaderMap) -> Result<WebSocketStream<S>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let host = uri.authority().ok_or_else(|| HandshakeError::Address(uri.clone()))?.as_str();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let mut request = Request::get(uri)
        .header(header::HOST, host)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, generate_key())
        .body(())
        .map_err(|_| HandshakeError::Address(uri.clone()))?;
    request.headers_mut().extend(headers.clone());
    // Boxed: the handshake carries its stream through several states, which would burden every caller's future.
    let upgrade = Box::pin(client_async_with_config(request, io, Some(websocket_config())));
    match timeout(LIMIT, upgrade).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(Error::Http(response))) => {
            let body = response.body().as_deref().unwrap_or_default();
            let body = String::from_utf8_lossy(body);
            Err(HandshakeError::Refused {
                status: response.status().as_u16(),
                body: frame::cut(body.trim(), MAX_BODY).to_owned(),
            })
        }
        Ok(Err(error)) => Err(HandshakeError::Upgrade(Box::new(error))),
        Err(_) => Err(HandshakeError::Timeout(LIMIT)),
    }
}
