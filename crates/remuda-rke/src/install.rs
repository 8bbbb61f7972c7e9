//! Texts for machines and clusters, with what the settings say.

use remuda_api::{management::Setting, rke::RkeControlPlaneSpec};
use remuda_control::Informer;
use remuda_install::{LinuxScript, WindowsScript, ca_checksum};
use remuda_names::rancher::{env, setting};

use crate::settings;

/// How this server is reached and trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) checksum: Option<String>,
    pub(crate) strict: bool,
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
