//! What happened, as lines.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::ResourceExt;
use remuda_api::core::{Cluster, Machine, MachineDeployment, MachineHealthCheck, MachineSet};
use remuda_control::{
    Informer, Informers, ObjectKey, Scope,
    write::{conditions, controller_of},
};
use remuda_names::capi::{condition, label};
use serde_json::Value;

use crate::workload::Workloads;

/// Tells what differs from one look at the world to the next.
pub struct Narrative {
    clusters: Informer<Cluster>,
    deployments: Informer<MachineDeployment>,
    sets: Informer<MachineSet>,
    machines: Informer<Machine>,
    checks: Informer<MachineHealthCheck>,
    workloads: Workloads,
    /// Subjects and what was last said of them.
    told: BTreeMap<String, String>,
    /// MachineSets by uid, and the name they go by.
    aliases: HashMap<String, (String, String)>,
    counts: HashMap<String, usize>,
    /// Every name that was made up.
    made_up: Vec<(String, String)>,
}

impl Narrative {
    pub fn new(informers: &Informers, workloads: Workloads) -> Self {
        Self {
            clusters: informers.of(Scope::all()),
            deployments: informers.of(Scope::all()),
            sets: informers.of(Scope::all()),
            machines: informers.of(Scope::all()),
            checks: informers.of(Scope::all()),
            workloads,
            told: BTreeMap::new(),
            aliases: HashMap::new(),
            counts: HashMap::new(),
            made_up: Vec::new(),
        }
    }

    pub async fn wait_synced(&self) {
        self.clusters.wait_synced().await;
        self.deployments.wait_synced().await;
        self.sets.wait_synced().await;
        self.machines.wait_synced().await;
        self.checks.wait_synced().await;
    }

    /// The name of the MachineSet that goes by an alias.
    pub(super) fn set_named(&self, alias: &str) -> Option<String> {
        self.aliases.values().find(|(known, _)| known == alias).map(|(_, name)| name.clone())
    }

    /// The names of a deployment's Machines, the oldest first.
    pub(super) fn machines_of(&self, deployment: &str) -> Vec<String> {
        let mut machines: Vec<_> = self
            .machines
            .list()
            .into_iter()
            .filter(|machine| {
                machine.labels().get(label::DEPLOYMENT_NAME).is_some_and(|name| name == deployment)
            })
            .collect();
        machines.sort_by_key(|machine| (created(&machine.metadata), machine.name_any()));
        machines.into_iter().map(|machine| machine.name_any()).collect()
    }

    /// A line for each thing of which there is something new to say.
    pub fn look(&mut self) -> Vec<String> {
        self.name_sets();
        let mut now = BTreeMap::new();
        for cluster in self.clusters.list() {
            let status = cluster.status.clone().unwrap_or_default();
            let mut said = vec![status.phase.clone()];
            said.extend(told_condition(&status.conditions, condition::AVAILABLE, "available"));
            said.extend(told_deleting(&status.conditions));
            said.extend(told_paused(&status.conditions));
            now.insert(format!("1 cluster {}", cluster.name_any()), said.join(", "));
        }
        for deployment in self.deployments.list() {
            let status = deployment.status.clone().unwrap_or_default();
            let number = |number: Option<i32>| number.unwrap_or(0);
            let mut said = vec![format!(
                "{} wanted: {} there, {} ready, {} available, {} up to date",
                number(deployment.spec.replicas),
                number(status.replicas),
                number(status.ready_replicas),
                number(status.available_replicas),
                number(status.up_to_date_replicas),
            )];
            said.extend(told_deleting(&status.conditions));
            said.extend(told_paused(&status.conditions));
            now.insert(format!("2 deployment {}", deployment.name_any()), said.join(", "));
        }
        for set in self.sets.list() {
            let alias = self.alias(&set);
            let deleting = if set.metadata.deletion_timestamp.is_some() { ", deleting" } else { "" };
            let wanted = set.spec.replicas.unwrap_or(0);
            now.insert(format!("3 set {alias}"), format!("{wanted} wanted{deleting}"));
        }
        self.look_at_machines(&mut now);
        for check in self.checks.list() {
            let status = check.status.clone().unwrap_or_default();
            let mut said = vec![format!(
                "{} of {} healthy",
                status.current_healthy.unwrap_or(0),
                status.expected_machines.unwrap_or(0)
            )];
            if let Some(allowed) = conditions::get(&status.conditions, condition::REMEDIATION_ALLOWED)
                && allowed.status == "False"
            {
                said.push(format!("remediation not allowed: {}", self.plain(&allowed.message)));
            }
            now.insert(format!("5 health check {}", check.name_any()), said.join(", "));
        }
        self.look_at_workloads(&mut now);
        self.tell(now)
    }

    fn tell(&mut self, now: BTreeMap<String, String>) -> Vec<String> {
        let mut lines = Vec::new();
        for (subject, said) in &now {
            if self.told.get(subject) != Some(said) {
                lines.push(format!("{}: {said}", &subject[2..]));
            }
        }
        for subject in self.told.keys().filter(|subject| !now.contains_key(*subject)) {
            lines.push(format!("{}: gone", &subject[2..]));
        }
        self.told = now;
        lines
    }

    fn look_at_machines(&mut self, now: &mut BTreeMap<String, String>) {
        let mut groups: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for machine in self.machines.list() {
            let owner = controller_of(&machine.metadata);
            let group = match owner {
                Some(owner) if owner.kind == "MachineSet" => self
                    .aliases
                    .get(&owner.uid)
                    .map_or_else(|| owner.name.clone(), |(alias, _)| alias.clone()),
                Some(owner) => owner.name.clone(),
                None => machine.name_any(),
            };
            if owner.is_some() && !self.made_up.iter().any(|(name, _)| *name == machine.name_any()) {
                self.made_up.push((machine.name_any(), format!("{group}/*")));
            }
            let state = self.machine_state(&machine);
            *groups.entry(group).or_default().entry(state).or_default() += 1;
        }
        for (group, states) in groups {
            let said: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
            now.insert(format!("4 machines of {group}"), said.join(", "));
        }
    }

    fn machine_state(&self, machine: &Machine) -> String {
        let status = machine.status.clone().unwrap_or_default();
        let list = &status.conditions;
        let mut said = if status.phase.is_empty() { "new".to_owned() } else { status.phase.clone() };
        if machine.metadata.deletion_timestamp.is_some() {
            if let Some(deleting) = conditions::get(list, condition::DELETING)
                && deleting.status == "True"
                && !matches!(deleting.reason.as_str(), "Deleting" | "DeletionCompleted")
            {
                said = format!("{said} ({})", deleting.reason);
                if deleting.reason == "DrainingNode" {
                    let message = self.plain(&deleting.message);
                    said.push_str(&format!(" [{}]", message.replace('\n', " | ")));
                }
            }
        } else {
            let is_false =
                |kind: &str| conditions::get(list, kind).is_some_and(|known| known.status == "False");
            if is_false(condition::HEALTH_CHECK_SUCCEEDED) {
                said.push_str(" unhealthy");
            }
            if is_false(condition::UP_TO_DATE) {
                said.push_str(" outdated");
            }
        }
        if conditions::is_true(list, condition::PAUSED) {
            said.push_str(" paused");
        }
        said
    }

    fn look_at_workloads(&self, now: &mut BTreeMap<String, String>) {
        for cluster in self.workloads.list() {
            let mut states: BTreeMap<String, usize> = BTreeMap::new();
            for node in cluster.nodes() {
                *states.entry(node_state(&node)).or_default() += 1;
            }
            let said: Vec<String> = states.iter().map(|(state, count)| format!("{count} {state}")).collect();
            let name = &cluster.key().name;
            if !said.is_empty() {
                now.insert(format!("6 nodes of {name}"), said.join(", "));
            }
            let pods: Vec<String> = cluster
                .pods()
                .iter()
                .map(|pod| {
                    let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_owned();
                    let ending =
                        if pod["metadata"]["deletionTimestamp"].is_string() { " ending" } else { "" };
                    format!("{}/{}{ending}", text("namespace"), text("name"))
                })
                .collect();
            if !pods.is_empty() {
                now.insert(format!("7 pods of {name}"), pods.join(", "));
            }
        }
    }

    /// Gives new MachineSets a name in the order they came to be.
    fn name_sets(&mut self) {
        let mut sets = self.sets.list();
        sets.sort_by_key(|set| (created(&set.metadata), set.name_any()));
        for set in sets {
            let uid = set.uid().unwrap_or_default();
            if self.aliases.contains_key(&uid) {
                continue;
            }
            let name = set.name_any();
            let alias = match set.labels().get(label::DEPLOYMENT_NAME) {
                Some(deployment) => {
                    let count = self.counts.entry(deployment.clone()).or_default();
                    *count += 1;
                    format!("{deployment}#{count}")
                }
                None => name.clone(),
            };
            self.made_up.push((name.clone(), alias.clone()));
            self.aliases.insert(uid, (alias, name));
        }
    }

    fn alias(&self, set: &MachineSet) -> String {
        let known = self.aliases.get(&set.uid().unwrap_or_default());
        known.map_or_else(|| set.name_any(), |(alias, _)| alias.clone())
    }

    /// A text in which nothing is made up.
    pub(super) fn plain(&self, text: &str) -> String {
        let mut text = text.to_owned();
        // Machines are named after their sets: longer names first.
        let mut names: Vec<&(String, String)> = self.made_up.iter().collect();
        names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        for (name, alias) in names {
            text = text.replace(name.as_str(), alias);
        }
        text
    }
}

fn created(meta: &ObjectMeta) -> Option<jiff::Timestamp> {
    meta.creation_timestamp.as_ref().map(|time| time.0)
}

fn told_condition(list: &[Condition], kind: &str, word: &str) -> Option<String> {
    conditions::is_true(list, kind).then(|| word.to_owned())
}

fn told_deleting(list: &[Condition]) -> Option<String> {
    let deleting = conditions::get(list, condition::DELETING).filter(|known| known.status == "True")?;
    Some(format!("deleting ({})", deleting.reason))
}

fn told_paused(list: &[Condition]) -> Option<String> {
    told_condition(list, condition::PAUSED, "paused")
}

fn node_state(node: &Value) -> String {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let state = match ready.and_then(|ready| ready["status"].as_str()) {
        Some("True") => "ready",
        Some("False") => "not ready",
        _ => "silent",
    };
    let cordoned = if node["spec"]["unschedulable"] == true { " cordoned" } else { "" };
    format!("{state}{cordoned}")
}

impl std::fmt::Debug for Narrative {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Narrative").finish_non_exhaustive()
    }
}

/// Where a cluster is, as scripts have it: all of them are in one namespace.
pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}
