use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::decode::decode;

/// Pairs of lines: the bytes a Go client sends, and the JSON the same client would send.
const OBJECTS: &str = include_str!("../../testdata/objects.txt");

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn vectors() -> impl Iterator<Item = (Vec<u8>, Value)> {
    let mut lines = OBJECTS.lines();
    std::iter::from_fn(move || Some((unhex(lines.next()?), serde_json::from_str(lines.next()?).unwrap())))
}

/// An envelope around `raw`.
fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut meta = Vec::new();
    wire::put_bytes(&mut meta, 1, api_version.as_bytes());
    wire::put_bytes(&mut meta, 2, kind.as_bytes());
    let mut body = MAGIC.to_vec();
    wire::put_bytes(&mut body, 1, &meta);
    wire::put_bytes(&mut body, 2, raw);
    body
}

#[test]
fn bytes_of_a_go_client_become_the_json_it_would_send() {
    let mut count = 0;
    for (bytes, expected) in vectors() {
        let decoded = decode_protobuf(&bytes).unwrap_or_else(|error| panic!("{}: {error}", expected["kind"]));
        assert_eq!(decoded, expected, "{}", expected["kind"]);
        count += 1;
    }
    assert!(count > 100);
}

#[test]
fn json_of_a_go_client_is_in_final_form_already() {
    for (_, expected) in vectors() {
        let api_version = expected["apiVersion"].as_str().unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let ty = type_of(group, version, expected["kind"].as_str().unwrap()).unwrap();
        let (mut value, mut unknown) = (expected.clone(), Vec::new());
        decode(ty, &mut value, &mut unknown).unwrap();
        assert_eq!(value, expected);
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}

#[test]
fn unknown_kinds_and_foreign_bytes_are_told_apart() {
    assert_eq!(decode_protobuf(b"{}"), Err(ProtoError::NotEnveloped));
    assert_eq!(
        decode_protobuf(&envelope("x.io/v1", "Foo", b"")),
        Err(ProtoError::UnknownKind { api_version: "x.io/v1".to_owned(), kind: "Foo".to_owned() })
    );
    assert_eq!(
        decode_protobuf(&envelope("apps/v1", "DeleteOptions", b"")),
        Ok(json!({"apiVersion": "apps/v1", "kind": "DeleteOptions"}))
    );
}

#[test]
fn an_undeclared_body_is_what_the_url_says() {
    let expected = Expected { group: "", version: "v1", kind: "ConfigMap" };
    assert_eq!(
        decode_protobuf_as(&envelope("", "", b""), Some(expected)),
        Ok(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}))
    );
}

#[test]
fn fields_of_newer_versions_are_skipped() {
    let mut raw = Vec::new();
    wire::put_number(&mut raw, 900, 7);
    wire::put_fixed64(&mut raw, 901, 7);
    wire::put_bytes(&mut raw, 902, b"new");
    let mut entry = Vec::new();
    wire::put_bytes(&mut entry, 1, b"k");
    wire::put_bytes(&mut raw, 2, &entry);
    assert_eq!(
        decode_protobuf(&envelope("v1", "ConfigMap", &raw)),
        Ok(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"k": ""}}))
    );
}

#[test]
fn endless_nesting_is_refused() {
    let mut schema = Vec::new();
    for _ in 0..2000 {
        let inner = std::mem::take(&mut schema);
        wire::put_bytes(&mut schema, 28, &inner);
    }
    let mut validation = Vec::new();
    wire::put_bytes(&mut validation, 1, &schema);
    let mut version = Vec::new();
    wire::put_bytes(&mut version, 4, &validation);
    let mut spec = Vec::new();
    wire::put_bytes(&mut spec, 7, &version);
    let mut raw = Vec::new();
    wire::put_bytes(&mut raw, 2, &spec);
    let body = envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", &raw);
    assert_eq!(decode_protobuf(&body), Err(ProtoError::TooDeep));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn broken_bodies_give_errors_not_panics(
        which in 0usize..120,
        cut in 0.0f64..1.0,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let (mut bytes, _) = vectors().nth(which).unwrap();
        bytes.truncate(((bytes.len() as f64) * cut) as usize);
        for (at, byte) in flips {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
        }
        let _ = decode_protobuf(&bytes);
    }

    #[test]
    fn noise_gives_errors_not_panics(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_protobuf(&envelope("v1", "Pod", &raw));
    }
}
