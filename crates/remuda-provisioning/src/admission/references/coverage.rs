//! Whether the table has every field that names another object.
//!
//! A name looks like one: that is all that can be told of a schema. Tests ask this of the kinds that are shipped and of
//! those a running server defines by itself, such as the kinds of drivers.

use std::collections::BTreeSet;

use remuda_names::rancher::group::{MACHINE, MACHINE_CONFIG};
use serde_json::Value;

use super::table::{DRIVER_FIELDS, Field, NO_REFERENCES, TABLE};

/// Fields of a kind that look like names of other objects and of which the table says nothing, given its
/// CustomResourceDefinition.
pub fn untold(definition: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind) = (text(&definition["spec"]["group"]), text(&definition["spec"]["names"]["kind"]));
    let mut paths = BTreeSet::new();
    for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
        properties(&version["schema"]["openAPIV3Schema"], "", &mut paths);
    }
    let untold = paths.iter().filter(|path| looks_like_a_name(path) && !is_told(&group, &kind, path));
    untold.map(|path| format!("{kind}.{group}: {path}")).collect()
}

/// Every property of a schema, with its path as the table writes it.
pub(super) fn properties(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let dot = if path.is_empty() { "" } else { "." };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}{dot}{name}");
        properties(property, &path, found);
        found.insert(path);
    }
    if schema["additionalProperties"].is_object() {
        properties(&schema["additionalProperties"], &format!("{path}{dot}*"), found);
    }
    if schema["items"].is_object() {
        properties(&schema["items"], &format!("{path}[*]"), found);
    }
}

/// Whether a field may well name another object.
pub(super) fn looks_like_a_name(path: &str) -> bool {
    let last = path.rsplit('.').next().unwrap_or_default().trim_end_matches("[*]");
    let endings = [
        "Ref",
        "Refs",
        "Reference",
        "Secret",
        "secret",
        "Secrets",
        "Credential",
        "credential",
        "ConfigMap",
        "configMap",
        "Name",
        "name",
        "Names",
        "Template",
    ];
    let whole = ["remediationTemplate", "template"];
    let is_top = matches!(path, "kind" | "apiVersion" | "metadata");
    !is_top && (endings.iter().any(|ending| last.ends_with(ending)) || whole.contains(&last))
}

fn is_below(path: &str, of: &str) -> bool {
    path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The setting of a driver at a path of one of its kinds.
fn driver_field<'a>(group: &str, path: &'a str) -> Option<&'a str> {
    match group {
        MACHINE_CONFIG => Some(path),
        MACHINE => path.strip_prefix("spec.template.spec.").or_else(|| path.strip_prefix("spec.")),
        _ => None,
    }
}

pub(super) fn is_told(group: &str, kind: &str, path: &str) -> bool {
    // A field of the table, a part of one, or what holds one.
    let listed = |field: &&Field| is_below(path, field.path) || is_below(field.path, path);
    let no_reference = |(of, kinds, listed, _): &&(&str, &str, &str, &str)| {
        let covers = match listed.strip_suffix(".**") {
            Some(root) => is_below(path, root.trim_end_matches("[*]")),
            None => *listed == "*" || *listed == path,
        };
        *of == group && (*kinds == "*" || *kinds == kind) && covers
    };
    TABLE.iter().filter(|field| field.is_of(group, kind)).any(|field| listed(&field))
        || NO_REFERENCES.iter().any(|entry| no_reference(&entry))
        || driver_field(group, path)
            .is_some_and(|field| DRIVER_FIELDS.iter().any(|(known, _)| *known == field))
}
