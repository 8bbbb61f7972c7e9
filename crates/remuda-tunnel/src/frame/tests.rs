use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Message bodies, hand-built and recorded between two Go peers (remotedialer v0.6.1).
fn vectors() -> Value {
    serde_json::from_str(include_str!("../../tests/data/frames.json")).unwrap()
}

fn unhex(text: &str) -> Bytes {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn frame(id: i64, conn: i64, body: Body) -> Frame {
    Frame { id, conn: ConnId(conn), body }
}

#[track_caller]
fn check(hex: &str, expected: Frame) {
    let bytes = unhex(hex);
    assert_eq!(Frame::decode(bytes.clone()).unwrap(), expected);
    assert_eq!(expected.encode(), bytes);
}

#[test]
fn numbers_match_the_original() {
    for vector in vectors()["varints"].as_array().unwrap() {
        let bytes = unhex(vector["hex"].as_str().unwrap());
        let value = vector["fields"]["value"].as_i64().unwrap();
        assert_eq!(varint::get(&bytes).unwrap(), (value, bytes.len()));
    }
}

#[test]
fn hand_built_messages_match_in_both_directions() {
    for vector in vectors()["frames"].as_array().unwrap() {
        let bytes = unhex(vector["hex"].as_str().unwrap());
        let fields = &vector["fields"];
        let payload = unhex(fields["payloadHex"].as_str().unwrap());
        let decoded = Frame::decode(bytes.clone()).unwrap();
        assert_eq!(decoded.id, fields["id"].as_i64().unwrap(), "{vector}");
        assert_eq!(decoded.conn.0, fields["connId"].as_i64().unwrap(), "{vector}");
        assert_eq!(decoded.body.kind(), fields["type"].as_i64().unwrap(), "{vector}");
        if let Body::Data(data) = &decoded.body {
            assert_eq!(*data, payload);
        }
        assert_eq!(decoded.encode(), bytes, "{vector}");
    }
}

#[test]
fn recorded_messages_decode_as_their_summary_says() {
    for vector in vectors()["captured"]["messages"].as_array().unwrap() {
        let summary = vector["summary"].as_str().unwrap();
        let decoded = Frame::decode(unhex(vector["hex"].as_str().unwrap())).unwrap();
        let (name, len) = match &decoded.body {
            Body::Data(data) => ("DATA", data.len()),
            Body::Connect { proto, address } => ("CONNECT", proto.len() + 1 + address.len()),
            Body::Error(text) => ("ERROR", text.len()),
            other => panic!("{other:?}"),
        };
        let start = format!("MSG {name} conn={} ", decoded.conn);
        assert!(summary.starts_with(&start), "{summary}");
        // One recorded text is longer than receivers read.
        assert!(summary.contains(&format!("len={len} ")) || len == MAX_ERROR, "{summary}");
    }
}

#[test]
fn a_connect_splits_at_the_first_slash() {
    let body = Body::Connect { proto: "unix".into(), address: "/var/run/docker.sock".into() };
    check("0a0604b0ea01756e69782f2f7661722f72756e2f646f636b65722e736f636b", frame(5, 3, body));
}

#[test]
fn a_connection_list_holds_little_endian_ids() {
    let list = ConnectionList::new([2, 3, 300].map(ConnId));
    assert_eq!(list.iter().map(|id| id.0).collect::<Vec<_>>(), [2, 3, 300]);
    check("1e0010020000000000000003000000000000002c01000000000000", frame(15, 0, Body::Sync(list)));
}

#[test]
fn broken_messages_are_refused_with_their_reason() {
    for (hex, expected) in [
        ("", FrameError::Truncated),
        ("0204", FrameError::Truncated),
        ("020402", FrameError::Truncated),
        ("020402b0ea", FrameError::Truncated),
        ("80808080808080808080", FrameError::Overflow),
        ("020404b0ea01746370", FrameError::ConnectAddress),
        ("140008632d6d", FrameError::Announcement),
        ("140008632d6d2f78", FrameError::Announcement),
        ("14000a632d6d2f", FrameError::Announcement),
        ("1c0010010203", FrameError::ConnectionList),
    ] {
        assert_eq!(Frame::decode(unhex(hex)).unwrap_err(), expected, "{hex}");
    }
}

#[test]
fn long_texts_are_cut_where_the_original_cuts_them() {
    let long = "x".repeat(1000);
    let error = frame(1, 2, Body::Error(long.clone()));
    assert_eq!(Frame::decode(error.encode()).unwrap().body, Body::Error("x".repeat(MAX_ERROR)));
    let connect = frame(1, 2, Body::Connect { proto: "tcp".into(), address: long });
    let Body::Connect { address, .. } = Frame::decode(connect.encode()).unwrap().body else { panic!() };
    assert_eq!(address.len(), MAX_CONNECT - "tcp/".len());
}

#[test]
fn unknown_types_are_no_error() {
    let unknown = frame(1, 0, Body::Unknown(99));
    assert_eq!(Frame::decode(unknown.encode()).unwrap(), unknown);
    let longest = frame(i64::MIN, i64::MIN, Body::Unknown(i64::MIN));
    assert_eq!(Frame::decode(longest.encode()).unwrap(), longest);
}

fn any_body() -> impl Strategy<Value = Body> {
    let client = ("[a-z0-9:-]{0,60}", any::<i64>()).prop_map(|(key, session)| RemoteClient { key, session });
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200).prop_map(|data| Body::Data(data.into())),
        ("[^/]{0,20}", ".{0,40}").prop_map(|(proto, address)| Body::Connect { proto, address }),
        "[ -~]{0,100}".prop_map(Body::Error),
        client.clone().prop_map(Body::AddClient),
        client.prop_map(Body::RemoveClient),
        Just(Body::Pause),
        Just(Body::Resume),
        proptest::collection::vec(any::<i64>(), 0..50)
            .prop_map(|ids| Body::Sync(ConnectionList::new(ids.into_iter().map(ConnId)))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_frame_survives_the_wire(id: i64, conn: i64, body in any_body()) {
        let original = frame(id, conn, body);
        let bytes = original.encode();
        prop_assert_eq!(Frame::decode(bytes).unwrap(), original);
    }

    #[test]
    fn arbitrary_messages_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Frame::decode(bytes.into());
    }

    #[test]
    fn a_damaged_frame_never_panics(body in any_body(), at: prop::sample::Index, byte: u8, keep: prop::sample::Index) {
        let mut bytes = frame(7, 9, body).encode().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.truncate(keep.index(bytes.len() + 1));
        let _ = Frame::decode(bytes.into());
    }
}
