//! The store inside: revisions of keys, in the order they were made.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::{Fault, Verified};

/// Length of a revision: two numbers with a sign between them.
const REVISION: usize = 17;
const TOMBSTONE: u8 = b't';

/// Keys that exist after the revisions that were added.
#[derive(Default)]
pub(crate) struct Contents {
    revision: i64,
    /// Key, as its hash, to the kind it is of. A whole key would cost several times as much.
    live: HashMap<u64, u32>,
    /// The kinds met, and how many of each exist.
    kinds: Vec<(String, u64)>,
    known: HashMap<Vec<u8>, u32>,
}

impl Contents {
    pub(crate) fn add(&mut self, revision: &[u8], value: &[u8]) -> Result<(), Fault> {
        let (main, deleted) = parse_revision(revision).ok_or(Fault::Revision)?;
        let key = key_of(value).ok_or(Fault::Revision)?;
        self.revision = self.revision.max(main);
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        if deleted {
            if let Some(kind) = self.live.remove(&hash)
                && let Some((_, count)) = self.kinds.get_mut(kind as usize)
            {
                *count = count.saturating_sub(1);
            }
            return Ok(());
        }
        let kind = self.kind(prefix(key));
        if let Entry::Vacant(entry) = self.live.entry(hash) {
            entry.insert(kind);
            if let Some((_, count)) = self.kinds.get_mut(kind as usize) {
                *count += 1;
            }
        }
        Ok(())
    }

    fn kind(&mut self, prefix: &[u8]) -> u32 {
        if let Some(known) = self.known.get(prefix) {
            return *known;
        }
        let number = u32::try_from(self.kinds.len()).unwrap_or(u32::MAX);
        self.kinds.push((String::from_utf8_lossy(prefix).into_owned(), 0));
        self.known.insert(prefix.to_vec(), number);
        number
    }

    pub(crate) fn verified(self, size: u64) -> Verified {
        let objects: BTreeMap<String, u64> = self.kinds.into_iter().filter(|(_, count)| *count > 0).collect();
        // A store that was never written to is at revision 1.
        Verified { revision: self.revision.max(1), keys: self.live.len() as u64, objects, size }
    }
}

/// The main number of a revision, and whether it deletes.
pub(crate) fn parse_revision(bytes: &[u8]) -> Option<(i64, bool)> {
    let deleted = match bytes.len() {
        REVISION => false,
        18 if bytes.last() == Some(&TOMBSTONE) => true,
        _ => return None,
    };
    let main = i64::from_be_bytes(bytes.get(..8)?.try_into().ok()?);
    (main > 0 && bytes.get(8) == Some(&b'_')).then_some((main, deleted))
}

/// The key of a stored `KeyValue`: field 1, which comes first.
pub(crate) fn key_of(stored: &[u8]) -> Option<&[u8]> {
    let (tag, rest) = stored.split_first()?;
    if *tag != 0x0a {
        return None;
    }
    let (length, rest) = number(rest)?;
    rest.get(..usize::try_from(length).ok()?)
}

/// The value of a stored `KeyValue`: field 5. Empty ones are left out.
pub(crate) fn value_of(stored: &[u8]) -> Option<&[u8]> {
    let mut rest = stored;
    while let Some((tag, after)) = rest.split_first() {
        let (value, after) = number(after)?;
        if tag & 7 == 0 {
            rest = after;
            continue;
        }
        let length = usize::try_from(value).ok()?;
        let bytes = after.get(..length)?;
        if *tag == 0x2a {
            return Some(bytes);
        }
        rest = after.get(length..)?;
    }
    Some(&[])
}

/// A number as protobuf writes it, and what comes after it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (mut value, mut rest) = (0_u64, bytes);
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// What keys of one kind share: `/registry/pods`, `/registry/apps.example.org/things`.
///
/// Kubernetes writes the group of custom kinds only, which has a dot, and `services` in two parts; other stores write
/// a group always.
fn prefix(key: &[u8]) -> &[u8] {
    let mut parts = key.split(|byte| *byte == b'/').skip(1);
    let (root, first) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let two = root != b"registry" || first.contains(&b'.') || first == b"services";
    // A store of ours has its objects one level further down.
    let ours = root != b"registry" && first == b"o";
    let levels = 2 + usize::from(two) + usize::from(ours);
    let mut slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    match slashes.nth(levels) {
        Some(end) => &key[..end],
        // A key that is its own prefix is of no kind that could have others.
        None => key.iter().rposition(|byte| *byte == b'/').map_or(key, |end| &key[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::prefix;

    #[test]
    fn a_kind_is_what_its_keys_share() {
        for (key, expected) in [
            ("/registry/pods/default/a", "/registry/pods"),
            ("/registry/namespaces/a", "/registry/namespaces"),
            ("/registry/services/specs/default/a", "/registry/services/specs"),
            ("/registry/k3s.cattle.io/addons/kube-system/a", "/registry/k3s.cattle.io/addons"),
            ("/other/core/secrets/default/a", "/other/core/secrets"),
            ("/sandbox/o/core/secrets/default/a", "/sandbox/o/core/secrets"),
            ("/sandbox/state", "/sandbox"),
            ("compact_rev_key", "compact_rev_key"),
            ("", ""),
        ] {
            assert_eq!(prefix(key.as_bytes()), expected.as_bytes(), "{key}");
        }
    }
}
