//! The part of a Kubernetes client the agent needs: one Secret, read, watched and updated.

use std::sync::OnceLock;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, StatusCode, Uri, header};
use remuda_names::gateway::path::{AGENT_IMAGE, REGISTRY};
use serde_json::{Map, Value};

use crate::{
    client::{Body, Client, HttpError, Request, Response, Timeouts, percent_encode},
    config::ConnectionInfo,
    decide::Data,
    environment::Environment,
    proxy::Proxies,
    tls::{Trust, TrustError},
};

mod kubeconfig;

pub use kubeconfig::{Credentials, Kubeconfig, KubeconfigError};

/// Until a server has made an image it is asked for.
const MAKING: std::time::Duration = std::time::Duration::from_secs(180);
/// Bytes of one answer or one event. A Secret holds 1 MiB, in base64, with metadata.
const ANSWER_LIMIT: usize = 8 << 20;

/// A Secret with everything in it that is none of the agent's business, so that an update keeps it.
#[derive(Clone, PartialEq)]
pub struct Secret {
    object: Map<String, Value>,
    /// Decoded data.
    pub data: Data,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Secret({} at {})", self.uid(), self.version())
    }
}

impl Secret {
    /// Takes a Secret apart.
    pub fn decode(value: Value) -> Result<Self, KubeError> {
        let Value::Object(mut object) = value else { return Err(KubeError::Unexpected("not an object")) };
        let mut data = Data::new();
        match object.remove("data") {
            None | Some(Value::Null) => {}
            Some(Value::Object(entries)) => {
                for (name, value) in entries {
                    let text = match &value {
                        Value::Null => "",
                        Value::String(text) => text,
                        _ => return Err(KubeError::Unexpected("Secret data that is not text")),
                    };
                    let raw = STANDARD
                        .decode(text)
                        .map_err(|_| KubeError::Unexpected("Secret data that is not base64"))?;
                    data.insert(name, raw);
                }
            }
            Some(_) => return Err(KubeError::Unexpected("Secret data that is not an object")),
        }
        Ok(Self { object, data })
    }

    fn encode(&self) -> Vec<u8> {
        let mut object = self.object.clone();
        object.insert("apiVersion".into(), "v1".into());
        object.insert("kind".into(), "Secret".into());
        let entries = self.data.iter().map(|(name, raw)| (name.clone(), Value::String(STANDARD.encode(raw))));
        object.insert("data".into(), Value::Object(entries.collect()));
        remuda_plan::json::encode(&object)
    }

    fn metadata(&self, name: &str) -> &str {
        self.object.get("metadata").and_then(|metadata| metadata.get(name)?.as_str()).unwrap_or_default()
    }

    /// Its uid.
    pub fn uid(&self) -> &str {
        self.metadata("uid")
    }

    /// Its version.
    pub fn version(&self) -> &str {
        self.metadata("resourceVersion")
    }

    /// Its version as a number; 0 if it is none.
    pub fn version_number(&self) -> u64 {
        self.version().parse().unwrap_or(0)
    }

    /// The same Secret with other data.
    #[must_use]
    pub fn with(&self, data: Data) -> Self {
        Self { object: self.object.clone(), data }
    }
}

/// What the API said no to.
#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    /// The request did not get through.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The API refused.
    #[error("API answered {status} {reason}: {message}")]
    Api {
        /// HTTP status.
        status: StatusCode,
        /// Machine-readable reason.
        reason: String,
        /// For people.
        message: String,
    },
    /// The API answered something else than asked for.
    #[error("API sent {0}")]
    Unexpected(&'static str),
    /// The answer is not JSON.
    #[error("decode answer of the API")]
    Decode(#[from] serde_json::Error),
}

impl KubeError {
    /// Somebody else wrote first.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { status, .. } if *status == StatusCode::CONFLICT)
    }

    /// There is no such Secret.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Api { status, .. } if *status == StatusCode::NOT_FOUND)
    }

    /// The version to watch from is too old.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Api { status, .. } if *status == StatusCode::GONE)
    }

    fn is_unknown_issuer(&self) -> bool {
        matches!(self, Self::Http(error) if error.is_unknown_issuer())
    }
}

/// Why no client can be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig is unusable.
    #[error("kubeconfig of the connection info")]
    Kubeconfig(#[from] KubeconfigError),
    /// Its certificates are.
    #[error("certificates of the kubeconfig")]
    Trust(#[from] TrustError),
    /// Strict verification without anything to verify with.
    #[error("strict verification is on but the kubeconfig has no certificate authority")]
    NothingToVerify,
}

/// A client for one Secret.
#[derive(Debug)]
pub struct Kube {
    server: String,
    namespace: String,
    name: String,
    credentials: Credentials,
    client: Client,
    /// The system's authorities, for servers whose certificate has changed to a public one. They are
    /// large, so they are loaded when they are needed.
    fallback: Option<Trust>,
    adopted: OnceLock<Client>,
}

/// The registry of the server the Secret is at.
pub(crate) struct OwnRegistry {
    pub(crate) scheme: &'static str,
    pub(crate) host: String,
    /// What comes before the name of an image.
    pub(crate) prefix: String,
    pub(crate) client: Client,
    /// What it is shown.
    pub(crate) authorization: String,
}

/// What a watch brings.
#[derive(Debug)]
pub enum Event {
    /// The Secret was created or changed.
    Changed(Box<Secret>),
    /// The Secret is gone.
    Deleted,
    /// Nothing, up to this version.
    Bookmark(String),
}

impl Kube {
    /// A client as the connection info says. With `strict` the certificate authority in the kubeconfig
    /// is the only one ever trusted; without, the system's are tried when it does not fit.
    pub fn new(info: &ConnectionInfo, strict: bool, environment: &Environment) -> Result<Self, ConnectError> {
        let config = Kubeconfig::parse(&info.kube_config)?;
        let bundle = environment.get("SSL_CERT_FILE").map(Into::into);
        let has_authority = !config.authority.is_empty();
        if strict && (!has_authority || config.insecure) {
            return Err(ConnectError::NothingToVerify);
        }
        let trust = Trust {
            insecure: config.insecure,
            system: !has_authority,
            system_bundle: bundle,
            extra: config.authority,
            identity: config.identity,
        };
        let client = Client {
            tls: trust.config()?,
            server_name: config.server_name,
            proxies: Proxies::of(environment),
            timeouts: Timeouts::default(),
        };
        let fallback = (has_authority && !strict && !trust.insecure).then(|| Trust {
            system: true,
            extra: Vec::new(),
            ..trust
        });
        Ok(Self {
            server: config.server.trim_end_matches('/').to_owned(),
            namespace: info.namespace.clone(),
            name: info.secret_name.clone(),
            credentials: config.credentials,
            client,
            fallback,
            adopted: OnceLock::new(),
        })
    }

    /// Where the Secret lives.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Checks that the API can be reached and is the right one.
    pub async fn check(&self) -> Result<(), KubeError> {
        let error = match self.call(Method::GET, "/version", Bytes::new()).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let fallback =
            self.fallback.as_ref().filter(|_| error.is_unknown_issuer() && self.adopted.get().is_none());
        let Some(Ok(tls)) = fallback.map(Trust::config) else { return Err(error) };
        let fallback = Client { tls, ..self.client.clone() };
        let response = self.send(&fallback, Method::GET, "/version", Bytes::new()).await?;
        accept(response).await?.read(ANSWER_LIMIT).await?;
        tracing::warn!(
            "the server's certificate is not from the pinned authority but from one the system trusts"
        );
        let _ = self.adopted.set(fallback);
        Ok(())
    }

    /// The Secret and the version of the list it was found in; `None` if there is none.
    pub async fn list(&self) -> Result<(Option<Secret>, String), KubeError> {
        let path = format!("{}?{}&limit=500", self.collection(), self.selector());
        let mut list: Value = serde_json::from_slice(&self.call(Method::GET, &path, Bytes::new()).await?)?;
        let version =
            list.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        let items =
            list.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        let named = |item: &Value| item.pointer("/metadata/name").and_then(Value::as_str) == Some(&self.name);
        let secret = items.into_iter().find(named).map(Secret::decode).transpose()?;
        Ok((secret, version))
    }

    /// The Secret as it is now.
    pub async fn get(&self) -> Result<Secret, KubeError> {
        let raw = self.call(Method::GET, &self.item(), Bytes::new()).await?;
        Secret::decode(serde_json::from_slice(&raw)?)
    }

    /// Writes the Secret, if nobody else has since it was read.
    pub async fn update(&self, secret: &Secret) -> Result<Secret, KubeError> {
        let raw = self.call(Method::PUT, &self.item(), secret.encode().into()).await?;
        Secret::decode(serde_json::from_slice(&raw)?)
    }

    /// Watches from a version on. The server ends the watch after `seconds`.
    pub async fn watch(&self, version: &str, seconds: u64) -> Result<Watch, KubeError> {
        let path = format!(
            "{}?{}&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={seconds}&watch=true",
            self.collection(),
            self.selector(),
            percent_encode(version),
        );
        let mut client = self.current().clone();
        // The server ends the watch in time; one that does not is as good as dead.
        // Some send nothing at all before the first event.
        client.timeouts.idle = std::time::Duration::from_secs(seconds + 30);
        client.timeouts.response = client.timeouts.idle;
        let response = self.send(&client, Method::GET, &path, Bytes::new()).await?;
        Ok(Watch { body: accept(response).await?, pending: Vec::new(), scanned: 0 })
    }

    /// The image of the cluster agent, unless it is the one whose SHA-256 is `known`.
    pub async fn agent_image(&self, architecture: &str, known: Option<&str>) -> Result<Response, KubeError> {
        let path = format!("{AGENT_IMAGE}?architecture={architecture}");
        let mut request = self.request(Method::GET, &path, Bytes::new())?;
        if let Some(known) = known {
            request = request.header(header::IF_NONE_MATCH, &format!("\"{known}\""));
        }
        let mut client = self.current().clone();
        // The first who asks waits until it is made.
        client.timeouts.response = MAKING;
        let response = client.send(request).await?;
        if response.status == StatusCode::NOT_MODIFIED {
            return Ok(response);
        }
        let Response { status, headers, .. } = &response;
        let (status, headers) = (*status, headers.clone());
        Ok(Response { status, headers, body: accept(response).await? })
    }

    /// How the images this server has are asked for; `None` if it takes no token.
    pub(crate) fn registry(&self) -> Option<OwnRegistry> {
        let uri: Uri = self.server.parse().ok()?;
        Some(OwnRegistry {
            scheme: if uri.scheme_str() == Some("https") { "https" } else { "http" },
            host: uri.authority()?.as_str().to_owned(),
            prefix: format!("{}{REGISTRY}", uri.path().trim_end_matches('/')),
            client: self.current().clone(),
            authorization: self.credentials.authorization()?,
        })
    }

    fn current(&self) -> &Client {
        self.adopted.get().unwrap_or(&self.client)
    }

    fn collection(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", percent_encode(&self.namespace))
    }

    fn item(&self) -> String {
        format!("{}/{}", self.collection(), percent_encode(&self.name))
    }

    fn selector(&self) -> String {
        format!("fieldSelector={}", percent_encode(&format!("metadata.name={}", self.name)))
    }

    async fn call(&self, method: Method, path: &str, body: Bytes) -> Result<Vec<u8>, KubeError> {
        let response = self.send(self.current(), method, path, body).await?;
        Ok(accept(response).await?.read(ANSWER_LIMIT).await?)
    }

    async fn send(
        &self,
        client: &Client,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response, KubeError> {
        Ok(client.send(self.request(method, path, body)?).await?)
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request, KubeError> {
        let address = format!("{}{path}", self.server);
        let uri: Uri =
            address.parse().map_err(|_| HttpError::Address { uri: address, reason: "not an address" })?;
        let mut request = Request { method, uri, headers: http::HeaderMap::new(), body }
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("remuda-agent/", env!("CARGO_PKG_VERSION")));
        if !request.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = self.credentials.authorization() {
            request = request.header(header::AUTHORIZATION, &authorization);
        }
        Ok(request)
    }
}

async fn accept(response: Response) -> Result<Body, KubeError> {
    if response.status.is_success() {
        return Ok(response.body);
    }
    let status = response.status;
    let raw = response.body.read(64 << 10).await.unwrap_or_default();
    Err(refusal(status, &serde_json::from_slice(&raw).unwrap_or_else(|_| Value::String(brief(&raw)))))
}

fn brief(raw: &[u8]) -> String {
    String::from_utf8_lossy(&raw[..raw.len().min(200)]).trim().to_owned()
}

fn refusal(status: StatusCode, answer: &Value) -> KubeError {
    let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let message = answer.as_str().map_or_else(|| text("message"), str::to_owned);
    KubeError::Api { status, reason: text("reason"), message }
}

/// Events on the wire.
#[derive(Debug)]
pub struct Watch {
    body: Body,
    pending: Vec<u8>,
    scanned: usize,
}

impl Watch {
    /// The next event, or `None` when the server ended the watch.
    pub async fn next(&mut self) -> Result<Option<Event>, KubeError> {
        loop {
            if let Some(at) = self.pending[self.scanned..].iter().position(|byte| *byte == b'\n') {
                let rest = self.pending.split_off(self.scanned + at + 1);
                let line = std::mem::replace(&mut self.pending, rest);
                self.scanned = 0;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return event(serde_json::from_slice(&line)?).map(Some);
            }
            self.scanned = self.pending.len();
            let Some(chunk) = self.body.chunk().await? else { return Ok(None) };
            if self.pending.len() + chunk.len() > ANSWER_LIMIT {
                return Err(KubeError::Unexpected("an event that is too large"));
            }
            self.pending.extend_from_slice(&chunk);
        }
    }
}

fn event(mut value: Value) -> Result<Event, KubeError> {
    let object = value.get_mut("object").map(Value::take).unwrap_or_default();
    match value.get("type").and_then(Value::as_str) {
        Some("ADDED" | "MODIFIED") => Ok(Event::Changed(Box::new(Secret::decode(object)?))),
        Some("DELETED") => Ok(Event::Deleted),
        Some("BOOKMARK") => {
            let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            Ok(Event::Bookmark(version.unwrap_or_default().to_owned()))
        }
        Some("ERROR") => {
            let code = object.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
            let status = code.and_then(|code| StatusCode::from_u16(code).ok());
            Err(refusal(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &object))
        }
        _ => Err(KubeError::Unexpected("an event of an unknown type")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_update_keeps_what_it_does_not_know() {
        let value = json!({"apiVersion":"v1","kind":"Secret","type":"rke.cattle.io/machine-plan","immutable":false,
            "metadata":{"name":"p","uid":"u","resourceVersion":"12","labels":{"a":"b"},"managedFields":[{"x":1}]},
            "data":{"plan":"e30=","empty":"","nothing":null}});
        let secret = Secret::decode(value.clone()).unwrap();
        assert_eq!((secret.uid(), secret.version_number()), ("u", 12));
        assert_eq!(secret.data["plan"], b"{}");
        assert_eq!(secret.data["nothing"], b"");
        let encoded: Value = serde_json::from_slice(&secret.encode()).unwrap();
        assert_eq!(encoded["metadata"], value["metadata"]);
        assert_eq!(encoded["type"], value["type"]);
        assert_eq!(encoded["data"], json!({"plan":"e30=","empty":"","nothing":""}));
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        for value in [json!(1), json!({"data":[]}), json!({"data":{"a":1}}), json!({"data":{"a":"%"}})] {
            assert!(Secret::decode(value).is_err());
        }
        assert!(event(json!({"type":"WHAT"})).is_err());
        assert!(
            event(json!({"type":"ERROR","object":{"code":410,"reason":"Expired"}})).unwrap_err().is_expired()
        );
        assert!(
            matches!(event(json!({"type":"BOOKMARK"})).unwrap(), Event::Bookmark(version) if version.is_empty())
        );
    }
}
