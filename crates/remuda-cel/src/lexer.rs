//! Characters to tokens.

/// A token and the byte range it came from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Ident(String),
    Int(u64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
    /// An operator, a bracket, or one of the words `in`, `true`, `false` and `null`.
    Symbol(&'static str),
    End,
}

/// Longest first, so that the first match is the right one.
const SYMBOLS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "-", "+", "*", "/", "%", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}",
];
const WORDS: &[&str] = &["in", "true", "false", "null"];

pub(crate) type LexError = (u32, String);

pub(crate) fn tokens(source: &str) -> Result<Vec<Token>, LexError> {
    let mut lexer = Lexer { source, bytes: source.as_bytes(), at: 0 };
    let mut out = Vec::with_capacity(source.len() / 3 + 1);
    loop {
        lexer.skip_blank();
        let start = lexer.at;
        let kind = lexer.next()?;
        let done = kind == Kind::End;
        out.push(Token { kind, start: start as u32, end: lexer.at as u32 });
        if done {
            return Ok(out);
        }
    }
}

struct Lexer<'s> {
    source: &'s str,
    bytes: &'s [u8],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn fail<T>(&self, at: usize, message: impl Into<String>) -> Result<T, LexError> {
        Err((at as u32, format!("Syntax error: {}", message.into())))
    }

    fn skip_blank(&mut self) {
        loop {
            match self.peek(0) {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0c => self.at += 1,
                b'/' if self.peek(1) == b'/' => {
                    while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn next(&mut self) -> Result<Kind, LexError> {
        let Some(&first) = self.bytes.get(self.at) else {
            return Ok(Kind::End);
        };
        if first.is_ascii_digit() || first == b'.' && self.peek(1).is_ascii_digit() {
            return self.number();
        }
        if let Some((raw, bytes, skip)) = self.string_start() {
            self.at += skip;
            return self.string(raw, bytes);
        }
        if first.is_ascii_alphabetic() || first == b'_' {
            let start = self.at;
            while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'_' {
                self.at += 1;
            }
            let word = &self.source[start..self.at];
            let keyword = WORDS.iter().find(|&&keyword| keyword == word);
            return Ok(keyword.map_or_else(|| Kind::Ident(word.to_owned()), |word| Kind::Symbol(word)));
        }
        if let Some(symbol) =
            SYMBOLS.iter().find(|symbol| self.bytes[self.at..].starts_with(symbol.as_bytes()))
        {
            self.at += symbol.len();
            return Ok(Kind::Symbol(symbol));
        }
        let odd = self.source[self.at..].chars().next().unwrap_or(' ');
        self.fail(self.at, format!("token recognition error at: '{}'", odd.escape_default()))
    }

    /// Whether a string literal starts here: raw, bytes, and the length of the prefix.
    fn string_start(&self) -> Option<(bool, bool, usize)> {
        let quote = |byte: u8| byte == b'"' || byte == b'\'';
        let (a, b, c) = (self.peek(0), self.peek(1), self.peek(2));
        match (a.to_ascii_lowercase(), b.to_ascii_lowercase()) {
            _ if quote(a) => Some((false, false, 0)),
            (b'r', _) if quote(b) => Some((true, false, 1)),
            (b'b', _) if quote(b) => Some((false, true, 1)),
            (b'b', b'r') | (b'r', b'b') if quote(c) => Some((true, true, 2)),
            _ => None,
        }
    }

    fn digits(&mut self) {
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
    }

    fn number(&mut self) -> Result<Kind, LexError> {
        let start = self.at;
        if self.peek(0) == b'0' && self.peek(1) == b'x' && self.peek(2).is_ascii_hexdigit() {
            self.at += 2;
            let digits = self.at;
            while self.peek(0).is_ascii_hexdigit() {
                self.at += 1;
            }
            let value = u64::from_str_radix(&self.source[digits..self.at], 16);
            return self.integer(start, value.ok());
        }
        self.digits();
        let mut double = false;
        if self.peek(0) == b'.' && self.peek(1).is_ascii_digit() {
            double = true;
            self.at += 1;
            self.digits();
        }
        let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
        if matches!(self.peek(0), b'e' | b'E') && self.peek(1 + sign).is_ascii_digit() {
            double = true;
            self.at += 1 + sign;
            self.digits();
        }
        let text = &self.source[start..self.at];
        if double {
            return match text.parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(Kind::Double(value)),
                _ => Err((start as u32, "invalid double literal".to_owned())),
            };
        }
        let value = text.parse().ok();
        self.integer(start, value)
    }

    fn integer(&mut self, start: usize, value: Option<u64>) -> Result<Kind, LexError> {
        let unsigned = matches!(self.peek(0), b'u' | b'U');
        if unsigned {
            self.at += 1;
        }
        // One more than the largest int is let through: it may be the smallest after a minus.
        match value {
            Some(value) if unsigned => Ok(Kind::Uint(value)),
            Some(value) if value <= 1 << 63 => Ok(Kind::Int(value)),
            _ if unsigned => Err((start as u32, "invalid uint literal".to_owned())),
            _ => Err((start as u32, "invalid int literal".to_owned())),
        }
    }

    fn string(&mut self, raw: bool, bytes: bool) -> Result<Kind, LexError> {
        let start = self.at;
        let quote = self.peek(0);
        let triple = self.peek(1) == quote && self.peek(2) == quote;
        self.at += if triple { 3 } else { 1 };
        let mut text = Literal { bytes, out: Vec::new() };
        loop {
            let Some(&byte) = self.bytes.get(self.at) else {
                return self.fail(start, "string literal is not closed");
            };
            if byte == quote && (!triple || self.peek(1) == quote && self.peek(2) == quote) {
                self.at += if triple { 3 } else { 1 };
                break;
            }
            match byte {
                b'\n' | b'\r' if !triple => return self.fail(start, "string literal is not closed"),
                b'\\' if !raw => self.escape(&mut text)?,
                _ => {
                    text.out.push(byte);
                    self.at += 1;
                }
            }
        }
        if bytes {
            return Ok(Kind::Bytes(text.out));
        }
        match String::from_utf8(text.out) {
            Ok(text) => Ok(Kind::String(text)),
            Err(_) => self.fail(start, "invalid string literal"),
        }
    }

    fn escape(&mut self, text: &mut Literal) -> Result<(), LexError> {
        let start = self.at;
        let letter = self.peek(1);
        self.at += 2;
        let plain = match letter {
            b'a' => 0x07,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'\\' | b'?' | b'"' | b'\'' | b'`' => letter,
            b'x' | b'X' => return self.code(start, text, 2, 16, true),
            b'u' if !text.bytes => return self.code(start, text, 4, 16, false),
            b'U' if !text.bytes => return self.code(start, text, 8, 16, false),
            b'0'..=b'3' => {
                self.at -= 1;
                return self.code(start, text, 3, 8, true);
            }
            _ => return self.fail(start, "invalid escape sequence in string literal"),
        };
        text.out.push(plain);
        Ok(())
    }

    fn code(
        &mut self,
        start: usize,
        text: &mut Literal,
        len: usize,
        radix: u32,
        byte: bool,
    ) -> Result<(), LexError> {
        let digits =
            self.bytes.get(self.at..self.at + len).and_then(|digits| std::str::from_utf8(digits).ok());
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, radix).ok());
        self.at += len;
        match code {
            Some(code) if text.bytes && byte && code < 256 => {
                text.out.push(code as u8);
                Ok(())
            }
            Some(code) if !text.bytes => match char::from_u32(code) {
                Some(char) => {
                    text.out.extend(char.encode_utf8(&mut [0; 4]).bytes());
                    Ok(())
                }
                None => self.fail(start, "invalid unicode code point in string literal"),
            },
            _ => self.fail(start, "invalid escape sequence in string literal"),
        }
    }
}

/// The contents of a literal so far.
struct Literal {
    bytes: bool,
    out: Vec<u8>,
}
