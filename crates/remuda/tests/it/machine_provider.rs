//! Machines whose driver, server or cluster goes away at a bad moment, and pools with one role each.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use remuda_drivers::fake::{Api as FakeApi, Call, Fake, Reply};
use remuda_sandbox::machines::{Images, Options, Sandbox};
use serde_json::{Value, json};

use crate::{
    client::client_with,
    etcd::{Etcd, Sharing},
    harness::{Place, Server, remuda, skipped},
    lab::{Lab, NEW, processes},
};

fn api(lab: &Lab, group: &str, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(lab.client(), namespace, &resource),
        None => Api::all_with(lab.client(), &resource),
    }
}

fn pool(name: &str, roles: &[&str]) -> Value {
    let mut pool = json!({
        "name": name, "quantity": 1,
        "machineConfigRef": {"kind": "LocalConfig", "name": "nc-split"},
    });
    for role in roles {
        pool[*role] = true.into();
    }
    pool
}

/// Rancher's usual layout of larger clusters, on whatever this host keeps state with.
#[test]
fn pools_may_have_one_role_each() {
    let Some(lab) = Lab::open(None) else { return };
    for version in [NEW, "v1.35.1+rke2r1"] {
        let manifest = json!({"apiVersion": "v1", "kind": "List", "items": [
            {
                "apiVersion": "rke-machine-config.cattle.io/v1", "kind": "LocalConfig",
                "metadata": {"name": "nc-split", "namespace": "fleet-default"},
            },
            {
                "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
                "metadata": {"name": "split", "namespace": "fleet-default"},
                "spec": {"kubernetesVersion": version, "rkeConfig": {"machinePools": [
                    pool("etcd", &["etcdRole"]),
                    pool("control", &["controlPlaneRole"]),
                    pool("work", &["workerRole"]),
                ]}},
            },
        ]});
        let file = lab.place.join("split.json");
        let _ = fs::remove_file(&file);
        fs::write(&file, manifest.to_string()).unwrap();
        lab.run(&format!("cluster create --file {} --wait --timeout 180s", file.display()));
        let nodes = lab.nodes("split");
        assert!(nodes.len() == 3 && nodes.iter().all(|(_, _, ready)| *ready), "{nodes:?}");
        lab.run("cluster delete --yes split --wait --timeout 120s");
        lab.check_nothing_left();
    }
}

/// A driver is taken away and put back, and the same server makes machines with it again.
#[test]
fn a_driver_made_again_makes_machines_again() {
    let Some(lab) = Lab::open(None) else { return };
    let create = format!("cluster create demo --version {NEW} --servers 1 --workers 0 --wait --timeout 120s");
    lab.run(&create);
    let drivers = api(&lab, "management.cattle.io", "v3", "NodeDriver", None);
    let crds = api(&lab, "apiextensions.k8s.io", "v1", "CustomResourceDefinition", None);
    let kinds = || {
        let ours = ListParams::default().labels("remuda.io/driver=local");
        lab.runtime.block_on(crds.list(&ours)).unwrap().items.len()
    };
    let mut driver = lab.runtime.block_on(drivers.get("local")).unwrap();
    lab.runtime.block_on(drivers.delete("local", &DeleteParams::default())).unwrap();

    // Its kinds stay for the cluster that uses them, and go with it.
    let events = api(&lab, "events.k8s.io", "v1", "Event", Some("default"));
    lab.until("it is told that the kinds stay", Duration::from_secs(20), || {
        let events = lab.runtime.block_on(events.list(&ListParams::default())).unwrap();
        events.items.iter().any(|event| event.data["reason"] == "DriverGone")
    });
    assert_eq!(kinds(), 3);
    lab.run("cluster delete --yes demo --wait --timeout 120s");
    for config in lab.objects("rke-machine-config.cattle.io", "v1", "LocalConfig") {
        let configs = api(&lab, "rke-machine-config.cattle.io", "v1", "LocalConfig", Some("fleet-default"));
        lab.runtime.block_on(configs.delete(&config.name_any(), &DeleteParams::default())).unwrap();
    }
    lab.until("its kinds are gone", Duration::from_secs(20), || kinds() == 0);

    driver.metadata = kube::core::ObjectMeta {
        name: Some("local".into()),
        annotations: driver.metadata.annotations,
        labels: driver.metadata.labels,
        ..Default::default()
    };
    driver.data.as_object_mut().unwrap().remove("status");
    lab.runtime.block_on(drivers.create(&PostParams::default(), &driver)).unwrap();
    lab.until("its kinds are back", Duration::from_secs(20), || kinds() == 3);
    lab.run(&create);
    assert_eq!(lab.nodes("demo").len(), 1);
    lab.run("cluster delete --yes demo --wait --timeout 120s");
    lab.check_nothing_left();
}

/// Serves one file.
struct Shelf(Vec<u8>);

impl FakeApi for Shelf {
    fn handle(&self, _: &Call) -> Reply {
        Reply::new(200, self.0.clone())
    }

    fn error(&self, status: u16, code: &str) -> Reply {
        Reply::new(status, code.to_owned())
    }
}

/// A provider that has no room: its driver makes something and fails, for a reason that may pass.
fn full(dir: &Path) -> Vec<u8> {
    let script = format!(
        r#"#!/bin/sh
cd {dir}
case "$1" in
flags) echo '{{"flags":[{{"name":"full-userdata"}}]}}' ;;
create) : > servers/$REMUDA_ID; echo '{{"error":{{"class":"quota","message":"the limit of servers is reached"}}}}' ;;
status) echo '{{"status":"Stopped"}}' ;;
remove) rm -f servers/$REMUDA_ID ;;
*) exit 64 ;;
esac
"#,
        dir = dir.display(),
    );
    script.into_bytes()
}

#[test]
fn a_cluster_that_finds_no_room_can_be_deleted() {
    let Some(mut lab) = Lab::open(None) else { return };
    // Where the driver, which is another user, may leave something too.
    let open = tempfile::tempdir().unwrap();
    let dir = open.path().to_owned();
    fs::create_dir_all(dir.join("servers")).unwrap();
    for path in [dir.clone(), dir.join("servers")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let servers = || fs::read_dir(dir.join("servers")).unwrap().count();
    let web = lab.runtime.block_on(Fake::start(Shelf(full(&dir)))).unwrap();
    let drivers = api(&lab, "management.cattle.io", "v3", "NodeDriver", None);
    let driver: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "management.cattle.io/v3", "kind": "NodeDriver", "metadata": {"name": "full"},
        "spec": {"displayName": "full", "active": true, "builtin": false, "url": format!("{}/remuda-driver-full", web.url())},
    }))
    .unwrap();
    lab.runtime.block_on(drivers.create(&PostParams::default(), &driver)).unwrap();
    let configs = api(&lab, "rke-machine-config.cattle.io", "v1", "FullConfig", Some("fleet-default"));
    lab.until("the driver has its kinds", Duration::from_secs(30), || {
        lab.runtime.block_on(configs.list(&ListParams::default())).is_ok()
    });
    for killed in [false, true] {
        lab.run(&format!("cluster create poor --driver full --version {NEW} --servers 1 --workers 1"));
        lab.until("both jobs have failed once", Duration::from_secs(60), || {
            let jobs = lab.objects("batch", "v1", "Job");
            jobs.len() == 2 && jobs.iter().all(|job| job.data["status"]["failed"] == 1)
        });
        assert_eq!(servers(), 2);
        lab.run("cluster delete --yes poor");
        if killed {
            lab.kill_server();
            lab.start();
        }
        lab.run("cluster delete --yes poor --wait --timeout 60s");
        lab.check_nothing_left();
        assert_eq!(servers(), 0);
        assert!(lab.objects("rke-machine.cattle.io", "v1", "FullMachine").is_empty());
    }
}

/// What one of several servers on one etcd is asked to do, and whether it went well.
fn say(server: &Server, line: &str) -> (i32, String) {
    let mut command = remuda();
    let output = command.args(line.split(' ')).arg("--data-dir").arg(&server.data_dir).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

#[track_caller]
fn until(what: &str, within: Duration, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < within, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn sandbox(data_dir: &Path) -> Sandbox {
    Sandbox::new(Options {
        data_dir: data_dir.to_owned(),
        program: env!("CARGO_BIN_EXE_remuda").into(),
        images: Images::default(),
        privileged: false,
    })
}

/// Ends machines that a failed test would leave.
struct Cleanup(Vec<Sandbox>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        for sandbox in &self.0 {
            let _ = sandbox.remove_all();
        }
    }
}

/// A machine on the host of one server is not gone because another one is elected: it is removed where it is, once
/// that server is there again, and by no other.
#[test]
fn a_machine_on_the_host_of_another_server_is_removed_there() {
    let probe = remuda().args(["sandbox", "probe", "/tmp"]).output().unwrap();
    if !probe.status.success() {
        skipped(&format!("no machines on this host: {}", String::from_utf8_lossy(&probe.stderr)));
        return;
    }
    let place = Place::new();
    let Some(etcd) = Etcd::start(&place.join("etcd")) else { return };
    let sharing = Sharing::new(&place, &etcd);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let start = |name: &str, bind: Option<&str>| {
        let bind = bind.map(|bind| ["--bind", bind]);
        let arguments: Vec<&str> =
            sharing.arguments().into_iter().chain(bind.iter().flatten().copied()).collect();
        Server::start(&place.join(name), &arguments)
    };
    let first = start("first", None);
    let bind = first.url.trim_start_matches("https://").to_owned();
    let _cleanup = Cleanup(["first", "second"].map(|name| sandbox(&place.join(name))).into());
    until("the cluster is made", Duration::from_secs(30), || {
        say(&first, "cluster create demo --servers 1 --workers 0").0 == 0
    });
    until("the cluster is ready", Duration::from_secs(120), || say(&first, "why demo").0 == 0);
    let data = first.data_dir.display().to_string();
    let there = || sandbox(&place.join("first")).list().unwrap().len();
    assert_eq!(there(), 1);

    // Another server takes over, and is asked to delete the cluster.
    first.kill();
    let second = start("second", None);
    assert_eq!(say(&second, "cluster delete --yes demo").0, 0);
    let machines = || {
        let client = runtime.block_on(client_with(&second.kubeconfig(), |_| {}));
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("rke-machine.cattle.io", "v1", "LocalMachine"));
        let api: Api<DynamicObject> = Api::namespaced_with(client, "fleet-default", &resource);
        let items = runtime.block_on(api.list(&ListParams::default())).unwrap().items;
        (api, items)
    };
    until("it says which server has the machine", Duration::from_secs(120), || {
        let (_, items) = machines();
        assert_eq!(items.len(), 1, "the machine is not gone");
        let conditions = items[0].data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|one| one["type"] == "Ready").cloned().unwrap_or_default();
        ready["message"]
            .as_str()
            .is_some_and(|message| message.starts_with("waiting for the server on host "))
    });
    assert!(!processes(&data).is_empty());

    // It comes back, is not elected, and removes what is on its host.
    let first = start("first", Some(&bind));
    until("the cluster is gone", Duration::from_secs(60), || {
        say(&second, "cluster delete --yes demo --wait --timeout 60s").0 == 0
    });
    assert!(machines().1.is_empty());
    until("its processes have ended", Duration::from_secs(20), || processes(&data).is_empty());
    assert_eq!(there(), 0);
    drop(first);
}
