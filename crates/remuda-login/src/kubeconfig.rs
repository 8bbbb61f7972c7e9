//! Kubeconfigs of people: each holds a token of theirs that is good for one cluster and for a while.
//!
//! The layout is Rancher's: a context through this server and, where a cluster has an authorized endpoint, one
//! for each address that leads to it directly.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{header, request::Parts, uri::Authority};
use kube::ResourceExt;
use remuda_api::{
    core::Machine,
    management::{self, Setting},
    provisioning,
};
use remuda_control::{Ctx, Informer, ObjectKey, Scope};
use remuda_names::{
    capi,
    gateway::path::CLUSTERS,
    rancher::{label, setting},
};
use serde_json::Value;

/// Where every distribution has its API.
const PORT: u16 = 6443;
const BY_MANAGEMENT: &str = "people/management";
const BY_CLUSTER: &str = "people/cluster";

/// A way to a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Of its context.
    pub(crate) name: String,
    pub(crate) url: String,
    /// Certificates it is trusted by, PEM in base64; empty if those of the system will do.
    pub(crate) ca: String,
}

/// What kubeconfigs are made of.
pub(crate) struct Kubeconfigs {
    settings: Informer<Setting>,
    clusters: Informer<management::Cluster>,
    provisioned: Informer<provisioning::Cluster>,
    machines: Informer<Machine>,
}

impl Kubeconfigs {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        let provisioned: Informer<provisioning::Cluster> = ctx.informers.of(Scope::all());
        provisioned.add_index(BY_MANAGEMENT, |cluster| {
            let name = cluster.status.as_ref().map(|status| status.cluster_name.clone());
            name.filter(|name| !name.is_empty()).into_iter().collect()
        });
        let machines: Informer<Machine> = ctx.informers.of(Scope::all());
        machines.add_index(BY_CLUSTER, |machine| {
            let control = machine.labels().get(label::CONTROL_PLANE_ROLE).is_some_and(|role| role == "true");
            let cluster = machine.labels().get(capi::label::CLUSTER_NAME).filter(|_| control);
            cluster
                .map(|name| ObjectKey::of(&machine.metadata).sibling(name).to_string())
                .into_iter()
                .collect()
        });
        Self {
            settings: ctx.informers.of(Scope::all()),
            clusters: ctx.informers.of(Scope::all()),
            provisioned,
            machines,
        }
    }

    /// A management Cluster by its name.
    pub(crate) fn cluster(&self, id: &str) -> Option<std::sync::Arc<management::Cluster>> {
        self.clusters.get(&ObjectKey::cluster_wide(id))
    }

    fn setting(&self, name: &str) -> String {
        let setting = self.settings.get(&ObjectKey::cluster_wide(name));
        setting.map(|setting| setting.effective().trim().to_owned()).unwrap_or_default()
    }

    /// Where this server is reached.
    pub(crate) fn server(&self, head: &Parts) -> String {
        match self.setting(setting::SERVER_URL).trim_end_matches('/') {
            "" => found_at(head),
            url => url.to_owned(),
        }
    }

    /// All ways to a cluster, the one through this server first.
    pub(crate) fn endpoints(&self, head: &Parts, cluster: &management::Cluster) -> Vec<Endpoint> {
        let id = cluster.name_any();
        let name = match cluster.spec.display_name.as_str() {
            "" => id.clone(),
            name => name.to_owned(),
        };
        let server = self.server(head);
        let cacerts = self.setting(setting::CACERTS);
        let through = Endpoint {
            name: name.clone(),
            url: format!("{server}{CLUSTERS}{id}"),
            ca: if cacerts.is_empty() { String::new() } else { STANDARD.encode(cacerts) },
        };
        let mut endpoints = vec![through];
        endpoints.extend(direct(&name, cluster, &self.control_plane(&id)));
        endpoints
    }

    fn control_plane(&self, id: &str) -> Vec<Node> {
        let Some(cluster) = self.provisioned.by_index(BY_MANAGEMENT, id).into_iter().next() else {
            return Vec::new();
        };
        let machines = self.machines.by_index(BY_CLUSTER, &ObjectKey::of(&cluster.metadata).to_string());
        let mut nodes: Vec<Node> = machines.iter().filter_map(|machine| Node::of(machine)).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes
    }
}

/// A node of a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    name: String,
    address: String,
}

impl Node {
    fn of(machine: &Machine) -> Option<Self> {
        let status = machine.status.as_ref().filter(|_| machine.metadata.deletion_timestamp.is_none())?;
        let address = |kind: &str| status.addresses.iter().find(|address| address.kind == kind);
        let address = address("ExternalIP").or_else(|| address("InternalIP"))?.address.clone();
        let node = &status.node_ref.name;
        // A node that has not joined does not answer.
        (!node.is_empty()).then(|| Self { name: node.clone(), address })
    }
}

/// Ways past this server: the FQDN configured for the cluster, or else each node of its control plane.
fn direct(name: &str, cluster: &management::Cluster, nodes: &[Node]) -> Vec<Endpoint> {
    let endpoint = &cluster.spec.local_cluster_auth_endpoint;
    if !endpoint.enabled {
        return Vec::new();
    }
    if !endpoint.fqdn.is_empty() {
        let ca = endpoint.ca_certs.trim();
        return vec![Endpoint {
            name: format!("{name}-fqdn"),
            url: format!("https://{}", endpoint.fqdn),
            ca: if ca.is_empty() { String::new() } else { STANDARD.encode(ca) },
        }];
    }
    let ca = cluster.status.as_ref().map(|status| status.ca_cert.trim().to_owned()).unwrap_or_default();
    let direct = |node: &Node| {
        let short =
            node.name.strip_prefix(name).and_then(|rest| rest.strip_prefix('-')).unwrap_or(&node.name);
        let host =
            if node.address.contains(':') { format!("[{}]", node.address) } else { node.address.clone() };
        Endpoint { name: format!("{name}-{short}"), url: format!("https://{host}:{PORT}"), ca: ca.clone() }
    };
    nodes.iter().map(direct).collect()
}

/// A server without a configured address is where the caller found it.
fn found_at(head: &Parts) -> String {
    let host = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.and_then(|host| host.parse::<Authority>().ok());
    let host = host.as_ref().or(head.uri.authority()).map(Authority::as_str);
    // User name and password have no place in an address.
    format!("https://{}", host.filter(|host| !host.contains('@')).unwrap_or("127.0.0.1"))
}

/// The text of a kubeconfig; without a token it is left to whoever reads it how to log in.
pub(crate) fn render(endpoints: &[Endpoint], token: Option<&str>) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let user = quoted(endpoints.first().map(|first| first.name.as_str()).unwrap_or_default());
    let mut text = "apiVersion: v1\nkind: Config\nclusters:\n".to_owned();
    for Endpoint { name, url, ca } in endpoints {
        let _ = write!(text, "- name: {}\n  cluster:\n    server: {}\n", quoted(name), quoted(url));
        if !ca.is_empty() {
            let _ = writeln!(text, "    certificate-authority-data: {}", quoted(ca));
        }
    }
    let token = token.map_or_else(|| " {}".to_owned(), |token| format!("\n    token: {}", quoted(token)));
    let _ = write!(text, "users:\n- name: {user}\n  user:{token}\ncontexts:\n");
    for Endpoint { name, .. } in endpoints {
        let name = quoted(name);
        let _ = write!(text, "- name: {name}\n  context:\n    user: {user}\n    cluster: {name}\n");
    }
    let _ = writeln!(text, "current-context: {user}");
    text
}

#[cfg(test)]
mod tests {
    use remuda_api::rke::LocalClusterAuthEndpoint;

    use super::*;

    fn node(name: &str, address: &str) -> Node {
        Node { name: name.to_owned(), address: address.to_owned() }
    }

    fn cluster(endpoint: LocalClusterAuthEndpoint) -> management::Cluster {
        let mut cluster = management::Cluster::named("c-m-1");
        cluster.spec.local_cluster_auth_endpoint = endpoint;
        cluster.status.get_or_insert_default().ca_cert = "Q0E=".to_owned();
        cluster
    }

    #[test]
    fn a_kubeconfig_has_a_context_for_each_way_and_one_user() {
        let endpoint = |name: &str, url: &str, ca: &str| Endpoint {
            name: name.to_owned(),
            url: url.to_owned(),
            ca: ca.to_owned(),
        };
        let endpoints =
            [endpoint("de\"mo", "https://r/k8s/clusters/c-1", "Q0E="), endpoint("d-a", "https://a:6443", "")];
        let text = render(&endpoints, Some("kubeconfig-u:k"));
        let config = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("de\"mo"));
        let contexts: Vec<_> = config
            .contexts
            .iter()
            .map(|context| {
                let inner = context.context.as_ref().unwrap();
                (context.name.as_str(), inner.cluster.as_str(), inner.user.as_deref().unwrap())
            })
            .collect();
        assert_eq!(contexts, [("de\"mo", "de\"mo", "de\"mo"), ("d-a", "d-a", "de\"mo")]);
        assert_eq!(config.auth_infos.len(), 1);
        assert!(render(&endpoints, None).contains("user: {}"));
    }

    #[test]
    fn direct_ways_are_there_where_they_are_enabled() {
        let nodes = [node("demo-cp-1", "10.0.0.1"), node("other", "fd00::1")];
        let names = |endpoint: LocalClusterAuthEndpoint| {
            let found = direct("demo", &cluster(endpoint), &nodes);
            found.iter().map(|e| format!("{} {} {}", e.name, e.url, e.ca)).collect::<Vec<_>>()
        };
        assert!(names(LocalClusterAuthEndpoint::default()).is_empty());
        let on = LocalClusterAuthEndpoint { enabled: true, ..LocalClusterAuthEndpoint::default() };
        assert_eq!(
            names(on.clone()),
            ["demo-cp-1 https://10.0.0.1:6443 Q0E=", "demo-other https://[fd00::1]:6443 Q0E="]
        );
        let named = LocalClusterAuthEndpoint { fqdn: "k.example".to_owned(), ca_certs: "x".to_owned(), ..on };
        assert_eq!(names(named), ["demo-fqdn https://k.example eA=="]);
    }

    #[test]
    fn an_address_holds_no_credentials() {
        let at = |host: &str| {
            let (head, ()) = http::Request::get("/").header("host", host).body(()).unwrap().into_parts();
            found_at(&head)
        };
        assert_eq!(at("remuda.example:8443"), "https://remuda.example:8443");
        assert_eq!(at("ann:x@remuda.example"), "https://127.0.0.1");
    }
}
