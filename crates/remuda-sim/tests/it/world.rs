//! A management API with the kinds of Cluster API and of the simulation, and the controllers of Cluster API.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;
use remuda_control::{Ctx, ObjectKey, clock::Clock};
use remuda_sim::{Contract, kinds, scenario::Controllers, workload::Workloads};
use remuda_testkit::time;
use remuda_workload::{Connect, Down};
use tokio_util::sync::CancellationToken;

/// The time in this test: it began at a round number.
pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(time::clock().unwrap_or_else(|| time::begin("2027-01-01T00:00:00Z".parse().unwrap())))
}

/// An API server that knows how kinds of Cluster API are converted.
pub(crate) async fn empty() -> remuda_testkit::World {
    clock();
    remuda_testkit::World::with(remuda_testkit::working_config).await
}

/// An API server with everything installed.
pub(crate) async fn world(contract: Contract) -> remuda_testkit::World {
    let api = empty().await;
    for definition in remuda_api::crd::all().chain(kinds::definitions(contract)) {
        api.define(definition).await;
    }
    api
}

/// The controllers of Cluster API.
pub(crate) struct Capi(pub(crate) Client);

impl Controllers for Capi {
    fn run(&self, workloads: Workloads, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let client = self.0.clone();
        Box::pin(async move {
            let ctx = Arc::new(Ctx::new(client, "remuda").with_clock(clock()));
            let connect = Arc::new(InProcess(workloads));
            let workloads = remuda_workload::Workloads::new(ctx.clone(), Default::default(), connect);
            let connections = remuda_workload::run(workloads.clone(), stop.clone());
            let options = remuda_capi::Options::default();
            tokio::join!(connections, remuda_capi::run(ctx.clone(), options, workloads, stop));
            ctx.stop().await;
        })
    }
}

/// The way to simulated clusters without a network.
struct InProcess(Workloads);

impl Connect for InProcess {
    fn connect(&self, cluster: &ObjectKey) -> BoxFuture<'_, Result<Client, Down>> {
        let found = self.0.get(cluster).map(|cluster| cluster.client());
        Box::pin(async move { found.ok_or_else(|| Down { why: "no such cluster".to_owned() }) })
    }
}
