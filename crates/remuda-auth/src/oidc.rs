//! ID tokens of OpenID providers, and the keys they are signed with.
//!
//! A key decides how it is used, never the token: what is not signed with RSA or ECDSA P-256 and SHA-256 by a
//! key the provider publishes is not looked at.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};
use subtle::ConstantTimeEq;

/// Clocks differ.
const LEEWAY_SECONDS: i64 = 60;
/// Tokens with hundreds of groups are long; what is longer is no token.
const MAX_TOKEN_BYTES: usize = 128 * 1024;
const MAX_KEYS: usize = 64;

/// Why an ID token is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdTokenError {
    #[error("it is no signed token")]
    Malformed,
    #[error("it is signed with {0:?}, which is neither RS256 nor ES256")]
    Algorithm(String),
    #[error("it is signed with a key the provider does not publish")]
    UnknownKey,
    #[error("its signature is wrong")]
    Signature,
    #[error("it is of issuer {0:?}")]
    Issuer(String),
    #[error("it is meant for somebody else")]
    Audience,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYet,
    #[error("it belongs to another login")]
    Nonce,
    #[error("it does not say who it is about")]
    NoSubject,
}

enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
}

struct Key {
    id: Option<String>,
    material: Material,
}

impl Key {
    fn parse(jwk: &Value) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?.trim_end_matches('=')).ok();
        if text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let (material, algorithm) = match text("kty")? {
            "RSA" => (Material::Rsa { n: bytes("n")?, e: bytes("e")? }, "RS256"),
            "EC" if text("crv") == Some("P-256") => {
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != 32 || y.len() != 32 {
                    return None;
                }
                (Material::P256([&[4], x.as_slice(), &y].concat()), "ES256")
            }
            _ => return None,
        };
        if text("alg").is_some_and(|named| named != algorithm) {
            return None;
        }
        Some(Self { id: text("kid").map(str::to_owned), material })
    }

    fn algorithm(&self) -> &'static str {
        match self.material {
            Material::Rsa { .. } => "RS256",
            Material::P256(_) => "ES256",
        }
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Rsa { n, e } => RsaPublicKeyComponents { n, e }
                .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
                .is_ok(),
            Material::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok()
            }
        }
    }
}

/// The keys a provider publishes.
#[derive(Default)]
pub struct KeySet(Vec<Key>);

impl std::fmt::Debug for KeySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeySet({})", self.0.len())
    }
}

impl KeySet {
    /// Those of a JSON web key set that can be used here; nothing if it is none.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let set: Value = serde_json::from_slice(text).ok()?;
        let keys = set.get("keys")?.as_array()?;
        Some(Self(keys.iter().take(MAX_KEYS).filter_map(Key::parse).collect()))
    }

    fn of<'a>(&'a self, header: &'a Header) -> impl Iterator<Item = &'a Key> {
        let fits = move |key: &&Key| header.key.is_none() || key.id == header.key;
        self.0.iter().filter(fits).filter(|key| key.algorithm() == header.algorithm)
    }

    /// Whether there is a key a token may be signed with.
    pub fn knows(&self, token: &str) -> Result<bool, IdTokenError> {
        let header = Header::of(token)?;
        Ok(self.of(&header).next().is_some())
    }
}

struct Header {
    algorithm: String,
    key: Option<String>,
}

impl Header {
    fn of(token: &str) -> Result<Self, IdTokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(IdTokenError::Malformed);
        }
        let (header, _) = token.split_once('.').ok_or(IdTokenError::Malformed)?;
        let header = decode(header).ok_or(IdTokenError::Malformed)?;
        let text = |name: &str| header.get(name).and_then(Value::as_str).map(str::to_owned);
        let algorithm = text("alg").unwrap_or_default();
        if !["RS256", "ES256"].contains(&algorithm.as_str()) {
            return Err(IdTokenError::Algorithm(algorithm.chars().take(32).collect()));
        }
        Ok(Self { algorithm, key: text("kid") })
    }
}

/// What a token must say.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    pub issuer: &'a str,
    /// Who asked for it.
    pub client: &'a str,
    /// What was sent along when it was asked for.
    pub nonce: &'a str,
    /// Seconds since the epoch.
    pub now: i64,
}

/// The claims of a good ID token.
pub fn verify(
    token: &str,
    keys: &KeySet,
    expected: &Expected<'_>,
) -> Result<Map<String, Value>, IdTokenError> {
    let header = Header::of(token)?;
    let (signed, signature) = token.rsplit_once('.').ok_or(IdTokenError::Malformed)?;
    let (_, claims) = signed.split_once('.').ok_or(IdTokenError::Malformed)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| IdTokenError::Malformed)?;
    let mut known = false;
    let good = keys.of(&header).any(|key| {
        known = true;
        key.verify(signed.as_bytes(), &signature)
    });
    if !good {
        return Err(if known { IdTokenError::Signature } else { IdTokenError::UnknownKey });
    }
    let Some(Value::Object(claims)) = decode(claims) else { return Err(IdTokenError::Malformed) };
    check(&claims, expected)?;
    Ok(claims)
}

fn check(claims: &Map<String, Value>, expected: &Expected<'_>) -> Result<(), IdTokenError> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
    // Some write times with fractions.
    let time = |name: &str| {
        let value = claims.get(name)?;
        #[expect(clippy::cast_possible_truncation, reason = "times beyond the range are as good as its end")]
        value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds as i64))
    };
    if text("iss") != expected.issuer {
        return Err(IdTokenError::Issuer(text("iss").chars().take(256).collect()));
    }
    let meant = match claims.get("aud") {
        Some(Value::String(one)) => one == expected.client,
        Some(Value::Array(several)) => {
            several.iter().any(|one| one == expected.client)
                && (several.len() == 1 || text("azp") == expected.client)
        }
        _ => false,
    };
    if !meant || (claims.contains_key("azp") && text("azp") != expected.client) {
        return Err(IdTokenError::Audience);
    }
    let now = expected.now;
    if time("exp").is_none_or(|expires| now.saturating_sub(LEEWAY_SECONDS) >= expires) {
        return Err(IdTokenError::Expired);
    }
    if ["nbf", "iat"].iter().filter_map(|name| time(name)).any(|at| now.saturating_add(LEEWAY_SECONDS) < at) {
        return Err(IdTokenError::NotYet);
    }
    if !bool::from(text("nonce").as_bytes().ct_eq(expected.nonce.as_bytes())) || expected.nonce.is_empty() {
        return Err(IdTokenError::Nonce);
    }
    if text("sub").is_empty() || text("sub").len() > 255 {
        return Err(IdTokenError::NoSubject);
    }
    Ok(())
}

fn decode(part: &str) -> Option<Value> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{jwt::discovery::jwks, keys::KeyPair};

    const NOW: i64 = 1_800_000_000;

    fn key() -> KeyPair {
        KeyPair::generate().unwrap()
    }

    fn jwk(key: &KeyPair, id: &str) -> Value {
        let mut jwk = jwks(&[key.public().unwrap()])["keys"][0].take();
        jwk["kid"] = json!(id);
        jwk
    }

    fn sign(key: &KeyPair, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = key.sign_token(signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn keys(jwks: &[Value]) -> KeySet {
        KeySet::parse(json!({"keys": jwks}).to_string().as_bytes()).unwrap()
    }

    fn claims() -> Value {
        json!({"iss": "https://op", "aud": "remuda", "sub": "ann", "nonce": "n", "exp": NOW + 60, "iat": NOW})
    }

    fn expected() -> Expected<'static> {
        Expected { issuer: "https://op", client: "remuda", nonce: "n", now: NOW }
    }

    #[test]
    fn tokens_of_either_algorithm_are_taken() {
        let (rsa, p256) = (KeyPair::generate_rsa().unwrap(), key());
        let keys = keys(&[jwk(&rsa, "r"), jwk(&p256, "e")]);
        for (signer, header) in
            [(&rsa, json!({"alg": "RS256", "kid": "r"})), (&p256, json!({"alg": "ES256", "kid": "e"}))]
        {
            let token = sign(signer, &header, &claims());
            assert_eq!(verify(&token, &keys, &expected()).unwrap()["sub"], "ann");
        }
        let without = sign(&p256, &json!({"alg": "ES256"}), &claims());
        assert!(verify(&without, &keys, &expected()).is_ok(), "whoever has few keys need not name them");
    }

    #[test]
    fn what_is_not_signed_by_the_provider_is_not_taken() {
        let (ours, theirs) = (key(), key());
        let keys = keys(&[jwk(&ours, "k")]);
        let check =
            |signer: &KeyPair, header: Value| verify(&sign(signer, &header, &claims()), &keys, &expected());
        let header = json!({"alg": "ES256", "kid": "k"});
        assert_eq!(check(&theirs, header.clone()), Err(IdTokenError::Signature));
        assert_eq!(check(&ours, json!({"alg": "ES256", "kid": "x"})), Err(IdTokenError::UnknownKey));
        for (algorithm, error) in [("none", "none"), ("HS256", "HS256"), ("", ""), ("es256", "es256")] {
            let refused = check(&ours, json!({"alg": algorithm}));
            assert_eq!(refused, Err(IdTokenError::Algorithm(error.to_owned())));
        }
        assert_eq!(check(&ours, json!({"alg": "RS256", "kid": "k"})), Err(IdTokenError::UnknownKey));
        let token = sign(&ours, &header, &claims());
        let (head, signature) = token.rsplit_once('.').unwrap();
        let (head, _) = head.split_once('.').unwrap();
        let mut other = claims();
        other["sub"] = json!("root");
        let forged = format!("{head}.{}.{signature}", URL_SAFE_NO_PAD.encode(other.to_string()));
        assert_eq!(verify(&forged, &keys, &expected()), Err(IdTokenError::Signature));
        for odd in ["", ".", "..", "a.b.c", "e30.e30", &"x".repeat(200_000)] {
            assert!(verify(odd, &keys, &expected()).is_err(), "{odd:.20}");
        }
    }

    #[test]
    fn a_token_is_for_one_login_at_one_client() {
        let signer = key();
        let keys = keys(&[jwk(&signer, "k")]);
        let check = |change: &[(&str, Value)], error: Option<IdTokenError>| {
            let mut claims = claims();
            for (name, value) in change {
                claims[*name] = value.clone();
            }
            let token = sign(&signer, &json!({"alg": "ES256", "kid": "k"}), &claims);
            assert_eq!(verify(&token, &keys, &expected()).err(), error, "{change:?}");
        };
        check(&[("aud", json!(["remuda"]))], None);
        check(&[("aud", json!(["remuda", "other"])), ("azp", json!("remuda"))], None);
        check(&[("aud", json!(["remuda", "other"]))], Some(IdTokenError::Audience));
        check(&[("aud", json!("other"))], Some(IdTokenError::Audience));
        check(&[("aud", Value::Null)], Some(IdTokenError::Audience));
        check(&[("azp", json!("other"))], Some(IdTokenError::Audience));
        check(&[("iss", json!("https://op/"))], Some(IdTokenError::Issuer("https://op/".to_owned())));
        check(&[("exp", json!(NOW - 61))], Some(IdTokenError::Expired));
        check(&[("exp", json!("soon"))], Some(IdTokenError::Expired));
        check(&[("exp", json!(1e300))], None);
        check(&[("iat", json!(NOW + 3600))], Some(IdTokenError::NotYet));
        check(&[("nbf", json!(NOW + 3600))], Some(IdTokenError::NotYet));
        check(&[("nonce", json!("m"))], Some(IdTokenError::Nonce));
        check(&[("nonce", Value::Null)], Some(IdTokenError::Nonce));
        check(&[("sub", json!(""))], Some(IdTokenError::NoSubject));
    }

    #[test]
    fn keys_that_cannot_be_used_are_left_out() {
        let signer = key();
        let with = |name: &str, value: Value| {
            let mut jwk = jwk(&signer, "k");
            jwk[name] = value;
            keys(&[jwk]).0.len()
        };
        assert_eq!(with("use", json!("sig")), 1);
        for (name, value) in [
            ("use", json!("enc")),
            ("alg", json!("ES384")),
            ("kty", json!("oct")),
            ("crv", json!("P-384")),
            ("x", json!("AA")),
            ("y", json!(7)),
        ] {
            assert_eq!(with(name, value), 0, "{name}");
        }
        assert!(KeySet::parse(b"{}").is_none() && KeySet::parse(b"[").is_none());
        assert!(!KeySet::default().knows("eyJhbGciOiJFUzI1NiJ9.x.y").unwrap());
    }
}
