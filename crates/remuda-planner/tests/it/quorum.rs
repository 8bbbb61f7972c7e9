//! Random histories: whatever users edit, machines fail and health checks delete, neither a plan nor a
//! permission to go ever takes the quorum from etcd, and no second cluster is ever started.
//!
//! The rules are checked against the truth of the world and are written down here once more, independent of
//! the code under test.

use base64::{Engine, prelude::BASE64_STANDARD};
use proptest::prelude::*;
use remuda_planner::{
    node_plan::NodePlan,
    output::{Delivery, Outcome, Write},
    plan,
    removal::Decision,
};
use serde_json::{Value, json};

use crate::world::World;

struct History {
    world: World,
    log: Vec<String>,
}

/// More than half.
fn quorum(members: usize) -> usize {
    members / 2 + 1
}

impl History {
    fn new(version: &str, machines: &str) -> History {
        let spec = json!({"upgradeStrategy": {"controlPlaneConcurrency": "0"}});
        History { world: World::new(version, spec, machines), log: Vec::new() }
    }

    fn voters(&self) -> usize {
        self.world.truth.values().filter(|truth| truth.voter).count()
    }

    /// Running as far as anybody can know, and nobody has permission to take it down.
    fn reliable(&self, name: &str) -> bool {
        let truth = &self.world.truth[name];
        truth.voter && !truth.down && !truth.destroyed && !truth.asked && !self.world.pending(name)
    }

    fn others(&self, name: &str) -> usize {
        let machines = self.world.input.machines.iter();
        machines.filter(|machine| machine.name != name && self.reliable(&machine.name)).count()
    }

    /// etcd answers.
    fn has_quorum(&self) -> bool {
        let voters = self.world.truth.values().filter(|truth| truth.voter);
        let up = voters.filter(|truth| !truth.down && !truth.silent && !truth.destroyed).count();
        up >= quorum(self.voters())
    }

    fn fail(&self, rule: &str, name: &str) -> ! {
        panic!("{rule}: {name}\n{}\n{:#?}", self.log.join("\n"), self.world.truth)
    }

    fn pass(&mut self) -> Outcome {
        let output = plan(&self.world.input);
        self.log.push(format!("pass: {}", output.outcome));
        let mut marks = self.world.input.machines.iter().filter(|machine| {
            machine
                .plan_secret
                .as_ref()
                .is_some_and(|secret| secret.labels.contains_key("rke.cattle.io/init-node"))
        });
        let mut marked = marks.by_ref().count();
        for write in &output.writes {
            self.log.push(format!("  {write}"));
            match write {
                Write::Plan(write) if write.delivery == (Delivery::Changed { restarts: true }) => {
                    let (voters, others) = (self.voters(), self.others(&write.machine));
                    if self.reliable(&write.machine) {
                        let spared =
                            if voters >= 3 { others >= quorum(voters) } else { others + 1 == voters };
                        if !spared {
                            self.fail("a restart gives up the quorum", &write.machine);
                        }
                    }
                }
                Write::Mark { marked: true, .. } => marked += 1,
                Write::Mark { marked: false, .. } => marked -= 1,
                Write::ForceRemove { machine } if self.voters() > 0 => {
                    self.fail("machines are forced out of a cluster with data", machine);
                }
                _ => {}
            }
            // One write at a time, as the shell does it.
            let mut one = output.clone();
            one.writes = vec![write.clone()];
            one.status = self.world.input.control_plane.status.clone();
            self.world.carry_out(&one);
        }
        if marked > 1 {
            self.fail("two init nodes", "");
        }
        let mut rest = output.clone();
        rest.writes.clear();
        self.world.carry_out(&rest);
        output.outcome
    }

    /// The agent of a machine applies its plan, if the machine runs and etcd lets it in.
    fn apply(&mut self, name: &str) {
        let truth = &self.world.truth[name];
        if truth.destroyed || truth.silent || !self.world.pending(name) {
            return;
        }
        let first = self.world.applied_of(name).is_none();
        let etcd = self.world.get(name).labels.contains_key("rke.cattle.io/etcd-role");
        let joins = self.world.plan_of(name).is_some_and(|plan| config(&plan).get("server").is_some());
        if !truth.voter && etcd && !joins && self.voters() > 0 {
            self.fail("a second cluster is started", name);
        }
        if first && joins && !self.has_quorum() {
            return;
        }
        self.log.push(format!("{name} applies its plan"));
        self.world.agent(name);
        self.world.truth.get_mut(name).unwrap().down = false;
    }

    fn fall(&mut self, name: &str, silently: bool) {
        self.log.push(format!("{name} fails{}", if silently { " silently" } else { "" }));
        let truth = self.world.truth.get_mut(name).unwrap();
        if silently {
            truth.silent = true;
            return;
        }
        truth.silent = false;
        truth.down = true;
        self.world.get_mut(name).node_healthy = Some(false);
    }

    fn recover(&mut self, name: &str) {
        let truth = self.world.truth.get_mut(name).unwrap();
        if truth.destroyed {
            return;
        }
        self.log.push(format!("{name} recovers"));
        truth.down = false;
        truth.silent = false;
        let machine = self.world.get_mut(name);
        machine.node_healthy = machine.node.as_ref().map(|_| true);
    }

    fn remove(&mut self, name: &str) {
        if !self.world.get(name).deleting {
            return;
        }
        let (voters, others) = (self.voters(), self.others(name));
        let truth = self.world.truth[name].clone();
        let decision = self.world.remover(name);
        self.log.push(format!("removal of {name}: {decision:?}"));
        match decision {
            Decision::RemoveMember { .. }
                if truth.voter && !truth.asked && (voters < 2 || others < quorum(voters - 1)) =>
            {
                self.fail("a removal gives up the quorum", name);
            }
            Decision::RemoveHook(_) if truth.voter && others < quorum(voters) => {
                self.fail("a server with a needed member goes", name);
            }
            Decision::RemoveHook(_) | Decision::Nothing => {
                if truth.voter {
                    self.fail("a machine goes with its member", name);
                }
                self.log.push(format!("{name} is gone"));
                self.world.vanish(name);
            }
            _ => {}
        }
    }

    fn etcd_acts(&mut self, name: &str) {
        let quorum = self.has_quorum();
        let truth = self.world.truth.get_mut(name).unwrap();
        if truth.asked && truth.voter && quorum {
            truth.voter = false;
            truth.removed = true;
        }
    }

    fn delete(&mut self, name: &str, replaced: bool) {
        if self.world.get(name).deleting {
            return;
        }
        self.log.push(format!("{name} is deleted{}", if replaced { " and replaced" } else { "" }));
        self.world.delete(name);
        if replaced {
            self.world.replace(name);
        }
    }

    fn edit(&mut self, kind: u8) {
        self.log.push(format!("edit {kind}"));
        self.world.edit(|spec| match kind % 6 {
            0 => {
                let generation = spec["provisionGeneration"].as_i64().unwrap_or(0);
                spec["provisionGeneration"] = json!(generation + 1);
            }
            1 => {
                let k3s = spec["kubernetesVersion"].as_str().unwrap_or_default().contains("k3s");
                let minor = if spec["kubernetesVersion"].as_str().unwrap_or_default().contains("34") {
                    35
                } else {
                    34
                };
                let suffix = if k3s { "k3s1" } else { "rke2r1" };
                spec["kubernetesVersion"] = json!(format!("v1.{minor}.1+{suffix}"));
            }
            2 => spec["upgradeStrategy"]["controlPlaneConcurrency"] = json!("100%"),
            3 => spec["upgradeStrategy"]["controlPlaneDrainOptions"] = json!({"enabled": true}),
            4 => spec["additionalManifest"] = json!(format!("# {kind}")),
            _ => {
                let now = spec["machineGlobalConfig"]["cluster-domain"].as_str() == Some("a");
                spec["machineGlobalConfig"]["cluster-domain"] = json!(if now { "b" } else { "a" });
            }
        });
    }

    fn names(&self) -> Vec<String> {
        self.world.input.machines.iter().map(|machine| machine.name.clone()).collect()
    }

    fn event(&mut self, kind: u8, which: u8) {
        let names = self.names();
        let Some(name) = names.get(usize::from(which) % names.len().max(1)).cloned() else { return };
        match kind % 16 {
            0..=3 => {
                self.pass();
            }
            4..=6 => names.iter().for_each(|name| self.apply(name)),
            7 => self.apply(&name),
            8 => self.fall(&name, false),
            9 => self.fall(&name, true),
            10 => {
                // Whatever was silent is noticed, and half of what is down gets up.
                for (at, name) in names.iter().enumerate() {
                    if self.world.truth[name].silent {
                        self.fall(name, false);
                    } else if self.world.truth[name].down && at % 2 == 0 {
                        self.recover(name);
                    }
                }
            }
            11 => self.delete(&name, which.is_multiple_of(2)),
            12 => {
                // A health check deletes everything that is known to be down.
                let down: Vec<&String> = names.iter().filter(|name| self.world.truth[*name].down).collect();
                down.into_iter().for_each(|name| self.delete(name, true));
            }
            13 => self.edit(which),
            14 => {
                self.world.pass_time(30);
                names.iter().for_each(|name| {
                    if self.world.truth[name].removed || self.world.truth[name].asked {
                        self.etcd_acts(name);
                    }
                });
                for name in &names {
                    self.remove(name);
                }
            }
            _ => {
                self.world.drainer();
                self.recover(&name);
            }
        }
    }

    /// No more faults: everything must come to rest.
    fn rest(&mut self) {
        self.log.push("rest".to_owned());
        self.names().iter().for_each(|name| self.recover(name));
        let staying = |role: &str| {
            let machines = &self.world.input.machines;
            machines.iter().any(|machine| !machine.deleting && machine.labels.contains_key(role))
        };
        let roles =
            ["rke.cattle.io/etcd-role", "rke.cattle.io/control-plane-role", "rke.cattle.io/worker-role"];
        if !roles.into_iter().all(staying) {
            self.world.add("z", "ecw");
        }
        let mut last = None;
        for _ in 0..300 {
            let outcome = self.pass();
            let deleting = self.world.input.machines.iter().any(|machine| machine.deleting);
            if outcome == Outcome::Settled && !deleting {
                let again = plan(&self.world.input);
                assert_eq!((again.outcome, again.writes.len()), (Outcome::Settled, 0));
                return;
            }
            last = Some(outcome);
            self.world.pass_time(5);
            self.world.drainer();
            let names = self.names();
            names.iter().for_each(|name| self.apply(name));
            names.iter().for_each(|name| self.etcd_acts(name));
            for name in &names {
                self.remove(name);
            }
        }
        let held = last.map(|outcome| outcome.to_string()).unwrap_or_default();
        let tail = self.log.len().saturating_sub(60);
        panic!("never settles: {held}\n{}\n{:#?}", self.log[tail..].join("\n"), self.world.truth);
    }
}

fn config(plan: &NodePlan) -> Value {
    let file = plan.files.iter().find(|file| file.path.ends_with("/50-rancher.yaml"));
    let content = file.and_then(|file| BASE64_STANDARD.decode(file.content.as_bytes()).ok());
    content.and_then(|content| serde_json::from_slice(&content).ok()).unwrap_or(Value::Null)
}

fn run(version: &str, machines: &str, started: bool, events: &[(u8, u8)]) {
    let mut history = History::new(version, machines);
    if started {
        history.world.settle();
    }
    for (kind, which) in events {
        history.event(*kind, *which);
    }
    history.rest();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_gives_up_the_quorum_of_three_servers(
        events in prop::collection::vec(any::<(u8, u8)>(), 0..120),
        started: bool,
    ) {
        run("v1.34.1+k3s1", "a:ecw b:ecw c:ecw", started, &events);
    }

    #[test]
    fn no_history_gives_up_the_quorum_of_five_members_with_split_roles(
        events in prop::collection::vec(any::<(u8, u8)>(), 0..120),
    ) {
        run("v1.34.1+rke2r1", "a:e b:e c:e d:e e:e f:c w:w", true, &events);
    }

    #[test]
    fn no_history_gives_up_one_or_two_members(
        events in prop::collection::vec(any::<(u8, u8)>(), 0..120),
        two: bool,
    ) {
        run("v1.34.1+k3s1", if two { "a:ecw b:ecw" } else { "a:ecw" }, true, &events);
    }
}

#[test]
fn a_leaving_member_is_marked_before_it_is_asked_to_go() {
    let mut world = World::new("v1.34.1+k3s1", json!({}), "a:ecw b:ecw c:ecw");
    world.settle();
    world.delete("c");
    world.pass_time(60);
    assert!(matches!(world.remover("c"), Decision::RemoveMember { .. }));
    assert_eq!(world.secret("c").annotations[remuda_names::annotation::ETCD_LEAVING], "true");
    // While c is on its way out nobody is restarted in its place.
    world.edit(|spec| spec["provisionGeneration"] = json!(1));
    let output = world.step();
    assert!(!output.writes.iter().any(|write| matches!(write, Write::Plan(_))), "{}", output.outcome);
    assert_eq!(
        output.outcome.to_string(),
        "configuring bootstrap node(s) a: waiting for etcd: 2 of 3 etcd members are up; 1 of 3 would be left \
         and 2 are needed"
    );
}
