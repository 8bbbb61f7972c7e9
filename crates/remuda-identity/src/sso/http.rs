//! Requests to a provider: short, bounded, and never sent on elsewhere.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use kube::{Config, client::ConfigExt};
use remuda_control::Chain;
use rustls::pki_types::{CertificateDer, pem::PemObject};

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
    let request = request.header(header::ACCEPT, "application/json").body(Full::new(Bytes::from(body)));
    let request = request.map_err(|error| failed(error.to_string()))?;
    match tokio::time::timeout(PATIENCE, exchange(certificate, request)).await {
        Ok(Ok((code, body))) if code.is_success() => Ok(body),
        Ok(Ok((code, body))) => {
            let said: String = String::from_utf8_lossy(&body).chars().take(200).collect();
            Err(failed(format!("{code} {said:?}")))
        }
        Ok(Err(why)) => Err(failed(why)),
        Err(_) => Err(failed(format!("no answer within {PATIENCE:?}"))),
    }
}

async fn exchange(certificate: &str, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String> {
    let mut config = Config::new(request.uri().clone());
    if !certificate.trim().is_empty() {
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
        let certificates = certificates.map_err(|error| format!("the certificate is no PEM: {error}"))?;
        config.root_cert = Some(certificates.iter().map(|certificate| certificate.to_vec()).collect());
    }
    let connector = config.rustls_https_connector().map_err(|error| Chain(&error).to_string())?;
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let answer = client.request(request).await.map_err(|error| Chain(&error).to_string())?;
    let code = answer.status();
    let body =
        Limited::new(answer.into_body(), LARGEST).collect().await.map_err(|error| error.to_string())?;
    Ok((code, body.to_bytes()))
}
