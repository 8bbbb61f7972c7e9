//! Against another implementation, and against hostile bytes.

use bytes::BytesMut;
use futures::{SinkExt, StreamExt, future::poll_fn};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio_tungstenite::{WebSocketStream, tungstenite};

use super::*;
use crate::socket::MAX_MESSAGE;

async fn receive<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    socket: &mut WebSocket<T>,
) -> Result<Received, SocketError> {
    poll_fn(|cx| socket.poll_receive(cx)).await
}

async fn send<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(socket: &mut WebSocket<T>, message: Sent) {
    poll_fn(|cx| socket.poll_ready(cx)).await.unwrap();
    socket.send(message);
    poll_fn(|cx| socket.poll_flush(cx)).await.unwrap();
}

fn roles() -> [(Role, tungstenite::protocol::Role); 2] {
    use tungstenite::protocol::Role as Theirs;
    [(Role::Server, Theirs::Client), (Role::Client, Theirs::Server)]
}

/// Some bytes that differ from place to place.
fn bytes(len: usize) -> Bytes {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[tokio::test]
async fn messages_of_all_sizes_pass_to_and_from_another_implementation() {
    let sizes = [0, 1, 125, 126, 127, 4095, 4096, 16_384, 65_535, 65_536, 70_000, 300_000];
    for (ours, theirs) in roles() {
        let (near, far) = duplex(1 << 16);
        let mut ours = WebSocket::new(near, ours);
        let mut theirs = WebSocketStream::from_raw_socket(far, theirs, None).await;
        for len in sizes.into_iter().chain(sizes.into_iter().rev()) {
            let message = tungstenite::Message::Binary(bytes(len));
            let (_, got) = tokio::join!(theirs.send(message), receive(&mut ours));
            assert_eq!(got.unwrap(), Received::Binary(bytes(len)), "{len}");
            let (_, got) = tokio::join!(send(&mut ours, Sent::Binary(bytes(len))), theirs.next());
            assert_eq!(got.unwrap().unwrap(), tungstenite::Message::Binary(bytes(len)), "{len}");
        }
    }
}

#[tokio::test]
async fn pings_are_answered_with_their_data_and_closes_told() {
    for (ours, theirs) in roles() {
        let (near, far) = duplex(1 << 16);
        let mut ours = WebSocket::new(near, ours);
        let mut theirs = WebSocketStream::from_raw_socket(far, theirs, None).await;
        theirs.send(tungstenite::Message::Ping(Bytes::from_static(b"there?"))).await.unwrap();
        assert_eq!(receive(&mut ours).await.unwrap(), Received::Ping);
        send(&mut ours, Sent::Ping).await;
        let pong = theirs.next().await.unwrap().unwrap();
        assert_eq!(pong, tungstenite::Message::Pong(Bytes::from_static(b"there?")));
        assert_eq!(theirs.next().await.unwrap().unwrap(), tungstenite::Message::Ping(Bytes::new()));
        theirs.flush().await.unwrap();
        assert_eq!(receive(&mut ours).await.unwrap(), Received::Pong);
        theirs.send(tungstenite::Message::text("hello")).await.unwrap();
        assert_eq!(receive(&mut ours).await.unwrap(), Received::Text);
        theirs.send(tungstenite::Message::Close(None)).await.unwrap();
        assert_eq!(receive(&mut ours).await.unwrap(), Received::Close);
        send(&mut ours, Sent::Close).await;
        assert_eq!(theirs.next().await.unwrap().unwrap(), tungstenite::Message::Close(None));
    }
}

#[tokio::test]
async fn a_peer_that_pings_and_never_reads_costs_little() {
    let (near, mut far) = duplex(1 << 10);
    let mut ours = WebSocket::new(near, Role::Server);
    let writing = async {
        for _ in 0..100_000 {
            // A masked ping of 125 zeros, the key zero.
            let mut ping = [0; 131];
            ping[..2].copy_from_slice(&[0x89, 0xfd]);
            far.write_all(&ping).await.unwrap();
        }
    };
    let reading = async {
        for _ in 0..100_000 {
            assert_eq!(receive(&mut ours).await.unwrap(), Received::Ping);
        }
    };
    tokio::join!(writing, reading);
    assert!(ours.encoder.len() <= 5 * WRITE_BUFFER, "{}", ours.encoder.len());
}

#[tokio::test]
async fn an_idle_socket_holds_no_buffer() {
    let (near, far) = duplex(1 << 16);
    let mut ours = WebSocket::new(near, Role::Server);
    let mut theirs = WebSocketStream::from_raw_socket(far, tungstenite::protocol::Role::Client, None).await;
    for len in [10, 40_000] {
        theirs.send(tungstenite::Message::Binary(bytes(len))).await.unwrap();
        assert_eq!(receive(&mut ours).await.unwrap(), Received::Binary(bytes(len)));
        send(&mut ours, Sent::Binary(bytes(len))).await;
        theirs.next().await.unwrap().unwrap();
        assert!(futures::poll!(std::pin::pin!(receive(&mut ours))).is_pending());
        assert_eq!(ours.decoder.held(), 0);
        assert_eq!(ours.encoder.held(), 0);
    }
}

#[tokio::test]
async fn a_large_head_alone_gets_little_memory() {
    let (near, mut far) = duplex(1 << 16);
    let mut ours = WebSocket::new(near, Role::Server);
    let mut head = vec![0x82, 0xff];
    head.extend((MAX_MESSAGE as u64).to_be_bytes());
    head.extend([0; 4]);
    far.write_all(&head).await.unwrap();
    assert!(futures::poll!(std::pin::pin!(receive(&mut ours))).is_pending());
    assert!(ours.decoder.held() <= 256 << 10, "{}", ours.decoder.held());
}

#[tokio::test]
async fn what_is_written_is_bounded_while_nobody_reads() {
    let (near, mut far) = duplex(1 << 10);
    let mut ours = WebSocket::new(near, Role::Client);
    let mut sent = 0;
    while poll_fn(|cx| std::task::Poll::Ready(ours.poll_ready(cx))).await.is_ready() {
        ours.send(Sent::Binary(bytes(60_000)));
        sent += 1;
        assert!(sent < 100);
    }
    assert!(ours.encoder.len() < WRITE_BUFFER + 70_000);
    let mut sink = vec![0; 1 << 20];
    let drain = async { while far.read(&mut sink).await.unwrap() > 0 {} };
    tokio::select! {
        () = drain => panic!("the socket ended"),
        flushed = poll_fn(|cx| ours.poll_flush(cx)) => flushed.unwrap(),
    }
    assert_eq!(ours.encoder.len(), 0);
}

/// Feeds `input` and tells what came of it.
fn decoded(role: Role, input: &[u8]) -> Vec<Result<decode::Message, String>> {
    let mut decoder = Decoder::new(role, &[]);
    let mut input = input;
    let mut out = Vec::new();
    loop {
        match decoder.next() {
            Ok(Some(message)) => out.push(Ok(message)),
            Err(error) => {
                out.push(Err(error.to_string()));
                return out;
            }
            Ok(None) if input.is_empty() => return out,
            Ok(None) => {
                let (buffer, most) = decoder.buffer();
                let (now, later) = input.split_at(most.min(input.len()).min(7));
                buffer.extend_from_slice(now);
                input = later;
            }
        }
    }
}

#[test]
fn frames_against_the_rules_end_it() {
    let check = |role, input: &[u8], expected: &str| {
        assert_eq!(decoded(role, input), [Err(format!("websocket frame {expected}"))]);
    };
    check(Role::Server, &[0x82, 0x01, 7], "of a client is not masked");
    check(Role::Client, &[0x82, 0x81, 0, 0, 0, 0, 7], "of a server is masked");
    check(Role::Client, &[0xc2, 0x00], "uses an extension");
    check(Role::Client, &[0x83, 0x00], "is of an unknown kind");
    check(Role::Client, &[0x09, 0x00], "of control is fragmented or too long");
    check(Role::Client, &[0x89, 126, 0, 126], "of control is fragmented or too long");
    check(Role::Client, &[0x80, 0x00], "continues no message");
    check(Role::Client, &[0x02, 0x01, 7, 0x82, 0x00], "begins a message inside another");
    check(Role::Client, &[0x82, 127, 0xff, 0, 0, 0, 0, 0, 0, 0], "makes its message too large");
    let mut large = vec![0x02, 0x01, 7, 0x80, 127];
    large.extend((MAX_MESSAGE as u64).to_be_bytes());
    check(Role::Client, &large, "makes its message too large");
}

#[test]
fn fragments_are_put_together_around_control_frames() {
    let input = [0x02, 0x02, 1, 2, 0x89, 0x01, 9, 0x00, 0x00, 0x80, 0x01, 3, 0x82, 0x01, 4];
    let expected = [
        decode::Message::Ping(Bytes::from_static(&[9])),
        decode::Message::Binary(Bytes::from_static(&[1, 2, 3])),
        decode::Message::Binary(Bytes::from_static(&[4])),
    ];
    assert_eq!(decoded(Role::Client, &input), expected.map(Ok));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_taken_or_refused(role in prop_oneof![Just(Role::Client), Just(Role::Server)], input: Vec<u8>) {
        decoded(role, &input);
    }

    #[test]
    fn what_is_encoded_is_decoded(
        role in prop_oneof![Just(Role::Client), Just(Role::Server)],
        sizes in proptest::collection::vec(0usize..30_000, 0..8),
        steps in proptest::collection::vec(1usize..20_000, 1..8),
    ) {
        let mut encoder = Encoder::new(role);
        for len in &sizes {
            encoder.push(opcode::BINARY, bytes(*len));
        }
        let mut wire = BytesMut::new();
        let mut steps = steps.into_iter().cycle();
        while encoder.len() > 0 {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = encoder.slices(&mut slices);
            let flat: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
            let taken = steps.next().unwrap_or(1).min(flat.len());
            wire.extend_from_slice(&flat[..taken]);
            encoder.written(taken);
        }
        let other = if role == Role::Client { Role::Server } else { Role::Client };
        let expected: Vec<_> = sizes.into_iter().map(|len| Ok(decode::Message::Binary(bytes(len)))).collect();
        prop_assert_eq!(decoded(other, &wire), expected);
    }
}
