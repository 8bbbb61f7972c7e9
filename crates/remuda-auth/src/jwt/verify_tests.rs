use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    jwt::{
        DEFAULT_ISSUER,
        claims::{Bound, ObjectRef},
        issue::{Issuer, TokenSpec},
    },
    keys::KeyPair,
};

/// Ahead of the real time: another implementation in these tests looks at the clock.
const NOW: i64 = 4_000_000_000;

struct World {
    issuer: Issuer,
    verifier: Verifier,
}

fn world_with(key: KeyPair) -> World {
    let key = Arc::new(key);
    let verifier = Verifier::new(
        vec![KeyPair::generate().unwrap().public().unwrap(), key.public().unwrap()],
        vec![DEFAULT_ISSUER.into()],
        vec![DEFAULT_ISSUER.into(), "api".into()],
    );
    World { issuer: Issuer::new(key, DEFAULT_ISSUER), verifier }
}

fn world() -> World {
    world_with(KeyPair::generate().unwrap())
}

fn spec() -> TokenSpec {
    TokenSpec {
        namespace: "ns".into(),
        service_account: ObjectRef::new("sa", "u1"),
        audiences: vec![DEFAULT_ISSUER.into()],
        lifetime_seconds: 3600,
        ..TokenSpec::default()
    }
}

fn part(token: &str, index: usize) -> Value {
    decode_json(token.split('.').nth(index).unwrap()).unwrap()
}

#[test]
fn a_bound_token_carries_the_claims_clients_expect() {
    let world = world();
    let bound = Bound::Pod { pod: ObjectRef::new("p", "u2"), node: Some(ObjectRef::new("n", "u3")) };
    let issued = world.issuer.issue(TokenSpec { bound, warn_after_seconds: Some(7), ..spec() }, NOW).unwrap();
    let kid = world.verifier.keys()[1].id();
    assert_eq!(part(&issued.token, 0), json!({"alg": "ES256", "kid": kid}));
    assert_eq!(
        part(&issued.token, 1),
        json!({
            "iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:ns:sa",
            "aud": ["https://kubernetes.default.svc"], "jti": issued.id,
            "iat": NOW, "nbf": NOW, "exp": NOW + 3600,
            "kubernetes.io": {
                "namespace": "ns", "serviceaccount": {"name": "sa", "uid": "u1"},
                "pod": {"name": "p", "uid": "u2"}, "node": {"name": "n", "uid": "u3"},
                "warnafter": NOW + 7,
            },
        })
    );
    let token = world.verifier.verify(&issued.token, NOW).unwrap();
    assert_eq!(
        token.user.to_user_info(),
        json!({
            "username": "system:serviceaccount:ns:sa", "uid": "u1",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"],
            "extra": {
                "authentication.kubernetes.io/credential-id": [format!("JTI={}", issued.id)],
                "authentication.kubernetes.io/pod-name": ["p"],
                "authentication.kubernetes.io/pod-uid": ["u2"],
                "authentication.kubernetes.io/node-name": ["n"],
                "authentication.kubernetes.io/node-uid": ["u3"],
            },
        })
    );
    assert_eq!((token.warn_after, token.legacy), (Some(NOW + 7), false));
}

#[test]
fn a_legacy_token_never_expires_and_names_its_secret() {
    let world = world();
    let token = world.issuer.issue_legacy("ns", ObjectRef::new("sa", "u1"), "sa-token").unwrap();
    assert_eq!(
        part(&token, 1),
        json!({
            "iss": "kubernetes/serviceaccount", "sub": "system:serviceaccount:ns:sa",
            "kubernetes.io/serviceaccount/namespace": "ns",
            "kubernetes.io/serviceaccount/secret.name": "sa-token",
            "kubernetes.io/serviceaccount/service-account.name": "sa",
            "kubernetes.io/serviceaccount/service-account.uid": "u1",
        })
    );
    let verified = world.verifier.verify(&token, NOW * 10).unwrap();
    assert!(verified.legacy);
    assert_eq!(verified.bound, Bound::Secret(ObjectRef::new("sa-token", "")));
    assert!(verified.user.extra.is_empty());
    assert_eq!(world.verifier.verify_for(&token, NOW, &["api".into()]).unwrap().1, ["api"]);
    assert!(world.verifier.verify_for(&token, NOW, &["other".into()]).is_err());
}

#[test]
fn times_are_checked_even_when_the_signature_is_remembered() {
    let world = world();
    let token = world.issuer.issue(spec(), NOW).unwrap().token;
    for _ in 0..2 {
        assert!(world.verifier.verify(&token, NOW).is_ok());
        assert!(world.verifier.verify(&token, NOW + 3660).is_ok());
        assert_eq!(world.verifier.verify(&token, NOW + 3661), Err(VerifyError::Expired));
        assert!(world.verifier.verify(&token, NOW - 60).is_ok());
        assert_eq!(world.verifier.verify(&token, NOW - 61), Err(VerifyError::NotYetValid));
    }
    assert_eq!(world.verifier.cache.lock().young.len(), 1);
}

#[test]
fn audiences_must_meet() {
    let world = world();
    let vault = TokenSpec { audiences: vec!["vault".into(), "api".into()], ..spec() };
    let token = world.issuer.issue(vault, NOW).unwrap().token;
    assert!(world.verifier.verify(&token, NOW).is_ok());
    let (_, common) = world.verifier.verify_for(&token, NOW, &["x".into(), "vault".into()]).unwrap();
    assert_eq!(common, ["vault"]);
    let other = TokenSpec { audiences: vec!["vault".into()], ..spec() };
    let token = world.issuer.issue(other, NOW).unwrap().token;
    assert_eq!(
        world.verifier.verify(&token, NOW).unwrap_err().to_string(),
        r#"token audiences ["vault"] is invalid for the target audiences ["https://kubernetes.default.svc" "api"]"#
    );
}

#[test]
fn forged_and_foreign_tokens_are_told_apart() {
    let (world, stranger) = (world(), world_with(KeyPair::generate().unwrap()));
    let token = world.issuer.issue(spec(), NOW).unwrap().token;
    // Another key of the same name for the issuer.
    let foreign = stranger.issuer.issue(spec(), NOW).unwrap().token;
    assert_eq!(world.verifier.verify(&foreign, NOW), Err(VerifyError::NoKey));
    // Claims exchanged under a good signature.
    let parts: Vec<&str> = token.split('.').collect();
    let mut claims = part(&token, 1);
    claims["sub"] = "system:serviceaccount:kube-system:root".into();
    let forged = format!("{}.{}.{}", parts[0], URL_SAFE_NO_PAD.encode(claims.to_string()), parts[2]);
    assert_eq!(world.verifier.verify(&forged, NOW), Err(VerifyError::Signature));
    // The algorithm exchanged.
    for algorithm in ["none", "HS256", "RS256"] {
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": algorithm}).to_string());
        let forged = format!("{header}.{}.{}", parts[1], parts[2]);
        assert_eq!(world.verifier.verify(&forged, NOW), Err(VerifyError::Signature));
    }
    // Another issuer: not for us to judge.
    let other = Issuer::new(Arc::new(KeyPair::generate().unwrap()), "https://other");
    let token = other.issue(spec(), NOW).unwrap().token;
    assert_eq!(world.verifier.verify(&token, NOW), Err(VerifyError::NotOurs));
    for text in ["", "ey", "ey.x", "ey.x.y", "abc.def", "a.b.c.d"] {
        assert_eq!(world.verifier.verify(text, NOW), Err(VerifyError::NotOurs), "{text}");
    }
    assert!(world.verifier.cache.lock().young.is_empty());
}

#[test]
fn an_rsa_key_brought_along_works_too() {
    let world = world_with(KeyPair::generate_rsa().unwrap());
    let token = world.issuer.issue(spec(), NOW).unwrap().token;
    assert_eq!(part(&token, 0)["alg"], "RS256");
    assert!(world.verifier.verify(&token, NOW).is_ok());
}

/// Others verify our tokens from the published key set alone.
#[test]
fn another_implementation_accepts_our_tokens() {
    for key in [KeyPair::generate().unwrap(), KeyPair::generate_rsa().unwrap()] {
        let world = world_with(key);
        let token = world.issuer.issue(spec(), NOW).unwrap().token;
        let header = jsonwebtoken::decode_header(&token).unwrap();
        let set: jsonwebtoken::jwk::JwkSet =
            serde_json::from_value(crate::jwt::discovery::jwks(world.verifier.keys())).unwrap();
        let key = jsonwebtoken::DecodingKey::from_jwk(set.find(&header.kid.unwrap()).unwrap()).unwrap();
        let mut validation = jsonwebtoken::Validation::new(header.alg);
        validation.set_audience(&[DEFAULT_ISSUER]);
        validation.set_issuer(&[DEFAULT_ISSUER]);
        let decoded = jsonwebtoken::decode::<Value>(&token, &key, &validation).unwrap();
        assert_eq!(decoded.claims["sub"], "system:serviceaccount:ns:sa");
    }
}

#[test]
fn the_cache_is_bounded_and_keeps_what_is_used() {
    let world = world();
    let token =
        Arc::new(world.verifier.verify_afresh(&world.issuer.issue(spec(), NOW).unwrap().token).unwrap());
    let mut cache = Cache::default();
    let hash = |n: usize| sha256(&n.to_le_bytes());
    for n in 0..CACHE_SIZE * 3 {
        cache.insert(hash(n), token.clone());
        assert!(cache.get(&hash(0)).is_some(), "asked for all along");
    }
    assert!(cache.young.len() + cache.old.len() <= 2 * CACHE_SIZE);
    assert!(cache.get(&hash(1)).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn arbitrary_claims_never_panic(claims in crate::testing::any_json(), text in ".{0,200}") {
        let _ = ServiceAccountToken::parse(&claims);
        let _ = ServiceAccountToken::parse(&json!({"kubernetes.io": claims, "exp": 1.5e300}));
        let verifier = Verifier::new(Vec::new(), vec![DEFAULT_ISSUER.into()], Vec::new());
        let _ = verifier.verify(&format!("ey{text}"), NOW);
    }
}
