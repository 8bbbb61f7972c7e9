//! The strict check of an applied configuration, with the messages of the reference.

use remuda_schema::Type;
use serde_json::Value;

use super::Typed;
use crate::{fields::PathElement, gotext};

/// Most errors reported; more would help nobody.
const LIMIT: usize = 100;

/// Checks that `value` has the given type and returns the text of what does not fit.
pub(crate) fn validate(value: &Value, typed: Typed<'_>) -> Result<(), String> {
    let mut check = Check { path: String::new(), errors: Vec::new() };
    check.value(value, typed);
    match check.errors.as_slice() {
        [] => Ok(()),
        [error] => Err(error.clone()),
        errors => Err(format!("errors:\n  {}", errors.join("\n  "))),
    }
}

struct Check {
    path: String,
    errors: Vec<String>,
}

impl Check {
    fn error(&mut self, message: &str) {
        if self.errors.len() < LIMIT {
            let separator = if self.path.is_empty() { "" } else { ": " };
            self.errors.push(format!("{}{separator}{message}", self.path));
        }
    }

    /// Runs `inner` with `element` appended to the path.
    fn within(&mut self, element: &PathElement<'_>, inner: impl FnOnce(&mut Self)) {
        let len = self.path.len();
        self.path.push_str(&element.to_string());
        inner(self);
        self.path.truncate(len);
    }

    fn value(&mut self, value: &Value, typed: Typed<'_>) {
        match (typed.kind(), value) {
            (_, Value::Null) => {}
            (Type::Object | Type::Any, Value::Object(map)) => {
                for (name, value) in map {
                    let Some(field) = typed.declared(name).or_else(|| typed.undeclared()) else {
                        self.within(&PathElement::Field(name), |check| {
                            check.error("field not declared in schema");
                        });
                        // The reference stops at the first unknown field of a map.
                        return;
                    };
                    self.field(name, value, field);
                }
            }
            (Type::Array | Type::Any, Value::Array(items)) => self.list(items, typed),
            (Type::Object, other) => self.error(&format!("expected map, got &{{{}}}", gotext::plain(other))),
            (Type::Array, other) => self.error(&format!("expected list, got &{{{}}}", gotext::plain(other))),
            (kind, value) => self.scalar(kind, value, typed),
        }
    }

    fn field(&mut self, name: &str, value: &Value, typed: Typed<'_>) {
        let len = self.path.len();
        self.path.push('.');
        self.path.push_str(name);
        self.value(value, typed);
        self.path.truncate(len);
    }

    fn scalar(&mut self, kind: Type, value: &Value, typed: Typed<'_>) {
        let free = typed.schema().is_some_and(|schema| {
            // Formats other than `byte` are checked by whoever decodes the value.
            kind == Type::String && schema.format.as_deref().is_some_and(|format| format != "byte")
        });
        match (kind, value) {
            (Type::String, Value::Object(_) | Value::Array(_)) if free => {
                self.error(&format!("expected any scalar, got &{{{}}}", gotext::plain(value)));
            }
            (Type::String, Value::String(_)) | (Type::Boolean, Value::Bool(_)) => {}
            (Type::String, _) if free => {}
            (Type::Integer | Type::Number, Value::Number(_)) => {}
            (Type::String, value) => {
                let text = gotext::syntax(value);
                self.error(&format!("expected string, got &value.valueUnstructured{{Value:{text}}}"));
            }
            (Type::Integer | Type::Number, value) => {
                let text = gotext::type_name(value);
                self.error(&format!("expected numeric (int or float), got {text}"));
            }
            (Type::Boolean, value) => {
                self.error(&format!("expected boolean, got &{{{}}}", gotext::plain(value)));
            }
            (Type::Any | Type::Object | Type::Array, _) => {}
        }
    }

    fn list(&mut self, items: &[Value], typed: Typed<'_>) {
        if typed.atomic_list() {
            for (index, item) in items.iter().enumerate() {
                let index = i64::try_from(index).unwrap_or(i64::MAX);
                // Texts of positions are made only where something is wrong.
                let mut inner = Check { path: String::new(), errors: Vec::new() };
                inner.value(item, typed.item());
                for error in inner.errors {
                    let separator = if error.starts_with(['.', '[']) { "" } else { ": " };
                    if self.errors.len() < LIMIT {
                        self.errors.push(format!("{}[{index}]{separator}{error}", self.path));
                    }
                }
            }
            return;
        }
        let mut elements = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match typed.element(item) {
                Ok(element) => elements.push((element, index)),
                Err(message) => {
                    self.error(&format!("element {index}: {message}"));
                    return;
                }
            }
        }
        for (element, index) in &elements {
            self.within(element, |check| check.value(&items[*index], typed.item()));
        }
        elements.sort_by(|left, right| left.0.cmp(&right.0));
        let repeated = elements.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        for pair in repeated {
            self.error(&format!("duplicate entries for key {}", pair[0].0));
        }
    }
}
