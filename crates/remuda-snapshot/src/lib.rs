//! Reads a snapshot of etcd and says whether it is whole, and what is in it.
//!
//! [`restore`] takes things out of one, [`write`] makes one of what another store holds.
//!
//! A snapshot is etcd's database file (bbolt) with the SHA-256 of it appended. [`verify`] checks the sum, walks every
//! page of the tree below the bucket `key`, and counts what a server would have after a restore:
//!
//! ```text
//! file ─► meta pages ─► length ─► SHA-256 ─► tree ─► revisions ─► Verified { revision, keys, objects }
//! ```
//!
//! Memory: one page at a time, and sixteen bytes for each key. Time: every byte is read twice.
//!
//! A snapshot may come from anywhere, so nothing in it is believed: offsets and counts are checked against the page
//! they are on, a page is visited once, and depth is bounded.

mod bolt;
mod contents;
mod report;
pub mod restore;
pub mod write;

use std::{
    collections::BTreeMap,
    io::{self, Read, Seek, SeekFrom},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use self::report::Report;
use crate::{bolt::Database, contents::Contents};

/// What a snapshot that is whole holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// The newest revision of the store.
    pub revision: i64,
    /// Keys that exist at that revision.
    pub keys: u64,
    /// How many of them there are of each kind, by the prefix their keys share.
    pub objects: BTreeMap<String, u64>,
    /// Length of the file.
    pub size: u64,
}

/// Why a file is not proven to be a whole snapshot.
#[derive(Debug, thiserror::Error)]
pub enum Unproven {
    #[error("read the snapshot")]
    Read(#[from] io::Error),
    #[error("the file is no snapshot of etcd")]
    NotASnapshot,
    #[error("the file has format {found}; this program reads up to {known}")]
    NewerFormat { found: u32, known: u32 },
    #[error("the file is cut: it has {length} bytes of at least {expected}")]
    Cut { length: u64, expected: u64 },
    #[error("the file ends without the checksum a snapshot has")]
    NoChecksum,
    #[error("the checksum does not match: at least one byte is not what etcd wrote")]
    Checksum,
    #[error("page {page} is damaged: {fault}")]
    Damaged { page: u64, fault: Fault },
}

impl Unproven {
    /// A stable name, for those who tell reasons apart.
    pub fn code(&self) -> &'static str {
        match self {
            Unproven::Read(_) => "Unreadable",
            Unproven::NotASnapshot => "NotASnapshot",
            Unproven::NewerFormat { .. } => "NewerFormat",
            Unproven::Cut { .. } => "Cut",
            Unproven::NoChecksum => "NoChecksum",
            Unproven::Checksum => "ChecksumMismatch",
            Unproven::Damaged { .. } => "Damaged",
        }
    }
}

/// What is wrong with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("it says that it is another page")]
    Number,
    #[error("it is of a kind that does not belong there")]
    Kind,
    #[error("it points outside of itself or of the file")]
    Bounds,
    #[error("the tree comes to it twice")]
    Twice,
    #[error("the tree is too deep")]
    Depth,
    #[error("its keys are not in order")]
    Order,
    #[error("a revision in it cannot be read")]
    Revision,
    #[error("a bucket that every store has is missing")]
    NoBucket,
}

/// Length of the appended SHA-256.
const CHECKSUM: u64 = 32;
/// etcd takes the rest of a division by this for the sign that a checksum is appended.
const SECTOR: u64 = 512;
const BUFFER: usize = 64 * 1024;

/// Checks a snapshot from its first byte to its last.
///
/// The checksum comes before the tree: a flipped byte is told as such, wherever it is.
pub fn verify(file: &mut (impl Read + Seek)) -> Result<Verified, Unproven> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut database = Database::open(file, length)?;
    let expected = database.length();
    if length < expected {
        return Err(Unproven::Cut { length, expected });
    }
    match length % SECTOR {
        0 => return Err(Unproven::NoChecksum),
        CHECKSUM => {}
        _ => return Err(Unproven::Cut { length, expected: expected + CHECKSUM }),
    }
    check_sum(database.file(), length)?;
    let mut contents = Contents::default();
    database.walk(b"key", &mut |key, value| contents.add(key, value))?;
    Ok(contents.verified(length))
}

fn check_sum(file: &mut (impl Read + Seek), length: u64) -> Result<(), Unproven> {
    file.seek(SeekFrom::Start(0))?;
    let mut left = length - CHECKSUM;
    let mut sum = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    while left > 0 {
        let part = usize::try_from(left).unwrap_or(BUFFER).min(BUFFER);
        file.read_exact(&mut buffer[..part])?;
        sum.update(&buffer[..part]);
        left -= part as u64;
    }
    let mut stored = [0; CHECKSUM as usize];
    file.read_exact(&mut stored)?;
    if sum.finalize().as_slice() == stored { Ok(()) } else { Err(Unproven::Checksum) }
}
