//! The parts of an `RKEControlPlane` the planner reads and writes.
//!
//! Field names are those of `rke.cattle.io/v1`. Free maps stay [`Value`]s; unknown fields are kept in the
//! status, so that writing it back loses nothing.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::phase::Phase;

/// A free map; `null` reads as empty.
pub type FreeMap = BTreeMap<String, Value>;

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(input).map(Option::unwrap_or_default)
}

/// `spec`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ControlPlaneSpec {
    pub kubernetes_version: String,
    pub cluster_name: String,
    pub management_cluster_name: String,
    pub unmanaged_config: bool,
    #[serde(deserialize_with = "or_default")]
    pub agent_env_vars: Vec<EnvVar>,
    #[serde(deserialize_with = "or_default")]
    pub local_cluster_auth_endpoint: LocalClusterAuthEndpoint,
    #[serde(deserialize_with = "or_default")]
    pub upgrade_strategy: UpgradeStrategy,
    #[serde(deserialize_with = "or_default")]
    pub chart_values: FreeMap,
    #[serde(deserialize_with = "or_default")]
    pub machine_global_config: FreeMap,
    #[serde(deserialize_with = "or_default")]
    pub machine_selector_config: Vec<SelectorConfig>,
    #[serde(deserialize_with = "or_default")]
    pub machine_selector_files: Vec<SelectorFiles>,
    pub additional_manifest: String,
    pub registries: Option<Registries>,
    pub etcd: Option<Etcd>,
    #[serde(deserialize_with = "or_default")]
    pub networking: Networking,
    #[serde(deserialize_with = "or_default")]
    pub data_directories: DataDirectories,
    pub provision_generation: i64,
    pub etcd_snapshot_create: Option<SnapshotCreate>,
    pub etcd_snapshot_restore: Option<SnapshotRestore>,
    pub rotate_certificates: Option<RotateCertificates>,
    pub rotate_encryption_keys: Option<RotateEncryptionKeys>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EnvVar {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LocalClusterAuthEndpoint {
    pub enabled: bool,
    pub fqdn: String,
    pub ca_certs: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UpgradeStrategy {
    /// A number, a percentage, or empty for one at a time; `0` is unlimited.
    pub control_plane_concurrency: String,
    #[serde(deserialize_with = "or_default")]
    pub control_plane_drain_options: DrainOptions,
    pub worker_concurrency: String,
    #[serde(deserialize_with = "or_default")]
    pub worker_drain_options: DrainOptions,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DrainOptions {
    pub enabled: bool,
    pub force: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_daemon_sets: Option<bool>,
    #[serde(skip_serializing_if = "is_false")]
    pub ignore_errors: bool,
    pub delete_empty_dir_data: bool,
    pub disable_eviction: bool,
    pub grace_period: i64,
    pub timeout: i64,
    pub skip_wait_for_delete_timeout_seconds: i64,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub pre_drain_hooks: Vec<DrainHook>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "or_default")]
    pub post_drain_hooks: Vec<DrainHook>,
}

fn is_false(value: &bool) -> bool {
    !value
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainHook {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub annotation: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SelectorConfig {
    /// `None` is every machine; matched against the labels of the CAPI Machine.
    pub machine_label_selector: Option<LabelSelector>,
    #[serde(deserialize_with = "or_default")]
    pub config: FreeMap,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    #[serde(deserialize_with = "or_default")]
    pub match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requirement {
    pub key: String,
    pub operator: String,
    #[serde(deserialize_with = "or_default")]
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SelectorFiles {
    pub machine_label_selector: Option<LabelSelector>,
    #[serde(deserialize_with = "or_default")]
    pub file_sources: Vec<FileSource>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FileSource {
    #[serde(deserialize_with = "or_default")]
    pub secret: ObjectFiles,
    #[serde(deserialize_with = "or_default")]
    pub config_map: ObjectFiles,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectFiles {
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub items: Vec<KeyToPath>,
    pub default_permissions: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KeyToPath {
    pub key: String,
    pub path: String,
    pub dynamic: bool,
    pub permissions: String,
    /// Base64 of the sha256 the content must have; empty is any content.
    pub hash: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Registries {
    pub mirrors: Option<BTreeMap<String, Mirror>>,
    #[serde(deserialize_with = "or_default")]
    pub configs: BTreeMap<String, RegistryConfig>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mirror {
    #[serde(deserialize_with = "or_default")]
    pub endpoint: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub rewrite: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RegistryConfig {
    pub auth_config_secret_name: String,
    pub tls_secret_name: String,
    /// Base64.
    #[serde(deserialize_with = "or_default")]
    pub ca_bundle: String,
    pub insecure_skip_verify: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Etcd {
    pub disable_snapshots: bool,
    pub snapshot_schedule_cron: String,
    pub snapshot_retention: i64,
    pub s3: Option<S3>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct S3 {
    pub endpoint: String,
    #[serde(rename = "endpointCA")]
    pub endpoint_ca: String,
    #[serde(rename = "skipSSLVerify")]
    pub skip_ssl_verify: bool,
    pub bucket: String,
    pub region: String,
    pub cloud_credential_name: String,
    pub retention: i64,
    pub folder: String,
}

impl S3 {
    /// Whether snapshots are uploaded.
    pub fn is_asked_for(&self) -> bool {
        let asked = [&self.bucket, &self.endpoint, &self.folder, &self.cloud_credential_name, &self.region];
        asked.iter().any(|field| !field.is_empty())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Networking {
    pub stack_preference: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataDirectories {
    pub system_agent: String,
    pub provisioning: String,
    pub k8s_distro: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotCreate {
    pub generation: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotRestore {
    pub name: String,
    pub generation: i64,
    #[serde(rename = "restoreRKEConfig")]
    pub restore_rke_config: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RotateCertificates {
    pub generation: i64,
    #[serde(deserialize_with = "or_default")]
    pub services: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RotateEncryptionKeys {
    pub generation: i64,
}

/// `status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ControlPlaneStatus {
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    pub initialization: Initialization,
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_spec: Option<Value>,
    #[serde(skip_serializing_if = "is_zero")]
    pub config_generation: i64,
    #[serde(skip_serializing_if = "is_false")]
    pub agent_connected: bool,
    #[serde(skip_serializing_if = "is_zero")]
    pub certificate_rotation_generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_renewal: Option<CertificateRenewal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernation: Option<Hibernation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate_encryption_keys: Option<RotateEncryptionKeys>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Phase::is_none")]
    pub rotate_encryption_keys_phase: Phase,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rotate_encryption_keys_leader: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_snapshot_create: Option<SnapshotCreate>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Phase::is_none")]
    pub etcd_snapshot_create_phase: Phase,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_snapshot_restore: Option<SnapshotRestore>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Phase::is_none")]
    pub etcd_snapshot_restore_phase: Phase,
    /// What the cluster waits for, in codes; the text of condition `Ready` says the same in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A rotation of certificates that begins by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CertificateRenewal {
    /// What it waits for, if it is due and has not begun.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// The machine whose certificates end first.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub machine: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// When the next window opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opens: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
    /// When all certificates were rotated last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
}

/// Machines of a cluster that are stopped, being stopped, or being started again. A cluster that runs has none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Hibernation {
    /// See [`Stage`](crate::Stage).
    pub phase: String,
    /// The request that is carried out: since when it is to be stopped.
    pub asked: String,
    /// When the phase began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// No snapshot was taken before: that was declined.
    #[serde(skip_serializing_if = "is_false")]
    pub without_snapshot: bool,
    /// Why it ended before a machine was stopped.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

/// What a cluster waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WaitingFor {
    pub code: String,
    /// Machines it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
    /// What is the matter with the machine, if it is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<ReasonCode>,
}

/// A reason as data: its code, and what it is about, such as the names of probes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReasonCode {
    pub code: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<String>,
}

fn is_zero(value: &i64) -> bool {
    *value == 0
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Initialization {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}

/// A condition of the rke types.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: ConditionStatus,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_update_time: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_transition_time: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConditionStatus {
    True,
    False,
    #[default]
    #[serde(other)]
    Unknown,
}

impl ControlPlaneStatus {
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.kind == kind)
    }

    pub fn is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    pub fn control_plane_initialized(&self) -> bool {
        self.initialization.control_plane_initialized.unwrap_or(false)
    }

    /// Sets a condition; times move only when something else does.
    pub(crate) fn set(
        &mut self,
        kind: &str,
        status: ConditionStatus,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) {
        let at = match self.conditions.iter().position(|condition| condition.kind == kind) {
            Some(at) => at,
            None => {
                self.conditions.push(Condition { kind: kind.to_owned(), ..Condition::default() });
                self.conditions.len() - 1
            }
        };
        let condition = &mut self.conditions[at];
        let same = condition.status == status && condition.reason == reason && condition.message == message;
        if same && !condition.last_update_time.is_empty() {
            return;
        }
        let time = rfc3339(now);
        if condition.status != status || condition.last_transition_time.is_empty() {
            condition.last_transition_time.clone_from(&time);
        }
        condition.status = status;
        reason.clone_into(&mut condition.reason);
        message.clone_into(&mut condition.message);
        condition.last_update_time = time;
    }
}

/// Whole seconds in UTC, as Kubernetes writes times.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    remuda_base::rfc3339(time.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_control_plane_spec_reads_as_the_api_stores_it() {
        let spec: ControlPlaneSpec = serde_json::from_value(json!({
            "kubernetesVersion": "v1.35.1+k3s1",
            "machineGlobalConfig": null,
            "chartValues": {"rke2-calico": {}},
            "machineSelectorConfig": [{"config": {"a": true}}],
            "registries": {"configs": {"r": {"caBundle": "Y2E="}}},
            "networking": null,
            "etcd": {"s3": {"endpointCA": "x", "skipSSLVerify": true}},
            "etcdSnapshotRestore": {"name": "s", "generation": 2, "restoreRKEConfig": "all"},
            "somethingNew": 3,
        }))
        .unwrap();
        assert_eq!(spec.machine_selector_config[0].machine_label_selector, None);
        assert!(spec.etcd.unwrap().s3.unwrap().skip_ssl_verify);
        assert_eq!(spec.registries.unwrap().mirrors, None);
    }

    #[test]
    fn a_status_keeps_what_it_does_not_know() {
        let stored = json!({
            "conditions": [{"type": "Ready", "status": "True"}],
            "initialization": {"controlPlaneInitialized": true},
            "observedGeneration": 4,
            "ready": true,
        });
        let status: ControlPlaneStatus = serde_json::from_value(stored.clone()).unwrap();
        assert!(status.is_true("Ready") && status.control_plane_initialized());
        assert_eq!(serde_json::to_value(&status).unwrap(), stored);
    }

    #[test]
    fn times_of_a_condition_move_only_on_change() {
        let mut status = ControlPlaneStatus::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        status.set("Ready", ConditionStatus::Unknown, "Waiting", "x", at(0));
        let first = status.clone();
        status.set("Ready", ConditionStatus::Unknown, "Waiting", "x", at(60));
        assert_eq!(status, first);
        status.set("Ready", ConditionStatus::Unknown, "Waiting", "y", at(60));
        let ready = status.condition("Ready").unwrap();
        assert_eq!(ready.last_update_time, "1970-01-01T00:01:00Z");
        assert_eq!(ready.last_transition_time, "1970-01-01T00:00:00Z");
    }
}
