//! Machines as the planner sees them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use remuda_api::{core::Machine, rke::RkeBootstrap};
use remuda_control::{Chain, ObjectKey, write::conditions};
use remuda_names::{
    annotation::{POWER, PRESERVED_UNTIL, RESTART_REQUESTED},
    capi::condition,
    rancher::{annotation, condition as rancher_condition, label, secret_key, secret_type},
};
use remuda_plan::key;
use remuda_planner::{
    driver::{Driver, DriverConfig},
    input::{self, Address, AddressKind, PlanSecret, Reconciled, Summary},
};

use crate::{
    Error, objects,
    shared::{BY_CLUSTER, Rke, filed},
};

/// Reason of conditions about Nodes while their cluster cannot be reached.
const CONNECTION_DOWN: &str = "ConnectionDown";
/// Plan Secrets of one cluster that are read at a time.
const READS: usize = 16;
/// What of a plan Secret's data anybody here reads or writes.
const DATA: &[&str] = &[
    key::APPLIED_OUTPUT,
    key::PLAN,
    key::APPLIED_CHECKSUM,
    key::APPLIED_PLAN,
    key::PLAN_STATE,
    key::MAX_FAILURES,
    key::FAILURE_THRESHOLD,
    key::FAILURE_COUNT,
    key::FAILED_CHECKSUM,
    key::PROBE_STATUSES,
    key::APPLIED_PERIODIC_OUTPUT,
];

/// Labels that say what a machine is for and which one it is. They decide which tokens its plan carries.
const IDENTITY_LABELS: &[&str] = &[
    label::ETCD_ROLE,
    label::CONTROL_PLANE_ROLE,
    label::WORKER_ROLE,
    label::OS,
    label::NODE_NAME,
    label::MACHINE_ID,
];
/// Annotations that say how its Node is configured.
const IDENTITY_ANNOTATIONS: &[&str] =
    &[annotation::TAINTS, annotation::LABELS, annotation::ADDRESS, annotation::INTERNAL_ADDRESS];

/// Machines of one cluster.
pub(crate) struct Seen {
    pub(crate) machines: Vec<input::Machine>,
    /// Versions of the plan Secrets as they were seen, by name.
    pub(crate) versions: BTreeMap<String, String>,
}

/// How sure one must be of plan Secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As the cache has them: good enough to see that nothing is to be done, as any change wakes us.
    Cached,
    /// As the API has them now.
    Fresh,
}

impl Rke {
    /// Machines of a cluster whose bootstrap is ours.
    pub(crate) async fn see_machines(&self, cluster: &ObjectKey, reading: Reading) -> Result<Seen, Error> {
        let namespace = cluster.namespace.as_deref().unwrap_or_default();
        let machines = self.machines.by_index(BY_CLUSTER, &filed(namespace, &cluster.name));
        let planned = machines.iter().filter_map(|machine| {
            let bootstrap = objects::bootstrap_of(machine)?;
            Some((machine, objects::plan_name(bootstrap)))
        });
        let planned: Vec<_> = planned.collect();
        let secrets: Vec<Option<Arc<Secret>>> = match reading {
            Reading::Cached => {
                let cached = |name: &str| self.plans.get(&ObjectKey::namespaced(namespace, name));
                planned.iter().map(|(_, name)| cached(name)).collect()
            }
            Reading::Fresh => {
                let read = |name| self.fresh_plan(namespace, &cluster.name, name).boxed();
                let reads: Vec<BoxFuture<'_, _>> = planned.iter().map(|(_, name)| read(name)).collect();
                stream::iter(reads).buffered(READS).try_collect().await?
            }
        };
        let mut seen = Seen { machines: Vec::with_capacity(planned.len()), versions: BTreeMap::new() };
        for ((machine, name), secret) in planned.into_iter().zip(secrets) {
            if let Some(secret) = &secret {
                seen.versions.insert(name, secret.resource_version().unwrap_or_default());
            }
            let driver = self.driver_of(machine);
            let bootstrap = objects::bootstrap_of(machine)
                .and_then(|name| self.bootstraps.get(&ObjectKey::namespaced(namespace, name)));
            let secret = secret.as_deref().map(|secret| {
                let mut secret = plan_secret(secret);
                identify(&mut secret, machine, bootstrap.as_deref());
                secret
            });
            seen.machines.push(view(machine, secret, driver));
        }
        Ok(seen)
    }

    /// A plan Secret as the API has it; it is read whole only if the cache has it in another version. Asked for by
    /// name: a list by label looks at every Secret of the namespace, which all clusters may share.
    async fn fresh_plan(
        &self,
        namespace: &str,
        cluster: &str,
        name: &str,
    ) -> Result<Option<Arc<Secret>>, Error> {
        let api: Api<Secret> = self.api(namespace);
        let failed = || Error::api("read", format!("Secret {namespace}/{name}"));
        let Some(known) = api.get_metadata_opt(name).await.map_err(failed())? else {
            return Ok(None);
        };
        let cached = self.plans.get(&ObjectKey::namespaced(namespace, name));
        if let Some(cached) = cached.filter(|cached| cached.resource_version() == known.resource_version()) {
            return Ok(Some(cached));
        }
        let read = api.get_opt(name).await.map_err(failed())?;
        let ours = |secret: &Secret| {
            secret.type_.as_deref() == Some(secret_type::PLAN)
                && secret.labels().get(label::CLUSTER_NAME).is_some_and(|known| known == cluster)
        };
        Ok(read.filter(ours).map(Arc::new))
    }

    /// What the driver knows of a Machine's server.
    fn driver_of(&self, machine: &Machine) -> Driver {
        let Some(infrastructure) = objects::driver_machine(machine) else {
            return Driver::None;
        };
        let key = ObjectKey::of(&machine.metadata).sibling(objects::machine_state_name(infrastructure));
        match self.states.get(&key) {
            Some(secret) => self.drivers.read(&key, &secret),
            None => Driver::Unsaved,
        }
    }
}

/// Machine states are archives; each is unpacked once.
#[derive(Default)]
pub(crate) struct Drivers(Mutex<HashMap<ObjectKey, (String, Driver)>>);

/// States remembered before all are forgotten.
const REMEMBERED: usize = 50_000;

impl Drivers {
    fn read(&self, key: &ObjectKey, secret: &Secret) -> Driver {
        let version = secret.resource_version().unwrap_or_default();
        if let Some((_, driver)) = self.0.lock().get(key).filter(|known| known.0 == version) {
            return driver.clone();
        }
        let archive = secret.data.as_ref().and_then(|data| data.get(secret_key::EXTRACTED_CONFIG));
        let driver = match archive.filter(|archive| !archive.0.is_empty()) {
            None => Driver::Unsaved,
            Some(archive) => match DriverConfig::from_state(&archive.0) {
                Ok(Some(config)) => Driver::Saved(config),
                Ok(None) => Driver::Unsaved,
                Err(error) => {
                    tracing::warn!(secret = %key, error = %Chain(&error), "machine state cannot be read");
                    Driver::Unsaved
                }
            },
        };
        let mut known = self.0.lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key.clone(), (version, driver.clone()));
        driver
    }
}

/// Whether two states of a plan Secret are the same to the planner.
pub(crate) fn same_plan(one: &Secret, other: &Secret) -> bool {
    fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a ByteString> {
        secret.data.as_ref()?.get(key)
    }
    one.metadata.uid == other.metadata.uid
        && one.metadata.labels == other.metadata.labels
        && one.metadata.annotations == other.metadata.annotations
        && DATA.iter().all(|key| value(one, key) == value(other, key))
}

/// Whether two states of a Machine are the same to the planner.
pub(crate) fn same_machine(one: &Machine, other: &Machine) -> bool {
    one.spec == other.spec && view(one, None, Driver::None) == view(other, None, Driver::None)
}

/// A plan Secret as the planner sees it.
pub(crate) fn plan_secret(secret: &Secret) -> PlanSecret {
    let data = secret.data.as_ref();
    let wanted = DATA.iter().filter_map(|key| {
        let value = data?.get(*key)?;
        Some(((*key).to_owned(), value.0.clone()))
    });
    PlanSecret {
        name: secret.name_any(),
        labels: secret.labels().clone(),
        annotations: secret.annotations().clone(),
        data: wanted.collect(),
    }
}

/// Puts what a machine is in place of what its plan Secret says about it. The labels and annotations there are
/// copies of the RKEBootstrap's, in an object that the machine's agent writes to. Without an RKEBootstrap the
/// Machine is asked for the roles; the Secret goes with its RKEBootstrap anyway.
fn identify(secret: &mut PlanSecret, machine: &Machine, bootstrap: Option<&RkeBootstrap>) {
    fn replace(copy: &mut BTreeMap<String, String>, keys: &[&str], source: &BTreeMap<String, String>) {
        for key in keys {
            match source.get(*key) {
                Some(value) => copy.insert((*key).to_owned(), value.clone()),
                None => copy.remove(*key),
            };
        }
    }
    match bootstrap {
        Some(bootstrap) => {
            replace(&mut secret.labels, IDENTITY_LABELS, bootstrap.labels());
            replace(&mut secret.annotations, IDENTITY_ANNOTATIONS, bootstrap.annotations());
        }
        None => replace(&mut secret.labels, IDENTITY_LABELS, machine.labels()),
    }
}

pub(crate) fn view(machine: &Machine, plan_secret: Option<PlanSecret>, driver: Driver) -> input::Machine {
    let status = machine.status.as_ref();
    let known: &[Condition] = status.map_or(&[], |status| &status.conditions);
    let node = status.map(|status| status.node_ref.name.clone()).filter(|name| !name.is_empty());
    let healthy = conditions::get(known, condition::NODE_HEALTHY)
        .or_else(|| conditions::get(known, condition::NODE_READY))
        // That the cluster cannot be seen says nothing about its nodes. Were they taken for down, each of them
        // could be restarted, as a node that is down loses nothing by it.
        .filter(|condition| condition.reason != CONNECTION_DOWN)
        .map(|condition| condition.status == "True");
    let reconciled = conditions::get(known, rancher_condition::RECONCILED);
    input::Machine {
        namespace: machine.namespace().unwrap_or_default(),
        name: machine.name_any(),
        uid: machine.uid().unwrap_or_default(),
        labels: machine.labels().clone(),
        // One that is kept to look at was replaced, and gets no plans: it would only hold up the others.
        deleting: objects::is_deleting(&machine.metadata)
            || objects::has_annotation(&machine.metadata, PRESERVED_UNTIL),
        failed: status.is_some_and(|status| status.phase == "Failed"),
        infrastructure_ready: conditions::is_true(known, condition::INFRASTRUCTURE_READY),
        // Until there is a Node nothing can be said about its health.
        node_healthy: healthy.filter(|_| node.is_some()),
        node,
        kubelet_version: status
            .and_then(|status| status.node_info.as_ref())
            .map(|info| info.kubelet_version.clone()),
        addresses: status.iter().flat_map(|status| &status.addresses).map(address).collect(),
        reconciled: reconciled.map(|condition| Reconciled {
            is_true: condition.status == "True",
            message: condition.message.clone(),
        }),
        summary: Summary::of(
            known.iter().map(|one| {
                (one.type_.as_str(), one.status.as_str(), one.reason.as_str(), one.message.as_str())
            }),
        ),
        certificates_until: status
            .and_then(|status| status.certificates_expiry_date.as_ref())
            .map(|until| until.0),
        power: machine.annotations().get(POWER).cloned().unwrap_or_default(),
        restart_asked: machine.annotations().get(RESTART_REQUESTED).cloned().unwrap_or_default(),
        driver,
        plan_secret,
    }
}

fn address(address: &remuda_api::core::MachineAddress) -> Address {
    let kind = match address.kind.as_str() {
        "InternalIP" => AddressKind::InternalIp,
        "ExternalIP" => AddressKind::ExternalIp,
        _ => AddressKind::Other,
    };
    Address { kind, address: address.address.clone() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine(node: &str, conditions: &[(&str, &str, &str)]) -> input::Machine {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, status, reason)| {
                json!({"type": kind, "status": status, "reason": reason, "message": "",
                       "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .collect();
        let object = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "metadata": {"name": "m"}, "spec": {},
            "status": {"nodeRef": {"name": node}, "conditions": conditions},
        });
        view(&serde_json::from_value(object).unwrap(), None, Driver::None)
    }

    #[test]
    fn a_node_is_unwell_only_if_somebody_who_can_see_it_says_so() {
        let healthy = |node: &str, status: &str, reason: &str| {
            machine(node, &[("NodeHealthy", status, reason)]).node_healthy
        };
        assert_eq!(healthy("n", "True", "NodeHealthy"), Some(true));
        assert_eq!(healthy("n", "False", "NodeNotHealthy"), Some(false));
        assert_eq!(healthy("n", "Unknown", "NodeHealthUnknown"), Some(false));
        assert_eq!(healthy("n", "Unknown", "ConnectionDown"), None);
        assert_eq!(healthy("", "False", "NodeDoesNotExist"), None);
        assert_eq!(machine("n", &[("NodeReady", "False", "x")]).node_healthy, Some(false));
        assert_eq!(machine("n", &[]).node_healthy, None);
    }

    #[test]
    fn a_machine_that_is_not_being_updated_is_not_in_transition() {
        let calm = machine("n", &[("Ready", "True", "Ready"), ("Updating", "False", "NotUpdating")]);
        assert_eq!(calm.summary, Summary::default());
        assert!(machine("n", &[("Ready", "False", "NotReady")]).summary.transitioning);
    }

    #[test]
    fn what_a_machine_is_for_is_not_taken_from_its_plan_secret() {
        let labels = |keys: &[&str]| -> BTreeMap<String, String> {
            keys.iter().map(|key| ((*key).to_owned(), "true".to_owned())).collect()
        };
        let secret = || PlanSecret {
            labels: labels(&[label::CONTROL_PLANE_ROLE, label::ETCD_ROLE, label::INIT_NODE]),
            annotations: [
                (annotation::TAINTS.to_owned(), "[]".to_owned()),
                (annotation::JOIN_URL.to_owned(), "https://10.0.0.1:9345".to_owned()),
            ]
            .into(),
            ..PlanSecret::default()
        };
        let mut machine = Machine::default();
        machine.metadata.labels = Some(labels(&[label::WORKER_ROLE]));
        let mut bootstrap = RkeBootstrap::named("m");
        bootstrap.metadata.labels = Some(labels(&[label::WORKER_ROLE, label::OS]));
        let mut seen = secret();
        identify(&mut seen, &machine, Some(&bootstrap));
        assert_eq!(seen.labels, labels(&[label::WORKER_ROLE, label::OS, label::INIT_NODE]));
        let kept: Vec<&str> = seen.annotations.keys().map(String::as_str).collect();
        assert_eq!(kept, [annotation::JOIN_URL], "marks of the planner stay");
        let mut orphan = secret();
        identify(&mut orphan, &machine, None);
        assert_eq!(orphan.labels, labels(&[label::WORKER_ROLE, label::INIT_NODE]));
    }

    #[test]
    fn plan_secrets_differ_only_in_what_somebody_looks_at() {
        let secret = |key: &str, value: &str| -> Secret {
            serde_json::from_value(json!({"metadata": {"name": "s"}, "data": {key: value}})).unwrap()
        };
        assert!(same_plan(&secret("last-apply-time", "eA=="), &secret("last-apply-time", "eQ==")));
        assert!(!same_plan(&secret("plan", "eA=="), &secret("plan", "eQ==")));
        assert!(!same_plan(&secret("plan", "eA=="), &Secret::default()));
    }
}
