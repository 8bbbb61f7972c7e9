//! Programs for machines of other architectures than the server's: kept in a directory, added and listed by
//! administrators, handed out with the other assets.
//!
//! What is added runs as root on machines, so it is somebody's who has the path in a role. What is checked beside that
//! are mistakes: another program, another version, a file that was cut off.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use aws_lc_rs::digest::{Context, SHA256};
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use remuda_auth::request_info::parameter;
use remuda_base::{Chain, hex};
use remuda_oci::{Architecture, Executable, Format, Version, agent::Build};
use serde_json::{Value, json};
use tokio::{fs::File, io::AsyncWriteExt, sync::Semaphore, time::timeout};

use crate::respond::{Body, Refusal, json as answer};

/// No build is larger.
pub(crate) const LARGEST: usize = 1 << 30;
/// Between two pieces of one that is on its way.
const IDLE: Duration = Duration::from_secs(60);
/// The file that is on its way.
const PENDING: &str = ".pending";

/// What a gateway is told about programs it may keep.
#[derive(Debug, Clone)]
pub struct ProgramOptions {
    /// Where they are; made when there is one.
    pub directory: PathBuf,
    /// Where images made of programs are kept.
    pub images: PathBuf,
    /// Version of this server.
    pub version: String,
}

/// The programs of other architectures.
pub(crate) struct Programs {
    directory: PathBuf,
    version: Option<Version>,
    /// One is added at a time: what several send would fill the disk.
    adding: Semaphore,
}

/// What a program is for: the name of its file.
fn place(format: Format, architecture: Architecture) -> String {
    format!("{format}-{architecture}")
}

impl Programs {
    pub(crate) fn new(options: ProgramOptions) -> Self {
        let version = options.version.parse().ok();
        Self { directory: options.directory, version, adding: Semaphore::new(1) }
    }

    /// The program for these machines, if there is one.
    pub(crate) fn find(&self, format: Format, architecture: Architecture) -> Option<PathBuf> {
        Some(self.directory.join(place(format, architecture))).filter(|path| path.is_file())
    }

    pub(crate) async fn handle(
        &self,
        method: &Method,
        query: Option<&str>,
        body: Body,
    ) -> Result<Response<Body>, Refusal> {
        if *method == Method::GET {
            return self.list().await;
        }
        let Ok(_turn) = self.adding.try_acquire() else {
            return Err(
                Refusal::new(StatusCode::CONFLICT, "another program is being added; try again").after(5)
            );
        };
        let wanted = query.and_then(|query| parameter(query, "sha256")).map(|sum| sum.to_ascii_lowercase());
        let pending = self.directory.join(PENDING);
        let added = self.receive(&pending, body, wanted.as_deref()).await;
        let _ = tokio::fs::remove_file(&pending).await;
        added.map(|build| answer(&shown(&build)))
    }

    async fn receive(&self, pending: &Path, body: Body, wanted: Option<&str>) -> Result<Build, Refusal> {
        let failed = |error: std::io::Error| Refusal::failed("keeping the program", &error);
        fs::create_dir_all(&self.directory).map_err(failed)?;
        let found = write(pending, body).await?;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
            return Err(Refusal::bad(format!("the file has the SHA-256 {found}, expected is {wanted}")));
        }
        let path = pending.to_owned();
        let looked = tokio::task::spawn_blocking(move || Build::look(&path)).await;
        let looked = looked.map_err(|error| Refusal::failed("looking at the program", &error))?;
        // What people are told names no file of the server.
        let build = looked.map_err(|error| refused(&error))?;
        self.check(&build)?;
        let Executable { format, architecture, .. } = build.executable;
        let path = self.directory.join(place(format, architecture));
        fs::set_permissions(pending, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        fs::rename(pending, &path).map_err(failed)?;
        let sync = fs::File::open(&self.directory).and_then(|directory| directory.sync_all());
        sync.map_err(failed)?;
        tracing::info!(%format, %architecture, version = %build.version, sha256 = build.digest.hex(), "program added");
        Ok(build)
    }

    fn check(&self, build: &Build) -> Result<(), Refusal> {
        let Executable { format, architecture, .. } = build.executable;
        if format == Format::Linux && Some(architecture) == Architecture::own() {
            return Err(Refusal::bad(format!(
                "this server runs on linux/{architecture} and hands out itself; nothing has to be added for it"
            )));
        }
        if format == Format::Windows && architecture != Architecture::Amd64 {
            return Err(Refusal::bad(format!("there are no machines with windows/{architecture}")));
        }
        match &self.version {
            Some(own) if !build.version.is_near(own) => Err(Refusal::bad(format!(
                "the file is Remuda {}, and this server is {own}: they may be one minor version apart",
                build.version
            ))),
            _ => Ok(()),
        }
    }

    async fn list(&self) -> Result<Response<Body>, Refusal> {
        let directory = self.directory.clone();
        let listing = move || {
            let mut items = Vec::new();
            for format in [Format::Linux, Format::Windows] {
                for architecture in Architecture::ALL {
                    let path = directory.join(place(format, architecture));
                    match path.is_file().then(|| Build::look(&path)) {
                        Some(Ok(build)) => items.push(shown(&build)),
                        Some(Err(error)) => {
                            tracing::warn!(path = %path.display(), error = %Chain(&error), "a program cannot be used");
                        }
                        None => {}
                    }
                }
            }
            items
        };
        let items = tokio::task::spawn_blocking(listing).await;
        let items = items.map_err(|error| Refusal::failed("listing programs", &error))?;
        let own = Architecture::own().map_or_else(String::new, |own| place(Format::Linux, own));
        Ok(answer(&json!({"own": own, "items": items})))
    }
}

fn shown(build: &Build) -> Value {
    let Executable { format, architecture, .. } = build.executable;
    json!({
        "os": format.to_string(),
        "architecture": architecture.name(),
        "version": build.version.to_string(),
        "size": build.size,
        "sha256": build.digest.hex(),
        "static": build.executable.is_static(),
    })
}

fn refused(error: &remuda_oci::agent::AgentImageError) -> Refusal {
    use remuda_oci::agent::AgentImageError as E;
    match error {
        E::Executable { source, .. } => Refusal::bad(format!("the file is {source}")),
        E::Foreign(_) => Refusal::bad("the file is not a build of Remuda"),
        other => Refusal::failed("looking at the program", other),
    }
}

/// Writes a body to a file and answers with its digest.
async fn write(path: &Path, mut body: Body) -> Result<String, Refusal> {
    let failed = |error: std::io::Error| Refusal::failed("keeping the program", &error);
    let mut file = File::create(path).await.map_err(failed)?;
    let mut context = Context::new(&SHA256);
    loop {
        let frame = timeout(IDLE, body.frame()).await;
        let frame = frame.map_err(|_| Refusal::bad("the file did not arrive in time"))?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| Refusal::bad("the file is too large, or its connection broke off"))?;
        if let Ok(data) = frame.into_data() {
            context.update(&data);
            file.write_all(&data).await.map_err(failed)?;
        }
    }
    file.sync_all().await.map_err(failed)?;
    Ok(hex(context.finish()))
}
