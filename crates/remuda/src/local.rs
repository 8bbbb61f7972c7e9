//! Machines on this host: what the server and its jobs have to know to make them.

use std::{path::Path, sync::Arc};

use remuda_drivers::builtin::Registry;
use remuda_node::{Distribution, installer};
use remuda_sandbox::{
    driver::NAME,
    machines::{Image, Images, Options, Sandbox},
    server::ServerAddress,
};
use remuda_server::{
    controllers::Run,
    groups::{self, Site},
};
use tracing::warn;

use crate::failure::chain;

/// Where machines have this program.
const PROGRAM: &str = "/opt/remuda/remuda";

/// The drivers of this program.
pub(crate) fn drivers(data_dir: &Path) -> Registry {
    let options = options(data_dir);
    Registry::standard().with(NAME, true, move |context| remuda_sandbox::driver(options.clone(), context.log))
}

pub(crate) fn options(data_dir: &Path) -> Options {
    Options {
        data_dir: data_dir.to_owned(),
        program: std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into()),
        images: Images(Arc::new(images)),
    }
}

/// Versions as which the sandbox distribution can be installed. Any other needs a real installer.
const RELEASES: [&str; 6] = ["v1.33.5", "v1.33.6", "v1.34.1", "v1.34.2", "v1.35.0", "v1.35.1"];

fn images() -> Vec<Image> {
    let of = |distribution: Distribution, build: &'static str| {
        RELEASES.iter().map(move |release| Image {
            file: format!("{}-{release}-{build}.tar", distribution.name()),
            bytes: installer::image(distribution, &format!("{release}+{build}"), PROGRAM),
        })
    };
    of(Distribution::K3s, "k3s1").chain(of(Distribution::Rke2, "rke2r1")).collect()
}

/// What runs in a server of this program. Machines on this host learn where it is.
pub(crate) fn groups(site: &Site) -> Vec<Run> {
    let connect = site.local_url.strip_prefix("https://").map(str::to_owned);
    let server = ServerAddress { url: site.server_url.clone(), connect };
    if let Err(error) = Sandbox::publish_server(&site.data_dir, &server) {
        warn!(error = chain(&error), "machines on this host will not find this server");
    }
    let sandbox = Sandbox::new(options(&site.data_dir));
    // Machines outlive the server, but not the host.
    tokio::task::spawn_blocking(move || {
        if let Err(error) = sandbox.resume() {
            warn!(error = chain(&error), "machines on this host were not started again");
        }
    });
    groups::with_drivers(site, drivers(&site.data_dir))
}
