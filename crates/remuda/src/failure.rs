//! How a command fails: one line, perhaps a hint, exit code 1.

use std::{error::Error, process::ExitCode};

use crate::output;

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(error: &dyn Error, hint: Option<String>) -> Failure {
        Failure { message: chain(error), hint }
    }

    pub(crate) fn report(&self) -> ExitCode {
        output::note(&format!("error: {}", self.message));
        if let Some(hint) = &self.hint {
            output::note(&format!("hint: {hint}"));
        }
        ExitCode::FAILURE
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure { message: format!("{error:#}"), hint: None }
    }
}

/// An error and its causes on one line: each says only what it adds.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text.replace('\n', " ")
}
