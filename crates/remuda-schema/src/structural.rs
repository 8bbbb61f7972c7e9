//! The rules a schema must follow to be accepted in a definition.
//!
//! A schema is *structural* when pruning and defaulting can follow it without looking at values:
//! types are stated at every level, and `allOf`, `anyOf`, `oneOf` and `not` only add value
//! validations. Beyond that come the rules of the OpenAPI subset, of list types and of defaults.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    compile::compile_props,
    error::FieldError,
    props::{Props, SchemaError},
    rules,
};

mod completeness;
mod defaults;
mod invariants;
mod openapi;

/// What is demanded of a schema. Updates of a stored definition demand no more than it fulfils already.
#[derive(Debug, Clone, Default)]
pub(crate) struct Demands {
    /// The version has a status subresource, whose schema is cut out of the root.
    pub(crate) status_subresource: bool,
    pub(crate) lax: Lax,
    /// Expressions of the stored definition: accepted once, accepted for good.
    pub(crate) stored_expressions: BTreeSet<String>,
    /// The schema is the stored one.
    pub(crate) same_schema: bool,
}

/// Rules that the stored definition breaks and an update may therefore go on breaking.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lax {
    pub(crate) structural: bool,
    pub(crate) types: bool,
    pub(crate) pruned_defaults: bool,
    pub(crate) atomic_sets: bool,
    pub(crate) map_keys: bool,
}

/// Checks the schema of a new definition; `path` is where errors say it is
/// (`spec.versions[0].schema.openAPIV3Schema`).
pub fn check_structural(schema_json: &Value, path: &str) -> Vec<FieldError> {
    match Props::parse(schema_json) {
        Ok(props) => check(&props, schema_json, path, &Demands::default()),
        Err(error) => vec![shape_error(&error, schema_json, path)],
    }
}

/// Reports JSON that is no schema at all. The reference refuses such input when decoding it.
pub(crate) fn shape_error(error: &SchemaError, json: &Value, path: &str) -> FieldError {
    let field = match (path, error.path.as_str()) {
        (path, "") => path.to_owned(),
        ("", inner) => inner.to_owned(),
        (path, inner) => format!("{path}.{inner}"),
    };
    if error.path.is_empty() {
        return FieldError::invalid(field, json, &error.message);
    }
    FieldError::invalid_omitted(field, &error.message)
}

pub(crate) fn check(props: &Props, json: &Value, path: &str, demands: &Demands) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if demands.status_subresource {
        root_for_status(props, json, path, &mut errors);
    }
    if props.nullable {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let mut unsupported = None;
    let mut compiled = None;
    if !demands.lax.structural {
        unsupported = invariants::unsupported(props);
        if unsupported.is_none() {
            let broken = structural_errors(props, path);
            if broken.is_empty() {
                let schema = compile_props(props);
                let bad_defaults = defaults::check(&schema, path, !demands.lax.pruned_defaults);
                if bad_defaults.is_empty() {
                    compiled = Some(schema);
                }
                errors.extend(bad_defaults);
            } else {
                errors.extend(broken);
            }
        }
    }
    let found = openapi::check(props, path, demands.lax);
    let schema_ok = found.is_empty();
    errors.extend(found);
    // Rules are only judged against a sound schema: their errors would be of no help otherwise.
    if let Some(schema) = compiled.filter(|_| schema_ok) {
        let stored =
            rules::Stored { expressions: &demands.stored_expressions, same_schema: demands.same_schema };
        errors.extend(rules::report(&schema, path, stored));
    }
    if errors.is_empty()
        && let Some(text) = unsupported
    {
        errors.push(FieldError::invalid(path, &"".into(), text));
    }
    errors
}

/// The errors that make a schema non-structural, in a fixed order.
pub(crate) fn structural_errors(props: &Props, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    invariants::check(props, path, &mut errors);
    completeness::check(props, path, &mut errors);
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

pub(crate) fn is_structural(props: &Props) -> bool {
    invariants::unsupported(props).is_none() && structural_errors(props, "").is_empty()
}

pub(crate) fn has_unpruned_defaults(props: &Props) -> bool {
    is_structural(props) && defaults::any_unpruned(&compile_props(props))
}

pub(crate) use openapi::{has_bad_map_keys, has_granular_sets, is_known_type};

/// With a status subresource the root may only say what is not lost when the status is cut out.
fn root_for_status(props: &Props, json: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const ALLOWED: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum \
                           MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items \
                           Properties ExternalDocs Example XPreserveUnknownFields XValidations]";
    if !props.kind.is_empty() && props.kind != "object" {
        errors.push(FieldError::invalid(
            format!("{path}.type"),
            &props.kind.as_str().into(),
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
        ));
        return;
    }
    let other = props.id
        || props.schema
        || props.reference
        || props.nullable
        || props.default.is_some()
        || props.max_properties.is_some()
        || props.min_properties.is_some()
        || !props.enumeration.is_empty()
        || !props.all_of.is_empty()
        || !props.one_of.is_empty()
        || !props.any_of.is_empty()
        || props.not.is_some()
        || props.additional.is_some()
        || props.pattern_properties
        || props.dependencies
        || props.additional_items
        || props.definitions
        || props.embedded
        || props.int_or_string
        || !props.list_map_keys.is_empty()
        || props.list_type.is_some()
        || props.map_type.is_some();
    if other {
        let detail = format!(
            "only {ALLOWED} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        errors.push(FieldError::invalid(path, json, &detail));
    }
}

#[cfg(test)]
mod tests;
