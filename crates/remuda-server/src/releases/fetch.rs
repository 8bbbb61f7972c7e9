//! Fetching a document: bounded in time, size and redirections.

use std::time::Duration;

use futures::StreamExt;
use http::{StatusCode, header};
use reqwest::redirect;

/// Of the whole exchange.
const TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(10);
/// Documents of Rancher are a few MiB.
const MAX_BYTES: usize = 32 << 20;
const MAX_REDIRECTS: usize = 3;

#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("fetch {url}")]
    Transport { url: String, source: reqwest::Error },
    #[error("{url} answered {code}")]
    Status { url: String, code: StatusCode },
    #[error("{url} has more than {MAX_BYTES} bytes")]
    TooLarge { url: String },
}

pub(super) enum Fetched {
    /// It is what it was.
    Unchanged,
    Document {
        bytes: Vec<u8>,
        etag: Option<String>,
    },
}

/// Fetches what is at `url`, unless it is what has this tag.
pub(super) async fn fetch(url: &str, etag: Option<&str>) -> Result<Fetched, FetchError> {
    let failed =
        |source: reqwest::Error| FetchError::Transport { url: url.to_owned(), source: source.without_url() };
    let client = reqwest::Client::builder()
        .user_agent(concat!("remuda/", env!("CARGO_PKG_VERSION")))
        .timeout(TIMEOUT)
        .connect_timeout(CONNECT)
        .redirect(redirect::Policy::custom(follow))
        .build()
        .map_err(failed)?;
    let mut request = client.get(url);
    if let Some(etag) = etag {
        request = request.header(header::IF_NONE_MATCH, etag);
    }
    let response = request.send().await.map_err(failed)?;
    let code = response.status();
    if code == StatusCode::NOT_MODIFIED && etag.is_some() {
        return Ok(Fetched::Unchanged);
    }
    if code != StatusCode::OK {
        return Err(FetchError::Status { url: url.to_owned(), code });
    }
    let etag = response.headers().get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
    let etag = etag.filter(|etag| etag.len() <= 256);
    let mut bytes = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(failed)?;
        if bytes.len() + piece.len() > MAX_BYTES {
            return Err(FetchError::TooLarge { url: url.to_owned() });
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Fetched::Document { bytes, etag })
}

/// A few, and never from encryption to none.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let was_encrypted = attempt.previous().iter().any(|url| url.scheme() == "https");
    if attempt.previous().len() > MAX_REDIRECTS {
        attempt.error("too many redirections")
    } else if was_encrypted && attempt.url().scheme() != "https" {
        attempt.error("a redirection to an address without encryption")
    } else {
        attempt.follow()
    }
}
