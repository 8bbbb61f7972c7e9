//! Whoever makes or removes a machine may be killed at any moment; removing it again leaves nothing.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rand::RngExt;
use remuda_sandbox::machines::{Images, NewMachine, Options, Sandbox};

use crate::bench::{Bench, program};

/// Of each storm: there are two, and both run as root and as somebody else.
const ROUNDS: u32 = 20;
const WORK: &str = "REMUDA_SANDBOX_TEST_WORK";
const DATA: &str = "REMUDA_SANDBOX_TEST_DATA";

/// Not a test of its own: the process that the others kill.
#[test]
fn the_process_that_is_killed() {
    let (Some(work), Some(data)) = (std::env::var_os(WORK), std::env::var_os(DATA)) else { return };
    let options = Options {
        data_dir: PathBuf::from(data),
        program: program(),
        images: Images::default(),
        privileged: false,
    };
    let sandbox = Sandbox::new(options);
    if work == "create" {
        let new = NewMachine {
            id: "one-id".into(),
            name: "one".into(),
            user_data: "#!/bin/sh\nsleep 1000\n".into(),
        };
        sandbox.create(&new).unwrap();
    } else {
        sandbox.remove("one-id").unwrap();
    }
}

fn at_work(bench: &Bench, work: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kills::the_process_that_is_killed", "--test-threads", "1"]);
    command.env(WORK, work).env(DATA, OsString::from(&bench.data_dir));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// How long it takes without a kill.
fn undisturbed(bench: &Bench, work: &str) -> Duration {
    let start = Instant::now();
    assert!(at_work(bench, work).wait().unwrap().success(), "{}", bench.console());
    start.elapsed()
}

/// Kills a process of the machine or the hub, whichever comes first.
fn kill_any(bench: &Bench) {
    let processes = bench.processes();
    if processes.is_empty() {
        return;
    }
    let line = &processes[rand::rng().random_range(0..processes.len())];
    let pid = line.split(' ').next().unwrap().parse().unwrap();
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
}

fn storm(work: &str, prepare: impl Fn(&Bench)) {
    let Some(bench) = Bench::new() else { return };
    prepare(&bench);
    let whole = undisturbed(&bench, work);
    bench.sandbox.remove("one-id").unwrap();
    bench.assert_clean();
    for round in 0..ROUNDS {
        prepare(&bench);
        let mut child = at_work(&bench, work);
        std::thread::sleep(whole.mul_f64(rand::rng().random_range(0.0..1.1)));
        if round % 3 == 0 {
            kill_any(&bench);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 5 == 1 && work == "create" {
            // What was interrupted can be continued as well.
            bench.create("one", "#!/bin/sh\nsleep 1000\n");
        }
        if let Err(error) = bench.sandbox.remove("one-id") {
            panic!("round {round}: {error:?}\n{}", bench.console());
        }
        bench.assert_clean();
    }
}

#[test]
fn a_kill_while_a_machine_is_made_leaves_nothing_after_its_removal() {
    storm("create", |_| {});
}

#[test]
fn a_kill_while_a_machine_is_removed_leaves_nothing_after_the_next_removal() {
    storm("remove", |bench| drop(bench.create("one", "#!/bin/sh\nsleep 1000\n")));
}

#[test]
fn machines_come_and_go_side_by_side() {
    let Some(bench) = Bench::new() else { return };
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            let bench = &bench;
            scope.spawn(move || {
                for _ in 0..6 {
                    bench.create(name, "");
                    assert_eq!(bench.text(name, "hostname"), name);
                    bench.sandbox.remove(&format!("{name}-id")).unwrap();
                }
            });
        }
    });
    bench.assert_clean();
}
