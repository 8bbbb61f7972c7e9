//! The end of a server that registered itself: its last plan, and the note that it was removed.
//!
//! A server that registers with the id of a removed one is an agent somebody forgot, or a tool that repeats an old
//! command. It is let in with a token that is younger than the note, or under a new id, which it gets when it is
//! uninstalled.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{Patch, PostParams},
};
use remuda_api::{
    core::Machine,
    rke::{CustomMachine, CustomMachineStatus, RkeControlPlane},
};
use remuda_control::{
    Action, ObjectKey,
    write::{conditions::ConditionUpdate as MachineSays, remove_finalizer, write_status},
};
use remuda_distro::Distro;
use remuda_names::{
    annotation::{KEEP_HOST, REMOVED_AT},
    capi::{annotation as capi_annotation, condition as capi_condition},
    rancher::{condition, finalizer, label, secret_type},
    removed,
};
use remuda_planner::farewell::{self, Gone, Owner, Places, Step, View};
use serde_json::json;

use crate::{
    Error,
    conditions::{ConditionUpdate, rfc3339, set},
    error::is_code,
    machines::plan_secret,
    objects,
    shared::Rke,
};

/// How soon a Secret that was just written is looked at again; a change of it wakes us before.
const AGAIN: Duration = Duration::from_secs(15);
const WINDOWS: &str = "windows";

/// Goes on with the removal of a server.
pub(super) async fn reconcile(rke: &Rke, key: &ObjectKey, object: &CustomMachine) -> Result<Action, Error> {
    if !object.finalizers().iter().any(|known| known == finalizer::HOST) {
        return Ok(Action::AwaitChange);
    }
    let machine = objects::owner(&object.metadata, "Machine").and_then(|owner| {
        let machine = rke.machines.get(&key.sibling(&owner.name))?;
        (machine.metadata.uid.as_deref() == Some(&*owner.uid)).then_some(machine)
    });
    let cluster = machine.as_ref().and_then(|machine| rke.cluster_of(machine));
    let control_plane = cluster.as_ref().and_then(|cluster| rke.control_plane_of(cluster));
    let bootstrap =
        machine.as_ref().and_then(|machine| objects::bootstrap_of(machine).map(objects::plan_name));
    let stored = bootstrap.and_then(|name| rke.plans.get(&key.sibling(&*name)));
    let secret = stored.as_ref().map(|stored| plan_secret(stored));
    let now = rke.ctx.clock.now();
    let step = farewell::decide(&View {
        now,
        machine: machine.as_ref().map_or(Owner::Gone, |machine| owner(machine)),
        secret: secret.as_ref(),
        away: machine.as_ref().is_some_and(|machine| is_away(machine)),
        kept: machine.as_ref().is_some_and(|machine| is_kept(object, machine)),
    });
    tell(rke, key, object, machine.as_deref(), &step, now).await?;
    match (step, &stored, &secret) {
        // The Machine wakes us when its hook goes.
        (Step::Hold, ..) => Ok(Action::AwaitChange),
        (Step::Wait(left), ..) => {
            Ok(Action::RequeueAfter(Duration::try_from(left).unwrap_or(AGAIN).min(AGAIN)))
        }
        (Step::Deliver, Some(stored), Some(before)) => {
            let mut after = before.clone();
            let plan = farewell::last_plan(&places(control_plane.as_deref()));
            farewell::deliver(&key.name, &mut after, plan, now);
            let version = stored.resource_version().unwrap_or_default();
            let namespace = key.namespace.as_deref().unwrap_or_default();
            rke.write_plan(namespace, &version, before, &after).await?;
            tracing::info!(machine = %key, "server is told to remove what was installed on it");
            Ok(Action::RequeueAfter(AGAIN))
        }
        _ => {
            // A server whose Machine stays is still in, and one of a cluster that goes has nowhere to come back to.
            let removed = machine.as_ref().is_some_and(|machine| objects::is_deleting(&machine.metadata));
            let stays = cluster.as_ref().is_some_and(|cluster| !objects::is_deleting(&cluster.metadata));
            let id = object.labels().get(label::MACHINE_ID);
            if let (true, Some(control_plane), Some(id)) = (removed && stays, &control_plane, id) {
                bury(rke, &control_plane.spec.management_cluster_name, &key.name, id, now).await?;
            }
            let api: Api<CustomMachine> = rke.api(key.namespace.as_deref().unwrap_or_default());
            remove_finalizer(&api, object, &(), finalizer::HOST).await?;
            Ok(Action::AwaitChange)
        }
    }
}

/// What is said about a step: status, reason and message of `HostClean`.
fn said(step: &Step) -> (Option<bool>, &'static str, &'static str) {
    match step {
        Step::Hold => (
            None,
            condition::HOST_HELD,
            "waiting for the hooks of the machine, as for its member to leave etcd",
        ),
        Step::Deliver | Step::Wait(_) => (
            None,
            condition::HOST_CLEANING,
            "waiting for the server to remove what was installed on it, three minutes at most",
        ),
        Step::Go(Gone::Clean) => (Some(true), condition::HOST_CLEANED, ""),
        Step::Go(Gone::Untouched) => (Some(true), condition::HOST_UNTOUCHED, "nothing was put on the server"),
        Step::Go(Gone::Kept) => (Some(false), condition::HOST_KEPT, "the server is left as it is"),
        Step::Go(Gone::Away) => {
            (Some(false), condition::HOST_AWAY, "the server is left as it is: its agent is away")
        }
        Step::Go(Gone::Failed) => {
            (Some(false), condition::HOST_FAILED, "the server is left as it is: its last plan failed")
        }
        Step::Go(Gone::TooLong) => (
            Some(false),
            condition::HOST_TIMED_OUT,
            "the server is left as it is: its agent did not answer in time",
        ),
    }
}

/// Says what happens on the CustomMachine, and on its Machine, which people look at. An Event stays when both are gone.
async fn tell(
    rke: &Rke,
    key: &ObjectKey,
    object: &CustomMachine,
    machine: Option<&Machine>,
    step: &Step,
    now: Timestamp,
) -> Result<(), Error> {
    let (status, reason, message) = said(step);
    let api: Api<CustomMachine> = rke.api(key.namespace.as_deref().unwrap_or_default());
    let mut after: CustomMachineStatus = object.status.clone().unwrap_or_default();
    set(&mut after.conditions, ConditionUpdate { kind: condition::HOST_CLEAN, status, reason, message }, now);
    let written = write_status(&rke.ctx, &api, object, &after).await?;
    rke.seen(&rke.custom_machines, written.as_ref()).await;
    let Some(machine) = machine else { return Ok(()) };
    match step {
        Step::Hold => {}
        Step::Deliver | Step::Wait(_) => {
            let says = MachineSays {
                kind: condition::RECONCILED,
                status: None,
                reason: "Waiting",
                message,
                generation: None,
            };
            rke.mark(&ObjectKey::of(&machine.metadata), says).await?;
        }
        Step::Go(gone) if gone.is_left() => {
            let note = format!("{message}; `remuda agent uninstall` on it removes what was installed there");
            tracing::warn!(machine = %key, why = ?gone, "server goes as it is");
            rke.ctx.recorder.warning(machine, "HostNotClean", "Clean", note);
        }
        Step::Go(gone) => tracing::info!(machine = %key, how = ?gone, "server removed"),
    }
    Ok(())
}

/// Whether the server of a Machine may go.
pub(super) fn owner(machine: &Machine) -> Owner {
    let mut annotations = machine.annotations().keys();
    if !objects::is_deleting(&machine.metadata) {
        Owner::Staying
    } else if annotations.any(|key| key.starts_with(capi_annotation::PRE_TERMINATE_HOOK)) {
        Owner::Hooked
    } else {
        Owner::Going
    }
}

fn places(control_plane: Option<&RkeControlPlane>) -> Places<'_> {
    let Some(control_plane) = control_plane else {
        return Places { distro: Distro::K3s, data: "", provisioning: "", agent: "" };
    };
    let spec = &control_plane.spec;
    let directories = &spec.config.data_directories;
    Places {
        distro: Distro::of(&spec.kubernetes_version),
        data: &directories.k8s_distro,
        provisioning: &directories.provisioning,
        agent: &directories.system_agent,
    }
}

fn is_away(machine: &Machine) -> bool {
    let conditions = machine.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
    let is = |kind: &str, status: &str| {
        conditions.iter().any(|known| known.type_ == kind && known.status == status)
    };
    is(condition::AGENT_CONNECTED, "False") && !is(capi_condition::NODE_READY, "True")
}

/// Somebody wants it as it is, or there is no script for it.
fn is_kept(object: &CustomMachine, machine: &Machine) -> bool {
    let windows = machine.labels().get(label::OS).is_some_and(|os| os == WINDOWS);
    let mut annotations = [machine.annotations(), object.annotations()].into_iter();
    windows || annotations.any(|known| known.get(KEEP_HOST).is_some_and(|value| value == "true"))
}

/// Notes beside the registration tokens of a cluster that a server was removed.
async fn bury(rke: &Rke, managed: &str, machine: &str, id: &str, now: Timestamp) -> Result<(), Error> {
    if managed.is_empty() {
        return Ok(());
    }
    let name = removed::name(machine);
    let api: Api<Secret> = rke.api(managed);
    let annotations = json!({REMOVED_AT: rfc3339(now)});
    let mut secret = Secret { type_: Some(secret_type::REMOVED_MACHINE.to_owned()), ..Secret::default() };
    secret.metadata.name = Some(name.clone());
    secret.metadata.labels = Some(BTreeMap::from([(label::MACHINE_ID.to_owned(), id.to_owned())]));
    secret.metadata.annotations = Some(BTreeMap::from([(REMOVED_AT.to_owned(), rfc3339(now))]));
    let params =
        PostParams { field_manager: Some(rke.ctx.field_manager.to_string()), ..PostParams::default() };
    let outcome = match api.create(&params, &secret).await {
        Err(error) if is_code(&error, 409) => {
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
            api.patch(&name, &rke.params(), &patch).await
        }
        outcome => outcome,
    };
    match outcome {
        // The namespace goes with the cluster, and then nobody can register.
        Err(error) if !is_code(&error, 404) && !is_code(&error, 403) => {
            Err(Error::api("write", format!("Secret {managed}/{name}"))(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(text: &str) -> Machine {
        let mut machine = Machine::default();
        for word in text.split(' ') {
            match word {
                "deleting" => {
                    let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH);
                    machine.metadata.deletion_timestamp = Some(time);
                }
                "hooked" => {
                    let hook = format!("{}/somebody", capi_annotation::PRE_TERMINATE_HOOK);
                    machine.annotations_mut().insert(hook, String::new());
                }
                "kept" => {
                    machine.annotations_mut().insert(KEEP_HOST.to_owned(), "true".to_owned());
                }
                "windows" => {
                    machine.labels_mut().insert(label::OS.to_owned(), WINDOWS.to_owned());
                }
                _ => {}
            }
        }
        machine
    }

    #[test]
    fn only_a_machine_in_deletion_without_hooks_lets_its_server_be_wiped() {
        assert_eq!(owner(&machine("")), Owner::Staying);
        assert_eq!(owner(&machine("hooked")), Owner::Staying);
        assert_eq!(owner(&machine("deleting hooked")), Owner::Hooked);
        assert_eq!(owner(&machine("deleting")), Owner::Going);
    }

    #[test]
    fn a_server_stays_as_it_is_if_somebody_wants_that() {
        let object = CustomMachine::named("m");
        assert!(!is_kept(&object, &machine("")));
        assert!(is_kept(&object, &machine("kept")) && is_kept(&object, &machine("windows")));
        let mut marked = object.clone();
        marked.annotations_mut().insert(KEEP_HOST.to_owned(), "true".to_owned());
        assert!(is_kept(&marked, &machine("")));
    }
}
