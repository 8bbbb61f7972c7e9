//! `remuda up --real`: K3s or RKE2 itself on machines of this host, from a bundle or from what is there already.
//!
//! Everything that can be refused is refused before anything is made ([`Wanted::check`]). Then, with the server up,
//! installer and images are put where all machines of this host see them ([`Wanted::place`]).

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use remuda_agent::image::tarball;
use remuda_cli::{Code, Failure, counted, generate::ClusterShape};
use remuda_distro::{Distro, version};
use remuda_oci::{
    Architecture, Reference,
    agent::{self, Build},
    archive,
};
use remuda_registry::{Bundle, BundleError};
use remuda_sandbox::{
    machines::Sandbox,
    volume::{Volume, VolumeError},
};
use remuda_server::{
    config::{Bind, LocalMachines, Options, outside_address},
    datadir::DataDir,
};

use super::wrong;
use crate::{doctor, local, output};

#[derive(Args)]
pub(super) struct Arguments {
    /// K3s or RKE2 itself instead of the sandbox distribution; needs root
    ///
    /// Machines have the host's root then: users who may create Pods in the cluster can do everything on this host.
    #[arg(long, help_heading = "Cluster")]
    pub(super) real: bool,

    /// Where its installer and images come from: a file that remuda bundle create made
    #[arg(long, value_name = "FILE", requires = "real", help_heading = "Cluster")]
    pub(super) bundle: Option<PathBuf>,

    /// A directory of this host, and where machines that are made from now on see it; can be repeated
    #[arg(long = "volume", value_name = "HOST:NODE", requires = "real", help_heading = "Machines")]
    pub(super) volumes: Vec<String>,
}

/// What people are to know of it.
pub(super) const WARNING: &str = "machines of this cluster have the host's root: whoever may create Pods in it can do everything on this host";

/// The image that installs a distribution, below whichever registry.
const INSTALLER: &str = "system-agent-installer-";
/// Where machines listen in the server's place if the host has no address but its own: one of their network.
const INSIDE: &str = "10.213.0.1";
/// Kubelets from here on do not start on control groups of the old form unless they are told to.
const REFUSES_OLD_GROUPS: (u64, u64) = (1, 35);

/// What is to be brought up.
pub(super) struct Wanted {
    pub(super) version: String,
    bundle: Option<Bundle>,
    /// Name of the installer in the bundle.
    installer: String,
    volumes: Vec<Volume>,
}

impl Wanted {
    /// Finds out whether it can be, and changes nothing. `asked` is the version of the cluster if nothing were said about
    /// bundles.
    pub(super) fn check(
        arguments: &Arguments,
        shape: &ClusterShape,
        asked: &str,
        data_dir: &Path,
    ) -> Result<Wanted, Failure> {
        let elsewhere = shape.driver.as_deref().is_some_and(|driver| driver != remuda_sandbox::driver::NAME);
        if elsewhere || shape.custom {
            return Err(Failure::new(Code::Invalid, "--real is for machines on this host")
                .hint("others have the real distribution anyway: leave it out"));
        }
        doctor::can_be_real(data_dir)?;
        if DataDir::is_locked(data_dir) {
            let message = format!(
                "a server is running on {} already, and keeps its machines its way",
                data_dir.display()
            );
            return Err(Failure::new(Code::Conflict, message).hint(
                "end it first, or name another directory with --data-dir and another port with --bind",
            ));
        }
        let volumes = arguments.volumes.iter().map(|text| {
            let refused = |error: VolumeError| Failure::new(Code::Invalid, format!("--volume {error}"));
            Volume::parse(text).map_err(refused)
        });
        let volumes = volumes.collect::<Result<Vec<Volume>, Failure>>()?;
        let bundle = match &arguments.bundle {
            None => None,
            Some(path) => {
                let own = Architecture::own().map(Architecture::name);
                let bundle = Bundle::open(path).map_err(|error| unusable(&error))?;
                bundle.verify(own).map_err(|error| unusable(&error))?;
                Some(bundle)
            }
        };
        match bundle {
            Some(bundle) => {
                let named = shape.version.as_ref().map(|_| asked);
                let distro = shape.distribution.map(|_| Distro::of(asked));
                let (version, installer) = choose(bundle.index().images.keys(), named, distro)?;
                Ok(Wanted { version, bundle: Some(bundle), installer, volumes })
            }
            None => {
                let name = format!("rancher/{INSTALLER}{}:{}", Distro::of(asked), asked.replace('+', "-"));
                let wanted = Reference::parse(&name)
                    .map_err(|error| Failure::new(Code::Invalid, error.to_string()))?;
                let directory = sandbox(data_dir).images();
                let found = tarball::find(&directory, &wanted).ok().flatten();
                if found.is_none_or(|found| Sandbox::is_own_image(&found.path)) {
                    let message = format!("there is no installer of {asked} on this host");
                    return Err(Failure::new(Code::NotFound, message).hint(format!(
                        "bring it with --bundle FILE; where there is internet, remuda bundle create FILE {name} and the \
                         images of the release make one"
                    )));
                }
                Ok(Wanted { version: asked.to_owned(), bundle: None, installer: name, volumes })
            }
        }
    }

    /// How the server is to run for it. Whether people said what its address is.
    pub(super) fn configure(options: &mut Options) -> bool {
        let told = options.advertise.is_some();
        options.local_machines = Some(LocalMachines::Privileged);
        // The agent in the cluster is a Pod, and the host's loopback address leads a Pod to itself.
        let outside = || outside_address().map_or_else(|| INSIDE.to_owned(), |address| address.to_string());
        options.advertise.get_or_insert_with(outside);
        told
    }

    /// An address that Pods cannot reach is no server to them, however well people do.
    pub(super) fn check_address(bind: Bind, told: bool) -> Result<(), Failure> {
        match bind {
            Bind::At(address) if address.ip().is_loopback() && !told => {
                let message = format!("--real with --bind {address}: Pods do not reach that address");
                Err(Failure::new(Code::Invalid, message).hint(
                    "bind to all addresses, such as 0.0.0.0:9443, or name another one with --advertise",
                ))
            }
            _ => Ok(()),
        }
    }

    /// What the cluster is to be like.
    pub(super) fn shape(&self, shape: &mut ClusterShape) {
        shape.version = Some(self.version.clone());
        shape.distribution = None;
        let is_unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        shape.arguments.extend(old_groups(is_unified, &self.version, &shape.arguments));
    }

    /// Puts installer and images where machines find them. What is there already stays.
    pub(super) fn place(&self, data_dir: &Path) -> Result<(), Failure> {
        let sandbox = sandbox(data_dir);
        let (images, preloaded) = (sandbox.images(), sandbox.preloaded());
        for directory in [&images, &preloaded] {
            fs::create_dir_all(directory)
                .map_err(|error| wrong(&format!("make {}", directory.display()), &error))?;
        }
        if !self.volumes.is_empty() {
            sandbox.set_volumes(&self.volumes).map_err(|error| wrong("write down the volumes", &error))?;
        }
        if let Some(bundle) = &self.bundle {
            let name = |digest: &str| {
                let hex: String = digest.trim_start_matches("sha256:").chars().take(12).collect();
                format!("bundle-{hex}.tar")
            };
            let all = &bundle.index().images;
            let installer = all.get(&self.installer).map(String::as_str).unwrap_or_default();
            let system: Vec<&str> =
                all.keys().map(String::as_str).filter(|name| version_of(name).is_none()).collect();
            unpack(bundle, &[&self.installer], &images.join(name(installer)))?;
            if !system.is_empty() {
                unpack(bundle, &system, &preloaded.join(name(&bundle.digest().to_string())))?;
            }
        }
        agent_image(&preloaded)
    }
}

fn sandbox(data_dir: &Path) -> Sandbox {
    Sandbox::new(local::options(data_dir, LocalMachines::Privileged))
}

fn unpack(bundle: &Bundle, images: &[&str], path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Ok(());
    }
    let own = Architecture::own().map_or("", Architecture::name);
    bundle.archive(images, own, path).map_err(|error| unusable(&error))?;
    output::note(&format!(
        "{} of the bundle are there for machines of this host",
        counted(images.len(), "image")
    ));
    Ok(())
}

/// The image of the agent that runs in the cluster: machines of this host import what all of them see, and are given
/// nothing else.
fn agent_image(preloaded: &Path) -> Result<(), Failure> {
    let failed = |error: &dyn std::error::Error| wrong("make the image of the cluster agent", error);
    let build = Build::look(Path::new("/proc/self/exe")).map_err(|error| failed(&error))?;
    let short: String = build.digest.hex().chars().take(12).collect();
    let path = preloaded.join(format!("remuda-agent-{short}.tar"));
    if path.exists() {
        return Ok(());
    }
    output::note("making the image of the cluster agent …");
    let name = format!("{}:v{}", remuda_names::cluster_agent::IMAGE, build.version);
    let name = Reference::parse(&name).map_err(|error| failed(&error))?;
    let scratch = tempfile::Builder::new().prefix(".remuda-image-").tempdir_in(preloaded);
    let scratch = scratch.map_err(|error| failed(&error))?;
    let image = agent::build(scratch.path(), &build).map_err(|error| failed(&error))?;
    // It gets its name when it is whole: everything that ends so is imported.
    let pending = scratch.path().join("archive");
    let out = fs::File::create_new(&pending).map_err(|error| failed(&error))?;
    archive::write(&image, &name, std::io::BufWriter::new(out)).map_err(|error| failed(&error))?;
    fs::rename(&pending, &path).map_err(|error| failed(&error))
}

fn unusable(error: &BundleError) -> Failure {
    let code = match error {
        BundleError::Read { .. } | BundleError::Write { .. } => Code::Other,
        _ => Code::Invalid,
    };
    let failure = Failure::new(code, crate::failure::chain(error));
    match error {
        BundleError::Part { .. } => {
            failure.hint("copy the bundle again, or make it anew with remuda bundle create")
        }
        BundleError::Architecture { .. } => {
            failure.hint("remuda bundle create … --architecture makes one for this host")
        }
        _ => failure,
    }
}

/// The version an installer installs, by its name; `None` for other images.
fn version_of(image: &str) -> Option<String> {
    let reference = Reference::parse(image).ok()?;
    let distro = reference.repository.rsplit('/').next()?.strip_prefix(INSTALLER)?;
    let distro = Distro::named(distro)?;
    let (version, build) = reference.tag.rsplit_once('-')?;
    build.starts_with(distro.name()).then(|| format!("{version}+{build}"))
}

/// Version and name of the installer that is meant, of those in a bundle.
fn choose<'a>(
    images: impl Iterator<Item = &'a String>,
    named: Option<&str>,
    distro: Option<Distro>,
) -> Result<(String, String), Failure> {
    let mut all: Vec<(String, String)> =
        images.filter_map(|image| Some((version_of(image)?, image.clone()))).collect();
    let listed: BTreeSet<&str> = all.iter().map(|(version, _)| version.as_str()).collect();
    let listed = listed.into_iter().collect::<Vec<_>>().join(", ");
    if all.is_empty() {
        return Err(Failure::new(Code::Invalid, "the bundle has no installer of K3s or RKE2")
            .hint("remuda bundle create FILE rancher/system-agent-installer-k3s:VERSION … puts one in"));
    }
    all.retain(|(version, _)| {
        named.is_none_or(|named| named == version)
            && distro.is_none_or(|distro| Distro::of(version) == distro)
    });
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => {
            let what = named
                .map_or_else(|| distro.map_or_else(String::new, |distro| distro.to_string()), str::to_owned);
            Err(Failure::new(Code::NotFound, format!("the bundle has no installer of {what}"))
                .hint(format!("it has {listed}")))
        }
        _ => Err(Failure::new(Code::Invalid, "the bundle has several installers")
            .hint(format!("name one with --version: {listed}"))),
    }
}

/// What a kubelet has to be told on a host with control groups of the old form, unless people tell it something.
fn old_groups(is_unified: bool, kubernetes: &str, arguments: &[String]) -> Option<String> {
    let new = version::parse(kubernetes)
        .is_some_and(|version| (version.major, version.minor) >= REFUSES_OLD_GROUPS);
    let told = arguments.iter().any(|argument| argument.starts_with("kubelet-arg="));
    (new && !is_unified && !told).then(|| "kubelet-arg=[fail-cgroupv1=false]".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const K3S: &str = "docker.io/rancher/system-agent-installer-k3s:v1.35.1-k3s1";
    const RKE2: &str = "docker.io/rancher/system-agent-installer-rke2:v1.35.1-rc2-rke2r1";
    const PAUSE: &str = "docker.io/rancher/mirrored-pause:3.6";

    #[track_caller]
    fn check(images: &[&str], named: Option<&str>, distro: Option<Distro>, expected: &str) {
        let images: Vec<String> = images.iter().map(|image| (*image).to_owned()).collect();
        let found = match choose(images.iter(), named, distro) {
            Ok((version, image)) => format!("{version} of {image}"),
            Err(failure) => format!("{}; {}", failure.message, failure.hint.unwrap_or_default()),
        };
        assert!(found.starts_with(expected), "{found}");
    }

    #[test]
    fn the_installer_in_a_bundle_says_the_version() {
        check(&[K3S, PAUSE], None, None, &format!("v1.35.1+k3s1 of {K3S}"));
        check(&[K3S, RKE2], None, Some(Distro::Rke2), &format!("v1.35.1-rc2+rke2r1 of {RKE2}"));
        check(&[K3S, RKE2], Some("v1.35.1+k3s1"), None, &format!("v1.35.1+k3s1 of {K3S}"));
        let both = "name one with --version: v1.35.1+k3s1, v1.35.1-rc2+rke2r1";
        check(&[K3S, RKE2], None, None, &format!("the bundle has several installers; {both}"));
        check(&[PAUSE], None, None, "the bundle has no installer of K3s or RKE2; remuda bundle create");
        check(
            &[K3S],
            Some("v1.34.0+k3s1"),
            None,
            "the bundle has no installer of v1.34.0+k3s1; it has v1.35.1+k3s1",
        );
    }

    #[test]
    fn kubelets_are_told_about_old_control_groups_where_they_must_be() {
        let told = Some("kubelet-arg=[fail-cgroupv1=false]".to_owned());
        assert_eq!(old_groups(false, "v1.35.1+k3s1", &[]), told);
        assert_eq!(old_groups(true, "v1.35.1+k3s1", &[]), None);
        assert_eq!(old_groups(false, "v1.34.9+k3s1", &[]), None);
        assert_eq!(old_groups(false, "v1.36.0+k3s1", &["kubelet-arg=[v=2]".to_owned()]), None);
    }
}
