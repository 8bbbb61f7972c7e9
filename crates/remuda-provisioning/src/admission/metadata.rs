//! Names and creators.

use remuda_names::rancher::{
    annotation::{CREATOR_ID, NO_CREATOR_RBAC},
    name::{FLEET_LOCAL, LOCAL},
};
use remuda_schema::FieldError;
use serde_json::{Map, Value};

use super::{Findings, Write};
use crate::naming;

const CREATOR_FIELD: &str = "metadata.annotations[field.cattle.io/creatorId]";
const NAME: &str = "cluster name must be between 2 and 63 characters, must not begin with a hyphen, cannot be \"local\" \
                    nor of the form \"c-xxxxx\" or \"c-m-xxxxxxxx\", which are names of the server, and can only contain \
                    lowercase alphanumeric characters or ' - '";

/// Whoever creates a cluster is its creator, whatever was written: it gives rights.
pub(super) fn set_creator(object: &mut Value, user: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let annotations = metadata.entry("annotations").or_insert(Value::Null);
    if annotations.is_null() {
        *annotations = Value::Object(Map::new());
    }
    // What is no map is refused by the rules of metadata.
    let Some(annotations) = annotations.as_object_mut() else { return };
    if !annotations.contains_key(NO_CREATOR_RBAC) {
        annotations.insert(CREATOR_ID.to_owned(), user.into());
    }
}

/// A creator can be forgotten, but never be somebody else.
pub(super) fn creator(write: &Write<'_>, object: &Value, findings: &mut Findings) {
    let annotations = &object["metadata"]["annotations"];
    let creator = &annotations[CREATOR_ID];
    if annotations.get(NO_CREATOR_RBAC).is_some() {
        if !creator.is_null() {
            let detail = "cannot have creatorID annotation when no-creator-rbac is set";
            findings.invalid.push(FieldError::forbidden(CREATOR_FIELD, detail));
        }
        return;
    }
    match write.old {
        None if creator != write.user => {
            findings.invalid(CREATOR_FIELD, creator, "creatorID annotation does not match user");
        }
        Some(old) if !creator.is_null() && *creator != old["metadata"]["annotations"][CREATOR_ID] => {
            findings.invalid(CREATOR_FIELD, creator, "creatorID annotation cannot be changed");
        }
        _ => {}
    }
}

pub(super) fn name(write: &Write<'_>, object: &Value, findings: &mut Findings) {
    let name = object["metadata"]["name"].as_str().unwrap_or(write.name);
    // Still to be generated, and judged then.
    if name.is_empty() {
        return;
    }
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_valid = if naming::is_reserved(name) {
        // To show a cluster that was made otherwise.
        write.is_server && (name != LOCAL || write.namespace == FLEET_LOCAL)
    } else {
        (2..=63).contains(&name.len()) && !name.starts_with('-') && name.bytes().skip(1).all(plain)
    };
    if !is_valid {
        findings.invalid("metadata.name", &name.into(), NAME);
    }
}
