//! Configuration, nodes, events, leases and storage.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use remuda_base::quantity;
use serde_json::Value;

use super::{Errors, pair, same};
use crate::{
    json::{at, int_at, is_unset, list_at, map_at, text_at},
    meta, names,
    path::Path,
};

/// Data of a Secret or ConfigMap, decoded, may have this many bytes.
const DATA_MAX: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

/// Size of base64 text once decoded, without decoding it.
fn decoded_size(text: &str) -> usize {
    text.len() / 4 * 3
        - text.bytes().rev().take(2).filter(|byte| *byte == b'=').count().min(text.len() / 4 * 3)
}

fn frozen(new: &Value, old: Option<&Value>, fields: &[&str], errors: &mut Errors) {
    let Some(old) = old.filter(|old| at(old, &["immutable"]) == &Value::Bool(true)) else { return };
    if at(new, &["immutable"]) != &Value::Bool(true) {
        errors.forbidden(Path::root("immutable"), FROZEN);
    }
    for field in fields {
        let (new, old) = pair(new, old, &[field]);
        if !same(new, old) {
            errors.forbidden(Path::root(field), FROZEN);
        }
    }
}

pub(super) fn secret(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        let (kind, old_kind) = pair(new, old, &["type"]);
        errors.immutable(Path::root("type"), kind, old_kind);
    }
    frozen(new, old, &["data"], errors);
    let path = Path::root("data");
    let mut size = 0;
    for (key, value) in map_at(new, &["data"]).into_iter().flatten() {
        errors.complaints(path.key(key), key, &names::config_key(key));
        size += value.as_str().map_or(0, decoded_size);
    }
    if size > DATA_MAX {
        errors.too_long(path, DATA_MAX);
    }
    let has = |key: &str| !at(new, &["data", key]).is_null();
    let mut require = |keys: &[&str]| {
        for key in keys {
            if !has(key) {
                errors.required(path.key(key), "");
            }
        }
    };
    match text_at(new, &["type"]) {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if meta::annotation(new, key).unwrap_or_default().is_empty() {
                let annotations = Path::root("metadata");
                let annotations = annotations.child("annotations");
                errors.required(annotations.key(key), "");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(new, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => docker_config(new, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" if text_at(new, &["data", "ssh-privatekey"]).is_empty() => {
            errors.required(path.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        _ => {}
    }
}

fn docker_config(secret: &Value, key: &str, errors: &mut Errors) {
    let path = Path::root("data");
    let Some(encoded) = at(secret, &["data", key]).as_str() else {
        errors.required(path.key(key), "");
        return;
    };
    let decoded = STANDARD.decode(encoded).unwrap_or_default();
    if !serde_json::from_slice::<Value>(&decoded).is_ok_and(|config| config.is_object()) {
        errors.invalid(path.key(key), &Value::from("<secret contents redacted>"), "must be a JSON object");
    }
}

pub(super) fn config_map(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    frozen(new, old, &["data", "binaryData"], errors);
    let mut size = 0;
    for field in ["data", "binaryData"] {
        let path = Path::root(field);
        for (key, value) in map_at(new, &[field]).into_iter().flatten() {
            errors.complaints(path.key(key), key, &names::config_key(key));
            if field == "data" && !at(new, &["binaryData", key]).is_null() {
                errors.invalid(
                    path.key(key),
                    &Value::from(key.as_str()),
                    "duplicate of key present in binaryData",
                );
            }
            let text = value.as_str().unwrap_or_default();
            size += if field == "data" { text.len() } else { decoded_size(text) };
        }
    }
    if size > DATA_MAX {
        // Upstream names no field here, which prints as a pair of brackets.
        errors.too_long(Path::root("[]"), DATA_MAX);
    }
}

pub(super) fn node(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    // The taints are reported below metadata, as upstream does.
    let path = Path::root("metadata");
    let path = path.child("taints");
    let mut seen = BTreeSet::new();
    for (index, taint) in list_at(new, &["spec", "taints"]).iter().enumerate() {
        let path = path.index(index);
        let (key, effect) = (text_at(taint, &["key"]), text_at(taint, &["effect"]));
        errors.complaints(path.child("key"), key, &names::qualified(key));
        let value = text_at(taint, &["value"]);
        let complaints = names::label_value(value);
        if !complaints.is_empty() {
            errors.invalid(path.child("value"), &Value::from(value), &complaints.join(";"));
        }
        errors.one_of(
            path.child("effect"),
            at(taint, &["effect"]),
            &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        );
        if !seen.insert((key, effect)) {
            let message = format!("Duplicate value: {taint}: taints must be unique by key and effect pair");
            let error = remuda_schema::FieldError::new(path, remuda_schema::Reason::Duplicate, message);
            errors.list.push(error);
        }
    }
    let Some(old) = old else { return };
    let spec = Path::root("spec");
    let old_ranges = list_at(old, &["spec", "podCIDRs"]);
    if !old_ranges.is_empty() && old_ranges != list_at(new, &["spec", "podCIDRs"]) {
        errors.forbidden(
            spec.child("podCIDRs"),
            "node updates may not change podCIDR except from \"\" to valid",
        );
    }
    let (provider, old_provider) =
        (text_at(new, &["spec", "providerID"]), text_at(old, &["spec", "providerID"]));
    if !old_provider.is_empty() && provider != old_provider {
        let detail = if provider.is_empty() {
            "field cannot be cleared once set"
        } else {
            "field cannot be modified once set"
        };
        errors.invalid(spec.child("providerID"), &Value::Null, detail);
    }
}

/// `strict` for events.k8s.io; the core group keeps accepting what it always did.
pub(super) fn event(new: &Value, old: Option<&Value>, strict: bool, errors: &mut Errors) {
    let names = if strict {
        ("regarding", "reportingController", "note")
    } else {
        ("involvedObject", "reportingComponent", "message")
    };
    let (about, reporter, message) = names;
    let namespace = meta::namespace(new);
    let about_namespace = at(new, &[about, "namespace"]);
    let about_text = about_namespace.as_str().unwrap_or_default();
    let involved = Path::root("involvedObject");
    let mismatch = |errors: &mut Errors| {
        errors.invalid(
            involved.child("namespace"),
            &Value::from(about_text),
            "does not match event.namespace",
        );
    };
    let has_time = !text_at(new, &["eventTime"]).is_empty();
    if has_time {
        if about_text.is_empty() && !matches!(namespace, "default" | "kube-system") {
            mismatch(errors);
        }
        let controller = text_at(new, &[reporter]);
        if controller.is_empty() {
            errors.required(Path::root(reporter), "");
        }
        errors.complaints(Path::root(reporter), controller, &names::qualified(controller));
        for (field, limit, required) in [
            ("reportingInstance", 128, true),
            ("action", 128, true),
            ("reason", 128, true),
            (message, 1024, false),
        ] {
            let text = text_at(new, &[field]);
            if text.is_empty() && required {
                errors.required(Path::root(field), "");
            }
            if text.len() > limit {
                let field = if field == "note" { "message" } else { field };
                errors.invalid(
                    Path::root(field),
                    &Value::from(""),
                    &format!("can have at most {limit} characters"),
                );
            }
        }
    } else if about_text.is_empty() {
        if !matches!(namespace, "" | "default") {
            mismatch(errors);
        }
    } else if namespace != about_text {
        mismatch(errors);
    }
    if !strict {
        return;
    }
    let series = at(new, &["series"]);
    if series.is_object() && old.is_none_or(|old| at(old, &["series"]) != series) {
        if int_at(series, &["count"]) < 2 {
            errors.invalid(Path::root("series.count"), &Value::from(""), "should be at least 2");
        }
        if text_at(series, &["lastObservedTime"]).is_empty() {
            errors.required(Path::root("series.lastObservedTime"), "");
        }
    }
    match old {
        None => new_style(new, has_time, errors),
        Some(old) => {
            for field in [
                "regarding",
                "reason",
                "note",
                "deprecatedSource",
                "deprecatedFirstTimestamp",
                "deprecatedLastTimestamp",
                "deprecatedCount",
                "type",
                "eventTime",
                "action",
                "related",
                "reportingController",
                "reportingInstance",
            ] {
                let (new, old) = pair(new, old, &[field]);
                errors.immutable(Path::root(field), new, old);
            }
        }
    }
}

fn new_style(event: &Value, has_time: bool, errors: &mut Errors) {
    if !has_time {
        errors.required(Path::root("eventTime"), "");
    }
    let kind = text_at(event, &["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(Path::root("type"), &Value::from(""), &format!("has invalid value: {kind}"));
    }
    for (field, shown) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ] {
        let value = at(event, &[field]);
        if !is_unset(value) && value.as_i64() != Some(0) {
            errors.invalid(Path::root(shown), &Value::from(""), "needs to be unset");
        }
    }
}

pub(super) fn lease(new: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    let seconds = at(spec, &["leaseDurationSeconds"]);
    if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
        errors.invalid(path.child("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    errors.not_negative(path.child("leaseTransitions"), at(spec, &["leaseTransitions"]));
    if !is_unset(at(spec, &["preferredHolder"])) && is_unset(at(spec, &["strategy"])) {
        errors.forbidden(path.child("preferredHolder"), "may only be specified if `strategy` is defined");
    }
}

pub(super) fn priority_class(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    const HIGHEST: i64 = 1_000_000_000;
    const SYSTEM: [(&str, i64); 2] =
        [("system-node-critical", HIGHEST * 2 + 1000), ("system-cluster-critical", HIGHEST * 2)];
    let (name, value) = (meta::name(new), int_at(new, &["value"]));
    if name.starts_with("system-") {
        if !SYSTEM.contains(&(name, value)) || at(new, &["globalDefault"]) == &Value::Bool(true) {
            let metadata = Path::root("metadata");
            errors.forbidden(
                metadata.child("name"),
                &format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
                ),
            );
        }
    } else if value > HIGHEST {
        errors.forbidden(
            Path::root("value"),
            &format!("maximum allowed value of a user defined priority is {HIGHEST}"),
        );
    }
    let policy = Path::root("preemptionPolicy");
    errors.one_of_given(policy, at(new, &["preemptionPolicy"]), &["Never", "PreemptLowerPriority"]);
    if let Some(old) = old {
        if value != int_at(old, &["value"]) {
            errors.forbidden(Path::root("value"), "may not be changed in an update.");
        }
        let (new, old) = pair(new, old, &["preemptionPolicy"]);
        errors.immutable(policy, new, old);
    }
}

pub(super) fn storage_class(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
            let (new, old) = pair(new, old, &[field]);
            errors.immutable(Path::root(field), new, old);
        }
        return;
    }
    let provisioner = text_at(new, &["provisioner"]);
    if provisioner.is_empty() {
        errors.required(Path::root("provisioner"), "");
    } else {
        let lower = provisioner.to_lowercase();
        errors.complaints(Path::root("provisioner"), &lower, &names::qualified(&lower));
    }
    errors.one_of_given(Path::root("reclaimPolicy"), at(new, &["reclaimPolicy"]), &["Delete", "Retain"]);
    let mode = Path::root("volumeBindingMode");
    errors.one_of(mode, at(new, &["volumeBindingMode"]), &["Immediate", "WaitForFirstConsumer"]);
}

pub(super) fn volume_attributes(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    if let Some(old) = old {
        for field in ["driverName", "parameters"] {
            let (new, old) = pair(new, old, &[field]);
            errors.immutable(Path::root(field), new, old);
        }
        return;
    }
    let driver = text_at(new, &["driverName"]);
    let path = Path::root("driverName");
    if driver.is_empty() {
        errors.required(path, "");
    } else if driver.len() > 63 {
        errors.too_long(path, 63);
    } else {
        errors.complaints(path, driver, &names::subdomain(&driver.to_lowercase()));
    }
    if at(new, &["parameters"]).as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required(Path::root("parameters"), "must contain at least one key/value pair");
    }
}

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

fn access_modes(object: &Value, path: Path<'_>, errors: &mut Errors) {
    let modes = list_at(object, &["spec", "accessModes"]);
    if modes.is_empty() {
        errors.required(path, "at least 1 access mode is required");
    }
    for mode in modes {
        errors.one_of_given(path, mode, &ACCESS_MODES);
    }
}

pub(super) fn claim(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = Path::root("spec");
    access_modes(new, spec.child("accessModes"), errors);
    let resources = spec.child("resources");
    let storage = at(new, &["spec", "resources", "requests", "storage"]);
    if is_unset(storage) {
        errors.required(resources.key("storage"), "");
    }
    let Some(old) = old else { return };
    let bound = text_at(old, &["status", "phase"]) == "Bound";
    let mut changed = false;
    let (new_spec, old_spec) = pair(new, old, &["spec"]);
    let fields = new_spec.as_object().into_iter().chain(old_spec.as_object()).flat_map(|map| map.keys());
    for field in fields {
        let (new, old) = pair(new_spec, old_spec, &[field]);
        changed |= match field.as_str() {
            "volumeName" if is_unset(old) => false,
            "resources" | "volumeAttributesClassName" if bound => false,
            _ => !same(new, old),
        };
    }
    if changed {
        errors.forbidden(
            spec,
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        );
    }
    let amount = |object: &Value, keys: &[&str]| quantity::nanos(text_at(object, keys));
    let keys = ["spec", "resources", "requests", "storage"];
    if let (Some(new_size), Some(old_size)) = (amount(new, &keys), amount(old, &keys))
        && new_size < old_size
        && amount(old, &["status", "capacity", "storage"]).is_none_or(|size| new_size <= size)
    {
        let requests = resources.child("requests");
        errors.forbidden(requests.child("storage"), "field can not be less than status.capacity");
    }
}

pub(super) fn volume(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = Path::root("spec");
    access_modes(new, spec.child("accessModes"), errors);
    let capacity = map_at(new, &["spec", "capacity"]);
    match capacity.filter(|capacity| !capacity.is_empty()) {
        None => errors.required(spec.child("capacity"), ""),
        Some(capacity) if capacity.len() > 1 || !capacity.contains_key("storage") => {
            errors.list.push(remuda_schema::FieldError::not_supported(
                spec.child("capacity"),
                at(new, &["spec", "capacity"]),
                &["storage"],
            ));
        }
        Some(_) => {}
    }
    let policy = at(new, &["spec", "persistentVolumeReclaimPolicy"]);
    errors.one_of_given(
        spec.child("persistentVolumeReclaimPolicy"),
        policy,
        &["Delete", "Recycle", "Retain"],
    );
    if let Some(old) = old {
        let (new, old) = pair(new, old, &["spec", "volumeMode"]);
        errors.immutable(Path::root("volumeMode"), new, old);
    }
}

/// Names of those who hold a namespace, as [`meta`] has them for other objects. What is there already stays.
pub(super) fn namespace(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = Path::root("spec");
    let path = spec.child("finalizers");
    let known = old.map(|old| list_at(old, &["spec", "finalizers"])).unwrap_or_default();
    for (index, finalizer) in list_at(new, &["spec", "finalizers"]).iter().enumerate() {
        if known.contains(finalizer) {
            continue;
        }
        let name = finalizer.as_str().unwrap_or_default();
        let path = if old.is_some() { path.index(index) } else { path };
        errors.complaints(path, name, &names::qualified(name));
        if !name.contains('/') && !meta::STANDARD_FINALIZERS.contains(&name) {
            errors.invalid(path, finalizer, meta::UNQUALIFIED_FINALIZER);
        }
    }
}

/// A namespace ends by being deleted, not by being said to end.
pub(super) fn namespace_phase(new: &Value, errors: &mut Errors) {
    let status = Path::root("status");
    let phase = at(new, &["status", "phase"]);
    let (only, state) =
        if meta::is_deleting(new) { ("Terminating", "not empty") } else { ("Active", "empty") };
    if phase.as_str() != Some(only) {
        // The field in Kubernetes' spelling.
        let detail = format!("may only be '{only}' if `deletionTimestamp` is {state}");
        errors.invalid(status.child("Phase"), phase, &detail);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validate::tests::{check_create, check_update};

    #[test]
    fn secrets_need_the_keys_of_their_type() {
        check_create("", "Secret", &json!({"type": "Opaque", "data": {"a.b": "eA=="}}), &[]);
        check_create(
            "",
            "Secret",
            &json!({"type": "kubernetes.io/tls"}),
            &["data[tls.crt]: Required value", "data[tls.key]: Required value"],
        );
        check_create(
            "",
            "Secret",
            &json!({"type": "kubernetes.io/service-account-token"}),
            &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        );
        check_create(
            "",
            "Secret",
            &json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30="}}),
            &[],
        );
        check_create(
            "",
            "Secret",
            &json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}}),
            &[
                "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": must be a JSON object",
            ],
        );
        check_update(
            "",
            "Secret",
            &json!({"type": "a"}),
            &json!({"type": "b"}),
            &["type: Invalid value: \"a\": field is immutable"],
        );
    }

    #[test]
    fn frozen_data_stays() {
        check_update(
            "",
            "ConfigMap",
            &json!({"data": {"a": "2"}}),
            &json!({"immutable": true, "data": {"a": "1"}}),
            &[
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
            ],
        );
    }

    #[test]
    fn data_is_limited_to_a_mebibyte() {
        check_create("", "ConfigMap", &json!({"data": {"a": "x".repeat(DATA_MAX)}}), &[]);
        check_create(
            "",
            "ConfigMap",
            &json!({"data": {"a": "x".repeat(DATA_MAX + 1)}}),
            &["[]: Too long: may not be more than 1048576 bytes"],
        );
    }

    #[test]
    fn nodes_keep_their_provider() {
        check_update(
            "",
            "Node",
            &json!({"spec": {"providerID": "b", "taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "X"}]}}),
            &json!({"spec": {"providerID": "a"}}),
            &[
                "metadata.taints[1].effect: Unsupported value: \"X\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
                "spec.providerID: Invalid value: null: field cannot be modified once set",
            ],
        );
    }

    #[test]
    fn both_styles_of_events_are_checked() {
        check_create(
            "",
            "Event",
            &json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "a"}}),
            &[],
        );
        check_create("", "Event", &json!({"metadata": {"namespace": "default"}, "involvedObject": {}}), &[]);
        check_create(
            "",
            "Event",
            &json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}}),
            &["involvedObject.namespace: Invalid value: \"b\": does not match event.namespace"],
        );
        check_create(
            "events.k8s.io",
            "Event",
            &json!({"metadata": {"namespace": "a"}, "regarding": {"namespace": "a"}, "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "x.io/c", "reportingInstance": "i", "action": "A", "reason": "R", "type": "Normal"}),
            &[],
        );
        check_create(
            "events.k8s.io",
            "Event",
            &json!({"metadata": {"namespace": "a"}, "regarding": {"namespace": "a"}, "type": "Odd"}),
            &["eventTime: Required value", "type: Invalid value: \"\": has invalid value: Odd"],
        );
    }

    #[test]
    fn system_priorities_are_reserved() {
        check_create(
            "scheduling.k8s.io",
            "PriorityClass",
            &json!({"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}),
            &[],
        );
        check_create(
            "scheduling.k8s.io",
            "PriorityClass",
            &json!({"metadata": {"name": "a"}, "value": 2_000_000_000}),
            &["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
        );
    }

    #[test]
    fn sizes_are_those_of_the_decoded_data() {
        for (text, size) in [("", 0), ("eA==", 1), ("eHg=", 2), ("eHh4", 3), ("=", 0), ("==", 0)] {
            assert_eq!(decoded_size(text), size, "{text}");
        }
    }
}
