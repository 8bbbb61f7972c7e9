//! The plan a machine should have.
//!
//! The order of files and the bytes of those that are not dynamic go into the restart stamp: changing
//! either restarts the distribution on every node of every cluster.

mod addresses;
mod config;
mod encryption;
mod files;
mod install;
mod manifests;
mod operations;
mod probes;
mod registries;
mod s3;
mod values;

pub(crate) use self::{
    encryption::{STATUS as ENCRYPTION_STATUS, periodic_status},
    operations::VERIFY,
};
use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};

use remuda_distro::Distro;
use remuda_names::rancher::annotation;

use crate::{
    distro,
    entry::Entry,
    input::{AgentManifest, Input, Taint, Tokens},
    node_plan::{File, NodePlan},
    operation::renewal,
    selector::BadSelector,
};

/// Why a machine's plan cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unrenderable {
    /// A server still in the making. Holds up its own tier only.
    #[error("waiting for machine {namespace}/{machine} driver config to be saved")]
    DriverConfig { namespace: String, machine: String },
    #[error("no suitable join URL found to join machine {namespace}/{machine} in rkecluster {cluster} to")]
    NoJoinUrl { namespace: String, machine: String, cluster: String },
    #[error("implausible joined server for entry")]
    ImplausibleServer,
    #[error("no cluster registration token found")]
    NoToken,
    #[error(transparent)]
    Selector(#[from] BadSelector),
    #[error("annotation {key} of machine {machine} is not valid JSON")]
    Annotation { key: &'static str, machine: String },
    #[error("{kind} {namespace}/{name} not found")]
    NotFound { kind: &'static str, namespace: String, name: String },
    #[error("secret [{name}] must be of type [{expected}]")]
    SecretType { name: String, expected: String },
    #[error("pull secret {name:?} has no credentials for registry {registry:?}")]
    NoCredentials { name: String, registry: String },
    #[error("caBundle of registry {registry:?} is not valid base64")]
    CaBundle { registry: String },
    #[error(
        "error rendering files: cluster {cluster} was not authorized to access {kind} {namespace}/{name}"
    )]
    Unauthorized { cluster: String, kind: &'static str, namespace: String, name: String },
    #[error("{kind} {name} does not contain the expected content")]
    UnexpectedContent { kind: &'static str, name: String },
    #[error(
        "secret {namespace}/{secret} and configmap {namespace}/{config_map} cannot both be defined at the \
         same time for files, use separate entries"
    )]
    TwoSources { namespace: String, secret: String, config_map: String },
    #[error(
        "provided value for cloud-provider-config secret is malformed, must be of the format \
         secret://namespace:name"
    )]
    CloudConfigFormat,
    #[error(
        "the secret 'secret://{namespace}:{name}' provided within the cloud-provider-config does not belong \
         to cluster '{cluster}'"
    )]
    CloudConfigForeign { namespace: String, name: String, cluster: String },
    #[error(
        "the cloud-provider-config specified a secret, but no config could be found within the secret \
         'secret://{namespace}:{name}'"
    )]
    CloudConfigEmpty { namespace: String, name: String },
}

impl Unrenderable {
    /// Later tiers may go on.
    pub fn is_ignorable(&self) -> bool {
        matches!(self, Unrenderable::DriverConfig { .. })
    }
}

/// A plan and the server it makes the node join.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Desired {
    pub(crate) plan: NodePlan,
    /// The plan as it is stored.
    pub(crate) bytes: Vec<u8>,
    /// What becomes of annotation `joined-to`; empty on the init node, `None` leaves it.
    pub(crate) joined_to: Option<String>,
}

/// By whether the node is a server, and which selectors match.
type UserConfigs = BTreeMap<(bool, Vec<bool>), Rc<config::Config>>;

/// Renders plans of one cluster; what is the same for all machines is made once.
pub(crate) struct Renderer<'a> {
    input: &'a Input,
    tokens: &'a Tokens,
    distro: Distro,
    data_dir: String,
    image: String,
    initialized: bool,
    registries: Result<registries::Rendered, Unrenderable>,
    charts: [OnceCell<File>; 2],
    agent: RefCell<BTreeMap<Vec<Taint>, Arc<str>>>,
    user_configs: RefCell<UserConfigs>,
    script: OnceCell<File>,
}

impl<'a> Renderer<'a> {
    pub(crate) fn new(input: &'a Input, tokens: &'a Tokens, initialized: bool) -> Renderer<'a> {
        let spec = &input.control_plane.spec;
        let settings = &input.settings;
        Renderer {
            input,
            tokens,
            distro: Distro::of(&spec.kubernetes_version),
            data_dir: distro::data_dir(spec),
            image: distro::installer_image(
                spec,
                &settings.installer_image,
                &settings.system_default_registry,
            ),
            initialized,
            registries: registries::render(input),
            charts: [OnceCell::new(), OnceCell::new()],
            agent: RefCell::default(),
            user_configs: RefCell::default(),
            script: OnceCell::new(),
        }
    }

    /// The plan of `entry`. `join_server` is empty for the init node, and for nodes that stay where they are.
    pub(crate) fn desired(&self, entry: &Entry<'_>, join_server: &str) -> Result<Desired, Unrenderable> {
        let spec = &self.input.control_plane.spec;
        let mut plan = NodePlan::default();
        let mut config = BTreeMap::new();
        let mut drain_config = None;
        let mut joined_to = None;
        if !spec.unmanaged_config {
            let rendered = self.files(entry, join_server)?;
            plan.files = rendered.files;
            config = rendered.config;
            drain_config = Some((rendered.config_at, rendered.drain_text));
            joined_to = Some(rendered.joined_to);
        }
        plan.probes = probes::probes(self, entry, &config);
        plan.instructions.push(install::install(self, entry, &plan.files, drain_config.as_ref()));
        if entry.init
            && entry.roles.only_etcd()
            && !entry.has_annotation(annotation::JOIN_URL_AUTOSET_DISABLED)
        {
            plan.periodic_instructions = install::periodic(self);
        }
        if renewal::is_wanted(&self.input.control_plane) && !entry.windows {
            plan.periodic_instructions.push(install::certificates(self));
        }
        if entry.windows && self.initialized {
            let (file, instruction) = install::windows_permissions();
            plan.files.push(file);
            plan.instructions.push(instruction);
        }
        let bytes = plan.encode();
        Ok(Desired { plan, bytes, joined_to })
    }

    /// Taints of a node: its own, and those of its roles.
    fn taints(&self, entry: &Entry<'_>) -> Result<Vec<Taint>, Unrenderable> {
        let mut taints: Vec<Taint> = match entry.annotation(annotation::TAINTS) {
            "" => Vec::new(),
            text => serde_json::from_str::<Option<Vec<Taint>>>(text)
                .map_err(|_| Unrenderable::Annotation {
                    key: annotation::TAINTS,
                    machine: entry.name().to_owned(),
                })?
                .unwrap_or_default(),
        };
        let role = |key: &str, effect: &str| Taint {
            key: key.to_owned(),
            value: String::new(),
            effect: effect.to_owned(),
        };
        if !entry.roles.worker {
            if entry.roles.etcd && (self.distro != Distro::K3s || !entry.roles.control_plane) {
                taints.push(role("node-role.kubernetes.io/etcd", "NoExecute"));
            }
            if entry.roles.control_plane {
                taints.push(role("node-role.kubernetes.io/control-plane", "NoSchedule"));
            }
        }
        Ok(taints)
    }

    /// The agent manifest with tolerations for the taints of `entry`, base64.
    fn agent_manifest(&self, entry: &Entry<'_>) -> Result<Arc<str>, Unrenderable> {
        use base64::{Engine, prelude::BASE64_STANDARD};

        let agent = match &self.input.agent_manifest {
            AgentManifest::Local => return Ok("".into()),
            AgentManifest::NoToken => return Err(Unrenderable::NoToken),
            AgentManifest::Agent(agent) => agent,
        };
        let taints = self.taints(entry)?;
        if let Some(known) = self.agent.borrow().get(&taints) {
            return Ok(Arc::clone(known));
        }
        let text: Arc<str> = BASE64_STANDARD.encode(agent.manifest(&taints)).into();
        self.agent.borrow_mut().insert(taints, Arc::clone(&text));
        Ok(text)
    }
}
