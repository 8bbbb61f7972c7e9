//! What machines need before they are registered: certificates, scripts, the agent itself.

use std::{
    collections::HashMap,
    fs::Metadata,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use aws_lc_rs::{digest, hmac};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures::TryStreamExt;
use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts};
use http_body::Frame;
use http_body_util::StreamBody;
use parking_lot::Mutex;
use remuda_install::{LinuxScript, WindowsScript, cacerts_body, uninstall_script};
use remuda_names::{
    gateway::{header as ours, path},
    rancher::setting,
};
use remuda_oci::{Architecture, Format, Reference, agent::AgentImageError, executable};
use serde_json::json;
use tokio::{io::AsyncReadExt, time::timeout};
use tokio_util::io::ReaderStream;

use crate::{
    gateway::Shared,
    images::{Images, ImagesError},
    programs::{ProgramOptions, Programs},
    respond::{Body, Refusal, answer, json, text},
};

/// Files of the agent have this name and an architecture behind it.
const AGENT: &str = "rancher-system-agent-";
/// The agent for Windows, as the script asks for it.
const WINDOWS_AGENT: &str = "wins.exe";
/// What a script is: text that nobody should show as anything else.
const SCRIPT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// Reading an executable takes no longer.
const READ: Duration = Duration::from_secs(60);

/// What a server has for machines of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// The program that runs.
    Own,
    /// A program that was added. Images are made of static ones only.
    Added {
        is_static: bool,
    },
    Missing,
}

/// The agent's executables, and what is known of them.
pub(crate) struct Assets {
    binary: PathBuf,
    programs: Option<Programs>,
    images: Option<Images>,
    checksums: Mutex<HashMap<PathBuf, (FileVersion, Arc<str>)>>,
}

/// Changes when the file does.
type FileVersion = (u64, Option<SystemTime>);

fn version(metadata: &Metadata) -> FileVersion {
    (metadata.len(), metadata.modified().ok())
}

impl Assets {
    pub(crate) fn new(binary: PathBuf, programs: Option<ProgramOptions>) -> Self {
        let images = programs.as_ref().map(|programs| Images::new(programs.images.clone()));
        Self { binary, programs: programs.map(Programs::new), images, checksums: Mutex::default() }
    }

    /// The door of programs.
    pub(crate) async fn programs(
        &self,
        method: &Method,
        query: Option<&str>,
        body: Body,
    ) -> Result<Response<Body>, Refusal> {
        match &self.programs {
            Some(programs) => programs.handle(method, query, body).await,
            None => Err(Refusal::not_found()),
        }
    }

    /// The agent for these machines, or what to do about it.
    fn agent(&self, format: Format, architecture: Architecture) -> Result<PathBuf, Refusal> {
        if format == Format::Linux && Some(architecture) == Architecture::own() {
            return Ok(self.binary.clone());
        }
        let found = self.programs.as_ref().and_then(|programs| programs.find(format, architecture));
        found.ok_or_else(|| {
            Refusal::new(
                StatusCode::NOT_FOUND,
                format!(
                    "this server has no agent for {format}/{architecture}; give it one with `remuda assets add FILE`, \
                     a build of Remuda for that platform, or give machines one with CATTLE_AGENT_BINARY_URL"
                ),
            )
        })
    }

    /// What there is for these machines.
    pub(crate) fn available(&self, format: Format, architecture: Architecture) -> Agent {
        if format == Format::Linux && Some(architecture) == Architecture::own() {
            return Agent::Own;
        }
        let Ok(path) = self.agent(format, architecture) else { return Agent::Missing };
        let read = std::fs::File::open(path).ok().and_then(|mut file| executable::read(&mut file).ok());
        match read {
            Some(executable) => Agent::Added { is_static: executable.is_static() },
            None => Agent::Missing,
        }
    }

    /// The image of the cluster agent for these machines: its archive and the SHA-256 of that.
    pub(crate) async fn image(
        &self,
        architecture: Architecture,
        name: &Reference,
    ) -> Result<(PathBuf, Arc<str>), Refusal> {
        let program = self.agent(Format::Linux, architecture)?;
        let images = self.images.as_ref().ok_or_else(Refusal::not_found)?;
        images.of(&program, architecture, name).await.map_err(|error| match error {
            ImagesError::Agent(error @ AgentImageError::NotStatic { .. }) => {
                tracing::warn!(error = %remuda_base::Chain(&error), "no image of the cluster agent can be made");
                let message = format!(
                    "the agent for linux/{architecture} that this server was given needs libraries of that platform; \
                     give it a static build (musl) with `remuda assets add FILE`"
                );
                Refusal::new(StatusCode::NOT_FOUND, message)
            }
            error => Refusal::failed("making the image of the cluster agent", &error),
        })
    }

    /// A file of the server, piece by piece.
    pub(crate) async fn file(&self, path: &Path, method: &Method) -> Result<Response<Body>, Refusal> {
        let (file, metadata) = self.open(path).await?;
        Ok(streamed(file, metadata.len(), method))
    }

    async fn open(&self, path: &Path) -> Result<(tokio::fs::File, Metadata), Refusal> {
        let failed = |error: std::io::Error| Refusal::failed("reading the agent", &error);
        let file = tokio::fs::File::open(path).await.map_err(failed)?;
        let metadata = file.metadata().await.map_err(failed)?;
        Ok((file, metadata))
    }

    /// Read once and kept until the file is another.
    async fn checksum(&self, path: &Path) -> Result<Arc<str>, Refusal> {
        let (mut file, metadata) = self.open(path).await?;
        let version = version(&metadata);
        if let Some((known, checksum)) = self.checksums.lock().get(path)
            && *known == version
        {
            return Ok(checksum.clone());
        }
        let reading = async {
            let mut context = digest::Context::new(&digest::SHA256);
            let mut piece = vec![0; 1 << 18];
            loop {
                match file.read(&mut piece).await? {
                    0 => return Ok::<_, std::io::Error>(context.finish()),
                    length => context.update(&piece[..length]),
                }
            }
        };
        let read = timeout(READ, reading).await;
        let read = read.map_err(|_| Refusal::not_yet("reading the agent takes too long"))?;
        let digest = read.map_err(|error| Refusal::failed("reading the agent", &error))?;
        let text = remuda_base::hex(digest);
        let checksum: Arc<str> = text.into();
        self.checksums.lock().insert(path.to_owned(), (version, checksum.clone()));
        Ok(checksum)
    }
}

pub(crate) async fn handle(shared: &Shared, head: &Parts) -> Result<Response<Body>, Refusal> {
    match head.uri.path() {
        // Clients wait for this word and then expect that everything is there.
        path::PING if !shared.clusters.is_synced() => {
            Err(Refusal::not_yet("this server has just started and is not ready yet").after(1))
        }
        path::PING => {
            ready(shared)?;
            Ok(text(StatusCode::OK, "pong"))
        }
        path::CACERTS => cacerts(shared, head).await,
        path::CACERTS_SETTING => {
            ready(shared)?;
            let value = shared.settings.get(setting::CACERTS);
            // Agents print the value with a newline behind it and compare the checksum of that.
            let value = value.trim_end_matches('\n');
            Ok(json(
                &json!({"id": setting::CACERTS, "type": "setting", "name": setting::CACERTS, "value": value}),
            ))
        }
        path::INSTALL_SCRIPT => {
            ready(shared)?;
            let server = shared.settings.server(&head.headers, head.uri.authority());
            let (checksum, strict) = (server.ca_checksum(), server.strict);
            let script = LinuxScript {
                server_url: &server.url,
                ca_checksum: checksum.as_deref(),
                token: None,
                env: &[],
                strict,
            };
            Ok(answer(StatusCode::OK, SCRIPT, script.render()))
        }
        path::WINDOWS_SCRIPT => {
            ready(shared)?;
            let server = shared.settings.server(&head.headers, head.uri.authority());
            let (checksum, strict) = (server.ca_checksum(), server.strict);
            let script = WindowsScript {
                server_url: &server.url,
                ca_checksum: checksum.as_deref(),
                strict,
                ..WindowsScript::default()
            };
            Ok(answer(StatusCode::OK, SCRIPT, script.render()))
        }
        path::UNINSTALL_SCRIPT => Ok(answer(StatusCode::OK, SCRIPT, uninstall_script())),
        other => match other.strip_prefix(path::ASSETS) {
            Some(name) => asset(shared, head, name).await,
            None => Err(Refusal::new(StatusCode::NOT_FOUND, "there is nothing here")),
        },
    }
}

/// A script without an address, or without certificates to pin, would be worse than none.
fn ready(shared: &Shared) -> Result<(), Refusal> {
    if shared.settings.is_synced() {
        return Ok(());
    }
    Err(Refusal::not_yet("this server has just started and is not ready yet"))
}

/// The certificates, and a proof for those who know a registration token: whoever pretends to be this server
/// does not.
async fn cacerts(shared: &Shared, head: &Parts) -> Result<Response<Body>, Refusal> {
    ready(shared)?;
    let server = shared.settings.server(&head.headers, head.uri.authority());
    let body = cacerts_body(&server.ca).into_owned();
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = header(header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    let mut proof = None;
    if let (Some(nonce), Some(shown)) = (header(ours::NONCE), bearer)
        && let Some(token) = shared.tokens.with_digest(shown, shared.ctx.clock.now()).await?
    {
        let key = hmac::Key::new(hmac::HMAC_SHA512, &token);
        let mut context = hmac::Context::with_key(&key);
        for part in [nonce.as_bytes(), &[0], body.as_bytes(), &[0]] {
            context.update(part);
        }
        proof = HeaderValue::try_from(BASE64_STANDARD.encode(context.sign())).ok();
    }
    let mut response = text(StatusCode::OK, body);
    if let Some(proof) = proof {
        response.headers_mut().insert(ours::HASH, proof);
    }
    Ok(response)
}

async fn asset(shared: &Shared, head: &Parts, name: &str) -> Result<Response<Body>, Refusal> {
    if name == "system-agent-uninstall.sh" {
        return Ok(answer(StatusCode::OK, SCRIPT, uninstall_script()));
    }
    if name == "system-agent-install.sh" {
        return Err(Refusal::new(StatusCode::NOT_FOUND, "the install script is at /system-agent-install.sh"));
    }
    let missing = || Refusal::new(StatusCode::NOT_FOUND, "this server has no such file");
    let (wanted, sum) = match name.strip_suffix(".sha256") {
        Some(wanted) => (wanted, true),
        None => (name, false),
    };
    let (format, architecture) = if wanted == WINDOWS_AGENT {
        (Format::Windows, Architecture::Amd64)
    } else {
        let wanted = wanted.strip_prefix(AGENT).and_then(Architecture::named);
        (Format::Linux, wanted.ok_or_else(missing)?)
    };
    let path = shared.assets.agent(format, architecture)?;
    if sum {
        let checksum = shared.assets.checksum(&path).await?;
        return Ok(text(StatusCode::OK, format!("{checksum}  {wanted}\n")));
    }
    shared.assets.file(&path, &head.method).await
}

/// A file, piece by piece.
fn streamed(file: tokio::fs::File, length: u64, method: &Method) -> Response<Body> {
    let body = if *method == Method::HEAD {
        Body::empty()
    } else {
        let pieces = ReaderStream::with_capacity(file.take(length), 1 << 17);
        Body::boxed(StreamBody::new(pieces.map_ok(Frame::<Bytes>::data)))
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, BINARY);
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    response
}
