//! What the planner sees of a cluster, for those who look for the reason of a decision.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;
use remuda_control::{Ctx, ObjectKey};
use remuda_distro::Current;
use remuda_planner::input::Input;
use remuda_workload::{Connect, Down, Workloads};

use crate::{Error, Options, control_plane, shared::Rke};

/// Reads what a decision about the control plane is made of, with the rights of `ctx`, and writes nothing. `None` if
/// there is no such control plane.
///
/// It waits for the caches of `ctx` as controllers do, without end where something may not be read.
pub async fn planner_input(
    ctx: Arc<Ctx>,
    releases: Current,
    key: &ObjectKey,
) -> Result<Option<Input>, Error> {
    let workloads = Workloads::new(ctx.clone(), remuda_workload::Options::default(), Arc::new(Nowhere));
    let rke = Rke::new(ctx, Options { releases, ..Options::default() }, workloads);
    rke.synced().await;
    control_plane::input(rke, key).await
}

/// Decisions need no way into the cluster.
struct Nowhere;

impl Connect for Nowhere {
    fn connect(&self, _: &ObjectKey) -> BoxFuture<'_, Result<Client, Down>> {
        Box::pin(async { Err(Down { why: "clusters are not asked for an input of the planner".to_owned() }) })
    }
}
