//! The backup file: a tar archive of everything a server is.
//!
//! ```text
//! manifest.json            what this is and when it was made
//! store                    the embedded store's own backup
//! encryption.keys          without these the Secrets in the store cannot be read
//! pki/…                    certificate authority, service-account key
//! SHA256SUMS               of all above; last, so that a file cut short is noticed
//! ```

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use aws_lc_rs::digest;
use remuda_names::file;
use serde::{Deserialize, Serialize};

/// What a backup says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// When it was made, RFC 3339.
    pub created: String,
    /// The store's newest revision then.
    pub revision: u64,
}

pub const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const SUMS: &str = "SHA256SUMS";
/// Files taken along as they are. The serving certificate is not: the new machine makes its own.
pub const KEEP: &[&str] = &[file::KEYRING, file::CA_CERT, file::CA_KEY, file::SERVICE_ACCOUNT_KEY];
/// Nobody's keys are larger; a file that claims otherwise is not ours.
const MAX_SMALL: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} is missing", .path.display())]
    Missing { path: PathBuf },
    #[error("{} exists", .path.display())]
    Exists { path: PathBuf },
    #[error("{} is not a remuda backup: {reason}", .path.display())]
    NotOurs { path: PathBuf, reason: String },
    #[error("{} has format {found}, this program knows formats up to {FORMAT}", .path.display())]
    Newer { path: PathBuf, found: u32 },
    #[error("{} is damaged: {reason}", .path.display())]
    Damaged { path: PathBuf, reason: String },
}

impl ArchiveError {
    pub fn hint(&self) -> Option<String> {
        match self {
            ArchiveError::Missing { .. } => {
                Some("put it back: a backup without it would be of no use, and none was made".to_owned())
            }
            ArchiveError::Exists { .. } => Some("choose another name, or remove it".to_owned()),
            ArchiveError::NotOurs { .. } => Some("it must be a file written by remuda backup".to_owned()),
            ArchiveError::Newer { .. } => {
                Some("restore it with the version that made it, or a newer one".to_owned())
            }
            ArchiveError::Damaged { .. } => Some("use another backup".to_owned()),
            _ => None,
        }
    }
}

/// A new file for a backup, readable by its owner only.
pub fn create(path: &Path) -> Result<File, ArchiveError> {
    let opened = File::options().read(true).write(true).create_new(true).mode(0o600).open(path);
    opened.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => ArchiveError::Exists { path: path.to_owned() },
        _ => ArchiveError::Write { path: path.to_owned(), source },
    })
}

/// Packs a store backup and the key files of `data_dir` into `output`. All of them: no server comes
/// back from a backup that lacks one.
pub fn pack(output: &Path, manifest: &Manifest, store: &Path, data_dir: &Path) -> Result<File, ArchiveError> {
    let mut parts = vec![(file::STORE, store.to_owned())];
    parts.extend(KEEP.iter().map(|name| (*name, data_dir.join(name))));
    if let Some((_, path)) = parts.iter().find(|(_, path)| !path.exists()) {
        return Err(ArchiveError::Missing { path: path.clone() });
    }
    let target = create(output)?;
    let write = |source| ArchiveError::Write { path: output.to_owned(), source };
    let mut packer = Packer { builder: tar::Builder::new(BufWriter::new(&target)), sums: String::new() };
    let manifest = serde_json::to_vec(manifest).map_err(|error| write(error.into()))?;
    packer.add(MANIFEST, manifest.len() as u64, &manifest[..]).map_err(write)?;
    for (name, path) in parts {
        let read = |source| ArchiveError::Read { path: path.clone(), source };
        let part = File::open(&path).map_err(read)?;
        let size = part.metadata().map_err(read)?.len();
        packer.add(name, size, BufReader::new(part)).map_err(write)?;
    }
    packer.finish().map_err(write)?;
    target.sync_all().map_err(write)?;
    Ok(target)
}

struct Packer<W: Write> {
    builder: tar::Builder<W>,
    sums: String,
}

impl<W: Write> Packer<W> {
    fn add(&mut self, name: &str, size: u64, contents: impl Read) -> io::Result<()> {
        let mut contents = Summing::new(contents);
        self.builder.append_data(&mut header(size), name, &mut contents)?;
        self.sums.push_str(&format!("{}  {name}\n", contents.finish()));
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.builder.append_data(&mut header(self.sums.len() as u64), SUMS, self.sums.as_bytes())?;
        self.builder.into_inner()?.flush()
    }
}

fn header(size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_size(size);
    header.set_mode(0o600);
    header.set_cksum();
    header
}

/// Unpacks a backup into `dir`, an existing empty directory. Files that must not be there, are
/// missing or differ from their checksum make it fail; what was unpacked until then stays.
pub fn unpack(input: &Path, dir: &Path) -> Result<Manifest, ArchiveError> {
    let read = |source| ArchiveError::Read { path: input.to_owned(), source };
    let not_ours = |reason: &str| ArchiveError::NotOurs { path: input.to_owned(), reason: reason.to_owned() };
    let damaged = |reason: String| ArchiveError::Damaged { path: input.to_owned(), reason };
    let opened = File::open(input).map_err(read)?;
    let mut archive = tar::Archive::new(BufReader::with_capacity(1 << 20, opened));
    let mut manifest: Option<Manifest> = None;
    let mut sums = BTreeMap::new();
    let mut expected = None;
    for entry in archive.entries().map_err(read)? {
        let entry = entry.map_err(|error| match &manifest {
            None => not_ours("it is no tar archive"),
            Some(_) => damaged(error.to_string()),
        })?;
        let name = entry.path().map_err(read)?.to_string_lossy().into_owned();
        let size = entry.size();
        if manifest.is_none() && name != MANIFEST {
            return Err(not_ours("it does not begin with a manifest"));
        }
        let mut contents = Summing::new(entry);
        match name.as_str() {
            MANIFEST | SUMS if size > MAX_SMALL => return Err(not_ours("a part of it is too large")),
            MANIFEST => {
                let mut text = Vec::new();
                contents.read_to_end(&mut text).map_err(read)?;
                let parsed: Manifest =
                    serde_json::from_slice(&text).map_err(|error| not_ours(&error.to_string()))?;
                if parsed.format > FORMAT {
                    return Err(ArchiveError::Newer { path: input.to_owned(), found: parsed.format });
                }
                manifest = Some(parsed);
            }
            SUMS => {
                let mut text = String::new();
                contents.read_to_string(&mut text).map_err(read)?;
                expected = Some(text);
                break;
            }
            name if name == file::STORE || KEEP.contains(&name) => {
                if name != file::STORE && size > MAX_SMALL {
                    return Err(not_ours("a part of it is too large"));
                }
                extract(&mut contents, &dir.join(name)).map_err(|error| match error {
                    Extract::Read(error) => damaged(error.to_string()),
                    Extract::Write(source) => ArchiveError::Write { path: dir.join(name), source },
                })?;
            }
            name => return Err(not_ours(&format!("it contains {name:?}"))),
        }
        sums.insert(name, contents.finish());
    }
    let manifest = manifest.ok_or_else(|| not_ours("it is empty"))?;
    let expected = expected.ok_or_else(|| damaged("its end is missing".to_owned()))?;
    for line in expected.lines() {
        let (sum, name) =
            line.split_once("  ").ok_or_else(|| damaged("its checksums are unreadable".to_owned()))?;
        match sums.remove(name) {
            Some(actual) if actual == sum => {}
            Some(_) => return Err(damaged(format!("{name} differs from its checksum"))),
            None => return Err(damaged(format!("{name} is missing"))),
        }
    }
    if let Some(name) = sums.keys().next() {
        return Err(damaged(format!("{name} has no checksum")));
    }
    let mut needed = KEEP.iter().chain(&[file::STORE]);
    match needed.find(|name| !dir.join(name).exists()) {
        Some(name) => Err(damaged(format!("it was made without {name}"))),
        None => Ok(manifest),
    }
}

enum Extract {
    Read(io::Error),
    Write(io::Error),
}

fn extract(contents: &mut impl Read, path: &Path) -> Result<(), Extract> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(Extract::Write)?;
    }
    let opened = File::options().write(true).create_new(true).mode(0o600).open(path);
    let mut target = opened.map_err(Extract::Write)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match contents.read(&mut buffer).map_err(Extract::Read)? {
            0 => break,
            read => target.write_all(&buffer[..read]).map_err(Extract::Write)?,
        }
    }
    target.sync_all().map_err(Extract::Write)
}

/// Reads through, adding up a checksum.
struct Summing<R> {
    inner: R,
    context: digest::Context,
}

impl<R: Read> Summing<R> {
    fn new(inner: R) -> Self {
        Summing { inner, context: digest::Context::new(&digest::SHA256) }
    }

    fn finish(self) -> String {
        remuda_base::hex(self.context.finish())
    }
}

impl<R: Read> Read for Summing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.context.update(&buffer[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use super::*;

    fn backup() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("pki")).unwrap();
        fs::write(dir.path().join("snapshot"), vec![7; 100_000]).unwrap();
        for name in KEEP {
            fs::write(dir.path().join(name), format!("contents of {name}")).unwrap();
        }
        let output = dir.path().join("out");
        let manifest = Manifest { format: FORMAT, created: "now".into(), revision: 9 };
        pack(&output, &manifest, &dir.path().join("snapshot"), dir.path()).unwrap();
        (dir, output)
    }

    #[test]
    fn what_was_packed_comes_out_again_and_stays_private() {
        let (_dir, output) = backup();
        let target = tempfile::tempdir().unwrap();
        let manifest = unpack(&output, target.path()).unwrap();
        assert_eq!(manifest.revision, 9);
        assert_eq!(fs::read(target.path().join(file::STORE)).unwrap(), vec![7; 100_000]);
        for name in KEEP {
            let contents = fs::read_to_string(target.path().join(name)).unwrap();
            assert_eq!(contents, format!("contents of {name}"));
        }
        for path in [&output, &target.path().join(file::KEYRING)] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn nothing_is_packed_or_unpacked_without_all_keys() {
        for name in KEEP {
            let (dir, output) = backup();
            let manifest = Manifest { format: FORMAT, created: "now".into(), revision: 9 };
            let again = dir.path().join("again");
            fs::remove_file(dir.path().join(name)).unwrap();
            let refused = pack(&again, &manifest, &dir.path().join("snapshot"), dir.path()).unwrap_err();
            assert!(matches!(&refused, ArchiveError::Missing { path } if path.ends_with(name)), "{refused}");
            assert!(!again.exists());
            // As an older program made it.
            let whole = fs::read(&output).unwrap();
            let (mut archive, target) = (tar::Archive::new(&whole[..]), tempfile::tempdir().unwrap());
            let mut packer =
                Packer { builder: tar::Builder::new(File::create(&again).unwrap()), sums: String::new() };
            for entry in archive.entries().unwrap() {
                let entry = entry.unwrap();
                let part = entry.path().unwrap().to_string_lossy().into_owned();
                if part != SUMS && part != *name {
                    packer.add(&part, entry.size(), entry).unwrap();
                }
            }
            packer.finish().unwrap();
            let refused = unpack(&again, target.path()).unwrap_err();
            assert!(refused.to_string().contains(&format!("made without {name}")), "{refused}");
        }
    }

    #[test]
    fn any_cut_and_any_changed_byte_is_noticed() {
        let (_dir, output) = backup();
        let whole = fs::read(&output).unwrap();
        let changed = output.with_extension("changed");
        let check = |contents: &[u8]| {
            fs::write(&changed, contents).unwrap();
            unpack(&changed, tempfile::tempdir().unwrap().path()).is_err()
        };
        // The end of a tar file is padding; the last thing that counts is the list of checksums.
        let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
        for length in (0..end).step_by(4099) {
            assert!(check(&whole[..length]), "cut at {length}");
        }
        for position in (0..end).step_by(4099) {
            let mut bytes = whole.clone();
            bytes[position] ^= 0x55;
            // Padding between parts may hold anything.
            if whole[position] != 0 {
                assert!(check(&bytes), "changed at {position}");
            }
        }
    }

    #[test]
    fn other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        for contents in [&b""[..], b"hello", &[0; 4096]] {
            fs::write(&path, contents).unwrap();
            let error = unpack(&path, dir.path()).unwrap_err();
            assert!(matches!(error, ArchiveError::NotOurs { .. }), "{error}");
        }
    }

    #[test]
    fn an_archive_cannot_write_outside_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut builder = tar::Builder::new(File::create(&path).unwrap());
        let manifest = br#"{"format":1,"created":"","revision":1}"#;
        builder.append_data(&mut header(manifest.len() as u64), MANIFEST, &manifest[..]).unwrap();
        let mut evil = header(1);
        evil.as_mut_bytes()[..8].copy_from_slice(b"../evil\0");
        evil.set_cksum();
        builder.append(&evil, &b"x"[..]).unwrap();
        builder.into_inner().unwrap();
        let target = dir.path().join("target");
        fs::create_dir(&target).unwrap();
        assert!(unpack(&path, &target).is_err());
        assert!(!dir.path().join("evil").exists());
    }

    #[test]
    fn an_existing_file_is_not_overwritten() {
        let (_dir, output) = backup();
        assert!(matches!(create(&output), Err(ArchiveError::Exists { .. })));
    }
}
