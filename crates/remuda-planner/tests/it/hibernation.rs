//! Clusters whose machines are stopped and started again.

use remuda_names::provisioning::annotation::{HIBERNATE, HIBERNATE_WITHOUT_SNAPSHOT};
use remuda_planner::{
    driver::{Driver, DriverConfig},
    output::{Outcome, Waiting, Write},
    plan,
};

use serde_json::{Value, json};

use crate::world::World;

const K3S: &str = "v1.35.1+k3s1";

/// A settled cluster of servers and a worker, on machines of a driver.
fn world() -> World {
    let mut world = World::new(K3S, json!({}), "a:ec b:e c:c w:w");
    world.settle();
    for machine in &mut world.input.machines {
        machine.driver = driver("local", false);
    }
    world.settle();
    assert_eq!(plan(&world.input).outcome, Outcome::Settled);
    world
}

fn driver(name: &str, stopped: bool) -> Driver {
    Driver::Saved(DriverConfig { driver: name.to_owned(), stopped, ..DriverConfig::default() })
}

fn ask(world: &mut World, annotation: &str, value: &str) {
    world.input.control_plane.annotations.insert(annotation.to_owned(), value.to_owned());
}

/// Servers do as they are told. A machine that is off has no agent.
fn obey(world: &mut World) {
    for machine in &mut world.input.machines {
        let (stopped, running) = (machine.power == "stopped", machine.power == "running");
        if let Driver::Saved(config) = &mut machine.driver {
            config.stopped = stopped || (config.stopped && !running);
        }
    }
}

fn is_off(world: &World, name: &str) -> bool {
    matches!(&world.get(name).driver, Driver::Saved(config) if config.stopped)
}

/// Passes until it says the same twice, and what was written of power on the way.
fn run(world: &mut World, agents: bool) -> Vec<String> {
    let mut told = Vec::new();
    for _ in 0..60 {
        let before = world.input.clone();
        let output = world.step();
        told.extend(output.writes.iter().filter_map(|write| match write {
            Write::Power { .. } | Write::Pause | Write::Unpause | Write::Woken { .. } => {
                Some(write.to_string())
            }
            _ => None,
        }));
        obey(world);
        let names: Vec<String> = world.input.machines.iter().map(|machine| machine.name.clone()).collect();
        for name in names {
            if agents && !is_off(world, &name) {
                world.agent(&name);
            }
        }
        if world.input == before {
            return told;
        }
    }
    panic!("it does not end: {told:?}");
}

fn phase(world: &World) -> String {
    world.input.control_plane.status.hibernation.as_ref().map(|known| known.phase.clone()).unwrap_or_default()
}

const STOPS: [&str; 5] = [
    "cluster: pause",
    "w: stop its server",
    "c: stop its server",
    "a: stop its server",
    "b: stop its server",
];

#[test]
fn workers_go_first_and_etcd_comes_first_again() {
    let mut world = world();
    let plans = |world: &World| ["a", "b", "c", "w"].map(|name| world.plan_of(name));
    let before = plans(&world);
    ask(&mut world, HIBERNATE, "2026-01-01T00:00:00Z");
    let output = world.step();
    assert_eq!((phase(&world).as_str(), output.writes), ("Snapshot", vec![]), "it is kept before it is done");
    let output = world.step();
    assert_eq!(output.writes[0], Write::Pause);
    let plans_of_etcd: Vec<&str> = output.writes.iter().filter_map(Write::plan_machine).collect();
    assert_eq!(plans_of_etcd, ["a", "b"], "a snapshot of each member");
    assert_eq!(run(&mut world, true), STOPS[1..]);
    let output = plan(&world.input);
    assert!(matches!(output.outcome, Outcome::Waiting(Waiting::Hibernated { .. })), "{}", output.outcome);
    assert_eq!(output.writes, [], "nothing is written while it is stopped");
    assert!(world.input.cluster.as_ref().unwrap().paused);
    // Other operations wait: there is nothing they could reach.
    world.edit(|spec| spec["etcdSnapshotCreate"] = json!({"generation": 1}));
    assert_eq!(plan(&world.input).writes, []);
    world.edit(|spec| spec["etcdSnapshotCreate"] = Value::Null);

    ask(&mut world, HIBERNATE, "");
    // Agents are not there yet: it waits for those of servers, and says for whom.
    let told = run(&mut world, false);
    assert_eq!(told, ["a: start its server", "b: start its server", "c: start its server"]);
    assert_eq!(phase(&world), "ConfirmServers");
    let said = plan(&world.input).outcome.to_string();
    // A server that is only etcd has no probes in K3s.
    assert_eq!(said, "waking: waiting for servers to be healthy: a,c");
    assert!(plan(&world.input).look_again.is_some());
    let told = run(&mut world, true);
    assert_eq!(told, ["w: start its server", "cluster: unpause, its machines run again"]);
    assert_eq!(plan(&world.input).outcome, Outcome::Settled);
    assert_eq!(world.input.control_plane.status.hibernation, None);
    assert_eq!(plans(&world), before, "no plan is another one than before");
}

#[test]
fn a_snapshot_can_be_declined_and_one_that_fails_stops_nothing() {
    let mut declined = world();
    ask(&mut declined, HIBERNATE_WITHOUT_SNAPSHOT, "true");
    ask(&mut declined, HIBERNATE, "2026-01-01T00:00:00Z");
    assert_eq!(run(&mut declined, true), STOPS);
    assert!(declined.input.control_plane.status.hibernation.as_ref().unwrap().without_snapshot);

    for (asked, begins) in [("2026-01-01T00:00:00Z", "StopWorkers"), ("2026-01-02T00:00:00Z", "Snapshot")] {
        let mut once = world();
        ask(&mut once, HIBERNATE_WITHOUT_SNAPSHOT, "2026-01-01T00:00:00Z");
        ask(&mut once, HIBERNATE, asked);
        once.step();
        assert_eq!(phase(&once), begins, "it was declined for one request");
    }

    let mut failing = world();
    ask(&mut failing, HIBERNATE, "2026-01-01T00:00:00Z");
    failing.step();
    failing.step();
    failing.agents();
    let secret = failing.secret("b");
    let sum = remuda_plan::sha256_hex(&secret.data["plan"]);
    secret.data.insert("failed-checksum".to_owned(), sum.into_bytes());
    secret.data.insert("failure-count".to_owned(), b"3".to_vec());
    secret.data.remove("appliedPlan");
    let output = failing.step();
    assert_eq!(output.outcome.to_string(), "operation etcd snapshot on node b failed");
    assert_eq!(phase(&failing), "Failed");
    assert!(!failing.input.cluster.as_ref().unwrap().paused);
    let powers = |output: &remuda_planner::output::Output| {
        output.writes.iter().any(|write| matches!(write, Write::Power { .. }))
    };
    assert!(!powers(&plan(&failing.input)), "it is not tried again by itself");
    ask(&mut failing, HIBERNATE, "2026-01-01T01:00:00Z");
    failing.step();
    assert_eq!(phase(&failing), "Snapshot", "another request is another try");
}

#[test]
fn it_turns_back_wherever_it_is() {
    for stopped in 0..4 {
        let mut world = world();
        ask(&mut world, HIBERNATE_WITHOUT_SNAPSHOT, "true");
        ask(&mut world, HIBERNATE, "2026-01-01T00:00:00Z");
        world.step();
        for _ in 0..2 * stopped {
            world.step();
            obey(&mut world);
        }
        ask(&mut world, HIBERNATE, "");
        run(&mut world, true);
        assert_eq!(plan(&world.input).outcome, Outcome::Settled, "{stopped}");
        assert!(!world.input.cluster.as_ref().unwrap().paused);
        assert!(["a", "b", "c", "w"].iter().all(|name| !is_off(&world, name)));
    }
}

#[test]
fn a_machine_that_does_not_come_back_holds_the_others_up_for_a_while_only() {
    let mut world = world();
    ask(&mut world, HIBERNATE_WITHOUT_SNAPSHOT, "true");
    ask(&mut world, HIBERNATE, "2026-01-01T00:00:00Z");
    run(&mut world, true);
    ask(&mut world, HIBERNATE, "");
    run(&mut world, false);
    for name in ["a", "b"] {
        world.agent(name);
    }
    world.step();
    assert_eq!(plan(&world.input).outcome.to_string(), "waking: waiting for servers to be healthy: c");
    world.input.now = plan(&world.input).look_again.unwrap();
    world.step();
    assert_eq!(phase(&world), "StartWorkers");
}

#[test]
fn what_cannot_be_stopped_is_said_and_nothing_is_touched() {
    let mut custom = world();
    custom.get_mut("w").driver = Driver::None;
    ask(&mut custom, HIBERNATE, "2026-01-01T00:00:00Z");
    let said = "not hibernated: the server of machine w cannot be stopped and started by a driver";
    let output = custom.step();
    assert_eq!((output.outcome.to_string().as_str(), output.writes.len()), (said, 0));
    assert_eq!(custom.step().outcome, Outcome::Settled, "the cluster goes on");
    let mut generic = world();
    generic.get_mut("w").driver = driver("generic", false);
    ask(&mut generic, HIBERNATE, "2026-01-01T00:00:00Z");
    assert_eq!(generic.step().outcome.to_string(), said);
    // Something else is under way, or it is paused already.
    let mut paused = world();
    paused.input.cluster.as_mut().unwrap().paused = true;
    ask(&mut paused, HIBERNATE, "2026-01-01T00:00:00Z");
    paused.step();
    assert_eq!(phase(&paused), "");
}
