//! Waiting for clusters, with something to look at meanwhile.
//!
//! [`Snapshot`] says how far a cluster is, in one line for each machine; it is a pure function of the evidence.
//! On a terminal the lines are drawn and redrawn, elsewhere every change is a line of its own.

mod draw;

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use crate::{
    age,
    evidence::{Evidence, Pool, Roles},
    failure::{Code, Failure},
    gather::{self, Depth},
    session::Session,
    table::Tone,
    why::{self, Finding, State},
};

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Everything is as it is wanted.
    Ready,
    /// Nothing is left.
    Gone,
    /// All its machines are stopped.
    Hibernated,
}

/// A cluster by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterKey {
    pub namespace: String,
    pub name: String,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    pub roles: String,
    pub text: String,
    pub state: State,
}

/// How far a cluster is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub cluster: String,
    pub text: String,
    pub state: State,
    pub rows: Vec<Row>,
    pub ready: usize,
    pub wanted: usize,
    pub reached: bool,
    /// It will never be ready: somebody deletes it, or has.
    pub lost: bool,
}

impl Snapshot {
    pub fn of(evidence: &Evidence, goal: Goal, now: Timestamp) -> Snapshot {
        let exists = evidence.cluster.is_some() || evidence.capi.is_some();
        let finding = why::decide(evidence, now);
        let rows: Vec<Row> = evidence
            .machines
            .iter()
            .map(|machine| {
                let finding = why::of_machine(evidence, machine, now);
                Row {
                    name: machine.name().to_owned(),
                    roles: Roles::of(machine).to_string(),
                    text: finding.brief,
                    state: finding.state,
                }
            })
            .collect();
        let ready = rows.iter().filter(|row| row.state == State::Ready).count();
        let wanted: i64 = evidence.pools().map(Pool::wanted).sum();
        let wanted = usize::try_from(wanted).unwrap_or_default().max(rows.len());
        let reached = match goal {
            Goal::Ready => exists && finding.is_ready(),
            Goal::Gone => !exists,
            Goal::Hibernated => exists && finding.cause == why::Cause::Hibernated,
        };
        Snapshot {
            cluster: evidence.name().to_owned(),
            text: if exists { headline(&finding) } else { "gone".to_owned() },
            state: if reached { State::Ready } else { finding.state.min(State::Waiting) },
            lost: goal != Goal::Gone && (!exists || finding.deleting),
            rows,
            ready,
            wanted,
            reached,
        }
    }
}

/// What is said about the whole cluster; what a machine does is said beside the machine.
fn headline(finding: &Finding) -> String {
    match (&finding.machine, finding.state) {
        (Some(_), State::Waiting) => "in progress".to_owned(),
        (_, State::Blocked) => finding.summary.clone(),
        _ => finding.brief.clone(),
    }
}

pub(crate) fn tone(state: State) -> Tone {
    match state {
        State::Ready => Tone::Good,
        State::Waiting => Tone::Busy,
        State::Blocked => Tone::Bad,
    }
}

/// How often clusters are looked at: often while somebody is likely to look, less later.
fn pause(waited: Duration) -> Duration {
    if waited < Duration::from_secs(60) { Duration::from_millis(400) } else { Duration::from_secs(2) }
}

/// Waits until all of the clusters are ready, or gone.
///
/// A server that does not answer for a while is waited for as well. Ctrl-C ends the waiting and nothing else.
pub async fn wait(
    session: &Session,
    clusters: &[ClusterKey],
    goal: Goal,
    timeout: Duration,
) -> Result<(), Failure> {
    let started = tokio::time::Instant::now();
    let mut view = draw::View::new(session.out.clone());
    let mut open: BTreeSet<ClusterKey> = clusters.iter().cloned().collect();
    let mut last = String::new();
    loop {
        let mut reached = Vec::new();
        for key in &open {
            match gather::cluster(session, &key.namespace, &key.name, Depth::Objects).await {
                Ok(evidence) => {
                    let snapshot = Snapshot::of(&evidence, goal, Timestamp::now());
                    last = format!("cluster {}: {}", key.name, snapshot.text);
                    view.show(&snapshot, &key.name, started.elapsed());
                    if snapshot.lost {
                        view.finish();
                        let message = format!("cluster {} is gone, or going", key.name);
                        return Err(
                            Failure::new(Code::NotFound, message).hint("somebody deleted it meanwhile")
                        );
                    }
                    if snapshot.reached {
                        reached.push(key.clone());
                    }
                }
                Err(failure) if failure.code == Code::Unreachable => {
                    last = failure.message.clone();
                    view.trouble("the server does not answer", started.elapsed());
                }
                Err(failure) => {
                    view.finish();
                    return Err(failure);
                }
            }
        }
        for key in reached {
            open.remove(&key);
        }
        if open.is_empty() {
            view.finish();
            return Ok(());
        }
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            view.finish();
            return Err(timed_out(&open, goal, timeout, &last));
        }
        tokio::select! {
            () = tokio::time::sleep(pause(started.elapsed()).min(left)) => {}
            _ = tokio::signal::ctrl_c() => {
                view.finish();
                return Err(interrupted(&open));
            }
        }
    }
}

fn names(open: &BTreeSet<ClusterKey>) -> String {
    let names: Vec<_> = open.iter().map(|key| key.name.as_str()).collect();
    names.join(", ")
}

fn timed_out(open: &BTreeSet<ClusterKey>, goal: Goal, timeout: Duration, last: &str) -> Failure {
    let goal = match goal {
        Goal::Ready => "ready",
        Goal::Gone => "gone",
        Goal::Hibernated => "hibernated",
    };
    let after = age::short(i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX));
    let failure = Failure::new(Code::TimedOut, format!("{} not {goal} after {after}; {last}", names(open)));
    match open.first() {
        Some(key) => failure.hint(format!("remuda why {} -n {}", key.name, key.namespace)),
        None => failure,
    }
}

fn interrupted(open: &BTreeSet<ClusterKey>) -> Failure {
    let failure =
        Failure::new(Code::Interrupted, format!("stopped waiting for {}; the server goes on", names(open)));
    match open.first() {
        Some(key) => failure.hint(format!("remuda cluster describe {} -n {}", key.name, key.namespace)),
        None => failure,
    }
}
