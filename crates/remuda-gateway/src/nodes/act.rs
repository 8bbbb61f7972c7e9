//! Drains of nodes that people ask for, each with the rights of who asked.
//!
//! A drain lasts; it ends when the node is empty, when its time is over, when it is stopped, and when the credentials
//! it began with are revoked. How it goes is told by the condition of the management Node (`mirror`).

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{Api, Client, api::ListParams};
use parking_lot::Mutex;
use remuda_control::{Chain, clock::Clock, write::evict};
use remuda_door::Caller;
use remuda_names::user::MASTERS;
use remuda_workload::drain::{Rules, View, daemon_set, is_temporary, plan, view};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Drain;
use crate::{Gateway, access::Decision};

/// Pods in one page of a list.
const PAGE: u32 = 100;
/// Pods of one node that are looked at; kubelets take a few hundred at most.
const MOST_PODS: usize = 10_000;
/// Pages of them: a cluster that sends less than it was asked for does so without end.
const MOST_PAGES: usize = 4 * MOST_PODS / PAGE as usize;
/// Drains of one cluster at the same time.
const MOST_DRAINS: usize = 64;
/// Bytes of what is said of a drain that failed: names of Pods are the cluster's.
const LONGEST: usize = 1024;
/// Between two looks at what is left.
const AGAIN: Duration = Duration::from_secs(2);
/// Drains whose end is remembered.
const REMEMBERED: usize = 1_000;

/// Why a drain does not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DrainRefused {
    #[error("is being drained")]
    Running,
    #[error(
        "is one of more than {MOST_DRAINS} of its cluster that are to be drained; try again when others are done"
    )]
    TooMany,
}

/// How a node is drained.
#[derive(Debug, Clone)]
pub struct DrainRequest {
    pub rules: Rules,
    /// For each Pod; its own if there is none.
    pub grace_seconds: Option<u32>,
    pub timeout: Duration,
}

type Wake = Arc<dyn Fn(&str) + Send + Sync>;
type Key = (String, String);

struct Entry {
    state: Drain,
    stop: CancellationToken,
}

/// Drains by cluster and node.
#[derive(Default)]
pub(crate) struct Drains {
    known: Mutex<HashMap<Key, Entry>>,
    wake: Mutex<Option<Wake>>,
}

impl Drains {
    pub(super) fn tell(&self, wake: Wake) {
        *self.wake.lock() = Some(wake);
    }

    pub(super) fn of(&self, cluster: &str, node: &str) -> Option<Drain> {
        let key = (cluster.to_owned(), node.to_owned());
        self.known.lock().get(&key).map(|entry| entry.state.clone())
    }

    pub(crate) fn forget(&self, cluster: &str) {
        self.known.lock().retain(|(of, _), entry| {
            if of == cluster {
                entry.stop.cancel();
            }
            of != cluster
        });
    }

    /// Notes that a drain begins.
    fn begin(&self, key: &Key, stop: CancellationToken) -> Result<CancellationToken, DrainRefused> {
        let mut known = self.known.lock();
        if known.get(key).is_some_and(|entry| entry.state == Drain::Running) {
            return Err(DrainRefused::Running);
        }
        let running = known.iter().filter(|((of, _), entry)| *of == key.0 && entry.state == Drain::Running);
        if running.count() >= MOST_DRAINS {
            return Err(DrainRefused::TooMany);
        }
        if known.len() >= REMEMBERED {
            known.retain(|_, entry| entry.state == Drain::Running);
        }
        known.insert(key.clone(), Entry { state: Drain::Running, stop: stop.clone() });
        drop(known);
        self.changed(&key.0);
        Ok(stop)
    }

    fn end(&self, key: &Key, state: Drain) {
        match self.known.lock().get_mut(key) {
            Some(entry) => entry.state = state,
            None => return,
        }
        self.changed(&key.0);
    }

    /// Ends a drain that is under way; tells whether one was.
    fn stop(&self, key: &Key) -> bool {
        let known = self.known.lock();
        let running = known.get(key).filter(|entry| entry.state == Drain::Running);
        running.inspect(|entry| entry.stop.cancel()).is_some()
    }

    fn changed(&self, cluster: &str) {
        let wake = self.wake.lock().clone();
        if let Some(wake) = wake {
            wake(cluster);
        }
    }
}

impl Gateway {
    /// Whether somebody has a role in a cluster that lets them change its nodes, as far as is known here. The cluster
    /// decides when they do.
    pub async fn may_change_nodes(&self, caller: &Caller, cluster: &str) -> bool {
        if caller.groups.iter().any(|group| group == MASTERS) {
            return true;
        }
        match self.0.authorize.authorize(caller, cluster).await {
            Ok(decision) => changes_nodes(&decision),
            Err(error) => {
                tracing::debug!(cluster, error, "whether nodes may be changed is not known");
                false
            }
        }
    }

    /// Begins to drain a node, as `client` may. `revoked` ends it.
    pub fn drain_node(
        &self,
        cluster: &str,
        node: &str,
        client: Client,
        request: DrainRequest,
        revoked: Option<CancellationToken>,
    ) -> Result<(), DrainRefused> {
        let shared = self.0.clone();
        let key = (cluster.to_owned(), node.to_owned());
        let stop = shared.drains.begin(&key, shared.stop.child_token())?;
        shared.tasks.clone().spawn(async move {
            let revoked = revoked.unwrap_or_default();
            let end = tokio::select! {
                end = drain(&client, &key.1, &request, &*shared.ctx.clock) => Some(end),
                () = stop.cancelled() => None,
                () = revoked.cancelled() => Some(Err("the credentials it began with are revoked".to_owned())),
            };
            let (cluster, node) = &key;
            let state = match end {
                Some(Ok(())) => {
                    tracing::info!(cluster, node, "node is drained");
                    Drain::Done
                }
                Some(Err(mut error)) => {
                    error.truncate(error.floor_char_boundary(LONGEST));
                    tracing::info!(cluster, node, error, "node could not be drained");
                    Drain::Failed(error)
                }
                None => Drain::Stopped,
            };
            shared.drains.end(&key, state);
        });
        Ok(())
    }

    /// Ends the drain of a node; `false` if there is none.
    pub fn stop_drain(&self, cluster: &str, node: &str) -> bool {
        self.0.drains.stop(&(cluster.to_owned(), node.to_owned()))
    }
}

/// Whether a decision comes with a role that may patch nodes.
fn changes_nodes(decision: &Decision) -> bool {
    let has = |list: Option<&Vec<String>>, words: &[&str]| {
        list.into_iter().flatten().any(|word| words.contains(&word.as_str()))
    };
    let mut rules = decision.roles.iter().flat_map(|role| role.rules.iter().flatten());
    decision.allowed
        && (decision.groups.iter().any(|group| group == MASTERS)
            || rules.any(|rule| {
                has(rule.api_groups.as_ref(), &["", "*"])
                    && has(rule.resources.as_ref(), &["nodes", "*"])
                    && has(Some(&rule.verbs), &["patch", "*"])
                    && rule.resource_names.iter().flatten().next().is_none()
            }))
}

/// Evicts what may go until nothing is left. An `Err` is for people.
async fn drain(client: &Client, node: &str, request: &DrainRequest, clock: &dyn Clock) -> Result<(), String> {
    let until = Instant::now() + request.timeout;
    let late = || format!("Drain failed: drain did not complete within {}s", request.timeout.as_secs());
    loop {
        let round = timeout_at(until, round(client, node, request, clock));
        if round.await.map_err(|_| late())?? {
            return Ok(());
        }
        if Instant::now() + AGAIN >= until {
            return Err(late());
        }
        sleep(AGAIN).await;
    }
}

/// One round; tells whether nothing is left.
async fn round(
    client: &Client,
    node: &str,
    request: &DrainRequest,
    clock: &dyn Clock,
) -> Result<bool, String> {
    let views = list(client, node).await?;
    let plan = plan(&views, &request.rules, clock.now());
    if let Some(refused) = plan.refused() {
        return Err(refused);
    }
    for pod in &plan.evict {
        let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
        match evict(&api, &pod.namespace, &pod.name, request.grace_seconds).await {
            Ok(()) => {}
            Err(error) if is_temporary(&error) => {}
            Err(error) => return Err(format!("evict pod {}: {}", pod.key(), Chain(&error))),
        }
    }
    Ok(plan.left().is_empty())
}

/// Pods of a node as the rules see them: nothing else of them is kept.
async fn list(client: &Client, node: &str) -> Result<Vec<View>, String> {
    let api: Api<Pod> = Api::all(client.clone());
    let mut params = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(PAGE);
    let (mut found, mut sets) = (Vec::new(), DaemonSets::default());
    for _ in 0..MOST_PAGES {
        let page = api.list(&params).await.map_err(|error| format!("list pods: {}", Chain(&error)))?;
        sets.look(client, &page.items).await?;
        found.extend(page.items.iter().map(|pod| view(pod, &sets.missing)));
        if found.len() > MOST_PODS {
            return Err(format!("the node has more than {MOST_PODS} pods"));
        }
        match page.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => params.continue_token = Some(next),
            None => return Ok(found),
        }
    }
    Err("the cluster did not end its list of pods".to_owned())
}

/// DaemonSets that pods name, as namespace and name.
#[derive(Default)]
struct DaemonSets {
    looked_at: BTreeSet<(String, String)>,
    /// Those that are not there.
    missing: BTreeSet<(String, String)>,
}

impl DaemonSets {
    /// Looks for those of more pods. One that the caller may not read is taken to be there.
    async fn look(&mut self, client: &Client, pods: &[Pod]) -> Result<(), String> {
        let named: BTreeSet<(String, String)> = pods.iter().filter_map(daemon_set).collect();
        for (namespace, name) in named {
            if !self.looked_at.insert((namespace.clone(), name.clone())) {
                continue;
            }
            let sets: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
            match sets.get_metadata_opt(&name).await {
                Ok(Some(_)) => {}
                Ok(None) => drop(self.missing.insert((namespace, name))),
                Err(kube::Error::Api(status)) if status.code == 403 => {}
                Err(error) => return Err(format!("read DaemonSet {namespace}/{name}: {}", Chain(&error))),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::PolicyRule;

    use super::*;
    use crate::access::Role;

    fn role(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> Decision {
        let words = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let rule = PolicyRule {
            api_groups: Some(words(groups)),
            resources: Some(words(resources)),
            verbs: words(verbs),
            resource_names: Some(words(names)),
            ..PolicyRule::default()
        };
        Decision::allow().with_roles(vec![Role { name: "r".to_owned(), rules: Some(vec![rule]) }])
    }

    #[test]
    fn nodes_are_changed_by_who_may_patch_them() {
        assert!(changes_nodes(&Decision::owner()));
        assert!(!changes_nodes(&Decision::allow()));
        assert!(!changes_nodes(&Decision { allowed: false, ..Decision::owner() }));
        assert!(changes_nodes(&role(&[""], &["nodes"], &["patch"], &[])));
        assert!(changes_nodes(&role(&["*"], &["*"], &["*"], &[])));
        assert!(!changes_nodes(&role(&[""], &["nodes"], &["get", "list"], &[])));
        assert!(!changes_nodes(&role(&["apps"], &["nodes"], &["patch"], &[])));
        assert!(
            !changes_nodes(&role(&[""], &["nodes"], &["patch"], &["n1"])),
            "one of them is not all of them"
        );
    }

    #[test]
    fn a_node_is_drained_once_at_a_time() {
        let drains = Drains::default();
        let key = ("c-1".to_owned(), "n1".to_owned());
        let stop = drains.begin(&key, CancellationToken::new()).unwrap();
        assert_eq!(drains.of("c-1", "n1"), Some(Drain::Running));
        assert_eq!(drains.begin(&key, CancellationToken::new()).err(), Some(DrainRefused::Running));
        assert!(drains.stop(&key) && stop.is_cancelled());
        drains.end(&key, Drain::Stopped);
        assert_eq!(drains.of("c-1", "n1"), Some(Drain::Stopped));
        assert!(!drains.stop(&key), "there is none");
        drains.begin(&key, CancellationToken::new()).unwrap();
        drains.end(&key, Drain::Failed("x".to_owned()));
        assert!(!drains.stop(&key) && drains.begin(&key, CancellationToken::new()).is_ok());
        let of = |cluster: &str, number: usize| (cluster.to_owned(), format!("m{number}"));
        let begun =
            (0..2 * MOST_DRAINS).map(|number| drains.begin(&of("c-1", number), CancellationToken::new()));
        assert_eq!(begun.filter(Result::is_ok).count(), MOST_DRAINS - 1);
        assert_eq!(
            drains.begin(&of("c-1", 1_000), CancellationToken::new()).err(),
            Some(DrainRefused::TooMany)
        );
        assert!(drains.begin(&of("c-2", 1), CancellationToken::new()).is_ok(), "others are not held up");
        drains.forget("c-1");
        assert_eq!(drains.of("c-1", "n1"), None);
    }
}
