//! Everything a decision depends on, read once by the caller.
//!
//! It is data: it can be written to a file, compared, and decided about again elsewhere. Such a file holds the secrets
//! of a cluster; [`redact`](crate::redact) takes them out.

mod agent;
mod form;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use jiff::Timestamp;
use remuda_distro::Facts;
use remuda_names::{
    capi::condition,
    conditions,
    rancher::{self, name},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::agent::{AgentManifest, ClusterAgent};
use crate::{
    driver::Driver,
    node_plan::File,
    spec::{ControlPlaneSpec, ControlPlaneStatus},
};

/// One cluster and all that belongs to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    pub now: Timestamp,
    pub control_plane: ControlPlane,
    /// The owning CAPI Cluster, if it exists.
    pub cluster: Option<Cluster>,
    /// See [`remuda_distro::Catalog::facts`].
    pub release: Facts,
    /// Machines of the cluster whose bootstrap is an RKEBootstrap, in any order.
    pub machines: Vec<Machine>,
    /// The secret with the join tokens.
    pub state: StateSecret,
    /// Two fresh random tokens, used if the state secret has to be created.
    pub fresh_tokens: Tokens,
    pub resources: Resources,
    pub settings: Settings,
    pub agent_manifest: AgentManifest,
    /// ETCDSnapshots of the cluster, in any order.
    pub snapshots: Vec<Snapshot>,
    /// Files that replace all manifests while the cluster is being pre-bootstrapped. Normally none.
    #[serde(with = "form::files")]
    pub pre_bootstrap: Vec<File>,
}

/// An ETCDSnapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    pub name: String,
    /// Name of the file.
    pub file: String,
    /// The Machine that holds it, if it is on one.
    pub machine: Option<String>,
    pub storage: Storage,
    /// The version of Kubernetes when it was taken, if that was recorded.
    pub version: Option<String>,
    /// Its file is to be deleted.
    pub deleting: bool,
    /// There is no file: it could not be taken, or not be put there.
    pub failed: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    #[default]
    Local,
    S3,
}

/// The RKEControlPlane. As data it has its spec once, in the form that is stored.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "StoredControlPlane", try_from = "StoredControlPlane")]
pub struct ControlPlane {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub generation: i64,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    /// Carries the annotation `cluster.x-k8s.io/paused`.
    pub paused: bool,
    pub deleting: bool,
    pub spec: ControlPlaneSpec,
    /// `spec` as it is stored; what has been carried out is remembered in this form.
    pub stored_spec: Value,
    pub status: ControlPlaneStatus,
}

impl ControlPlane {
    /// Reads an RKEControlPlane.
    pub fn read(object: &Value) -> Result<ControlPlane, serde_json::Error> {
        let metadata: Metadata = match object.get("metadata") {
            Some(metadata) => Metadata::deserialize(metadata)?,
            None => Metadata::default(),
        };
        let stored_spec = object.get("spec").cloned().unwrap_or_else(|| Value::Object(Map::new()));
        let status = match object.get("status") {
            None | Some(Value::Null) => ControlPlaneStatus::default(),
            Some(status) => ControlPlaneStatus::deserialize(status)?,
        };
        Ok(ControlPlane {
            paused: metadata.annotations.contains_key(remuda_names::capi::annotation::PAUSED),
            deleting: metadata.deletion_timestamp.is_some(),
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            generation: metadata.generation,
            labels: metadata.labels,
            annotations: metadata.annotations,
            spec: ControlPlaneSpec::deserialize(&stored_spec)?,
            stored_spec,
            status,
        })
    }
}

/// A [`ControlPlane`] as data.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredControlPlane {
    namespace: String,
    name: String,
    uid: String,
    generation: i64,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    paused: bool,
    deleting: bool,
    spec: Value,
    status: ControlPlaneStatus,
}

impl From<ControlPlane> for StoredControlPlane {
    fn from(from: ControlPlane) -> StoredControlPlane {
        StoredControlPlane {
            namespace: from.namespace,
            name: from.name,
            uid: from.uid,
            generation: from.generation,
            labels: from.labels,
            annotations: from.annotations,
            paused: from.paused,
            deleting: from.deleting,
            spec: from.stored_spec,
            status: from.status,
        }
    }
}

impl TryFrom<StoredControlPlane> for ControlPlane {
    type Error = serde_json::Error;

    fn try_from(from: StoredControlPlane) -> Result<ControlPlane, serde_json::Error> {
        Ok(ControlPlane {
            namespace: from.namespace,
            name: from.name,
            uid: from.uid,
            generation: from.generation,
            labels: from.labels,
            annotations: from.annotations,
            paused: from.paused,
            deleting: from.deleting,
            spec: ControlPlaneSpec::deserialize(&from.spec)?,
            stored_spec: from.spec,
            status: from.status,
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    generation: i64,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    deletion_timestamp: Option<String>,
}

/// The CAPI Cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    pub name: String,
    pub deleting: bool,
    /// `spec.paused` or the annotation.
    pub paused: bool,
    pub infrastructure_provisioned: bool,
    /// Status of condition `ControlPlaneInitialized` is `False`.
    pub control_plane_not_initialized: bool,
}

/// A CAPI Machine with its plan secret.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    pub deleting: bool,
    /// `status.phase` is `Failed`.
    pub failed: bool,
    /// Condition `InfrastructureReady` is `True`.
    pub infrastructure_ready: bool,
    /// `status.nodeRef.name`.
    pub node: Option<String>,
    /// `status.nodeInfo.kubeletVersion`; `None` without nodeInfo.
    pub kubelet_version: Option<String>,
    pub addresses: Vec<Address>,
    /// Condition `NodeHealthy` or, lacking that, `NodeReady`: `Some(false)` when it is not `True`.
    pub node_healthy: Option<bool>,
    /// The Machine's condition `Reconciled`, if it has one.
    pub reconciled: Option<Reconciled>,
    /// All other conditions in brief.
    pub summary: Summary,
    /// Value of the annotation that asks for a restart of its service; another value asks again.
    pub restart_asked: String,
    /// Whether its server was told to run: a constant of [`remuda_names::power`], or empty.
    #[serde(default)]
    pub power: String,
    /// When the first of its certificates ends, as far as that is known.
    #[serde(default)]
    pub certificates_until: Option<Timestamp>,
    /// What the node driver knows of the server.
    pub driver: Driver,
    /// `None` until the bootstrap controller has made it.
    pub plan_secret: Option<PlanSecret>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reconciled {
    pub is_true: bool,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    pub kind: AddressKind,
    pub address: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressKind {
    InternalIp,
    ExternalIp,
    Other,
}

/// What a Machine's conditions, `Reconciled` excepted, amount to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    pub error: bool,
    pub transitioning: bool,
    pub messages: Vec<String>,
}

impl Summary {
    /// Sums up conditions given as (type, status, reason, message).
    ///
    /// `False` with an error's reason is an error, any other `False` or `Unknown` a transition; conditions
    /// that are bad news when `True` are left to others, and `Reconciled` is the planner's own.
    pub fn of<'a>(conditions: impl IntoIterator<Item = (&'a str, &'a str, &'a str, &'a str)>) -> Summary {
        const OPTIONAL: &[&str] = &[
            condition::UP_TO_DATE,
            condition::AVAILABLE,
            condition::HEALTH_CHECK_SUCCEEDED,
            condition::OWNER_REMEDIATED,
            // What runs goes on to run without its agent.
            rancher::condition::AGENT_CONNECTED,
        ];
        let mut summary = Summary::default();
        for (kind, status, reason, message) in conditions {
            let of_others = conditions::is_negative(kind) || OPTIONAL.contains(&kind);
            if status == "True" || of_others || kind == rancher::condition::RECONCILED {
                continue;
            }
            if status == "False"
                && (reason == "Error" || reason.ends_with("Error") || reason.ends_with("Failed"))
            {
                summary.error = true;
            } else {
                summary.transitioning = true;
            }
            if !message.is_empty() && !summary.messages.iter().any(|known| known == message) {
                summary.messages.push(message.to_owned());
            }
        }
        summary
    }
}

/// A secret of type `rke.cattle.io/machine-plan`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanSecret {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    #[serde(with = "form::contents")]
    pub data: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for PlanSecret {
    /// Plans are full of credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<&String> = self.data.keys().collect();
        f.debug_struct("PlanSecret").field("name", &self.name).field("keys", &keys).finish_non_exhaustive()
    }
}

/// The secret with the join tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StateSecret {
    Missing,
    Present(Tokens),
    /// Something else has its name.
    WrongType(String),
}

/// Tokens by which nodes join.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    pub server: String,
    pub agent: String,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens(…)")
    }
}

/// Objects the cluster refers to. See [`references`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// By namespace and name.
    #[serde(with = "form::named")]
    pub secrets: BTreeMap<(String, String), Secret>,
    #[serde(with = "form::named")]
    pub config_maps: BTreeMap<(String, String), ConfigMap>,
}

#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Secret {
    pub kind: String,
    pub annotations: BTreeMap<String, String>,
    #[serde(with = "form::contents")]
    pub data: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("kind", &self.kind).field("keys", &self.data.keys()).finish()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMap {
    pub annotations: BTreeMap<String, String>,
    pub data: BTreeMap<String, String>,
}

/// Server settings that reach plans.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// `system-agent-installer-image`.
    pub installer_image: String,
    /// `system-default-registry`.
    pub system_default_registry: String,
    /// `system-default-registry-pull-secrets`, in order.
    pub pull_secrets: Vec<String>,
    /// `rke2-provisioning-prime-default`.
    pub prime: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            installer_image: "rancher/system-agent-installer-".to_owned(),
            system_default_registry: String::new(),
            pull_secrets: Vec::new(),
            prime: false,
        }
    }
}

/// A node taint.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: String,
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.effect.is_empty(), self.value.is_empty()) {
            (true, true) => write!(f, "{}", self.key),
            (true, false) => write!(f, "{}={}:", self.key, self.value),
            (false, true) => write!(f, "{}:{}", self.key, self.effect),
            (false, false) => write!(f, "{}={}:{}", self.key, self.value, self.effect),
        }
    }
}

/// What the caller has to read into [`Resources`] for this control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    pub secrets: BTreeSet<(String, String)>,
    pub config_maps: BTreeSet<(String, String)>,
}

/// Names of the objects the desired plans may need.
pub fn references(control_plane: &ControlPlane, settings: &Settings) -> References {
    let spec = &control_plane.spec;
    let namespace = &control_plane.namespace;
    let mut found = References::default();
    let mut secret = |namespace: &str, name: &str| {
        if !name.is_empty() {
            found.secrets.insert((namespace.to_owned(), name.to_owned()));
        }
    };
    for config in spec.registries.iter().flat_map(|registries| registries.configs.values()) {
        secret(namespace, &config.auth_config_secret_name);
        secret(namespace, &config.tls_secret_name);
    }
    if let Some(s3) = spec.etcd.as_ref().and_then(|etcd| etcd.s3.as_ref()) {
        let (namespace, name) = credential_location(&s3.cloud_credential_name, namespace);
        secret(namespace, name);
    }
    let configs = spec.machine_selector_config.iter().map(|entry| &entry.config);
    for config in configs.chain([&spec.machine_global_config]) {
        if let Some(value) = config.get("cloud-provider-config").and_then(|value| value.as_str())
            && let Some((namespace, name)) =
                value.strip_prefix("secret://").and_then(|rest| rest.split_once(':'))
        {
            secret(namespace, name);
        }
    }
    if !settings.system_default_registry.is_empty() {
        settings.pull_secrets.iter().for_each(|name| secret(name::SYSTEM, name));
    }
    for source in spec.machine_selector_files.iter().flat_map(|files| &files.file_sources) {
        secret(namespace, &source.secret.name);
        if !source.config_map.name.is_empty() {
            found.config_maps.insert((namespace.clone(), source.config_map.name.clone()));
        }
    }
    found
}

/// Where a cloud credential lives: only one prefix names a namespace.
pub(crate) fn credential_location<'a>(name: &'a str, namespace: &'a str) -> (&'a str, &'a str) {
    match name.split_once(':') {
        Some((name::GLOBAL_DATA, name)) => (name::GLOBAL_DATA, name),
        _ => (namespace, name),
    }
}
