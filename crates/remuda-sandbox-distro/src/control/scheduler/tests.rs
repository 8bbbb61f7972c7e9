use serde_json::{Value, json};

use super::*;

fn candidate(name: &str, labels: Value, taints: Value, pods: usize) -> Candidate {
    let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
    let pod = |_| {
        Arc::new(serde_json::from_value(json!({"metadata": {"name": "p", "labels": {"app": "a"}}})).unwrap())
    };
    Candidate { node: Arc::new(serde_json::from_value(node).unwrap()), pods: (0..pods).map(pod).collect() }
}

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

#[track_caller]
fn check(spec: Value, candidates: &[Candidate], expected: Result<&str, &str>) {
    let chosen = choose(&pod(spec), candidates);
    assert_eq!(chosen.as_deref().map_err(String::as_str), expected);
}

#[test]
fn the_emptiest_node_is_chosen() {
    let nodes = [candidate("a", json!({}), json!([]), 2), candidate("b", json!({}), json!([]), 1)];
    check(json!({"containers": []}), &nodes, Ok("b"));
}

#[test]
fn a_taint_keeps_pods_away_unless_they_tolerate_it() {
    let taints = json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
    let nodes = [candidate("a", json!({}), taints, 0)];
    check(
        json!({"containers": []}),
        &nodes,
        Err(
            "0/1 nodes are available: 1 node(s) had untolerated taint(s) {node-role.kubernetes.io/control-plane: }.",
        ),
    );
    let tolerations = json!([{"operator": "Exists"}]);
    check(json!({"containers": [], "tolerations": tolerations}), &nodes, Ok("a"));
    let other = json!([{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoExecute"}]);
    assert!(choose(&pod(json!({"containers": [], "tolerations": other})), &nodes).is_err());
}

#[test]
fn a_soft_taint_only_makes_a_node_less_welcome() {
    let taints = json!([{"key": "dedicated", "value": "apps", "effect": "PreferNoSchedule"}]);
    let nodes = [candidate("a", json!({}), taints, 0), candidate("b", json!({}), json!([]), 5)];
    check(json!({"containers": []}), &nodes, Ok("b"));
    check(json!({"containers": []}), &nodes[..1], Ok("a"));
}

#[test]
fn node_selectors_and_affinity_are_kept() {
    let nodes = [
        candidate("a", json!({"disk": "hdd"}), json!([]), 0),
        candidate("b", json!({"disk": "ssd"}), json!([]), 9),
    ];
    check(json!({"containers": [], "nodeSelector": {"disk": "ssd"}}), &nodes, Ok("b"));
    let affinity = |expression: Value| {
        json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}})
    };
    check(affinity(json!({"key": "disk", "operator": "In", "values": ["ssd", "nvme"]})), &nodes, Ok("b"));
    check(affinity(json!({"key": "disk", "operator": "NotIn", "values": ["ssd"]})), &nodes, Ok("a"));
    check(
        affinity(json!({"key": "gpu", "operator": "Exists"})),
        &nodes,
        Err("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."),
    );
}

#[test]
fn pods_that_keep_apart_do_not_share_a_node() {
    let anti = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}]}});
    let nodes = [candidate("a", json!({}), json!([]), 1), candidate("b", json!({}), json!([]), 0)];
    check(json!({"containers": [], "affinity": anti}), &nodes, Ok("b"));
    assert!(choose(&pod(json!({"containers": [], "affinity": anti})), &nodes[..1]).is_err());
}

#[test]
fn a_cordoned_node_takes_nothing() {
    let node = json!({"metadata": {"name": "a"}, "spec": {"unschedulable": true}});
    let nodes = [Candidate { node: Arc::new(serde_json::from_value(node).unwrap()), pods: Vec::new() }];
    check(json!({"containers": []}), &nodes, Err("0/1 nodes are available: 1 node(s) were unschedulable."));
    check(json!({"containers": []}), &[], Err("no nodes available to schedule pods"));
}
