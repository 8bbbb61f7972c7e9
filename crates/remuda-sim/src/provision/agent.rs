//! Node agents: one look at a plan Secret is one pass of an agent.
//!
//! Reads   plan Secrets, and the Machines they belong to.
//! Writes  what the agent reports into the plan Secret; the Node in the workload cluster.
//! Never   does anything for a server that has not registered.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use remuda_agent::{
    decide::{self, Data, Decision, Memory, Observed, Run},
    report::{Ended, compose},
    stamp::Stamp,
};
use remuda_api::core::Machine;
use remuda_control::{Action, Controller, ObjectKey, Scope, drive};
use remuda_distro::Distro;
use remuda_names::rancher::{label, secret_type};
use remuda_plan::{
    CheckedPlan, NodePlan,
    output::{Blob, Outputs, PeriodicResult, PeriodicResults, pack},
    probe::{self, Statuses},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Error, Fleet};
use crate::workload::Kubelet;

const BY_MACHINE: &str = "simulated-agent/machine";
/// How soon a kubelet that finds no API tries again.
const JOIN_AGAIN: Duration = Duration::from_secs(1);

pub(super) async fn run(fleet: Arc<Fleet>, stop: CancellationToken) {
    let scope = Scope::all().with_fields(format!("type={}", secret_type::PLAN));
    let root = fleet.ctx.informers.of::<Secret>(scope);
    root.add_index(BY_MACHINE, |secret| {
        let machine = secret.labels().get(label::MACHINE_NAME);
        machine.map(|name| ObjectKey::of(&secret.metadata).sibling(name).to_string()).into_iter().collect()
    });
    let controller = Controller::on("simulated-agent", &fleet.ctx, root.clone())
        .workers(fleet.options.workers)
        .watches(&fleet.machines, move |machine: &Machine| {
            root.keys_by_index(BY_MACHINE, &ObjectKey::of(&machine.metadata).to_string())
        });
    let reconcile = |secret: Arc<Secret>, fleet: Arc<Fleet>| async move { fleet.pass(&secret).await };
    drive(controller, reconcile, fleet, stop).await;
}

fn data(secret: &Secret) -> Data {
    secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect()
}

/// The configuration of the distribution, as the plan writes it.
fn configuration(plan: &NodePlan) -> Value {
    let file = plan.files.iter().find(|file| file.path.ends_with("/50-rancher.yaml"));
    let content = file.and_then(|file| BASE64_STANDARD.decode(file.content.as_bytes()).ok());
    content.and_then(|content| serde_json::from_slice(&content).ok()).unwrap_or_default()
}

/// The version an installer image is of.
fn version(plan: &NodePlan) -> Option<String> {
    let image = plan.instructions.iter().map(|one| one.image.as_str()).find(|image| !image.is_empty())?;
    Some(image.rsplit_once(':')?.1.replacen('-', "+", 1))
}

/// What instructions print that run again and again: only servers without an API server are asked for something.
fn periodic(plan: &NodePlan, node: &str, address: &str, now: Stamp) -> Option<Vec<u8>> {
    if plan.periodic_instructions.is_empty() {
        return None;
    }
    let member = json!({"name": format!("{node}-1"), "clientURLs": [format!("https://{address}:2379")]});
    let results = plan.periodic_instructions.iter().map(|one| {
        let stdout = match one.name.as_str() {
            "etcd-name" => format!("{node}-1\n"),
            "capture-address" => json!({"members": [member]}).to_string(),
            _ => String::new(),
        };
        let result = PeriodicResult {
            name: one.name.clone(),
            stdout: Blob(stdout.into_bytes()),
            last_successful_run_time: now.unix_date(),
            ..PeriodicResult::default()
        };
        (one.name.clone(), result)
    });
    Some(pack(results.collect::<PeriodicResults>()))
}

/// What instructions print that run once.
fn output(plan: &NodePlan) -> Vec<u8> {
    let saved = plan.instructions.iter().filter(|one| one.save_output);
    pack(saved.map(|one| (one.name.clone(), Blob(b"simulated\n".to_vec()))).collect::<Outputs>())
}

/// Health after one more check, which goes well once the plan is applied.
fn probes(plan: &NodePlan, known: &Statuses, well: bool) -> Statuses {
    let after = plan
        .probes
        .iter()
        .map(|(name, probe)| (name.clone(), known.get(name).copied().unwrap_or_default().after(probe, well)));
    after.collect()
}

impl Fleet {
    /// The server of a plan: its Machine if it has registered and is not on its way out.
    fn agent_of(&self, secret: &Secret) -> Option<Arc<Machine>> {
        let name = secret.labels().get(label::MACHINE_NAME)?;
        let machine = self.machines.get(&ObjectKey::of(&secret.metadata).sibling(name))?;
        let registered = machine.labels().get(label::MACHINE_ID).is_some_and(|id| !id.is_empty());
        let ours = machine.spec.infrastructure_ref.kind == super::kinds::MACHINE;
        (ours && registered && machine.metadata.deletion_timestamp.is_none()).then_some(machine)
    }

    async fn pass(&self, secret: &Secret) -> Result<Action, Error> {
        let Some(machine) = self.agent_of(secret) else { return Ok(Action::AwaitChange) };
        let before = data(secret);
        let raw = before.get(remuda_plan::key::PLAN).filter(|raw| !raw.is_empty());
        // Nobody but a planner writes plans, and what it wrote it can read.
        let Some(CheckedPlan { plan, checksum }) = raw.and_then(|raw| CheckedPlan::decode(raw).ok()) else {
            return Ok(Action::AwaitChange);
        };
        let now = Stamp(self.ctx.clock.now().as_second());
        let uid = secret.uid().unwrap_or_default();
        // Servers remember what they have applied, however often this process starts.
        let mut memory = Memory { has_run_once: true, ..Memory::default() };
        memory.notice(&uid, &before);
        let observed = Observed {
            uid: &uid,
            version: 0,
            data: &before,
            checksum: &checksum,
            recorded: None,
            force_on_start: false,
            now,
        };
        let decision = decide::decide(&observed, &memory);
        let mut ended = None;
        if decision.run.executes() {
            let execution = format!("{uid} {checksum} {}", decision.attempt);
            if let Some(left) = self.left(&execution, "apply", &self.options.latencies.apply) {
                return Ok(Action::RequeueAfter(left));
            }
            self.forget(&execution);
            let chance = format!("{}/{checksum}/{}", machine.name_any(), decision.attempt);
            let succeeded = !self.happens(&chance, "apply fails", self.options.failures.apply);
            ended = Some(Ended { succeeded, output: output(&plan), began: now });
        }
        let applied = match &ended {
            Some(ended) => ended.succeeded,
            None => !decision.was_failed && !matches!(decision.run, Run::Begin(_) | Run::Resume(_)),
        };
        let next = if applied { self.join(secret, &machine, &plan) } else { None };
        let statuses = probe::parse(before.get(remuda_plan::key::PROBE_STATUSES).map_or(b"", Vec::as_slice));
        // What ran before goes on when a plan fails.
        let well = applied || self.is_up(&machine);
        let statuses = probes(&plan, &statuses.unwrap_or_default(), well);
        self.report(secret, &before, &decision, &checksum, ended, &statuses, |fleet| {
            let key = fleet.server_of(&machine);
            periodic(&plan, &key.name, &fleet.address(&key), now)
        })
        .await?;
        let settled = applied && statuses == probes(&plan, &statuses, well);
        let again = (!settled).then_some(memory.probe_period);
        let next = [next, again].into_iter().flatten().min();
        Ok(next.map_or(Action::AwaitChange, Action::RequeueAfter))
    }

    /// Whether there is a Node on the server of a Machine.
    fn is_up(&self, machine: &Machine) -> bool {
        let server = self.server_of(machine);
        let world = self.workloads.get(&server.sibling(&machine.spec.cluster_name));
        world.is_some_and(|world| world.has_node(&server.name))
    }

    #[allow(clippy::too_many_arguments, reason = "what the real agent puts together, too")]
    async fn report(
        &self,
        secret: &Secret,
        before: &Data,
        decision: &Decision,
        checksum: &str,
        ended: Option<Ended>,
        statuses: &Statuses,
        periodic: impl FnOnce(&Self) -> Option<Vec<u8>>,
    ) -> Result<(), Error> {
        let periodic = ended.as_ref().filter(|ended| ended.succeeded).and_then(|_| periodic(self));
        let mut after = before.clone();
        compose(&mut after, decision, checksum, ended.as_ref(), periodic, statuses);
        let changed: BTreeMap<&String, ByteString> = after
            .iter()
            .filter(|(key, value)| before.get(*key) != Some(value))
            .map(|(key, value)| (key, ByteString(value.clone())))
            .collect();
        if changed.is_empty() {
            return Ok(());
        }
        let name = secret.name_any();
        let secrets: Api<Secret> =
            Api::namespaced(self.ctx.client.clone(), &secret.namespace().unwrap_or_default());
        let patch = json!({"metadata": {"resourceVersion": secret.resource_version()}, "data": changed});
        let written = secrets.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        match written {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            written => written.map(drop).map_err(Error::api("report into Secret", name)),
        }
    }

    /// The server of a Machine.
    fn server_of(&self, machine: &Machine) -> ObjectKey {
        ObjectKey::of(&machine.metadata).sibling(&machine.spec.infrastructure_ref.name)
    }

    /// What comes up on a server whose plan is applied. Tells when to look again.
    fn join(&self, secret: &Secret, machine: &Machine, plan: &NodePlan) -> Option<Duration> {
        let server = self.server_of(machine);
        let cluster = server.sibling(&machine.spec.cluster_name);
        let world = self.workloads.ensure(&cluster);
        let control_plane = secret.labels().contains_key(label::CONTROL_PLANE_ROLE);
        if control_plane {
            self.control_planes.lock().entry(cluster.clone()).or_default().insert(server.name.to_string());
        }
        let began = control_plane && !world.is_serving();
        if began {
            world.set_external(true);
        }
        if !world.is_serving() {
            return Some(JOIN_AGAIN);
        }
        let configuration = configuration(plan);
        let labels = configuration["node-label"].as_array().into_iter().flatten();
        let labels = labels.filter_map(|label| label.as_str()?.split_once('='));
        let version = version(plan).unwrap_or_else(|| machine.spec.version.clone());
        let whose = machine.uid().unwrap_or_default();
        let distro = Distro::of(&version);
        let fails = self.happens(&server.to_string(), "ready fails", self.options.failures.ready);
        let left = self.left(&whose, "ready", &self.options.latencies.ready);
        let ready = !fails && left.is_none();
        let kubelet = Kubelet {
            provider_id: format!("{distro}://{}", server.name),
            version,
            address: self.address(&server),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            control_plane,
            ready,
        };
        world.kubelet(&server.name, &kubelet);
        if ready {
            world.set_node_ready(&server.name, "True", "KubeletReady", "kubelet is posting ready status");
        }
        if began && let Some(enqueuer) = self.tunnels.get() {
            enqueuer.enqueue(cluster);
        }
        left.filter(|_| !fails)
    }
}

#[cfg(test)]
mod tests {
    use remuda_plan::{File, Instruction, PeriodicInstruction, Probe, output::unpack};

    use super::*;

    #[test]
    fn a_plan_tells_version_and_labels() {
        let config = json!({"node-label": ["a=b", "c="], "server": "x"}).to_string();
        let plan = NodePlan {
            files: vec![File::new("/etc/rancher/k3s/config.yaml.d/50-rancher.yaml", config.as_bytes())],
            instructions: vec![Instruction {
                image: "rancher/system-agent-installer-k3s:v1.35.1-k3s1".to_owned(),
                ..Instruction::default()
            }],
            ..NodePlan::default()
        };
        assert_eq!(version(&plan).as_deref(), Some("v1.35.1+k3s1"));
        assert_eq!(configuration(&plan)["node-label"], json!(["a=b", "c="]));
        assert_eq!(version(&NodePlan::default()), None);
        assert_eq!(configuration(&NodePlan::default()), Value::Null);
    }

    #[test]
    fn members_of_etcd_tell_their_name_and_address() {
        let one =
            |name: &str| PeriodicInstruction { name: name.to_owned(), ..PeriodicInstruction::default() };
        let plan = NodePlan {
            periodic_instructions: vec![one("etcd-name"), one("capture-address")],
            ..NodePlan::default()
        };
        let packed = periodic(&plan, "n", "10.0.0.1", Stamp(0)).unwrap();
        let results: PeriodicResults = unpack(&packed).unwrap();
        assert_eq!(results["etcd-name"].stdout.0, b"n-1\n");
        assert!(
            String::from_utf8_lossy(&results["capture-address"].stdout.0).contains("https://10.0.0.1:2379")
        );
        assert_eq!(periodic(&NodePlan::default(), "n", "10.0.0.1", Stamp(0)), None);
    }

    #[test]
    fn probes_that_are_settled_stay_as_they_are() {
        let probe = Probe { success_threshold: 2, ..Probe::default() };
        let plan = NodePlan { probes: BTreeMap::from([("p".to_owned(), probe)]), ..NodePlan::default() };
        let first = probes(&plan, &Statuses::new(), true);
        let second = probes(&plan, &first, true);
        assert!(!first["p"].healthy && second["p"].healthy);
        assert_eq!(probes(&plan, &second, true), second);
        assert!(probes(&NodePlan::default(), &second, true).is_empty());
    }
}
