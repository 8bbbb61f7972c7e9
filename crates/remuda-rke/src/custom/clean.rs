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
    rke::{CustomMachine, RkeControlPlane},
};
use remuda_control::{Next, ObjectKey, write::release};
use remuda_distro::Distro;
use remuda_names::{
    annotation::{KEEP_HOST, REMOVED_AT},
    capi::condition as capi_condition,
    rancher::{condition, finalizer, label, secret_type},
    removed,
};
use remuda_planner::farewell::{self, Gone, Places, Step, View};
use serde_json::json;

use crate::{Error, conditions::rfc3339, error::is_code, machines::plan_secret, objects, shared::Rke};

/// How soon a Secret that was just written is looked at again; a change of it wakes us before.
const AGAIN: Duration = Duration::from_secs(15);
const WINDOWS: &str = "windows";

/// Goes on with the removal of a server.
pub(super) async fn reconcile(rke: &Rke, key: &ObjectKey, object: &CustomMachine) -> Result<Next, Error> {
    if !object.finalizers().iter().any(|known| known == finalizer::HOST) {
        return Ok(Next::Done);
    }
    let owner = objects::owner(&object.metadata, "Machine");
    let machine = owner.and_then(|owner| rke.machines.get(&key.sibling(&owner.name)));
    let cluster = machine.as_ref().and_then(|machine| rke.cluster_of(machine));
    let control_plane = cluster.as_ref().and_then(|cluster| rke.control_plane_of(cluster));
    let bootstrap =
        machine.as_ref().and_then(|machine| objects::bootstrap_of(machine).map(objects::plan_name));
    let stored = bootstrap.and_then(|name| rke.plans.get(&key.sibling(&*name)));
    let secret = stored.as_ref().map(|stored| plan_secret(stored));
    let wanted = farewell::last_plan(&places(control_plane.as_deref()));
    let now = rke.ctx.clock.now();
    let step = farewell::decide(&View {
        deleted: object.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0),
        now,
        secret: secret.as_ref(),
        wanted: &wanted,
        away: machine.as_ref().is_some_and(|machine| is_away(machine)),
        kept: machine.as_ref().is_some_and(|machine| is_kept(machine)),
    });
    match (step, &stored, &secret) {
        (Step::Wait(left), ..) => Ok(Next::After(Duration::try_from(left).unwrap_or(AGAIN).min(AGAIN))),
        (Step::Deliver, Some(stored), Some(before)) => {
            let mut after = before.clone();
            farewell::write(&key.name, &before.name, wanted).apply(&mut after, now);
            let version = stored.resource_version().unwrap_or_default();
            let namespace = key.namespace.as_deref().unwrap_or_default();
            rke.write_plan(namespace, &version, before, &after).await?;
            tracing::info!(machine = %key, "server is told to remove what was installed on it");
            Ok(Next::After(AGAIN))
        }
        (step, ..) => {
            if let Step::Go(gone) = step {
                tell(key, gone);
            }
            let alive = cluster.as_ref().is_some_and(|cluster| !objects::is_deleting(&cluster.metadata));
            let id = object.labels().get(label::MACHINE_ID);
            if let (true, Some(control_plane), Some(id)) = (alive, &control_plane, id) {
                bury(rke, &control_plane.spec.management_cluster_name, &key.name, id, now).await?;
            }
            let api: Api<CustomMachine> = rke.api(key.namespace.as_deref().unwrap_or_default());
            release(&api, object, &(), finalizer::HOST).await?;
            Ok(Next::Done)
        }
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
fn is_kept(machine: &Machine) -> bool {
    let windows = machine.labels().get(label::OS).is_some_and(|os| os == WINDOWS);
    windows || machine.annotations().get(KEEP_HOST).is_some_and(|value| value == "true")
}

fn tell(key: &ObjectKey, gone: Gone) {
    if gone.is_left() {
        tracing::warn!(
            machine = %key,
            why = ?gone,
            "server goes as it is: run `remuda agent uninstall` on it before it is used for something else"
        );
    } else {
        tracing::info!(machine = %key, how = ?gone, "server removed");
    }
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
