//! What a Cluster says about itself.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use remuda_api::core::{Cluster, ReplicaStatus, StatusVersion};
use remuda_names::capi::condition;
use remuda_rollout::{
    cluster::{
        counters::{self, Counters},
        old,
        phase::{Progress, phase},
        status::{ControlPlane, Descendants, Input, status},
    },
    condition::Conditions,
    contract::{self, ControlPlaneObject, InfraCluster},
    machine::status::{Gate, Probe},
    provider::{Provider, Reading},
    version::VersionCount,
    view::{Counts, Machine},
};
use remuda_workload::Health;

use super::{
    delete::Stage,
    observe::{Observed, Referred, owned},
    takeover::Told,
};
use crate::{managed::Managed, providers::Provided, view};

/// Fills in phase, counters and conditions.
pub(super) fn write(
    observed: &Observed,
    after: &mut Cluster,
    stage: Option<&Stage>,
    told: &mut Vec<Told>,
    now: Timestamp,
) {
    let machines: Vec<Machine> = observed.machines.iter().map(|machine| view::machine(machine)).collect();
    write_phase(after, told);
    write_counters(observed, after, &machines);
    let watched = |cluster: &Cluster| remote_connection(cluster).is_none_or(|told| told.message.is_empty());
    let was_watched = watched(after);
    write_conditions(observed, after, stage, &machines, now);
    if observed.health.unwatched.is_some() && was_watched && !watched(after) {
        told.push(Told::Unwatched);
    }
    write_old(observed, after, stage, &machines, now);
}

/// What is said of the connection to the workload cluster.
pub(super) fn remote_connection(cluster: &Cluster) -> Option<&Condition> {
    cluster
        .conditions()
        .iter()
        .find(|known| known.type_ == condition::REMOTE_CONNECTION_PROBE && known.status == "True")
}

fn write_phase(after: &mut Cluster, told: &mut Vec<Told>) {
    let status = after.status.get_or_insert_default();
    let progress = Progress {
        has_reference: after.spec.infrastructure_ref.is_defined()
            || after.spec.control_plane_ref.is_defined(),
        infrastructure_provisioned: status.initialization.infrastructure_provisioned == Some(true),
        endpoint_valid: after.spec.control_plane_endpoint.is_valid(),
        deleting: after.metadata.deletion_timestamp.is_some(),
    };
    if let Some(phase) = phase(progress, &status.phase)
        && status.phase != phase.as_str()
    {
        status.phase = phase.as_str().to_owned();
        told.push(Told::Phase(phase));
    }
}

fn write_counters(observed: &Observed, after: &mut Cluster, machines: &[Machine]) {
    let status = after.status.get_or_insert_default();
    let of_control_plane: Vec<&Machine> = machines.iter().filter(|machine| machine.control_plane).collect();
    let before = counters(status.control_plane.as_ref());
    let control_plane = match &observed.control_plane {
        Referred::Unreadable(_) => before,
        Referred::Here(provided) => {
            let object = ControlPlaneObject { object: provided.data(), contract: provided.contract() };
            counters::reported(&before, Some(&object.counters()), &of_control_plane)
        }
        Referred::Missing => Counters::default(),
        Referred::No if after.spec.topology.is_some() => Counters::default(),
        Referred::No => counters::of_machines(&of_control_plane),
    };
    fill(&mut status.control_plane, control_plane);

    // They have the same fields and no type in common.
    macro_rules! group {
        ($object:expr) => {{
            let status = $object.status.clone().unwrap_or_default();
            Counters {
                desired: $object.spec.replicas,
                counts: Counts {
                    replicas: status.replicas,
                    ready: status.ready_replicas,
                    available: status.available_replicas,
                    up_to_date: status.up_to_date_replicas,
                },
                versions: versions(&status.versions),
            }
        }};
    }
    let mut groups: Vec<Counters> = observed.pools.iter().map(|pool| group!(pool)).collect();
    groups.extend(observed.deployments.iter().map(|deployment| group!(deployment)));
    let sets = observed.sets.iter().filter(|set| owned(&***set, &observed.cluster));
    groups.extend(sets.map(|set| group!(set)));
    let stand_alone: Vec<&Machine> = machines
        .iter()
        .filter(|machine| machine.stand_alone && !machine.control_plane && !machine.pooled)
        .collect();
    fill(&mut status.workers, counters::workers(&groups, &stand_alone));
}

fn versions(versions: &[StatusVersion]) -> Vec<VersionCount> {
    let one = |one: &StatusVersion| VersionCount { version: one.version.clone(), replicas: one.replicas };
    versions.iter().map(one).collect()
}

fn counters(status: Option<&ReplicaStatus>) -> Counters {
    let Some(status) = status else {
        return Counters::default();
    };
    Counters {
        desired: status.desired_replicas,
        counts: Counts {
            replicas: status.replicas,
            ready: status.ready_replicas,
            available: status.available_replicas,
            up_to_date: status.up_to_date_replicas,
        },
        versions: versions(&status.versions),
    }
}

/// Nothing counted is nothing shown: an empty object would not be accepted.
fn fill(status: &mut Option<ReplicaStatus>, counters: Counters) {
    let Counters { desired, counts, versions } = counters;
    let filled = ReplicaStatus {
        desired_replicas: desired,
        replicas: counts.replicas,
        ready_replicas: counts.ready,
        available_replicas: counts.available,
        up_to_date_replicas: counts.up_to_date,
        versions: versions
            .into_iter()
            .map(|VersionCount { version, replicas }| StatusVersion { version, replicas })
            .collect(),
        upgrade_plan: status.take().and_then(|status| status.upgrade_plan),
    };
    *status = (filled != ReplicaStatus::default()).then_some(filled);
}

fn write_conditions(
    observed: &Observed,
    after: &mut Cluster,
    stage: Option<&Stage>,
    machines: &[Machine],
    now: Timestamp,
) {
    let cluster_status = after.status.get_or_insert_default();
    let initialization = cluster_status.initialization.clone();
    let before = view::conditions(after.conditions());
    let deployments: Vec<(String, Conditions)> = observed
        .deployments
        .iter()
        .map(|deployment| (deployment.name_any(), view::conditions(deployment.conditions())))
        .collect();
    let sets: Vec<(String, Conditions)> = observed
        .sets
        .iter()
        .filter(|set| owned(&***set, &observed.cluster))
        .map(|set| (set.name_any(), view::conditions(set.conditions())))
        .collect();
    let gates: Vec<Gate> = after
        .spec
        .availability_gates
        .iter()
        .map(|gate| Gate { kind: gate.condition_type.clone(), negative: gate.polarity == "Negative" })
        .collect();
    let plane = match &observed.control_plane {
        Referred::Here(provided) => contract::conditions(provided.data()).unwrap_or_default(),
        _ => Conditions::default(),
    };
    let spec = &observed.cluster.spec;
    let input = Input {
        before: &before,
        infrastructure: reading(&observed.infrastructure, condition::READY, infrastructure_problem).map(
            |reading| Provider {
                kind: &spec.infrastructure_ref.kind,
                reading,
                initialized: initialization.infrastructure_provisioned == Some(true),
            },
        ),
        control_plane: reading(&observed.control_plane, condition::AVAILABLE, control_plane_problem).map(
            |reading| ControlPlane {
                provider: Provider {
                    kind: &spec.control_plane_ref.kind,
                    reading,
                    initialized: initialization.control_plane_initialized == Some(true),
                },
                name: &spec.control_plane_ref.name,
                initialized: is_initialized(&observed.control_plane),
                conditions: &plane,
            },
        ),
        probe: probe(&observed.health, now),
        unwatched: observed.health.unwatched.as_deref(),
        descendants: observed.unreadable.is_empty().then_some(Descendants {
            machines,
            deployments: &deployments,
            stand_alone_sets: &sets,
        }),
        deleting: stage.map(|stage| (stage.reason, stage.message.as_str())),
        gates: &gates,
        topology: spec.topology.is_some(),
    };
    let decided = status(&input, after.metadata.generation.unwrap_or(0), now);
    // Others' conditions are in there as they were.
    let changed = decided.into_vec().into_iter().filter(|one| before.get(&one.kind) != Some(one)).collect();
    view::set(after, changed, now);
}

/// A connection that works has just been heard of, however long ago it was asked.
fn probe(health: &Health, now: Timestamp) -> Probe {
    let works = health.connected && health.failures == 0 && health.last_success.is_some();
    let last_success = if works { Some(now) } else { health.last_success };
    Probe { last_success, failures: health.failures }
}

fn reading(
    referred: &Referred,
    kind: &str,
    problem: impl FnOnce(&Provided) -> Option<String>,
) -> Option<Reading> {
    Some(match referred {
        Referred::No => return None,
        Referred::Missing => Reading::NotFound,
        Referred::Unreadable(why) => Reading::Failed(why.clone()),
        Referred::Here(provided) => match problem(provided) {
            Some(why) => Reading::Failed(why),
            None => contract::reading(provided.data(), kind),
        },
    })
}

/// What keeps the infrastructure from being taken over, if it reports something else than the contract says.
fn infrastructure_problem(provided: &Provided) -> Option<String> {
    let object = InfraCluster { object: provided.data(), contract: provided.contract() };
    let read = object.provisioned().and(object.endpoint().map(drop)).and(object.failure_domains().map(drop));
    read.err().map(|problem| problem.to_string())
}

fn control_plane_problem(provided: &Provided) -> Option<String> {
    let object = ControlPlaneObject { object: provided.data(), contract: provided.contract() };
    object.initialized().map(drop).and(object.endpoint().map(drop)).err().map(|problem| problem.to_string())
}

fn is_initialized(referred: &Referred) -> bool {
    let Referred::Here(provided) = referred else {
        return false;
    };
    let object = ControlPlaneObject { object: provided.data(), contract: provided.contract() };
    object.initialized().unwrap_or(false)
}

fn write_old(
    observed: &Observed,
    after: &mut Cluster,
    stage: Option<&Stage>,
    machines: &[Machine],
    now: Timestamp,
) {
    let known = after.status.as_ref().and_then(|status| status.deprecated.as_ref()?.v1beta1.as_ref());
    let before = view::old_conditions(known.map_or(&[], |old| &old.conditions));
    let read = |referred: &Referred| match referred {
        Referred::Here(provided) => contract::old_conditions(provided.data()),
        _ => Default::default(),
    };
    let (of_infrastructure, of_control_plane) =
        (read(&observed.infrastructure), read(&observed.control_plane));
    let provisioned = match &observed.infrastructure {
        Referred::Here(provided) => {
            let object = InfraCluster { object: provided.data(), contract: provided.contract() };
            object.provisioned().unwrap_or(false)
        }
        _ => false,
    };
    let decided = old::status(
        &old::Input {
            before: &before,
            infrastructure: old_object(&observed.infrastructure, &of_infrastructure, provisioned),
            control_plane: old_object(
                &observed.control_plane,
                &of_control_plane,
                is_initialized(&observed.control_plane),
            ),
            deleting: stage.map(|stage| &stage.step),
            first_node: machines
                .iter()
                .any(|machine| machine.control_plane && machine.deleted.is_none() && machine.node.is_some()),
        },
        now,
    );
    if decided != before {
        *after.old_conditions_mut() = view::write_old(&decided);
    }
}

fn old_object<'a>(
    referred: &Referred,
    conditions: &'a remuda_rollout::condition::old::OldConditions,
    done: bool,
) -> old::Object<'a> {
    match referred {
        Referred::No => old::Object::NoReference,
        Referred::Missing | Referred::Unreadable(_) => old::Object::Absent,
        Referred::Here(provided) => old::Object::Here { conditions, done, deleting: provided.is_deleting() },
    }
}
