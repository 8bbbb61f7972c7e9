//! Tokens of a label selector.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Less,
    NotEquals,
    Open,
    In,
    NotIn,
    Identifier(&'a str),
}

impl<'a> Token<'a> {
    /// The text as written, for error messages.
    pub(super) fn literal(self) -> &'a str {
        match self {
            Self::End => "",
            Self::Close => ")",
            Self::Comma => ",",
            Self::Not => "!",
            Self::DoubleEquals => "==",
            Self::Equals => "=",
            Self::Greater => ">",
            Self::Less => "<",
            Self::NotEquals => "!=",
            Self::Open => "(",
            Self::In => "in",
            Self::NotIn => "notin",
            Self::Identifier(text) => text,
        }
    }

    /// Where a key or value is expected the words `in` and `notin` are ordinary text.
    pub(super) fn as_text(self) -> Self {
        match self {
            Self::In | Self::NotIn => Self::Identifier(self.literal()),
            other => other,
        }
    }
}

/// A token stream with one token of lookahead. After the end it stays at the end.
pub(super) struct Lexer<'a> {
    rest: &'a str,
    next: Token<'a>,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut lexer = Self { rest: text, next: Token::End };
        lexer.next = lexer.scan();
        lexer
    }

    pub(super) fn peek(&self) -> Token<'a> {
        self.next
    }

    pub(super) fn take(&mut self) -> Token<'a> {
        let token = self.next;
        if token != Token::End {
            self.next = self.scan();
        }
        token
    }

    fn scan(&mut self) -> Token<'a> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let bytes = self.rest.as_bytes();
        let second = bytes.get(1) == Some(&b'=');
        let (token, length) = match bytes.first() {
            None => return Token::End,
            Some(b')') => (Token::Close, 1),
            Some(b',') => (Token::Comma, 1),
            Some(b'(') => (Token::Open, 1),
            Some(b'>') => (Token::Greater, 1),
            Some(b'<') => (Token::Less, 1),
            Some(b'=') if second => (Token::DoubleEquals, 2),
            Some(b'=') => (Token::Equals, 1),
            Some(b'!') if second => (Token::NotEquals, 2),
            Some(b'!') => (Token::Not, 1),
            Some(_) => {
                let ends =
                    |c: char| matches!(c, ' ' | '\t' | '\r' | '\n' | '=' | '!' | '(' | ')' | ',' | '>' | '<');
                let length = self.rest.find(ends).unwrap_or(self.rest.len());
                let word = &self.rest[..length];
                let token = match word {
                    "in" => Token::In,
                    "notin" => Token::NotIn,
                    word => Token::Identifier(word),
                };
                (token, length)
            }
        };
        self.rest = &self.rest[length..];
        token
    }
}
