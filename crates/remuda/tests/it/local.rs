//! Clusters on machines of this host, from the first object to the last process.
//!
//! Everything here is real: the program as server, job, agent, node and cluster agent, and machines made of
//! namespaces. Where the host allows none, the tests say so and do nothing.

use std::{fs, process::Command, thread, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use remuda_sandbox::machines::NewMachine;
use serde_json::json;

use crate::{
    client::client_with,
    harness::skipped,
    lab::{Lab, NEW, OLD, belongs, processes, versions},
};

/// Somebody who may nothing in particular.
const NOBODY: u32 = 65_534;

fn whole_life(user: Option<u32>) {
    let Some(mut lab) = Lab::open(user) else { return };
    lab.run(&format!("cluster create demo --version {OLD} --servers 1 --workers 2 --wait --timeout 120s"));
    assert_eq!(versions(&lab.nodes("demo")), [OLD; 3]);

    // Another server takes over where this one was killed, and has nothing to say to the nodes.
    let (machines, plans) = (lab.machines(), lab.plans());
    lab.kill_server();
    lab.start();
    lab.until("the cluster is ready again", Duration::from_secs(60), || {
        lab.say("why demo").0 == 0 && lab.say("get kubeconfig demo").0 == 0
    });
    thread::sleep(Duration::from_secs(3));
    assert_eq!(lab.plans(), plans);

    // A setting and a version reach the machines that are there.
    lab.change(
        "demo",
        &json!({"spec": {"rkeConfig": {"machineGlobalConfig": {"write-kubeconfig-mode": "0644"}}}}),
    );
    lab.until("all plans have the setting", Duration::from_secs(60), || {
        lab.plans().iter().all(|(_, plan)| plan.as_ref().is_some_and(|plan| !plan.is_empty()))
            && lab.plans() != plans
    });
    lab.until("the cluster is ready", Duration::from_secs(60), || lab.say("why demo").0 == 0);
    lab.run(&format!("cluster upgrade demo --version {NEW} --wait --timeout 120s"));
    assert_eq!(versions(&lab.nodes("demo")), [NEW; 3]);
    assert_eq!(lab.machines(), machines, "nothing was replaced");

    lab.run("cluster scale demo workers=1 --wait --timeout 60s");
    assert_eq!(lab.nodes("demo").len(), 2);
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.check_nothing_left();
    // Told again it has nothing to do.
    lab.run("cluster delete --yes demo --wait");
}

#[test]
fn a_cluster_comes_changes_in_place_and_goes() {
    whole_life(None);
}

#[test]
fn it_does_so_without_root() {
    if nix::unistd::geteuid().is_root() {
        whole_life(Some(NOBODY));
    }
}

#[test]
fn servers_that_exist_register_themselves() {
    let Some(lab) = Lab::open(None) else { return };
    lab.run(&format!("cluster create edge --custom --version {NEW}"));
    lab.until("there is a command", Duration::from_secs(20), || {
        lab.say("cluster registration-command edge").0 == 0
    });
    let sandbox = lab.sandbox();
    for (name, role) in [("edge-a", "--role all"), ("edge-b", "--role worker --label rack=r2")] {
        let command = lab.run(&format!("cluster registration-command edge {role} --node-name {name}"));
        let command = command.lines().find(|line| line.contains("curl")).unwrap().replace("sudo ", "");
        let user_data = format!(
            "#!/bin/sh\nexport CATTLE_AGENT_BINARY_LOCAL=true\n\
             export CATTLE_AGENT_BINARY_LOCAL_LOCATION=/opt/remuda/remuda\n{command}\n"
        );
        if Command::new("curl").arg("--version").output().is_err() {
            skipped("there is no curl: registering a server by its command");
            return;
        }
        sandbox.create(&NewMachine { id: name.to_owned(), name: name.to_owned(), user_data }).unwrap();
    }
    preload(&lab);
    lab.until("the cluster is ready", Duration::from_secs(120), || lab.say("why edge").0 == 0);
    lab.until("both are nodes", Duration::from_secs(30), || {
        let nodes = lab.nodes("edge");
        nodes.iter().map(|(name, _, ready)| (name.as_str(), *ready)).collect::<Vec<_>>()
            == [("edge-a", true), ("edge-b", true)]
    });

    // One that is removed is left as it came, and stays out.
    let machines = lab.objects("cluster.x-k8s.io", "v1beta2", "Machine");
    let removed =
        machines.iter().find(|machine| machine.data["status"]["nodeRef"]["name"] == "edge-b").unwrap();
    let (removed, id) = (removed.name_any(), removed.labels()["rke.cattle.io/machine-id"].clone());
    let on = |script: &str| {
        let words = ["sh", "-c", script].map(str::to_owned);
        sandbox.enter("edge-b", &words).unwrap().output().unwrap().status.success()
    };
    assert!(on("test -x /usr/local/bin/k3s && test -s /etc/rancher/agent/cattle-id"));
    lab.run(&format!("machine delete {removed} --yes --wait --timeout 120s"));
    assert!(on(
        "! test -e /usr/local/bin/k3s && ! test -e /var/lib/rancher/k3s && ! test -e /etc/rancher/k3s"
    ));
    lab.until("the agent is gone too", Duration::from_secs(60), || {
        on("! test -e /usr/local/bin/rancher-system-agent && ! test -e /etc/rancher/agent && ! test -e /var/lib/rancher/agent")
    });
    let command = lab.run("cluster registration-command edge --role worker --node-name edge-b");
    let token = command.split_whitespace().skip_while(|word| *word != "--token").nth(1).unwrap().to_owned();
    let answer = Command::new("curl")
        .args(["-sk", "-o", "/dev/stderr", "-w", "%{http_code}"])
        .args(["-H", &format!("Authorization: Bearer {token}"), "-H", &format!("X-Cattle-Id: {id}")])
        .args(["-H", "X-Cattle-Role-Worker: true", &format!("https://{}/v3/connect/agent", lab.bind)])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "409", "{said}");
    assert!(said.contains("was removed from cluster edge"), "{said}");

    lab.run("cluster delete --yes edge --wait --timeout 60s");
    sandbox.remove_all().unwrap();
    lab.check_nothing_left();
}

/// Machines that Remuda did not make have no installer of the sandbox distribution, unless somebody puts it there.
fn preload(lab: &Lab) {
    let images = lab.data().join("sandbox/images");
    let image = remuda_sandbox_distro::installer::image(
        remuda_sandbox_distro::Distribution::K3s,
        NEW,
        "/opt/remuda/remuda",
    );
    fs::write(images.join("k3s.tar"), image).unwrap();
}

#[test]
fn the_server_that_began_a_cluster_can_be_replaced() {
    if Command::new("etcd").arg("--version").output().is_err() {
        skipped("there is no etcd in PATH (Debian: etcd-server): replacing the first server of three");
        return;
    }
    let Some(lab) = Lab::open(None) else { return };
    lab.run("cluster create ha --servers 3 --workers 0 --wait --timeout 120s");
    let first = lab.runtime.block_on(async {
        let path = lab.data().join("admin.kubeconfig");
        let secrets: Api<Secret> = Api::namespaced(client_with(&path, |_| {}).await, "fleet-default");
        let only = ListParams::default().labels("rke.cattle.io/init-node=true");
        let found = secrets.list(&only).await.unwrap().items;
        found[0].labels()["rke.cattle.io/machine-name"].clone()
    });
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
    let machines: Api<DynamicObject> = Api::namespaced_with(lab.client(), "fleet-default", &resource);
    lab.runtime.block_on(machines.delete(&first, &Default::default())).unwrap();
    lab.until("another has taken its place", Duration::from_secs(120), || {
        let machines = lab.machines();
        machines.len() == 3 && !machines.contains(&first) && lab.say("why ha").0 == 0
    });
    let nodes = lab.nodes("ha");
    assert!(nodes.len() == 3 && nodes.iter().all(|(name, _, ready)| *ready && *name != first), "{nodes:?}");
    lab.run("cluster delete --yes ha --wait --timeout 60s");
    lab.check_nothing_left();
}

#[test]
fn a_part_of_a_cluster_is_not_deleted_by_mistake_and_a_machine_is_replaced_once() {
    let Some(lab) = Lab::open(None) else { return };
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 1 --wait --timeout 120s"));
    let before = lab.machines();
    let api = |group: &str, version: &str, kind: &str| -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(lab.client(), "fleet-default", &resource)
    };
    let command = "kubectl -n fleet-default delete clusters.provisioning.cattle.io demo";
    let pool = "kubectl -n fleet-default edit clusters.provisioning.cattle.io demo";
    for (group, version, kind, name, meant) in [
        ("cluster.x-k8s.io", "v1beta2", "Cluster", "demo", command),
        ("cluster.x-k8s.io", "v1beta1", "Cluster", "demo", command),
        ("rke.cattle.io", "v1", "RKECluster", "demo", command),
        ("rke.cattle.io", "v1", "RKEControlPlane", "demo", command),
        ("cluster.x-k8s.io", "v1beta2", "MachineDeployment", "demo-workers", pool),
    ] {
        let refused = lab.runtime.block_on(api(group, version, kind).delete(name, &Default::default()));
        let Err(kube::Error::Api(status)) = refused else { panic!("{kind}: {refused:?}") };
        assert_eq!(status.code, 403, "{kind}: {}", status.message);
        assert!(status.message.contains(meant), "{kind}: {}", status.message);
    }
    assert_eq!(lab.machines(), before);
    assert_eq!(lab.say("why demo").0, 0);

    let worker = before.iter().find(|name| name.contains("-workers-")).unwrap();
    let machines = api("cluster.x-k8s.io", "v1beta2", "Machine");
    lab.runtime.block_on(machines.delete(worker, &Default::default())).unwrap();
    lab.until("another has taken its place", Duration::from_secs(120), || {
        let machines = lab.machines();
        machines.len() == 2 && !machines.contains(worker) && lab.say("why demo").0 == 0
    });
    assert_eq!(versions(&lab.nodes("demo")), [NEW; 2]);
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.check_nothing_left();
}

/// Kills the server, a job or an agent somewhere below it.
fn kill_one(lab: &mut Lab, dice: &mut u64) {
    *dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let choice = *dice >> 33;
    if choice.is_multiple_of(3) {
        lab.kill_server();
        lab.start();
        return;
    }
    let wanted = if choice % 3 == 1 { " machine --driver-" } else { "rancher-system-agent sentinel" };
    let data = lab.data().display().to_string();
    let mut found: Vec<i32> = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(wanted) && belongs(pid, &data) {
            found.push(pid);
        }
    }
    if let Some(pid) = found.get((choice as usize / 3) % found.len().max(1)) {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
}

#[test]
fn killed_anywhere_it_comes_to_the_same_end() {
    let Some(mut lab) = Lab::open(None) else { return };
    let mut dice = 42;
    let mut kills = 0;
    let mut disturb = |lab: &mut Lab, times: u32| {
        for _ in 0..times {
            thread::sleep(Duration::from_millis(150 + dice % 400));
            kill_one(lab, &mut dice);
            kills += 1;
        }
    };
    lab.run(&format!("cluster create demo --version {OLD} --servers 1 --workers 2"));
    disturb(&mut lab, 20);
    lab.until("the cluster is ready", Duration::from_secs(180), || lab.say("why demo").0 == 0);
    assert_eq!(versions(&lab.nodes("demo")), [OLD; 3]);
    assert_eq!(lab.machines().len(), 3);
    lab.run(&format!("cluster upgrade demo --version {NEW}"));
    disturb(&mut lab, 15);
    lab.until("the cluster has the version", Duration::from_secs(180), || {
        lab.say("why demo").0 == 0 && versions(&lab.nodes("demo")) == [NEW; 3]
    });
    assert_eq!(lab.machines().len(), 3);
    lab.run("cluster delete --yes demo");
    disturb(&mut lab, 15);
    lab.run("cluster delete --yes demo --wait --timeout 120s");
    lab.until("the cluster is gone", Duration::from_secs(120), || {
        lab.objects("provisioning.cattle.io", "v1", "Cluster").is_empty()
    });
    lab.check_nothing_left();
    assert_eq!(kills, 50);
}

#[test]
fn up_and_down() {
    let Some(mut lab) = Lab::open(None) else { return };
    lab.kill_server();
    let data = lab.data();
    let mut up =
        lab.command(&["up", "--bind", &lab.bind, "--exit-when-ready", "--timeout", "120", "--data-dir"]);
    let output = up.arg(&data).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("kubectl get nodes"), "{text}");
    assert!(data.join("demo.kubeconfig").exists());
    // It goes on where it was.
    let mut up = lab.command(&["up", "--bind", &lab.bind, "--exit-when-ready", "--data-dir"]);
    let output = up.arg(&data).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Nobody is asked here, so nothing is deleted without a word.
    assert_eq!(lab.say("down").0, 2);
    let (code, text) = lab.say("down --yes");
    assert_eq!(code, 0, "{text}");
    assert!(!data.exists(), "{}", data.display());
    assert!(processes(&data.display().to_string()).is_empty());
    assert_eq!(lab.say("down --yes").0, 0);
}
