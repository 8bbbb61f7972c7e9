//! Which machines go first when there are too many.

use jiff::Timestamp;
use remuda_names::capi::condition as kind;

use crate::{condition::seconds_between, view::Machine};

/// `spec.deletion.order`. Random is by name: nothing here is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeletionOrder {
    #[default]
    Random,
    Newest,
    Oldest,
}

/// Age at which the pull of being old is two thirds of what it can become.
const TEN_DAYS: f64 = 864_000.0;

/// How much a machine asks to be deleted, up to 100.
pub fn priority(machine: &Machine, order: DeletionOrder, now: Timestamp) -> f64 {
    if machine.deleted.is_some() {
        return 100.0;
    }
    if machine.marks.delete_first {
        return 80.0;
    }
    if machine.marks.updating {
        return 75.0;
    }
    if !is_healthy(machine) {
        return 50.0;
    }
    let age = seconds_between(machine.created, now).max(0.0);
    let by_age = 50.0 * (1.0 - (-age / TEN_DAYS).exp());
    match order {
        DeletionOrder::Random => 20.0,
        DeletionOrder::Oldest => by_age,
        DeletionOrder::Newest => 50.0 - by_age,
    }
}

fn is_healthy(machine: &Machine) -> bool {
    machine.node.is_some()
        && !machine.conditions.is_false(kind::NODE_HEALTHY)
        && !machine.conditions.is_false(kind::HEALTH_CHECK_SUCCEEDED)
}

/// The `count` machines to lose, those that are going anyway included; equal priorities go by name.
pub fn victims<'a>(
    machines: impl IntoIterator<Item = &'a Machine>,
    count: usize,
    order: DeletionOrder,
    now: Timestamp,
) -> Vec<&'a Machine> {
    let mut ranked: Vec<(f64, &Machine)> =
        machines.into_iter().map(|machine| (priority(machine, order, now), machine)).collect();
    ranked.sort_by(|(a, left), (b, right)| b.total_cmp(a).then_with(|| left.name.cmp(&right.name)));
    ranked.into_iter().take(count).map(|(_, machine)| machine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::{at, conditions, machine};

    const DAY: i64 = 86_400;

    #[test]
    fn age_pulls_more_and_more_slowly() {
        let aged = |seconds| priority(&machine("a"), DeletionOrder::Oldest, at(seconds));
        let rounded: Vec<_> = [3600, DAY, 5 * DAY, 10 * DAY, 30 * DAY]
            .into_iter()
            .map(|seconds| format!("{:.2}", aged(seconds)))
            .collect();
        assert_eq!(rounded.join(" "), "0.21 4.76 19.67 31.61 47.51");
        let newest = priority(&machine("a"), DeletionOrder::Newest, at(DAY));
        assert_eq!(format!("{newest:.2}"), "45.24");
    }

    /// `given` is one machine per line: `name made [deleting] [first] [updating] [no-node] [sick]`.
    #[track_caller]
    fn check(order: DeletionOrder, count: usize, given: &str, expected: &str) {
        let machines: Vec<Machine> = given
            .lines()
            .map(|line| {
                let mut words = line.split_whitespace();
                let mut machine = machine(words.next().unwrap());
                machine.created = at(words.next().unwrap().parse().unwrap());
                for word in words {
                    match word {
                        "deleting" => machine.deleted = Some(at(5)),
                        "first" => machine.marks.delete_first = true,
                        "updating" => machine.marks.updating = true,
                        "no-node" => machine.node = None,
                        "sick" => machine.conditions = conditions("HealthCheckSucceeded False X"),
                        other => panic!("{other}"),
                    }
                }
                machine
            })
            .collect();
        let names: Vec<_> =
            victims(&machines, count, order, at(DAY)).iter().map(|machine| machine.name.clone()).collect();
        assert_eq!(names.join(" "), expected);
    }

    #[test]
    fn health_beats_age_and_a_wish_beats_health() {
        check(
            DeletionOrder::Oldest,
            5,
            "a 0
             b 100 sick
             c 200 updating
             d 300 first
             e 400 deleting",
            "e d c b a",
        );
    }

    #[test]
    fn the_order_decides_among_equals() {
        let three = "b 300\nc 100\na 200";
        check(DeletionOrder::Oldest, 2, three, "c a");
        check(DeletionOrder::Newest, 2, three, "b a");
        check(DeletionOrder::Random, 2, three, "a b");
        check(DeletionOrder::Oldest, 9, three, "c a b");
        check(DeletionOrder::Oldest, 0, three, "");
    }

    #[test]
    fn a_machine_from_the_future_is_young() {
        check(DeletionOrder::Oldest, 1, "a 999999\nb 100", "b");
    }

    #[test]
    fn a_machine_without_a_node_counts_as_unhealthy() {
        check(DeletionOrder::Newest, 1, "a 86400\nb 0 no-node", "a");
        check(DeletionOrder::Oldest, 1, "a 0\nb 86400 no-node", "b");
    }
}
