//! People as authentication providers name them, and the names of their Users that follow from it.

use crate::keys::sha256;

/// The User of somebody with this name at an authentication provider.
pub fn user(principal: &str) -> String {
    format!("u-{}", base_32(&sha256(principal.as_bytes()), 10, b"abcdefghijklmnopqrstuvwxyz234567"))
}

/// The label such a User is found by.
pub fn label(principal: &str) -> String {
    base_32(principal.as_bytes(), 63, b"0123456789ABCDEFGHIJKLMNOPQRSTUV")
}

/// The first characters in base 32.
fn base_32(bytes: &[u8], length: usize, alphabet: &[u8; 32]) -> String {
    let bit = |place: usize| bytes.get(place / 8).map_or(0, |byte| byte >> (7 - place % 8) & 1);
    let letters = (0..(bytes.len() * 8).div_ceil(5)).take(length);
    let values = letters.map(|letter| (0..5).fold(0, |value, place| value << 1 | bit(letter * 5 + place)));
    values.map(|value| char::from(alphabet[usize::from(value)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_after_who_they_are_elsewhere() {
        assert_eq!(user("system://provisioning/fleet-default/demo"), "u-l3jmhncqjg");
        assert_eq!(label("local://x"), "DHNM6OBC78NIUU0");
        assert_eq!(label(&"x".repeat(100)).len(), 63);
    }
}
