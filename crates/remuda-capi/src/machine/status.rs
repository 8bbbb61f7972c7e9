//! The status of a Machine: one pass over everything that was seen.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use remuda_api::core::Machine;
use remuda_names::{
    capi::{annotation, condition as kind},
    rancher::condition::{BLOCKED_BY_BUDGET, DRAIN_BLOCKED, NOT_BLOCKED},
};
use remuda_rollout::{
    condition::{Condition, Status},
    machine::{
        phase::{Phase, Progress, phase},
        status::{self, Cluster, Gate, Input, Probe},
    },
    paused,
    provider::Provider,
    template::Difference,
};

use super::{DrainBlocked, Machines, Pass, Seen};
use crate::{enqueue::true_since, managed::Managed, view};

/// What v1beta1's Ready is made of, in this order.
const OLD_READY: &[&str] = &[
    kind::INFRASTRUCTURE_READY,
    "BootstrapReady",
    kind::HEALTH_CHECK_SUCCEEDED,
    kind::OWNER_REMEDIATED,
    "DrainingSucceeded",
];
/// Phases a Machine goes through until it runs.
const STEPS: [&str; 3] = [Phase::Pending.as_str(), Phase::Provisioning.as_str(), Phase::Provisioned.as_str()];
/// Steps that are counted while a Machine is being made.
const OLD_STEPS: &[&str] = &["BootstrapReady", kind::INFRASTRUCTURE_READY];

impl Machines {
    pub(super) fn status(&self, pass: &mut Pass) {
        self.conditions(pass);
        old_conditions(pass);
        set_phase(pass);
        if pass.errors.is_empty() {
            pass.after.set_observed_generation(pass.before.metadata.generation.unwrap_or(0));
        }
    }

    fn conditions(&self, pass: &mut Pass) {
        let outdated = outdated(pass);
        let machine = view::machine(&pass.after);
        let spec = &pass.after.spec;
        let initialization = pass.after.status.as_ref().map(|status| status.initialization.clone());
        let initialization = initialization.unwrap_or_default();
        let gates: Vec<Gate> = spec
            .readiness_gates
            .iter()
            .map(|gate| Gate { kind: gate.condition_type.clone(), negative: gate.polarity == "Negative" })
            .collect();
        let health = self.capi.workloads.health(&pass.cluster_key);
        let bootstrap = match &pass.bootstrap {
            Seen::NoReference => None,
            seen => Some(Provider {
                kind: &spec.bootstrap.config_ref.kind,
                reading: seen.reading(),
                initialized: initialization.bootstrap_data_secret_created == Some(true),
            }),
        };
        let cluster = pass.cluster.status.as_ref();
        let input = Input {
            machine: &machine,
            bootstrap,
            infrastructure: Provider {
                kind: &spec.infrastructure_ref.kind,
                reading: pass.infrastructure.reading(),
                initialized: initialization.infrastructure_provisioned == Some(true),
            },
            provider_id: &spec.provider_id,
            cluster: Cluster {
                infrastructure_provisioned: cluster
                    .is_some_and(|status| status.initialization.infrastructure_provisioned == Some(true)),
                control_plane_initialized: true_since(&*pass.cluster, kind::CONTROL_PLANE_INITIALIZED),
            },
            probe: Probe { last_success: health.last_success, failures: health.failures },
            node: pass.node.for_status(),
            deleting: pass.stage.as_ref().map(|(reason, message)| (*reason, message.as_str())),
            updating: machine.marks.updating.then_some(""),
            outdated: outdated.as_deref(),
            gates: &gates,
            min_ready_seconds: spec.min_ready_seconds.unwrap_or(0).into(),
        };
        let generation = pass.before.metadata.generation.unwrap_or(0);
        let decided = status::status(&input, generation, pass.now);
        let ours = decided.conditions.into_vec().into_iter().filter(|condition| {
            let kind = condition.kind.as_str();
            kind != kind::PAUSED
                && (Machine::OWNED.contains(&kind) || kind == kind::UP_TO_DATE && outdated.is_some())
        });
        let ours = ours.chain([paused::condition(Machine::KIND, false, false)]);
        let ours = ours.chain(drain_blocked(pass)).collect();
        let now = pass.now;
        view::set(&mut pass.after, ours, now);
        if let Some(left) = decided.requeue {
            pass.again(left);
        }
    }
}

/// Whether the drain before the deletion is held up. It is said of those only that were held up once.
fn drain_blocked(pass: &Pass) -> Option<Condition> {
    let was = || pass.after.conditions().iter().any(|known| known.type_ == DRAIN_BLOCKED);
    match &pass.drain_blocked {
        DrainBlocked::ByBudgets(told) => {
            Some(Condition::new(DRAIN_BLOCKED, Status::True, BLOCKED_BY_BUDGET, told.as_str()))
        }
        DrainBlocked::No if was() => Some(Condition::new(DRAIN_BLOCKED, Status::False, NOT_BLOCKED, "")),
        DrainBlocked::No | DrainBlocked::Unknown => None,
    }
}

/// How a Machine's set differs from its deployment, if it has one. Looked at again when a planned rollout is due.
fn outdated(pass: &mut Pass) -> Option<Vec<Difference>> {
    let (set, deployment) = (pass.set.as_ref()?, pass.deployment.as_ref()?);
    let wanted = view::template(&deployment.spec.template);
    let mut differences = view::template(&set.spec.template).differences(&wanted);
    let after = deployment.spec.rollout.after.as_ref().map(|after| after.0);
    let after = after.filter(|after| view::created(&set.metadata) < *after);
    match after {
        Some(after) if after <= pass.now => differences.push(Difference::RolloutAfterExpired),
        Some(after) => {
            let left = after.duration_since(pass.now).unsigned_abs();
            pass.again(left + std::time::Duration::from_millis(1));
        }
        None => {}
    }
    Some(differences)
}

fn old_conditions(pass: &mut Pass) {
    let making = !pass.deleting() && pass.after.spec.provider_id.is_empty();
    let steps = making.then_some(OLD_STEPS);
    if let Some(ready) = pass.old.summarize(OLD_READY, steps) {
        pass.old.set(ready, pass.now);
    }
    let written = view::write_old(&pass.old);
    if super::old_conditions(&pass.after) != written {
        *pass.after.old_conditions_mut() = written;
    }
}

/// The phase of its making that a Machine has left with a write, and how many seconds it was in it.
pub(super) fn left(before: &Machine, after: &Machine) -> Option<(&'static str, f64)> {
    let (was, is) = (before.status.as_ref()?, after.status.as_ref()?);
    let phase = STEPS.into_iter().find(|step| *step == was.phase).filter(|step| *step != is.phase)?;
    let since = was.last_updated.as_ref().or(before.metadata.creation_timestamp.as_ref())?;
    let seconds = is.last_updated.as_ref()?.0.duration_since(since.0).as_secs_f64();
    Some((phase, seconds.max(0.0)))
}

fn set_phase(pass: &mut Pass) {
    let deleting = pass.deleting();
    let updating = pass.after.annotations().contains_key(annotation::UPDATE_IN_PROGRESS);
    let has_provider_id = !pass.after.spec.provider_id.is_empty();
    let status = pass.after.status.get_or_insert_default();
    let progress = Progress {
        bootstrap_created: status.initialization.bootstrap_data_secret_created == Some(true),
        infrastructure_provisioned: status.initialization.infrastructure_provisioned == Some(true),
        has_provider_id,
        has_node: !status.node_ref.name.is_empty(),
        updating,
        deleting,
    };
    let Some(phase) = phase(progress, &status.phase).filter(|phase| phase.as_str() != status.phase) else {
        return;
    };
    tracing::info!(machine = %pass.key, %phase, "machine enters phase");
    phase.as_str().clone_into(&mut status.phase);
    status.last_updated = Some(Time(Timestamp::from_second(pass.now.as_second()).unwrap_or(pass.now)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_time_in_a_phase_is_known_when_it_is_left() {
        let machine = |phase: &str, at: &str| -> Machine {
            serde_json::from_value(json!({
                "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"clusterName": "c", "bootstrap": {}, "infrastructureRef": {}},
                "status": {"phase": phase, "lastUpdated": format!("2026-01-01T00:{at}Z")},
            }))
            .unwrap()
        };
        let check = |before: (&str, &str), after: (&str, &str), expected| {
            assert_eq!(left(&machine(before.0, before.1), &machine(after.0, after.1)), expected);
        };
        check(("Pending", "00:01"), ("Provisioning", "00:03"), Some(("Pending", 2.0)));
        check(("Provisioned", "01:00"), ("Running", "02:30"), Some(("Provisioned", 90.0)));
        // Nothing was left, or nothing that leads to a machine that runs.
        check(("Provisioning", "00:01"), ("Provisioning", "00:01"), None);
        check(("Running", "01:00"), ("Deleting", "05:00"), None);
        // A clock was set back.
        check(("Provisioning", "05:00"), ("Provisioned", "01:00"), Some(("Provisioning", 0.0)));
    }
}
