//! Validation of a value against its schema.
//!
//! The parts run in the order of the reference: OpenAPI value validation, metadata of embedded
//! resources, uniqueness of set and map lists, expression rules.

use serde_json::Value;

use crate::{
    error::{FieldError, Reason},
    listtype, metadata,
    path::Path,
    ratchet::Old,
    rules,
    schema::Schema,
};

mod value;

/// More errors than anybody reads; the rest is left out.
pub(crate) const MAX_ERRORS: usize = 500;

impl Schema {
    /// Checks a whole object that is to be created (`old` is `None`) or to replace `old`.
    ///
    /// The object's own `metadata` is not checked here; that of embedded resources is.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = value::check(self, new, old.map(|value| Old { value, schema: self }), "");
        if self.may_embed() {
            metadata::validate_embedded(self, new, &Path::ROOT, &mut errors);
        }
        self.finish(new, old, &mut errors);
        errors
    }

    /// Checks a write to the status subresource: value validation sees only `.status`.
    pub fn validate_status(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let (Some(status), Some(schema)) = (new.get("status"), self.properties.get("status")) {
            let old = old.get("status").map(|value| Old { value, schema });
            errors = value::check(schema, status, old, "status");
        }
        self.finish(new, Some(old), &mut errors);
        errors
    }

    fn finish(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        if self.may_have_list_types() {
            let duplicates = listtype::check(self, new);
            // Lists that were ambiguous before do not stop an update that leaves them so.
            if !duplicates.is_empty() && old.is_none_or(|old| listtype::check(self, old).is_empty()) {
                errors.extend(duplicates);
            }
        }
        if self.may_have_rules() && rules::exist(self) {
            if errors.iter().any(|error| blocks_rules(error.reason)) {
                errors.push(FieldError::invalid("<nil>", &Value::Null, RULES_SKIPPED));
            } else {
                errors.extend(rules::check(self, new, old));
            }
        }
        errors.truncate(MAX_ERRORS);
    }

    /// Value validation alone, of a value anywhere, reporting paths below `base`.
    pub(crate) fn validate_value(&self, new: &Value, base: &str) -> Vec<FieldError> {
        value::check(self, new, None, base)
    }
}

const RULES_SKIPPED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// Rules expect values of the declared types and sizes; other errors do not keep them from running.
fn blocks_rules(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NotSupported | Reason::Required | Reason::TooLong | Reason::TooMany | Reason::TypeInvalid
    )
}

#[cfg(test)]
mod tests;
