//! Names of settings, and command lines made of them.

use super::Values;

/// What a setting does here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    Acted,
    /// Known to K3s or RKE2, and taken without effect.
    Accepted,
    Unknown,
}

/// Settings that have one value.
const SCALARS: &[&str] = &[
    "agent-token",
    "agent-token-file",
    "cluster-init",
    "cluster-reset",
    "cluster-reset-restore-path",
    "config",
    "data-dir",
    "disable-apiserver",
    "disable-controller-manager",
    "disable-etcd",
    "disable-scheduler",
    "etcd-disable-snapshots",
    "etcd-s3",
    "etcd-s3-access-key",
    "etcd-s3-bucket",
    "etcd-s3-bucket-lookup-type",
    "etcd-s3-endpoint",
    "etcd-s3-endpoint-ca",
    "etcd-s3-folder",
    "etcd-s3-insecure",
    "etcd-s3-region",
    "etcd-s3-retention",
    "etcd-s3-secret-key",
    "etcd-s3-session-token",
    "etcd-s3-skip-ssl-verify",
    "etcd-s3-timeout",
    "etcd-snapshot-dir",
    "etcd-snapshot-name",
    "etcd-snapshot-retention",
    "etcd-snapshot-schedule-cron",
    "https-listen-port",
    "lb-server-port",
    "node-name",
    "root",
    "sandbox-version",
    "secrets-encryption",
    "server",
    "token",
    "token-file",
    "write-kubeconfig",
    "write-kubeconfig-mode",
];

/// Settings that have several.
const LISTS: &[&str] = &[
    "advertise-address",
    "disable",
    "kube-apiserver-arg",
    "kube-controller-manager-arg",
    "kube-scheduler-arg",
    "kubelet-arg",
    "node-external-ip",
    "node-ip",
    "node-label",
    "node-taint",
    "tls-san",
];

/// Settings that need no value on a command line.
const SWITCHES: &[&str] = &[
    "cluster-init",
    "cluster-reset",
    "disable-apiserver",
    "disable-controller-manager",
    "disable-etcd",
    "disable-scheduler",
    "etcd-disable-snapshots",
    "etcd-s3",
    "etcd-s3-insecure",
    "etcd-s3-skip-ssl-verify",
    "secrets-encryption",
    "debug",
];

/// Settings of the real distributions that have no effect here, by what their names begin with.
const ACCEPTED: &[&str] = &[
    "advertise-port",
    "airgap-extra-registry",
    "alsologtostderr",
    "audit-policy-file",
    "bind-address",
    "cloud-controller-manager-",
    "cloud-provider-",
    "cluster-cidr",
    "cluster-dns",
    "cluster-domain",
    "cni",
    "container-runtime-endpoint",
    "control-plane-",
    "datastore-",
    "debug",
    "default-local-storage-path",
    "default-runtime",
    "disable-cloud-controller",
    "disable-default-registry-endpoint",
    "disable-helm-controller",
    "disable-kube-proxy",
    "disable-network-policy",
    "docker",
    "egress-selector-mode",
    "embedded-registry",
    "enable-",
    "etcd-",
    "flannel-",
    "helm-job-image",
    "image-",
    "ingress-controller",
    "ingress-controller-",
    "kine-tls",
    "kube-apiserver-",
    "kube-cloud-controller-manager-",
    "kube-controller-manager-",
    "kube-proxy-",
    "kube-scheduler-",
    "kubelet-",
    "log",
    "multi-cluster-cidr",
    "multus",
    "node-internal-dns",
    "node-external-dns",
    "node-name-from-cloud-provider-metadata",
    "nonroot-devices",
    "pause-image",
    "pod-security-",
    "prefer-bundled-bin",
    "prime",
    "private-registry",
    "profile",
    "protect-kernel-defaults",
    "resolv-conf",
    "rootless",
    "runtime-image",
    "secrets-encryption-",
    "selinux",
    "service-cidr",
    "service-node-port-range",
    "servicelb-namespace",
    "snapshotter",
    "supervisor-metrics",
    "system-default-registry",
    "tls-san-security",
    "v",
    "vmodule",
    "vpn-auth",
    "with-node-id",
];

const ALIASES: &[(&str, &str)] = &[
    ("t", "token"),
    ("s", "server"),
    ("c", "config"),
    ("d", "data-dir"),
    ("o", "write-kubeconfig"),
    // As the commands about snapshots have them.
    ("s3", "etcd-s3"),
    ("s3-access-key", "etcd-s3-access-key"),
    ("s3-bucket", "etcd-s3-bucket"),
    ("s3-bucket-lookup-type", "etcd-s3-bucket-lookup-type"),
    ("s3-endpoint", "etcd-s3-endpoint"),
    ("s3-endpoint-ca", "etcd-s3-endpoint-ca"),
    ("s3-folder", "etcd-s3-folder"),
    ("s3-insecure", "etcd-s3-insecure"),
    ("s3-region", "etcd-s3-region"),
    ("s3-retention", "etcd-s3-retention"),
    ("s3-secret-key", "etcd-s3-secret-key"),
    ("s3-session-token", "etcd-s3-session-token"),
    ("s3-skip-ssl-verify", "etcd-s3-skip-ssl-verify"),
    ("s3-timeout", "etcd-s3-timeout"),
];

/// Variables, without `K3S_` or `RKE2_`, that set what nothing else does.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    ("TOKEN", "token"),
    ("TOKEN_FILE", "token-file"),
    ("AGENT_TOKEN", "agent-token"),
    ("AGENT_TOKEN_FILE", "agent-token-file"),
    ("URL", "server"),
    ("CLUSTER_INIT", "cluster-init"),
    ("NODE_NAME", "node-name"),
    ("DATA_DIR", "data-dir"),
    ("KUBECONFIG_OUTPUT", "write-kubeconfig"),
    ("KUBECONFIG_MODE", "write-kubeconfig-mode"),
];

pub fn canonical(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, long)| long)
}

pub fn is_list(name: &str) -> bool {
    LISTS.contains(&name)
}

pub fn meaning(name: &str) -> Meaning {
    if SCALARS.contains(&name) || is_list(name) {
        return Meaning::Acted;
    }
    let known = |prefix: &&str| {
        name == *prefix
            || (prefix.ends_with('-') && (name.starts_with(*prefix) || name == prefix.trim_end_matches('-')))
    };
    if ACCEPTED.iter().any(known) { Meaning::Accepted } else { Meaning::Unknown }
}

/// Reads `--name=value`, `--name value` and `--name`. Words that belong to no flag are left over.
pub fn parse(args: &[String]) -> (Values, Vec<String>) {
    let mut values = Values::default();
    let mut rest = Vec::new();
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        let Some(flag) =
            arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')).filter(|flag| !flag.is_empty())
        else {
            rest.push(arg.clone());
            continue;
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (canonical(name), Some(value.to_owned())),
            None => (canonical(flag), None),
        };
        let value = match value {
            Some(value) => value,
            None if SWITCHES.contains(&name) => "true".to_owned(),
            None => match args.next_if(|next| !next.starts_with('-')) {
                Some(next) => next.clone(),
                None => "true".to_owned(),
            },
        };
        values.0.entry(name.to_owned()).or_default().push(value);
    }
    (values, rest)
}
