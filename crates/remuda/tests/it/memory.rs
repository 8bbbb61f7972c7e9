//! The memory of processes that hold keys.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
};

use nix::{
    sys::signal::Signal,
    unistd::{geteuid, getuid},
};

use crate::harness::{Place, Server};

/// A user that owns nothing else.
const SOMEBODY: u32 = 54_321;

fn limits(pid: u32) -> Vec<String> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
    line.split_whitespace().take(2).map(str::to_owned).collect()
}

#[test]
fn a_server_leaves_no_core_and_shows_its_memory_to_no_other_process() {
    let place = Place::new();
    let program = place.join("remuda");
    fs::copy(env!("CARGO_BIN_EXE_remuda"), &program).unwrap();
    let user = match geteuid().is_root() {
        true => SOMEBODY,
        false => getuid().as_raw(),
    };
    let here = program.parent().unwrap().to_owned();
    chown(&here, Some(user), None).unwrap();
    let server = Server::start_program(&program, &place.data(), &[], |command| {
        // Where a core would go, if there were one.
        command.current_dir(&here).uid(user).gid(user);
    });
    assert_eq!(limits(server.pid()), ["0", "0"]);
    let process = format!("/proc/{}", server.pid());
    let status = fs::read_to_string(format!("{process}/status")).unwrap();
    assert!(status.lines().any(|line| line.starts_with(&format!("Uid:\t{user}\t"))), "{status}");
    // The kernel gives the files of a process that must not be traced to root.
    assert_eq!(fs::metadata(format!("{process}/environ")).unwrap().uid(), 0);
    server.signal(Signal::SIGABRT);
    drop(server);
    let left = fs::read_dir(&here).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    assert!(!left.collect::<Vec<_>>().iter().any(|name| name.starts_with("core")));
}
