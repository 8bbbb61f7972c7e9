//! A cluster in memory: machines, agents, etcd, and the controllers around the planner, each reduced to
//! what the planner sees of it.

use std::{collections::BTreeMap, io::Write as _};

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::{Compression, write::GzEncoder};
use jiff::{SignedDuration, Timestamp};
use remuda_distro::{Catalog, Distro};
use remuda_names::{
    power,
    rancher::{annotation, label},
};

use remuda_planner::{
    driver::Driver,
    input::{
        Address, AddressKind, AgentManifest, Cluster, ClusterAgent, ControlPlane, Input, Machine, PlanSecret,
        Reconciled, Resources, Settings, StateSecret, Summary, Tokens,
    },
    node_plan::NodePlan,
    output::{Outcome, Output, Write},
    plan, removal,
};
use serde_json::{Value, json};

/// What the planner cannot see directly.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    /// Votes in etcd.
    pub voter: bool,
    /// Not running, and known to be so.
    pub down: bool,
    /// Not running, and nobody has noticed.
    pub silent: bool,
    /// The server no longer exists.
    pub destroyed: bool,
    /// etcd was asked to remove the member.
    pub asked: bool,
    /// etcd has removed the member.
    pub removed: bool,
    pub hooked: bool,
    pub deleted_at: Option<Timestamp>,
    /// Last part of its address.
    pub address: usize,
}

pub struct World {
    pub input: Input,
    pub truth: BTreeMap<String, Truth>,
    counter: usize,
}

pub fn base(version: &str, spec: Value) -> Input {
    let mut full = json!({
        "kubernetesVersion": version, "clusterName": "demo", "managementClusterName": "c-m-abcd1234",
    });
    if let (Value::Object(full), Value::Object(spec)) = (&mut full, spec) {
        full.extend(spec);
    }
    let object = json!({
        "metadata": {"namespace": "fleet-default", "name": "demo", "uid": "cp-uid", "generation": 1},
        "spec": full,
        "status": {"conditions": [
            {"type": "ScalingUp", "status": "False"},
            {"type": "ScalingDown", "status": "False"},
            {"type": "RollingOut", "status": "False"},
        ]},
    });
    Input {
        now: Timestamp::from_second(1_790_000_000).unwrap(),
        control_plane: ControlPlane::read(&object).unwrap(),
        cluster: Some(Cluster {
            name: "demo".to_owned(),
            infrastructure_provisioned: true,
            ..Cluster::default()
        }),
        release: Catalog::shipped().facts(version),
        machines: Vec::new(),
        state: StateSecret::Missing,
        fresh_tokens: Tokens { server: "server-token".to_owned(), agent: "agent-token".to_owned() },
        resources: Resources::default(),
        settings: Settings::default(),
        agent_manifest: AgentManifest::Agent(Box::new(agent())),
        snapshots: Vec::new(),
        pre_bootstrap: Vec::new(),
    }
}

pub fn agent() -> ClusterAgent {
    ClusterAgent {
        server_url: "https://remuda.example".to_owned(),
        token: "registration-token".to_owned(),
        cluster: "c-m-abcd1234".to_owned(),
        image: "rancher/rancher-agent:v1".to_owned(),
        ..ClusterAgent::default()
    }
}

/// `roles` is any of `e`, `c`, `w`, and `W` for Windows.
pub fn machine(name: &str, roles: &str) -> Machine {
    let mut labels = BTreeMap::new();
    for (letter, key) in
        [('e', label::ETCD_ROLE), ('c', label::CONTROL_PLANE_ROLE), ('w', label::WORKER_ROLE)]
    {
        if roles.contains(letter) {
            labels.insert(key.to_owned(), "true".to_owned());
        }
    }
    if roles.contains('W') {
        labels.insert(label::WORKER_ROLE.to_owned(), "true".to_owned());
        labels.insert(label::OS.to_owned(), "windows".to_owned());
    }
    labels.insert(label::MACHINE_ID.to_owned(), format!("id-{name}"));
    Machine {
        namespace: "fleet-default".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        labels: labels.clone(),
        infrastructure_ready: true,
        summary: Summary::default(),
        driver: Driver::None,
        plan_secret: Some(PlanSecret {
            name: format!("{name}-machine-plan"),
            labels,
            ..PlanSecret::default()
        }),
        ..Machine::default()
    }
}

/// What an etcd-only init node reports about itself.
fn member_report(name: &str, address: &str) -> Vec<u8> {
    let member = json!({"name": format!("{name}-1"), "clientURLs": [format!("https://{address}:2379")]});
    let info = json!({"members": [member]}).to_string();
    let output = |text: &str| {
        json!({"stdout": BASE64_STANDARD.encode(text), "stderr": "", "exitCode": 0, "failures": 0,
               "lastSuccessfulRunTime": "Mon Aug  3 09:05:07 UTC 2026", "lastFailedRunTime": ""})
    };
    let report = json!({"capture-address": output(&info), "etcd-name": output(&format!("{name}-1\n"))});
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(report.to_string().as_bytes()).unwrap();
    packed.finish().unwrap()
}

impl World {
    pub fn new(version: &str, spec: Value, machines: &str) -> World {
        let mut world = World { input: base(version, spec), truth: BTreeMap::new(), counter: 0 };
        for word in machines.split_whitespace() {
            let (name, roles) = word.split_once(':').unwrap();
            world.add(name, roles);
        }
        world
    }

    pub fn add(&mut self, name: &str, roles: &str) {
        self.input.machines.push(machine(name, roles));
        let address = self.truth.len() + 1;
        self.truth.insert(name.to_owned(), Truth { hooked: true, address, ..Truth::default() });
    }

    /// A successor with the same roles.
    pub fn replace(&mut self, name: &str) {
        let roles: String = {
            let labels = &self.get(name).labels;
            [('e', label::ETCD_ROLE), ('c', label::CONTROL_PLANE_ROLE), ('w', label::WORKER_ROLE)]
                .iter()
                .filter(|(_, key)| labels.contains_key(*key))
                .map(|(letter, _)| *letter)
                .collect()
        };
        self.counter += 1;
        let fresh = format!("n{:03}", self.counter);
        self.add(&fresh, &roles);
    }

    pub fn get(&self, name: &str) -> &Machine {
        self.input.machines.iter().find(|machine| machine.name == name).unwrap()
    }

    pub fn get_mut(&mut self, name: &str) -> &mut Machine {
        self.input.machines.iter_mut().find(|machine| machine.name == name).unwrap()
    }

    pub fn secret(&mut self, name: &str) -> &mut PlanSecret {
        self.get_mut(name).plan_secret.as_mut().unwrap()
    }

    /// Changes the spec as a user would.
    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let mut spec = self.input.control_plane.stored_spec.clone();
        change(&mut spec);
        self.input.control_plane.spec = serde_json::from_value(spec.clone()).unwrap();
        self.input.control_plane.stored_spec = spec;
        self.input.control_plane.generation += 1;
        let version = self.input.control_plane.spec.kubernetes_version.clone();
        self.input.release = Catalog::shipped().facts(&version);
    }

    /// Decides and carries out the decision.
    pub fn step(&mut self) -> Output {
        let output = plan(&self.input);
        self.carry_out(&output);
        output
    }

    pub fn carry_out(&mut self, output: &Output) {
        let now = self.input.now;
        for write in &output.writes {
            if let Some(name) = write.plan_machine() {
                let name = name.to_owned();
                write.apply(self.secret(&name), now);
            }
            match write {
                Write::Reconciled { machine, message } => {
                    self.get_mut(machine).reconciled = Some(Reconciled {
                        is_true: message.is_none(),
                        message: message.clone().unwrap_or_default(),
                    });
                }
                Write::Pause | Write::Unpause => {
                    self.input.cluster.as_mut().unwrap().paused = *write == Write::Pause;
                }
                Write::Woken { .. } => self.input.cluster.as_mut().unwrap().paused = false,
                Write::Power { machine, on } => {
                    let power = if *on { power::RUNNING } else { power::STOPPED };
                    self.get_mut(machine).power = power.to_owned();
                }
                Write::ReleaseSnapshot { name } => {
                    self.input.snapshots.retain(|snapshot| snapshot.name != *name);
                }
                Write::CreateState { tokens, .. } => self.input.state = StateSecret::Present(tokens.clone()),
                Write::ClusterNotInitialized => {
                    self.input.cluster.as_mut().unwrap().control_plane_not_initialized = true;
                }
                _ => {}
            }
        }
        let connected = self.input.control_plane.status.agent_connected;
        self.input.control_plane.status = output.status.clone();
        self.input.control_plane.status.agent_connected = connected;
    }

    pub fn plan_of(&self, name: &str) -> Option<NodePlan> {
        NodePlan::decode(self.get(name).plan_secret.as_ref()?.data.get("plan")?).ok()
    }

    pub fn applied_of(&self, name: &str) -> Option<NodePlan> {
        NodePlan::decode(self.get(name).plan_secret.as_ref()?.data.get("appliedPlan")?).ok()
    }

    pub fn pending(&self, name: &str) -> bool {
        let data = &self.get(name).plan_secret.as_ref().unwrap().data;
        data.contains_key("plan") && data.get("plan") != data.get("appliedPlan")
    }

    /// The agent applies its plan and everything on the node comes up.
    pub fn agent(&mut self, name: &str) {
        let Some(plan) = self.plan_of(name) else { return };
        let now = self.input.now.to_string();
        let image = plan.instructions.first().map(|install| install.image.clone()).unwrap_or_default();
        let version = image.rsplit_once(':').map_or("", |(_, tag)| tag).to_owned();
        let address = format!("10.0.0.{}", self.truth[name].address);
        let secret = self.secret(name);
        let bytes = secret.data["plan"].clone();
        secret.data.insert("appliedPlan".to_owned(), bytes);
        let healthy: BTreeMap<&String, Value> =
            plan.probes.keys().map(|name| (name, json!({"healthy": true, "successCount": 1}))).collect();
        secret.data.insert("probe-statuses".to_owned(), serde_json::to_vec(&healthy).unwrap());
        secret.annotations.insert(annotation::PLAN_PROBES_PASSED.to_owned(), now);
        if !plan.periodic_instructions.is_empty() {
            secret.data.insert("applied-periodic-output".to_owned(), member_report(name, &address));
        }
        let control_plane = secret.labels.contains_key(label::CONTROL_PLANE_ROLE);
        if secret.labels.contains_key(label::ETCD_ROLE) {
            self.truth.get_mut(name).unwrap().voter = true;
        }
        if control_plane {
            self.input.control_plane.status.agent_connected = true;
        }
        let machine = self.get_mut(name);
        machine.node = Some(name.to_owned());
        machine.kubelet_version = Some(version);
        machine.node_healthy = Some(true);
        machine.addresses = vec![Address { kind: AddressKind::InternalIp, address }];
    }

    /// All agents apply what they have.
    pub fn agents(&mut self) {
        let names: Vec<String> = self.input.machines.iter().map(|machine| machine.name.clone()).collect();
        names.iter().for_each(|name| self.agent(name));
    }

    /// The drain controller does what it is asked at once.
    pub fn drainer(&mut self) {
        for machine in &mut self.input.machines {
            let annotations = &mut machine.plan_secret.as_mut().unwrap().annotations;
            let options = annotations.get(annotation::DRAIN_OPTIONS).cloned().unwrap_or_default();
            if options.is_empty() {
                continue;
            }
            if annotations.get(annotation::DRAIN_DONE) != Some(&options) {
                annotations.insert(annotation::DRAIN_DONE.to_owned(), options);
            } else if annotations.contains_key(annotation::UNCORDON) {
                for key in [annotation::DRAIN_OPTIONS, annotation::DRAIN_DONE, annotation::UNCORDON] {
                    annotations.remove(key);
                }
            }
        }
    }

    /// The bootstrap controller looks at one deleting machine; answers what it decided.
    pub fn remover(&mut self, name: &str) -> removal::Decision {
        let truth = self.truth[name].clone();
        let machine = self.get(name).clone();
        let node = if truth.removed || !truth.asked {
            removal::Node::Present { removed: truth.removed }
        } else {
            removal::Node::Present { removed: false }
        };
        let input = removal::Input {
            now: self.input.now,
            machine: &machine,
            deleted_at: truth.deleted_at,
            etcd_label: machine.labels.contains_key(label::ETCD_ROLE),
            hooked: truth.hooked && machine.labels.contains_key(label::ETCD_ROLE),
            bootstrap_deleting: false,
            force: false,
            cluster: removal::Cluster::Alive,
            distro: Distro::of(&self.input.control_plane.spec.kubernetes_version),
            machines: &self.input.machines,
            node,
        };
        let decision = removal::decide(&input);
        match &decision {
            removal::Decision::RemoveHook(_) => self.truth.get_mut(name).unwrap().hooked = false,
            removal::Decision::RemoveMember { .. } => {
                let annotations = &mut self.secret(name).annotations;
                annotations.insert(remuda_names::annotation::ETCD_LEAVING.to_owned(), "true".to_owned());
                self.truth.get_mut(name).unwrap().asked = true;
            }
            _ => {}
        }
        decision
    }

    /// All deleting machines go as far as they may.
    fn removers(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        let deleting = self.input.machines.iter().filter(|machine| machine.deleting);
        let names: Vec<String> = deleting.map(|machine| machine.name.clone()).collect();
        for name in names {
            match self.remover(&name) {
                removal::Decision::Wait(held, _) => told.push(format!("  {name}: held: {held}")),
                removal::Decision::RemoveMember { .. } => {
                    told.push(format!("  {name}: etcd removes its member"));
                    let truth = self.truth.get_mut(&name).unwrap();
                    truth.removed = true;
                    truth.voter = false;
                }
                removal::Decision::RemoveHook(_) | removal::Decision::Nothing => {
                    told.push(format!("  {name}: gone"));
                    self.vanish(&name);
                }
                other => panic!("{other:?}"),
            }
        }
        told
    }

    pub fn delete(&mut self, name: &str) {
        let now = self.input.now;
        self.get_mut(name).deleting = true;
        self.truth.get_mut(name).unwrap().deleted_at.get_or_insert(now);
    }

    /// The machine object and its server are gone.
    pub fn vanish(&mut self, name: &str) {
        self.input.machines.retain(|machine| machine.name != name);
        if let Some(truth) = self.truth.get_mut(name) {
            truth.destroyed = true;
            truth.down = true;
        }
    }

    pub fn pass_time(&mut self, seconds: i64) {
        self.input.now += SignedDuration::from_secs(seconds);
    }

    /// Runs planner, agents and drain controller until nothing changes; answers what was seen.
    pub fn narrate(&mut self) -> String {
        let mut told = Vec::new();
        for _ in 0..200 {
            let output = self.step();
            let writes = output.writes.iter().filter(|write| !matches!(write, Write::Reconciled { .. }));
            told.extend(writes.map(|write| format!("  {write}")));
            told.push(output.outcome.to_string());
            let leaving = self.input.machines.iter().any(|machine| machine.deleting);
            if output.outcome == Outcome::Settled && !leaving {
                break;
            }
            self.pass_time(5);
            if matches!(output.outcome, Outcome::Waiting(_)) {
                self.agents();
                self.drainer();
            }
            told.extend(self.removers());
        }
        while told.len() > 1 && told[told.len() - 1] == told[told.len() - 2] {
            told.pop();
        }
        told.dedup();
        told.join("\n")
    }

    pub fn settle(&mut self) {
        self.narrate();
        let output = plan(&self.input);
        assert_eq!(output.outcome, Outcome::Settled, "{}", output.outcome);
        assert_eq!(output.writes, []);
    }
}
