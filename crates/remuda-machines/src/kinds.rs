//! Which kinds of machines there are: their controllers start and stop with their definitions.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    ResourceExt,
    core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta},
};
use remuda_control::{Ctx, Informer, Scope};
use remuda_names::{machines, rancher::group};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{Options, driver::kinds::Role, machine, seal::Seal};

type Definition = PartialObjectMeta<CustomResourceDefinition>;

/// The kind of machines a definition defines.
fn kind_of(definition: &Definition) -> Option<ApiResource> {
    let driver = definition.labels().get(machines::label::DRIVER)?;
    if definition.metadata.deletion_timestamp.is_some()
        || definition.name_any() != Role::Machine.crd_name(driver)
    {
        return None;
    }
    let kind = GroupVersionKind::gvk(group::MACHINE, "v1", &Role::Machine.kind(driver));
    Some(ApiResource::from_gvk_with_plural(&kind, &Role::Machine.plural(driver)))
}

/// Runs a controller for each kind there is, until told to stop.
pub(crate) async fn run(ctx: Arc<Ctx>, options: Arc<Options>, seal: Seal, stop: CancellationToken) {
    let definitions: Informer<Definition> = ctx.informers.metadata::<CustomResourceDefinition>(Scope::all());
    let (tell, mut told) = mpsc::channel::<()>(1);
    let _subscription = definitions.subscribe(move |_| {
        // One look sees all there is to see.
        let _ = tell.try_send(());
    });
    let mut running: BTreeMap<String, (ApiResource, CancellationToken)> = BTreeMap::new();
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
        running.retain(|kind, (resource, stop)| {
            let stays = kinds.contains_key(kind);
            if !stays {
                stop.cancel();
                ctx.informers.forget::<DynamicObject>(resource, &Scope::all());
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
                    resource.clone(),
                    own.clone(),
                ));
                (resource, own)
            });
        }
    }
    while tasks.join_next().await.is_some() {}
}
