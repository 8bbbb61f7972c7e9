//! The cluster's API, as processes in the cluster use it: with the account that is mounted into their pod.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, StatusCode, header};
use remuda_agent::{
    client::{Client, HttpError, Request, Timeouts},
    proxy::Proxies,
    tls::{Trust, TrustError},
};
use rustls::ClientConfig;
use serde_json::Value;

const ANSWER_LIMIT: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) enum ApiError {
    Failed(HttpError),
    Refused(StatusCode),
}

impl From<HttpError> for ApiError {
    fn from(error: HttpError) -> ApiError {
        ApiError::Failed(error)
    }
}

/// What the certificates of an account are good for: the API and nothing else.
pub(crate) fn trust(ca: &str) -> Result<Arc<ClientConfig>, TrustError> {
    Trust { extra: ca.as_bytes().to_vec(), ..Trust::default() }.config()
}

pub(crate) struct Api<'a> {
    pub(crate) tls: Arc<ClientConfig>,
    /// Host and port.
    pub(crate) address: &'a str,
    pub(crate) token: &'a str,
}

impl Api<'_> {
    /// Asks for a path, with a body if there is one; one of PATCH is merged into what is there.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let address = format!("https://{}{path}", self.address);
        let uri =
            address.parse().map_err(|_| HttpError::Address { uri: address, reason: "not an address" })?;
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let mut request = Request::get(uri)
            .header(header::AUTHORIZATION, &format!("Bearer {}", self.token))
            .header(header::ACCEPT, "application/json");
        if let Some(body) = body {
            request = request.header(header::CONTENT_TYPE, kind);
            request.body = Bytes::from(body.to_string());
        }
        request.method = method;
        let timeouts = Timeouts { connect: PATIENCE, response: PATIENCE, idle: PATIENCE };
        let client =
            Client { tls: self.tls.clone(), server_name: None, proxies: Proxies::default(), timeouts };
        let response = client.send(request).await?;
        let status = response.status;
        let raw = response.body.read(ANSWER_LIMIT).await?;
        if !status.is_success() {
            return Err(ApiError::Refused(status));
        }
        serde_json::from_slice(&raw).map_err(|_| ApiError::Refused(StatusCode::BAD_GATEWAY))
    }
}

/// Whether this can be the name of an object; anything else would be part of a path.
pub(crate) fn is_name(name: &str) -> bool {
    (1..=253).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_lead_elsewhere() {
        assert!(is_name("cattle-token-x7k2q"));
        for name in ["", "..", "../x", "a/b", "a?b", "a b", "a%2fb"] {
            assert!(!is_name(name), "{name}");
        }
    }
}
