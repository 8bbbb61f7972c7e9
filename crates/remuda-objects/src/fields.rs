//! Field selectors of built-in kinds: which paths they know and what the values are.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    json::{at, int_at, list_at, text_at},
    meta,
};

const COMMON: [&str; 2] = ["metadata.name", "metadata.namespace"];
const ABOUT: [&str; 7] = ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];

/// Paths beyond name and namespace, `None` for kinds without a list of their own.
fn paths(group: &str, kind: &str) -> Option<&'static [&'static str]> {
    Some(match (group, kind) {
        ("", "Pod") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "Node") => &["spec.unschedulable"],
        ("", "Namespace") => &["status.phase"],
        ("", "Secret") => &["type"],
        ("", "Service") => &["spec.clusterIP", "spec.type"],
        ("", "ReplicationController") => &["status.replicas"],
        ("", "Event") => &["reason", "reportingComponent", "source", "type"],
        ("events.k8s.io", "Event") => &["reason", "reportingController", "type"],
        ("batch", "Job") => &["status.successful"],
        ("certificates.k8s.io", "CertificateSigningRequest") => &["spec.signerName"],
        _ => return None,
    })
}

/// Checks that a kind can be selected by a path; the error is the text of the 400 answer.
pub fn check(group: &str, kind: &str, path: &str) -> Result<(), String> {
    let own = paths(group, kind);
    if COMMON.contains(&path)
        || own.is_some_and(|own| own.contains(&path))
        || about(group, kind, path).is_some()
    {
        return Ok(());
    }
    match (own, kind) {
        (None, _) => Err(format!(
            "{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        )),
        (Some(_), "Job") => Err(format!("field label {path:?} not supported for Job")),
        (Some(_), _) => Err(format!("field label not supported: {path}")),
    }
}

/// The field of an event's object that a path means.
fn about<'a>(group: &str, kind: &str, path: &'a str) -> Option<&'a str> {
    let prefix = match (group, kind) {
        ("", "Event") => "involvedObject.",
        ("events.k8s.io", "Event") => "regarding.",
        _ => return None,
    };
    path.strip_prefix(prefix).filter(|field| ABOUT.contains(field))
}

/// The value a field selector compares with; `None` for a path the kind does not know.
pub fn selectable<'a>(group: &str, kind: &str, object: &'a Value, path: &str) -> Option<Cow<'a, str>> {
    let text = match path {
        "metadata.name" => meta::name(object),
        "metadata.namespace" => meta::namespace(object),
        _ => match about(group, kind, path) {
            // An event is stored once and read in both styles.
            Some(field) => either(object, &["involvedObject", field], &["regarding", field]),
            None => return own(group, kind, object, path),
        },
    };
    Some(Cow::Borrowed(text))
}

fn own<'a>(group: &str, kind: &str, object: &'a Value, path: &str) -> Option<Cow<'a, str>> {
    if !paths(group, kind)?.contains(&path) {
        return None;
    }
    let flag = |value: &Value| if value == &Value::Bool(true) { "true" } else { "false" };
    let text: &'a str = match path {
        "spec.hostNetwork" => flag(at(object, &["spec", "hostNetwork"])),
        "spec.unschedulable" => flag(at(object, &["spec", "unschedulable"])),
        "status.podIPs" => {
            list_at(object, &["status", "podIPs"]).first().map_or("", |entry| text_at(entry, &["ip"]))
        }
        "status.successful" => return Some(Cow::Owned(int_at(object, &["status", "succeeded"]).to_string())),
        "status.replicas" => return Some(Cow::Owned(int_at(object, &["status", "replicas"]).to_string())),
        "source" => match either(object, &["source", "component"], &["deprecatedSource", "component"]) {
            "" => either(object, &["reportingComponent"], &["reportingController"]),
            component => component,
        },
        "reportingComponent" | "reportingController" => {
            either(object, &["reportingComponent"], &["reportingController"])
        }
        _ => match path.split_once('.') {
            Some((parent, field)) => text_at(object, &[parent, field]),
            None => text_at(object, &[path]),
        },
    };
    Some(Cow::Borrowed(text))
}

fn either<'a>(object: &'a Value, first: &[&str], second: &[&str]) -> &'a str {
    match text_at(object, first) {
        "" => text_at(object, second),
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_paths_have_values() {
        let cases = [
            ("", "Pod", json!({"spec": {"nodeName": "n"}}), "spec.nodeName", "n"),
            ("", "Pod", json!({}), "spec.hostNetwork", "false"),
            ("", "Pod", json!({"status": {"podIPs": [{"ip": "1"}]}}), "status.podIPs", "1"),
            ("", "Secret", json!({"type": "Opaque"}), "type", "Opaque"),
            ("", "Node", json!({"spec": {"unschedulable": true}}), "spec.unschedulable", "true"),
            ("batch", "Job", json!({"status": {"succeeded": 2}}), "status.successful", "2"),
            ("", "Event", json!({"involvedObject": {"name": "x"}}), "involvedObject.name", "x"),
            ("events.k8s.io", "Event", json!({"regarding": {"name": "x"}}), "regarding.name", "x"),
            ("", "Event", json!({"reportingComponent": "c"}), "source", "c"),
            ("", "ConfigMap", json!({"metadata": {"name": "a"}}), "metadata.name", "a"),
        ];
        for (group, kind, object, path, expected) in cases {
            assert_eq!(check(group, kind, path), Ok(()), "{kind} {path}");
            assert_eq!(selectable(group, kind, &object, path).as_deref(), Some(expected), "{kind} {path}");
        }
    }

    #[test]
    fn unknown_paths_are_refused_in_the_words_of_the_kind() {
        assert_eq!(check("", "Pod", "spec.nope"), Err("field label not supported: spec.nope".to_owned()));
        assert_eq!(
            check("", "ConfigMap", "spec.nope"),
            Err(
                "\"spec.nope\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    .to_owned()
            )
        );
        assert_eq!(selectable("", "Pod", &json!({}), "spec.nope"), None);
        assert_eq!(selectable("", "ConfigMap", &json!({}), "data"), None);
    }
}
