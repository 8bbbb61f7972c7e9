//! What machines of root can do to their host: nothing, unless that is asked for.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

use remuda_sandbox::machines::MachineState;

use crate::bench::{Bench, eventually, walk};

/// `None`, and loudly so, for who is not root.
fn root(bench: Option<Bench>) -> Option<Bench> {
    if nix::unistd::geteuid().is_root() {
        return bench;
    }
    eprintln!("\n*** SKIPPED: only root's machines have other users\n");
    None
}

/// A field of a process's status, as the host sees it.
fn status(pid: i32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn root_of_a_machine_is_nobody_on_the_host() {
    let Some(bench) = root(Bench::new()) else { return };
    let host_pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    // Its user data is the first thing that runs as root there.
    let machine = bench.create(
        "one",
        "#!/bin/sh\nid -u > /root/who\necho '|/bin/x' > /proc/sys/kernel/core_pattern && echo yes > /root/pattern\n\
         mknod /root/disk b 7 0 && echo yes > /root/mknod\nexec sleep 1000\n",
    );
    eventually("the user data", || bench.run("one", "pgrep sleep").status.success());
    assert_eq!(bench.text("one", "cat /root/who; id -u; ls /root"), "0\n0\nwho");
    assert_eq!(fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), host_pattern);
    let map = bench.text("one", "cat /proc/self/uid_map");
    let map: Vec<u32> = map.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let first = map[1];
    assert_eq!(map, [0, first, 65536]);
    assert!(first >= 0x7000_0000);
    for process in bench.processes().iter().filter(|line| line.contains("sleep") || line.contains(" init ")) {
        let pid = process.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(status(pid, "Uid:"), first.to_string(), "{process}");
    }
    assert_eq!(status(machine.pid.unwrap(), "Uid:"), first.to_string());
    // Nor does it have what concerns the kernel: modules, raw devices, the clock.
    let bounding = u64::from_str_radix(&status(machine.pid.unwrap(), "CapBnd:"), 16).unwrap();
    for capability in [16, 17, 25, 27] {
        assert_eq!(bounding & (1 << capability), 0, "capability {capability} of {bounding:x}");
    }
    for attempt in [
        "echo x > /proc/sys/kernel/core_pattern",
        "echo x > /proc/sysrq-trigger",
        "mknod /tmp/disk b 7 0",
        "mknod /tmp/memory c 1 1",
        "mount -t ext4 /dev/root /mnt",
        "cat /dev/kmsg",
        "test -e /dev/fuse",
        "mount -o remount,rw /usr && touch /usr/x",
    ] {
        let output = bench.run("one", attempt);
        assert!(!output.status.success(), "{attempt}");
    }
    // A file of the host's root that the machine can see is still not its own.
    for (name, mode) in [("closed.tar", 0o600), ("open.tar", 0o644)] {
        let path = bench.data_dir.join("sandbox/preloaded").join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(bench.text("one", "cat /run/remuda/preloaded/open.tar"), "open.tar");
    let attempts = [
        "cat /run/remuda/preloaded/closed.tar",
        "chmod 666 /run/remuda/preloaded/closed.tar",
        &format!("cat /proc/1/root{}/sandbox/preloaded/closed.tar", bench.data_dir.display()),
    ];
    for attempt in attempts {
        assert!(!bench.run("one", attempt).status.success(), "{attempt}");
    }
    // Users inside are as on any host, and those of two machines are not the same.
    assert_eq!(bench.text("one", "touch /root/x && chown 1000:1000 /root/x && stat -c %u /root/x"), "1000");
    let two = bench.create("two", "");
    let other: u32 = status(two.pid.unwrap(), "Uid:").parse().unwrap();
    assert!(first.abs_diff(other) >= 65536);
    for name in ["one-id", "two-id"] {
        bench.sandbox.remove(name).unwrap();
    }
    let _ = fs::remove_dir_all(bench.data_dir.join("sandbox/preloaded"));
}

#[test]
fn whoever_asks_for_it_gets_machines_that_are_the_hosts() {
    let Some(bench) = root(Bench::privileged()) else { return };
    let machine = bench.create("one", "");
    assert_eq!(status(machine.pid.unwrap(), "Uid:"), "0");
    // The kernel's settings are the machine's own all the same.
    let setting = "/proc/sys/kernel/panic";
    let host = fs::read_to_string(setting).unwrap();
    assert_eq!(bench.text("one", &format!("echo 17 > {setting}; cat {setting}")), "17");
    assert_eq!(fs::read_to_string(setting).unwrap(), host);

    // A machine stays what it is, whatever new ones are.
    bench.text("one", "echo kept > /etc/kept");
    bench.sandbox.stop("one-id").unwrap();
    let bench = bench.isolating();
    bench.sandbox.start("one-id").unwrap();
    let again = bench.sandbox.get("one-id").unwrap();
    assert_eq!(again.state, MachineState::Running);
    assert_eq!(status(again.pid.unwrap(), "Uid:"), "0");
    assert_eq!(bench.text("one", "cat /etc/kept"), "kept");
    // And new ones share its network.
    let two = bench.create("two", "");
    assert_ne!(status(two.pid.unwrap(), "Uid:"), "0");
    let refused = bench.run("two", "timeout 5 bash -c 'exec 3<>/dev/tcp/one/9'");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("refused"));
    bench.sandbox.remove_all().unwrap();
    bench.assert_clean();
}

#[test]
fn links_of_a_machine_lead_nobody_to_files_of_the_host() {
    let Some(bench) = root(Bench::new()) else { return };
    bench.create("one", "");
    bench.sandbox.stop("one-id").unwrap();
    let root = bench.data_dir.join("sandbox/machines/one-id/root");
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("hosts"), "of the host").unwrap();
    fs::write(outside.path().join("cloud-init-output.log"), "of the host").unwrap();
    // What a machine can do to its own directories.
    for dir in ["etc", "var/log"] {
        fs::rename(root.join(dir), root.join(format!("{dir}.old"))).unwrap();
        symlink(outside.path(), root.join(dir)).unwrap();
    }
    bench.create("two", "");
    assert_eq!(fs::read_to_string(outside.path().join("hosts")).unwrap(), "of the host");
    assert_eq!(walk(outside.path()).len(), 2);
    assert_eq!(bench.sandbox.boot_log("one-id").unwrap(), "");
    bench.sandbox.remove_all().unwrap();
    assert_eq!(walk(outside.path()).len(), 2);
    bench.assert_clean();
}
