//! Making a bundle of what is on disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use remuda_oci::Digest;
use tar::{Builder, Header};

use super::{BLOBS, Bundle, BundleError, FORMAT, INDEX, Index};

/// What a bundle is made of.
#[derive(Debug, Clone, Default)]
pub struct Source {
    pub made_by: String,
    /// Digests by the full name of the image.
    pub images: BTreeMap<String, String>,
    pub architectures: BTreeSet<String>,
    /// Files by their digests.
    pub parts: BTreeMap<String, PathBuf>,
}

/// Writes a bundle, which has its name when it is whole, and reads it again. The same parts make the same bytes.
pub fn write(path: &Path, source: &Source) -> Result<Bundle, BundleError> {
    let pending = pending(path);
    let written =
        pack(&pending, source).map_err(|source| BundleError::Write { path: path.to_owned(), source });
    let finished = written.and_then(|()| {
        Bundle::open(&pending)?.verify(None)?;
        fs::rename(&pending, path).map_err(|source| BundleError::Write { path: path.to_owned(), source })?;
        Bundle::open(path)
    });
    if finished.is_err() {
        let _ = fs::remove_file(&pending);
    }
    finished
}

fn pending(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".pending");
    path.with_file_name(name)
}

fn pack(path: &Path, source: &Source) -> io::Result<()> {
    let mut parts = BTreeMap::new();
    for (digest, file) in &source.parts {
        let size = fs::metadata(file).map_err(|error| named(file, &error))?.len();
        parts.insert(digest.clone(), size);
    }
    let index = Index {
        format: FORMAT,
        made_by: source.made_by.clone(),
        images: source.images.clone(),
        architectures: source.architectures.clone(),
        parts,
    };
    let text = serde_json::to_vec(&index)?;
    let mut tar = Builder::new(BufWriter::with_capacity(1 << 20, File::create(path)?));
    tar.append_data(&mut header(text.len() as u64), INDEX, text.as_slice())?;
    for (digest, size) in &index.parts {
        let file = &source.parts[digest];
        let content = File::open(file).map_err(|error| named(file, &error))?.take(*size);
        let name = format!("{BLOBS}{}", digest.trim_start_matches("sha256:"));
        tar.append_data(&mut header(*size), name, content)?;
    }
    let mut out = tar.into_inner()?;
    out.flush()?;
    out.get_ref().sync_all()
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn header(size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    header
}

impl Source {
    /// Adds a file under its digest.
    pub fn add(&mut self, path: PathBuf) -> io::Result<String> {
        let (digest, _) = remuda_oci::sha256_of(&path)?;
        let digest: Digest = digest;
        let digest = digest.to_string();
        self.parts.insert(digest.clone(), path);
        Ok(digest)
    }
}
