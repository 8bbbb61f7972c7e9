//! What happens to a cluster that was well.

use std::{process::Command, time::Duration};

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use nix::{sys::signal::Signal, unistd::Pid};
use serde_json::{Value, json};

use super::table::{Table, patch, signal_tree};
use crate::{
    harness::skipped,
    lab::{Lab, NEW},
};

const MINUTE: Duration = Duration::from_secs(60);

/// The machines of demo's pool.
fn machines(lab: &Lab, pool: &str) -> Vec<String> {
    let prefix = format!("demo-{pool}-");
    lab.machines().into_iter().filter(|name| name.starts_with(&prefix)).collect()
}

#[track_caller]
fn inside(lab: &Lab, machine: &str, command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    let (code, text) = lab.say_to(&format!("machine shell {machine}"), &words);
    assert_eq!(code, 0, "{command}\n{text}");
}

fn machine(name: &str, metadata: &Value) -> Value {
    let mut machine = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": name, "namespace": "fleet-default"},
    });
    machine["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    machine
}

/// The cluster's own agent, which only the cluster itself can bring back then.
fn cluster_agent(table: &mut Table<'_>, server: &str) {
    let lab = table.lab;
    let kubectl = "kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml -n cattle-system";
    let scale = |count: u8| {
        inside(lab, server, &format!("{kubectl} scale deployment cattle-cluster-agent --replicas={count}"));
    };
    scale(0);
    let said = table.expect("cluster agent that is gone", "demo", "cluster-agent-not-connected");
    table.follow(&said);
    scale(1);
    table.until_well("demo");
}

/// Programs that stop, one after the other, each started again.
pub(crate) fn of_services(table: &mut Table<'_>) {
    let lab = table.lab;
    let [server]: [String; 1] = machines(lab, "servers").try_into().unwrap();
    let [worker, _]: [String; 2] = machines(lab, "workers").try_into().unwrap();

    if Command::new("kubectl").args(["version", "--client"]).output().is_ok() {
        cluster_agent(table, &server);
    } else {
        skipped("there is no kubectl for machines of this host: a cluster without its agent");
    }

    inside(lab, &worker, "systemctl stop k3s-agent");
    let said = table.expect("kubelet that stopped", &worker, "probes-failing");
    table.follow(&said);
    inside(lab, &worker, "systemctl start k3s-agent");
    inside(lab, &server, "systemctl stop k3s");
    let said = table.expect_with("control plane that stopped", "demo", "probes-failing", &["kube-apiserver"]);
    table.follow(&said);
    inside(lab, &server, "systemctl start k3s");
    table.until_well("demo");
    table.until_well(&worker);

    inside(lab, &worker, "systemctl stop rancher-system-agent");
    let said = table.expect("agent that stopped", &worker, "agent-silent");
    table.follow(&said);
    inside(lab, &worker, "systemctl start rancher-system-agent");
    table.until_well(&worker);
}

/// Machines that freeze, are cut off, and die.
pub(crate) fn of_machines(table: &mut Table<'_>) {
    let lab = table.lab;
    let [server]: [String; 1] = machines(lab, "servers").try_into().unwrap();
    let [_, worker]: [String; 2] = machines(lab, "workers").try_into().unwrap();
    let sandbox = lab.sandbox();
    let first = |name: &str| Pid::from_raw(sandbox.find(name).unwrap().pid.unwrap());

    signal_tree(first(&worker), Signal::SIGSTOP);
    let said = table.expect("machine that is frozen", &worker, "machine-frozen");
    table.follow(&said);
    table.until_well(&worker);
    signal_tree(first(&server), Signal::SIGSTOP);
    table.expect("server that is frozen, its cluster", "demo", "machine-frozen");
    signal_tree(first(&server), Signal::SIGCONT);
    table.until_well("demo");

    inside(lab, &worker, "ip link set eth0 down");
    let said = table.expect("machine without a network", &worker, "machine-cut-off");
    table.follow(&said);
    table.until_well(&worker);

    sandbox.kill(&sandbox.find(&worker).unwrap().id).unwrap();
    let said = table.expect("machine that was killed", &worker, "machine-off");
    table.follow(&said);
    table.until_well(&worker);
    sandbox.stop(&sandbox.find(&server).unwrap().id).unwrap();
    let said = table.expect("server that was switched off, its cluster", "demo", "machine-off");
    table.follow(&said);
    table.until_well("demo");
}

/// What does not go.
pub(crate) fn of_removals(table: &mut Table<'_>) {
    let lab = table.lab;
    let [held, drained]: [String; 2] = machines(lab, "workers").try_into().unwrap();
    let (drain, end) = (
        "pre-drain.delete.hook.machine.cluster.x-k8s.io/backup",
        "pre-terminate.delete.hook.machine.cluster.x-k8s.io/backup",
    );
    let kept = ["machine.cluster.x-k8s.io", "example.org/backup"];
    patch(lab, &machine(&held, &json!({"annotations": {drain: "x", end: "x"}, "finalizers": kept})));
    lab.run(&format!("machine delete {held} --yes"));
    table.expect_with("hook before a drain", &held, "removal-held", &[drain]);
    patch(lab, &machine(&held, &json!({"annotations": {drain: null}})));
    table.expect_with("hook before the end", &held, "removal-held", &[end]);
    patch(lab, &machine(&held, &json!({"annotations": {end: null}})));
    table.expect_with(
        "foreign finalizer of a machine",
        &held,
        "removal-held",
        &["example.org/backup", "not of this"],
    );
    patch(lab, &machine(&held, &json!({"finalizers": null})));
    lab.until("it is gone", MINUTE, || !lab.machines().contains(&held));

    let node = lab.nodes("demo").into_iter().map(|(name, ..)| name).find(|name| *name == drained).unwrap();
    let pods: Api<Pod> = Api::namespaced(lab.workload("demo"), "default");
    let pod = json!({"metadata": {"name": "db-0", "labels": {"app": "db"}}, "spec": {
        "nodeName": node, "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "db", "image": "db", "command": ["sleep", "3600"]}],
    }});
    lab.runtime.block_on(pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())).unwrap();
    lab.until("the pod runs", MINUTE, || {
        let pod = lab.runtime.block_on(pods.get("db-0")).unwrap();
        pod.status.and_then(|status| status.phase).as_deref() == Some("Running")
    });
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(lab.workload("demo"), "default");
    let budget = json!({"metadata": {"name": "db"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}});
    let budget = serde_json::from_value(budget).unwrap();
    lab.runtime.block_on(budgets.create(&PostParams::default(), &budget)).unwrap();
    lab.run(&format!("machine delete {drained} --yes"));
    table.expect("PodDisruptionBudget", &drained, "drain-blocked");
    lab.runtime.block_on(budgets.delete("db", &DeleteParams::default())).unwrap();

    // Admission lets roles be that no pool has, since pools may follow.
    lab.run(&format!("cluster create split --version {NEW} --servers 1 --workers 0"));
    lab.change_pool("split", "servers", &json!({"workerRole": false}));
    table.expect("split roles, none for workers", "split", "roles-missing");
    let ours = "wrangler.cattle.io/provisioning-cluster-remove";
    let all = [ours, "wrangler.cattle.io/rke-cluster-remove", "example.org/backup"];
    lab.change("split", &json!({"metadata": {"finalizers": all}}));
    lab.run("cluster delete --yes split");
    table.expect_with(
        "foreign finalizer of a cluster",
        "split",
        "removal-held",
        &["example.org/backup", "not of this"],
    );
    lab.change("split", &json!({"metadata": {"finalizers": null}}));
    lab.run("cluster delete --yes split --wait --timeout 60s");
}
