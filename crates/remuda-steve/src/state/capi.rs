//! States of Cluster API's kinds, which follow from several conditions in an order of their own.

use remuda_names::{capi::condition as name, rancher::condition::RECONCILED};
use serde_json::Value;

use super::{Condition, State};

/// `None` leaves it to the stages of all kinds.
pub(super) fn state(kind: &str, object: &Value, conditions: &[Condition<'_>]) -> Option<State> {
    let told = |kind: &str, status: &str| conditions.iter().find(|condition| condition.is(kind, status));
    let by = |state: State, condition: &Condition<'_>| state.because(condition);
    if !matches!(kind, "Machine" | "MachineSet" | "MachineDeployment" | "Cluster") {
        return None;
    }
    if let Some(condition) = told(name::DELETING, "True") {
        return Some(by(State::moving("deleting", condition.message), condition));
    }
    if let Some(condition) = told(name::PAUSED, "True") {
        return Some(by(State::moving("paused", condition.message), condition));
    }
    match kind {
        "Machine" => machine(object, conditions),
        "Cluster" => cluster(object, conditions),
        _ => set(object, conditions),
    }
}

fn machine(object: &Value, conditions: &[Condition<'_>]) -> Option<State> {
    let told = |kind: &str, status: &str| conditions.iter().find(|condition| condition.is(kind, status));
    if let Some(condition) = told(RECONCILED, "Unknown") {
        return Some(State::moving("reconciling", condition.message).because(condition));
    }
    if let Some(condition) = told(RECONCILED, "False") {
        return Some(State::failed("reconciling", condition.message).because(condition));
    }
    if told(name::READY, "False").is_some() {
        let waits = [
            (name::BOOTSTRAP_CONFIG_READY, "waitingforinfrastructure"),
            (name::INFRASTRUCTURE_READY, "waitingfornoderef"),
        ];
        for (kind, word) in waits {
            let open =
                conditions.iter().find(|condition| condition.kind == kind && condition.status != "True");
            if let Some(condition) = open {
                return Some(State::moving(word, condition.message).because(condition));
            }
        }
    }
    if let Some(condition) = told(name::READY, "Unknown") {
        return Some(State::moving("reconciling", condition.message).because(condition));
    }
    let phase = object["status"]["phase"].as_str().filter(|phase| !phase.is_empty())?;
    let mut state = State::named(phase);
    state.error = phase == "Failed";
    state.transitioning = matches!(phase, "Pending" | "Provisioning" | "Provisioned" | "Deleting");
    if let Some(condition) = told(name::READY, "False") {
        condition.message.clone_into(&mut state.message);
        state = state.because(condition);
    }
    Some(state)
}

fn set(object: &Value, conditions: &[Condition<'_>]) -> Option<State> {
    let told = |kind: &str| conditions.iter().find(|condition| condition.is(kind, "True"));
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let (spec, status) = (&object["spec"], &object["status"]);
    if let Some(condition) = told(name::ROLLING_OUT) {
        return Some(State::moving("rollingout", condition.message).because(condition));
    }
    let wanted = number(&spec["replicas"]);
    let scale = |word: &str, kind: &str, by_numbers: bool| {
        let condition = told(kind);
        (condition.is_some() || by_numbers).then(|| match condition {
            Some(condition) => State::moving(word, condition.message).because(condition),
            None => State::moving(word, ""),
        })
    };
    scale("scalingdown", name::SCALING_DOWN, number(&status["replicas"]) > wanted)
        .or_else(|| scale("scalingup", name::SCALING_UP, wanted > number(&status["readyReplicas"])))
}

fn cluster(object: &Value, conditions: &[Condition<'_>]) -> Option<State> {
    let told = |kind: &str, status: &str| conditions.iter().find(|condition| condition.is(kind, status));
    if let Some(condition) = told(name::ROLLING_OUT, "True") {
        return Some(State::moving("rollingout", condition.message).because(condition));
    }
    let workers = &object["status"]["workers"];
    let (have, want) = (workers["replicas"].as_i64(), workers["desiredReplicas"].as_i64());
    if let (Some(have), Some(want)) = (have, want)
        && have != want
    {
        return Some(State::moving("updating", &format!("{have} of {want} workers")));
    }
    if let Some(available) = told(name::AVAILABLE, "False") {
        // The part that is not available tells more than the sum of all of them.
        let parts = [name::REMOTE_CONNECTION_PROBE, name::CONTROL_PLANE_AVAILABLE, name::WORKERS_AVAILABLE];
        let part = parts.iter().find_map(|part| told(part, "False")).unwrap_or(available);
        return Some(State::moving("updating", part.message).because(part));
    }
    let unknown = told(name::AVAILABLE, "Unknown")?;
    Some(State::failed("unavailable", unknown.message).because(unknown))
}
