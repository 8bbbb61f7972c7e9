//! The controllers of Cluster API.
//!
//! Each controller observes through shared caches, asks `remuda-rollout` what to do, and does it. Objects of
//! providers are known only through their contract ([`providers`]); clusters that were made are reached only
//! through [`remuda_workload`], which answers at once whether or not they do.
//!
//! [`run`] runs them all. They speak to the API through a `kube::Client`, so they run on the embedded API
//! server and on any other.

mod cluster;
mod error;
mod health_check;
mod imprint;
mod machine;
mod machine_deployment;
mod machine_set;
mod managed;
mod mark;
mod pending;
mod pool;
mod providers;
mod resource_set;
mod save;
mod view;
mod wake;

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::api::ApiResource;
use remuda_api::{
    addons::ClusterResourceSet,
    core::{Cluster, Machine, MachineDeployment, MachineHealthCheck, MachinePool, MachineSet},
};
use remuda_control::{Ctx, Informer, Scope};
use remuda_workload::Workloads;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::error::Error;
use self::{
    managed::{BY_CLUSTER, cluster_values},
    providers::Providers,
};

/// What of the controllers' behaviour is a choice.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many objects of one kind are reconciled at once.
    pub workers: usize,
    /// Kinds that somebody else reconciles, such as `Machine`.
    pub leave: Vec<&'static str>,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 8, leave: Vec::new() }
    }
}

/// What all controllers share. The caches are those of `ctx`.
pub(crate) struct Capi {
    pub(crate) ctx: Arc<Ctx>,
    pub(crate) options: Options,
    pub(crate) clusters: Informer<Cluster>,
    pub(crate) machines: Informer<Machine>,
    pub(crate) sets: Informer<MachineSet>,
    pub(crate) deployments: Informer<MachineDeployment>,
    pub(crate) pools: Informer<MachinePool>,
    pub(crate) providers: Providers,
    pub(crate) workloads: Workloads,
}

impl Capi {
    fn new(ctx: Arc<Ctx>, options: Options, workloads: Workloads) -> Arc<Self> {
        let informers = &ctx.informers;
        imprint::keep(informers);
        let capi = Self {
            clusters: informers.of(Scope::all()),
            machines: informers.of(Scope::all()),
            sets: informers.of(Scope::all()),
            deployments: informers.of(Scope::all()),
            pools: informers.of(Scope::all()),
            providers: Providers::new(&ctx),
            workloads,
            options,
            ctx,
        };
        capi.machines.add_index(BY_CLUSTER, cluster_values);
        capi.sets.add_index(BY_CLUSTER, cluster_values);
        capi.deployments.add_index(BY_CLUSTER, cluster_values);
        capi.pools.add_index(BY_CLUSTER, cluster_values);
        Arc::new(capi)
    }
}

/// The kinds the controllers look after. While there is no object of any of them they have nothing to do.
pub fn kinds() -> Vec<ApiResource> {
    vec![
        ApiResource::erase::<Cluster>(&()),
        ApiResource::erase::<Machine>(&()),
        ApiResource::erase::<MachineSet>(&()),
        ApiResource::erase::<MachineDeployment>(&()),
        ApiResource::erase::<MachineHealthCheck>(&()),
        ApiResource::erase::<MachinePool>(&()),
        ApiResource::erase::<ClusterResourceSet>(&()),
    ]
}

/// Runs all controllers until told to stop, and returns when their work has ended. The way to workload
/// clusters is kept by whoever made `workloads`.
pub fn run(
    ctx: Arc<Ctx>,
    options: Options,
    workloads: Workloads,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    // In a box, so that it is compiled here and not once in each program that uses it.
    Box::pin(run_all(ctx, options, workloads, stop))
}

async fn run_all(ctx: Arc<Ctx>, options: Options, workloads: Workloads, stop: CancellationToken) {
    let capi = Capi::new(ctx, options, workloads);
    let mut tasks = JoinSet::new();
    let left = capi.options.leave.clone();
    let mut start = |kind: &'static str, controller: BoxFuture<'static, ()>| {
        if !left.contains(&kind) {
            tasks.spawn(controller);
        }
    };
    // Controllers are started here, one line each.
    start("Cluster", Box::pin(cluster::run(capi.clone(), stop.clone())));
    start("ClusterResourceSet", Box::pin(resource_set::run(capi.clone(), stop.clone())));
    start("MachinePool", Box::pin(pool::run(capi.clone(), stop.clone())));
    start("Machine", Box::pin(machine::run(capi.clone(), stop.clone())));
    start("MachineSet", Box::pin(machine_set::run(capi.clone(), stop.clone())));
    start("MachineDeployment", Box::pin(machine_deployment::run(capi.clone(), stop.clone())));
    start("MachineHealthCheck", Box::pin(health_check::run(capi.clone(), stop.clone())));
    let _ = capi;
    while tasks.join_next().await.is_some() {}
}
