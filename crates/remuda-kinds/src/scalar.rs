//! Text forms of the special scalar types: times, quantities, base64.

pub mod quantity;
pub mod time;

/// Position of the first byte that makes `text` invalid base64, `None` if it is valid.
///
/// Line breaks are allowed anywhere, as Go's decoder ignores them.
pub(crate) fn base64_error(text: &str) -> Option<usize> {
    let mut seen = 0usize;
    let mut padding = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\r' | b'\n' => {}
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' if padding == 0 => seen += 1,
            b'=' if padding < 2 && (seen + padding) % 4 >= 2 => padding += 1,
            _ => return Some(at),
        }
    }
    (!(seen + padding).is_multiple_of(4)).then_some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_checked_like_go_does() {
        for good in ["", "YQ==", "YWI=", "YWJj", "YW\nJj", "YWJjZA=="] {
            assert_eq!(base64_error(good), None, "{good}");
        }
        for (bad, at) in [("YQ", 2), ("YQ=", 3), ("Y!Q=", 1), ("YQ==YQ==", 4), ("=", 0), ("YWJj=", 4)] {
            assert_eq!(base64_error(bad), Some(at), "{bad}");
        }
    }
}
