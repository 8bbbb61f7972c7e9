//! How long one decision takes for a cluster of a thousand machines:
//! `cargo run --release -p remuda-planner --example thousand`.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use remuda_planner::plan;
use serde_json::json;

#[allow(dead_code, unreachable_pub)]
#[path = "../tests/it/world.rs"]
mod world;

/// As in the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let spec = json!({
        "machineGlobalConfig": {"cni": "calico", "kubelet-arg": ["max-pods=200"], "tls-san": ["demo.example.com"]},
        "machineSelectorConfig": [
            {"config": {"protect-kernel-defaults": true}},
            {"machineLabelSelector": {"matchLabels": {"rke.cattle.io/worker-role": "true"}}, "config": {"profile": "cis"}},
        ],
        "registries": {"mirrors": {"docker.io": {"endpoint": ["https://mirror.example.com"]}}},
        "upgradeStrategy": {"workerConcurrency": "10%"},
    });
    let mut machines = String::from("cp-0:ec cp-1:ec cp-2:ec");
    for at in 0..997 {
        machines += &format!(" worker-{at:04}:w");
    }
    let mut world = world::World::new("v1.35.1+rke2r1", spec, &machines);
    world.settle();
    time("settled", &world);
    world.edit(|spec| spec["additionalManifest"] = json!("kind: ConfigMap"));
    time("control planes change", &world);
    world.settle();
    world.edit(|spec| spec["machineSelectorConfig"][1]["config"]["profile"] = json!("none"));
    time("workers change", &world);
}

fn time(what: &str, world: &world::World) {
    let mut times: Vec<Duration> = (0..101)
        .map(|_| {
            let start = Instant::now();
            let output = plan(&world.input);
            assert!(output.machines.len() < 1001);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let output = plan(&world.input);
    println!(
        "{what}: best {:?}, median {:?}; {} writes; {}",
        times[0],
        times[50],
        output.writes.len(),
        output.outcome
    );
}
