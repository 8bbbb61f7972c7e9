//! Tables: which columns a kind has and what its cells hold.

mod core;
mod custom;
mod network;
mod policy;
mod storage;
mod workload;

use jiff::Timestamp;
use serde_json::Value;

pub use self::custom::{ColumnSpec, CrColumns};
use crate::meta;

/// One column of a table, ready to be written as a `columnDefinitions` entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: &'static str,
    /// `name` for the column that names the object, else empty.
    pub format: &'static str,
    pub description: &'static str,
    /// 0 shows always, 1 only in wide output.
    pub priority: i32,
}

/// The columns of one built-in kind.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    columns: &'static [Column],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
}

impl Columns {
    const fn new(columns: &'static [Column], cells: fn(&Value, Timestamp) -> Vec<Value>) -> Self {
        Self { columns, cells }
    }

    pub fn definitions(&self) -> &'static [Column] {
        self.columns
    }

    /// The cells of one object, in the order of the definitions.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        (self.cells)(object, now)
    }
}

/// The columns of a built-in kind that has its own; see [`DEFAULT`] for the rest.
pub fn builtin(group: &str, kind: &str) -> Option<&'static Columns> {
    [core::columns, workload::columns, storage::columns, policy::columns, network::columns]
        .into_iter()
        .find_map(|columns| columns(group, kind))
}

/// Name and age: kinds without columns of their own.
pub static DEFAULT: Columns =
    Columns::new(&[NAME, AGE], |object, now| vec![name(object), created(object, now)]);

/// `rows[].conditions` of a row: pods that have ended say so, kubectl can then hide them.
pub fn row_conditions(group: &str, kind: &str, object: &Value) -> Option<Value> {
    if group.is_empty() && kind == "Pod" { core::pod_conditions(object) } else { None }
}

const fn text(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", description, priority: 0 }
}

const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "string", format: "", description, priority: 1 }
}

const fn integer(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "integer", format: "", description, priority: 0 }
}

const fn boolean(name: &'static str, description: &'static str) -> Column {
    Column { name, kind: "boolean", format: "", description, priority: 0 }
}

const NAME: Column =
    Column { name: "Name", kind: "string", format: "name", description: "Name of the object.", priority: 0 };
const AGE: Column = text("Age", "Time since the object was created.");
const CREATED_AT: Column = Column {
    name: "Created At",
    kind: "date",
    format: "",
    description: "When the object was created.",
    priority: 0,
};
const CONTAINERS: Column = wide("Containers", "Names of the containers in the template.");
const IMAGES: Column = wide("Images", "Images of the containers in the template.");
const SELECTOR: Column = wide("Selector", "Labels of the pods that belong to the object.");

fn name(object: &Value) -> Value {
    Value::from(meta::name(object))
}

/// Age of the object itself.
fn created(object: &Value, now: Timestamp) -> Value {
    Value::from(age(meta::creation_timestamp(object), now))
}

/// Time from a timestamp to now as people read it; `<unknown>` when there is no timestamp.
pub fn age(from: &str, now: Timestamp) -> String {
    match from.parse::<Timestamp>() {
        Ok(from) => human_seconds(now.as_second() - from.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Two or three significant figures of a duration: `42s`, `2m36s`, `5h12m`, `3d4h`, `340d`, `2y30d`.
pub fn human_seconds(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let pair = |large: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
    };
    match seconds {
        // Clocks differ a little: a second in the future is now, more is a broken clock.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => pair(seconds / MINUTE, 'm', seconds % MINUTE, 's'),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => pair(seconds / HOUR, 'h', seconds % HOUR / MINUTE, 'm'),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => pair(seconds / DAY, 'd', seconds % DAY / HOUR, 'h'),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => pair(seconds / YEAR, 'y', seconds % YEAR / DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// Text of a value, or `fallback` when it is missing or empty.
fn text_or(value: &Value, fallback: &str) -> Value {
    match value.as_str() {
        None | Some("") => Value::from(fallback),
        Some(text) => Value::from(text),
    }
}

/// A number or text as text (`intOrString`).
pub(crate) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn joined<'a>(items: impl Iterator<Item = &'a str>, separator: &str) -> String {
    let mut all = String::new();
    for (index, item) in items.enumerate() {
        if index > 0 {
            all.push_str(separator);
        }
        all.push_str(item);
    }
    all
}

/// `a=b,c=d`, or `<none>` without labels.
fn labels_text(labels: &Value) -> Value {
    let Some(labels) = labels.as_object().filter(|labels| !labels.is_empty()) else {
        return Value::from("<none>");
    };
    let mut pairs: Vec<(&str, &str)> =
        labels.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default())).collect();
    pairs.sort_unstable();
    let mut all = String::new();
    for (index, (key, value)) in pairs.iter().enumerate() {
        if index > 0 {
            all.push(',');
        }
        all.push_str(key);
        all.push('=');
        all.push_str(value);
    }
    Value::from(all)
}

/// Canonical text of a selector object, `<none>` when it selects nothing in particular.
fn selector_text(selector: &Value) -> Value {
    match crate::selector::LabelSelector::from_object(selector) {
        Ok(selector) => {
            let text = selector.to_string();
            Value::from(if text.is_empty() { "<none>".to_owned() } else { text })
        }
        Err(_) => Value::from("<error>"),
    }
}

/// The first three of a list, and how many more there are.
fn with_more(mut items: Vec<String>, total: usize, empty: &str) -> String {
    if total == 0 || items.is_empty() {
        return empty.to_owned();
    }
    items.truncate(3);
    let shown = items.join(",");
    if total > 3 { format!("{shown} + {} more...", total - 3) } else { shown }
}

fn has_condition(conditions: &[Value], kind: &str) -> bool {
    conditions
        .iter()
        .find(|condition| condition["type"].as_str() == Some(kind))
        .is_some_and(|condition| condition["status"].as_str() == Some("True"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_two_or_three_figures() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (156, "2m36s"),
            (600, "10m"),
            (10799, "179m"),
            (10800, "3h"),
            (18720, "5h12m"),
            (28800, "8h"),
            (172_799, "47h"),
            (273_600, "3d4h"),
            (691_200, "8d"),
            (29_376_000, "340d"),
            (63_072_000, "2y"),
            (65_664_000, "2y30d"),
            (252_288_000, "8y"),
            (i64::MAX, "292471208677y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(human_seconds(seconds), expected, "{seconds}");
        }
        assert_eq!(age("", Timestamp::UNIX_EPOCH), "<unknown>");
        assert_eq!(age("1969-12-31T23:59:18Z", Timestamp::UNIX_EPOCH), "42s");
    }

    #[test]
    fn every_kind_fills_all_of_its_columns() {
        let empty = Value::Null;
        for (group, kind) in ALL {
            let columns = builtin(group, kind).unwrap_or_else(|| panic!("{kind} has no columns"));
            assert_eq!(
                columns.cells(&empty, Timestamp::UNIX_EPOCH).len(),
                columns.definitions().len(),
                "{kind}"
            );
            assert_eq!(
                columns.definitions().iter().filter(|column| column.format == "name").count(),
                usize::from(*kind != "Status"),
                "{kind}"
            );
        }
    }

    pub(super) const ALL: &[(&str, &str)] = &[
        ("", "Pod"),
        ("", "PodTemplate"),
        ("", "ReplicationController"),
        ("", "Service"),
        ("", "Endpoints"),
        ("", "Node"),
        ("", "Event"),
        ("events.k8s.io", "Event"),
        ("", "Namespace"),
        ("", "Secret"),
        ("", "ConfigMap"),
        ("", "ServiceAccount"),
        ("", "PersistentVolume"),
        ("", "PersistentVolumeClaim"),
        ("", "ResourceQuota"),
        ("", "LimitRange"),
        ("", "Status"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("apps", "ControllerRevision"),
        ("batch", "Job"),
        ("batch", "CronJob"),
        ("autoscaling", "Scale"),
        ("policy", "PodDisruptionBudget"),
        ("coordination.k8s.io", "Lease"),
        ("", "ComponentStatus"),
        ("discovery.k8s.io", "EndpointSlice"),
        ("rbac.authorization.k8s.io", "Role"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("rbac.authorization.k8s.io", "RoleBinding"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
        ("certificates.k8s.io", "CertificateSigningRequest"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("node.k8s.io", "RuntimeClass"),
        ("storage.k8s.io", "StorageClass"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "CSIDriver"),
        ("storage.k8s.io", "CSIStorageCapacity"),
        ("storage.k8s.io", "VolumeAttachment"),
        ("networking.k8s.io", "Ingress"),
        ("networking.k8s.io", "IngressClass"),
        ("networking.k8s.io", "NetworkPolicy"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    ];
}
