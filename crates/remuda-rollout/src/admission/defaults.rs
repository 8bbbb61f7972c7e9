//! What is filled in, kind by kind.

use remuda_names::capi::{annotation, label};
use remuda_schema::{FieldError, Reason};
use serde_json::{Value, json};

use super::path::{at, ensure, text};
use crate::name;

const TEMPLATE_VERSION: &[&str] = &["spec", "template", "spec"];

pub(super) fn machine(object: &mut Value) {
    label_with_cluster(object);
    prefix_version(object, &["spec"]);
    set_if_absent(object, &["spec", "deletion"], "nodeDeletionTimeoutSeconds", json!(10));
}

pub(super) fn machine_set(object: &mut Value, old: Option<&Value>) -> Result<(), Vec<FieldError>> {
    label_with_cluster(object);
    replicas("MachineSet", object, old)?;
    if !has_selector(object) {
        let set = name::as_label(text(object, &["metadata", "name"]));
        select(object, label::SET_NAME, &set);
    }
    prefix_version(object, TEMPLATE_VERSION);
    Ok(())
}

pub(super) fn machine_deployment(object: &mut Value, old: Option<&Value>) -> Result<(), Vec<FieldError>> {
    label_with_cluster(object);
    replicas("MachineDeployment", object, old)?;
    if text(object, &["spec", "rollout", "strategy", "type"]).is_empty()
        && let Some(strategy) = ensure(object, &["spec", "rollout", "strategy"])
    {
        strategy.insert("type".into(), json!("RollingUpdate"));
    }
    if text(object, &["spec", "rollout", "strategy", "type"]) == "RollingUpdate" {
        let rolling = ["spec", "rollout", "strategy", "rollingUpdate"];
        set_if_absent(object, &rolling, "maxSurge", json!(1));
        set_if_absent(object, &rolling, "maxUnavailable", json!(0));
    }
    if !has_selector(object) {
        let deployment = text(object, &["metadata", "name"]).to_owned();
        select(object, label::DEPLOYMENT_NAME, &deployment);
    }
    let cluster = text(object, &["spec", "clusterName"]).to_owned();
    select(object, label::CLUSTER_NAME, &cluster);
    prefix_version(object, TEMPLATE_VERSION);
    Ok(())
}

pub(super) fn machine_pool(object: &mut Value, old: Option<&Value>) -> Result<(), Vec<FieldError>> {
    label_with_cluster(object);
    replicas("MachinePool", object, old)?;
    set_if_absent(object, &["spec", "template", "spec", "deletion"], "nodeDeletionTimeoutSeconds", json!(10));
    prefix_version(object, TEMPLATE_VERSION);
    Ok(())
}

pub(super) fn machine_health_check(object: &mut Value) {
    label_with_cluster(object);
    set_if_absent(object, &["spec", "checks"], "nodeStartupTimeoutSeconds", json!(600));
}

pub(super) fn cluster_resource_set(object: &mut Value) {
    if text(object, &["spec", "strategy"]).is_empty()
        && let Some(spec) = ensure(object, &["spec"])
    {
        spec.insert("strategy".into(), json!("ApplyOnce"));
    }
}

fn label_with_cluster(object: &mut Value) {
    let cluster = text(object, &["spec", "clusterName"]).to_owned();
    if let Some(labels) = ensure(object, &["metadata", "labels"]) {
        labels.insert(label::CLUSTER_NAME.into(), Value::String(cluster));
    }
}

fn prefix_version(object: &mut Value, path: &[&str]) {
    let version = at(object, path).map_or("", |spec| text(spec, &["version"]));
    if version.is_empty() || version.starts_with('v') {
        return;
    }
    let prefixed = Value::String(format!("v{version}"));
    if let Some(spec) = ensure(object, path) {
        spec.insert("version".into(), prefixed);
    }
}

fn set_if_absent(object: &mut Value, path: &[&str], key: &str, value: Value) {
    if let Some(parent) = ensure(object, path) {
        let field = parent.entry(key).or_insert(Value::Null);
        if field.is_null() {
            *field = value;
        }
    }
}

fn has_selector(object: &Value) -> bool {
    let selector = |key: &str| at(object, &["spec", "selector", key]);
    let labels = selector("matchLabels").and_then(Value::as_object).is_some_and(|labels| !labels.is_empty());
    let rules = selector("matchExpressions").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    labels || rules
}

/// Puts a label into selector and template, so that one finds what the other makes.
fn select(object: &mut Value, key: &str, value: &str) {
    for path in [&["spec", "selector", "matchLabels"], &["spec", "template", "metadata", "labels"][..]] {
        if let Some(labels) = ensure(object, path) {
            labels.insert(key.to_owned(), Value::String(value.to_owned()));
        }
    }
}

/// One, or what an autoscaler's bounds make of what there was.
fn replicas(kind: &str, object: &mut Value, old: Option<&Value>) -> Result<(), Vec<FieldError>> {
    if at(object, &["spec", "replicas"]).is_some() {
        return Ok(());
    }
    let bound = |key: &str| -> Result<Option<i64>, Vec<FieldError>> {
        let Some(value) = at(object, &["metadata", "annotations", key]) else {
            return Ok(None);
        };
        let parsed = value.as_str().and_then(|text| text.parse::<i32>().ok());
        parsed.map(|number| Some(i64::from(number))).ok_or_else(|| {
            let detail =
                format!("failed to calculate {kind} replicas value: could not parse the value of the {key:?} annotation");
            vec![FieldError::new(format!("metadata.annotations[{key}]"), Reason::Invalid, detail)]
        })
    };
    let both = [annotation::AUTOSCALER_MIN, annotation::AUTOSCALER_MAX]
        .iter()
        .all(|key| at(object, &["metadata", "annotations", key]).is_some());
    let wanted = if both {
        let min = bound(annotation::AUTOSCALER_MIN)?.unwrap_or(1);
        let max = bound(annotation::AUTOSCALER_MAX)?.unwrap_or(min);
        match old.and_then(|old| at(old, &["spec", "replicas"])).and_then(Value::as_i64) {
            Some(before) if before < min => min,
            Some(before) if before > max => max,
            Some(before) => before,
            None => min,
        }
    } else {
        1
    };
    if let Some(spec) = ensure(object, &["spec"]) {
        spec.insert("replicas".into(), json!(wanted));
    }
    Ok(())
}
