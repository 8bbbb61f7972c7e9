//! The cluster agent of a cluster: what its manifest is made of.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Taint;

/// The cluster agent's manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AgentManifest {
    /// The cluster this server runs in needs none.
    Local,
    /// There is no registration token to put into it.
    NoToken,
    Agent(Box<ClusterAgent>),
}

/// What the agent in a cluster is told.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClusterAgent {
    pub server_url: String,
    /// By which it trusts the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_checksum: Option<String>,
    /// Trust the given certificates only.
    pub strict: bool,
    /// Registration token of the cluster.
    pub token: String,
    /// Name of the management Cluster.
    pub cluster: String,
    pub image: String,
    /// Of the authenticator, if the cluster has an authorized endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_image: Option<String>,
    /// Registry of system images.
    pub registry: String,
    pub server_version: String,
    pub install_uuid: String,
    pub env: Vec<(String, String)>,
    /// How people want it deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub customization: Option<Value>,
    /// Credentials of the registry: names and `.dockerconfigjson`.
    pub pull_secrets: Vec<(String, String)>,
}

impl fmt::Debug for ClusterAgent {
    /// It is full of credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterAgent").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl ClusterAgent {
    /// The manifest of the agent, which tolerates these taints.
    pub fn manifest(&self, taints: &[Taint]) -> String {
        let taints: Vec<Value> = taints.iter().map(|taint| json!(taint)).collect();
        remuda_install::ClusterAgent {
            server_url: &self.server_url,
            ca_checksum: self.ca_checksum.as_deref(),
            token: &self.token,
            namespace: &self.cluster,
            image: &self.image,
            auth_image: self.auth_image.as_deref(),
            strict: self.strict,
            env: &self.env,
            registry: &self.registry,
            server_version: &self.server_version,
            install_uuid: &self.install_uuid,
            control_plane_taints: &taints,
            customization: self.customization.as_ref(),
            pull_secrets: &self.pull_secrets,
            ..remuda_install::ClusterAgent::default()
        }
        .manifest()
    }
}
