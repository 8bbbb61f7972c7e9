//! What is told about one file: by who reads it where it lies, to those who show it.

use serde::{Deserialize, Serialize};

use crate::{Unproven, Verified};

/// The outcome of reading a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Report {
    /// Name of the file.
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
    /// [`Unproven::code`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub code: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Report {
    pub fn new(file: &str, outcome: Result<Verified, Unproven>) -> Report {
        let file = file.to_owned();
        match outcome {
            Ok(verified) => Report { file, verified: Some(verified), ..Report::default() },
            Err(unproven) => {
                let message = match &unproven {
                    Unproven::Read(source) => format!("{unproven}: {source}"),
                    unproven => unproven.to_string(),
                };
                Report { file, code: unproven.code().to_owned(), message, ..Report::default() }
            }
        }
    }

    pub fn is_proven(&self) -> bool {
        self.verified.is_some()
    }
}
