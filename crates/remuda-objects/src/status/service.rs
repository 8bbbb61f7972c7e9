//! Updates of Services: what a client leaves out stays, what a change of type makes meaningless goes.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::put;
use crate::json::{at, int_at, is_unset, list_at, object, objects, text_at};

pub(super) fn prepare_update(new: &mut Value, old: &Value) {
    let external = |service: &Value| text_at(service, &["spec", "type"]) == "ExternalName";
    let addressed = !external(new) && !external(old);
    let Some(spec) = new.as_object_mut().and_then(|top| object(top, "spec")) else { return };
    if addressed {
        keep_addresses(spec, old);
    }
    drop_unneeded(spec, at(old, &["spec"]));
}

/// Clients that only know the fields they care about must not lose the address of a service.
fn keep_addresses(spec: &mut Map<String, Value>, old: &Value) {
    let missing = |spec: &Map<String, Value>, field: &str| spec.get(field).is_none_or(is_unset);
    if missing(spec, "clusterIP") && missing(spec, "clusterIPs") {
        for field in ["clusterIP", "clusterIPs"] {
            put(spec, field, at(old, &["spec", field]).clone());
        }
    } else if missing(spec, "clusterIPs") {
        let address = spec.get("clusterIP").cloned().unwrap_or_default();
        let same = at(old, &["spec", "clusterIP"]) == &address;
        let list = if same { at(old, &["spec", "clusterIPs"]).clone() } else { json!([address]) };
        put(spec, "clusterIPs", list);
    } else if missing(spec, "clusterIP") {
        let first = spec.get("clusterIPs").and_then(|list| list.get(0)).cloned().unwrap_or_default();
        put(spec, "clusterIP", first);
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if missing(spec, field) {
            put(spec, field, at(old, &["spec", field]).clone());
        }
    }
    if missing(spec, "healthCheckNodePort") {
        put(spec, "healthCheckNodePort", at(old, &["spec", "healthCheckNodePort"]).clone());
    }
    // A port that was given a node port keeps it while it stays the same port.
    let old_ports = list_at(old, &["spec", "ports"]);
    if !matches!(spec.get("type").and_then(Value::as_str), Some("NodePort" | "LoadBalancer")) {
        return;
    }
    for port in objects(spec, "ports") {
        if port.get("nodePort").and_then(Value::as_i64).unwrap_or_default() != 0 {
            continue;
        }
        let same = old_ports.iter().find(|old| {
            int_at(old, &["port"]) == port.get("port").and_then(Value::as_i64).unwrap_or_default()
                && at(old, &["protocol"]) == port.get("protocol").unwrap_or(&Value::Null)
        });
        if let Some(number) = same.map(|old| int_at(old, &["nodePort"])).filter(|number| *number != 0) {
            port.insert("nodePort".to_owned(), Value::from(number));
        }
    }
}

/// What the type of a service needs.
struct Needs {
    address: bool,
    node_ports: bool,
    traffic_policy: bool,
    health_port: bool,
    balancer: bool,
}

impl Needs {
    fn of(field: impl Fn(&str) -> Value) -> Self {
        let (kind, policy) = (field("type"), field("externalTrafficPolicy"));
        let balancer = kind == "LoadBalancer";
        let node_ports = balancer || kind == "NodePort";
        Self {
            address: kind != "ExternalName",
            node_ports,
            traffic_policy: node_ports || (kind == "ClusterIP" && !is_unset(&field("externalIPs"))),
            health_port: balancer && policy == "Local",
            balancer,
        }
    }
}

/// Whoever changes the type alone, as a patch does, means the rest to follow. What they changed too is
/// theirs to answer for.
fn drop_unneeded(spec: &mut Map<String, Value>, old: &Value) {
    let now = Needs::of(|field| spec.get(field).cloned().unwrap_or_default());
    let before = Needs::of(|field| old.get(field).cloned().unwrap_or_default());
    let mut leave = |needed: (bool, bool), fields: &[&str]| {
        let same = |field: &&str| spec.get(*field) == old.get(*field);
        if needed.0 && !needed.1 && fields.iter().all(same) {
            fields.iter().for_each(|field| {
                spec.remove(*field);
            });
        }
    };
    leave((before.address, now.address), &["clusterIP", "clusterIPs"]);
    leave((before.address, now.address), &["ipFamilies"]);
    leave((before.address, now.address), &["ipFamilyPolicy"]);
    leave((before.health_port, now.health_port), &["healthCheckNodePort"]);
    leave((before.traffic_policy, now.traffic_policy), &["externalTrafficPolicy"]);
    leave((before.balancer, now.balancer), &["allocateLoadBalancerNodePorts"]);
    leave((before.balancer, now.balancer), &["loadBalancerClass"]);
    if before.node_ports && !now.node_ports {
        let numbers = |ports: &[Value]| -> BTreeSet<i64> {
            ports.iter().map(|port| int_at(port, &["nodePort"])).filter(|number| *number != 0).collect()
        };
        let given = spec.get("ports").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if numbers(given) == numbers(list_at(old, &["ports"])) {
            for port in objects(spec, "ports") {
                port.remove("nodePort");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(old: Value, new: Value, expected: Value) {
        let mut new = json!({"spec": new});
        prepare_update(&mut new, &json!({"spec": old}));
        assert_eq!(new["spec"], expected);
    }

    fn balancer() -> Value {
        json!({
            "type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001,
            "allocateLoadBalancerNodePorts": true, "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30002}],
        })
    }

    #[test]
    fn what_only_the_old_type_needed_goes_with_it() {
        let mut new = balancer();
        new["type"] = "ClusterIP".into();
        check(
            balancer(),
            new.clone(),
            json!({
                "type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "ports": [{"port": 80, "protocol": "TCP"}],
            }),
        );
        new["type"] = "ExternalName".into();
        check(balancer(), new, json!({"type": "ExternalName", "ports": [{"port": 80, "protocol": "TCP"}]}));
    }

    #[test]
    fn what_the_writer_changed_too_stays_to_be_judged() {
        let mut new = balancer();
        new["type"] = "ExternalName".into();
        new["clusterIP"] = "10.0.0.9".into();
        new["ports"][0]["nodePort"] = 31000.into();
        check(
            balancer(),
            new,
            json!({
                "type": "ExternalName", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.1"],
                "ports": [{"port": 80, "protocol": "TCP", "nodePort": 31000}],
            }),
        );
    }

    #[test]
    fn an_address_left_out_stays() {
        check(
            json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}),
            json!({"type": "ClusterIP"}),
            json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}),
        );
    }
}
