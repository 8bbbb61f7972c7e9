//! Keys of service accounts, and tokens for them.

use aws_lc_rs::{rand::SystemRandom, rsa::KeyPair, signature::RSA_PKCS1_SHA256};
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::NAME;
use crate::{
    builtin::Context,
    error::{Class, Error, Result},
    http::Repeat,
    rest::{Body, Rest, Said, part},
    secret::{Redactor, Secret},
};

/// Where tokens are asked for, whatever a key says.
const TOKENS: &str = "https://oauth2.googleapis.com";
const SCOPE: &str = "https://www.googleapis.com/auth/compute";
/// Seconds a request for a token is good for.
const LASTS: i64 = 600;

/// The key of a service account.
#[derive(Debug)]
pub(super) struct Key {
    pub project: String,
    email: String,
    id: String,
    private: Secret,
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    project_id: String,
    #[serde(default)]
    private_key_id: String,
    #[serde(default)]
    private_key: String,
    #[serde(default)]
    client_email: String,
}

fn wrong(why: &str) -> Error {
    Error::new(
        Class::Credentials,
        format!("--google-auth-encoded-json is no key of a service account: {why}"),
    )
}

impl Key {
    /// Reads the JSON of a key, plain or in base64.
    pub(super) fn read(text: &str) -> Result<Self> {
        let packed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let decoded = BASE64_STANDARD.decode(packed).ok();
        let bytes = decoded.as_deref().unwrap_or(text.as_bytes());
        // The parser's message may quote the key.
        let file: File = serde_json::from_slice(bytes).map_err(|_| wrong("it cannot be read"))?;
        // Other kinds name addresses and programs to get tokens from.
        if file.kind != "service_account" {
            return Err(wrong("its type is another"));
        }
        if file.client_email.is_empty() || file.private_key.is_empty() {
            return Err(wrong("it has no client_email or no private_key"));
        }
        Ok(Self {
            project: file.project_id,
            email: file.client_email,
            id: file.private_key_id,
            private: Secret::new(file.private_key),
        })
    }

    pub(super) fn teach(&self, redactor: &Redactor) {
        redactor.learn(self.private.expose());
    }

    /// A request for a token, signed.
    fn assertion(&self, now: i64) -> Result<String> {
        let unusable = || wrong("its private_key cannot be used");
        let lines = self.private.expose().lines().map(str::trim).filter(|line| !line.starts_with("-----"));
        let der = BASE64_STANDARD.decode(lines.collect::<String>()).map_err(|_| unusable())?;
        let pair = KeyPair::from_pkcs8(&der).map_err(|_| unusable())?;
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": self.id});
        let claims = json!({
            "iss": self.email, "scope": SCOPE, "aud": format!("{TOKENS}/token"), "iat": now, "exp": now + LASTS,
        });
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|_| unusable())?;
        Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }
}

fn understand(status: u16, body: &Value) -> Said {
    let text = |field: &str| body[field].as_str().unwrap_or_default();
    let mut said = Said::new(status, text("error"), text("error_description"));
    if (400..429).contains(&status) {
        said.class = Class::Credentials;
    }
    said
}

/// A token for a key, and the seconds it lasts.
pub(super) async fn exchange(context: &Context, key: &Key) -> Result<(Secret, u64)> {
    #[derive(Deserialize)]
    struct Token {
        access_token: Secret,
        expires_in: u64,
    }
    let what = "ask for a token";
    let api = Rest::new(context, context.endpoint(NAME, TOKENS), Secret::default(), understand)?;
    let form = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer".to_owned()),
        ("assertion", key.assertion(jiff::Timestamp::now().as_second())?),
    ];
    let answer = api.post(what, "/token", Body::Form(&form), Repeat::Safe).await?;
    let token: Token = part(what, answer)?;
    Ok((token.access_token, token.expires_in))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_of_service_accounts_are_taken_and_none_is_quoted() {
        let fine =
            json!({"type": "service_account", "client_email": "a@b", "private_key": "canary"}).to_string();
        assert_eq!(Key::read(&fine).unwrap().email, "a@b");
        assert_eq!(Key::read(&BASE64_STANDARD.encode(&fine)).unwrap().email, "a@b");
        for bad in [
            "canary".to_owned(),
            json!({"type": "external_account", "credential_source": {"url": "http://canary"}}).to_string(),
            json!({"type": "service_account", "private_key": "canary"}).to_string(),
        ] {
            let error = Key::read(&bad).unwrap_err();
            assert_eq!(error.class(), Class::Credentials);
            assert!(!error.to_string().contains("canary"), "{error}");
        }
        let error = Key::read(&fine).unwrap().assertion(0).unwrap_err();
        assert!(error.class() == Class::Credentials && !error.to_string().contains("canary"), "{error}");
    }
}
