//! Cluster, the identity of every cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use remuda_names::rancher::group::MANAGEMENT;
use serde_json::Value;

use super::Other;
use crate::{
    lenient,
    object::object,
    rke::{Condition, LocalClusterAuthEndpoint},
};

lenient! {
    pub struct ClusterSpec {
        /// Name for people.
        pub display_name: String,
        /// What the cluster is for.
        pub description: String,
        /// The cluster this server runs in.
        pub internal: bool,
        /// Workspace of the cluster.
        pub fleet_workspace_name: String,
        /// Image of the agent in the cluster.
        pub desired_agent_image: String,
        /// Image of the authentication webhook in the cluster.
        pub desired_auth_image: String,
        /// Image of the assets.
        pub desired_assets_image: String,
        /// Image of the agent, in place of the usual one.
        pub agent_image_override: String,
        /// Environment of the agent.
        pub agent_env_vars: Vec<AgentEnvVar>,
        /// Template of the admission configuration for pod security.
        pub default_pod_security_admission_configuration_template_name: String,
        /// Is stored; nothing here follows it.
        pub default_cluster_role_for_project_members: String,
        /// Whether projects are isolated from each other.
        pub enable_network_policy: Option<bool>,
        /// An address for clients that do not come through this server.
        pub local_cluster_auth_endpoint: LocalClusterAuthEndpoint,
        /// Secrets that belong to the cluster.
        pub cluster_secrets: ClusterSecrets,
        /// How the agent in the cluster is deployed.
        pub cluster_agent_deployment_customization: Option<Value>,
        /// How the Fleet agent is deployed.
        pub fleet_agent_deployment_customization: Option<Value>,
        /// How the webhook in the cluster is deployed.
        pub webhook_deployment_customization: Option<Value>,
        /// How an imported cluster is reached.
        pub imported_config: Option<ImportedConfig>,
        ..other: Other,
    }

    pub struct AgentEnvVar {
        /// Name of the variable.
        pub name: String,
        /// Its value.
        pub value: String,
        ..other: Other,
    }

    pub struct ClusterSecrets {
        /// Secret with credentials of the registry.
        pub private_registry_secret: String,
        /// Registry of system images.
        #[serde(rename = "privateRegistryURL")]
        pub private_registry_url: String,
        ..other: Other,
    }

    pub struct ImportedConfig {
        /// Kubeconfig of the cluster.
        pub kube_config: String,
        /// Registry of system images.
        #[serde(rename = "privateRegistryURL")]
        pub private_registry_url: String,
        /// Secrets with credentials of the registry.
        pub private_registry_pull_secrets: Vec<String>,
        ..other: Other,
    }

    pub struct ClusterStatus {
        /// Conditions of the cluster.
        pub conditions: Vec<Condition>,
        /// How the cluster came to be: imported, k3s, rke2, local, …
        pub driver: String,
        /// What the cluster is: k3s, rke2, eks, …
        pub provider: String,
        /// Image of the agent that was deployed last.
        pub agent_image: String,
        /// Image of the authentication webhook that was deployed last.
        pub auth_image: String,
        /// Environment of the agent that was deployed last.
        pub applied_agent_env_vars: Vec<AgentEnvVar>,
        /// Features the deployed agent was told of.
        pub agent_features: BTreeMap<String, bool>,
        /// URL of the API of the cluster.
        pub api_endpoint: String,
        /// Certificates the API of the cluster is trusted by, in base64.
        pub ca_cert: String,
        /// Secret with a token for the API of the cluster.
        pub service_account_token_secret: String,
        /// Version the API of the cluster tells.
        pub version: Option<Version>,
        /// Nodes of the cluster.
        pub node_count: i64,
        /// Nodes are changing; until they are done the control plane says whether the cluster is ready.
        pub ready_reconciling: bool,
        /// A summary for people.
        pub info: Option<ClusterInfo>,
        ..other: Other,
    }

    pub struct Version {
        /// The whole version.
        pub git_version: String,
        pub major: String,
        pub minor: String,
        ..other: Other,
    }

    pub struct ClusterInfo {
        /// Who made the machines: a driver, custom, imported, local, …
        pub machine_provider: String,
        /// Version of Kubernetes.
        pub kubernetes_version: String,
        /// Machines or nodes of the cluster.
        pub node_count: i64,
        /// Architecture of the nodes, or mixed.
        pub arch: String,
        /// The provisioning Cluster.
        pub provisioning_cluster_ref: Option<ObjectReference>,
        ..other: Other,
    }
}

object! {
    /// A cluster that is managed, whoever made it.
    mod managed; Cluster = "Cluster", MANAGEMENT, "v3", "clusters", ClusterResourceScope;
    spec: ClusterSpec; status: ClusterStatus;
    { ..other: Other, }
}
