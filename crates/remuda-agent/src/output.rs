//! Output of commands on its way to being saved.

/// Bytes kept of one stream of one instruction. Beyond it nothing a server could store is left.
pub const CAPTURE_LIMIT: usize = 4 << 20;

/// Lines end in a single newline, as line-wise capture leaves them.
pub fn lines(raw: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(raw.len() + 1);
    let body = raw.strip_suffix(b"\n").unwrap_or(raw);
    if raw.is_empty() {
        return text;
    }
    for line in body.split(|byte| *byte == b'\n') {
        text.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        text.push(b'\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_in_one_newline() {
        assert_eq!(lines(b""), b"");
        assert_eq!(lines(b"a"), b"a\n");
        assert_eq!(lines(b"a\r\nb\n\n"), b"a\nb\n\n");
        assert_eq!(lines(b"\n"), b"\n");
    }
}
