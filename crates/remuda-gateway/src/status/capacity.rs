//! What the nodes of a cluster are together: how many, what they have, and what kind of cluster they make.
//!
//! All of it is said by the cluster, which belongs to others: what is no quantity, is negative or larger than any
//! machine counts as nothing.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::api::resource::Quantity};
use kube::ResourceExt;
use remuda_base::quantity;
use remuda_distro::Distro;
use remuda_names::rancher::annotation::{POD_LIMITS, POD_REQUESTS};

/// Resources worth showing.
const SHOWN: &[&str] = &["cpu", "memory", "pods"];
/// Longest text of amounts that is read.
const LONGEST: usize = 4096;
/// Longest name of an architecture.
const LONGEST_ARCH: usize = 16;
/// The architecture of nodes that differ.
const MIXED: &str = "mixed";
const NANOS: u128 = 1_000_000_000;
/// No quantity of Kubernetes is larger: it keeps them in 64 bits.
const LARGEST: u128 = i64::MAX as u128 * NANOS;

/// Nodes of a cluster in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) count: i64,
    pub(crate) linux_workers: i64,
    pub(crate) windows_workers: i64,
    /// Their architecture, `mixed` if there are several; empty if no node says it.
    pub(crate) arch: String,
    pub(crate) capacity: BTreeMap<String, String>,
    pub(crate) allocatable: BTreeMap<String, String>,
    /// What Pods ask for; nothing if no node says so.
    pub(crate) requested: Option<BTreeMap<String, String>>,
    /// What Pods may take at most; nothing if no node says so.
    pub(crate) limits: Option<BTreeMap<String, String>>,
    /// What the cluster is, by its nodes.
    pub(crate) provider: Option<&'static str>,
}

type Sums = BTreeMap<&'static str, u128>;

/// Adds up nodes.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    nodes: Nodes,
    capacity: Sums,
    allocatable: Sums,
    requested: Option<Sums>,
    limits: Option<Sums>,
}

impl Sum {
    pub(crate) fn of<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Nodes {
        let mut sum = Self::default();
        nodes.into_iter().for_each(|node| sum.add(node));
        sum.total()
    }

    fn add(&mut self, node: &Node) {
        self.nodes.count += 1;
        if Roles::of(node).worker {
            match is_windows(node) {
                true => self.nodes.windows_workers += 1,
                false => self.nodes.linux_workers += 1,
            }
        }
        if self.nodes.provider.is_none() {
            self.nodes.provider = provider(node);
        }
        match architecture(node) {
            None => {}
            Some(own) if self.nodes.arch.is_empty() => own.clone_into(&mut self.nodes.arch),
            Some(own) if self.nodes.arch == own => {}
            Some(_) => MIXED.clone_into(&mut self.nodes.arch),
        }
        let status = node.status.as_ref();
        add(&mut self.capacity, quantities(status.and_then(|status| status.capacity.as_ref())));
        add(&mut self.allocatable, quantities(status.and_then(|status| status.allocatable.as_ref())));
        for (sums, name) in [(&mut self.requested, POD_REQUESTS), (&mut self.limits, POD_LIMITS)] {
            if let Some(said) = amounts(node, name) {
                add(sums.get_or_insert_default(), |name| said.get(name).map(String::as_str));
            }
        }
    }

    fn total(self) -> Nodes {
        Nodes {
            capacity: shown(&self.capacity),
            allocatable: shown(&self.allocatable),
            requested: self.requested.as_ref().map(shown),
            limits: self.limits.as_ref().map(shown),
            ..self.nodes
        }
    }
}

fn quantities<'a>(of: Option<&'a BTreeMap<String, Quantity>>) -> impl Fn(&str) -> Option<&'a str> {
    move |name| Some(of?.get(name)?.0.as_str())
}

/// Amounts an agent in the cluster noted on a node; nothing if it did not, or they are no amounts.
pub(crate) fn amounts(node: &Node, annotation: &str) -> Option<BTreeMap<String, String>> {
    let text = node.annotations().get(annotation).filter(|text| text.len() <= LONGEST)?;
    serde_json::from_str(text).ok()
}

/// In billionths, which is the finest a quantity can be.
fn add<'a>(sums: &mut Sums, amount: impl Fn(&str) -> Option<&'a str>) {
    for name in SHOWN {
        let amount = amount(name).and_then(|text| u128::try_from(quantity::nanos(text)?).ok());
        let sum = sums.entry(name).or_default();
        *sum = sum.saturating_add(amount.filter(|amount| *amount <= LARGEST).unwrap_or(0));
    }
}

fn shown(sums: &Sums) -> BTreeMap<String, String> {
    let text = |name: &str, sum: u128| match name {
        "memory" => format!("{}Ki", sum / NANOS / 1024),
        _ if sum.is_multiple_of(NANOS) => (sum / NANOS).to_string(),
        _ => format!("{}m", sum.div_ceil(NANOS / 1000)),
    };
    sums.iter().map(|(name, sum)| ((*name).to_owned(), text(name, *sum))).collect()
}

/// What a node is for, by its labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Roles {
    pub(crate) etcd: bool,
    pub(crate) control_plane: bool,
    pub(crate) worker: bool,
}

impl Roles {
    pub(crate) fn of(node: &Node) -> Self {
        let has = |role: &str| node.labels().contains_key(&format!("node-role.kubernetes.io/{role}"));
        let etcd = has("etcd");
        let control_plane = has("control-plane") || has("controlplane") || has("master");
        // A node without a role runs workloads.
        Self { etcd, control_plane, worker: has("worker") || !(etcd || control_plane) }
    }
}

fn is_windows(node: &Node) -> bool {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let label = node.labels().get("kubernetes.io/os").map(String::as_str);
    info.map(|info| info.operating_system.as_str()).filter(|os| !os.is_empty()).or(label) == Some("windows")
}

/// The architecture of a node, as Go calls it. The text goes into the status of the cluster, so what is none is nothing.
fn architecture(node: &Node) -> Option<&str> {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    let label = node.labels().get("kubernetes.io/arch").map(String::as_str);
    let said = info.map(|info| info.architecture.as_str()).filter(|said| !said.is_empty()).or(label)?;
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (said.len() <= LONGEST_ARCH && !said.is_empty() && said.bytes().all(is_plain)).then_some(said)
}

/// What a cluster is, as one of its nodes shows.
fn provider(node: &Node) -> Option<&'static str> {
    let has = |label: &str| node.labels().contains_key(label);
    let id = remuda_workload::provider_id(node).unwrap_or_default();
    if has("harvesterhci.io/managed") {
        // It runs on RKE2 and is more than that.
        return Some("harvester");
    }
    if has("kubernetes.azure.com/cluster") {
        return Some("aks");
    }
    if has("eks.amazonaws.com/nodegroup") || has("alpha.eksctl.io/cluster-name") {
        return Some("eks");
    }
    if has("cloud.google.com/gke-nodepool") {
        return Some("gke");
    }
    if has("minikube.k8s.io/name") {
        return Some("minikube");
    }
    if id.starts_with("kind://") {
        return Some("kind");
    }
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref())?;
    by_version(&info.kubelet_version)
}

/// What a cluster is, as its version says.
pub(super) fn by_version(version: &str) -> Option<&'static str> {
    let of = [("-eks-", "eks"), ("-gke.", "gke")].into_iter();
    let mut of = of.filter(|(part, _)| version.contains(part)).map(|(_, name)| name);
    Distro::reported(version).map(Distro::name).or_else(|| of.next())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(cpu: &str, memory: &str) -> Node {
        made(json!({"status": {"capacity": {"cpu": cpu, "memory": memory, "pods": "110"}}}))
    }

    fn made(node: Value) -> Node {
        serde_json::from_value(node).unwrap()
    }

    fn amount(of: &BTreeMap<String, String>) -> String {
        format!("{} {} {}", of["cpu"], of["memory"], of["pods"])
    }

    #[test]
    fn nodes_have_an_architecture_in_common_or_are_mixed() {
        let node = |said: &str| {
            made(json!({"status": {"nodeInfo": {
                "architecture": said, "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                "kubeletVersion": "", "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "",
            }}}))
        };
        let of = |nodes: &[Node]| Sum::of(nodes).arch;
        assert_eq!(of(&[node("arm64"), node(""), node("arm64")]), "arm64");
        assert_eq!(of(&[node("arm64"), node("amd64"), node("arm64")]), "mixed");
        let by_label = made(json!({"metadata": {"labels": {"kubernetes.io/arch": "s390x"}}}));
        assert_eq!(of(&[by_label]), "s390x");
        assert_eq!(of(&[node("<script>"), node(&"x".repeat(17)), Node::default()]), "");
    }

    #[test]
    fn nodes_add_up() {
        let total = Sum::of(&[node("4", "8Gi"), node("500m", "1Gi"), Node::default()]);
        assert_eq!((total.count, amount(&total.capacity)), (3, "4500m 9437184Ki 220".to_owned()));
        assert_eq!(amount(&total.allocatable), "0 0Ki 0");
        // The smallest and the largest suffixes count too.
        let total = Sum::of(&[node("1500000u", "1E"), node("500000000n", "1Ei"), node("1n", "")]);
        assert_eq!(amount(&total.capacity), "2001m 2102462406842624Ki 330");
    }

    #[test]
    fn a_node_that_lies_adds_nothing() {
        let honest = node("2", "1Gi");
        for (cpu, memory) in [
            ("-3", "x"),
            ("1e40", "99999999999999Ei"),
            ("NaN", "-1Gi"),
            ("1e99999999", "9223372036854775808"),
        ] {
            let total = Sum::of(&[honest.clone(), node(cpu, memory)]);
            assert_eq!(amount(&total.capacity), "2 1048576Ki 220", "{cpu} {memory}");
        }
        // However many of them there are.
        let many = vec![node("9223372036854775807", "7Ei"); 100];
        assert_eq!(Sum::of(&many).capacity["cpu"], "922337203685477580700");
    }

    #[test]
    fn what_pods_ask_for_is_what_agents_noted() {
        let noted = |text: &str| made(json!({"metadata": {"annotations": {POD_REQUESTS: text}}}));
        assert_eq!(Sum::of(&[node("1", "1")]).requested, None, "nobody said so");
        let total = Sum::of(&[
            noted(r#"{"cpu":"150m","memory":"64Mi","pods":"3"}"#),
            noted(r#"{"cpu":"1"}"#),
            node("1", "1"),
        ]);
        assert_eq!(amount(&total.requested.unwrap()), "1150m 65536Ki 3");
        assert_eq!(total.limits, None);
        for hostile in ["", "[]", r#"{"cpu":1}"#, &format!(r#"{{"cpu":"{}"}}"#, "1".repeat(5000))] {
            assert_eq!(Sum::of(&[noted(hostile)]).requested, None, "{hostile:.20}");
        }
    }

    #[test]
    fn workers_are_counted_by_their_system() {
        let of = |role: &str, os: &str| {
            made(json!({"metadata": {"labels": {format!("node-role.kubernetes.io/{role}"): "true"}},
                        "status": {"nodeInfo": {"operatingSystem": os, "architecture": "", "bootID": "",
                            "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                            "kubeletVersion": "", "machineID": "", "osImage": "", "systemUUID": ""}}}))
        };
        let nodes =
            [of("control-plane", "linux"), of("worker", "linux"), of("worker", "windows"), Node::default()];
        let total = Sum::of(&nodes);
        assert_eq!((total.linux_workers, total.windows_workers), (2, 1), "one without a role is a worker");
        let both = made(json!({"metadata": {"labels": {
            "node-role.kubernetes.io/etcd": "true", "node-role.kubernetes.io/worker": "true"}}}));
        assert_eq!(Roles::of(&both), Roles { etcd: true, control_plane: false, worker: true });
    }

    #[test]
    fn clusters_are_known_by_their_nodes_and_version() {
        let with = |label: &str| made(json!({"metadata": {"labels": {label: "x"}}}));
        let of = |node: Node| Sum::of(&[Node::default(), node]).provider;
        assert_eq!(of(with("harvesterhci.io/managed")), Some("harvester"));
        assert_eq!(of(with("kubernetes.azure.com/cluster")), Some("aks"));
        assert_eq!(of(with("cloud.google.com/gke-nodepool")), Some("gke"));
        assert_eq!(of(with("eks.amazonaws.com/nodegroup")), Some("eks"));
        assert_eq!(of(with("minikube.k8s.io/name")), Some("minikube"));
        assert_eq!(of(made(json!({"spec": {"providerID": "kind://docker/a/b"}}))), Some("kind"));
        assert_eq!(of(with("other")), None);
        assert_eq!(by_version("v1.35.1+k3s1"), Some("k3s"));
        assert_eq!(by_version("v1.35.1+rke2r1"), Some("rke2"));
        assert_eq!(by_version("v1.33.5-eks-113cf36"), Some("eks"));
        assert_eq!(by_version("v1.33.5-gke.1000"), Some("gke"));
        assert_eq!(by_version("v1.33.5"), None);
    }
}
