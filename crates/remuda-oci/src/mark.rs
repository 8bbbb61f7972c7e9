//! Whether a file is this program: every build of it carries a line that says so, with its version.
//!
//! It is no proof, only a check against mistakes. Who may add a program to a server is decided elsewhere.

use std::{fmt, io, str::FromStr};

/// Begins the line; a version and a line break follow.
pub const PREFIX: &str = "remuda-binary/v1 version=";
/// No version is longer.
const LONGEST: usize = 64;

/// The line of the program that is being compiled.
#[macro_export]
macro_rules! mark {
    () => {
        concat!("remuda-binary/v1 version=", env!("CARGO_PKG_VERSION"), "\n")
    };
}

/// A version of this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    text: String,
    major: u64,
    minor: u64,
}

/// Text is no version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a version of the form 1.2.3")]
pub struct NoVersion;

impl FromStr for Version {
    type Err = NoVersion;

    fn from_str(text: &str) -> Result<Self, NoVersion> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
        if text.len() > LONGEST || !text.bytes().all(is_plain) {
            return Err(NoVersion);
        }
        let core = text.split(['-', '+']).next().unwrap_or_default();
        let numbers: Result<Vec<u64>, _> = core.split('.').map(str::parse).collect();
        match numbers.as_deref() {
            Ok([major, minor, _]) => Ok(Version { text: text.to_owned(), major: *major, minor: *minor }),
            _ => Err(NoVersion),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Version {
    /// Whether agents of this version and servers of the other understand each other: they are at most one minor
    /// version apart.
    pub fn is_near(&self, other: &Version) -> bool {
        self.major == other.major && self.minor.abs_diff(other.minor) <= 1
    }
}

/// Looks for the mark in bytes that come in pieces.
#[derive(Debug, Default)]
pub struct Search {
    /// The end of what came before, where a mark may have begun.
    tail: Vec<u8>,
    found: Option<Version>,
}

impl Search {
    pub fn update(&mut self, piece: &[u8]) {
        if self.found.is_some() {
            return;
        }
        self.tail.extend_from_slice(piece);
        self.found = find(&self.tail);
        let keep = PREFIX.len() + LONGEST + 1;
        self.tail.drain(..self.tail.len().saturating_sub(keep));
    }

    pub fn finish(self) -> Option<Version> {
        self.found
    }

    /// The mark in all that a reader has.
    pub fn whole(mut reader: impl io::Read) -> io::Result<Option<Version>> {
        let mut search = Search::default();
        let mut piece = vec![0; 1 << 18];
        loop {
            match reader.read(&mut piece)? {
                0 => return Ok(search.finish()),
                length => search.update(&piece[..length]),
            }
        }
    }
}

/// The first mark. Code that looks for one has its beginning in it too, without a version behind it.
fn find(bytes: &[u8]) -> Option<Version> {
    let needle = PREFIX.as_bytes();
    let last = needle.len() - 1;
    // Horspool: how far the next place can be, by the byte under the needle's last.
    let mut skip = [needle.len(); 256];
    for (at, byte) in needle[..last].iter().enumerate() {
        skip[usize::from(*byte)] = last - at;
    }
    let mut at = 0;
    while let Some(under) = bytes.get(at + last) {
        if *under == needle[last] && bytes[at..].starts_with(needle) {
            let rest = &bytes[at + needle.len()..];
            let line = rest.iter().take(LONGEST + 1).position(|byte| *byte == b'\n').map(|end| &rest[..end]);
            let text = line.and_then(|line| std::str::from_utf8(line).ok());
            if let Some(version) = text.and_then(|text| text.parse().ok()) {
                return Some(version);
            }
        }
        at += skip[usize::from(*under)];
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_mark_of_a_program_is_found_however_it_is_cut() {
        let mut bytes = vec![b'r'; 700];
        // What the searching code itself looks like.
        bytes.extend_from_slice(PREFIX.as_bytes());
        bytes.extend_from_slice(b"no version\n");
        bytes.extend_from_slice(crate::mark!().as_bytes());
        bytes.extend_from_slice(&[0; 300]);
        for size in [1, 7, 64, 4096] {
            let mut search = Search::default();
            bytes.chunks(size).for_each(|piece| search.update(piece));
            assert_eq!(search.finish().unwrap().to_string(), env!("CARGO_PKG_VERSION"), "{size}");
        }
        assert_eq!(Search::whole(&bytes[..730]).unwrap(), None);
    }

    #[test]
    fn versions_are_near_when_one_apart() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        assert!(version("0.2.9").is_near(&version("0.1.0")));
        assert!(version("0.1.0-rc.1").is_near(&version("0.2.0+x")));
        assert!(!version("0.3.0").is_near(&version("0.1.0")));
        assert!(!version("1.1.0").is_near(&version("0.1.0")));
        for text in ["", "1", "1.2", "1.2.3.4", "a.b.c", "v1.2.3", "1.2.3 x"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn searching_never_fails(bytes in proptest::collection::vec(any::<u8>(), 0..2000), size in 1_usize..300) {
            let mut search = Search::default();
            bytes.chunks(size).for_each(|piece| search.update(piece));
            prop_assert_eq!(search.finish(), None);
        }
    }
}
