//! What a job writes: its log and its last word.

use std::{
    io::{self, Write},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use remuda_drivers::log::{Level, LogSink};

/// Lines on standard output, up to a number of bytes.
#[derive(Debug, Default)]
pub struct Output(AtomicUsize);

/// What a job may write; the rest is dropped.
const MOST: usize = 4 << 20;

impl LogSink for Output {
    fn line(&self, level: Level, text: &str) {
        let before = self.0.fetch_add(text.len() + 1, Ordering::Relaxed);
        let mut out = io::stdout().lock();
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

impl Result {
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        // Kubernetes shows 4096 bytes.
        let message: String = self.message.chars().take(3000).collect();
        if path.starts_with("/dev") {
            return std::fs::write(path, message);
        }
        let temporary = path.with_extension("new");
        std::fs::write(&temporary, format!("{}\n{message}", self.code))?;
        std::fs::rename(&temporary, path)
    }

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
        result.write(&path).unwrap();
        assert_eq!(Result::read(&path), Some(result));
        std::fs::write(&path, "what").unwrap();
        assert_eq!(Result::read(&path), None);
    }
}
