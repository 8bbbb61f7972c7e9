//! What holds whatever happens: random edits, scalings and rollouts, with controllers that are killed in between.
//!
//! A run follows from its seed. A seed that fails is worth a scenario, or a test of its own.

mod chance;
mod observer;

use std::{sync::Arc, time::Duration};

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    core::GroupVersionKind,
};
use remuda_api::core::{Machine, MachineDeployment, MachineSet};
use remuda_sim::{
    Contract, Latencies, Latency,
    objects::{Shape, machine_template},
    scenario::Stage,
    workload::Reach,
};
use serde_json::{Value, json};

use self::{
    chance::Chance,
    observer::{Limits, Observer},
};
use crate::world::{Capi, clock, world};

const NAMESPACE: &str = "default";
const DEPLOYMENT: &str = "demo-md";

/// A cluster that is being played with.
struct Play {
    api: remuda_testkit::World,
    stage: Stage,
    observer: Observer,
    chance: Chance,
    limits: Limits,
    templates: usize,
    log: Vec<String>,
}

fn play<F: AsyncFnOnce(&mut Play)>(seed: u64, story: F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut play = Play::start(seed).await;
        story(&mut play).await;
        play.stage.end().await;
        play.observer.end().await;
        play.api.down().await;
    });
}

impl Play {
    async fn start(seed: u64) -> Self {
        let api = world(Contract::V1Beta2).await;
        let mut stage = Stage::new(api.client(), clock(), Arc::new(Capi(api.client()))).await;
        let mut chance = Chance::new(seed);
        let step = |seconds: u64| Latency::Uniform { from: Duration::ZERO, to: Duration::from_secs(seconds) };
        *stage.options_mut() = remuda_sim::Options {
            seed,
            latencies: Latencies {
                infrastructure: Latency::ZERO,
                ..Latencies::all(step(1 + chance.below(20) as u64))
            },
            ..remuda_sim::Options::default()
        };
        let limits = Limits { replicas: 1 + chance.below(4), surge: 1, unavailable: 0 };
        let observer = Observer::start(api.client(), limits).await;
        let mut play =
            Self { api, stage, observer, chance, limits, templates: 0, log: vec![format!("seed {seed}")] };
        play.stage.start();
        for object in Shape::new(NAMESPACE, "demo", 1, limits.replicas as u32).objects() {
            play.apply(object).await;
        }
        play
    }

    fn note(&mut self, line: String) {
        self.log.push(line);
    }

    fn dynamic(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let plural = format!("{}s", kind.to_lowercase());
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
        Api::namespaced_with(self.api.client(), NAMESPACE, &resource)
    }

    async fn apply(&self, object: Value) {
        let text = |key: &str| object[key].as_str().unwrap().to_owned();
        let (group, version) =
            text("apiVersion").split_once('/').map(|(g, v)| (g.to_owned(), v.to_owned())).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let api = self.dynamic(&group, &version, &text("kind"));
        api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.unwrap();
    }

    async fn edit(&mut self, limits: Limits, spec: Value) {
        // Controllers may act on the new limits before we hear that they are stored.
        self.observer.allow(limits);
        let deployments: Api<MachineDeployment> = Api::namespaced(self.api.client(), NAMESPACE);
        let patch = Patch::Merge(json!({"spec": spec}));
        deployments.patch(DEPLOYMENT, &PatchParams::default(), &patch).await.unwrap();
        self.limits = limits;
        self.observer.allow(limits);
    }

    /// A random change, and how many Machines it makes if it is left to finish.
    async fn change(&mut self) -> usize {
        let mut limits = self.limits;
        match self.chance.below(6) {
            0 | 1 => {
                limits.replicas = self.chance.below(6);
                self.note(format!("scale to {}", limits.replicas));
                self.edit(limits, json!({"replicas": limits.replicas})).await;
                limits.replicas.saturating_sub(self.observer.before_scaling())
            }
            2 | 3 => {
                self.templates += 1;
                let name = format!("{DEPLOYMENT}-v{}", self.templates);
                self.note(format!("roll out {name}"));
                self.apply(machine_template(NAMESPACE, &name, "large")).await;
                let spec = json!({"template": {"spec": {"infrastructureRef": {"name": name}}}});
                self.edit(limits, spec).await;
                limits.replicas
            }
            4 => {
                limits.surge = self.chance.below(3);
                limits.unavailable = if limits.surge == 0 { 1 } else { self.chance.below(3) };
                self.note(format!("surge {}, unavailable {}", limits.surge, limits.unavailable));
                let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {
                    "maxSurge": limits.surge, "maxUnavailable": limits.unavailable,
                }});
                self.edit(limits, json!({"rollout": {"strategy": strategy}})).await;
                0
            }
            _ => {
                let value = self.chance.below(1000).to_string();
                self.note(format!("label {value}"));
                let metadata = json!({"labels": {"random": value}});
                let spec = json!({"minReadySeconds": self.chance.below(3)});
                self.edit(limits, json!({"template": {"metadata": metadata, "spec": spec}})).await;
                0
            }
        }
    }

    /// Kills everything, or stops it, at a random moment, and starts it again.
    async fn disturb(&mut self) {
        // Between two steps of one reconcile as well as between two of a server.
        let pause = match self.chance.below(3) {
            0 => Duration::from_micros(self.chance.below(2000) as u64),
            1 => Duration::from_millis(self.chance.below(2000) as u64),
            _ => Duration::from_secs(self.chance.below(30) as u64),
        };
        tokio::time::sleep(pause).await;
        for _ in 0..self.chance.below(400) {
            tokio::task::yield_now().await;
        }
        let kill = self.chance.below(2) == 0;
        self.note(format!("after {pause:?} {}", if kill { "kill" } else { "stop" }));
        if kill {
            self.stage.kill().await;
        } else {
            self.stage.stop().await;
        }
        tokio::time::sleep(Duration::from_millis(self.chance.below(3000) as u64)).await;
        self.stage.start();
    }

    /// Takes owners or finalizers off a random object.
    async fn strip(&mut self) {
        let kinds = [
            ("cluster.x-k8s.io", "v1beta2", "Machine"),
            ("cluster.x-k8s.io", "v1beta2", "MachineSet"),
            ("cluster.x-k8s.io", "v1beta2", "MachineDeployment"),
            ("sim.remuda.io", "v1", "SimMachine"),
            ("sim.remuda.io", "v1", "SimBootstrap"),
            ("sim.remuda.io", "v1", "SimCluster"),
            ("sim.remuda.io", "v1", "SimControlPlane"),
        ];
        let (group, version, kind) = kinds[self.chance.below(kinds.len())];
        let api = self.dynamic(group, version, kind);
        let mut objects = api.list(&ListParams::default()).await.unwrap().items;
        // One that is going needs its finalizers: to strip those is to lose what they guard.
        objects.retain(|object| object.metadata.deletion_timestamp.is_none());
        if objects.is_empty() {
            return;
        }
        let name = objects[self.chance.below(objects.len())].name_any();
        let what = if self.chance.below(2) == 0 { "ownerReferences" } else { "finalizers" };
        self.note(format!("strip {what} of a {kind}"));
        let patch = Patch::Merge(json!({"metadata": {what: null}}));
        let _ = api.patch(&name, &PatchParams::default(), &patch).await;
    }

    /// Lets time pass until nobody writes any more.
    async fn settle(&mut self) {
        let mut quiet = 0;
        let mut writes = self.api.writes().len();
        for _ in 0..720 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let now = self.api.writes().len();
            quiet = if now == writes { quiet + 1 } else { 0 };
            writes = now;
            if quiet == 8 {
                self.observer.check(&self.log);
                return;
            }
        }
        let writes = self.api.writes();
        let last = writes.len().saturating_sub(20);
        panic!("{:?}: never settled, at last {:#?}", self.log, &writes[last..]);
    }

    async fn machines(&self) -> Vec<Machine> {
        let machines: Api<Machine> = Api::namespaced(self.api.client(), NAMESPACE);
        let ours = ListParams::default().labels("cluster.x-k8s.io/deployment-name=demo-md");
        machines.list(&ours).await.unwrap().items
    }

    /// Everything is as asked.
    async fn check_settled(&self) {
        let log = &self.log;
        let machines = self.machines().await;
        assert_eq!(machines.len(), self.limits.replicas, "{log:?}");
        for machine in &machines {
            assert_eq!(machine.status.as_ref().unwrap().phase, "Running", "{log:?}");
            assert_eq!(machine.finalizers().len(), 1, "{log:?}");
            assert_eq!(machine.owner_references().len(), 1, "{log:?}");
        }
        let sets: Api<MachineSet> = Api::namespaced(self.api.client(), NAMESPACE);
        let sets = sets.list(&ListParams::default()).await.unwrap().items;
        assert_eq!(sets.len(), 1, "{log:?}");
        assert_eq!((sets[0].finalizers().len(), sets[0].owner_references().len()), (1, 1), "{log:?}");
        for kind in ["SimMachine", "SimBootstrap"] {
            let objects =
                self.dynamic("sim.remuda.io", "v1", kind).list(&ListParams::default()).await.unwrap();
            assert_eq!(objects.items.len(), machines.len() + 1, "{log:?} {kind}");
            for object in objects.items {
                assert_eq!(object.owner_references().len(), 1, "{log:?} {kind} {}", object.name_any());
            }
        }
        let nodes = self.stage.workloads().list()[0].nodes();
        // A Machine that is deleted before its finalizer is back cannot take its Node with it.
        if !log.iter().any(|line| line == "strip finalizers of a Machine") {
            assert_eq!(nodes.len(), machines.len() + 1, "{log:?}");
        }
    }

    /// A restart changes nothing, and neither does time.
    async fn check_silence(&mut self) {
        self.stage.stop().await;
        let before = self.api.writes().len();
        self.stage.start();
        tokio::time::sleep(Duration::from_secs(1800)).await;
        let writes = self.api.writes();
        assert_eq!(&writes[before..], &[] as &[String], "{:?}: a restart and half an hour", self.log);
    }

    async fn check_nothing_left(&mut self) {
        self.observer.allow(Limits { replicas: 0, ..self.limits });
        let clusters = self.dynamic("cluster.x-k8s.io", "v1beta2", "Cluster");
        clusters.delete("demo", &Default::default()).await.unwrap();
        self.disturb().await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        let core = ["Cluster", "Machine", "MachineSet", "MachineDeployment"];
        let core = core.iter().map(|kind| ("cluster.x-k8s.io", "v1beta2", *kind));
        let ours = ["SimCluster", "SimControlPlane", "SimMachine", "SimBootstrap", "SimBootstrapTemplate"];
        let ours = ours.iter().map(|kind| ("sim.remuda.io", "v1", *kind));
        for (group, version, kind) in core.chain(ours).chain([("", "v1", "Secret")]) {
            let left = self.dynamic(group, version, kind).list(&ListParams::default()).await.unwrap().items;
            let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
            assert_eq!(left, Vec::<String>::new(), "{:?}: {kind}", self.log);
        }
        assert!(self.stage.workloads().list().is_empty());
    }
}

/// One change after the other, each left to finish.
fn exact(seed: u64) {
    play(seed, async |play| {
        play.settle().await;
        let mut expected = play.limits.replicas;
        play.check_settled().await;
        for _ in 0..3 {
            play.observer.remember_scale();
            expected += play.change().await;
            for _ in 0..play.chance.below(4) {
                play.disturb().await;
            }
            play.settle().await;
            play.check_settled().await;
            assert_eq!(play.observer.created(), expected, "{:?}: Machines made", play.log);
        }
        play.check_silence().await;
        play.check_nothing_left().await;
    });
}

/// Changes on top of changes, while everything is killed and stripped.
fn chaos(seed: u64) {
    play(seed, async |play| {
        for _ in 0..6 {
            play.change().await;
            for _ in 0..play.chance.below(2) {
                play.strip().await;
            }
            for _ in 0..play.chance.below(2) {
                play.disturb().await;
            }
            tokio::time::sleep(Duration::from_secs(play.chance.below(40) as u64)).await;
        }
        play.settle().await;
        play.check_settled().await;
        play.check_silence().await;
        play.check_nothing_left().await;
    });
}

/// Nodes that fall silent and clusters that cannot be seen, with a health check.
fn sickness(seed: u64) {
    play(seed, async |play| {
        let replicas = 4;
        let limits = Limits { replicas, ..play.limits };
        // Replacing a sick Machine is not a matter of the deployment's limits, but of one at a time.
        play.edit(limits, json!({"replicas": replicas, "remediation": {"maxInFlight": 1}})).await;
        let check = json!({"matchLabels": {"cluster.x-k8s.io/deployment-name": DEPLOYMENT}});
        let condition = |status: &str| json!({"type": "Ready", "status": status, "timeoutSeconds": 60});
        play.apply(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineHealthCheck", "metadata": {"name": "demo"},
            "spec": {
                "clusterName": "demo",
                "selector": check,
                "checks": {
                    "nodeStartupTimeoutSeconds": 600,
                    "unhealthyNodeConditions": [condition("Unknown"), condition("False")],
                },
            },
        }))
        .await;
        play.settle().await;
        for _ in 0..4 {
            let world = play.stage.workloads().list()[0].clone();
            let machines = play.machines().await;
            let sick = machines[play.chance.below(machines.len())].name_any();
            match play.chance.below(3) {
                0 => {
                    play.note("cut off, and a node falls silent".to_owned());
                    world.set_reach(Reach::Hangs);
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    world.set_node_ready(&sick, "Unknown", "NodeStatusUnknown", "");
                    let before = play.observer.created();
                    tokio::time::sleep(Duration::from_secs(900)).await;
                    assert_eq!(play.observer.created(), before, "{:?}: replaced unseen", play.log);
                    assert!(
                        play.machines().await.iter().all(|one| one.metadata.deletion_timestamp.is_none())
                    );
                    // Back before anybody looks.
                    world.set_node_ready(&sick, "True", "KubeletReady", "");
                    world.set_reach(Reach::Answers);
                }
                1 => {
                    play.note("all nodes but one are not ready".to_owned());
                    for machine in machines.iter().skip(1) {
                        world.set_node_ready(&machine.name_any(), "False", "KubeletNotReady", "");
                    }
                    play.disturb().await;
                }
                _ => {
                    play.note("a node falls silent".to_owned());
                    world.set_node_ready(&sick, "Unknown", "NodeStatusUnknown", "");
                    play.disturb().await;
                }
            }
            play.settle().await;
            play.check_settled().await;
            let nodes = play.stage.workloads().list()[0].nodes();
            let ready = |node: &&Value| {
                let conditions = node["status"]["conditions"].as_array().unwrap();
                conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
            };
            assert_eq!(nodes.iter().filter(ready).count(), replicas + 1, "{:?}", play.log);
            assert!(play.observer.most_going() <= 1, "{:?}: one at a time", play.log);
        }
        play.check_silence().await;
        play.check_nothing_left().await;
    });
}

/// With nothing that takes time, a cluster of four costs so many writes and no more.
#[test]
fn a_cluster_is_provisioned_in_few_writes() {
    play(7, async |play| {
        play.settle().await;
        play.check_nothing_left().await;
        let before = play.api.writes().len();
        play.stage.stop().await;
        play.stage.options_mut().latencies = Latencies::default();
        play.stage.start();
        play.observer.allow(Limits { replicas: 3, ..play.limits });
        for object in Shape::new(NAMESPACE, "demo", 1, 3).objects() {
            play.apply(object).await;
        }
        play.settle().await;
        let mut by_kind = std::collections::BTreeMap::<String, usize>::new();
        for write in &play.api.writes()[before..] {
            let (method, path) = write.split_once(' ').unwrap();
            let mut parts = path.split('/').skip_while(|part| *part != "namespaces").skip(2);
            let kind = parts.next().unwrap_or(path).to_owned();
            let status = if path.ends_with("/status") { "/status" } else { "" };
            *by_kind.entry(format!("{method} {kind}{status}")).or_default() += 1;
        }
        let total: usize = by_kind.values().sum();
        assert!(total <= 180, "{total}: {by_kind:#?}");
    });
}

/// More seeds than usual, for a long run: `SIM_SEEDS=500` adds that many.
fn more(first: u64) -> impl Iterator<Item = u64> {
    let asked = std::env::var_os("SIM_SEEDS").and_then(|asked| asked.to_str()?.parse().ok());
    (0..asked.unwrap_or(0)).map(move |seed: u64| first + seed)
}

macro_rules! seeds {
    ($($name:ident: $check:ident $seeds:expr, $more:expr;)*) => {
        $(#[test] fn $name() { for seed in $seeds.chain(more($more)) { $check(seed); } })*
    };
}

seeds! {
    machines_are_made_exactly_as_often_as_needed: exact 1..=2, 1000;
    machines_are_made_as_often_whatever_is_killed: exact 3..=4, 2000;
    limits_hold_in_chaos: chaos 101..=102, 3000;
    everything_heals_after_chaos: chaos 103..=104, 4000;
    the_sick_are_replaced_one_at_a_time_and_only_when_seen: sickness 201..=202, 5000;
}
