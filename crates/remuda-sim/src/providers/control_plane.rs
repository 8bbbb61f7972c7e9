//! `SimControlPlane`: control plane Machines, one by one.
//!
//! Reads   the SimControlPlane, its Cluster, its Machines and its machine template.
//! Writes  Machines with their SimMachine and SimBootstrap, the cluster's kubeconfig, its status, and whether its
//!         Machines are up to date.
//! Never   changes more than one Machine at a time.

mod decide;
mod make;
mod status;

use std::{collections::HashMap, sync::Arc};

use kube::{
    ResourceExt,
    api::{DeleteParams, Preconditions},
};
use parking_lot::Mutex;
use remuda_api::core::{Cluster, Machine};
use remuda_control::{
    Action, Controller, Error, drive,
    write::{controller_of, is_controlled_by, owner_reference, remove_finalizer, write_status},
};
use remuda_names::capi::label;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::decide::{Have, Step, next_step};
use super::{
    Providers, api_error, infrastructure_is_there, is_code, is_deleting, is_paused, key_of, pause_turned,
    say_paused,
};
use crate::{
    kinds::SimControlPlane,
    names::{FINALIZER, GROUP},
};

/// Files Machines under the control plane they are labelled with.
const BY_CONTROL_PLANE: &str = "sim-control-plane";

struct Shell {
    providers: Arc<Providers>,
    /// Kubeconfigs as they were last written, by the control plane's uid.
    kubeconfigs: Mutex<HashMap<String, String>>,
}

pub(super) async fn run(providers: Arc<Providers>, stop: CancellationToken) {
    providers.machines.add_index(BY_CONTROL_PLANE, |machine: &Machine| {
        let name = machine.labels().get(label::CONTROL_PLANE_NAME);
        name.map(|name| key_of(machine).sibling(name).to_string()).into_iter().collect()
    });
    let controller = Controller::<SimControlPlane>::new("sim-control-plane", &providers.ctx)
        .workers(providers.options.workers)
        .owns(&providers.machines)
        .watches(&providers.clusters, |cluster: &Cluster| {
            let reference = &cluster.spec.control_plane_ref;
            let ours = reference.api_group == GROUP && reference.kind == "SimControlPlane";
            ours.then(|| key_of(cluster).sibling(&reference.name)).into_iter().collect()
        });
    let _ = providers.control_planes.set(controller.enqueuer());
    let shell = Arc::new(Shell { providers, kubeconfigs: Mutex::default() });
    drive(controller, reconcile, shell, stop).await;
}

impl Shell {
    fn machines(&self, object: &SimControlPlane) -> Vec<Arc<Machine>> {
        let uid = object.uid().unwrap_or_default();
        let mut machines = self.labelled(object);
        machines.retain(|machine| is_controlled_by(&machine.metadata, &uid));
        machines
    }

    fn labelled(&self, object: &SimControlPlane) -> Vec<Arc<Machine>> {
        self.providers.machines.by_index(BY_CONTROL_PLANE, &key_of(object).to_string())
    }

    /// Takes in Machines of ours that nobody controls. Whether there were any: their new state is on its way.
    async fn adopt(&self, object: &SimControlPlane) -> Result<bool, Error> {
        let owner = owner_reference(object, &())?;
        let mut adopted = false;
        for machine in self.labelled(object) {
            if controller_of(&machine.metadata).is_some() || is_deleting(&*machine) {
                continue;
            }
            let mut owners = machine.owner_references().to_vec();
            owners.retain(|known| known.uid != owner.uid);
            owners.push(owner.clone());
            let metadata = json!({"ownerReferences": owners});
            self.providers.patch(&*machine, json!({"metadata": metadata}), false).await?;
            adopted = true;
        }
        Ok(adopted)
    }
}

async fn reconcile(object: Arc<SimControlPlane>, shell: Arc<Shell>) -> Result<Action, Error> {
    let providers = &shell.providers;
    let api = providers.api::<SimControlPlane>(&*object);
    let now = providers.now();
    let cluster = providers.owning_cluster(&*object);
    let mut status = object.status.clone().unwrap_or_default();
    let paused = is_paused(&*object, cluster.as_deref());
    if paused || pause_turned(&status.conditions, paused) {
        say_paused(&mut status.conditions, &*object, now, paused);
        let written = write_status(&providers.ctx, &api, &object, &status).await?;
        if paused || written.is_some() {
            return Ok(Action::AwaitChange);
        }
    }
    if is_deleting(&*object) {
        return delete(&object, &shell).await;
    }
    let Some(cluster) = cluster else {
        return Ok(Action::AwaitChange);
    };
    let mut object = (*object).clone();
    if !object.finalizers().iter().any(|known| known == FINALIZER) {
        object = providers.patch(&object, json!({}), true).await?;
    }
    if !infrastructure_is_there(&cluster) || !cluster.spec.control_plane_endpoint.is_valid() {
        return Ok(Action::AwaitChange);
    }
    let world = providers.workloads.ensure(&key_of(&*cluster));
    let wanted = object.spec.replicas.unwrap_or(1).max(0);
    world.set_external(wanted == 0);
    make::kubeconfig(&shell, &object, &cluster).await?;

    if shell.adopt(&object).await? {
        return Ok(Action::AwaitChange);
    }
    let machines = shell.machines(&object);
    let have: Vec<Have> = machines.iter().map(|machine| Have::of(machine, &object)).collect();
    let initialized = status::is_initialized(&status) || world.is_serving();
    status::fill(&mut status, &object, &machines, &have, initialized, providers);
    write_status(&providers.ctx, &api, &object, &status).await?;
    for (machine, have) in machines.iter().zip(&have) {
        status::mark_up_to_date(providers, machine, have.up_to_date).await?;
    }
    match next_step(usize::try_from(wanted).unwrap_or(0), initialized, &have) {
        Step::Rest => {}
        Step::Create(ordinal) => make::machine(&shell, &object, &cluster, &machines, ordinal).await?,
        Step::Delete(name) => {
            if let Some(machine) = machines.iter().find(|machine| machine.name_any() == name) {
                delete_machine(providers, machine).await?;
            }
        }
    }
    Ok(Action::AwaitChange)
}

async fn delete_machine(providers: &Providers, machine: &Machine) -> Result<(), Error> {
    let preconditions = Preconditions { uid: machine.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let deleted = providers.api::<Machine>(machine).delete(&machine.name_any(), &params).await;
    match deleted {
        Err(error) if is_code(&error, 404) || is_code(&error, 409) => Ok(()),
        deleted => deleted.map(drop).map_err(|source| api_error("delete", machine, source)),
    }
}

/// Machines first. The kubeconfig goes with its owner.
async fn delete(object: &SimControlPlane, shell: &Shell) -> Result<Action, Error> {
    let providers = &shell.providers;
    if !object.finalizers().iter().any(|known| known == FINALIZER) {
        return Ok(Action::AwaitChange);
    }
    let machines = shell.machines(object);
    for machine in machines.iter().filter(|machine| !is_deleting(&***machine)) {
        delete_machine(providers, machine).await?;
    }
    if !machines.is_empty() {
        return Ok(Action::AwaitChange);
    }
    shell.kubeconfigs.lock().remove(&object.uid().unwrap_or_default());
    remove_finalizer(&providers.api::<SimControlPlane>(object), object, &(), FINALIZER).await?;
    Ok(Action::AwaitChange)
}
