//! Advice for the author of a definition, sent as warning headers.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    crd::{list, schema_json},
    format::Format,
    gotext,
    props::Props,
};

/// Warnings for a definition; on updates only those that `old` did not deserve already.
pub fn crd_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let known: BTreeSet<String> = old.map(all).unwrap_or_default().into_iter().collect();
    all(new).into_iter().filter(|warning| !known.contains(warning)).collect()
}

fn all(crd: &Value) -> Vec<String> {
    let mut formats = Vec::new();
    let mut sets = BTreeSet::new();
    let versions = crd.get("spec").map(|spec| list(spec, "versions")).unwrap_or_default();
    let mut seen: Vec<&Value> = Vec::new();
    for json in versions.iter().filter_map(schema_json) {
        // A schema that several versions share is looked at once.
        if seen.contains(&json) {
            continue;
        }
        seen.push(json);
        let Ok(props) = Props::parse(json) else { continue };
        props.any(&mut |node| {
            let kind = if node.int_or_string { "" } else { node.kind.as_str() };
            if !node.format.is_empty() && Format::of(kind, &node.format).is_none() {
                formats.push(format!("unrecognized format {}", gotext::quote(&node.format)));
            }
            if node.list_type.as_deref() == Some("set")
                && let Some(kind @ ("object" | "array")) = node.item().map(|item| item.kind.as_str())
            {
                sets.insert(format!(
                    "x-kubernetes-list-type: set for items of type {} is not supported by server-side apply or CEL validation rules",
                    gotext::quote(kind)
                ));
            }
            false
        });
    }
    formats.into_iter().chain(sets).collect()
}
