//! What a machine is, and its way from the first start to its removal.

use std::{
    io::{Read, Write},
    net::TcpListener,
};

use remuda_sandbox::{
    error::Error,
    machines::{MachineState, Sandbox},
    server::ServerAddress,
};

use crate::bench::{Bench, eventually};

#[test]
fn a_machine_is_a_host_of_its_own() {
    let Some(bench) = Bench::new() else { return };
    let machine = bench.create("one", "");
    assert_eq!(machine.state, MachineState::Running);
    assert_eq!(bench.text("one", "hostname; id -u; cat /proc/1/comm | head -c 6"), "one\n0\nremuda");
    let address = bench.text("one", "cat /proc/net/fib_trie");
    assert!(address.contains(&machine.address.to_string()), "{address}");
    // Its own directories are writable, the host's programs are not.
    bench.text("one", "for d in etc var opt root tmp run usr/local srv home; do touch /$d/x || exit 1; done");
    assert!(!bench.run("one", "touch /usr/bin/x 2>/dev/null").status.success());
    assert!(!std::path::Path::new("/etc/x").exists());
    if std::path::Path::new("/etc/ssl/certs").is_dir() {
        let count = "ls /etc/ssl/certs | wc -l";
        let host = std::process::Command::new("sh").args(["-c", count]).output().unwrap().stdout;
        assert_eq!(bench.text("one", count), String::from_utf8_lossy(&host).trim());
        bench.text("one", "echo mine > /etc/ssl/certs/mine.pem && rm -r /etc/ssl/certs/mine.pem");
    }
    // The host's processes and files are out of sight.
    let processes: u32 = bench.text("one", "ls -d /proc/[0-9]* | wc -l").parse().unwrap();
    assert!(processes < 10, "{processes}");
    assert!(!bench.run("one", &format!("test -e {}", bench.data_dir.display())).status.success());
    assert_eq!(
        bench.text("one", "grep -c root: /etc/passwd; test -x /opt/remuda/remuda && echo there"),
        "1\nthere"
    );
    assert_eq!(
        bench.text("one", "echo x > /dev/null; head -c 3 /dev/zero | wc -c; test -c /dev/ptmx && echo pty"),
        "3\npty"
    );
    assert_eq!(bench.run("one", "exit 7").status.code(), Some(7));
    // Making it again changes nothing.
    assert_eq!(bench.create("one", "").pid, machine.pid);
    bench.sandbox.remove("one-id").unwrap();
    bench.assert_clean();
    bench.sandbox.remove("one-id").unwrap();
    assert!(matches!(bench.sandbox.get("one-id"), Err(Error::NotFound(_))));
}

#[test]
fn machines_have_control_groups_of_their_own() {
    let Some(bench) = Bench::new() else { return };
    if !nix::unistd::geteuid().is_root() {
        eprintln!("\n*** SKIPPED: only root's machines have control groups of their own\n");
        return;
    }
    let machine = bench.create("one", "");
    let own = std::fs::read_to_string(format!("/proc/{}/cgroup", machine.pid.unwrap())).unwrap();
    let name = own.split(['/', '\n']).find(|part| part.starts_with("one-id-")).unwrap().to_owned();
    bench.create("two", "");
    // The groups a kubelet makes have the same name on every machine.
    let groups = "for d in /sys/fs/cgroup $(find /sys/fs/cgroup -maxdepth 1 -mindepth 1 -type d); do \
                  test -e $d/cgroup.procs && ls -d $d; done | grep -v 'init.scope$'";
    let one = bench.text("one", groups);
    assert!(!one.is_empty());
    for group in one.lines() {
        bench.text("one", &format!("mkdir {group}/kubepods"));
        assert!(!bench.run("two", &format!("test -e {group}/kubepods")).status.success(), "{group}");
        assert!(!std::path::Path::new(group).join("kubepods").exists(), "{group} is the host's");
    }
    for name in ["one-id", "two-id"] {
        bench.sandbox.remove(name).unwrap();
    }
    bench.assert_clean();
    let left = std::process::Command::new("find").args(["/sys/fs/cgroup", "-name", &name]).output();
    assert_eq!(String::from_utf8_lossy(&left.unwrap().stdout), "");
}

#[test]
fn machines_reach_each_other_by_address_and_by_name() {
    let Some(bench) = Bench::new() else { return };
    let one = bench.create("one", "");
    let two = bench.create("two", "");
    assert_ne!(one.address, two.address);
    assert_eq!(bench.text("one", "grep -w two /etc/hosts"), format!("{} two", two.address));
    // A connection to a closed port is refused by the other machine, which an unreachable one could not do.
    let refused = |from: &str, to: &str| {
        let script = format!("timeout 5 bash -c 'exec 3<>/dev/tcp/{to}/9'");
        let output = bench.run(from, &script);
        String::from_utf8_lossy(&output.stderr).contains("refused")
    };
    assert!(refused("one", "two") && refused("two", &one.address.to_string()));
    bench.sandbox.remove("two-id").unwrap();
    assert!(!bench.run("one", "grep -w two /etc/hosts").status.success());
    assert_eq!(bench.sandbox.list().unwrap().len(), 1);
}

#[test]
fn a_stopped_machine_keeps_its_files_and_starts_again() {
    let Some(bench) = Bench::new() else { return };
    let before = bench.create("one", "");
    bench.text("one", "echo kept > /etc/kept; mkdir /data; echo data > /data/kept; echo gone > /run/gone");
    bench.sandbox.stop("one-id").unwrap();
    assert_eq!(bench.sandbox.get("one-id").unwrap().state, MachineState::Stopped);
    assert!(matches!(bench.sandbox.enter("one", &[]), Err(Error::NotRunning(_))));
    bench.sandbox.resume().unwrap();
    assert_eq!(bench.sandbox.get("one-id").unwrap().state, MachineState::Stopped, "stopped on purpose");
    bench.sandbox.start("one-id").unwrap();
    assert_eq!(
        bench.text("one", "cat /etc/kept /data/kept; test -e /run/gone || echo fresh"),
        "kept\ndata\nfresh"
    );
    assert_eq!(bench.sandbox.get("one-id").unwrap().address, before.address);
    bench.sandbox.kill("one-id").unwrap();
    bench.sandbox.restart("one-id").unwrap();
    assert_eq!(bench.sandbox.get("one-id").unwrap().state, MachineState::Running);
}

#[test]
fn after_a_restart_of_the_host_machines_come_back() {
    let Some(bench) = Bench::new() else { return };
    bench.create("one", "");
    bench.create("two", "");
    // All processes go at once, with no chance to say anything.
    for line in bench.processes() {
        let pid = line.split(' ').next().unwrap().parse().unwrap();
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
    eventually("the end of all processes", || bench.processes().is_empty());
    assert_eq!(bench.sandbox.get("one-id").unwrap().state, MachineState::Stopped);
    bench.sandbox.resume().unwrap();
    for machine in bench.sandbox.list().unwrap() {
        assert_eq!(machine.state, MachineState::Running);
        assert_eq!(bench.text(&machine.name, "hostname"), machine.name);
    }
    bench.sandbox.remove_all().unwrap();
    bench.assert_clean();
}

#[test]
fn machines_whose_hub_died_are_seen_and_healed() {
    let Some(bench) = Bench::new() else { return };
    let before = bench.create("one", "");
    let hub = bench.processes().into_iter().find(|line| line.contains(" hub ")).unwrap();
    let pid = hub.split(' ').next().unwrap().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    let state = || bench.sandbox.get("one-id").unwrap().state;
    eventually("the loss of the hub", || state() == MachineState::Disconnected);
    bench.sandbox.resume().unwrap();
    assert_eq!(state(), MachineState::Running);
    assert_ne!(bench.sandbox.get("one-id").unwrap().pid, before.pid);
    bench.sandbox.remove_all().unwrap();
    bench.assert_clean();
}

#[test]
fn the_server_is_reached_at_its_own_url() {
    let Some(bench) = Bench::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 5];
            stream.read_exact(&mut buffer).unwrap();
            stream.write_all(format!("{} back\n", String::from_utf8_lossy(&buffer)).as_bytes()).unwrap();
        }
    });
    let ask = |name: &str, host: &str, port: u16| {
        let script = format!("exec 3<>/dev/tcp/{host}/{port}; printf hello >&3; cat <&3");
        bench.text(name, &format!("bash -c '{script}'"))
    };
    for (name, host, port) in
        [("loop", "127.0.0.1", 8443), ("named", "remuda.example.com", 443), ("foreign", "192.0.2.7", 8443)]
    {
        let url = format!("https://{host}:{port}");
        let server = ServerAddress { url, connect: Some(connect.clone()) };
        Sandbox::publish_server(&bench.data_dir, &server).unwrap();
        bench.create(name, "");
        assert_eq!(ask(name, host, port), "hello back", "{host}");
    }
    // A machine that runs already hears of the server's newer addresses, and knows them when started again.
    let reaches = |name: &str, host: &str, port: u16| {
        let script =
            format!("bash -c 'exec 3<>/dev/tcp/{host}/{port}; printf hello >&3; cat <&3' 2>/dev/null");
        bench.run(name, &script).stdout == b"hello back\n"
    };
    eventually("the news", || reaches("loop", "192.0.2.7", 8443));
    eventually("the news", || reaches("loop", "remuda.example.com", 443));
    bench.sandbox.restart("loop-id").unwrap();
    assert_eq!(ask("loop", "127.0.0.1", 8443), "hello back");
    assert_eq!(ask("loop", "192.0.2.7", 8443), "hello back");
}

#[test]
fn user_data_runs_once_and_its_outcome_is_kept() {
    let Some(bench) = Bench::new() else { return };
    bench.create("one", "#!/bin/sh\necho ran >> /etc/runs\necho $CATTLE_AGENT_BINARY_LOCAL_LOCATION\n");
    let done = || bench.sandbox.find("one").unwrap().bootstrap;
    eventually("the end of the user data", || done().is_some());
    assert_eq!(done().unwrap().errors, Vec::<String>::new());
    let log = std::fs::read_to_string(bench.sandbox.logs("one").unwrap().bootstrap).unwrap();
    assert!(log.contains("/opt/remuda/remuda"), "{log}");
    bench.sandbox.restart("one-id").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(bench.text("one", "cat /etc/runs"), "ran");
    // It is run again if it was interrupted.
    bench.create("three", "#!/bin/sh\necho ran >> /etc/runs\ntest $(wc -l < /etc/runs) = 2 || sleep 1000\n");
    eventually("the user data", || bench.run("three", "test -s /etc/runs").status.success());
    bench.sandbox.kill("three-id").unwrap();
    bench.sandbox.start("three-id").unwrap();
    eventually("the second run", || bench.sandbox.find("three").unwrap().bootstrap.is_some());
    assert_eq!(bench.text("three", "cat /etc/runs"), "ran\nran");
    bench.create("two", "#cloud-config\nhostname: other\nruncmd: [exit 3]\n");
    let failed = || bench.sandbox.find("two").unwrap().bootstrap;
    eventually("the end of the user data", || failed().is_some());
    assert_eq!(failed().unwrap().errors, ["/bin/sh ended with 3"]);
    assert_eq!(bench.text("two", "hostname"), "other");
}
