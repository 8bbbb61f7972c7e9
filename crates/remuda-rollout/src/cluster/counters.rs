//! How many machines a Cluster has and wants.

use remuda_names::capi::condition as kind;

use crate::{
    version::{self, VersionCount},
    view::{Counts, Machine},
};

/// `status.controlPlane` or `status.workers`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    pub desired: Option<i32>,
    pub counts: Counts,
    pub versions: Vec<VersionCount>,
}

/// What a control plane object reports; `None` where it does not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reported {
    pub desired: Option<i32>,
    pub replicas: Option<i32>,
    pub ready: Option<i32>,
    pub available: Option<i32>,
    /// Of the v1beta1 contract, instead of `available`.
    pub unavailable: Option<i32>,
    pub up_to_date: Option<i32>,
    pub versions: Option<Vec<VersionCount>>,
}

/// The control plane, as its object reports it. What it leaves out stays as it was.
///
/// An object that reports nothing at all has its machines counted instead; upstream shows nothing then.
pub fn reported(before: &Counters, object: Option<&Reported>, machines: &[&Machine]) -> Counters {
    let Some(object) = object else {
        return Counters::default();
    };
    if *object == Reported::default() {
        return if machines.is_empty() { before.clone() } else { of_machines(machines) };
    }
    let desired = object.desired.or(before.desired);
    let available = match (object.available, object.unavailable) {
        (Some(available), _) => Some(available),
        (None, Some(unavailable)) => {
            desired.map(|desired| desired.saturating_sub(unavailable).max(0)).or(before.counts.available)
        }
        (None, None) => before.counts.available,
    };
    Counters {
        desired,
        counts: Counts {
            replicas: object.replicas.or(before.counts.replicas),
            ready: object.ready.or(before.counts.ready),
            available,
            up_to_date: object.up_to_date.or(before.counts.up_to_date),
        },
        versions: object.versions.clone().unwrap_or_default(),
    }
}

/// Machines counted by their conditions. Nothing is counted where there is nothing to count.
pub fn of_machines(machines: &[&Machine]) -> Counters {
    let with = |kind: &str| {
        let count = machines.iter().filter(|machine| machine.conditions.is_true(kind)).count();
        (count > 0).then(|| i32::try_from(count).unwrap_or(i32::MAX))
    };
    let all = (!machines.is_empty()).then(|| i32::try_from(machines.len()).unwrap_or(i32::MAX));
    Counters {
        desired: all,
        counts: Counts {
            replicas: all,
            ready: with(kind::READY),
            available: with(kind::AVAILABLE),
            up_to_date: with(kind::UP_TO_DATE),
        },
        versions: version::of_machines(machines.iter().copied()),
    }
}

/// The sum over pools, deployments, stand-alone sets and stand-alone machines.
pub fn workers<'a>(groups: impl IntoIterator<Item = &'a Counters>, stand_alone: &[&Machine]) -> Counters {
    let machines = of_machines(stand_alone);
    let mut all: Vec<&Counters> = groups.into_iter().collect();
    all.push(&machines);
    let desired = all.iter().filter_map(|group| group.desired);
    let desired = desired.fold(None, |sum: Option<i32>, one| Some(sum.unwrap_or(0).saturating_add(one)));
    Counters {
        desired,
        counts: Counts::sum(all.iter().map(|group| group.counts)),
        versions: version::aggregate(all.iter().flat_map(|group| group.versions.iter().cloned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::testing::{conditions, machine};

    #[test]
    fn what_the_control_plane_leaves_out_stays() {
        let before = Counters { desired: Some(3), ..Counters::default() };
        let object = Reported { replicas: Some(2), unavailable: Some(1), ..Reported::default() };
        let found = reported(&before, Some(&object), &[]);
        assert_eq!(
            (found.desired, found.counts.replicas, found.counts.available),
            (Some(3), Some(2), Some(2))
        );
        assert_eq!(reported(&before, None, &[]), Counters::default());
    }

    #[test]
    fn a_silent_control_plane_has_its_machines_counted() {
        let machine = Machine { conditions: conditions("Ready True X"), ..machine("a") };
        let found = reported(&Counters::default(), Some(&Reported::default()), &[&machine]);
        assert_eq!((found.desired, found.counts.ready, found.counts.available), (Some(1), Some(1), None));
    }

    #[test]
    fn workers_are_summed_and_nothing_stays_nothing() {
        assert_eq!(workers([], &[]), Counters::default());
        let one = Counters {
            desired: Some(3),
            counts: Counts { replicas: Some(2), ..Counts::default() },
            versions: Vec::new(),
        };
        let machine = machine("a");
        let found = workers([&one, &one], &[&machine]);
        assert_eq!((found.desired, found.counts.replicas, found.counts.ready), (Some(7), Some(5), None));
    }
}
