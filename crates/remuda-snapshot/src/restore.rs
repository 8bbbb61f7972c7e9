//! What is taken out of a snapshot: single values, a bucket, the database of a new member.

use std::io::{Read, Seek, SeekFrom};

use crate::{
    Unproven,
    bolt::Database,
    contents::{self, key_of},
    write::{self, Bucket},
};

/// Revisions that are left out after a restore, so that what was written after the snapshot was taken is never
/// taken for what is written after the restore.
const MARGIN: i64 = 1_000_000;

/// A key and its value.
pub type Item = (Vec<u8>, Vec<u8>);

/// All keys and values of a bucket; none if there is no such bucket.
pub fn bucket(file: &mut (impl Read + Seek), name: &str) -> Result<Option<Vec<Item>>, Unproven> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut items = Vec::new();
    let mut take = |key: &[u8], value: &[u8]| {
        items.push((key.to_vec(), value.to_vec()));
        Ok(())
    };
    let found = Database::open(file, length)?.bucket(name.as_bytes(), &mut take)?;
    Ok(found.then_some(items))
}

/// The value of a key at the newest revision.
pub fn value(file: &mut (impl Read + Seek), key: &str) -> Result<Option<Vec<u8>>, Unproven> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut newest = None;
    let mut look = |revision: &[u8], stored: &[u8]| {
        if key_of(stored) == Some(key.as_bytes()) {
            let deleted = contents::parse_revision(revision).is_none_or(|(_, deleted)| deleted);
            newest = (!deleted).then(|| contents::value_of(stored)).flatten().map(<[u8]>::to_vec);
        }
        Ok(())
    };
    Database::open(file, length)?.bucket(b"key", &mut look)?;
    Ok(newest)
}

/// The database a new, single member starts from: all keys at their revisions, and nothing of the members there were.
pub fn new_member(file: &mut (impl Read + Seek), marker: &str) -> Result<Vec<u8>, Unproven> {
    let mut keys = bucket(file, "key")?.unwrap_or_default();
    let newest = keys.iter().filter_map(|(key, _)| contents::parse_revision(key)).map(|(main, _)| main).max();
    keys.push(write::revision(newest.unwrap_or(1) + MARGIN, marker.as_bytes(), b""));
    // Where compaction stands. The index of the raft log is left out: the log begins anew.
    let kept = |key: &[u8]| [&b"scheduledCompactRev"[..], b"finishedCompactRev"].contains(&key);
    let meta = bucket(file, "meta")?.unwrap_or_default();
    let meta = meta.into_iter().filter(|(key, _)| kept(key)).collect();
    Ok(write::database(vec![
        Bucket { name: "key".to_owned(), items: keys },
        Bucket { name: "meta".to_owned(), items: meta },
    ]))
}
