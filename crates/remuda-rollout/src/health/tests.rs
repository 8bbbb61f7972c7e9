use super::*;
use crate::view::testing::{at, conditions, flat, machine};

fn rule(kind: &str, status: &str, timeout: i64) -> Rule {
    Rule { kind: kind.into(), status: status.into(), timeout }
}

fn health_check(trigger: Trigger) -> HealthCheck {
    HealthCheck {
        startup_timeout: 600,
        machine_rules: vec![rule("Custom", "False", 100)],
        node_rules: vec![rule("Ready", "Unknown", 300), rule("Ready", "False", 300)],
        trigger,
        external: false,
    }
}

const RUNNING: Cluster = Cluster {
    control_plane_initialized: Some(Timestamp::UNIX_EPOCH),
    infrastructure_ready: Some(Timestamp::UNIX_EPOCH),
    woken: None,
    paused: false,
    connected: true,
};

/// One machine per line: `name up|down@s|gone|none [made=s] [custom@s] [annotated] [skip] [deleting] [asked]`.
#[track_caller]
fn check_in(how: &HealthCheck, cluster: Cluster, given: &str, expected: &str) {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let mut machine = machine(words.next().unwrap());
        let node_condition = |status: &str, since: i64| {
            let [kind, status, reason] = ["Ready", status, "Kubelet"].map(str::to_owned);
            Node::Found(vec![NodeCondition {
                kind,
                status,
                reason,
                message: String::new(),
                since: Some(at(since)),
            }])
        };
        let node = match words.next().unwrap() {
            "up" => node_condition("True", 0),
            "gone" => Node::Missing,
            "none" => Node::None,
            down => node_condition("Unknown", down.strip_prefix("down@").unwrap().parse().unwrap()),
        };
        let mut told = String::new();
        for word in words {
            match word.split_once(['=', '@']).unwrap_or((word, "")) {
                ("made", value) => machine.created = at(value.parse().unwrap()),
                ("custom", value) => told.push_str(&format!("Custom@{value} False Odd\n")),
                ("annotated", _) => machine.marks.remediate = true,
                ("skip", _) => machine.marks.skip_remediation = true,
                ("deleting", _) => machine.deleted = Some(at(1)),
                ("asked", _) => told.push_str("OwnerRemediated False WaitingForRemediation\n"),
                other => panic!("{other:?}"),
            }
        }
        machine.conditions = conditions(&told);
        (machine, node)
    };
    let machines: Vec<_> = given.lines().map(str::trim).filter(|line| !line.is_empty()).map(parse).collect();
    let targets: Vec<_> = machines
        .iter()
        .map(|(machine, node)| Target { machine, node: node.clone(), requested: false })
        .collect();
    let report = check(how, cluster, &targets, at(1000));
    let mut text = String::new();
    if let Some(blind) = &report.blind {
        text.push_str(&format!("blind: {blind}\n"));
    }
    for (name, verdict) in &report.verdicts {
        text.push_str(&format!("{name} {verdict}\n"));
    }
    for (name, action) in &report.actions {
        text.push_str(&format!("{name} -> {action:?}\n"));
    }
    if let Some(why) = &report.short_circuit {
        text.push_str(&format!("{why}\n"));
    }
    if let Some(next) = report.next {
        text.push_str(&format!("next {}s\n", next.as_secs()));
    }
    assert_eq!(flat(&text), flat(expected));
}

#[track_caller]
fn check_all(given: &str, expected: &str) {
    check_in(&health_check(Trigger::default()), RUNNING, given, expected);
}

#[test]
fn a_node_that_is_down_for_too_long_is_unhealthy() {
    check_all(
        "a up
         b down@100
         c down@900",
        "a healthy
         b unhealthy: Condition Ready on Node is reporting status Unknown with reason Kubelet for more than 5m0s
         c pending: look again in 201s
         b -> AskOwner
         next 201s",
    );
}

#[test]
fn what_nodes_were_while_they_were_stopped_does_not_count() {
    let woken = Cluster { woken: Some(at(900)), ..RUNNING };
    let how = health_check(Trigger::default());
    check_in(&how, woken, "a down@100", "a pending: look again in 201s\nnext 201s");
    check_in(&how, woken, "a none made=0", "a pending: look again in 501s\nnext 501s");
    let long_ago = Cluster { woken: Some(at(699)), ..RUNNING };
    let told = "a unhealthy: Condition Ready on Node is reporting status Unknown with reason Kubelet for more than 5m0s
                a -> AskOwner";
    check_in(&how, long_ago, "a down@100", told);
}

#[test]
fn a_limit_is_passed_only_after_its_last_instant() {
    check_all("a down@700", "a pending: look again in 1s\nnext 1s");
    check_all(
        "a down@699",
        "a unhealthy: Condition Ready on Node is reporting status Unknown with reason Kubelet for more than 5m0s
         a -> AskOwner",
    );
}

#[test]
fn a_machine_without_a_node_has_time_to_start() {
    check_all("a none made=500", "a pending: look again in 101s\nnext 101s");
    check_all("a none made=100", "a unhealthy: Node failed to report startup in 10m0s\na -> AskOwner");
    let mut how = health_check(Trigger::default());
    how.startup_timeout = 0;
    check_in(&how, RUNNING, "a none made=100", "a not evaluated: no node yet");
}

#[test]
fn time_to_start_begins_when_the_cluster_is_ready_for_it() {
    let late = Cluster { control_plane_initialized: Some(at(900)), ..RUNNING };
    check_in(
        &health_check(Trigger::default()),
        late,
        "a none made=0",
        "a pending: look again in 501s\nnext 501s",
    );
}

#[test]
fn a_node_that_was_deleted_is_unhealthy_at_once() {
    check_all("a gone", "a unhealthy: Node node-a has been deleted\na -> AskOwner");
}

#[test]
fn all_causes_are_told_the_machines_own_first() {
    check_all(
        "a down@0 custom@0",
        "a unhealthy: Condition Custom on Machine is reporting status False with reason Odd for more than 1m40s; Condition Ready on Node is reporting status Unknown with reason Kubelet for more than 5m0s
         a -> AskOwner",
    );
}

#[test]
fn what_cannot_be_seen_is_never_remediated() {
    let lost = Cluster { connected: false, ..RUNNING };
    let blind = "blind: connection to the workload cluster is down: no machine is evaluated";
    check_in(&health_check(Trigger::default()), lost, "a gone\nb up annotated", blind);
}

#[test]
fn nothing_is_judged_before_the_cluster_is_up() {
    let young = Cluster { control_plane_initialized: None, ..RUNNING };
    check_in(
        &health_check(Trigger::default()),
        young,
        "a gone\nb gone annotated",
        "a not evaluated: the control plane is not initialized
         b unhealthy: marked for remediation via cluster.x-k8s.io/remediate-machine annotation
         b -> AskOwner",
    );
}

#[test]
fn too_many_unhealthy_machines_stop_everything_but_the_clock() {
    let how = health_check(Trigger::AtMost(Amount::Percent(40)));
    check_in(
        &how,
        RUNNING,
        "a gone\nb none made=800\nc up",
        "a unhealthy: Node node-a has been deleted
         b pending: look again in 401s
         c healthy
         Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy (total: 3, unhealthy: 1, maxUnhealthy: 40%)
         next 401s",
    );
    check_in(
        &how,
        RUNNING,
        "a gone\nb up\nc up",
        "a unhealthy: Node node-a has been deleted\nb healthy\nc healthy\na -> AskOwner",
    );
}

#[test]
fn a_range_needs_enough_and_not_too_many() {
    let how = health_check(Trigger::range("[2-3]").unwrap());
    check_in(
        &how,
        RUNNING,
        "a gone\nb up",
        "a unhealthy: Node node-a has been deleted
         b healthy
         Remediation is not allowed, the number of not started or unhealthy machines does not fall within the range (total: 2, unhealthy: 1, unhealthyRange: [2-3])",
    );
    assert_eq!(Trigger::range("[3-2]"), Err(BadRange::Reversed { min: 3, max: 2 }));
    for bad in ["", "[]", "[1]", "1-2", "[a-b]", "[1-99999999999]"] {
        assert_eq!(Trigger::range(bad), Err(BadRange::Shape(bad.into())), "{bad}");
    }
}

#[test]
fn exempted_machines_are_not_even_counted() {
    check_all("a gone skip\nb up", "b healthy");
}

#[test]
fn nobody_is_asked_twice_or_for_a_machine_that_goes_anyway() {
    check_all(
        "a gone asked\nb gone deleting",
        "a unhealthy: Node node-a has been deleted
         b unhealthy: Node node-b has been deleted
         a -> Asked
         b -> Deleting",
    );
    check_all("a up deleting", "a not evaluated: in deletion");
}

#[test]
fn with_a_template_every_unhealthy_machine_gets_its_request() {
    let mut how = health_check(Trigger::default());
    how.external = true;
    let (a, b, c) = (machine("a"), machine("b"), machine("c"));
    let target = |machine, node, requested| Target { machine, node, requested };
    let up = Node::Found(Vec::new());
    let targets = [target(&a, Node::Missing, true), target(&b, Node::Missing, false), target(&c, up, true)];
    let report = check(&how, RUNNING, &targets, at(1000));
    let actions: Vec<_> = report.actions.iter().map(|(_, action)| *action).collect();
    assert_eq!(actions, [Action::Requested, Action::Request, Action::Withdraw]);
}

#[test]
fn conditions_hold_all_causes() {
    let causes = vec![Cause::NodeDeleted { node: "n".into() }, Cause::Startup { timeout: 600 }];
    let condition = Verdict::Unhealthy { causes }.condition().unwrap();
    assert_eq!(condition.reason, "NodeDeleted");
    assert_eq!(
        condition.message,
        "Health check failed:\n  * Node n has been deleted\n  * Node failed to report startup in 10m0s"
    );
    assert_eq!(Verdict::NotEvaluated(NotEvaluated::NoNode).condition(), None);
}
