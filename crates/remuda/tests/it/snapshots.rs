//! Snapshots of clusters on local machines, and clusters from them. With an etcd on the host they are etcd's, without
//! one those of the store of the only server; what people do and see is the same.

mod s3;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};

use crate::{client::client_with, lab::Lab};

/// The API of a cluster, through the server.
fn inside(lab: &Lab, cluster: &str) -> Client {
    let path = lab.place.join("inside.kubeconfig");
    let _ = fs::remove_file(&path);
    fs::write(&path, lab.run(&format!("get kubeconfig {cluster}"))).unwrap();
    lab.runtime.block_on(client_with(&path, |_| {}))
}

fn namespaces(lab: &Lab, cluster: &str) -> Vec<String> {
    let api: Api<Namespace> = Api::all(inside(lab, cluster));
    let listed = lab.runtime.block_on(api.list(&Default::default())).unwrap();
    listed.items.into_iter().filter_map(|one| one.metadata.name).collect()
}

fn make_namespace(lab: &Lab, cluster: &str, name: &str) {
    let api: Api<Namespace> = Api::all(inside(lab, cluster));
    let object = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    lab.runtime.block_on(api.create(&PostParams::default(), &object)).unwrap();
}

fn delete_namespace(lab: &Lab, cluster: &str, name: &str) {
    let api: Api<Namespace> = Api::all(inside(lab, cluster));
    lab.runtime.block_on(api.delete(name, &Default::default())).unwrap();
    lab.until("the namespace is gone", Duration::from_secs(30), || {
        !namespaces(lab, cluster).contains(&name.to_owned())
    });
}

fn listed(lab: &Lab, cluster: &str) -> Vec<Value> {
    let text = lab.output(&format!("snapshot list {cluster} -o json"));
    let list: Value = serde_json::from_str(&text).unwrap();
    list["items"].as_array().cloned().unwrap_or_default()
}

/// Takes a snapshot. Answers with its name and that of its file.
fn take(lab: &Lab, cluster: &str) -> (String, String) {
    let before = listed(lab, cluster).len();
    lab.run(&format!("snapshot create {cluster} --wait --timeout 60s"));
    lab.until("the snapshot is listed", Duration::from_secs(20), || listed(lab, cluster).len() > before);
    let newest = &listed(lab, cluster)[0];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&newest["metadata"]["name"]), text(&newest["snapshotFile"]["name"]))
}

/// The files of that name below a directory.
fn find(directory: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(directory) else { return found };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            found.extend(find(&entry.path(), name));
        } else if entry.file_name().to_string_lossy() == name
            && entry.path().parent().unwrap().ends_with("snapshots")
        {
            found.push(entry.path());
        }
    }
    found
}

fn check_restored(lab: &Lab, cluster: &str) {
    lab.until("the cluster is ready", Duration::from_secs(90), || lab.say(&format!("why {cluster}")).0 == 0);
    let names = namespaces(lab, cluster);
    assert!(names.contains(&"keep".to_owned()), "{names:?}");
    assert!(!names.contains(&"late".to_owned()), "{names:?}");
    lab.until("every machine is one node", Duration::from_secs(90), || {
        let nodes = lab.nodes(cluster);
        nodes.len() == lab.machines().len() && nodes.iter().all(|(_, _, ready)| *ready)
    });
}

#[test]
fn a_cluster_returns_to_what_it_was_when_a_snapshot_was_taken() {
    let Some(lab) = Lab::open(None) else { return };
    lab.run("cluster create demo --servers 1 --workers 1 --wait --timeout 120s");
    make_namespace(&lab, "demo", "keep");
    let (name, file) = take(&lab, "demo");
    // It is opened where it lies after it was taken.
    lab.until("the snapshot is verified", Duration::from_secs(30), || {
        let described = lab.run(&format!("snapshot describe {name}"));
        described.contains("verified") && described.contains("namespaces")
    });

    let machines = lab.machines();
    make_namespace(&lab, "demo", "late");
    delete_namespace(&lab, "demo", "keep");
    lab.run(&format!("snapshot restore demo {name} --yes --wait --timeout 180s"));
    check_restored(&lab, "demo");
    assert_eq!(lab.machines(), machines, "the machines stayed");

    // A file that is not what was written is refused, and the cluster does not notice.
    let (second, damaged) = take(&lab, "demo");
    let paths = find(&lab.data(), &damaged);
    let path = paths.first().expect("the file is on a machine of this host");
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(path, bytes).unwrap();
    make_namespace(&lab, "demo", "witness");
    let (code, said) = lab.say(&format!("snapshot restore demo {second} --yes --wait --timeout 60s"));
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("check of etcd snapshot"), "{said}");
    lab.until("the cluster is as it was", Duration::from_secs(60), || lab.say("why demo").0 == 0);
    assert!(namespaces(&lab, "demo").contains(&"witness".to_owned()));

    // An object takes its file along.
    lab.run(&format!("snapshot delete {name} --yes --wait --timeout 60s"));
    assert!(find(&lab.data(), &file).is_empty());
    lab.until("the cluster is ready", Duration::from_secs(60), || lab.say("why demo").0 == 0);
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.check_nothing_left();
}

#[test]
fn a_restore_goes_on_where_the_server_was_killed() {
    let Some(mut lab) = Lab::open(None) else { return };
    lab.run("cluster create demo --servers 1 --workers 1 --wait --timeout 120s");
    make_namespace(&lab, "demo", "keep");
    let (name, _) = take(&lab, "demo");
    make_namespace(&lab, "demo", "late");
    lab.run(&format!("snapshot restore demo {name} --yes"));
    for phase in ["Shutdown", "Restore", "InitialRestartCluster"] {
        let mut reached = false;
        for _ in 0..1200 {
            let control_planes = lab.objects("rke.cattle.io", "v1", "RKEControlPlane");
            let now =
                control_planes[0].data["status"]["etcdSnapshotRestorePhase"].as_str().unwrap_or_default();
            if now == phase || now == "Finished" {
                reached = now == phase;
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if reached {
            lab.kill_server();
            lab.start();
        }
    }
    lab.until("the restore is done", Duration::from_secs(120), || {
        let control_planes = lab.objects("rke.cattle.io", "v1", "RKEControlPlane");
        control_planes.iter().any(|one| one.data["status"]["etcdSnapshotRestorePhase"] == "Finished")
    });
    check_restored(&lab, "demo");
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.check_nothing_left();
}
