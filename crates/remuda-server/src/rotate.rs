//! A log file that begins anew when it has grown large, keeping some of its predecessors.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// `path` is the newest file, `path.1` the one before it, and so on.
#[derive(Debug)]
pub(crate) struct RotatingFile {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
    max_backups: usize,
    /// A record whose end has not been written yet.
    begun: Vec<u8>,
}

impl RotatingFile {
    /// Opens the file, readable by its owner only if it is new, and continues at its end.
    pub(crate) fn open(path: &Path, max_size: u64, max_backups: usize) -> io::Result<RotatingFile> {
        let file = append(path)?;
        let size = file.metadata()?.len();
        Ok(RotatingFile { path: path.to_owned(), file, size, max_size, max_backups, begun: Vec::new() })
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..self.max_backups).rev() {
            rename_if_there(&numbered(&self.path, number), &numbered(&self.path, number + 1))?;
        }
        match self.max_backups {
            0 => fs::remove_file(&self.path)?,
            _ => rename_if_there(&self.path, &numbered(&self.path, 1))?,
        }
        self.file = append(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

/// A record ends with a newline; it goes to the file at once and whole.
impl Write for RotatingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        if bytes.ends_with(b"\n") {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut record = std::mem::take(&mut self.begun);
        if record.is_empty() {
            return Ok(());
        }
        if self.size > 0 && self.size + record.len() as u64 > self.max_size {
            self.rotate()?;
        }
        self.file.write_all(&record)?;
        self.size += record.len() as u64;
        record.clear();
        self.begun = record;
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// The predecessor of this number.
pub(crate) fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(dir: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
        let named = entries.map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        });
        let mut files: Vec<_> = named.collect();
        files.sort();
        files
    }

    #[test]
    fn old_records_move_on_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut log = RotatingFile::open(&path, 8, 2).unwrap();
        for record in ["one", "two", "three", "four", "five", "six"] {
            // The end of a record may come apart from it.
            log.write_all(record.as_bytes()).unwrap();
            log.write_all(b"\n").unwrap();
        }
        let expected = [("audit.log", "six\n"), ("audit.log.1", "five\n"), ("audit.log.2", "four\n")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(files(dir.path()), expected);
    }

    #[test]
    fn a_restart_continues_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        RotatingFile::open(&path, 100, 1).unwrap().write_all(b"one\n").unwrap();
        RotatingFile::open(&path, 100, 1).unwrap().write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    }
}
