//! The versions of one key.

use std::{collections::VecDeque, sync::Arc};

use crate::{Record, Revision};

/// One version; without a record it is the key's deletion.
pub(super) struct Version {
    pub(super) revision: Revision,
    pub(super) record: Option<Arc<Record>>,
}

/// Versions in ascending order. Most keys have exactly one, which needs no allocation.
pub(super) enum Chain {
    One(Version),
    Many(VecDeque<Version>),
}

impl Chain {
    pub(super) fn newest(&self) -> &Version {
        match self {
            Self::One(version) => version,
            Self::Many(versions) => versions.back().expect("a chain has a version"),
        }
    }

    /// The state at `revision`.
    pub(super) fn at(&self, revision: Revision) -> Option<&Arc<Record>> {
        let version = match self {
            Self::One(version) => (version.revision <= revision).then_some(version),
            // Reads want the newest version or one close to it.
            Self::Many(versions) => match versions.back() {
                Some(newest) if newest.revision <= revision => Some(newest),
                _ => {
                    let after = versions.partition_point(|version| version.revision <= revision);
                    after.checked_sub(1).and_then(|index| versions.get(index))
                }
            },
        };
        version.and_then(|version| version.record.as_ref())
    }

    /// Revisions of the versions after `revision`, oldest first.
    pub(super) fn revisions_after(&self, revision: Revision) -> impl Iterator<Item = Revision> + '_ {
        let (one, many) = match self {
            Self::One(version) => (Some(version), None),
            Self::Many(versions) => {
                let first = versions.partition_point(|version| version.revision <= revision);
                (None, Some(versions.range(first..)))
            }
        };
        one.into_iter()
            .chain(many.into_iter().flatten())
            .map(|version| version.revision)
            .filter(move |found| *found > revision)
    }

    pub(super) fn push(&mut self, version: Version) {
        match self {
            Self::One(first) => {
                let first = std::mem::replace(first, Version { revision: 0, record: None });
                let mut versions = VecDeque::with_capacity(2);
                versions.extend([first, version]);
                *self = Self::Many(versions);
            }
            Self::Many(versions) => versions.push_back(version),
        }
    }

    /// Drops what is not needed to read at `revision` and later. True if nothing is left.
    pub(super) fn forget_before(&mut self, revision: Revision) -> bool {
        match self {
            Self::One(version) => version.revision <= revision && version.record.is_none(),
            Self::Many(versions) => {
                while versions.get(1).is_some_and(|second| second.revision <= revision) {
                    versions.pop_front();
                }
                if versions.front().is_some_and(|first| first.revision <= revision && first.record.is_none())
                {
                    versions.pop_front();
                }
                match versions.len() {
                    0 => true,
                    1 => {
                        if let Some(last) = versions.pop_front() {
                            *self = Self::One(last);
                        }
                        false
                    }
                    _ => false,
                }
            }
        }
    }
}
