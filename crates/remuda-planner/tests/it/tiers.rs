//! Who gets a plan now, and who waits.

use remuda_names::rancher::annotation;

use remuda_planner::{
    driver::{Driver, DriverConfig},
    input::Summary,
    output::{Outcome, Output, Verdict, Write},
    reason::Reason,
};
use serde_json::{Value, json};

use crate::world::World;

const K3S: &str = "v1.35.1+k3s1";

fn settled(spec: Value, machines: &str) -> World {
    let mut world = World::new(K3S, spec, machines);
    world.settle();
    world
}

fn bump(world: &mut World) {
    world.edit(|spec| {
        let generation = spec["provisionGeneration"].as_i64().unwrap_or(0);
        spec["provisionGeneration"] = json!(generation + 1);
    });
}

fn plans(output: &Output) -> Vec<&str> {
    let plans = output.writes.iter().filter_map(|write| match write {
        Write::Plan(plan) => Some(plan.machine.as_str()),
        _ => None,
    });
    plans.collect()
}

fn data(world: &mut World, name: &str, key: &str) -> String {
    world
        .secret(name)
        .data
        .get(key)
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .unwrap_or_default()
}

#[test]
fn workers_change_by_their_concurrency() {
    for (concurrency, expected) in [("", 1), ("2", 2), ("0", 5), ("50%", 3), ("100%", 5)] {
        let spec = json!({"upgradeStrategy": {"workerConcurrency": concurrency}});
        let mut world = settled(spec, "a:ec w1:w w2:w w3:w w4:w w5:w");
        bump(&mut world);
        world.step();
        world.agent("a");
        world.step();
        let output = world.step();
        assert_eq!(plans(&output).len(), expected, "{concurrency}: {}", output.outcome);
    }
}

#[test]
fn a_concurrency_nobody_can_read_is_an_error() {
    let mut world = settled(json!({}), "a:ecw b:ec");
    world.edit(|spec| spec["upgradeStrategy"] = json!({"controlPlaneConcurrency": "some"}));
    let output = world.step();
    assert_eq!(output.outcome.to_string(), "concurrency must be a number or a percentage: \"some\"");
}

#[test]
fn one_machine_holds_up_the_next_and_says_so() {
    let mut world = settled(json!({}), "a:ec w1:w w2:w");
    bump(&mut world);
    world.step();
    world.agent("a");
    world.step();
    world.step();
    let output = world.step();
    assert_eq!(plans(&output), Vec::<&str>::new());
    assert_eq!(output.machines["w2"].verdict, Verdict::Hold { unavailable: 1, limit: 1 });
    assert_eq!(output.outcome.to_string(), "configuring worker node(s) w1,w2");
}

#[test]
fn a_plan_nobody_has_applied_can_be_corrected() {
    let mut world = settled(json!({}), "a:ec w1:w w2:w");
    bump(&mut world);
    world.step();
    assert!(world.pending("a"));
    bump(&mut world);
    assert_eq!(plans(&world.step()), ["a"]);
}

#[test]
fn a_failed_plan_is_reported_and_can_be_replaced_at_once() {
    let mut world = settled(json!({}), "a:ec w1:w w2:w");
    bump(&mut world);
    world.step();
    world.agent("a");
    world.step();
    world.step();
    let plan = world.secret("w1").data["plan"].clone();
    let hash = remuda_plan::sha256_hex(&plan);
    let secret = world.secret("w1");
    secret.data.insert("failure-count".to_owned(), b"1".to_vec());
    secret.data.insert("failed-checksum".to_owned(), hash.into_bytes());
    let output = world.step();
    assert_eq!(output.machines["w1"].reasons, [Reason::PlanFailed]);
    world.edit(|spec| {
        spec["machineSelectorConfig"] = json!([{
            "machineLabelSelector": {"matchLabels": {"rke.cattle.io/worker-role": "true"}},
            "config": {"debug": true},
        }]);
    });
    assert_eq!(plans(&world.step()), ["w1"]);
}

#[test]
fn a_delivered_plan_resets_what_was_said_about_the_last() {
    let mut world = settled(json!({}), "a:ecw");
    world.secret("a").data.insert("plan-state".to_owned(), b"succeeded".to_vec());
    bump(&mut world);
    world.step();
    assert_eq!(data(&mut world, "a", "max-failures"), "-1");
    assert_eq!(data(&mut world, "a", "failure-threshold"), "1");
    assert_eq!(data(&mut world, "a", "probe-statuses"), "");
    assert_eq!(data(&mut world, "a", "plan-state"), "");
    let annotations = &world.secret("a").annotations;
    assert_eq!(annotations[annotation::PLAN_PROBES_PASSED], "");
    assert_eq!(annotations[annotation::JOINED_TO], "");
    assert!(annotations[annotation::PLAN_LAST_UPDATED].starts_with("2026-"));
}

#[test]
fn windows_workers_come_last_and_may_fail_more_often() {
    let mut world = settled(json!({}), "a:ec v:W w:w");
    assert_eq!(data(&mut world, "w", "failure-threshold"), "1");
    assert_eq!(data(&mut world, "v", "failure-threshold"), "5");
}

#[test]
fn unhealthy_probes_are_named() {
    let mut world = settled(json!({}), "a:ecw");
    let statuses = b"{\"kubelet\":{},\"kube-apiserver\":{\"failureCount\":2},\"x\":{\"healthy\":true}}";
    world.secret("a").data.insert("probe-statuses".to_owned(), statuses.to_vec());
    let output = world.step();
    assert_eq!(
        output.outcome.to_string(),
        "configuring bootstrap node(s) a: waiting for probes: kube-apiserver, kubelet"
    );
}

#[test]
fn a_kubelet_of_another_version_is_waited_for() {
    let mut world = settled(json!({}), "a:ecw");
    world.get_mut("a").kubelet_version = Some("v1.34.9+k3s1".to_owned());
    let text = world.step().outcome.to_string();
    assert_eq!(text, "configuring bootstrap node(s) a: waiting for kubelet to update");
    world.get_mut("a").kubelet_version = Some("v1.35.1+k3s2".to_owned());
    world.step();
    assert_eq!(world.step().outcome, Outcome::Settled);
}

#[test]
fn control_planes_wait_for_the_cluster_agent() {
    let mut world = settled(json!({}), "a:ecw");
    world.input.control_plane.status.agent_connected = false;
    let text = world.step().outcome.to_string();
    assert_eq!(text, "configuring bootstrap node(s) a: waiting for cluster agent to connect");
}

#[test]
fn a_server_still_being_made_suspends_its_own_tier_only() {
    let mut world = settled(json!({}), "a:ec w1:w");
    world.add("b", "ec");
    world.get_mut("b").infrastructure_ready = false;
    world.get_mut("b").driver = Driver::Unsaved;
    world.add("w2", "w");
    let output = world.step();
    assert_eq!(plans(&output), ["w2"]);
    world.agent("w2");
    world.step();
    world.step();
    let output = world.step();
    let text = "waiting for machine fleet-default/b driver config to be saved";
    assert_eq!(output.outcome.to_string(), text);
    // Saved, but without any address yet.
    world.get_mut("b").driver =
        Driver::Saved(DriverConfig { driver: "x".to_owned(), ..DriverConfig::default() });
    assert_eq!(world.step().outcome.to_string(), text);
    world.get_mut("b").infrastructure_ready = true;
    assert_eq!(plans(&world.step()), ["b"]);
}

#[test]
fn bad_conditions_of_a_machine_are_told_but_hold_nobody_up() {
    let mut world = settled(json!({}), "a:ec b:ec w:w");
    let conditions = [("InfrastructureReady", "False", "CreateError", "no quota")];
    world.get_mut("b").summary = Summary::of(conditions);
    world.get_mut("b").reconciled.as_mut().unwrap().is_true = true;
    world.add("w2", "w");
    let output = world.step();
    assert_eq!(plans(&output), ["w2"]);
    world.agent("w2");
    world.step();
    world.step();
    assert_eq!(world.step().outcome.to_string(), "failing etcd machine(s) b: no quota");
}

#[test]
fn a_drain_error_is_shown_until_it_is_over() {
    let drain = json!({"upgradeStrategy": {"workerDrainOptions": {"enabled": true}}});
    let mut world = settled(drain, "a:ec w:w");
    bump(&mut world);
    world.step();
    world.agent("a");
    world.step();
    world.step();
    world.secret("w").annotations.insert(annotation::DRAIN_ERROR.to_owned(), "cannot evict".to_owned());
    let output = world.step();
    assert_eq!(
        output.outcome.to_string(),
        "draining worker node(s) w: error draining machine w: cannot evict"
    );
    assert_eq!(output.machines["w"].verdict, Verdict::Draining);
    world.secret("w").annotations.remove(annotation::DRAIN_ERROR);
    world.settle();
}

#[test]
fn etcd_members_change_one_by_one_whatever_the_concurrency() {
    let spec = json!({"upgradeStrategy": {"controlPlaneConcurrency": "0"}});
    let mut world = settled(spec, "a:ec b:ec c:ec w:w");
    bump(&mut world);
    for _ in 0..40 {
        let output = world.step();
        assert!(plans(&output).len() <= 1);
        let pending: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| world.pending(name)).collect();
        assert!(pending.len() <= 1, "{pending:?}");
        if output.outcome == Outcome::Settled {
            break;
        }
        if output.writes.is_empty() {
            world.agents();
        }
    }
}

#[test]
fn the_init_node_is_not_restarted_while_another_member_is_down() {
    let mut world = settled(json!({}), "a:ec b:ec c:ec w:w");
    world.get_mut("c").node_healthy = Some(false);
    bump(&mut world);
    let output = world.step();
    assert!(!plans(&output).contains(&"a"));
    assert!(matches!(output.machines["a"].verdict, Verdict::Quorum(_)));
    world.get_mut("c").node_healthy = Some(true);
    world.settle();
}

#[test]
fn a_member_that_is_down_gets_its_cure_although_the_init_node_is_held() {
    let mut world = settled(json!({}), "a:ec b:ec c:ec w:w");
    let statuses = b"{\"kube-apiserver\":{\"failureCount\":5}}";
    world.secret("c").data.insert("probe-statuses".to_owned(), statuses.to_vec());
    bump(&mut world);
    let output = world.step();
    assert_eq!(plans(&output), ["c"]);
    assert!(output.outcome.to_string().starts_with("configuring bootstrap node(s) a: waiting for etcd: "));
    world.agent("c");
    assert_eq!(plans(&world.step()), ["a"]);
    world.settle();
}

#[test]
fn asking_twice_gives_the_same_answer() {
    let mut world = World::new(K3S, json!({}), "a:ec b:ec w:w");
    for _ in 0..30 {
        let first = remuda_planner::plan(&world.input);
        assert_eq!(first, remuda_planner::plan(&world.input));
        world.carry_out(&first);
        world.agents();
    }
}

#[test]
fn machines_without_a_plan_secret_have_no_role() {
    let mut world = World::new(K3S, json!({}), "a:ecw");
    world.get_mut("a").plan_secret = None;
    let text = world.step().outcome.to_string();
    assert_eq!(text, "waiting for at least one control plane, etcd, and worker node to be registered");
}

#[test]
fn a_damaged_plan_is_replaced() {
    let mut world = settled(json!({}), "a:ecw");
    let secret = world.secret("a");
    secret.data.insert("plan".to_owned(), b"{damaged".to_vec());
    assert_eq!(plans(&world.step()), ["a"]);
    world.settle();
}
