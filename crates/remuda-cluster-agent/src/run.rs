//! The agent itself.

use std::{io, time::Duration};

use http::HeaderMap;
use remuda_agent::run::watch_signals;
use remuda_tunnel::{
    client::{self, Backoff, Link},
    dial::Inbound,
    session::SessionOptions,
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Config, ConfigError},
    connect::Connector,
    health,
};

/// Why the agent ends other than by being told to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot know what to do.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It has nothing to run on.
    #[error("start the runtime")]
    Runtime(#[source] io::Error),
}

/// Times and limits.
#[derive(Debug, Clone)]
pub struct Options {
    /// Between attempts.
    pub backoff: Backoff,
    /// Of the tunnel.
    pub session: SessionOptions,
    /// How often to look whether what the server was told still holds.
    pub refresh: Duration,
}

impl Default for Options {
    fn default() -> Options {
        let mut session = SessionOptions::default();
        // Pings are answered at once: after four that were not, there is nobody any more.
        session.timing.silence = session.timing.ping * 4;
        Options { backoff: Backoff::default(), session, refresh: Duration::from_secs(300) }
    }
}

/// Whether the server may have this dialled: whatever Rancher's agent dials for it.
pub fn allowed(proto: &str, address: &str) -> bool {
    match proto {
        "tcp" => true,
        "unix" => address == "/var/run/docker.sock",
        "npipe" => address == "//./pipe/docker_engine",
        _ => false,
    }
}

/// Keeps the tunnel open until `stop`. How it stands goes to `link`.
pub async fn serve(config: Config, options: Options, link: watch::Sender<Link>, stop: CancellationToken) {
    let mut tasks = JoinSet::new();
    if let Some(bind) = &config.health {
        // Pods without a network of their own may find the port taken; the tunnel matters more than probes.
        match TcpListener::bind(bind).await {
            Ok(listener) => drop(tasks.spawn(health::serve(listener, link.subscribe(), stop.clone()))),
            Err(error) => tracing::warn!(bind, %error, "no health endpoint"),
        }
    }
    tracing::info!(server = config.server, api = config.api, "cluster agent starts");
    let connector = Connector::new(config);
    while !stop.is_cancelled() {
        let round = stop.child_token();
        let (inbound, session) = (Inbound::net(allowed), options.session.clone());
        let headers = HeaderMap::new();
        let mut tunnel = Box::pin(client::run(
            connector.clone(),
            headers,
            inbound,
            session,
            options.backoff,
            &link,
            &round,
        ));
        tokio::select! {
            () = &mut tunnel => {}
            () = connector.outdated(options.refresh) => {
                tracing::info!("the cluster's account has changed, the server is told");
                round.cancel();
                tunnel.await;
            }
        }
    }
    while tasks.join_next().await.is_some() {}
    tracing::info!("cluster agent stopped");
}

/// Runs the agent on a runtime of its own, with one thread, until SIGINT or SIGTERM. A second signal ends the
/// process at once.
pub fn run(config: Config) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .thread_stack_size(256 << 10)
        .thread_keep_alive(Duration::from_secs(5))
        .build()
        .map_err(Error::Runtime)?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let mut signals = JoinSet::new();
        signals.spawn(watch_signals(stop.clone()));
        serve(config, Options::default(), watch::Sender::default(), stop).await;
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_may_dial_what_the_original_dials() {
        for (proto, address, expected) in [
            ("tcp", "10.43.0.1:443", true),
            ("tcp", "anything", true),
            ("unix", "/var/run/docker.sock", true),
            ("unix", "/var/run/../run/docker.sock", false),
            ("npipe", "//./pipe/docker_engine", true),
            ("npipe", "//./pipe/other", false),
            ("udp", "10.43.0.10:53", false),
            ("", "", false),
        ] {
            assert_eq!(allowed(proto, address), expected, "{proto} {address}");
        }
    }
}
