//! Machines on this host: what the server and its jobs have to know to make them.

use std::{path::Path, sync::Arc};

use remuda_drivers::builtin::Registry;
use remuda_node::{Distribution, installer};
use remuda_planner::{distro::Distro, release::Metadata};
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

/// The sandbox distribution, as an installer of every version there is.
fn images() -> Vec<Image> {
    let releases = Metadata::bundled();
    let of = |distro: Distro, distribution: Distribution| {
        let versions = releases.versions(distro, None).into_iter();
        let image = move |version: &str| Image {
            file: format!("{}-{}.tar", distribution.name(), version.replace('+', "-")),
            bytes: installer::image(distribution, version, PROGRAM),
        };
        versions.map(image).collect::<Vec<_>>()
    };
    let mut images = of(Distro::K3s, Distribution::K3s);
    images.extend(of(Distro::Rke2, Distribution::Rke2));
    images
}

/// What runs in a server of this program. Machines on this host learn where it is.
pub(crate) fn groups(site: &Site) -> Vec<Run> {
    let connect = site.local_url.strip_prefix("https://").map(str::to_owned);
    let server = ServerAddress { url: site.server_url.clone(), connect };
    if let Err(error) = Sandbox::publish_server(&site.data_dir, &server) {
        warn!(error = chain(&error), "machines on this host will not find this server");
    }
    groups::with_drivers(site, drivers(&site.data_dir))
}
