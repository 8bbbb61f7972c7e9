//! What the agent inside a cluster is given, and where it finds what it tells the server.
//!
//! Manifests of other servers start it as they start Rancher's.

/// The Deployment, and the label `app` of its pods.
pub const NAME: &str = "cattle-cluster-agent";

/// Its image, without a tag, unless the setting names another. Rancher's name: manifests, registries of system images and
/// nodes of the sandbox distribution know it.
pub const IMAGE: &str = "rancher/rancher-agent";

/// Environment variables.
pub mod env {
    /// Address of the server. Set by the manifest.
    pub const SERVER: &str = "CATTLE_SERVER";
    /// Registration token; without it the mounted Secret has one.
    pub const TOKEN: &str = "CATTLE_TOKEN";
    /// SHA-256 of the server's certificate authority. Set by the manifest.
    pub const CA_CHECKSUM: &str = "CATTLE_CA_CHECKSUM";
    /// `true`: no other authority is trusted than the one of that checksum. Set by the manifest.
    pub const STRICT_VERIFY: &str = "STRICT_VERIFY";
    /// `true`: the cluster is registered already.
    pub const CONNECT: &str = "CATTLE_AGENT_CONNECT";
    /// Log level.
    pub const LOG_LEVEL: &str = "CATTLE_LOGLEVEL";
    /// Ours: directory below which mounted files are, for pods that have no root of their own.
    pub const POD_ROOT: &str = "REMUDA_POD_ROOT";
    /// Ours: address and port of the health endpoint; `off` for none.
    pub const HEALTH_BIND: &str = "REMUDA_HEALTH_BIND";
    /// Address of the cluster's API. Set by the kubelet.
    pub const KUBERNETES_HOST: &str = "KUBERNETES_SERVICE_HOST";
    /// Port of the cluster's API. Set by the kubelet.
    pub const KUBERNETES_PORT: &str = "KUBERNETES_SERVICE_PORT";
}

/// Where the health endpoint listens unless told otherwise.
pub const HEALTH_BIND: &str = "0.0.0.0:8080";

/// Files in the pod.
pub mod file {
    /// The mounted Secret: `url` and `token`.
    pub const CREDENTIALS: &str = "/cattle-credentials";
    /// The mounted account: `ca.crt`, `token` and `namespace`.
    pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
}

/// Account the server uses the cluster's API with.
pub const SERVICE_ACCOUNT: &str = "cattle";
/// Secret with the token of that account. Written by the agent.
pub const TOKEN_SECRET: &str = "cattle-token";
