//! Registration of nodes and clusters, tunnels, and the way into clusters.
//!
//! [`Gateway`] answers what machines, agents in clusters and people ask beside the Kubernetes API, behind the doors of
//! [`doors`]:
//!
//! | path | is |
//! |---|---|
//! | `/v3/connect/agent` and siblings | a machine registers and is told where its plan is (`register`) |
//! | `/system-agent-install.sh`, `/assets/…`, `/cacerts`, `/ping` | what it needs for that (`assets`) |
//! | `/v2/…` | images for machines, to read (`register/registry`) |
//! | `/v3/import/<token>_<cluster>.yaml` | the manifest of the agent in a cluster (`import`) |
//! | `/v3/connect`, `/v3/connect/register` | the WebSocket of that agent (`tunnel`) |
//! | `/k8s/clusters/<id>/…` | the API of a cluster, for people (`proxy`) |
//!
//! [`TunnelConnect`] is the same way into clusters for controllers. What is connected is known from the live
//! sessions only (`sessions`); [`Gateway::run`] writes it to the management Clusters (`status`), and into clusters who
//! may use them without this server (`endpoint`). [`Gateway::mirror_nodes`] writes the nodes of clusters (`nodes`).

mod access;
mod assets;
pub mod doors;
mod endpoint;
mod gateway;
mod images;
mod import;
mod nodes;
mod peers;
mod programs;
mod proxy;
mod register;
mod respond;
mod route;
mod sessions;
mod settings;
mod status;
mod tokens;
mod tunnel;
mod workload;

pub use self::{
    access::{Authorize, Caller, Decision, Held, Holders, ManagementRights, Role},
    assets::Agent,
    gateway::{Gateway, GatewayOptions, Timing, tunnel_options},
    nodes::{DrainRefused, DrainRequest},
    programs::ProgramOptions,
    sessions::Connection,
    workload::TunnelConnect,
};
