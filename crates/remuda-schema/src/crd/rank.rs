//! Which version of a kind is the better one.

use std::cmp::Reverse;

/// Kubernetes' order of versions: v2 > v1 > v1beta2 > v1beta1 > v1alpha1 > anything else by name.
pub fn version_rank(version: &str) -> (u8, u64, u64, Reverse<String>) {
    let unknown = (0, 0, 0, Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return unknown };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let Ok(major) = rest[..digits].parse::<u64>() else { return unknown };
    let (stability, minor) = match &rest[digits..] {
        "" => (3, Ok(0)),
        tail if tail.starts_with("beta") => (2, tail["beta".len()..].parse::<u64>()),
        tail if tail.starts_with("alpha") => (1, tail["alpha".len()..].parse::<u64>()),
        _ => return unknown,
    };
    match minor {
        Ok(minor) => (stability, major, minor, Reverse(String::new())),
        Err(_) => unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_before_beta_and_alpha() {
        let mut versions = vec!["v1alpha1", "foo10", "v1", "v10", "v2beta1", "v1beta2", "v11alpha2", "foo1"];
        versions.sort_by_key(|version| Reverse(version_rank(version)));
        assert_eq!(versions, ["v10", "v1", "v2beta1", "v1beta2", "v11alpha2", "v1alpha1", "foo1", "foo10"]);
    }
}
