//! What a control plane says of itself and of its Machines.

use std::sync::Arc;

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_api::core::{Machine, StatusVersion};
use remuda_control::{
    Error,
    write::conditions::{self, ConditionUpdate},
};
use remuda_names::capi::{condition, label};
use serde_json::json;

use super::{Have, Providers, api_error, is_code, say_paused};
use crate::{
    kinds::{SimControlPlane, SimControlPlaneStatus},
    providers::say,
};

/// Once initialized, always initialized.
pub(super) fn is_initialized(status: &SimControlPlaneStatus) -> bool {
    status.initialized || status.initialization.control_plane_initialized == Some(true)
}

pub(super) fn fill(
    status: &mut SimControlPlaneStatus,
    object: &SimControlPlane,
    machines: &[Arc<Machine>],
    have: &[Have],
    initialized: bool,
    providers: &Providers,
) {
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let saying = |kind: &str| {
        let is_true = |machine: &&Arc<Machine>| {
            machine.status.as_ref().is_some_and(|status| conditions::is_true(&status.conditions, kind))
        };
        count(machines.iter().filter(is_true).count())
    };
    let wanted = object.spec.replicas.unwrap_or(1).max(0);
    let (ready, available) = (saying(condition::READY), saying(condition::AVAILABLE));
    let up_to_date = count(have.iter().filter(|machine| machine.up_to_date).count());
    let versions = versions(machines);
    status.replicas = Some(count(machines.len()));
    status.ready_replicas = Some(ready);
    status.selector = format!("{}={}", label::CONTROL_PLANE_NAME, object.name_any());
    status.external_managed_control_plane = (wanted == 0).then_some(true);
    status.observed_generation = object.metadata.generation.unwrap_or_default();
    if providers.is_old() {
        status.initialized = initialized;
        status.ready = initialized && ready > 0;
        status.updated_replicas = Some(up_to_date);
        status.unavailable_replicas = Some((wanted - available).max(0));
        status.version = versions.first().map(|lowest| lowest.version.clone()).unwrap_or_default();
    } else {
        status.initialization.control_plane_initialized = initialized.then_some(true);
        status.available_replicas = Some(available);
        status.up_to_date_replicas = Some(up_to_date);
        status.versions = versions;
        if wanted == 0 && initialized {
            // Nobody's Machines, but a version all the same.
            status.versions = vec![StatusVersion { version: object.spec.version.clone(), replicas: 1 }];
            status.versions.retain(|version| !version.version.is_empty());
        }
    }
    let now = providers.now();
    let up = initialized && (wanted == 0 || available > 0);
    let says = match (initialized, up) {
        (false, _) => ("NotAvailable", "Control plane not yet initialized"),
        (true, false) => ("NotAvailable", "no control plane Machine is available"),
        (true, true) => ("Available", ""),
    };
    say(&mut status.conditions, object, now, (condition::AVAILABLE, up, says.0, says.1));
    say_paused(&mut status.conditions, object, now, false);
}

/// Versions that run, the lowest first.
fn versions(machines: &[Arc<Machine>]) -> Vec<StatusVersion> {
    let mut versions: Vec<StatusVersion> = Vec::new();
    for machine in machines {
        let kubelet = machine.status.as_ref().and_then(|status| status.node_info.as_ref());
        let Some(version) =
            kubelet.map(|info| info.kubelet_version.clone()).filter(|known| !known.is_empty())
        else {
            continue;
        };
        match versions.iter_mut().find(|known| known.version == version) {
            Some(known) => known.replicas += 1,
            None => versions.push(StatusVersion { version, replicas: 1 }),
        }
    }
    versions.sort_by_key(|known| numbers(&known.version));
    versions
}

fn numbers(version: &str) -> Vec<u64> {
    let digits = version.split(|letter: char| !letter.is_ascii_digit()).filter(|part| !part.is_empty());
    digits.take(3).map(|part| part.parse().unwrap_or(0)).collect()
}

/// Whether a Machine is as its control plane asks is the control plane's to say.
pub(super) async fn mark_up_to_date(
    providers: &Providers,
    machine: &Machine,
    up_to_date: bool,
) -> Result<(), Error> {
    let Some(status) = &machine.status else {
        return Ok(());
    };
    let mut after = status.conditions.clone();
    let (reason, message) = if up_to_date {
        (condition::UP_TO_DATE, "")
    } else {
        ("NotUpToDate", "* version or template changed")
    };
    let known = conditions::get(&after, condition::UP_TO_DATE);
    if known.is_some_and(|known| (known.status == "True") == up_to_date) {
        return Ok(());
    }
    let generation = machine.metadata.generation;
    let says = ConditionUpdate {
        kind: condition::UP_TO_DATE,
        status: Some(up_to_date),
        reason,
        message,
        generation,
    };
    conditions::set(&mut after, says, providers.now());
    // A list is written as a whole, so only onto the state it was read in.
    let patch = json!({
        "metadata": {"resourceVersion": machine.resource_version()},
        "status": {"conditions": after},
    });
    let machines: Api<Machine> = providers.api(machine);
    let written =
        machines.patch_status(&machine.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
    match written {
        Err(error) if is_code(&error, 404) => Ok(()),
        written => written.map(drop).map_err(|source| api_error("write status of", machine, source)),
    }
}
