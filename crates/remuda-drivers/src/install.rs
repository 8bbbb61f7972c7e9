//! Programs of drivers: downloaded, checked, unpacked and kept.
//!
//! What a URL gave is kept below a directory under a digest of URL and checksum, so it is fetched once. A program
//! named `docker-machine-driver-<name>` is a [`Plugin`](crate::plugin::Plugin), one named `remuda-driver-<name>`
//! an [`Exec`](crate::exec::Exec) driver. Content is foreign: sizes are bounded, nothing in an archive can name a
//! place outside, and only the one program that is looked for is written.

mod zip;

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use aws_lc_rs::digest;
use md5::Digest as _;
use remuda_base::hex;
use remuda_http::{ReadError, keeps_tls, redirected};

use crate::{
    builtin::{Context, Registry},
    driver::Driver,
    error::{Class, Error, Result},
    exec::Exec,
    http::{Connections, transport},
    log::Log,
    plugin::{Image, Launch, Plugin},
};

/// Name of a docker-machine plugin, before the driver's.
pub const PLUGIN: &str = "docker-machine-driver-";
/// Name of a program that is run once per operation, before the driver's.
pub const EXEC: &str = "remuda-driver-";
/// URLs of drivers that need no program.
pub const BUILT_IN: &str = "local://";

/// File with the digest of the program beside it.
const DIGEST: &str = "sha256";

/// Larger downloads and programs are refused.
const LARGEST: u64 = 512 << 20;
/// For the whole download.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// Variables that say where a program may leave files.
const PLACES: [&str; 2] = ["HOME", "TMPDIR"];

/// How a program is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Plugin,
    Exec,
}

/// A driver's program on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The driver's name, by the name of the file.
    pub driver: String,
    pub path: PathBuf,
    pub protocol: Protocol,
    /// sha256 of the program, in hex.
    pub digest: String,
}

impl Program {
    /// Starts the driver. Variables may hold credentials.
    pub async fn open(&self, driver: &str, env: Vec<(String, String)>, log: Log) -> Result<Arc<dyn Driver>> {
        self.open_image(driver, env, None, log).await
    }

    /// As [`Program::open`], where its path may be one that cannot be entered any more.
    pub async fn open_image(
        &self,
        driver: &str,
        env: Vec<(String, String)>,
        image: Option<Image>,
        log: Log,
    ) -> Result<Arc<dyn Driver>> {
        Ok(match self.protocol {
            Protocol::Exec => {
                // It is told everything else on its input.
                let mut env = env;
                env.retain(|(name, _)| PLACES.contains(&name.as_str()));
                Arc::new(Exec::new(driver, &self.path, log).with_image(image).with_environment(env))
            }
            Protocol::Plugin => {
                let mut launch = Launch::new(driver, &self.path);
                launch.env = env;
                launch.image = image;
                Arc::new(Plugin::start(launch, log).await?)
            }
        })
    }
}

/// Where a driver comes from.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Empty or `local://…` for one inside this program or on this machine.
    pub url: &'a str,
    /// May be empty.
    pub checksum: &'a str,
    /// Where downloads are kept.
    pub cache: &'a Path,
}

/// Starts a driver from wherever it is: inside this program, from its URL, or from `PATH`.
pub async fn open(
    driver: &str,
    source: Source<'_>,
    drivers: &Registry,
    env: Vec<(String, String)>,
    context: Context,
) -> Result<Arc<dyn Driver>> {
    if !source.url.is_empty() && !source.url.starts_with(BUILT_IN) {
        return obtain(source).await?.open(driver, env, context.log).await;
    }
    let log = context.log.clone();
    let variable =
        |wanted: &str| env.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let context = context.with_variables(variable);
    if let Some(driver) = drivers.open(driver, context) {
        return Ok(driver);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let Some(mut launch) = Launch::find(driver, &directories) else {
        return Err(Error::other(format!(
            "driver {driver} is not built in, and neither {PLUGIN}{driver} nor a rancher-machine that has it is in \
             PATH"
        )));
    };
    launch.env = env;
    Ok(Arc::new(Plugin::start(launch, log).await?))
}

/// The program behind a URL, downloaded if it was not before.
pub async fn obtain(source: Source<'_>) -> Result<Program> {
    let checksum = Checksum::parse(source.checksum)?;
    let key = hex(
        digest::digest(&digest::SHA256, format!("{}{}", source.url, source.checksum).as_bytes()).as_ref()
    );
    let place = source.cache.join(key);
    if let Some(program) = on_disk({
        let place = place.clone();
        move || Ok(kept(&place))
    })
    .await?
    {
        return Ok(program);
    }
    let content = download(source.url).await?;
    let url = source.url.to_owned();
    on_disk(move || {
        checksum.check(&content)?;
        let (name, program) = find_program(&url, content)?;
        keep(&place, &name, &program)
    })
    .await
}

async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|_| Err(Error::other("unpacking a driver was given up")))
}

async fn download(url: &str) -> Result<Vec<u8>> {
    let get = async {
        let connections = Connections::default();
        let ask =
            async |url: &str| connections.to(url)?.get(url).timeout(PATIENCE).send().await.map_err(transport);
        let mut response = ask(url).await?;
        // The client follows no redirects by itself; where programs are published they are common.
        for _ in 0..10 {
            let next = redirected(&response).map_err(|nowhere| Error::network(nowhere.to_string()))?;
            let Some(next) = next else { break };
            if !keeps_tls(response.url(), &next) {
                return Err(Error::other("it redirects to an address without TLS"));
            }
            response = ask(next.as_str()).await?;
        }
        if !response.status().is_success() {
            return Err(Error::network(format!("the server answered {}", response.status())));
        }
        remuda_http::read(response, LARGEST as usize).await.map_err(|error| match error {
            ReadError::Transport(error) => transport(error),
            ReadError::TooLarge(most) => Error::other(format!("more than {} MiB", most >> 20)),
        })
    };
    get.await.map_err(|error| error.context(&format!("download {url}")))
}

/// A checksum by its length.
enum Checksum {
    None,
    Md5(String),
    Digest(&'static digest::Algorithm, String),
}

impl Checksum {
    fn parse(text: &str) -> Result<Self> {
        let text = text.trim().to_lowercase();
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Error::other("the checksum is not hexadecimal"));
        }
        Ok(match text.len() {
            0 => Self::None,
            32 => Self::Md5(text),
            40 => Self::Digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text),
            64 => Self::Digest(&digest::SHA256, text),
            128 => Self::Digest(&digest::SHA512, text),
            other => {
                return Err(Error::other(format!(
                    "a checksum of {other} digits is none of MD5, SHA-1, SHA-256 and SHA-512"
                )));
            }
        })
    }

    fn check(&self, content: &[u8]) -> Result<()> {
        let (wanted, found) = match self {
            Self::None => return Ok(()),
            Self::Md5(wanted) => (wanted, hex(md5::Md5::digest(content))),
            Self::Digest(algorithm, wanted) => (wanted, hex(digest::digest(algorithm, content))),
        };
        if *wanted == found {
            return Ok(());
        }
        Err(Error::other(format!("the checksum is {found}, expected {wanted}")))
    }
}

/// The driver's name in a file name, if it is that of a program.
pub fn driver_name(file: &str) -> Option<(Protocol, &str)> {
    let (protocol, rest) = match (file.strip_prefix(PLUGIN), file.strip_prefix(EXEC)) {
        (Some(rest), _) => (Protocol::Plugin, rest),
        (None, Some(rest)) => (Protocol::Exec, rest),
        (None, None) => return None,
    };
    let name = rest.split(['-', '_', '.']).next().unwrap_or_default();
    let plain =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    plain.then_some((protocol, name))
}

/// How the program behind a URL is spoken to, if the URL tells.
pub fn protocol_of(url: &str) -> Option<Protocol> {
    driver_name(file_of(url)).map(|(protocol, _)| protocol)
}

fn file_of(url: &str) -> &str {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
}

fn is_program(content: &[u8]) -> Result<bool> {
    if content.starts_with(b"#!") {
        return Ok(true);
    }
    if !content.starts_with(b"\x7fELF") {
        return Ok(false);
    }
    // e_machine of the ELF header; a program for another processor would fail with a riddle.
    let machine = match content.get(18..20) {
        Some(&[low, high]) => u16::from_le_bytes([low, high]),
        _ => 0,
    };
    let ours = match std::env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        "riscv64" => 243,
        "s390x" => 22,
        _ => machine,
    };
    if machine != ours {
        return Err(Error::crash(format!(
            "the program is for another processor (ELF machine {machine}, this is {})",
            std::env::consts::ARCH
        )));
    }
    Ok(true)
}

/// The program in what was downloaded: the download itself, or the one file of a driver's name in an archive.
fn find_program(url: &str, content: Vec<u8>) -> Result<(String, Vec<u8>)> {
    let base = file_of(url).to_owned();
    if content.starts_with(b"\x7fELF") || content.starts_with(b"#!") {
        if driver_name(&base).is_none() {
            return Err(Error::other(format!("{base:?} is not named {PLUGIN}NAME or {EXEC}NAME")));
        }
        is_program(&content)?;
        return Ok((base, content));
    }
    if content.starts_with(b"\xcf\xfa\xed\xfe") {
        return Err(Error::crash("the program is for macOS"));
    }
    let found = if content.starts_with(b"PK\x03\x04") {
        zip::find(&content, LARGEST, |name| driver_name(name).is_some())?
    } else if content.starts_with(&[0x1f, 0x8b]) {
        in_tar(flate2::read::GzDecoder::new(content.as_slice()))?
    } else {
        in_tar(content.as_slice())?
    };
    let Some((name, program)) = found else {
        return Err(Error::other(format!("no program named {PLUGIN}NAME or {EXEC}NAME is in the download")));
    };
    if !is_program(&program)? {
        return Err(Error::other(format!("{name} is not a program for this system")));
    }
    Ok((name, program))
}

fn in_tar(content: impl Read) -> Result<Option<(String, Vec<u8>)>> {
    let failed = |error: std::io::Error| Error::other(format!("unpack: {error}"));
    // What is unpacked is bounded too: a small download may hold a large nothing.
    let mut archive = tar::Archive::new(content.take(2 * LARGEST));
    for entry in archive.entries().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path().map_err(failed)?.into_owned();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !entry.header().entry_type().is_file() || driver_name(&name).is_none() {
            continue;
        }
        let mut program = Vec::new();
        entry.take(LARGEST + 1).read_to_end(&mut program).map_err(failed)?;
        if program.len() as u64 > LARGEST {
            return Err(Error::other("the program is too large"));
        }
        return Ok(Some((name, program)));
    }
    Ok(None)
}

/// Puts a program in place, at once or not at all.
fn keep(place: &Path, name: &str, program: &[u8]) -> Result<Program> {
    let failed = |error: std::io::Error| Error::other(format!("keep {name}: {error}"));
    fs::DirBuilder::new().recursive(true).mode(0o755).create(place).map_err(failed)?;
    let path = place.join(name);
    let temporary = place.join(format!(".{name}.{}", std::process::id()));
    let _ = fs::remove_file(&temporary);
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(&temporary).map_err(failed)?;
    file.write_all(program).and_then(|()| file.sync_all()).map_err(failed)?;
    drop(file);
    let digest = hex(digest::digest(&digest::SHA256, program));
    fs::write(place.join(DIGEST), digest).map_err(failed)?;
    fs::rename(&temporary, &path).map_err(failed)?;
    kept(place).ok_or_else(|| Error::new(Class::Other, format!("{name} is not there after it was written")))
}

fn kept(place: &Path) -> Option<Program> {
    let found = fs::read_dir(place).ok()?.flatten().find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let (protocol, driver) = driver_name(&name)?;
        Some((entry.path(), protocol, driver.to_owned()))
    })?;
    let (path, protocol, driver) = found;
    // Every job asks; programs are large.
    let noted = fs::read_to_string(place.join(DIGEST)).ok().filter(|noted| noted.len() == 64);
    let digest = match noted {
        Some(noted) => noted,
        None => hex(digest::digest(&digest::SHA256, &fs::read(&path).ok()?)),
    };
    Some(Program { driver, path, protocol, digest })
}

#[cfg(test)]
mod tests;
