//! The checksum by which agents recognise the server's certificate authority.

use std::borrow::Cow;

use remuda_plan::sha256_hex;

/// What `/cacerts` answers for a setting: the setting with a newline at its end; nothing for nothing.
pub fn cacerts_body(pem: &str) -> Cow<'_, str> {
    if pem.is_empty() || pem.ends_with('\n') { Cow::Borrowed(pem) } else { Cow::Owned(format!("{pem}\n")) }
}

/// The checksum of `pem` as agents compute it from what `/cacerts` answers; empty if there is none.
pub fn ca_checksum(pem: &str) -> String {
    if pem.is_empty() { String::new() } else { sha256_hex(cacerts_body(pem).as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_of_the_text_with_one_newline_at_its_end() {
        // printf 'x\n' | sha256sum
        let sum = "73cb3858a687a8494ca3323053016282f3dad39d42cf62ca4e79dda2aac7d9ac";
        assert_eq!(ca_checksum("x"), sum);
        assert_eq!(ca_checksum("x\n"), sum);
        assert_ne!(ca_checksum("x\n\n"), sum);
        assert_eq!(ca_checksum(""), "");
        assert_eq!(cacerts_body(""), "");
    }
}
