//! Data directories. Nodes have their data there, so none of them ever changes.

use remuda_names::rancher::env::AGENT_VAR_DIR;
use serde_json::Value;

use super::{Findings, environment};

const FIELD: &str = "spec.rkeConfig.dataDirectories";
/// Fields, and what messages call them.
const DIRECTORIES: [(&str, &str); 3] =
    [("k8sDistro", "Distro"), ("provisioning", "Provisioning"), ("systemAgent", "System Agent")];
const SHELL: &str = "\"'`*?#~=%$|&;<>{}[]()";

pub(super) fn check(old: Option<&Value>, spec: &Value, findings: &mut Findings) {
    if spec["rkeConfig"].is_null() {
        return;
    }
    match old {
        None => {
            variable_at_creation(spec, findings);
            format(spec, findings);
        }
        // The cluster a server runs in is being taken over.
        Some(old) if old["rkeConfig"].is_null() => {}
        Some(old) => {
            for (field, name) in
                DIRECTORIES.iter().take(2).filter(|(field, _)| of(old, field) != of(spec, field))
            {
                let detail = format!("{name} data directory cannot be changed after cluster creation");
                findings.bad(format!("{FIELD}.{field}"), &detail);
            }
            system_agent(old, spec, findings);
        }
    }
}

fn of<'a>(spec: &'a Value, field: &str) -> &'a str {
    spec["rkeConfig"]["dataDirectories"][field].as_str().unwrap_or_default()
}

fn variable(spec: &Value) -> Option<(usize, &str)> {
    environment::find(spec, |name| name == AGENT_VAR_DIR)
}

fn variable_at_creation(spec: &Value, findings: &mut Findings) {
    if let Some((place, _)) = variable(spec) {
        let detail = format!(
            "\"{AGENT_VAR_DIR}\" cannot be set within \"cluster.Spec.RKEConfig.AgentEnvVars\": use \
             \"cluster.Spec.RKEConfig.DataDirectories.SystemAgent\""
        );
        findings.bad(format!("spec.agentEnvVars[{place}].name"), &detail);
    }
}

fn format(spec: &Value, findings: &mut Findings) {
    let set: Vec<_> = DIRECTORIES
        .iter()
        .map(|(field, name)| (*field, *name, of(spec, field)))
        .filter(|(_, _, directory)| !directory.is_empty())
        .collect();
    for (field, name, directory) in &set {
        let wrong = if !directory.starts_with('/') {
            "must be an absolute path"
        } else if directory.contains(|c| SHELL.contains(c)) {
            "cannot contain shell expressions"
        } else if !is_clean(directory) {
            "is not clean"
        } else {
            continue;
        };
        findings.bad(format!("{FIELD}.{field}"), &format!("{name} data directory {wrong}"));
    }
    for (place, (field, name, directory)) in set.iter().enumerate() {
        for (_, other_name, other) in set.iter().skip(place + 1) {
            let detail = if directory == other {
                format!("{name} data directory cannot be equal to {other_name} data directory")
            } else if is_inside(other, directory) {
                format!("{other_name} data directory cannot be nested inside {name} data directory")
            } else if is_inside(directory, other) {
                format!("{name} data directory cannot be nested inside {other_name} data directory")
            } else {
                continue;
            };
            findings.bad(format!("{FIELD}.{field}"), &detail);
        }
    }
}

/// An absolute path that is as short as it can be.
fn is_clean(path: &str) -> bool {
    let parts = || path.split('/').skip(1);
    path == "/" || parts().all(|part| !matches!(part, "" | "." | ".."))
}

fn is_inside(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
}

/// A variable once said what the field says now. It may move into the field, and nothing else.
fn system_agent(old: &Value, spec: &Value, findings: &mut Findings) {
    let field = format!("{FIELD}.systemAgent");
    let variable_field = |place: usize| format!("spec.agentEnvVars[{place}]");
    let (before, now) = (variable(old).map_or("", |(_, value)| value), variable(spec));
    let named = format!("\"{AGENT_VAR_DIR}\" env var in \"cluster.Spec.AgentEnvVars\"");
    if before.is_empty() {
        if of(old, "systemAgent") != of(spec, "systemAgent") {
            findings.bad(field, "System Agent data directory cannot be changed after cluster creation");
        }
        if let Some((place, _)) = now.filter(|(_, value)| !value.is_empty()) {
            findings.bad(variable_field(place), &format!("{named} cannot be set after cluster creation"));
        }
    } else if of(spec, "systemAgent").is_empty() {
        if now.is_none_or(|(_, value)| value != before) {
            findings.bad("spec.agentEnvVars", &format!("{named} cannot be changed after cluster creation"));
        }
    } else if let Some((place, _)) = now {
        let detail = format!("{named} must be removed when migrating SystemAgent data directory");
        findings.bad(variable_field(place), &detail);
    } else if of(spec, "systemAgent") != before {
        let detail =
            format!("System Agent data directory must be identical to previous {named} during migration");
        findings.bad(field, &detail);
    }
}
