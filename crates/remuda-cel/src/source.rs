//! Positions in an expression and the errors reported there.

use std::fmt;

/// Everything wrong with an expression, printed the way cel-go prints it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub struct CompileErrors {
    /// In the order they were found.
    pub issues: Vec<Issue>,
    text: String,
}

/// One mistake, with its place in the expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Issue {
    pub message: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

/// More than this is noise, and the text of errors must stay bounded.
const MAX_ISSUES: usize = 30;
/// Longer lines are not repeated below the message.
const MAX_SNIPPET: usize = 16_384;

/// Collects mistakes at byte offsets of a source.
#[derive(Debug, Default)]
pub(crate) struct Issues {
    found: Vec<(u32, String)>,
}

impl Issues {
    pub(crate) fn report(&mut self, at: u32, message: impl Into<String>) {
        if self.found.len() < MAX_ISSUES {
            self.found.push((at, message.into()));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    pub(crate) fn into_errors(self, source: &str) -> CompileErrors {
        let mut text = String::new();
        let mut issues = Vec::with_capacity(self.found.len());
        for (at, message) in self.found {
            let (line, column, snippet) = locate(source, at as usize);
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&format!("ERROR: <input>:{line}:{column}: {message}"));
            if snippet.len() <= MAX_SNIPPET {
                point(&mut text, snippet, column - 1);
            }
            issues.push(Issue { message, line, column });
        }
        CompileErrors { issues, text }
    }
}

impl fmt::Display for CompileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn locate(source: &str, at: usize) -> (usize, usize, &str) {
    let at = (0..=at.min(source.len())).rev().find(|&at| source.is_char_boundary(at)).unwrap_or(0);
    let start = source[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = source[at..].find('\n').map_or(source.len(), |newline| at + newline);
    let line = source[..at].matches('\n').count() + 1;
    let column = source[start..at].chars().count() + 1;
    (line, column, &source[start..end])
}

/// Draws the line and a caret under the place; wide characters get wide dots.
fn point(text: &mut String, snippet: &str, column: usize) {
    text.push_str("\n | ");
    text.push_str(&snippet.replace('\t', " "));
    text.push_str("\n | ");
    let mut chars = snippet.chars();
    for char in chars.by_ref().take(column) {
        text.push(if char.len_utf8() > 1 { '\u{ff0e}' } else { '.' });
    }
    text.push(if chars.next().is_some_and(|char| char.len_utf8() > 1) { '\u{ff3e}' } else { '^' });
}
