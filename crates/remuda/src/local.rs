//! Machines on this host: what the server and its jobs have to know to make them.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use remuda_agent::image::tarball;
use remuda_distro::Catalog;
use remuda_drivers::builtin::Registry;
use remuda_names::env;
use remuda_oci::Reference;
use remuda_sandbox::{
    driver::NAME,
    machines::{Image, Images, Options, Sandbox},
    server::ServerAddress,
};
use remuda_sandbox_distro::{Distribution, installer};
use remuda_server::{
    config::LocalMachines,
    controllers::Run,
    groups::{self, Site},
    preflight::LocalImage,
};
use tracing::warn;

use crate::failure::chain;

/// Where machines have this program.
const PROGRAM: &str = remuda_names::sandbox::PROGRAM;

/// The drivers of this program.
pub(crate) fn drivers(data_dir: &Path, machines: LocalMachines) -> Registry {
    let options = options(data_dir, machines);
    Registry::standard().with(NAME, true, move |context| remuda_sandbox::driver(options.clone(), context.log))
}

/// How machines are kept, as a server tells its jobs.
pub(crate) fn told() -> LocalMachines {
    match std::env::var_os(env::LOCAL_MACHINES) {
        Some(told) if told == LocalMachines::Privileged.as_str() => LocalMachines::Privileged,
        _ => LocalMachines::Isolated,
    }
}

/// `machines` counts for those that are made; others stay what they are.
pub(crate) fn options(data_dir: &Path, machines: LocalMachines) -> Options {
    Options {
        privileged: machines == LocalMachines::Privileged,
        data_dir: data_dir.to_owned(),
        program: std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into()),
        images: Images(Arc::new(|| images().into_iter().map(|(_, image)| image).collect())),
    }
}

/// Versions as which the sandbox distribution can be installed, beside those of channels. Any other needs a real
/// installer.
const RELEASES: [&str; 6] = ["v1.33.5", "v1.33.6", "v1.34.1", "v1.34.2", "v1.35.0", "v1.35.1"];

/// Installers of the sandbox distribution, and what they are called.
fn images() -> Vec<(String, Image)> {
    let catalog = Catalog::shipped();
    let of = |distribution: Distribution| {
        let own = RELEASES.iter().map(|release| format!("{release}+{}", distribution.first_build()));
        let channels = catalog.of(distribution).channels().into_iter().map(|(_, version)| version.to_owned());
        let versions: BTreeSet<String> = own.chain(channels).collect();
        versions.into_iter().map(move |version| {
            let image = Image {
                file: format!("{distribution}-{}.tar", version.replace('+', "-")),
                bytes: installer::image(distribution, &version, PROGRAM),
            };
            (installer::image_name(distribution, &version), image)
        })
    };
    Distribution::ALL.into_iter().flat_map(of).collect()
}

/// What runs in a server of this program. Machines on this host learn where it is.
pub(crate) fn groups(site: &Site) -> Vec<Run> {
    let connect = site.local_url.strip_prefix("https://").map(str::to_owned);
    let server = ServerAddress { url: site.server_url.clone(), connect };
    if let Err(error) = Sandbox::publish_server(&site.data_dir, &server) {
        warn!(error = chain(&error), "machines on this host will not find this server");
    }
    let sandbox = Sandbox::new(options(&site.data_dir, site.local_machines));
    // Machines outlive the server, but not the host.
    tokio::task::spawn_blocking(move || {
        if let Err(error) = sandbox.resume() {
            warn!(error = chain(&error), "machines on this host were not started again");
        }
    });
    site.local_images.tell(finder(&site.data_dir, site.local_machines));
    groups::with_drivers(site, drivers(&site.data_dir, site.local_machines))
}

/// Where machines on this host find an installer without asking the server: what people put there comes first.
fn finder(data_dir: &Path, machines: LocalMachines) -> impl Fn(&Reference) -> Option<LocalImage> + use<> {
    let directory = Sandbox::new(options(data_dir, machines)).images();
    move |wanted| {
        let own =
            images().iter().any(|(name, _)| Reference::parse(name).is_ok_and(|own| own.same_tag(wanted)));
        let found = tarball::find(&directory, wanted).ok().flatten();
        let found = found.filter(|found| !Sandbox::is_own_image(&found.path)).map(|found| {
            let at = found.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            LocalImage { at: format!("{at}, which every machine on this host sees"), needs_nothing: false }
        });
        let sandbox = || LocalImage {
            at: "the sandbox distribution, which is part of the server".to_owned(),
            needs_nothing: true,
        };
        found.or_else(|| own.then(sandbox))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_driver_of_this_program_is_complete() {
        let drivers = drivers(Path::new("/nonexistent"), LocalMachines::Isolated);
        assert!(drivers.has(NAME));
        assert_eq!(remuda_machines::conformance::complaints(&drivers).await, [""; 0]);
    }
}
