//! Texts for machines and clusters, with what the settings say.

use remuda_api::{management::Setting, rke::RkeControlPlaneSpec};
use remuda_control::Informer;
use remuda_install::{ClusterAgent, LinuxScript, WindowsScript, ca_checksum};
use remuda_names::rancher::{env, setting};
use remuda_planner::input::Taint;
use serde_json::{Value, json};

use crate::settings;

/// How this server is reached and trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) url: String,
    checksum: Option<String>,
    strict: bool,
}

impl Server {
    /// `None` while the server does not know its own address.
    pub(crate) fn read(settings: &Informer<Setting>) -> Option<Server> {
        let url = settings::value(settings, setting::SERVER_URL);
        if url.is_empty() {
            return None;
        }
        let authority = settings::text(settings, setting::CACERTS);
        Some(Server {
            url,
            checksum: (!authority.is_empty()).then(|| ca_checksum(&authority)),
            strict: settings::value(settings, setting::AGENT_TLS_MODE) != "system-store",
        })
    }

    /// The script that installs the node agent.
    pub(crate) fn script(&self, token: &str, control_plane: &RkeControlPlaneSpec, windows: bool) -> String {
        let env = environment(control_plane);
        let ca_checksum = self.checksum.as_deref();
        let (server_url, token, env, strict) = (&*self.url, Some(token), &*env, self.strict);
        if !windows {
            return LinuxScript { server_url, ca_checksum, token, env, strict }.render();
        }
        let data_dir = match control_plane.config.data_directories.k8s_distro.as_str() {
            "" => "/var/lib/rancher/rke2",
            own => own,
        };
        WindowsScript { server_url, ca_checksum, token, env, strict, data_dir, ..WindowsScript::default() }
            .render()
    }
}

/// Environment of the node agent. Its directory has a field of its own.
fn environment(control_plane: &RkeControlPlaneSpec) -> Vec<(String, String)> {
    let given = control_plane.agent_env_vars.iter().filter(|var| var.name != env::AGENT_VAR_DIR);
    let mut all: Vec<(String, String)> = given.map(|var| (var.name.clone(), var.value.clone())).collect();
    let directory = &control_plane.config.data_directories.system_agent;
    if !directory.is_empty() {
        all.push((env::AGENT_VAR_DIR.to_owned(), directory.clone()));
    }
    all
}

/// What the agent in a cluster is told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Agent {
    pub(crate) server: Server,
    pub(crate) token: String,
    /// Name of the management Cluster.
    pub(crate) cluster: String,
    pub(crate) image: String,
    /// Of the authenticator, if the cluster has an authorized endpoint.
    pub(crate) auth_image: Option<String>,
    pub(crate) registry: String,
    pub(crate) server_version: String,
    pub(crate) install_uuid: String,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) customization: Option<Value>,
    /// Credentials of the registry: names and `.dockerconfigjson`.
    pub(crate) pull_secrets: Vec<(String, String)>,
}

impl Agent {
    /// The manifest of the agent, which tolerates these taints.
    pub(crate) fn manifest(&self, taints: &[Taint]) -> String {
        let taints: Vec<Value> = taints.iter().map(|taint| json!(taint)).collect();
        ClusterAgent {
            server_url: &self.server.url,
            ca_checksum: self.server.checksum.as_deref(),
            token: &self.token,
            namespace: &self.cluster,
            image: &self.image,
            auth_image: self.auth_image.as_deref(),
            strict: self.server.strict,
            env: &self.env,
            registry: &self.registry,
            server_version: &self.server_version,
            install_uuid: &self.install_uuid,
            control_plane_taints: &taints,
            customization: self.customization.as_ref(),
            pull_secrets: &self.pull_secrets,
            ..ClusterAgent::default()
        }
        .manifest()
    }
}
