//! Sending one message: bounded in time, to the address that was chosen and no other.

use std::time::Duration;

use http::{StatusCode, header};
use jiff::Timestamp;
use remuda_http::{Options, Trust};
use remuda_names::webhook;

use super::{due::Message, target::Target};

/// Of the whole exchange. Receivers take a message and work on it later.
const TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(5);

/// Addresses are left out: they may hold the receiver's own secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error("reach the receiver")]
    Transport(#[source] reqwest::Error),
    #[error("the receiver answered {0}")]
    Refused(StatusCode),
}

/// A client for one receiver.
pub(super) fn client(target: &Target) -> Result<reqwest::Client, SendError> {
    let trust = target.authorities.clone().map_or(Trust::System, Trust::Only);
    let options = Options { connect: CONNECT, trust, ..Options::within(TIMEOUT) };
    remuda_http::client(options).map_err(SendError::Transport)
}

/// Sends a message once. What the receiver says beside the code is not read.
pub(super) async fn send(
    client: &reqwest::Client,
    target: &Target,
    message: &Message,
    now: Timestamp,
) -> Result<(), SendError> {
    let body = message.body.to_string();
    let seconds = now.as_second();
    let request = client
        .post(target.url.clone())
        .header(header::CONTENT_TYPE, "application/json")
        .header(webhook::header::ID, &message.id)
        .header(webhook::header::TIMESTAMP, seconds)
        .header(webhook::header::SIGNATURE, target.keys.sign(&message.id, seconds, body.as_bytes()))
        .body(body);
    let response = request.send().await.map_err(|error| SendError::Transport(error.without_url()))?;
    match response.status() {
        code if code.is_success() => Ok(()),
        code => Err(SendError::Refused(code)),
    }
}
