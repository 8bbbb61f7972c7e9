//! The format of a data directory: whether this program may work with what another version left.
//!
//! The first line of the file `format` says it, the second who wrote it:
//!
//! ```text
//! format 1
//! version 0.1.0
//! ```
//!
//! Directories of programs that wrote no such file have format 1. The number grows when an earlier program would do
//! harm to what a later one writes; the formats of the store's own files and of backups are theirs.

use std::{fs::File, io, io::Read, path::Path};

use remuda_names::file;

use super::DataDirError;

/// The newest format this program works with, and the one it writes.
pub const FORMAT: u32 = 1;
/// No such file is larger.
const MOST: u64 = 4096;

/// Whether the directory says that it has this program's format. Refused if it has a newer one.
pub(super) fn check(dir: &Path) -> Result<bool, DataDirError> {
    let path = dir.join(file::FORMAT);
    let mut text = Vec::new();
    match File::open(&path).and_then(|file| file.take(MOST).read_to_end(&mut text)) {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(false);
        }
        Err(source) => return Err(DataDirError::Read { path, source }),
    }
    let Some((found, version)) = parse(&text) else { return Err(DataDirError::NoFormat { path }) };
    if found > FORMAT {
        return Err(DataDirError::Newer { path: dir.to_owned(), found, version });
    }
    Ok(found == FORMAT)
}

pub(super) fn line(version: &str) -> String {
    format!("format {FORMAT}\nversion {version}\n")
}

fn parse(text: &[u8]) -> Option<(u32, Option<String>)> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.lines();
    let format = lines.next()?.strip_prefix("format ")?.parse().ok()?;
    let version = lines.next().and_then(|line| line.strip_prefix("version "));
    let is_plain =
        |version: &&str| version.len() <= 64 && version.bytes().all(|byte| byte.is_ascii_graphic());
    Some((format, version.filter(is_plain).map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use super::{super::DataDir, *};

    #[test]
    fn what_a_newer_version_wrote_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        fs::create_dir(&path).unwrap();
        fs::write(path.join(file::FORMAT), "format 7\nversion 9.1.0\n").unwrap();
        let error = DataDir::open(&path).unwrap_err();
        let told = error.to_string();
        assert!(told.contains("has format 7, written by version 9.1.0"), "{told}");
        assert!(error.hint().unwrap().contains("use version 9.1.0"), "{:?}", error.hint());
        let names: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [file::FORMAT]);
        // Not even its mode, which a server makes private.
        assert_ne!(fs::metadata(&path).unwrap().mode() & 0o077, 0);
    }

    #[test]
    fn a_directory_without_a_format_gets_one() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        drop(DataDir::open(&path).unwrap());
        let text = fs::read_to_string(path.join(file::FORMAT)).unwrap();
        assert_eq!(text, format!("format 1\nversion {}\n", crate::VERSION));
        // Who works with it later changes nothing in it.
        fs::write(path.join(file::FORMAT), "format 1\nversion 0.0.9\n").unwrap();
        drop(DataDir::open(&path).unwrap());
        assert!(fs::read_to_string(path.join(file::FORMAT)).unwrap().contains("0.0.9"));
    }

    #[test]
    fn a_file_that_names_no_format_is_refused() {
        for text in [
            &b""[..],
            b"1\n",
            b"format\n",
            b"format one\n",
            b"format -1\n",
            b"\xff\n",
            b"format 4294967296\n",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
        assert_eq!(parse(b"format 2"), Some((2, None)));
        assert_eq!(parse(b"format 2\nversion \x1b[2J\n"), Some((2, None)));
    }
}
