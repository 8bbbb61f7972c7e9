use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::frame::{Body, ConnectionList, Frame};

const KEY: &str = "c-m-abcd1234";

pub(super) fn config(role: Role) -> Config {
    Config {
        role,
        client_key: if role == Role::Client { "client".into() } else { KEY.into() },
        session_key: if role == Role::Client { 0 } else { 4711 },
        first_message: 1,
        keep_remote_clients: false,
        limits: Limits::default(),
        timing: Timing::default(),
    }
}

pub(super) fn start() -> Instant {
    // The only clock there is; all tests count from here.
    Instant::now()
}

fn machine(role: Role, now: Instant) -> Protocol {
    Protocol::new(config(role), now)
}

fn message(conn: ConnId, body: Body) -> Bytes {
    Frame { id: 1, conn, body }.encode()
}

fn error(text: &str) -> Body {
    Body::Error(text.into())
}

/// Everything the machine wants to send now.
fn sent(machine: &mut Protocol, now: Instant) -> Vec<(i64, Body)> {
    let mut all = Vec::new();
    while let Some(next) = machine.poll_transmit(now) {
        match next {
            Transmit::Message(bytes) => {
                let frame = Frame::decode(bytes).unwrap();
                all.push((frame.conn.0, frame.body));
            }
            Transmit::Ping => all.push((0, Body::Unknown(-1))),
        }
    }
    all
}

pub(super) fn events(machine: &mut Protocol) -> Vec<Event> {
    std::iter::from_fn(|| machine.poll_event()).collect()
}

fn connect(address: &str) -> Body {
    Body::Connect { proto: "tcp".into(), address: address.into() }
}

fn data(bytes: &[u8]) -> Body {
    Body::Data(Bytes::copy_from_slice(bytes))
}

/// A server with one connection whose CONNECT went out.
fn opened(now: Instant) -> (Protocol, ConnId) {
    let mut server = machine(Role::Server, now);
    let id = server.open("tcp", "10.0.0.1:80", now).unwrap();
    sent(&mut server, now);
    events(&mut server);
    (server, id)
}

#[test]
fn a_server_counts_connections_from_two() {
    let now = start();
    let mut server = machine(Role::Server, now);
    let first = server.open("tcp", "a:1", now).unwrap();
    let second = server.open("tcp", "b:1", now).unwrap();
    assert_eq!((first.0, second.0), (2, 3));
    assert_eq!(sent(&mut server, now), [(2, connect("a:1")), (3, connect("b:1"))]);
    assert_eq!(events(&mut server), [Event::Opened(first), Event::Opened(second)]);
}

#[test]
fn data_may_follow_a_connect_at_once() {
    let now = start();
    let mut server = machine(Role::Server, now);
    let id = server.open("tcp", "a:1", now).unwrap();
    assert_eq!(server.write(id, b"hello").unwrap(), 5);
    assert_eq!(sent(&mut server, now), [(2, connect("a:1")), (2, data(b"hello"))]);
}

#[test]
fn message_ids_count_up() {
    let now = start();
    let mut server = machine(Role::Server, now);
    let id = server.open("tcp", "a:1", now).unwrap();
    server.write(id, b"x").unwrap();
    server.close(id, Reason::Eof, now);
    let mut ids = Vec::new();
    while let Some(Transmit::Message(bytes)) = server.poll_transmit(now) {
        ids.push(Frame::decode(bytes).unwrap().id);
    }
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn an_address_that_would_be_cut_is_refused() {
    let now = start();
    let mut server = machine(Role::Server, now);
    assert!(matches!(server.open("tcp", &"x".repeat(263), now), Err(OpenError::Address(_))));
    assert!(server.open("tcp", &"x".repeat(262), now).is_ok());
    assert!(matches!(server.open("t/cp", "x", now), Err(OpenError::Address(_))));
}

#[test]
fn a_close_comes_after_the_data_written_before_it() {
    let now = start();
    let (mut server, id) = opened(now);
    server.write(id, b"last").unwrap();
    server.detach(id, now);
    assert_eq!(sent(&mut server, now), [(2, data(b"last")), (2, error("EOF"))]);
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_connection_closed_before_its_connect_went_out_is_never_mentioned() {
    let now = start();
    let mut server = machine(Role::Server, now);
    let id = server.open("tcp", "a:1", now).unwrap();
    server.detach(id, now);
    assert_eq!(sent(&mut server, now), []);
    assert_eq!(server.connections(), 0);
}

#[test]
fn an_error_ends_the_stream_behind_its_data_and_is_echoed() {
    let now = start();
    let (mut server, id) = opened(now);
    server.receive(message(id, data(b"bye")), now).unwrap();
    server.receive(message(id, error("EOF")), now).unwrap();
    assert_eq!(server.read(id, 100), Read::Data(Bytes::from_static(b"bye")));
    assert_eq!(server.read(id, 100), Read::End(Reason::Eof));
    assert_eq!(sent(&mut server, now), [(2, error("EOF"))]);
    // Repeated and late messages of the original change nothing.
    server.receive(message(id, error("EOF")), now).unwrap();
    server.receive(message(id, data(b"late")), now).unwrap();
    assert_eq!(sent(&mut server, now), []);
    server.detach(id, now);
    assert_eq!((server.connections(), sent(&mut server, now)), (0, vec![]));
}

#[test]
fn an_error_text_reaches_the_reader_and_refuses_writes() {
    let now = start();
    let (mut server, id) = opened(now);
    let text = "dial tcp 127.0.0.1:1: connect: connection refused";
    server.receive(message(id, error(text)), now).unwrap();
    server.receive(message(id, error("EOF")), now).unwrap();
    assert_eq!(server.read(id, 1), Read::End(Reason::Remote(text.into())));
    assert_eq!(server.write(id, b"x"), Err(Reason::Remote(text.into())));
    assert_eq!(sent(&mut server, now), [(2, error(text))]);
}

#[test]
fn data_for_an_unknown_connection_is_answered_as_the_original_does() {
    let now = start();
    let mut server = machine(Role::Server, now);
    server.receive(message(ConnId(77), data(b"?")), now).unwrap();
    assert_eq!(sent(&mut server, now), [(77, error("connection not found c-m-abcd1234/4711/77"))]);
    let mut client = machine(Role::Client, now);
    client.receive(message(ConnId(77), data(b"?")), now).unwrap();
    assert_eq!(sent(&mut client, now), [(77, error("connection not found client/0/77"))]);
}

#[test]
fn answers_to_stray_data_are_bounded() {
    let now = start();
    let mut server = machine(Role::Server, now);
    for id in 0..5000 {
        server.receive(message(ConnId(id), data(b"?")), now).unwrap();
    }
    assert_eq!(server.counters().replies_dropped, 5000 - MAX_REPLIES as u64);
    assert_eq!(sent(&mut server, now).len(), MAX_REPLIES);
}

#[test]
fn a_connection_opened_twice_ends_the_session() {
    let now = start();
    let mut client = machine(Role::Client, now);
    client.receive(message(ConnId(2), connect("a:1")), now).unwrap();
    let again = client.receive(message(ConnId(2), connect("a:1")), now);
    assert_eq!(again, Err(Violation::Duplicate(ConnId(2))));
}

#[test]
fn connections_beyond_the_limit_are_refused_one_by_one() {
    let now = start();
    let mut config = config(Role::Client);
    config.limits.connections = 2;
    let mut client = Protocol::new(config, now);
    for id in 2..5 {
        client.receive(message(ConnId(id), connect("a:1")), now).unwrap();
    }
    assert_eq!(sent(&mut client, now), [(4, error("too many connections: 2"))]);
    assert_eq!(client.connections(), 2);
    assert_eq!(client.open("tcp", "b:1", now), Err(OpenError::TooMany(2)));
}

#[test]
fn a_failed_connection_counts_until_the_peer_was_told() {
    let now = start();
    let mut client = machine(Role::Client, now);
    client.receive(message(ConnId(2), connect("a:1")), now).unwrap();
    client.close(ConnId(2), Reason::Local("refused".into()), now);
    client.detach(ConnId(2), now);
    assert_eq!(client.connections(), 1);
    assert_eq!(sent(&mut client, now), [(2, error("refused"))]);
    assert_eq!(client.connections(), 0);
}

#[test]
fn a_full_inbox_pauses_the_peer_and_a_drained_one_resumes_it() {
    let now = start();
    let (mut server, id) = opened(now);
    let half = data(&vec![1; 1 << 20]);
    server.receive(message(id, half.clone()), now).unwrap();
    server.receive(message(id, half), now).unwrap();
    assert_eq!(sent(&mut server, now), []);
    server.receive(message(id, data(b"x")), now).unwrap();
    assert_eq!(sent(&mut server, now), [(2, Body::Pause)]);
    let mut out = vec![0; (2 << 20) - (256 << 10) + 1];
    assert_eq!(server.read_into(id, &mut out).unwrap(), out.len());
    assert_eq!(server.unread(), 256 << 10);
    assert_eq!(sent(&mut server, now), []);
    server.read_into(id, &mut [0]).unwrap();
    assert_eq!(sent(&mut server, now), [(2, Body::Resume)]);
}

#[test]
fn a_pause_undone_before_it_was_sent_is_not_sent() {
    let now = start();
    let (mut server, id) = opened(now);
    server.receive(message(id, data(&vec![1; (2 << 20) + 1])), now).unwrap();
    server.read_into(id, &mut vec![0; 2 << 20]).unwrap();
    assert_eq!(sent(&mut server, now), []);
}

#[test]
fn a_peer_asked_to_pause_again_is_still_resumed() {
    let now = start();
    let (mut server, id) = opened(now);
    server.receive(message(id, data(&vec![1; (2 << 20) + 1])), now).unwrap();
    assert_eq!(sent(&mut server, now), [(2, Body::Pause)]);
    // What was under way makes it ask again, but the reader is faster than the wire.
    server.receive(message(id, data(&vec![1; 600 << 10])), now).unwrap();
    while let Read::Data(_) = server.read(id, usize::MAX) {}
    assert_eq!(sent(&mut server, now), [(2, Body::Resume)]);
}

#[test]
fn a_peer_that_sends_on_is_asked_again_then_cut_off_without_harm_to_others() {
    let now = start();
    let (mut server, id) = opened(now);
    let other = server.open("tcp", "b:1", now).unwrap();
    sent(&mut server, now);
    let mut pauses = 0;
    let mut ended = None;
    for _ in 0..2 * Limits::default().receive / (128 << 10) {
        server.receive(message(id, data(&vec![1; 128 << 10])), now).unwrap();
        assert!(server.unread() <= Limits::default().receive);
        for (conn, body) in sent(&mut server, now) {
            assert_eq!(conn, id.0);
            match body {
                Body::Pause => pauses += 1,
                Body::Error(text) => ended = Some(text),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(pauses > 5, "{pauses}");
    assert_eq!(ended.as_deref(), Some("receive buffer exceeded"));
    assert_eq!(server.unread(), 0);
    assert!(matches!(server.read(id, 1), Read::End(Reason::Local(_))));
    assert_eq!(server.write(other, b"fine"), Ok(4));
    assert_eq!(server.counters().overflowed, 1);
}

#[test]
fn many_writers_share_how_far_they_may_be_ahead() {
    let now = start();
    let mut server = Protocol::new(config(Role::Server), now);
    let ids: Vec<ConnId> = (0..64).map(|_| server.open("tcp", "a:1", now).unwrap()).collect();
    sent(&mut server, now);
    let limits = Limits::default();
    assert_eq!(server.room(ids[0]), Ok(limits.send_buffer));
    ids.iter().for_each(|id| assert_eq!(server.write(*id, &[1; 1000]), Ok(1000)));
    let room: usize = ids.iter().map(|id| server.room(*id).unwrap()).sum();
    assert!(room <= 2 * limits.session_send, "{room}");
    // A full one may write again when its data is gone, and alone it may be as far ahead as ever.
    let taken = server.write(ids[0], &vec![1; 1 << 20]).unwrap();
    assert!(taken < limits.send_buffer);
    assert_eq!(server.write(ids[0], &[1]), Ok(0));
    while server.poll_event().is_some() {}
    sent(&mut server, now);
    assert!(std::iter::from_fn(|| server.poll_event()).any(|event| event == Event::Writable(ids[0])));
    assert_eq!(server.room(ids[0]), Ok(limits.send_buffer));
}

#[test]
fn many_full_connections_stay_within_the_limit_of_their_session() {
    let now = start();
    let mut config = config(Role::Client);
    config.limits.session_receive = 1 << 20;
    let mut client = Protocol::new(config, now);
    for id in 2..66 {
        client.receive(message(ConnId(id), connect("a:1")), now).unwrap();
    }
    for _ in 0..16 {
        for id in 2..66 {
            client.receive(message(ConnId(id), data(&[0; 4096])), now).unwrap();
            assert!(client.unread() <= 1 << 20);
        }
    }
    assert!(client.counters().overflowed > 0);
    // They were asked to pause long before.
    assert!(sent(&mut client, now).iter().any(|(_, body)| *body == Body::Pause));
}

#[test]
fn thousands_of_stalled_connections_come_to_rest_without_a_loss() {
    let now = start();
    let mut client = machine(Role::Client, now);
    let limits = Limits::default();
    let payload = data(&[0; 8 << 10]);
    for id in 2..3002 {
        client.receive(message(ConnId(id), connect("a:1")), now).unwrap();
        while !sent(&mut client, now).contains(&(id, Body::Pause)) {
            client.receive(message(ConnId(id), payload.clone()), now).unwrap();
        }
        // The peer obeys, one message late.
        client.receive(message(ConnId(id), payload.clone()), now).unwrap();
    }
    assert_eq!(client.counters().overflowed, 0);
    assert!(client.unread() < limits.session_receive, "{}", client.unread());
    // Each of them goes on when it is read.
    for id in [2, 1500, 3001] {
        while let Read::Data(_) = client.read(ConnId(id), usize::MAX) {}
        assert_eq!(sent(&mut client, now), [(id, Body::Resume)]);
    }
}

#[test]
fn a_paused_connection_keeps_its_data_and_the_others_go_on() {
    let now = start();
    let (mut server, first) = opened(now);
    let second = server.open("tcp", "b:1", now).unwrap();
    sent(&mut server, now);
    server.receive(message(first, Body::Pause), now).unwrap();
    server.write(first, b"held").unwrap();
    server.write(second, b"sent").unwrap();
    assert_eq!(sent(&mut server, now), [(3, data(b"sent"))]);
    // The original may resume what it did not pause.
    server.receive(message(second, Body::Resume), now).unwrap();
    server.receive(message(first, Body::Resume), now).unwrap();
    assert_eq!(sent(&mut server, now), [(2, data(b"held"))]);
}

#[test]
fn a_writer_waits_for_half_of_its_buffer() {
    let now = start();
    let (mut server, id) = opened(now);
    let limit = Limits::default().send_buffer;
    assert_eq!(server.write(id, &vec![0; limit + 5]), Ok(limit));
    assert_eq!(server.write(id, b"x"), Ok(0));
    assert!(server.poll_transmit(now).is_some());
    assert_eq!(events(&mut server), []);
    assert!(server.poll_transmit(now).is_some());
    assert_eq!(events(&mut server), [Event::Writable(id)]);
}

#[test]
fn connections_with_data_take_turns() {
    let now = start();
    let mut server = machine(Role::Server, now);
    let ids: Vec<ConnId> = (0..3).map(|_| server.open("tcp", "a:1", now).unwrap()).collect();
    sent(&mut server, now);
    for id in &ids {
        server.write(*id, &[0; 150 << 10]).unwrap();
    }
    let order: Vec<i64> = sent(&mut server, now).into_iter().map(|(conn, _)| conn).collect();
    assert_eq!(order, [2, 3, 4, 2, 3, 4, 2, 3, 4]);
}

#[test]
fn a_closed_connection_that_stays_paused_is_given_up() {
    let now = start();
    let (mut server, id) = opened(now);
    server.receive(message(id, Body::Pause), now).unwrap();
    server.write(id, b"never read").unwrap();
    server.detach(id, now);
    assert_eq!(sent(&mut server, now), []);
    let later = now + Timing::default().linger;
    server.heard(later);
    assert_eq!(server.next_timeout(), later);
    server.tick(later).unwrap();
    assert_eq!(sent(&mut server, later), [(2, error("EOF"))]);
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_client_pings_and_lists_its_connections() {
    let now = start();
    let mut client = machine(Role::Client, now);
    client.receive(message(ConnId(3), connect("a:1")), now).unwrap();
    client.receive(message(ConnId(2), connect("b:1")), now).unwrap();
    let ping = (0, Body::Unknown(-1));
    let mut at = now;
    for _ in 0..11 {
        at += Duration::from_secs(5);
        assert_eq!(client.next_timeout(), at);
        client.tick(at).unwrap();
        client.heard(at);
        assert_eq!(sent(&mut client, at), std::slice::from_ref(&ping));
    }
    at += Duration::from_secs(5);
    client.tick(at).unwrap();
    let list = Body::Sync(ConnectionList::new([ConnId(2), ConnId(3)]));
    assert_eq!(sent(&mut client, at), [ping, (0, list)]);
}

#[test]
fn a_server_says_nothing_by_itself_and_notices_silence() {
    let now = start();
    let mut server = machine(Role::Server, now);
    let limit = Timing::default().silence;
    assert_eq!(server.next_timeout(), now + limit);
    assert_eq!(server.tick(now + limit), Err(Violation::Silence(limit)));
    server.heard(now + limit / 2);
    assert_eq!(server.tick(now + limit), Ok(()));
    assert_eq!(sent(&mut server, now + limit), []);
}

#[test]
fn connections_the_client_does_not_list_are_dropped_silently_unless_young() {
    let now = start();
    let (mut server, old) = opened(now);
    let kept = server.open("tcp", "b:1", now).unwrap();
    sent(&mut server, now);
    let later = now + Duration::from_secs(10);
    let young = server.open("tcp", "c:1", later).unwrap();
    sent(&mut server, later);
    let unsent = server.open("tcp", "d:1", now).unwrap();
    let list = Body::Sync(ConnectionList::new([kept, ConnId(999)]));
    server.receive(message(ConnId(0), list), later).unwrap();
    assert_eq!(server.read(old, 1), Read::End(Reason::Sync));
    for id in [kept, young, unsent] {
        assert_eq!(server.read(id, 1), Read::Nothing);
    }
    assert_eq!(sent(&mut server, later), [(5, connect("d:1"))]);
}

#[test]
fn announced_clients_are_known_until_their_last_session_goes() {
    let now = start();
    let mut config = config(Role::Server);
    config.keep_remote_clients = true;
    config.limits.remote_clients = 2;
    let mut server = Protocol::new(config, now);
    let client = |session| RemoteClient { key: "c-1".into(), session };
    for session in [1, 2] {
        server.receive(message(ConnId(0), Body::AddClient(client(session))), now).unwrap();
    }
    server.receive(message(ConnId(0), Body::RemoveClient(client(1))), now).unwrap();
    assert!(server.reaches("c-1"));
    server.receive(message(ConnId(0), Body::RemoveClient(client(2))), now).unwrap();
    server.receive(message(ConnId(0), Body::RemoveClient(client(2))), now).unwrap();
    assert!(!server.reaches("c-1"));
    for session in [1, 2] {
        server.receive(message(ConnId(0), Body::AddClient(client(session))), now).unwrap();
    }
    let more = server.receive(message(ConnId(0), Body::AddClient(client(3))), now);
    assert_eq!(more, Err(Violation::RemoteClients(2)));
}

#[test]
fn an_announcement_the_peer_would_cut_is_not_made() {
    let now = start();
    let mut client = machine(Role::Client, now);
    client.announce(true, RemoteClient { key: "x".repeat(99), session: 1 }).unwrap();
    client.announce(true, RemoteClient { key: "a/b".into(), session: 1 }).unwrap();
    assert_eq!(sent(&mut client, now), []);
    let fits = RemoteClient { key: "x".repeat(98), session: 1 };
    client.announce(false, fits.clone()).unwrap();
    assert_eq!(sent(&mut client, now), [(0, Body::RemoveClient(fits))]);
}

#[test]
fn the_end_of_a_session_fails_its_connections() {
    let now = start();
    let (mut server, id) = opened(now);
    server.receive(message(id, data(b"kept")), now).unwrap();
    server.write(id, b"lost").unwrap();
    server.end(false);
    assert_eq!(server.read(id, 10), Read::Data(Bytes::from_static(b"kept")));
    assert_eq!(server.read(id, 10), Read::End(Reason::Disconnect));
    assert_eq!(server.write(id, b"x"), Err(Reason::Disconnect));
    assert_eq!(server.open("tcp", "a:1", now), Err(OpenError::Ended));
    assert_eq!(sent(&mut server, now), []);
}

#[test]
fn an_orderly_end_tells_the_peer() {
    let now = start();
    let (mut server, id) = opened(now);
    server.end(true);
    assert_eq!(sent(&mut server, now), [(2, error("tunnel disconnect"))]);
    server.detach(id, now);
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_long_reason_is_cut_for_the_wire() {
    let now = start();
    let (mut server, id) = opened(now);
    server.close(id, Reason::Local("é".repeat(80)), now);
    assert_eq!(sent(&mut server, now), [(2, error(&"é".repeat(50)))]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn hostile_messages_never_panic_and_stay_bounded(
        messages in proptest::collection::vec(
            (0i64..12, 0i64..6, proptest::collection::vec(any::<u8>(), 0..300)), 1..200)
    ) {
        let now = start();
        for role in [Role::Client, Role::Server] {
            let mut config = config(role);
            config.keep_remote_clients = true;
            config.limits.receive = 1000;
            config.limits.session_receive = 2000;
            config.limits.connections = 3;
            let mut machine = Protocol::new(config, now);
            let _ = machine.open("tcp", "a:1", now);
            for (kind, conn, payload) in &messages {
                let mut bytes = vec![2, (*conn as u8) << 1, (*kind as u8) << 1];
                if matches!(kind, 1 | 2) {
                    bytes.extend([0xb0, 0xea, 1]);
                }
                bytes.extend(payload);
                let _ = machine.receive(bytes.into(), now);
                prop_assert!(machine.unread() <= 2000);
                prop_assert!(machine.connections() <= 3);
                events(&mut machine);
            }
            sent(&mut machine, now);
            machine.end(true);
            sent(&mut machine, now);
        }
    }
}
