//! A whole cluster behind a server. The tunnel alone is measured by an example of its own crate.

pub(crate) mod proxied;

use std::{path::Path, time::Duration};

#[derive(clap::Args)]
pub(crate) struct TunnelArguments {
    /// Requests through the proxy and without it
    #[arg(long, default_value_t = 3_000)]
    requests: usize,
}

pub(crate) async fn run(program: &Path, arguments: &TunnelArguments) -> anyhow::Result<()> {
    proxied::run(program, arguments.requests).await
}

/// The value below which a part of all is.
fn at(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}
