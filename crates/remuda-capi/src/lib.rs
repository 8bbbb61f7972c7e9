//! The controllers of Cluster API.
//!
//! Each controller observes through shared caches, asks `remuda-rollout` what to do, and does it. Objects of
//! providers are known only through their contract ([`providers`]); clusters that were made are reached only
//! through [`remuda_workload`], which answers at once whether or not they do.
//!
//! [`run`] runs them all. They speak to the API through a `kube::Client`, so they run on the embedded API
//! server and on any other.

mod cluster;
mod enqueue;
mod error;
mod health_check;
mod imprint;
mod ipam;
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

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::api::ApiResource;
use remuda_api::{
    addons::ClusterResourceSet,
    core::{Cluster, Machine, MachineDeployment, MachineHealthCheck, MachinePool, MachineSet},
    ipam::{GlobalInClusterIpPool, InClusterIpPool, IpAddressClaim},
};
use remuda_control::{Ctx, Informer, Informers, Named, Scope, run_all};
use remuda_workload::Workloads;
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
        prepare(informers);
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

/// Has the caches keep what the controllers need of Machines and MachineSets. Whoever shares `informers` with others
/// calls it before any of them asks for one of these kinds: a cache that is filled stays as it is.
pub fn prepare(informers: &Informers) {
    imprint::keep(informers);
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
        ApiResource::erase::<IpAddressClaim>(&()),
        ApiResource::erase::<InClusterIpPool>(&()),
        ApiResource::erase::<GlobalInClusterIpPool>(&()),
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
    let left = options.leave.clone();
    let capi = Capi::new(ctx, options, workloads);
    // Controllers are started here, one line each.
    let controllers: [Named; 8] = [
        ("Cluster", Box::pin(cluster::run(capi.clone(), stop.clone()))),
        ("ClusterResourceSet", Box::pin(resource_set::run(capi.clone(), stop.clone()))),
        ("IPAddressClaim", Box::pin(ipam::run(capi.clone(), stop.clone()))),
        ("MachinePool", Box::pin(pool::run(capi.clone(), stop.clone()))),
        ("Machine", Box::pin(machine::run(capi.clone(), stop.clone()))),
        ("MachineSet", Box::pin(machine_set::run(capi.clone(), stop.clone()))),
        ("MachineDeployment", Box::pin(machine_deployment::run(capi.clone(), stop.clone()))),
        ("MachineHealthCheck", Box::pin(health_check::run(capi, stop))),
    ];
    run_all(&left, controllers)
}
