//! Operations: what is done once, when it is asked for.

use std::collections::BTreeMap;

use remuda_names::provisioning::annotation::{
    MAINTENANCE_WINDOW, ROTATE_CERTIFICATES, ROTATE_CERTIFICATES_AUTO,
};
use remuda_plan::output::{Blob, PeriodicResult, PeriodicResults, pack};
use remuda_planner::{
    input::{Secret, Snapshot, Storage},
    output::{Outcome, Write},
    plan,
    spec::ConditionStatus,
};
use serde_json::json;

use crate::world::{World, machine};

const K3S: &str = "v1.35.1+k3s1";

fn world() -> World {
    let mut world = World::new(K3S, json!({}), "a:ec b:ec c:ec w:w");
    world.settle();
    world
}

fn held_by(machine: &str) -> Snapshot {
    Snapshot {
        name: "snap".to_owned(),
        file: "on-demand-x-1".to_owned(),
        machine: Some(machine.to_owned()),
        ..Snapshot::default()
    }
}

fn plans(world: &World) -> BTreeMap<String, Vec<u8>> {
    let plan = |machine: &remuda_planner::input::Machine| {
        let secret = machine.plan_secret.as_ref().unwrap();
        (machine.name.clone(), secret.data.get("plan").cloned().unwrap_or_default())
    };
    world.input.machines.iter().map(plan).collect()
}

fn commands(world: &World, machine: &str) -> Vec<String> {
    let plan = world.plan_of(machine).unwrap();
    plan.instructions.iter().map(|one| format!("{} {}", one.command, one.args.join(" "))).collect()
}

fn ask(world: &mut World, field: &str, value: serde_json::Value) {
    world.edit(|spec| spec[field] = value);
}

/// The agent of a machine has failed to apply its plan as often as it may.
fn fail(world: &mut World, machine: &str) {
    let secret = world.secret(machine);
    let sum = remuda_plan::sha256_hex(&secret.data["plan"]);
    secret.data.insert("failed-checksum".to_owned(), sum.into_bytes());
    secret.data.insert("failure-count".to_owned(), b"3".to_vec());
}

#[test]
fn a_snapshot_is_taken_on_every_member_and_nothing_restarts() {
    let mut world = world();
    let before = plans(&world);
    ask(&mut world, "etcdSnapshotCreate", json!({"generation": 1}));
    world.step();
    let output = world.step();
    let told = "starting etcd snapshot on node a, starting etcd snapshot on node b, starting etcd snapshot on node c";
    assert_eq!(output.outcome.to_string(), told);
    assert_eq!(commands(&world, "b")[1], "k3s etcd-snapshot save");
    let install = &world.plan_of("b").unwrap().instructions[0];
    assert!(install.env.contains(&"INSTALL_K3S_SKIP_START=true".to_owned()), "{:?}", install.env);
    assert!(!install.env.iter().any(|env| env.starts_with("RESTART_STAMP")));
    assert_eq!(plans(&world)["w"], before["w"], "a worker has no snapshot");
    world.settle();
    assert_eq!(plans(&world), before, "the same plans, to the byte");
    let status = &world.input.control_plane.status;
    assert_eq!(status.etcd_snapshot_create_phase, "Finished");
    assert!(status.is_true("EtcdSnapshotCreated"));
    // Asked for again it is taken again; not asked for it is forgotten.
    ask(&mut world, "etcdSnapshotCreate", json!({"generation": 2}));
    world.step();
    assert_eq!(world.input.control_plane.status.etcd_snapshot_create_phase, "Started");
    world.settle();
    ask(&mut world, "etcdSnapshotCreate", serde_json::Value::Null);
    assert_eq!(world.step().outcome.to_string(), "refreshing etcd create state");
    world.settle();
}

#[test]
fn what_the_agent_found_in_a_snapshot_is_kept() {
    let mut world = World::new(K3S, json!({}), "a:ecw");
    world.settle();
    ask(&mut world, "etcdSnapshotCreate", json!({"generation": 1}));
    world.step();
    world.step();
    world.agents();
    let said = "{\"file\":\"on-demand-a-1\"}";
    let outputs =
        BTreeMap::from([("verify".to_owned(), remuda_plan::output::Blob(said.as_bytes().to_vec()))]);
    world.secret("a").data.insert("applied-output".to_owned(), remuda_plan::output::pack(outputs));
    world.settle();
    assert_eq!(world.secret("a").annotations["remuda.io/snapshot-verification"], said);
}

#[test]
fn a_snapshot_that_fails_says_where_and_leaves_the_cluster_as_it_was() {
    let mut world = world();
    let before = plans(&world);
    ask(&mut world, "etcdSnapshotCreate", json!({"generation": 1}));
    world.step();
    world.step();
    world.agents();
    fail(&mut world, "b");
    world.secret("b").data.remove("appliedPlan");
    let output = world.step();
    assert_eq!(output.outcome.to_string(), "operation etcd snapshot on node b failed");
    let told = output.status.condition("EtcdSnapshotCreated").unwrap();
    assert_eq!(
        (told.status, told.message.as_str()),
        (ConditionStatus::False, "operation etcd snapshot on node b failed")
    );
    assert_eq!(output.status.etcd_snapshot_create_phase, "Failed");
    world.settle();
    assert_eq!(plans(&world), before);
    assert!(!world.input.control_plane.status.is_true("EtcdSnapshotCreated"), "the reason stays");
}

#[test]
fn a_restore_reads_the_file_stops_everything_and_begins_where_the_file_is() {
    let mut world = world();
    world.input.snapshots = vec![held_by("b")];
    let before = plans(&world);
    ask(
        &mut world,
        "etcdSnapshotRestore",
        json!({"name": "snap", "generation": 1, "restoreRKEConfig": "none"}),
    );
    world.step();
    let output = world.step();
    assert_eq!(output.outcome.to_string(), "starting check of etcd snapshot snap on node b");
    assert!(
        commands(&world, "b")[1].ends_with("verify /var/lib/rancher/k3s/server/db/snapshots/on-demand-x-1")
    );
    for other in ["a", "c", "w"] {
        assert_eq!(plans(&world)[other], before[other], "nothing else is touched");
    }
    world.agents();
    assert_eq!(world.step().outcome.to_string(), "shutting down cluster");
    let mut phases = vec![world.input.control_plane.status.etcd_snapshot_restore_phase.clone()];
    let mut paused = Vec::new();
    for _ in 0..120 {
        let output = world.step();
        // Deciding again on the same input says the same: whoever dies is followed by another.
        assert_eq!(plan(&world.input).outcome, plan(&world.input).outcome);
        let phase = output.status.etcd_snapshot_restore_phase.clone();
        if phases.last() != Some(&phase) {
            phases.push(phase);
        }
        paused.extend(
            output.writes.iter().filter(|write| matches!(write, Write::Pause | Write::Unpause)).cloned(),
        );
        if output.outcome == Outcome::Settled {
            break;
        }
        if phases.last().is_some_and(|phase| phase == "Restore") {
            let words = commands(&world, "b").join("\n");
            if words.contains("--cluster-reset ") {
                assert!(words.contains("--cluster-reset-restore-path=db/snapshots/on-demand-x-1"), "{words}");
                assert!(commands(&world, "a").join("\n").contains("tombstone"));
            }
        }
        world.pass_time(5);
        world.agents();
        world.drainer();
    }
    let expected = [
        "Shutdown",
        "Restore",
        "PostRestorePodCleanup",
        "InitialRestartCluster",
        "PostRestoreNodeCleanup",
        "RestartCluster",
        "Finished",
    ];
    assert_eq!(phases, expected);
    assert_eq!(paused, [Write::Pause, Write::Unpause]);
    assert_eq!(world.secret("b").labels["rke.cattle.io/init-node"], "true");
    assert_eq!(world.input.control_plane.status.config_generation, 1);
    assert!(world.input.control_plane.status.is_true("EtcdSnapshotRestored"));
    for (machine, plan) in plans(&world) {
        assert_ne!(plan, before[&machine], "every node starts again");
    }
    world.settle();
}

#[test]
fn a_snapshot_that_is_not_whole_is_refused_before_anything_is_touched() {
    let mut world = world();
    world.input.snapshots = vec![held_by("b")];
    let before = plans(&world);
    ask(&mut world, "etcdSnapshotRestore", json!({"name": "snap", "generation": 1}));
    world.step();
    world.step();
    fail(&mut world, "b");
    let output = world.step();
    assert_eq!(output.outcome.to_string(), "operation check of etcd snapshot snap on node b failed");
    assert_eq!(output.status.etcd_snapshot_restore_phase, "Failed");
    assert!(output.status.control_plane_initialized());
    world.settle();
    assert_eq!(plans(&world), before);
    let told = world.input.control_plane.status.condition("EtcdSnapshotRestored").unwrap();
    assert_eq!(told.status, ConditionStatus::False);
}

#[test]
fn snapshots_that_cannot_be_restored_are_told_apart() {
    let gone = Snapshot { machine: Some("x".to_owned()), ..held_by("a") };
    let away = Snapshot { storage: Storage::S3, ..held_by("a") };
    let failed = Snapshot { failed: true, ..held_by("a") };
    let old = Snapshot { version: Some("v1.24.9+k3s1".to_owned()), ..held_by("a") };
    let going = Snapshot { deleting: true, ..held_by("a") };
    for (snapshots, why) in [
        (vec![], "there is no such snapshot"),
        (vec![gone], "the machine that holds it is gone or cannot begin a cluster"),
        (
            vec![away],
            "it is in S3, and the cluster says nothing about S3 any more: set spec.rkeConfig.etcd.s3 again",
        ),
        (vec![failed], "it failed when it was taken"),
        (vec![old], "it was taken with Kubernetes v1.24.9+k3s1, whose objects this version cannot serve"),
        (vec![going], "it is being deleted"),
    ] {
        let mut world = world();
        world.input.snapshots = snapshots;
        let before = plans(&world);
        ask(&mut world, "etcdSnapshotRestore", json!({"name": "snap", "generation": 1}));
        world.step();
        let output = world.step();
        assert_eq!(output.outcome.to_string(), format!("snapshot snap cannot be restored: {why}"));
        assert_eq!(output.status.etcd_snapshot_restore_phase, "Failed");
        assert_eq!(plans(&world), before);
    }
}

/// A cluster with a store.
fn stored(machines: &str) -> World {
    let s3 = json!({"bucket": "backups", "endpoint": "s3.corp", "cloudCredentialName": "keys"});
    let mut world = World::new(K3S, json!({"etcd": {"s3": s3}}), machines);
    let data = [("accessKey", "canary-id"), ("secretKey", "canary-secret")];
    let data = data.map(|(key, value)| (format!("s3credentialConfig-{key}"), value.as_bytes().to_vec()));
    let secret = Secret { data: data.into(), ..Secret::default() };
    world.input.resources.secrets.insert(("fleet-default".to_owned(), "keys".to_owned()), secret);
    world.settle();
    world
}

fn in_s3(file: &str) -> Snapshot {
    Snapshot { machine: None, storage: Storage::S3, file: file.to_owned(), ..held_by("a") }
}

#[test]
fn a_restore_from_s3_begins_on_any_server_and_no_command_line_has_the_keys() {
    let mut world = stored("a:ec b:ec w:w");
    world.input.snapshots = vec![in_s3("on-demand-gone-1")];
    ask(&mut world, "etcdSnapshotRestore", json!({"name": "snap", "generation": 1}));
    world.step();
    world.step();
    let check = commands(&world, "a")[0].clone();
    assert!(check.contains("verify-snapshot --s3"), "{check}");
    assert!(
        check.ends_with(
            "/var/lib/rancher/k3s/server/db/snapshots/on-demand-gone-1 \
             /var/lib/rancher/k3s/etc/config-files/s3-restore.json"
        ),
        "{check}"
    );
    let mut seen = String::new();
    for _ in 0..120 {
        let output = world.step();
        seen.push_str(&commands(&world, "a").join("\n"));
        if output.outcome == Outcome::Settled {
            break;
        }
        world.pass_time(5);
        world.agents();
        world.drainer();
    }
    assert_eq!(world.input.control_plane.status.etcd_snapshot_restore_phase, "Finished");
    assert!(seen.contains("--cluster-reset-restore-path=on-demand-gone-1"), "{seen}");
    assert!(!seen.contains("--etcd-s3=false") && !seen.contains("canary"), "{seen}");
}

#[test]
fn a_server_that_was_never_told_anything_can_begin_when_all_others_are_lost() {
    let mut world = stored("a:ec w:w");
    world.input.snapshots = vec![in_s3("on-demand-a-1")];
    let lost = world.input.machines.iter_mut().find(|machine| machine.name == "a").unwrap();
    lost.deleting = true;
    world.truth.get_mut("a").unwrap().destroyed = true;
    world.input.machines.push(machine("z", "ec"));
    ask(&mut world, "etcdSnapshotRestore", json!({"name": "snap", "generation": 1}));
    world.step();
    let output = world.step();
    assert_eq!(output.outcome.to_string(), "starting check of etcd snapshot snap on node z");
    assert!(commands(&world, "z")[0].contains("verify-snapshot --s3"));
    // Withdrawn after the file was read, it leaves a machine that cannot begin a cluster of its own.
    let plan = world.secret("z").data["plan"].clone();
    world.secret("z").data.insert("appliedPlan".to_owned(), plan);
    ask(&mut world, "etcdSnapshotRestore", serde_json::Value::Null);
    for _ in 0..5 {
        world.step();
        assert!(!world.secret("z").labels.contains_key("rke.cattle.io/init-node"));
        assert!(world.secret("a").labels.contains_key("rke.cattle.io/init-node"), "it still has the data");
    }
}

#[test]
fn copies_in_s3_and_on_servers_are_deleted_each_by_itself() {
    let mut world = stored("a:ec b:ec w:w");
    world.input.machines.iter_mut().for_each(|machine| machine.node = Some(machine.name.clone()));
    let before = plans(&world);
    world.input.snapshots = vec![Snapshot { deleting: true, ..held_by("a") }];
    world.step();
    assert_eq!(commands(&world, "a")[1], "k3s etcd-snapshot delete --etcd-s3=false on-demand-x-1");
    world.settle();
    world.input.snapshots = vec![Snapshot { deleting: true, ..in_s3("on-demand-a-1") }];
    world.step();
    assert_eq!(commands(&world, "b")[1], "k3s etcd-snapshot delete on-demand-a-1", "a has a copy of its own");
    world.settle();
    assert!(world.input.snapshots.is_empty());
    assert_eq!(plans(&world), before);
}

#[test]
fn a_restore_that_fails_half_way_stays_and_says_so() {
    let mut world = World::new(K3S, json!({}), "a:ecw");
    world.settle();
    world.input.snapshots = vec![held_by("a")];
    ask(&mut world, "etcdSnapshotRestore", json!({"name": "snap", "generation": 1}));
    for _ in 0..20 {
        world.step();
        if commands(&world, "a").join("\n").contains("--cluster-reset ") {
            break;
        }
        world.agents();
    }
    fail(&mut world, "a");
    for _ in 0..3 {
        let output = world.step();
        assert_eq!(output.outcome.to_string(), "operation etcd restore failed");
        assert_eq!(output.status.etcd_snapshot_restore_phase, "Restore");
        assert!(output.writes.iter().all(|write| !matches!(write, Write::Plan(_))));
    }
    // Another generation begins anew.
    ask(&mut world, "etcdSnapshotRestore", json!({"name": "snap", "generation": 2}));
    world.step();
    assert_eq!(world.input.control_plane.status.etcd_snapshot_restore_phase, "Started");
}

#[test]
fn a_snapshot_goes_with_its_file_and_without_its_machine() {
    let mut world = world();
    let before = plans(&world);
    let lost = Snapshot { name: "lost".to_owned(), machine: None, deleting: true, ..Snapshot::default() };
    world.input.snapshots = vec![Snapshot { deleting: true, ..held_by("c") }, lost];
    let output = world.step();
    assert_eq!(output.outcome.to_string(), "starting deletion of etcd snapshot snap on node c");
    assert_eq!(commands(&world, "c")[1], "k3s etcd-snapshot delete on-demand-x-1");
    world.settle();
    assert!(world.input.snapshots.is_empty());
    assert_eq!(plans(&world), before);
}

#[test]
fn certificates_are_rotated_one_machine_after_the_other() {
    let mut world = World::new(K3S, json!({}), "a:e b:c c:ec w:w");
    world.settle();
    let before = plans(&world);
    ask(&mut world, "rotateCertificates", json!({"generation": 3}));
    let mut order = Vec::new();
    for _ in 0..40 {
        let output = world.step();
        let writes = output.writes.iter().filter(|write| matches!(write, Write::Plan(_)));
        let given: Vec<_> = writes.map(|write| write.plan_machine().unwrap().to_owned()).collect();
        if world.input.control_plane.status.certificate_rotation_generation == 3 {
            assert_eq!(output.outcome.to_string(), "certificate rotation done");
            break;
        }
        assert!(given.len() <= 1, "{given:?}");
        order.extend(given);
        assert!(world.input.cluster.as_ref().unwrap().paused);
        world.agents();
    }
    assert_eq!(order, ["a", "c", "b", "w"]);
    assert!(!world.input.cluster.as_ref().unwrap().paused);
    let words = commands(&world, "c").join("\n");
    assert!(words.contains("k3s") && words.contains("certificate rotate"), "{words}");
    assert!(!commands(&world, "w").join("\n").contains("certificate rotate"), "a worker restarts only");
    world.settle();
    assert_eq!(plans(&world), before, "the same plans, to the byte");
}

#[test]
fn machines_without_a_service_keep_their_certificates() {
    let mut world = World::new(K3S, json!({}), "a:ec w:w");
    world.settle();
    let before = plans(&world);
    ask(&mut world, "rotateCertificates", json!({"generation": 1, "services": ["etcd"]}));
    world.step();
    world.agents();
    assert_eq!(plans(&world)["w"], before["w"]);
    assert!(commands(&world, "a").join("\n").contains("certificate rotate -s etcd"));
    assert!(!commands(&world, "a").join("\n").contains("kube-scheduler"));
    world.settle();
}

/// A cluster whose certificates end in the middle of January, in the middle of a week in November.
/// Its windows are those of Saturday.
fn renewing() -> World {
    let mut world = World::new(K3S, json!({}), "a:e b:c c:ec w:w");
    world.settle();
    world.input.now = "2026-11-18T12:00:00Z".parse().unwrap();
    for machine in &mut world.input.machines {
        machine.certificates_until = Some("2027-01-16T00:00:00Z".parse().unwrap());
    }
    let annotations = &mut world.input.control_plane.annotations;
    annotations.insert(MAINTENANCE_WINDOW.to_owned(), "Sat 01:00-05:00 Europe/Berlin".to_owned());
    annotations.insert(ROTATE_CERTIFICATES.to_owned(), ROTATE_CERTIFICATES_AUTO.to_owned());
    // Nodes are asked for their certificates from now on, and nothing restarts for it.
    let stamps = |world: &World| {
        let of = |machine: &str| world.plan_of(machine).unwrap().instructions[0].env.clone();
        ["a", "b", "c", "w"].map(of)
    };
    let before = stamps(&world);
    world.narrate();
    assert_eq!(stamps(&world), before);
    world
}

#[test]
fn certificates_that_end_soon_are_rotated_when_a_window_opens_and_nothing_waits_for_it() {
    let mut world = renewing();
    let before = plans(&world);
    let output = world.step();
    assert_eq!(output.outcome, Outcome::Settled);
    assert!(output.writes.is_empty(), "{:?}", output.writes);
    let opens = "2026-11-21T00:00:00Z".parse().unwrap();
    assert_eq!(output.look_again, Some(opens));
    let told = world.input.control_plane.status.certificate_renewal.clone().unwrap();
    assert_eq!(
        (told.code.as_str(), told.machine.as_str(), told.opens),
        ("MaintenanceWindow", "a", Some(opens))
    );
    assert_eq!(world.step().status, world.input.control_plane.status, "it is told once");

    world.input.now = opens;
    let output = world.step();
    assert_eq!(output.outcome.to_string(), "starting certificate rotation (rotateCertificates)");
    assert!(output.writes.is_empty(), "it is kept before anything is done");
    // Longer than the window, and not wanted any more: it is finished all the same.
    world.input.now = "2026-11-21T09:00:00Z".parse().unwrap();
    let annotations = std::mem::take(&mut world.input.control_plane.annotations);
    let mut order = Vec::new();
    for _ in 0..40 {
        let output = world.step();
        let writes = output.writes.iter().filter(|write| matches!(write, Write::Plan(_)));
        order.extend(writes.map(|write| write.plan_machine().unwrap().to_owned()));
        if output.outcome.to_string() == "certificate rotation done" {
            break;
        }
        assert!(world.input.cluster.as_ref().unwrap().paused);
        world.agents();
    }
    assert_eq!(order, ["a", "c", "b", "w"]);
    assert!(!world.input.cluster.as_ref().unwrap().paused);
    let told = world.input.control_plane.status.certificate_renewal.clone().unwrap();
    assert_eq!((told.code.as_str(), told.begun, told.ended), ("", None, Some(world.input.now)));
    world.input.control_plane.annotations = annotations;
    world.settle();
    assert!(plans(&world) == before, "the same plans, to the byte");
}

#[test]
fn certificates_are_not_rotated_in_trouble_nor_again_and_again() {
    let mut world = renewing();
    world.input.control_plane.annotations.remove(MAINTENANCE_WINDOW);
    world.input.control_plane.paused = true;
    for _ in 0..3 {
        assert_eq!(world.step().outcome.to_string(), "CAPI cluster or RKEControlPlane is paused");
    }
    let renewal = |world: &World| world.input.control_plane.status.certificate_renewal.clone().unwrap();
    assert_eq!(renewal(&world).begun, None);
    world.input.control_plane.paused = false;
    assert_eq!(world.step().outcome, Outcome::Settled);
    // Without a window it begins at once.
    assert_eq!(world.step().outcome.to_string(), "starting certificate rotation (rotateCertificates)");
    world.settle();
    let ended = renewal(&world).ended.unwrap();
    // What nodes say has not changed.
    let output = world.step();
    assert_eq!((output.outcome, output.writes.len()), (Outcome::Settled, 0));
    assert_eq!(output.look_again, Some(ended + jiff::SignedDuration::from_hours(30 * 24)));
}

#[test]
fn who_rotates_all_certificates_by_hand_has_done_it() {
    let mut world = renewing();
    world.step();
    assert!(world.input.control_plane.status.certificate_renewal.as_ref().unwrap().opens.is_some());
    ask(&mut world, "rotateCertificates", json!({"generation": 1}));
    world.settle();
    let told = world.input.control_plane.status.certificate_renewal.clone().unwrap();
    assert_eq!((told.code.as_str(), told.begun, told.ended.is_some()), ("", None, true));
}

#[test]
fn nodes_are_asked_for_their_certificates_where_these_are_rotated_in_time_only() {
    let mut world = renewing();
    let plan = world.plan_of("w").unwrap();
    let [asks] = &plan.periodic_instructions[..] else { panic!("{:?}", plan.periodic_instructions) };
    assert!(asks.args[1].ends_with("rancher-system-agent certificates \"$1\""), "{asks:?}");
    assert_eq!(asks.args[3], "/var/lib/rancher/k3s");
    // What one of them says counts, also if it ends later than the Machines say of themselves.
    for machine in &mut world.input.machines {
        machine.certificates_until = None;
    }
    let printed = br#"{"expires":"2026-12-01T00:00:00Z","path":"/var/lib/rancher/k3s/agent/x.crt"}"#;
    let mut results = PeriodicResults::default();
    let time = "2026-11-18T12:00:00Z".to_owned();
    let result = PeriodicResult {
        name: "certificates".to_owned(),
        stdout: Blob(printed.to_vec()),
        last_successful_run_time: time,
        ..PeriodicResult::default()
    };
    results.insert("certificates".to_owned(), result);
    world.secret("w").data.insert("applied-periodic-output".to_owned(), pack(results));
    world.step();
    let told = world.input.control_plane.status.certificate_renewal.clone().unwrap();
    assert_eq!((told.machine.as_str(), told.expires), ("w", Some("2026-12-01T00:00:00Z".parse().unwrap())));
    world.input.control_plane.annotations.remove(ROTATE_CERTIFICATES);
    world.settle();
    assert_eq!(world.plan_of("w").unwrap().periodic_instructions, []);
    assert_eq!(world.input.control_plane.status.certificate_renewal, None);
}
