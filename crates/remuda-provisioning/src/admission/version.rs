//! The Kubernetes version of a cluster: what was written becomes a release when it is written, and a change is one
//! its nodes can follow.

use jiff::civil::Date;
use remuda_distro::{
    Catalog, Distro, upgrade, version,
    wanted::{self, Wanted},
};
use remuda_names::provisioning::annotation::{FORCE_VERSION, VERSION_ALIAS};
use serde_json::{Value, json};

use super::{Findings, Write};

pub(super) const FIELD: &str = "spec.kubernetesVersion";

/// A new cluster that names no distribution.
const DEFAULT: Distro = Distro::K3s;

/// The version of a cluster that is made here; empty if there is none.
fn wanted(object: &Value) -> &str {
    match object["spec"]["rkeConfig"].is_null() {
        true => "",
        false => object["spec"]["kubernetesVersion"].as_str().unwrap_or_default(),
    }
}

fn alias(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][VERSION_ALIAS].as_str()
}

/// Writes a release where an alias was written. The same alias again keeps its release: applying a manifest once
/// more is no upgrade. What cannot be resolved is left for [`check`] to refuse.
pub(super) fn pin(write: &Write<'_>, object: &mut Value, catalog: &Catalog) {
    let text = wanted(object).to_owned();
    let before = write.old.map(wanted).unwrap_or_default();
    let Some(wanted) = Wanted::parse(&text) else { return };
    let resolved = match &wanted {
        Wanted::Exact(version) => Some(version.clone()),
        Wanted::Alias { .. }
            if write.old.and_then(alias) == Some(&text) && version::parse(before).is_some() =>
        {
            Some(before.to_owned())
        }
        Wanted::Alias { .. } => {
            let stay = if before.is_empty() { DEFAULT } else { Distro::of(before) };
            wanted.resolve(catalog, stay).ok()
        }
    };
    let Some(resolved) = resolved else { return };
    let changes = resolved != before;
    object["spec"]["kubernetesVersion"] = json!(resolved);
    let is_alias = matches!(wanted, Wanted::Alias { .. });
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if is_alias {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if annotations.is_null() {
            *annotations = json!({});
        }
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(VERSION_ALIAS.to_owned(), json!(text));
        }
    } else if changes
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(VERSION_ALIAS);
    }
}

/// Whether a change has to be judged by what nodes run.
pub fn changes_version(old: &Value, object: &Value) -> bool {
    !wanted(old).is_empty() && !wanted(object).is_empty() && wanted(old) != wanted(object)
}

/// Versions the nodes of a cluster report, from the Machines of its namespace.
pub fn running(cluster: &str, machines: &[Value]) -> Vec<String> {
    let own = machines.iter().filter(|machine| machine["spec"]["clusterName"] == cluster);
    let reported = own.filter_map(|machine| machine["status"]["nodeInfo"]["kubeletVersion"].as_str());
    reported.filter(|version| !version.is_empty()).map(str::to_owned).collect()
}

/// Refuses what is no version, and changes nodes cannot follow unless they are meant.
pub(super) fn check(
    write: &Write<'_>,
    object: &Value,
    catalog: Option<&Catalog>,
    running: &[String],
    findings: &mut Findings,
) {
    let to = wanted(object);
    let from = write.old.map(wanted).unwrap_or_default();
    if to.is_empty() || to == from {
        return;
    }
    if let Some(catalog) = catalog {
        let stay = if from.is_empty() { DEFAULT } else { Distro::of(from) };
        if let Err(reason) = wanted::resolve(to, catalog, stay) {
            return findings.invalid(FIELD, &json!(to), &reason.to_string());
        }
    } else if version::parse(to).is_none() {
        return findings.invalid(FIELD, &json!(to), &wanted::Unresolved::NotAVersion.to_string());
    }
    // A restore brings back the version of its snapshot.
    if write.is_server || write.old.is_none() {
        return;
    }
    if let Err(reason) = upgrade::judge(from, to, running)
        && object["metadata"]["annotations"][FORCE_VERSION] != to
    {
        let detail = format!("{reason}; if it is meant, set the annotation {FORCE_VERSION} to {to}");
        findings.invalid(FIELD, &json!(to), &detail);
    }
}

/// What who writes a version should know of it.
pub(super) fn warnings(old: Option<&Value>, object: &Value, catalog: &Catalog, today: Date) -> Vec<String> {
    let to = wanted(object);
    if to.is_empty() || old.map(wanted) == Some(to) {
        return Vec::new();
    }
    let mut found = Vec::new();
    if let Some(alias) = alias(object) {
        found.push(format!("{FIELD}: {alias} is {to} from now on"));
    }
    if catalog.find(to).is_none() {
        let date = catalog.date.map(|date| format!(" of {date}")).unwrap_or_default();
        found.push(format!(
            "{FIELD}: {to} is not in the release data{date}: it is installed if there is an image of it"
        ));
    }
    if let Some(last) = catalog.end_of_life(to).filter(|last| *last < today) {
        let minor = version::parse(to).map(|version| version::Minor::of(&version).to_string());
        found.push(format!(
            "{FIELD}: Kubernetes {} has not been maintained since {last}",
            minor.unwrap_or_default()
        ));
    }
    found
}
