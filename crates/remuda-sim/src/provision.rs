//! Clusters people write, on servers that do not exist.
//!
//! Everything above the servers is real: provisioning, Cluster API, planner and gateway run in a server of
//! somebody else's. Here are, for each machine of a pool, what the driver leaves behind (`machine`: its record, its
//! addresses, that it is ready) and its node agent (`agent`), which applies plans by a model with latencies and
//! failures; and for each cluster an API ([`crate::workload`]) and its cluster agent (`tunnel`).
//!
//! * Machines register over HTTP at `/v3/connect/agent` with the token of their bootstrap script, as real ones do.
//!   Plans are then read and reported on through one watch with the rights of the simulation's own client, not
//!   through one connection for each agent with the rights of its plan account. What a pass does, and the bytes it
//!   reports, come from the code of the real agent.
//! * Cluster agents register at `/v3/connect/register` with the cluster's token. Everything the server wants of a
//!   cluster goes through that tunnel, over TLS.
//! * Jobs of drivers are left out: the kinds here have no NodeDriver, and no label that makes the machine
//!   provider look after them.

mod agent;
mod door;
mod error;
mod install;
pub mod kinds;
mod machine;
mod options;
mod record;
mod report;
mod shape;
mod steps;
mod tracker;
mod tunnel;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use remuda_api::core::{Cluster, Machine};
use remuda_control::{Ctx, Enqueuer, Informer, ObjectKey, Scope};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use self::{
    door::{BadServer, Door, ServerDoor},
    error::Error,
    install::install,
    options::ProvisionOptions,
    report::{ConfigChange, ProvisionReport},
    shape::Shape,
    steps::run_provision,
};
use crate::{
    dice::{Dice, Latency},
    options::Options,
    workload::Workloads,
};

/// What machines, node agents and cluster agents share.
pub(crate) struct Fleet {
    ctx: Arc<Ctx>,
    options: Options,
    workloads: Workloads,
    door: Arc<dyn Door>,
    clusters: Informer<Cluster>,
    machines: Informer<Machine>,
    /// When something that takes time began, by whose it is and what it is.
    begun: Mutex<HashMap<String, Timestamp>>,
    /// Servers with an API server, by cluster.
    control_planes: Mutex<HashMap<ObjectKey, BTreeSet<String>>>,
    /// Clusters are told when their API begins to answer.
    tunnels: OnceLock<Enqueuer>,
}

/// Plays servers and agents until told to stop, and returns when its work has ended. The kinds of [`install`] must be
/// there.
pub async fn run(
    ctx: Arc<Ctx>,
    options: Options,
    workloads: Workloads,
    door: Arc<dyn Door>,
    stop: CancellationToken,
) {
    let fleet = Arc::new(Fleet {
        clusters: ctx.informers.of(Scope::all()),
        machines: ctx.informers.of(Scope::all()),
        begun: Mutex::default(),
        control_planes: Mutex::default(),
        tunnels: OnceLock::new(),
        options,
        workloads,
        door,
        ctx,
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(tunnel::run(fleet.clone(), stop.clone()));
    tasks.spawn(agent::run(fleet.clone(), stop.clone()));
    tasks.spawn(machine::run(fleet, stop));
    while tasks.join_next().await.is_some() {}
}

impl Fleet {
    fn dice(&self, whose: &str, purpose: &str) -> Dice {
        Dice::new(self.options.seed, &[whose, purpose])
    }

    /// Whether something of this probability happens to somebody.
    fn happens(&self, whose: &str, purpose: &str, probability: f64) -> bool {
        self.dice(whose, purpose).happens(probability)
    }

    /// How much is left of something that takes time and began when it was first asked about.
    fn left(&self, whose: &str, purpose: &str, latency: &Latency) -> Option<Duration> {
        let takes = latency.draw(&mut self.dice(whose, purpose));
        if takes.is_zero() {
            return None;
        }
        let now = self.ctx.clock.now();
        let began = *self.begun.lock().entry(format!("{whose} {purpose}")).or_insert(now);
        let passed = Duration::try_from(now.duration_since(began)).unwrap_or_default();
        takes.checked_sub(passed).filter(|left| !left.is_zero())
    }

    /// Nothing of somebody's takes time any more.
    fn forget(&self, whose: &str) {
        let prefix = format!("{whose} ");
        self.begun.lock().retain(|known, _| !known.starts_with(&prefix));
    }

    /// Where a server is, whatever it is.
    fn address(&self, server: &ObjectKey) -> String {
        let mut dice = self.dice(&server.to_string(), "address");
        format!("10.{}.{}.{}", dice.below(256), dice.below(256), 1 + dice.below(254))
    }
}
