//! How objects are named after each other. Names on machines and in stores depend on every character of it.

use crate::digest::{md5_hex, sha256_hex};

/// Longest name that fits a label.
const LABEL: usize = 63;

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

/// The Secret with the plan of a node, from its RKEBootstrap.
pub fn plan_secret(bootstrap: &str) -> String {
    safe_concat_name(&[bootstrap, "machine", "plan"])
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
        assert_eq!(plan_secret("my-node"), "my-node-machine-plan");
        assert_eq!(safe_concat_name(&[&"a".repeat(63)]), "a".repeat(63));
        assert_eq!(safe_concat_name_max(6, &["input", "s"]), "deab5");
        assert_eq!(safe_concat_name_max(8, &["a", "&", "b", "=", "c"]), "a-359087");
        assert_eq!(safe_concat_name_max(5, &["abcdefgh"]), "abcde");
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
