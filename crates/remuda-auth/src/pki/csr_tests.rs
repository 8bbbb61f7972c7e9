use proptest::prelude::*;

use super::*;
use crate::{
    der,
    keys::KeyPair,
    pki::{
        authority::distinguished_name,
        certificate::{Certificate, client_user},
    },
};

const CLIENT: [&str; 2] = ["digital signature", "client auth"];
const SERVING: [&str; 3] = ["digital signature", "key encipherment", "server auth"];

fn now() -> Timestamp {
    "2026-11-15T12:00:00Z".parse().unwrap()
}

/// A request as openssl or Go would make it.
fn request(common_name: &str, organizations: &[&str], names: &[(u8, &[u8])]) -> Vec<u8> {
    let key = KeyPair::generate().unwrap();
    let names: Vec<Vec<u8>> = names.iter().map(|(kind, value)| der::implicit(*kind, value)).collect();
    let attributes = if names.is_empty() {
        Vec::new()
    } else {
        let san = der::sequence(&[der::oid(&[2, 5, 29, 17]), der::octet_string(&der::sequence(&names))]);
        let extensions = der::tlv(der::SET, &der::sequence(&[san]));
        der::sequence(&[der::oid(&[1, 2, 840, 113_549, 1, 9, 14]), extensions])
    };
    let info = der::sequence(&[
        der::integer(&[]),
        distinguished_name(common_name, organizations),
        key.spki().to_vec(),
        der::explicit(0, &attributes),
    ]);
    let algorithm = der::sequence(&[der::oid(&[1, 2, 840, 10045, 4, 3, 2])]);
    let signature = der::bit_string(0, &key.sign_asn1(&info).unwrap());
    der::sequence(&[info, algorithm, signature])
}

#[track_caller]
fn check(signer: &str, usages: &[&str], request: &[u8], expected: Result<(), CsrRefusal>) {
    let csr = Csr::from_der(request).unwrap();
    assert_eq!(csr.check(Signer::from_name(signer).unwrap(), usages).map(|_| ()), expected);
}

#[test]
fn an_approved_client_request_becomes_a_certificate_with_all_groups() {
    let authority = Authority::generate("ca", now()).unwrap();
    let pem_text = pem::encode("CERTIFICATE REQUEST", &request("jane", &["dev", "ops", "qa"], &[]));
    let csr = Csr::from_pem(&pem_text).unwrap();
    let signed = csr.sign(&authority, Signer::ApiServerClient, &["client auth"], Some(3600), now()).unwrap();
    let block = pem::find(&signed, &["CERTIFICATE"]).unwrap();
    let user = client_user(&block.der).unwrap();
    assert_eq!((user.name.as_str(), user.groups.len()), ("jane", 4));
    assert_eq!(user.groups[..3], ["dev", "ops", "qa"]);
    let certificate = Certificate::parse(&block.der).unwrap();
    assert_eq!(certificate.validity.not_after, now() + SignedDuration::from_hours(1));
    assert!(certificate.for_clients && !certificate.for_servers && !certificate.is_authority);
    let soon = csr.sign(&authority, Signer::ApiServerClient, &["client auth"], Some(599), now());
    assert_eq!(soon, Err(PkiError::Csr(CsrRefusal::Duration)));
}

#[test]
fn each_signer_has_its_rules() {
    let client = "kubernetes.io/kube-apiserver-client";
    let kubelet = "kubernetes.io/kube-apiserver-client-kubelet";
    let serving = "kubernetes.io/kubelet-serving";
    let node = |names: &[(u8, &[u8])]| request("system:node:n1", &["system:nodes"], names);
    let name = |kind: u8, value: &'static [u8]| (kind, value);
    let (dns, ip) = (name(2, b"n1"), name(7, &[10, 0, 0, 1]));
    let (email, uri) = (name(1, b"a@b"), name(6, b"spiffe://x"));

    check(client, &CLIENT, &request("u", &["g"], &[dns]), Ok(()));
    check(client, &CLIENT, &request("u", &["g", "system:masters"], &[]), Err(CsrRefusal::Masters));
    check(client, &SERVING, &request("u", &[], &[]), Err(CsrRefusal::UsageNotAllowed("server auth".into())));
    check(
        client,
        &["digital signature"],
        &request("u", &[], &[]),
        Err(CsrRefusal::UsageRequired("client auth")),
    );
    check(kubelet, &CLIENT, &node(&[]), Ok(()));
    check(kubelet, &["client auth"], &node(&[]), Err(CsrRefusal::UsageRequired("digital signature")));
    check(kubelet, &CLIENT, &node(&[ip]), Err(CsrRefusal::SanNotAllowed("IP")));
    check(kubelet, &CLIENT, &request("system:node:n1", &["g"], &[]), Err(CsrRefusal::Organization));
    check(kubelet, &CLIENT, &request("system:node:", &["system:nodes"], &[]), Err(CsrRefusal::CommonName));
    check(serving, &SERVING, &node(&[dns, ip]), Ok(()));
    check(serving, &SERVING, &node(&[]), Err(CsrRefusal::SanRequired));
    check(serving, &SERVING, &node(&[dns, email]), Err(CsrRefusal::SanNotAllowed("Email")));
    check(serving, &SERVING, &node(&[ip, uri]), Err(CsrRefusal::SanNotAllowed("URI")));
    assert_eq!(Signer::from_name("example.com/mine"), None);
}

#[test]
fn requests_of_another_make_are_understood() {
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        let mut params = rcgen::CertificateParams::new(vec!["a.example".into(), "10.0.0.1".into()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "u");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "g");
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let text = params.serialize_request(&key).unwrap().pem().unwrap();
        let csr = Csr::from_pem(&text).unwrap();
        assert_eq!((csr.common_name.as_str(), csr.organizations.as_slice()), ("u", &["g".to_owned()][..]));
        assert_eq!(csr.names, [San::parse("a.example"), San::parse("10.0.0.1")]);
        let authority = Authority::generate("ca", now()).unwrap();
        let signed = csr.sign(&authority, Signer::ApiServerClient, &CLIENT, None, now()).unwrap();
        assert_eq!(Certificate::parse_pem(&signed).unwrap().names, csr.names);
    }
}

#[test]
fn a_request_must_prove_possession_of_its_key() {
    let mut forged = request("u", &["g"], &[]);
    let name = der::utf8_string("u");
    let position = forged.windows(name.len()).position(|window| window == name).unwrap();
    forged[position + 2] = b'v';
    assert_eq!(Csr::from_der(&forged), Err(PkiError::Signature));
    assert_eq!(Csr::from_pem("junk"), Err(PkiError::NotARequest));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damaged_requests_never_panic(position in 0usize..2000, bits in 1u8.., cut in 0usize..2000) {
        let mut der = SAMPLE.with(Clone::clone);
        let index = position % der.len();
        der[index] ^= bits;
        der.truncate(der.len() - cut % 40);
        let _ = Csr::from_der(&der);
    }
}

thread_local! {
    static SAMPLE: Vec<u8> = request("u", &["g", "h"], &[(2, b"x"), (7, &[1, 2, 3, 4])]);
}
