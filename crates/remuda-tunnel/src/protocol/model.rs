//! Two machines joined by lossless wires, driven at random: what must hold for every order of events.

use std::time::Duration;

use proptest::prelude::*;

use super::{
    tests::{config, events, start},
    *,
};

/// What two users of a tunnel may do.
#[derive(Debug, Clone)]
enum Step {
    Open,
    Write { side: bool, conn: usize, len: usize },
    Read { side: bool, conn: usize, len: usize },
    Close { side: bool, conn: usize },
    Deliver { side: bool, messages: usize },
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::Open),
        4 => (any::<bool>(), 0usize..6, 0usize..40_000).prop_map(|(side, conn, len)| Step::Write { side, conn, len }),
        4 => (any::<bool>(), 0usize..6, 1usize..60_000).prop_map(|(side, conn, len)| Step::Read { side, conn, len }),
        1 => (any::<bool>(), 0usize..6).prop_map(|(side, conn)| Step::Close { side, conn }),
        6 => (any::<bool>(), 1usize..6).prop_map(|(side, messages)| Step::Deliver { side, messages }),
        1 => (0u64..4).prop_map(Step::Wait),
    ]
}

/// One direction of one connection: bytes are a counter, so order and loss show at once.
#[derive(Default, Clone, Copy)]
struct Flow {
    written: usize,
    read: usize,
}

struct World {
    now: Instant,
    machines: [Protocol; 2],
    /// Messages under way to each machine.
    wires: [VecDeque<Transmit>; 2],
    ids: Vec<ConnId>,
    /// By connection and writing side.
    flows: Vec<[Flow; 2]>,
    closed: Vec<[bool; 2]>,
}

impl World {
    fn new() -> Self {
        let now = start();
        let make = |role| {
            let mut config = config(role);
            config.limits =
                Limits { send_buffer: 32 << 10, high_water: 32 << 10, frame: 4 << 10, ..Limits::default() };
            Protocol::new(config, now)
        };
        Self {
            now,
            machines: [make(Role::Server), make(Role::Client)],
            wires: Default::default(),
            ids: Vec::new(),
            flows: Vec::new(),
            closed: Vec::new(),
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Open => {
                if let Ok(id) = self.machines[0].open("tcp", "a:1", self.now) {
                    self.ids.push(id);
                    self.flows.push(Default::default());
                    self.closed.push([false, true]);
                }
            }
            Step::Write { side, conn, len } => self.write(side.into(), conn, len),
            Step::Read { side, conn, len } => _ = self.read(side.into(), conn, len),
            Step::Close { side, conn } => self.close(side.into(), conn),
            Step::Deliver { side, messages } => (0..messages).for_each(|_| self.deliver(side.into())),
            Step::Wait(seconds) => {
                self.now += Duration::from_secs(seconds);
                self.machines.iter_mut().for_each(|machine| {
                    machine.heard(self.now);
                    machine.tick(self.now).unwrap();
                });
            }
        }
        for side in 0..2 {
            while let Some(next) = self.machines[side].poll_transmit(self.now) {
                self.wires[1 - side].push_back(next);
            }
            for event in events(&mut self.machines[side]) {
                if let Event::Connect { conn, .. } = event {
                    let at = self.ids.iter().position(|id| *id == conn).unwrap();
                    self.closed[at][side] = false;
                }
            }
        }
    }

    fn write(&mut self, side: usize, conn: usize, len: usize) {
        let Some(&id) = self.ids.get(conn) else { return };
        if self.closed[conn][side] {
            return;
        }
        let flow = &mut self.flows[conn][side];
        let bytes: Vec<u8> = (0..len).map(|at| (flow.written + at) as u8).collect();
        flow.written += self.machines[side].write(id, &bytes).unwrap_or(0);
    }

    fn read(&mut self, side: usize, conn: usize, len: usize) -> bool {
        let Some(&id) = self.ids.get(conn) else { return false };
        if self.closed[conn][side] {
            return false;
        }
        let flow = &mut self.flows[conn][1 - side];
        match self.machines[side].read(id, len) {
            Read::Data(bytes) => {
                for byte in &bytes {
                    assert_eq!(*byte, flow.read as u8);
                    flow.read += 1;
                }
                assert!(flow.read <= flow.written);
                true
            }
            Read::Nothing => false,
            Read::End(reason) => {
                assert_eq!(reason, Reason::Eof);
                // An orderly end means that everything written before the other side's close arrived,
                // unless this side closed too.
                assert!(flow.read == flow.written || !self.closed[conn][1 - side] || self.closed[conn][side]);
                false
            }
        }
    }

    fn close(&mut self, side: usize, conn: usize) {
        let Some(&id) = self.ids.get(conn) else { return };
        if !std::mem::replace(&mut self.closed[conn][side], true) {
            self.machines[side].detach(id, self.now);
        }
    }

    fn deliver(&mut self, side: usize) {
        match self.wires[side].pop_front() {
            Some(Transmit::Message(bytes)) => self.machines[side].receive(bytes, self.now).unwrap(),
            Some(Transmit::Ping) => self.machines[side].heard(self.now),
            None => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn streams_are_never_mixed_up_reordered_or_leaked(steps in proptest::collection::vec(step(), 1..150)) {
        let mut world = World::new();
        for step in steps {
            world.run(step);
        }
        // Let everything arrive and be read, then close: nothing remains anywhere.
        for _ in 0..200 {
            for side in [false, true] {
                world.run(Step::Deliver { side, messages: 1000 });
                for conn in 0..world.ids.len() {
                    while world.read(side.into(), conn, 1 << 20) {}
                }
            }
            world.run(Step::Wait(0));
        }
        for (flows, closed) in world.flows.iter().zip(&world.closed) {
            if *closed == [false, false] {
                for flow in flows {
                    prop_assert_eq!(flow.read, flow.written);
                }
            }
        }
        for conn in 0..world.ids.len() {
            world.close(0, conn);
            world.close(1, conn);
        }
        for _ in 0..20 {
            world.run(Step::Deliver { side: false, messages: 1000 });
            world.run(Step::Deliver { side: true, messages: 1000 });
        }
        for machine in &world.machines {
            prop_assert_eq!((machine.connections(), machine.unread()), (0, 0));
            prop_assert_eq!(machine.counters().opened, machine.counters().closed);
        }
    }
}
