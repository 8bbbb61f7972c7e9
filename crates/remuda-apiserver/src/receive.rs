//! Receiving the body of a request, before the request takes a place among others.
//!
//! Whoever sends slowly must hold nothing that others need: no place, and no more memory than was
//! sent. A body must also get on. It has [`Limits::body_patience`] to begin, and earns more time by
//! what arrives; a client that trickles bytes to stay is let go.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::{
    limits::{BodyShare, Limits, Throttle, too_many},
    status::{ApiError, ApiResult},
};

/// A slower client is let go once its patience is used up.
const BYTES_PER_SECOND: usize = 16 << 10;

/// Receives a body. `user` is whose share of memory it takes; `None` is bounded by its size alone.
pub(crate) async fn receive<B>(
    mut body: B,
    user: Option<&str>,
    throttle: &Throttle,
    limits: &Limits,
    deadline: Instant,
) -> ApiResult<(Bytes, Option<BodyShare>)>
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let limit = limits.body_bytes;
    let hint = body.size_hint();
    if hint.lower() > limit as u64 {
        return Err(ApiError::too_large(limit));
    }
    if hint.exact() == Some(0) {
        return Ok((Bytes::new(), None));
    }
    let most = hint.upper().and_then(|most| usize::try_from(most).ok()).map_or(limit, |most| most.min(limit));
    let waited = |result: Result<ApiResult<_>, _>| result.unwrap_or_else(|_| Err(too_many()));
    let mut share = match user {
        Some(user) => Some(waited(timeout_at(deadline, throttle.receive(user)).await)?),
        None => None,
    };
    let mut patience = Instant::now() + limits.body_patience;
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    loop {
        let next = match timeout_at(patience.min(deadline), body.frame()).await {
            Ok(next) => next,
            Err(_) => return Err(ApiError::request_timeout("the request body did not arrive in time")),
        };
        let Some(frame) = next else { break };
        let frame =
            frame.map_err(|error| ApiError::bad_request(format!("read the request body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        let size = first.len() + rest.len() + data.len();
        if size > limit {
            return Err(ApiError::too_large(limit));
        }
        if let Some(share) = &mut share {
            let waiting = Instant::now();
            match timeout_at(deadline, share.grow(throttle, size, most)).await {
                Ok(grown) => grown?,
                Err(_) => return Err(too_many()),
            }
            // Waiting for memory is not the client's fault.
            patience += waiting.elapsed();
        }
        patience += Duration::from_secs_f64(data.len() as f64 / BYTES_PER_SECOND as f64);
        // Most bodies come in one piece, which is passed on as it is.
        if first.is_empty() && rest.is_empty() {
            first = data;
            continue;
        }
        if rest.is_empty() {
            rest.reserve(most.min(size.saturating_mul(2)));
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&data);
    }
    let whole = if rest.is_empty() { first } else { rest.freeze() };
    if let Some(share) = &mut share {
        share.received(whole.len());
    }
    Ok((whole, share))
}
