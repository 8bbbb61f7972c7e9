//! Fetching a document: bounded in time, size and redirections.

use std::time::{Duration, Instant};

use http::{StatusCode, header};
use remuda_http::{Options, ReadError, keeps_tls, redirected};

/// Of the whole exchange.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Documents of Rancher are a few MiB.
const MAX_BYTES: usize = 32 << 20;
const MAX_REDIRECTS: usize = 3;

#[derive(Debug, thiserror::Error)]
pub(super) enum FetchError {
    #[error("fetch {url}")]
    Transport { url: String, source: reqwest::Error },
    #[error("{url} answered {code}")]
    Status { url: String, code: StatusCode },
    #[error("{url} {reason}")]
    Redirect { url: String, reason: &'static str },
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
    let redirect = |reason| FetchError::Redirect { url: url.to_owned(), reason };
    let client = remuda_http::client(Options::within(TIMEOUT)).map_err(failed)?;
    let begun = Instant::now();
    let ask = |url: &str| {
        let request = client.get(url).timeout(TIMEOUT.saturating_sub(begun.elapsed()));
        match etag {
            Some(etag) => request.header(header::IF_NONE_MATCH, etag),
            None => request,
        }
    };
    let mut response = ask(url).send().await.map_err(failed)?;
    let mut followed = 0;
    while response.status() != StatusCode::NOT_MODIFIED {
        let next = redirected(&response).map_err(|_| redirect("redirects to nowhere"))?;
        let Some(next) = next else { break };
        // A few, and never from encryption to none.
        followed += 1;
        if followed > MAX_REDIRECTS {
            return Err(redirect("answers with too many redirections"));
        }
        if !keeps_tls(response.url(), &next) {
            return Err(redirect("redirects to an address without encryption"));
        }
        response = ask(next.as_str()).send().await.map_err(failed)?;
    }
    let code = response.status();
    if code == StatusCode::NOT_MODIFIED && etag.is_some() {
        return Ok(Fetched::Unchanged);
    }
    if code != StatusCode::OK {
        return Err(FetchError::Status { url: url.to_owned(), code });
    }
    let etag = response.headers().get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
    let etag = etag.filter(|etag| etag.len() <= 256);
    let bytes = remuda_http::read(response, MAX_BYTES).await.map_err(|error| match error {
        ReadError::Transport(source) => failed(source),
        ReadError::TooLarge(_) => FetchError::TooLarge { url: url.to_owned() },
    })?;
    Ok(Fetched::Document { bytes, etag })
}
