//! What runs on the API of this server: who gets which way to workload clusters, and which options.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use remuda_control::Ctx;
use remuda_distro::Current;
use remuda_drivers::builtin::Registry;
use remuda_gateway::{Gateway, GatewayOptions, ProgramOptions, TunnelConnect};
use remuda_names::{env, file};
use remuda_registry::{Registry as Images, Store};
use remuda_rke::agent_presence::Presence;
use remuda_tunnel::server::{PeerIdentity, ServerOptions};
use remuda_workload::{KubeconfigSecret, Workloads};

use crate::{
    config::{Config, LocalMachines},
    controllers::{Component, Contexts, Run, group, group_of},
    people::People,
    preflight::LocalImages,
    server::StartError,
};

/// What the groups are told about the server they run in.
pub struct Site {
    /// Of every component.
    pub contexts: Contexts,
    pub gateway: Gateway,
    /// Where nodes, agents and people reach this server.
    pub server_url: String,
    /// Where programs on this machine do.
    pub local_url: String,
    /// By which they trust it; empty if those of the system will do.
    pub ca_pem: String,
    pub data_dir: PathBuf,
    /// How many machines are made or removed at a time, if anybody says so.
    pub machine_jobs: Option<NonZeroUsize>,
    /// And of one driver and credential.
    pub machine_jobs_per_credential: Option<NonZeroUsize>,
    /// How machines on this host are kept.
    pub local_machines: LocalMachines,
    /// What is known of K3s and RKE2 releases.
    pub releases: Current,
    /// Which agents are there, if this server sees all of them.
    pub presence: Option<Presence>,
    /// Told where machines on this host find installers.
    pub local_images: LocalImages,
}

/// All of them, with the drivers that come with us.
pub fn all(site: &Site) -> Vec<Run> {
    with_drivers(site, Registry::standard())
}

/// All of them, with these drivers.
pub fn with_drivers(site: &Site, drivers: Registry) -> Vec<Run> {
    let ctx = site.contexts.of(Component::Workloads);
    let other = Arc::new(KubeconfigSecret::new(&ctx));
    let connect = Arc::new(TunnelConnect::new(&site.gateway, Some(other)));
    let workloads = Workloads::new(ctx, remuda_workload::Options::default(), connect);
    let settings = remuda_provisioning::Options {
        server_url: site.server_url.clone(),
        ca_pem: site.ca_pem.clone(),
        system_agent_version: format!("v{}", crate::VERSION),
        server_version: format!("v{}", crate::VERSION),
        // All that is read is there to be seen and set.
        other_settings: [remuda_identity::setting_defaults(), remuda_rke::setting_defaults()].concat(),
        ..remuda_provisioning::Options::default()
    };
    let machines = remuda_machines::Options::new(drivers, site.local_url.clone(), site.data_dir.clone());
    let machines = remuda_machines::Options {
        server_ca: Some(site.ca_pem.clone()).filter(|pem| !pem.is_empty()),
        job_environment: vec![(env::LOCAL_MACHINES.to_owned(), site.local_machines.as_str().to_owned())],
        environment: proxies(|name| std::env::var_os(name)?.into_string().ok()),
        processes: site.machine_jobs.map_or(machines.processes, NonZeroUsize::get),
        concurrency: site.machine_jobs_per_credential.map_or(machines.concurrency, NonZeroUsize::get),
        ..machines
    };
    let (connections, cluster_api, rke) = (workloads.clone(), workloads.clone(), workloads.clone());
    let (gateway, mirror) = (site.gateway.clone(), site.gateway.clone());
    let of_rke = remuda_rke::Options {
        releases: site.releases.clone(),
        presence: site.presence.clone(),
        ..remuda_rke::Options::default()
    };
    vec![
        group(Component::Workloads, move |_, stop| remuda_workload::run(connections.clone(), stop)),
        group_of(Component::ClusterApi, remuda_capi::kinds(), move |ctx, stop| {
            remuda_capi::run(ctx, remuda_capi::Options::default(), cluster_api.clone(), stop)
        }),
        group(Component::Provisioning, move |ctx, stop| {
            remuda_provisioning::run(ctx, settings.clone(), stop)
        }),
        group_of(Component::ControlPlane, remuda_rke::kinds(), move |ctx, stop| {
            remuda_rke::run(ctx, of_rke.clone(), rke.clone(), stop)
        }),
        group(Component::Machines, move |ctx, stop| remuda_machines::run(ctx, machines.clone(), stop)),
        group(Component::Gateway, move |_, stop| {
            let gateway = gateway.clone();
            async move { gateway.run(stop).await }
        }),
        group(Component::Gateway, move |_, stop| {
            let (gateway, workloads) = (mirror.clone(), workloads.clone());
            async move { gateway.mirror_nodes(workloads, stop).await }
        }),
    ]
}

/// How jobs of machines reach their providers: as this server does.
fn proxies(variable: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let value = |name: &str| variable(name).or_else(|| variable(&name.to_lowercase()));
    let known = env::PROXIES.iter();
    known
        .filter_map(|name| Some(((*name).to_owned(), value(name).filter(|text| !text.is_empty())?)))
        .collect()
}

/// The images machines can have of a server, of bundles and of the registries it was told to mirror.
pub(crate) fn images(config: &Config, data_dir: &Path) -> Result<Arc<Images>, StartError> {
    let mut store = None;
    let mut mirrors = remuda_registry::Mirrors::new();
    if let Some(registries) = &config.registries {
        let opened = Store::open(&data_dir.join(file::IMAGE_CACHE), registries.cache_size);
        store = Some(Arc::new(opened.map_err(StartError::Images)?));
        mirrors = registries.mirrors().map_err(StartError::Config)?;
    }
    let images = Images::new(&data_dir.join(file::BUNDLES), store);
    images.set_mirrors(mirrors);
    Ok(Arc::new(images))
}

/// The gateway of a server, which has a name if there are others.
pub(crate) fn gateway(
    ctx: &Arc<Ctx>,
    people: &People,
    identity: Option<PeerIdentity>,
    registry: Arc<Images>,
    data_dir: &Path,
) -> Gateway {
    Gateway::new(GatewayOptions {
        registry: Some(registry),
        programs: Some(ProgramOptions {
            directory: data_dir.join(file::ASSETS),
            images: data_dir.join(file::AGENT_IMAGES),
            version: crate::VERSION.to_owned(),
        }),
        authorize: Some(people.authorize()),
        holders: Some(people.holders()),
        tunnel: ServerOptions { identity, ..remuda_gateway::tunnel_options() },
        ..GatewayOptions::new(ctx.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_use_the_proxies_of_the_server() {
        let found = proxies(|name| match name {
            "https_proxy" => Some("http://proxy:3128".to_owned()),
            "HTTP_PROXY" => Some(String::new()),
            "NO_PROXY" => Some("10.0.0.0/8".to_owned()),
            _ => None,
        });
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, [("HTTPS_PROXY", "http://proxy:3128"), ("NO_PROXY", "10.0.0.0/8")]);
    }
}
