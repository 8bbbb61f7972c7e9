//! What a machine's agent may write: its report on the plan, and nothing else.
//!
//! RBAC lets the account of a plan update the whole plan Secret. Roles, the init mark, the join URL, the plan and
//! the owner are in that Secret too, and they decide which node gets which token. So admission compares what the
//! agent sends with what is stored, field by field.

use std::collections::BTreeSet;

use remuda_names::{agent::key, rancher::secret_type};
use remuda_plan::output::PACKED_LIMIT;
use serde_json::{Map, Value};

/// Bytes of `probe-statuses`. Plans have a handful of probes.
const STATUSES_LIMIT: usize = 64 << 10;
/// Bytes of checksums, counters, times and states.
const WORD_LIMIT: usize = 256;

/// Fields of metadata that the API server keeps by itself.
const KEPT_BY_THE_API: &[&str] = &["managedFields", "resourceVersion", "generation"];

/// A field that the agent of a machine may not write, or not like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Refusal {
    /// Path of the field, as in `data[plan]`.
    pub field: String,
    pub reason: String,
}

/// Whether an object is a Secret through which planner and agent talk.
pub fn is_plan_secret(object: &Value) -> bool {
    object["type"] == secret_type::PLAN
}

/// Judges what the account of a plan makes of its plan Secret. `new` is absent for a delete.
pub fn judge(old: &Value, new: Option<&Value>) -> Result<(), Refusal> {
    let Some(new) = new else {
        return Err(Refusal {
            field: "metadata".to_owned(),
            reason: "the agent of a machine may not delete its plan Secret".to_owned(),
        });
    };
    match changed_field(old, new) {
        Some(field) => Err(Refusal {
            field,
            reason: format!(
                "the agent of a machine may change nothing but its report, the data keys {}",
                key::REPORTED.join(", ")
            ),
        }),
        None => too_large(old, new).map_or(Ok(()), Err),
    }
}

/// The first field that differs and is not part of the report.
fn changed_field(old: &Value, new: &Value) -> Option<String> {
    let top = different(old, new, &["metadata", "data"]).next();
    let metadata = || {
        let skipped = [KEPT_BY_THE_API, &["labels", "annotations"]].concat();
        let changed = different(&old["metadata"], &new["metadata"], &skipped).next();
        changed.map(|field| format!("metadata.{field}"))
    };
    let entry = |map: &'static str| {
        let changed = different(&old["metadata"][map], &new["metadata"][map], &[]).next();
        changed.map(|entry| format!("metadata.{map}[{entry}]"))
    };
    let data = || {
        let changed = different(&old["data"], &new["data"], key::REPORTED).next();
        changed.map(|entry| format!("data[{entry}]"))
    };
    top.or_else(metadata).or_else(|| entry("labels")).or_else(|| entry("annotations")).or_else(data)
}

/// Names of fields whose values differ, but for `skipped`. Absent is the same as empty: clients leave out one or
/// the other.
fn different(old: &Value, new: &Value, skipped: &[&str]) -> impl Iterator<Item = String> {
    fn map(value: &Value) -> Option<&Map<String, Value>> {
        value.as_object()
    }
    let names: BTreeSet<&str> =
        [map(old), map(new)].into_iter().flatten().flat_map(Map::keys).map(String::as_str).collect();
    let differ = |name: &&str| {
        let (old, new) = (old.get(*name), new.get(*name));
        old != new && !(is_empty(old) && is_empty(new))
    };
    let found: Vec<String> =
        names.into_iter().filter(|name| !skipped.contains(name)).filter(differ).map(str::to_owned).collect();
    found.into_iter()
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}

/// The first part of the report that is new and longer than it may be.
fn too_large(old: &Value, new: &Value) -> Option<Refusal> {
    key::REPORTED.iter().find_map(|name| {
        let value = &new["data"][*name];
        let text = value.as_str().filter(|_| old["data"][*name] != *value)?;
        // Of base64: three bytes in four letters.
        let (bytes, limit) = (text.len() / 4 * 3, limit(name));
        (bytes > limit + 2).then(|| Refusal {
            field: format!("data[{name}]"),
            reason: format!("{bytes} bytes are too many, an agent may report {limit} here"),
        })
    })
}

fn limit(name: &str) -> usize {
    match name {
        key::APPLIED_OUTPUT | key::FAILED_OUTPUT | key::APPLIED_PERIODIC_OUTPUT => PACKED_LIMIT,
        key::PROBE_STATUSES => STATUSES_LIMIT,
        _ => WORD_LIMIT,
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine, prelude::BASE64_STANDARD};
    use serde_json::json;

    use super::*;

    fn stored() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "rke.cattle.io/machine-plan",
            "metadata": {
                "name": "w-machine-plan", "namespace": "fleet-default", "resourceVersion": "7", "uid": "u",
                "labels": {"rke.cattle.io/worker-role": "true", "rke.cattle.io/machine-name": "w"},
                "annotations": {"rke.cattle.io/joined-to": "https://10.0.0.1:9345"},
                "ownerReferences": [{"kind": "RKEBootstrap", "name": "w", "uid": "b"}],
            },
            "data": {"plan": "e30=", "applied-checksum": "YQ==", "max-failures": "NQ=="},
        })
    }

    /// The refused field after a change, or nothing.
    fn refused(change: impl FnOnce(&mut Value)) -> String {
        let mut new = stored();
        change(&mut new);
        judge(&stored(), Some(&new)).err().map(|refusal| refusal.field).unwrap_or_default()
    }

    #[test]
    fn an_agent_reports() {
        for name in key::REPORTED {
            assert_eq!(refused(|secret| secret["data"][*name] = json!("eA==")), "", "{name}");
        }
        assert_eq!(
            refused(|secret| drop(secret["data"].as_object_mut().unwrap().remove("applied-checksum"))),
            ""
        );
        // What clients leave out or fill in, and what the API server writes after them.
        let plain = refused(|secret| {
            secret["immutable"] = Value::Null;
            secret["metadata"]["finalizers"] = json!([]);
            secret["metadata"]["managedFields"] = json!([{"manager": "agent"}]);
            secret["metadata"]["resourceVersion"] = json!("8");
        });
        assert_eq!(plain, "");
    }

    #[test]
    fn an_agent_changes_nothing_but_its_report() {
        let metadata =
            |name: &'static str, value: Value| refused(move |secret| secret["metadata"][name] = value);
        assert_eq!(
            refused(|secret| secret["metadata"]["labels"]["rke.cattle.io/control-plane-role"] = json!("true")),
            "metadata.labels[rke.cattle.io/control-plane-role]"
        );
        assert_eq!(
            refused(|secret| secret["metadata"]["labels"]["rke.cattle.io/machine-name"] = json!("other")),
            "metadata.labels[rke.cattle.io/machine-name]"
        );
        assert_eq!(metadata("labels", Value::Null), "metadata.labels[rke.cattle.io/machine-name]");
        assert_eq!(
            metadata("annotations", json!({"rke.cattle.io/joined-to": "https://evil:9345"})),
            "metadata.annotations[rke.cattle.io/joined-to]"
        );
        assert_eq!(metadata("ownerReferences", json!([])), "metadata.ownerReferences");
        assert_eq!(metadata("finalizers", json!(["a/b"])), "metadata.finalizers");
        assert_eq!(refused(|secret| secret["type"] = json!("Opaque")), "type");
        assert_eq!(refused(|secret| secret["immutable"] = json!(true)), "immutable");
        for name in
            ["plan", "appliedPlan", "max-failures", "failure-threshold", "probe-period-seconds", "other"]
        {
            assert_eq!(refused(|secret| secret["data"][name] = json!("eA==")), format!("data[{name}]"));
        }
        assert_eq!(refused(|secret| secret["data"] = Value::Null), "data[max-failures]");
        assert_eq!(judge(&stored(), None).unwrap_err().field, "metadata");
    }

    #[test]
    fn a_report_has_a_size() {
        let sized = |name: &'static str, bytes: usize| {
            refused(move |secret| secret["data"][name] = json!(BASE64_STANDARD.encode(vec![0; bytes])))
        };
        assert_eq!(sized("applied-output", PACKED_LIMIT), "");
        assert_eq!(sized("applied-output", PACKED_LIMIT + 8), "data[applied-output]");
        assert_eq!(sized("probe-statuses", STATUSES_LIMIT + 8), "data[probe-statuses]");
        assert_eq!(sized("failure-count", WORD_LIMIT), "");
        assert_eq!(sized("failure-count", WORD_LIMIT + 8), "data[failure-count]");
        // What was there before there was a limit stays.
        let mut old = stored();
        old["data"]["failed-output"] = json!(BASE64_STANDARD.encode(vec![0; PACKED_LIMIT + 8]));
        assert_eq!(judge(&old, Some(&old)), Ok(()));
    }
}
