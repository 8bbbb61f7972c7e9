//! Where the lines go that drivers and plugins write while they work.
//!
//! Every line is scrubbed of known secrets before it reaches the sink, so that sinks (job logs, files,
//! terminals) need not know about credentials.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use crate::secret::Redactor;

/// How loud a line is. Plugins write progress to standard output and details to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Debug,
    Info,
    Warn,
}

/// Takes finished lines, without line ends. Called from async code: it must not block for long.
pub trait LogSink: Send + Sync {
    fn line(&self, level: Level, text: &str);
}

/// A sink together with the secrets that must not reach it. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    sink: Arc<dyn LogSink>,
    redactor: Redactor,
}

impl Log {
    pub fn new(sink: Arc<dyn LogSink>) -> Self {
        Self { sink, redactor: Redactor::default() }
    }

    /// Lines become `tracing` events.
    pub fn tracing() -> Self {
        Self::new(Arc::new(TracingSink))
    }

    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    pub fn line(&self, level: Level, text: &str) {
        self.sink.line(level, &self.redactor.scrub(text));
    }

    pub fn info(&self, text: impl AsRef<str>) {
        self.line(Level::Info, text.as_ref());
    }

    pub fn debug(&self, text: impl AsRef<str>) {
        self.line(Level::Debug, text.as_ref());
    }

    pub fn warn(&self, text: impl AsRef<str>) {
        self.line(Level::Warn, text.as_ref());
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("redactor", &self.redactor).finish_non_exhaustive()
    }
}

struct TracingSink;

impl LogSink for TracingSink {
    fn line(&self, level: Level, text: &str) {
        match level {
            Level::Debug => tracing::debug!(text, "driver output"),
            Level::Info => tracing::info!(text, "driver output"),
            Level::Warn => tracing::warn!(text, "driver output"),
        }
    }
}

/// Keeps the newest lines in memory, up to a number of bytes.
#[derive(Default)]
pub struct MemoryLog {
    lines: Mutex<(std::collections::VecDeque<(Level, String)>, usize)>,
}

impl MemoryLog {
    const BYTES: usize = 1 << 20;

    /// Everything kept, one line each.
    pub fn text(&self) -> String {
        let kept = self.lines.lock();
        kept.0.iter().flat_map(|(_, line)| [line.as_str(), "\n"]).collect()
    }
}

impl LogSink for MemoryLog {
    fn line(&self, level: Level, text: &str) {
        let mut kept = self.lines.lock();
        kept.1 += text.len() + 1;
        kept.0.push_back((level, text.to_owned()));
        while kept.1 > Self::BYTES {
            let Some((_, old)) = kept.0.pop_front() else { break };
            kept.1 -= old.len() + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_scrubbed_before_the_sink_and_memory_is_bounded() {
        let memory = Arc::new(MemoryLog::default());
        let log = Log::new(memory.clone());
        log.redactor().learn("canary");
        log.info("token canary used");
        assert_eq!(memory.text(), "token [redacted] used\n");
        let long = "x".repeat(300_000);
        (0..10).for_each(|_| log.debug(&long));
        assert!(memory.text().len() <= MemoryLog::BYTES);
    }
}
