//! A schema as written: one typed node per JSON object, before any rule is applied to it.
//!
//! Checks and compilation both start here, so that the shape of the JSON is judged once.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Deeper schemas are refused; every walk along a schema is thereby bounded.
pub(crate) const MAX_DEPTH: usize = 64;

/// The JSON of a schema does not have the shape of one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct SchemaError {
    /// Where, from the root of the schema, as in field errors; empty at the root.
    pub path: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Items {
    One(Box<Props>),
    Many(Vec<Props>),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AdditionalProps {
    Allowed(bool),
    Schema(Box<Props>),
}

/// One entry of `x-kubernetes-validations`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleSource {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    pub reason: Option<String>,
    pub field_path: String,
    pub optional_old_self: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Props {
    pub(crate) kind: String,
    pub(crate) description: Option<String>,
    pub(crate) title: bool,
    pub(crate) example: bool,
    pub(crate) external_docs: bool,
    pub(crate) format: String,
    pub(crate) default: Option<Value>,
    pub(crate) nullable: bool,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: String,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) enumeration: Vec<Value>,
    pub(crate) required: Vec<String>,
    pub(crate) properties: BTreeMap<String, Props>,
    pub(crate) items: Option<Items>,
    pub(crate) additional: Option<AdditionalProps>,
    pub(crate) all_of: Vec<Props>,
    pub(crate) any_of: Vec<Props>,
    pub(crate) one_of: Vec<Props>,
    pub(crate) not: Option<Box<Props>>,
    pub(crate) preserve_unknown: Option<bool>,
    pub(crate) embedded: bool,
    pub(crate) int_or_string: bool,
    pub(crate) list_type: Option<String>,
    pub(crate) list_map_keys: Vec<String>,
    pub(crate) map_type: Option<String>,
    pub(crate) rules: Vec<RuleSource>,
    /// Keywords that no schema may use.
    pub(crate) id: bool,
    pub(crate) schema: bool,
    pub(crate) reference: bool,
    pub(crate) pattern_properties: bool,
    pub(crate) definitions: bool,
    pub(crate) dependencies: bool,
    pub(crate) additional_items: bool,
}

impl Props {
    pub(crate) fn parse(json: &Value) -> Result<Self, SchemaError> {
        let mut path = String::new();
        parse(json, &mut path, 0)
    }

    /// The single schema of all items.
    pub(crate) fn item(&self) -> Option<&Props> {
        match &self.items {
            Some(Items::One(item)) => Some(item),
            _ => None,
        }
    }

    /// The schema of all entries that are not declared properties.
    pub(crate) fn additional_schema(&self) -> Option<&Props> {
        match &self.additional {
            Some(AdditionalProps::Schema(schema)) => Some(schema),
            _ => None,
        }
    }

    pub(crate) fn preserves(&self) -> bool {
        self.preserve_unknown == Some(true)
    }

    /// Whether `test` holds for this or any node below, inside junctors too.
    pub(crate) fn any(&self, test: &mut dyn FnMut(&Props) -> bool) -> bool {
        if test(self) {
            return true;
        }
        let items: Vec<&Props> = match &self.items {
            Some(Items::One(item)) => vec![item],
            Some(Items::Many(items)) => items.iter().collect(),
            None => Vec::new(),
        };
        items.into_iter().any(|child| child.any(test))
            || self.all_of.iter().any(|child| child.any(test))
            || self.any_of.iter().any(|child| child.any(test))
            || self.one_of.iter().any(|child| child.any(test))
            || self.not.as_ref().is_some_and(|child| child.any(test))
            || self.properties.values().any(|child| child.any(test))
            || self.additional_schema().is_some_and(|child| child.any(test))
    }
}

fn parse(json: &Value, path: &mut String, depth: usize) -> Result<Props, SchemaError> {
    let Value::Object(map) = json else {
        return Err(wrong(path, "must be an object"));
    };
    if depth > MAX_DEPTH {
        return Err(wrong(path, "is nested too deeply"));
    }
    let mut props = Props::default();
    for (key, value) in map {
        // The reference decodes null into the zero value, which is the same as leaving it out.
        if !value.is_null() {
            keyword(&mut props, key, value, path, depth)?;
        }
    }
    Ok(props)
}

fn keyword(
    props: &mut Props,
    key: &str,
    value: &Value,
    path: &mut String,
    depth: usize,
) -> Result<(), SchemaError> {
    match key {
        "type" => props.kind = text(key, value, path)?,
        "description" => props.description = Some(text(key, value, path)?),
        "title" => props.title = !text(key, value, path)?.is_empty(),
        "example" => props.example = true,
        "externalDocs" => props.external_docs = true,
        "format" => props.format = text(key, value, path)?,
        "default" => props.default = Some(value.clone()),
        "nullable" => props.nullable = flag(key, value, path)?,
        "maximum" => props.maximum = Some(number(key, value, path)?),
        "exclusiveMaximum" => props.exclusive_maximum = flag(key, value, path)?,
        "minimum" => props.minimum = Some(number(key, value, path)?),
        "exclusiveMinimum" => props.exclusive_minimum = flag(key, value, path)?,
        "multipleOf" => props.multiple_of = Some(number(key, value, path)?),
        "maxLength" => props.max_length = Some(integer(key, value, path)?),
        "minLength" => props.min_length = Some(integer(key, value, path)?),
        "pattern" => props.pattern = text(key, value, path)?,
        "maxItems" => props.max_items = Some(integer(key, value, path)?),
        "minItems" => props.min_items = Some(integer(key, value, path)?),
        "uniqueItems" => props.unique_items = flag(key, value, path)?,
        "maxProperties" => props.max_properties = Some(integer(key, value, path)?),
        "minProperties" => props.min_properties = Some(integer(key, value, path)?),
        "enum" => props.enumeration = list(key, value, path)?.clone(),
        "required" => props.required = texts(key, value, path)?,
        "properties" => {
            for (name, child) in object(key, value, path)? {
                let child = at(path, &format!("properties[{name}]"), |path| parse(child, path, depth + 1))?;
                props.properties.insert(name.clone(), child);
            }
        }
        "items" => {
            props.items = Some(match value {
                Value::Array(_) => Items::Many(children(key, value, path, depth)?),
                _ => Items::One(Box::new(at(path, "items", |path| parse(value, path, depth + 1))?)),
            });
        }
        "additionalProperties" => {
            props.additional = Some(match value {
                Value::Bool(allowed) => AdditionalProps::Allowed(*allowed),
                _ => AdditionalProps::Schema(Box::new(at(path, key, |path| parse(value, path, depth + 1))?)),
            });
        }
        "allOf" => props.all_of = children(key, value, path, depth)?,
        "anyOf" => props.any_of = children(key, value, path, depth)?,
        "oneOf" => props.one_of = children(key, value, path, depth)?,
        "not" => props.not = Some(Box::new(at(path, "not", |path| parse(value, path, depth + 1))?)),
        "x-kubernetes-preserve-unknown-fields" => props.preserve_unknown = Some(flag(key, value, path)?),
        "x-kubernetes-embedded-resource" => props.embedded = flag(key, value, path)?,
        "x-kubernetes-int-or-string" => props.int_or_string = flag(key, value, path)?,
        "x-kubernetes-list-type" => props.list_type = Some(text(key, value, path)?),
        "x-kubernetes-list-map-keys" => props.list_map_keys = texts(key, value, path)?,
        "x-kubernetes-map-type" => props.map_type = Some(text(key, value, path)?),
        "x-kubernetes-validations" => {
            for (index, rule) in list(key, value, path)?.iter().enumerate() {
                let rule = at(path, &format!("{key}[{index}]"), |path| parse_rule(rule, path))?;
                props.rules.push(rule);
            }
        }
        "id" => props.id = !text(key, value, path)?.is_empty(),
        "$schema" => props.schema = !text(key, value, path)?.is_empty(),
        "$ref" => props.reference = true,
        "patternProperties" => props.pattern_properties = !object(key, value, path)?.is_empty(),
        "definitions" => props.definitions = !object(key, value, path)?.is_empty(),
        "dependencies" => props.dependencies = true,
        "additionalItems" => props.additional_items = true,
        // Unknown keywords are dropped, as the reference does when it decodes the definition.
        _ => {}
    }
    Ok(())
}

fn parse_rule(json: &Value, path: &mut String) -> Result<RuleSource, SchemaError> {
    let Value::Object(map) = json else {
        return Err(wrong(path, "must be an object"));
    };
    let mut rule = RuleSource::default();
    for (key, value) in map {
        if value.is_null() {
            continue;
        }
        match key.as_str() {
            "rule" => rule.rule = text(key, value, path)?,
            "message" => rule.message = text(key, value, path)?,
            "messageExpression" => rule.message_expression = text(key, value, path)?,
            "reason" => rule.reason = Some(text(key, value, path)?),
            "fieldPath" => rule.field_path = text(key, value, path)?,
            "optionalOldSelf" => rule.optional_old_self = Some(flag(key, value, path)?),
            _ => {}
        }
    }
    Ok(rule)
}

fn children(key: &str, value: &Value, path: &mut String, depth: usize) -> Result<Vec<Props>, SchemaError> {
    let items = list(key, value, path)?;
    let mut out = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        out.push(at(path, &format!("{key}[{index}]"), |path| parse(item, path, depth + 1))?);
    }
    Ok(out)
}

/// Runs `inner` with `segment` appended to the path.
fn at<T>(
    path: &mut String,
    segment: &str,
    inner: impl FnOnce(&mut String) -> Result<T, SchemaError>,
) -> Result<T, SchemaError> {
    let length = path.len();
    if length > 0 {
        path.push('.');
    }
    path.push_str(segment);
    let result = inner(path);
    path.truncate(length);
    result
}

fn wrong(path: &str, message: &str) -> SchemaError {
    SchemaError { path: path.to_owned(), message: message.to_owned() }
}

fn wrong_at(path: &mut String, key: &str, message: &str) -> SchemaError {
    match at(path, key, |path| Err::<(), _>(wrong(path, message))) {
        Err(error) => error,
        Ok(()) => wrong(path, message),
    }
}

fn text(key: &str, value: &Value, path: &mut String) -> Result<String, SchemaError> {
    value.as_str().map(str::to_owned).ok_or_else(|| wrong_at(path, key, "must be a string"))
}

fn flag(key: &str, value: &Value, path: &mut String) -> Result<bool, SchemaError> {
    value.as_bool().ok_or_else(|| wrong_at(path, key, "must be a boolean"))
}

fn number(key: &str, value: &Value, path: &mut String) -> Result<f64, SchemaError> {
    value.as_f64().ok_or_else(|| wrong_at(path, key, "must be a number"))
}

fn integer(key: &str, value: &Value, path: &mut String) -> Result<i64, SchemaError> {
    value.as_i64().ok_or_else(|| wrong_at(path, key, "must be an integer"))
}

fn list<'a>(key: &str, value: &'a Value, path: &mut String) -> Result<&'a Vec<Value>, SchemaError> {
    value.as_array().ok_or_else(|| wrong_at(path, key, "must be a list"))
}

fn object<'a>(key: &str, value: &'a Value, path: &mut String) -> Result<&'a Map<String, Value>, SchemaError> {
    value.as_object().ok_or_else(|| wrong_at(path, key, "must be an object"))
}

fn texts(key: &str, value: &Value, path: &mut String) -> Result<Vec<String>, SchemaError> {
    let items = list(key, value, path)?;
    items
        .iter()
        .map(|item| {
            item.as_str().map(str::to_owned).ok_or_else(|| wrong_at(path, key, "must be a list of strings"))
        })
        .collect()
}
