//! A Pod's status, made from the states of its containers.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

/// Where a container is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Waiting {
        reason: &'static str,
        message: String,
    },
    Running {
        since: Timestamp,
    },
    Terminated {
        code: i32,
        signal: Option<i32>,
        started: Timestamp,
        finished: Timestamp,
        reason: &'static str,
        message: String,
    },
}

/// A container and its past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub state: State,
    pub last: Option<State>,
    pub restarts: i32,
    pub ready: bool,
    /// Will not run again.
    pub over: bool,
}

impl Progress {
    pub fn new(restarts: i32) -> Progress {
        let state = State::Waiting { reason: "ContainerCreating", message: String::new() };
        Progress { state, last: None, restarts, ready: false, over: false }
    }

    fn succeeded(&self) -> bool {
        self.over && matches!(self.state, State::Terminated { code: 0, .. })
    }

    /// Has run at least once.
    fn started(&self) -> bool {
        !matches!(self.state, State::Waiting { .. }) || self.last.is_some()
    }
}

/// All a status is made from.
pub struct Facts<'a> {
    pub pod: &'a Pod,
    pub init: &'a [Progress],
    pub containers: &'a [Progress],
    pub address: IpAddr,
    /// Why nothing runs yet.
    pub problem: Option<&'a str>,
    pub now: Timestamp,
}

pub fn make(facts: &Facts<'_>) -> PodStatus {
    let spec = facts.pod.spec.clone().unwrap_or_default();
    let before = facts.pod.status.clone().unwrap_or_default();
    let init_containers = spec.init_containers.unwrap_or_default();
    let initialized = facts.init.iter().all(Progress::succeeded);
    let init_failed = facts.init.iter().any(|progress| progress.over && !progress.succeeded());
    let ready = initialized && facts.containers.iter().all(|progress| progress.ready);
    let over = !facts.containers.is_empty() && facts.containers.iter().all(|progress| progress.over);
    let phase = if init_failed {
        "Failed"
    } else if over {
        if facts.containers.iter().all(Progress::succeeded) { "Succeeded" } else { "Failed" }
    } else if initialized && facts.containers.iter().all(Progress::started) {
        "Running"
    } else {
        "Pending"
    };
    let not_ready = (!ready).then_some(if over { "PodCompleted" } else { "ContainersNotReady" });
    let mut conditions = before.conditions.clone().unwrap_or_default();
    for (kind, so, reason) in [
        ("PodScheduled", true, None),
        ("PodReadyToStartContainers", facts.problem.is_none(), None),
        ("Initialized", initialized, (!initialized).then_some("ContainersNotInitialized")),
        ("ContainersReady", ready, not_ready),
        ("Ready", ready, not_ready),
    ] {
        set(&mut conditions, kind, so, reason, facts.problem.filter(|_| !so), facts.now);
    }
    let address = facts.address.to_string();
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(conditions),
        host_ip: Some(address.clone()),
        host_ips: Some(vec![HostIP { ip: address.clone() }]),
        pod_ip: Some(address.clone()),
        pod_ips: Some(vec![PodIP { ip: address }]),
        start_time: Some(before.start_time.clone().unwrap_or(Time(facts.now))),
        init_container_statuses: statuses(&init_containers, facts.init),
        container_statuses: statuses(&spec.containers, facts.containers),
        observed_generation: facts.pod.metadata.generation,
        message: None,
        ..before
    }
}

fn set(
    conditions: &mut Vec<PodCondition>,
    kind: &str,
    so: bool,
    reason: Option<&str>,
    message: Option<&str>,
    now: Timestamp,
) {
    let status = if so { "True" } else { "False" };
    let place = conditions.iter().position(|known| known.type_ == kind);
    let turned = place
        .map(|place| &conditions[place])
        .filter(|known| known.status == status)
        .and_then(|known| known.last_transition_time.clone())
        .unwrap_or(Time(now));
    let condition = PodCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.map(str::to_owned),
        message: message.map(str::to_owned),
        last_transition_time: Some(turned),
        ..PodCondition::default()
    };
    match place {
        Some(place) => conditions[place] = condition,
        None => conditions.push(condition),
    }
}

fn statuses(containers: &[Container], progress: &[Progress]) -> Option<Vec<ContainerStatus>> {
    let status = |(container, progress): (&Container, &Progress)| ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: format!("sandbox://{}", container.image.as_deref().unwrap_or_default()),
        ready: progress.ready,
        started: Some(matches!(progress.state, State::Running { .. })),
        restart_count: progress.restarts,
        state: Some(state(&progress.state)),
        last_state: progress.last.as_ref().map(state),
        ..ContainerStatus::default()
    };
    let statuses: Vec<ContainerStatus> = containers.iter().zip(progress).map(status).collect();
    (!statuses.is_empty()).then_some(statuses)
}

fn state(state: &State) -> ContainerState {
    match state {
        State::Waiting { reason, message } => ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some((*reason).to_owned()),
                message: Some(message.clone()).filter(|message| !message.is_empty()),
            }),
            ..ContainerState::default()
        },
        State::Running { since } => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(*since)) }),
            ..ContainerState::default()
        },
        State::Terminated { code, signal, started, finished, reason, message } => ContainerState {
            terminated: Some(ContainerStateTerminated {
                exit_code: *code,
                signal: *signal,
                started_at: Some(Time(*started)),
                finished_at: Some(Time(*finished)),
                reason: Some((*reason).to_owned()),
                message: Some(message.clone()).filter(|message| !message.is_empty()),
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32) -> Progress {
        let at = Timestamp::UNIX_EPOCH;
        let state = State::Terminated {
            code,
            signal: None,
            started: at,
            finished: at,
            reason: "Completed",
            message: String::new(),
        };
        Progress { state, over: true, ..Progress::new(0) }
    }

    fn running(ready: bool) -> Progress {
        Progress { state: State::Running { since: Timestamp::UNIX_EPOCH }, ready, ..Progress::new(0) }
    }

    #[track_caller]
    fn check(init: &[Progress], containers: &[Progress], phase: &str, ready: &str) {
        let pod = serde_json::json!({"metadata": {"name": "p"}, "spec": {
            "initContainers": init.iter().map(|_| serde_json::json!({"name": "i"})).collect::<Vec<_>>(),
            "containers": containers.iter().map(|_| serde_json::json!({"name": "c"})).collect::<Vec<_>>()}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let facts = Facts {
            pod: &pod,
            init,
            containers,
            address: [10, 0, 0, 1].into(),
            problem: None,
            now: Timestamp::UNIX_EPOCH,
        };
        let status = make(&facts);
        assert_eq!(status.phase.as_deref(), Some(phase));
        let conditions = status.conditions.unwrap();
        let condition = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
        assert_eq!(condition.status, ready);
    }

    #[test]
    fn the_phase_follows_from_the_containers() {
        check(&[], &[Progress::new(0)], "Pending", "False");
        check(&[], &[running(true), running(false)], "Running", "False");
        check(&[], &[running(true)], "Running", "True");
        check(&[], &[ended(0), ended(0)], "Succeeded", "False");
        check(&[], &[ended(0), ended(1)], "Failed", "False");
        check(&[ended(0)], &[running(true)], "Running", "True");
        check(&[Progress::new(0)], &[Progress::new(0)], "Pending", "False");
        check(&[ended(1)], &[Progress::new(0)], "Failed", "False");
    }

    #[test]
    fn a_container_that_waits_for_its_next_start_is_running() {
        let mut waiting = Progress::new(3);
        waiting.last = Some(ended(1).state);
        waiting.state = State::Waiting { reason: "CrashLoopBackOff", message: String::new() };
        check(&[], &[waiting], "Running", "False");
    }
}
