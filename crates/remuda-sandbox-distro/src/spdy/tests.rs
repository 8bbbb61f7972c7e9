use proptest::prelude::*;

use super::{client::client, *};

/// Sends back what it gets on each stream, until one is called `stop`.
async fn echo(mut streams: mpsc::Receiver<Stream>) {
    while let Some(mut stream) = streams.recv().await {
        if stream.header("name") == Some("stop") {
            return;
        }
        while let Some(bytes) = stream.bytes.recv().await {
            assert!(stream.sender.send(bytes).await);
        }
        stream.sender.end().await;
    }
}

#[tokio::test]
async fn a_stream_goes_both_ways_and_ends() {
    let (mut client, server) = client();
    let talk = async {
        client.open(1, &[("name", "first")]).await;
        client.say(1, 0, "hello ").await;
        client.say(1, FIN, "there").await;
        client.io.write_all(&frame::ping(5)).await.unwrap();
        let mut inflater = Inflater::default();
        let (head, reply) = client.hear().await;
        assert!(matches!(head, Head::Control { kind: 2, version: 3, .. }), "{head:?}");
        assert_eq!(inflater.read(&reply[4..]).unwrap(), []);
        let (mut text, mut pong, mut ended) = (Vec::new(), false, false);
        while !(pong && ended) {
            match client.hear().await {
                (Head::Data { id: 1, flags, .. }, bytes) => {
                    text.extend(bytes);
                    ended = flags & FIN != 0;
                }
                (Head::Control { kind: 6, .. }, id) => pong = id == 5u32.to_be_bytes(),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(text, b"hello there");
        client.open(3, &[("name", "stop")]).await;
        loop {
            if let (Head::Control { kind: 7, .. }, _) = client.hear().await {
                break;
            }
        }
        drop(client);
    };
    let (served, ()) = tokio::join!(serve(server, echo), talk);
    served.unwrap();
}

#[tokio::test]
async fn the_connection_ends_with_the_client() {
    let (mut client, server) = client();
    client.open(1, &[("name", "first")]).await;
    drop(client);
    serve(server, echo).await.unwrap();
}

/// What a connection ends with after such bytes.
async fn after(bytes: &[u8]) -> Result<(), SpdyError> {
    let (mut client, server) = client();
    let talk = async {
        let _ = client.io.write_all(bytes).await;
        let _ = client.io.shutdown().await;
        let mut rest = Vec::new();
        let _ = client.io.read_to_end(&mut rest).await;
    };
    tokio::join!(serve(server, echo), talk).0
}

#[tokio::test]
async fn what_breaks_the_protocol_ends_the_connection() {
    let block = Deflater::default().headers(&[]);
    let even = frame::syn_stream(2, 0, &block);
    let mut deflater = Deflater::default();
    let twice =
        [frame::syn_stream(1, 0, &deflater.headers(&[])), frame::syn_stream(1, 0, &deflater.headers(&[]))]
            .concat();
    let long = [0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff].to_vec();
    let version = [0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1].to_vec();
    let short = [0x80, 3, 0, 1, 0, 0, 0, 2, 0, 0].to_vec();
    let garbage = frame::syn_stream(1, 0, &[0xff; 40]);
    for (name, bytes) in [
        ("even", even),
        ("twice", twice),
        ("long", long),
        ("version", version),
        ("short", short),
        ("garbage", garbage),
    ] {
        assert!(matches!(after(&bytes).await, Err(SpdyError::Protocol(_))), "{name}");
    }
}

#[tokio::test]
async fn streams_are_bounded_and_data_of_none_is_passed_over() {
    let (mut client, server) = client();
    let talk = async {
        client.say(99, 0, "to nobody").await;
        let (mut replies, mut refusals) = (0, 0);
        for number in 0..=MOST_STREAMS as u32 {
            client.open(2 * number + 1, &[]).await;
            match client.hear().await.0 {
                Head::Control { kind: 2, .. } => replies += 1,
                Head::Control { kind: 3, .. } => refusals += 1,
                other => panic!("{other:?}"),
            }
        }
        drop(client);
        (replies, refusals)
    };
    let held = |mut streams: mpsc::Receiver<Stream>| async move {
        let mut all = Vec::new();
        while let Some(stream) = streams.recv().await {
            all.push(stream);
        }
    };
    let (_, counts) = tokio::join!(serve(server, held), talk);
    assert_eq!(counts, (MOST_STREAMS, 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..300), control in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let mut bytes = bytes;
        if control && bytes.len() > 7 {
            (bytes[0], bytes[1], bytes[2], bytes[5], bytes[6]) = (0x80, 3, 0, 0, 0);
            bytes[3] %= 10;
        }
        let _ = runtime.block_on(after(&bytes));
    }
}
