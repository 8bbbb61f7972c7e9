//! What is written of a node of a cluster: which fields, how much of them, and when it is written again.
//!
//! Nodes are said by the cluster, which belongs to others: texts, maps and lists are cut, and names are kept as data.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use kube::ResourceExt;
use remuda_api::{
    management::{Node, NodeSpec, NodeStatus},
    rke::Condition,
};
use remuda_base::hex;
use remuda_names::{
    gateway::annotation::NODE_DIGEST,
    rancher::{
        annotation::{NODE_SYNCER, POD_LIMITS, POD_REQUESTS},
        condition::{DRAINED, READY, REGISTERED},
        label::MANAGEMENT_NODE_NAME,
        reason::DISCONNECTED,
    },
};
use serde_json::{Map, Value, json};

use crate::{
    status::{
        ConditionUpdate,
        capacity::{Roles, amounts},
        set,
    },
    tokens::sha256,
};

/// Nodes of one cluster that are written; Kubernetes itself goes up to so many. All of them are counted.
pub(super) const MOST: usize = 5_000;
/// Longest name of an object.
const LONGEST_NAME: usize = 253;
/// Longest value of a label.
const LONGEST_LABEL: usize = 63;
/// Longest text within the spec and status of a node.
const LONGEST_TEXT: usize = 256;
/// Items of a list or map there.
const MOST_ITEMS: usize = 64;
/// Labels together, and annotations together.
const MOST_BYTES: usize = 8 << 10;
/// All nodes of one cluster together, as they are written; those beyond it are written without what is long.
const MOST_TOGETHER: usize = 48 << 20;
/// The digest of a node whose cluster is away.
const AWAY: &str = "away";
/// Says so to people.
const AWAY_TEXT: &str = "the cluster is not connected; this is how the node was seen last";

/// How draining a node goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Drain {
    Running,
    Done,
    Failed(String),
    /// By who asked for it, or another.
    Stopped,
}

/// A node as it is written.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    /// Of the object that is written.
    pub(super) name: String,
    labels: BTreeMap<String, String>,
    spec: NodeSpec,
    /// Without conditions.
    status: NodeStatus,
    ready: Condition,
    drain: Option<Drain>,
}

/// A node that is written already, as far as that decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) name: String,
    pub(super) digest: String,
}

/// What is to be done.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Steps<'a> {
    pub(super) create: Vec<&'a Seen>,
    pub(super) update: Vec<&'a Seen>,
    pub(super) delete: Vec<&'a str>,
}

/// Compares what is written with what is there. `known` are only those that were written for nodes.
pub(super) fn steps<'a>(known: &'a [Known], seen: &'a [Seen]) -> Steps<'a> {
    let written: BTreeMap<&str, &str> =
        known.iter().map(|known| (known.name.as_str(), known.digest.as_str())).collect();
    let there: BTreeSet<&str> = seen.iter().map(|seen| seen.name.as_str()).collect();
    let mut steps = Steps::default();
    for seen in seen {
        match written.get(seen.name.as_str()) {
            None => steps.create.push(seen),
            Some(digest) if *digest != seen.digest() => steps.update.push(seen),
            Some(_) => {}
        }
    }
    steps.delete = written.keys().copied().filter(|name| !there.contains(name)).collect();
    steps
}

/// Those that are to be marked when their cluster is away.
pub(super) fn unmarked(known: &[Known]) -> impl Iterator<Item = &Known> {
    known.iter().filter(|known| known.digest != AWAY)
}

impl Seen {
    /// `None` for a node whose name can be no name.
    pub(super) fn of(node: &core::Node, drain: Option<Drain>) -> Option<Self> {
        let name = node.name_any();
        if name.is_empty() || name.len() > LONGEST_NAME {
            return None;
        }
        let roles = Roles::of(node);
        let spec = node.spec.as_ref();
        let mut inner = Map::new();
        if let Some(id) = remuda_workload::provider_id(node) {
            inner.insert("providerID".to_owned(), id.into());
        }
        if let Some(taints) = spec.and_then(|spec| spec.taints.as_ref()) {
            inner.insert("taints".to_owned(), json!(taints));
        }
        if spec.and_then(|spec| spec.unschedulable) == Some(true) {
            inner.insert("unschedulable".to_owned(), true.into());
        }
        let labels = match name.len() <= LONGEST_LABEL {
            true => BTreeMap::from([(MANAGEMENT_NODE_NAME.to_owned(), name.clone())]),
            false => BTreeMap::new(),
        };
        let mut annotations = node.annotations().clone();
        // They are told as amounts.
        annotations.retain(|key, _| ![POD_REQUESTS, POD_LIMITS].contains(&key.as_str()));
        Some(Self {
            name: name_of(&name),
            labels,
            spec: NodeSpec {
                etcd: roles.etcd,
                control_plane: roles.control_plane,
                worker: roles.worker,
                requested_hostname: name.clone(),
                internal_node_spec: Some(bounded(Value::Object(inner))),
                ..NodeSpec::default()
            },
            status: NodeStatus {
                node_name: name,
                node_labels: few(node.labels()),
                node_annotations: few(&annotations),
                internal_node_status: Some(bounded(inner_status(node))),
                requested: amounts(node, POD_REQUESTS).map(|said| few(&said)).unwrap_or_default(),
                limits: amounts(node, POD_LIMITS).map(|said| few(&said)).unwrap_or_default(),
                ..NodeStatus::default()
            },
            ready: ready(node),
            drain,
        })
    }

    /// Bytes of what is written of it.
    fn size(&self) -> usize {
        json!([self.spec, self.status]).to_string().len()
    }

    /// Without what may be long.
    fn cut(&mut self) {
        self.spec.internal_node_spec = None;
        let node_name = std::mem::take(&mut self.status.node_name);
        self.status = NodeStatus { node_name, ..NodeStatus::default() };
    }

    /// Is another whenever there is something to write.
    pub(super) fn digest(&self) -> String {
        let drain = match &self.drain {
            None => json!(null),
            Some(Drain::Running) => json!("running"),
            Some(Drain::Done) => json!("done"),
            Some(Drain::Stopped) => json!("stopped"),
            Some(Drain::Failed(why)) => json!({"failed": why}),
        };
        let all = json!([self.labels, self.spec, self.status, self.ready, drain]);
        hex(&sha256(all.to_string().as_bytes())[..16])
    }

    /// The object as it becomes. What others wrote into it stays.
    pub(super) fn onto(&self, mut node: Node, now: Timestamp) -> Node {
        let meta = &mut node.metadata;
        meta.labels.get_or_insert_default().extend(self.labels.clone());
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert(NODE_SYNCER.to_owned(), "true".to_owned());
        annotations.insert(NODE_DIGEST.to_owned(), self.digest());
        node.spec = NodeSpec { other: std::mem::take(&mut node.spec.other), ..self.spec.clone() };
        let before = node.status.take().unwrap_or_default();
        let mut conditions = before.conditions;
        let registered = ConditionUpdate { message: "registered with kubernetes", ..ConditionUpdate::yes() };
        set(&mut conditions, REGISTERED, registered, now);
        let ready = &self.ready;
        set(
            &mut conditions,
            READY,
            ConditionUpdate { status: word(&ready.status), reason: &ready.reason, message: &ready.message },
            now,
        );
        self.drained(&mut conditions, now);
        node.status = Some(NodeStatus { conditions, other: before.other, ..self.status.clone() });
        node
    }

    fn drained(&self, conditions: &mut Vec<Condition>, now: Timestamp) {
        let is_cordoned =
            self.spec.internal_node_spec.as_ref().is_some_and(|spec| spec["unschedulable"] == true);
        let known = conditions.iter().find(|known| known.kind == DRAINED).map(|known| known.status.clone());
        let says = match (&self.drain, known.as_deref()) {
            (Some(Drain::Running), _) => ConditionUpdate { status: "Unknown", ..ConditionUpdate::default() },
            (Some(Drain::Failed(why)), _) => {
                ConditionUpdate { status: "False", reason: "DrainFailed", message: why }
            }
            (Some(Drain::Done), _) if is_cordoned => ConditionUpdate::yes(),
            // The server that drained it has stopped meanwhile.
            (None, Some("Unknown")) => ConditionUpdate {
                status: "False",
                reason: "Interrupted",
                message: "the drain was interrupted: begin it again",
            },
            (None, Some(_)) if is_cordoned => return,
            _ => return conditions.retain(|known| known.kind != DRAINED),
        };
        set(conditions, DRAINED, says, now);
    }
}

/// Bounds what is written of the nodes of a cluster: it may say much of each, and have many.
pub(super) fn together(mut nodes: Vec<Seen>) -> Vec<Seen> {
    nodes.truncate(MOST);
    within(nodes, MOST_TOGETHER)
}

fn within(mut nodes: Vec<Seen>, most: usize) -> Vec<Seen> {
    let mut left = most;
    for node in &mut nodes {
        match left.checked_sub(node.size()) {
            Some(rest) => left = rest,
            None => node.cut(),
        }
    }
    nodes
}

/// A node whose cluster is away: as it was seen last, and marked.
pub(super) fn away(mut node: Node, now: Timestamp) -> Node {
    let annotations = node.metadata.annotations.get_or_insert_default();
    annotations.insert(NODE_DIGEST.to_owned(), AWAY.to_owned());
    let status = node.status.get_or_insert_default();
    let says = ConditionUpdate { status: "Unknown", reason: DISCONNECTED, message: AWAY_TEXT };
    set(&mut status.conditions, READY, says, now);
    node
}

/// The name of the object of a node: whatever the node is called, and the same each time.
pub(super) fn name_of(node: &str) -> String {
    format!("machine-{}", hex(&sha256(node.as_bytes())[..8]))
}

fn word(status: &str) -> &'static str {
    match status {
        "True" => "True",
        "False" => "False",
        _ => "Unknown",
    }
}

/// Whether the node is ready, as it says itself.
fn ready(node: &core::Node) -> Condition {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let found = conditions.into_iter().flatten().find(|condition| condition.type_ == READY);
    let text = |text: Option<&String>| text.map(|text| cut(text).to_owned()).unwrap_or_default();
    Condition {
        kind: READY.to_owned(),
        status: word(found.map(|found| found.status.as_str()).unwrap_or_default()).to_owned(),
        reason: text(found.and_then(|found| found.reason.as_ref())),
        message: text(found.and_then(|found| found.message.as_ref())),
        ..Condition::default()
    }
}

/// The status of a node without times, which change all the time.
fn inner_status(node: &core::Node) -> Value {
    let Some(status) = &node.status else { return json!({}) };
    let mut inner = Map::new();
    let mut keep = |field: &str, value: Value| {
        if !value.is_null() {
            inner.insert(field.to_owned(), value);
        }
    };
    keep("capacity", json!(status.capacity));
    keep("allocatable", json!(status.allocatable));
    keep("addresses", json!(status.addresses));
    keep("nodeInfo", json!(status.node_info));
    let conditions = status.conditions.iter().flatten().map(|condition| {
        json!({
            "type": condition.type_, "status": condition.status, "reason": condition.reason, "message": condition.message,
        })
    });
    let mut conditions: Vec<Value> = conditions.collect();
    conditions.sort_by(|one, other| one["type"].as_str().cmp(&other["type"].as_str()));
    keep("conditions", conditions.into());
    Value::Object(inner)
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_TEXT)]
}

/// Texts, lists and maps as long as they may be.
fn bounded(value: Value) -> Value {
    match value {
        Value::String(text) => cut(&text).into(),
        Value::Array(items) => items.into_iter().take(MOST_ITEMS).map(bounded).collect(),
        Value::Object(map) => {
            let map = map.into_iter().filter(|(key, _)| key.len() <= LONGEST_TEXT).take(MOST_ITEMS);
            map.map(|(key, value)| (key, bounded(value))).collect()
        }
        other => other,
    }
}

/// As many entries as there is room for.
fn few(map: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut left = MOST_BYTES;
    let fits = |(key, value): &(&String, &String)| match left.checked_sub(key.len() + value.len()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    map.iter().filter(fits).map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: Value) -> core::Node {
        serde_json::from_value(value).unwrap()
    }

    fn plain(ready: &str, heartbeat: &str) -> core::Node {
        node(json!({
            "metadata": {"name": "n1", "resourceVersion": heartbeat, "labels": {"node-role.kubernetes.io/etcd": "true", "a": "b"}},
            "spec": {"providerID": "x://1"},
            "status": {
                "capacity": {"cpu": "4"},
                "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletReady",
                                "lastHeartbeatTime": heartbeat, "lastTransitionTime": heartbeat}],
            },
        }))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn seen(node: &core::Node) -> Seen {
        Seen::of(node, None).unwrap()
    }

    fn known(node: &Node) -> Known {
        let digest = node.metadata.annotations.as_ref().unwrap()[NODE_DIGEST].clone();
        Known { name: node.metadata.name.clone().unwrap(), digest }
    }

    fn written(seen: &Seen) -> Node {
        seen.onto(Node::named(&seen.name), at(1))
    }

    fn condition(node: &Node, kind: &str) -> String {
        let conditions = &node.status.as_ref().unwrap().conditions;
        let found = conditions.iter().find(|known| known.kind == kind);
        found.map(|known| format!("{} {}", known.status, known.reason).trim().to_owned()).unwrap_or_default()
    }

    #[test]
    fn a_heartbeat_writes_nothing_and_a_change_does() {
        let first = seen(&plain("True", "2026-01-01T00:00:00Z"));
        let stored = [known(&written(&first))];
        assert_eq!(steps(&stored, &[seen(&plain("True", "2026-01-01T00:05:00Z"))]), Steps::default());
        let other = [seen(&plain("Unknown", "2026-01-01T00:05:00Z"))];
        assert_eq!(steps(&stored, &other).update, [&other[0]]);
        let mut labelled = plain("True", "2026-01-01T00:00:00Z");
        labelled.metadata.labels.as_mut().unwrap().insert("c".to_owned(), "d".to_owned());
        let labelled = [seen(&labelled)];
        assert_eq!(steps(&stored, &labelled).update.len(), 1);
    }

    #[test]
    fn nodes_come_and_go() {
        let one = [seen(&plain("True", "2026-01-01T00:00:00Z"))];
        assert_eq!(steps(&[], &one).create, [&one[0]]);
        let stored = [known(&written(&one[0]))];
        assert_eq!(steps(&stored, &[]).delete, [one[0].name.as_str()]);
        assert_eq!(steps(&stored, &one), Steps::default(), "writing again what was written");
    }

    #[test]
    fn what_is_seen_is_written() {
        let stored = written(&seen(&plain("True", "2026-01-01T00:00:00Z")));
        assert_eq!((stored.spec.etcd, stored.spec.control_plane, stored.spec.worker), (true, false, false));
        let status = stored.status.as_ref().unwrap();
        assert_eq!(status.node_name, "n1");
        assert_eq!(status.node_labels["a"], "b");
        assert_eq!(status.internal_node_status.as_ref().unwrap()["capacity"]["cpu"], "4");
        assert_eq!(stored.metadata.labels.as_ref().unwrap()[MANAGEMENT_NODE_NAME], "n1");
        assert_eq!(
            (condition(&stored, READY), condition(&stored, REGISTERED)),
            ("True KubeletReady".to_owned(), "True".to_owned())
        );
        // Others' words stay.
        let mut before = stored.clone();
        before.spec.other.insert("displayName".to_owned(), "mine".into());
        let after = seen(&plain("False", "2026-01-01T00:00:00Z")).onto(before, at(5));
        assert_eq!(after.spec.other["displayName"], "mine");
        assert_eq!(condition(&after, READY), "False KubeletReady");
    }

    #[test]
    fn a_cluster_that_is_away_leaves_its_nodes_marked() {
        let first = seen(&plain("True", "2026-01-01T00:00:00Z"));
        let stored = written(&first);
        let marked = away(stored.clone(), at(9));
        assert_eq!(condition(&marked, READY), "Unknown Disconnected");
        assert_eq!(marked.status.as_ref().unwrap().node_labels, stored.status.as_ref().unwrap().node_labels);
        let list = [known(&marked)];
        assert_eq!(unmarked(&list).count(), 0, "it is marked once");
        assert_eq!(unmarked(&[known(&stored)]).count(), 1);
        let back = [first];
        assert_eq!(steps(&list, &back).update, [&back[0]], "when it is back, it is written again");
    }

    #[test]
    fn drains_show() {
        let cordoned = node(json!({"metadata": {"name": "n1"}, "spec": {"unschedulable": true}}));
        let with = |node: &core::Node, drain: Option<Drain>, before: Node| {
            Seen::of(node, drain).unwrap().onto(before, at(3))
        };
        let running = with(&cordoned, Some(Drain::Running), Node::named("x"));
        assert_eq!(condition(&running, DRAINED), "Unknown");
        let done = with(&cordoned, Some(Drain::Done), running.clone());
        assert_eq!(condition(&done, DRAINED), "True");
        assert_eq!(condition(&with(&cordoned, None, done.clone()), DRAINED), "True", "after a restart");
        assert_eq!(condition(&with(&cordoned, Some(Drain::Stopped), running.clone()), DRAINED), "");
        assert_eq!(condition(&with(&cordoned, None, running), DRAINED), "False Interrupted");
        let open = plain("True", "2026-01-01T00:00:00Z");
        assert_eq!(
            condition(&with(&open, Some(Drain::Done), done.clone()), DRAINED),
            "",
            "it was uncordoned"
        );
        assert_eq!(condition(&with(&open, None, done), DRAINED), "");
    }

    #[test]
    fn a_hostile_node_is_kept_within_bounds() {
        let long = "x".repeat(100_000);
        let many: BTreeMap<String, String> =
            (0..5000).map(|number| (format!("k{number}"), "é".repeat(200))).collect();
        let addresses: Vec<Value> = (0..5000).map(|_| json!({"type": long, "address": long})).collect();
        let hostile = node(json!({
            "metadata": {"name": "n1", "labels": many, "annotations": {"a": long, "b": "c", POD_REQUESTS: "{}"}},
            "spec": {"providerID": long, "taints": (0..5000).map(|_| json!({"key": long, "effect": "é".repeat(300)})).collect::<Vec<_>>()},
            "status": {"addresses": addresses, "capacity": many, "conditions": [{"type": "Ready", "status": long, "message": long}]},
        }));
        let stored = written(&seen(&hostile));
        let size = serde_json::to_string(&stored).unwrap().len();
        assert!(size < 192 << 10, "{size}");
        assert_eq!(
            stored.status.as_ref().unwrap().node_annotations,
            BTreeMap::from([("b".to_owned(), "c".to_owned())])
        );
        assert_eq!(condition(&stored, READY), "Unknown");
        // And so are very many of them.
        let one = seen(&hostile);
        let many = within(vec![one.clone(); 20], 4 * one.size());
        let size: usize = many.iter().map(Seen::size).sum();
        assert!(size < 5 * one.size() && many.iter().all(|seen| !seen.status.node_name.is_empty()), "{size}");
        assert_eq!(many[0], one, "what fits is written as it is");
        for name in ["", &"x".repeat(254)] {
            assert_eq!(Seen::of(&node(json!({"metadata": {"name": name}})), None), None);
        }
        let odd = seen(&node(json!({"metadata": {"name": "../../secrets"}})));
        assert!(odd.name.starts_with("machine-") && odd.name.len() == 24 && !odd.name.contains('.'));
    }
}
