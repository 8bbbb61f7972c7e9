//! What goes to the terminal. Results go to standard output, everything else beside it.
//!
//! Both streams drop colours when they are not terminals, or when the environment says so.

use std::{
    io::{self, IsTerminal, Write},
    sync::Arc,
};

use clap::ValueEnum;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;

use crate::{
    failure::{Code, Failure},
    table::Table,
};

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For people with wide terminals.
    Wide,
    Json,
    Yaml,
    /// Names only, one on each line.
    Name,
}

/// A terminal in letters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) columns: usize,
    pub(crate) lines: usize,
}

/// Where a command's result and remarks go.
#[derive(Debug, Clone, Default)]
pub enum Out {
    #[default]
    Terminal,
    /// Kept, results and remarks alike, for whoever asks.
    Kept(Arc<Mutex<String>>),
}

impl Out {
    /// Result that ends where it ends. If nobody reads it, nothing is lost by going on.
    pub(crate) fn text(&self, text: &str) {
        match self {
            Out::Terminal => {
                let mut out = anstream::stdout().lock();
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
            Out::Kept(kept) => kept.lock().push_str(&anstream::adapter::strip_str(text).to_string()),
        }
    }

    /// A line of result.
    pub(crate) fn line(&self, text: &str) {
        self.text(&format!("{text}\n"));
    }

    /// A line for the person, which is no result.
    pub(crate) fn note(&self, text: &str) {
        match self {
            Out::Terminal => note(text),
            Out::Kept(_) => self.line(text),
        }
    }

    /// What programs read.
    pub(crate) fn document(&self, value: &impl Serialize, format: Format) -> Result<(), Failure> {
        match format {
            Format::Json => {
                let text = serde_json::to_string_pretty(value).map_err(|error| unprintable(&error))?;
                self.line(&text);
            }
            _ => self.text(&yaml(value)?),
        }
        Ok(())
    }

    /// A table: as wide as the terminal, unless it goes elsewhere or was asked for in full.
    pub(crate) fn table(&self, table: &Table, format: Format) {
        match self.size().filter(|_| format != Format::Wide) {
            Some(size) => self.text(&table.fitted(size.columns)),
            None => self.text(&table.render("")),
        }
    }

    /// How large the terminal is that shows results; nothing if there is none.
    pub(crate) fn size(&self) -> Option<Size> {
        let stdout = io::stdout();
        if !matches!(self, Out::Terminal) || !stdout.is_terminal() {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(stdout).ok()?;
        // Terminals that do not know say nothing.
        (size.ws_col > 0).then(|| Size { columns: size.ws_col.into(), lines: size.ws_row.into() })
    }

    /// Whether progress is drawn, or told in lines.
    pub(crate) fn is_watched(&self) -> bool {
        matches!(self, Out::Terminal) && io::stderr().is_terminal()
    }
}

pub(crate) fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

pub(crate) fn yaml(value: &impl Serialize) -> Result<String, Failure> {
    serde_saphyr::to_string(value).map_err(|error| unprintable(&error))
}

fn unprintable(error: &dyn std::error::Error) -> Failure {
    Failure::new(Code::Other, format!("print the result: {error}"))
}

/// Several objects as one, the way `kubectl` shows them.
pub(crate) fn list(items: Vec<Value>) -> Value {
    serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// Colours and weights, as text around text.
pub(crate) mod paint {
    fn with(code: &str, text: &str) -> String {
        format!("\x1b[{code}m{text}\x1b[0m")
    }

    pub(crate) fn good(text: &str) -> String {
        with("32", text)
    }

    pub(crate) fn busy(text: &str) -> String {
        with("33", text)
    }

    pub(crate) fn bad(text: &str) -> String {
        with("31", text)
    }

    pub(crate) fn strong(text: &str) -> String {
        with("1", text)
    }

    pub(crate) fn faint(text: &str) -> String {
        with("2", text)
    }
}
