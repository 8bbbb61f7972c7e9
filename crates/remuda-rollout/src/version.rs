//! Kubernetes versions, as machines and control planes report them.

use std::cmp::Ordering;

use remuda_distro::version::{compare, parse_tolerant};

use crate::view::Machine;

/// How many machines run a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionCount {
    pub version: String,
    pub replicas: i32,
}

/// Counts added up by version, oldest version first; what is no version goes last.
pub fn aggregate(counts: impl IntoIterator<Item = VersionCount>) -> Vec<VersionCount> {
    let mut sums: Vec<VersionCount> = Vec::new();
    for count in counts.into_iter().filter(|count| !count.version.is_empty()) {
        match sums.iter_mut().find(|known| known.version == count.version) {
            Some(known) => known.replicas = known.replicas.saturating_add(count.replicas),
            None => sums.push(count),
        }
    }
    let order = |a: &VersionCount, b: &VersionCount| {
        let by_name = || a.version.cmp(&b.version);
        match (parse_tolerant(&a.version), parse_tolerant(&b.version)) {
            (Some(left), Some(right)) => compare(&left, &right).then_with(by_name),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => by_name(),
        }
    };
    sums.sort_by(order);
    sums
}

/// Versions of some machines: what the kubelet says, or else what was asked for.
pub fn of_machines<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> Vec<VersionCount> {
    aggregate(machines.into_iter().map(|machine| {
        let reported = !machine.kubelet_version.is_empty();
        let version = if reported { &machine.kubelet_version } else { &machine.version };
        VersionCount { version: version.clone(), replicas: 1 }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_added_by_version_and_sorted() {
        let count = |version: &str, replicas| VersionCount { version: version.into(), replicas };
        let found = aggregate([
            count("v1.34.0", 1),
            count("odd", 1),
            count("", 9),
            count("v1.9.0", 2),
            count("v1.34.0", 2),
        ]);
        assert_eq!(found, [count("v1.9.0", 2), count("v1.34.0", 3), count("odd", 1)]);
    }
}
