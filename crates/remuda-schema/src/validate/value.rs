//! OpenAPI value validation with the texts, the order and the choice of errors of the reference.
//!
//! Every check counts its successes, because of several failing alternatives of an `anyOf` or
//! `oneOf` the one with the most successes is reported.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use crate::{
    error::FieldError,
    format::Format,
    gotext,
    path::Path,
    ratchet::Old,
    schema::{Additional, Schema, Type},
    validate::MAX_ERRORS,
    validation::Validation,
};

pub(super) fn check(schema: &Schema, value: &Value, old: Option<Old<'_>>, base: &str) -> Vec<FieldError> {
    let mut check = Check { base, errors: Vec::new() };
    check.node(schema, value, None, &Path::ROOT);
    // Old values are only looked at when there is something to forgive.
    if !check.errors.is_empty()
        && let Some(old) = old
    {
        check.errors.clear();
        check.node(schema, value, Some(old), &Path::ROOT);
    }
    check.errors
}

struct Check<'b> {
    base: &'b str,
    errors: Vec<FieldError>,
}

impl Check<'_> {
    /// Checks one value and returns the number of successful checks.
    fn node(&mut self, schema: &Schema, value: &Value, old: Option<Old<'_>>, path: &Path<'_>) -> usize {
        let before = self.errors.len();
        let count = self.value(schema, value, old, path);
        if self.errors.len() > before
            && let Some(old) = old
            && old.equals(value)
        {
            self.errors.truncate(before);
        }
        count
    }

    fn value(&mut self, schema: &Schema, value: &Value, old: Option<Old<'_>>, path: &Path<'_>) -> usize {
        let mut count = self.type_of(schema, value, path);
        let validation = schema.validation.as_deref();
        if value.is_null() {
            if let Some(validation) = validation {
                self.enumeration(validation, value, path);
            }
            return count;
        }
        count += match validation {
            Some(validation) => self.junctors(validation, value, old, path),
            None => 2,
        };
        match value {
            Value::String(text) => {
                count += 1;
                if let Some(validation) = validation {
                    self.string(validation, text, path);
                    if let Some(format) = validation.format {
                        count += 1;
                        self.format(schema, format, text, path);
                    }
                }
            }
            Value::Number(number) => {
                count += 2;
                self.number(schema, validation, number, path);
            }
            Value::Array(items) => count += self.array(schema, validation, items, old, path),
            _ => {}
        }
        if let Some(validation) = validation {
            self.enumeration(validation, value, path);
        }
        count += 1;
        if let Value::Object(map) = value {
            count += self.object(schema, validation, map, old, path);
        }
        count + 1
    }

    fn type_of(&mut self, schema: &Schema, value: &Value, path: &Path<'_>) -> usize {
        let has_type = schema.int_or_string || schema.kind != Type::Any;
        let format = schema.validation.as_deref().and_then(|validation| validation.format);
        if value.is_null() {
            if has_type && !schema.nullable {
                self.wrong_type(type_name(schema), "null", path);
                return 0;
            }
            return 1;
        }
        if !has_type && format.is_none() {
            return 0;
        }
        let fits = match schema.kind {
            Type::Any if schema.int_or_string => is_integer(value) || value.is_string(),
            Type::Any => false,
            Type::Object => value.is_object(),
            Type::Array => value.is_array(),
            Type::String => value.is_string(),
            Type::Integer => is_integer(value),
            Type::Number => value.is_number(),
            Type::Boolean => value.is_boolean(),
        };
        if fits {
            return 2;
        }
        if format.is_some() {
            let numeric = schema.int_or_string || matches!(schema.kind, Type::Integer | Type::Number);
            match value {
                Value::String(_) | Value::Array(_) if !numeric => return 2,
                Value::String(_) | Value::Array(_) => {}
                other => {
                    let actual = match other {
                        Value::Number(number) if number.as_i64().is_some() => "int64",
                        Value::Number(_) => "float64",
                        _ => "",
                    };
                    self.wrong_type(schema.format.as_deref().unwrap_or_default(), actual, path);
                    return 1;
                }
            }
        }
        let actual = match value {
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.as_i64().is_some() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) | Value::Null => "object",
        };
        self.wrong_type(type_name(schema), actual, path);
        1
    }

    fn junctors(
        &mut self,
        validation: &Validation,
        value: &Value,
        old: Option<Old<'_>>,
        path: &Path<'_>,
    ) -> usize {
        let mut count = 2;
        if !validation.any_of.is_empty() {
            count += self.any_of(validation, value, old, path);
        }
        if !validation.one_of.is_empty() {
            count += self.one_of(validation, value, old, path);
        }
        if !validation.all_of.is_empty() {
            let mut validated = 0;
            for branch in &validation.all_of {
                let (errors, successes) = self.branch(branch, value, old, path);
                count += successes;
                validated += usize::from(errors.is_empty());
                self.merge(errors);
            }
            if validated != validation.all_of.len() {
                let none = if validated == 0 { ". None validated" } else { "" };
                self.junctor_failed("must validate all the schemas (allOf)", none, path);
            }
        }
        if let Some(not) = &validation.not {
            let (errors, _) = self.branch(not, value, old, path);
            if errors.is_empty() {
                self.junctor_failed("must not validate the schema (not)", "", path);
            }
        }
        count
    }

    fn any_of(
        &mut self,
        validation: &Validation,
        value: &Value,
        old: Option<Old<'_>>,
        path: &Path<'_>,
    ) -> usize {
        let mut best: Option<(Vec<FieldError>, usize)> = None;
        for branch in &validation.any_of {
            let (errors, successes) = self.branch(branch, value, old, path);
            if errors.is_empty() {
                return successes;
            }
            if best.as_ref().is_none_or(|(_, most)| successes > *most) {
                best = Some((errors, successes));
            }
        }
        self.junctor_failed("must validate at least one schema (anyOf)", "", path);
        let Some((errors, successes)) = best else { return 0 };
        self.merge(errors);
        successes
    }

    fn one_of(
        &mut self,
        validation: &Validation,
        value: &Value,
        old: Option<Old<'_>>,
        path: &Path<'_>,
    ) -> usize {
        let mut best: Option<(Vec<FieldError>, usize)> = None;
        let mut first_success = 0;
        let mut validated = 0;
        for branch in &validation.one_of {
            let (errors, successes) = self.branch(branch, value, old, path);
            if errors.is_empty() {
                if validated == 0 {
                    first_success = successes;
                }
                validated += 1;
                best = None;
            } else if validated == 0 && best.as_ref().is_none_or(|(_, most)| successes > *most) {
                best = Some((errors, successes));
            }
        }
        if validated == 1 {
            return first_success;
        }
        let found = match validated {
            0 => "Found none valid".to_owned(),
            several => format!("Found {several} valid alternatives"),
        };
        self.junctor_failed("must validate one and only one schema (oneOf). ", &found, path);
        let Some((errors, successes)) = best else { return 0 };
        self.merge(errors);
        successes
    }

    /// Checks an alternative by itself. It is not forgiven as a whole; its fields may be.
    fn branch(
        &self,
        schema: &Schema,
        value: &Value,
        old: Option<Old<'_>>,
        path: &Path<'_>,
    ) -> (Vec<FieldError>, usize) {
        let mut check = Check { base: self.base, errors: Vec::new() };
        let count = check.value(schema, value, old, path);
        (check.errors, count)
    }

    fn string(&mut self, validation: &Validation, text: &str, path: &Path<'_>) {
        if validation.max_length.is_some() || validation.min_length.is_some() {
            let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            if let Some(limit) = validation.max_length
                && length > limit
            {
                let limit = usize::try_from(limit).unwrap_or_default();
                self.push(FieldError::too_long(self.field(path), limit));
                return;
            }
            if let Some(limit) = validation.min_length
                && length < limit
            {
                self.invalid(path, &text.into(), &format!("should be at least {limit} chars long"));
                return;
            }
        }
        if let Some(pattern) = &validation.pattern
            && !pattern.matches(text)
        {
            let detail = match pattern.error() {
                Some(error) => {
                    format!("should match '{}, but pattern is invalid: {error}'", pattern.source())
                }
                None => format!("should match '{}'", pattern.source()),
            };
            self.invalid(path, &text.into(), &detail);
        }
    }

    fn format(&mut self, schema: &Schema, format: Format, text: &str, path: &Path<'_>) {
        if !format.accepts(text) {
            self.wrong_type(schema.format.as_deref().unwrap_or_default(), text, path);
        }
    }

    fn number(&mut self, schema: &Schema, validation: Option<&Validation>, number: &Number, path: &Path<'_>) {
        let format = validation.and_then(|validation| validation.format);
        let float = number.as_f64().unwrap_or_default();
        let range = Range { kind: schema.kind, format };
        if !range.holds(float) {
            self.out_of_range("Checked", range, path);
        }
        let Some(validation) = validation else { return };
        let int = number.as_i64();
        if let Some(factor) = validation.multiple_of {
            self.multiple_of(range, int, float, factor, path);
        }
        if let Some(limit) = validation.minimum {
            let fits = range.holds(limit);
            if !fits {
                self.out_of_range("Minimum boundary", range, path);
            }
            let exclusive = validation.exclusive_minimum;
            let below = match int {
                Some(int) if fits => compare_int(int, limit, |a, b| if exclusive { a <= b } else { a < b }),
                _ => {
                    if exclusive {
                        float <= limit
                    } else {
                        float < limit
                    }
                }
            };
            if below {
                let word = if exclusive { "greater than" } else { "greater than or equal to" };
                self.beyond(word, int, float, fits, limit, path);
            }
        }
        if let Some(limit) = validation.maximum {
            let fits = range.holds(limit);
            if !fits {
                self.out_of_range("Maximum boundary", range, path);
            }
            let exclusive = validation.exclusive_maximum;
            let above = match int {
                Some(int) if fits => compare_int(int, limit, |a, b| if exclusive { a >= b } else { a > b }),
                _ => {
                    if exclusive {
                        float >= limit
                    } else {
                        float > limit
                    }
                }
            };
            if above {
                let word = if exclusive { "less than" } else { "less than or equal to" };
                self.beyond(word, int, float, fits, limit, path);
            }
        }
    }

    fn multiple_of(&mut self, range: Range, int: Option<i64>, float: f64, factor: f64, path: &Path<'_>) {
        let fits = range.holds(factor);
        if !fits {
            self.out_of_range("MultipleOf", range, path);
        }
        if factor <= 0.0 {
            let detail = format!(
                "factor MultipleOf declared for {} must be positive: {}",
                path.dotted(),
                gotext::float(factor)
            );
            self.push(FieldError::invalid(self.field(path), &factor.into(), &detail));
            return;
        }
        let native = int.filter(|_| fits);
        let multiple = match native {
            // The factor counts as an integer here, as the value does; one below one divides everything.
            Some(int) => (factor as i64) == 0 || int % (factor as i64) == 0,
            None if factor < 1.0 => is_json_integer(1.0 / factor * float),
            None => is_json_integer(float / factor),
        };
        if !multiple {
            let value = native.map_or_else(|| Value::from(float), Value::from);
            self.invalid(path, &value, &format!("should be a multiple of {}", gotext::float(factor)));
        }
    }

    fn beyond(&mut self, word: &str, int: Option<i64>, float: f64, fits: bool, limit: f64, path: &Path<'_>) {
        match int.filter(|_| fits) {
            Some(int) => self.invalid(path, &int.into(), &format!("should be {word} {}", limit as i64)),
            None => self.invalid(path, &float.into(), &format!("should be {word} {}", gotext::float(limit))),
        }
    }

    fn array(
        &mut self,
        schema: &Schema,
        validation: Option<&Validation>,
        items: &[Value],
        old: Option<Old<'_>>,
        path: &Path<'_>,
    ) -> usize {
        let mut count = 2;
        if let Some(item_schema) = &schema.items {
            let old_items = old.and_then(|old| old.items());
            for (index, item) in items.iter().enumerate() {
                let old_item = old_items.as_ref().and_then(|items| items.get(item));
                count += self.node(item_schema, item, old_item, &path.index(index));
                if self.errors.len() >= MAX_ERRORS {
                    break;
                }
            }
        }
        let Some(validation) = validation else { return count };
        let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(limit) = validation.min_items
            && size < limit
        {
            self.invalid(path, &size.into(), &format!("should have at least {limit} items"));
        }
        if let Some(limit) = validation.max_items
            && size > limit
        {
            let limit = usize::try_from(limit).unwrap_or_default();
            self.push(FieldError::too_many(self.field(path), items.len(), limit));
        }
        if validation.unique_items {
            let mut seen = HashSet::with_capacity(items.len());
            if !items.iter().all(|item| seen.insert(item.to_string())) {
                self.invalid(path, &"".into(), "shouldn't contain duplicates");
            }
        }
        count
    }

    fn object(
        &mut self,
        schema: &Schema,
        validation: Option<&Validation>,
        map: &Map<String, Value>,
        old: Option<Old<'_>>,
        path: &Path<'_>,
    ) -> usize {
        let mut count = 1;
        if let Some(validation) = validation {
            self.object_size(validation, map, path);
            if validation.closed {
                for name in map.keys().filter(|name| !schema.properties.contains_key(*name)) {
                    let detail = format!("{}.{name} in body is a forbidden property", path.dotted());
                    self.push(FieldError::invalid(self.field(path), &name.as_str().into(), &detail));
                }
            }
        }
        if let Some(Additional::Schema(additional)) = &schema.additional {
            for (name, child) in map.iter().filter(|(name, _)| !schema.properties.contains_key(*name)) {
                let old_child = old.and_then(|old| old.entry(name));
                count += self.node(additional, child, old_child, &path.key(name));
                if self.errors.len() >= MAX_ERRORS {
                    return count;
                }
            }
        }
        if !schema.properties.is_empty() {
            let mut lookup = schema.lookup(map.len());
            for (name, child) in map {
                let Some(property) = lookup.find(name) else { continue };
                // Both objects were converted to one version, so its change cannot be seen here.
                let visible = !(path.is_root()
                    && self.base.is_empty()
                    && matches!(name.as_str(), "kind" | "apiVersion"));
                let old_child = old.filter(|_| visible).and_then(|old| old.entry(name));
                count += self.node(property, child, old_child, &path.field(name));
            }
        }
        for name in schema.required.iter().filter(|name| !map.contains_key(*name)) {
            self.push(FieldError::required(self.field(&path.field(name)), ""));
        }
        count
    }

    fn object_size(&mut self, validation: &Validation, map: &Map<String, Value>, path: &Path<'_>) {
        let size = i64::try_from(map.len()).unwrap_or(i64::MAX);
        if let Some(limit) = validation.min_properties
            && size < limit
        {
            self.invalid(path, &size.into(), &format!("should have at least {limit} properties"));
        }
        if let Some(limit) = validation.max_properties
            && size > limit
        {
            let limit = usize::try_from(limit).unwrap_or_default();
            self.push(FieldError::too_many(self.field(path), map.len(), limit));
        }
    }

    fn enumeration(&mut self, validation: &Validation, value: &Value, path: &Path<'_>) {
        let allowed = &validation.enumeration;
        if allowed.is_empty() || (!value.is_null() && allowed.iter().any(|one| same(one, value))) {
            return;
        }
        let names: Vec<String> =
            allowed.iter().map(|one| one.as_str().map_or_else(|| gotext::json(one), str::to_owned)).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.push(FieldError::not_supported(self.field(path), value, &names));
    }

    fn wrong_type(&mut self, expected: &str, actual: &str, path: &Path<'_>) {
        let detail =
            format!("{} in body must be of type {expected}: {}", path.dotted(), gotext::quote(actual));
        self.push(FieldError::type_invalid(self.field(path), &actual.into(), &detail));
    }

    fn invalid(&mut self, path: &Path<'_>, value: &Value, detail: &str) {
        let detail = format!("{} in body {detail}", path.dotted());
        self.push(FieldError::invalid(self.field(path), value, &detail));
    }

    /// Failures without a field of their own are reported at the root.
    fn at_root(&mut self, detail: &str) {
        let field = if self.base.is_empty() { "<nil>" } else { self.base };
        self.push(FieldError::invalid(field, &"".into(), detail));
    }

    fn junctor_failed(&mut self, text: &str, more: &str, path: &Path<'_>) {
        self.at_root(&format!("{} {text}{more}", gotext::quote(&path.dotted())));
    }

    fn out_of_range(&mut self, what: &str, range: Range, path: &Path<'_>) {
        self.at_root(&format!("{what} value must be of type {} in {}", range.describe(), path.dotted()));
    }

    fn field(&self, path: &Path<'_>) -> String {
        let dotted = path.dotted();
        match (self.base, dotted.as_str()) {
            ("", "") => "<nil>".to_owned(),
            ("", _) => dotted,
            (base, "") => base.to_owned(),
            (base, _) => format!("{base}.{dotted}"),
        }
    }

    fn push(&mut self, error: FieldError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    /// Branches repeat what the node itself or another branch found; once is enough.
    fn merge(&mut self, errors: Vec<FieldError>) {
        for error in errors {
            if !self.errors.contains(&error) {
                self.push(error);
            }
        }
    }
}

fn type_name(schema: &Schema) -> &'static str {
    match schema.kind {
        Type::Any if schema.int_or_string => "integer,string",
        Type::Any => "",
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
    }
}

fn is_integer(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_i64().is_some() || number.as_f64().is_some_and(is_json_integer),
        _ => false,
    }
}

/// Whether a float is a whole number that floats hold exactly, give or take a billionth.
fn is_json_integer(value: f64) -> bool {
    const LIMIT: f64 = 9_007_199_254_740_991.0;
    if !value.is_finite() || value.abs() > LIMIT {
        return false;
    }
    let whole = value.trunc();
    value == whole || (whole != 0.0 && value > 0.0 && (value - whole).abs() / (value + whole) < 1e-9)
}

/// Compares as integers; a limit beyond their range counts as the end of it.
fn compare_int(value: i64, limit: f64, holds: impl Fn(i64, i64) -> bool) -> bool {
    holds(value, limit as i64)
}

fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

/// The numbers a type and format can hold.
#[derive(Clone, Copy)]
struct Range {
    kind: Type,
    format: Option<Format>,
}

impl Range {
    fn holds(self, value: f64) -> bool {
        match (self.kind, self.format) {
            (Type::Integer, Some(Format::Int32)) => {
                value.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value)
            }
            (Type::Integer, _) => value.fract() == 0.0 && value.abs() <= 9_223_372_036_854_775_807.0,
            (Type::Number, Some(Format::Float)) => (value as f32).is_finite(),
            _ => true,
        }
    }

    fn describe(self) -> String {
        let kind = if self.kind == Type::Integer { "integer" } else { "number" };
        match self.format {
            Some(Format::Int32) => format!("{kind} with format int32"),
            Some(Format::Int64) => format!("{kind} with format int64"),
            Some(Format::Float) => format!("{kind} with format float"),
            _ => format!("{kind} (default format)"),
        }
    }
}
