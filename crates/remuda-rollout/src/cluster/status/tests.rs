use super::*;
use crate::view::testing::{at, conditions, flat, machine};

fn render(conditions: &Conditions) -> String {
    let line = |condition: &Condition| {
        let Condition { kind, status, reason, message, .. } = condition;
        format!("{kind} {status} {reason} {message}")
    };
    flat(&conditions.as_slice().iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn good(machine: Machine) -> Machine {
    Machine { conditions: conditions("Ready True Ready\nUpToDate True UpToDate"), ..machine }
}

fn found(text: &str) -> Reading {
    Reading::Found(Ok(Some(conditions(text).as_slice()[0].clone())))
}

struct World {
    before: Conditions,
    machines: Vec<Machine>,
    deployments: Vec<(String, Conditions)>,
    plane: Conditions,
}

fn world() -> World {
    World {
        before: Conditions::default(),
        machines: vec![good(Machine { control_plane: true, ..machine("cp-1") }), good(machine("w-1"))],
        deployments: vec![(
            "md".into(),
            conditions(
                "Available True Available\nRollingOut False NotRollingOut\nScalingUp False NotScalingUp\nScalingDown False NotScalingDown",
            ),
        )],
        plane: Conditions::default(),
    }
}

fn input(world: &World) -> Input<'_> {
    Input {
        before: &world.before,
        infrastructure: Some(Provider { kind: "Infra", reading: found("Ready True"), initialized: true }),
        control_plane: Some(ControlPlane {
            provider: Provider { kind: "Plane", reading: found("Available True"), initialized: true },
            name: "cp",
            initialized: true,
            conditions: &world.plane,
        }),
        probe: Probe { last_success: Some(at(990)), failures: 0 },
        unwatched: None,
        descendants: Some(Descendants {
            machines: &world.machines,
            deployments: &world.deployments,
            stand_alone_sets: &[],
        }),
        deleting: None,
        gates: &[],
        topology: false,
    }
}

#[test]
fn a_cluster_in_order_says_so_in_every_condition() {
    let world = world();
    let once = status(&input(&world), 1, at(1000));
    assert_eq!(
        render(&once),
        flat(
            "Available True Available
             RemoteConnectionProbe True ProbeSucceeded
             InfrastructureReady True Ready
             ControlPlaneInitialized True Initialized
             ControlPlaneAvailable True Available
             WorkersAvailable True Available
             RollingOut False NotRollingOut
             Remediating False NotRemediating
             ScalingDown False NotScalingDown
             ScalingUp False NotScalingUp
             ControlPlaneMachinesReady True Ready
             WorkerMachinesReady True Ready
             ControlPlaneMachinesUpToDate True UpToDate
             WorkerMachinesUpToDate True UpToDate
             Deleting False NotDeleting"
        )
    );
    let again = World { before: once.clone(), ..world };
    assert_eq!(status(&input(&again), 1, at(1010)), once, "deciding again changes nothing");
}

#[test]
fn a_new_cluster_tells_what_it_waits_for() {
    let mut world = world();
    world.machines.clear();
    world.deployments.clear();
    let young = Input {
        infrastructure: Some(Provider { kind: "Infra", reading: Reading::NotFound, initialized: false }),
        control_plane: Some(ControlPlane {
            provider: Provider { kind: "Plane", reading: Reading::Found(Ok(None)), initialized: false },
            name: "cp",
            initialized: false,
            conditions: &world.plane,
        }),
        probe: Probe::default(),
        ..input(&world)
    };
    assert_eq!(
        render(&status(&young, 1, at(1000))),
        flat(
            "Available False NotAvailable * RemoteConnectionProbe: Remote connection not established yet
             * InfrastructureReady: Infra does not exist
             * ControlPlaneAvailable: Plane status.initialization.controlPlaneInitialized is false
             RemoteConnectionProbe False ProbeFailed Remote connection not established yet
             InfrastructureReady False ObjectDoesNotExist Infra does not exist
             ControlPlaneInitialized False NotInitialized Control plane not yet initialized
             ControlPlaneAvailable False NotAvailable Plane status.initialization.controlPlaneInitialized is false
             WorkersAvailable True NoWorkers
             RollingOut False NotRollingOut
             Remediating False NotRemediating
             ScalingDown False NotScalingDown
             ScalingUp False NotScalingUp
             ControlPlaneMachinesReady True NoReplicas
             WorkerMachinesReady True NoReplicas
             ControlPlaneMachinesUpToDate True NoReplicas
             WorkerMachinesUpToDate True NoReplicas
             Deleting False NotDeleting"
        )
    );
}

#[track_caller]
fn check(input: &Input<'_>, kind: &str, expected: &str) {
    let found = status(input, 1, at(1000));
    let condition = found.get(kind).unwrap();
    assert_eq!(format!("{} {} {}", condition.status, condition.reason, condition.message), expected);
}

#[test]
fn an_initialized_control_plane_never_goes_back() {
    let mut world = world();
    world.before = conditions("ControlPlaneInitialized@5 True Initialized");
    let mut lost = input(&world);
    lost.control_plane.as_mut().unwrap().initialized = false;
    lost.control_plane.as_mut().unwrap().provider.reading = Reading::NotFound;
    check(&lost, "ControlPlaneInitialized", "True Initialized ");
    check(
        &lost,
        "ControlPlaneAvailable",
        "False ObjectDeleted Plane has been deleted while the cluster still exists",
    );
    let deleting = Input { deleting: Some(("Deleting", "x")), ..lost };
    check(&deleting, "ControlPlaneAvailable", "False ObjectDeleted Plane has been deleted");
    check(&deleting, "Available", "False NotAvailable * Deleting: x");
}

#[test]
fn a_lost_connection_is_told_after_a_while() {
    let world = world();
    let at_success = |success| Input { probe: Probe { last_success: success, failures: 9 }, ..input(&world) };
    check(&at_success(Some(at(950))), "RemoteConnectionProbe", "True ProbeSucceeded ");
    check(
        &at_success(Some(at(949))),
        "RemoteConnectionProbe",
        "False ProbeFailed Remote connection probe failed, probe last succeeded at 1970-01-01T00:15:49Z",
    );
    check(&at_success(None), "RemoteConnectionProbe", "False ProbeFailed Remote connection probe failed");
}

#[test]
fn clusters_without_references_are_not_in_error() {
    let mut world = world();
    let bare = Input { infrastructure: None, control_plane: None, ..input(&world) };
    check(&bare, "InfrastructureReady", "True Ready ");
    check(&bare, "ControlPlaneInitialized", "True Initialized ");
    check(&bare, "ControlPlaneAvailable", "True Available ");
    world.machines[0].node = None;
    let bare = Input { infrastructure: None, control_plane: None, ..input(&world) };
    let waiting = "Waiting for the first control plane machine to have status.nodeRef set";
    check(&bare, "ControlPlaneAvailable", &format!("False NotAvailable {waiting}"));
}

#[test]
fn movement_is_gathered_from_below() {
    let mut world = world();
    world.plane = conditions("ScalingUp True ScalingUp Scaling up from 1 to 3 replicas");
    world.deployments[0].1 = conditions(
        "Available False NotAvailable few\nRollingOut True RollingOut Rolling out 1 not up-to-date replicas\\n* Version a, b required\nScalingUp False NotScalingUp\nScalingDown True ScalingDown Scaling down",
    );
    world.machines[1].conditions = conditions("Ready True Ready\nHealthCheckSucceeded False X");
    let input = input(&world);
    check(&input, "ScalingUp", "True ScalingUp * Plane cp: Scaling up from 1 to 3 replicas");
    check(
        &input,
        "RollingOut",
        "True RollingOut * MachineDeployment md:\n  * Rolling out 1 not up-to-date replicas\n    * Version a, b required",
    );
    check(&input, "WorkersAvailable", "False NotAvailable * MachineDeployment md: few");
    check(&input, "Remediating", "False NotRemediating Machine w-1 is not healthy (not to be remediated)");
    check(
        &input,
        "WorkerMachinesUpToDate",
        "Unknown UpToDateUnknown * Machine w-1: Condition UpToDate not yet reported",
    );
}

#[test]
fn what_could_not_be_listed_is_not_told() {
    let world = world();
    let blind = Input { descendants: None, ..input(&world) };
    check(&blind, "WorkersAvailable", "Unknown InternalError Please check controller logs for errors");
    check(&blind, "ScalingUp", "Unknown InternalError Please check controller logs for errors");
}
