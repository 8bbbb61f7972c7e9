//! Looks at connected clusters from time to time: does the API answer, in which version, with which nodes.

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::Request;
use http_body_util::{BodyExt, Limited};
use kube::{Client, api::ListParams};
use parking_lot::Mutex;
use rand::RngExt;
use remuda_control::Chain;
use remuda_workload::TooMuch;
use serde::Deserialize;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::capacity::{NodePage, Nodes, Sum};
use crate::{gateway::Shared, proxy, respond::Body};

/// For one answer of a cluster.
const PATIENCE: Duration = Duration::from_secs(10);
/// For all pages of nodes.
const LISTING: Duration = Duration::from_secs(30);
const NODES: &str = "/api/v1/nodes";
/// Nodes in one page.
const PAGE: u32 = 100;
/// Pages that are read: more nodes than any cluster has.
const PAGES: usize = 200;
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
}

#[derive(Default)]
struct Looking {
    fact: Fact,
    stop: Option<CancellationToken>,
}

#[derive(Default)]
pub(crate) struct Facts(Mutex<HashMap<String, Looking>>);

impl Facts {
    pub(crate) fn of(&self, cluster: &str) -> Fact {
        self.0.lock().get(cluster).map(|looking| looking.fact.clone()).unwrap_or_default()
    }

    pub(crate) fn forget(&self, cluster: &str) {
        if let Some(Looking { stop: Some(stop), .. }) = self.0.lock().remove(cluster) {
            stop.cancel();
        }
    }

    /// Changes what is known; tells whether that changed anything.
    fn update(&self, cluster: &str, change: impl FnOnce(&mut Fact)) -> bool {
        let mut facts = self.0.lock();
        let Some(looking) = facts.get_mut(cluster) else { return false };
        let before = looking.fact.clone();
        change(&mut looking.fact);
        looking.fact != before
    }
}

/// Looks at a cluster as long as it is connected. Called whenever that changed.
pub(super) fn follow(shared: &Arc<Shared>, cluster: &str, wake: Arc<dyn Fn(&str) + Send + Sync>) {
    let connected = shared.sessions.connection(cluster).is_connected();
    let stop = shared.stop.child_token();
    {
        let mut facts = shared.facts.0.lock();
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
    let mut listed: Option<Instant> = None;
    let mut swept: Option<Instant> = None;
    // The cluster answers, but not as a cluster does.
    let mut refused: Option<String> = None;
    loop {
        // What is found out is written by the server that leads, and of use to no other.
        shared.ctx.leadership.gained().await;
        let pause = match ask(shared, cluster).await {
            Ok(version) => {
                misses = 0;
                let changed = shared.facts.update(cluster, |fact| {
                    fact.asked = true;
                    fact.trouble.clone_from(&refused);
                    fact.version = Some(version);
                });
                if changed {
                    wake(cluster);
                }
                if listed.is_none_or(|at| at.elapsed() >= shared.timing.nodes) {
                    let found = nodes(shared, cluster).await;
                    if !matches!(found, Listed::Failed) {
                        listed = Some(Instant::now());
                    }
                    let changed = shared.facts.update(cluster, |fact| match found {
                        Listed::Nodes(nodes) => {
                            refused = None;
                            fact.trouble = None;
                            fact.nodes = Some(nodes);
                        }
                        Listed::TooMuch(why) => {
                            refused = Some(why.clone());
                            fact.trouble = Some(why);
                        }
                        Listed::Failed => {}
                    });
                    if changed {
                        wake(cluster);
                    }
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
    match timeout(LISTING, proxy::sweep(&route, shared.ctx.clock.now())).await {
        Ok(Ok(0)) | Err(_) => {}
        Ok(Ok(removed)) => tracing::info!(cluster, removed, "accounts nobody needs any more are removed"),
        Ok(Err(error)) => tracing::debug!(cluster, error = %Chain(&error), "accounts cannot be looked at"),
    }
}

enum Listed {
    Nodes(Nodes),
    /// More than we take, and why.
    TooMuch(String),
    /// The next try may succeed.
    Failed,
}

/// All nodes, a page at a time.
async fn nodes(shared: &Shared, cluster: &str) -> Listed {
    let Ok(route) = shared.route(cluster) else { return Listed::Failed };
    let client = Client::new(route, "default");
    let listing = async {
        let mut sum = Sum::default();
        let mut params = ListParams::default().limit(PAGE);
        for _ in 0..PAGES {
            let request = kube::core::Request::new(NODES).list(&params).map_err(kube::Error::BuildRequest)?;
            let page: NodePage = client.request(request).await?;
            page.items.iter().for_each(|node| sum.add(node));
            match page.metadata.next.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok::<_, kube::Error>(Some(sum.total())),
            }
        }
        Ok(None)
    };
    match timeout(LISTING, listing).await {
        Ok(Ok(Some(nodes))) => Listed::Nodes(nodes),
        Ok(Ok(None)) => Listed::TooMuch(format!("it has more than {PAGES} pages of nodes")),
        Ok(Err(error)) => match TooMuch::of(&error) {
            Some(why) => Listed::TooMuch(why.to_string()),
            None => {
                tracing::debug!(cluster, error = %Chain(&error), "nodes of the cluster cannot be listed");
                Listed::Failed
            }
        },
        Err(_) => Listed::Failed,
    }
}
