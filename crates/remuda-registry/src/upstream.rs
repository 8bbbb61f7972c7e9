//! A registry elsewhere, asked by HTTP. Every wait is bounded, and so is what it may send for a manifest.

mod challenge;
mod push;

use std::{collections::HashMap, fmt, pin::Pin, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use http::{HeaderMap, Method, StatusCode, header};
use parking_lot::Mutex;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use remuda_http::{Client, Options, ReadError, Response, Trust, Url, redirected};
use reqwest::Certificate;

use self::challenge::Challenge;
pub use self::push::PushError;
use crate::manifest::{LARGEST, Manifest, ManifestError, accepted, has_digest};

/// Between two pieces of an answer, and before the first.
const IDLE: Duration = Duration::from_secs(30);
const REDIRECTS: usize = 5;
const TOKEN_LARGEST: usize = 1 << 20;
/// For answers of 429 without `Retry-After`.
const AFTER: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// Who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub username: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    #[error("{0:?} is no address of a registry: it is such as https://registry.example")]
    Address(String),
    #[error("certificates for {host}")]
    Certificates { host: String, source: reqwest::Error },
    #[error("ask {host}")]
    Transport { host: String, source: reqwest::Error },
    #[error("{host} does not have {what}")]
    NotFound { host: String, what: String },
    #[error("{host} has too much to do, and wants to be asked again in {} s", after.as_secs())]
    Busy { host: String, after: Duration },
    #[error("{host} answered {code} for {what}")]
    Refused { host: String, code: StatusCode, what: String },
    #[error("{host} {reason}")]
    Unusable { host: String, reason: String },
    #[error("{host}: {what} differs from its digest")]
    Digest { host: String, what: String },
    #[error("{host}: {what}")]
    Manifest { host: String, what: String, source: ManifestError },
}

impl UpstreamError {
    /// Whether the same question may be answered a moment later.
    pub fn is_passing(&self) -> bool {
        match self {
            UpstreamError::Transport { .. } => true,
            UpstreamError::Refused { code, .. } => code.is_server_error(),
            _ => false,
        }
    }
}

fn transport(host: String, source: remuda_http::Error) -> UpstreamError {
    UpstreamError::Transport { host, source: source.without_url() }
}

/// A part of an answer that is on its way.
pub struct Blob {
    /// Where in the blob it begins.
    pub offset: u64,
    /// Of all of the blob, if that is known.
    pub length: Option<u64>,
    pub pieces: Pin<Box<dyn Stream<Item = Result<Bytes, UpstreamError>> + Send>>,
}

/// One registry, or a mirror of one.
#[derive(Debug)]
pub struct Upstream {
    base: Url,
    /// The registry it is a mirror of, which it is told.
    namespace: Option<String>,
    credentials: Option<Credentials>,
    client: Client,
    /// What challenges were answered with, by repository.
    authorizations: Mutex<HashMap<String, String>>,
}

impl Upstream {
    /// `address` has a scheme, and perhaps a path that comes before `/v2`. `ca` are certificates to trust beside those
    /// of the system.
    pub fn new(
        address: &str,
        namespace: Option<String>,
        credentials: Option<Credentials>,
        ca: Option<&[u8]>,
    ) -> Result<Upstream, UpstreamError> {
        let bad = || UpstreamError::Address(address.chars().take(256).collect());
        let base = Url::parse(address).map_err(|_| bad())?;
        let is_plain = base.query().is_none() && base.fragment().is_none() && base.username().is_empty();
        if !matches!(base.scheme(), "https" | "http") || base.host_str().is_none() || !is_plain {
            return Err(bad());
        }
        let host = base.host_str().unwrap_or_default().to_owned();
        let failed = |source| UpstreamError::Certificates { host: host.clone(), source };
        let authorities = ca.map(Certificate::from_pem_bundle).transpose().map_err(failed)?;
        let trust = authorities.map_or(Trust::System, Trust::Beside);
        let client = remuda_http::client(Options { trust, ..Options::streaming(IDLE) }).map_err(failed)?;
        Ok(Upstream { base, namespace, credentials, client, authorizations: Mutex::default() })
    }

    pub fn host(&self) -> String {
        let port = self.base.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}{port}", self.base.host_str().unwrap_or_default())
    }

    /// What a tag or digest stands for. A digest is checked.
    pub async fn manifest(
        &self,
        repository: &str,
        wanted: &str,
    ) -> Result<(Vec<u8>, Manifest), UpstreamError> {
        let what = format!("manifest {wanted} of {repository}");
        let mut headers = HeaderMap::new();
        if let Ok(accept) = accepted().parse() {
            headers.insert(header::ACCEPT, accept);
        }
        let url = self.url(repository, &format!("manifests/{wanted}"))?;
        let response = self.send(Method::GET, url, repository, &headers, &what).await?;
        let bytes = self.read(response, LARGEST, &what).await?;
        if wanted.contains(':') && !has_digest(&bytes, wanted) {
            return Err(UpstreamError::Digest { host: self.host(), what });
        }
        let manifest = Manifest::parse(&bytes).map_err(|source| UpstreamError::Manifest {
            host: self.host(),
            what,
            source,
        })?;
        Ok((bytes, manifest))
    }

    /// A blob, from an offset on if the registry can do that.
    pub async fn blob(&self, repository: &str, digest: &str, from: u64) -> Result<Blob, UpstreamError> {
        let what = format!("blob {digest} of {repository}");
        let mut headers = HeaderMap::new();
        if from > 0
            && let Ok(range) = format!("bytes={from}-").parse()
        {
            headers.insert(header::RANGE, range);
        }
        let url = self.url(repository, &format!("blobs/{digest}"))?;
        let response = self.send(Method::GET, url, repository, &headers, &what).await?;
        let length = response.content_length();
        let offset = if response.status() == StatusCode::PARTIAL_CONTENT { from } else { 0 };
        let host = self.host();
        let pieces = response.bytes_stream();
        let pieces = pieces.map_err(move |source| transport(host.clone(), source));
        Ok(Blob { offset, length: length.map(|length| offset + length), pieces: Box::pin(pieces) })
    }

    fn url(&self, repository: &str, rest: &str) -> Result<Url, UpstreamError> {
        let base = self.base.as_str().trim_end_matches('/');
        let query = self.namespace.as_ref().map_or(String::new(), |namespace| {
            format!("?ns={}", utf8_percent_encode(namespace, NON_ALPHANUMERIC))
        });
        let text = format!("{base}/v2/{repository}/{rest}{query}");
        Url::parse(&text).map_err(|_| UpstreamError::Address(text))
    }

    /// One request, with an answer to a challenge if there is one; an answer that is no success is an error.
    async fn send(
        &self,
        method: Method,
        url: Url,
        repository: &str,
        headers: &HeaderMap,
        what: &str,
    ) -> Result<Response, UpstreamError> {
        let known = self.authorizations.lock().get(repository).cloned();
        let mut response = self.follow(&method, url.clone(), headers, known.as_deref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            let authorization = self.authorize(response.headers(), repository, "pull").await?;
            response = self.follow(&method, url, headers, Some(&authorization)).await?;
            if response.status().is_success() {
                let mut all = self.authorizations.lock();
                // More repositories than are mirrored; without a bound it would leak.
                if all.len() > 1024 {
                    all.clear();
                }
                all.insert(repository.to_owned(), authorization);
            }
        }
        let (host, what) = (self.host(), what.to_owned());
        match response.status() {
            code if code.is_success() => Ok(response),
            StatusCode::NOT_FOUND => Err(UpstreamError::NotFound { host, what }),
            StatusCode::TOO_MANY_REQUESTS => {
                let after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
                let after = after.and_then(|text| text.parse().ok()).map_or(AFTER, Duration::from_secs);
                Err(UpstreamError::Busy { host, after: after.clamp(Duration::from_secs(1), LONGEST) })
            }
            code => Err(UpstreamError::Refused { host, code, what }),
        }
    }

    async fn follow(
        &self,
        method: &Method,
        first: Url,
        headers: &HeaderMap,
        authorization: Option<&str>,
    ) -> Result<Response, UpstreamError> {
        let mut url = first.clone();
        for _ in 0..=REDIRECTS {
            let mut request = self.client.request(method.clone(), url.clone()).headers(headers.clone());
            // Storage behind a registry must not see its credentials.
            if let Some(authorization) = authorization.filter(|_| url.origin() == first.origin()) {
                request = request.header(header::AUTHORIZATION, authorization);
            }
            let sent = request.send().await;
            let response = sent.map_err(|source| transport(self.host(), source))?;
            let next = redirected(&response).map_err(|_| self.unusable("redirects to nowhere"))?;
            let Some(next) = next else { return Ok(response) };
            url = next;
            // Without TLS only where its own address has none, and nowhere else: a registry must not make this server
            // ask what only this server can reach.
            let may = url.scheme() == "https" || url.origin() == self.base.origin();
            if !may {
                return Err(self.unusable("redirects to an address without TLS"));
            }
        }
        Err(self.unusable("redirects too often"))
    }

    fn unusable(&self, reason: &str) -> UpstreamError {
        UpstreamError::Unusable { host: self.host(), reason: reason.to_owned() }
    }

    async fn authorize(
        &self,
        headers: &HeaderMap,
        repository: &str,
        actions: &str,
    ) -> Result<String, UpstreamError> {
        let basic = self.credentials.as_ref().map(|Credentials { username, password }| {
            format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
        });
        let challenges = headers.get_all(header::WWW_AUTHENTICATE).iter();
        let challenge = challenges.filter_map(|value| Challenge::parse(value.to_str().ok()?)).next();
        let challenge = challenge.ok_or_else(|| self.unusable("asks for credentials in an unknown way"))?;
        let Challenge::Bearer { realm, service } = challenge else {
            return basic.ok_or_else(|| self.unusable("asks for a password, and none is configured"));
        };
        let bad = || self.unusable("names no place where tokens are");
        let mut url = Url::parse(&realm).map_err(|_| bad())?;
        if url.scheme() != "https" && url.origin() != self.base.origin() {
            return Err(self.unusable("wants its password sent elsewhere without TLS"));
        }
        url.query_pairs_mut().append_pair("scope", &format!("repository:{repository}:{actions}"));
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", &service);
        }
        let mut request = self.client.get(url);
        if let Some(basic) = basic {
            request = request.header(header::AUTHORIZATION, basic);
        }
        let response = request.send().await.map_err(|source| transport(self.host(), source))?;
        let code = response.status();
        if !code.is_success() {
            return Err(UpstreamError::Refused { host: self.host(), code, what: "a token".to_owned() });
        }
        let bytes = self.read(response, TOKEN_LARGEST, "a token").await?;
        let answer: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let token =
            answer.get("token").or_else(|| answer.get("access_token")).and_then(|token| token.as_str());
        token.map(|token| format!("Bearer {token}")).ok_or_else(|| self.unusable("sent no token"))
    }

    async fn read(&self, response: Response, most: usize, what: &str) -> Result<Vec<u8>, UpstreamError> {
        remuda_http::read(response, most).await.map_err(|error| match error {
            ReadError::Transport(source) => transport(self.host(), source),
            ReadError::TooLarge(_) => self.unusable(&format!("sends more than {most} bytes for {what}")),
        })
    }
}
