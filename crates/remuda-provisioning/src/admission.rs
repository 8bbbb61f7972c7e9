//! What is filled in and what is refused when somebody writes a cluster.
//!
//! The rules look at JSON as it was sent: at that point it is not known to be of the right shape, and what is
//! not is left to the schema. Whatever takes another object to be judged is told of it by [`Known`]; what is not
//! known there is not judged.

mod agents;
mod directories;
mod environment;
mod maintenance;
mod metadata;
mod operations;
mod parts;
mod places;
mod pools;
pub mod protection;
pub mod quota;
pub mod references;
mod restore;
mod shape;
mod unfollowed;
mod version;

use std::sync::Arc;

use jiff::civil::Date;
use remuda_distro::Catalog;
use remuda_names::{provisioning::annotation::CONFIG_POLICY, rancher::name::LOCAL};
use remuda_schema::FieldError;
use serde_json::Value;

pub use self::{
    parts::{PartDeletion, Whole, is_part_kind, refuse_part, whole_of},
    places::{Workspace, workspace},
    restore::Snapshot,
    version::{changes_version, running},
};

/// Who writes what.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    pub namespace: &'a str,
    /// Empty while a name is still to be generated.
    pub name: &'a str,
    pub user: &'a str,
    /// The server's own controllers write.
    pub is_server: bool,
    /// The state before; absent for a create.
    pub old: Option<&'a Value>,
}

/// What the rules are told of other objects. What is absent is not judged.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The snapshot to be restored; asked only if what is to be restored changed.
    pub snapshot: Option<Snapshot>,
    /// Releases there are.
    pub releases: Option<Arc<Catalog>>,
    /// Versions nodes of the cluster report; asked only if the version changes.
    pub running: Vec<String>,
}

/// Why a write is refused. The code of the answer is the one clients know.
#[derive(Debug, Clone, PartialEq)]
pub enum Refusal {
    /// The object is not valid: 422.
    Invalid(Vec<FieldError>),
    /// The change is not possible: 400.
    BadRequest(Vec<FieldError>),
}

/// A field that is refused to the writer: 403. The sentence says what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub field: String,
    pub why: String,
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

/// Fills in what clients leave to us: who created the cluster, what drivers could do when pools were made, how long
/// machines are drained, and the release a word such as `stable` stands for.
pub fn fill_in(write: &Write<'_>, object: &mut Value, releases: &Catalog) {
    version::pin(write, object, releases);
    pools::limit_drains(write.old, object);
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
        metadata::name(write, object, &mut findings);
    }
    let policy = &object["metadata"]["annotations"][CONFIG_POLICY];
    if write.old.is_none_or(|old| old["metadata"]["annotations"][CONFIG_POLICY] != *policy) {
        pools::policy_at(&format!("metadata.annotations[{CONFIG_POLICY}]"), policy, &mut findings);
    }
    maintenance::annotations(write, object, &mut findings);
    protection::values(write.old, object, &mut findings);
    // Labels, annotations and finalizers can be written whatever the spec is: rules may be younger than it.
    if write.old.is_none_or(|old| old["spec"] != object["spec"]) {
        judge_spec(write, &object["spec"], known, &mut findings);
        version::check(write, object, known.releases.as_deref(), &known.running, &mut findings);
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
        pools::config_references(old, spec, findings);
    }
    shape::check(old, spec, findings);
    operations::check(old, spec, findings);
    unfollowed::check(write, old, spec, findings);
    endpoint(spec, findings);
    agents::customizations(spec, findings);
    environment::no_proxy(old, spec, findings);
    directories::check(old, spec, findings);
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

/// Fills in who made a machine configuration: it gives the right to use it.
pub fn fill_in_config(write: &Write<'_>, object: &mut Value) {
    if write.old.is_none() {
        metadata::set_creator(object, write.user);
    }
}

/// Judges a machine configuration that is written: who made it stays who made it.
pub fn judge_config(write: &Write<'_>, object: &Value) -> Result<(), Refusal> {
    let mut findings = Findings::default();
    metadata::creator(write, object, &mut findings);
    findings.into_result()
}

/// Judges a deletion. Of the cluster a server runs in nothing may be deleted.
pub fn judge_delete(name: &str) -> Result<(), Refusal> {
    if name != LOCAL {
        return Ok(());
    }
    let error = FieldError::forbidden("metadata.name", "local cluster may not be deleted");
    Err(Refusal::BadRequest(vec![error]))
}

/// What should be known to who writes it: numbers of members that are no good choice, and a field that is kept
/// although nothing here follows it yet.
pub fn warnings(old: Option<&Value>, object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    let mut found = shape::warnings(old.map(|old| &old["spec"]), spec);
    let field = "defaultClusterRoleForProjectMembers";
    let before = old.map_or(&Value::Null, |old| &old["spec"][field]);
    if !is_empty(&spec[field]) && spec[field] != *before {
        found.push(format!("spec.{field} is stored, but nothing follows it"));
    }
    found
}

/// What who writes a version should know of it.
pub fn version_warnings(old: Option<&Value>, object: &Value, releases: &Catalog, today: Date) -> Vec<String> {
    version::warnings(old, object, releases, today)
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
