//! Load on a server that runs the controllers, over TCP and in real time.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use remuda_control::Ctx;
use remuda_sim::{
    Contract,
    load::{After, LoadOptions, Stage, run_load},
};
use remuda_workload::KubeconfigSecret;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::world::world;

#[tokio::test]
async fn a_load_comes_is_measured_and_goes_without_a_trace() {
    let api = world(Contract::V1Beta2).await;
    let (ctx, stop) = (Arc::new(Ctx::new(api.client(), "remuda")), CancellationToken::new());
    let mut tasks = JoinSet::new();
    let connect = Arc::new(KubeconfigSecret::new(&ctx));
    let workloads = remuda_workload::Workloads::new(ctx.clone(), Default::default(), connect);
    tasks.spawn(remuda_workload::run(workloads.clone(), stop.clone()));
    tasks.spawn(remuda_capi::run(ctx.clone(), remuda_capi::Options::default(), workloads, stop.clone()));

    let stages = Arc::new(Mutex::new(Vec::new()));
    let told = stages.clone();
    let report = run_load(LoadOptions {
        clusters: 3,
        control_planes: 1,
        workers: 2,
        template_changes: 1,
        unreachable: 0.34,
        unreachable_for: Duration::from_secs(1),
        patience: Duration::from_secs(60),
        after: After::Delete,
        progress: Arc::new(move |progress| {
            let mut told = told.lock();
            if told.last() != Some(&progress.stage) {
                told.push(progress.stage);
            }
        }),
        ..LoadOptions::new(api.client())
    })
    .await
    .unwrap();
    assert_eq!((report.clusters, report.machines, report.unreachable), (3, 9, 1));
    assert_eq!((report.cluster.count, report.machine.count), (3, 9));
    assert!(report.provisioned_seconds >= report.cluster.max / 1e3 * 0.9);
    assert_eq!(report.template_change.unwrap().count, 1);
    assert_eq!(report.template_change_while_unreachable.unwrap().count, 1);
    assert_eq!(report.left_behind, Vec::<String>::new());
    assert!(report.workload_requests > 0 && report.store_writes > Some(50));
    let stages = stages.lock().clone();
    assert_eq!(stages.first(), Some(&Stage::Install));
    assert_eq!(stages.last(), Some(&Stage::Delete));

    stop.cancel();
    tasks.join_all().await;
    ctx.stop().await;
    api.down().await;
}
