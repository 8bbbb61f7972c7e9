//! Clusters on local machines are stopped and started again, and the server is killed in every phase of it.

use std::{fs, thread, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams};
use serde_json::json;

use crate::{
    client::client_with,
    lab::{Lab, NEW},
};

/// The API of a cluster, through the server.
fn inside(lab: &Lab) -> Client {
    let path = lab.place.join("inside.kubeconfig");
    let _ = fs::remove_file(&path);
    fs::write(&path, lab.run("get kubeconfig demo")).unwrap();
    lab.runtime.block_on(client_with(&path, |_| {}))
}

fn phase(lab: &Lab) -> String {
    let control_planes = lab.objects("rke.cattle.io", "v1", "RKEControlPlane");
    control_planes[0].data["status"]["hibernation"]["phase"].as_str().unwrap_or_default().to_owned()
}

/// What is noted of the power of the servers.
fn powers(lab: &Lab) -> Vec<String> {
    let servers = lab.objects("rke-machine.cattle.io", "v1", "LocalMachine");
    let power = |server: &kube::api::DynamicObject| {
        let annotations = server.metadata.annotations.as_ref()?;
        annotations.get("remuda.io/power").cloned()
    };
    servers.iter().map(|server| power(server).unwrap_or_default()).collect()
}

/// Kills the server in each of these phases it is seen in, and says in which.
fn kill_in(lab: &mut Lab, phases: &[&str], end: &str) -> Vec<String> {
    let mut killed = Vec::new();
    for wanted in phases {
        for _ in 0..3000 {
            let now = phase(lab);
            if now == *wanted {
                lab.kill_server();
                lab.start();
                killed.push(now);
                break;
            }
            // It came further meanwhile, or to its end.
            let place = |name: &str| phases.iter().position(|known| *known == name);
            if now == end || place(&now) > place(wanted) {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
    killed
}

fn wake(lab: &Lab) {
    lab.run("cluster wake demo --wait --timeout 240s");
    lab.until("all nodes are ready", Duration::from_secs(60), || {
        let nodes = lab.nodes("demo");
        nodes.len() == 2 && nodes.iter().all(|(_, _, ready)| *ready)
    });
}

#[test]
fn a_cluster_is_stopped_and_started_whatever_becomes_of_the_server() {
    let Some(mut lab) = Lab::open(None) else { return };
    lab.run("cluster create edge --custom");
    let (code, said) = lab.say("cluster hibernate edge --yes");
    assert!(code != 0 && said.contains("servers that registered themselves have no driver"), "{said}");
    lab.run("cluster delete --yes edge --wait --timeout 60s");

    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 1 --wait --timeout 120s"));
    let maps: Api<ConfigMap> = Api::default_namespaced(inside(&lab));
    let kept: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "kept"}})).unwrap();
    lab.runtime.block_on(maps.create(&PostParams::default(), &kept)).unwrap();
    let machines = lab.machines();
    let (code, said) = lab.say("cluster hibernate demo");
    assert!(code != 0 && said.contains("--yes"), "it asks: {said}");

    lab.run("cluster hibernate demo --yes");
    let phases = ["Snapshot", "SnapshotRestart", "StopWorkers", "StopControlPlane", "StopEtcd"];
    let killed = kill_in(&mut lab, &phases, "Hibernated");
    assert!(killed.iter().any(|phase| phase == "StopWorkers"), "{killed:?}");
    lab.until("it is hibernated", Duration::from_secs(120), || phase(&lab) == "Hibernated");
    lab.until("it says so", Duration::from_secs(10), || {
        lab.run("cluster list").contains("Hibernated")
            && lab.say("why demo").1.contains("is hibernated since")
    });
    lab.until("both servers are stopped", Duration::from_secs(10), || powers(&lab) == ["stopped", "stopped"]);
    assert!(lab.run("snapshot list demo").contains("on-demand"), "one was taken before");
    let plans = lab.plans();

    // A server that starts again leaves it as it is, and so does everything that would replace a machine.
    lab.kill_server();
    lab.start();
    lab.until("the server knows it", Duration::from_secs(30), || {
        lab.say("why demo").1.contains("hibernated since")
    });
    thread::sleep(Duration::from_secs(5));
    assert_eq!(
        (phase(&lab).as_str(), lab.machines(), lab.plans()),
        ("Hibernated", machines.clone(), plans.clone())
    );

    lab.run("cluster wake demo");
    let phases = ["StartEtcd", "StartControlPlane", "ConfirmServers", "StartWorkers", "ConfirmWorkers"];
    let killed = kill_in(&mut lab, &phases, "");
    assert!(killed.iter().any(|phase| phase == "StartEtcd"), "{killed:?}");
    wake(&lab);
    assert_eq!((lab.machines(), lab.plans()), (machines, plans), "nothing was replaced, no plan changed");
    let maps: Api<ConfigMap> = Api::default_namespaced(inside(&lab));
    assert!(lab.runtime.block_on(maps.get_opt("kept")).unwrap().is_some());

    // An end is told, moved and taken off.
    lab.run("cluster expire demo --in 2d");
    lab.until("its end is told", Duration::from_secs(10), || lab.say("why demo").1.contains("is deleted at"));
    lab.run("cluster expire demo --never");
    lab.until("it has none", Duration::from_secs(10), || !lab.say("why demo").1.contains("is deleted at"));

    // By schedule, within the next minute; and what sleeps can be deleted.
    let (code, said) =
        lab.tell(&["cluster", "hibernate", "demo", "--no-snapshot", "--schedule", "* * * * *"]);
    assert_eq!(code, 0, "{said}");
    lab.until("it is hibernated by its schedule", Duration::from_secs(150), || phase(&lab) == "Hibernated");
    lab.run("cluster delete --yes demo --wait --timeout 90s");
    lab.check_nothing_left();
}
