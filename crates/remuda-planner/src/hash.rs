//! Digests as they appear on the wire.

use md5::Md5;
use sha2::{Digest, Sha256};

/// Lower-case hex of the sha256 of `bytes`; of a plan's raw JSON it is the plan hash.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// First `n` characters of the hex md5 of `text`.
pub(crate) fn short_md5(text: &str, n: usize) -> String {
    let mut digest = hex(&Md5::digest(text.as_bytes()));
    digest.truncate(n);
    digest
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Joins with `-`; 64 characters and more are cut to 63 that end in a digest of the whole.
pub fn safe_concat_name(parts: &[&str]) -> String {
    let joined = parts.join("-");
    if joined.len() < 64 {
        return joined;
    }
    let digest = sha256_hex(joined.as_bytes());
    let bytes = joined.as_bytes();
    let (keep, digits) = match bytes[56] {
        b'a'..=b'z' | b'0'..=b'9' => (57, 5),
        _ => (56, 6),
    };
    let head = String::from_utf8_lossy(&bytes[..keep]);
    format!("{head}-{}", &digest[..digits])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_as_existing_objects_were() {
        assert_eq!(
            safe_concat_name(&[&"abcdef0123456789".repeat(4)]),
            "abcdef0123456789abcdef0123456789abcdef0123456789abcdef012-aa23e"
        );
        let long = "my-very-long-cluster-name-pool-with-many-chars-x7k2q-";
        assert_eq!(
            safe_concat_name(&[&format!("{long}abcde"), "machine", "plan"]),
            "my-very-long-cluster-name-pool-with-many-chars-x7k2q-abcd-69ed1"
        );
        assert_eq!(
            safe_concat_name(&[&format!("{long}abc-defg"), "machine", "plan"]),
            "my-very-long-cluster-name-pool-with-many-chars-x7k2q-abc-40605c"
        );
        assert_eq!(safe_concat_name(&["my-node", "machine", "plan"]), "my-node-machine-plan");
    }

    #[test]
    fn names_cut_inside_a_character_do_not_panic() {
        assert!(!safe_concat_name(&[&"é".repeat(60)]).is_empty());
    }
}
