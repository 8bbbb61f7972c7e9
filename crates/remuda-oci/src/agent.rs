//! What is in the image of the cluster agent: this program, what it needs to run, and next to nothing else.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::{
    digest::{Digest, sha256_of},
    executable::{self, Architecture, Executable, ExecutableError, Format},
    image::{Image, ImageError, Parts},
    layer::{Entry, What},
    libraries::{self, LibraryError},
    mark::{Search, Version},
};

/// Where the program is in the image.
pub const PROGRAM: &str = "/usr/bin/remuda";
/// What it is asked to be when nothing else is said.
const COMMAND: &str = "cluster-agent";
/// Authorities of the host, for servers whose certificate is from one of them, and where programs look for them.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
const AUTHORITIES_INSIDE: &str = "etc/ssl/certs/ca-certificates.crt";

#[derive(Debug, thiserror::Error)]
pub enum AgentImageError {
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}", path.display())]
    Executable { path: PathBuf, source: ExecutableError },
    #[error("{} is not a build of Remuda", .0.display())]
    Foreign(PathBuf),
    #[error("{} is for {format}; images of the cluster agent are for linux", path.display())]
    Format { path: PathBuf, format: Format },
    #[error(
        "{} is for {architecture} and needs libraries this host does not have; \
         use a static build (musl), or run the command on a host of that architecture",
        path.display()
    )]
    NotStatic { path: PathBuf, architecture: Architecture },
    #[error("the libraries of {}", path.display())]
    Libraries { path: PathBuf, source: LibraryError },
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// A build of this program, looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    pub path: PathBuf,
    pub executable: Executable,
    pub version: Version,
    pub digest: Digest,
    pub size: u64,
}

impl Build {
    /// Reads all of a file once or twice, and nothing of it stays in memory.
    pub fn look(path: &Path) -> Result<Build, AgentImageError> {
        let read = |source| AgentImageError::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(read)?;
        let executable = executable::read(&mut file)
            .map_err(|source| AgentImageError::Executable { path: path.to_owned(), source })?;
        let file = File::open(path).map_err(read)?;
        let version = Search::whole(file).map_err(read)?;
        let version = version.ok_or_else(|| AgentImageError::Foreign(path.to_owned()))?;
        let (digest, size) = sha256_of(path).map_err(read)?;
        Ok(Build { path: path.to_owned(), executable, version, digest, size })
    }
}

/// What the image of a build is made of. Libraries and authorities are those of this host.
pub fn parts(build: &Build) -> Result<Parts, AgentImageError> {
    let Build { path, executable, version, .. } = build;
    let Executable { format, architecture, .. } = executable;
    if *format != Format::Linux {
        return Err(AgentImageError::Format { path: path.clone(), format: *format });
    }
    if !executable.is_static() && Architecture::own() != Some(*architecture) {
        return Err(AgentImageError::NotStatic { path: path.clone(), architecture: *architecture });
    }
    let libraries = libraries::of(executable, path)
        .map_err(|source| AgentImageError::Libraries { path: path.clone(), source })?;
    let mut system = system();
    for (inside, real) in libraries {
        let inside = inside.to_string_lossy().trim_start_matches('/').to_owned();
        system.insert(inside, Entry { mode: 0o755, what: What::File(real) });
    }
    let program = Entry { mode: 0o755, what: What::File(path.clone()) };
    let program = BTreeMap::from([(PROGRAM.trim_start_matches('/').to_owned(), program)]);
    let label = |name: &str, value: &str| (format!("org.opencontainers.image.{name}"), value.to_owned());
    Ok(Parts {
        architecture: *architecture,
        layers: vec![system, program],
        entrypoint: vec![PROGRAM.to_owned()],
        command: vec![COMMAND.to_owned()],
        env: vec!["PATH=/usr/bin:/bin".to_owned()],
        labels: [label("title", "Remuda cluster agent"), label("version", &version.to_string())].into(),
    })
}

/// Makes the image of a build; layers go into `directory`.
pub fn build(directory: &Path, build: &Build) -> Result<Image, AgentImageError> {
    Ok(Image::build(directory, &parts(build)?)?)
}

/// A digest of everything the image is made of: known without making it.
pub fn key(build: &Build) -> Result<Digest, AgentImageError> {
    let parts = parts(build)?;
    let mut text = format!("{} {:?} {:?}", build.digest, parts.architecture, parts.labels);
    for (path, entry) in parts.layers.iter().flatten() {
        text.push_str(&format!("\n{path} {:o} ", entry.mode));
        match &entry.what {
            What::Directory => {}
            What::Text(content) => text.push_str(content),
            What::File(source) if *source == build.path => {}
            What::File(source) => {
                let read = |error| AgentImageError::Read { path: source.clone(), source: error };
                text.push_str(&sha256_of(source).map_err(read)?.0.to_string());
            }
        }
    }
    Ok(Digest::of(text.as_bytes()))
}

/// What every program expects to be there.
fn system() -> BTreeMap<String, Entry> {
    let text = |text: &str| Entry { mode: 0o644, what: What::Text(text.to_owned()) };
    let directory = |mode| Entry { mode, what: What::Directory };
    let mut system = BTreeMap::from([
        ("etc/group".to_owned(), text("root:x:0:\nnobody:x:65534:\n")),
        ("etc/nsswitch.conf".to_owned(), text("hosts: files dns\n")),
        (
            "etc/passwd".to_owned(),
            text("root:x:0:0:root:/root:/\nnobody:x:65534:65534:nobody:/nonexistent:/\n"),
        ),
        ("root".to_owned(), directory(0o700)),
        ("tmp".to_owned(), directory(0o1777)),
    ]);
    let authorities = AUTHORITIES.iter().map(Path::new).find_map(|path| fs::canonicalize(path).ok());
    if let Some(path) = authorities.filter(|path| path.is_file()) {
        system.insert(AUTHORITIES_INSIDE.to_owned(), Entry { mode: 0o644, what: What::File(path) });
    }
    system
}

#[cfg(test)]
mod tests;
