//! Conditions of a MachinePool.

use jiff::Timestamp;
use remuda_names::capi::condition as kind;

use crate::{
    condition::{
        Condition, Status as Is,
        old::{OldCondition, OldConditions, Severity, mirror},
    },
    provider::{Mirror, Provider},
};

const BOOTSTRAP: Mirror = Mirror {
    source: kind::READY,
    target: kind::BOOTSTRAP_CONFIG_READY,
    good: "Ready",
    bad: "NotReady",
    field: "status.initialization.dataSecretCreated",
    survivor: None,
};

const INFRASTRUCTURE: Mirror = Mirror {
    source: kind::READY,
    target: kind::INFRASTRUCTURE_READY,
    good: "Ready",
    bad: "NotReady",
    field: "status.ready",
    survivor: Some("MachinePool"),
};

/// Everything the conditions depend on.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    /// `None` if the pool refers to no bootstrap config.
    pub bootstrap: Option<Provider<'a>>,
    pub infrastructure: Provider<'a>,
    /// Reason and message of the stage of deletion.
    pub deleting: Option<(&'a str, &'a str)>,
}

/// The conditions as they should be. Upstream has none of these yet; they say what the v1beta1 ones do.
pub fn conditions(input: &Input<'_>) -> Vec<Condition> {
    let deleting = input.deleting.is_some();
    vec![
        match &input.bootstrap {
            Some(bootstrap) => BOOTSTRAP.condition(bootstrap, deleting),
            None => Condition::new(kind::BOOTSTRAP_CONFIG_READY, Is::True, "DataSecretProvided", ""),
        },
        INFRASTRUCTURE.condition(&input.infrastructure, deleting),
        match input.deleting {
            Some((reason, message)) => Condition::new(kind::DELETING, Is::True, reason, message),
            None => Condition::new(kind::DELETING, Is::False, "NotDeleting", ""),
        },
    ]
}

/// What the conditions of v1beta1 depend on.
#[derive(Debug, Clone)]
pub struct Old<'a> {
    pub before: &'a OldConditions,
    /// Conditions of the bootstrap config and what its contract field says; `None` if there is no reference.
    pub bootstrap: Option<(&'a OldConditions, bool)>,
    pub infrastructure: (&'a OldConditions, bool),
    /// Kind and name of the infrastructure, if it is missing.
    pub missing: Option<(&'a str, &'a str)>,
    /// Whether all replicas have nodes that are ready; `None` if nothing new is known.
    pub replicas_ready: Option<bool>,
}

pub fn old(input: &Old<'_>, now: Timestamp) -> OldConditions {
    const KINDS: [&str; 3] = ["BootstrapReady", kind::INFRASTRUCTURE_READY, "ReplicasReady"];
    let [bootstrap, infrastructure, replicas] = KINDS;
    let waiting = |kind: &str, done: bool, reason: &str| match done {
        true => OldCondition::good(kind),
        false => OldCondition::bad(kind, Severity::Info, reason, ""),
    };
    let mut conditions = input.before.clone();
    let first = match input.bootstrap {
        Some((source, done)) => mirror(source, bootstrap, waiting(bootstrap, done, "WaitingForDataSecret")),
        None => OldCondition::good(bootstrap),
    };
    let second = match (input.missing, input.infrastructure) {
        (Some((kind, name)), _) => {
            let message = format!("could not find infra reference of kind {kind} with name {name}");
            OldCondition::bad(infrastructure, Severity::Error, "IncorrectExternalRef", message)
        }
        (None, (source, done)) => {
            mirror(source, infrastructure, waiting(infrastructure, done, "WaitingForInfrastructure"))
        }
    };
    conditions.set(first, now);
    conditions.set(second, now);
    if let Some(ready) = input.replicas_ready {
        conditions.set(waiting(replicas, ready, "WaitingForReplicasReady"), now);
    }
    if let Some(ready) = conditions.summarize(&KINDS, None) {
        conditions.set(ready, now);
    }
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        provider::Reading,
        view::testing::{at, flat},
    };

    fn provider(reading: Reading, initialized: bool) -> Provider<'static> {
        Provider { kind: "Pool", reading, initialized }
    }

    #[track_caller]
    fn check(input: &Input<'_>, expected: &str) {
        let lines: Vec<_> = conditions(input)
            .iter()
            .map(|one| {
                format!("{} {} {} {}", one.kind, one.status, one.reason, one.message).trim().to_owned()
            })
            .collect();
        assert_eq!(lines.join("\n"), flat(expected));
    }

    #[test]
    fn a_pool_mirrors_its_providers() {
        let mut input = Input {
            bootstrap: None,
            infrastructure: provider(Reading::Found(Ok(None)), false),
            deleting: None,
        };
        check(
            &input,
            "BootstrapConfigReady True DataSecretProvided
             InfrastructureReady False NotReady Pool status.ready is false
             Deleting False NotDeleting",
        );
        input.infrastructure = provider(Reading::NotFound, true);
        check(
            &input,
            "BootstrapConfigReady True DataSecretProvided
             InfrastructureReady False ObjectDeleted Pool has been deleted while the MachinePool still exists
             Deleting False NotDeleting",
        );
    }

    #[test]
    fn old_conditions_are_summed_up() {
        let nothing = OldConditions::default();
        let mut input = Old {
            before: &nothing,
            bootstrap: Some((&nothing, true)),
            infrastructure: (&nothing, true),
            missing: None,
            replicas_ready: Some(false),
        };
        let ready = |input: &Old<'_>| {
            let found = old(input, at(1)).get("Ready").cloned().unwrap();
            format!("{} {}", found.status, found.reason)
        };
        assert_eq!(ready(&input), "False WaitingForReplicasReady");
        input.replicas_ready = Some(true);
        assert_eq!(ready(&input), "True ");
        input.missing = Some(("Pool", "p"));
        assert_eq!(ready(&input), "False IncorrectExternalRef");
    }
}
