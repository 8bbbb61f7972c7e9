//! The sandbox distribution: a small Kubernetes that installs, joins and answers probes as K3s and
//! RKE2 do.
//!
//! It is for trying and testing: Pods are processes of the node, images are programs that are on it,
//! and it says so wherever it shows a version. What it reads (config files, tokens, manifests), what
//! it writes (certificates, kubeconfig, Node objects) and where it listens are theirs, so that
//! whatever drives a real cluster drives this one.
//!
//! [`run`] is the program (`remuda node …`, or a link called `k3s` or `rke2`); [`start`] is a node in
//! this process; [`installer`] makes the images by which an agent installs it.
//!
//! A server keeps state in etcd when there is an `etcd` program, as one of several equal members, or
//! else in a store of its own, to which further servers pass requests on ([`server::state`]). Every
//! server runs the API; `disable-*` decides what answers health checks and what the Node is labelled.

pub mod address;
pub mod agent;
pub mod balance;
pub mod client;
pub mod config;
pub mod control;
pub mod deploy;
pub mod distribution;
pub mod encryption;
pub mod etcd;
pub mod files;
pub mod http;
pub mod installer;
mod invocation;
pub mod join;
pub mod kubelet;
pub mod listen;
pub mod paths;
pub mod pki;
pub mod reset;
pub mod running;
pub mod server;
pub mod snapshot;
pub mod spdy;
pub mod tls;
pub mod token;
pub mod webhook;

pub use self::{
    config::{Role, Settings},
    distribution::Distribution,
    invocation::{Error, Invocation, run},
    running::Running,
};

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Server(#[from] server::ServerError),
    #[error(transparent)]
    Agent(#[from] agent::AgentError),
    #[error(transparent)]
    Listen(#[from] listen::ListenError),
}

/// Starts a node. When this returns it serves what it has to serve. `stop` ends a start that takes
/// too long.
pub async fn start(
    settings: Settings,
    stop: &tokio_util::sync::CancellationToken,
) -> Result<Running, StartError> {
    let mut background = running::Background::new(stop.child_token());
    let etcd_only = settings.is_server() && settings.disabled.apiserver;
    let ports = settings.ports;
    background.health("kubelet", ports.kubelet_health, None, listen::well("ok")).await?;
    if settings.distribution == Distribution::Rke2 && !etcd_only {
        background.health("calico", ports.calico, None, listen::well("ok")).await?;
    }
    match settings.role {
        Role::Server => Ok(Box::pin(server::start(settings, background)).await?),
        Role::Agent => Ok(Box::pin(agent::start(settings, background)).await?),
    }
}
