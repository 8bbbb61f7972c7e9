//! Field errors as Kubernetes words them: what `details.causes` of an `Invalid` answer holds.

use std::fmt;

use crate::gotext;

/// Machine-readable class of a field error; `as_str` is the `reason` of a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Required,
    Invalid,
    TypeInvalid,
    NotSupported,
    Forbidden,
    Duplicate,
    TooLong,
    TooMany,
    NotFound,
    Internal,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }
}

/// One broken rule. `message` is the whole text after the field (`Invalid value: 3: …`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    pub field: String,
    pub reason: Reason,
    pub message: String,
}

impl FieldError {
    pub fn new(field: impl Into<String>, reason: Reason, message: impl Into<String>) -> Self {
        Self { field: field.into(), reason, message: message.into() }
    }

    /// `Required value` or `Required value: detail`.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, Reason::Required, join("Required value", detail))
    }

    /// `Invalid value: <json>: detail`.
    pub fn invalid(field: impl Into<String>, value: &serde_json::Value, detail: &str) -> Self {
        Self::new(field, Reason::Invalid, join(&format!("Invalid value: {}", gotext::show(value)), detail))
    }

    /// `Forbidden: detail`.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, Reason::Forbidden, join("Forbidden", detail))
    }

    /// `Unsupported value: <json>: supported values: "a", "b"`.
    pub fn not_supported(field: impl Into<String>, value: &serde_json::Value, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|value| gotext::quote(value)).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        let head = format!("Unsupported value: {}", gotext::show(value));
        Self::new(field, Reason::NotSupported, join(&head, &detail))
    }

    /// `Duplicate value: <json>`.
    pub fn duplicate(field: impl Into<String>, value: &serde_json::Value) -> Self {
        Self::new(field, Reason::Duplicate, format!("Duplicate value: {}", gotext::show(value)))
    }

    /// `Too long: may not be more than N bytes`.
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        Self::new(field, Reason::TooLong, format!("Too long: may not be more than {limit} {unit}"))
    }

    /// `Too many: N: must have at most M items`.
    pub fn too_many(field: impl Into<String>, actual: usize, limit: usize) -> Self {
        let unit = if limit == 1 { "item" } else { "items" };
        Self::new(field, Reason::TooMany, format!("Too many: {actual}: must have at most {limit} {unit}"))
    }

    /// `Invalid value: <json>: detail`, for a value of the wrong type.
    pub fn type_invalid(field: impl Into<String>, value: &serde_json::Value, detail: &str) -> Self {
        let head = format!("Invalid value: {}", gotext::show(value));
        Self::new(field, Reason::TypeInvalid, join(&head, detail))
    }

    /// `Invalid value: detail`, for values too large to repeat.
    pub fn invalid_omitted(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, Reason::Invalid, join("Invalid value", detail))
    }

    /// `Internal error: detail`.
    pub fn internal(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, Reason::Internal, join("Internal error", detail))
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

fn join(head: &str, detail: &str) -> String {
    if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") }
}
