//! What runs on the API of this server: who gets which way to workload clusters, and which options.

use std::{num::NonZeroUsize, path::PathBuf, sync::Arc};

use remuda_control::Ctx;
use remuda_drivers::builtin::Registry;
use remuda_gateway::{Gateway, GatewayOptions, TunnelConnect};
use remuda_tunnel::server::{PeerIdentity, ServerOptions};
use remuda_workload::{KubeconfigSecret, Workloads};

use crate::{
    controllers::{Run, group, group_of},
    people::People,
};

/// What the groups are told about the server they run in.
pub struct Site {
    pub ctx: Arc<Ctx>,
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
}

/// All of them, with the drivers that come with us.
pub fn all(site: &Site) -> Vec<Run> {
    with_drivers(site, Registry::standard())
}

/// All of them, with these drivers.
pub fn with_drivers(site: &Site, drivers: Registry) -> Vec<Run> {
    let other = Arc::new(KubeconfigSecret::new(&site.ctx));
    let connect = Arc::new(TunnelConnect::new(&site.gateway, Some(other)));
    let workloads = Workloads::new(site.ctx.clone(), remuda_workload::Options::default(), connect);
    let settings = remuda_provisioning::Options {
        server_url: site.server_url.clone(),
        ca_pem: site.ca_pem.clone(),
        system_agent_version: format!("v{}", crate::VERSION),
        server_version: format!("v{}", crate::VERSION),
        ..remuda_provisioning::Options::default()
    };
    let machines = remuda_machines::Options::new(drivers, site.local_url.clone(), site.data_dir.clone());
    let machines = remuda_machines::Options {
        server_ca: Some(site.ca_pem.clone()).filter(|pem| !pem.is_empty()),
        environment: proxies(|name| std::env::var_os(name)?.into_string().ok()),
        processes: site.machine_jobs.map_or(machines.processes, NonZeroUsize::get),
        concurrency: site.machine_jobs_per_credential.map_or(machines.concurrency, NonZeroUsize::get),
        ..machines
    };
    let (connections, cluster_api, rke) = (workloads.clone(), workloads.clone(), workloads);
    let gateway = site.gateway.clone();
    vec![
        group(move |_, stop| remuda_workload::run(connections.clone(), stop)),
        group_of(remuda_capi::kinds(), move |ctx, stop| {
            remuda_capi::run(ctx, remuda_capi::Options::default(), cluster_api.clone(), stop)
        }),
        group(move |ctx, stop| remuda_provisioning::run(ctx, settings.clone(), stop)),
        group_of(remuda_rke::kinds(), move |ctx, stop| {
            remuda_rke::run(ctx, remuda_rke::Options::default(), rke.clone(), stop)
        }),
        group(move |ctx, stop| remuda_machines::run(ctx, machines.clone(), stop)),
        group(move |_, stop| {
            let gateway = gateway.clone();
            async move { gateway.run(stop).await }
        }),
    ]
}

/// How jobs of machines reach their providers: as this server does.
fn proxies(variable: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let value = |name: &str| variable(name).or_else(|| variable(&name.to_lowercase()));
    let known = remuda_names::env::PROXIES.iter();
    known
        .filter_map(|name| Some(((*name).to_owned(), value(name).filter(|text| !text.is_empty())?)))
        .collect()
}

/// The gateway of a server, which has a name if there are others.
pub(crate) fn gateway(ctx: &Arc<Ctx>, people: &People, identity: Option<PeerIdentity>) -> Gateway {
    Gateway::new(GatewayOptions {
        authorize: Some(people.authorize()),
        audit: Some(people.audit()),
        holders: Some(people.holders()),
        tunnel: ServerOptions { identity, ..remuda_gateway::tunnel_options() },
        ..GatewayOptions::new(ctx.clone(), people.authenticate())
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
