//! Everything a decision about a cluster looks at, read once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::civil::Date;
use remuda_names::{
    annotation::PRESERVED_UNTIL,
    rancher::{group, label, secret_type},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    denied::Denied,
    failure::{Code, Failure},
    hooks::{HostState, JobLog},
    object::Object,
    plan::Plan,
};

/// Kinds decisions ask about before they call something absent.
pub(crate) mod kind {
    pub(crate) const SECRETS: &str = "secrets";
    pub(crate) const JOBS: &str = "jobs.batch";
    pub(crate) const NODE_DRIVERS: &str = "nodedrivers.management.cattle.io";
    pub(crate) const MANAGEMENT_CLUSTERS: &str = "clusters.management.cattle.io";
    pub(crate) const CAPI_CLUSTERS: &str = "clusters.cluster.x-k8s.io";
    pub(crate) const MACHINES: &str = "machines.cluster.x-k8s.io";
    pub(crate) const BOOTSTRAPS: &str = "rkebootstraps.rke.cattle.io";
    pub(crate) const CONTROL_PLANES: &str = "rkecontrolplanes.rke.cattle.io";
}

/// What the question is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    Cluster(String),
    Machine(String),
}

impl Default for Subject {
    fn default() -> Subject {
        Subject::Cluster(String::new())
    }
}

/// The objects of one cluster. What could not be read is named, so that nobody takes it for absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evidence {
    pub subject: Subject,
    /// The Cluster of provisioning.cattle.io.
    pub cluster: Option<Object>,
    /// The Cluster of management.cattle.io.
    pub management: Option<Object>,
    /// The Cluster of cluster.x-k8s.io.
    pub capi: Option<Object>,
    /// The RKECluster.
    pub infrastructure: Option<Object>,
    /// The RKEControlPlane.
    pub control_plane: Option<Object>,
    pub deployments: Vec<Object>,
    pub sets: Vec<Object>,
    pub machines: Vec<Object>,
    pub bootstraps: Vec<Object>,
    /// Machines of drivers, and CustomMachines.
    pub servers: Vec<Object>,
    /// What pools are made from.
    pub configs: Vec<Object>,
    pub jobs: Vec<Object>,
    /// Plan Secrets.
    pub plans: Vec<Plan>,
    pub drivers: Vec<Object>,
    pub settings: Vec<Object>,
    pub events: Vec<Object>,
    /// What the Jobs of machines wrote, by the name of the machine; the end of it.
    pub logs: BTreeMap<String, JobLog>,
    /// What may not be read, by plural name and group of the kind: nothing may be concluded from its absence.
    pub unreadable: BTreeMap<String, Denied>,
    /// Secrets that are named somewhere and do not exist, as namespace/name.
    pub missing_secrets: BTreeSet<String>,
    /// What the server answered just now when it was to pass a request on to the cluster, if that failed.
    pub unreachable: Option<String>,
    /// The last day on which the Kubernetes of the cluster was maintained, if that is over.
    pub end_of_life: Option<Date>,
    /// The server knows releases, and the version of the cluster is none of them. Looked at only when plans fail.
    pub unknown_release: bool,
    /// What is seen of machines from the hosts they are on, by name, where that is this host.
    pub hosts: BTreeMap<String, HostState>,
}

impl Evidence {
    /// Sorts objects by what they are. Those that say nothing about a cluster are left out.
    pub fn from_objects(subject: Subject, objects: impl IntoIterator<Item = Object>) -> Evidence {
        let mut evidence = Evidence { subject, ..Evidence::default() };
        for object in objects {
            evidence.add(object);
        }
        evidence
    }

    pub(crate) fn add(&mut self, object: Object) {
        const CAPI: &str = remuda_names::capi::group::CORE;
        let list = match (object.group(), object.kind()) {
            (group::PROVISIONING, "Cluster") => return self.cluster = Some(object),
            (group::MANAGEMENT, "Cluster") => return self.management = Some(object),
            (CAPI, "Cluster") => return self.capi = Some(object),
            (group::RKE, "RKECluster") => return self.infrastructure = Some(object),
            (group::RKE, "RKEControlPlane") => return self.control_plane = Some(object),
            (CAPI, "MachineDeployment") => &mut self.deployments,
            (CAPI, "MachineSet") => &mut self.sets,
            (CAPI, "Machine") => &mut self.machines,
            (group::RKE, "RKEBootstrap") => &mut self.bootstraps,
            (group::RKE, "CustomMachine") => &mut self.servers,
            (group::MACHINE, kind) if kind.ends_with("Machine") => &mut self.servers,
            (group::MACHINE_CONFIG, _) => &mut self.configs,
            ("batch", "Job") => &mut self.jobs,
            (group::MANAGEMENT, "NodeDriver") => &mut self.drivers,
            (group::MANAGEMENT, "Setting") => &mut self.settings,
            ("", "Event") => &mut self.events,
            ("", "Secret") if object.text("/type") == secret_type::PLAN => {
                return self.plans.push(Plan::read(object));
            }
            _ => return,
        };
        list.push(object);
    }

    /// Name of the cluster.
    pub fn name(&self) -> &str {
        let known = [&self.cluster, &self.capi, &self.management];
        let named = known.into_iter().flatten().map(Object::name).find(|name| !name.is_empty());
        match (&self.subject, named) {
            (_, Some(name)) => name,
            (Subject::Cluster(name), None) => name,
            _ => "",
        }
    }

    pub fn namespace(&self) -> &str {
        self.cluster.as_ref().or(self.capi.as_ref()).map(Object::namespace).unwrap_or_default()
    }

    pub(crate) fn machine(&self, name: &str) -> Option<&Object> {
        self.machines.iter().find(|machine| machine.name() == name)
    }

    /// The server behind a Machine.
    pub(crate) fn server(&self, machine: &Object) -> Option<&Object> {
        let kind = machine.text("/spec/infrastructureRef/kind");
        let name = machine.text("/spec/infrastructureRef/name");
        self.servers.iter().find(|server| server.kind() == kind && server.name() == name)
    }

    pub(crate) fn bootstrap(&self, machine: &Object) -> Option<&Object> {
        let name = machine.text("/spec/bootstrap/configRef/name");
        self.bootstraps.iter().find(|bootstrap| bootstrap.name() == name)
    }

    /// The Job that makes or removes the server of a Machine; the newest, if there are several.
    pub(crate) fn job(&self, machine: &str, remove: bool) -> Option<&Object> {
        let ours = self.jobs.iter().filter(|job| {
            let named = [label::CAPI_MACHINE_NAME, label::INFRA_MACHINE_NAME];
            named.iter().any(|key| job.label(key) == machine)
                && (job.label(label::INFRA_REMOVE) == "true") == remove
        });
        ours.max_by_key(|job| job.created())
    }

    /// The last lines written while a server was made.
    pub(crate) fn create_log(&self, machine: &str, lines: usize) -> String {
        self.logs.get(machine).map(|log| tail(&log.create, lines)).unwrap_or_default()
    }

    /// The last lines written while a server was removed.
    pub(crate) fn remove_log(&self, machine: &str, lines: usize) -> String {
        self.logs.get(machine).map(|log| tail(&log.remove, lines)).unwrap_or_default()
    }

    pub(crate) fn plan(&self, machine: &Object) -> Option<&Plan> {
        let name = machine.name();
        self.plans.iter().find(|plan| plan.machine() == name)
    }

    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        let setting = self.settings.iter().find(|setting| setting.name() == name)?;
        Some(setting.text("/value")).filter(|value| !value.is_empty()).or(Some(setting.text("/default")))
    }

    /// Pools of the cluster, as they are written.
    pub(crate) fn pools(&self) -> impl Iterator<Item = Pool<'_>> {
        let pools = self.cluster.as_ref().map(|cluster| cluster.list("/spec/rkeConfig/machinePools"));
        pools.unwrap_or_default().iter().map(Pool)
    }

    /// The cluster is made here; without that it was imported.
    pub(crate) fn is_provisioned(&self) -> bool {
        self.cluster.as_ref().is_none_or(|cluster| cluster.has("/spec/rkeConfig"))
    }

    /// Whether a kind could be read, by its plural name and group.
    pub(crate) fn can_read(&self, resource: &str) -> bool {
        !self.unreadable.contains_key(resource)
    }

    /// Notes what a refused request was for; any other failure is given back.
    pub(crate) fn note_denied(&mut self, failure: Failure) -> Result<(), Failure> {
        match failure {
            Failure { code: Code::Forbidden, denied: Some(denied), .. } => {
                self.unreadable.insert(denied.resource.clone(), *denied);
                Ok(())
            }
            failure => Err(failure),
        }
    }
}

/// The end of a text, without empty lines: what matters of a log is last.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// A pool, as it is written in the cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pool<'a>(pub(crate) &'a Value);

impl<'a> Pool<'a> {
    fn text(self, pointer: &str) -> &'a str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn flag(self, key: &str) -> bool {
        self.0.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(crate) fn name(self) -> &'a str {
        self.text("/name")
    }

    pub(crate) fn wanted(self) -> i64 {
        self.0.get("quantity").and_then(Value::as_i64).unwrap_or(1)
    }

    pub(crate) fn config_kind(self) -> &'a str {
        self.text("/machineConfigRef/kind")
    }

    pub(crate) fn config_name(self) -> &'a str {
        self.text("/machineConfigRef/name")
    }

    pub(crate) fn credential(self) -> &'a str {
        self.text("/cloudCredentialSecretName")
    }

    /// Driver of the pool's machines; none for machines of foreign providers.
    pub(crate) fn driver(self) -> Option<String> {
        let version = self.text("/machineConfigRef/apiVersion");
        let ours = version.is_empty() || version.starts_with(group::MACHINE_CONFIG);
        let kind = self.config_kind().strip_suffix("Config").filter(|kind| !kind.is_empty() && ours)?;
        Some(kind.to_lowercase())
    }

    pub(crate) fn has_etcd(self) -> bool {
        self.flag("etcdRole")
    }

    pub(crate) fn roles(self) -> Roles {
        Roles {
            etcd: self.has_etcd(),
            control_plane: self.flag("controlPlaneRole"),
            worker: self.flag("workerRole"),
        }
    }

    /// Whether a Machine is one of this pool. One that failed and is kept to look at was replaced.
    pub(crate) fn owns(self, machine: &Object) -> bool {
        machine.label(label::MACHINE_POOL_NAME) == self.name() && !machine.has_annotation(PRESERVED_UNTIL)
    }
}

/// What a machine does in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Roles {
    pub(crate) etcd: bool,
    pub(crate) control_plane: bool,
    pub(crate) worker: bool,
}

impl Roles {
    pub(crate) fn of(machine: &Object) -> Roles {
        let has = |key: &str| machine.label(key) == "true";
        Roles {
            etcd: has(label::ETCD_ROLE),
            control_plane: has(label::CONTROL_PLANE_ROLE),
            worker: has(label::WORKER_ROLE),
        }
    }

    pub(crate) fn names(self) -> Vec<&'static str> {
        let all = [(self.etcd, "etcd"), (self.control_plane, "control plane"), (self.worker, "worker")];
        all.into_iter().filter(|(held, _)| *held).map(|(_, name)| name).collect()
    }
}

impl std::fmt::Display for Roles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.etcd, self.control_plane, self.worker) {
            (true, true, true) => f.write_str("all"),
            (true, true, false) => f.write_str("server"),
            _ => f.write_str(&self.names().join(",")),
        }
    }
}
