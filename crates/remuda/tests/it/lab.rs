//! A server whose machines are on this host, and what tests ask of it.

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
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use parking_lot::{Mutex, MutexGuard};
use remuda_sandbox::machines::{Images, Options, Sandbox};
use serde_json::{Value, json};

use crate::{
    client::client_with,
    harness::{Place, Server, skipped},
};

pub(crate) const OLD: &str = "v1.34.2+k3s1";
pub(crate) const NEW: &str = "v1.35.1+k3s1";
/// Machines are many processes each, and tests have two cores: they take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Held while a test makes machines.
pub(crate) type Turn = MutexGuard<'static, ()>;

pub(crate) fn turn() -> Turn {
    TURN.lock()
}

/// A server whose machines are on this host.
pub(crate) struct Lab {
    pub(crate) server: Option<Server>,
    pub(crate) place: Place,
    /// Of the server; its machines are where the first one had its.
    data: PathBuf,
    pub(crate) bind: String,
    /// Whom everything belongs to, if not to whoever runs the tests.
    user: Option<u32>,
    /// The program, where that user can read it.
    program: PathBuf,
    pub(crate) runtime: tokio::runtime::Runtime,
    /// Of the server, beside its own.
    arguments: Vec<String>,
    _turn: Turn,
}

impl Lab {
    pub(crate) fn open(user: Option<u32>) -> Option<Lab> {
        Self::open_with(user, &[])
    }

    /// The same with a server that is given more arguments.
    pub(crate) fn open_with(user: Option<u32>, arguments: &[&str]) -> Option<Lab> {
        let turn = turn();
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
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let mut lab = Lab {
            server: None,
            data: place.data(),
            place,
            bind,
            user,
            program,
            runtime: runtime.unwrap(),
            arguments,
            _turn: turn,
        };
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
        self.data.clone()
    }

    /// From now on the server is one in another directory, at another address, with other arguments.
    pub(crate) fn move_to(&mut self, data: PathBuf, bind: String, arguments: &[&str]) {
        assert!(self.server.is_none(), "the server still runs");
        self.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        (self.data, self.bind) = (data, bind);
    }

    /// The program as its user calls it.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.place.join("home")).args(arguments);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    pub(crate) fn start(&mut self) {
        let (user, bind) = (self.user, self.bind.clone());
        let own = ["--bind", bind.as_str()];
        let arguments: Vec<&str> = own.into_iter().chain(self.arguments.iter().map(String::as_str)).collect();
        self.server = Some(Server::start_program(&self.program, &self.data(), &arguments, |command| {
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
        }));
    }

    pub(crate) fn kill_server(&mut self) {
        self.server.take().unwrap().kill();
    }

    /// Runs a command for people. Answers with its exit code and what it said.
    pub(crate) fn say(&self, line: &str) -> (i32, String) {
        self.tell(&line.split(' ').collect::<Vec<_>>())
    }

    /// As [`Lab::say`], with words for a program inside a machine.
    pub(crate) fn say_to(&self, line: &str, words: &[&str]) -> (i32, String) {
        let mut command = self.command(&line.split(' ').collect::<Vec<_>>());
        let output = command.arg("--data-dir").arg(self.data()).arg("--").args(words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }

    /// As [`Lab::say`], for words with blanks in them.
    pub(crate) fn tell(&self, words: &[&str]) -> (i32, String) {
        let output = self.command(words).arg("--data-dir").arg(self.data()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }

    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        let (code, text) = self.say(line);
        assert_eq!(code, 0, "remuda {line}\n{text}\n{}", self.evidence());
        text
    }

    /// As [`Lab::run`], without what was said beside the result.
    #[track_caller]
    pub(crate) fn output(&self, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        let output = self.command(&words).arg("--data-dir").arg(self.data()).output().unwrap();
        assert!(output.status.success(), "remuda {line}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn evidence(&self) -> String {
        let mut text = String::new();
        for line in ["cluster list", "machine list"] {
            text.push_str(&self.say(line).1);
        }
        text
    }

    /// How many writes there have been.
    pub(crate) fn revision(&self) -> u64 {
        let secrets: Api<Secret> = Api::namespaced(self.client(), "default");
        let list = self.runtime.block_on(secrets.list(&ListParams::default())).unwrap();
        list.metadata.resource_version.unwrap().parse().unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        self.runtime.block_on(client_with(&self.data().join("admin.kubeconfig"), |_| {}))
    }

    pub(crate) fn objects(&self, group: &str, version: &str, kind: &str) -> Vec<DynamicObject> {
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

    pub(crate) fn plans(&self) -> Vec<(String, Option<String>)> {
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

    pub(crate) fn change(&self, cluster: &str, patch: &Value) {
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("provisioning.cattle.io", "v1", "Cluster"));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client(), "fleet-default", &resource);
        let patch = Patch::Merge(patch);
        self.runtime.block_on(api.patch(cluster, &PatchParams::default(), &patch)).unwrap();
    }

    /// A Secret that a cluster may use for files.
    pub(crate) fn make_secret(&self, cluster: &str, name: &str, texts: &Value) {
        let annotations = json!({"rke.cattle.io/object-authorized-for-clusters": cluster});
        let secret = json!({"metadata": {"name": name, "annotations": annotations}, "stringData": texts});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        let secrets: Api<Secret> = Api::namespaced(self.client(), "fleet-default");
        self.runtime.block_on(secrets.create(&PostParams::default(), &secret)).unwrap();
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, within: Duration, done: impl Fn() -> bool) {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < within, "{what} did not happen\n{}", self.evidence());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until `why` ends with a code and says certain words.
    #[track_caller]
    pub(crate) fn until_why(&self, cluster: &str, code: i32, words: &[&str]) {
        let began = Instant::now();
        loop {
            let said = self.tell(&["why", cluster]);
            if said.0 == code && words.iter().all(|words| said.1.contains(words)) {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{cluster}: {}\n{}", said.0, said.1);
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
    pub(crate) fn sandbox(&self) -> Sandbox {
        Sandbox::new(Options {
            data_dir: self.place.data(),
            program: self.program.clone(),
            images: Images::default(),
            privileged: false,
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
pub(crate) fn processes(data: &str) -> Vec<(i32, String)> {
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

pub(crate) fn versions(nodes: &[(String, String, bool)]) -> Vec<&str> {
    nodes.iter().map(|(_, version, ready)| if *ready { version.as_str() } else { "not ready" }).collect()
}

/// Whether a process is one of this laboratory: its environment or its root says so.
pub(crate) fn belongs(pid: i32, data: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    String::from_utf8_lossy(&environment).contains(data) || mounts.contains(data)
}
