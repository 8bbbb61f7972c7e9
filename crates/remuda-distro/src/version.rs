//! Versions of Kubernetes and of the distributions, which count their builds in the build metadata.

use std::cmp::Ordering;

use semver::Version;

/// A complete version, with or without the leading `v`.
pub fn parse(text: &str) -> Option<Version> {
    Version::parse(text.strip_prefix('v').unwrap_or(text)).ok()
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

/// A minor version: major and minor number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Minor(pub u64, pub u64);

impl Minor {
    pub fn of(version: &Version) -> Minor {
        Minor(version.major, version.minor)
    }

    /// `1.35` or `v1.35`, and nothing else.
    pub fn parse(text: &str) -> Option<Minor> {
        let (major, minor) = text.strip_prefix('v').unwrap_or(text).split_once('.')?;
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse().ok()).flatten()
        };
        Some(Minor(number(major)?, number(minor)?))
    }

    pub fn next(self) -> Minor {
        Minor(self.0, self.1.saturating_add(1))
    }
}

impl std::fmt::Display for Minor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
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
        assert_eq!(order("v1.33.2-rc1+k3s1", "v1.33.2+k3s1"), Ordering::Less);
    }

    #[test]
    fn a_minor_version_is_two_numbers() {
        assert_eq!(Minor::parse("v1.35"), Some(Minor(1, 35)));
        for odd in ["1", "1.", "1.35.2", "1.x", "+1.3", "1.99999999999999999999999", ""] {
            assert_eq!(Minor::parse(odd), None, "{odd}");
        }
    }
}
