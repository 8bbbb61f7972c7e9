//! Objects as decisions see them, and decisions as objects show them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kube::ResourceExt;
use remuda_api::core::{ContractReference, Machine, MachineTemplate, OldCondition};
use remuda_names::capi::{annotation, group, label};
use remuda_rollout::{
    condition::{
        Condition, Conditions, Status,
        old::{self, OldConditions, Severity},
    },
    selector::{Expression, Operator, Selector},
    template::{Reference, Template},
    view,
};

use crate::managed::{Managed, group_of};

/// Conditions as they were read. One with a status nobody knows counts as unknown.
pub(crate) fn conditions(read: &[meta::Condition]) -> Conditions {
    let one = |read: &meta::Condition| Condition {
        kind: read.type_.clone(),
        status: Status::parse(&read.status).unwrap_or(Status::Unknown),
        reason: read.reason.clone(),
        message: read.message.clone(),
        since: Some(read.last_transition_time.0),
        generation: read.observed_generation.unwrap_or(0),
    };
    Conditions::read(read.iter().map(one).collect())
}

fn written(condition: Condition, now: Timestamp) -> meta::Condition {
    meta::Condition {
        type_: condition.kind,
        status: condition.status.as_str().to_owned(),
        reason: condition.reason,
        message: condition.message,
        last_transition_time: meta::Time(condition.since.unwrap_or(now)),
        observed_generation: (condition.generation != 0).then_some(condition.generation),
    }
}

/// Sets conditions of an object, as seen at its generation.
pub(crate) fn set<K: Managed>(object: &mut K, set: Vec<Condition>, now: Timestamp) {
    let generation = object.meta().generation.unwrap_or(0);
    let mut known = conditions(object.conditions());
    for condition in set {
        known.set(condition, generation, now);
    }
    *object.conditions_mut() =
        known.into_vec().into_iter().map(|condition| written(condition, now)).collect();
}

/// Old conditions as they were read.
pub(crate) fn old_conditions(read: &[OldCondition]) -> OldConditions {
    let one = |read: &OldCondition| old::OldCondition {
        kind: read.kind.clone(),
        status: Status::parse(&read.status).unwrap_or(Status::Unknown),
        severity: Severity::parse(&read.severity),
        reason: read.reason.clone(),
        message: read.message.clone(),
        since: read.last_transition_time.as_ref().map(|time| time.0),
    };
    OldConditions::read(read.iter().map(one).collect())
}

/// Old conditions as they are written.
pub(crate) fn write_old(conditions: &OldConditions) -> Vec<OldCondition> {
    let one = |condition: &old::OldCondition| OldCondition {
        kind: condition.kind.clone(),
        status: condition.status.as_str().to_owned(),
        severity: condition.severity.map(|severity| severity.as_str().to_owned()).unwrap_or_default(),
        last_transition_time: condition.since.map(meta::Time),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    };
    conditions.as_slice().iter().map(one).collect()
}

/// A Machine as sets, deployments and clusters see it.
pub(crate) fn machine(machine: &Machine) -> view::Machine {
    let status = machine.status.as_ref();
    let annotations = machine.annotations();
    let labels = machine.labels();
    let owners = machine.owner_references();
    let owned_by = |kind: &str| {
        owners.iter().any(|owner| owner.kind == kind && group_of(&owner.api_version) == group::CORE)
    };
    view::Machine {
        name: machine.name_any(),
        created: created(&machine.metadata),
        deleted: machine.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        control_plane: labels.contains_key(label::CONTROL_PLANE),
        pooled: labels.contains_key(label::POOL_NAME),
        stand_alone: owned_by("Cluster"),
        node: status.map(|status| status.node_ref.name.clone()).filter(|name| !name.is_empty()),
        conditions: conditions(machine.conditions()),
        drain_started: status
            .and_then(|status| status.deletion.as_ref()?.node_drain_start_time.as_ref())
            .map(|time| time.0),
        version: machine.spec.version.clone(),
        kubelet_version: status
            .and_then(|status| status.node_info.as_ref())
            .map(|info| info.kubelet_version.clone())
            .unwrap_or_default(),
        marks: view::Marks {
            delete_first: annotations.contains_key(annotation::DELETE_MACHINE),
            remediate: annotations.contains_key(annotation::REMEDIATE_MACHINE),
            skip_remediation: annotations.contains_key(annotation::SKIP_REMEDIATION),
            paused: annotations.contains_key(annotation::PAUSED),
            updating: annotations.contains_key(annotation::UPDATE_IN_PROGRESS),
            moving: annotations.contains_key(annotation::PENDING_ACKNOWLEDGE_MOVE),
        },
    }
}

/// When an object was made; one that the API has not seen yet is as old as can be.
pub(crate) fn created(meta: &meta::ObjectMeta) -> Timestamp {
    meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

pub(crate) fn reference(reference: &ContractReference) -> Reference {
    Reference {
        group: reference.api_group.clone(),
        kind: reference.kind.clone(),
        name: reference.name.clone(),
    }
}

/// The part of a template that decides about rollouts.
pub(crate) fn template(template: &MachineTemplate) -> Template {
    let spec = &template.spec;
    let bootstrap = &spec.bootstrap;
    Template {
        version: spec.version.clone(),
        bootstrap: bootstrap.config_ref.is_defined().then(|| reference(&bootstrap.config_ref)),
        data_secret: bootstrap.data_secret_name.clone(),
        infrastructure: reference(&spec.infrastructure_ref),
        failure_domain: spec.failure_domain.clone(),
    }
}

/// A selector as it is matched. An operator nobody knows matches nothing.
pub(crate) fn selector(selector: &meta::LabelSelector) -> Selector {
    let expressions = selector.match_expressions.iter().flatten().map(|requirement| {
        let values = requirement.values.clone().unwrap_or_default();
        let (operator, values) = match requirement.operator.as_str() {
            "In" => (Operator::In, values),
            "NotIn" => (Operator::NotIn, values),
            "Exists" => (Operator::Exists, values),
            "DoesNotExist" => (Operator::DoesNotExist, values),
            _ => (Operator::In, Vec::new()),
        };
        Expression { key: requirement.key.clone(), operator, values }
    });
    Selector { labels: selector.match_labels.clone().unwrap_or_default(), expressions: expressions.collect() }
}
