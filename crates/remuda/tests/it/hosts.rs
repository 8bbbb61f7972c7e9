//! Two servers on one etcd, and machines that only one of them can reach.

use std::time::Duration;

use crate::{
    etcd::{Etcd, Sharing},
    harness::{Place, Server, remuda},
    lab::{Lab, NEW, processes},
};

const MINUTE: Duration = Duration::from_secs(60);

/// A command at a server, by its data directory.
fn at(server: &Server, line: &str) -> (bool, String) {
    let mut command = remuda();
    command.args(line.split(' ')).arg("--data-dir").arg(&server.data_dir);
    let output = command.env("HOME", server.data_dir.join("home")).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_machine_is_removed_by_the_server_on_whose_host_it_is() {
    let shared = Place::new();
    let Some(etcd) = Etcd::start(&shared.join("etcd")) else { return };
    let sharing = Sharing::new(&shared, &etcd);
    let Some(mut lab) = Lab::open_with(None, &sharing.arguments()) else { return };
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 0 --wait --timeout 120s"));
    let data = lab.data().display().to_string();
    assert!(!processes(&data).is_empty());

    // The server that made the machine is away; another one leads, and is told to delete the cluster.
    lab.kill_server();
    let second = Server::start(&shared.join("second"), &sharing.arguments());
    let (done, text) = at(&second, "cluster delete --yes demo");
    assert!(done, "{text}");
    lab.until("it is told which server is waited for", 2 * MINUTE, || {
        at(&second, "why demo").1.contains("waiting for the server on host")
    });
    // It was not called gone: its processes run, and so does what is known of it.
    assert!(!processes(&data).is_empty());
    let (listed, machines) = at(&second, "machine list");
    assert!(listed && machines.contains("demo-servers-"), "{machines}");

    // Back again it does its part, whichever server leads.
    lab.start();
    let (done, text) = at(&second, "cluster delete --yes demo --wait --timeout 120s");
    assert!(done, "{text}\n{}", second.log());
    lab.check_nothing_left();
}
