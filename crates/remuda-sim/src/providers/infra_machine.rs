//! `SimMachine`: a server.
//!
//! Reads   the SimMachine, its Machine and its Cluster.
//! Writes  the SimMachine: its finalizer, its provider id, its status; the server and its Node in the world.
//! Never   makes a server before there is bootstrap data to boot it with.

use std::{sync::Arc, time::Duration};

use kube::ResourceExt;
use remuda_api::core::{Cluster, Machine, MachineAddress};
use remuda_control::{
    Action, Controller, Error, drive, via_index,
    write::{merge_status, remove_finalizer},
};
use remuda_names::capi::{condition, label};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    BY_CLUSTER, Providers, cluster_label, infrastructure_is_there, is_deleting, is_paused, key_of,
    pause_turned, say, say_paused,
};
use crate::{
    dice::Latency,
    kinds::SimMachine,
    names::{FINALIZER, GROUP, PROVIDER_ID_PREFIX},
    workload::ServerPlan,
};

pub(super) async fn run(providers: Arc<Providers>, stop: CancellationToken) {
    let controller = Controller::<SimMachine>::new("sim-machine", &providers.ctx);
    let root = controller.root().clone();
    root.add_index(BY_CLUSTER, |object: &SimMachine| cluster_label(object));
    let controller = controller
        .workers(providers.options.workers)
        .watches(&providers.machines, |machine: &Machine| {
            let reference = &machine.spec.infrastructure_ref;
            let ours = reference.api_group == GROUP && reference.kind == "SimMachine";
            ours.then(|| key_of(machine).sibling(&reference.name)).into_iter().collect()
        })
        .watches(
            &providers.clusters,
            via_index(&root, BY_CLUSTER, |cluster: &Cluster| Some(key_of(cluster).to_string())),
        );
    drive(controller, reconcile, providers, stop).await;
}

async fn reconcile(object: Arc<SimMachine>, providers: Arc<Providers>) -> Result<Action, Error> {
    let api = providers.api::<SimMachine>(&*object);
    let now = providers.now();
    let owners = providers.owning_machine(&*object);
    let cluster = owners.as_ref().map(|(_, cluster)| cluster);
    let mut status = object.status.clone().unwrap_or_default();
    let paused = is_paused(&*object, cluster.map(|cluster| &**cluster));
    if paused || pause_turned(&status.conditions, paused) {
        say_paused(&mut status.conditions, &*object, now, paused);
        let written = merge_status(&providers.ctx, &api, &object, &status).await?;
        if paused || written.is_some() {
            return Ok(Action::AwaitChange);
        }
    }
    if is_deleting(&*object) {
        return delete(&object, &providers).await;
    }
    let Some((machine, cluster)) = owners else {
        return Ok(Action::AwaitChange);
    };
    if !infrastructure_is_there(&cluster) || machine.spec.bootstrap.data_secret_name.is_none() {
        return Ok(Action::AwaitChange);
    }
    let mut object = (*object).clone();
    let guarded = object.finalizers().iter().any(|known| known == FINALIZER);
    if !guarded || object.spec.provider_id.is_empty() {
        // The name of a server is known before there is one, so that whatever happens it can be found again.
        let provider_id = format!("{PROVIDER_ID_PREFIX}{}", key_of(&object));
        object = providers.patch(&object, json!({"spec": {"providerID": provider_id}}), true).await?;
    }
    let world = providers.workloads.ensure(&key_of(&*cluster));
    let provisioned = status.initialization.provisioned == Some(true) || status.ready;
    let plan = plan(&providers, &object, &machine);
    let name = object.name_any();
    let progress = if provisioned && !world.has_server(&name) {
        // The world was made anew under a server that exists.
        world.restore_server(&name, &plan)
    } else {
        world.advance_server(&name, &plan)
    };
    if progress.began_to_serve
        && let Some(enqueuer) = providers.control_planes.get()
    {
        enqueuer.enqueue(key_of(&*cluster).sibling(&cluster.spec.control_plane_ref.name));
    }
    if progress.made && !provisioned {
        if providers.is_old() {
            status.ready = true;
        } else {
            status.initialization.provisioned = Some(true);
        }
        let address =
            |kind: &str, address: &str| MachineAddress { kind: kind.to_owned(), address: address.to_owned() };
        status.addresses = vec![address("InternalIP", &plan.address), address("Hostname", &name)];
        status.failure_domain.clone_from(&machine.spec.failure_domain);
        (status.failure_reason, status.failure_message) = (None, None);
        say(&mut status.conditions, &object, now, (condition::READY, true, "Running", ""));
        say_paused(&mut status.conditions, &object, now, false);
        merge_status(&providers.ctx, &api, &object, &status).await?;
    } else if progress.failed && status.failure_reason.is_none() {
        let message = "the cloud could not make the server";
        status.failure_reason = Some("CreateError".to_owned());
        status.failure_message = Some(message.to_owned());
        say(&mut status.conditions, &object, now, (condition::READY, false, "CreateFailed", message));
        say_paused(&mut status.conditions, &object, now, false);
        merge_status(&providers.ctx, &api, &object, &status).await?;
    }
    Ok(progress.next.map_or(Action::AwaitChange, Action::RequeueAfter))
}

fn plan(providers: &Providers, object: &SimMachine, machine: &Machine) -> ServerPlan {
    let options = &providers.options;
    let step = |purpose: &str, latency: &Latency, failures: f64| -> Option<Duration> {
        let fails = providers.dice(object, &format!("{purpose} fails")).happens(failures);
        (!fails).then(|| latency.draw(&mut providers.dice(object, purpose)))
    };
    let mut dice = providers.dice(object, "address");
    ServerPlan {
        provider_id: object.spec.provider_id.clone(),
        control_plane: machine.labels().contains_key(label::CONTROL_PLANE),
        version: machine.spec.version.clone(),
        address: format!("10.{}.{}.{}", dice.below(256), dice.below(256), 1 + dice.below(254)),
        create: step("create", &options.latencies.create, options.failures.create),
        boot: step("boot", &options.latencies.boot, options.failures.boot),
        ready: step("ready", &options.latencies.ready, options.failures.ready),
    }
}

async fn delete(object: &SimMachine, providers: &Providers) -> Result<Action, Error> {
    if !object.finalizers().iter().any(|known| known == FINALIZER) {
        return Ok(Action::AwaitChange);
    }
    if let Some(left) = providers.left(object, "delete", &providers.options.latencies.delete) {
        return Ok(Action::RequeueAfter(left));
    }
    // By label, since Machine and Cluster may be gone before us.
    if let Some(name) = object.labels().get(label::CLUSTER_NAME)
        && let Some(world) = providers.workloads.get(&key_of(object).sibling(name))
    {
        world.remove_server(&object.name_any());
    }
    providers.forget(object);
    remove_finalizer(&providers.api::<SimMachine>(object), object, &(), FINALIZER).await?;
    Ok(Action::AwaitChange)
}
