//! Signatures of messages, as the Standard Webhooks specification has them: receivers check them with a library.

use aws_lc_rs::hmac;
use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_names::webhook::KEY_PREFIX;

/// Shorter keys could be guessed, longer ones are no better.
const LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;
/// The old key and the new one, while receivers change over.
const MOST: usize = 2;

/// What messages of one webhook are signed with.
#[derive(Clone)]
pub(super) struct Keys(Vec<hmac::Key>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

impl Keys {
    /// Keys separated by spaces. What is wrong is told without what was written: it may be most of a key.
    pub(super) fn parse(text: &str) -> Result<Keys, String> {
        let keys: Vec<&str> = text.split_whitespace().collect();
        if keys.is_empty() || keys.len() > MOST {
            return Err(format!(
                "must be {KEY_PREFIX} and the base64 of 24 to 64 random bytes, as {KEY_PREFIX}$(openssl rand -base64 32) \
                 prints it; the old and the new one, separated by a space, while keys are changed"
            ));
        }
        let one = |text: &str| {
            let bytes = text.strip_prefix(KEY_PREFIX).and_then(|rest| BASE64_STANDARD.decode(rest).ok());
            let bytes = bytes.filter(|bytes| LENGTHS.contains(&bytes.len()));
            let bytes = bytes
                .ok_or_else(|| format!("must be {KEY_PREFIX} and the base64 of 24 to 64 random bytes"))?;
            Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
        };
        keys.into_iter().map(one).collect::<Result<_, String>>().map(Keys)
    }

    /// The value of the header with the signatures.
    pub(super) fn sign(&self, id: &str, seconds: i64, body: &[u8]) -> String {
        let sign = |key: &hmac::Key| {
            let mut context = hmac::Context::with_key(key);
            context.update(format!("{id}.{seconds}.").as_bytes());
            context.update(body);
            format!("v1,{}", BASE64_STANDARD.encode(context.sign()))
        };
        self.0.iter().map(sign).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_one_other_implementations_make() {
        // From the specification's own libraries.
        let keys = Keys::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let made = keys.sign(id, 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(made, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn two_keys_sign_while_they_are_changed() {
        let (old, new) = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB");
        let of = |text: &str| Keys::parse(text).unwrap().sign("a", 1, b"x");
        assert_eq!(of(&format!("{old} {new}\n")), format!("{} {}", of(old), of(new)));
    }

    #[test]
    fn what_is_no_key_is_not_repeated() {
        for text in ["", "secret", "whsec_c2hvcnQ=", "whsec_***", "a b c"] {
            let told = Keys::parse(text).unwrap_err();
            assert!(told.contains("24 to 64 random bytes"), "{told}");
            assert!(text.is_empty() || text == "a b c" || !told.contains(text), "{told}");
        }
    }
}
