//! A cluster that was made elsewhere, in a network of its own that nobody can dial into.
//!
//! Its API listens on the loopback of a network namespace. The only way out is a link to the host, where the
//! server is; what runs inside can use it, nothing comes in by it.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::harness::{Place, Server, assert_success, skipped};

/// Fails instead of hanging.
#[track_caller]
pub(crate) fn until(what: &str, patience: Duration, mut check: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !check() {
        assert!(started.elapsed() < patience, "{what}: not within {patience:?}");
        thread::sleep(Duration::from_millis(50));
    }
    started.elapsed()
}

/// Whether a program is there; says so if it is not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        skipped(&format!("there is no {program} in PATH"));
    }
    found.is_ok()
}

/// A network namespace with a link to the host. Both go when this is dropped, and with the tests.
pub(crate) struct Network {
    /// Has the namespace; ends with its input.
    hold: Child,
    link: String,
    /// The host, as seen from inside.
    pub(crate) host: String,
}

impl Network {
    pub(crate) fn open() -> Option<Network> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !["ip", "unshare", "nsenter"].into_iter().all(has) {
            return None;
        }
        let hold = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let place = format!("/proc/{}/ns/net", hold.id());
        let number = (std::process::id() * 8 + NEXT.fetch_add(1, Ordering::Relaxed)) % (1 << 14);
        // Of the range for private use, a part nobody else here has.
        let address = |last: u32| {
            let number = number * 4 + last;
            format!("10.213.{}.{}", (number >> 8) & 0xff, number & 0xff)
        };
        let network = Network { hold, link: format!("rmd{number}"), host: address(1) };
        let started = Instant::now();
        while fs::read_link(&place).is_ok_and(|found| found == own) {
            if started.elapsed() > Duration::from_secs(5) {
                skipped("this host allows no network namespaces");
                return None;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let (pid, link) = (network.hold.id().to_string(), network.link.clone());
        let steps = [
            (true, format!("link add {link} type veth peer name eth0 netns {pid}")),
            (true, format!("address add {}/30 dev {link}", network.host)),
            (true, format!("link set {link} up")),
            (false, "link set lo up".to_owned()),
            (false, format!("address add {}/30 dev eth0", address(2))),
            (false, "link set eth0 up".to_owned()),
        ];
        for (outside, step) in steps {
            let mut command = if outside { Command::new("ip") } else { network.command("ip") };
            let output = command.args(step.split(' ')).output().unwrap();
            if !output.status.success() {
                skipped(&format!("no network: ip {step}: {}", String::from_utf8_lossy(&output.stderr)));
                return None;
            }
        }
        Some(network)
    }

    /// A program inside.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.hold.id().to_string(), "--net", "--", program]);
        command.stdin(Stdio::null());
        command
    }

    /// Cuts the link, or mends it.
    pub(crate) fn set_link(&self, up: bool) {
        let state = if up { "up" } else { "down" };
        let output = Command::new("ip").args(["link", "set", &self.link, state]).output().unwrap();
        assert_success(&output);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.hold.kill();
        let _ = self.hold.wait();
    }
}

/// The API of a cluster inside, with nothing of ours in it yet.
pub(crate) struct Foreign {
    pub(crate) network: Network,
    pub(crate) server: Server,
    dir: PathBuf,
}

impl Foreign {
    pub(crate) fn start(place: &Place) -> Option<Foreign> {
        if !has("kubectl") || !has("curl") {
            return None;
        }
        let network = Network::open()?;
        let dir = place.join("foreign");
        fs::create_dir_all(&dir).unwrap();
        // The program itself cannot be told where to run.
        let program = dir.join("remuda");
        let script = format!(
            "#!/bin/sh\nexec nsenter --target {} --net -- {} \"$@\"\n",
            network.hold.id(),
            env!("CARGO_BIN_EXE_remuda")
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let server = Server::start_program(&program, &dir.join("data"), &["--controllers=false"], |_| {});
        Some(Foreign { network, server, dir })
    }

    /// Runs a line of shell inside, with this cluster as kubectl's.
    pub(crate) fn shell(&self, line: &str) -> Output {
        let mut command = self.network.command("sh");
        command.args(["-c", line]).env("KUBECONFIG", self.server.kubeconfig());
        command.env("HOME", self.dir.join("home")).output().unwrap()
    }

    #[track_caller]
    pub(crate) fn kubectl(&self, line: &str) -> String {
        let output = self.shell(&format!("kubectl {line}"));
        assert_success(&output);
        String::from_utf8(output.stdout).unwrap()
    }

    /// How many watches are open at its API.
    pub(crate) fn watches(&self) -> u32 {
        let metrics = self.kubectl("get --raw /metrics");
        let line = metrics.lines().find_map(|line| line.strip_prefix("apiserver_longrunning_requests "));
        line.and_then(|number| number.trim().parse().ok()).expect("a gauge of open watches")
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.kubectl(&format!("{line} -o json"))).unwrap()
    }

    /// Runs the agent as the manifest says, in the place of a kubelet.
    pub(crate) fn agent(&self) -> Agent {
        self.agent_with(&[])
    }

    /// The same, for this server whatever the manifest says.
    pub(crate) fn agent_of(&self, url: &str) -> Agent {
        self.agent_with(&[("CATTLE_SERVER", url)])
    }

    fn agent_with(&self, more: &[(&str, &str)]) -> Agent {
        let deployment = self.json("get deployment -n cattle-system cattle-cluster-agent");
        let pod = &deployment["spec"]["template"]["spec"];
        let root = self.dir.join("pod");
        let mount = |path: &str, name: &str, content: &[u8]| {
            let dir = root.join(path.trim_start_matches('/'));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(name), content).unwrap();
        };
        let mounted = &pod["containers"][0]["volumeMounts"][0];
        let secret = pod["volumes"][0]["secret"]["secretName"].as_str().unwrap();
        let secret = self.json(&format!("get secret -n cattle-system {secret}"));
        for name in ["url", "token"] {
            let value = base64(secret["data"][name].as_str().unwrap());
            mount(mounted["mountPath"].as_str().unwrap(), name, &value);
        }
        let account = "/var/run/secrets/kubernetes.io/serviceaccount";
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        fs::write(self.dir.join("request.json"), request.to_string()).unwrap();
        let name = pod["serviceAccountName"].as_str().unwrap();
        let issued = self.kubectl(&format!(
            "create --raw /api/v1/namespaces/cattle-system/serviceaccounts/{name}/token -f {}",
            self.dir.join("request.json").display()
        ));
        let issued: Value = serde_json::from_str(&issued).unwrap();
        mount(account, "token", issued["status"]["token"].as_str().unwrap().as_bytes());
        mount(account, "namespace", b"cattle-system");
        let kubeconfig = fs::read_to_string(self.server.kubeconfig()).unwrap();
        let ca = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: "));
        mount(account, "ca.crt", &base64(ca.unwrap()));

        let mut command = self.network.command(env!("CARGO_BIN_EXE_remuda"));
        command.arg("cluster-agent").env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        for variable in pod["containers"][0]["env"].as_array().unwrap() {
            command.env(variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap_or_default());
        }
        command.envs(more.iter().copied());
        command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1");
        command.env("KUBERNETES_SERVICE_PORT", self.server.port().to_string());
        command.env("REMUDA_POD_ROOT", &root).env("REMUDA_HEALTH_BIND", "off");
        let log = self.dir.join("agent.log");
        command.stdout(Stdio::null());
        command.stderr(File::options().create(true).append(true).open(&log).unwrap());
        Agent { child: command.spawn().unwrap(), log }
    }
}

fn base64(text: &str) -> Vec<u8> {
    let mut child =
        Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap().stdout
}

/// The agent of a cluster. Killed when dropped.
pub(crate) struct Agent {
    child: Child,
    log: PathBuf,
}

impl Agent {
    pub(crate) fn kill(mut self) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGKILL).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- log of the agent\n{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// Somebody with kubectl and a kubeconfig.
pub(crate) struct Person {
    kubeconfig: PathBuf,
    home: PathBuf,
}

impl Person {
    pub(crate) fn new(place: &Place, name: &str, kubeconfig: &str) -> Person {
        let path = place.write(&format!("{name}.kubeconfig"), kubeconfig);
        Person { kubeconfig: path, home: place.join(&format!("home-{name}")) }
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.args(line.split_whitespace()).env("KUBECONFIG", &self.kubeconfig);
        command.env("HOME", &self.home).env("KUBECTL_KUBERC", "false").stdin(Stdio::null());
        command
    }

    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        assert_success(&output);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs what must fail and returns what it says about it.
    #[track_caller]
    pub(crate) fn fails(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        assert!(!output.status.success(), "{line} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn can(&self, line: &str) -> bool {
        self.command(line).output().unwrap().status.success()
    }
}

/// A kubeconfig of one server for another place on it, or for another credential.
pub(crate) fn led_to(kubeconfig: &Path, url: &str, path: &str, token: Option<&str>) -> String {
    let text = fs::read_to_string(kubeconfig).unwrap();
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("server: ") {
            lines.push(format!("    server: {url}{path}"));
        } else if let Some(token) = token.filter(|_| trimmed.starts_with("client-certificate-data: ")) {
            lines.push(format!("    token: {token}"));
        } else if token.is_none() || !trimmed.starts_with("client-key-data: ") {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n")
}
