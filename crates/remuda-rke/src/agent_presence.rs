//! Whether the agents of machines are there.
//!
//! An agent watches its plan Secret as long as it runs. So an open watch is all that has to be known, and nothing is
//! polled: the API tells of watches that begin and end, and only what stays away is written down.
//!
//! Reads   plan Secrets, their Machines, and who watches.
//! Writes  condition `AgentConnected` of a Machine: False when its agent stays away, True when it is back. A Machine
//!         whose agent never went has no such condition, so a healthy fleet costs no write.

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;
use remuda_control::{Action, Controller, Enqueuer, ObjectKey, drive, write::conditions::ConditionUpdate};
use remuda_names::{agent::key, rancher::condition};
use tokio_util::sync::CancellationToken;

use crate::{Error, conditions::rfc3339, objects, shared::Rke};

/// An agent whose watch ended has this long to come back: servers end watches, agents restart.
const GRACE: SignedDuration = SignedDuration::from_secs(20);
/// After a start of the server agents come back when their backoff lets them, which is a minute at the most.
const GRACE_AFTER_START: SignedDuration = SignedDuration::from_secs(90);
/// Accounts that are kept in memory. More would be clients that only look like agents.
const MOST: usize = 100_000;

/// Which agents watch their plans, as the API of this process sees it. Clones share it.
#[derive(Clone)]
pub struct Presence(Arc<Inner>);

struct Inner {
    clock: fn() -> Timestamp,
    began: Timestamp,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By plan Secret, whose name is that of the account.
    agents: HashMap<ObjectKey, Watches>,
    enqueuer: Option<Enqueuer>,
}

/// The watches of one agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Watches {
    open: usize,
    /// When the last one ended.
    ended: Option<Timestamp>,
}

/// An agent that watches its plan, until this is dropped.
pub struct Watching {
    presence: Presence,
    plan: ObjectKey,
}

impl Presence {
    pub fn new(clock: fn() -> Timestamp) -> Self {
        Self(Arc::new(Inner { clock, began: clock(), state: Mutex::default() }))
    }

    /// An agent begins to watch its plan Secret.
    pub fn begins(&self, plan: ObjectKey) -> Option<Watching> {
        let mut state = self.0.state.lock();
        if state.agents.len() >= MOST && !state.agents.contains_key(&plan) {
            return None;
        }
        let watches = state.agents.entry(plan.clone()).or_insert(Watches { open: 0, ended: None });
        watches.open += 1;
        if watches.open == 1 {
            state.enqueue(&plan);
        }
        Some(Watching { presence: self.clone(), plan })
    }

    /// How many agents watch their plans now.
    pub fn connected(&self) -> usize {
        self.0.state.lock().agents.values().filter(|watches| watches.open > 0).count()
    }

    fn of(&self, plan: &ObjectKey) -> Option<Watches> {
        self.0.state.lock().agents.get(plan).copied()
    }

    fn forget(&self, plan: &ObjectKey) {
        let mut state = self.0.state.lock();
        if state.agents.get(plan).is_some_and(|watches| watches.open == 0) {
            state.agents.remove(plan);
        }
    }
}

impl State {
    fn enqueue(&self, plan: &ObjectKey) {
        if let Some(enqueuer) = &self.enqueuer {
            enqueuer.enqueue(plan.clone());
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let now = (self.presence.0.clock)();
        let mut state = self.presence.0.state.lock();
        let Some(watches) = state.agents.get_mut(&self.plan) else { return };
        watches.open -= 1;
        watches.ended = Some(now);
        if watches.open == 0 {
            state.enqueue(&self.plan);
        }
    }
}

/// What is known of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgement {
    Connected,
    /// It may come back; look again after this long.
    MayComeBack(SignedDuration),
    /// It has stayed away since then.
    Away {
        since: Timestamp,
        /// It was never heard from by this server, which began then.
        since_start: bool,
    },
}

fn judge(watches: Option<Watches>, began: Timestamp, now: Timestamp) -> Judgement {
    let (since, grace) = match watches {
        Some(Watches { open: 1.., .. }) => return Judgement::Connected,
        Some(Watches { ended: Some(ended), .. }) => (ended, GRACE),
        _ => (began, GRACE_AFTER_START),
    };
    let away = now.duration_since(since);
    match grace - away {
        left if left > SignedDuration::ZERO => Judgement::MayComeBack(left),
        _ => Judgement::Away { since, since_start: watches.is_none_or(|watches| watches.ended.is_none()) },
    }
}

struct AgentPresence {
    rke: Arc<Rke>,
    presence: Presence,
}

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    // Of servers that share a datastore each sees its own agents only: what one misses another may have.
    let Some(presence) = rke.options.presence.clone() else {
        stop.cancelled().await;
        return;
    };
    let controller =
        Controller::on("agent-presence", &rke.ctx, rke.plans.clone()).workers(rke.options.workers);
    presence.0.state.lock().enqueuer = Some(controller.enqueuer());
    let gone = presence.clone();
    let deletions = rke.plans.subscribe(move |change| {
        if let (Some(old), None) = (&change.old, &change.new) {
            gone.forget(&ObjectKey::of(&old.metadata));
        }
    });
    if stop.run_until_cancelled(rke.synced()).await.is_none() {
        return;
    }
    drive(controller, reconcile, Arc::new(AgentPresence { rke, presence: presence.clone() }), stop).await;
    presence.0.state.lock().enqueuer = None;
    drop(deletions);
}

async fn reconcile(secret: Arc<Secret>, ctx: Arc<AgentPresence>) -> Result<Action, Error> {
    let plan = ObjectKey::of(&secret.metadata);
    if objects::is_deleting(&secret.metadata) || !has_reported(&secret) {
        return Ok(Action::AwaitChange);
    }
    let Some(machine) = ctx.rke.machine_of_plan(&secret) else { return Ok(Action::AwaitChange) };
    if objects::is_deleting(&machine.metadata) {
        return Ok(Action::AwaitChange);
    }
    let key = ObjectKey::of(&machine.metadata);
    let says = |status, reason, message| ConditionUpdate {
        kind: condition::AGENT_CONNECTED,
        status: Some(status),
        reason,
        message,
        generation: None,
    };
    let now = ctx.rke.ctx.clock.now();
    match judge(ctx.presence.of(&plan), ctx.presence.0.began, now) {
        Judgement::Connected => {
            let known = machine.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
            if known.iter().any(|known| known.type_ == condition::AGENT_CONNECTED) {
                ctx.rke.mark_at(&key, says(true, condition::AGENT_CONNECTED, ""), now).await?;
            }
            Ok(Action::AwaitChange)
        }
        Judgement::MayComeBack(left) => {
            Ok(Action::RequeueAfter(Duration::try_from(left).unwrap_or(Duration::from_secs(1))))
        }
        Judgement::Away { since, since_start } => {
            let (reason, message) = match since_start {
                true => (
                    condition::NOT_HEARD_FROM_SINCE_START,
                    format!(
                        "the agent has not been heard from since the server started at {}",
                        rfc3339(since)
                    ),
                ),
                false => (
                    condition::NOT_HEARD_FROM,
                    format!("the agent has not been heard from since {}", rfc3339(since)),
                ),
            };
            let known = machine.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
            let away = known
                .iter()
                .any(|known| known.type_ == condition::AGENT_CONNECTED && known.status == "False");
            // It was away before the server started, and since when is known better than that.
            if !(away && since_start) {
                ctx.rke.mark_at(&key, says(false, reason, &message), since).await?;
            }
            Ok(Action::AwaitChange)
        }
    }
}

/// Whether an agent has ever said anything. One that is only being installed is not missed here.
fn has_reported(secret: &Secret) -> bool {
    let data = secret.data.as_ref();
    data.is_some_and(|data| key::REPORTED.iter().any(|key| data.contains_key(*key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn an_agent_is_missed_after_its_grace_and_not_before() {
        let watches = |open, ended: Option<i64>| Some(Watches { open, ended: ended.map(at) });
        let seconds = SignedDuration::from_secs;
        for (watches, now, expected) in [
            (watches(1, None), 10_000, Judgement::Connected),
            (watches(2, Some(50)), 10_000, Judgement::Connected),
            (watches(0, Some(1000)), 1005, Judgement::MayComeBack(seconds(15))),
            (watches(0, Some(1000)), 1020, Judgement::Away { since: at(1000), since_start: false }),
            (None, 130, Judgement::MayComeBack(seconds(60))),
            (None, 190, Judgement::Away { since: at(100), since_start: true }),
            // The clock was set back.
            (watches(0, Some(1000)), 900, Judgement::MayComeBack(seconds(120))),
        ] {
            assert_eq!(judge(watches, at(100), at(now)), expected, "{watches:?} at {now}");
        }
    }

    #[test]
    fn an_agent_with_two_watches_is_there_until_the_last_ends() {
        let presence = Presence::new(|| at(7));
        let plan = ObjectKey::namespaced("fleet-default", "m-machine-plan");
        let first = presence.begins(plan.clone()).unwrap();
        let second = presence.begins(plan.clone()).unwrap();
        drop(first);
        assert_eq!(presence.of(&plan).unwrap().open, 1);
        presence.forget(&plan);
        assert!(presence.of(&plan).is_some(), "it is still watching");
        drop(second);
        assert_eq!(presence.of(&plan), Some(Watches { open: 0, ended: Some(at(7)) }));
        presence.forget(&plan);
        assert_eq!(presence.of(&plan), None);
    }

    #[test]
    fn an_agent_that_never_reported_is_not_missed() {
        let secret = |key: &str| Secret {
            data: Some([(key.to_owned(), k8s_openapi::ByteString::default())].into()),
            ..Secret::default()
        };
        assert!(!has_reported(&Secret::default()) && !has_reported(&secret(key::PLAN)));
        assert!(has_reported(&secret(key::APPLIED_CHECKSUM)));
    }
}
