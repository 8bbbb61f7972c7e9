//! Layers: tar archives, compressed, that are the same whenever they are made.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, GzBuilder};
use tar::{Builder, EntryType, Header};

use crate::digest::{Digest, Digesting};

/// Something in a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub mode: u32,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Directory,
    Text(String),
    /// The content of a file of this host.
    File(PathBuf),
}

/// A layer on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The compressed archive.
    pub path: PathBuf,
    pub digest: Digest,
    pub size: u64,
    /// Of what is inside.
    pub diff_id: Digest,
}

/// Writes a layer into `directory`. `entries` are by path, without a slash in front; the directories they are in come
/// by themselves.
pub(crate) fn build(directory: &Path, entries: &BTreeMap<String, Entry>) -> io::Result<Layer> {
    let pending = directory.join("pending");
    let file = Digesting::new(BufWriter::new(File::create(&pending)?));
    // Neither name nor time, and a system that is nobody's.
    let packed = GzBuilder::new().mtime(0).operating_system(255).write(file, Compression::default());
    let mut tar = Builder::new(Digesting::new(packed));
    for (path, entry) in with_parents(entries) {
        append(&mut tar, &path, &entry)?;
    }
    let (packed, diff_id, _) = tar.into_inner()?.finish();
    let (file, digest, size) = packed.finish()?.finish();
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    let path = directory.join(digest.hex());
    fs::rename(&pending, &path)?;
    Ok(Layer { path, digest, size, diff_id })
}

/// Everything in the order of paths, in which a directory comes before what is in it.
fn with_parents(entries: &BTreeMap<String, Entry>) -> BTreeMap<String, Entry> {
    let mut all = entries.clone();
    for path in entries.keys() {
        for (at, _) in path.match_indices('/') {
            all.entry(path[..at].to_owned()).or_insert(Entry { mode: 0o755, what: What::Directory });
        }
    }
    all
}

fn append(tar: &mut Builder<impl Write>, path: &str, entry: &Entry) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_mode(entry.mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    match &entry.what {
        What::Directory => {
            header.set_entry_type(EntryType::Directory);
            header.set_size(0);
            tar.append_data(&mut header, format!("{path}/"), io::empty())
        }
        What::Text(text) => {
            header.set_size(text.len() as u64);
            tar.append_data(&mut header, path, text.as_bytes())
        }
        What::File(source) => {
            let named =
                |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", source.display()));
            let file = File::open(source).map_err(named)?;
            let size = file.metadata().map_err(named)?.len();
            header.set_size(size);
            let mut content = Exactly { inner: file, left: size };
            tar.append_data(&mut header, path, &mut content).map_err(named)
        }
    }
}

/// A file that grew or shrank while it was read would make an archive nobody can read.
struct Exactly<R> {
    inner: R,
    left: u64,
}

impl<R: io::Read> io::Read for Exactly<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let length = self.inner.read(&mut buffer[..most])?;
        if length == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter while it was read"));
        }
        self.left -= length as u64;
        Ok(length)
    }
}
