//! Expression rules (`x-kubernetes-validations`).

use std::sync::Arc;

use serde_json::Value;

use crate::{error::FieldError, props::RuleSource, schema::Schema};

/// One rule of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    pub source: RuleSource,
}

impl Rule {
    pub fn new(source: RuleSource) -> Self {
        Self { source }
    }
}

pub(crate) fn compile_tree(schema: Arc<Schema>, _root: bool) -> Arc<Schema> {
    schema
}

pub(crate) fn exist(schema: &Schema) -> bool {
    schema.hints.rules
}

pub(crate) fn check(_schema: &Schema, _new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    Vec::new()
}
