//! v1beta1 and v1beta2 of the same object.
//!
//! v1beta2 is what is stored. Each kind has one table that says where a field of it stands in v1beta1; it is
//! read in both directions. What v1beta1 has no place for travels in an annotation, so that nothing is lost
//! when a client of the old version reads an object and writes it back.

mod codec;
mod duration;
mod tables;

use remuda_names::capi::annotation::CONVERSION_DATA;
use serde_json::{Map, Value};

use codec::Context;
use tables::Table;

/// The older of the two versions.
const SPOKE: &str = "v1beta1";
/// The stored version.
const HUB: &str = "v1beta2";

/// Converts objects of one CRD; of the shape the API server asks of native conversions.
///
/// `api_version` tells the API version in which the kind of a group is served, by the contract label of its
/// CRD. References in v1beta1 carry one; if none is known they say v1beta1, since refusing to show an object
/// because a provider is not installed helps nobody. `None` for a CRD whose versions differ in name only.
pub fn conversion(
    crd: &str,
    api_version: impl Fn(&str, &str) -> Option<String> + Send + Sync + 'static,
) -> Option<impl Fn(&mut Value, &str) -> Result<(), String> + Send + Sync + 'static> {
    let table = tables::of(crd)?;
    Some(move |object: &mut Value, target: &str| convert(table, object, target, &api_version))
}

/// Converts an object in place. `target` is a version, with or without its group.
fn convert(
    table: &Table,
    object: &mut Value,
    target: &str,
    api_version: &dyn Fn(&str, &str) -> Option<String>,
) -> Result<(), String> {
    let target = target.rsplit('/').next().unwrap_or(target);
    let current = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let (group, from) = current.split_once('/').unwrap_or(("", current.as_str()));
    if from == target {
        return Ok(());
    }
    let written = format!("{group}/{target}");
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let context = Context { namespace: &namespace, api_version };
    let Some(fields) = object.as_object_mut() else {
        return Err("not an object".into());
    };
    match (from, target) {
        (HUB, SPOKE) => {
            let hub = take_body(fields);
            let data = serde_json::to_string(&hub).map_err(|error| error.to_string())?;
            put_body(fields, table.down(&hub, &context));
            annotate(fields, data);
        }
        (SPOKE, HUB) => {
            let spoke = take_body(fields);
            let hub = match unannotate(fields) {
                Some(before) => table.restore(&spoke, &before, &context),
                None => table.up(&spoke, &context),
            };
            put_body(fields, hub);
        }
        _ => return Err(format!("cannot convert from {from} to {target}")),
    }
    fields.insert("apiVersion".into(), Value::String(written));
    Ok(())
}

/// Spec and status, out of the object.
fn take_body(fields: &mut Map<String, Value>) -> Map<String, Value> {
    let mut body = Map::new();
    for key in ["spec", "status"] {
        if let Some(value) = fields.remove(key) {
            body.insert(key.into(), value);
        }
    }
    body
}

fn put_body(fields: &mut Map<String, Value>, body: Map<String, Value>) {
    fields.extend(body);
}

fn annotate(fields: &mut Map<String, Value>, data: String) {
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else {
        return;
    };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if !annotations.is_object() {
        *annotations = Value::Object(Map::new());
    }
    annotations[CONVERSION_DATA] = Value::String(data);
}

/// Takes the stashed object out. What is no JSON object was not written by a conversion and is dropped.
fn unannotate(fields: &mut Map<String, Value>) -> Option<Map<String, Value>> {
    let metadata = fields.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let data = annotations.remove(CONVERSION_DATA)?;
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    match serde_json::from_str(data.as_str()?) {
        Ok(Value::Object(mut before)) => {
            // Upstream stashes the kind as well.
            before.retain(|key, _| key == "spec" || key == "status");
            Some(before)
        }
        _ => None,
    }
}

#[cfg(test)]
mod coverage;
#[cfg(test)]
mod tests;
