//! The providers of K3s and RKE2 clusters: infrastructure, bootstrap and control plane.
//!
//! What a node is told is decided by [`remuda_planner`], a pure function; the controllers here read what it
//! looks at, write what it says, and do what it asks for around it: tokens and Secrets machines boot with,
//! drains, removals of etcd members, servers that register themselves.
//!
//! ```text
//! RKECluster       there is nothing to make; says so
//! RKEBootstrap     plan Secret, its account and rights; what a machine boots with; etcd before a machine goes
//! token Secrets    end when they were used
//! RKEControlPlane  plans of all machines of a cluster
//! plan Secrets     what agents report: applied plans, probes, failures; drains
//! agents           which of them stay away
//! Nodes            whose machine they are: addresses and provider ID
//! ETCDSnapshots    the snapshots a cluster lists; their files go with them
//! request Secrets  servers that register themselves become Machines
//! ```
//!
//! [`run`] runs them all. Clusters are reached through [`remuda_workload`] only.

pub mod agent_presence;
mod bootstrap;
mod bootstrap_token;
mod conditions;
mod control_plane;
mod custom;
pub mod debug;
mod drain;
mod error;
mod install;
mod machines;
mod mark;
mod node_lookup;
mod objects;
pub mod plan_account;
mod plan_secret;
mod plans;
mod referred;
mod rke_cluster;
pub mod settings;
mod shared;
mod snapshots;
mod stale_nodes;

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::api::ApiResource;
use remuda_api::rke::{CustomMachine, RkeBootstrap, RkeCluster, RkeControlPlane};
use remuda_control::{Ctx, Named, run_all};
use remuda_distro::Current;
use remuda_names::rancher::setting;
use remuda_workload::Workloads;
use tokio_util::sync::CancellationToken;

pub use self::error::Error;
use self::shared::Rke;

/// What of the controllers' behaviour is a choice.
#[derive(Clone)]
pub struct Options {
    /// How many objects of one kind are reconciled at once; never one object twice at once.
    pub workers: usize,
    /// What versions of the distributions take which arguments.
    pub releases: Current,
    /// Controllers that do not run here, such as `RKEControlPlane`.
    pub leave: Vec<&'static str>,
    /// Which agents are there, if this process sees all of them.
    pub presence: Option<agent_presence::Presence>,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 8, releases: Current::default(), leave: Vec::new(), presence: None }
    }
}

/// What the settings this reads are unless they are set.
pub fn setting_defaults() -> Vec<(&'static str, String)> {
    let mut defaults = bootstrap_token::setting_defaults().to_vec();
    defaults.push((setting::PRIME_DEFAULT, "false".to_owned()));
    defaults.push((setting::SYSTEM_DEFAULT_REGISTRY_PULL_SECRETS, String::new()));
    defaults
}

/// The kinds the controllers look after. While there is no object of any of them they have nothing to do.
pub fn kinds() -> Vec<ApiResource> {
    vec![
        ApiResource::erase::<RkeCluster>(&()),
        ApiResource::erase::<RkeControlPlane>(&()),
        ApiResource::erase::<RkeBootstrap>(&()),
        ApiResource::erase::<CustomMachine>(&()),
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
    let rke = Rke::new(ctx, options, workloads);
    // Controllers are started here, one line each.
    let controllers: [Named; 12] = [
        ("RKECluster", Box::pin(rke_cluster::run(rke.clone(), stop.clone()))),
        ("RKEBootstrap", Box::pin(bootstrap::run(rke.clone(), stop.clone()))),
        ("BootstrapToken", Box::pin(bootstrap_token::run(rke.clone(), stop.clone()))),
        ("RKEControlPlane", Box::pin(control_plane::run(rke.clone(), stop.clone()))),
        ("PlanSecret", Box::pin(plan_secret::run(rke.clone(), stop.clone()))),
        ("AgentPresence", Box::pin(agent_presence::run(rke.clone(), stop.clone()))),
        ("NodeLookup", Box::pin(node_lookup::run(rke.clone(), stop.clone()))),
        ("StaleNode", Box::pin(stale_nodes::run(rke.clone(), stop.clone()))),
        ("ETCDSnapshot", Box::pin(snapshots::run(rke.clone(), stop.clone()))),
        ("Drain", Box::pin(drain::run(rke.clone(), stop.clone()))),
        ("MachineRequest", Box::pin(custom::run(rke.clone(), stop.clone()))),
        ("CustomMachine", Box::pin(custom::run_machines(rke, stop))),
    ];
    run_all(&left, controllers)
}
