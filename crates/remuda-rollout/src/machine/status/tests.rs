use super::*;
use crate::{
    health::NodeCondition,
    provider::Reading,
    view::testing::{at, conditions, flat, machine},
};

fn node(text: &str) -> NodeReading {
    let parse = |line: &str| {
        let words: Vec<_> = line.trim().splitn(3, ' ').collect();
        NodeCondition {
            kind: words[0].into(),
            status: words[1].into(),
            reason: "Kubelet".into(),
            message: words.get(2).map_or_else(String::new, ToString::to_string),
            since: Some(at(5)),
        }
    };
    NodeReading::Found(text.lines().map(parse).collect())
}

const FINE: &str = "Ready True\nMemoryPressure False\nDiskPressure False\nPIDPressure False";

fn found(condition: Option<&str>) -> Reading {
    let condition = condition.map(|text| conditions(text).as_slice()[0].clone());
    Reading::Found(Ok(condition))
}

fn input(machine: &Machine) -> Input<'_> {
    Input {
        machine,
        bootstrap: Some(Provider { kind: "Config", reading: found(Some("Ready True")), initialized: true }),
        infrastructure: Provider { kind: "Server", reading: found(Some("Ready True Up")), initialized: true },
        provider_id: "sim://1",
        cluster: Cluster { infrastructure_provisioned: true, control_plane_initialized: Some(at(0)) },
        probe: Probe { last_success: Some(at(990)), failures: 0 },
        node: node(FINE),
        deleting: None,
        updating: None,
        outdated: Some(&[]),
        gates: &[],
        min_ready_seconds: 0,
    }
}

fn render(status: &Status) -> String {
    let line = |condition: &Condition| {
        let Condition { kind, status, reason, message, .. } = condition;
        format!("{kind} {status} {reason} {message}")
    };
    flat(&status.conditions.as_slice().iter().map(line).collect::<Vec<_>>().join("\n"))
}

#[track_caller]
fn check(input: &Input<'_>, expected: &str) {
    assert_eq!(render(&status(input, 1, at(1000))), flat(expected));
}

#[test]
fn a_running_machine_is_ready_and_available() {
    let machine = machine("m");
    check(
        &input(&machine),
        "Available True Available
         Ready True Ready
         UpToDate True UpToDate
         BootstrapConfigReady True Ready
         InfrastructureReady True Up
         NodeHealthy True NodeHealthy
         NodeReady True NodeReady
         Updating False NotUpdating
         Deleting False NotDeleting",
    );
}

#[test]
fn deciding_again_on_the_result_changes_nothing() {
    let first = machine("m");
    let once = status(&input(&first), 1, at(1000));
    let second = Machine { conditions: once.conditions.clone(), ..first };
    assert_eq!(status(&input(&second), 1, at(1200)).conditions, once.conditions);
}

#[test]
fn a_young_machine_tells_what_it_waits_for() {
    let machine = Machine { node: None, ..machine("m") };
    let waiting = Input {
        bootstrap: Some(Provider { kind: "Config", reading: found(None), initialized: false }),
        infrastructure: Provider { kind: "Server", reading: Reading::NotFound, initialized: false },
        provider_id: "",
        node: NodeReading::NotFound,
        outdated: None,
        ..input(&machine)
    };
    check(
        &waiting,
        "Available False NotReady
         Ready False NotReady * BootstrapConfigReady: Config status.initialization.dataSecretCreated is false
         * InfrastructureReady: Server does not exist
         * NodeHealthy: Waiting for Server to report spec.providerID
         BootstrapConfigReady False NotReady Config status.initialization.dataSecretCreated is false
         InfrastructureReady False ObjectDoesNotExist Server does not exist
         NodeHealthy Unknown InspectionFailed Waiting for Server to report spec.providerID
         NodeReady Unknown InspectionFailed Waiting for Server to report spec.providerID
         Updating False NotUpdating
         Deleting False NotDeleting",
    );
}

#[test]
fn a_machine_in_deletion_tells_its_stage_in_ready() {
    let machine = Machine { deleted: Some(at(900)), ..machine("m") };
    let message = "Drain not completed yet (started at T):\n* Pod x/y: cannot evict";
    let draining = Input { deleting: Some(("DrainingNode", message)), ..input(&machine) };
    let found = status(&draining, 1, at(1000));
    let ready = found.conditions.get("Ready").unwrap();
    assert_eq!(ready.message, "* Deleting: Machine deletion in progress, stage: DrainingNode");
    assert_eq!(found.conditions.get("Deleting").unwrap().message, message);
}

#[test]
fn a_long_drain_names_its_likely_cause() {
    let machine = Machine { deleted: Some(at(0)), drain_started: Some(at(10)), ..machine("m") };
    let message = "x: cannot evict pod as it would violate the pod's disruption budget. y";
    let draining = Input { deleting: Some(("DrainingNode", message)), ..input(&machine) };
    let found = status(&draining, 1, at(1000));
    assert_eq!(
        found.conditions.get("Ready").unwrap().message,
        "* Deleting: Machine deletion in progress since more than 15m, stage: DrainingNode, delay likely due to PodDisruptionBudgets"
    );
}

#[test]
fn losing_ones_server_in_deletion_is_no_issue() {
    let machine = Machine { deleted: Some(at(900)), ..machine("m") };
    let going = Input {
        infrastructure: Provider { kind: "Server", reading: Reading::NotFound, initialized: true },
        node: NodeReading::NotFound,
        deleting: Some(("WaitingForBootstrapDeletion", "x")),
        ..input(&machine)
    };
    let found = status(&going, 1, at(1000));
    assert_eq!(found.conditions.get("InfrastructureReady").unwrap().message, "Server has been deleted");
    let ready = &found.conditions.get("Ready").unwrap().message;
    assert_eq!(ready, "* Deleting: Machine deletion in progress, stage: WaitingForBootstrapDeletion");
    let alive = Machine { deleted: None, ..machine.clone() };
    let lost = Input { machine: &alive, deleting: None, ..going };
    let found = status(&lost, 1, at(1000));
    let message = &found.conditions.get("InfrastructureReady").unwrap().message;
    assert_eq!(message, "Server has been deleted while the Machine still exists");
}

#[test]
fn a_lost_connection_keeps_the_last_state_for_a_while() {
    let before = Machine {
        conditions: conditions("NodeHealthy True NodeHealthy\nNodeReady True NodeReady"),
        ..machine("m")
    };
    let lost = |success| Input {
        probe: Probe { last_success: Some(at(success)), failures: 9 },
        node: NodeReading::Disconnected,
        ..input(&before)
    };
    let healthy = |input: &Input<'_>| {
        let status = status(input, 1, at(1000));
        let condition = status.conditions.get("NodeHealthy").unwrap();
        format!("{} {} {}", condition.status, condition.reason, condition.message)
    };
    assert_eq!(healthy(&lost(701)), "True NodeHealthy ");
    assert_eq!(healthy(&lost(699)), "Unknown ConnectionDown Last successful probe at 1970-01-01T00:11:39Z");
    let never = machine("m");
    let young = Input {
        machine: &never,
        probe: Probe { last_success: None, failures: 1 },
        node: NodeReading::Disconnected,
        ..input(&before)
    };
    assert_eq!(healthy(&young), "Unknown ConnectionDown Remote connection not established yet");
}

#[test]
fn nodes_tell_what_is_wrong_once() {
    let machine = machine("m");
    let healthy = |text: &str| {
        let status = status(&Input { node: node(text), ..input(&machine) }, 1, at(1000));
        let condition = status.conditions.get("NodeHealthy").unwrap();
        format!("{} {} {}", condition.status, condition.reason, condition.message)
    };
    let silent = "Unknown stopped posting";
    assert_eq!(
        healthy(&format!(
            "Ready {silent}\nMemoryPressure {silent}\nDiskPressure {silent}\nPIDPressure {silent}"
        )),
        "Unknown NodeHealthyUnknown * Node.AllConditions: stopped posting"
    );
    assert_eq!(
        healthy("Ready False\nMemoryPressure True low\nDiskPressure False"),
        "False NodeNotHealthy * Node.Ready: Condition is False\n* Node.MemoryPressure: low\n* Node.PIDPressure: Condition not yet reported"
    );
}

#[test]
fn a_machine_that_asks_for_no_version_is_up_to_date() {
    let up_to_date = |version: &str, kubelet: &str| {
        let machine = Machine { version: version.into(), kubelet_version: kubelet.into(), ..machine("m") };
        let status = status(&input(&machine), 1, at(1000));
        status.conditions.get("UpToDate").unwrap().message.clone()
    };
    assert_eq!(up_to_date("", "v1.34.0"), "");
    assert_eq!(up_to_date("v1.34.0", "v1.34.0"), "");
    assert_eq!(
        up_to_date("v1.34.0", "v1.33.0"),
        "* Node.status.nodeInfo.kubeletVersion v1.33.0, v1.34.0 required"
    );
}

#[test]
fn availability_waits_for_the_machine_to_prove_itself() {
    let machine = Machine { conditions: conditions("Ready@990 True Ready"), ..machine("m") };
    let found = status(&Input { min_ready_seconds: 30, ..input(&machine) }, 1, at(1000));
    assert_eq!(found.conditions.get("Available").unwrap().reason, "WaitingForMinReadySeconds");
    assert_eq!(found.requeue, Some(Duration::from_secs(20)));
}

#[test]
fn gates_hold_readiness_and_control_plane_components_are_told_together() {
    let same =
        "APIServerPodHealthy Unknown X not seen\nSchedulerPodHealthy Unknown X not seen\nBad True Y oh";
    let machine = Machine { conditions: conditions(same), ..machine("m") };
    let gate = |kind: &str, negative| Gate { kind: kind.into(), negative };
    let gates = [gate("APIServerPodHealthy", false), gate("SchedulerPodHealthy", false), gate("Bad", true)];
    let found = status(&Input { gates: &gates, ..input(&machine) }, 1, at(1000));
    let ready = found.conditions.get("Ready").unwrap();
    assert_eq!(ready.message, "* Control plane components: not seen\n* Bad: oh");
    assert_eq!(ready.status, Is::False);
}

#[test]
fn broken_conditions_of_a_provider_are_told() {
    let machine = machine("m");
    let broken = Reading::Found(Err("status must be set for the Ready condition".into()));
    let found = status(
        &Input {
            infrastructure: Provider { kind: "Server", reading: broken, initialized: true },
            ..input(&machine)
        },
        1,
        at(1000),
    );
    let condition = found.conditions.get("InfrastructureReady").unwrap();
    assert_eq!((condition.status, condition.reason.as_str()), (Is::Unknown, "InvalidConditionReported"));
}
