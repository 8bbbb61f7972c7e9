//! Workloads: what makes pods and what protects them.

use serde_json::Value;

use super::{Errors, pair, pod, same};
use crate::{
    cron,
    json::{at, int_at, is_unset, map_at, text_at},
    meta,
    path::Path,
    selector::LabelSelector,
};

const MISMATCH: &str = "`selector` does not match template `labels`";

/// The metadata and pod spec of a template.
fn template(template: &Value, path: Path<'_>, errors: &mut Errors) {
    template_metadata(template, path, errors);
    pod::spec(at(template, &["spec"]), path.child("spec"), errors);
}

fn template_metadata(template: &Value, path: Path<'_>, errors: &mut Errors) {
    let metadata = path.child("metadata");
    if let Some(labels) = map_at(template, &["metadata", "labels"]) {
        meta::validate_labels(labels, &metadata.child("labels"), &mut errors.list);
    }
    if let Some(annotations) = map_at(template, &["metadata", "annotations"]) {
        meta::validate_annotations(annotations, &metadata.child("annotations"), &mut errors.list);
    }
}

/// A selector that must be there, select something and match the template.
fn selected_template(kind: &str, spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let selector = at(spec, &["selector"]);
    let selector_path = path.child("selector");
    if !selector.is_object() {
        errors.required(selector_path, "");
    } else {
        errors.list.append(&mut LabelSelector::validate(selector, &selector_path));
        if selector.as_object().is_some_and(|fields| fields.values().all(is_unset)) {
            // ReplicaSets say "deployment" too: both share the rule.
            let shown = if kind == "ReplicaSet" { "deployment".to_owned() } else { kind.to_lowercase() };
            errors.invalid(selector_path, selector, &format!("empty selector is invalid for {shown}"));
        }
    }
    let template_path = path.child("template");
    let labels = at(spec, &["template", "metadata", "labels"]);
    match LabelSelector::from_object(selector) {
        // No selector at all selects nothing.
        Ok(compiled)
            if !selector.is_object()
                || (!compiled.is_everything() && !compiled.matches(labels.as_object())) =>
        {
            let metadata = template_path.child("metadata");
            errors.invalid(metadata.child("labels"), labels, MISMATCH);
        }
        Ok(_) => {}
        Err(_) => errors.invalid(selector_path, selector, "invalid label selector"),
    }
    let body = at(spec, &["template"]);
    if kind == "StatefulSet" {
        // Its containers mount what volumeClaimTemplates add to the volumes, so Kubernetes leaves the pod spec to the
        // Pods that are made of it.
        template_metadata(body, template_path, errors);
    } else {
        template(body, template_path, errors);
    }
    let pod_path = template_path.child("spec");
    let policy = at(body, &["spec", "restartPolicy"]);
    if matches!(policy.as_str(), Some("OnFailure" | "Never")) {
        errors.list.push(remuda_schema::FieldError::not_supported(
            pod_path.child("restartPolicy"),
            policy,
            &["Always"],
        ));
    }
    if !at(body, &["spec", "activeDeadlineSeconds"]).is_null() {
        let shown = if kind == "Deployment" { "ReplicaSet" } else { kind };
        let detail = format!("activeDeadlineSeconds in {shown} is not Supported");
        errors.forbidden(pod_path.child("activeDeadlineSeconds"), &detail);
    }
}

pub(super) fn apps(kind: &str, new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    for field in ["replicas", "minReadySeconds", "revisionHistoryLimit"] {
        errors.not_negative(path.child(field), at(spec, &[field]));
    }
    selected_template(kind, spec, path, errors);
    match kind {
        "Deployment" => deployment(spec, path, errors),
        "StatefulSet" => stateful_set(spec, path, errors),
        "DaemonSet" => daemon_set(spec, path, errors),
        _ => {}
    }
    let Some(old) = old else { return };
    if kind == "StatefulSet" {
        stateful_set_update(new, old, errors);
    } else {
        let (new, old) = pair(new, old, &["spec", "selector"]);
        errors.immutable(path.child("selector"), new, old);
    }
}

fn deployment(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let strategy_path = path.child("strategy");
    let strategy = at(spec, &["strategy"]);
    let rolling = at(strategy, &["rollingUpdate"]);
    match text_at(strategy, &["type"]) {
        "Recreate" if rolling.is_object() => errors.forbidden(
            strategy_path.child("rollingUpdate"),
            "may not be specified when strategy `type` is 'Recreate'",
        ),
        "Recreate" | "" => {}
        "RollingUpdate" => {
            let path = strategy_path.child("rollingUpdate");
            errors.count_or_percent(path.child("maxUnavailable"), at(rolling, &["maxUnavailable"]));
            let surge = at(rolling, &["maxSurge"]);
            // More than everything at once is a legal surge.
            if !surge.as_str().is_some_and(|text| text.ends_with('%')) {
                errors.count_or_percent(path.child("maxSurge"), surge);
            }
            let unavailable = at(rolling, &["maxUnavailable"]);
            if is_zero(unavailable) && is_zero(surge) {
                errors.invalid(
                    path.child("maxUnavailable"),
                    unavailable,
                    "may not be 0 when `maxSurge` is 0",
                );
            }
        }
        _ => errors.list.push(remuda_schema::FieldError::not_supported(
            strategy_path,
            strategy,
            &["Recreate", "RollingUpdate"],
        )),
    }
    let deadline = at(spec, &["progressDeadlineSeconds"]);
    errors.not_negative(path.child("progressDeadlineSeconds"), deadline);
    if deadline.as_i64().is_some_and(|seconds| seconds <= int_at(spec, &["minReadySeconds"])) {
        errors.invalid(
            path.child("progressDeadlineSeconds"),
            deadline,
            "must be greater than minReadySeconds",
        );
    }
}

fn is_zero(value: &Value) -> bool {
    value.as_i64() == Some(0)
        || value.as_str().is_some_and(|text| text.trim_start_matches('0') == "%" && text.len() > 1)
}

fn daemon_set(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let path = path.child("updateStrategy");
    let strategy = at(spec, &["updateStrategy"]);
    match text_at(strategy, &["type"]) {
        "OnDelete" | "" => {}
        "RollingUpdate" => {
            let path = path.child("rollingUpdate");
            let (unavailable, surge) = (
                at(strategy, &["rollingUpdate", "maxUnavailable"]),
                at(strategy, &["rollingUpdate", "maxSurge"]),
            );
            errors.count_or_percent(path.child("maxUnavailable"), unavailable);
            errors.count_or_percent(path.child("maxSurge"), surge);
            match (is_zero(unavailable), is_zero(surge) || surge.is_null()) {
                (false, false) => errors.invalid(
                    path.child("maxSurge"),
                    surge,
                    "may not be set when maxUnavailable is non-zero",
                ),
                (true, true) => {
                    errors.required(path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0");
                }
                _ => {}
            }
        }
        _ => errors.list.push(remuda_schema::FieldError::not_supported(
            path,
            strategy,
            &["RollingUpdate", "OnDelete"],
        )),
    }
}

fn stateful_set(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    let policy = at(spec, &["podManagementPolicy"]);
    match policy.as_str() {
        Some("OrderedReady" | "Parallel") => {}
        None | Some("") => errors.required(path.child("podManagementPolicy"), ""),
        _ => {
            errors.invalid(path.child("podManagementPolicy"), policy, "must be 'OrderedReady' or 'Parallel'");
        }
    }
    let strategy = at(spec, &["updateStrategy"]);
    match text_at(strategy, &["type"]) {
        "RollingUpdate" => {
            let path = path.child("updateStrategy");
            let path = path.child("rollingUpdate");
            errors.not_negative(path.child("partition"), at(strategy, &["rollingUpdate", "partition"]));
        }
        "OnDelete" => {}
        "" => errors.required(path.child("updateStrategy"), ""),
        _ => errors.invalid(path.child("updateStrategy"), strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

fn stateful_set_update(new: &Value, old: &Value, errors: &mut Errors) {
    const CHANGEABLE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let (new, old) = pair(new, old, &["spec"]);
    let fields = new.as_object().into_iter().chain(old.as_object()).flat_map(|fields| fields.keys());
    let frozen = |field: &&String| !CHANGEABLE.contains(&field.as_str());
    if fields.filter(frozen).any(|field| !same(at(new, &[field]), at(old, &[field]))) {
        errors.forbidden(
            Path::root("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

pub(super) fn pod_template(new: &Value, errors: &mut Errors) {
    template(at(new, &["template"]), Path::root("template"), errors);
}

pub(super) fn replication_controller(new: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    errors.not_negative(path.child("replicas"), at(spec, &["replicas"]));
    let Some(selector) = map_at(spec, &["selector"]).filter(|selector| !selector.is_empty()) else {
        errors.required(path.child("selector"), "");
        return;
    };
    let template_path = path.child("template");
    let labels = at(spec, &["template", "metadata", "labels"]);
    if !LabelSelector::from_map(selector).matches(labels.as_object()) {
        let metadata = template_path.child("metadata");
        errors.invalid(metadata.child("labels"), labels, MISMATCH);
    }
    template(at(spec, &["template"]), template_path, errors);
}

pub(super) fn revision(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    if at(new, &["data"]).is_null() {
        errors.required(Path::root("data"), "data is mandatory");
    }
    errors.not_negative(Path::root("revision"), at(new, &["revision"]));
    if let Some(old) = old {
        let (new, old) = pair(new, old, &["data"]);
        errors.immutable(Path::root("data"), new, old);
    }
}

pub(super) fn job(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    if !at(spec, &["selector"]).is_object() {
        errors.required(path.child("selector"), "");
    } else if let Ok(selector) = LabelSelector::from_object(at(spec, &["selector"]))
        && !selector.matches(map_at(spec, &["template", "metadata", "labels"]))
    {
        let template = path.child("template");
        let metadata = template.child("metadata");
        errors.invalid(metadata.child("labels"), at(spec, &["template", "metadata", "labels"]), MISMATCH);
    }
    job_spec(spec, path, errors);
    let Some(old) = old else { return };
    let old = at(old, &["spec"]);
    // An indexed job may grow and shrink together with its parallelism.
    let elastic = text_at(spec, &["completionMode"]) == "Indexed"
        && same(at(spec, &["completions"]), at(spec, &["parallelism"]));
    for field in [
        "completions",
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        if field != "completions" || !elastic {
            errors.immutable(path.child(field), at(spec, &[field]), at(old, &[field]));
        }
    }
    // Until it starts, a suspended job may be told where to run.
    let suspended = at(old, &["suspend"]) == &Value::Bool(true);
    if !suspended {
        errors.immutable(path.child("template"), at(spec, &["template"]), at(old, &["template"]));
    }
}

fn job_spec(spec: &Value, path: Path<'_>, errors: &mut Errors) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.not_negative(path.child(field), at(spec, &[field]));
    }
    errors.one_of_given(
        path.child("completionMode"),
        at(spec, &["completionMode"]),
        &["NonIndexed", "Indexed"],
    );
    if text_at(spec, &["completionMode"]) == "Indexed" && at(spec, &["completions"]).is_null() {
        errors.required(path.child("completions"), "when completion mode is Indexed");
    }
    let template_path = path.child("template");
    template(at(spec, &["template"]), template_path, errors);
    let pod_path = template_path.child("spec");
    let policy = at(spec, &["template", "spec", "restartPolicy"]);
    if policy.as_str() == Some("Always") {
        errors.required(pod_path.child("restartPolicy"), "valid values: \"OnFailure\", \"Never\"");
    }
}

pub(super) fn cron_job(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let name = meta::name(new);
    if old.is_none() && name.len() > 52 {
        let metadata = Path::root("metadata");
        errors.invalid(metadata.child("name"), &Value::from(name), "must be no more than 52 characters");
    }
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    let schedule = text_at(spec, &["schedule"]);
    if schedule.is_empty() {
        errors.required(path.child("schedule"), "");
    } else if schedule.contains("TZ=") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.invalid(path.child("schedule"), &Value::from(schedule), detail);
    } else if let Err(detail) = cron::check(schedule) {
        errors.invalid(path.child("schedule"), &Value::from(schedule), &detail);
    }
    time_zone(at(spec, &["timeZone"]), path.child("timeZone"), errors);
    errors.one_of(
        path.child("concurrencyPolicy"),
        at(spec, &["concurrencyPolicy"]),
        &["Allow", "Forbid", "Replace"],
    );
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.not_negative(path.child(field), at(spec, &[field]));
    }
    let job_path = path.child("jobTemplate");
    job_spec(at(spec, &["jobTemplate", "spec"]), job_path.child("spec"), errors);
}

fn time_zone(zone: &Value, path: Path<'_>, errors: &mut Errors) {
    let Some(name) = zone.as_str() else { return };
    let legal = |part: &str| {
        !matches!(part, "" | "." | "..")
            && !part.starts_with('-')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+'))
    };
    if name.is_empty() {
        errors.invalid(path, zone, "timeZone must be nil or non-empty string");
    } else if !name.split('/').all(legal) {
        errors.invalid(path, zone, &format!("unknown time zone {name}"));
    } else if name.eq_ignore_ascii_case("local") {
        errors.invalid(
            path,
            zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
    }
}

pub(super) fn budget(new: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    let (min, max) = (at(spec, &["minAvailable"]), at(spec, &["maxUnavailable"]));
    if !min.is_null() && !max.is_null() {
        errors.invalid(path, spec, "minAvailable and maxUnavailable cannot be both set");
    }
    errors.count_or_percent(path.child("minAvailable"), min);
    errors.count_or_percent(path.child("maxUnavailable"), max);
    errors.list.append(&mut LabelSelector::validate(at(spec, &["selector"]), &path.child("selector")));
    errors.one_of_given(
        path.child("unhealthyPodEvictionPolicy"),
        at(spec, &["unhealthyPodEvictionPolicy"]),
        &["AlwaysAllow", "IfHealthyBudget"],
    );
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{
        defaults,
        validate::tests::{check_create, check_update},
    };

    fn workload(group: &str, kind: &str, spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "w", "namespace": "n"}, "spec": spec});
        defaults::apply(group, kind, &mut object);
        object
    }

    fn template(labels: Value) -> Value {
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b"}]}})
    }

    #[test]
    fn selectors_match_their_template_and_stay() {
        let good = workload(
            "apps",
            "Deployment",
            json!({"selector": {"matchLabels": {"a": "b"}}, "template": template(json!({"a": "b"}))}),
        );
        check_create("apps", "Deployment", &good, &[]);
        let other = workload(
            "apps",
            "Deployment",
            json!({"selector": {"matchLabels": {"a": "c"}}, "template": template(json!({"a": "b"}))}),
        );
        check_update(
            "apps",
            "Deployment",
            &other,
            &good,
            &[
                "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
                "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable",
            ],
        );
        let none = workload("apps", "StatefulSet", json!({"template": template(json!({}))}));
        let mismatch =
            "spec.template.metadata.labels: Invalid value: {}: `selector` does not match template `labels`";
        check_create("apps", "StatefulSet", &none, &["spec.selector: Required value", mismatch]);
        let empty = workload("apps", "DaemonSet", json!({"selector": {}, "template": template(json!({}))}));
        check_create(
            "apps",
            "DaemonSet",
            &empty,
            &["spec.selector: Invalid value: {}: empty selector is invalid for daemonset"],
        );
    }

    #[test]
    fn jobs_do_not_restart_for_ever() {
        let mut job = workload(
            "batch",
            "Job",
            json!({"selector": {"matchLabels": {"a": "b"}}, "template": template(json!({"a": "b"}))}),
        );
        check_create(
            "batch",
            "Job",
            &job,
            &["spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\""],
        );
        job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
        check_create("batch", "Job", &job, &[]);
        let mut changed = job.clone();
        changed["spec"]["completions"] = json!(2);
        check_update(
            "batch",
            "Job",
            &changed,
            &job,
            &["spec.completions: Invalid value: 2: field is immutable"],
        );
    }

    #[test]
    fn cron_jobs_need_a_schedule() {
        let mut template = template(json!({}));
        template["spec"]["restartPolicy"] = json!("Never");
        let mut object = workload(
            "batch",
            "CronJob",
            json!({"schedule": "* * * *", "timeZone": "Local", "jobTemplate": {"spec": {"template": template}}}),
        );
        object["metadata"]["name"] = json!("x".repeat(53));
        let name = format!(
            "metadata.name: Invalid value: \"{}\": must be no more than 52 characters",
            "x".repeat(53)
        );
        check_create(
            "batch",
            "CronJob",
            &object,
            &[
                &name,
                "spec.schedule: Invalid value: \"* * * *\": expected exactly 5 fields, found 4: [* * * *]",
                "spec.timeZone: Invalid value: \"Local\": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
            ],
        );
    }

    #[test]
    fn budgets_have_one_limit() {
        check_create(
            "policy",
            "PodDisruptionBudget",
            &json!({"spec": {"minAvailable": 1, "maxUnavailable": "200%"}}),
            &[
                "spec: Invalid value: {\"maxUnavailable\":\"200%\",\"minAvailable\":1}: minAvailable and maxUnavailable cannot be both set",
                "spec.maxUnavailable: Invalid value: \"200%\": must not be greater than 100%",
            ],
        );
    }
}
