//! HorizontalPodAutoscalers in their two versions. They are stored in the newer one; what the older has no fields for
//! is in annotations there.

use serde_json::{Map, Value, json};

use crate::json::{at, list_at, text_at};

pub const GROUP: &str = "autoscaling";
const OLD: &str = "autoscaling/v1";
const NEW: &str = "autoscaling/v2";

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// What a metric of the newer version has one level down, by the name the older one has for it.
type Names = &'static [(&'static str, &'static [&'static str])];

const NAME: (&str, &[&str]) = ("name", &["name"]);
const CONTAINER: (&str, &[&str]) = ("container", &["container"]);
const METRIC: (&str, &[&str]) = ("metricName", &["metric", "name"]);
const SELECTOR: (&str, &[&str]) = ("selector", &["metric", "selector"]);
const METRIC_SELECTOR: (&str, &[&str]) = ("metricSelector", &["metric", "selector"]);
const DESCRIBED: (&str, &[&str]) = ("target", &["describedObject"]);

/// The field of a metric of this type, and the names in targets and in measurements.
const SOURCES: [(&str, &str, Names, Names); 5] = [
    (
        "Object",
        "object",
        &[
            DESCRIBED,
            METRIC,
            SELECTOR,
            ("targetValue", &["target", "value"]),
            ("averageValue", &["target", "averageValue"]),
        ],
        &[
            DESCRIBED,
            METRIC,
            SELECTOR,
            ("currentValue", &["current", "value"]),
            ("averageValue", &["current", "averageValue"]),
        ],
    ),
    (
        "Pods",
        "pods",
        &[METRIC, SELECTOR, ("targetAverageValue", &["target", "averageValue"])],
        &[METRIC, SELECTOR, ("currentAverageValue", &["current", "averageValue"])],
    ),
    ("Resource", "resource", OF_RESOURCE, CURRENT_OF_RESOURCE),
    ("ContainerResource", "containerResource", OF_RESOURCE, CURRENT_OF_RESOURCE),
    (
        "External",
        "external",
        &[
            METRIC,
            METRIC_SELECTOR,
            ("targetValue", &["target", "value"]),
            ("targetAverageValue", &["target", "averageValue"]),
        ],
        &[
            METRIC,
            METRIC_SELECTOR,
            ("currentValue", &["current", "value"]),
            ("currentAverageValue", &["current", "averageValue"]),
        ],
    ),
];

const OF_RESOURCE: Names = &[
    NAME,
    CONTAINER,
    ("targetAverageUtilization", &["target", "averageUtilization"]),
    ("targetAverageValue", &["target", "averageValue"]),
];
const CURRENT_OF_RESOURCE: Names = &[
    NAME,
    CONTAINER,
    ("currentAverageUtilization", &["current", "averageUtilization"]),
    ("currentAverageValue", &["current", "averageValue"]),
];

/// The field of a metric of a type.
pub(crate) fn source(kind: &str) -> Option<&'static str> {
    SOURCES.iter().find(|(known, ..)| *known == kind).map(|(_, field, ..)| *field)
}

/// An autoscaler in the newer version.
pub fn newest(object: &Value) -> Value {
    let mut object = object.clone();
    convert(&mut object, NEW);
    object
}

/// Makes an autoscaler one of the other version, if it is not that already.
pub fn convert(object: &mut Value, api_version: &str) {
    if object["apiVersion"] == api_version || !object.is_object() {
        return;
    }
    match api_version {
        OLD => to_old(object),
        NEW => to_new(object),
        _ => return,
    }
    object["apiVersion"] = api_version.into();
}

/// CPU measured against what Pods ask for: the one metric the older version has a field for.
fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn cpu_target(metric: &Value) -> Option<&Value> {
    let target = &metric["resource"]["target"]["averageUtilization"];
    (is_cpu(metric) && !target.is_null()).then_some(target)
}

fn cpu_metric(percent: &Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": percent}}})
}

fn take(object: &mut Value, part: &str, field: &str) -> Option<Value> {
    object.get_mut(part)?.as_object_mut()?.remove(field).filter(|value| !value.is_null())
}

/// What is something else becomes an empty object.
fn as_map(value: &mut Value) -> &mut Value {
    if !value.is_object() {
        *value = json!({});
    }
    value
}

fn put(object: &mut Value, part: &str, field: &str, value: Value) {
    as_map(&mut object[part])[field] = value;
}

fn to_old(object: &mut Value) {
    drop_annotations(object);
    let mut kept: Vec<(&str, Value)> = Vec::new();
    let metrics = take(object, "spec", "metrics").unwrap_or_default();
    let metrics = metrics.as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(percent) = metrics.iter().find_map(cpu_target) {
        put(object, "spec", "targetCPUUtilizationPercentage", percent.clone());
    }
    let others: Vec<Value> = metrics
        .iter()
        .filter(|metric| cpu_target(metric).is_none())
        .map(|metric| old_metric(metric, false))
        .collect();
    if !others.is_empty() {
        kept.push((METRICS, others.into()));
    }
    if let Some(current) = take(object, "status", "currentMetrics") {
        let current = current.as_array().cloned().unwrap_or_default();
        let percent = current.iter().filter(|metric| is_cpu(metric)).rev().find_map(|metric| {
            Some(metric["resource"]["current"]["averageUtilization"].clone())
                .filter(|percent| !percent.is_null())
        });
        if let Some(percent) = percent {
            put(object, "status", "currentCPUUtilizationPercentage", percent);
        }
        if !current.is_empty() {
            kept.push((CURRENT_METRICS, current.iter().map(|metric| old_metric(metric, true)).collect()));
        }
    }
    if let Some(behavior) = take(object, "spec", "behavior") {
        kept.push((BEHAVIOR, renamed(&behavior, &capitalized)));
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        // They are always written there.
        for field in ["currentReplicas", "desiredReplicas"] {
            status.entry(field).or_insert_with(|| 0.into());
        }
    }
    if let Some(conditions) = take(object, "status", "conditions")
        && conditions.as_array().is_some_and(|conditions| !conditions.is_empty())
    {
        kept.push((CONDITIONS, conditions));
    }
    for (name, value) in kept {
        as_map(&mut as_map(&mut object["metadata"])["annotations"])[name] = value.to_string().into();
    }
}

fn to_new(object: &mut Value) {
    let read = |object: &Value, name: &str| -> Option<Value> {
        serde_json::from_str(object["metadata"]["annotations"][name].as_str()?).ok()
    };
    let list = |object: &Value, name: &str| read(object, name)?.as_array().cloned();
    let mut metrics: Vec<Value> =
        list(object, METRICS).unwrap_or_default().iter().map(|metric| new_metric(metric, false)).collect();
    if let Some(percent) = take(object, "spec", "targetCPUUtilizationPercentage") {
        metrics.push(cpu_metric(&percent));
    }
    // The default of the older version is in no field of it.
    if metrics.is_empty() {
        metrics.push(cpu_metric(&json!(80)));
    }
    put(object, "spec", "metrics", metrics.into());
    let behavior =
        read(object, BEHAVIOR).filter(|behavior| behavior.as_object().is_some_and(|it| !it.is_empty()));
    if let Some(behavior) = behavior {
        put(object, "spec", "behavior", renamed(&behavior, &uncapitalized));
    }
    if object["status"]["currentReplicas"] == 0 {
        take(object, "status", "currentReplicas");
    }
    let percent = take(object, "status", "currentCPUUtilizationPercentage");
    let current = match (list(object, CURRENT_METRICS), percent) {
        (Some(current), _) => Some(current.iter().map(|metric| new_metric(metric, true)).collect()),
        (None, Some(percent)) => Some(json!([{"type": "Resource",
            "resource": {"name": "cpu", "current": {"averageUtilization": percent}}}])),
        (None, None) => None,
    };
    // It is always written there.
    if current.is_some() || object["status"].is_object() {
        put(object, "status", "currentMetrics", current.unwrap_or_default());
    }
    if let Some(conditions) = read(object, CONDITIONS).filter(Value::is_array) {
        put(object, "status", "conditions", conditions);
    }
    drop_annotations(object);
}

fn drop_annotations(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else { return };
    annotations.retain(|name, _| !ANNOTATIONS.contains(&name.as_str()));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

fn old_metric(metric: &Value, measured: bool) -> Value {
    let kind = text_at(metric, &["type"]);
    let mut old = json!({"type": kind});
    for (_, field, wanted, current) in SOURCES.iter().filter(|(known, ..)| *known == kind) {
        let mut made = Map::new();
        for (name, path) in if measured { *current } else { *wanted } {
            let value = at(&metric[*field], path);
            if !value.is_null() {
                made.insert((*name).to_owned(), value.clone());
            }
        }
        // These are always written, as they are no pointers in the older version.
        let always = match (*field, measured) {
            ("object", false) => Some("targetValue"),
            ("object" | "external", true) => Some("currentValue"),
            ("pods", false) => Some("targetAverageValue"),
            ("pods" | "resource" | "containerResource", true) => Some("currentAverageValue"),
            _ => None,
        };
        if let Some(always) = always {
            made.entry(always).or_insert_with(|| "0".into());
        }
        old[*field] = made.into();
    }
    old
}

fn new_metric(metric: &Value, measured: bool) -> Value {
    let kind = text_at(metric, &["type"]);
    let mut new = json!({"type": kind});
    for (_, field, wanted, current) in SOURCES.iter().filter(|(known, ..)| *known == kind) {
        let old = &metric[*field];
        let mut made = json!({});
        for (name, path) in if measured { *current } else { *wanted } {
            let value = &old[*name];
            // A value beside an average is there only because it cannot be left out.
            let filler = *name == "targetValue"
                && *field == "object"
                && value == "0"
                && !old["averageValue"].is_null();
            if !value.is_null() && !filler {
                match path {
                    [one] => made[*one] = value.clone(),
                    [one, two] => made[*one][*two] = value.clone(),
                    _ => {}
                }
            }
        }
        if !measured {
            let target = &made["target"];
            let kind = if !target["averageUtilization"].is_null() {
                "Utilization"
            } else if *field == "external" && !target["value"].is_null() {
                "Value"
            } else if !target["averageValue"].is_null()
                || matches!(*field, "resource" | "containerResource" | "pods")
            {
                "AverageValue"
            } else {
                "Value"
            };
            made["target"]["type"] = kind.into();
        }
        new[*field] = made;
    }
    new
}

fn renamed(value: &Value, rename: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Object(map) => {
            Value::Object(map.iter().map(|(name, value)| (rename(name), renamed(value, rename))).collect())
        }
        Value::Array(items) => items.iter().map(|item| renamed(item, rename)).collect(),
        other => other.clone(),
    }
}

fn capitalized(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn uncapitalized(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// The status of an autoscaler of either version that nothing has looked at.
pub(crate) fn first_status(object: &Value) -> Value {
    if object["apiVersion"] == OLD {
        json!({"currentReplicas": 0, "desiredReplicas": 0})
    } else {
        json!({"desiredReplicas": 0, "currentMetrics": null})
    }
}

/// Fills in the defaults of either version.
pub(crate) fn apply_defaults(object: &mut Value) {
    if !object["spec"].is_object() {
        return;
    }
    let is_new = object["apiVersion"] != OLD;
    let spec = &mut object["spec"];
    if spec["minReplicas"].is_null() {
        spec["minReplicas"] = 1.into();
    }
    if !is_new {
        return;
    }
    if list_at(spec, &["metrics"]).is_empty() {
        spec["metrics"] = json!([cpu_metric(&json!(80))]);
    }
    if spec["behavior"].is_object() {
        let policy = |kind: &str, value: i64| json!({"type": kind, "value": value, "periodSeconds": 15});
        for (rules, defaults) in [
            (
                "scaleUp",
                json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                    "policies": [policy("Pods", 4), policy("Percent", 100)]}),
            ),
            ("scaleDown", json!({"selectPolicy": "Max", "policies": [policy("Percent", 100)]})),
        ] {
            let rules = &mut spec["behavior"][rules];
            if !rules.is_null() && !rules.is_object() {
                continue;
            }
            let missing = defaults.as_object().into_iter().flatten();
            for (field, value) in missing {
                if rules[field].is_null() {
                    rules[field] = value.clone();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
