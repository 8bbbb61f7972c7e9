//! Pulling images from registries.

use std::{
    collections::HashMap,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use aws_lc_rs::digest::{Context as Hasher, SHA256};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use remuda_oci::reference::{Reference, is_digest};
use remuda_plan::{digest::hex, sha256_hex};
use serde::Deserialize;
use serde_json::Value;

use super::registries::{Endpoint, Registries, RegistriesError};
use crate::{
    Chain,
    client::{Client, HttpError, Request, Response, Timeouts, percent_encode},
    disk::{Context, DiskError, create_dirs, remove_all},
    environment::Environment,
    kube::OwnRegistry,
    probe::resolve,
    proxy::Proxies,
    tls::TrustError,
};

const MANIFEST_LIMIT: usize = 8 << 20;
const TOKEN_LIMIT: usize = 1 << 20;
const BLOB_LIMIT: u64 = 16 << 30;
const LAYER_LIMIT: usize = 256;
const REDIRECTS: usize = 10;
const BLOB_TRIES: usize = 3;

const INDEXES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const MANIFESTS: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];

/// Why an image cannot be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// Nobody has it, or nobody gives it.
    #[error("no registry has it: {0}")]
    Everywhere(String),
    /// The request did not get through.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// The registry refused.
    #[error("{what}: registry answered {status}{message}")]
    Refused {
        /// What was asked for.
        what: String,
        /// HTTP status.
        status: StatusCode,
        /// What it said.
        message: String,
    },
    /// The registry sent something else than it announced.
    #[error("{what} does not match its digest {digest}")]
    Digest {
        /// What was asked for.
        what: String,
        /// What it should be.
        digest: String,
    },
    /// The registry sent something unusable.
    #[error("{0}")]
    Unusable(String),
    /// TLS settings are unusable.
    #[error(transparent)]
    Registries(#[from] RegistriesError),
    /// TLS settings are unusable.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The disk refuses.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

/// Downloads the layers of an image below `directory` and returns their files, the lowest first.
pub async fn pull(
    reference: &Reference,
    registries: &Registries,
    environment: &Environment,
    directory: &Path,
) -> Result<Vec<PathBuf>, PullError> {
    let mut errors = Vec::new();
    for endpoint in registries.endpoints(reference) {
        let host = format!("{}://{}", endpoint.scheme, endpoint.host);
        let mut session = Session::new(endpoint, registries, environment, Actions::Pull);
        remove_all(directory)?;
        create_dirs(directory, 0o700)?;
        match session.pull(reference, directory).await {
            Ok(layers) => return Ok(layers),
            // Another registry does not make room on this disk.
            Err(PullError::Disk(error)) => return Err(error.into()),
            Err(error) => errors.push(format!("{host}: {}", Chain(&error))),
        }
    }
    Err(PullError::Everywhere(errors.join("; ")))
}

/// Downloads the layers of an image that the server of this machine has, as [`pull`] does.
pub(super) async fn pull_from_server(
    reference: &Reference,
    server: OwnRegistry,
    environment: &Environment,
    directory: &Path,
) -> Result<Vec<PathBuf>, PullError> {
    let OwnRegistry { scheme, host, prefix, client, authorization } = server;
    let endpoint = Endpoint {
        scheme,
        host: host.clone(),
        prefix,
        repository: reference.repository.clone(),
        namespace: Some(reference.namespace().to_owned()),
    };
    let registries = Registries::default();
    let mut session = Session::new(endpoint, &registries, environment, Actions::Pull);
    session.clients.insert(host, client);
    session.authorization = Some(authorization);
    remove_all(directory)?;
    create_dirs(directory, 0o700)?;
    session.pull(reference, directory).await
}

/// What a session may do to its repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Actions {
    Pull,
    Push,
}

/// One repository of one registry, and the credentials it takes.
pub(super) struct Session<'a> {
    pub(super) endpoint: Endpoint,
    registries: &'a Registries,
    environment: &'a Environment,
    actions: Actions,
    clients: HashMap<String, Client>,
    pub(super) authorization: Option<String>,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        endpoint: Endpoint,
        registries: &'a Registries,
        environment: &'a Environment,
        actions: Actions,
    ) -> Self {
        Self { endpoint, registries, environment, actions, clients: HashMap::new(), authorization: None }
    }
}

impl Session<'_> {
    async fn pull(&mut self, reference: &Reference, directory: &Path) -> Result<Vec<PathBuf>, PullError> {
        let wanted = reference.digest.as_deref().unwrap_or(&reference.tag);
        let mut manifest = self.manifest(wanted).await?;
        if let Some(list) = manifest.get_mut("manifests").map(Value::take) {
            let list: Vec<Descriptor> = parse(list, "image index")?;
            let wanted = |item: &&Descriptor| {
                item.platform.as_ref().is_some_and(|at| at.os == "linux" && at.architecture == architecture())
            };
            let item = list.iter().find(wanted).ok_or_else(|| {
                PullError::Unusable(format!("image is not made for linux/{}", architecture()))
            })?;
            manifest = self.manifest(&item.digest).await?;
        }
        let layers = manifest.get_mut("layers").map(Value::take);
        let layers: Vec<Descriptor> = parse(layers.unwrap_or_default(), "image manifest")?;
        if layers.len() > LAYER_LIMIT {
            return Err(PullError::Unusable(format!("image has more than {LAYER_LIMIT} layers")));
        }
        let mut paths = Vec::with_capacity(layers.len());
        for (index, layer) in layers.iter().enumerate() {
            if layer.media_type.contains("foreign") {
                continue;
            }
            let path = directory.join(index.to_string());
            self.blob(layer, &path).await?;
            paths.push(path);
        }
        Ok(paths)
    }

    async fn manifest(&mut self, wanted: &str) -> Result<Value, PullError> {
        let accept = [INDEXES, MANIFESTS].concat().join(", ");
        let what = format!("manifest {wanted}");
        let response = self.get(&format!("manifests/{wanted}"), &accept, &what).await?;
        let raw = response.body.read(MANIFEST_LIMIT).await?;
        if is_digest(wanted) && format!("sha256:{}", sha256_hex(&raw)) != wanted {
            return Err(PullError::Digest { what, digest: wanted.to_owned() });
        }
        serde_json::from_slice(&raw).map_err(|error| PullError::Unusable(format!("{what}: {error}")))
    }

    async fn blob(&mut self, layer: &Descriptor, path: &Path) -> Result<(), PullError> {
        if !is_digest(&layer.digest) {
            return Err(PullError::Unusable(format!(
                "layer has an unknown kind of digest {:?}",
                layer.digest
            )));
        }
        let mut tries = 0;
        loop {
            tries += 1;
            match self.download(layer, path).await {
                Err(PullError::Http(error)) if tries < BLOB_TRIES => {
                    tracing::warn!(error = %Chain(&error), digest = layer.digest, "download broke off, trying again");
                }
                other => return other,
            }
        }
    }

    async fn download(&mut self, layer: &Descriptor, path: &Path) -> Result<(), PullError> {
        let what = format!("layer {}", layer.digest);
        let mut body = self.get(&format!("blobs/{}", layer.digest), "*/*", &what).await?.body;
        let limit = if layer.size > 0 { layer.size.min(BLOB_LIMIT) } else { BLOB_LIMIT };
        let mut file = File::create(path).on("create", path)?;
        let mut hasher = Hasher::new(&SHA256);
        let mut size = 0;
        while let Some(chunk) = body.chunk().await? {
            size += chunk.len() as u64;
            if size > limit {
                return Err(PullError::Digest { what, digest: layer.digest.clone() });
            }
            hasher.update(&chunk);
            file.write_all(&chunk).on("write", path)?;
        }
        if format!("sha256:{}", hex(hasher.finish())) != layer.digest {
            return Err(PullError::Digest { what, digest: layer.digest.clone() });
        }
        Ok(())
    }

    /// Fetches something of the repository, answering a challenge if there is one.
    async fn get(&mut self, path: &str, accept: &str, what: &str) -> Result<Response, PullError> {
        let Endpoint { scheme, host, prefix, repository, namespace } = &self.endpoint;
        let query = namespace.as_ref().map_or(String::new(), |name| format!("?ns={}", percent_encode(name)));
        let address = format!("{scheme}://{host}{prefix}/{repository}/{path}{query}");
        let uri: Uri =
            address.parse().map_err(|_| HttpError::Address { uri: address, reason: "not an address" })?;
        let mut response = self.follow(uri.clone(), accept).await?;
        if response.status == StatusCode::UNAUTHORIZED {
            self.authorization = Some(self.authorize(&response.headers).await?);
            response = self.follow(uri, accept).await?;
        }
        if response.status.is_success() {
            return Ok(response);
        }
        Err(refused(response, what).await)
    }

    async fn follow(&mut self, first: Uri, accept: &str) -> Result<Response, PullError> {
        let mut uri = first.clone();
        for _ in 0..=REDIRECTS {
            let mut request = Request::get(uri.clone()).header(header::ACCEPT, accept);
            // Storage behind a registry must not see its credentials.
            if uri.authority() == first.authority()
                && uri.scheme() == first.scheme()
                && let Some(authorization) = &self.authorization
            {
                request = request.header(header::AUTHORIZATION, authorization);
            }
            let response = self.client(&uri)?.send(request).await?;
            if !response.status.is_redirection() {
                return Ok(response);
            }
            let location = response.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
            let next = location.and_then(|location| resolve(&uri, location));
            uri = next.ok_or_else(|| PullError::Unusable("registry redirects to nowhere".into()))?;
            if first.scheme_str() == Some("https") && uri.scheme_str() != Some("https") {
                return Err(PullError::Unusable(format!("registry redirects to plain http: {uri}")));
            }
        }
        Err(PullError::Unusable(format!("registry redirects more than {REDIRECTS} times")))
    }

    pub(super) fn client(&mut self, uri: &Uri) -> Result<&Client, PullError> {
        let host = uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
        if !self.clients.contains_key(&host) {
            let client = Client {
                tls: self.registries.trust(&host, self.environment)?.config()?,
                server_name: None,
                proxies: Proxies::of(self.environment),
                timeouts: Timeouts::default(),
            };
            self.clients.insert(host.clone(), client);
        }
        self.clients.get(&host).ok_or_else(|| PullError::Unusable("no client".into()))
    }

    /// Answers a challenge: with name and password, or with a token got for them.
    pub(super) async fn authorize(&mut self, headers: &HeaderMap) -> Result<String, PullError> {
        let auth = self.registries.auth(&self.endpoint.host, self.environment);
        let basic = auth.as_ref().and_then(super::registries::Auth::basic);
        let challenges =
            headers.get_all(header::WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenge = challenges.filter_map(Challenge::parse).next();
        let needs = |what: &str| PullError::Unusable(format!("registry {} {what}", self.endpoint.host));
        let Some(challenge) = challenge else { return Err(needs("asks for credentials in an unknown way")) };
        let Challenge::Bearer { realm, service, scope } = challenge else {
            let credentials = basic.ok_or_else(|| needs("asks for a password and none is configured"))?;
            return Ok(format!("Basic {credentials}"));
        };
        if self.endpoint.scheme == "https" && !realm.starts_with("https://") {
            return Err(needs("wants its password sent elsewhere without TLS"));
        }
        let own = |actions: &str| format!("repository:{}:{actions}", self.endpoint.repository);
        let scope = match self.actions {
            Actions::Pull => scope.unwrap_or_else(|| own("pull")),
            // What is asked for first needs less than what comes after it.
            Actions::Push => own("pull,push"),
        };
        let mut fields = vec![("scope", scope)];
        fields.extend(service.map(|service| ("service", service)));
        let refresh = auth.as_ref().and_then(super::registries::Auth::identity_token).map(str::to_owned);
        let form = |fields: &[(&str, String)]| {
            let pairs = fields.iter().map(|(name, value)| format!("{name}={}", percent_encode(value)));
            pairs.collect::<Vec<_>>().join("&")
        };
        let address = |text: String| {
            let parsed = text.parse::<Uri>();
            parsed.map_err(|_| HttpError::Address { uri: text, reason: "token service is no address" })
        };
        let request = if let Some(token) = refresh {
            fields.extend([
                ("grant_type", "refresh_token".into()),
                ("refresh_token", token),
                ("client_id", "remuda".into()),
            ]);
            let request = Request {
                method: Method::POST,
                body: Bytes::from(form(&fields)),
                ..Request::get(address(realm)?)
            };
            request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        } else {
            let separator = if realm.contains('?') { '&' } else { '?' };
            let request = Request::get(address(format!("{realm}{separator}{}", form(&fields)))?);
            match basic {
                Some(basic) => request.header(header::AUTHORIZATION, &format!("Basic {basic}")),
                None => request,
            }
        };
        let uri = request.uri.clone();
        let response = self.client(&uri)?.send(request).await?;
        let status = response.status;
        if !status.is_success() {
            let what = format!("token from {}", uri.host().unwrap_or_default());
            return Err(PullError::Refused { what, status, message: String::new() });
        }
        let answer: Value =
            serde_json::from_slice(&response.body.read(TOKEN_LIMIT).await?).unwrap_or_default();
        let token = answer.get("token").or_else(|| answer.get("access_token")).and_then(Value::as_str);
        token
            .map(|token| format!("Bearer {token}"))
            .ok_or_else(|| PullError::Unusable("token service sent no token".into()))
    }
}

/// What a registry said instead of doing what it was asked for.
pub(super) async fn refused(response: Response, what: &str) -> PullError {
    let status = response.status;
    let raw = response.body.read(64 << 10).await.unwrap_or_default();
    let answer: Value = serde_json::from_slice(&raw).unwrap_or_default();
    let message = answer.pointer("/errors/0/message").and_then(Value::as_str);
    let message = message.map_or(String::new(), |message| format!(": {message}"));
    PullError::Refused { what: what.to_owned(), status, message }
}

fn parse<T: for<'de> Deserialize<'de>>(value: Value, what: &str) -> Result<T, PullError> {
    serde_json::from_value(value).map_err(|error| PullError::Unusable(format!("{what}: {error}")))
}

/// This machine's architecture as registries name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// How a registry wants to be convinced.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

impl Challenge {
    fn parse(text: &str) -> Option<Self> {
        let (scheme, mut rest) = text.split_once(' ').unwrap_or((text, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut fields = HashMap::new();
        while let Some((name, tail)) = rest.split_once('=') {
            let (value, tail) = match tail.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => tail.split_once(',').unwrap_or((tail, "")),
            };
            fields.insert(name.trim_matches([',', ' ']).to_ascii_lowercase(), value.to_owned());
            rest = tail;
        }
        let realm = fields.remove("realm")?;
        Some(Self::Bearer { realm, service: fields.remove("service"), scope: fields.remove("scope") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_taken_apart() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| Challenge::Bearer {
            realm: realm.into(),
            service: service.map(Into::into),
            scope: scope.map(Into::into),
        };
        for (text, expected) in [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://a/t\",service=\"s\",scope=\"repository:a/b:pull,push\"",
                Some(bearer("https://a/t", Some("s"), Some("repository:a/b:pull,push"))),
            ),
            ("bearer realm=https://a/t, service=s", Some(bearer("https://a/t", Some("s"), None))),
            ("Bearer service=\"s\"", None),
            ("Bearer realm=\"unterminated", None),
            ("Negotiate", None),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(text), expected, "{text}");
        }
    }
}
