//! What an object names is used with the rights of who wrote the name.
//!
//! Controllers read, own and delete what objects of ours name, with rights of their own. So whoever writes a name
//! must have the right to do so themselves. [`introduced`] tells which names a write brings in: those of a create,
//! and of an update those that were not there before. The caller judges each of them; what was there is not judged
//! again, so others can change labels or numbers of machines.
//!
//! [`TABLE`] has every field that names another object. A test walks the schemas of all kinds we ship and fails
//! when a field that looks like a name is neither there nor in [`NO_REFERENCES`].

mod coverage;
mod path;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use remuda_names::{
    capi::group::IPAM,
    machines::annotation::address_pool,
    rancher::{group, name},
};
use serde_json::Value;

pub use self::{
    coverage::untold,
    table::{Field, NO_REFERENCES, Names, TABLE},
};
use crate::naming;

/// Pools of addresses that are in no namespace.
const GLOBAL_POOL: &str = "GlobalInClusterIPPool";

/// More than this many names in one write are refused: each costs a decision.
pub const MOST: usize = 2048;

/// An object that is named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub group: String,
    pub kind: String,
    /// Empty at the cluster scope.
    pub namespace: String,
    pub name: String,
}

/// What is done with what is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Its content is read, and may be seen by the writer afterwards.
    Read,
    /// Something becomes part of it, or acts in its name.
    Join,
    /// It gets an owner, and is deleted with it.
    Own,
    /// Objects of this kind are created in this namespace. The target has no name.
    Create,
}

impl Use {
    /// The verbs a writer needs for it.
    pub fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Read => &["get"],
            Self::Join => &["update"],
            Self::Own => &["get", "update", "delete"],
            Self::Create => &["create"],
        }
    }
}

/// A name in an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Where it is, as errors tell it.
    pub field: String,
    pub target: Target,
    pub used: Use,
    /// Which rule beyond the rights of the writer holds for it.
    pub rule: Rule,
    /// Two references with the same key are the same one: list positions do not count, what the target is used
    /// with does.
    key: String,
}

/// What else can make a reference right or wrong, given the object that is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Nothing: only rights count.
    RightsOnly,
    /// A machine configuration: its creator may use it, and one of another cluster is not taken.
    MachineConfig,
    /// A snapshot: that of the cluster itself may be restored.
    Snapshot,
}

/// Where an object is, for names that depend on it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

/// Why references cannot be judged one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("names more than {MOST} objects at once")]
pub struct TooMany;

/// Whether any field of a kind names another object.
pub fn concerns(group: &str, kind: &str) -> bool {
    fields(group, kind).next().is_some()
}

fn fields<'a>(group: &'a str, kind: &'a str) -> impl Iterator<Item = (usize, &'static Field)> + 'a {
    TABLE.iter().enumerate().filter(move |(_, field)| field.is_of(group, kind))
}

/// References of `new` that `old` does not have.
pub fn introduced(place: Place<'_>, old: Option<&Value>, new: &Value) -> Result<Vec<Reference>, TooMany> {
    let known: BTreeSet<String> = match old {
        Some(old) => all(place, old).into_iter().map(|reference| reference.key).collect(),
        None => BTreeSet::new(),
    };
    let mut seen = BTreeSet::new();
    let mut found = all(place, new);
    found.retain(|reference| !known.contains(&reference.key) && seen.insert(reference.key.clone()));
    if found.len() > MOST { Err(TooMany) } else { Ok(found) }
}

/// All references of an object.
fn all(place: Place<'_>, object: &Value) -> Vec<Reference> {
    let mut found = Vec::new();
    for (index, field) in fields(place.group, place.kind) {
        path::each(object, field.path, &mut |spot| {
            read(place, field.names, object, spot, &mut |reference| {
                let Named { field, target, used, rule, context } = reference;
                let generic = &spot.generic;
                let key = format!(
                    "{index}\n{generic}\n{}\n{}\n{}\n{}\n{used:?}\n{context}",
                    target.group, target.kind, target.namespace, target.name
                );
                found.push(Reference { field, target, used, rule, key });
            });
        });
    }
    found
}

/// What [`read`] finds at a spot.
struct Named {
    field: String,
    target: Target,
    used: Use,
    rule: Rule,
    /// What the target is used with.
    context: String,
}

impl Named {
    fn plain(field: String, target: Target, used: Use) -> Self {
        Self { field, target, used, rule: Rule::RightsOnly, context: String::new() }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn core(kind: &str, namespace: &str, name: &str) -> Target {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    Target { group: String::new(), kind: kind.to_owned(), namespace, name }
}

fn credential(place: Place<'_>, reference: &str) -> Target {
    let (namespace, name) = naming::credential(place.namespace, reference);
    core("Secret", namespace, name)
}

fn read(place: Place<'_>, names: Names, object: &Value, spot: &path::Spot<'_>, found: &mut dyn FnMut(Named)) {
    let (value, field) = (spot.value, spot.concrete.clone());
    let name = value.as_str().unwrap_or_default();
    match names {
        Names::Secret | Names::ConfigMap | Names::Credential | Names::Object { .. } | Names::Snapshot
            if name.is_empty() => {}
        Names::Secret => found(Named::plain(field, core("Secret", place.namespace, name), Use::Read)),
        Names::ConfigMap => found(Named::plain(field, core("ConfigMap", place.namespace, name), Use::Read)),
        Names::Credential => found(Named::plain(field, credential(place, name), Use::Read)),
        Names::Object { group, kind, scope, used } => {
            let namespace = match scope {
                table::Scope::Same => place.namespace,
                table::Scope::Cluster => "",
            };
            let (group, kind) = (group.to_owned(), kind.to_owned());
            let target = Target { group, kind, namespace: namespace.to_owned(), name: name.to_owned() };
            found(Named::plain(field, target, used));
        }
        Names::Snapshot => {
            let (group, kind) = (group::RKE.to_owned(), "ETCDSnapshot".to_owned());
            let namespace = place.namespace.to_owned();
            let target = Target { group, kind, namespace, name: name.to_owned() };
            found(Named { rule: Rule::Snapshot, ..Named::plain(field, target, Use::Read) });
        }
        Names::Workspace => {
            if !name.is_empty() && name != place.namespace {
                let (group, kind) = (group::PROVISIONING.to_owned(), "Cluster".to_owned());
                let target = Target { group, kind, namespace: name.to_owned(), name: String::new() };
                found(Named::plain(field, target, Use::Create));
            }
        }
        Names::PullSecrets => {
            if place.name == remuda_names::rancher::setting::SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS {
                for secret in name.split(',').map(str::trim).filter(|secret| !secret.is_empty()) {
                    found(Named::plain(field.clone(), core("Secret", name::SYSTEM, secret), Use::Read));
                }
            }
        }
        Names::Files(kind) => files(place, kind, value, field, found),
        Names::Resource => {
            let (kind, name) = (text(value, "kind"), text(value, "name"));
            if matches!(kind, "Secret" | "ConfigMap") && !name.is_empty() {
                let target = core(kind, place.namespace, name);
                // The same content for other clusters is another use.
                let context = object["spec"]["clusterSelector"].to_string();
                found(Named { context, ..Named::plain(field, target, Use::Own) });
            }
        }
        Names::Reference(used) => {
            if let Some(target) = referred(place, value) {
                found(Named::plain(field, target, used));
            }
        }
        Names::MachineConfig => {
            if let Some(target) = machine_config(place, value) {
                let rule = match target.group.as_str() {
                    group::MACHINE_CONFIG => (Rule::MachineConfig, Use::Read),
                    _ => (Rule::RightsOnly, Use::Own),
                };
                found(Named { rule: rule.0, ..Named::plain(field, target, rule.1) });
            }
        }
        Names::AddressPool(used) => {
            let global = text(value, "apiGroup") == IPAM && text(value, "kind") == GLOBAL_POOL;
            if let Some(target) = referred(place, value).filter(|_| global) {
                found(Named::plain(field, Target { namespace: String::new(), ..target }, used));
            }
        }
        Names::AddressPoolName => {
            // What is no pool is followed by nothing.
            if let Some((kind, name)) = address_pool(name) {
                let namespace = if kind == GLOBAL_POOL { "" } else { place.namespace };
                let (group, kind) = (IPAM.to_owned(), kind.to_owned());
                let target = Target { group, kind, namespace: namespace.to_owned(), name: name.to_owned() };
                found(Named::plain(field, target, Use::Read));
            }
        }
        Names::PoolCredential => pool_credential(place, object, value, &field, found),
        Names::Inline => inline(value, &field, found),
    }
}

/// Files made of a Secret or a ConfigMap. Another key of the same object is another content.
fn files(place: Place<'_>, kind: &str, value: &Value, field: String, found: &mut dyn FnMut(Named)) {
    let name = text(value, "name");
    if name.is_empty() {
        return;
    }
    let items = value.get("items").and_then(Value::as_array).into_iter().flatten();
    for key in items.map(|item| text(item, "key")).collect::<BTreeSet<_>>() {
        let target = core(kind, place.namespace, name);
        let named = Named::plain(format!("{field}.name"), target, Use::Read);
        found(Named { context: key.to_owned(), ..named });
    }
    found(Named::plain(format!("{field}.name"), core(kind, place.namespace, name), Use::Read));
}

/// What an object reference names, of either shape: with an `apiVersion`, or with an `apiGroup`. It is always
/// looked for beside the object: a namespace in a reference is followed by nothing.
fn referred(place: Place<'_>, value: &Value) -> Option<Target> {
    let version = text(value, "apiVersion");
    let group = match text(value, "apiGroup") {
        "" => version.split_once('/').map_or("", |(group, _)| group),
        group => group,
    };
    let (kind, name) = (text(value, "kind"), text(value, "name"));
    (!name.is_empty()).then(|| Target {
        group: group.to_owned(),
        kind: kind.to_owned(),
        namespace: place.namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// The configuration of a pool: one of ours unless it says otherwise.
fn machine_config(place: Place<'_>, value: &Value) -> Option<Target> {
    let mut target = referred(place, value)?;
    if text(value, "apiVersion").is_empty() {
        target.group = group::MACHINE_CONFIG.to_owned();
    }
    Some(target)
}

/// The credential of a pool, its own or that of the cluster. It goes where the configuration of the pool says, so
/// with another configuration it is another use.
fn pool_credential(
    place: Place<'_>,
    object: &Value,
    pool: &Value,
    field: &str,
    found: &mut dyn FnMut(Named),
) {
    let shared = "spec.cloudCredentialSecretName";
    let (reference, field) = match text(pool, "cloudCredentialSecretName") {
        "" => (text(&object["spec"], "cloudCredentialSecretName"), shared.to_owned()),
        own => (own, format!("{field}.cloudCredentialSecretName")),
    };
    if reference.is_empty() {
        return;
    }
    let config = &pool["machineConfigRef"];
    let context = format!("{} {} {}", text(config, "apiVersion"), text(config, "kind"), text(config, "name"));
    found(Named { context, ..Named::plain(field, credential(place, reference), Use::Read) });
}

/// Kinds that arguments can name, by the scheme in front of `namespace:name`.
const SCHEMES: [(&str, &str); 2] = [("secret://", "Secret"), ("configmap://", "ConfigMap")];

/// Every `secret://namespace:name` in any text below a value.
fn inline(value: &Value, field: &str, found: &mut dyn FnMut(Named)) {
    match value {
        Value::String(text) => {
            for (scheme, kind) in SCHEMES {
                for (at, _) in text.match_indices(scheme) {
                    let rest = &text[at + scheme.len()..];
                    let end = rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | '"' | '\'' | ';'));
                    let reference = &rest[..end.unwrap_or(rest.len())];
                    if let Some((namespace, name)) = reference.split_once(':') {
                        let target = core(kind, namespace, name);
                        let named = Named::plain(field.to_owned(), target, Use::Read);
                        found(Named { context: field.to_owned(), ..named });
                    }
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| inline(item, field, found)),
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| inline(value, &format!("{field}.{key}"), found));
        }
        _ => {}
    }
}

/// Credentials a machine configuration is used with, as pools of these clusters say. Whoever changes where a
/// credential goes must have the right to use it.
pub fn credentials_used_with<'a>(
    place: Place<'_>,
    clusters: impl IntoIterator<Item = &'a Value>,
) -> BTreeSet<Target> {
    let mut found = BTreeSet::new();
    for cluster in clusters {
        let pools = cluster["spec"]["rkeConfig"]["machinePools"].as_array().into_iter().flatten();
        for pool in pools {
            let config = machine_config(place, &pool["machineConfigRef"]);
            let is_used = config.is_some_and(|config| {
                // Controllers find a configuration whatever the case of its kind.
                config.group == place.group
                    && config.kind.eq_ignore_ascii_case(place.kind)
                    && config.name == place.name
            });
            if is_used {
                pool_credential(place, cluster, pool, "", &mut |named| {
                    found.insert(named.target);
                });
            }
        }
    }
    found
}
