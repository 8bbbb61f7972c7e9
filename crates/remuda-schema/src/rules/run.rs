//! Evaluation of the rules of a tree against a value and what it replaces.

use remuda_cel::{Budget, EvalError, Program, Value as Cel, Vars};
use serde_json::Value;

use super::{Compiled, Rule, exist};
use crate::{
    error::{FieldError, Reason},
    gotext,
    path::Path,
    ratchet::{Old, OldItems},
    schema::{Additional, Schema, Type},
    validate::MAX_ERRORS,
};

/// Cost of one expression, and of all expressions on one object.
const CALL_LIMIT: u64 = 1_000_000;
const OBJECT_LIMIT: u64 = 10_000_000;
const MESSAGE_LIMIT: usize = 5 * 1024;

/// Runs all rules on an object and, on updates, the old object.
pub(crate) fn check(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let ratchet = Ratchet { current: old.map(|value| Old { value, schema }), nearest: None };
    let mut run = Run { base: "", left: OBJECT_LIMIT, errors: Vec::new() };
    let _stopped = run.node(schema, new, old, ratchet, &Path::ROOT);
    run.errors
}

/// Runs all rules on a default, as if it stayed and as if it were new.
pub(crate) fn check_default(schema: &Schema, default: &Value, path: &str) -> Vec<FieldError> {
    if !exist(schema) {
        return Vec::new();
    }
    for old in [Some(default), None] {
        let mut run = Run { base: path, left: OBJECT_LIMIT, errors: Vec::new() };
        let _stopped = run.node(schema, default, old, Ratchet::default(), &Path::ROOT);
        if !run.errors.is_empty() {
            return run.errors;
        }
    }
    Vec::new()
}

/// No further rule is run.
struct Stop;

struct Run<'b> {
    base: &'b str,
    left: u64,
    errors: Vec<FieldError>,
}

/// How the value at hand is tied to the old object, to forgive what did not change.
#[derive(Clone, Copy, Default)]
struct Ratchet<'a> {
    current: Option<Old<'a>>,
    /// The closest ancestor that is tied to an old value, when the value itself is not.
    nearest: Option<(Old<'a>, &'a Value)>,
}

impl<'a> Ratchet<'a> {
    fn forgives(&self, value: &Value) -> bool {
        match (self.current, self.nearest) {
            (Some(old), _) => old.equals(value),
            (None, Some((old, value))) => old.equals(value),
            (None, None) => false,
        }
    }

    fn below(self, parent: &'a Value, find: impl FnOnce(Old<'a>) -> Option<Old<'a>>) -> Self {
        match self.current {
            Some(current) => Ratchet { current: find(current), nearest: Some((current, parent)) },
            None => self,
        }
    }
}

impl Run<'_> {
    fn node<'a>(
        &mut self,
        schema: &'a Schema,
        value: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'a>,
        path: &Path<'_>,
    ) -> Result<(), Stop> {
        if value.is_null() || !exist(schema) {
            return Ok(());
        }
        if let Some(validation) = &schema.validation {
            let old = old.filter(|old| !old.is_null());
            for rule in &validation.rules {
                if self.errors.len() >= MAX_ERRORS {
                    return Err(Stop);
                }
                if let Some(compiled) = &rule.compiled {
                    self.rule(schema, rule, compiled, value, old, ratchet, path)?;
                }
            }
        }
        match value {
            Value::Array(items) => {
                let Some(item_schema) = schema.items.as_deref().filter(|items| exist(items)) else {
                    return Ok(());
                };
                let old_items = old.and_then(Value::as_array);
                let by_key = old_items.and_then(|items| OldItems::new(&schema.list_type, items, item_schema));
                for (index, item) in items.iter().enumerate() {
                    let old_item = by_key.as_ref().and_then(|items| items.get(item));
                    let ratchet = ratchet.below(value, |_| old_item);
                    let old_item = old_item.map(|old| old.value);
                    self.node(item_schema, item, old_item, ratchet, &path.index(index))?;
                }
            }
            Value::Object(map) => {
                let old_map = old.and_then(Value::as_object);
                let root = path.is_root();
                for (name, child) in map {
                    let (child_schema, child_path) = match (schema.properties.get(name), &schema.additional) {
                        (Some(property), _) => (property, path.field(name)),
                        (None, Some(Additional::Schema(schema))) => (schema, path.key(name)),
                        _ => continue,
                    };
                    let old_child = old_map.and_then(|map| map.get(name));
                    let hidden = root && matches!(name.as_str(), "apiVersion" | "kind");
                    let ratchet =
                        if hidden { Ratchet::default() } else { ratchet.below(value, |old| old.entry(name)) };
                    self.node(child_schema, child, old_child, ratchet, &child_path)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the place of one rule in the walk")]
    fn rule<'a>(
        &mut self,
        schema: &Schema,
        rule: &'a Rule,
        compiled: &'a Compiled,
        value: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'_>,
        path: &Path<'_>,
    ) -> Result<(), Stop> {
        let kind = Value::from(kind_name(schema));
        let program = match &compiled.rule {
            Ok(program) => program,
            Err(problem) => {
                self.invalid(path, &kind, &format!("rule compile error: {problem}"));
                return Ok(());
            }
        };
        let optional = rule.source.optional_old_self == Some(true);
        if compiled.uses_old && old.is_none() && !optional {
            return Ok(());
        }
        let vars = match (old, optional) {
            (Some(old), _) => Vars::new().json("self", value).json("oldSelf", old),
            (None, true) => Vars::new().json("self", value).value("oldSelf", Cel::Optional(None)),
            (None, false) => Vars::new().json("self", value),
        };
        let result = match self.eval(program, &vars) {
            Err(EvalError::Cost) if self.left == 0 => {
                self.invalid(path, &kind, OUT_OF_BUDGET);
                return Err(Stop);
            }
            result => result,
        };
        let name = rule.name();
        let problem = match result {
            Ok(Cel::Bool(true)) => return Ok(()),
            Ok(_) => None,
            Err(EvalError::Cost) => {
                let error = EvalError::Cost;
                let detail = format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                );
                self.invalid(path, &kind, &detail);
                return Err(Stop);
            }
            Err(error) => Some(error),
        };
        if let Some(problem) = problem {
            let detail = match problem {
                EvalError::NoOverload(problem) => format!(
                    "'{problem}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                ),
                problem => format!("{problem} evaluating rule: {name}"),
            };
            self.invalid(path, &kind, &detail);
            return Ok(());
        }
        if !compiled.uses_old && ratchet.forgives(value) {
            return Ok(());
        }
        let detail = match &compiled.message {
            Some(Ok(program)) => self.message(program, &vars, &rule.field_path(self.base, path), &kind)?,
            _ => None,
        };
        let detail = detail.unwrap_or_else(|| match rule.source.message.is_empty() {
            true => format!("failed rule: {name}"),
            false => name.to_owned(),
        });
        let shown = if matches!(schema.kind, Type::Object | Type::Array) { None } else { Some(value) };
        self.errors.push(failure(
            rule.field_path(self.base, path),
            rule.source.reason.as_deref(),
            shown,
            &detail,
        ));
        Ok(())
    }

    fn eval<'a>(&mut self, program: &'a Program, vars: &Vars<'a>) -> Result<Cel<'a>, EvalError> {
        let mut budget = Budget::new(self.left.min(CALL_LIMIT));
        let result = program.eval(vars, &mut budget);
        self.left = self.left.saturating_sub(budget.used());
        result
    }

    /// The text of a message expression; `None` when it has none that could be shown.
    fn message<'a>(
        &mut self,
        program: &'a Program,
        vars: &Vars<'a>,
        field: &str,
        kind: &Value,
    ) -> Result<Option<String>, Stop> {
        match self.eval(program, vars) {
            Ok(Cel::String(text)) => {
                let text = text.trim();
                let shown = !text.is_empty() && text.len() <= MESSAGE_LIMIT && !text.contains('\n');
                Ok(shown.then(|| text.to_owned()))
            }
            Err(EvalError::Cost) => {
                let detail = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
                self.errors.push(FieldError::invalid(field, kind, detail));
                Err(Stop)
            }
            _ => Ok(None),
        }
    }

    fn invalid(&mut self, path: &Path<'_>, value: &Value, detail: &str) {
        self.errors.push(FieldError::invalid(path.field_path_below(self.base), value, detail));
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

impl Rule {
    fn field_path(&self, base: &str, path: &Path<'_>) -> String {
        if self.field.is_empty() {
            return path.field_path_below(base);
        }
        if base.is_empty() && path.is_root() {
            return self.field.clone();
        }
        format!("{}.{}", path.field_path_below(base), self.field)
    }
}

fn failure(field: String, reason: Option<&str>, value: Option<&Value>, detail: &str) -> FieldError {
    let shown = |head: &str| {
        value.map_or_else(|| head.to_owned(), |value| format!("{head}: {}", gotext::show(value)))
    };
    match reason {
        Some("FieldValueForbidden") => FieldError::forbidden(field, detail),
        Some("FieldValueRequired") => FieldError::required(field, detail),
        Some("FieldValueDuplicate") => FieldError::new(field, Reason::Duplicate, shown("Duplicate value")),
        _ => FieldError::new(field, Reason::Invalid, format!("{}: {detail}", shown("Invalid value"))),
    }
}

fn kind_name(schema: &Schema) -> &'static str {
    match schema.kind {
        Type::Any => "",
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
    }
}
