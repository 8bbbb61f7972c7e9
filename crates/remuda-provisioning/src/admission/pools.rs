//! Pools of machines.

use std::collections::BTreeMap;

use remuda_names::{
    annotation::{PRESERVE_FAILED, REMEDIATION_STEPS},
    provisioning::annotation::CONFIG_POLICY,
    rancher::{annotation::ALLOW_SCHEMA_DROP, group, name::LOCAL},
};
use remuda_rollout::set::{Ladder, Preserve};
use remuda_schema::FieldError;
use serde_json::Value;

use super::{Findings, is_empty, list};
use crate::cluster::{pool::DEFAULT_QUANTITY, update::Policy};

/// How long the machines of a pool are drained that says nothing about it.
const DRAIN_LIMIT: &str = "10m";
/// The longest name that fits a label.
const NAME: usize = 63;

/// The pools of a cluster.
pub(super) fn of(cluster: &Value) -> impl Iterator<Item = &Value> {
    list(&cluster["spec"]["rkeConfig"]["machinePools"])
}

/// Machines a pool asks for.
pub(super) fn quantity(pool: &Value) -> i64 {
    pool["quantity"].as_i64().unwrap_or(DEFAULT_QUANTITY.into())
}

pub(super) fn names(spec: &Value, findings: &mut Findings) {
    for (place, pool) in list(&spec["rkeConfig"]["machinePools"]).enumerate() {
        if pool["name"].as_str().is_some_and(|name| name.len() > NAME) {
            let field = format!("spec.rkeConfig.machinePools[{place}].name");
            findings.invalid.push(FieldError::too_long(field, NAME));
        }
    }
}

/// A policy that cannot be read would be one nobody meant.
pub(super) fn policies(spec: &Value, findings: &mut Findings) {
    for (place, pool) in list(&spec["rkeConfig"]["machinePools"]).enumerate() {
        let policy = &pool["machineDeploymentAnnotations"][CONFIG_POLICY];
        let field =
            format!("spec.rkeConfig.machinePools[{place}].machineDeploymentAnnotations[{CONFIG_POLICY}]");
        policy_at(&field, policy, findings);
        let preserve = &pool["machineDeploymentAnnotations"][PRESERVE_FAILED];
        if let Some(Err(problem)) = preserve.as_str().map(Preserve::parse) {
            let field = format!(
                "spec.rkeConfig.machinePools[{place}].machineDeploymentAnnotations[{PRESERVE_FAILED}]"
            );
            findings.invalid(&field, preserve, &problem.to_string());
        }
        let steps = &pool["machineDeploymentAnnotations"][REMEDIATION_STEPS];
        if let Some(Err(problem)) = steps.as_str().map(Ladder::parse) {
            let field = format!(
                "spec.rkeConfig.machinePools[{place}].machineDeploymentAnnotations[{REMEDIATION_STEPS}]"
            );
            findings.invalid(&field, steps, &problem.to_string());
        }
    }
}

/// A pool is made from a machine configuration, or from a template of another provider. Templates of our own belong
/// to the pool they were made for.
pub(super) fn config_references(old: Option<&Value>, spec: &Value, findings: &mut Findings) {
    let before: Vec<&Value> =
        old.map(|old| list(&old["rkeConfig"]["machinePools"]).collect()).unwrap_or_default();
    for (place, pool) in list(&spec["rkeConfig"]["machinePools"]).enumerate() {
        let version = &pool["machineConfigRef"]["apiVersion"];
        let known = before.iter().any(|known| known["machineConfigRef"] == pool["machineConfigRef"]);
        let config = format!("{}/v1", group::MACHINE_CONFIG);
        let group = version.as_str().unwrap_or_default().split('/').next().unwrap_or_default();
        let is_wrong =
            group == group::MACHINE || group == group::MACHINE_CONFIG && *version != config.as_str();
        if is_wrong && !known {
            let field = format!("spec.rkeConfig.machinePools[{place}].machineConfigRef.apiVersion");
            findings.invalid(&field, version, &format!("must be {config}, or of another provider"));
        }
    }
}

pub(super) fn policy_at(field: &str, policy: &Value, findings: &mut Findings) {
    if policy.as_str().is_some_and(|text| Policy::parse(text).is_none()) {
        findings.invalid(field, policy, "must be one of Never, Ask, Auto");
    }
}

/// What a driver could do when a pool was made stays known. Manifests do not have it, and applying one would
/// otherwise replace all machines when the driver has become able to do more.
pub(super) fn restore_schemas(name: &str, object: &mut Value, old: &Value) {
    if name == LOCAL || object["metadata"]["annotations"][ALLOW_SCHEMA_DROP] == "true" {
        return;
    }
    let pools = list(&old["spec"]["rkeConfig"]["machinePools"]);
    let known: BTreeMap<&str, &str> = pools
        .filter_map(|pool| Some((pool["name"].as_str()?, pool["dynamicSchemaSpec"].as_str()?)))
        .filter(|(_, schema)| !schema.is_empty())
        .collect();
    if known.is_empty() {
        return;
    }
    let pools = object.pointer_mut("/spec/rkeConfig/machinePools").and_then(Value::as_array_mut);
    for pool in pools.into_iter().flatten().filter_map(Value::as_object_mut) {
        let Some(schema) = pool.get("name").and_then(Value::as_str).and_then(|name| known.get(name)) else {
            continue;
        };
        if pool.get("dynamicSchemaSpec").is_none_or(is_empty) {
            pool.insert("dynamicSchemaSpec".to_owned(), (*schema).into());
        }
    }
}

/// A pool whose machines are drained gets a limit for it, so that no Pod keeps a machine for ever; `0s` is none. One
/// that was written without before there was a rule stays as it is.
pub(super) fn limit_drains(old: Option<&Value>, object: &mut Value) {
    let unlimited =
        |pool: &Value| pool["drainBeforeDelete"] == true && is_empty(&pool["drainBeforeDeleteTimeout"]);
    let known: Vec<&Value> =
        old.map(|old| of(old).filter(|pool| unlimited(pool)).collect()).unwrap_or_default();
    let pools = object.pointer_mut("/spec/rkeConfig/machinePools").and_then(Value::as_array_mut);
    for pool in pools.into_iter().flatten() {
        let was = known.iter().any(|known| known["name"] == pool["name"]);
        if unlimited(pool) && !was {
            pool["drainBeforeDeleteTimeout"] = DRAIN_LIMIT.into();
        }
    }
}
