//! Plan Secrets: what agents report, made into what others look at.
//!
//! Reads   plan Secrets.
//! Writes  which plan was applied, when all probes passed first, results of periodic instructions that still
//!         exist; condition `PlanApplied` of the Machine.
//! Never   touches a plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use remuda_api::core::Machine;
use remuda_control::{Action, Controller, ObjectKey, drive, write::conditions::ConditionUpdate};
use remuda_distro::Distro;
use remuda_names::rancher::{annotation, condition};
use remuda_plan::{
    Report, key,
    output::{PeriodicResults, pack, unpack},
    probe, sha256_hex,
};
use remuda_planner::{input::PlanSecret, node_plan::NodePlan};
use tokio_util::sync::CancellationToken;

use crate::{Error, conditions::rfc3339, machines::plan_secret, objects, shared::Rke};

pub(crate) async fn run(rke: Arc<Rke>, stop: CancellationToken) {
    let controller = Controller::on("plan-secret", &rke.ctx, rke.plans.clone()).workers(rke.options.workers);
    if stop.run_until_cancelled(rke.synced()).await.is_none() {
        return;
    }
    drive(controller, reconcile, rke, stop).await;
}

async fn reconcile(secret: Arc<Secret>, rke: Arc<Rke>) -> Result<Action, Error> {
    if objects::is_deleting(&secret.metadata) || secret.data.as_ref().is_none_or(BTreeMap::is_empty) {
        return Ok(Action::AwaitChange);
    }
    let before = plan_secret(&secret);
    let after = digest(&before, rke.ctx.clock.now());
    let namespace = secret.namespace().unwrap_or_default();
    let version = secret.resource_version().unwrap_or_default();
    rke.write_plan(&namespace, &version, &before, &after).await?;
    if let Some((machine, distro)) = machine(&rke, &secret)
        && let Some(verdict) = judge(&after)
    {
        let message = match verdict {
            Verdict::Good => String::new(),
            Verdict::Failed => failure(&machine, distro),
        };
        let (status, reason) = match verdict {
            Verdict::Good => (Some(true), condition::PLAN_APPLIED),
            Verdict::Failed => (Some(false), "Error"),
        };
        let says = ConditionUpdate {
            kind: condition::PLAN_APPLIED,
            status,
            reason,
            message: &message,
            generation: None,
        };
        rke.mark(&ObjectKey::of(&machine.metadata), says).await?;
    }
    Ok(Action::AwaitChange)
}

/// The Machine, if its cluster is one of ours, and what the cluster runs.
fn machine(rke: &Rke, secret: &Secret) -> Option<(Arc<Machine>, Distro)> {
    let machine = rke.machine_of_plan(secret)?;
    let cluster = rke.cluster_of(&machine)?;
    let control_plane = rke.control_plane_of(&cluster)?;
    Some((machine, Distro::of(&control_plane.spec.kubernetes_version)))
}

/// What the Secret becomes.
fn digest(secret: &PlanSecret, now: Timestamp) -> PlanSecret {
    let mut after = secret.clone();
    let value = |key: &str| secret.data.get(key).map(Vec::as_slice).unwrap_or_default();
    let plan = value(key::PLAN);
    let applied = value(key::APPLIED_CHECKSUM);
    if !plan.is_empty() && value(key::APPLIED_PLAN) != plan && applied == sha256_hex(plan).as_bytes() {
        after.data.insert(key::APPLIED_PLAN.to_owned(), plan.to_vec());
    }
    let passed = secret.annotations.get(annotation::PLAN_PROBES_PASSED).is_some_and(|time| !time.is_empty());
    let statuses = secret.data.get(key::PROBE_STATUSES).and_then(|raw| probe::parse(raw));
    if !passed && statuses.is_some_and(|statuses| statuses.values().all(|status| status.healthy)) {
        after.annotations.insert(annotation::PLAN_PROBES_PASSED.to_owned(), rfc3339(now));
    }
    if let Some(kept) = still_wanted(plan, value(key::APPLIED_PERIODIC_OUTPUT)) {
        after.data.insert(key::APPLIED_PERIODIC_OUTPUT.to_owned(), kept);
    }
    after
}

/// Results of periodic instructions without those the plan no longer has; `None` if there are no such.
fn still_wanted(plan: &[u8], results: &[u8]) -> Option<Vec<u8>> {
    if results.is_empty() || plan.is_empty() {
        return None;
    }
    let mut results: PeriodicResults = unpack(results).ok()?;
    let plan = NodePlan::decode(plan).ok()?;
    let names: BTreeSet<&str> =
        plan.periodic_instructions.iter().map(|instruction| instruction.name.as_str()).collect();
    let before = results.len();
    results.retain(|name, _| names.contains(name.as_str()));
    if results.len() == before {
        return None;
    }
    Some(if results.is_empty() { Vec::new() } else { pack(results) })
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    /// The agent has given up, or says so after every try.
    Failed,
}

/// `None` while the agent may still succeed by itself.
fn judge(secret: &PlanSecret) -> Option<Verdict> {
    let report = Report::read(|key| secret.data.get(key).map(Vec::as_slice).unwrap_or_default());
    match report {
        Report { delivered: false, .. } => None,
        Report { failing: false, .. } => Some(Verdict::Good),
        Report { gave_up, .. } => gave_up.then_some(Verdict::Failed),
    }
}

fn failure(machine: &Machine, distro: Distro) -> String {
    use remuda_names::rancher::label::{CONTROL_PLANE_ROLE, ETCD_ROLE};
    let is = |key: &str| machine.labels().get(key).is_some_and(|value| value == "true");
    let server = is(ETCD_ROLE) || is(CONTROL_PLANE_ROLE);
    let unit = if server { distro.server_unit() } else { distro.agent_unit() };
    format!(
        "error applying plan -- check rancher-system-agent.service and {unit}.service logs on node for more \
         information"
    )
}

#[cfg(test)]
mod tests {
    use remuda_plan::{PeriodicInstruction, output::PeriodicResult};

    use super::*;

    fn secret(data: &[(&str, &[u8])]) -> PlanSecret {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), value.to_vec()));
        PlanSecret { data: data.collect(), ..PlanSecret::default() }
    }

    #[test]
    fn a_plan_whose_checksum_was_reported_is_the_applied_one() {
        let sum = sha256_hex(b"{}");
        let applied = |plan: &[u8]| {
            let before = secret(&[(key::PLAN, plan), (key::APPLIED_CHECKSUM, sum.as_bytes())]);
            digest(&before, Timestamp::UNIX_EPOCH).data.get(key::APPLIED_PLAN).cloned()
        };
        assert_eq!(applied(b"{}"), Some(b"{}".to_vec()));
        assert_eq!(applied(b"{ }"), None);
        let settled = secret(&[
            (key::PLAN, b"{}"),
            (key::APPLIED_PLAN, b"{}"),
            (key::APPLIED_CHECKSUM, sum.as_bytes()),
        ]);
        assert_eq!(digest(&settled, Timestamp::UNIX_EPOCH), settled);
    }

    #[test]
    fn probes_pass_once_all_of_them_are_healthy() {
        let passed = |statuses: &[u8]| {
            let after = digest(&secret(&[(key::PROBE_STATUSES, statuses)]), Timestamp::UNIX_EPOCH);
            after.annotations.contains_key(annotation::PLAN_PROBES_PASSED)
        };
        assert!(passed(br#"{"a":{"healthy":true}}"#));
        assert!(!passed(br#"{"a":{"healthy":true},"b":{}}"#));
        assert!(!passed(b"?"));
        let mut known = secret(&[(key::PROBE_STATUSES, br#"{"a":{"healthy":true}}"#)]);
        known.annotations.insert(annotation::PLAN_PROBES_PASSED.into(), "then".into());
        assert_eq!(digest(&known, Timestamp::UNIX_EPOCH), known);
    }

    #[test]
    fn results_of_instructions_that_are_gone_go_too() {
        let instruction = PeriodicInstruction { name: "stays".into(), ..PeriodicInstruction::default() };
        let plan = NodePlan { periodic_instructions: vec![instruction], ..NodePlan::default() }.encode();
        let results = |names: &[&str]| {
            pack(names.iter().map(|name| ((*name).to_owned(), PeriodicResult::default())).collect())
        };
        assert_eq!(still_wanted(&plan, &results(&["stays"])), None);
        assert_eq!(still_wanted(&plan, &results(&["stays", "goes"])), Some(results(&["stays"])));
        assert_eq!(still_wanted(&plan, &results(&["goes"])), Some(Vec::new()));
        assert_eq!(still_wanted(&plan, b"garbage"), None);
    }

    #[test]
    fn a_plan_has_failed_when_no_further_try_would_be_news() {
        let sum = sha256_hex(b"{}");
        let check = |data: &[(&str, &[u8])], expected: Option<Verdict>| {
            let mut secret = secret(data);
            secret.data.insert(key::PLAN.into(), b"{}".to_vec());
            assert_eq!(judge(&secret), expected);
        };
        check(&[], Some(Verdict::Good));
        check(&[(key::FAILED_CHECKSUM, b"other")], Some(Verdict::Good));
        check(&[(key::FAILED_CHECKSUM, sum.as_bytes())], None);
        check(&[(key::FAILED_CHECKSUM, sum.as_bytes()), (key::MAX_FAILURES, b"-1")], Some(Verdict::Failed));
        let counted = [(key::FAILED_CHECKSUM, sum.as_bytes()), (key::MAX_FAILURES, b"3")];
        check(&counted, None);
        check(&[counted[0], counted[1], (key::FAILURE_COUNT, b"3")], Some(Verdict::Failed));
        check(&[(key::PLAN_STATE, b"failed")], Some(Verdict::Failed));
        assert_eq!(judge(&PlanSecret::default()), None);
    }
}
