//! Which kinds of machines there are: their controllers start and stop with their definitions.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    ResourceExt,
    core::{ApiResource, PartialObjectMeta},
};
use remuda_control::{Ctx, Informer, Scope};
use remuda_names::machines;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{Options, driver::kinds::Role, host::Host, machine, seal::Seal};

type Definition = PartialObjectMeta<CustomResourceDefinition>;

/// The kind of machines a definition defines.
fn kind_of(definition: &Definition) -> Option<ApiResource> {
    let driver = definition.labels().get(machines::label::DRIVER)?;
    // A definition that is being deleted stays until the last of its machines has lost its finalizer.
    if definition.name_any() != Role::Machine.crd_name(driver) {
        return None;
    }
    Some(Role::Machine.resource(driver))
}

/// Runs a controller for each kind there is, until told to stop.
pub(crate) async fn run(
    ctx: Arc<Ctx>,
    options: Arc<Options>,
    seal: Seal,
    host: Option<Arc<Host>>,
    stop: CancellationToken,
) {
    let definitions: Informer<Definition> = ctx.informers.metadata::<CustomResourceDefinition>(Scope::all());
    let (tell, mut told) = mpsc::channel::<()>(1);
    let _subscription = definitions.subscribe(move |_| {
        // One look sees all there is to see.
        let _ = tell.try_send(());
    });
    let mut running: BTreeMap<String, CancellationToken> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            told = told.recv() => if told.is_none() { break },
        }
        let kinds: BTreeMap<String, ApiResource> = definitions
            .list()
            .iter()
            .filter_map(|definition| kind_of(definition))
            .map(|kind| (kind.kind.clone(), kind))
            .collect();
        running.retain(|kind, stop| {
            let stays = kinds.contains_key(kind);
            if !stays {
                stop.cancel();
                tracing::info!(kind, "machines of a kind are no longer looked after");
            }
            stays
        });
        for (kind, resource) in kinds {
            running.entry(kind).or_insert_with_key(|kind| {
                tracing::info!(kind, "machines of a kind are looked after");
                let own = stop.child_token();
                tasks.spawn(machine::run(
                    ctx.clone(),
                    options.clone(),
                    seal.clone(),
                    host.clone(),
                    resource,
                    own.clone(),
                ));
                own
            });
        }
    }
    while tasks.join_next().await.is_some() {}
}
