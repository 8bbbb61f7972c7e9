//! What stops a pass before any machine is looked at, in order.

use remuda_distro::Facts;
use remuda_planner::{
    input::{Input, StateSecret},
    output::{Outcome, Write},
    phase::Phase,
    plan,
    spec::ConditionStatus,
};
use serde_json::json;

use crate::world::{World, base, machine};

const K3S: &str = "v1.35.1+k3s1";

fn sane() -> Input {
    let mut input = base(K3S, json!({}));
    input.machines = vec![machine("a", "ecw")];
    input
}

#[track_caller]
fn check(input: &Input, expected: &str) {
    assert_eq!(plan(input).outcome.to_string(), expected);
}

#[test]
fn the_conditions_capi_needs_come_first() {
    let mut input = sane();
    input.control_plane.status.conditions.pop();
    let output = plan(&input);
    assert_eq!(output.outcome.to_string(), "adding conditions");
    assert_eq!(output.status.conditions.len(), 3);
    assert!(output.writes.is_empty());
}

#[test]
fn each_gate_says_what_it_waits_for() {
    let mut input = sane();
    input.cluster.as_mut().unwrap().infrastructure_provisioned = false;
    check(&input, "waiting for infrastructure ready");
    input.cluster = None;
    check(&input, "CAPI cluster does not exist");
    input.release = Facts::default();
    check(&input, "fleet-default/demo: KDM release data is empty for v1.35.1+k3s1");
    input.control_plane.spec.kubernetes_version = "latest".to_owned();
    let output = plan(&input);
    assert!(matches!(output.outcome, Outcome::Failed(_)));
    let text = output.outcome.to_string();
    assert!(
        text.starts_with("rkecluster fleet-default/demo: error semver parsing kubernetes version latest: ")
    );
    let ready = output.status.condition("Ready").unwrap();
    assert_eq!((ready.status, ready.reason.as_str()), (ConditionStatus::False, "Error"));
    assert_eq!(ready.message, text);
    input.control_plane.deleting = true;
    let output = plan(&input);
    assert_eq!((output.outcome, output.status), (Outcome::Stopped, input.control_plane.status.clone()));
}

#[test]
fn a_deleting_cluster_is_unpaused_and_left_alone() {
    let mut input = sane();
    let cluster = input.cluster.as_mut().unwrap();
    cluster.deleting = true;
    assert_eq!(plan(&input).writes, []);
    input.cluster.as_mut().unwrap().paused = true;
    let output = plan(&input);
    assert_eq!((output.outcome, output.writes), (Outcome::Stopped, vec![Write::Unpause]));
}

#[test]
fn every_role_is_needed() {
    let mut input = sane();
    for roles in ["", "ec", "cw", "ew"] {
        input.machines = vec![machine("a", roles)];
        check(&input, "waiting for at least one control plane, etcd, and worker node to be registered");
    }
    let output = plan(&input);
    assert_eq!(output.writes, [Write::ClusterNotInitialized]);
    assert_eq!(output.status.condition("Stable").unwrap().status, ConditionStatus::False);
    input.control_plane.status.initialization.control_plane_initialized = Some(true);
    let output = plan(&input);
    assert_eq!(output.outcome.to_string(), "uninitializing rkecontrolplane fleet-default/demo");
    assert_eq!(output.status.initialization.control_plane_initialized, Some(false));
}

#[test]
fn machines_that_never_ran_are_let_go_at_once() {
    let mut input = sane();
    input.machines[0].deleting = true;
    let output = plan(&input);
    assert_eq!(output.outcome.to_string(), "waiting for all etcd machines to be deleted");
    assert!(output.writes.contains(&Write::ForceRemove { machine: "a".to_owned() }));
}

#[test]
fn the_last_members_are_not_given_up_without_a_word() {
    let mut world = World::new(K3S, json!({}), "a:ecw b:ecw");
    world.settle();
    world.delete("a");
    world.delete("b");
    world.step();
    let output = world.step();
    assert_eq!(
        output.outcome.to_string(),
        "all etcd machines are being deleted, and with the last of a,b the data of the cluster; set annotation \
         rke.cattle.io/etcd-force-remove=true on their RKEBootstraps to go on"
    );
    assert!(!output.writes.iter().any(|write| matches!(write, Write::ForceRemove { .. })));
}

#[test]
fn an_etcd_machine_is_not_forced_out_because_a_worker_is_missing() {
    let mut world = World::new(K3S, json!({}), "a:ec b:ec c:ec w:w");
    world.settle();
    world.delete("w");
    world.delete("c");
    world.step();
    let output = world.step();
    let text = output.outcome.to_string();
    assert_eq!(text, "waiting for at least one control plane, etcd, and worker node to be registered");
    assert!(!output.writes.iter().any(|write| matches!(write, Write::ForceRemove { .. })));
}

#[test]
fn tokens_are_made_once_and_never_again() {
    let mut input = sane();
    assert!(matches!(&plan(&input).writes[0], Write::CreateState { name, .. } if name == "demo-rke-state"));
    input.machines[0].plan_secret.as_mut().unwrap().data.insert("plan".to_owned(), b"{}".to_vec());
    check(&input, "newCluster was false and secret does not exist: fleet-default/demo-rke-state");
    input.state = StateSecret::WrongType("Opaque".to_owned());
    check(
        &input,
        "secret fleet-default/demo-rke-state type Opaque did not match expected type rke.cattle.io/cluster-state",
    );
}

#[test]
fn operations_come_before_the_pause() {
    let mut world = World::new(K3S, json!({}), "a:ecw");
    world.settle();
    world.input.cluster.as_mut().unwrap().paused = true;
    check(&world.input, "CAPI cluster or RKEControlPlane is paused");
    world.edit(|stored| stored["rotateCertificates"] = json!({"generation": 1}));
    check(&world.input, "starting [a] certificate rotation");
}

#[test]
fn operations_that_were_finished_elsewhere_are_nothing_to_do() {
    let mut world = World::new(
        K3S,
        json!({
            "etcdSnapshotCreate": {"generation": 2},
            "etcdSnapshotRestore": {"name": "x", "generation": 3, "restoreRKEConfig": "none"},
            "rotateCertificates": {"generation": 4},
            "rotateEncryptionKeys": {"generation": 5},
        }),
        "a:ecw",
    );
    let spec = world.input.control_plane.spec.clone();
    let status = &mut world.input.control_plane.status;
    status.etcd_snapshot_create = spec.etcd_snapshot_create;
    status.etcd_snapshot_create_phase = Phase::Finished;
    status.etcd_snapshot_restore = spec.etcd_snapshot_restore;
    status.etcd_snapshot_restore_phase = Phase::Finished;
    status.certificate_rotation_generation = 4;
    status.rotate_encryption_keys = spec.rotate_encryption_keys;
    status.rotate_encryption_keys_phase = Phase::Done;
    world.settle();
}

#[test]
fn a_lost_etcd_plane_is_not_started_anew() {
    let mut world = World::new(K3S, json!({}), "a:ec w:cw");
    world.settle();
    world.vanish("a");
    world.add("b", "ec");
    let output = world.step();
    assert!(output.outcome.to_string().ends_with("Restoration from etcd snapshot is required."));
    assert!(!output.writes.iter().any(|write| matches!(write, Write::Plan(_))));
}

#[test]
fn a_settled_cluster_is_ready_and_remembers_its_spec() {
    let mut world = World::new(K3S, json!({"unknownField": {"x": 1}}), "a:ecw");
    world.settle();
    let control_plane = &world.input.control_plane;
    for kind in ["Ready", "Stable", "Reconciled", "Provisioned", "Bootstrapped"] {
        assert!(control_plane.status.is_true(kind), "{kind}");
    }
    assert_eq!(control_plane.status.applied_spec.as_ref(), Some(&control_plane.stored_spec));
    assert_eq!(control_plane.status.observed_generation, 1);
    // Waiting for something that is no edit does not make it less reconciled.
    world.input.control_plane.paused = true;
    let output = world.step();
    assert!(output.status.is_true("Reconciled") && !output.status.is_true("Ready"));
    world.edit(|spec| spec["provisionGeneration"] = json!(1));
    let output = world.step();
    assert_eq!(output.status.condition("Reconciled").unwrap().status, ConditionStatus::Unknown);
}
