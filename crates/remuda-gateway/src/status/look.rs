//! Looks at connected clusters from time to time: does the API answer, and in which version.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::Request;
use http_body_util::{BodyExt, Limited};
use parking_lot::Mutex;
use rand::RngExt;
use remuda_control::Chain;
use serde::Deserialize;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::capacity::Nodes;
use crate::{gateway::Shared, proxy, respond::Body};

/// For one answer of a cluster.
const PATIENCE: Duration = Duration::from_secs(10);
/// For looking through accounts.
const SWEEPING: Duration = Duration::from_secs(30);
/// More than any version needs.
const VERSION_LIMIT: usize = 64 << 10;
/// Times in a row an answer may be missing before it is told: a single one may be lost with its connection.
const MISSES: u32 = 2;
/// Between two looks for accounts nobody needs.
const SWEEP: Duration = Duration::from_secs(24 * 3600);
/// After a miss the next look is soon.
const AGAIN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct KubernetesVersion {
    pub(crate) git_version: String,
    pub(crate) major: String,
    pub(crate) minor: String,
}

/// What is known of a connected cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fact {
    /// It has answered, or failed to, since it connected.
    pub(crate) asked: bool,
    /// Why it does not answer.
    pub(crate) trouble: Option<String>,
    pub(crate) version: Option<KubernetesVersion>,
    pub(crate) nodes: Option<Nodes>,
    /// Why its nodes are not known: it sends more than we take.
    pub(crate) excess: Option<String>,
}

#[derive(Default)]
struct Looking {
    fact: Fact,
    stop: Option<CancellationToken>,
}

/// Is called with the name of a cluster of which something else is known now.
type Wake = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Default)]
pub(crate) struct Facts {
    known: Mutex<HashMap<String, Looking>>,
    wake: Mutex<Option<Wake>>,
}

impl Facts {
    pub(crate) fn of(&self, cluster: &str) -> Fact {
        self.known.lock().get(cluster).map(|looking| looking.fact.clone()).unwrap_or_default()
    }

    pub(crate) fn forget(&self, cluster: &str) {
        if let Some(Looking { stop: Some(stop), .. }) = self.known.lock().remove(cluster) {
            stop.cancel();
        }
    }

    /// From now on what others find out wakes this.
    pub(super) fn tell(&self, wake: Wake) {
        *self.wake.lock() = Some(wake);
    }

    /// What others found out of the nodes of a connected cluster.
    pub(crate) fn found(&self, cluster: &str, nodes: Option<Nodes>, excess: Option<String>) {
        let changed = self.update(cluster, |fact| {
            fact.nodes = nodes.or(fact.nodes.take());
            fact.excess = excess;
        });
        let wake = self.wake.lock().clone().filter(|_| changed);
        if let Some(wake) = wake {
            wake(cluster);
        }
    }

    /// Changes what is known; tells whether that changed anything.
    fn update(&self, cluster: &str, change: impl FnOnce(&mut Fact)) -> bool {
        let mut facts = self.known.lock();
        let Some(looking) = facts.get_mut(cluster) else { return false };
        let before = looking.fact.clone();
        change(&mut looking.fact);
        looking.fact != before
    }
}

/// Looks at a cluster as long as it is connected. Called whenever that changed.
pub(super) fn follow(shared: &Arc<Shared>, cluster: &str, wake: Wake) {
    let connected = shared.sessions.connection(cluster).is_connected();
    let stop = shared.stop.child_token();
    {
        let mut facts = shared.facts.known.lock();
        let looking = facts.entry(cluster.to_owned()).or_default();
        // Also when it is connected already: the credentials may be others.
        if let Some(before) = looking.stop.take() {
            before.cancel();
        }
        if !connected {
            // Version and nodes stay in the status as they were seen last.
            looking.fact = Fact::default();
            return;
        }
        looking.fact.asked = false;
        looking.fact.trouble = None;
        looking.stop = Some(stop.clone());
    }
    let (shared, cluster) = (shared.clone(), cluster.to_owned());
    shared.tasks.clone().spawn(async move {
        stop.run_until_cancelled(Box::pin(keep_looking(&shared, &cluster, &*wake))).await;
    });
}

async fn keep_looking(shared: &Shared, cluster: &str, wake: &(dyn Fn(&str) + Send + Sync)) {
    let mut misses = 0;
    let mut swept: Option<Instant> = None;
    loop {
        // What is found out is written by the server that leads, and of use to no other.
        shared.ctx.leadership.gained().await;
        let pause = match ask(shared, cluster).await {
            Ok(version) => {
                misses = 0;
                let changed = shared.facts.update(cluster, |fact| {
                    fact.asked = true;
                    fact.trouble = None;
                    fact.version = Some(version);
                });
                if changed {
                    wake(cluster);
                }
                if swept.is_none_or(|at| at.elapsed() >= SWEEP) {
                    swept = Some(Instant::now());
                    sweep(shared, cluster).await;
                }
                shared.timing.look
            }
            Err(why) => {
                misses += 1;
                tracing::debug!(cluster, error = why, "cluster does not answer through its tunnel");
                if misses >= MISSES {
                    let changed = shared.facts.update(cluster, |fact| {
                        fact.asked = true;
                        fact.trouble = Some(why);
                    });
                    if changed {
                        wake(cluster);
                    }
                }
                if misses < MISSES { AGAIN } else { shared.timing.look.min(Duration::from_secs(10)) }
            }
        };
        // Clusters that connected together should not be asked together for ever.
        let spread = rand::rng().random_range(0.8..1.0);
        tokio::time::sleep(pause.mul_f64(spread)).await;
    }
}

async fn ask(shared: &Shared, cluster: &str) -> Result<KubernetesVersion, String> {
    let route = shared.route(cluster)?;
    let request = Request::get("/version").body(Body::empty()).map_err(|error| error.to_string())?;
    let answer = route.send(request, PATIENCE).await.map_err(|error| Chain(&error).to_string())?;
    let code = answer.status();
    if !code.is_success() {
        return Err(format!("it answered {code}"));
    }
    let reading = Limited::new(answer.into_body(), VERSION_LIMIT).collect();
    let body = timeout(PATIENCE, reading).await.map_err(|_| format!("no answer within {PATIENCE:?}"))?;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    serde_json::from_slice(&body).map_err(|_| "its version is no JSON".to_owned())
}

async fn sweep(shared: &Shared, cluster: &str) {
    let Ok(route) = shared.route(cluster) else { return };
    match timeout(SWEEPING, proxy::sweep(&route, shared.ctx.clock.now())).await {
        Ok(Ok(0)) | Err(_) => {}
        Ok(Ok(removed)) => tracing::info!(cluster, removed, "accounts nobody needs any more are removed"),
        Ok(Err(error)) => tracing::debug!(cluster, error = %Chain(&error), "accounts cannot be looked at"),
    }
}
