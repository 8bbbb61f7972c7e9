//! Label and field selectors: parsing, matching and their canonical text.

mod field;
mod label;
mod lexer;

pub use self::{
    field::{FieldOperator, FieldSelector, FieldTerm},
    label::{LabelSelector, Operator, Requirement},
};

/// Longest selector text that is looked at; longer ones cannot come in through a URL.
const MAX_TEXT: usize = 256 * 1024;

/// Why a selector is refused; the text is what the client reads after `400 Bad Request`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

impl SelectorError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    fn too_long() -> Self {
        Self(format!("selector is longer than {MAX_TEXT} bytes"))
    }
}
