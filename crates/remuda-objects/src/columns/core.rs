//! Columns of the core group.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    AGE, Column, Columns, NAME, age, created, has_condition, integer, joined, labels_text, name, text,
    text_or, wide, with_more,
};
use crate::{
    json::{at, int_at, is_unset, list_at, map_at, text_at},
    meta,
};

pub(super) fn columns(group: &str, kind: &str) -> Option<&'static Columns> {
    Some(match (group, kind) {
        ("", "Pod") => &POD,
        ("", "Service") => &SERVICE,
        ("", "Endpoints") => &ENDPOINTS,
        ("discovery.k8s.io", "EndpointSlice") => &ENDPOINT_SLICE,
        ("", "Node") => &NODE,
        ("" | "events.k8s.io", "Event") => &EVENT,
        ("", "Namespace") => &NAMESPACE,
        ("", "Secret") => &SECRET,
        ("", "ConfigMap") => &CONFIG_MAP,
        ("", "ServiceAccount") => &super::DEFAULT,
        ("", "LimitRange") => &CREATED,
        ("", "Status") => &STATUS,
        _ => return None,
    })
}

pub(super) static CREATED: Columns = Columns::new(&[NAME, super::CREATED_AT], |object, _| {
    vec![name(object), Value::from(meta::creation_timestamp(object))]
});

static NAMESPACE: Columns =
    Columns::new(&[NAME, text("Status", "Phase of the namespace."), AGE], |object, now| {
        vec![name(object), Value::from(text_at(object, &["status", "phase"])), created(object, now)]
    });

static SECRET: Columns = Columns::new(
    &[NAME, text("Type", "What the secret is for."), text("Data", "Number of keys."), AGE],
    |object, now| {
        let keys = map_at(object, &["data"]).map_or(0, serde_json::Map::len);
        vec![name(object), Value::from(text_at(object, &["type"])), Value::from(keys), created(object, now)]
    },
);

static CONFIG_MAP: Columns = Columns::new(&[NAME, text("Data", "Number of keys."), AGE], |object, now| {
    let keys = |field: &str| map_at(object, &[field]).map_or(0, serde_json::Map::len);
    vec![name(object), Value::from(keys("data") + keys("binaryData")), created(object, now)]
});

static STATUS: Columns = Columns::new(
    &[
        text("Status", "Outcome of the operation."),
        text("Reason", "Machine-readable reason of a failure."),
        text("Message", "What happened."),
    ],
    |object, _| ["status", "reason", "message"].map(|field| Value::from(text_at(object, &[field]))).to_vec(),
);

static POD: Columns = Columns::new(
    &[
        NAME,
        text("Ready", "Ready containers of all containers."),
        text("Status", "Summary of the states of the containers."),
        text("Restarts", "How often containers were restarted, and when last."),
        AGE,
        wide("IP", "Address of the pod."),
        wide("Node", "Node the pod runs on."),
        wide("Nominated Node", "Node that makes room for the pod."),
        wide("Readiness Gates", "Fulfilled readiness gates of all."),
    ],
    pod,
);

/// Restarts and the time of the last one.
#[derive(Default)]
struct Restarts<'a> {
    count: i64,
    last: &'a str,
}

impl<'a> Restarts<'a> {
    fn add(&mut self, status: &'a Value) {
        self.count = self.count.saturating_add(int_at(status, &["restartCount"]));
        let finished = text_at(status, &["lastState", "terminated", "finishedAt"]);
        // Timestamps of one writer have one form, so their text orders them.
        if finished > self.last {
            self.last = finished;
        }
    }
}

fn ended(terminated: &Value) -> String {
    let reason = text_at(terminated, &["reason"]);
    let signal = int_at(terminated, &["signal"]);
    if !reason.is_empty() {
        reason.to_owned()
    } else if signal != 0 {
        format!("Signal:{signal}")
    } else {
        format!("ExitCode:{}", int_at(terminated, &["exitCode"]))
    }
}

fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
    let phase = text_at(object, &["status", "phase"]);
    let status_reason = text_at(object, &["status", "reason"]);
    let conditions = list_at(object, &["status", "conditions"]);
    let init_containers = list_at(object, &["spec", "initContainers"]);
    let mut reason = if status_reason.is_empty() { phase } else { status_reason }.to_owned();
    if conditions.iter().any(|condition| {
        text_at(condition, &["type"]) == "PodScheduled"
            && text_at(condition, &["reason"]) == "SchedulingGated"
    }) {
        "SchedulingGated".clone_into(&mut reason);
    }
    // Init containers that are restarted for ever run beside the others and count with them.
    let sidecars: BTreeMap<&str, bool> = init_containers
        .iter()
        .map(|container| (text_at(container, &["name"]), text_at(container, &["restartPolicy"]) == "Always"))
        .collect();
    let is_sidecar = |status: &Value| sidecars.get(text_at(status, &["name"])).copied().unwrap_or_default();
    let total = list_at(object, &["spec", "containers"]).len()
        + init_containers
            .iter()
            .filter(|container| text_at(container, &["restartPolicy"]) == "Always")
            .count();
    let mut ready = 0;
    let mut restarts = Restarts::default();
    let mut sidecar_restarts = Restarts::default();
    let mut initializing = false;
    for (index, status) in list_at(object, &["status", "initContainerStatuses"]).iter().enumerate() {
        restarts.add(status);
        let sidecar = is_sidecar(status);
        if sidecar {
            sidecar_restarts.add(status);
        }
        let terminated = at(status, &["state", "terminated"]);
        let waiting = text_at(status, &["state", "waiting", "reason"]);
        if terminated.is_object() && int_at(terminated, &["exitCode"]) == 0 {
            continue;
        }
        if sidecar && at(status, &["started"]) == &Value::Bool(true) {
            ready += usize::from(at(status, &["ready"]) == &Value::Bool(true));
            continue;
        }
        reason = if terminated.is_object() {
            format!("Init:{}", ended(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", init_containers.len())
        };
        initializing = true;
        break;
    }
    if !initializing || has_condition(conditions, "Initialized") {
        restarts = sidecar_restarts;
        let mut running = false;
        let mut failed = None;
        for status in list_at(object, &["status", "containerStatuses"]).iter().rev() {
            restarts.add(status);
            let waiting = text_at(status, &["state", "waiting", "reason"]);
            let terminated = at(status, &["state", "terminated"]);
            if !waiting.is_empty() {
                waiting.clone_into(&mut reason);
            } else if terminated.is_object() {
                reason = ended(terminated);
                if int_at(terminated, &["exitCode"]) != 0 {
                    failed = Some(reason.clone());
                }
            } else if at(status, &["ready"]) == &Value::Bool(true)
                && at(status, &["state", "running"]).is_object()
            {
                running = true;
                ready += 1;
            }
        }
        // A pod is not completed while one of its containers still runs.
        if reason == "Completed" {
            if running && has_condition(conditions, "Ready") {
                "Running".clone_into(&mut reason);
            } else if let Some(failed) = failed {
                reason = failed;
            } else if running {
                "NotReady".clone_into(&mut reason);
            }
        }
    }
    if meta::is_deleting(object) {
        if status_reason == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut reason);
        }
    }
    let restarts = if restarts.count != 0 && !restarts.last.is_empty() {
        format!("{} ({} ago)", restarts.count, age(restarts.last, now))
    } else {
        restarts.count.to_string()
    };
    let address = list_at(object, &["status", "podIPs"]).first().map_or(&Value::Null, |entry| &entry["ip"]);
    let gates = list_at(object, &["spec", "readinessGates"]);
    let gates = if gates.is_empty() {
        "<none>".to_owned()
    } else {
        let open =
            gates.iter().filter(|gate| has_condition(conditions, text_at(gate, &["conditionType"]))).count();
        format!("{open}/{}", gates.len())
    };
    vec![
        name(object),
        Value::from(format!("{ready}/{total}")),
        Value::from(reason),
        Value::from(restarts),
        created(object, now),
        text_or(address, "<none>"),
        text_or(at(object, &["spec", "nodeName"]), "<none>"),
        text_or(at(object, &["status", "nominatedNodeName"]), "<none>"),
        Value::from(gates),
    ]
}

pub(super) fn pod_conditions(object: &Value) -> Option<Value> {
    let (reason, message) = match text_at(object, &["status", "phase"]) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

static NODE: Columns = Columns::new(
    &[
        NAME,
        text("Status", "Whether the node is ready and takes pods."),
        text("Roles", "Roles from the labels of the node."),
        AGE,
        text("Version", "Version of the kubelet."),
        wide("Internal-IP", "First internal address."),
        wide("External-IP", "First external address."),
        wide("OS-Image", "Operating system."),
        wide("Kernel-Version", "Kernel and architecture."),
        wide("Container-Runtime", "Container runtime and its version."),
    ],
    node,
);

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list_at(object, &["status", "conditions"])
        .iter()
        .rev()
        .find(|condition| text_at(condition, &["type"]) == "Ready");
    let mut status = match ready.map(|condition| text_at(condition, &["status"])) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if at(object, &["spec", "unschedulable"]) == &Value::Bool(true) {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles = BTreeSet::new();
    for (key, value) in meta::labels(object).into_iter().flatten() {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some("") => {}
            Some(role) => {
                roles.insert(role);
            }
            None if key == "kubernetes.io/role" => {
                roles.extend(value.as_str().filter(|role| !role.is_empty()));
            }
            None => {}
        }
    }
    let roles = joined(roles.into_iter(), ",");
    let address = |kind: &str| {
        let found = list_at(object, &["status", "addresses"])
            .iter()
            .find(|address| text_at(address, &["type"]) == kind)
            .map(|address| text_at(address, &["address"]));
        Value::from(found.unwrap_or("<none>"))
    };
    let info = at(object, &["status", "nodeInfo"]);
    let mut kernel = text_at(info, &["kernelVersion"]).to_owned();
    if kernel.is_empty() {
        "<unknown>".clone_into(&mut kernel);
    }
    let architecture = text_at(info, &["architecture"]);
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    vec![
        name(object),
        Value::from(status),
        Value::from(if roles.is_empty() { "<none>".to_owned() } else { roles }),
        created(object, now),
        Value::from(text_at(info, &["kubeletVersion"])),
        address("InternalIP"),
        address("ExternalIP"),
        text_or(at(info, &["osImage"]), "<unknown>"),
        Value::from(kernel),
        text_or(at(info, &["containerRuntimeVersion"]), "<unknown>"),
    ]
}

static EVENT: Columns = Columns::new(
    &[
        text("Last Seen", "Time since the event was last seen."),
        text("Type", "Normal or Warning."),
        text("Reason", "Short reason of the event."),
        text("Object", "What the event is about."),
        wide("Subobject", "Part of the object the event is about."),
        wide("Source", "Who reported the event."),
        text("Message", "What happened."),
        wide("First Seen", "Time since the event was first seen."),
        wide("Count", "How often the event was seen."),
        Column { priority: 1, ..NAME },
    ],
    event,
);

/// Both styles of events: the fields of events.k8s.io stand in for the core ones.
fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let pick = |fields: [&str; 2]| {
        let first = at(object, &fields[..1]);
        if is_unset(first) { at(object, &fields[1..]) } else { first }
    };
    let about = pick(["involvedObject", "regarding"]);
    let source = pick(["source", "deprecatedSource"]);
    let time = |fields: [&str; 2]| pick(fields).as_str().filter(|text| !text.is_empty());
    let event_time = time(["eventTime", "eventTime"]);
    let first = time(["firstTimestamp", "deprecatedFirstTimestamp"]).or(event_time);
    let mut last = time(["lastTimestamp", "deprecatedLastTimestamp"]).or(first);
    let mut count = pick(["count", "deprecatedCount"]).as_i64().unwrap_or_default();
    let series = at(object, &["series"]);
    if series.is_object() {
        last = at(series, &["lastObservedTime"]).as_str();
        count = int_at(series, &["count"]);
    } else if count == 0 {
        count = 1;
    }
    let kind = text_at(about, &["kind"]).to_lowercase();
    let target = match text_at(about, &["name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let either = |a: &Value, b: &Value| {
        let first = a.as_str().unwrap_or_default();
        if first.is_empty() { b.as_str().unwrap_or_default().to_owned() } else { first.to_owned() }
    };
    let mut reporter =
        either(at(source, &["component"]), pick(["reportingComponent", "reportingController"]));
    let instance = either(at(source, &["host"]), at(object, &["reportingInstance"]));
    if !instance.is_empty() {
        reporter = format!("{reporter}, {instance}");
    }
    let since = |time: Option<&str>| Value::from(age(time.unwrap_or_default(), now));
    vec![
        since(last),
        Value::from(text_at(object, &["type"])),
        Value::from(text_at(object, &["reason"])),
        Value::from(target),
        Value::from(text_at(about, &["fieldPath"])),
        Value::from(reporter),
        Value::from(pick(["message", "note"]).as_str().unwrap_or_default().trim()),
        since(first),
        Value::from(count),
        name(object),
    ]
}

static SERVICE: Columns = Columns::new(
    &[
        NAME,
        text("Type", "How the service is exposed."),
        text("Cluster-IP", "Address inside of the cluster."),
        text("External-IP", "Addresses outside of the cluster."),
        text("Port(s)", "Ports of the service."),
        AGE,
        wide("Selector", "Labels of the pods behind the service."),
    ],
    service,
);

fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = at(object, &["spec"]);
    let kind = text_at(spec, &["type"]);
    let address = list_at(spec, &["clusterIPs"]).first().unwrap_or(&Value::Null);
    let address = if is_unset(address) { at(spec, &["clusterIP"]) } else { address };
    let mut external: Vec<&str> = list_at(spec, &["externalIPs"]).iter().filter_map(Value::as_str).collect();
    let external = match kind {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let mut addresses = balancer_addresses(object);
            addresses.append(&mut external);
            if addresses.is_empty() { "<pending>".to_owned() } else { addresses.join(",") }
        }
        "ExternalName" => text_at(spec, &["externalName"]).to_owned(),
        _ => "<unknown>".to_owned(),
    };
    let ports: Vec<String> = list_at(spec, &["ports"])
        .iter()
        .map(|port| {
            let (number, node) = (int_at(port, &["port"]), int_at(port, &["nodePort"]));
            let protocol = text_at(port, &["protocol"]);
            if node > 0 { format!("{number}:{node}/{protocol}") } else { format!("{number}/{protocol}") }
        })
        .collect();
    vec![
        name(object),
        Value::from(kind),
        text_or(address, "<none>"),
        Value::from(external),
        Value::from(if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") }),
        created(object, now),
        labels_text(at(spec, &["selector"])),
    ]
}

/// Addresses or host names a load balancer has got, sorted and once each.
pub(super) fn balancer_addresses(object: &Value) -> Vec<&str> {
    let addresses: BTreeSet<&str> = list_at(object, &["status", "loadBalancer", "ingress"])
        .iter()
        .map(|ingress| match text_at(ingress, &["ip"]) {
            "" => text_at(ingress, &["hostname"]),
            address => address,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect()
}

static ENDPOINTS: Columns =
    Columns::new(&[NAME, text("Endpoints", "Addresses and ports behind the service."), AGE], endpoints);

fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut shown = Vec::new();
    let mut count = 0;
    for subset in list_at(object, &["subsets"]) {
        let addresses = list_at(subset, &["addresses"]);
        let ports = list_at(subset, &["ports"]);
        count += addresses.len() * ports.len().max(1);
        let pairs = ports.iter().map(Some).chain(std::iter::once(None).take(usize::from(ports.is_empty())));
        for port in pairs {
            for address in addresses.iter().take(3_usize.saturating_sub(shown.len())) {
                let address = text_at(address, &["ip"]);
                shown.push(match port {
                    None => address.to_owned(),
                    Some(port) if address.contains(':') => format!("[{address}]:{}", int_at(port, &["port"])),
                    Some(port) => format!("{address}:{}", int_at(port, &["port"])),
                });
            }
        }
    }
    let empty = if list_at(object, &["subsets"]).is_empty() { "<none>" } else { "" };
    vec![name(object), Value::from(with_more(shown, count, empty)), created(object, now)]
}

static ENDPOINT_SLICE: Columns = Columns::new(
    &[
        NAME,
        text("AddressType", "Kind of the addresses."),
        text("Ports", "Ports of the endpoints."),
        text("Endpoints", "Addresses of the endpoints."),
        AGE,
    ],
    |object, now| {
        let ports = list_at(object, &["ports"]);
        let port_text = |port: &Value| match (port["port"].as_i64(), port["name"].as_str()) {
            (Some(number), _) => number.to_string(),
            (None, Some(name)) => name.to_owned(),
            (None, None) => "*".to_owned(),
        };
        let shown_ports = ports.iter().take(3).map(port_text).collect();
        let endpoints = list_at(object, &["endpoints"]);
        let count = endpoints.iter().map(|endpoint| list_at(endpoint, &["addresses"]).len()).sum();
        let addresses = endpoints.iter().flat_map(|endpoint| list_at(endpoint, &["addresses"]));
        let shown =
            addresses.take(3).map(|address| address.as_str().unwrap_or_default().to_owned()).collect();
        vec![
            name(object),
            Value::from(text_at(object, &["addressType"])),
            Value::from(with_more(shown_ports, ports.len(), "<unset>")),
            Value::from(with_more(shown, count, "<unset>")),
            created(object, now),
        ]
    },
);

/// Kinds that count something in one integer column besides name and age.
pub(super) const fn counted(name: &'static str, description: &'static str) -> [Column; 3] {
    [NAME, integer(name, description), AGE]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[track_caller]
    fn check_pod(object: Value, expected: &str) {
        let cells = pod(&object, NOW);
        let shown: Vec<_> = cells[1..4].iter().map(|cell| cell.as_str().unwrap_or_default()).collect();
        assert_eq!(shown.join(" | "), expected);
    }

    #[test]
    fn pods_show_what_kubectl_shows() {
        check_pod(json!({"spec": {"containers": [{}]}, "status": {"phase": "Pending"}}), "0/1 | Pending | 0");
        check_pod(
            json!({"spec": {"containers": [{}, {}]}, "status": {"phase": "Running", "containerStatuses": [
                {"ready": true, "state": {"running": {}}, "restartCount": 2, "lastState": {"terminated": {"finishedAt": "1969-12-31T23:58:30Z"}}},
                {"ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3}]}}),
            "1/2 | CrashLoopBackOff | 5 (90s ago)",
        );
        check_pod(
            json!({"spec": {"containers": [{}], "initContainers": [{"name": "a"}, {"name": "b"}]}, "status": {"phase": "Pending",
                "initContainerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 0}}}, {"name": "b", "state": {"waiting": {"reason": "PodInitializing"}}}]}}),
            "0/1 | Init:1/2 | 0",
        );
        check_pod(
            json!({"spec": {"containers": [{}], "initContainers": [{"name": "a"}]}, "status": {"phase": "Pending",
                "initContainerStatuses": [{"name": "a", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}}),
            "0/1 | Init:CrashLoopBackOff | 4",
        );
        check_pod(
            json!({"spec": {"containers": [{}], "initContainers": [{"name": "s", "restartPolicy": "Always"}]}, "status": {"phase": "Running",
                "initContainerStatuses": [{"name": "s", "started": true, "ready": true, "state": {"running": {}}}],
                "containerStatuses": [{"ready": true, "state": {"running": {}}}]}}),
            "2/2 | Running | 0",
        );
        check_pod(
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"containers": [{}]}, "status": {"phase": "Running"}}),
            "0/1 | Terminating | 0",
        );
        check_pod(
            json!({"spec": {"containers": [{}]}, "status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "signal": 9}}}]}}),
            "0/1 | Signal:9 | 0",
        );
        check_pod(
            json!({"spec": {"containers": [{}]}, "status": {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}}),
            "0/1 | Completed | 0",
        );
    }

    #[test]
    fn nodes_show_status_and_roles() {
        let object = json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/etcd": "", "node-role.kubernetes.io/control-plane": "true"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6", "architecture": "amd64"}}});
        let cells = node(&object, NOW);
        assert_eq!(cells[1], json!("Ready,SchedulingDisabled"));
        assert_eq!(cells[2], json!("control-plane,etcd"));
        assert_eq!(
            cells[5..],
            [json!("10.0.0.1"), json!("<none>"), json!("<unknown>"), json!("6 (amd64)"), json!("<unknown>")]
        );
    }

    #[test]
    fn services_show_ports_and_addresses() {
        let object = json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"],
            "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}], "selector": {"b": "2", "a": "1"}},
            "status": {"loadBalancer": {"ingress": [{"ip": "2.2.2.2"}, {"hostname": "a.example"}]}}});
        let cells = service(&object, NOW);
        assert_eq!(
            cells[2..5],
            [json!("10.0.0.1"), json!("2.2.2.2,a.example"), json!("80:30080/TCP,53/UDP")]
        );
        assert_eq!(cells[6], json!("a=1,b=2"));
    }

    #[test]
    fn both_styles_of_events_look_alike() {
        let old = json!({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "type": "Normal", "reason": "R",
            "message": " m ", "source": {"component": "c", "host": "h"}, "firstTimestamp": "1969-12-31T23:59:00Z", "lastTimestamp": "1969-12-31T23:59:30Z", "count": 3});
        let new = json!({"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p"}, "type": "Normal", "reason": "R",
            "note": "m", "reportingController": "c", "reportingInstance": "h", "eventTime": "1969-12-31T23:59:00.000000Z",
            "series": {"count": 3, "lastObservedTime": "1969-12-31T23:59:30.000000Z"}});
        assert_eq!(event(&old, NOW), event(&new, NOW));
        assert_eq!(event(&old, NOW)[..4], [json!("30s"), json!("Normal"), json!("R"), json!("pod/p")]);
    }

    #[test]
    fn long_lists_of_endpoints_are_cut() {
        let object = json!({"subsets": [{"addresses": [{"ip": "1"}, {"ip": "2"}], "ports": [{"port": 80}, {"port": 81}]}]});
        assert_eq!(endpoints(&object, NOW)[1], json!("1:80,2:80,1:81 + 1 more..."));
    }
}
