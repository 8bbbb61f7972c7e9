//! The door `preflight`: whether machines of a cluster can get what their next plan needs, before anything is touched.
//!
//! Reads   the Cluster, with the caller's rights; settings, bundles, mirrored registries, programs that were added.
//! Writes  nothing. Manifests of mirrored registries are kept as those are that machines ask for.
//! Never   asks a registry that is not mirrored: whether a machine reaches one is not known here, and said so.

mod judge;

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode, header};
use kube::Api;
use remuda_api::{management::Setting, provisioning};
use remuda_control::Informer;
use remuda_distro::{Current, Distro, wanted::Wanted};
use remuda_door::{Access, Answer, Body, Call, Cookie, Door, Handler, Opening, Owned, Refusal, Shown};
use remuda_gateway::Gateway;
use remuda_names::{path, rancher::setting};
use remuda_oci::{Architecture, Format, Reference};
use remuda_planner::{distro, spec::ControlPlaneSpec};
use remuda_registry::Registry;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::judge::Item;
use crate::visible;

pub(crate) static PREFLIGHT: Door = Door {
    name: "preflight",
    purpose: "whether machines of a cluster can get what their next plan needs",
    paths: &[Owned::Exact(path::PREFLIGHT)],
    methods: &["GET"],
    access: Access::Authenticated,
    cookie: Cookie::Never,
    shown: Shown::Query,
    body: 0,
    personal: true,
};

/// Answers that are put together at one time: each may ask registries.
const AT_ONCE: usize = 4;
/// There are no more kinds of machines than this.
const PLATFORMS: usize = 8;

/// Where machines on this host find an installer without asking the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalImage {
    /// For people.
    pub at: String,
    /// What it installs brings all its images.
    pub needs_nothing: bool,
}

type Find = Box<dyn Fn(&Reference) -> Option<LocalImage> + Send + Sync>;

/// Finds installers of machines on this host. The groups tell how, for they know the driver; without it there are none.
#[derive(Clone, Default)]
pub struct LocalImages(Arc<OnceLock<Find>>);

impl LocalImages {
    /// The first one counts.
    pub fn tell(&self, find: impl Fn(&Reference) -> Option<LocalImage> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(find));
    }
}

pub(crate) struct Preflight {
    pub(crate) registry: Arc<Registry>,
    pub(crate) gateway: Gateway,
    pub(crate) settings: Informer<Setting>,
    pub(crate) releases: Current,
    pub(crate) local: LocalImages,
    turns: Semaphore,
}

impl Preflight {
    pub(crate) fn new(
        registry: Arc<Registry>,
        gateway: Gateway,
        settings: Informer<Setting>,
        releases: Current,
        local: LocalImages,
    ) -> Self {
        Self { registry, gateway, settings, releases, local, turns: Semaphore::new(AT_ONCE) }
    }

    pub(crate) fn opening(self) -> Opening {
        Opening { door: &PREFLIGHT, handler: Arc::new(self) }
    }

    async fn answer(&self, call: &Call) -> Answer {
        let needed = |name: &str| {
            call.query(name).filter(|value| !value.is_empty()).ok_or_else(|| {
                Refusal::bad(format!("{name}: name it, as in ?namespace=fleet-default&cluster=demo"))
            })
        };
        let (namespace, name) = (needed("namespace")?, needed("cluster")?);
        let platforms = platforms(&call.query("platform").unwrap_or_default())?;
        let clusters: Api<provisioning::Cluster> =
            Api::namespaced(call.management.client(&call.caller), &namespace);
        let cluster = clusters.get(&name).await.map_err(|error| match error {
            kube::Error::Api(status) => visible::refusal(&status),
            error => Refusal::failed("read the cluster", &error),
        })?;
        let Some(config) = &cluster.spec.rke_config else {
            return Err(Refusal::bad(format!("cluster {name} was imported: no plans are made for it")));
        };
        let version = match call.query("version").filter(|version| !version.is_empty()) {
            Some(version) => exact(&version)?,
            None => cluster.spec.kubernetes_version.clone(),
        };
        let spec = json!({
            "kubernetesVersion": version,
            "machineGlobalConfig": config.config.machine_global_config,
            "machineSelectorConfig": config.config.machine_selector_config,
        });
        let spec: ControlPlaneSpec = serde_json::from_value(spec).map_err(|error| {
            Refusal::bad(format!("spec.rkeConfig of cluster {name} cannot be read: {error}"))
        })?;
        let _turn = self.turns.acquire().await.map_err(|_| Refusal::not_yet("the server is stopping"))?;
        let agent = self.gateway.agent_image(&namespace, &name);
        let body = self.look(&spec, &platforms, agent.as_ref()).await?;
        let mut response = Response::new(Body::from(body.to_string()));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    async fn look(
        &self,
        spec: &ControlPlaneSpec,
        platforms: &[Platform],
        cluster_agent: Option<&Reference>,
    ) -> Result<Value, Refusal> {
        let settings = remuda_rke::settings::of_plans(&self.settings);
        let registry = &settings.system_default_registry;
        let name = distro::installer_image(spec, &settings.installer_image, registry);
        let image = Reference::parse(&name)
            .map_err(|error| Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
        let cluster_agent = judge::ClusterAgent {
            is_own: cluster_agent.is_some(),
            image: cluster_agent.map_or_else(
                || remuda_rke::settings::value(&self.settings, setting::AGENT_IMAGE),
                ToString::to_string,
            ),
            registry: registry.clone(),
        };
        let mut items = Vec::new();
        for platform in platforms {
            let agent = self.gateway.agent(platform.format, platform.architecture);
            items.push(judge::agent(*platform, &agent));
            items.push(match platform.format {
                Format::Windows => judge::windows(*platform, &name),
                Format::Linux => {
                    let found = self.registry.look(&image, platform.architecture.name()).await;
                    judge::installer(*platform, &name, &image, found)
                }
            });
            if platform.format == Format::Linux {
                items.push(judge::cluster_agent(*platform, &cluster_agent, &agent));
            }
        }
        items.extend(self.system(spec, registry).await);
        let local = self.local.clone();
        let local = tokio::task::spawn_blocking(move || local.0.get()?(&image)).await.ok().flatten();
        Ok(json!({
            "version": spec.kubernetes_version,
            "items": items.iter().map(Item::value).collect::<Vec<_>>(),
            "local": local.map(|local| json!({"at": local.at, "needsNothing": local.needs_nothing})),
        }))
    }

    /// What containerd pulls on the machines of a cluster, as far as release data knows it.
    async fn system(&self, spec: &ControlPlaneSpec, setting: &str) -> Option<Item> {
        let version = &spec.kubernetes_version;
        let catalog = self.releases.get();
        let releases = catalog.of(Distro::of(version));
        let release = releases.list().iter().find(|release| release.version == *version)?;
        let (registry, _) = distro::system_registry(spec, setting);
        let images = judge::system_images(&release.images, registry);
        let mut here = 0;
        for image in images.iter().filter_map(|image| Reference::parse(image).ok()) {
            // Mirrors are not asked: machines do not pull these through this server.
            here += usize::from(self.registry.is_bundled(&image).await);
        }
        (!images.is_empty()).then(|| judge::system(version, registry, images, here))
    }
}

impl Handler for Preflight {
    fn handle(&self, call: Call, _: Body) -> BoxFuture<'_, Answer> {
        Box::pin(async move { self.answer(&call).await })
    }
}

/// A kind of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Platform {
    pub(crate) format: Format,
    pub(crate) architecture: Architecture,
}

/// `linux/amd64,linux/arm64`; this server's own if none is named.
fn platforms(text: &str) -> Result<Vec<Platform>, Refusal> {
    let mut found = Vec::new();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let platform = word.split_once('/').and_then(|(system, architecture)| {
            let format = match system {
                "linux" => Format::Linux,
                "windows" => Format::Windows,
                _ => return None,
            };
            Some(Platform { format, architecture: Architecture::named(architecture)? })
        });
        let platform = platform
            .ok_or_else(|| Refusal::bad("platform: one such as linux/amd64, several separated by commas"))?;
        if !found.contains(&platform) {
            found.push(platform);
        }
    }
    if found.len() > PLATFORMS {
        return Err(Refusal::bad(format!("platform: at most {PLATFORMS} at a time")));
    }
    if found.is_empty() {
        let own = Architecture::own();
        found.extend(own.map(|architecture| Platform { format: Format::Linux, architecture }));
    }
    Ok(found)
}

fn exact(version: &str) -> Result<String, Refusal> {
    match Wanted::parse(version) {
        Some(Wanted::Exact(version)) => Ok(version),
        _ => Err(Refusal::bad("version: a whole one, such as v1.35.1+k3s1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_machines_are_read_or_refused() {
        let names = |text: &str| {
            let found = platforms(text).map_err(|refusal| refusal.message)?;
            Ok::<_, String>(found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(names("linux/arm64,windows/amd64,linux/arm64"), Ok("linux/arm64 windows/amd64".into()));
        assert_eq!(names(""), Ok(format!("linux/{}", Architecture::own().unwrap())));
        for bad in ["amd64", "linux/x", "plan9/amd64", "linux/amd64;x"] {
            assert!(names(bad).unwrap_err().contains("one such as linux/amd64"), "{bad}");
        }
    }

    #[test]
    fn only_a_whole_version_can_be_looked_for() {
        assert_eq!(exact("1.35.1+k3s1").unwrap(), "v1.35.1+k3s1");
        for bad in ["stable", "1.35", "../x", "v1.35.1"] {
            assert!(exact(bad).is_err(), "{bad}");
        }
    }
}
