//! Tokens by which nodes join: a password, or `K10<hash of the CA>::<user>:<password>`.

use aws_lc_rs::digest;
use remuda_base::hex;

/// Who may join as what.
pub const SERVER_USER: &str = "server";
pub const NODE_USER: &str = "node";

const PREFIX: &str = "K10";
const HASH: usize = 64;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TokenError {
    #[error("the token is empty")]
    Empty,
    #[error("the token begins with K10 but has no :: after a CA hash of 64 digits")]
    Hash,
    #[error("the token has no password")]
    Password,
}

/// A token, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The server's CA must have this hash.
    pub ca_hash: Option<String>,
    pub user: Option<String>,
    pub password: String,
}

/// A token is a secret.
impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token")
            .field("ca_hash", &self.ca_hash)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Token {
    pub fn parse(text: &str) -> Result<Token, TokenError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TokenError::Empty);
        }
        let Some(rest) = text.strip_prefix(PREFIX) else {
            return Ok(Token { ca_hash: None, user: None, password: text.to_owned() });
        };
        let (hash, credentials) = rest.split_once("::").ok_or(TokenError::Hash)?;
        let is_hash = hash.len() == HASH && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hash && !hash.is_empty() {
            return Err(TokenError::Hash);
        }
        let ca_hash = is_hash.then(|| hash.to_ascii_lowercase());
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (Some(user.to_owned()).filter(|user| !user.is_empty()), password),
            None => (None, credentials),
        };
        if password.is_empty() {
            return Err(TokenError::Password);
        }
        Ok(Token { ca_hash, user, password: password.to_owned() })
    }

    /// Whether a CA is the one the token was made for.
    pub fn trusts(&self, ca_pem: &str) -> bool {
        self.ca_hash.as_ref().is_none_or(|hash| *hash == ca_hash(ca_pem))
    }
}

/// The whole token, as it is written to `node-token`.
pub fn full(ca_pem: &str, user: &str, password: &str) -> String {
    format!("{PREFIX}{}::{user}:{password}", ca_hash(ca_pem))
}

pub fn ca_hash(ca_pem: &str) -> String {
    hex(digest::digest(&digest::SHA256, ca_pem.as_bytes()))
}

/// Random lower-case digits, for passwords and names.
pub fn random_hex(bytes: usize) -> String {
    let mut random = vec![0; bytes];
    aws_lc_rs::rand::fill(&mut random).expect("the system gives random bytes");
    hex(random)
}

/// Compares without telling by its time how much is equal.
pub fn same(left: &str, right: &str) -> bool {
    let digest = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
    aws_lc_rs::constant_time::verify_slices_are_equal(digest(left).as_ref(), digest(right).as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_plain_password_is_a_token() {
        let token = Token::parse("secret\n").unwrap();
        assert_eq!((token.ca_hash.as_deref(), token.password.as_str()), (None, "secret"));
        assert!(token.trusts("any"));
        assert_eq!(Token::parse("a:b").unwrap().password, "a:b");
    }

    #[test]
    fn a_full_token_pins_the_authority() {
        let token = Token::parse(&full("ca", SERVER_USER, "p:w")).unwrap();
        assert_eq!((token.user.as_deref(), token.password.as_str()), (Some("server"), "p:w"));
        assert!(token.trusts("ca") && !token.trusts("other"));
    }

    #[test]
    fn broken_tokens_are_refused() {
        assert_eq!(Token::parse(" "), Err(TokenError::Empty));
        assert_eq!(Token::parse("K10abc::server:x"), Err(TokenError::Hash));
        assert_eq!(Token::parse("K10abc"), Err(TokenError::Hash));
        assert_eq!(Token::parse("K10::server:"), Err(TokenError::Password));
    }

    #[test]
    fn passwords_are_compared_whole() {
        assert!(same("abc", "abc"));
        assert!(!same("abc", "abcd") && !same("", "a"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn what_is_written_is_read(password in "[!-~]{1,60}") {
            let token = Token::parse(&full("ca", NODE_USER, &password)).unwrap();
            prop_assert_eq!(token.password, password);
        }

        #[test]
        fn no_text_breaks_the_parser(text in "\\PC{0,100}") {
            let _ = Token::parse(&text);
        }
    }
}
