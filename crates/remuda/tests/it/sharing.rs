//! One machine configuration for two clusters: what an edit of it says, and which machines it reaches.

use std::{collections::BTreeMap, fs, time::Duration};

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::lab::{Lab, NEW};

const PATIENCE: Duration = Duration::from_secs(180);
const POLICY: &str = "remuda.io/config-update-policy";
const CONFIG: &str = "nc-shared";

/// What machines made from a state of the configuration know.
fn edition(number: u32) -> String {
    format!("#!/bin/sh\necho edition {number} > /etc/edition\n")
}

fn pool(name: &str, config: &str, server: bool, annotations: Value) -> Value {
    json!({
        "name": name, "quantity": 1, "workerRole": true, "etcdRole": server, "controlPlaneRole": server,
        "machineConfigRef": {"kind": "LocalConfig", "name": config},
        "machineDeploymentAnnotations": annotations,
    })
}

/// Two clusters, of which three pools use one configuration.
fn manifest() -> Value {
    let config = |name: &str, fields: Value| {
        let mut object = json!({
            "apiVersion": "rke-machine-config.cattle.io/v1", "kind": "LocalConfig",
            "metadata": {"name": name, "namespace": "fleet-default"},
        });
        object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        object
    };
    let cluster = |name: &str, pools: Vec<Value>| {
        json!({
            "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
            "metadata": {"name": name, "namespace": "fleet-default"},
            "spec": {"kubernetesVersion": NEW, "rkeConfig": {"machinePools": pools}},
        })
    };
    let none = json!({});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        config(CONFIG, json!({"userData": edition(1)})),
        config("nc-own", json!({})),
        cluster("one", vec![
            pool("own", "nc-own", true, none.clone()),
            pool("asks", CONFIG, false, none.clone()),
            pool("never", CONFIG, false, json!({(POLICY): "Never"})),
        ]),
        cluster("two", vec![pool("asks", CONFIG, true, none)]),
    ]})
}

fn edit(lab: &Lab, number: u32) {
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("rke-machine-config.cattle.io", "v1", "LocalConfig"));
    let api: Api<DynamicObject> = Api::namespaced_with(lab.client(), "fleet-default", &resource);
    let patch = Patch::Merge(json!({"userData": edition(number)}));
    lab.runtime.block_on(api.patch(CONFIG, &PatchParams::default(), &patch)).unwrap();
}

/// The Machines by pool, with those that are on their way out.
fn members(lab: &Lab) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for machine in lab.objects("cluster.x-k8s.io", "v1beta2", "Machine") {
        let labels = machine.labels();
        let pool = format!(
            "{}/{}",
            labels["cluster.x-k8s.io/cluster-name"], labels["rke.cattle.io/rke-machine-pool-name"]
        );
        found.entry(pool).or_default().push(machine.name_any());
    }
    found
}

/// What a cluster says about edits of its configurations.
fn told(lab: &Lab, cluster: &str) -> String {
    let clusters = lab.objects("provisioning.cattle.io", "v1", "Cluster");
    let found = clusters.iter().find(|object| object.name_any() == cluster).unwrap();
    let conditions = found.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let applied = conditions.iter().find(|one| one["type"] == "ConfigurationApplied");
    applied.map(|one| one["message"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

/// The edition a machine was made from.
fn edition_of(lab: &Lab, machine: &str) -> String {
    let (code, said) = lab.say_to(&format!("machine shell {machine}"), &["cat", "/etc/edition"]);
    assert_eq!(code, 0, "{said}");
    said.trim().to_owned()
}

/// Waits until a pool has one machine that is not `before`, and its cluster is ready.
#[track_caller]
fn until_replaced(lab: &Lab, pool: &str, before: &str) -> String {
    let cluster = pool.split('/').next().unwrap();
    let replaced = || {
        let members = members(lab);
        matches!(&members[pool][..], [one] if one != before) && lab.say(&format!("why {cluster}")).0 == 0
    };
    lab.until(&format!("{pool} has another machine"), PATIENCE, replaced);
    members(lab)[pool][0].clone()
}

#[test]
fn an_edit_of_a_shared_configuration_asks_and_replaces_what_it_may() {
    let Some(lab) = Lab::open(None) else { return };
    let file = lab.place.join("clusters.json");
    fs::write(&file, manifest().to_string()).unwrap();
    let said = lab.run(&format!("cluster create --file {} --wait --timeout 300s", file.display()));
    assert!(said.contains("cluster one created") && said.contains("cluster two created"), "{said}");
    assert_eq!((lab.nodes("one").len(), lab.nodes("two").len()), (3, 1));
    let before = members(&lab);

    // An edit is told to everybody whom it concerns, and touches nobody.
    edit(&lab, 2);
    let would = "LocalConfig nc-shared was edited (userData), which would replace 1 machine of machinePool";
    let (one, two) =
        (format!("{would} [asks]; {would} [never], whose policy is Never"), format!("{would} [asks]"));
    lab.until("both clusters tell of the edit", PATIENCE, || {
        told(&lab, "one") == one && told(&lab, "two") == two
    });
    assert!(lab.run("why one").contains("remuda cluster apply-config one"));
    let dry = lab.run("cluster apply-config one --dry-run");
    let line = "pool asks: 1 machine would be replaced, as LocalConfig/nc-shared says now (userData)";
    assert!(dry.contains(line) && dry.contains("pool never is left as it is: its policy is Never"), "{dry}");
    let (code, said) = lab.say("cluster apply-config one --pool never");
    assert!(code == 2 && said.contains("the policy of pool never is Never"), "{code} {said}");
    assert_eq!(members(&lab), before);
    // Every set of machines that ever was is still recorded: none was made for the edit.
    assert_eq!(lab.objects("cluster.x-k8s.io", "v1beta2", "MachineSet").len(), 4);

    // It reaches the pool it is let into, and no other.
    let said = lab.run("cluster apply-config one --wait --timeout 300s");
    assert!(said.contains("pool asks: 1 machine will be replaced"), "{said}");
    let second = until_replaced(&lab, "one/asks", &before["one/asks"][0]);
    assert_eq!(edition_of(&lab, &second), "edition 2");
    assert!(lab.run("cluster apply-config one").contains("nothing waits to be applied to cluster one"));

    // A cluster that lets everything through is not asked, but for the pool that lets nothing through.
    lab.change("one", &json!({"metadata": {"annotations": {(POLICY): "Auto"}}}));
    edit(&lab, 3);
    let third = until_replaced(&lab, "one/asks", &second);
    assert_eq!(edition_of(&lab, &third), "edition 3");
    let after = members(&lab);
    for pool in ["one/own", "one/never", "two/asks"] {
        assert_eq!(after[pool], before[pool], "{pool}");
    }
    assert_eq!(edition_of(&lab, &before["one/never"][0]), "edition 1");
    assert_eq!(told(&lab, "two"), two);

    // One cluster goes, and the other keeps what both used.
    lab.run("cluster delete --yes one --wait --timeout 120s");
    assert_eq!(
        members(&lab).into_iter().collect::<Vec<_>>(),
        [("two/asks".to_owned(), before["two/asks"].clone())]
    );
    assert_eq!(lab.say("why two").0, 0);
    lab.run("cluster delete --yes two --wait --timeout 120s");
    let configs = lab.objects("rke-machine-config.cattle.io", "v1", "LocalConfig");
    assert_eq!(configs.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [CONFIG]);
    lab.check_nothing_left();
}

#[test]
fn whoever_waits_for_a_cluster_is_told_when_it_takes_too_long() {
    let Some(lab) = Lab::open(None) else { return };
    // Nobody makes a machine without the credential.
    let line = "cluster create late --credential cattle-global-data:missing --wait --timeout 3s";
    let (code, said) = lab.say(line);
    assert!(code == 7 && said.contains("cluster late created"), "{code} {said}");
    lab.until("it says what is missing", PATIENCE, || {
        let (code, said) = lab.say("why late");
        matches!(code, 10 | 11) && said.contains("cattle-global-data:missing")
    });
    lab.run("cluster delete --yes late --wait --timeout 120s");
    lab.check_nothing_left();
}
