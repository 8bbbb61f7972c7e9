use proptest::prelude::*;
use x509_parser::x509::X509Version;

use super::*;
use crate::{
    keys::KeyPair,
    pki::authority::{AUTHORITY_LIFETIME, Authority, LEAF_LIFETIME, days},
};

fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

fn authority() -> Authority {
    Authority::generate("remuda-ca", now()).unwrap()
}

/// Whether `der` was signed by the holder of `key`.
fn is_signed_by(der: &[u8], key: &[u8]) -> bool {
    let (_, parsed) = X509Certificate::from_der(der).unwrap();
    let (_, spki) = x509_parser::x509::SubjectPublicKeyInfo::from_der(key).unwrap();
    let algorithm =
        crate::pki::csr::verification(&parsed.signature_algorithm.algorithm.to_id_string(), &spki).unwrap();
    aws_lc_rs::signature::UnparsedPublicKey::new(algorithm, key)
        .verify(parsed.tbs_certificate.as_ref(), &parsed.signature_value.data)
        .is_ok()
}

#[test]
fn an_authority_signs_itself_and_survives_storage() {
    let authority = authority();
    let parsed = Certificate::parse(authority.certificate()).unwrap();
    assert!(parsed.is_authority);
    assert_eq!(parsed.common_name, "remuda-ca");
    assert_eq!(parsed.validity.not_after, now() + AUTHORITY_LIFETIME);
    assert!(is_signed_by(authority.certificate(), &parsed.spki));
    let again = Authority::from_pem(&authority.certificate_pem(), &authority.key_pem().unwrap()).unwrap();
    assert_eq!(again.certificate(), authority.certificate());

    let other = KeyPair::generate().unwrap().to_pem().unwrap();
    assert_eq!(Authority::from_pem(&authority.certificate_pem(), &other).unwrap_err(), PkiError::KeyMismatch);
    let leaf = authority.issue_client("u", &[], now(), LEAF_LIFETIME).unwrap();
    let not_ca = Authority::from_pem(&leaf.certificate_pem(), &leaf.key_pem().unwrap());
    assert_eq!(not_ca.unwrap_err(), PkiError::NotAnAuthority);
}

#[test]
fn a_client_certificate_names_the_user_and_every_group() {
    let authority = authority();
    let groups = ["system:masters", "dev", "ops", "é"];
    let credential = authority.issue_client("system:admin", &groups, now(), LEAF_LIFETIME).unwrap();
    let user = client_user(&credential.certificate).unwrap();
    assert_eq!(user.name, "system:admin");
    assert_eq!(user.groups, ["system:masters", "dev", "ops", "é", "system:authenticated"]);
    let id = &user.extra["authentication.kubernetes.io/credential-id"][0];
    let digest = id.strip_prefix("X509SHA256=").unwrap();
    assert!(digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
    let parsed = Certificate::parse(&credential.certificate).unwrap();
    assert!(parsed.for_clients && !parsed.for_servers && !parsed.is_authority);
    let nameless = authority.issue_client("", &["g"], now(), LEAF_LIFETIME).unwrap();
    assert_eq!(client_user(&nameless.certificate), Err(PkiError::NoCommonName));
}

#[test]
fn a_server_certificate_holds_its_names_and_chains_to_the_authority() {
    let authority = authority();
    let names: Vec<San> = ["localhost", "10.43.0.1", "::1", "kubernetes.default.svc"].map(San::parse).into();
    let credential = authority.issue_server("remuda", &names, now()).unwrap();
    let parsed = Certificate::parse(&credential.certificate).unwrap();
    assert_eq!(parsed.names, names);
    assert!(parsed.for_servers && !parsed.for_clients);
    assert_eq!(parsed.spki, credential.key.spki());
    let root = Certificate::parse(authority.certificate()).unwrap();
    assert!(is_signed_by(&credential.certificate, &root.spki));
    let (_, raw) = X509Certificate::from_der(&credential.certificate).unwrap();
    assert_eq!((raw.version(), raw.issuer().as_raw()), (X509Version::V3, &root.subject[..]));
    assert_eq!(raw.serial.bits(), 127);
    for bad in ["", "a b", "ü.example"] {
        assert!(authority.issue_server("x", &[San::Dns(bad.into())], now()).is_err());
    }
}

#[test]
fn a_leaf_never_outlives_its_authority() {
    let authority = authority();
    let late = now() + days(3600);
    let credential = authority.issue_client("u", &[], late, days(365)).unwrap();
    let parsed = Certificate::parse(&credential.certificate).unwrap();
    assert_eq!(parsed.validity.not_after, authority.validity().not_after);
    let endless = authority.issue_client("u", &[], now(), SignedDuration::MAX).unwrap();
    let validity = Certificate::parse(&endless.certificate).unwrap().validity;
    assert_eq!(validity.not_after, authority.validity().not_after);
}

#[test]
fn no_certificate_ends_before_it_begins_whatever_the_clock_says() {
    let authority = authority();
    for wrong in [now() - days(366), now() + days(3651), Timestamp::UNIX_EPOCH] {
        let refused = authority.issue_client("u", &[], wrong, LEAF_LIFETIME).map(drop).unwrap_err();
        assert!(matches!(refused, PkiError::Clock { .. }), "{refused}");
        assert!(refused.to_string().contains(&format!("the clock says {wrong}")), "{refused}");
    }
    // A clock somewhat behind makes one that is good as soon as the clock is right.
    let early = authority.issue_client("u", &[], now() - days(1), LEAF_LIFETIME).unwrap();
    let validity = Certificate::parse(&early.certificate).unwrap().validity;
    assert!(validity.not_before < validity.not_after && validity.contains(now()));
}

#[test]
fn renewal_is_due_after_two_thirds_of_the_life() {
    let authority = authority();
    let credential = authority.issue_server("s", &[], now()).unwrap();
    let validity = Validity::of_pem(&credential.certificate_pem()).unwrap();
    assert!(validity.contains(now()) && !validity.contains(now() + days(366)));
    assert!(!validity.renew_needed(now() + days(240)));
    assert!(validity.renew_needed(now() + days(244)));
    assert!(Validity::of_pem("junk").is_err());
}

#[test]
fn an_authority_of_another_make_can_be_taken_over() {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "other");
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let authority = Authority::from_pem(&certificate.pem(), &key.serialize_pem()).unwrap();
    let credential = authority.issue_client("u", &["g"], now(), LEAF_LIFETIME).unwrap();
    assert!(is_signed_by(&credential.certificate, &Certificate::parse(certificate.der()).unwrap().spki));

    let rsa = KeyPair::generate_rsa().unwrap();
    let rsa_pem = rsa.to_pem().unwrap();
    let key = rcgen::KeyPair::from_pem_and_sign_algo(&rsa_pem, &rcgen::PKCS_RSA_SHA256).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let authority = Authority::from_pem(&certificate.pem(), &rsa_pem).unwrap();
    let credential = authority.issue_client("u", &["g"], now(), LEAF_LIFETIME).unwrap();
    assert!(is_signed_by(&credential.certificate, rsa.spki()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damaged_certificates_never_panic(position in 0usize..2000, bits in 1u8.., cut in 0usize..2000) {
        let mut der = SAMPLE.with(Clone::clone);
        let index = position % der.len();
        der[index] ^= bits;
        der.truncate(der.len() - cut % 40);
        let _ = client_user(&der);
    }
}

thread_local! {
    static SAMPLE: Vec<u8> = authority().issue_server("u", &[San::parse("10.0.0.1")], now()).unwrap().certificate;
}
