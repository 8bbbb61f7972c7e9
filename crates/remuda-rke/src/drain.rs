//! Drains: what the planner asks for on plan Secrets is done on Nodes.
//!
//! Reads   plan Secrets, their Machines, pods of workload clusters.
//! Writes  annotations of plan Secrets, condition `DrainBlocked` of Machines; cordons, evicts and uncordons.
//! Never   starts one by itself, and never waits: a drain goes on with the next look.
//!
//! The planner writes `drain-options`. The node is cordoned, hooks before the drain are waited for, pods are
//! evicted, and `drain-done` is written. When the planner writes `uncordon`, hooks after the drain are waited
//! for, the node is uncordoned and all annotations go.

mod pods;

use std::{collections::HashMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{Api, ResourceExt, api::Patch};
use parking_lot::Mutex;
use remuda_api::core::Machine;
use remuda_control::{
    Action, Chain, Controller, Enqueuer, ObjectKey, drive, write::conditions::ConditionUpdate,
};
use remuda_names::rancher::{annotation, condition};
use remuda_planner::{
    input::PlanSecret,
    spec::{DrainHook, DrainOptions},
};
use remuda_workload::{Down, Lease, Refused, What, budget};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    error::is_code,
    machines::plan_secret,
    objects,
    shared::{BY_CLUSTER, Rke, filed},
};

/// How soon pods that are going are looked at again.
const AGAIN: Duration = Duration::from_secs(5);
/// How soon a drain that failed is tried again.
const RETRY: Duration = Duration::from_secs(15);
/// A cluster that is back wakes us; this is for one whose event was missed.
const UNREACHABLE: Duration = Duration::from_secs(60);
/// How long a drain may take that says nothing about it.
const TIMEOUT: SignedDuration = SignedDuration::from_mins(10);

/// All annotations of a drain.
const OURS: &[&str] = &[
    annotation::PRE_DRAIN,
    annotation::POST_DRAIN,
    annotation::DRAIN_OPTIONS,
    annotation::DRAIN_DONE,
    annotation::UNCORDON,
];

struct Drains {
    rke: Arc<Rke>,
    enqueuer: Enqueuer,
    /// Since when a drain with these options is under way. A restart gives it its full time again.
    started: Mutex<HashMap<ObjectKey, (String, Timestamp)>>,
}

/// Why a step could not be done.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    /// Nothing is known of the node, so nothing is said about it.
    #[error("workload cluster cannot be asked")]
    Unreachable(Duration),
    /// Goes into the annotation.
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Other(#[from] Error),
}

impl From<Down> for Trouble {
    fn from(_: Down) -> Self {
        Trouble::Unreachable(UNREACHABLE)
    }
}

/// How far a step came.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// Done, or waiting for somebody who wakes us.
    Step,
    /// Pods are going.
    Going,
}

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    let controller =
        Controller::on("machine-drain", &rke.ctx, rke.plans.clone()).workers(rke.options.workers);
    let enqueuer = controller.enqueuer();
    let plans = rke.plans.clone();
    // A Node that became known.
    let controller = controller.watches_facts(
        &rke.machines,
        |machine: &Machine| machine.status.as_ref().map(|status| status.node_ref.name.clone()),
        |machine| {
            let name = objects::bootstrap_of(machine).map(objects::plan_name);
            name.map(|name| ObjectKey::of(&machine.metadata).sibling(name)).into_iter().collect()
        },
    );
    let woken = enqueuer.clone();
    let connections = rke.workloads.subscribe(move |event| {
        if matches!(event.what, What::Connected) {
            let namespace = event.cluster.namespace.as_deref().unwrap_or_default();
            for secret in plans.by_index(BY_CLUSTER, &filed(namespace, &event.cluster.name)) {
                if secret.annotations().contains_key(annotation::DRAIN_OPTIONS) {
                    woken.enqueue(ObjectKey::of(&secret.metadata));
                }
            }
        }
    });
    if stop.run_until_cancelled(rke.synced()).await.is_none() {
        return;
    }
    let drains = Arc::new(Drains { rke, enqueuer, started: Mutex::default() });
    drive(controller, reconcile, drains, stop).await;
    drop(connections);
}

async fn reconcile(secret: Arc<Secret>, ctx: Arc<Drains>) -> Result<Action, Error> {
    let key = ObjectKey::of(&secret.metadata);
    let Some(task) = task(secret.annotations()) else {
        ctx.started.lock().remove(&key);
        return Ok(Action::AwaitChange);
    };
    let Some(machine) = ctx.rke.machine_of_plan(&secret) else {
        return Ok(Action::AwaitChange);
    };
    let ours = ctx.rke.cluster_of(&machine).and_then(|cluster| ctx.rke.control_plane_of(&cluster));
    if ours.is_none() || objects::is_deleting(&secret.metadata) {
        return Ok(Action::AwaitChange);
    }
    let before = plan_secret(&secret);
    let mut after = before.clone();
    let options = options(task.text);
    let forgives = options.as_ref().is_ok_and(|options| options.ignore_errors) && !task.uncordon;
    let outcome = match options {
        Err(error) => Err(Trouble::Failed(error)),
        Ok(options) => match ctx.step(&key, &machine, &task, &options, &mut after).await {
            // How far the drain is cannot be seen; its time passes all the same.
            Err(Trouble::Unreachable(again)) if !task.uncordon => {
                let left = ctx.time_left(&key, task.text, &options, "the cluster cannot be reached");
                left.and_then(|left| Err(Trouble::Unreachable(again.min(left))))
            }
            outcome => outcome,
        },
    };
    let next = match outcome {
        // What went wrong last time stays said until it is known to go better.
        Ok(Progress::Going) => Action::RequeueAfter(AGAIN),
        Ok(Progress::Step) => {
            after.annotations.remove(annotation::DRAIN_ERROR);
            Action::AwaitChange
        }
        Err(Trouble::Failed(why)) if forgives => {
            tracing::warn!(machine = %machine.name_any(), error = why, "goes on although its node was not drained");
            after.annotations.remove(annotation::DRAIN_ERROR);
            after.annotations.insert(annotation::DRAIN_DONE.to_owned(), task.text.to_owned());
            ctx.started.lock().remove(&key);
            Action::AwaitChange
        }
        Err(Trouble::Failed(why)) => {
            after.annotations.insert(annotation::DRAIN_ERROR.to_owned(), why);
            Action::RequeueAfter(RETRY)
        }
        Err(Trouble::Unreachable(again)) => Action::RequeueAfter(again),
        Err(Trouble::Other(error)) => return Err(error),
    };
    let version = secret.resource_version().unwrap_or_default();
    let namespace = key.namespace.as_deref().unwrap_or_default();
    ctx.rke.write_plan(namespace, &version, &before, &after).await?;
    Ok(next)
}

/// What is to be done, and with which options.
#[derive(Debug, PartialEq, Eq)]
struct Task<'a> {
    text: &'a str,
    uncordon: bool,
}

fn task(annotations: &std::collections::BTreeMap<String, String>) -> Option<Task<'_>> {
    let value = |key: &str| annotations.get(key).map_or("", String::as_str);
    let (text, done) = (value(annotation::DRAIN_OPTIONS), value(annotation::DRAIN_DONE));
    let uncordon = value(annotation::UNCORDON);
    // A drain that the planner no longer waits for is over, whether or not it was done.
    if !text.is_empty() && text != done && text != uncordon {
        return Some(Task { text, uncordon: false });
    }
    (!uncordon.is_empty()).then_some(Task { text: uncordon, uncordon: true })
}

fn options(text: &str) -> Result<DrainOptions, String> {
    serde_json::from_str(text).map_err(|error| format!("drain options cannot be read: {error}"))
}

/// Whether everybody has answered who was asked to. The question is put into the annotation `key`.
fn answered(secret: &mut PlanSecret, key: &str, hooks: &[DrainHook], text: &str) -> bool {
    let names = || hooks.iter().map(|hook| &hook.annotation).filter(|name| !name.is_empty());
    if names().next().is_none() {
        return true;
    }
    secret.annotations.insert(key.to_owned(), text.to_owned());
    names().all(|name| secret.annotations.get(name).is_some_and(|answer| answer == text))
}

impl Drains {
    /// One step of a drain or of its end; `secret` becomes what it comes to.
    async fn step(
        &self,
        key: &ObjectKey,
        machine: &Machine,
        task: &Task<'_>,
        options: &DrainOptions,
        secret: &mut PlanSecret,
    ) -> Result<Progress, Trouble> {
        let name = machine.status.as_ref().map(|status| status.node_ref.name.as_str()).unwrap_or_default();
        let cluster = key.sibling(&machine.spec.cluster_name);
        if task.uncordon {
            if name.is_empty()
                || !answered(secret, annotation::POST_DRAIN, &options.post_drain_hooks, task.text)
            {
                return Ok(Progress::Step);
            }
            let lease = self.lease(&cluster, key)?;
            self.schedule(&cluster, &lease, name, true).await?;
            // A drain that was switched off is held up by nothing any more.
            self.tell_blocked(machine, "").await?;
            let hooks = options.pre_drain_hooks.iter().chain(&options.post_drain_hooks);
            let hooks = hooks.map(|hook| hook.annotation.as_str()).filter(|name| !name.is_empty());
            for key in OURS.iter().copied().chain(hooks) {
                secret.annotations.remove(key);
            }
            self.started.lock().remove(key);
            return Ok(Progress::Step);
        }
        let lease = if name.is_empty() { None } else { Some(self.lease(&cluster, key)?) };
        if let Some(lease) = &lease {
            self.schedule(&cluster, lease, name, false).await?;
        }
        if !answered(secret, annotation::PRE_DRAIN, &options.pre_drain_hooks, task.text) {
            // The time of the drain is not that of its hooks.
            self.started.lock().remove(key);
            return Ok(Progress::Step);
        }
        if let Some(lease) = lease.filter(|_| options.enabled) {
            let now = self.rke.ctx.clock.now();
            let left = pods::drain(&lease, name, options, now).await?;
            let told = budget::told(&left.blocking);
            self.tell_blocked(machine, &told).await?;
            if !left.pods.is_empty() {
                let why = if told.is_empty() { pods_left(&left.pods) } else { told };
                self.time_left(key, task.text, options, &why)?;
                return Ok(Progress::Going);
            }
        }
        self.started.lock().remove(key);
        secret.annotations.insert(annotation::DRAIN_DONE.to_owned(), task.text.to_owned());
        Ok(Progress::Step)
    }

    /// Says on the Machine which budgets hold a drain up; nothing is said of one that never was.
    async fn tell_blocked(&self, machine: &Machine, told: &str) -> Result<(), Error> {
        let known = machine.status.as_ref().map(|status| &*status.conditions).unwrap_or_default();
        let blocked = !told.is_empty();
        if !blocked && !known.iter().any(|known| known.type_ == condition::DRAIN_BLOCKED) {
            return Ok(());
        }
        let says = ConditionUpdate {
            kind: condition::DRAIN_BLOCKED,
            status: Some(blocked),
            reason: if blocked { condition::BLOCKED_BY_BUDGET } else { condition::NOT_BLOCKED },
            message: told,
            generation: None,
        };
        self.rke.mark(&ObjectKey::of(&machine.metadata), says).await.map(drop)
    }

    fn lease(&self, cluster: &ObjectKey, key: &ObjectKey) -> Result<Lease, Trouble> {
        self.rke.workloads.lease(cluster, &self.enqueuer, key).map_err(|refused| match refused {
            Refused::Down(_) => Trouble::Unreachable(UNREACHABLE),
            Refused::Busy => Trouble::Unreachable(AGAIN),
        })
    }

    /// Cordons or uncordons a Node. One that is gone needs neither.
    async fn schedule(
        &self,
        cluster: &ObjectKey,
        lease: &Lease,
        name: &str,
        on: bool,
    ) -> Result<(), Trouble> {
        let Some(node) = self.rke.workloads.node(cluster, name)? else {
            return Ok(());
        };
        let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        if cordoned != on {
            return Ok(());
        }
        let nodes: Api<Node> = Api::all(lease.client());
        let value = if on { json!(null) } else { json!(true) };
        let patch = Patch::Merge(json!({"metadata": {"uid": node.uid()}, "spec": {"unschedulable": value}}));
        match lease.call(nodes.patch(name, &self.rke.params(), &patch)).await? {
            Err(error) if !is_code(&error, 404) => {
                let what = if on { "uncordon" } else { "cordon" };
                Err(Trouble::Failed(format!("{what} node {name}: {}", Chain(&error))))
            }
            _ => Ok(()),
        }
    }

    /// How much of its time a drain has left. One that takes too long has failed; it is then begun anew.
    fn time_left(
        &self,
        key: &ObjectKey,
        text: &str,
        options: &DrainOptions,
        why: &str,
    ) -> Result<Duration, Trouble> {
        let now = self.rke.ctx.clock.now();
        let timeout = if options.timeout > 0 { SignedDuration::from_secs(options.timeout) } else { TIMEOUT };
        let mut started = self.started.lock();
        let begun = started.entry(key.clone()).or_insert_with(|| (text.to_owned(), now));
        if begun.0 != text {
            *begun = (text.to_owned(), now);
        }
        let left = timeout - now.duration_since(begun.1);
        match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => Ok(left),
            _ => {
                begun.1 = now;
                let seconds = timeout.as_secs();
                Err(Trouble::Failed(format!("drain did not end within {seconds}s: {why}")))
            }
        }
    }
}

fn pods_left(left: &[String]) -> String {
    let shown = left.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = if left.len() > 3 { format!(" and {} more", left.len() - 3) } else { String::new() };
    format!("pods left: {shown}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(annotations: &[(&str, &str)]) -> PlanSecret {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        PlanSecret { annotations: annotations.collect(), ..PlanSecret::default() }
    }

    #[test]
    fn a_drain_comes_before_its_end() {
        let check = |annotations: &[(&str, &str)], expected: Option<(&str, bool)>| {
            let secret = secret(annotations);
            let expected = expected.map(|(text, uncordon)| Task { text, uncordon });
            assert_eq!(task(&secret.annotations), expected);
        };
        let (drain, done, end) = (annotation::DRAIN_OPTIONS, annotation::DRAIN_DONE, annotation::UNCORDON);
        check(&[], None);
        check(&[(drain, "{}")], Some(("{}", false)));
        check(&[(drain, "{}"), (done, "{}")], None);
        check(&[(drain, "{}"), (done, "{}"), (end, "{}")], Some(("{}", true)));
        check(&[(drain, "new"), (done, "{}"), (end, "{}")], Some(("new", false)));
        // Switched off before it was done.
        check(&[(drain, "{}"), (end, "{}")], Some(("{}", true)));
    }

    #[test]
    fn hooks_are_asked_and_waited_for() {
        let hooks = [DrainHook { annotation: "h".into() }, DrainHook { annotation: String::new() }];
        let mut asked = secret(&[]);
        assert!(answered(&mut asked, annotation::PRE_DRAIN, &hooks[1..], "x"));
        assert!(asked.annotations.is_empty());
        assert!(!answered(&mut asked, annotation::PRE_DRAIN, &hooks, "x"));
        assert_eq!(asked.annotations[annotation::PRE_DRAIN], "x");
        asked.annotations.insert("h".into(), "old".into());
        assert!(!answered(&mut asked, annotation::PRE_DRAIN, &hooks, "x"));
        asked.annotations.insert("h".into(), "x".into());
        assert!(answered(&mut asked, annotation::PRE_DRAIN, &hooks, "x"));
    }

    #[test]
    fn options_nobody_can_read_are_an_error_and_no_panic() {
        assert!(options("{}").is_ok());
        assert!(options("[").unwrap_err().starts_with("drain options cannot be read"));
    }
}
