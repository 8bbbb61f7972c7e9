//! How much of a workspace's limits Clusters use.
//!
//! Counted is what specs ask for, not what there is: it is known at the moment of the write, and an autoscaler, which
//! people do not watch, stays within it. Servers that register themselves are in no spec and are not counted.

use std::collections::BTreeMap;

use remuda_api::quota::WorkspaceLimits;
use remuda_names::annotation::PRESERVE_FAILED;
use remuda_rollout::set::Preserve;
use serde_json::Value;

use super::{
    Refused,
    pools::{of as pools, quantity},
};

/// Where a pool says how many machines that failed are kept.
const PRESERVED: &str = "machineDeploymentAnnotations";

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    Clusters,
    Machines,
    /// Machines of drivers that are trusted with this.
    Class(String),
}

impl Counted {
    fn words(&self) -> String {
        match self {
            Self::Clusters => "clusters".to_owned(),
            Self::Machines => "machines".to_owned(),
            Self::Class(class) => format!("machines of drivers of class {class:?}"),
        }
    }
}

/// How much of each there is. What is not in it is nothing.
pub type Usage = BTreeMap<Counted, i64>;

/// The classes of the driver behind a pool's `machineConfigRef`; empty for machines of other providers, several where
/// it is not known which.
pub type ClassesOf<'a> = &'a dyn Fn(&Value) -> Vec<String>;

/// Limits, and the name of the WorkspaceQuota that says so.
#[derive(Debug, Clone)]
pub struct Quota {
    pub name: String,
    pub limits: WorkspaceLimits,
}

impl Quota {
    fn limits(&self) -> impl Iterator<Item = (Counted, i64)> {
        let WorkspaceLimits { clusters, machines, driver_classes } = &self.limits;
        let classes = driver_classes.iter().map(|(class, limit)| (Counted::Class(class.clone()), *limit));
        let clusters = clusters.map(|limit| (Counted::Clusters, limit));
        clusters.into_iter().chain(machines.map(|limit| (Counted::Machines, limit))).chain(classes)
    }
}

/// Machines a pool may come to have, with those that failed and are kept to look at.
fn machines(pool: &Value) -> i64 {
    let most = pool["autoscalingMaxSize"].as_i64().unwrap_or_default();
    quantity(pool).max(most).max(0).saturating_add(kept(pool))
}

/// Machines that are kept beside those that are asked for. Servers never are.
fn kept(pool: &Value) -> i64 {
    if pool["etcdRole"] == true || pool["controlPlaneRole"] == true {
        return 0;
    }
    let policy = pool["machineDeploymentAnnotations"][PRESERVE_FAILED].as_str().map(Preserve::parse);
    policy.and_then(Result::ok).map_or(0, |policy| i64::try_from(policy.max).unwrap_or(i64::MAX))
}

fn usage_of_pool(pool: &Value, classes_of: ClassesOf<'_>) -> Usage {
    let classes = classes_of(&pool["machineConfigRef"]).into_iter().map(Counted::Class);
    std::iter::once(Counted::Machines).chain(classes).map(|counted| (counted, machines(pool))).collect()
}

/// What a Cluster uses.
pub fn usage(cluster: &Value, classes_of: ClassesOf<'_>) -> Usage {
    let mut usage = Usage::from([(Counted::Clusters, 1)]);
    for pool in pools(cluster) {
        for (counted, more) in usage_of_pool(pool, classes_of) {
            let known = usage.entry(counted).or_default();
            *known = known.saturating_add(more);
        }
    }
    usage
}

fn count(usage: &Usage, counted: &Counted) -> i64 {
    usage.get(counted).copied().unwrap_or_default()
}

/// Whether a write asks for more of anything.
pub fn grows(before: &Usage, after: &Usage) -> bool {
    after.iter().any(|(counted, now)| *now > count(before, counted))
}

/// A Cluster as it is written.
pub struct Change<'a> {
    pub old: Option<&'a Value>,
    pub new: &'a Value,
    pub classes_of: ClassesOf<'a>,
}

/// Why a Cluster cannot be written so: it asks for more than before, and there would be more than a limit. `others` is
/// what all other Clusters of the namespace use. What is above a limit already may stay, and shrink.
pub fn refuse(quotas: &[Quota], others: &Usage, change: &Change<'_>) -> Vec<Refused> {
    let before = change.old.map(|old| usage(old, change.classes_of)).unwrap_or_default();
    let after = usage(change.new, change.classes_of);
    let mut refused = Vec::new();
    for quota in quotas {
        for (counted, limit) in quota.limits() {
            let (had, wants) = (count(&before, &counted), count(&after, &counted));
            let used = count(others, &counted).saturating_add(had);
            if wants <= had || used.saturating_add(wants - had) <= limit {
                continue;
            }
            let why = format!(
                "WorkspaceQuota {:?} allows {limit} {}; {used} are used, and this asks for {} more",
                quota.name,
                counted.words(),
                wants - had
            );
            refused.push(Refused { field: change.field(&counted), why });
        }
    }
    refused
}

impl Change<'_> {
    /// The first field that asks for more.
    fn field(&self, counted: &Counted) -> String {
        if *counted == Counted::Clusters {
            return "metadata.namespace".to_owned();
        }
        let known =
            |pool: &Value| self.old.and_then(|old| pools(old).find(|old| old["name"] == pool["name"]));
        let mut changed = pools(self.new).enumerate().filter_map(|(place, pool)| {
            let wants = count(&usage_of_pool(pool, self.classes_of), counted);
            let before = known(pool);
            let had =
                before.map(|pool| count(&usage_of_pool(pool, self.classes_of), counted)).unwrap_or_default();
            if wants <= had {
                return None;
            }
            let field = match before {
                Some(before) if machines(before) >= machines(pool) => "machineConfigRef",
                before if kept(pool) > before.map(kept).unwrap_or_default() => PRESERVED,
                _ if quantity(pool) < machines(pool) - kept(pool) => "autoscalingMaxSize",
                _ => "quantity",
            };
            Some(format!("spec.rkeConfig.machinePools[{place}].{field}"))
        });
        changed.next().unwrap_or_else(|| "spec.rkeConfig.machinePools".to_owned())
    }
}

/// The Cluster with another number of machines in the pool behind a MachineDeployment; `None` if there is no such pool.
pub fn scaled(cluster: &Value, deployment: &str, replicas: i64) -> Option<Value> {
    let mut scaled = cluster.clone();
    let name = scaled["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let pools = scaled.pointer_mut("/spec/rkeConfig/machinePools").and_then(Value::as_array_mut)?;
    let pool = pools.iter_mut().find(|pool| {
        let pool = pool["name"].as_str().unwrap_or_default();
        crate::naming::of::machine_deployment(&name, pool) == deployment
    })?;
    pool["quantity"] = replicas.into();
    Some(scaled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn classes(reference: &Value) -> Vec<String> {
        match reference["kind"].as_str() {
            Some("LocalConfig") => vec!["host".to_owned()],
            Some("Foreign") => Vec::new(),
            _ => vec!["cloud".to_owned()],
        }
    }

    fn cluster(pools: Value) -> Value {
        json!({"metadata": {"name": "demo"}, "spec": {"rkeConfig": {"machinePools": pools}}})
    }

    fn pool(name: &str, kind: &str, quantity: i64) -> Value {
        json!({"name": name, "quantity": quantity, "machineConfigRef": {"kind": kind, "name": name}})
    }

    fn quota(hard: Value) -> Vec<Quota> {
        vec![Quota { name: "team".to_owned(), limits: serde_json::from_value(hard).unwrap() }]
    }

    fn check(hard: Value, others: &[Value], old: Option<Value>, new: &Value) -> Vec<String> {
        let mut sum = Usage::new();
        for other in others {
            for (counted, more) in usage(other, &classes) {
                *sum.entry(counted).or_default() += more;
            }
        }
        let change = Change { old: old.as_ref(), new, classes_of: &classes };
        let refused = refuse(&quota(hard), &sum, &change);
        refused.into_iter().map(|refused| format!("{}: {}", refused.field, refused.why)).collect()
    }

    #[test]
    fn what_specs_ask_for_is_counted() {
        let mut scaling = pool("c", "XConfig", 1);
        scaling["autoscalingMaxSize"] = json!(7);
        let pools = json!([pool("a", "LocalConfig", 2), pool("b", "Foreign", 3), scaling, {"name": "d"}]);
        let counted = |class: &str| Counted::Class(class.to_owned());
        assert_eq!(
            usage(&cluster(pools), &classes),
            Usage::from([
                (Counted::Clusters, 1),
                (Counted::Machines, 2 + 3 + 7 + 1),
                (counted("host"), 2),
                (counted("cloud"), 8)
            ])
        );
        assert_eq!(usage(&json!({}), &classes), Usage::from([(Counted::Clusters, 1)]));
    }

    #[test]
    fn machines_that_are_kept_to_look_at_count() {
        let keeping = |max: i64| {
            let policy = json!({"max": max, "for": "24h"}).to_string();
            json!({"name": "a", "quantity": 1, "machineConfigRef": {"kind": "XConfig", "name": "a"},
                "machineDeploymentAnnotations": {PRESERVE_FAILED: policy}})
        };
        let (plain, kept) = (cluster(json!([pool("a", "XConfig", 1)])), cluster(json!([keeping(100)])));
        let told = check(json!({"machines": 3}), &[], Some(plain), &kept);
        assert_eq!(
            told,
            [
                "spec.rkeConfig.machinePools[0].machineDeploymentAnnotations: WorkspaceQuota \"team\" allows 3 machines; \
              1 are used, and this asks for 100 more"
            ]
        );
        let some = cluster(json!([keeping(2)]));
        assert_eq!(
            check(json!({"machines": 3, "driverClasses": {"cloud": 3}}), &[], None, &some),
            Vec::<String>::new()
        );
        // Servers are never kept, and what cannot be read keeps nothing.
        let mut server = keeping(100);
        server["etcdRole"] = json!(true);
        let mut odd = keeping(100);
        odd["machineDeploymentAnnotations"][PRESERVE_FAILED] = json!("x");
        let both = cluster(json!([server, odd]));
        assert_eq!(usage(&both, &classes)[&Counted::Machines], 2);
    }

    #[test]
    fn a_refusal_names_the_field_and_the_numbers() {
        let other = cluster(json!([pool("a", "XConfig", 3)]));
        let new = cluster(json!([pool("a", "XConfig", 2)]));
        assert_eq!(
            check(json!({"clusters": 1}), std::slice::from_ref(&other), None, &new),
            [
                "metadata.namespace: WorkspaceQuota \"team\" allows 1 clusters; 1 are used, and this asks for 1 more"
            ]
        );
        assert_eq!(
            check(json!({"machines": 4}), std::slice::from_ref(&other), None, &new),
            [
                "spec.rkeConfig.machinePools[0].quantity: WorkspaceQuota \"team\" allows 4 machines; 3 are used, and this \
              asks for 2 more"
            ]
        );
        assert_eq!(check(json!({"clusters": 2, "machines": 5}), &[other], None, &new), Vec::<String>::new());
        let host = cluster(json!([pool("a", "LocalConfig", 2)]));
        let told = check(json!({"driverClasses": {"host": 0}}), &[], Some(new), &host);
        assert!(told[0].starts_with("spec.rkeConfig.machinePools[0].machineConfigRef: "), "{told:?}");
        assert!(told[0].contains("allows 0 machines of drivers of class \"host\"; 0 are used"), "{told:?}");
    }

    #[test]
    fn what_is_above_its_limit_stays_and_shrinks_and_does_not_grow() {
        let hard = || json!({"clusters": 0, "machines": 1, "driverClasses": {"cloud": 0}});
        let of = |quantity: i64| cluster(json!([pool("a", "XConfig", quantity)]));
        assert_eq!(check(hard(), &[], Some(of(5)), &of(5)), Vec::<String>::new());
        assert_eq!(check(hard(), &[], Some(of(5)), &of(4)), Vec::<String>::new());
        assert_eq!(check(hard(), &[], Some(of(5)), &of(6)).len(), 2);
        // A change of driver is growth of its class alone.
        let moved = cluster(json!([pool("a", "LocalConfig", 5)]));
        assert_eq!(check(json!({"machines": 1}), &[], Some(of(5)), &moved), Vec::<String>::new());
    }

    #[test]
    fn scaling_a_machine_deployment_is_scaling_its_pool() {
        let before = cluster(json!([pool("a", "XConfig", 1), pool("b", "XConfig", 1)]));
        let after = scaled(&before, "demo-b", 9).unwrap();
        assert_eq!(usage(&after, &classes)[&Counted::Machines], 10);
        assert!(grows(&usage(&before, &classes), &usage(&after, &classes)));
        assert_eq!(scaled(&before, "demo-c", 9), None);
    }
}
