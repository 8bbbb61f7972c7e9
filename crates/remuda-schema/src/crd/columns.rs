//! Paths in definitions: scale, printer columns, selectable fields.

use serde_json::Value;

use crate::{
    crd::{ScalePaths, list, present, text},
    error::FieldError,
    fieldpath, gotext,
    props::Props,
};

const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const MAX_SELECTABLE: usize = 8;

pub(super) fn check_subresources(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let scale = present(version, "subresources").and_then(|subresources| present(subresources, "scale"));
    let Some(scale) = scale else { return };
    for (name, prefixes, detail, needed) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec", true),
        ("statusReplicasPath", &[".status."][..], "should be a json path under .status", true),
        (
            "labelSelectorPath",
            &[".spec.", ".status."][..],
            "should be a json path under either .spec or .status",
            false,
        ),
    ] {
        let field = format!("{path}.scale.{name}");
        let value = text(scale, name);
        if value.is_empty() {
            if needed {
                errors.push(FieldError::required(field, ""));
            }
        } else if simple_path(value, &field, errors)
            && !prefixes.iter().any(|prefix| value.starts_with(prefix))
        {
            errors.push(FieldError::invalid(field, &value.into(), detail));
        }
    }
}

fn simple_path(path: &str, field: &str, errors: &mut Vec<FieldError>) -> bool {
    if path.starts_with('.') {
        return true;
    }
    errors.push(FieldError::invalid(field, &path.into(), "must be a simple json path starting with ."));
    false
}

pub(super) fn check_columns(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, column) in list(version, "additionalPrinterColumns").iter().enumerate() {
        let path = format!("{path}[{index}]");
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        let detail = format!("must be one of {COLUMN_TYPES}");
        match text(column, "type") {
            "" => errors.push(FieldError::required(format!("{path}.type"), &detail)),
            kind if COLUMN_TYPES.split(',').any(|known| known == kind) => {}
            kind => errors.push(FieldError::invalid(format!("{path}.type"), &kind.into(), &detail)),
        }
        let format = text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(FieldError::invalid(format!("{path}.format"), &format.into(), &detail));
        }
        let field = format!("{path}.JSONPath");
        match text(column, "jsonPath") {
            "" => errors.push(FieldError::required(field, "")),
            json_path => {
                simple_path(json_path, &field, errors);
            }
        }
    }
}

pub(super) fn check_selectable(
    fields: &[Value],
    props: &Props,
    path: &str,
    kept: bool,
    errors: &mut Vec<FieldError>,
) {
    let mut seen: Vec<String> = Vec::new();
    for (index, entry) in fields.iter().enumerate() {
        let field = format!("{path}[{index}].jsonPath");
        let json_path = text(entry, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(field, ""));
            continue;
        }
        let value = Value::from(json_path);
        let found = match fieldpath::resolve(json_path, props, false) {
            Ok(found) => found,
            Err(problem) => {
                errors.push(FieldError::invalid(field, &value, &format!("is an invalid path: {problem}")));
                continue;
            }
        };
        if found.first == "metadata" {
            errors.push(FieldError::invalid(&field, &value, "must not point to fields in metadata"));
        }
        if !matches!(found.props.kind.as_str(), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.push(FieldError::invalid(&field, &value, detail));
        }
        if seen.contains(&found.text) {
            errors.push(FieldError::duplicate(&field, &value));
        } else {
            seen.push(found.text);
        }
    }
    if seen.len() > MAX_SELECTABLE && !kept {
        errors.push(FieldError::too_many(path, seen.len(), MAX_SELECTABLE));
    }
}

/// Checks the fields that a scale subresource reads and writes. On status writes only the status part.
pub fn check_scale(paths: &ScalePaths, object: &Value, status_only: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !status_only {
        replicas(&paths.spec_replicas, object, &mut errors);
    }
    replicas(&paths.status_replicas, object, &mut errors);
    if let Some(path) = &paths.label_selector
        && let Some(value) = lookup(path, object)
        && !value.is_string()
    {
        let detail = format!(
            "{path} accessor error: {value} is of the type {}, expected string",
            gotext::type_name(value)
        );
        errors.push(FieldError::invalid(path.as_str(), &"".into(), &detail));
    }
    errors
}

fn replicas(path: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let Some(value) = lookup(path, object) else { return };
    match value.as_i64() {
        None => {
            let detail = format!(
                "{path} accessor error: {value} is of the type {}, expected int64",
                gotext::type_name(value)
            );
            errors.push(FieldError::invalid(path, &0.into(), &detail));
        }
        Some(count) if count < 0 => {
            errors.push(FieldError::invalid(path, value, "should be a non-negative integer"));
        }
        Some(count) if count > i64::from(i32::MAX) => {
            let detail = format!("should be less than or equal to {}", i32::MAX);
            errors.push(FieldError::invalid(path, value, &detail));
        }
        Some(_) => {}
    }
}

fn lookup<'a>(path: &str, object: &'a Value) -> Option<&'a Value> {
    let path = path.strip_prefix('.').unwrap_or(path);
    let found = path.split('.').try_fold(object, |value, name| value.get(name))?;
    (!found.is_null()).then_some(found)
}
