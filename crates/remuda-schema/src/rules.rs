//! Expression rules (`x-kubernetes-validations`): compiled with the definition, run on each write.

use std::{collections::BTreeSet, sync::Arc};

use remuda_cel::Program;
use serde_json::Value;

use crate::{
    error::FieldError,
    gotext,
    props::{Props, RuleSource},
    schema::{ListType, Schema},
};

mod run;
mod types;

pub(crate) use run::{check, check_default};
pub(crate) use types::compile_tree;

/// One rule of a node.
#[derive(Debug, Clone)]
pub struct Rule {
    pub source: RuleSource,
    /// `fieldPath` as field errors spell it; empty for the node itself.
    field: String,
    compiled: Option<Arc<Compiled>>,
}

/// Rules are equal when they say the same.
impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

#[derive(Debug)]
struct Compiled {
    rule: Result<Program, String>,
    message: Option<Result<Program, String>>,
    uses_old: bool,
}

impl Rule {
    pub(crate) fn new(source: RuleSource, field: String) -> Self {
        Self { source, field, compiled: None }
    }

    /// What identifies a rule in errors about it.
    fn name(&self) -> &str {
        let message = self.source.message.trim();
        if message.is_empty() { self.source.rule.trim() } else { message }
    }
}

pub(crate) fn exist(schema: &Schema) -> bool {
    schema.hints.sealed && schema.hints.rules
}

/// The form of a rule: what is said, not what it means.
pub(crate) fn check_form(node: &Props, rule: &RuleSource, path: &str, errors: &mut Vec<FieldError>) {
    let lines = |text: &str| text.contains(['\n', '\r']);
    let trimmed = rule.message.trim();
    let text = |text: &str| Value::from(text);
    if rule.rule.trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.rule"), "rule is not specified"));
    } else if !rule.message.is_empty() && trimmed.is_empty() {
        let detail = "must be non-empty if specified";
        errors.push(FieldError::invalid(format!("{path}.message"), &text(&rule.message), detail));
    } else if lines(trimmed) {
        let detail = "must not contain line breaks";
        errors.push(FieldError::invalid(format!("{path}.message"), &text(&rule.message), detail));
    } else if lines(rule.rule.trim()) && trimmed.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(format!("{path}.message"), detail));
    }
    if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(format!("{path}.messageExpression"), detail));
    }
    if let Some(reason) = &rule.reason {
        let supported =
            ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
        if !supported.contains(&reason.as_str()) {
            errors.push(FieldError::not_supported(format!("{path}.reason"), &text(reason), &supported));
        }
    }
    if rule.field_path.is_empty() {
        return;
    }
    let field = format!("{path}.fieldPath");
    if rule.field_path.trim().is_empty() {
        errors.push(FieldError::invalid(&field, &text(&rule.field_path), "must be non-empty if specified"));
    }
    if lines(&rule.field_path) {
        errors.push(FieldError::invalid(&field, &text(&rule.field_path), "must not contain line breaks"));
    }
    if crate::fieldpath::resolve(&rule.field_path, node, true).is_err() {
        errors.push(FieldError::invalid(&field, &text(&rule.field_path), "must be a valid path"));
    }
}

/// Reports the rules of a compiled schema that do not compile. Expressions in `stored` were accepted
/// before and stay accepted.
pub(crate) fn report(schema: &Schema, path: &str, stored: &BTreeSet<String>) -> Vec<FieldError> {
    let mut report = Report { errors: Vec::new(), stored };
    report.node(schema, path, None);
    report.errors
}

struct Report<'s> {
    errors: Vec<FieldError>,
    stored: &'s BTreeSet<String>,
}

impl Report<'_> {
    fn node(&mut self, schema: &Schema, path: &str, uncorrelatable: Option<&str>) {
        if !exist(schema) {
            return;
        }
        for (name, child) in &schema.properties {
            self.node(child, &format!("{path}.properties[{name}]"), uncorrelatable);
        }
        if let Some(crate::Additional::Schema(child)) = &schema.additional {
            self.node(child, &format!("{path}.additionalProperties"), uncorrelatable);
        }
        if let Some(items) = &schema.items {
            let lost = uncorrelatable.or((!matches!(schema.list_type, ListType::Map(_))).then_some(path));
            self.node(items, &format!("{path}.items"), lost);
        }
        let rules = schema.validation.iter().flat_map(|validation| &validation.rules);
        for (index, rule) in rules.enumerate() {
            if let Some(compiled) = &rule.compiled {
                self.rule(
                    rule,
                    compiled,
                    &format!("{path}.x-kubernetes-validations[{index}]"),
                    uncorrelatable,
                );
            }
        }
    }

    fn rule(&mut self, rule: &Rule, compiled: &Compiled, path: &str, uncorrelatable: Option<&str>) {
        if let Err(detail) = &compiled.rule {
            if !self.stored.contains(&rule.source.rule) {
                self.invalid(format!("{path}.rule"), &rule.source, detail);
            }
            return;
        }
        if let Some(Err(detail)) = &compiled.message
            && !self.stored.contains(&rule.source.message_expression)
        {
            self.invalid(format!("{path}.messageExpression"), &rule.source, detail);
        }
        if compiled.uses_old {
            if let Some(place) = uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {place}"
                );
                let rule = rule.source.rule.as_str().into();
                self.errors.push(FieldError::invalid(format!("{path}.rule"), &rule, &detail));
            }
        } else if let Some(optional) = rule.source.optional_old_self {
            let detail = "may not be set if oldSelf is not used in rule";
            self.errors.push(FieldError::invalid(
                format!("{path}.optionalOldSelf"),
                &optional.into(),
                detail,
            ));
        }
    }

    /// The reference prints the whole rule as it holds it, with its own field names.
    fn invalid(&mut self, field: String, rule: &RuleSource, detail: &str) {
        let text = |text: &str| gotext::json(&text.into());
        let shown = format!(
            "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
            text(&rule.rule),
            text(&rule.message),
            text(&rule.message_expression),
            rule.reason.as_deref().map_or("null".to_owned(), text),
            text(&rule.field_path),
            rule.optional_old_self.map_or("null".to_owned(), |set| set.to_string()),
        );
        let message = format!("Invalid value: {shown}: {detail}");
        self.errors.push(FieldError::new(field, crate::Reason::Invalid, message));
    }
}

#[cfg(test)]
mod tests;
