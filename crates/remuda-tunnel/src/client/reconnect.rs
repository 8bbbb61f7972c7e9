//! Keeping a tunnel up.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Connector, serve};
use crate::{
    dial::Inbound,
    session::{SessionOptions, chain},
};

/// How long to wait before another attempt.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    pub first: Duration,
    pub max: Duration,
    /// A session that lived this long ends a row of failures.
    pub settled: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), max: Duration::from_secs(10), settled: Duration::from_secs(30) }
    }
}

impl Backoff {
    /// The delay after `failures` in a row, with jitter, so that thousands of clients do not return in step after a
    /// server restart.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        remuda_base::Backoff::new(self.first, self.max).jittered(failures, random)
    }
}

/// What a client is doing, for status reports.
#[derive(Debug, Clone, Default)]
pub enum Link {
    #[default]
    Connecting,
    Connected,
    /// The last attempt or session failed with this error and its sources.
    Waiting {
        error: Arc<str>,
        delay: Duration,
    },
}

/// Connects, serves and connects again until `stop`. The state goes to `link`.
pub async fn run(
    connector: impl Connector,
    headers: HeaderMap,
    inbound: Inbound,
    options: SessionOptions,
    backoff: Backoff,
    link: &watch::Sender<Link>,
    stop: &CancellationToken,
) {
    let mut failures = 0u32;
    while !stop.is_cancelled() {
        link.send_replace(Link::Connecting);
        let connected = stop.run_until_cancelled(connector.connect(headers.clone())).await;
        let error = match connected {
            None => break,
            Some(Err(error)) => chain(error.as_ref()),
            Some(Ok(socket)) => {
                info!("tunnel connected");
                link.send_replace(Link::Connected);
                let since = Instant::now();
                let end = serve(socket, inbound.clone(), options.clone(), stop).await;
                if since.elapsed() >= backoff.settled {
                    failures = 0;
                }
                chain(&end)
            }
        };
        if stop.is_cancelled() {
            break;
        }
        failures = failures.saturating_add(1);
        let delay = backoff.delay(failures, rand::random());
        warn!(error, ?delay, failures, "tunnel down");
        link.send_replace(Link::Waiting { error: error.into(), delay });
        stop.run_until_cancelled(sleep(delay)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_their_maximum_and_spread() {
        let backoff = Backoff::default();
        let whole = |failures| backoff.delay(failures, 1.0);
        assert_eq!([1, 2, 3, 4, 5, u32::MAX].map(whole).map(|delay| delay.as_secs()), [1, 2, 4, 8, 10, 10]);
        assert_eq!(backoff.delay(1, 0.0), Duration::from_millis(500));
    }
}
