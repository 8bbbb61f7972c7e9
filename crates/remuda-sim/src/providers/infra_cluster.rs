//! `SimCluster`: the infrastructure a cluster stands on.
//!
//! Reads   the SimCluster and its Cluster.
//! Writes  the SimCluster: its finalizer, its endpoint, its status.
//! Never   touches a Cluster.

use std::sync::Arc;

use kube::ResourceExt;
use remuda_api::core::Cluster;
use remuda_control::{
    Action, Controller, Error, drive,
    write::{merge_status, remove_finalizer},
};
use remuda_names::capi::condition;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Providers, is_deleting, is_paused, key_of, pause_turned, say, say_paused};
use crate::{
    kinds::SimCluster,
    names::{FINALIZER, GROUP},
};

/// Somebody else looks after an object with this annotation.
const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";

pub(super) async fn run(providers: Arc<Providers>, stop: CancellationToken) {
    let controller = Controller::<SimCluster>::new("sim-cluster", &providers.ctx)
        .workers(providers.options.workers)
        .watches(&providers.clusters, |cluster: &Cluster| {
            let reference = &cluster.spec.infrastructure_ref;
            let ours = reference.api_group == GROUP && reference.kind == "SimCluster";
            ours.then(|| key_of(cluster).sibling(&reference.name)).into_iter().collect()
        });
    drive(controller, reconcile, providers, stop).await;
}

async fn reconcile(object: Arc<SimCluster>, providers: Arc<Providers>) -> Result<Action, Error> {
    let api = providers.api::<SimCluster>(&*object);
    let now = providers.now();
    if object.annotations().contains_key(MANAGED_BY) {
        return Ok(Action::AwaitChange);
    }
    let cluster = providers.owning_cluster(&*object);
    let mut status = object.status.clone().unwrap_or_default();
    let paused = is_paused(&*object, cluster.as_deref());
    if paused || pause_turned(&status.conditions, paused) {
        say_paused(&mut status.conditions, &*object, now, paused);
        let written = merge_status(&providers.ctx, &api, &object, &status).await?;
        if paused || written.is_some() {
            return Ok(Action::AwaitChange);
        }
    }
    if is_deleting(&*object) {
        if !object.finalizers().iter().any(|known| known == FINALIZER) {
            return Ok(Action::AwaitChange);
        }
        if let Some(left) = providers.left(&*object, "delete", &providers.options.latencies.delete) {
            return Ok(Action::RequeueAfter(left));
        }
        // What the workload cluster is called follows from the owner, who may be gone before us.
        if let Some(owner) = super::owner(&*object, "Cluster") {
            providers.workloads.remove(&key_of(&*object).sibling(&owner.name));
        }
        providers.forget(&*object);
        remove_finalizer(&api, &*object, &(), FINALIZER).await?;
        return Ok(Action::AwaitChange);
    }
    let Some(cluster) = cluster else {
        return Ok(Action::AwaitChange);
    };
    let key = key_of(&*cluster);
    let guarded = object.finalizers().iter().any(|known| known == FINALIZER);
    if guarded && (status.initialization.provisioned == Some(true) || status.ready) {
        // After a restart of the simulation the world is empty.
        providers.workloads.ensure(&key);
        return Ok(Action::AwaitChange);
    }
    let mut object = (*object).clone();
    if !guarded || !object.spec.control_plane_endpoint.is_valid() {
        let (host, port) = providers.workloads.endpoint(&key);
        let mut patch = json!({});
        if !object.spec.control_plane_endpoint.is_valid() {
            patch["spec"]["controlPlaneEndpoint"] = json!({"host": host, "port": port});
        }
        object = providers.patch(&object, patch, true).await?;
    }
    if let Some(left) = providers.left(&object, "infrastructure", &providers.options.latencies.infrastructure)
    {
        return Ok(Action::RequeueAfter(left));
    }
    providers.workloads.ensure(&key);
    let domains = &object.spec.failure_domains;
    if providers.is_old() {
        status.ready = true;
        let domains: serde_json::Map<_, _> =
            domains.iter().map(|name| (name.clone(), json!({"controlPlane": true}))).collect();
        status.failure_domains = (!domains.is_empty()).then(|| domains.into());
    } else {
        status.initialization.provisioned = Some(true);
        let domains: Vec<_> =
            domains.iter().map(|name| json!({"name": name, "controlPlane": true})).collect();
        status.failure_domains = (!domains.is_empty()).then(|| domains.into());
    }
    say(&mut status.conditions, &object, now, (condition::READY, true, "Provisioned", ""));
    say_paused(&mut status.conditions, &object, now, false);
    merge_status(&providers.ctx, &api, &object, &status).await?;
    providers.forget(&object);
    Ok(Action::AwaitChange)
}
