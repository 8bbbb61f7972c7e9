//! What is filled in and what is refused when somebody writes a cluster.
//!
//! The rules look at JSON as it was sent: at that point it is not known to be of the right shape, and what is
//! not is left to the schema. Whatever takes another object to be judged is told of it by [`Known`]; what is not
//! known there is not judged.

mod agents;
mod directories;
mod environment;
mod metadata;
mod pools;
mod restore;

use remuda_names::{provisioning::annotation::CONFIG_POLICY, rancher::name::LOCAL};
use remuda_schema::FieldError;
use serde_json::Value;

pub use self::restore::Snapshot;

/// Who writes what.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    pub namespace: &'a str,
    /// Empty while a name is still to be generated.
    pub name: &'a str,
    pub user: &'a str,
    /// The state before; absent for a create.
    pub old: Option<&'a Value>,
}

/// What the rules are told of other objects. What is absent is not judged.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Whether there is a management Cluster of the same name.
    pub management_cluster: Option<bool>,
    /// Whether who writes may read the Secret of `spec.cloudCredentialSecretName`; asked only if it changed.
    pub may_read_credential: Option<bool>,
    /// Whether the Secret of `spec.rkeConfig.etcd.s3.cloudCredentialName` is there; asked only if it changed.
    pub s3_credential: Option<bool>,
    /// The snapshot to be restored; asked only if what is to be restored changed.
    pub snapshot: Option<Snapshot>,
}

/// Why a write is refused. The code of the answer is the one clients know.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// The object is not valid: 422.
    Invalid(Vec<FieldError>),
    /// The change is not possible: 400.
    BadRequest(Vec<FieldError>),
}

/// Errors by the code they are answered with.
#[derive(Debug, Default)]
struct Findings {
    invalid: Vec<FieldError>,
    bad: Vec<FieldError>,
}

impl Findings {
    fn invalid(&mut self, field: &str, value: &Value, detail: &str) {
        self.invalid.push(FieldError::invalid(field, value, detail));
    }

    fn bad(&mut self, field: impl Into<String>, detail: &str) {
        self.bad.push(FieldError::forbidden(field, detail));
    }

    /// One answer has one code: what makes the object invalid comes first.
    fn into_result(mut self) -> Result<(), Refusal> {
        if !self.invalid.is_empty() {
            self.invalid.append(&mut self.bad);
            return Err(Refusal::Invalid(self.invalid));
        }
        if self.bad.is_empty() { Ok(()) } else { Err(Refusal::BadRequest(self.bad)) }
    }
}

/// Fills in what clients leave to us: who created the cluster, and what drivers could do when pools were made.
pub fn fill_in(write: &Write<'_>, object: &mut Value) {
    match write.old {
        None => metadata::set_creator(object, write.user),
        Some(old) => pools::restore_schemas(write.name, object, old),
    }
}

/// Judges a provisioning Cluster that is written.
pub fn judge(write: &Write<'_>, object: &Value, known: &Known) -> Result<(), Refusal> {
    let mut findings = Findings::default();
    metadata::creator(write, object, &mut findings);
    if write.old.is_none() {
        metadata::name(write, object, known, &mut findings);
    }
    let policy = &object["metadata"]["annotations"][CONFIG_POLICY];
    if write.old.is_none_or(|old| old["metadata"]["annotations"][CONFIG_POLICY] != *policy) {
        pools::policy_at(&format!("metadata.annotations[{CONFIG_POLICY}]"), policy, &mut findings);
    }
    // Labels, annotations and finalizers can be written whatever the spec is: rules may be younger than it.
    if write.old.is_none_or(|old| old["spec"] != object["spec"]) {
        judge_spec(write, &object["spec"], known, &mut findings);
    }
    findings.into_result()
}

fn judge_spec(write: &Write<'_>, spec: &Value, known: &Known, findings: &mut Findings) {
    let old = write.old.map(|old| &old["spec"]);
    if let Some(old) = old {
        kept_kind(write, old, spec, findings);
    } else {
        pools::names(spec, findings);
    }
    if old.is_none_or(|old| old["rkeConfig"]["machinePools"] != spec["rkeConfig"]["machinePools"]) {
        pools::policies(spec, findings);
    }
    endpoint(spec, findings);
    agents::customizations(spec, findings);
    environment::no_proxy(old, spec, findings);
    directories::check(old, spec, findings);
    credentials(write, old, spec, known, findings);
    restore::check(write, old, spec, known.snapshot.as_ref(), findings);
}

/// A cluster is made here or it is not. Only the one a server runs in may be taken over.
fn kept_kind(write: &Write<'_>, old: &Value, spec: &Value, findings: &mut Findings) {
    let field = "spec.rkeConfig";
    match (old["rkeConfig"].is_null(), spec["rkeConfig"].is_null()) {
        (true, false) if write.name != LOCAL => {
            findings.bad(field, "RKEConfig cannot be changed from null after cluster creation");
        }
        (false, true) => findings.bad(field, "RKEConfig cannot be made null after cluster creation"),
        _ => {}
    }
}

fn endpoint(spec: &Value, findings: &mut Findings) {
    let endpoint = &spec["localClusterAuthEndpoint"];
    if !spec["rkeConfig"].is_null()
        && endpoint["enabled"] == true
        && !is_empty(&endpoint["caCerts"])
        && is_empty(&endpoint["fqdn"])
    {
        let field = "spec.localClusterAuthEndpoint.fqdn";
        findings.invalid.push(FieldError::required(field, "CACerts defined but FQDN is not defined"));
    }
}

fn credentials(write: &Write<'_>, old: Option<&Value>, spec: &Value, known: &Known, findings: &mut Findings) {
    let changed = |pointer: &str| {
        let name = spec.pointer(pointer).and_then(Value::as_str).filter(|name| !name.is_empty())?;
        let before = old.and_then(|old| old.pointer(pointer)).and_then(Value::as_str);
        (before != Some(name)).then_some(name)
    };
    if let Some(name) =
        changed("/cloudCredentialSecretName").filter(|_| known.may_read_credential == Some(false))
    {
        let (namespace, name) = crate::naming::credential(write.namespace, name);
        let detail = format!("{} cannot get the secret {namespace}/{name}", write.user);
        findings.bad("spec.cloudCredentialSecretName", &detail);
    }
    if let Some(name) =
        changed("/rkeConfig/etcd/s3/cloudCredentialName").filter(|_| known.s3_credential == Some(false))
    {
        let (namespace, name) = crate::naming::credential(write.namespace, name);
        let detail = format!("etcd s3 cloud credential secret {namespace}/{name} is not found");
        findings.bad("spec.rkeConfig.etcd.s3.cloudCredentialName", &detail);
    }
}

/// Judges a deletion. Of the cluster a server runs in nothing may be deleted.
pub fn judge_delete(name: &str) -> Result<(), Refusal> {
    if name != LOCAL {
        return Ok(());
    }
    let error = FieldError::forbidden("metadata.name", "local cluster may not be deleted");
    Err(Refusal::BadRequest(vec![error]))
}

/// Fields that are kept although nothing here follows them yet. Who changes them should know.
pub fn warnings(old: Option<&Value>, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let spec = &object["spec"];
    let mut ignored = |path: String, now: &Value, before: &Value| {
        let idle = now.is_null() || *now == false || is_empty(now);
        if !idle && now != before {
            found.push(format!("{path} is stored, but nothing follows it"));
        }
    };
    for (pointer, path) in [
        ("/clusterAPIConfig", "spec.clusterAPIConfig"),
        ("/defaultClusterRoleForProjectMembers", "spec.defaultClusterRoleForProjectMembers"),
        (
            "/defaultPodSecurityAdmissionConfigurationTemplateName",
            "spec.defaultPodSecurityAdmissionConfigurationTemplateName",
        ),
        (
            "/rkeConfig/upgradeStrategy/controlPlaneDrainOptions/ignoreErrors",
            "spec.rkeConfig.upgradeStrategy.controlPlaneDrainOptions.ignoreErrors",
        ),
        (
            "/rkeConfig/upgradeStrategy/workerDrainOptions/ignoreErrors",
            "spec.rkeConfig.upgradeStrategy.workerDrainOptions.ignoreErrors",
        ),
    ] {
        let before = old.and_then(|old| old["spec"].pointer(pointer)).unwrap_or(&Value::Null);
        ignored(path.to_owned(), spec.pointer(pointer).unwrap_or(&Value::Null), before);
    }
    found
}

/// Absent, null or an empty string.
fn is_empty(value: &Value) -> bool {
    value.is_null() || value == ""
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests;
