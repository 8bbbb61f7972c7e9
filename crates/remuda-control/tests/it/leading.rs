//! Handing over a lease.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use remuda_control::leases::{Elector, Leadership};
use tokio::{
    task::{AbortHandle, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::world::{World, until};

struct Candidate {
    leadership: Leadership,
    stop: CancellationToken,
    task: AbortHandle,
}

fn candidate(world: &World, tasks: &mut JoinSet<()>, identity: &str) -> Candidate {
    let ctx = world.ctx();
    let (clock, metrics) = (ctx.clock.clone(), ctx.metrics.clone());
    let elector = Elector::new(world.client(), "default", "controllers", identity, clock, metrics);
    let (leadership, stop) = (elector.leadership(), CancellationToken::new());
    let task = tasks.spawn(elector.run(stop.clone()));
    Candidate { leadership, stop, task }
}

async fn lease(world: &World) -> (String, i32) {
    let leases: Api<Lease> = Api::namespaced(world.client(), "default");
    let spec = leases.get("controllers").await.unwrap().spec.unwrap();
    (spec.holder_identity.unwrap_or_default(), spec.lease_transitions.unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn a_lease_given_back_is_taken_at_once() {
    let world = World::bare().await;
    let mut tasks = JoinSet::new();
    let first = candidate(&world, &mut tasks, "first");
    first.leadership.gained().await;
    let second = candidate(&world, &mut tasks, "second");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(first.leadership.is_ours() && !second.leadership.is_ours());
    assert_eq!(lease(&world).await, ("first".to_owned(), 0));
    let at = Instant::now();
    first.stop.cancel();
    second.leadership.gained().await;
    assert!(at.elapsed() <= Duration::from_secs(4), "took {:?}", at.elapsed());
    assert!(!first.leadership.is_ours());
    assert_eq!(lease(&world).await, ("second".to_owned(), 1));
    second.stop.cancel();
    tasks.join_all().await;
    assert_eq!(lease(&world).await.0, "");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_died_is_waited_for() {
    let world = World::bare().await;
    let mut tasks = JoinSet::new();
    let first = candidate(&world, &mut tasks, "first");
    first.leadership.gained().await;
    let second = candidate(&world, &mut tasks, "second");
    tokio::time::sleep(Duration::from_secs(60)).await;
    first.task.abort();
    let at = Instant::now();
    second.leadership.gained().await;
    assert!((13..=19).contains(&at.elapsed().as_secs()), "took {:?}", at.elapsed());
    assert!(!first.leadership.is_ours());
    second.stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_leader_cut_off_steps_down_before_another_steps_up() {
    let world = World::bare().await;
    let mut tasks = JoinSet::new();
    // Two wires to one lease: only the first candidate's is cut.
    let first = candidate(&world, &mut tasks, "first");
    first.leadership.gained().await;
    let second = candidate(&world, &mut tasks, "second");
    tokio::time::sleep(Duration::from_secs(30)).await;
    for _ in 0..3 {
        let both = Arc::new(std::sync::atomic::AtomicBool::new(false));
        world.hang(true);
        let at = Instant::now();
        let led_by_first = first.leadership.is_ours();
        let leader = if led_by_first { &first } else { &second };
        leader.leadership.lost().await;
        assert!((8..=12).contains(&at.elapsed().as_secs()), "led for {:?}", at.elapsed());
        world.hang(false);
        until("somebody leads", async || {
            let leaders = [&first, &second].map(|candidate| candidate.leadership.is_ours());
            both.fetch_or(leaders == [true, true], std::sync::atomic::Ordering::Relaxed);
            leaders != [false, false]
        })
        .await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(!both.load(std::sync::atomic::Ordering::Relaxed));
    }
    first.stop.cancel();
    second.stop.cancel();
    tasks.join_all().await;
}
