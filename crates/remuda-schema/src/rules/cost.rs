//! What the rules of a definition may cost: estimated when it is written, so that no object can be made on which they take
//! too long.

use std::{collections::BTreeMap, sync::Arc};

use remuda_cel::{Inside, Shape, escape};
use serde_json::Value;

use crate::{
    error::FieldError,
    schema::{Additional, Schema, Type},
    validation::Validation,
};

/// Cost of one rule, and of all rules of a schema.
pub(super) const RULE_LIMIT: u64 = 10_000_000;
const SCHEMA_LIMIT: u64 = 100_000_000;
/// Bytes of the largest request these limits are about.
const REQUEST: u64 = 3 << 20;
/// Of so many rules is said that they are the expensive ones.
const NAMED: usize = 4;

const ANY_TEXT: u64 = REQUEST - 2;
const DATE: u64 = 12;
const DATE_TIME: u64 = 32;
const DURATION: u64 = 32;
const SMALLEST_DURATION: u64 = 3;
const SMALLEST_DATE_TIME: u64 = 21;

/// The data of a schema, as large as it can be and as small.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    pub(super) shape: Arc<Shape>,
    /// Bytes of the smallest text of it in JSON.
    least: u64,
}

impl Measured {
    fn leaf(max: u64, least: u64) -> Self {
        Self { shape: Arc::new(Shape { max, inside: Inside::Nothing }), least }
    }

    /// How often it fits into a request, with a comma each.
    pub(super) fn times_in_request(&self) -> u64 {
        REQUEST / (self.least + 1)
    }
}

/// Measures a schema; `None` for what expressions do not see.
pub(super) fn measure(schema: &Schema, resource: bool) -> Option<Measured> {
    let below = |child: &Schema| measure(child, child.embedded_resource);
    let fields = schema.properties.iter().map(|(name, child)| (name.as_str(), below(child))).collect();
    let value = match &schema.additional {
        Some(Additional::Schema(child)) => Some(below(child)),
        _ => None,
    };
    assemble(schema, resource, fields, value, schema.items.as_deref().and_then(below))
}

/// The same from what is measured of the parts: fields by their names, the values of a map, the items of a list.
pub(super) fn assemble(
    schema: &Schema,
    resource: bool,
    fields: BTreeMap<&str, Option<Measured>>,
    value: Option<Option<Measured>>,
    item: Option<Measured>,
) -> Option<Measured> {
    let bounds = schema.validation.as_deref();
    let bound = |of: fn(&Validation) -> Option<i64>| bounds.and_then(of).map(|most| most.max(0) as u64);
    let characters = bound(|bounds| bounds.max_length).map(|most| most.saturating_mul(4));
    if schema.int_or_string {
        return Some(Measured::leaf(characters.unwrap_or(ANY_TEXT), 1));
    }
    Some(match schema.kind {
        Type::Any => return None,
        Type::Array => {
            let item = item?;
            let max = bound(|bounds| bounds.max_items).unwrap_or(ANY_TEXT / (item.least + 1));
            Measured { shape: Arc::new(Shape { max, inside: Inside::Items(item.shape) }), least: 2 }
        }
        Type::Object => match value {
            Some(value) => {
                let value = value?;
                let max = bound(|bounds| bounds.max_properties).unwrap_or(ANY_TEXT / (value.least + 6));
                Measured { shape: Arc::new(Shape { max, inside: Inside::Values(value.shape) }), least: 2 }
            }
            None => object(schema, resource, fields),
        },
        Type::String => match schema.format.as_deref() {
            Some("byte") => Measured::leaf(bound(|bounds| bounds.max_length).unwrap_or(ANY_TEXT), 2),
            Some("duration") => Measured::leaf(DURATION, SMALLEST_DURATION),
            Some("date") => Measured::leaf(DATE, DATE),
            Some("date-time") => Measured::leaf(DATE_TIME, SMALLEST_DATE_TIME),
            _ => {
                let words =
                    bounds.map(|bounds| bounds.enumeration.as_slice()).filter(|words| !words.is_empty());
                let longest = |words: &[Value]| words.iter().filter_map(Value::as_str).map(str::len).max();
                let word = words.map(|words| longest(words).unwrap_or(0) as u64);
                Measured::leaf(characters.or(word).unwrap_or(ANY_TEXT), 2)
            }
        },
        Type::Integer | Type::Number => Measured::leaf(0, 1),
        Type::Boolean => Measured::leaf(0, 4),
    })
}

fn object(schema: &Schema, resource: bool, fields: BTreeMap<&str, Option<Measured>>) -> Measured {
    let mut least = 2;
    let mut shapes = BTreeMap::new();
    for (name, field) in fields {
        let Some(field) = field else { continue };
        let given = schema.properties.get(name).is_some_and(|child| child.default.is_some());
        if schema.required.iter().any(|required| required == name) && !given {
            least += name.len() as u64 + field.least + 4;
        }
        shapes.extend(escape(name).map(|name| (name, field.shape)));
    }
    if resource {
        let text = Arc::new(Shape { max: ANY_TEXT, inside: Inside::Nothing });
        let inner = ["name", "generateName"].map(|name| (name.to_owned(), text.clone()));
        let has_names = |shape: &Arc<Shape>| match &shape.inside {
            Inside::Fields(fields) => inner.iter().all(|(name, _)| fields.contains_key(name)),
            _ => false,
        };
        if !shapes.get("metadata").is_some_and(has_names) {
            let metadata = Shape { max: 0, inside: Inside::Fields(inner.into()) };
            shapes.insert("metadata".to_owned(), Arc::new(metadata));
        }
        for name in ["apiVersion", "kind"] {
            shapes.insert(name.to_owned(), text.clone());
        }
    }
    Measured { shape: Arc::new(Shape { max: 0, inside: Inside::Fields(shapes) }), least }
}

/// How many elements a node can have for each time it occurs; `None` without a bound.
pub(super) fn elements(schema: &Schema) -> Option<u64> {
    let bounds = schema.validation.as_deref();
    let bound = |of: fn(&Validation) -> Option<i64>| bounds.and_then(of).map(|most| most.max(0) as u64);
    match schema.kind {
        Type::Object if schema.additional.is_some() => bound(|bounds| bounds.max_properties),
        Type::Array => bound(|bounds| bounds.max_items),
        _ => Some(1),
    }
}

/// The cost of all rules of a schema.
#[derive(Debug, Default)]
pub(super) struct Total {
    cost: u64,
    /// Where the expensive ones are, the most expensive first.
    expensive: Vec<(u64, String)>,
}

impl Total {
    pub(super) fn add(&mut self, path: &str, cost: u64) {
        self.cost = self.cost.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.expensive.push((cost, path.to_owned()));
            self.expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.expensive.truncate(NAMED);
        }
    }

    pub(super) fn check(&self, path: &str, errors: &mut Vec<FieldError>) {
        if self.cost <= SCHEMA_LIMIT {
            return;
        }
        let detail =
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        errors.extend(self.expensive.iter().map(|(_, path)| FieldError::forbidden(path, detail)));
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, &over(what, self.cost, SCHEMA_LIMIT)));
    }
}

/// By how much a cost is too high, in the words of Kubernetes.
pub(super) fn over(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests;
