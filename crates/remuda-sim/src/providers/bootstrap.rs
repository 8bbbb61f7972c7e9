//! `SimBootstrap`: what a server boots with.
//!
//! Reads   the SimBootstrap, its Machine and its Cluster.
//! Writes  one owned Secret, and the SimBootstrap's status.
//! Never   lets a worker boot before there is a control plane to join.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::PostParams};
use remuda_api::core::{Cluster, Machine};
use remuda_control::{
    Action, Controller, Error, drive, via_index,
    write::{merge_status, owner_reference},
};
use remuda_names::capi::{condition, label};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    BY_CLUSTER, Providers, api_error, cluster_label, control_plane_is_initialized, infrastructure_is_there,
    is_code, is_deleting, is_paused, key_of, pause_turned, say, say_paused,
};
use crate::{
    kinds::SimBootstrap,
    names::{GROUP, SECRET_TYPE},
};

pub(super) async fn run(providers: Arc<Providers>, stop: CancellationToken) {
    let controller = Controller::<SimBootstrap>::new("sim-bootstrap", &providers.ctx);
    let root = controller.root().clone();
    root.add_index(BY_CLUSTER, |object: &SimBootstrap| cluster_label(object));
    let controller = controller
        .workers(providers.options.workers)
        .watches(&providers.machines, |machine: &Machine| {
            let reference = &machine.spec.bootstrap.config_ref;
            let ours = reference.api_group == GROUP && reference.kind == "SimBootstrap";
            ours.then(|| key_of(machine).sibling(&reference.name)).into_iter().collect()
        })
        .watches(
            &providers.clusters,
            via_index(&root, BY_CLUSTER, |cluster: &Cluster| Some(key_of(cluster).to_string())),
        );
    drive(controller, reconcile, providers, stop).await;
}

async fn reconcile(object: Arc<SimBootstrap>, providers: Arc<Providers>) -> Result<Action, Error> {
    let api = providers.api::<SimBootstrap>(&*object);
    let now = providers.now();
    let Some((machine, cluster)) = providers.owning_machine(&*object) else {
        return Ok(Action::AwaitChange);
    };
    let mut status = object.status.clone().unwrap_or_default();
    let paused = is_paused(&*object, Some(&cluster));
    if paused || pause_turned(&status.conditions, paused) {
        say_paused(&mut status.conditions, &*object, now, paused);
        let written = merge_status(&providers.ctx, &api, &object, &status).await?;
        if paused || written.is_some() {
            return Ok(Action::AwaitChange);
        }
    }
    // The Secret goes with its owner: nothing of ours keeps the object.
    if is_deleting(&*object) || !status.data_secret_name.is_empty() {
        return Ok(Action::AwaitChange);
    }
    let control_plane = machine.labels().contains_key(label::CONTROL_PLANE);
    if !infrastructure_is_there(&cluster) || !(control_plane || control_plane_is_initialized(&cluster)) {
        return Ok(Action::AwaitChange);
    }
    if let Some(left) = providers.left(&*object, "bootstrap", &providers.options.latencies.bootstrap) {
        return Ok(Action::RequeueAfter(left));
    }
    let name = format!("{}-bootstrap", object.name_any());
    make_secret(&providers, &object, &machine, &name).await?;
    status.data_secret_name = name;
    if providers.is_old() {
        status.ready = true;
    } else {
        status.initialization.data_secret_created = Some(true);
    }
    say(&mut status.conditions, &*object, now, (condition::READY, true, "DataSecretCreated", ""));
    say_paused(&mut status.conditions, &*object, now, false);
    merge_status(&providers.ctx, &api, &object, &status).await?;
    providers.forget(&*object);
    Ok(Action::AwaitChange)
}

async fn make_secret(
    providers: &Providers,
    object: &SimBootstrap,
    machine: &Machine,
    name: &str,
) -> Result<(), Error> {
    let role = if machine.labels().contains_key(label::CONTROL_PLANE) { "server" } else { "agent" };
    let script = format!("#!/bin/sh\nexec simulate {role} --version {}\n", machine.spec.version);
    let mut secret = Secret { type_: Some(SECRET_TYPE.to_owned()), ..Secret::default() };
    secret.metadata.name = Some(name.to_owned());
    secret.metadata.labels =
        Some([(label::CLUSTER_NAME.to_owned(), machine.spec.cluster_name.clone())].into());
    secret.metadata.owner_references = Some(vec![owner_reference(object, &())?]);
    let text = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
    secret.data =
        Some([("value".to_owned(), text(&script)), ("format".to_owned(), text("cloud-config"))].into());
    let secrets: Api<Secret> = providers.api(object);
    match secrets.create(&PostParams::default(), &secret).await {
        Err(error) if is_code(&error, 409) => {
            // Ours from a reconcile that did not get further, unless it belongs to an object that is gone.
            let owner = json!({"metadata": {"ownerReferences": secret.metadata.owner_references}});
            let patch = kube::api::Patch::Merge(owner);
            let patched = secrets.patch(name, &Default::default(), &patch).await;
            patched.map(drop).map_err(|source| api_error("write", &secret, source))
        }
        created => created.map(drop).map_err(|source| api_error("create", &secret, source)),
    }
}
