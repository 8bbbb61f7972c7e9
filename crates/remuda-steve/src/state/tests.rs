use serde_json::{Value, json};

use super::*;

/// `kind` is `group/Kind`; expected is `name[ error][ moving][: code]`.
#[track_caller]
fn check(kind: &str, object: Value, expected: &str) {
    let (group, kind) = kind.rsplit_once('/').unwrap();
    let timeline = Timeline::of(group, kind, &object);
    assert_eq!(shown(timeline.at(2_000_000_000)), expected, "{object}");
}

fn shown(state: &State) -> String {
    let error = if state.error { " error" } else { "" };
    let moving = if state.transitioning { " moving" } else { "" };
    let code = state.cause.as_ref().map(|cause| format!(": {}", cause.code)).unwrap_or_default();
    format!("{}{error}{moving}{code}", state.name)
}

fn with(conditions: &[(&str, &str, &str)]) -> Value {
    let list: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, reason)| json!({"type": kind, "status": status, "reason": reason, "message": "m"}))
        .collect();
    json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": list}})
}

const PROVISIONING: &str = "provisioning.cattle.io/Cluster";

#[test]
fn conditions_tell_errors_before_what_moves() {
    check(PROVISIONING, with(&[]), "active");
    check(PROVISIONING, with(&[("Ready", "True", "")]), "active");
    check(PROVISIONING, with(&[("Updated", "Unknown", "Waiting")]), "updating moving: Waiting");
    check(PROVISIONING, with(&[("Updated", "False", "")]), "updating error: Updated");
    check(
        PROVISIONING,
        with(&[("Ready", "False", ""), ("Updated", "Unknown", "")]),
        "updating moving: Updated",
    );
    check(PROVISIONING, with(&[("Ready", "False", "")]), "unavailable moving: Ready");
    check(PROVISIONING, with(&[("Ready", "Unknown", "")]), "unavailable error: Ready");
    check(PROVISIONING, with(&[("Reconciling", "True", "")]), "reconciling moving: Reconciling");
    check(PROVISIONING, with(&[("Stalled", "True", "Broken")]), "error error: Broken");
    check(PROVISIONING, with(&[("Other", "False", "Error")]), "error error: Error");
    check(PROVISIONING, with(&[("Other", "False", "")]), "active");
}

#[test]
fn an_object_can_tell_its_state_itself() {
    let object =
        json!({"status": {"display": {"state": "WaitApplied", "transitioning": true, "message": "m"}}});
    check("fleet.cattle.io/Bundle", object, "waitapplied moving");
    check("x.io/Thing", json!({"spec": {"active": false}}), "inactive");
    check("/Namespace", json!({"status": {"phase": "Active"}}), "active");
    check(
        "x.io/Thing",
        json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}}),
        "in-progress moving",
    );
    check("x.io/Thing", json!({}), "active");
    check("x.io/Thing", json!("hostile"), "active");
    check("x.io/Thing", json!({"status": {"conditions": "x", "phase": 3}, "metadata": []}), "active");
}

#[test]
fn nodes_of_clusters_say_whether_they_take_pods() {
    let node = |unschedulable: bool, conditions: &[(&str, &str, &str)]| {
        let mut node = with(conditions);
        node["spec"] = json!({"internalNodeSpec": {"unschedulable": unschedulable}});
        node
    };
    let kind = "management.cattle.io/Node";
    let ready = ("Ready", "True", "KubeletReady");
    check(kind, node(false, &[ready]), "active");
    check(kind, node(true, &[ready]), "cordoned");
    check(kind, node(true, &[ready, ("Drained", "Unknown", "")]), "draining moving: Drained");
    check(kind, node(true, &[ready, ("Drained", "True", "")]), "drained");
    check(kind, node(true, &[ready, ("Drained", "False", "DrainFailed")]), "draining error: DrainFailed");
    check(kind, node(false, &[("Ready", "Unknown", "Disconnected")]), "unavailable error: Disconnected");
    check(kind, json!({"spec": 3}), "active");
}

#[test]
fn a_driver_that_is_switched_off_is_inactive() {
    let driver = |active: bool| {
        let mut driver =
            with(&[("Downloaded", "True", ""), ("Active", "False", ""), ("Inactive", "True", "")]);
        driver["spec"] = json!({"active": active});
        driver
    };
    check("management.cattle.io/NodeDriver", driver(false), "inactive");
    // It should be on and is not.
    check("management.cattle.io/NodeDriver", driver(true), "activating error: Active");
    check("x.io/NodeDriver", driver(false), "activating error: Active");
}

#[test]
fn time_alone_changes_what_is_new_and_what_is_removed() {
    let made = 1_767_225_600;
    let new = Timeline::of("management.cattle.io", "Setting", &with(&[]));
    assert_eq!(shown(new.at(made + 1)), "initializing moving");
    assert_eq!(shown(new.at(made + 5)), "active");
    let mut going = with(&[("Updated", "False", "")]);
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    going["metadata"]["finalizers"] = json!(["x.io/y"]);
    let going = Timeline::of("management.cattle.io", "Setting", &going);
    assert_eq!(shown(going.at(made + 299)), "removing moving: Finalizer");
    assert_eq!(shown(going.at(made + 300)), "removing error moving: Finalizer");
    assert_eq!(going.first.message, "waiting on x.io/y");
}

const MACHINE: &str = "cluster.x-k8s.io/Machine";

#[test]
fn machines_say_what_they_wait_for() {
    let mut running = with(&[("Ready", "True", "Ready")]);
    running["status"]["phase"] = "Running".into();
    check(MACHINE, running, "running");
    check(
        MACHINE,
        with(&[("Deleting", "True", "Draining"), ("Paused", "True", "")]),
        "deleting moving: Draining",
    );
    check(MACHINE, with(&[("Paused", "True", "Paused")]), "paused moving: Paused");
    check(MACHINE, with(&[("Reconciled", "Unknown", "Waiting")]), "reconciling moving: Waiting");
    check(MACHINE, with(&[("Reconciled", "False", "")]), "reconciling error: Reconciled");
    let waits = |bootstrap: &str| {
        with(&[
            ("Ready", "False", "NotReady"),
            ("BootstrapConfigReady", bootstrap, "B"),
            ("InfrastructureReady", "False", "I"),
        ])
    };
    check(MACHINE, waits("False"), "waitingforinfrastructure moving: B");
    check(MACHINE, waits("True"), "waitingfornoderef moving: I");
    check(MACHINE, with(&[("Ready", "Unknown", "U")]), "reconciling moving: U");
}

#[test]
fn sets_and_clusters_say_where_they_go() {
    let scaled = |want: i64, have: i64, ready: i64| json!({"spec": {"replicas": want}, "status": {"replicas": have, "readyReplicas": ready}});
    check("cluster.x-k8s.io/MachineSet", scaled(3, 3, 3), "active");
    check("cluster.x-k8s.io/MachineSet", scaled(2, 3, 3), "scalingdown moving");
    check("cluster.x-k8s.io/MachineDeployment", scaled(3, 3, 2), "scalingup moving");
    check("cluster.x-k8s.io/MachineDeployment", with(&[("RollingOut", "True", "R")]), "rollingout moving: R");
    let unavailable = with(&[("Available", "False", "A"), ("WorkersAvailable", "False", "W")]);
    check("cluster.x-k8s.io/Cluster", unavailable, "updating moving: W");
    check("cluster.x-k8s.io/Cluster", with(&[("Available", "Unknown", "A")]), "unavailable error: A");
    check("cluster.x-k8s.io/Cluster", with(&[("Available", "True", "A")]), "active");
}

#[test]
fn the_class_of_a_failure_is_its_cause() {
    let mut object = with(&[("Ready", "False", "")]);
    object["status"]["failureClass"] = "quota".into();
    check("rke-machine.cattle.io/LocalMachine", object, "unavailable moving: quota");
}

#[test]
fn workloads_are_in_progress_until_all_is_there() {
    let deployment = |ready: i64| json!({"spec": {"replicas": 2}, "status": {"readyReplicas": ready}});
    check("apps/Deployment", deployment(1), "in-progress moving");
    check("apps/Deployment", deployment(2), "active");
    let waiting = json!({"status": {"phase": "Pending", "containerStatuses": [
        {"state": {"waiting": {"reason": "ImagePullBackOff"}}}]}});
    check("/Pod", waiting, "imagepullbackoff error: ImagePullBackOff");
    check("/Pod", json!({"status": {"phase": "Running"}}), "running");
}

#[test]
fn conditions_are_marked_one_by_one() {
    let flag = |kind: &str, status: &str| {
        let condition = json!({"type": kind, "status": status});
        flags(&Condition::of(&condition))
    };
    assert_eq!(flag("Updated", "False"), (true, false));
    assert_eq!(flag("Updated", "Unknown"), (false, true));
    assert_eq!(flag("Ready", "False"), (false, true));
    assert_eq!(flag("Ready", "True"), (false, false));
}

#[test]
fn an_imported_cluster_is_pending_until_its_agent_has_been_there() {
    const CLUSTER: &str = "management.cattle.io/Cluster";
    check(CLUSTER, json!({"spec": {}}), "pending moving");
    let waiting = with(&[("Connected", "False", "Disconnected"), ("Provisioned", "Unknown", "")]);
    check(CLUSTER, waiting.clone(), "pending moving: Disconnected");
    let mut here = waiting.clone();
    here["metadata"]["annotations"] = json!({"provisioning.cattle.io/administrated": "true"});
    check(CLUSTER, here, "provisioning moving: Provisioned");
    let mut known = waiting;
    known["status"]["driver"] = "imported".into();
    check(CLUSTER, known, "provisioning moving: Provisioned");
    let lost = with(&[
        ("AgentDeployed", "True", ""),
        ("Connected", "False", ""),
        ("Ready", "False", "Disconnected"),
    ]);
    check(CLUSTER, lost, "unavailable moving: Disconnected");
    check(CLUSTER, json!({"spec": {"internal": true}}), "active");
}
