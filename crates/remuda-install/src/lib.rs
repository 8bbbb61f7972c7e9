//! Texts handed to machines and clusters that join: install scripts, the cluster agent's manifest.
//!
//! Pure: the server hands the same text out by HTTP, in bootstrap Secrets and in plans, and equal input
//! gives equal bytes, so that nothing is delivered twice.

mod checksum;
mod cluster_agent;
mod linux;
mod windows;
mod yaml;

pub use checksum::{ca_checksum, cacerts_body};
pub use cluster_agent::{ClusterAgent, credentials_name};
pub use linux::{LinuxScript, uninstall_script};
pub use windows::WindowsScript;

/// Whether a shell takes `name` as the name of a variable.
fn is_variable(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|other| other.is_ascii_alphanumeric() || other == '_')
}

/// Tells agents whether to trust only the pinned certificates.
const STRICT_VERIFY: &str = remuda_names::cluster_agent::env::STRICT_VERIFY;
