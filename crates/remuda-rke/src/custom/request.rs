//! What a server says when it registers, and the objects that come of it.

use std::collections::BTreeMap;

use remuda_api::{
    core::{Bootstrap, ContractReference, Machine, MachineDeletion, MachineSpec},
    rke::{CustomMachine, RkeBootstrap},
};
use remuda_control::ObjectKey;
use remuda_names::{
    capi::label as capi_label,
    rancher::{annotation, finalizer, group, label},
};
use remuda_planner::input::Taint;

/// Seconds the node of such a server is drained at most before it goes.
const DRAIN_LIMIT: i32 = 600;
/// Headers are far shorter.
const LIMIT: usize = 256 << 10;
/// Labels that say what objects are to controllers. A server may give its Node any label, its Machine none of
/// these.
const RESERVED: &[&str] =
    &["rke.cattle.io/", "cluster.x-k8s.io/", "plan.cattle.io/", "machine.cluster.x-k8s.io/"];

/// A request, read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// What the server calls itself, always.
    pub(super) id: String,
    roles: Vec<&'static str>,
    node_name: String,
    address: String,
    internal_address: String,
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
}

/// What a server becomes.
pub(super) struct Objects {
    pub(super) bootstrap: RkeBootstrap,
    pub(super) infrastructure: CustomMachine,
    pub(super) machine: Machine,
}

impl Request {
    /// Reads headers as the gateway stores them: names without their prefix, to lists of values. `None` for
    /// anything else, and for a server without an id that can be a label.
    pub(super) fn parse(data: &[u8]) -> Option<Request> {
        if data.len() > LIMIT {
            return None;
        }
        let headers: BTreeMap<String, Vec<String>> = serde_json::from_slice(data).ok()?;
        let first =
            |key: &str| headers.get(key).and_then(|values| values.first()).map_or("", |value| value.trim());
        let id = first("id");
        if id.is_empty() || !is_label_value(id) {
            return None;
        }
        let roles = [
            ("role-etcd", label::ETCD_ROLE),
            ("role-control-plane", label::CONTROL_PLANE_ROLE),
            ("role-worker", label::WORKER_ROLE),
        ];
        let held = roles.into_iter().filter(|(header, _)| is_true(first(header))).map(|(_, label)| label);
        let labels = first("labels").split(',').filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = key.trim();
            (!key.is_empty()).then(|| (key.to_owned(), value.trim().to_owned()))
        });
        let taints = headers.get("taints").into_iter().flatten();
        Some(Request {
            id: id.to_owned(),
            roles: held.collect(),
            node_name: first("node-name").to_owned(),
            address: first("address").to_owned(),
            internal_address: first("internal-address").to_owned(),
            labels: labels.collect(),
            taints: taints.flat_map(|list| list.split(',')).filter_map(taint).collect(),
        })
    }

    /// Objects of a server that joins `cluster`, all of one name.
    pub(super) fn objects(&self, name: &ObjectKey, cluster: &str) -> Objects {
        let labels = self.object_labels(cluster);
        let taints = json(&self.taints);
        let mut annotations: BTreeMap<String, String> = BTreeMap::new();
        let mut annotate = |key: &str, value: String| {
            if !value.is_empty() {
                annotations.insert(key.to_owned(), value);
            }
        };
        annotate(annotation::ADDRESS, self.address.clone());
        annotate(annotation::INTERNAL_ADDRESS, self.internal_address.clone());
        annotate(annotation::LABELS, if self.labels.is_empty() { String::new() } else { json(&self.labels) });
        let tainted = if self.taints.is_empty() { String::new() } else { taints };
        annotate(annotation::TAINTS, tainted.clone());
        let only_taints: BTreeMap<String, String> = [(annotation::TAINTS.to_owned(), tainted)]
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .collect();

        let mut bootstrap = RkeBootstrap::named(&name.name);
        bootstrap.metadata.namespace = name.namespace.as_deref().map(str::to_owned);
        bootstrap.metadata.labels = Some(labels.clone());
        bootstrap.metadata.annotations = Some(annotations);
        bootstrap.spec.cluster_name = cluster.to_owned();

        let mut infrastructure = CustomMachine::named(&name.name);
        infrastructure.metadata.namespace = name.namespace.as_deref().map(str::to_owned);
        infrastructure.metadata.labels = Some(labels.clone());
        infrastructure.metadata.annotations = Some(only_taints.clone());
        // From the beginning: one that is added later may come too late.
        infrastructure.metadata.finalizers = Some(vec![finalizer::HOST.to_owned()]);

        let reference = |kind: &str| ContractReference {
            api_group: group::RKE.to_owned(),
            kind: kind.to_owned(),
            name: name.name.to_string(),
        };
        let spec = MachineSpec {
            cluster_name: cluster.to_owned(),
            bootstrap: Bootstrap { config_ref: reference("RKEBootstrap"), data_secret_name: None },
            infrastructure_ref: reference("CustomMachine"),
            deletion: MachineDeletion {
                node_drain_timeout_seconds: Some(DRAIN_LIMIT),
                ..MachineDeletion::default()
            },
            ..MachineSpec::default()
        };
        let mut machine = Machine::new(&name.name, spec);
        machine.metadata.namespace = name.namespace.as_deref().map(str::to_owned);
        machine.metadata.labels = Some(labels);
        machine.metadata.annotations = Some(only_taints);
        Objects { bootstrap, infrastructure, machine }
    }

    fn object_labels(&self, cluster: &str) -> BTreeMap<String, String> {
        let given = self.labels.iter().filter(|(key, value)| {
            !RESERVED.iter().any(|prefix| key.starts_with(prefix))
                && is_label_key(key)
                && is_label_value(value)
        });
        let mut labels: BTreeMap<String, String> =
            given.map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut set = |key: &str, value: &str| labels.insert(key.to_owned(), value.to_owned());
        for role in &self.roles {
            set(role, "true");
        }
        if self.roles.contains(&label::CONTROL_PLANE_ROLE) {
            set(capi_label::CONTROL_PLANE, "true");
        }
        if !self.node_name.is_empty() && is_label_value(&self.node_name) {
            set(label::NODE_NAME, &self.node_name);
        }
        set(label::MACHINE_ID, &self.id);
        set(label::CLUSTER_NAME, cluster);
        set(capi_label::CLUSTER_NAME, cluster);
        labels
    }
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn is_true(text: &str) -> bool {
    ["true", "t", "yes", "y"].iter().any(|yes| text.eq_ignore_ascii_case(yes))
}

/// `key=value:Effect` or `key:Effect`; `None` for anything else.
fn taint(text: &str) -> Option<Taint> {
    let (pair, effect) = text.trim().rsplit_once(':')?;
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
    let good = known && is_label_key(key) && is_label_value(value);
    good.then(|| Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
}

/// What the API takes as the value of a label.
fn is_label_value(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            bytes.len() <= 63
                && first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && bytes.iter().all(|byte| inner(*byte))
        }
        _ => true,
    }
}

/// What the API takes as a label: a name, and perhaps a domain before it.
fn is_label_key(text: &str) -> bool {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    let is_part = |part: &str| {
        let edge =
            |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let bytes = part.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
    };
    let domain_good = domain.is_none_or(|domain| domain.len() <= 253 && domain.split('.').all(is_part));
    domain_good && !name.is_empty() && is_label_value(name)
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::json;

    use super::*;

    fn parsed(headers: serde_json::Value) -> Option<Request> {
        Request::parse(headers.to_string().as_bytes())
    }

    #[test]
    fn a_server_says_what_it_is() {
        let request = parsed(json!({
            "id": ["abc"], "role-etcd": ["true"], "role-control-plane": ["Yes"], "role-worker": ["false"],
            "node-name": ["n-1"], "address": ["1.2.3.4"], "internal-address": [""],
            "labels": ["cattle.io/os=linux,foo=bar,=x,rke.cattle.io/worker-role=true,bad key=1,empty="],
            "taints": ["key=value:NoExecute,nonsense", "only:NoSchedule,a=b:Never"],
        }))
        .unwrap();
        let name = ObjectKey::namespaced("fleet-default", "custom-0123456789ab");
        let Objects { bootstrap, infrastructure, machine } = request.objects(&name, "demo");
        let expected = json!({
            "cattle.io/os": "linux", "foo": "bar", "empty": "",
            "rke.cattle.io/etcd-role": "true", "rke.cattle.io/control-plane-role": "true",
            "cluster.x-k8s.io/control-plane": "true", "rke.cattle.io/node-name": "n-1",
            "rke.cattle.io/machine-id": "abc", "rke.cattle.io/cluster-name": "demo",
            "cluster.x-k8s.io/cluster-name": "demo",
        });
        assert_eq!(json!(machine.labels()), expected);
        assert_eq!(bootstrap.labels(), machine.labels());
        assert_eq!(infrastructure.labels(), machine.labels());
        let annotations = bootstrap.annotations();
        assert_eq!(annotations[annotation::ADDRESS], "1.2.3.4");
        assert!(!annotations.contains_key(annotation::INTERNAL_ADDRESS));
        let taints =
            r#"[{"key":"key","value":"value","effect":"NoExecute"},{"key":"only","effect":"NoSchedule"}]"#;
        assert_eq!(annotations[annotation::TAINTS], taints);
        assert!(annotations[annotation::LABELS].contains(r#""foo":"bar""#));
        assert_eq!(machine.annotations().len(), 1);
        assert_eq!(machine.spec.bootstrap.config_ref.name, "custom-0123456789ab");
        assert_eq!(bootstrap.spec.cluster_name, "demo");
    }

    #[test]
    fn requests_without_a_usable_id_are_refused() {
        for headers in
            [json!({}), json!({"id": [""]}), json!({"id": ["a b"]}), json!({"id": ["x".repeat(64)]})]
        {
            assert_eq!(parsed(headers), None);
        }
        assert_eq!(Request::parse(b"["), None);
        assert_eq!(Request::parse(&vec![b' '; LIMIT + 1]), None);
        let least = parsed(json!({"id": ["a"]})).unwrap();
        assert_eq!(least, Request { id: "a".into(), ..Request::default() });
        let objects = least.objects(&ObjectKey::namespaced("n", "m"), "demo");
        assert_eq!(objects.bootstrap.annotations().len(), 0);
    }

    #[test]
    fn labels_are_what_the_api_takes() {
        for good in ["a", "example.com/a-b.C", "A_b"] {
            assert!(is_label_key(good), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "Upper.com/a", "-a", "a..b/c"] {
            assert!(!is_label_key(bad), "{bad}");
        }
        assert!(
            is_label_value("") && is_label_value("a.b-c_d") && !is_label_value("-a") && !is_label_value("é")
        );
    }
}
