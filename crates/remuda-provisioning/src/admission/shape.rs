//! Values that no controller and no machine could make anything of, and pools that are no cluster together.
//!
//! Each is judged when it is written, at its field: stored, it would keep machines from becoming nodes, or be passed
//! over in silence. What was stored before the rule stays; only what a write changes is judged. Numbers, lengths and
//! names given twice are the schema's.

use remuda_objects::{cron, names};
use remuda_schema::FieldError;
use serde_json::Value;

use super::{Findings, is_empty, list};
use crate::duration;

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// Fields of a pool that are durations as Go writes them.
const DURATIONS: &[&str] = &["drainBeforeDeleteTimeout", "nodeStartupTimeout", "unhealthyNodeTimeout"];

pub(super) fn check(old: Option<&Value>, spec: &Value, findings: &mut Findings) {
    let before = old.map(|old| &old["rkeConfig"]).unwrap_or(&Value::Null);
    let config = &spec["rkeConfig"];
    if config["machinePools"] != before["machinePools"] {
        pools(before, config, findings);
        roles_of_the_cluster(before, config, findings);
    }
    let schedule = &config["etcd"]["snapshotScheduleCron"];
    if *schedule != before["etcd"]["snapshotScheduleCron"]
        && let Some(text) = schedule.as_str().filter(|text| !text.is_empty())
        && let Err(why) = cron::check(text)
    {
        let detail = format!("must be a cron schedule of five fields such as 0 */5 * * *, or @daily: {why}");
        findings.invalid("spec.rkeConfig.etcd.snapshotScheduleCron", schedule, &detail);
    }
    let manifest = &config["additionalManifest"];
    if *manifest != before["additionalManifest"]
        && let Some(Err(why)) = manifest.as_str().map(manifests)
    {
        let field = "spec.rkeConfig.additionalManifest";
        findings.invalid.push(FieldError::invalid_omitted(field, &why));
    }
}

/// An etcd with an even number of members is lost with as many of them as one with a member less.
pub(super) fn warnings(old: Option<&Value>, spec: &Value) -> Vec<String> {
    let members = |spec: &Value| -> i64 {
        let pools = list(&spec["rkeConfig"]["machinePools"]).filter(|pool| pool["etcdRole"] == true);
        pools.map(|pool| pool["quantity"].as_i64().unwrap_or(1).max(0)).sum()
    };
    let count = members(spec);
    if count == 0 || count % 2 != 0 || old.map(members) == Some(count) {
        return Vec::new();
    }
    vec![format!(
        "spec.rkeConfig.machinePools: {count} machines with etcdRole keep quorum through the loss of no more of them \
         than {} do; an odd number is better",
        count - 1
    )]
}

fn pools(before: &Value, config: &Value, findings: &mut Findings) {
    for (place, pool) in list(&config["machinePools"]).enumerate() {
        let at = format!("spec.rkeConfig.machinePools[{place}]");
        let name = &pool["name"];
        let known = list(&before["machinePools"]).find(|known| known["name"] == *name && !is_empty(name));
        if known.is_none() {
            pool_name(&format!("{at}.name"), name, findings);
        }
        pool_values(&at, known.unwrap_or(&Value::Null), pool, findings);
    }
}

fn pool_name(field: &str, name: &Value, findings: &mut Findings) {
    if is_empty(name) {
        let detail = "machines and their MachineDeployment are named after the pool";
        findings.invalid.push(FieldError::required(field, detail));
        return;
    }
    let complaints = name.as_str().map(names::subdomain).unwrap_or_default();
    if !complaints.is_empty() {
        findings.invalid(field, name, &complaints.join(", "));
    }
}

/// Judges what of a pool differs from the pool of the same name before.
fn pool_values(at: &str, known: &Value, pool: &Value, findings: &mut Findings) {
    let changed = |field: &str| pool[field] != known[field];
    let is = |field: &str| pool[field] == true;
    let roles = ["etcdRole", "controlPlaneRole", "workerRole"];
    if roles.iter().any(|role| changed(role) || known.is_null()) && !roles.iter().any(|role| is(role)) {
        let detail =
            "one of etcdRole, controlPlaneRole and workerRole must be true: its machines would do nothing";
        findings.invalid.push(FieldError::required(at, detail));
    }
    if changed("labels") {
        labels(&format!("{at}.labels"), &pool["labels"], findings);
    }
    if changed("taints") {
        taints(&format!("{at}.taints"), &pool["taints"], findings);
    }
    for field in DURATIONS.iter().filter(|field| changed(field)) {
        let value = &pool[*field];
        let is_duration = |text: &str| duration::seconds(text).is_some_and(|seconds| seconds >= 0);
        if value.as_str().is_some_and(|text| !text.is_empty() && !is_duration(text)) {
            findings.invalid(&format!("{at}.{field}"), value, "must be a duration such as 90s, 10m or 1h30m");
        }
    }
    if changed("maxUnhealthy") && pool["maxUnhealthy"].as_str().is_some_and(|text| !is_share(text)) {
        let detail = "must be a number or a percentage, such as 2 or 40%";
        findings.invalid(&format!("{at}.maxUnhealthy"), &pool["maxUnhealthy"], detail);
    }
    if changed("unhealthyRange") && pool["unhealthyRange"].as_str().is_some_and(|text| !is_range(text)) {
        let detail = "must be a range such as [3-5]";
        findings.invalid(&format!("{at}.unhealthyRange"), &pool["unhealthyRange"], detail);
    }
}

/// Machines without etcd or without a control plane never become a cluster. Servers that register themselves can
/// bring both, so a cluster without pools is not judged.
fn roles_of_the_cluster(before: &Value, config: &Value, findings: &mut Findings) {
    let has = |config: &Value, role: &str| list(&config["machinePools"]).any(|pool| pool[role] == true);
    if list(&config["machinePools"]).next().is_none() {
        return;
    }
    for (role, what) in [("etcdRole", "etcd"), ("controlPlaneRole", "a control plane")] {
        // Pools added to servers that registered themselves need none of their own.
        let needs = before.is_null() || has(before, role);
        if needs && !has(config, role) {
            let detail = format!("no pool has {role}: without {what} there is no cluster");
            findings.invalid.push(FieldError::required("spec.rkeConfig.machinePools", &detail));
        }
    }
}

fn labels(field: &str, labels: &Value, findings: &mut Findings) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        let mut complaints = names::qualified(key);
        complaints.extend(value.as_str().map(names::label_value).unwrap_or_default());
        if !complaints.is_empty() {
            findings.invalid(&format!("{field}[{key}]"), value, &complaints.join(", "));
        }
    }
}

fn taints(field: &str, taints: &Value, findings: &mut Findings) {
    for (place, taint) in list(taints).enumerate() {
        let at = format!("{field}[{place}]");
        let text = |key: &str| taint[key].as_str().unwrap_or_default();
        for (key, complaints) in
            [("key", names::qualified(text("key"))), ("value", names::label_value(text("value")))]
        {
            if !complaints.is_empty() {
                findings.invalid(&format!("{at}.{key}"), &taint[key], &complaints.join(", "));
            }
        }
        if !EFFECTS.contains(&text("effect")) {
            let error = FieldError::not_supported(format!("{at}.effect"), &taint["effect"], EFFECTS);
            findings.invalid.push(error);
        }
    }
}

/// `2` or `40%`; empty is absent.
fn is_share(text: &str) -> bool {
    let number = text.strip_suffix('%').unwrap_or(text);
    text.is_empty() || number.parse::<u32>().is_ok()
}

/// `[3-5]`; empty is absent.
fn is_range(text: &str) -> bool {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let ends = inner.and_then(|inner| inner.split_once('-'));
    let ends = ends.and_then(|(low, high)| Some((low.parse::<u32>().ok()?, high.parse::<u32>().ok()?)));
    text.is_empty() || ends.is_some_and(|(low, high)| low <= high)
}

/// Documents of a manifest that is applied in the cluster; each must say what it is.
fn manifests(text: &str) -> Result<(), String> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| format!("must be YAML: {error}"))?;
    for (place, document) in documents.iter().filter(|document| !document.is_null()).enumerate() {
        for field in ["apiVersion", "kind"] {
            if is_empty(&document[field]) {
                return Err(format!("document {} has no {field}", place + 1));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
