//! Clusters on machines of this host, from the first object to the last process.
//!
//! Everything here is real: the program as server, job, agent, node and cluster agent, and machines made of
//! namespaces. Where the host allows none, the tests say so and do nothing.

use std::{
    fs,
    os::unix::{fs::chown, process::CommandExt},
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use parking_lot::{Mutex, MutexGuard};
use remuda_sandbox::machines::{Images, NewMachine, Options, Sandbox};
use serde_json::{Value, json};

use crate::{
    client::client_with,
    harness::{Place, Server, skipped},
};

const OLD: &str = "v1.34.2+k3s1";
pub(crate) const NEW: &str = "v1.35.1+k3s1";
/// Machines are many processes each, and tests have two cores: they take turns.
static TURN: Mutex<()> = Mutex::new(());
/// Somebody who may nothing in particular.
const NOBODY: u32 = 65_534;

/// A server whose machines are on this host.
pub(crate) struct Lab {
    pub(crate) server: Option<Server>,
    pub(crate) place: Place,
    bind: String,
    /// Whom everything belongs to, if not to whoever runs the tests.
    user: Option<u32>,
    /// The program, where that user can read it.
    program: PathBuf,
    pub(crate) runtime: tokio::runtime::Runtime,
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    pub(crate) fn open(user: Option<u32>) -> Option<Lab> {
        let turn = TURN.lock();
        let place = Place::new();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_remuda"));
        let program = match user {
            None => program,
            Some(user) => {
                let copy = place.join("remuda");
                fs::copy(program, &copy).unwrap();
                let dir = copy.parent().unwrap();
                chown(dir, Some(user), Some(user)).unwrap();
                copy
            }
        };
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let bind = format!("127.0.0.1:{port}");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let mut lab =
            Lab { server: None, place, bind, user, program, runtime: runtime.unwrap(), _turn: turn };
        let mut check = lab.command(&["sandbox", "probe", "/tmp"]);
        let output = check.output().unwrap();
        if !output.status.success() {
            skipped(&format!("no machines on this host: {}", String::from_utf8_lossy(&output.stderr)));
            return None;
        }
        lab.start();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
            "rke-machine-config.cattle.io",
            "v1",
            "LocalConfig",
        ));
        let kinds: Api<DynamicObject> = Api::all_with(lab.client(), &resource);
        lab.until("the driver has its kinds", Duration::from_secs(20), || {
            lab.runtime.block_on(kinds.list(&ListParams::default())).is_ok()
        });
        Some(lab)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.place.data()
    }

    /// The program as its user calls it.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.place.join("home")).args(arguments);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    fn start(&mut self) {
        let (user, bind) = (self.user, self.bind.clone());
        self.server =
            Some(Server::start_program(&self.program, &self.data(), &["--bind", &bind], |command| {
                if let Some(user) = user {
                    command.uid(user).gid(user);
                }
            }));
    }

    fn kill_server(&mut self) {
        self.server.take().unwrap().kill();
    }

    /// Runs a command for people. Answers with its exit code and what it said.
    pub(crate) fn say(&self, line: &str) -> (i32, String) {
        self.say_to(line, &[])
    }

    /// As [`Lab::say`], with words for a program inside a machine.
    pub(crate) fn say_to(&self, line: &str, words: &[&str]) -> (i32, String) {
        let mut command = self.command(&line.split(' ').collect::<Vec<_>>());
        command.arg("--data-dir").arg(self.data());
        if !words.is_empty() {
            command.arg("--").args(words);
        }
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }

    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        let (code, text) = self.say(line);
        assert_eq!(code, 0, "remuda {line}\n{text}\n{}", self.evidence());
        text
    }

    fn evidence(&self) -> String {
        let mut text = String::new();
        for line in ["cluster list", "machine list"] {
            text.push_str(&self.say(line).1);
        }
        text
    }

    pub(crate) fn client(&self) -> Client {
        self.runtime.block_on(client_with(&self.data().join("admin.kubeconfig"), |_| {}))
    }

    fn objects(&self, group: &str, version: &str, kind: &str) -> Vec<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client(), "fleet-default", &resource);
        match self.runtime.block_on(api.list(&ListParams::default())) {
            Ok(list) => list.items,
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => panic!("{kind}: {error}"),
        }
    }

    pub(crate) fn machines(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .objects("cluster.x-k8s.io", "v1beta2", "Machine")
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        names.sort();
        names
    }

    /// Names, versions and readiness of the nodes, as the cluster itself has them.
    pub(crate) fn nodes(&self, cluster: &str) -> Vec<(String, String, bool)> {
        let path = self.place.join("cluster.kubeconfig");
        let _ = fs::remove_file(&path);
        fs::write(&path, self.run(&format!("get kubeconfig {cluster}"))).unwrap();
        let nodes = self.runtime.block_on(async {
            let nodes: Api<Node> = Api::all(client_with(&path, |_| {}).await);
            nodes.list(&ListParams::default()).await
        });
        let mut nodes: Vec<_> = nodes.unwrap().items.iter().map(row).collect();
        nodes.sort();
        nodes
    }

    fn plans(&self) -> Vec<(String, Option<String>)> {
        let secrets: Api<Secret> = Api::namespaced(self.client(), "fleet-default");
        let only = ListParams::default().fields("type=rke.cattle.io/machine-plan");
        let list = self.runtime.block_on(secrets.list(&only)).unwrap();
        let plan = |secret: &Secret| {
            secret.data.as_ref()?.get("plan").map(|plan| String::from_utf8_lossy(&plan.0).into_owned())
        };
        let mut plans: Vec<_> = list.items.iter().map(|secret| (secret.name_any(), plan(secret))).collect();
        plans.sort();
        plans
    }

    fn change(&self, cluster: &str, patch: &Value) {
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("provisioning.cattle.io", "v1", "Cluster"));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client(), "fleet-default", &resource);
        let patch = Patch::Merge(patch);
        self.runtime.block_on(api.patch(cluster, &PatchParams::default(), &patch)).unwrap();
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, within: Duration, done: impl Fn() -> bool) {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < within, "{what} did not happen\n{}", self.evidence());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Nothing is left of machines: no process, no mount, no object.
    #[track_caller]
    pub(crate) fn check_nothing_left(&self) {
        for (group, version, kind) in [
            ("provisioning.cattle.io", "v1", "Cluster"),
            ("cluster.x-k8s.io", "v1beta2", "Cluster"),
            ("cluster.x-k8s.io", "v1beta2", "MachineDeployment"),
            ("cluster.x-k8s.io", "v1beta2", "MachineSet"),
            ("cluster.x-k8s.io", "v1beta2", "Machine"),
            ("rke.cattle.io", "v1", "RKECluster"),
            ("rke.cattle.io", "v1", "RKEControlPlane"),
            ("rke.cattle.io", "v1", "RKEBootstrap"),
            ("rke.cattle.io", "v1", "CustomMachine"),
            ("rke-machine.cattle.io", "v1", "LocalMachine"),
            ("rke-machine.cattle.io", "v1", "LocalMachineTemplate"),
            ("batch", "v1", "Job"),
        ] {
            let left: Vec<_> = self.objects(group, version, kind).iter().map(ResourceExt::name_any).collect();
            assert!(left.is_empty(), "{kind}: {left:?}");
        }
        let data = self.data().display().to_string();
        self.until("the last process ends", Duration::from_secs(10), || processes(&data).is_empty());
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(&data), "{mounts}");
        let machines = self.data().join("sandbox/machines");
        let left = fs::read_dir(&machines).map(Iterator::count).unwrap_or(0);
        assert_eq!(left, 0, "files in {}", machines.display());
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.server.take());
        // A test that failed leaves machines, which are nobody's children.
        let sandbox = self.sandbox();
        let _ = sandbox.remove_all();
    }
}

impl Lab {
    fn sandbox(&self) -> Sandbox {
        Sandbox::new(Options {
            data_dir: self.data(),
            program: self.program.clone(),
            images: Images::default(),
        })
    }
}

fn row(node: &Node) -> (String, String, bool) {
    let status = node.status.as_ref();
    let version =
        status.and_then(|status| status.node_info.as_ref()).map(|info| info.kubelet_version.clone());
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let ready = conditions.clone().any(|one| one.type_ == "Ready" && one.status == "True");
    (node.name_any(), version.unwrap_or_default(), ready)
}

/// Processes of local machines below a directory, other than the server.
fn processes(data: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(data) && line.contains(" sandbox ") {
            found.push((pid, line));
        }
    }
    found
}

fn versions(nodes: &[(String, String, bool)]) -> Vec<&str> {
    nodes.iter().map(|(_, version, ready)| if *ready { version.as_str() } else { "not ready" }).collect()
}

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
    lab.run("cluster delete demo --wait --timeout 60s");
    lab.check_nothing_left();
    // Told again it has nothing to do.
    lab.run("cluster delete demo --wait");
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
        lab.say("cluster registration-command edge --insecure").0 == 0
    });
    let sandbox = lab.sandbox();
    for (name, role) in [("edge-a", "--role all"), ("edge-b", "--role worker --label rack=r2")] {
        let command =
            lab.run(&format!("cluster registration-command edge --insecure {role} --node-name {name}"));
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
    lab.run("cluster delete edge --wait --timeout 60s");
    sandbox.remove_all().unwrap();
    lab.check_nothing_left();
}

/// Machines that Remuda did not make have no installer of the sandbox distribution, unless somebody puts it there.
fn preload(lab: &Lab) {
    let images = lab.data().join("sandbox/images");
    let image = remuda_node::installer::image(remuda_node::Distribution::K3s, NEW, "/opt/remuda/remuda");
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
    lab.run("cluster delete ha --wait --timeout 60s");
    lab.check_nothing_left();
}

#[test]
fn a_version_nobody_has_is_named_as_the_cause() {
    let Some(lab) = Lab::open(None) else { return };
    lab.run("cluster create odd --version v1.35.99+k3s1 --servers 1 --workers 0");
    lab.until("why knows", Duration::from_secs(60), || {
        let (code, text) = lab.say("why odd");
        code == 11 && text.contains("system-agent-installer-k3s:v1.35.99-k3s1")
    });
    lab.run("cluster delete odd --wait --timeout 60s");
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

/// Whether a process is one of this laboratory: its environment or its root says so.
fn belongs(pid: i32, data: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    String::from_utf8_lossy(&environment).contains(data) || mounts.contains(data)
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
    lab.run("cluster delete demo");
    disturb(&mut lab, 15);
    lab.run("cluster delete demo --wait --timeout 120s");
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
