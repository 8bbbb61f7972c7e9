//! Release metadata: which arguments a version of a distribution takes.
//!
//! The document is the one Rancher's metadata service publishes (`data.json`); parsing is here, fetching is
//! not. [`Metadata::bundled`] is a small document of our own that knows the common arguments, for
//! installations without access to any other.

use std::collections::{BTreeMap, BTreeSet};

use semver::Version;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::distro::Distro;

/// The whole document.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Metadata {
    #[serde(deserialize_with = "or_default")]
    pub k3s: Releases,
    #[serde(deserialize_with = "or_default")]
    pub rke2: Releases,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Releases {
    #[serde(deserialize_with = "or_default")]
    pub releases: Vec<Entry>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Entry {
    pub version: String,
    pub min_channel_server_version: String,
    pub max_channel_server_version: String,
    #[serde(deserialize_with = "or_default")]
    pub server_args: BTreeMap<String, Value>,
    #[serde(deserialize_with = "or_default")]
    pub agent_args: BTreeMap<String, Value>,
    #[serde(deserialize_with = "or_default")]
    pub feature_versions: BTreeMap<String, String>,
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(input).map(Option::unwrap_or_default)
}

/// What the planner wants to know of one version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Release {
    /// Argument to whether it is boolean.
    pub server_args: BTreeMap<String, bool>,
    pub agent_args: BTreeMap<String, bool>,
    pub features: BTreeMap<String, String>,
}

impl Release {
    /// Whether the arguments are there to decide by.
    pub fn is_usable(&self) -> bool {
        !self.server_args.is_empty() && !self.agent_args.is_empty()
    }

    /// `None` if a node must not be given the argument, else whether it is boolean.
    pub(crate) fn argument(&self, name: &str, server: bool) -> Option<bool> {
        let agent = self.agent_args.get(name).copied();
        if server { agent.or_else(|| self.server_args.get(name).copied()) } else { agent }
    }
}

impl Metadata {
    pub fn parse(document: &[u8]) -> Result<Metadata, serde_json::Error> {
        serde_json::from_slice(document)
    }

    /// A small document that is always there. It has no releases of its own choosing: every version gets
    /// the union of the arguments, as an unknown version does with any document.
    pub fn bundled() -> Metadata {
        Metadata { k3s: bundled(K3S_SERVER, K3S_AGENT), rke2: bundled(RKE2_SERVER, RKE2_AGENT) }
    }

    /// Data for `version` as a server of `server_version` may see it: the exact release, else the union of
    /// all visible ones without features, so that custom builds can be installed.
    pub fn release(&self, version: &str, server_version: Option<&Version>) -> Release {
        let releases = match Distro::of(version) {
            Distro::K3s => &self.k3s.releases,
            Distro::Rke2 => &self.rke2.releases,
        };
        let visible = || releases.iter().filter(|entry| entry.is_visible(server_version));
        if let Some(entry) = visible().find(|entry| entry.version == version) {
            return Release {
                server_args: arguments(&entry.server_args),
                agent_args: arguments(&entry.agent_args),
                features: entry.feature_versions.clone(),
            };
        }
        let mut union = Release::default();
        for entry in visible() {
            union.server_args.extend(arguments(&entry.server_args));
            union.agent_args.extend(arguments(&entry.agent_args));
        }
        union
    }

    /// Versions a server of `server_version` offers.
    pub fn versions(&self, distro: Distro, server_version: Option<&Version>) -> BTreeSet<&str> {
        let releases = match distro {
            Distro::K3s => &self.k3s.releases,
            Distro::Rke2 => &self.rke2.releases,
        };
        let visible = releases.iter().filter(|entry| entry.is_visible(server_version));
        visible.map(|entry| entry.version.as_str()).filter(|version| !version.is_empty()).collect()
    }
}

impl Entry {
    fn is_visible(&self, server_version: Option<&Version>) -> bool {
        let Some(server) = server_version else { return true };
        let bound = |text: &str| parse_version(text);
        bound(&self.min_channel_server_version).is_none_or(|min| min <= *server)
            && bound(&self.max_channel_server_version).is_none_or(|max| *server <= max)
    }
}

fn arguments(args: &BTreeMap<String, Value>) -> BTreeMap<String, bool> {
    let boolean = |value: &Value| value.get("type").and_then(Value::as_str) == Some("boolean");
    args.iter().map(|(name, value)| (name.clone(), boolean(value))).collect()
}

/// A version with or without the leading `v`.
pub(crate) fn parse_version(text: &str) -> Option<Version> {
    Version::parse(text.strip_prefix('v').unwrap_or(text)).ok()
}

/// Names, separated by blanks; `?` marks booleans.
fn bundled(server: &str, agent: &str) -> Releases {
    let args = |names: &str| {
        let one = |name: &str| match name.strip_suffix('?') {
            Some(name) => (name.to_owned(), serde_json::json!({"type": "boolean"})),
            None => (name.to_owned(), serde_json::json!({"type": "string"})),
        };
        names.split_whitespace().map(one).collect()
    };
    let entry = Entry { server_args: args(server), agent_args: args(agent), ..Entry::default() };
    Releases { releases: vec![entry] }
}

const K3S_SERVER: &str = "advertise-address advertise-port agent-token audit-policy-file bind-address \
    cluster-cidr cluster-dns cluster-domain cluster-init? datastore-cafile datastore-certfile \
    datastore-endpoint datastore-keyfile default-local-storage-path disable disable-apiserver? \
    disable-cloud-controller? disable-controller-manager? disable-etcd? disable-helm-controller? \
    disable-kube-proxy? disable-network-policy? disable-scheduler? egress-selector-mode embedded-registry? \
    etcd-arg etcd-disable-snapshots? etcd-expose-metrics? etcd-snapshot-compress? etcd-snapshot-dir \
    etcd-snapshot-name etcd-snapshot-retention etcd-snapshot-schedule-cron flannel-backend flannel-conf \
    flannel-external-ip? flannel-ipv6-masq? helm-job-image https-listen-port kube-apiserver-arg \
    kube-cloud-controller-manager-arg kube-controller-manager-arg kube-scheduler-arg secrets-encryption? \
    service-cidr service-node-port-range servicelb-namespace supervisor-metrics? system-default-registry \
    tls-san tls-san-security? write-kubeconfig-group write-kubeconfig-mode";

const K3S_AGENT: &str = "container-runtime-endpoint debug? default-runtime disable-apiserver-lb? \
    disable-default-registry-endpoint? docker? flannel-cni-conf flannel-conf flannel-iface \
    image-service-endpoint kube-proxy-arg kubelet-arg lb-server-port node-external-dns node-external-ip \
    node-internal-dns node-ip node-label node-name node-taint pause-image prefer-bundled-bin? \
    private-registry protect-kernel-defaults? resolv-conf rootless? selinux? snapshotter vpn-auth \
    vpn-auth-file with-node-id?";

const RKE2_SERVER: &str = "advertise-address agent-token audit-policy-file bind-address \
    cloud-controller-manager-extra-env cloud-controller-manager-extra-mount cloud-controller-manager-image \
    cluster-cidr cluster-dns cluster-domain cni control-plane-probe-configuration \
    control-plane-resource-limits control-plane-resource-requests datastore-cafile datastore-certfile \
    datastore-endpoint datastore-keyfile disable disable-cloud-controller? disable-kube-proxy? \
    disable-scheduler? egress-selector-mode embedded-registry? enable-servicelb? etcd-arg \
    etcd-disable-snapshots? etcd-expose-metrics? etcd-extra-env etcd-extra-mount etcd-image \
    etcd-snapshot-compress? etcd-snapshot-dir etcd-snapshot-name etcd-snapshot-retention \
    etcd-snapshot-schedule-cron helm-job-image ingress-controller kube-apiserver-arg \
    kube-apiserver-extra-env kube-apiserver-extra-mount kube-apiserver-image \
    kube-cloud-controller-manager-arg kube-controller-manager-arg kube-controller-manager-extra-env \
    kube-controller-manager-extra-mount kube-controller-manager-image kube-scheduler-arg \
    kube-scheduler-extra-env kube-scheduler-extra-mount kube-scheduler-image pod-security-admission-config-file \
    secrets-encryption-provider service-cidr service-node-port-range servicelb-namespace \
    supervisor-metrics? tls-san tls-san-security? write-kubeconfig-group write-kubeconfig-mode";

const RKE2_AGENT: &str = "audit-policy-file cloud-provider-config cloud-provider-name \
    container-runtime-endpoint debug? default-runtime disable-default-registry-endpoint? \
    image-service-endpoint kube-proxy-arg kube-proxy-extra-env kube-proxy-extra-mount kube-proxy-image \
    kubelet-arg kubelet-path lb-server-port node-external-dns node-external-ip node-internal-dns node-ip \
    node-label node-name node-taint pause-image private-registry profile protect-kernel-defaults? \
    resolv-conf runtime-image selinux? snapshotter system-default-registry";

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &[u8] = br#"{"rke2":{"releases":[
        {"version":"v1.35.1+rke2r1","minChannelServerVersion":"v2.15.0","maxChannelServerVersion":"v2.15.99",
         "serverArgs":{"cni":{"type":"array"},"prime":{"type":"boolean"}},"agentArgs":{"selinux":{"type":"boolean"}},
         "featureVersions":{"encryption-key-rotation":"2.0.0"}},
        {"version":"v1.34.0+rke2r1","serverArgs":{"old":{}},"agentArgs":{"older":null}}]},"k3s":null}"#;

    #[test]
    fn an_exact_release_has_its_own_arguments() {
        let empty = Metadata::parse(br#"{"rke2":{"releases":null}}"#).unwrap();
        assert!(!empty.release("v1.35.1+rke2r1", None).is_usable());
        assert!(
            Metadata::parse(&DOCUMENT[..DOCUMENT.len() - 12]).is_err(),
            "a truncated document is refused"
        );
        let metadata = Metadata::parse(DOCUMENT).unwrap();
        let release = metadata.release("v1.35.1+rke2r1", Some(&Version::new(2, 15, 1)));
        assert_eq!(release.argument("prime", true), Some(true));
        assert_eq!(release.argument("prime", false), None);
        assert_eq!(release.argument("selinux", false), Some(true));
        assert_eq!(release.argument("old", true), None);
        assert_eq!(release.features["encryption-key-rotation"], "2.0.0");
    }

    #[test]
    fn an_unknown_or_hidden_version_gets_the_union_without_features() {
        let metadata = Metadata::parse(DOCUMENT).unwrap();
        let custom = metadata.release("v9.9.9+custom", None);
        assert_eq!(custom.argument("old", true), Some(false));
        assert_eq!(custom.argument("prime", true), Some(true));
        assert!(custom.features.is_empty());
        let hidden = metadata.release("v1.35.1+rke2r1", Some(&Version::new(2, 16, 0)));
        assert_eq!(hidden.argument("prime", true), None);
        assert_eq!(metadata.versions(Distro::Rke2, Some(&Version::new(2, 16, 0))).len(), 1);
    }

    #[test]
    fn the_bundled_document_serves_both_distributions() {
        for version in ["v1.35.1+k3s1", "v1.35.1+rke2r1"] {
            let release = Metadata::bundled().release(version, None);
            assert!(release.is_usable());
            assert_eq!(release.argument("protect-kernel-defaults", false), Some(true));
            assert_eq!(release.argument("garbage", true), None);
        }
    }
}
