//! Rotation of the keys for Secrets, with servers that do what K3s does.

use std::collections::BTreeMap;

use remuda_planner::{
    input::Snapshot,
    output::{Outcome, Write},
    plan,
    record::Record,
    spec::ConditionStatus,
};
use serde_json::{Value, json};

use crate::world::World;

const K3S: &str = "v1.35.1+k3s1";
const RKE2: &str = "v1.35.1+rke2r1";
const PHASES: [&str; 7] = [
    "Started",
    "Prepare",
    "PostPrepareRestart",
    "Rotate",
    "PostRotateRestart",
    "Reencrypt",
    "PostReencryptRestart",
];

/// The servers: the stage of the keys, and the one each server has read.
struct Cluster {
    world: World,
    stage: &'static str,
    read: BTreeMap<String, &'static str>,
    told: Vec<String>,
}

fn packed(name: &str, stage: &str) -> Vec<u8> {
    let text = format!("Encryption Status: Enabled\nCurrent Rotation Stage: {stage}\n");
    let blob = remuda_plan::output::Blob(text.into_bytes());
    remuda_plan::output::pack(BTreeMap::from([(name.to_owned(), blob)]))
}

fn periodically(name: &str, stage: &str) -> Vec<u8> {
    let result = remuda_plan::output::PeriodicResult {
        name: name.to_owned(),
        stdout: remuda_plan::output::Blob(format!("Current Rotation Stage: {stage}\n").into_bytes()),
        last_successful_run_time: "Mon Aug  3 09:05:07 UTC 2026".to_owned(),
        ..Default::default()
    };
    remuda_plan::output::pack(BTreeMap::from([(name.to_owned(), result)]))
}

impl Cluster {
    fn new(version: &str, machines: &str) -> Cluster {
        let spec = json!({"machineGlobalConfig": {"secrets-encryption": true}});
        let mut world = World::new(version, spec, machines);
        world.settle();
        world.input.snapshots = vec![
            Snapshot { name: "new".into(), file: "on-demand-a-20".into(), ..Snapshot::default() },
            Snapshot { name: "old".into(), file: "on-demand-a-9".into(), ..Snapshot::default() },
            Snapshot {
                name: "bad".into(),
                file: "on-demand-a-30".into(),
                failed: true,
                ..Snapshot::default()
            },
        ];
        Cluster { world, stage: "start", read: BTreeMap::new(), told: Vec::new() }
    }

    fn ask(&mut self, value: Value) {
        self.world.edit(|spec| spec["rotateEncryptionKeys"] = value);
    }

    /// All machines with a new plan apply it.
    fn agents(&mut self) {
        let names: Vec<String> =
            self.world.input.machines.iter().map(|machine| machine.name.clone()).collect();
        for name in names {
            if !self.world.pending(&name) {
                continue;
            }
            let plan = self.world.plan_of(&name).unwrap();
            self.world.agent(&name);
            let says = |words: &str| {
                plan.instructions.iter().any(|one| one.args.iter().any(|arg| arg.contains(words)))
            };
            for (command, stage) in
                [("prepare", "prepare"), ("rotate", "rotate"), ("reencrypt", "reencrypt_active")]
            {
                if says(&format!("exec k3s secrets-encrypt {command}")) {
                    self.stage = stage;
                    self.read.insert(name.clone(), self.stage);
                }
            }
            if plan
                .instructions
                .iter()
                .any(|one| one.name.contains("encryption-key-rotation") && one.name.contains("-restart-"))
            {
                self.told.push(format!("  {name} restarts"));
                self.read.insert(name.clone(), self.stage);
            }
            let read = self.read.get(&name).copied().unwrap_or(self.stage);
            if plan.instructions.iter().any(|one| one.name == "secrets-encrypt-status") {
                let output = packed("secrets-encrypt-status", read);
                self.world.secret(&name).data.insert("applied-output".to_owned(), output);
            }
        }
    }

    /// What the leader tells from time to time: everything is sealed anew by now.
    fn finish_sealing(&mut self) {
        let names: Vec<String> =
            self.world.input.machines.iter().map(|machine| machine.name.clone()).collect();
        for name in names {
            let plan = self.world.plan_of(&name).unwrap();
            if let Some(periodic) = plan.periodic_instructions.iter().find(|one| one.period_seconds == 5) {
                let output = periodically(&periodic.name, "reencrypt_finished");
                self.world.secret(&name).data.insert("applied-periodic-output".to_owned(), output);
                self.stage = "reencrypt_finished";
            }
        }
    }

    fn phase(&self) -> String {
        self.world.input.control_plane.status.rotate_encryption_keys_phase.to_string()
    }

    fn step(&mut self) -> Outcome {
        let record = Record::redacted(&self.world.input, "v0");
        assert_eq!(record.redaction_changes, Vec::<String>::new(), "a record decides the same");
        let output = self.world.step();
        self.world.pass_time(5);
        self.told.push(output.outcome.to_string());
        output.outcome
    }

    /// Until a phase begins, with its plans given and not applied.
    fn until(&mut self, phase: &str) {
        for _ in 0..200 {
            self.step();
            let pending = self.world.input.machines.iter().any(|machine| self.world.pending(&machine.name));
            if self.phase() == phase && pending {
                return;
            }
            self.agents();
            if self.phase() == "Reencrypt" {
                self.finish_sealing();
            }
        }
        panic!("{phase} did not begin:\n{}", self.told.join("\n"));
    }

    fn settle(&mut self) -> String {
        for _ in 0..200 {
            if self.step() == Outcome::Settled {
                let again = plan(&self.world.input);
                assert_eq!((again.outcome, again.writes), (Outcome::Settled, Vec::new()));
                let mut told = std::mem::take(&mut self.told);
                told.dedup();
                return told.join("\n");
            }
            self.agents();
            if self.phase() == "Reencrypt" {
                self.finish_sealing();
            }
        }
        panic!("it does not settle:\n{}", self.told.join("\n"));
    }

    fn plans(&self) -> Vec<Vec<u8>> {
        let plan = |machine: &remuda_planner::input::Machine| {
            machine.plan_secret.as_ref().unwrap().data["plan"].clone()
        };
        self.world.input.machines.iter().map(plan).collect()
    }

    fn is_paused(&self) -> bool {
        self.world.input.cluster.as_ref().unwrap().paused
    }

    fn fail(&mut self, name: &str) {
        let secret = self.world.secret(name);
        let sum = remuda_plan::sha256_hex(&secret.data["plan"]);
        secret.data.insert("failed-checksum".to_owned(), sum.into_bytes());
        secret.data.insert("failure-count".to_owned(), b"5".to_vec());
    }

    fn told(&self) -> (ConditionStatus, String) {
        let told = self.world.input.control_plane.status.condition("EncryptionKeysRotated").unwrap();
        (told.status, told.message.clone())
    }
}

/// One line per machine and phase, without what is between.
fn restarts(told: &str) -> Vec<&str> {
    told.lines().filter(|line| line.ends_with(" restarts")).map(str::trim).collect()
}

#[test]
fn keys_are_changed_on_one_server_and_all_are_restarted_after_each_step() {
    let mut cluster = Cluster::new(K3S, "a:ec b:ec c:ec w:w");
    let before = cluster.plans();
    cluster.ask(json!({"generation": 1}));
    let told = cluster.settle();
    assert_eq!(
        told,
        "starting encryption key rotation (rotateEncryptionKeys)
starting etcd snapshot on node a, starting etcd snapshot on node b, starting etcd snapshot on node c
starting encryption key rotation (rotateEncryptionKeys)
elected a as control plane leader for encryption key rotation
starting [a] encryption key rotation (Prepare)
starting encryption key rotation (rotateEncryptionKeys)
starting [a] encryption key rotation (PostPrepareRestart)
  a restarts
starting [b] encryption key rotation (PostPrepareRestart)
  b restarts
starting [c] encryption key rotation (PostPrepareRestart)
  c restarts
starting encryption key rotation (rotateEncryptionKeys)
starting [a] encryption key rotation (Rotate)
starting encryption key rotation (rotateEncryptionKeys)
starting [a] encryption key rotation (PostRotateRestart)
  a restarts
starting [b] encryption key rotation (PostRotateRestart)
  b restarts
starting [c] encryption key rotation (PostRotateRestart)
  c restarts
starting encryption key rotation (rotateEncryptionKeys)
starting [a] encryption key rotation (Reencrypt)
starting encryption key rotation (rotateEncryptionKeys)
starting [a] encryption key rotation (PostReencryptRestart)
  a restarts
starting [b] encryption key rotation (PostReencryptRestart)
  b restarts
starting [c] encryption key rotation (PostReencryptRestart)
  c restarts
starting encryption key rotation (rotateEncryptionKeys)
starting [a] encryption key rotation (RestartCluster)
starting [b] encryption key rotation (RestartCluster)
starting [c] encryption key rotation (RestartCluster)
CAPI cluster or RKEControlPlane is paused
settled"
    );
    assert_eq!(cluster.plans(), before, "ordinary plans came back, to the byte");
    assert_eq!((cluster.phase().as_str(), cluster.is_paused()), ("Done", false));
    assert!(cluster.world.input.control_plane.status.rotate_encryption_keys_leader.is_empty());
    assert_eq!(cluster.told(), (ConditionStatus::True, String::new()));
    // Asked for again it is done again; not asked for it is forgotten.
    cluster.ask(json!({"generation": 2}));
    assert_eq!(restarts(&cluster.settle()).len(), 9);
    cluster.ask(Value::Null);
    assert_eq!(cluster.step().to_string(), "refreshing encryption key rotation state");
    cluster.settle();
}

#[test]
fn a_snapshot_is_declined_for_one_rotation_and_that_is_told() {
    let mut cluster = Cluster::new(K3S, "a:ec b:ec w:w");
    let declined = "remuda.io/rotate-encryption-keys-without-snapshot".to_owned();
    cluster.world.input.control_plane.annotations.insert(declined, "1".to_owned());
    cluster.ask(json!({"generation": 1}));
    let told = cluster.settle();
    assert!(!told.contains("snapshot"), "{told}");
    assert_eq!((cluster.phase().as_str(), restarts(&told).len()), ("Done", 6));
    let message = "no snapshot was taken before it: that was declined".to_owned();
    assert_eq!(cluster.told(), (ConditionStatus::True, message));
    cluster.ask(json!({"generation": 2}));
    assert!(cluster.settle().contains("starting etcd snapshot on node a"));
    assert_eq!(cluster.told(), (ConditionStatus::True, String::new()));
}

#[test]
fn plans_of_a_rotation_say_what_they_are_for() {
    let mut cluster = Cluster::new(RKE2, "a:ec w:w");
    cluster.ask(json!({"generation": 7}));
    cluster.until("Prepare");
    let plan = cluster.world.plan_of("a").unwrap();
    let names: Vec<&str> =
        plan.instructions.iter().map(|one| one.name.split("-encryption").next().unwrap()).collect();
    assert_eq!(names, ["wait-for-secrets-encrypt-status", "idempotent", "secrets-encrypt-status"]);
    let script = plan.instructions[1].args.last().unwrap();
    assert!(script.ends_with("exec rke2 secrets-encrypt prepare"), "{script}");
    assert!(plan.instructions[2].save_output);
    for one in &plan.instructions {
        assert_eq!(
            one.env,
            ["ENCRYPTION_KEY_ROTATION_STAGE=Prepare", "ENCRYPTION_KEY_ROTATION_GENERATION=7"]
        );
    }
    let secret = cluster.world.secret("a");
    assert_eq!(
        (&secret.data["max-failures"][..], &secret.data["failure-threshold"][..]),
        (&b"1"[..], &b"1"[..])
    );
    assert!(plan.probes.is_empty() && plan.periodic_instructions.is_empty());
}

#[test]
fn a_restart_has_probes_and_waits_for_its_server() {
    let mut cluster = Cluster::new(K3S, "e:e a:cw");
    cluster.ask(json!({"generation": 7}));
    cluster.until("PostPrepareRestart");
    let plan = cluster.world.plan_of("e").unwrap();
    let last = |name: &str| plan.instructions.iter().any(|one| one.name == name);
    assert!(
        last("wait-for-service") && !last("secrets-encrypt-status"),
        "a member without an API cannot tell"
    );
    cluster.agents();
    cluster.step();
    let plan = cluster.world.plan_of("a").unwrap();
    assert!(
        plan.instructions.iter().any(|one| one.args.ends_with(&["restart".to_owned(), "k3s".to_owned()]))
    );
    assert!(plan.probes.contains_key("kube-apiserver"));
    let secret = cluster.world.secret("a");
    assert_eq!(
        (&secret.data["max-failures"][..], &secret.data["failure-threshold"][..]),
        (&b"5"[..], &b"5"[..])
    );
}

#[test]
fn what_others_join_is_restarted_before_members_the_leader_and_the_rest() {
    let mut cluster = Cluster::new(K3S, "a:c b:c d:e e:e f:e w:w");
    let init =
        cluster.world.input.machines.iter().find(|machine| {
            machine.plan_secret.as_ref().unwrap().labels.contains_key("rke.cattle.io/init-node")
        });
    let init = init.unwrap().name.clone();
    cluster.ask(json!({"generation": 1}));
    let told = cluster.settle();
    assert!(told.contains("elected a as control plane leader"), "{told}");
    let others: Vec<&str> = ["d", "e", "f"].into_iter().filter(|name| *name != init).collect();
    let order = [vec![init.as_str()], others, vec!["a", "b"]].concat();
    let order: Vec<String> = order.iter().map(|name| format!("{name} restarts")).collect();
    assert_eq!(restarts(&told), [order.clone(), order.clone(), order].concat());
}

/// Each phase fails once, says in what state that leaves the Secrets, and another rotation goes on from there.
#[test]
fn a_rotation_that_fails_says_where_and_the_next_one_goes_on() {
    for phase in PHASES {
        let mut cluster = Cluster::new(K3S, "a:ec b:ec c:ec w:w");
        let before = cluster.plans();
        cluster.ask(json!({"generation": 1}));
        cluster.until(phase);
        assert_eq!(cluster.is_paused(), phase != "Started", "{phase}");
        if phase == "Started" {
            // All members are waited for.
            cluster.agents();
            cluster.world.secret("a").data.remove("appliedPlan");
        }
        cluster.fail("a");
        let Outcome::Failed(failure) = cluster.step() else { panic!("{phase} goes on") };
        let text = failure.to_string();
        let state = match phase {
            "Started" => "no key was changed",
            "Prepare" | "PostPrepareRestart" => "a new key, which encrypts nothing yet",
            "Rotate" | "PostRotateRestart" => "servers that were restarted have both",
            "Reencrypt" => "all servers have both",
            _ => "all Secrets are encrypted with the new key",
        };
        assert!(text.starts_with(&format!("encryption key rotation failed in phase {phase}: ")), "{text}");
        assert!(text.contains(state), "{text}");
        assert_eq!(text.contains("restore snapshot new"), phase != "Started", "{text}");
        assert_eq!((cluster.phase().as_str(), cluster.is_paused()), ("Failed", false), "{phase}");
        assert_eq!(cluster.told(), (ConditionStatus::False, text.clone()));
        cluster.settle();
        assert_eq!(cluster.told(), (ConditionStatus::False, text), "the reason stays");
        assert_eq!(cluster.plans(), before, "{phase}");

        cluster.ask(json!({"generation": 2}));
        cluster.settle();
        assert_eq!((cluster.phase().as_str(), cluster.stage), ("Done", "reencrypt_finished"), "{phase}");
    }
}

#[test]
fn what_cannot_be_rotated_is_refused_before_anything_is_changed() {
    for (version, config, cause) in [
        (K3S, json!({}), "the cluster does not encrypt its Secrets"),
        (K3S, json!({"secrets-encryption": false}), "the cluster does not encrypt its Secrets"),
        (RKE2, json!({"secrets-encryption": false}), "the cluster does not encrypt its Secrets"),
        ("v1.99.0+k3s1", json!({"secrets-encryption": true}), "release v1.99.0+k3s1 does not support it"),
        (
            K3S,
            json!({"secrets-encryption": true, "secrets-encryption-provider": "secretbox"}),
            "keys of the provider secretbox are not rotated in steps",
        ),
    ] {
        let mut world = World::new(version, json!({"machineGlobalConfig": config}), "a:ec w:w");
        world.settle();
        world.edit(|spec| spec["rotateEncryptionKeys"] = json!({"generation": 1}));
        let output = world.step();
        let text = output.outcome.to_string();
        assert!(text.contains(cause) && text.ends_with("no key was changed"), "{text}");
        assert!(!output.writes.iter().any(|write| matches!(write, Write::Plan(_) | Write::Pause)));
        assert_eq!(output.status.rotate_encryption_keys_phase, "Failed");
        world.settle();
    }
    let mut cluster = Cluster::new(RKE2, "a:ec w:w");
    cluster.world.edit(|spec| spec["machineGlobalConfig"] = json!({}));
    cluster.world.settle();
    cluster.ask(json!({"generation": 1}));
    assert!(cluster.step().to_string().starts_with("starting "), "RKE2 encrypts by itself");
}

#[test]
fn a_cluster_that_is_not_well_is_left_alone() {
    let mut cluster = Cluster::new(K3S, "a:ec w:w");
    let now = cluster.world.input.now.to_string();
    let status = &mut cluster.world.input.control_plane.status;
    let ready = status.conditions.iter_mut().find(|one| one.kind == "Ready").unwrap();
    (ready.status, ready.last_update_time) = (ConditionStatus::Unknown, now);
    cluster.ask(json!({"generation": 1}));
    assert_eq!(cluster.step(), Outcome::Settled);
    assert_eq!(cluster.phase(), "");
    assert!(cluster.step().to_string().starts_with("starting "), "now it is well");
}

#[test]
fn a_leader_is_replaced_before_it_did_anything_and_missed_later() {
    let mut cluster = Cluster::new(K3S, "a:ec b:ec c:ec w:w");
    cluster.ask(json!({"generation": 1}));
    cluster.until("Prepare");
    cluster.world.get_mut("a").deleting = true;
    assert_eq!(cluster.step().to_string(), "elected b as control plane leader for encryption key rotation");
    cluster.until("PostPrepareRestart");
    cluster.world.get_mut("b").deleting = true;
    let text = cluster.step().to_string();
    assert!(text.contains("machine b, on which it was begun, is gone"), "{text}");
    assert_eq!((cluster.phase().as_str(), cluster.is_paused()), ("Failed", false));
}

#[test]
fn a_server_in_another_stage_ends_it() {
    for (phase, name, says, told) in [
        ("Prepare", "a", "start", "start"),
        ("PostPrepareRestart", "a", "reencrypt_finished", "reencrypt_finished"),
        ("PostPrepareRestart", "b", "start", "start"),
        ("PostPrepareRestart", "b", "<b>whatever it likes</b>", "unknown"),
    ] {
        let mut cluster = Cluster::new(K3S, "a:ec b:ec c:ec w:w");
        cluster.ask(json!({"generation": 1}));
        cluster.until(phase);
        while !cluster.world.pending(name) {
            cluster.agents();
            cluster.step();
        }
        cluster.agents();
        cluster
            .world
            .secret(name)
            .data
            .insert("applied-output".to_owned(), packed("secrets-encrypt-status", says));
        let text = cluster.step().to_string();
        assert!(text.contains(&format!("machine {name} is in stage \"{told}\" of it")), "{phase}: {text}");
    }
}

#[test]
fn all_is_encrypted_before_it_goes_on() {
    let mut cluster = Cluster::new(K3S, "a:ec w:w");
    cluster.ask(json!({"generation": 3}));
    cluster.until("Reencrypt");
    cluster.agents();
    // What an earlier rotation told is not about this one.
    let earlier = periodically("secrets-encrypt-status-2", "reencrypt_finished");
    cluster.world.secret("a").data.insert("applied-periodic-output".to_owned(), earlier);
    assert_eq!(cluster.step().to_string(), "waiting for [a] encryption key rotation (Reencrypt)");
    let waiting = cluster.world.input.control_plane.status.waiting_for.clone().unwrap();
    assert_eq!((waiting.code.as_str(), &waiting.machines[..]), ("Operation", &["a".to_owned()][..]));
    let output = periodically("secrets-encrypt-status-3", "reencrypt_active");
    cluster.world.secret("a").data.insert("applied-periodic-output".to_owned(), output);
    assert_eq!(cluster.step().to_string(), "waiting for [a] encryption key rotation (Reencrypt)");
    cluster.finish_sealing();
    cluster.step();
    assert_eq!(cluster.phase(), "PostReencryptRestart");
}

#[test]
fn a_rotation_that_is_taken_back_leaves_nothing_paused() {
    let mut cluster = Cluster::new(K3S, "a:ec w:w");
    let before = cluster.plans();
    cluster.ask(json!({"generation": 1}));
    cluster.until("Rotate");
    assert!(cluster.is_paused());
    cluster.ask(Value::Null);
    cluster.step();
    assert!(!cluster.is_paused());
    cluster.settle();
    assert_eq!(cluster.plans(), before);
}
