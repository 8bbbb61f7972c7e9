//! How a cluster is configured: the part that RKEControlPlanes and provisioning Clusters have in common.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value};

use crate::lenient;

lenient! {
    pub struct ClusterConfiguration {
        /// How changes reach running nodes.
        pub upgrade_strategy: UpgradeStrategy,
        /// Values of the charts that come with the distribution, by chart.
        pub chart_values: Map<String, Value>,
        /// Arguments of the distribution for all machines.
        pub machine_global_config: Map<String, Value>,
        /// Arguments of the distribution for machines with certain labels.
        pub machine_selector_config: Vec<SystemConfig>,
        /// Files for machines with certain labels.
        pub machine_selector_files: Vec<ProvisioningFiles>,
        /// Manifests in YAML that are applied in the cluster.
        pub additional_manifest: String,
        /// Where images are pulled from.
        pub registries: Option<Registries>,
        /// Snapshots of etcd.
        pub etcd: Option<Etcd>,
        /// Addresses of the cluster.
        pub networking: Option<Networking>,
        /// Directories on the machines. They cannot be changed later.
        pub data_directories: DataDirectories,
        /// Another number here restarts the distribution on all nodes.
        pub provision_generation: i64,
    }

    pub struct UpgradeStrategy {
        /// How many control plane nodes may change at one time, as number or percentage; 0 is all, empty is 1.
        pub control_plane_concurrency: String,
        /// How control plane nodes are drained before they change.
        pub control_plane_drain_options: DrainOptions,
        /// How many workers may change at one time, as number or percentage; 0 is all, empty is 1.
        pub worker_concurrency: String,
        /// How workers are drained before they change.
        pub worker_drain_options: DrainOptions,
    }

    pub struct DrainOptions {
        /// Whether nodes are drained at all.
        pub enabled: bool,
        /// Also deletes pods that nothing will create again.
        pub force: bool,
        /// Leaves pods of DaemonSets where they are, which is meant when absent.
        pub ignore_daemon_sets: Option<bool>,
        /// Goes on with the change when draining has failed, with the pods that are left.
        pub ignore_errors: bool,
        /// Also deletes pods whose emptyDir volumes are lost by it.
        pub delete_empty_dir_data: bool,
        /// Deletes pods instead of evicting them, so that no disruption budget is asked.
        pub disable_eviction: bool,
        /// Seconds a pod gets to stop; negative leaves it to the pod.
        pub grace_period: i64,
        /// Seconds after which draining has failed; 0 is 600.
        pub timeout: i64,
        /// Pods that have been going for longer than these seconds are not waited for.
        pub skip_wait_for_delete_timeout_seconds: i64,
        /// Annotations somebody else must set before draining starts.
        pub pre_drain_hooks: Vec<DrainHook>,
        /// Annotations somebody else must set after draining.
        pub post_drain_hooks: Vec<DrainHook>,
    }

    pub struct DrainHook {
        /// Annotation on the plan Secret that is waited for.
        pub annotation: String,
    }

    pub struct SystemConfig {
        /// Labels of the Machines it is for; all of them when absent.
        pub machine_label_selector: Option<LabelSelector>,
        /// Arguments of the distribution.
        pub config: Map<String, Value>,
    }

    pub struct ProvisioningFiles {
        /// Labels of the Machines they are for; all of them when absent.
        pub machine_label_selector: Option<LabelSelector>,
        /// Where the files come from.
        pub file_sources: Vec<FileSource>,
    }

    pub struct FileSource {
        /// A Secret with files.
        pub secret: ObjectFileSource,
        /// A ConfigMap with files.
        pub config_map: ObjectFileSource,
    }

    pub struct ObjectFileSource {
        /// Name of the object.
        pub name: String,
        /// Its keys, and the files they become.
        pub items: Vec<KeyToPath>,
        /// Permissions of files that say nothing else.
        pub default_permissions: String,
    }

    pub struct KeyToPath {
        /// Key in the object.
        pub key: String,
        /// Where the file is on the machine.
        pub path: String,
        /// A change of the file restarts nothing.
        pub dynamic: bool,
        /// Permissions of the file.
        pub permissions: String,
        /// Base64 of the SHA-256 that the content must have.
        pub hash: String,
    }

    pub struct Registries {
        /// Mirrors, by the registry they stand for.
        pub mirrors: BTreeMap<String, Mirror>,
        /// How registries are reached, by host.
        pub configs: BTreeMap<String, RegistryConfig>,
    }

    pub struct Mirror {
        /// URLs that are asked in turn.
        pub endpoint: Vec<String>,
        /// Replacements in image names, by pattern.
        pub rewrite: BTreeMap<String, String>,
    }

    pub struct RegistryConfig {
        /// Secret with the credentials.
        pub auth_config_secret_name: String,
        /// Secret with the client certificate.
        pub tls_secret_name: String,
        /// Certificates the registry is trusted by, in base64.
        pub ca_bundle: String,
        /// Accepts any certificate.
        pub insecure_skip_verify: bool,
    }

    pub struct Etcd {
        /// No snapshots by time.
        pub disable_snapshots: bool,
        /// When snapshots are taken, in cron notation.
        pub snapshot_schedule_cron: String,
        /// How many snapshots each node keeps.
        pub snapshot_retention: i64,
        /// Where snapshots are also uploaded to.
        pub s3: Option<S3>,
    }

    /// A place in an S3 store.
    pub struct S3 {
        /// Host and port of the store.
        pub endpoint: String,
        /// Certificate of the store: a path on the nodes that ends in .crt, PEM, or PEM in base64.
        #[serde(rename = "endpointCA")]
        pub endpoint_ca: String,
        /// Accepts any certificate.
        #[serde(rename = "skipSSLVerify")]
        pub skip_ssl_verify: bool,
        /// Bucket of the snapshots.
        pub bucket: String,
        /// Region of the bucket.
        pub region: String,
        /// Secret with the credentials.
        pub cloud_credential_name: String,
        /// How many snapshots are kept there.
        pub retention: Option<i64>,
        /// Folder in the bucket.
        pub folder: String,
    }

    pub struct Networking {
        /// The family of the loopback address used on nodes: ipv4, ipv6 or dual.
        pub stack_preference: String,
    }

    pub struct DataDirectories {
        /// Of the node agent.
        pub system_agent: String,
        /// Of files that provisioning leaves on nodes.
        pub provisioning: String,
        /// Of the distribution.
        pub k8s_distro: String,
    }

    /// An address for clients that do not come through this server.
    pub struct LocalClusterAuthEndpoint {
        /// Whether there is one.
        pub enabled: bool,
        /// Its name; the addresses of control plane nodes when empty.
        pub fqdn: String,
        /// Certificates it is trusted by.
        pub ca_certs: String,
    }

    pub struct EnvVar {
        /// Name of the variable.
        pub name: String,
        /// Its value.
        pub value: String,
    }

    /// Asks for a snapshot.
    pub struct SnapshotCreate {
        /// Another number asks for another snapshot.
        pub generation: i64,
    }

    /// Asks for a snapshot to be restored.
    pub struct SnapshotRestore {
        /// Name of the ETCDSnapshot.
        pub name: String,
        /// Another number asks again.
        pub generation: i64,
        /// What else returns to its former state: none, kubernetesVersion or all.
        #[serde(rename = "restoreRKEConfig")]
        pub restore_rke_config: String,
    }

    /// Asks for new certificates.
    pub struct RotateCertificates {
        /// Another number asks again.
        pub generation: i64,
        /// Whose certificates; all when empty.
        pub services: Vec<String>,
    }

    /// Asks for a new key for secrets at rest.
    pub struct RotateEncryptionKeys {
        /// Another number asks again.
        pub generation: i64,
    }

    /// What every node of a pool has.
    pub struct Userdata {
        /// Merged into what machines of foreign providers boot with. Everybody who may read the object sees it.
        pub inline_userdata: String,
    }
}
