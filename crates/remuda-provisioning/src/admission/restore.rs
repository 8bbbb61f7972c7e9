//! What is to be restored.

use serde_json::Value;

use super::{Findings, Write, is_empty};
use crate::archive;

const FIELD: &str = "spec.rkeConfig.etcdSnapshotRestore";

/// A snapshot, as far as a restore depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Snapshot {
    Missing,
    /// What is recorded of the cluster cannot be read, and why.
    Unreadable(String),
    /// What is recorded of the cluster.
    Readable {
        has_version: bool,
        has_config: bool,
    },
}

impl Snapshot {
    /// What an ETCDSnapshot says of the cluster it is of.
    pub fn read(snapshot: Option<&Value>) -> Self {
        let Some(snapshot) = snapshot else { return Self::Missing };
        let metadata = snapshot["snapshotFile"]["metadata"].as_str().unwrap_or_default();
        match archive::from_snapshot(metadata) {
            None => Self::Unreadable("it holds no spec of the cluster".to_owned()),
            Some(spec) => Self::Readable {
                has_version: !spec.kubernetes_version.is_empty(),
                has_config: spec.rke_config.is_some(),
            },
        }
    }
}

/// More than the data can be restored only from a snapshot that has more than data.
pub(super) fn check(
    write: &Write<'_>,
    old: Option<&Value>,
    spec: &Value,
    snapshot: Option<&Snapshot>,
    findings: &mut Findings,
) {
    let wanted = &spec["rkeConfig"]["etcdSnapshotRestore"];
    let mode = wanted["restoreRKEConfig"].as_str().unwrap_or_default();
    let unchanged = old.is_none_or(|old| old["rkeConfig"]["etcdSnapshotRestore"] == *wanted);
    if unchanged || is_empty(&wanted["name"]) || matches!(mode, "" | "none") {
        return;
    }
    let mode_field = format!("{FIELD}.restoreRKEConfig");
    if !matches!(mode, "kubernetesVersion" | "all") {
        return findings.bad(mode_field, &format!("unsupported restore mode {mode}"));
    }
    let name = wanted["name"].as_str().unwrap_or_default();
    let namespace = write.namespace;
    match snapshot {
        None => {}
        Some(Snapshot::Missing) => {
            let detail = format!("etcd restore references missing snapshot {name} in namespace {namespace}");
            findings.bad(format!("{FIELD}.name"), &detail);
        }
        Some(Snapshot::Unreadable(reason)) => {
            let detail = format!("invalid ETCD snapshot metadata for {namespace}/{name}: {reason}");
            findings.bad(format!("{FIELD}.name"), &detail);
        }
        Some(Snapshot::Readable { has_version, has_config }) => {
            if mode == "all" && !(*has_version && *has_config) {
                let detail =
                    "snapshot metadata must include RKEConfig and KubernetesVersion for 'all' restore";
                findings.bad(mode_field, detail);
            } else if !has_version {
                let detail = "snapshot metadata missing KubernetesVersion for kubernetesVersion restore";
                findings.bad(mode_field, detail);
            }
        }
    }
}
