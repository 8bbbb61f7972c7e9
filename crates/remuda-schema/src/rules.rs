//! Expression rules (`x-kubernetes-validations`): compiled with the definition, run on each write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use remuda_cel::Program;
use serde_json::Value;

use crate::{
    error::FieldError,
    gotext,
    props::{Props, RuleSource},
    schema::{Additional, ListType, Schema},
};

mod cost;
mod run;
mod types;

use self::cost::{Measured, Total};
pub(crate) use run::{check, check_default};
pub(crate) use types::compile_tree;
pub use types::object_type;

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

/// What is known of the definition that is stored.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'s> {
    /// Its expressions were accepted before and stay accepted.
    pub(crate) expressions: &'s BTreeSet<String>,
    /// It has this very schema: what its rules cost is not judged anew.
    pub(crate) same_schema: bool,
}

/// Reports the rules of a compiled schema that do not compile or may cost too much.
pub(crate) fn report(schema: &Schema, path: &str, stored: Stored<'_>) -> Vec<FieldError> {
    let mut report = Report { errors: Vec::new(), stored, total: Total::default() };
    let root = Place { uncorrelatable: None, seen: false, times: Some(1), resource: true };
    report.node(schema, path, root);
    if !stored.same_schema {
        report.total.check(path, &mut report.errors);
    }
    report.errors
}

struct Report<'s> {
    errors: Vec<FieldError>,
    stored: Stored<'s>,
    total: Total,
}

/// Where a node is in the schema.
#[derive(Clone, Copy)]
struct Place<'p> {
    /// The list whose items cannot be told apart, if the node is in one.
    uncorrelatable: Option<&'p str>,
    /// A rule of a node above sees this one.
    seen: bool,
    /// How many of it an object can have; `None` without a bound.
    times: Option<u64>,
    resource: bool,
}

impl Report<'_> {
    /// Reports what is below the node, then the node. Measures it if an expression sees it.
    fn node(&mut self, schema: &Schema, path: &str, place: Place<'_>) -> Option<Measured> {
        if !exist(schema) {
            return if place.seen { cost::measure(schema, place.resource) } else { None };
        }
        let rules =
            schema.validation.as_ref().map(|validation| validation.rules.as_slice()).unwrap_or_default();
        let seen = place.seen || !rules.is_empty();
        let times =
            place.times.zip(cost::elements(schema)).map(|(times, elements)| times.saturating_mul(elements));
        let inner = |child: &Schema| Place { seen, times, resource: child.embedded_resource, ..place };
        let mut fields = BTreeMap::new();
        for (name, child) in &schema.properties {
            let field = self.node(child, &format!("{path}.properties[{name}]"), inner(child));
            fields.insert(name.as_str(), field);
        }
        let value = match &schema.additional {
            Some(Additional::Schema(child)) => {
                Some(self.node(child, &format!("{path}.additionalProperties"), inner(child)))
            }
            _ => None,
        };
        let item = schema.items.as_ref().and_then(|items| {
            let lost =
                place.uncorrelatable.or((!matches!(schema.list_type, ListType::Map(_))).then_some(path));
            self.node(items, &format!("{path}.items"), Place { uncorrelatable: lost, ..inner(items) })
        });
        let measured = if seen { cost::assemble(schema, place.resource, fields, value, item) } else { None };
        for (index, rule) in rules.iter().enumerate() {
            if let Some(compiled) = &rule.compiled {
                let path = format!("{path}.x-kubernetes-validations[{index}]");
                if let Some(measured) = &measured {
                    self.cost(rule, compiled, &path, measured, place.times);
                }
                self.rule(rule, compiled, &path, place.uncorrelatable);
            }
        }
        measured
    }

    fn cost(
        &mut self,
        rule: &Rule,
        compiled: &Compiled,
        path: &str,
        measured: &Measured,
        times: Option<u64>,
    ) {
        let Ok(program) = &compiled.rule else { return };
        let times = times.unwrap_or_else(|| measured.times_in_request());
        let each = program.cost(&rule.source.rule, &measured.shape);
        self.observe(format!("{path}.rule"), "estimated rule cost", each.saturating_mul(times));
        if let Some(Ok(message)) = &compiled.message {
            let once = message.cost(&rule.source.message_expression, &measured.shape);
            self.observe(format!("{path}.messageExpression"), "estimated messageExpression cost", once);
        }
    }

    fn observe(&mut self, path: String, what: &str, cost: u64) {
        self.total.add(&path, cost);
        if cost > cost::RULE_LIMIT && !self.stored.same_schema {
            let detail = cost::over(what, cost, cost::RULE_LIMIT);
            self.errors.push(FieldError::forbidden(path, &detail));
        }
    }

    fn rule(&mut self, rule: &Rule, compiled: &Compiled, path: &str, uncorrelatable: Option<&str>) {
        if let Err(detail) = &compiled.rule {
            if !self.stored.expressions.contains(&rule.source.rule) {
                self.invalid(format!("{path}.rule"), &rule.source, detail);
            }
            return;
        }
        if let Some(Err(detail)) = &compiled.message
            && !self.stored.expressions.contains(&rule.source.message_expression)
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
