//! How things are named after each other. Names on machines and in stores depend on every character of it.

use md5::Md5;
use sha2::{Digest, Sha256};

/// Longest name that fits a label.
const LABEL: usize = 63;
/// Without vowels, so that no words come of it, and without what looks alike.
const TOKEN_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Characters of a token.
pub const TOKEN_LENGTH: usize = 54;

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
}

/// Joins with hyphens what fits into a label, and shortens with a hash what does not.
pub fn safe_concat_name(parts: &[&str]) -> String {
    let joined = parts.join("-");
    if joined.len() <= LABEL {
        return joined;
    }
    shorten(&joined, LABEL)
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
    let digest = hex(&Sha256::digest(joined));
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

/// The first bytes, without half a character at the end.
fn head(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The first characters of the MD5, at most 32.
pub fn md5_hex(text: &str, length: usize) -> String {
    let mut digest = hex(&Md5::digest(text));
    digest.truncate(length);
    digest
}

/// The first characters of the SHA-256, at most 64.
pub fn sha256_hex(content: &[u8], length: usize) -> String {
    let mut digest = hex(&Sha256::digest(content));
    digest.truncate(length);
    digest
}

/// Shortens with a hash what is not shorter than `limit`, which is at least 6.
pub fn limit(text: &str, limit: usize) -> String {
    if text.len() < limit {
        return text.to_owned();
    }
    format!("{}-{}", head(text, limit.saturating_sub(6)), md5_hex(text, 5))
}

/// A token of random bytes; nothing if there are not enough of them. On average six in a hundred are not used.
pub fn token(random: impl IntoIterator<Item = u8>) -> Option<String> {
    // Only whole multiples of the alphabet, so that every character is as likely as any other.
    let fair = u8::MAX - u8::MAX % 27;
    let letters = random.into_iter().filter(|byte| *byte < fair);
    let letters = letters.map(|byte| char::from(TOKEN_ALPHABET[usize::from(byte % 27)]));
    let token: String = letters.take(TOKEN_LENGTH).collect();
    (token.len() == TOKEN_LENGTH).then_some(token)
}

/// The User that stands for a cluster, by whose token its kubeconfig works.
pub fn cluster_user(namespace: &str, name: &str) -> String {
    let digest = Sha256::digest(cluster_principal(namespace, name));
    format!("u-{}", base32(&digest, 10))
}

/// What that User is known by.
pub fn cluster_principal(namespace: &str, name: &str) -> String {
    format!("system://provisioning/{namespace}/{name}")
}

/// The first characters in base 32, in lower case.
fn base32(bytes: &[u8], length: usize) -> String {
    let bit = |place: usize| bytes.get(place / 8).map_or(0, |byte| byte >> (7 - place % 8) & 1);
    let letters = (0..(bytes.len() * 8).div_ceil(5)).take(length);
    let values = letters.map(|letter| (0..5).fold(0, |value, place| value << 1 | bit(letter * 5 + place)));
    values.map(|value| char::from(b"abcdefghijklmnopqrstuvwxyz234567"[usize::from(value)])).collect()
}

/// `local`, or `c-` and five characters: made before there were provisioning Clusters, or imported beside them.
pub fn is_legacy(cluster: &str) -> bool {
    cluster == remuda_names::rancher::name::LOCAL || is_legacy_id(cluster)
}

/// `c-` and five characters.
pub fn is_legacy_id(cluster: &str) -> bool {
    let id = cluster.strip_prefix("c-").unwrap_or_default();
    id.len() == 5 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// Namespace and name of a Secret with credentials. Only one namespace can be named; anything else is a
/// name in the namespace of the cluster.
pub fn credential<'a>(namespace: &'a str, reference: &'a str) -> (&'a str, &'a str) {
    match reference.split_once(':') {
        Some((global @ remuda_names::rancher::name::GLOBAL_DATA, name)) if !name.is_empty() => (global, name),
        _ => (namespace, reference),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn long_names_are_shortened_as_everywhere() {
        let long = "abcdef0123456789".repeat(4);
        assert_eq!(
            safe_concat_name(&[&long]),
            "abcdef0123456789abcdef0123456789abcdef0123456789abcdef012-aa23e"
        );
        assert_eq!(safe_concat_name(&["demo", "pool1"]), "demo-pool1");
        assert_eq!(safe_concat_name(&["a".repeat(63).as_str()]), "a".repeat(63));
        let words = "very long name to test shortening behavior this should exceed max k8s name length";
        let words: Vec<_> = words.split(' ').collect();
        let expected = "very-long-name-to-test-shortening-behavior-this-should-ex-e8118";
        assert_eq!(safe_concat_name_max(63, &words), expected);
        assert_eq!(safe_concat_name(&words), expected);
        assert_eq!(safe_concat_name_max(6, &["input", "s"]), "deab5");
        assert_eq!(safe_concat_name_max(8, &["a", "&", "b", "=", "c"]), "a-359087");
        assert_eq!(safe_concat_name_max(0, &["a"]), "");
        assert_eq!(safe_concat_name_max(5, &["abcdefgh"]), "abcde");
    }

    #[test]
    fn a_head_does_not_end_in_a_hyphen() {
        let text = format!("{}-{}", "a".repeat(56), "b".repeat(20));
        let name = safe_concat_name(&[&text]);
        assert_eq!((name.len(), &name[..57]), (63, format!("{}-", "a".repeat(56)).as_str()));
    }

    #[test]
    fn the_user_of_a_cluster_is_named_after_it() {
        assert_eq!(cluster_user("fleet-default", "demo"), "u-l3jmhncqjg");
    }

    #[test]
    fn limits_are_by_md5() {
        assert_eq!(md5_hex("", 8), "d41d8cd9");
        assert_eq!(limit("short", 6), "short");
        assert_eq!(limit("abcdefghij", 10), format!("abcd-{}", md5_hex("abcdefghij", 5)));
    }

    #[test]
    fn tokens_are_of_their_alphabet() {
        let token = token((0..=255).cycle().take(400)).unwrap();
        assert_eq!(token.len(), TOKEN_LENGTH);
        assert!(token.starts_with("bcdfghjklmnpqrstvwxz2456789bcd"));
        assert_eq!(super::token([255; 1000]), None);
    }

    #[test]
    fn credentials_are_in_one_namespace_or_that_of_the_cluster() {
        assert_eq!(credential("ns", "cattle-global-data:cc"), ("cattle-global-data", "cc"));
        assert_eq!(credential("ns", "cc"), ("ns", "cc"));
        assert_eq!(credential("ns", "kube-system:cc"), ("ns", "kube-system:cc"));
        assert_eq!(credential("ns", "cattle-global-data:"), ("ns", "cattle-global-data:"));
    }

    #[test]
    fn old_clusters_are_known_by_their_names() {
        for (name, expected) in [
            ("local", true),
            ("c-abc12", true),
            ("c-m-abcdefgh", false),
            ("c-ABC12", false),
            ("c-abc1", false),
        ] {
            assert_eq!(is_legacy(name), expected, "{name}");
        }
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
