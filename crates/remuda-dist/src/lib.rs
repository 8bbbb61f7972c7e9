//! Makes what people install.
//!
//! `cargo xtask dist` builds the program for every platform it can and hands it to [`assemble`], which writes
//!
//! | file | is |
//! |---|---|
//! | `remuda-<version>-linux-<arch>[-static]` | the program, stripped; `remuda assets add` takes it, too |
//! | `remuda_<version>_<arch>.deb` | the Debian package, with a service of its own user (`deb`) |
//! | `remuda-<version>-image-linux-<arch>.tar` | the image of the server, as `docker load` and containerd read it |
//! | `remuda-<version>.tgz` | the Helm chart (`chart`) |
//! | `remuda-<version>-pages.tar.gz` | manual pages and completions (`pages`) |
//! | `remuda-<version>-<target>.cdx.json` | what the program is made of (`sbom`) |
//! | `SHA256SUMS`, `manifest.json`, `manifest.json.sig` | what proves that all of it is whole (`manifest`) |
//!
//! The same program makes the same files, wherever and whenever.

mod ar;
mod build;
pub mod chart;
mod deb;
mod manifest;
mod pages;
mod program;
mod sbom;
mod targets;
mod tree;

use std::{
    fs,
    io::BufWriter,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};
use flate2::Compression;
use remuda_oci::{Architecture, Image, Reference, agent, archive};
use serde_json::{Value, json};

pub use self::{
    build::{Built, NotBuilt, all as build_all, stripped},
    manifest::{generate_key, verify},
};
use self::{pages::Pages, program::Program, tree::Tree};

/// What a release is made of.
#[derive(Debug)]
pub struct Release {
    /// The repository.
    pub root: PathBuf,
    pub built: Vec<Built>,
    /// Platforms it is not there for, and why.
    pub not_built: Vec<NotBuilt>,
    /// A directory that is empty or does not exist.
    pub output: PathBuf,
    /// An Ed25519 key in PEM form, if the manifest is to be signed.
    pub sign_key: Option<PathBuf>,
    pub maintainer: String,
    /// When everything was made, as far as it says: seconds since 1970.
    pub time: u64,
    pub commit: Option<String>,
    /// Larger packages, sooner.
    pub fast: bool,
}

/// Writes all files of a release and returns their names.
pub fn assemble(release: &Release) -> anyhow::Result<Vec<String>> {
    let output = &release.output;
    fs::create_dir_all(output).with_context(|| format!("create {}", output.display()))?;
    let is_empty =
        fs::read_dir(output).with_context(|| format!("read {}", output.display()))?.next().is_none();
    ensure!(is_empty, "{} is not empty: name a new directory with --output", output.display());

    let programs: Vec<Program> =
        release.built.iter().map(|built| Program::look(&built.program)).collect::<Result<_, _>>()?;
    let own = programs.iter().find(|program| Some(program.architecture) == Architecture::own());
    let own = own.context("none of the programs runs on this host, which has to ask one of them")?;
    let version = own.version.clone();
    if let Some(other) = programs.iter().find(|program| program.version != version) {
        bail!("{} has version {}, others {version}", other.path.display(), other.version);
    }
    let said = pages::ask(&own.path, &["version", "-o", "json"])?;
    let said: Value = serde_json::from_slice(&said).context("read what the program says about itself")?;
    let data_format = said["dataFormat"].as_u64().context("the program does not name its data format")?;
    let pages = Pages::of(&own.path)?;
    let read = |name: &str| {
        let path = release.root.join(name);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    };
    let (licence, changelog) = (read("LICENSE")?, read("CHANGELOG.md")?);
    let about = deb::About {
        maintainer: &release.maintainer,
        changelog: &changelog,
        licence: &licence,
        data_format,
        time: release.time,
        level: if release.fast { Compression::fast() } else { Compression::best() },
    };

    let mut missing = release.not_built.clone();
    for (program, built) in programs.iter().zip(&release.built) {
        let name = format!("remuda-{version}-{}", program.platform());
        put(output, &name, &program.read()?)?;
        make_executable(&output.join(&name))?;
        let list = sbom::list(&release.root, &built.target)?;
        put(
            output,
            &format!("remuda-{version}-{}.cdx.json", built.target),
            format!("{list:#}\n").as_bytes(),
        )?;
    }
    for program in best(&programs) {
        let debian = deb::architecture(program.architecture);
        let package = deb::package(program, &pages, &about)?;
        put(output, &format!("remuda_{}_{debian}.deb", deb::debian_version(&version)), &package)?;
        missing.extend(image(output, program)?);
    }
    put(output, &format!("remuda-{version}.tgz"), &chart::package(&version, release.time)?)?;
    put(output, &format!("remuda-{version}-pages.tar.gz"), &packed(&pages, release.time)?)?;

    let targets: Vec<Value> = release
        .built
        .iter()
        .zip(&programs)
        .map(|(built, program)| {
            let architecture = program.architecture.name();
            json!({"target": built.target, "architecture": architecture, "static": program.is_static})
        })
        .collect();
    let missing: Vec<Value> =
        missing.iter().map(|missing| json!({"target": missing.target, "reason": missing.reason})).collect();
    let about = json!({
        "name": "remuda",
        "version": version,
        "commit": release.commit,
        "dataFormat": data_format,
        "built": targets,
        "notBuilt": missing,
    });
    manifest::write(output, about, release.sign_key.as_deref())?;
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(output).with_context(|| format!("read {}", output.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// One program for each architecture: a package of a static one is installed anywhere, but one that is linked with the
/// system's libraries gets their updates.
fn best(programs: &[Program]) -> Vec<&Program> {
    let of = |architecture: &Architecture| {
        let mut all = programs.iter().filter(move |program| program.architecture == *architecture);
        let first = all.next()?;
        Some(if first.is_static { all.find(|program| !program.is_static).unwrap_or(first) } else { first })
    };
    Architecture::ALL.iter().filter_map(of).collect()
}

/// The image of a server: that of the cluster agent, which is the same program, asked to be something else.
fn image(output: &Path, program: &Program) -> anyhow::Result<Option<NotBuilt>> {
    let name = format!("remuda-{}-image-linux-{}.tar", program.version, program.architecture);
    let mut parts = match agent::parts(&program.build) {
        Ok(parts) => parts,
        // An image needs the libraries of its architecture, which only a host of that architecture has.
        Err(error @ agent::AgentImageError::NotStatic { .. }) => {
            return Ok(Some(NotBuilt { target: name, reason: error.to_string() }));
        }
        Err(error) => return Err(error.into()),
    };
    parts.command = vec!["server".to_owned()];
    parts.labels.insert("org.opencontainers.image.title".to_owned(), "Remuda".to_owned());
    let scratch = tempfile::tempdir().context("create a directory for layers")?;
    let image = Image::build(scratch.path(), &parts)?;
    let reference = Reference::parse(&format!("localhost/remuda:{}", program.version.replace('+', "_")))?;
    let path = output.join(name);
    let written =
        fs::File::create_new(&path).and_then(|file| archive::write(&image, &reference, BufWriter::new(file)));
    written.with_context(|| format!("write {}", path.display()))?;
    Ok(None)
}

fn packed(pages: &Pages, time: u64) -> anyhow::Result<Vec<u8>> {
    let mut tree = Tree::default();
    for (name, content) in &pages.manual {
        tree.add(format!("man/man1/{name}"), content.as_slice());
    }
    for (shell, content) in &pages.completions {
        tree.add(format!("completions/remuda.{shell}"), content.as_slice());
    }
    tree.packed(time, Compression::best()).context("write manual pages and completions")
}

fn put(directory: &Path, name: &str, content: &[u8]) -> anyhow::Result<()> {
    let path = directory.join(name);
    fs::write(&path, content).with_context(|| format!("write {}", path.display()))
}

fn make_executable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(path, mode).with_context(|| format!("make {} executable", path.display()))
}
