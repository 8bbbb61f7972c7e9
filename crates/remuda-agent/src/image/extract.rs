//! Unpacking layers into a directory.
//!
//! Layers are applied from the lowest to the highest, with whiteouts. Nothing is written outside the
//! directory: names that leave it are refused, and links on the way are resolved inside it.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::{
        ffi::OsStrExt,
        fs::{OpenOptionsExt, PermissionsExt, symlink},
    },
    path::{Component, Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use tar::{Archive, EntryType};

/// Bytes one image may unpack to.
const SIZE_LIMIT: u64 = 16 << 30;
/// Entries one image may have.
const ENTRY_LIMIT: u64 = 1_000_000;
const LINK_LIMIT: usize = 64;

/// Why an image was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    /// The archive cannot be read.
    #[error("read {what}")]
    Read {
        /// Which.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("write {path}")]
    Write {
        /// Which, inside the image.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// An entry would end up elsewhere.
    #[error("entry {0} leaves the directory it is unpacked to")]
    Escape(String),
    /// More than anybody would install.
    #[error("image is larger than {SIZE_LIMIT} bytes or {ENTRY_LIMIT} entries")]
    TooLarge,
    /// A compression this agent cannot undo.
    #[error("{what} is compressed with {kind}, and the program of that name is not installed")]
    Compression {
        /// Which file.
        what: String,
        /// How.
        kind: &'static str,
    },
}

/// Undoes the compression of a stream, told by its first bytes.
pub fn decompress<'a>(mut raw: impl Read + 'a, what: &str) -> Result<Box<dyn Read + 'a>, ExtractError> {
    let mut magic = [0; 4];
    let mut filled = 0;
    let unreadable = |source| ExtractError::Read { what: what.to_owned(), source };
    while filled < magic.len() {
        match raw.read(&mut magic[filled..]).map_err(unreadable)? {
            0 => break,
            count => filled += count,
        }
    }
    let head = io::Cursor::new(magic[..filled].to_vec());
    let whole = head.chain(raw);
    Ok(match &magic[..filled] {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(whole)),
        [0x28, 0xb5, 0x2f, 0xfd] => {
            let decoder = StreamingDecoder::new(io::BufReader::new(whole));
            Box::new(decoder.map_err(|error| unreadable(io::Error::other(error.to_string())))?)
        }
        _ => Box::new(whole),
    })
}

/// Unpacks layer files, the lowest first.
pub fn layers(paths: &[PathBuf], destination: &Path) -> Result<(), ExtractError> {
    let mut unpacker = Unpacker::new(destination)?;
    for path in paths {
        let what = path.display().to_string();
        let file = File::open(path).map_err(|source| ExtractError::Read { what: what.clone(), source })?;
        unpacker.layer(decompress(io::BufReader::new(file), &what)?)?;
    }
    Ok(())
}

/// Unpacks the layers of one image.
#[derive(Debug)]
pub struct Unpacker {
    root: PathBuf,
    size: u64,
    entries: u64,
}

impl Unpacker {
    /// Unpacks into a directory that exists.
    pub fn new(destination: &Path) -> Result<Self, ExtractError> {
        let root = destination.canonicalize();
        let what = destination.display().to_string();
        let root = root.map_err(|source| ExtractError::Read { what, source })?;
        Ok(Self { root, size: 0, entries: 0 })
    }

    /// Applies one layer on top of the former.
    pub fn layer(&mut self, stream: impl Read) -> Result<(), ExtractError> {
        let unreadable = |source| ExtractError::Read { what: "layer".into(), source };
        let mut archive = Archive::new(stream);
        // What this layer brought is not hidden by its own whiteouts.
        let mut fresh: HashSet<PathBuf> = HashSet::new();
        let mut opaque: HashSet<PathBuf> = HashSet::new();
        for entry in archive.entries().map_err(unreadable)? {
            let mut entry = entry.map_err(unreadable)?;
            self.entries += 1;
            if self.entries > ENTRY_LIMIT {
                return Err(ExtractError::TooLarge);
            }
            let shown = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let name = PathBuf::from(OsStr::from_bytes(&entry.path_bytes()));
            let Some(relative) = clean(&name) else { return Err(ExtractError::Escape(shown)) };
            let Some(file_name) = relative.file_name().map(ToOwned::to_owned) else { continue };
            let parent = self.resolve(relative.parent().unwrap_or(Path::new("")), &shown)?;
            let broken = |source| ExtractError::Write { path: shown.clone(), source };
            if let Some(hidden) = file_name.as_bytes().strip_prefix(b".wh.") {
                if hidden == b".wh..opq" {
                    if opaque.insert(parent.clone()) {
                        hide_children(&parent, &fresh).map_err(broken)?;
                    }
                } else if !hidden.is_empty() && hidden != b"." && hidden != b".." && !hidden.contains(&b'/') {
                    let path = parent.join(OsStr::from_bytes(hidden));
                    if !fresh.contains(&path) {
                        remove(&path).map_err(broken)?;
                    }
                }
                continue;
            }
            fs::create_dir_all(&parent).map_err(broken)?;
            let path = parent.join(&file_name);
            self.put(&mut entry, &path, &shown)?;
            for place in path.ancestors().take_while(|place| *place != self.root) {
                if !fresh.insert(place.to_owned()) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn put<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        path: &Path,
        shown: &str,
    ) -> Result<(), ExtractError> {
        let broken = |source| ExtractError::Write { path: shown.to_owned(), source };
        let link = entry.link_name_bytes().map(|bytes| PathBuf::from(OsStr::from_bytes(&bytes)));
        match entry.header().entry_type() {
            EntryType::Directory => {
                if !fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
                    remove(path).map_err(broken)?;
                    fs::create_dir(path).map_err(broken)?;
                }
                fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(broken)
            }
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let mode = entry.header().mode().unwrap_or(0) & 0o755;
                let mode = if mode == 0 { 0o755 } else { mode };
                remove(path).map_err(broken)?;
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(broken)?;
                let left = SIZE_LIMIT.saturating_sub(self.size);
                let written = io::copy(&mut entry.take(left + 1), &mut file).map_err(broken)?;
                self.size += written;
                if written > left {
                    return Err(ExtractError::TooLarge);
                }
                file.set_permissions(fs::Permissions::from_mode(mode)).map_err(broken)
            }
            EntryType::Symlink => {
                remove(path).map_err(broken)?;
                symlink(link.unwrap_or_default(), path).map_err(broken)
            }
            EntryType::Link => {
                let target = link.as_deref().and_then(clean);
                let target = target.ok_or_else(|| ExtractError::Escape(shown.to_owned()))?;
                let parent = self.resolve(target.parent().unwrap_or(Path::new("")), shown)?;
                let target = parent.join(target.file_name().unwrap_or_default());
                if target != path {
                    remove(path).map_err(broken)?;
                    fs::hard_link(&target, path).map_err(broken)?;
                }
                Ok(())
            }
            other => {
                tracing::warn!(path = shown, kind = ?other, "entry of an unsupported kind is left out");
                Ok(())
            }
        }
    }

    /// Where a directory of the image really is. Links are followed as if the destination were the root.
    fn resolve(&self, relative: &Path, shown: &str) -> Result<PathBuf, ExtractError> {
        let escape = || ExtractError::Escape(shown.to_owned());
        let mut pending: Vec<std::ffi::OsString> =
            relative.components().rev().map(|part| part.as_os_str().to_owned()).collect();
        let mut resolved = self.root.clone();
        let mut links = 0;
        while let Some(part) = pending.pop() {
            match Path::new(&part).components().next() {
                Some(Component::ParentDir) => {
                    // Above the root is the root, as in a chroot.
                    if resolved != self.root {
                        resolved.pop();
                    }
                    continue;
                }
                Some(Component::RootDir) => {
                    resolved.clone_from(&self.root);
                    continue;
                }
                Some(Component::Normal(_)) => {}
                _ => continue,
            }
            let next = resolved.join(&part);
            match fs::read_link(&next) {
                Ok(target) => {
                    links += 1;
                    if links > LINK_LIMIT {
                        return Err(escape());
                    }
                    pending.extend(target.components().rev().map(|part| part.as_os_str().to_owned()));
                }
                Err(_) => resolved = next,
            }
        }
        if resolved.starts_with(&self.root) { Ok(resolved) } else { Err(escape()) }
    }
}

/// A name relative to the root, or `None` if it leads out of it.
fn clean(path: &Path) -> Option<PathBuf> {
    let mut cleaned = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => cleaned.push(name),
            Component::ParentDir => {
                if !cleaned.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(cleaned)
}

fn remove(path: &Path) -> io::Result<()> {
    match crate::disk::remove_all(path) {
        Ok(()) => Ok(()),
        Err(error) => Err(error.source),
    }
}

fn hide_children(directory: &Path, fresh: &HashSet<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        if !fresh.contains(&path) {
            remove(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
