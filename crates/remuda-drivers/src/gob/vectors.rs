//! Byte vectors, recorded from Go peers, in both directions.

use remuda_base::hex;
use serde_json::Value as Json;

use super::{
    decode::Decoder,
    encode::{Body, Encoder, Header, int, string, uint},
};
use crate::{
    flags::{Flag, Flags, Value},
    rpc::codec::{Arrival, Side},
};

fn vectors(text: &str) -> Json {
    serde_json::from_str(text).unwrap()
}

fn session() -> Json {
    vectors(include_str!("../../vectors/gob-rpc-session.json"))
}

fn upfront() -> Json {
    vectors(include_str!("../../vectors/gob-rpc-upfront.json"))
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Renders a decoded value as the vectors' `decoded` does.
fn render(value: &super::Value) -> Json {
    match value {
        super::Value::Bool(yes) => Json::from(*yes),
        super::Value::Int(number) => Json::from(*number),
        super::Value::Uint(number) => Json::from(*number),
        super::Value::Float(number) => Json::from(*number),
        super::Value::Bytes(bytes) => Json::from(String::from_utf8_lossy(bytes)),
        super::Value::String(text) => Json::from(text.as_str()),
        super::Value::List(items) => items.iter().map(render).collect(),
        super::Value::Map(pairs) => Json::Object(
            pairs
                .iter()
                .map(|(key, value)| (render(key).as_str().unwrap().to_owned(), render(value)))
                .collect(),
        ),
        super::Value::Struct(fields) => {
            Json::Object(fields.iter().map(|(name, value)| (name.to_string(), render(value))).collect())
        }
        super::Value::Interface(None) => Json::Null,
        super::Value::Interface(Some(held)) => Json::from(vec![Json::from(held.0.as_str()), render(&held.1)]),
    }
}

fn entries(direction: &str) -> Vec<(String, Vec<u8>, Json)> {
    let session = session();
    let entries = session["entries"].as_array().unwrap().iter();
    entries
        .filter(|entry| entry["direction"] == direction && !entry["decoded"].is_null())
        .map(|entry| {
            let name = entry["name"].as_str().unwrap().to_owned();
            (name, unhex(entry["hex"].as_str().unwrap()), entry["decoded"].clone())
        })
        .collect()
}

#[test]
fn a_recorded_go_session_decodes_to_what_was_sent_byte_by_byte() {
    for direction in ["client->server", "server->client"] {
        let mut decoder = Decoder::default();
        let all = entries(direction);
        assert!(all.len() >= 16, "{direction}");
        for (name, bytes, decoded) in all {
            let mut values = Vec::new();
            for byte in bytes {
                decoder.feed(&[byte]);
                while let Some(value) = decoder.next_value().unwrap() {
                    values.push(render(&value));
                }
            }
            assert_eq!(values, [decoded["header"].clone(), decoded["body"].clone()], "{name}");
            assert!(decoder.is_idle());
        }
    }
}

#[test]
fn numbers_and_strings_encode_as_recorded() {
    for entry in upfront()["primitives"].as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let expected = entry["hex"].as_str().unwrap();
        let mut out = Vec::new();
        let mut encoder = Encoder::default();
        let header = Header { method: "M".into(), sequence: 0, error: String::new() };
        match name.split_once(' ').unwrap() {
            ("uint", digits) => uint(&mut out, digits.parse().unwrap()),
            ("int", digits) => int(&mut out, digits.parse().unwrap()),
            ("string", _) => string(&mut out, "abc"),
            ("top-level", rest) => {
                encoder.request(&header, &Body::Empty, &mut Vec::new());
                let body = match rest.split(' ').next().unwrap() {
                    "string" => Body::String("m1".into()),
                    "int" => Body::Int(22),
                    _ => Body::Bytes(b"{}".to_vec()),
                };
                encoder.request(&header, &body, &mut out);
                out = out.split_off(out.len() - expected.len() / 2);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(hex(out), expected, "{name}");
    }
}

/// The hex of the named upfront messages, one after another.
fn messages(names: &[&str]) -> String {
    let upfront = upfront();
    let all = upfront["messages"].as_array().unwrap();
    let find = |name: &&str| {
        let hit = all.iter().find(|entry| entry["name"].as_str().unwrap().starts_with(name));
        hit.unwrap_or_else(|| panic!("{name}"))["hex"].as_str().unwrap().to_owned()
    };
    names.iter().map(find).collect()
}

fn header(method: &str, sequence: u64, error: &str) -> Header {
    Header { method: format!("RPCServerDriver.{method}"), sequence, error: error.into() }
}

fn demo_flags() -> Vec<Flag> {
    let mut flags = vec![
        Flag::string("demo-token", "DEMO_TOKEN", "", "API token"),
        Flag::int("demo-ssh-port", "DEMO_SSH_PORT", 22, "SSH port"),
        Flag::bool("demo-ipv6", "DEMO_IPV6", "enable ipv6"),
        Flag::list("demo-tag", "", &["a", "bc"], "tags"),
    ];
    flags.push(Flag::string("demo-size", "DEMO_SIZE", "s-1", "size"));
    flags
}

#[test]
fn requests_and_responses_encode_to_the_bytes_go_accepted() {
    let mut encoder = Encoder::default();
    let mut out = Vec::new();
    encoder.request(&header("GetVersion", 0, ""), &Body::Empty, &mut out);
    let expected = messages(&["typedef 65", "typedef 66 struct{}", "request GetVersion", "body struct{}"]);
    // Definitions may stand anywhere before their first use; ours come right before it.
    let reordered = messages(&["typedef 65", "request GetVersion", "typedef 66 struct{}", "body struct{}"]);
    assert_eq!(out.len() * 2, expected.len());
    assert_eq!(hex(out), reordered);

    let mut out = Vec::new();
    encoder.request(&header("SetConfigFromFlags", 1, ""), &Body::FlagValues(Flags::default()), &mut out);
    let tail = messages(&["typedef 67", "typedef 68", "typedef 69", "body RPCFlags empty"]);
    assert!(hex(out).ends_with(&tail));

    let mut encoder = Encoder::default();
    let mut out = Vec::new();
    encoder.response(&header("GetVersion", 0, ""), &Body::Int(1), &mut out);
    assert_eq!(hex(out), messages(&["typedef 70", "response GetVersion", "body int 1"]));
    let mut out = Vec::new();
    encoder.response(&header("GetCreateFlags", 4, ""), &Body::FlagList(demo_flags()), &mut out);
    let names = [
        "typedef 71",
        "typedef 72",
        "typedef 73",
        "typedef 74",
        "typedef 69",
        "typedef 75",
        "body create flags",
    ];
    assert!(hex(out).ends_with(&messages(&names)));
    let mut out = Vec::new();
    encoder.response(&header("GetIP", 12, "IPv4 address is not set"), &Body::Empty, &mut out);
    assert_eq!(hex(out), messages(&["response error", "typedef 66 struct{}", "body struct{}"]));
}

#[test]
fn the_recorded_session_is_understood_as_calls() {
    let mut arrival = Arrival::new(Side::Responses, Default::default());
    let mut flags = None;
    for (_, bytes, _) in entries("server->client") {
        arrival.feed(&bytes);
        let (header, body) = arrival.next_call().unwrap().unwrap();
        match header.sequence {
            4 => flags = Some(body.into_flag_list().unwrap()),
            12 => assert_eq!(header.error, "IPv4 address is not set"),
            10 => assert_eq!(body.into_int().unwrap(), 1),
            _ => {}
        }
    }
    assert_eq!(flags.unwrap(), demo_flags());

    let mut arrival = Arrival::new(Side::Requests, Default::default());
    let mut seen = Vec::new();
    for (_, bytes, _) in entries("client->server") {
        arrival.feed(&bytes);
        let (header, body) = arrival.next_call().unwrap().unwrap();
        if header.method.ends_with("SetConfigFromFlags") {
            seen.push(body.into_flag_values().unwrap());
        }
    }
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0].str("demo-token"), "s3cr3t");
    assert_eq!(seen[1].list("demo-tag"), ["a", "bc"]);
    assert_eq!((seen[2].int("demo-ssh-port"), seen[2].bool("demo-ipv6")), (2222, true));
}

mod properties {
    use proptest::{collection, prelude::*};

    use super::*;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just(String::new()), "[a-z]{1,12}", ".{0,200}"]
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            text().prop_map(Value::String),
            any::<i64>().prop_map(Value::Int),
            any::<bool>().prop_map(Value::Bool),
            collection::vec(text(), 0..4).prop_map(Value::List),
        ]
    }

    fn flag() -> impl Strategy<Value = Flag> {
        (text(), text(), text(), value()).prop_map(|(name, usage, env, value)| Flag {
            name,
            usage,
            env,
            kind: match value {
                Value::String(text) => crate::flags::Kind::String(text),
                Value::Int(number) => crate::flags::Kind::Int(number),
                Value::Bool(_) => crate::flags::Kind::Bool,
                Value::List(items) => crate::flags::Kind::List(items),
            },
        })
    }

    fn body() -> impl Strategy<Value = Body> {
        prop_oneof![
            Just(Body::Empty),
            any::<i64>().prop_map(Body::Int),
            text().prop_map(Body::String),
            collection::vec(any::<u8>(), 0..300).prop_map(Body::Bytes),
            collection::vec(flag(), 0..5).prop_map(Body::FlagList),
            collection::btree_map(text(), value(), 0..5)
                .prop_map(|values| Body::FlagValues(values.into_iter().collect())),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        #[test]
        fn whatever_is_sent_arrives_however_it_is_cut(
            calls in collection::vec((text(), any::<u64>(), text(), body()), 1..6),
            cut in 1usize..50,
        ) {
            let (mut requests, mut responses) = (Vec::new(), Vec::new());
            let (mut request, mut response) = (Encoder::default(), Encoder::default());
            for (method, sequence, error, body) in &calls {
                let header = Header { method: method.clone(), sequence: *sequence, error: error.clone() };
                request.request(&header, body, &mut requests);
                response.response(&header, body, &mut responses);
            }
            for (side, bytes) in [(Side::Requests, requests), (Side::Responses, responses)] {
                let mut arrival = Arrival::new(side, Default::default());
                let mut arrived = Vec::new();
                for piece in bytes.chunks(cut) {
                    arrival.feed(piece);
                    while let Some(call) = arrival.next_call().unwrap() {
                        arrived.push(call);
                    }
                }
                prop_assert_eq!(arrived.len(), calls.len());
                for ((header, got), (method, sequence, error, sent)) in arrived.into_iter().zip(&calls) {
                    prop_assert_eq!((&header.method, header.sequence), (method, *sequence));
                    if side == Side::Responses {
                        prop_assert_eq!(&header.error, error);
                    }
                    match sent {
                        Body::Empty => got.into_empty().unwrap(),
                        Body::Int(number) => prop_assert_eq!(got.into_int().unwrap(), *number),
                        Body::String(text) => prop_assert_eq!(&got.into_string().unwrap(), text),
                        Body::Bytes(bytes) => prop_assert_eq!(&got.into_bytes().unwrap(), bytes),
                        Body::FlagList(flags) => prop_assert_eq!(&got.into_flag_list().unwrap(), flags),
                        Body::FlagValues(flags) => prop_assert_eq!(&got.into_flag_values().unwrap(), flags),
                    }
                }
            }
        }

        /// A real stream with one byte changed is the hardest noise.
        #[test]
        fn a_damaged_session_is_survived(at in 0usize..4000, to in any::<u8>(), cut in 1usize..200) {
            for (side, direction) in [(Side::Requests, "client->server"), (Side::Responses, "server->client")] {
                let mut bytes: Vec<u8> = entries(direction).into_iter().flat_map(|entry| entry.1).collect();
                let at = at % bytes.len();
                bytes[at] = to;
                let mut arrival = Arrival::new(side, Default::default());
                for piece in bytes.chunks(cut) {
                    arrival.feed(piece);
                    while let Ok(Some((_, body))) = arrival.next_call() {
                        let _ = body.clone().into_flag_list();
                        let _ = body.into_flag_values();
                    }
                }
            }
        }
    }
}
