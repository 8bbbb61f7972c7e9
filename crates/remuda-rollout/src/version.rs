//! Kubernetes versions, as machines and control planes report them.

use std::cmp::Ordering;

use semver::Version;

use crate::view::Machine;

/// How many machines run a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionCount {
    pub version: String,
    pub replicas: i32,
}

/// Reads a version with or without `v`, with missing minor and patch numbers and with leading zeros.
pub fn parse_tolerant(text: &str) -> Option<Version> {
    let text = text.trim().trim_start_matches('v');
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let mut parts: Vec<String> = Vec::with_capacity(3);
    for number in numbers.split('.') {
        let trimmed = number.trim_start_matches('0');
        let valid = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        if !valid || parts.len() == 3 {
            return None;
        }
        parts.push(if trimmed.is_empty() { "0".into() } else { trimmed.into() });
    }
    if parts.len() < 3 && !rest.is_empty() {
        return None;
    }
    parts.resize(3, "0".into());
    Version::parse(&format!("{}{rest}", parts.join("."))).ok()
}

/// Order of two versions, build metadata included where it can be compared.
///
/// `v1.33.1+rke2r1` is before `v1.33.1+rke2r2`; numbers in the metadata compare as numbers.
pub fn compare(a: &Version, b: &Version) -> Ordering {
    a.cmp_precedence(b).then_with(|| compare_builds(a.build.as_str(), b.build.as_str()))
}

fn compare_builds(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (left, right) = (token(&mut a), token(&mut b));
        let order = match (left, right) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(left), Some(right)) => match (left.parse::<u64>(), right.parse::<u64>()) {
                (Ok(left), Ok(right)) => left.cmp(&right),
                _ => left.cmp(right),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// The next run of digits or of anything else.
fn token<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let first = rest.bytes().next()?.is_ascii_digit();
    let end = rest.bytes().position(|byte| byte.is_ascii_digit() != first).unwrap_or(rest.len());
    // Build metadata is ASCII, so every position is a boundary.
    let (token, after) = rest.split_at(end);
    *rest = after;
    Some(token)
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
    fn versions_are_read_generously() {
        let read = |text| parse_tolerant(text).map(|version| version.to_string());
        assert_eq!(read("v1.33.1+rke2r1").as_deref(), Some("1.33.1+rke2r1"));
        assert_eq!(read("1.33").as_deref(), Some("1.33.0"));
        assert_eq!(read("v1.05.3").as_deref(), Some("1.5.3"));
        assert_eq!(read("latest"), None);
        assert_eq!(read("1.33-rc"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn builds_order_versions_that_are_otherwise_equal() {
        let order = |a, b| compare(&parse_tolerant(a).unwrap(), &parse_tolerant(b).unwrap());
        assert_eq!(order("v1.33.1+rke2r2", "v1.33.1+rke2r10"), Ordering::Less);
        assert_eq!(order("v1.33.1+k3s1", "v1.33.1+k3s1"), Ordering::Equal);
        assert_eq!(order("v1.33.2", "v1.33.1+k3s9"), Ordering::Greater);
    }

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
