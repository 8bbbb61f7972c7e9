//! Digests as they appear on the wire and in names.

use md5::Md5;
pub use remuda_base::hex;
use sha2::{Digest, Sha256};

/// Lower-case hexadecimal SHA-256; of a plan's bytes it is the plan's checksum.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes))
}

/// The first characters of the hexadecimal MD5, at most 32.
pub fn md5_hex(text: &str, length: usize) -> String {
    let mut digest = hex(Md5::digest(text));
    digest.truncate(length);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_lower_case_hexadecimal() {
        assert_eq!(md5_hex("", 8), "d41d8cd9");
        assert_eq!(md5_hex("", 99).len(), 32);
        assert_eq!(sha256_hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
