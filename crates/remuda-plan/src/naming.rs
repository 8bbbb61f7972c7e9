//! How objects are named after each other. Names on machines and in stores depend on every character of it.

use remuda_names::rancher::name::GLOBAL_DATA;

use crate::digest::{md5_hex, sha256_hex};

/// Longest name that fits a label.
pub const LABEL: usize = 63;

/// Names made of the names of objects.
pub mod of {
    use super::safe_concat_name;

    /// The Secret with the plan of a node, from its RKEBootstrap.
    pub fn plan_secret(bootstrap: &str) -> String {
        safe_concat_name(&[bootstrap, "machine", "plan"])
    }

    /// The Secret a machine boots with, from its RKEBootstrap.
    pub fn bootstrap_secret(bootstrap: &str) -> String {
        safe_concat_name(&[bootstrap, "machine", "bootstrap"])
    }

    /// The Secret with the tokens of a cluster, from its control plane.
    pub fn state_secret(control_plane: &str) -> String {
        safe_concat_name(&[control_plane, "rke", "state"])
    }

    /// The Secret with what a driver keeps of a machine.
    pub fn machine_state_secret(machine: &str) -> String {
        safe_concat_name(&[machine, "machine", "state"])
    }

    /// The Secret with the environment of the Job that makes a machine.
    pub fn machine_driver_secret(machine: &str) -> String {
        safe_concat_name(&[machine, "machine", "driver", "secret"])
    }

    /// The Job that makes a machine, and the Secret with its files.
    pub fn machine_provision(machine: &str) -> String {
        safe_concat_name(&[machine, "machine", "provision"])
    }

    /// The template of what all machines of a cluster boot with.
    pub fn bootstrap_template(cluster: &str) -> String {
        safe_concat_name(&[cluster, "bootstrap", "template"])
    }

    /// The MachineDeployment of a pool.
    pub fn machine_deployment(cluster: &str, pool: &str) -> String {
        safe_concat_name(&[cluster, pool])
    }

    /// The Secret with the kubeconfig of a cluster.
    pub fn kubeconfig_secret(cluster: &str) -> String {
        format!("{cluster}-kubeconfig")
    }

    /// The Secret with a registration token.
    pub fn registration_secret(token: &str) -> String {
        format!("crt-token-{token}")
    }

    /// The ConfigMap with what the Jobs of a machine wrote.
    pub fn machine_log(machine: &str) -> String {
        safe_concat_name(&[machine, "machine", "log"])
    }
}

/// Joins with hyphens what fits into a label, and shortens with a hash what does not.
pub fn safe_concat_name(parts: &[&str]) -> String {
    safe_concat_name_max(LABEL, parts)
}

/// The same with another limit.
pub fn safe_concat_name_max(max: usize, parts: &[&str]) -> String {
    let joined = parts.join("-");
    if joined.len() <= max {
        joined
    } else if max <= 5 {
        head(&joined, max).to_owned()
    } else {
        shorten(&joined, max)
    }
}

/// A head and a hash. The hash is longer by one if the head would end in a hyphen or the like.
fn shorten(joined: &str, max: usize) -> String {
    let digest = sha256_hex(joined.as_bytes());
    let last = joined.as_bytes()[max.saturating_sub(7)];
    let (length, hash) = if last.is_ascii_lowercase() || last.is_ascii_digit() {
        (max - 6, &digest[..5])
    } else {
        (max.saturating_sub(7), &digest[..6])
    };
    match head(joined, length) {
        "" => hash.to_owned(),
        head => format!("{head}-{hash}"),
    }
}

/// Shortens with a hash what is not shorter than `limit`, which is at least 6.
pub fn limit(text: &str, limit: usize) -> String {
    if text.len() < limit {
        return text.to_owned();
    }
    format!("{}-{}", head(text, limit.saturating_sub(6)), md5_hex(text, 5))
}

/// The first bytes, without half a character at the end.
fn head(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

/// Namespace and name of a Secret with credentials: `cattle-global-data:NAME`, or one beside what refers to
/// it. No other namespace can be named: who may make clusters in one could read Secrets of all.
pub fn credential<'a>(namespace: &'a str, reference: &'a str) -> (&'a str, &'a str) {
    match reference.split_once(':') {
        Some((GLOBAL_DATA, name)) if !name.is_empty() => (GLOBAL_DATA, name),
        _ => (namespace, reference),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_names_are_shortened_as_existing_objects_were() {
        let long = "my-very-long-cluster-name-pool-with-many-chars-x7k2q-";
        let repeated = "abcdef0123456789".repeat(4);
        for (parts, expected) in [
            (&[repeated.as_str()][..], "abcdef0123456789abcdef0123456789abcdef0123456789abcdef012-aa23e"),
            (
                &[&format!("{long}abcde"), "machine", "plan"],
                "my-very-long-cluster-name-pool-with-many-chars-x7k2q-abcd-69ed1",
            ),
            (
                &[&format!("{long}abc-defg"), "machine", "plan"],
                "my-very-long-cluster-name-pool-with-many-chars-x7k2q-abc-40605c",
            ),
            (&["my-node", "machine", "plan"], "my-node-machine-plan"),
        ] {
            assert_eq!(safe_concat_name(parts), expected);
        }
        assert_eq!(of::plan_secret("my-node"), "my-node-machine-plan");
        assert_eq!(of::machine_provision("m1"), "m1-machine-provision");
        assert_eq!(of::machine_driver_secret("m1"), "m1-machine-driver-secret");
        assert_eq!(safe_concat_name(&["demo", "pool1"]), "demo-pool1");
        assert_eq!(safe_concat_name(&[&"a".repeat(63)]), "a".repeat(63));
        assert_eq!(safe_concat_name_max(6, &["input", "s"]), "deab5");
        assert_eq!(safe_concat_name_max(8, &["a", "&", "b", "=", "c"]), "a-359087");
        assert_eq!(safe_concat_name_max(5, &["abcdefgh"]), "abcde");
        assert_eq!(safe_concat_name_max(3, &["abcdef"]), "abc");
        assert_eq!(safe_concat_name_max(0, &["a"]), "");
        assert!(safe_concat_name(&[&"é".repeat(60)]).len() <= LABEL);
        let words = "very long name to test shortening behavior this should exceed max k8s name length";
        let words: Vec<_> = words.split(' ').collect();
        let expected = "very-long-name-to-test-shortening-behavior-this-should-ex-e8118";
        assert_eq!(safe_concat_name_max(63, &words), expected);
        assert_eq!(safe_concat_name(&words), expected);
    }

    #[test]
    fn a_head_does_not_end_in_a_hyphen() {
        let text = format!("{}-{}", "a".repeat(56), "b".repeat(20));
        let name = safe_concat_name(&[&text]);
        assert_eq!((name.len(), &name[..57]), (63, format!("{}-", "a".repeat(56)).as_str()));
    }

    #[test]
    fn credentials_are_in_one_namespace_or_beside_what_refers_to_them() {
        assert_eq!(credential("ns", "cattle-global-data:cc"), ("cattle-global-data", "cc"));
        assert_eq!(credential("ns", "cc"), ("ns", "cc"));
        assert_eq!(credential("ns", "kube-system:cc"), ("ns", "kube-system:cc"));
        assert_eq!(credential("ns", "cattle-global-data:"), ("ns", "cattle-global-data:"));
    }

    #[test]
    fn limits_are_by_md5() {
        assert_eq!(limit("short", 6), "short");
        assert_eq!(limit("abcdefghij", 10), format!("abcd-{}", md5_hex("abcdefghij", 5)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn nothing_is_ever_too_long(parts in prop::collection::vec(".{0,40}", 0..6), max in 0usize..100) {
            let parts: Vec<_> = parts.iter().map(String::as_str).collect();
            prop_assert!(safe_concat_name_max(max, &parts).len() <= max);
            prop_assert!(safe_concat_name(&parts).len() <= 63);
        }
    }
}
