//! The install script itself, run by `sh` in a directory of its own against the gateway over TLS.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::Arc,
};

use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::api::{Patch, PatchParams};
use remuda_door::Body;
use remuda_testkit::{doors::Doors, until};
use serde_json::{Value, json};
use tokio::{net::TcpListener, process::Command};
use tokio_rustls::TlsAcceptor;

use crate::world::{TOKEN, World};

/// Stands for the agent.
const AGENT: &str =
    "#!/bin/sh\necho \"agent $*\" >>\"$AGENT_LOG\"\ncase \"$1\" in supervise) sleep 30 ;; esac\n";
/// Stands for systemd's.
const SYSTEMCTL: &str =
    "#!/bin/sh\necho \"systemctl $*\" >>\"$AGENT_LOG\"\ncase \"$1\" in is-active) exit 3 ;; esac\n";

struct Host {
    world: Arc<World>,
    address: SocketAddr,
    checksum: String,
    root: tempfile::TempDir,
    path: String,
}

impl Host {
    /// A server reached by TLS, and a machine that has `tool` to fetch things; `None` where there is no such tool.
    async fn start(tool: &str) -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let tools = "sh id uname tr cut grep sed head tail mkdir chmod mktemp mv rm cp cat sleep sha256sum openssl nohup setsid env wc";
        for name in tools.split(' ').chain([tool]) {
            let found =
                ["/usr/bin", "/bin"].iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
            match found {
                Some(found) => symlink(found, bin.join(name)).unwrap(),
                None if name == tool => return None,
                None => {}
            }
        }
        script(&bin.join("systemctl"), SYSTEMCTL);
        let agent = root.path().join("agent");
        script(&agent, AGENT);
        let world = Arc::new(World::with(|options| options.agent_binary = agent.clone()).await);
        let (address, ca) = listen(&world).await;
        let server = format!("https://{address}");
        for (name, value) in [("server-url", server.as_str()), ("cacerts", ca.as_str())] {
            let settings = world.dynamic("management.cattle.io/v3", "Setting", None);
            settings
                .patch(name, &PatchParams::default(), &Patch::Merge(json!({"value": value})))
                .await
                .unwrap();
        }
        until("settings are known", async || {
            world.get("/system-agent-install.sh", &[]).await.1.contains(&server)
                && world.get("/cacerts", &[]).await.1 == ca
        })
        .await;
        world.cluster("c-m-1", "demo", TOKEN).await;
        let path = bin.display().to_string();
        Some(Self { world, address, checksum: remuda_install::ca_checksum(&ca), root, path })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join("root").join(path.trim_start_matches('/'))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.root.path().join("log")).unwrap_or_default()
    }

    /// Runs the served script with these arguments; returns whether it succeeded and what it said.
    async fn run(&self, arguments: &[&str], env: &[(&str, &str)]) -> (bool, String) {
        let (_, text) = self.world.get("/system-agent-install.sh", &[]).await;
        let file = self.root.path().join("install.sh");
        fs::write(&file, text).unwrap();
        let mut command = Command::new("/bin/sh");
        command.arg(&file).args(arguments).env_clear().env("PATH", &self.path);
        command.env("AGENT_LOG", self.root.path().join("log"));
        command.env("REMUDA_INSTALL_ROOT", self.root.path().join("root"));
        command.env("CATTLE_AGENT_RETRY_INTERVAL", "0.1").env("CATTLE_AGENT_RETRIES", "30");
        command.env("CATTLE_AGENT_BIN_PREFIX", "/usr/local").envs(env.iter().copied());
        let output = command.output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }
}

impl Host {
    /// Runs the script that removes the agent.
    async fn uninstall(&self, env: &[(&str, &str)]) -> (bool, String) {
        let mut command = Command::new("/bin/sh");
        command
            .arg(self.at("/usr/local/bin/rancher-system-agent-uninstall.sh"))
            .env_clear()
            .env("PATH", &self.path);
        command.env("AGENT_LOG", self.root.path().join("log"));
        command.env("REMUDA_INSTALL_ROOT", self.root.path().join("root")).envs(env.iter().copied());
        let output = command.output().await.unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    }
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The gateway over TLS, with `/healthz` as the API has it. Returns the address and its certificate.
async fn listen(world: &World) -> (SocketAddr, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let doors = world.doors.clone();
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let (acceptor, doors) = (acceptor.clone(), doors.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service =
                    service_fn(move |request: Request<Incoming>| answer(doors.clone(), peer, request));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (address, made.cert.pem())
}

async fn answer(
    doors: Arc<Doors>,
    peer: SocketAddr,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, std::convert::Infallible> {
    if request.uri().path() == "/healthz" {
        *request.uri_mut() = "/ping".parse().unwrap();
    }
    Ok(doors.answer(peer, request).await)
}

async fn a_machine_is_installed_with(tool: &str) {
    let Some(host) = Host::start(tool).await else { return };
    host.world.make_machines();
    fs::create_dir_all(host.at("/run/systemd/system")).unwrap();
    let server = format!("https://{}", host.address);
    let arguments = [
        "--server",
        &server,
        "--label",
        "cattle.io/os=linux",
        "--token",
        TOKEN,
        "--ca-checksum",
        &host.checksum,
        "--etcd",
        "--controlplane",
        "--worker",
        "--node-name",
        "n1",
        "--label",
        "a=b",
        "--taint",
        "k=v:NoSchedule",
        "--address",
        "192.0.2.7",
    ];
    let (success, text) =
        host.run(&arguments, &[("https_proxy", "http://127.0.0.1:9"), ("no_proxy", "127.0.0.1")]).await;
    assert!(success, "{text}");
    let read = |path: &str| fs::read_to_string(host.at(path)).unwrap_or_else(|_| panic!("{path}\n{text}"));
    let mode = |path: &str| fs::metadata(host.at(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(read("/usr/local/bin/rancher-system-agent"), AGENT);
    assert_eq!(mode("/usr/local/bin/rancher-system-agent"), 0o755);
    let info: Value =
        serde_json::from_str(&read("/var/lib/rancher/agent/rancher2_connection_info.json")).unwrap();
    assert!(info["secretName"].as_str().unwrap().starts_with("custom-"));
    assert_eq!(mode("/var/lib/rancher/agent/rancher2_connection_info.json"), 0o600);
    assert_eq!(
        read("/etc/rancher/agent/config.yaml"),
        "workDirectory: /var/lib/rancher/agent/work\nappliedPlanDirectory: /var/lib/rancher/agent/applied\n\
         remoteEnabled: true\nlocalEnabled: false\nlocalPlanDirectory: /var/lib/rancher/agent/plans\n\
         interlockDirectory: /var/lib/rancher/agent/interlock\npreserveWorkDirectory: false\n\
         connectionInfoFile: /var/lib/rancher/agent/rancher2_connection_info.json\n"
    );
    let id = read("/etc/rancher/agent/cattle-id");
    assert_eq!(id.trim_end().len(), 63);
    let unit = read("/etc/systemd/system/rancher-system-agent.service");
    for line in [
        "ExecStart=/usr/local/bin/rancher-system-agent sentinel",
        "Environment=CATTLE_AGENT_STRICT_VERIFY=true",
    ] {
        assert!(unit.lines().any(|found| found == line), "{unit}");
    }
    assert_eq!(
        read("/etc/systemd/system/rancher-system-agent.env"),
        "https_proxy=http://127.0.0.1:9\nno_proxy=127.0.0.1\n"
    );
    let log = host.log();
    for line in [
        "systemctl daemon-reload",
        "systemctl enable rancher-system-agent",
        "systemctl restart rancher-system-agent",
    ] {
        assert!(log.lines().any(|found| found == line), "{log}");
    }
    let left: Vec<_> = fs::read_dir(host.at("/var/lib/rancher/agent"))
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "interlock and connection info: {left:?}");
    assert!(fs::read_dir(host.at("/var/lib/rancher/agent/interlock")).unwrap().next().is_none());
    let machines = host.world.dynamic("cluster.x-k8s.io/v1beta2", "Machine", Some("fleet-default"));
    let machines = machines.list(&kube::api::ListParams::default()).await.unwrap();
    let labels = machines.items[0].metadata.labels.clone().unwrap();
    assert_eq!(
        (labels["rke.cattle.io/machine-id"].as_str(), labels["rke.cattle.io/node-name"].as_str()),
        (id.trim_end(), "n1")
    );

    // Again, as an upgrade: same id, same machine.
    let (success, text) = host.run(&arguments, &[]).await;
    assert!(success, "{text}");
    assert_eq!(host.world.machines().await, 1);
    let (success, text) = host.uninstall(&[]).await;
    assert!(success, "{text}");
    for path in [
        "/usr/local/bin/rancher-system-agent",
        "/usr/local/bin/rancher-system-agent-uninstall.sh",
        "/var/lib/rancher/agent",
        "/etc/rancher/agent",
        "/etc/systemd/system/rancher-system-agent.service",
        "/etc/systemd/system/rancher-system-agent.env",
    ] {
        assert!(!host.at(path).exists(), "{path}");
    }
    assert!(host.log().contains("systemctl disable rancher-system-agent"));
}

#[tokio::test]
async fn a_machine_is_installed_and_removed_with_curl() {
    a_machine_is_installed_with("curl").await;
}

#[tokio::test]
async fn a_machine_is_installed_and_removed_with_wget() {
    a_machine_is_installed_with("wget").await;
}

#[tokio::test]
async fn without_systemd_the_agent_is_kept_running_too() {
    let Some(host) = Host::start("curl").await else { return };
    host.world.make_machines();
    let local = host.root.path().join("agent").display().to_string();
    let directory = "/srv/agent/var";
    let env = [
        ("CATTLE_TOKEN", TOKEN),
        ("CATTLE_ROLE_WORKER", "true"),
        ("CATTLE_AGENT_BINARY_LOCAL", "true"),
        ("CATTLE_AGENT_BINARY_LOCAL_LOCATION", local.as_str()),
        ("CATTLE_AGENT_VAR_DIR", directory),
        ("CATTLE_AGENT_CONFIG_DIR", "/srv/agent/etc"),
        ("CATTLE_ID", "chosen-id"),
    ];
    let (success, text) = host.run(&[], &env).await;
    assert!(success, "{text}");
    assert!(text.contains("kept running by /srv/agent/var/supervise.sh"), "{text}");
    let started = || host.log().lines().filter(|line| *line == "agent sentinel").count();
    until("the agent runs", async || started() == 1).await;
    assert!(host.at("/srv/agent/var/rancher2_connection_info.json").exists());
    assert_eq!(fs::read_to_string(host.at("/srv/agent/etc/cattle-id")).unwrap(), "chosen-id\n");
    assert!(!host.at("/etc").exists());
    let note = fs::read_to_string(host.at("/srv/agent/var/supervisor.pid")).unwrap();
    let first: i32 = note.split(' ').next().unwrap().parse().unwrap();
    // Again: another supervisor takes its place.
    let (success, text) = host.run(&[], &env).await;
    assert!(success, "{text}");
    until("the agent runs again", async || started() == 2).await;
    assert!(fs::read(format!("/proc/{first}/cmdline")).unwrap_or_default().is_empty(), "the first is over");
    let (success, text) = host.uninstall(&env).await;
    assert!(success, "{text}");
    let note = host.at("/srv/agent/var/supervisor.pid");
    assert!(!note.exists() && !host.at("/srv/agent/var").exists());
    let running = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok());
    let ours = host.at("/srv/agent/var/supervise.sh").display().to_string();
    assert!(!running.into_iter().any(|line| String::from_utf8_lossy(&line).contains(&ours)));
}

#[tokio::test]
async fn mistakes_are_told_before_anything_is_changed() {
    let Some(host) = Host::start("curl").await else { return };
    let server = format!("https://{}", host.address);
    let wrong = "0".repeat(64);
    let sum = host.checksum.clone();
    let good = ["--server", server.as_str(), "--token", TOKEN, "--worker", "--ca-checksum", sum.as_str()];
    let check = async |arguments: &[&str], env: &[(&str, &str)], says: &str| {
        let (success, text) = host.run(arguments, env).await;
        assert!(!success && text.contains(says), "{arguments:?}: {text}");
        assert!(!host.at("/usr/local/bin/rancher-system-agent").exists());
    };
    check(&["--bogus"], &[], "unknown option --bogus").await;
    check(&["--token"], &[], "--token needs a value").await;
    check(&["--token", TOKEN], &[], "the node needs a role").await;
    check(&["--worker"], &[], "no token is given").await;
    check(&["--server", "ftp://x", "--token", "t", "-w"], &[], "must be an https:// address").await;
    check(&["--token", "t\nX-Evil: 1", "-w"], &[], "--token must be one line").await;
    check(&good[..5], &[("CATTLE_AGENT_VAR_DIR", "/etc")], "at least two levels deep").await;
    check(&good[..5], &[("CATTLE_AGENT_VAR_DIR", "/var/lib/../..")], "must not contain '..'").await;
    check(&["--server", &server, "--token", TOKEN, "-w", "--ca-checksum", &wrong], &[], "expected is 0000")
        .await;
    let (success, text) = host.run(&["--help"], &[]).await;
    assert!(success && text.contains("--ca-checksum"));

    // Nothing is left of a first installation that comes to no end.
    let mut bad = good;
    bad[3] = "wrong-token";
    let (success, text) = host.run(&bad, &[]).await;
    assert!(!success && text.contains("HTTP 401: the registration token is not known"), "{text}");
    assert!(!host.log().contains("sentinel"));
    assert_eq!(text.matches("trying again").count(), 1, "{text}");
    for gone in [
        "/var/lib/rancher/agent",
        "/etc/rancher/agent",
        "/usr/local/bin/rancher-system-agent",
        "/usr/local/bin/rancher-system-agent-uninstall.sh",
    ] {
        let left = fs::read_dir(host.at(gone))
            .map(|left| left.flatten().map(|entry| entry.path()).collect::<Vec<_>>());
        assert!(!host.at(gone).exists(), "{gone}: {left:?}\n{text}");
    }
    let (success, text) = host.run(&good, &[("CATTLE_AGENT_BINARY_CHECKSUM", wrong.as_str())]).await;
    assert!(!success && text.contains("the checksum of the agent is"), "{text}");
    let missing = format!("{server}/assets/rancher-system-agent-none");
    let (success, text) = host.run(&good, &[("CATTLE_AGENT_BINARY_URL", missing.as_str())]).await;
    assert!(!success && text.contains("HTTP 404"), "{text}");
}
