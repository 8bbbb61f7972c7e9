//! How things are named after each other. Names on machines and in stores depend on every character of it.

pub use remuda_plan::naming::{credential, of, safe_concat_name, safe_concat_name_max};

/// Without vowels, so that no words come of it, and without what looks alike.
const TOKEN_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Characters of a token.
pub const TOKEN_LENGTH: usize = 54;

/// The first characters of the SHA-256, at most 64.
pub fn sha256_hex(content: &[u8], length: usize) -> String {
    let mut digest = remuda_plan::sha256_hex(content);
    digest.truncate(length);
    digest
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
    remuda_auth::principal::user(&cluster_principal(namespace, name))
}

/// What that User is known by.
pub fn cluster_principal(namespace: &str, name: &str) -> String {
    format!("system://provisioning/{namespace}/{name}")
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

/// Names the server gives: those of management Clusters, and `local`. A cluster of such a name would be taken for
/// the one it is named after.
pub fn is_reserved(cluster: &str) -> bool {
    let managed = cluster.strip_prefix("c-m-").unwrap_or_default();
    is_legacy(cluster)
        || managed.len() == 8
            && managed.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_management_clusters_are_reserved() {
        for (name, expected) in [
            ("local", true),
            ("c-abc12", true),
            ("c-m-abcd2345", true),
            ("c-m-abcd", false),
            ("c-m-abcd-efg", false),
            ("demo", false),
        ] {
            assert_eq!(is_reserved(name), expected, "{name}");
        }
    }

    #[test]
    fn the_user_of_a_cluster_is_named_after_it() {
        assert_eq!(cluster_user("fleet-default", "demo"), "u-l3jmhncqjg");
    }

    #[test]
    fn tokens_are_of_their_alphabet() {
        let token = token((0..=255).cycle().take(400)).unwrap();
        assert_eq!(token.len(), TOKEN_LENGTH);
        assert!(token.starts_with("bcdfghjklmnpqrstvwxz2456789bcd"));
        assert_eq!(super::token([255; 1000]), None);
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
}
