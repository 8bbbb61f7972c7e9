//! Messages of a tunnel: the codec, then a session on each side that is told anything in any order.
//!
//! The input is messages, each behind one byte that says how long it is.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use remuda_tunnel::{
    frame::Frame,
    protocol::{Config, Limits, Protocol, Role, Timing},
};

/// Held to little, so that limits are met.
fn session(role: Role, now: Instant) -> Protocol {
    let limits = Limits { receive: 4 << 10, session_receive: 8 << 10, connections: 4, ..Limits::default() };
    let config = Config {
        role,
        client_key: "c".to_owned(),
        session_key: 1,
        first_message: 1,
        keep_remote_clients: true,
        limits,
        timing: Timing::default(),
    };
    Protocol::new(config, now)
}

fuzz_target!(|data: &[u8]| {
    let start = Instant::now();
    for role in [Role::Client, Role::Server] {
        let mut now = start;
        let mut session = session(role, now);
        let _ = session.open("tcp", "a:1", now);
        let mut rest = data;
        while let Some((length, after)) = rest.split_first() {
            let (message, after) = after.split_at(usize::from(*length).min(after.len()));
            rest = after;
            if let Ok(frame) = Frame::decode(message.to_vec().into()) {
                // Bytes that are no text are replaced by more of them, and what is then too long is cut.
                let _ = Frame::decode(frame.encode());
            }
            now += Duration::from_millis(100);
            let goes_on = session.receive(message.to_vec().into(), now).and_then(|()| session.tick(now)).is_ok();
            assert!(session.unread() <= 8 << 10 && session.connections() <= 4);
            while session.poll_event().is_some() {}
            while session.poll_transmit(now).is_some() {}
            if !goes_on {
                break;
            }
        }
        session.end(true);
        while session.poll_transmit(now).is_some() {}
    }
});
