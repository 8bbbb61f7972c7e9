//! An input without the secrets in it, about which the same is decided.
//!
//! Plans carry tokens and files, and digests of them, so what is stored cannot be kept and cannot be compared with what
//! would be made of other tokens. A machine that had the plan it should have is given the plan it should have of what
//! is left; of other plans only the outline stays, and decisions about these machines can differ in how much of a change
//! is seen.

mod secrets;
mod spec;

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_distro::Distro;
use remuda_names::{
    capi,
    rancher::{annotation, group},
};
use remuda_plan::{key, sha256_hex};
use serde_json::{Value, json};

use self::secrets::Secrets;
use crate::{
    input::{AgentManifest, Input, Machine, StateSecret, Tokens},
    node_plan::{File, NodePlan},
    operation::encryption,
    planner,
};

/// What stands where something was taken out.
pub(crate) const REDACTED: &str = "redacted";

/// How often plans are made anew: each time the decision gets one tier further.
const ROUNDS: usize = 8;

/// The input without secrets. What people wrote freely goes too: variables, chart values, manifests, most values of
/// the configuration.
pub fn redact(input: &Input) -> Input {
    let secrets = Secrets::of(input);
    let wanted = planner::wanted(input);
    let current: BTreeSet<&str> = input
        .machines
        .iter()
        .filter(|machine| {
            let wanted = wanted.get(&machine.name).map(Vec::as_slice);
            wanted.is_some() && stored(machine, key::PLAN) == wanted
        })
        .map(|machine| machine.name.as_str())
        .collect();
    let mut safe = secrets.swept(without_secrets(input));
    for _ in 0..ROUNDS {
        let wanted = planner::wanted(&safe);
        let mut changed = false;
        for machine in safe.machines.iter_mut().filter(|machine| current.contains(machine.name.as_str())) {
            let plan = wanted.get(&machine.name);
            if let Some((plan, data)) = plan.zip(plan_data(machine)) {
                changed |= replace_plan(data, plan);
            }
        }
        if !changed {
            break;
        }
    }
    safe
}

/// Text without what is secret in `input`.
pub(crate) fn sweep(input: &Input, text: &mut Value) {
    Secrets::of(input).sweep(text);
}

fn without_secrets(input: &Input) -> Input {
    let mut safe = input.clone();
    for tokens in [Some(&mut safe.fresh_tokens), present(&mut safe.state)].into_iter().flatten() {
        blank_text(&mut tokens.server);
        blank_text(&mut tokens.agent);
    }
    for secret in safe.resources.secrets.values_mut() {
        secret.data.iter_mut().for_each(|(key, value)| *value = secrets::blank(key, value));
        blank_annotations(&mut secret.annotations);
    }
    for map in safe.resources.config_maps.values_mut() {
        map.data.values_mut().for_each(blank_text);
        blank_annotations(&mut map.annotations);
    }
    if let AgentManifest::Agent(agent) = &mut safe.agent_manifest {
        blank_text(&mut agent.token);
        agent.env.iter_mut().chain(&mut agent.pull_secrets).for_each(|(_, value)| blank_text(value));
    }
    safe.pre_bootstrap.iter_mut().for_each(|file| *file = blank_file(file));
    let control_plane = &mut safe.control_plane;
    blank_annotations(&mut control_plane.annotations);
    let applied = control_plane.status.applied_spec.as_mut();
    [Some(&mut control_plane.stored_spec), applied].into_iter().flatten().for_each(spec::redact);
    // A spec that was read once is read again, whatever its texts are.
    control_plane.spec = serde_json::from_value(control_plane.stored_spec.clone()).unwrap_or_default();
    for secret in safe.machines.iter_mut().filter_map(|machine| machine.plan_secret.as_mut()) {
        blank_annotations(&mut secret.annotations);
        // What instructions printed, which may be anything. Those that are run again and again tell where etcd is.
        let stage =
            secret.data.remove(key::APPLIED_OUTPUT).and_then(|packed| encryption::only_stage(&packed));
        secret.data.extend(stage.map(|stage| (key::APPLIED_OUTPUT.to_owned(), stage)));
    }
    safe.machines.iter_mut().filter_map(plan_data).for_each(outline_plans);
    safe
}

type Data = BTreeMap<String, Vec<u8>>;

fn present(state: &mut StateSecret) -> Option<&mut Tokens> {
    match state {
        StateSecret::Present(tokens) => Some(tokens),
        StateSecret::Missing | StateSecret::WrongType(_) => None,
    }
}

fn plan_data(machine: &mut Machine) -> Option<&mut Data> {
    machine.plan_secret.as_mut().map(|secret| &mut secret.data)
}

fn stored<'a>(machine: &'a Machine, key: &str) -> Option<&'a [u8]> {
    machine.plan_secret.as_ref()?.data.get(key).map(Vec::as_slice)
}

/// The plan in the data becomes another; what was reported of it is reported of the other.
fn replace_plan(data: &mut Data, new: &[u8]) -> bool {
    let Some(old) = data.insert(key::PLAN.to_owned(), new.to_vec()) else {
        data.remove(key::PLAN);
        return false;
    };
    if data.get(key::APPLIED_PLAN) == Some(&old) {
        data.insert(key::APPLIED_PLAN.to_owned(), new.to_vec());
    }
    for key in [key::APPLIED_CHECKSUM, key::FAILED_CHECKSUM] {
        if data.get(key).is_some_and(|checksum| *checksum == sha256_hex(&old).into_bytes()) {
            data.insert(key.to_owned(), sha256_hex(new).into_bytes());
        }
    }
    old != new
}

fn outline_plans(data: &mut Data) {
    let Some(plan) = data.get(key::PLAN).cloned() else { return };
    if let Some(applied) = data.get_mut(key::APPLIED_PLAN).filter(|applied| **applied != plan) {
        // Two plans that were different stay different.
        *applied = outline(applied, Some(File::new("/another", b"")));
    }
    if !plan.is_empty() {
        replace_plan(data, &outline(&plan, None));
    }
}

/// A plan without contents and values. What cannot be read cannot be read afterwards either.
fn outline(plan: &[u8], more: Option<File>) -> Vec<u8> {
    let Ok(mut plan) = NodePlan::decode(plan) else { return REDACTED.as_bytes().to_vec() };
    plan.files.iter_mut().for_each(|file| *file = blank_file(file));
    plan.files.extend(more);
    for one in &mut plan.instructions {
        one.env.iter_mut().for_each(blank_variable);
        one.args.iter_mut().for_each(blank_argument);
        blank_text(&mut one.script);
    }
    for one in &mut plan.periodic_instructions {
        one.env.iter_mut().for_each(blank_variable);
        one.args.iter_mut().for_each(blank_argument);
        blank_text(&mut one.script);
    }
    blank_text(&mut plan.error);
    plan.encode()
}

/// The server a node joined is read out of its configuration.
fn blank_file(file: &File) -> File {
    let is_config = [Distro::K3s, Distro::Rke2].iter().any(|distro| distro.config_path() == file.path);
    let config = || -> Option<Value> {
        let config: Value =
            serde_json::from_slice(&BASE64_STANDARD.decode(file.content.as_bytes()).ok()?).ok()?;
        config.get("server").map(|server| json!({"server": server}))
    };
    let content = match config().filter(|_| is_config) {
        Some(config) => config.to_string(),
        None => REDACTED.to_owned(),
    };
    File { content: BASE64_STANDARD.encode(content).into(), ..file.clone() }
}

fn blank_text(text: &mut String) {
    if !text.is_empty() {
        REDACTED.clone_into(text);
    }
}

/// Stamps stay: they are digests of whole plans.
fn blank_variable(variable: &mut String) {
    let Some((name, _)) = variable.split_once('=') else { return blank_text(variable) };
    if !name.ends_with("RESTART_STAMP") && !name.ends_with("DRAIN_HASH") {
        *variable = format!("{name}={REDACTED}");
    }
}

fn blank_argument(argument: &mut String) {
    if !["-c", "-File", "run.sh", "run.ps1"].contains(&argument.as_str()) {
        blank_text(argument);
    }
}

/// Annotations of kinds decided about here stay. Others may hold anything, such as what was applied last.
fn blank_annotations(annotations: &mut BTreeMap<String, String>) {
    const DOMAINS: [&str; 3] = [group::RKE, group::REMUDA, capi::group::CORE];
    for (key, value) in annotations.iter_mut() {
        let is_known = key == annotation::SECRET_AUTHORIZED_FOR_CLUSTER
            || key.split_once('/').is_some_and(|(domain, _)| DOMAINS.contains(&domain));
        if !is_known || key == annotation::CLUSTER_SPEC {
            blank_text(value);
        }
    }
}
