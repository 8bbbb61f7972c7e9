//! Where objects end in a stream of JSON.

/// Follows a stream of JSON objects byte by byte, whatever is between them and however it is cut into pieces.
///
/// It finds ends and judges nothing: what it cut out is for a parser.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scanner {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl Scanner {
    /// How much of `data` belongs to the object that is being followed, if it ends there. What is behind it is for
    /// the next call, and so is the next piece if there is no end.
    pub fn end(&mut self, data: &[u8]) -> Option<usize> {
        for (at, byte) in data.iter().enumerate() {
            match (self.in_text, byte) {
                (true, _) if self.escaped => self.escaped = false,
                (true, b'\\') => self.escaped = true,
                (true, b'"') => self.in_text = false,
                (true, _) => {}
                (false, b'"') => self.in_text = true,
                (false, b'{' | b'[') => self.depth = self.depth.saturating_add(1),
                (false, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                (false, _) => {}
            }
        }
        None
    }

    /// Whether no object is open.
    pub fn is_between(&self) -> bool {
        self.depth == 0 && !self.in_text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The objects of a stream that comes in pieces of this length.
    fn objects(stream: &str, length: usize) -> Vec<String> {
        let (mut scanner, mut found, mut open) = (Scanner::default(), Vec::new(), Vec::new());
        for mut piece in stream.as_bytes().chunks(length) {
            while let Some(end) = scanner.end(piece) {
                open.extend_from_slice(&piece[..end]);
                found.push(String::from_utf8(std::mem::take(&mut open)).unwrap().trim().to_owned());
                piece = &piece[end..];
            }
            open.extend_from_slice(piece);
        }
        found
    }

    #[test]
    fn objects_end_where_their_last_brace_is() {
        let stream = "{\"a\":[1,{\"b\":\"}\\\"]\"}]}{\n  \"c\": {}\n}\r\n\n{}";
        for length in 1..=stream.len() {
            assert_eq!(
                objects(stream, length),
                ["{\"a\":[1,{\"b\":\"}\\\"]\"}]}", "{\n  \"c\": {}\n}", "{}"]
            );
        }
    }

    #[test]
    fn what_is_no_json_ends_nowhere_or_soon() {
        assert_eq!(Scanner::default().end(b"not json at all"), None);
        assert_eq!(Scanner::default().end(b"}}}"), Some(1));
        let mut open = Scanner::default();
        assert_eq!((open.end(b"{\"a\": \"{{"), open.is_between()), (None, false));
    }
}
