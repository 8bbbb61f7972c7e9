//! What a pool says about itself.

use jiff::Timestamp;
use kube::ResourceExt;
use remuda_api::core::StatusVersion;
use remuda_names::capi::{annotation, condition};
use remuda_rollout::{
    condition::old::OldConditions,
    contract::{self, BootstrapConfig, InfraMachinePool},
    pool::{
        delete::Step,
        phase::{Progress, is_external, phase},
        status::{Input, Old, conditions, old},
    },
    provider::{Provider, Reading},
    version,
    view::Machine,
};

use super::{Pass, Pools, Referred, machines};
use crate::{managed::Managed, providers::Provided, view};

impl Pools {
    /// Fills in counters, phase and conditions.
    pub(super) fn tell(&self, pass: &mut Pass, now: Timestamp) {
        self.count(pass);
        fail(pass);
        let old = old_conditions(pass, now);
        *pass.after.old_conditions_mut() = view::write_old(&old);
        tell_conditions(pass, now);
        tell_phase(pass);
        if pass.errors.is_empty() {
            pass.after.set_observed_generation(pass.after.metadata.generation.unwrap_or(0));
        }
    }

    fn count(&self, pass: &mut Pass) {
        if !matches!(pass.infrastructure, Referred::Here(_)) {
            return;
        }
        let has_machines = machines::machine_kind(&pass.infrastructure).is_some();
        let desired = pass.after.spec.replicas;
        let status = pass.after.status.get_or_insert_default();
        if let Some(members) = &pass.members {
            let replicas = status.replicas.unwrap_or(0);
            let old = status.deprecated.get_or_insert_default().v1beta1.get_or_insert_default();
            old.ready_replicas = Some(members.ready);
            old.available_replicas = Some(members.available);
            old.unavailable_replicas = Some(replicas.saturating_sub(members.available).max(0));
        }
        let versions = if has_machines {
            let machines: Vec<Machine> = machines::of_pool(&self.capi, &pass.before)
                .iter()
                .map(|machine| view::machine(machine))
                .collect();
            let with = |kind: &str| {
                let count = machines.iter().filter(|machine| machine.conditions.is_true(kind)).count();
                Some(i32::try_from(count).unwrap_or(i32::MAX))
            };
            status.ready_replicas = with(condition::READY);
            status.available_replicas = with(condition::AVAILABLE);
            status.up_to_date_replicas = with(condition::UP_TO_DATE);
            Some(version::of_machines(&machines))
        } else {
            // What the provider has made counts as good: nobody else looks at it.
            status.ready_replicas = status.replicas;
            status.available_replicas = status.replicas;
            status.up_to_date_replicas = desired;
            pass.members.as_ref().map(|members| members.versions.clone())
        };
        if let Some(versions) = versions {
            let one =
                |one: version::VersionCount| StatusVersion { version: one.version, replicas: one.replicas };
            status.versions = versions.into_iter().map(one).collect();
        }
    }
}

/// Infrastructure that is gone while the pool is not, in the words of v1beta1. It goes when it is back.
fn fail(pass: &mut Pass) {
    let status = pass.after.status.get_or_insert_default();
    let was_there = status.initialization.infrastructure_provisioned == Some(true);
    let failure = match &pass.infrastructure {
        Referred::Missing if was_there && pass.before.metadata.deletion_timestamp.is_none() => {
            let reference = &pass.after.spec.template.spec.infrastructure_ref;
            let namespace = pass.before.metadata.namespace.as_deref().unwrap_or_default();
            let message = format!(
                "MachinePool infrastructure resource {} {namespace}/{} has been deleted after being ready",
                reference.kind, reference.name
            );
            Some(("InvalidConfiguration".to_owned(), message))
        }
        Referred::Here(provided) => {
            let (reason, message) = contract::failure(provided.data()).unwrap_or_default();
            let resource = &provided.kind.resource;
            let name = provided.object.metadata.name.as_deref().unwrap_or_default();
            let message = message.filter(|message| !message.is_empty()).map(|message| {
                let text = format!(
                    "Failure detected from referenced resource {}, Kind={} with name \"{name}\": {message}",
                    resource.api_version, resource.kind
                );
                text.chars().take(10_240).collect::<String>()
            });
            let reason = reason.filter(|reason| !reason.is_empty());
            (reason.is_some() || message.is_some())
                .then(|| (reason.unwrap_or_default(), message.unwrap_or_default()))
        }
        _ => return,
    };
    let known = status.deprecated.as_ref().and_then(|deprecated| deprecated.v1beta1.as_ref());
    if failure.is_some()
        || known.is_some_and(|old| old.failure_reason.is_some() || old.failure_message.is_some())
    {
        let old = status.deprecated.get_or_insert_default().v1beta1.get_or_insert_default();
        let (reason, message) = failure.unzip();
        old.failure_reason = reason.filter(|reason| !reason.is_empty());
        old.failure_message = message.filter(|message| !message.is_empty());
    }
}

fn old_conditions(pass: &mut Pass, now: Timestamp) -> OldConditions {
    let before = view::old_conditions(pass.after.old_conditions_mut());
    let read = |referred: &Referred| match referred {
        Referred::Here(provided) => contract::old_conditions(provided.data()),
        _ => OldConditions::default(),
    };
    let (config, infrastructure) = (read(&pass.bootstrap), read(&pass.infrastructure));
    let status = pass.after.status.get_or_insert_default();
    let reference = &pass.after.spec.template.spec.infrastructure_ref;
    let created = status.initialization.bootstrap_data_secret_created == Some(true);
    let provisioned = status.initialization.infrastructure_provisioned == Some(true);
    let missing = matches!(pass.infrastructure, Referred::Missing) && pass.stage.is_none();
    let replicas = status.replicas.unwrap_or(0);
    let input = Old {
        before: &before,
        bootstrap: (!matches!(pass.bootstrap, Referred::No)).then_some((&config, created)),
        infrastructure: (&infrastructure, provisioned),
        missing: missing.then_some((reference.kind.as_str(), reference.name.as_str())),
        replicas_ready: pass.members.as_ref().map(|members| {
            members.ready == replicas
                && i32::try_from(members.references.len()).is_ok_and(|len| len == replicas)
        }),
    };
    old(&input, now)
}

fn tell_conditions(pass: &mut Pass, now: Timestamp) {
    let status = pass.after.status.clone().unwrap_or_default();
    let spec = &pass.before.spec.template.spec;
    let deleting = pass.stage.as_ref().map(|stage| {
        let failed = !pass.errors.is_empty() && !matches!(stage.step, Step::Finish);
        (if failed { "InternalError" } else { stage.step.reason() }, stage.message.as_str())
    });
    let input = Input {
        bootstrap: reading(&pass.bootstrap, bootstrap_problem).map(|reading| Provider {
            kind: &spec.bootstrap.config_ref.kind,
            reading,
            initialized: status.initialization.bootstrap_data_secret_created == Some(true),
        }),
        infrastructure: Provider {
            kind: &spec.infrastructure_ref.kind,
            reading: reading(&pass.infrastructure, infrastructure_problem).unwrap_or(Reading::NotFound),
            initialized: status.initialization.infrastructure_provisioned == Some(true),
        },
        deleting,
    };
    let decided = conditions(&input);
    view::set(&mut pass.after, decided, now);
}

fn reading(referred: &Referred, problem: impl FnOnce(&Provided) -> Option<String>) -> Option<Reading> {
    Some(match referred {
        Referred::No => return None,
        Referred::Missing => Reading::NotFound,
        Referred::Unreadable(why) => Reading::Failed(why.clone()),
        Referred::Here(provided) => match problem(provided) {
            Some(why) => Reading::Failed(why),
            None => contract::reading(provided.data(), condition::READY),
        },
    })
}

fn bootstrap_problem(provided: &Provided) -> Option<String> {
    let object = BootstrapConfig { object: provided.data(), contract: provided.contract() };
    let read = object.data_secret_created().map(drop).and(object.data_secret_name().map(drop));
    read.err().map(|problem| problem.to_string())
}

fn infrastructure_problem(provided: &Provided) -> Option<String> {
    let object = InfraMachinePool { object: provided.data(), contract: provided.contract() };
    let read = object.ready().map(drop).and(object.provider_ids().map(drop)).and(object.replicas().map(drop));
    read.err().map(|problem| problem.to_string())
}

fn tell_phase(pass: &mut Pass) {
    let external = pass.before.annotations().get(annotation::REPLICAS_MANAGED_BY);
    let external = is_external(external.map(String::as_str));
    let desired = pass.after.spec.replicas;
    let status = pass.after.status.get_or_insert_default();
    let old = status.deprecated.as_ref().and_then(|deprecated| deprecated.v1beta1.as_ref());
    let progress = Progress {
        bootstrap_created: status.initialization.bootstrap_data_secret_created == Some(true),
        infrastructure_provisioned: status.initialization.infrastructure_provisioned == Some(true),
        has_nodes: !status.node_refs.is_empty(),
        desired,
        ready: old.and_then(|old| old.ready_replicas).unwrap_or(0),
        external,
        deleting: pass.before.metadata.deletion_timestamp.is_some(),
    };
    if let Some(phase) = phase(progress, &status.phase) {
        status.phase = phase.as_str().to_owned();
    }
}
