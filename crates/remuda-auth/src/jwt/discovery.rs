//! The documents by which others verify our tokens.

use std::collections::BTreeSet;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::keys::{Numbers, PublicKey};

/// Where the key set is served.
pub const JWKS_PATH: &str = "/openid/v1/jwks";
/// Where the configuration is served.
pub const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";

/// The body of [`JWKS_PATH`], of type `application/jwk-set+json`.
pub fn jwks(keys: &[PublicKey]) -> Value {
    let key = |key: &PublicKey| {
        let mut jwk = match key.numbers() {
            Numbers::Ec { x, y } => {
                json!({"kty": "EC", "crv": "P-256", "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)})
            }
            Numbers::Rsa { n, e } => {
                json!({"kty": "RSA", "n": URL_SAFE_NO_PAD.encode(n), "e": URL_SAFE_NO_PAD.encode(e)})
            }
        };
        jwk["use"] = "sig".into();
        jwk["kid"] = key.id().into();
        jwk["alg"] = key.algorithm().name().into();
        jwk
    };
    json!({"keys": keys.iter().map(key).collect::<Vec<_>>()})
}

/// The body of [`CONFIGURATION_PATH`].
pub fn configuration(issuer: &str, jwks_uri: &str, keys: &[PublicKey]) -> Value {
    let algorithms: BTreeSet<&str> = keys.iter().map(|key| key.algorithm().name()).collect();
    json!({
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyPair;

    #[test]
    fn the_published_keys_are_those_that_sign() {
        let keys = [
            KeyPair::generate().unwrap().public().unwrap(),
            KeyPair::generate_rsa().unwrap().public().unwrap(),
        ];
        let set = jwks(&keys);
        assert_eq!(set["keys"][0]["kid"], keys[0].id());
        assert_eq!(set["keys"][0]["crv"], "P-256");
        assert_eq!(set["keys"][0]["x"].as_str().unwrap().len(), 43);
        assert_eq!((&set["keys"][1]["kty"], &set["keys"][1]["e"]), (&json!("RSA"), &json!("AQAB")));
        let configuration = configuration("https://i", "https://i/openid/v1/jwks", &keys);
        assert_eq!(configuration["id_token_signing_alg_values_supported"], json!(["ES256", "RS256"]));
    }
}
