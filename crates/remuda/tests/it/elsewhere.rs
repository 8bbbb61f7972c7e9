//! A server that is lost is restored on another host, while the machines of its clusters live on.

use std::{collections::BTreeSet, fs, net::TcpListener, thread, time::Duration};

use kube::Api;
use remuda_api::management::Setting;
use remuda_sandbox::{machines::Sandbox, server::ServerAddress};

use crate::lab::{Lab, NEW, belongs};

const URL: &str = "https://remuda.test:8443";

/// What runs for nodes in the machines of a laboratory, by process and when that began.
pub(crate) fn running(lab: &Lab) -> BTreeSet<(i32, String, String)> {
    let machines = lab.place.data().display().to_string();
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.filter_map(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let is_nodes = line.contains("k3s ") || line.contains("sentinel") || line.contains(" agent ");
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let began = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
        (is_nodes && belongs(pid, &machines)).then_some((pid, began, line))
    });
    found.collect()
}

#[test]
fn a_server_restored_elsewhere_takes_over_living_machines_without_touching_a_plan() {
    let Some(mut lab) = Lab::open_with(None, &["--advertise", "remuda.test:8443"]) else { return };
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 1 --wait --timeout 120s"));
    let backup = lab.place.join("remuda.backup");
    lab.run(&format!("backup --output {}", backup.display()));
    let (plans, processes, machines) = (lab.plans(), running(&lab), lab.machines());
    assert!(plans.len() == 2 && plans.iter().all(|(_, plan)| plan.is_some()), "{plans:?}");
    assert!(processes.len() >= 4, "an agent and a node on each machine: {processes:?}");
    lab.kill_server();

    // Another host: another directory, address and port, and nothing said of the name agents know.
    let elsewhere = lab.place.join("elsewhere");
    let mut restore = lab.command(&["restore"]);
    assert!(restore.arg(&backup).arg("--data-dir").arg(&elsewhere).status().unwrap().success());
    let port = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.2:{port}");
    lab.move_to(elsewhere, address.clone(), &[]);
    lab.start();
    // The name leads to the new host.
    let leads_to = ServerAddress { url: URL.to_owned(), connect: Some(address) };
    Sandbox::publish_server(&lab.place.data(), &leads_to).unwrap();

    lab.until("the cluster is connected again", Duration::from_secs(60), || lab.say("why demo").0 == 0);
    let settings: Api<Setting> = Api::all(lab.client());
    let url = lab.runtime.block_on(settings.get("server-url")).unwrap();
    assert_eq!(url.effective(), URL, "agents know no other");
    for _ in 0..20 {
        assert_eq!(lab.plans(), plans);
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(lab.machines(), machines);
    assert_eq!(running(&lab), processes, "nothing was started again");
    // The agents of the nodes are back, too: they do what they are asked.
    lab.run("snapshot create demo --wait --timeout 90s");
    lab.until("the cluster is ready", Duration::from_secs(60), || lab.say("why demo").0 == 0);
    assert_eq!(running(&lab), processes);
}
