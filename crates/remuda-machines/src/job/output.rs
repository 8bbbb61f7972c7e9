//! What a job writes: its log and its last word.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use remuda_drivers::log::{Level, LogSink};

/// Lines on standard output, up to a number of bytes.
#[derive(Debug, Default)]
pub struct Output {
    written: AtomicUsize,
    errors: bool,
}

impl Output {
    /// Lines on standard error, where standard output is for something else.
    pub(crate) fn errors() -> Self {
        Self { errors: true, ..Self::default() }
    }
}

/// What a job may write; the rest is dropped.
const MOST: usize = 4 << 20;

impl LogSink for Output {
    fn line(&self, level: Level, text: &str) {
        let before = self.written.fetch_add(text.len() + 1, Ordering::Relaxed);
        let mut out: Box<dyn Write> = match self.errors {
            true => Box::new(io::stderr().lock()),
            false => Box::new(io::stdout().lock()),
        };
        let _ = match (before, level) {
            (0..MOST, Level::Debug) => writeln!(out, "debug: {text}"),
            (0..MOST, Level::Warn) => writeln!(out, "warning: {text}"),
            (0..MOST, Level::Info) => writeln!(out, "{text}"),
            _ => Ok(()),
        };
    }
}

/// How a job ended. The first line of its file is the exit code, the rest the last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Result {
    pub code: u8,
    pub message: String,
}

/// Where a job's last word goes.
pub(crate) struct LastWord {
    path: PathBuf,
    /// Open from the beginning, for who may not enter the directory any more when there is something to write.
    file: Option<File>,
}

impl LastWord {
    pub(crate) fn at(path: &Path, open: bool) -> io::Result<Self> {
        let file = match open {
            true => Some(File::options().create(true).write(true).truncate(true).open(path)?),
            false => None,
        };
        Ok(Self { path: path.to_owned(), file })
    }

    pub(crate) fn write(self, result: &Result) -> io::Result<()> {
        // Kubernetes shows 4096 bytes.
        let message: String = result.message.chars().take(3000).collect();
        let text = match self.path.starts_with("/dev") {
            true => message,
            false => format!("{}\n{message}", result.code),
        };
        match self.file {
            Some(mut file) => file.write_all(text.as_bytes()),
            None if self.path.starts_with("/dev") => std::fs::write(&self.path, text),
            None => {
                let temporary = self.path.with_extension("new");
                std::fs::write(&temporary, text)?;
                std::fs::rename(&temporary, &self.path)
            }
        }
    }
}

impl Result {
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let (code, message) = text.split_once('\n')?;
        Some(Self { code: code.parse().ok()?, message: message.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_word_can_be_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result");
        let result = Result { code: 75, message: "network: lost\nmore".into() };
        for open in [false, true] {
            let word = LastWord::at(&path, open).unwrap();
            assert!(!open || Result::read(&path).is_none());
            word.write(&result).unwrap();
            assert_eq!(Result::read(&path).as_ref(), Some(&result));
        }
        std::fs::write(&path, "what").unwrap();
        assert_eq!(Result::read(&path), None);
    }
}
