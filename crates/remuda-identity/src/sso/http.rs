//! Requests to a provider: short, bounded, and never sent on elsewhere.

use std::time::Duration;

use bytes::Bytes;
use http::{StatusCode, header};
use remuda_control::Chain;
use remuda_http::{Options, Trust, certificates};

const PATIENCE: Duration = Duration::from_secs(10);
const LARGEST: usize = 512 << 10;

/// Why a provider did not answer as it should.
#[derive(Debug, thiserror::Error)]
#[error("ask {url}: {why}")]
pub(crate) struct Unanswered {
    pub(crate) url: String,
    pub(crate) why: String,
}

/// Sends a request; answers other than success are failures that tell the beginning of what was said. They are
/// few, so each has a connection of its own.
pub(crate) async fn send(
    certificate: &str,
    request: http::request::Builder,
    body: String,
) -> Result<Bytes, Unanswered> {
    let url = request.uri_ref().map(ToString::to_string).unwrap_or_default();
    let failed = |why: String| Unanswered { url: url.clone(), why };
    let request = request.header(header::ACCEPT, "application/json").body(body);
    let request = request.map_err(|error| failed(error.to_string()))?;
    match tokio::time::timeout(PATIENCE, exchange(certificate, request)).await {
        Ok(Ok((code, body))) if code.is_success() => Ok(body.into()),
        Ok(Ok((code, body))) => {
            let said: String = String::from_utf8_lossy(&body).chars().take(200).collect();
            Err(failed(format!("{code} {said:?}")))
        }
        Ok(Err(why)) => Err(failed(why)),
        Err(_) => Err(failed(format!("no answer within {PATIENCE:?}"))),
    }
}

async fn exchange(
    certificate: &str,
    request: http::Request<String>,
) -> Result<(StatusCode, Vec<u8>), String> {
    let trust = match certificate.trim() {
        "" => Trust::System,
        pem => Trust::Only(certificates(pem.as_bytes()).ok_or("the certificate is no PEM")?),
    };
    let failed = |error: remuda_http::Error| Chain(&error.without_url()).to_string();
    let options = Options { trust, direct: true, ..Options::within(PATIENCE) };
    let client = remuda_http::client(options).map_err(failed)?;
    let answer = client.execute(request.try_into().map_err(failed)?).await.map_err(failed)?;
    let code = answer.status();
    let body = remuda_http::read(answer, LARGEST).await.map_err(|error| Chain(&error).to_string())?;
    Ok((code, body))
}
