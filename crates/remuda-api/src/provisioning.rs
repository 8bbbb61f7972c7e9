//! `provisioning.cattle.io/v1`: the Cluster that people write.

mod agents;
mod pool;

pub use agents::*;
pub use pool::*;

use k8s_openapi::api::core::v1::ObjectReference;
use remuda_names::rancher::group::PROVISIONING;

use crate::{
    lenient,
    object::object,
    rke::{
        ClusterConfiguration, Condition, EnvVar, LocalClusterAuthEndpoint, RotateCertificates,
        RotateEncryptionKeys, SnapshotCreate, SnapshotRestore,
    },
};

lenient! {
    pub struct ClusterSpec {
        /// Secret with the credentials of the provider: cattle-global-data:NAME, or a name in the namespace of
        /// the Cluster.
        pub cloud_credential_secret_name: String,
        /// Version of the distribution, such as v1.35.1+k3s1.
        pub kubernetes_version: String,
        /// Is stored; nothing here follows it.
        #[serde(rename = "clusterAPIConfig")]
        pub cluster_api_config: Option<ClusterApiConfig>,
        /// How the cluster is made. A cluster that somebody else made has none.
        pub rke_config: Option<RkeConfig>,
        /// An address for clients that do not come through this server.
        pub local_cluster_auth_endpoint: LocalClusterAuthEndpoint,
        /// Environment of the agents on nodes and in the cluster.
        pub agent_env_vars: Vec<EnvVar>,
        /// How the agent in the cluster is deployed.
        pub cluster_agent_deployment_customization: Option<AgentDeploymentCustomization>,
        /// How the Fleet agent is deployed.
        pub fleet_agent_deployment_customization: Option<AgentDeploymentCustomization>,
        /// How the webhook in the cluster is deployed.
        pub webhook_deployment_customization: Option<WebhookDeploymentCustomization>,
        /// Template of the admission configuration for pod security.
        pub default_pod_security_admission_configuration_template_name: String,
        /// Is stored; nothing here follows it.
        pub default_cluster_role_for_project_members: String,
        /// Whether projects are isolated from each other.
        pub enable_network_policy: Option<bool>,
        /// Another number installs the node agents again.
        pub redeploy_system_agent_generation: i64,
    }

    pub struct ClusterApiConfig {
        /// Is stored; nothing here follows it.
        pub cluster_name: String,
    }

    pub struct RkeConfig {
        /// Asks for a snapshot of etcd.
        pub etcd_snapshot_create: Option<SnapshotCreate>,
        /// Asks for a snapshot to be restored.
        pub etcd_snapshot_restore: Option<SnapshotRestore>,
        /// Asks for new certificates.
        pub rotate_certificates: Option<RotateCertificates>,
        /// Asks for a new key for secrets at rest.
        pub rotate_encryption_keys: Option<RotateEncryptionKeys>,
        /// Machines that are made for the cluster. Without any, servers register themselves.
        pub machine_pools: Vec<MachinePool>,
        /// What pools have that say nothing else.
        pub machine_pool_defaults: MachinePoolDefaults,
        /// The infrastructure of the cluster; an RKECluster is made when absent.
        pub infrastructure_ref: Option<ObjectReference>,
        ..config: ClusterConfiguration,
    }

    pub struct ClusterStatus {
        /// The agent in the cluster has been connected. Stays true.
        pub ready: bool,
        /// Name of the management Cluster.
        pub cluster_name: String,
        /// Workspace of the cluster.
        pub fleet_workspace_name: String,
        /// Secret with the kubeconfig.
        pub client_secret_name: String,
        /// The agent in the cluster is deployed.
        pub agent_deployed: bool,
        /// Generation of the spec this status is about.
        pub observed_generation: i64,
        /// Conditions of the cluster.
        pub conditions: Vec<Condition>,
    }
}

object! {
    /// A cluster as people want it.
    mod cluster; Cluster = "Cluster", PROVISIONING, "v1", "clusters", NamespaceResourceScope;
    spec: ClusterSpec; status: ClusterStatus;
    {}
}

#[cfg(test)]
mod tests;
