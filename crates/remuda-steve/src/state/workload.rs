//! States of kinds of Kubernetes itself, whose conditions are not enough.

use remuda_names::list_api::state::IN_PROGRESS;
use serde_json::Value;

use super::{Cause, Condition, State};

pub(super) fn state(group: &str, kind: &str, object: &Value, conditions: &[Condition<'_>]) -> Option<State> {
    match (group, kind) {
        ("", "Pod") => pod(object),
        ("", "Service") => load_balancer(object),
        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet") => replicas(object),
        ("apps", "DaemonSet") => daemons(object),
        ("batch", "Job") => job(conditions),
        _ => None,
    }
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn replicas(object: &Value) -> Option<State> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let seen = status["observedGeneration"].as_i64().unwrap_or_default();
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let ready = number(&status["readyReplicas"]);
    let late = seen < number(&object["metadata"]["generation"]) || ready < wanted;
    late.then(|| State::moving(IN_PROGRESS, &format!("{ready} of {wanted} replicas are ready")))
}

fn daemons(object: &Value) -> Option<State> {
    let status = &object["status"];
    let (wanted, ready) = (number(&status["desiredNumberScheduled"]), number(&status["numberReady"]));
    (ready < wanted).then(|| State::moving(IN_PROGRESS, &format!("{ready} of {wanted} pods are ready")))
}

fn job(conditions: &[Condition<'_>]) -> Option<State> {
    let done = conditions.iter().any(|condition| condition.is("Complete", "True"));
    Some(if done { State::named("completed") } else { State::moving(IN_PROGRESS, "") })
}

fn load_balancer(object: &Value) -> Option<State> {
    let waits = object["spec"]["type"] == "LoadBalancer"
        && object["status"]["loadBalancer"]["ingress"].as_array().is_none_or(Vec::is_empty);
    waits.then(|| State::moving("pending", "load balancer is being provisioned"))
}

fn pod(object: &Value) -> Option<State> {
    let status = &object["status"];
    let containers = ["initContainerStatuses", "containerStatuses"].into_iter();
    let statuses = containers.filter_map(|field| status[field].as_array()).flatten();
    for container in statuses {
        let waiting = &container["state"]["waiting"];
        let Some(reason) = waiting["reason"].as_str() else { continue };
        let message = waiting["message"].as_str().unwrap_or_default();
        let passing = matches!(reason, "ContainerCreating" | "PodInitializing");
        let mut state = match passing {
            true => State::moving(reason, message),
            false => State::failed(reason, message),
        };
        state.cause = Some(Cause { code: reason.to_owned(), message: message.to_owned() });
        return Some(state);
    }
    match status["phase"].as_str()? {
        // Its conditions say that it is not ready, which it never will be again.
        "Succeeded" => Some(State::named("succeeded")),
        "Failed" => Some(State::failed("failed", status["message"].as_str().unwrap_or_default())),
        _ => None,
    }
}
