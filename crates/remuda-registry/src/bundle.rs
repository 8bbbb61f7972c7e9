//! Bundles: images in one file, with the digest of every part.
//!
//! ```text
//! a tar archive
//!   bundle.json              what is in it: images, parts, digests, sizes
//!   blobs/sha256/<digest>    each part once, in the order of bundle.json
//! ```
//!
//! A bundle is known by the SHA-256 of its `bundle.json`, which names the digest of all else. It is read where it lies:
//! nothing is unpacked to be served.

mod archive;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use aws_lc_rs::digest::{Context, SHA256};
use remuda_base::hex;
use remuda_oci::{Digest, Reference, reference::is_digest};
use serde::{Deserialize, Serialize};

pub use self::write::{Source, write};
use crate::manifest::{LARGEST, Manifest, ManifestError, Parts};

pub const FORMAT: u32 = 1;
const INDEX: &str = "bundle.json";
const BLOBS: &str = "blobs/sha256/";
/// No index is larger, and none has more of anything.
const INDEX_LARGEST: u64 = 16 << 20;
const MOST: usize = 65_536;

/// What a bundle says is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Index {
    pub format: u32,
    /// Version of the program that made it.
    pub made_by: String,
    /// Digests of manifests or indices, by the name of the image.
    pub images: BTreeMap<String, String>,
    /// Architectures whose images are in it.
    pub architectures: BTreeSet<String>,
    /// Sizes of parts, by digest.
    pub parts: BTreeMap<String, u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} is not a bundle: {reason}", path.display())]
    NotOne { path: PathBuf, reason: String },
    #[error("{} has format {found}, this program knows formats up to {FORMAT}", path.display())]
    Newer { path: PathBuf, found: u32 },
    #[error("{}: {part} {reason}", path.display())]
    Part { path: PathBuf, part: String, reason: String },
    #[error("{}: manifest {digest}: {source}", path.display())]
    Manifest { path: PathBuf, digest: String, source: ManifestError },
    #[error("{}: image {image} is not made for linux/{architecture}", path.display())]
    Architecture { path: PathBuf, image: String, architecture: String },
}

/// Where a part is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub offset: u64,
    pub size: u64,
}

/// Changes when the file does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    size: u64,
    file: u64,
    modified: Option<SystemTime>,
}

/// A bundle whose parts are where they should be; what is in them was not read yet, see [`Bundle::verify`].
#[derive(Debug, Clone)]
pub struct Bundle {
    path: PathBuf,
    stamp: Stamp,
    digest: Digest,
    index: Index,
    places: BTreeMap<String, Place>,
}

impl Bundle {
    /// Reads what is in a file, and where.
    pub fn open(path: &Path) -> Result<Bundle, BundleError> {
        let read = |source| BundleError::Read { path: path.to_owned(), source };
        let not_one = |reason: &str| BundleError::NotOne { path: path.to_owned(), reason: reason.to_owned() };
        let file = File::open(path).map_err(read)?;
        let metadata = file.metadata().map_err(read)?;
        let length = metadata.len();
        let stamp = Stamp { size: length, file: metadata.ino(), modified: metadata.modified().ok() };
        let mut archive = tar::Archive::new(file);
        let mut index: Option<(Index, Digest)> = None;
        let mut places = BTreeMap::new();
        let entries = archive.entries_with_seek().map_err(|_| not_one("it is no tar archive"))?;
        for entry in entries {
            let mut entry = entry.map_err(|error| match &index {
                None => not_one("it is no tar archive"),
                Some(_) => part(path, INDEX, &format!("is followed by something unreadable: {error}")),
            })?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let size = entry.size();
            let Some((known, _)) = &index else {
                if name != INDEX || size > INDEX_LARGEST {
                    return Err(not_one(&format!("it does not begin with {INDEX}")));
                }
                let mut text = Vec::new();
                entry.read_to_end(&mut text).map_err(read)?;
                index = Some((parse(path, &text)?, Digest::of(&text)));
                continue;
            };
            let digest = name.strip_prefix(BLOBS).map(|hex| format!("sha256:{hex}"));
            let expected = digest.as_ref().and_then(|digest| known.parts.get(digest));
            let (Some(digest), Some(expected)) = (digest, expected) else {
                return Err(part(path, &name, "is not in the index"));
            };
            if *expected != size {
                return Err(part(path, &digest, &format!("has {size} bytes, not {expected}")));
            }
            let offset = entry.raw_file_position();
            if offset + size > length {
                return Err(part(path, &digest, "is cut off"));
            }
            places.insert(digest, Place { offset, size });
        }
        let (index, digest) = index.ok_or_else(|| not_one("it is empty"))?;
        if let Some(missing) = index.parts.keys().find(|digest| !places.contains_key(*digest)) {
            return Err(part(path, missing, "is missing"));
        }
        Ok(Bundle { path: path.to_owned(), stamp, digest, index, places })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// By which it is known.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Digest of what an image name stands for.
    pub fn image(&self, name: &Reference) -> Option<&str> {
        self.index.images.get(&name.to_string()).map(String::as_str)
    }

    pub fn place(&self, digest: &str) -> Option<Place> {
        self.places.get(digest).copied()
    }

    /// A small part, which must have its digest.
    pub fn small(&self, digest: &str) -> Result<Vec<u8>, BundleError> {
        let place = self.place(digest).ok_or_else(|| part(&self.path, digest, "is missing"))?;
        if place.size > LARGEST as u64 {
            return Err(part(&self.path, digest, "is larger than manifests are"));
        }
        let read = |source| BundleError::Read { path: self.path.clone(), source };
        let mut bytes = Vec::new();
        self.reader(place).map_err(read)?.read_to_end(&mut bytes).map_err(read)?;
        if !crate::manifest::has_digest(&bytes, digest) {
            return Err(part(&self.path, digest, "differs from its digest"));
        }
        Ok(bytes)
    }

    /// The bytes of a part.
    pub fn reader(&self, place: Place) -> io::Result<io::Take<File>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(place.offset))?;
        Ok(file.take(place.size))
    }

    /// Reads all of it: every part has its digest, and every image has all its parts, for this architecture if one is
    /// named.
    pub fn verify(&self, architecture: Option<&str>) -> Result<(), BundleError> {
        let mut piece = vec![0; 1 << 18];
        for (digest, place) in &self.places {
            let read = |source| BundleError::Read { path: self.path.clone(), source };
            let mut reader = self.reader(*place).map_err(read)?;
            let mut context = Context::new(&SHA256);
            loop {
                match reader.read(&mut piece).map_err(read)? {
                    0 => break,
                    length => context.update(&piece[..length]),
                }
            }
            if format!("sha256:{}", hex(context.finish())) != *digest {
                return Err(part(&self.path, digest, "differs from its digest"));
            }
        }
        for (image, digest) in &self.index.images {
            let found = self.check(image, digest, architecture)?;
            if let Some(architecture) = architecture.filter(|_| !found) {
                let (path, image) = (self.path.clone(), image.clone());
                return Err(BundleError::Architecture { path, image, architecture: architecture.to_owned() });
            }
        }
        Ok(())
    }

    /// Whether an image is complete, and made for an architecture. An index may name images for others that are not
    /// in the bundle.
    fn check(&self, image: &str, digest: &str, architecture: Option<&str>) -> Result<bool, BundleError> {
        match self.manifest(digest)?.parts {
            Parts::Image(parts) => {
                self.complete(image, &parts)?;
                // The last one is the configuration.
                let config = parts.last().map(|config| self.small(&config.digest)).transpose()?;
                let config: serde_json::Value =
                    serde_json::from_slice(&config.unwrap_or_default()).unwrap_or_default();
                Ok(architecture.is_none_or(|wanted| config["architecture"] == wanted))
            }
            Parts::Index(images) => {
                let mut found = false;
                let mut any = false;
                for one in images.iter().filter(|one| self.places.contains_key(&one.digest)) {
                    let Parts::Image(parts) = self.manifest(&one.digest)?.parts else {
                        return Err(part(&self.path, &one.digest, "is an index in an index"));
                    };
                    self.complete(image, &parts)?;
                    any = true;
                    found |= one.platform.as_ref().is_some_and(|platform| {
                        platform.os == "linux"
                            && architecture.is_none_or(|wanted| platform.architecture == wanted)
                    });
                }
                if !any {
                    return Err(part(
                        &self.path,
                        digest,
                        &format!("of image {image} names no image in the bundle"),
                    ));
                }
                Ok(found)
            }
        }
    }

    fn complete(&self, image: &str, parts: &[crate::Descriptor]) -> Result<(), BundleError> {
        for needed in parts {
            match self.places.get(&needed.digest) {
                None => {
                    return Err(part(&self.path, &needed.digest, &format!("of image {image} is missing")));
                }
                Some(place) if place.size != needed.size => {
                    let reason = format!("of image {image} has {} bytes, not {}", place.size, needed.size);
                    return Err(part(&self.path, &needed.digest, &reason));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn manifest(&self, digest: &str) -> Result<Manifest, BundleError> {
        Manifest::parse(&self.small(digest)?).map_err(|source| BundleError::Manifest {
            path: self.path.clone(),
            digest: digest.to_owned(),
            source,
        })
    }
}

fn part(path: &Path, part: &str, reason: &str) -> BundleError {
    // It comes from the file.
    let part = part.chars().filter(|c| !c.is_control()).take(128).collect();
    BundleError::Part { path: path.to_owned(), part, reason: reason.to_owned() }
}

fn parse(path: &Path, text: &[u8]) -> Result<Index, BundleError> {
    let not_one = |reason: String| BundleError::NotOne { path: path.to_owned(), reason };
    #[derive(Deserialize)]
    struct Numbered {
        format: u32,
    }
    let numbered: Numbered = serde_json::from_slice(text).map_err(|error| not_one(error.to_string()))?;
    if numbered.format > FORMAT {
        return Err(BundleError::Newer { path: path.to_owned(), found: numbered.format });
    }
    let index: Index = serde_json::from_slice(text).map_err(|error| not_one(error.to_string()))?;
    if index.images.len() > MOST || index.parts.len() > MOST {
        return Err(not_one(format!("more than {MOST} parts")));
    }
    if let Some(digest) = index.parts.keys().find(|digest| !is_digest(digest)) {
        return Err(part(path, digest, "is no digest"));
    }
    for (name, digest) in &index.images {
        let reference = Reference::parse(name).map_err(|error| not_one(error.to_string()))?;
        if reference.to_string() != *name {
            return Err(not_one(format!("image {name:?} is called {reference} in full")));
        }
        if !index.parts.contains_key(digest) {
            return Err(part(path, digest, &format!("of image {name} is missing")));
        }
    }
    Ok(index)
}

#[cfg(test)]
mod tests;
