//! Keys for the Secrets of clusters on local machines are rotated, with one server and with three on etcd.

use std::{collections::BTreeSet, fs, process::Command, time::Duration};

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{Api, Client, ResourceExt, api::PostParams};
use serde_json::json;

use crate::{
    client::client_with,
    harness::skipped,
    lab::{Lab, NEW},
};

/// The API of a cluster, through the server.
fn inside(lab: &Lab, cluster: &str) -> Client {
    let path = lab.place.join("inside.kubeconfig");
    let _ = fs::remove_file(&path);
    fs::write(&path, lab.run(&format!("get kubeconfig {cluster}"))).unwrap();
    lab.runtime.block_on(client_with(&path, |_| {}))
}

fn write(lab: &Lab, cluster: &str, name: &str) {
    let api: Api<Secret> = Api::default_namespaced(inside(lab, cluster));
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": name}, "stringData": {"a": "classified"}}))
            .unwrap();
    lab.runtime.block_on(api.create(&PostParams::default(), &secret)).unwrap();
}

fn read(lab: &Lab, cluster: &str, name: &str) -> Vec<u8> {
    let api: Api<Secret> = Api::default_namespaced(inside(lab, cluster));
    let secret = lab.runtime.block_on(api.get(name)).unwrap();
    secret.data.unwrap()["a"].0.clone()
}

/// Stage and hash of the keys, as the servers tell them.
fn told(lab: &Lab, cluster: &str) -> Vec<String> {
    let api: Api<Node> = Api::all(inside(lab, cluster));
    let nodes = lab.runtime.block_on(api.list(&Default::default())).unwrap();
    let marks = nodes.iter().filter_map(|node| node.annotations().get("k3s.io/encryption-config-hash"));
    marks.cloned().collect()
}

fn marks(lab: &Lab, cluster: &str) -> BTreeSet<String> {
    told(lab, cluster).into_iter().collect()
}

fn phase(lab: &Lab) -> String {
    let control_planes = lab.objects("rke.cattle.io", "v1", "RKEControlPlane");
    control_planes[0].data["status"]["rotateEncryptionKeysPhase"].as_str().unwrap_or_default().to_owned()
}

fn check_rotated(lab: &Lab, cluster: &str, before: &BTreeSet<String>) {
    lab.until("the servers tell of new keys", Duration::from_secs(30), || {
        let after = marks(lab, cluster);
        after.len() == 1
            && after.is_disjoint(before)
            && after.iter().all(|mark| mark.starts_with("reencrypt_finished-"))
    });
    assert_eq!(read(lab, cluster, "kept"), b"classified");
    let nodes = lab.nodes(cluster);
    assert!(nodes.iter().all(|(_, _, ready)| *ready), "{nodes:?}");
}

#[test]
fn the_key_of_a_cluster_with_one_server_is_rotated() {
    let Some(mut lab) = Lab::open(None) else { return };
    lab.run(&format!("cluster create plain --version {NEW} --servers 1 --workers 0 --wait --timeout 120s"));
    let (code, said) = lab.say("cluster rotate-encryption-keys plain --yes");
    assert!(code != 0 && said.contains("does not encrypt its Secrets"), "{said}");
    lab.run("cluster delete --yes plain --wait --timeout 60s");

    lab.run(&format!(
        "cluster create demo --version {NEW} --servers 1 --workers 1 --arg secrets-encryption=true --wait --timeout 120s"
    ));
    write(&lab, "demo", "kept");
    let before = marks(&lab, "demo");
    assert!(before.len() == 1 && before.iter().all(|mark| mark.starts_with("start-")), "{before:?}");
    let machines = lab.machines();
    let (code, said) = lab.say("cluster rotate-encryption-keys demo");
    assert!(code != 0 && said.contains("--yes"), "it asks: {said}");
    let said = lab.run("cluster rotate-encryption-keys demo --yes --wait --timeout 240s");
    assert!(said.contains("cluster demo: PostRotateRestart"), "{said}");
    check_rotated(&lab, "demo", &before);
    assert_eq!(lab.machines(), machines);
    let snapshots = lab.run("snapshot list demo");
    assert!(snapshots.contains("on-demand"), "one was taken before: {snapshots}");

    // The manager is killed in every phase it is seen in, and goes on.
    let before = marks(&lab, "demo");
    lab.run("cluster rotate-encryption-keys demo --yes");
    for wanted in ["Prepare", "PostPrepareRestart", "Rotate", "PostRotateRestart", "Reencrypt"] {
        let mut reached = false;
        for _ in 0..1200 {
            let now = phase(&lab);
            if now == wanted || now == "Done" {
                reached = now == wanted;
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if reached {
            lab.kill_server();
            lab.start();
        }
    }
    lab.until("the rotation is done", Duration::from_secs(180), || phase(&lab) == "Done");
    lab.until("the cluster is ready", Duration::from_secs(60), || lab.say("why demo").0 == 0);
    check_rotated(&lab, "demo", &before);
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.check_nothing_left();
}

#[test]
fn the_key_of_a_cluster_with_three_servers_is_rotated() {
    if Command::new("etcd").arg("--version").output().is_err() {
        skipped("there is no etcd in PATH (Debian: etcd-server): rotating the key of three servers");
        return;
    }
    let Some(lab) = Lab::open(None) else { return };
    lab.run(&format!(
        "cluster create ha --version {NEW} --servers 3 --workers 0 --arg secrets-encryption=true --wait --timeout 180s"
    ));
    write(&lab, "ha", "kept");
    let before = told(&lab, "ha");
    assert_eq!(before.len(), 3, "each has keys of its own store: {before:?}");
    let before: BTreeSet<String> = before.into_iter().collect();
    assert_eq!(before.len(), 1, "{before:?}");
    lab.run("cluster rotate-encryption-keys ha --yes --wait --timeout 400s");
    check_rotated(&lab, "ha", &before);
    lab.run("cluster delete --yes ha --wait --timeout 60s");
    lab.check_nothing_left();
}
