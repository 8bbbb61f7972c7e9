//! HorizontalPodAutoscalers.

use serde_json::Value;

use super::Errors;
use crate::{
    autoscaling,
    json::{at, int_at, is_unset, list_at, text_at},
    names,
    path::Path,
};

const MOST_WINDOW: i64 = 3600;

pub(super) fn autoscaler(new: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let new = &autoscaling::newest(new);
    let spec = at(new, &["spec"]);
    let least = spec["minReplicas"].as_i64();
    let most = int_at(spec, &["maxReplicas"]);
    if least.is_some_and(|least| least < 1) {
        errors.invalid(path.child("minReplicas"), &spec["minReplicas"], "must be greater than or equal to 1");
    }
    if most < 1 {
        errors.invalid(path.child("maxReplicas"), &most.into(), "must be greater than 0");
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.invalid(path.child("maxReplicas"), &most.into(), detail);
    }
    reference(at(spec, &["scaleTargetRef"]), path.child("scaleTargetRef"), errors);
    let place = path.child("metrics");
    for (index, one) in list_at(spec, &["metrics"]).iter().enumerate() {
        metric(one, place.index(index), errors);
    }
    let place = path.child("behavior");
    for rules in ["scaleUp", "scaleDown"] {
        let given = at(spec, &["behavior", rules]);
        if given.is_object() {
            scaling(given, place.child(rules), errors);
        }
    }
}

fn reference(target: &Value, path: Path<'_>, errors: &mut Errors) {
    for field in ["kind", "name"] {
        match text_at(target, &[field]) {
            "" => errors.required(path.child(field), ""),
            text => errors.complaints(path.child(field), text, &names::path_segment_name(text, false)),
        }
    }
}

fn metric(metric: &Value, path: Path<'_>, errors: &mut Errors) {
    let kind = text_at(metric, &["type"]);
    let Some(field) = autoscaling::source(kind) else {
        let known = ["ContainerResource", "External", "Object", "Pods", "Resource"];
        return errors.one_of(path.child("type"), &metric["type"], &known);
    };
    for other in ["containerResource", "external", "object", "pods", "resource"] {
        if other != field && !is_unset(&metric[other]) {
            errors.forbidden(path.child(other), "must populate the given metric source only");
        }
    }
    let place = path.child(field);
    let source = at(metric, &[field]);
    if !source.is_object() {
        return errors.required(place, "must populate information for the given metric source");
    }
    if matches!(field, "resource" | "containerResource") {
        for needed in ["name", "container"].iter().take(if field == "resource" { 1 } else { 2 }) {
            if text_at(source, &[needed]).is_empty() {
                errors.required(place.child(needed), &format!("must specify a {needed}"));
            }
        }
    } else {
        let named = place.child("metric");
        if text_at(source, &["metric", "name"]).is_empty() {
            errors.required(named.child("name"), "must specify a metric name");
        }
    }
    if field == "object" {
        reference(at(source, &["describedObject"]), place.child("describedObject"), errors);
    }
    target(at(source, &["target"]), place.child("target"), errors);
}

fn target(target: &Value, path: Path<'_>, errors: &mut Errors) {
    let kinds = ["AverageValue", "Utilization", "Value"];
    if !target["type"].as_str().is_some_and(|kind| kinds.contains(&kind)) {
        errors.one_of(path.child("type"), &target["type"], &kinds);
    }
    if target["averageUtilization"].as_i64().is_some_and(|percent| percent < 1) {
        errors.invalid(
            path.child("averageUtilization"),
            &target["averageUtilization"],
            "must be greater than 0",
        );
    }
    let given =
        ["value", "averageValue", "averageUtilization"].iter().filter(|field| !is_unset(&target[**field]));
    match given.count() {
        0 => errors.required(path, "must set a target value"),
        1 => {}
        _ => errors.forbidden(path, "may not set more than one target value"),
    }
}

fn scaling(rules: &Value, path: Path<'_>, errors: &mut Errors) {
    let window = &rules["stabilizationWindowSeconds"];
    match window.as_i64() {
        Some(..=-1) => {
            let detail = "must be greater than or equal to zero";
            errors.invalid(path.child("stabilizationWindowSeconds"), window, detail);
        }
        Some(seconds) if seconds > MOST_WINDOW => {
            let detail = format!("must be less than or equal to {MOST_WINDOW}");
            errors.invalid(path.child("stabilizationWindowSeconds"), window, &detail);
        }
        _ => {}
    }
    errors.one_of_given(path.child("selectPolicy"), &rules["selectPolicy"], &["Disabled", "Max", "Min"]);
    let place = path.child("policies");
    if list_at(rules, &["policies"]).is_empty() {
        errors.required(place, "must specify at least one Policy");
    }
    for (index, policy) in list_at(rules, &["policies"]).iter().enumerate() {
        let place = place.index(index);
        errors.one_of(place.child("type"), &policy["type"], &["Percent", "Pods"]);
        for field in ["value", "periodSeconds"] {
            if int_at(policy, &[field]) <= 0 {
                errors.invalid(place.child(field), &policy[field], "must be greater than zero");
            }
        }
        if int_at(policy, &["periodSeconds"]) > 1800 {
            let detail = "must be less than or equal to 1800";
            errors.invalid(place.child("periodSeconds"), &policy["periodSeconds"], detail);
        }
    }
}
