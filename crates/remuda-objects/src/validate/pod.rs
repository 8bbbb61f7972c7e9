//! Pods and the templates that make them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Errors, same};
use crate::{
    json::{at, is_unset, list_at, map_at, text_at},
    names,
    path::Path,
};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const CHANGEABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn pod(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    spec(at(new, &["spec"]), path, errors);
    if let Some(old) = old {
        update(at(new, &["spec"]), at(old, &["spec"]), path, errors);
    }
}

/// What may change in a running pod is little; ephemeral containers have a subresource of their own.
fn update(new: &Value, old: &Value, path: Path<'_>, errors: &mut Errors) {
    for list in ["containers", "initContainers"] {
        if list_at(new, &[list]).len() != list_at(old, &[list]).len() {
            errors.forbidden(path.child(list), "pod updates may not add or remove containers");
            return;
        }
    }
    deadline(at(new, &["activeDeadlineSeconds"]), at(old, &["activeDeadlineSeconds"]), path, errors);
    let tolerated = |old: &Value| {
        let same_but_time = |new: &&Value| {
            let fields = ["key", "operator", "value", "effect"];
            fields.iter().all(|field| same(at(new, &[field]), at(old, &[field])))
        };
        list_at(new, &["tolerations"]).iter().find(same_but_time).is_some()
    };
    if !list_at(old, &["tolerations"]).iter().all(tolerated) {
        errors.forbidden(
            path.child("tolerations"),
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
    let gate_names = |spec| list_at(spec, &["schedulingGates"]).iter().map(|gate| text_at(gate, &["name"]));
    let old_gates: BTreeSet<&str> = gate_names(old).collect();
    let gates = path.child("schedulingGates");
    for (index, gate) in gate_names(new).enumerate().filter(|(_, gate)| !old_gates.contains(gate)) {
        let gate_path = gates.index(index);
        let detail = format!("only deletion is allowed, but found new scheduling gate '{gate}'");
        errors.forbidden(gate_path.child("name"), &detail);
    }
    let gated = !old_gates.is_empty();
    let fields: BTreeSet<&String> =
        new.as_object().into_iter().chain(old.as_object()).flat_map(|fields| fields.keys()).collect();
    let changed = fields.into_iter().any(|field| {
        let (new, old) = (at(new, &[field]), at(old, &[field]));
        match field.as_str() {
            "containers" | "initContainers" => !same_but_image(new, old),
            "activeDeadlineSeconds" | "tolerations" | "schedulingGates" => false,
            "terminationGracePeriodSeconds" => {
                let shortened = old.as_i64().is_some_and(|seconds| seconds < 0) && new.as_i64() == Some(1);
                !shortened && !same(new, old)
            }
            // A pod that waits for its gates may still be told where to go.
            "nodeSelector" if gated => {
                !map_at(old, &[]).into_iter().flatten().all(|(key, value)| new.get(key) == Some(value))
            }
            "affinity" if gated => false,
            _ => !same(new, old),
        }
    });
    if changed {
        errors.forbidden(path, CHANGEABLE);
    }
}

/// Ephemeral containers can be added to a pod, and that is all.
pub(super) fn ephemeral_containers(new: &Value, old: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    let path = spec.child("ephemeralContainers");
    let given = list_at(new, &["spec", "ephemeralContainers"]);
    for old in list_at(old, &["spec", "ephemeralContainers"]) {
        let name = at(old, &["name"]);
        match given.iter().find(|new| at(new, &["name"]) == name) {
            Some(new) if new == old => {}
            Some(_) => {
                errors.forbidden(path, &format!("existing ephemeral containers {name} may not be changed"));
            }
            None => {
                errors.forbidden(path, &format!("existing ephemeral containers {name} may not be removed"));
            }
        }
    }
}

fn deadline(new: &Value, old: &Value, path: Path<'_>, errors: &mut Errors) {
    let path = path.child("activeDeadlineSeconds");
    match (new.as_i64(), old.as_i64()) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.invalid(path, new, "must be between 0 and 2147483647, inclusive");
        }
        (Some(seconds), Some(old)) if old < seconds => {
            errors.invalid(path, new, "must be less than or equal to previous value");
        }
        (None, Some(_)) => errors.invalid(path, new, "must not update from a positive integer to nil value"),
        _ => {}
    }
}

fn same_but_image(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_array(), old.as_array()) else { return same(new, old) };
    new.len() == old.len()
        && new.iter().zip(old).all(|(new, old)| match (new.as_object(), old.as_object()) {
            (Some(new), Some(old)) => {
                let keys: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
                keys.into_iter().filter(|key| *key != "image").all(|key| {
                    same(new.get(key).unwrap_or(&Value::Null), old.get(key).unwrap_or(&Value::Null))
                })
            }
            _ => new == old,
        })
}

/// The spec of a pod or of a pod template.
pub(super) fn spec(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let volumes = volumes(spec, path, errors);
    let containers = list_at(spec, &["containers"]);
    let containers_path = path.child("containers");
    if containers.is_empty() {
        errors.required(containers_path, "");
    }
    let mut names = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        check_container(container, containers_path.index(index), &volumes, &mut names, errors);
    }
    let init_path = path.child("initContainers");
    for (index, container) in list_at(spec, &["initContainers"]).iter().enumerate() {
        check_container(container, init_path.index(index), &volumes, &mut names, errors);
    }
    errors.one_of(
        path.child("restartPolicy"),
        at(spec, &["restartPolicy"]),
        &["Always", "OnFailure", "Never"],
    );
    errors.one_of(
        path.child("dnsPolicy"),
        at(spec, &["dnsPolicy"]),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    errors.not_negative(
        path.child("terminationGracePeriodSeconds"),
        at(spec, &["terminationGracePeriodSeconds"]),
    );
    let seconds = at(spec, &["activeDeadlineSeconds"]);
    if seconds.as_i64().is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds)) {
        errors.invalid(
            path.child("activeDeadlineSeconds"),
            seconds,
            "must be between 1 and 2147483647, inclusive",
        );
    }
    for (field, rule) in [
        ("serviceAccountName", names::subdomain as fn(&str) -> Vec<String>),
        ("nodeName", names::subdomain),
        ("priorityClassName", names::subdomain),
        ("runtimeClassName", names::subdomain),
        ("hostname", names::label),
        ("subdomain", names::label),
    ] {
        let value = text_at(spec, &[field]);
        if !value.is_empty() {
            errors.complaints(path.child(field), value, &rule(value));
        }
    }
    if let Some(selector) = map_at(spec, &["nodeSelector"]) {
        crate::meta::validate_labels(selector, &path.child("nodeSelector"), &mut errors.list);
    }
    tolerations(spec, path, errors);
}

fn tolerations(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let path = path.child("tolerations");
    for (index, toleration) in list_at(spec, &["tolerations"]).iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (text_at(toleration, &["key"]), text_at(toleration, &["operator"]));
        if !key.is_empty() {
            errors.complaints(path.child("key"), key, &names::qualified(key));
        }
        if key.is_empty() && operator != "Exists" {
            errors.invalid(
                path.child("operator"),
                &Value::from(operator),
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            );
        }
        let effect = text_at(toleration, &["effect"]);
        if !at(toleration, &["tolerationSeconds"]).is_null() && effect != "NoExecute" {
            errors.invalid(
                path.child("effect"),
                &Value::from(effect),
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            );
        }
        if operator == "Exists" && !text_at(toleration, &["value"]).is_empty() {
            errors.invalid(
                path.child("operator"),
                toleration,
                "value must be empty when `operator` is 'Exists'",
            );
        }
        errors.one_of_given(path.child("operator"), at(toleration, &["operator"]), &["Equal", "Exists"]);
        errors.one_of_given(
            path.child("effect"),
            at(toleration, &["effect"]),
            &["NoSchedule", "PreferNoSchedule", "NoExecute"],
        );
    }
}

fn volumes<'a>(spec: &'a Value, path: Path<'_>, errors: &mut Errors) -> BTreeSet<&'a str> {
    let path = path.child("volumes");
    let mut known = BTreeSet::new();
    for (index, volume) in list_at(spec, &["volumes"]).iter().enumerate() {
        let path = path.index(index);
        let name = text_at(volume, &["name"]);
        if name.is_empty() {
            errors.required(path.child("name"), "");
        } else {
            errors.complaints(path.child("name"), name, &names::label(name));
            if !known.insert(name) {
                errors.duplicate(path.child("name"), at(volume, &["name"]));
            }
        }
        let sources = volume.as_object().into_iter().flatten();
        let count = sources.filter(|(field, source)| *field != "name" && source.is_object()).count();
        match count {
            0 => errors.required(path, "must specify a volume type"),
            1 => {}
            _ => errors.forbidden(path, "may not specify more than 1 volume type"),
        }
        for (source, field) in [
            ("secret", "secretName"),
            ("configMap", "name"),
            ("persistentVolumeClaim", "claimName"),
            ("hostPath", "path"),
        ] {
            let value = at(volume, &[source]);
            if value.is_object() && is_unset(at(value, &[field])) {
                let source = path.child(source);
                errors.required(source.child(field), "");
            }
        }
    }
    known
}

fn check_container<'a>(
    container: &'a Value,
    path: Path<'_>,
    volumes: &BTreeSet<&str>,
    seen: &mut BTreeSet<&'a str>,
    errors: &mut Errors,
) {
    let name = text_at(container, &["name"]);
    if name.is_empty() {
        errors.required(path.child("name"), "");
    } else {
        errors.complaints(path.child("name"), name, &names::label(name));
        if !seen.insert(name) {
            errors.duplicate(path.child("name"), at(container, &["name"]));
        }
    }
    if text_at(container, &["image"]).is_empty() {
        errors.required(path.child("image"), "");
    }
    errors.one_of_given(
        path.child("terminationMessagePolicy"),
        at(container, &["terminationMessagePolicy"]),
        &["File", "FallbackToLogsOnError"],
    );
    errors.one_of_given(
        path.child("imagePullPolicy"),
        at(container, &["imagePullPolicy"]),
        &["Always", "IfNotPresent", "Never"],
    );
    ports(container, path, errors);
    environment(container, path, errors);
    let mounts_path = path.child("volumeMounts");
    let mut mount_points = BTreeSet::new();
    for (index, mount) in list_at(container, &["volumeMounts"]).iter().enumerate() {
        let path = mounts_path.index(index);
        let (name, point) = (text_at(mount, &["name"]), text_at(mount, &["mountPath"]));
        if name.is_empty() {
            errors.required(path.child("name"), "");
        }
        if !volumes.contains(name) {
            errors.not_found(path.child("name"), &Value::from(name));
        }
        if point.is_empty() {
            errors.required(path.child("mountPath"), "");
        }
        if !mount_points.insert(point) {
            errors.invalid(path.child("mountPath"), &Value::from(point), "must be unique");
        }
    }
}

fn ports(container: &Value, path: Path<'_>, errors: &mut Errors) {
    let path = path.child("ports");
    let mut names = BTreeSet::new();
    for (index, port) in list_at(container, &["ports"]).iter().enumerate() {
        let path = path.index(index);
        let name = text_at(port, &["name"]);
        if !name.is_empty() {
            let complaints = names::port_name(name);
            if complaints.is_empty() && !names.insert(name) {
                errors.duplicate(path.child("name"), at(port, &["name"]));
            }
            errors.complaints(path.child("name"), name, &complaints);
        }
        let number = at(port, &["containerPort"]);
        if number.as_i64().unwrap_or_default() == 0 {
            errors.required(path.child("containerPort"), "");
        } else {
            errors.port(path.child("containerPort"), number);
        }
        let host = at(port, &["hostPort"]);
        if host.as_i64().unwrap_or_default() != 0 {
            errors.port(path.child("hostPort"), host);
        }
        errors.one_of(path.child("protocol"), at(port, &["protocol"]), &PROTOCOLS);
    }
}

fn environment(container: &Value, path: Path<'_>, errors: &mut Errors) {
    const SOURCES: [&str; 5] =
        ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let path = path.child("env");
    for (index, variable) in list_at(container, &["env"]).iter().enumerate() {
        let path = path.index(index);
        let name = text_at(variable, &["name"]);
        if name.is_empty() {
            errors.required(path.child("name"), "");
        } else if !name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
            errors.invalid(
                path.child("name"),
                &Value::from(name),
                "a valid environment variable name must consist only of printable ASCII characters other than '='",
            );
        }
        let source = at(variable, &["valueFrom"]);
        if !source.is_object() {
            continue;
        }
        let count = SOURCES.iter().filter(|field| at(source, &[field]).is_object()).count();
        let detail = if count == 0 {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        } else if !text_at(variable, &["value"]).is_empty() {
            "may not be specified when `value` is not empty"
        } else if count > 1 {
            "may not have more than one field specified at a time"
        } else {
            continue;
        };
        errors.invalid(path.child("valueFrom"), &Value::from(""), detail);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{
        defaults,
        validate::tests::{check_create, check_update},
    };

    fn pod(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
        defaults::apply("", "Pod", &mut object);
        object
    }

    #[test]
    fn a_pod_needs_containers_that_make_sense() {
        check_create("", "Pod", &pod(json!({"containers": [{"name": "a", "image": "b"}]})), &[]);
        check_create("", "Pod", &pod(json!({})), &["spec.containers: Required value"]);
        check_create(
            "",
            "Pod",
            &pod(json!({"restartPolicy": "X", "containers": [
                {"name": "a", "volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                {"name": "a", "image": "i", "ports": [{"containerPort": 70000}]}]})),
            &[
                "spec.containers[0].image: Required value",
                "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
                "spec.containers[1].name: Duplicate value: \"a\"",
                "spec.containers[1].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                "spec.restartPolicy: Unsupported value: \"X\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ],
        );
    }

    #[test]
    fn little_may_change_in_a_running_pod() {
        let old = pod(
            json!({"containers": [{"name": "a", "image": "b"}], "tolerations": [{"key": "x", "operator": "Exists"}]}),
        );
        let mut new = old.clone();
        new["spec"]["containers"][0]["image"] = json!("c");
        new["spec"]["tolerations"] =
            json!([{"key": "x", "operator": "Exists", "tolerationSeconds": 3, "effect": ""}]);
        new["spec"]["tolerations"][0].as_object_mut().unwrap().remove("tolerationSeconds");
        new["spec"]["activeDeadlineSeconds"] = json!(60);
        check_update("", "Pod", &new, &old, &[]);
        new["spec"]["nodeName"] = json!("n");
        new["spec"]["tolerations"] = json!([]);
        check_update(
            "",
            "Pod",
            &new,
            &old,
            &[
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
                &format!("spec: Forbidden: {}", super::CHANGEABLE),
            ],
        );
        new["spec"]["containers"] = json!([]);
        check_update(
            "",
            "Pod",
            &new,
            &old,
            &[
                "spec.containers: Required value",
                "spec.containers: Forbidden: pod updates may not add or remove containers",
            ],
        );
    }
}
