//! What nodes, agents in clusters and people find at the gateway.
//!
//! Paths and headers are Rancher's: agents that are already deployed use them.

/// HTTP paths.
pub mod path {
    /// WebSocket of an agent in a cluster.
    pub const CONNECT: &str = "/v3/connect";
    /// The same, for an agent that connects for the first time.
    pub const CONNECT_REGISTER: &str = "/v3/connect/register";
    /// A machine registers and is told where its plan is.
    pub const CONNECT_AGENT: &str = "/v3/connect/agent";
    /// A machine reads the configuration its plan has for the distribution.
    pub const CONNECT_CONFIG: &str = "/v3/connect/config-yaml";
    /// A machine asks about its cluster.
    pub const CONNECT_CLUSTER_INFO: &str = "/v3/connect/cluster-info";
    /// A machine reads the image of the cluster agent.
    pub const AGENT_IMAGE: &str = "/v3/connect/agent-image";
    /// The OCI distribution API: images for machines.
    pub const REGISTRY: &str = "/v2";
    /// Manifests of the agent in a cluster are below.
    pub const IMPORT: &str = "/v3/import/";
    /// Certificates this server is trusted by, as JSON.
    pub const CACERTS_SETTING: &str = "/v3/settings/cacerts";
    /// The same as text.
    pub const CACERTS: &str = "/cacerts";
    /// Answers `pong`.
    pub const PING: &str = "/ping";
    /// Script that installs the node agent on Linux.
    pub const INSTALL_SCRIPT: &str = "/system-agent-install.sh";
    /// Script that removes it again.
    pub const UNINSTALL_SCRIPT: &str = "/system-agent-uninstall.sh";
    /// Script that installs the node agent on Windows.
    pub const WINDOWS_SCRIPT: &str = "/wins-agent-install.ps1";
    /// Files for machines are below.
    pub const ASSETS: &str = "/assets/";
    /// The APIs of clusters are below, each under the name of its management Cluster.
    pub const CLUSTERS: &str = "/k8s/clusters/";
    /// The same.
    pub const CLUSTERS_PROXY: &str = "/k8s/proxy/";
}

/// The registry for machines.
pub mod registry {
    /// Who a machine says it is beside the token of its plan, where a registry wants a name with a password.
    pub const USER: &str = "remuda-machine";
}

/// HTTP headers.
pub mod header {
    /// Machines send what they are in headers that begin so.
    pub const CATTLE_PREFIX: &str = "x-cattle-";
    /// What a machine wants to know about its cluster.
    pub const FIELD: &str = "x-cattle-field";
    /// Sent with a request for certificates: goes into the proof.
    pub const NONCE: &str = "x-cattle-nonce";
    /// Proves certificates to those who know a registration token.
    pub const HASH: &str = "x-cattle-hash";
}

/// Who agents are in the audit log: one of these, and a name.
pub mod audit_user {
    /// The agent in a cluster, by the management Cluster.
    pub const CLUSTER_AGENT: &str = "remuda:cluster-agent:";
    /// The agent of a machine, by namespace and name of the Machine.
    pub const MACHINE: &str = "remuda:machine:";
    /// Another server.
    pub const SERVER: &str = "remuda:server:";
}

/// Secrets.
pub mod secret {
    /// Names of Secrets with registration tokens: this, and the name of the ClusterRegistrationToken.
    pub const TOKEN_PREFIX: &str = "crt-token-";
    /// Names of Secrets with the credentials agents in clusters upload: this, and the management Cluster.
    pub const CREDENTIAL_PREFIX: &str = "cluster-serviceaccounttoken-";
    /// Key of such a credential.
    pub const CREDENTIAL: &str = "credential";
    /// Key beside it: host and port of the cluster's API, as its agent dials it.
    pub const ADDRESS: &str = "address";
    /// Key beside it: the certificates that API is trusted by, PEM.
    pub const AUTHORITY: &str = "ca.crt";
    /// Of Secrets with a service account's token.
    pub const ACCOUNT_TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
    /// Annotation on them: the account.
    pub const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
    /// Annotation on them: UID of the account.
    pub const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
}

/// Annotations.
pub mod annotation {
    /// On management Nodes: what was seen of the node in the cluster, as a digest. The gateway writes and compares it.
    pub const NODE_DIGEST: &str = "remuda.io/node-digest";
}

/// Labels.
pub mod label {
    /// `true` on Secrets with what agents in clusters upload. Written and read by servers that share a datastore.
    pub const CLUSTER_ACCESS: &str = "remuda.io/cluster-access";
}

/// Names of sessions of agents that serve an API of their own: this, and the management Cluster. Their
/// tokens begin with it too.
pub const AGGREGATION_PREFIX: &str = "stv-cluster-";

/// Drivers of clusters whose agents upload credentials.
pub const UPLOADING_DRIVERS: &[&str] = &["imported", "k3s", "k3os", "rancherd", "rke2"];
/// Driver of clusters that were made elsewhere.
pub const DRIVER_IMPORTED: &str = "imported";

/// Begins the names of users and groups that have a meaning in the management API only when they act in
/// another cluster, where the same names would be somebody else's.
pub const FOREIGN_PREFIX: &str = "remuda:";

/// Accounts in other clusters, each of which may act as one user and as nobody else.
pub mod impersonation {
    /// Where they are.
    pub const NAMESPACE: &str = "cattle-impersonation-system";
    /// Their names: this, and the user.
    pub const PREFIX: &str = "cattle-impersonation-";
    /// Label on them, `true`.
    pub const LABEL: &str = "authz.cluster.cattle.io/impersonator";
    /// Annotation on them: the user.
    pub const USER: &str = "remuda.io/impersonates";
    /// Annotation on them: when they were needed last, to the hour.
    pub const USED: &str = "remuda.io/last-used";
}
