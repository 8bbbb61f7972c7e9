//! From the Cluster people write to the objects that make it, and back to its status.
//!
//! [`admission`] and [`naming`] are rules: they read and write nothing. [`run`] runs the controllers:
//!
//! - `cluster`: a provisioning Cluster becomes a management Cluster, and, if we are to make it, the objects of
//!   Cluster API and of our providers; what those report becomes its status; its kubeconfig.
//! - `management`: every management Cluster has a namespace, a registration token and a log.
//! - `registration`: registration tokens, and the commands people run with them.
//! - `credentials`: whoever made a credential may use it.
//! - `settings`: what everything else relies on is there from the start.
//!
//! They speak to the API through a `kube::Client`, so they run on the embedded API server and on any other.

pub mod admission;
mod archive;
mod cluster;
mod condition;
mod credentials;
mod duration;
mod error;
mod images;
mod management;
pub mod naming;
mod object_set;
mod registration;
mod schedule;
mod settings;

use std::sync::Arc;

use futures::future::BoxFuture;
use remuda_control::{Ctx, Named, run_all};
use tokio_util::sync::CancellationToken;

pub use self::{
    cluster::Problem,
    error::Error,
    settings::{NAMESPACES, standing::server_url as standing_server_url},
};

/// What a server is, as its settings say unless somebody set them otherwise.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where nodes, agents and people reach this server.
    pub server_url: String,
    /// Certificates this server is trusted by, in PEM; empty if those of the system will do.
    pub ca_pem: String,
    /// The same at its inner address; as above when empty.
    pub internal_ca_pem: String,
    /// `strict` or `system-store`.
    pub agent_tls_mode: String,
    /// Image that installs a distribution, up to the name of the distribution.
    pub installer_image: String,
    /// Registry of all images that say nothing else.
    pub default_registry: String,
    /// Version of the node agent this server hands out; empty hands out none.
    pub system_agent_version: String,
    /// Image of the agent in clusters; that of the server's version when empty.
    pub agent_image: String,
    /// Version of this server.
    pub server_version: String,
    /// Defaults of settings that others read.
    pub other_settings: Vec<(&'static str, String)>,
    /// How many objects of one kind are reconciled at once.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            server_url: format!("https://127.0.0.1:{}", remuda_names::DEFAULT_PORT),
            ca_pem: String::new(),
            internal_ca_pem: String::new(),
            agent_tls_mode: "strict".to_owned(),
            installer_image: "rancher/system-agent-installer-".to_owned(),
            default_registry: String::new(),
            system_agent_version: String::new(),
            agent_image: String::new(),
            server_version: String::new(),
            other_settings: Vec::new(),
            workers: 4,
        }
    }
}

/// Ensures settings and namespaces, then runs all controllers until told to stop, and returns when their work has
/// ended.
pub fn run(ctx: Arc<Ctx>, options: Options, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        settings::keep_ensuring(&ctx, &options, &stop).await;
        let controllers: [Named; 5] = [
            ("Cluster", Box::pin(cluster::run(ctx.clone(), options.workers, stop.clone()))),
            ("Management", Box::pin(management::run(ctx.clone(), options.workers, stop.clone()))),
            ("Log", Box::pin(management::log::run(ctx.clone(), stop.clone()))),
            ("Registration", Box::pin(registration::run(ctx.clone(), stop.clone()))),
            ("Credentials", Box::pin(credentials::run(ctx, stop))),
        ];
        run_all(&[], controllers).await;
    })
}
