//! Limits of workspaces, in front of the API: the counting is in `remuda_provisioning`.
//!
//! A limit holds for everybody who asks for more, administrators included, who can change it. The server's controllers
//! are not judged: they copy what was judged where people wrote it.
//!
//! Two writes at the same moment do not see each other in the store. What was let through a short while ago is therefore
//! counted until it is seen there, so many writes at once at one server get no more than one after the other. Several
//! servers on one datastore do not know that of each other: writes at the same moment at each of them may together be
//! above a limit, by what one server let through meanwhile.

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use remuda_api::quota::WorkspaceQuota;
use remuda_apiserver::{AdmissionRequest as Request, ApiError, Hook, Lookup, Named, Operation};
use remuda_machines::trust::{self, Class};
use remuda_names::{GROUP, capi::group::CORE, rancher::group::PROVISIONING};
use remuda_provisioning::admission::quota::{self, Change, Quota, Usage};
use serde_json::Value;

use super::writers::forbidden;
use crate::driver_use;

/// For a write that was let through to be in the store, or to have failed.
const UNDER_WAY: Duration = Duration::from_secs(10);

/// Clusters of a namespace that were let through, since when, and what they use.
type UnderWay = BTreeMap<String, (Instant, Usage)>;

/// Admission of Clusters that ask for more than they did.
pub(crate) struct Quotas {
    drivers: driver_use::Admission,
    under_way: Mutex<HashMap<String, UnderWay>>,
    unnamed: AtomicU64,
}

fn lookup(group: &str, kind: &str, namespace: &str) -> Lookup {
    Lookup {
        group: group.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: String::new(),
    }
}

fn clusters_in(namespace: &str) -> Lookup {
    lookup(PROVISIONING, "Cluster", namespace)
}

fn quotas_in(namespace: &str) -> Lookup {
    lookup(GROUP, "WorkspaceQuota", namespace)
}

fn is_cluster(request: &Request<'_>) -> bool {
    request.group == PROVISIONING && request.kind == "Cluster"
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn replicas(deployment: &Value) -> i64 {
    deployment["spec"]["replicas"].as_i64().unwrap_or(1)
}

impl Quotas {
    pub(crate) fn new(drivers: driver_use::Admission) -> Self {
        Self { drivers, under_way: Mutex::default(), unnamed: AtomicU64::new(0) }
    }

    /// A driver that is not known yet may be of any class.
    fn classes_of(&self, reference: &Value) -> Vec<String> {
        let Some(driver) = trust::pool_driver(reference) else { return Vec::new() };
        let classes =
            self.drivers.class_of(&driver).map_or(vec![Class::Cloud, Class::Host], |class| vec![class]);
        classes.into_iter().map(|class| class.as_str().to_owned()).collect()
    }

    fn usage(&self, cluster: &Value) -> Usage {
        quota::usage(cluster, &|reference| self.classes_of(reference))
    }

    fn grows(&self, request: &Request<'_>, new: &Value) -> bool {
        match (is_cluster(request), request.old) {
            (true, None) => true,
            (true, Some(old)) => quota::grows(&self.usage(old), &self.usage(new)),
            (false, old) => old.is_some_and(|old| replicas(new) > replicas(old)),
        }
    }

    /// What all Clusters but this one use, in the store or on their way there.
    fn others(clusters: &[Value], under_way: &UnderWay, own: &str, usage: impl Fn(&Value) -> Usage) -> Usage {
        let mut known: BTreeMap<&str, Usage> =
            clusters.iter().map(|found| (name(found), usage(found))).collect();
        for (name, (_, usage)) in under_way {
            let entry = known.entry(name).or_default();
            for (counted, count) in usage {
                let stored = entry.entry(counted.clone()).or_default();
                *stored = (*stored).max(*count);
            }
        }
        known.remove(own);
        let mut sum = Usage::new();
        for (counted, count) in known.into_values().flatten() {
            let total = sum.entry(counted).or_default();
            *total = i64::saturating_add(*total, count);
        }
        sum
    }

    /// The Cluster before and after the write.
    fn change(request: &Request<'_>, new: &Value, clusters: &[Value]) -> Option<(Option<Value>, Value)> {
        if is_cluster(request) {
            return Some((request.old.cloned(), new.clone()));
        }
        let maker = new["spec"]["clusterName"].as_str()?;
        let cluster = clusters.iter().find(|cluster| name(cluster) == maker)?;
        let after = quota::scaled(cluster, request.name, replicas(new))?;
        Some((Some(cluster.clone()), after))
    }
}

impl Hook for Quotas {
    fn concerns(&self, request: &Request<'_>) -> bool {
        let main = request.subresource.is_empty();
        let is_deployment = request.group == CORE
            && request.kind == "MachineDeployment"
            && request.operation == Operation::Update
            && (main || request.subresource == "scale");
        !request.user.is_controller() && (main && is_cluster(request) || is_deployment)
    }

    fn lookups(&self, request: &Request<'_>, object: Option<&Value>) -> Vec<Lookup> {
        if object.is_some_and(|new| self.grows(request, new)) {
            return vec![clusters_in(request.namespace), quotas_in(request.namespace)];
        }
        Vec::new()
    }

    fn validate(&self, request: &Request<'_>, object: Option<&Value>) -> Result<Vec<String>, ApiError> {
        if request.operation == Operation::Delete {
            // It is in the store, which counts from now on.
            if let Some(clusters) = self.under_way.lock().get_mut(request.namespace) {
                clusters.remove(request.name);
            }
            return Ok(Vec::new());
        }
        let found = |lookup: Lookup| request.found.get(&lookup).map(|found| found.objects.as_slice());
        let quotas: Vec<Quota> = found(quotas_in(request.namespace))
            .unwrap_or_default()
            .iter()
            .filter_map(|quota| serde_json::from_value::<WorkspaceQuota>(quota.clone()).ok())
            .map(|quota| Quota { name: quota.metadata.name.unwrap_or_default(), limits: quota.spec.hard })
            .collect();
        let (Some(new), false) = (object, quotas.is_empty()) else { return Ok(Vec::new()) };
        let clusters = found(clusters_in(request.namespace)).unwrap_or_default();
        let Some((old, new)) = Self::change(request, new, clusters) else { return Ok(Vec::new()) };

        let mut all = self.under_way.lock();
        all.retain(|_, clusters| {
            clusters.retain(|_, (since, _)| since.elapsed() < UNDER_WAY);
            !clusters.is_empty()
        });
        let under_way = all.entry(request.namespace.to_owned()).or_default();
        let others = Self::others(clusters, under_way, name(&new), |cluster| self.usage(cluster));
        let classes_of = |reference: &Value| self.classes_of(reference);
        let change = Change { old: old.as_ref(), new: &new, classes_of: &classes_of };
        let refused = quota::refuse(&quotas, &others, &change);
        if refused.is_empty() {
            if !request.dry_run {
                let key = match name(&new) {
                    // No object has such a name.
                    "" => format!("/{}", self.unnamed.fetch_add(1, Ordering::Relaxed)),
                    name => name.to_owned(),
                };
                under_way.insert(key, (Instant::now(), self.usage(&new)));
            }
            return Ok(Vec::new());
        }
        let named = Named { group: request.group, kind: request.resource, name: request.name };
        Err(forbidden(named, &refused))
    }
}
