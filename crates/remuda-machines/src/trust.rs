//! What drivers are trusted with, and which writes use one.
//!
//! A driver of class `cloud` speaks to a provider, with the credential of whoever made the pool. One of class `host`
//! acts where the server is: `local` runs what it is given on the server's host, `generic` and `proxmoxve` open
//! connections from the server's network to any address. Who uses a class needs the verb `use`: on the driver, or on its class.

use std::collections::BTreeSet;

use kube::ResourceExt;
use remuda_api::management::NodeDriver;
use remuda_control::{Informer, Informers, Scope};
use remuda_names::driver::facts;
use remuda_names::{
    capi::group as capi_group,
    machines::{annotation, class},
    rancher::group::{MACHINE, MACHINE_CONFIG, PROVISIONING},
};
use serde_json::Value;

use crate::driver::{BY_NAME, name_of};

/// What a driver is trusted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Makes servers at a provider.
    Cloud,
    /// Acts on the server's own host or from its network.
    Host,
}

impl Class {
    /// The class of a driver, given what its NodeDriver declares. What cannot be read is trusted the least.
    pub fn of(driver: &str, declared: Option<&str>) -> Self {
        match declared {
            Some(class::CLOUD) => Self::Cloud,
            None if facts(driver).class == class::CLOUD => Self::Cloud,
            _ => Self::Host,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cloud => class::CLOUD,
            Self::Host => class::HOST,
        }
    }
}

/// The classes of the drivers there are, as their NodeDrivers declare them.
pub struct Classes(Informer<NodeDriver>);

impl Classes {
    pub fn follow(informers: &Informers) -> Self {
        let drivers = informers.of::<NodeDriver>(Scope::all());
        drivers.add_index(BY_NAME, |driver| vec![name_of(driver)]);
        Self(drivers)
    }

    /// `None` while NodeDrivers are not known. Of several with one name the least trusted counts.
    pub fn class_of(&self, driver: &str) -> Option<Class> {
        let drivers = self.0.is_synced().then(|| self.0.by_index(BY_NAME, driver))?;
        let declared = |found: &NodeDriver| {
            Class::of(driver, found.annotations().get(annotation::DRIVER_CLASS).map(String::as_str))
        };
        Some(drivers.iter().map(|found| declared(found)).max().unwrap_or_else(|| Class::of(driver, None)))
    }
}

/// A driver that a write uses, and where it says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    pub field: String,
    pub driver: String,
}

/// Whether objects of a kind can use drivers.
pub fn concerns(group: &str, resource: &str) -> bool {
    match group {
        MACHINE_CONFIG | MACHINE => true,
        PROVISIONING => resource == "clusters",
        capi_group::CORE => infrastructure(resource).is_some(),
        _ => false,
    }
}

/// Drivers that a write uses and the object before it did not, or did otherwise. `old` is absent for a create.
pub fn introduced(group: &str, resource: &str, old: Option<&Value>, new: &Value) -> Vec<Use> {
    match group {
        MACHINE_CONFIG | MACHINE => {
            let field = match old {
                None => Some("kind".to_owned()),
                Some(old) => changed(old, new),
            };
            let driver = driver_of(resource.strip_suffix('s').unwrap_or(resource));
            field.map(|field| Use { field, driver }).into_iter().collect()
        }
        PROVISIONING => pools(old, new),
        capi_group::CORE => machines(resource, old, new).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The driver of a kind, in whichever case it is written: kinds are found by their plural, which has none.
fn driver_of(kind: &str) -> String {
    let kind = kind.to_lowercase();
    let suffixes = ["machinetemplate", "machine", "config"];
    let driver = suffixes.iter().find_map(|suffix| kind.strip_suffix(suffix));
    driver.unwrap_or(&kind).to_owned()
}

/// The first field of a configuration, template or machine that differs.
fn changed(old: &Value, new: &Value) -> Option<String> {
    fn differing(old: &Value, new: &Value, skipped: &[&str]) -> Option<String> {
        let keys = |value: &Value| -> Vec<String> {
            value.as_object().into_iter().flat_map(|map| map.keys().cloned()).collect()
        };
        let all: BTreeSet<String> = keys(old).into_iter().chain(keys(new)).collect();
        all.into_iter().find(|key| !skipped.contains(&key.as_str()) && old.get(key) != new.get(key))
    }
    let field = differing(old, new, &["apiVersion", "kind", "metadata", "status"])?;
    let below = differing(&old[&field], &new[&field], &[]).filter(|_| field == "spec");
    Some(below.map_or(field, |below| format!("spec.{below}")))
}

/// What a pool's reference refers to: its driver, or nothing if it is of another provider.
fn referred(reference: &Value) -> Option<(String, String, String)> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let group = text("apiVersion").split_once('/').map_or(text("apiVersion"), |(group, _)| group);
    let ours = [MACHINE_CONFIG, MACHINE, ""].contains(&group);
    (ours && !text("kind").is_empty())
        .then(|| (group.to_owned(), text("kind").to_lowercase(), text("name").to_owned()))
}

/// The driver behind a pool's `machineConfigRef`; `None` for machines of another provider.
pub fn pool_driver(reference: &Value) -> Option<String> {
    referred(reference).map(|(_, kind, _)| driver_of(&kind))
}

fn pools(old: Option<&Value>, new: &Value) -> Vec<Use> {
    fn references(cluster: &Value) -> impl Iterator<Item = (usize, (String, String, String))> {
        let pools = cluster.pointer("/spec/rkeConfig/machinePools").and_then(Value::as_array);
        let pools = pools.into_iter().flatten().enumerate();
        pools.filter_map(|(place, pool)| Some((place, referred(&pool["machineConfigRef"])?)))
    }
    let known: BTreeSet<_> = old.into_iter().flat_map(references).map(|(_, reference)| reference).collect();
    references(new)
        .filter(|(_, reference)| !known.contains(reference))
        .map(|(place, (_, kind, _))| Use {
            field: format!("spec.rkeConfig.machinePools[{place}].machineConfigRef"),
            driver: driver_of(&kind),
        })
        .collect()
}

/// Where a kind of Cluster API refers to what machines are made from.
fn infrastructure(resource: &str) -> Option<&'static str> {
    match resource {
        "machines" => Some("/spec/infrastructureRef"),
        "machinesets" | "machinedeployments" | "machinepools" => {
            Some("/spec/template/spec/infrastructureRef")
        }
        _ => None,
    }
}

fn machines(resource: &str, old: Option<&Value>, new: &Value) -> Option<Use> {
    let at = infrastructure(resource)?;
    let reference = new.pointer(at)?;
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    // A group in v1beta2, a version before.
    let group = text("apiVersion").split_once('/').map_or(text("apiGroup"), |(group, _)| group);
    let same = |old: &Value| {
        ["kind", "name"]
            .iter()
            .all(|field| old.pointer(at).is_some_and(|old| old[*field] == reference[*field]))
    };
    (group == MACHINE && !old.is_some_and(same))
        .then(|| Use { field: at.trim_start_matches('/').replace('/', "."), driver: driver_of(text("kind")) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Uses as `field driver`, in one text.
    fn uses(group: &str, resource: &str, old: Option<&Value>, new: &Value) -> String {
        let uses = introduced(group, resource, old, new);
        uses.iter().map(|used| format!("{} {}", used.field, used.driver)).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn drivers_that_act_on_the_host_are_trusted_the_least() {
        assert_eq!(Class::of("digitalocean", None), Class::Cloud);
        assert_eq!(Class::of("a-plugin", None), Class::Cloud);
        assert_eq!(Class::of("local", None), Class::Host);
        assert_eq!(Class::of("generic", None), Class::Host);
        // People say where its API is.
        assert_eq!(Class::of("proxmoxve", None), Class::Host);
        for driver in ["azure", "google", "hetzner"] {
            assert_eq!(Class::of(driver, None), Class::Cloud);
        }
        assert_eq!(Class::of("a-plugin", Some("host")), Class::Host);
        assert_eq!(Class::of("a-plugin", Some("Cloud?")), Class::Host);
        assert_eq!(Class::of("generic", Some("cloud")), Class::Cloud);
    }

    #[test]
    fn whatever_a_driver_reads_uses_it() {
        let config = json!({"kind": "LocalConfig", "metadata": {"labels": {}}, "userData": ""});
        assert_eq!(uses(MACHINE_CONFIG, "localconfigs", None, &config), "kind local");
        let mut edited = config.clone();
        edited["metadata"]["labels"]["a"] = json!("b");
        assert_eq!(uses(MACHINE_CONFIG, "localconfigs", Some(&config), &edited), "");
        edited["userData"] = json!("#!/bin/sh");
        assert_eq!(uses(MACHINE_CONFIG, "localconfigs", Some(&config), &edited), "userData local");
        let machine = json!({"spec": {"userData": "a"}, "status": {}});
        assert_eq!(uses(MACHINE, "localmachines", None, &machine), "kind local");
        assert_eq!(uses(MACHINE, "localmachinetemplates", None, &machine), "kind local");
        let edited = json!({"spec": {"userData": "b"}, "status": {"ready": true}});
        assert_eq!(uses(MACHINE, "localmachines", Some(&machine), &edited), "spec.userData local");
    }

    #[test]
    fn a_pool_uses_what_it_did_not_refer_to_before() {
        let cluster = |pools: Value| json!({"spec": {"rkeConfig": {"machinePools": pools}}});
        let pool = |kind: &str, name: &str| json!({"machineConfigRef": {"kind": kind, "name": name}});
        let check = |old: Option<&Value>, new: Value| uses(PROVISIONING, "clusters", old, &cluster(new));
        let at = |place: usize| format!("spec.rkeConfig.machinePools[{place}].machineConfigRef");
        assert_eq!(check(None, json!([pool("LocalConfig", "a")])), format!("{} local", at(0)));
        let old = cluster(json!([pool("LocalConfig", "a")]));
        assert_eq!(check(Some(&old), json!([{"name": "new"}, pool("LocalConfig", "a")])), "");
        let added = json!([pool("LocalConfig", "a"), pool("LocalConfig", "b")]);
        assert_eq!(check(Some(&old), added), format!("{} local", at(1)));
        // However it is written, it is found by its plural.
        assert_eq!(check(None, json!([pool("lOCALconfig", "a")])), format!("{} local", at(0)));
        let template = json!([{"machineConfigRef": {
            "apiVersion": "rke-machine.cattle.io/v1", "kind": "GenericMachineTemplate", "name": "t",
        }}]);
        assert_eq!(check(None, template), format!("{} generic", at(0)));
        let foreign = json!([{"machineConfigRef": {
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2", "kind": "LocalConfig", "name": "t",
        }}]);
        assert_eq!(check(None, foreign), "");
    }

    #[test]
    fn machines_use_the_driver_of_their_infrastructure() {
        let reference = json!({"apiGroup": MACHINE, "kind": "LocalMachineTemplate", "name": "t"});
        let set = json!({"spec": {"template": {"spec": {"infrastructureRef": reference}}}});
        let at = "spec.template.spec.infrastructureRef";
        assert_eq!(uses(capi_group::CORE, "machinesets", None, &set), format!("{at} local"));
        assert_eq!(uses(capi_group::CORE, "machinesets", Some(&set), &set), "");
        let old = json!({"apiVersion": "rke-machine.cattle.io/v1", "kind": "LocalMachine", "name": "m"});
        let machine = json!({"spec": {"infrastructureRef": old}});
        assert_eq!(uses(capi_group::CORE, "machines", None, &machine), "spec.infrastructureRef local");
        assert!(!concerns(capi_group::CORE, "clusters") && concerns(capi_group::CORE, "machinepools"));
    }
}
