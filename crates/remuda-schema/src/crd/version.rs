//! One version of a definition: schema, subresources, columns, selectable fields.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    crd::{columns, flag, list, present, schema_json, text},
    error::FieldError,
    props::Props,
    structural::{self, Demands, Lax},
};

/// Which parts all versions have in common.
pub(super) struct Shared {
    pub(super) schema: bool,
    pub(super) subresources: bool,
    pub(super) columns: bool,
    pub(super) selectable: bool,
}

impl Shared {
    pub(super) fn of(versions: &[Value]) -> Self {
        let same = |name: &str| {
            let first = versions.first().and_then(|version| present(version, name));
            versions.iter().all(|version| present(version, name) == first)
        };
        Self {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable: same("selectableFields"),
        }
    }
}

/// Checks what this version says for itself.
pub(super) fn check(
    version: &Value,
    old: Option<&Value>,
    path: &str,
    shared: &Shared,
    demands: &Demands,
    errors: &mut Vec<FieldError>,
) {
    deprecation(version, path, errors);
    if !shared.schema {
        let path = format!("{path}.schema");
        schema(version, (has_status(version), is_same(version, old)), &path, demands, errors);
    }
    if !shared.subresources {
        columns::check_subresources(version, &format!("{path}.subresources"), errors);
    }
    if !shared.columns {
        columns::check_columns(version, &format!("{path}.additionalPrinterColumns"), errors);
    }
    if !shared.selectable {
        selectable(version, old, &format!("{path}.selectableFields"), errors);
    }
}

/// Checks what all versions say alike.
pub(super) fn check_shared(
    versions: &[Value],
    old: Option<&Value>,
    shared: &Shared,
    demands: &Demands,
    errors: &mut Vec<FieldError>,
) {
    let Some(first) = versions.first() else { return };
    if shared.schema {
        let status = versions.iter().any(has_status);
        schema(first, (status, is_same(first, old)), "spec.validation", demands, errors);
    }
    if shared.subresources {
        columns::check_subresources(first, "spec.subresources", errors);
    }
    if shared.columns {
        columns::check_columns(first, "spec.additionalPrinterColumns", errors);
    }
    if shared.selectable {
        selectable(first, old, "spec.selectableFields", errors);
    }
}

fn has_status(version: &Value) -> bool {
    present(version, "subresources").is_some_and(|subresources| present(subresources, "status").is_some())
}

/// Whether the stored definition has the same schema in this version.
fn is_same(version: &Value, old: Option<&Value>) -> bool {
    let versions = old.and_then(|old| old.get("spec")).map(|spec| list(spec, "versions")).unwrap_or_default();
    let stored = versions.iter().find(|stored| text(stored, "name") == text(version, "name"));
    stored.is_some_and(|stored| schema_json(stored) == schema_json(version))
}

fn schema(
    version: &Value,
    (status, same): (bool, bool),
    path: &str,
    demands: &Demands,
    errors: &mut Vec<FieldError>,
) {
    let Some(json) = schema_json(version) else { return };
    let path = format!("{path}.openAPIV3Schema");
    match Props::parse(json) {
        Ok(props) => {
            let demands = Demands { status_subresource: status, same_schema: same, ..demands.clone() };
            errors.extend(structural::check(&props, json, &path, &demands));
        }
        Err(error) => errors.push(structural::shape_error(&error, json, &path)),
    }
}

fn selectable(version: &Value, old: Option<&Value>, path: &str, errors: &mut Vec<FieldError>) {
    let fields = list(version, "selectableFields");
    if fields.is_empty() {
        return;
    }
    let Some(props) = schema_json(version).and_then(|json| Props::parse(json).ok()) else { return };
    let old_versions =
        old.and_then(|old| old.get("spec")).map(|spec| list(spec, "versions")).unwrap_or_default();
    let kept = old_versions
        .iter()
        .any(|old| text(old, "name") == text(version, "name") && list(old, "selectableFields") == fields);
    columns::check_selectable(fields, &props, path, kept, errors);
}

fn deprecation(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let Some(warning) = present(version, "deprecationWarning") else { return };
    let mut problems = Vec::new();
    let words = warning.as_str().unwrap_or_default();
    if !flag(version, "deprecated") {
        problems.push("can only be set for deprecated versions".to_owned());
    } else {
        if words.len() > 256 {
            problems.push("must be <= 256 characters long".to_owned());
        }
        if words.is_empty() {
            problems.push("must not be an empty string".to_owned());
        }
        if let Some((at, _)) = words.char_indices().find(|(_, c)| c.is_control()) {
            problems.push(format!(
                "must only contain printable UTF-8 characters; non-printable character found at index {at}"
            ));
        }
    }
    let field = format!("{path}.deprecationWarning");
    errors.extend(problems.iter().map(|detail| FieldError::invalid(&field, warning, detail)));
}

/// What an update of a definition with this spec must fulfil.
pub(super) fn demands(old_spec: &Value) -> Demands {
    let schemas: Vec<Option<Props>> = list(old_spec, "versions")
        .iter()
        .filter_map(schema_json)
        .map(|json| Props::parse(json).ok())
        .collect();
    let any = |test: &dyn Fn(&Props) -> bool| schemas.iter().flatten().any(test);
    let mut stored_expressions = BTreeSet::new();
    for props in schemas.iter().flatten() {
        props.any(&mut |node| {
            for rule in &node.rules {
                stored_expressions.insert(rule.rule.clone());
                stored_expressions.insert(rule.message_expression.clone());
            }
            false
        });
    }
    let preserves = flag(old_spec, "preserveUnknownFields");
    let lax = Lax {
        structural: preserves && any(&|props| !structural::is_structural(props)),
        types: any(&|props| props.any(&mut |node| !structural::is_known_type(&node.kind))),
        pruned_defaults: any(&structural::has_unpruned_defaults),
        atomic_sets: any(&structural::has_granular_sets),
        map_keys: any(&structural::has_bad_map_keys),
    };
    Demands { status_subresource: false, lax, stored_expressions, same_schema: false }
}
