//! Images preloaded as tarballs, as `docker save` writes them.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use remuda_oci::Reference;
use serde::Deserialize;
use tar::Archive;

use super::{
    ImageError,
    extract::{ExtractError, Unpacker, decompress},
};

const MANIFEST_LIMIT: u64 = 8 << 20;
const FILES: usize = 10_000;
const DEPTH: usize = 16;
const SUFFIXES: &[&str] = &[".tar", ".tar.lz4", ".tar.bz2", ".tbz", ".tar.gz", ".tgz", ".tar.zst", ".tzst"];

/// An image in a tarball.
#[derive(Debug)]
pub struct Found {
    /// The tarball.
    pub path: PathBuf,
    layers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Manifest {
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Vec<String>,
}

/// Looks for a tarball that carries the tag. Files that are no such tarball are passed over.
pub fn find(directory: &Path, reference: &Reference) -> Result<Option<Found>, ImageError> {
    for path in tarballs(directory) {
        let manifests = match manifests(&path) {
            Ok(manifests) => manifests,
            Err(error) => {
                tracing::warn!(path = %path.display(), error = %crate::Chain(&error), "image tarball cannot be read");
                continue;
            }
        };
        let carries = |manifest: &Manifest| {
            let tags = manifest.repo_tags.iter().flatten();
            tags.filter_map(|tag| Reference::parse(tag).ok()).any(|tag| tag.same_tag(reference))
        };
        if let Some(manifest) = manifests.into_iter().find(carries) {
            return Ok(Some(Found { path, layers: manifest.layers }));
        }
    }
    Ok(None)
}

fn tarballs(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![(directory.to_owned(), 0)];
    while let Some((directory, depth)) = pending.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten().take(FILES) {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().to_ascii_lowercase();
            if name.starts_with('.') {
                continue;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if depth < DEPTH {
                    pending.push((path, depth + 1));
                }
            } else if SUFFIXES.iter().any(|suffix| name.ends_with(suffix)) && found.len() < FILES {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

impl Found {
    /// Unpacks the image's layers. Each is looked up in the tarball anew: they come in any order.
    pub fn unpack(&self, destination: &Path) -> Result<(), ImageError> {
        let mut unpacker = Unpacker::new(destination)?;
        for layer in &self.layers {
            let what = format!("{layer} of {}", self.path.display());
            let mut result = None;
            with_entry(&self.path, layer, &mut |entry| {
                result = Some(decompress(entry, &what).and_then(|stream| unpacker.layer(stream)));
            })?;
            result.unwrap_or_else(|| {
                let source = io::Error::new(io::ErrorKind::NotFound, "layer is missing");
                Err(ExtractError::Read { what: what.clone(), source })
            })?;
        }
        Ok(())
    }
}

fn manifests(path: &Path) -> Result<Vec<Manifest>, ExtractError> {
    let mut raw = Vec::new();
    let mut read = Ok(0);
    with_entry(path, "manifest.json", &mut |entry| read = entry.take(MANIFEST_LIMIT).read_to_end(&mut raw))?;
    let broken = |source| ExtractError::Read { what: path.display().to_string(), source };
    read.map_err(broken)?;
    if raw.is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&raw).map_err(|error| broken(io::Error::other(error)))
}

/// Calls `use_entry` with an entry of the tarball, if it is there.
fn with_entry(path: &Path, name: &str, use_entry: &mut dyn FnMut(&mut dyn Read)) -> Result<(), ExtractError> {
    let broken = |source| ExtractError::Read { what: path.display().to_string(), source };
    let lower = path.to_string_lossy().to_ascii_lowercase();
    if lower.ends_with(".tar") {
        // Not compressed: what is not needed is skipped without being read.
        let mut archive = Archive::new(File::open(path).map_err(broken)?);
        return search(archive.entries_with_seek().map_err(broken)?, name, use_entry).map_err(broken);
    }
    let external = if lower.ends_with(".lz4") {
        Some("lz4")
    } else if lower.ends_with(".bz2") || lower.ends_with(".tbz") {
        Some("bzip2")
    } else {
        None
    };
    let Some(program) = external else {
        let file = BufReader::new(File::open(path).map_err(broken)?);
        let mut archive = Archive::new(decompress(file, &path.display().to_string())?);
        return search(archive.entries().map_err(broken)?, name, use_entry).map_err(broken);
    };
    let spawned =
        Command::new(program).arg("-dc").arg(path).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let missing = |_| ExtractError::Compression { what: path.display().to_string(), kind: program };
    let mut child = spawned.map_err(missing)?;
    let result = match child.stdout.take() {
        Some(stdout) => {
            let mut archive = Archive::new(stdout);
            archive.entries().and_then(|entries| search(entries, name, use_entry)).map_err(broken)
        }
        None => Ok(()),
    };
    let _ = child.kill();
    let _ = child.wait();
    result
}

fn search<R: Read>(
    entries: tar::Entries<'_, R>,
    name: &str,
    use_entry: &mut dyn FnMut(&mut dyn Read),
) -> io::Result<()> {
    for entry in entries {
        let mut entry = entry?;
        let path = entry.path_bytes();
        if path.strip_prefix(b"./").unwrap_or(&path) == name.as_bytes() {
            drop(path);
            use_entry(&mut entry);
            return Ok(());
        }
    }
    Ok(())
}
