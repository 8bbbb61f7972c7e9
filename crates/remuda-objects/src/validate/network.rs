//! Services, endpoints, ingresses and network policies.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use serde_json::{Value, json};

use super::{Errors, pair};
use crate::{
    json::{at, int_at, is_unset, list_at, map_at, text_at},
    meta, names,
    path::Path,
    selector::LabelSelector,
};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const BAD_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// The addresses of a service; the single field stands in for a missing list.
fn cluster_ips(service: &Value) -> Vec<&str> {
    let list = list_at(service, &["spec", "clusterIPs"]);
    let single = text_at(service, &["spec", "clusterIP"]);
    if list.is_empty() && !single.is_empty() {
        return vec![single];
    }
    list.iter().filter_map(Value::as_str).collect()
}

pub(super) fn service(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    let kind = text_at(spec, &["type"]);
    let addresses = cluster_ips(new);
    let headless = addresses == ["None"];
    if let Some(old) = old {
        address_update(kind, &addresses, old, path, errors);
    }
    let ports = list_at(spec, &["ports"]);
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.required(path.child("ports"), "");
    }
    let addresses_path = path.child("clusterIPs");
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let detail = format!("may not be set to 'None' for {kind} services");
            errors.invalid(addresses_path.index(0), &Value::from("None"), &detail);
        }
        "ExternalName" => {
            if !addresses.is_empty() {
                errors.forbidden(addresses_path, "may not be set for ExternalName services");
            }
            let name = text_at(spec, &["externalName"]);
            match name.strip_suffix('.').unwrap_or(name) {
                "" => errors.required(path.child("externalName"), ""),
                name => errors.complaints(path.child("externalName"), name, &names::subdomain(name)),
            }
        }
        _ => {}
    }
    service_ports(kind, ports, path.child("ports"), errors);
    if let Some(selector) = map_at(spec, &["selector"]) {
        meta::validate_labels(selector, &path.child("selector"), &mut errors.list);
    }
    errors.one_of(path.child("sessionAffinity"), at(spec, &["sessionAffinity"]), &["ClientIP", "None"]);
    if kind != "ExternalName" {
        for (index, address) in addresses.iter().enumerate().filter(|(_, address)| **address != "None") {
            if address.parse::<IpAddr>().is_err() {
                errors.invalid(addresses_path.index(index), &Value::from(*address), BAD_ADDRESS);
            }
        }
        let single = text_at(spec, &["clusterIP"]);
        if !single.is_empty() && addresses.first() != Some(&single) {
            errors.invalid(addresses_path, &json!(addresses), "first value must match `clusterIP`");
        }
    }
    let external = path.child("externalIPs");
    for (index, address) in list_at(spec, &["externalIPs"]).iter().enumerate() {
        if address.as_str().unwrap_or_default().parse::<IpAddr>().is_err() {
            errors.invalid(external.index(index), address, BAD_ADDRESS);
        }
    }
    errors.one_of(
        path.child("type"),
        at(spec, &["type"]),
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
    );
    for field in ["externalTrafficPolicy", "internalTrafficPolicy"] {
        errors.one_of_given(path.child(field), at(spec, &[field]), &["Cluster", "Local"]);
    }
}

/// An address once given stays, except on the way from or to `ExternalName`.
fn address_update(kind: &str, new: &[&str], old: &Value, path: Path<'_>, errors: &mut Errors) {
    if kind == "ExternalName" || text_at(old, &["spec", "type"]) == "ExternalName" {
        return;
    }
    let addresses = path.child("clusterIPs");
    match (cluster_ips(old).first(), new.first()) {
        (Some(_), None) => {
            errors.invalid(addresses.index(0), &json!([]), "primary clusterIP can not be unset");
        }
        (Some(old), Some(first)) if old != first => {
            errors.invalid(addresses.index(0), &json!(new), "may not change once set");
        }
        _ => {}
    }
}

fn service_ports(kind: &str, ports: &[Value], path: Path<'_>, errors: &mut Errors) {
    let mut seen_names = BTreeSet::new();
    let mut seen_node_ports = BTreeSet::new();
    let mut seen_ports = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text_at(port, &["name"]);
        if !name.is_empty() {
            errors.complaints(path.child("name"), name, &names::label(name));
            if !seen_names.insert(name) {
                errors.duplicate(path.child("name"), at(port, &["name"]));
            }
        } else if ports.len() > 1 {
            errors.required(path.child("name"), "");
        }
        let number = int_at(port, &["port"]);
        errors.port(path.child("port"), &Value::from(number));
        errors.one_of(path.child("protocol"), at(port, &["protocol"]), &PROTOCOLS);
        match at(port, &["targetPort"]) {
            Value::String(name) => errors.complaints(path.child("targetPort"), name, &names::port_name(name)),
            target @ Value::Number(_) => errors.port(path.child("targetPort"), target),
            _ => {}
        }
        let protocol = text_at(port, &["protocol"]);
        let node_port = int_at(port, &["nodePort"]);
        if node_port != 0 {
            if kind == "ClusterIP" {
                errors.forbidden(path.child("nodePort"), "may not be used when `type` is 'ClusterIP'");
            }
            if !seen_node_ports.insert((protocol, node_port)) {
                errors.duplicate(path.child("nodePort"), at(port, &["nodePort"]));
            }
        }
        if !seen_ports.insert((protocol, number)) {
            errors.duplicate(path, &json!({"port": number, "protocol": protocol}));
        }
    }
}

pub(super) fn endpoints(new: &Value, errors: &mut Errors) {
    let path = Path::root("subsets");
    for (index, subset) in list_at(new, &["subsets"]).iter().enumerate() {
        let path = path.index(index);
        let lists = ["addresses", "notReadyAddresses"];
        if lists.iter().all(|list| list_at(subset, &[list]).is_empty()) {
            errors.required(path, "must specify `addresses` or `notReadyAddresses`");
        }
        for list in lists {
            let path = path.child(list);
            for (index, address) in list_at(subset, &[list]).iter().enumerate() {
                let path = path.index(index);
                endpoint_address(at(address, &["ip"]), path.child("ip"), errors);
            }
        }
        let ports = list_at(subset, &["ports"]);
        let ports_path = path.child("ports");
        for (index, port) in ports.iter().enumerate() {
            let path = ports_path.index(index);
            if ports.len() > 1 && text_at(port, &["name"]).is_empty() {
                errors.required(path.child("name"), "");
            }
            errors.port(path.child("port"), &Value::from(int_at(port, &["port"])));
            errors.one_of(path.child("protocol"), at(port, &["protocol"]), &PROTOCOLS);
        }
    }
}

/// Addresses that only mean something on one machine are no endpoints.
fn endpoint_address(value: &Value, path: Path<'_>, errors: &mut Errors) {
    let Ok(address) = value.as_str().unwrap_or_default().parse::<IpAddr>() else {
        errors.invalid(path, value, BAD_ADDRESS);
        return;
    };
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    };
    let detail = if address.is_unspecified() {
        &format!("may not be unspecified ({address})")
    } else if address.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    } else if link_local {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    } else {
        return;
    };
    errors.invalid(path, value, detail);
}

pub(super) fn endpoint_slice(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    const MAX_ENDPOINTS: usize = 1000;
    const MAX_ADDRESSES: usize = 100;
    const MAX_PORTS: usize = 20000;
    let kind = text_at(new, &["addressType"]);
    errors.one_of(Path::root("addressType"), at(new, &["addressType"]), &["FQDN", "IPv4", "IPv6"]);
    let list = list_at(new, &["endpoints"]);
    let path = Path::root("endpoints");
    if list.len() > MAX_ENDPOINTS {
        errors.too_many(path, list.len(), MAX_ENDPOINTS);
        return;
    }
    for (index, endpoint) in list.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("addresses");
        let addresses = list_at(endpoint, &["addresses"]);
        if addresses.is_empty() {
            errors.required(path, "must contain at least 1 address");
        } else if addresses.len() > MAX_ADDRESSES {
            errors.too_many(path, addresses.len(), MAX_ADDRESSES);
        }
        for (index, address) in addresses.iter().enumerate().take(MAX_ADDRESSES) {
            let text = address.as_str().unwrap_or_default();
            match kind {
                "IPv4" if text.parse::<Ipv4Addr>().is_err() => {
                    errors.invalid(path.index(index), address, "must be an IPv4 address");
                }
                "IPv6" if text.parse::<Ipv6Addr>().is_err() => {
                    errors.invalid(path.index(index), address, "must be an IPv6 address");
                }
                "IPv4" | "IPv6" => endpoint_address(address, path.index(index), errors),
                "FQDN" => errors.complaints(path.index(index), text, &names::subdomain(text)),
                _ => {}
            }
        }
    }
    let ports = list_at(new, &["ports"]);
    let path = Path::root("ports");
    if ports.len() > MAX_PORTS {
        errors.too_many(path, ports.len(), MAX_PORTS);
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text_at(port, &["name"]);
        if !name.is_empty() {
            errors.complaints(path.child("name"), name, &names::label(name));
        }
        if !seen.insert(name) {
            errors.duplicate(path.child("name"), &Value::from(name));
        }
        errors.one_of(path.child("protocol"), at(port, &["protocol"]), &PROTOCOLS);
    }
    if let Some(old) = old {
        let (new, old) = pair(new, old, &["addressType"]);
        errors.immutable(Path::root("addressType"), new, old);
    }
}

pub(super) fn ingress(new: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    let rules = list_at(spec, &["rules"]);
    let backend = at(spec, &["defaultBackend"]);
    if rules.is_empty() && !backend.is_object() {
        errors.invalid(path, at(spec, &["rules"]), "either `defaultBackend` or `rules` must be specified");
    }
    if backend.is_object() {
        check_backend(backend, path.child("defaultBackend"), errors);
    }
    let rules_path = path.child("rules");
    for (index, rule) in rules.iter().enumerate() {
        let path = rules_path.index(index);
        let host = text_at(rule, &["host"]);
        if host.parse::<IpAddr>().is_ok() {
            errors.invalid(path.child("host"), &Value::from(host), "must be a DNS name, not an IP address");
        } else if host.contains('*') {
            errors.complaints(path.child("host"), host, &names::wildcard_subdomain(host));
        } else if !host.is_empty() {
            errors.complaints(path.child("host"), host, &names::subdomain(host));
        }
        let http = at(rule, &["http"]);
        if !http.is_object() {
            continue;
        }
        let http_path = path.child("http");
        let paths_path = http_path.child("paths");
        let paths = list_at(http, &["paths"]);
        if paths.is_empty() {
            errors.required(paths_path, "");
        }
        for (index, entry) in paths.iter().enumerate() {
            ingress_path(entry, paths_path.index(index), errors);
        }
    }
    let class = text_at(spec, &["ingressClassName"]);
    if !class.is_empty() {
        errors.complaints(path.child("ingressClassName"), class, &names::subdomain(class));
    }
}

fn ingress_path(entry: &Value, path: Path<'_>, errors: &mut Errors) {
    let (text, kind) = (text_at(entry, &["path"]), at(entry, &["pathType"]));
    match kind.as_str() {
        None | Some("") => {
            errors.required(path.child("pathType"), "pathType must be specified");
            return;
        }
        Some("Exact" | "Prefix") => {
            let value = Value::from(text);
            if !text.starts_with('/') {
                errors.invalid(path.child("path"), &value, "must be an absolute path");
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if text.contains(sequence) {
                    errors.invalid(path.child("path"), &value, &format!("must not contain '{sequence}'"));
                }
            }
            for suffix in ["/..", "/."] {
                if text.ends_with(suffix) {
                    errors.invalid(path.child("path"), &value, &format!("cannot end with '{suffix}'"));
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !text.is_empty() && !text.starts_with('/') {
                errors.invalid(path.child("path"), &Value::from(text), "must be an absolute path");
            }
        }
        Some(_) => {
            errors.one_of(path.child("pathType"), kind, &["Exact", "ImplementationSpecific", "Prefix"]);
        }
    }
    check_backend(at(entry, &["backend"]), path.child("backend"), errors);
}

fn check_backend(backend: &Value, path: Path<'_>, errors: &mut Errors) {
    let (resource, service) = (at(backend, &["resource"]), at(backend, &["service"]));
    match (resource.is_object(), service.is_object()) {
        (true, true) => {
            errors.invalid(path, &Value::from(""), "cannot set both resource and service backends");
        }
        (false, false) => errors.invalid(path, &Value::from(""), "resource or service backend is required"),
        (true, false) => {
            let path = path.child("resource");
            for field in ["kind", "name"] {
                if text_at(resource, &[field]).is_empty() {
                    errors.required(path.child(field), "");
                }
            }
        }
        (false, true) => {
            let service_path = path.child("service");
            match text_at(service, &["name"]) {
                "" => errors.required(service_path.child("name"), ""),
                name => errors.complaints(service_path.child("name"), name, &names::label_1035(name)),
            }
            let port_path = service_path.child("port");
            let (name, number) = (text_at(service, &["port", "name"]), int_at(service, &["port", "number"]));
            match (name.is_empty(), number == 0) {
                (false, false) => {
                    errors.invalid(path, &Value::from(""), "cannot set both port name & port number");
                }
                (false, true) => errors.complaints(port_path.child("name"), name, &names::port_name(name)),
                (true, false) => errors.port(port_path.child("number"), &Value::from(number)),
                (true, true) => errors.required(path, "port name or number is required"),
            }
        }
    }
}

pub(super) fn ingress_class(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let path = Path::root("spec");
    let controller = text_at(new, &["spec", "controller"]);
    if controller.is_empty() {
        errors.required(path.child("controller"), "");
    } else if controller.len() > 250 {
        errors.too_long(path.child("controller"), 250);
    } else {
        match controller.split_once('/') {
            Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
                errors.complaints(path.child("controller"), domain, &names::subdomain(domain));
            }
            _ => errors.invalid(
                path.child("controller"),
                &Value::from(controller),
                "must be a domain-prefixed path (such as \"acme.io/foo\")",
            ),
        }
    }
    if let Some(old) = old {
        let (new, old) = pair(new, old, &["spec", "controller"]);
        errors.immutable(path.child("controller"), new, old);
    }
}

pub(super) fn policy(new: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = at(new, &["spec"]);
    errors.list.append(&mut LabelSelector::validate(at(spec, &["podSelector"]), &path.child("podSelector")));
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let rules_path = path.child(direction);
        for (index, rule) in list_at(spec, &[direction]).iter().enumerate() {
            let path = rules_path.index(index);
            policy_ports(rule, path.child("ports"), errors);
            let peers_path = path.child(peers);
            for (index, entry) in list_at(rule, &[peers]).iter().enumerate() {
                peer(entry, peers_path.index(index), errors);
            }
        }
    }
    let types = list_at(spec, &["policyTypes"]);
    let types_path = path.child("policyTypes");
    if types.len() > 2 {
        errors.invalid(types_path, at(spec, &["policyTypes"]), "may not specify more than two policyTypes");
        return;
    }
    for (index, kind) in types.iter().enumerate() {
        errors.one_of_given(types_path.index(index), kind, &["Egress", "Ingress"]);
    }
}

fn policy_ports(rule: &Value, path: Path<'_>, errors: &mut Errors) {
    for (index, port) in list_at(rule, &["ports"]).iter().enumerate() {
        let path = path.index(index);
        errors.one_of_given(path.child("protocol"), at(port, &["protocol"]), &PROTOCOLS);
        match at(port, &["port"]) {
            Value::String(name) => errors.complaints(path.child("port"), name, &names::port_name(name)),
            number @ Value::Number(_) => errors.port(path.child("port"), number),
            _ => {}
        }
        let end = at(port, &["endPort"]);
        if let Some(last) = end.as_i64() {
            match at(port, &["port"]).as_i64() {
                Some(first) if last < first => {
                    errors.invalid(path.child("endPort"), end, "must be greater than or equal to `port`");
                }
                Some(_) => errors.port(path.child("endPort"), end),
                None => {
                    let detail = if is_unset(at(port, &["port"])) {
                        "may not be specified when `port` is not specified"
                    } else {
                        "may not be specified when `port` is non-numeric"
                    };
                    errors.invalid(path.child("endPort"), end, detail);
                }
            }
        }
    }
}

fn peer(peer: &Value, path: Path<'_>, errors: &mut Errors) {
    let count = ["podSelector", "namespaceSelector", "ipBlock"]
        .iter()
        .filter(|field| at(peer, &[field]).is_object())
        .count();
    if count == 0 {
        errors.required(path, "must specify a peer");
    }
    let block = at(peer, &["ipBlock"]);
    if block.is_object() && count > 1 {
        errors.forbidden(path, "may not specify both ipBlock and another peer");
    }
    for selector in ["podSelector", "namespaceSelector"] {
        errors.list.append(&mut LabelSelector::validate(at(peer, &[selector]), &path.child(selector)));
    }
    if block.is_object() {
        let path = path.child("ipBlock");
        let range = text_at(block, &["cidr"]);
        if is_unset(at(block, &["cidr"])) {
            errors.required(path.child("cidr"), "");
        } else if !is_range(range) {
            errors.invalid(
                path.child("cidr"),
                &Value::from(range),
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            );
        }
    }
}

fn is_range(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let limit = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= limit)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{
        defaults,
        validate::tests::{check_create, check_update},
    };

    fn service(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "s", "namespace": "n"}, "spec": spec});
        defaults::apply("", "Service", &mut object);
        object
    }

    #[test]
    fn services_have_ports_with_names() {
        check_create("", "Service", &service(json!({"ports": [{"port": 80}]})), &[]);
        check_create("", "Service", &service(json!({})), &["spec.ports: Required value"]);
        check_create(
            "",
            "Service",
            &service(json!({"ports": [{"port": 80, "name": "a"}, {"port": 80}]})),
            &[
                "spec.ports[1].name: Required value",
                "spec.ports[1]: Duplicate value: {\"port\":80,\"protocol\":\"TCP\"}",
            ],
        );
        check_create(
            "",
            "Service",
            &service(json!({"type": "ExternalName"})),
            &["spec.externalName: Required value"],
        );
        check_create(
            "",
            "Service",
            &service(json!({"type": "X", "ports": [{"port": 0}]})),
            &[
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.type: Unsupported value: \"X\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
            ],
        );
    }

    #[test]
    fn a_service_keeps_its_address() {
        let old =
            service(json!({"ports": [{"port": 80}], "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}));
        let new =
            service(json!({"ports": [{"port": 80}], "clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"]}));
        check_update(
            "",
            "Service",
            &new,
            &old,
            &["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"],
        );
    }

    #[test]
    fn ingresses_lead_somewhere() {
        check_create(
            "networking.k8s.io",
            "Ingress",
            &json!({"spec": {"rules": [{"host": "a.b", "http": {"paths": [{"path": "x", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}}),
            &["spec.rules[0].http.paths[0].path: Invalid value: \"x\": must be an absolute path"],
        );
        check_create(
            "networking.k8s.io",
            "Ingress",
            &json!({"spec": {}}),
            &["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
        );
    }

    #[test]
    fn network_policies_name_their_peers() {
        check_create(
            "networking.k8s.io",
            "NetworkPolicy",
            &json!({"spec": {"podSelector": {}, "ingress": [{"from": [{}, {"ipBlock": {"cidr": "10.0.0.0/33"}}], "ports": [{"port": 80, "endPort": 70}]}]}}),
            &[
                "spec.ingress[0].ports[0].endPort: Invalid value: 70: must be greater than or equal to `port`",
                "spec.ingress[0].from[0]: Required value: must specify a peer",
                "spec.ingress[0].from[1].ipBlock.cidr: Invalid value: \"10.0.0.0/33\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ],
        );
    }

    #[test]
    fn endpoint_slices_hold_addresses_of_their_kind() {
        check_create(
            "discovery.k8s.io",
            "EndpointSlice",
            &json!({"addressType": "IPv4", "endpoints": [{"addresses": ["::2"]}, {"addresses": ["127.0.0.1"]}, {}]}),
            &[
                "endpoints[0].addresses[0]: Invalid value: \"::2\": must be an IPv4 address",
                "endpoints[1].addresses[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
                "endpoints[2].addresses: Required value: must contain at least 1 address",
            ],
        );
    }
}
