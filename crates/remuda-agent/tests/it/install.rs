use std::{fs, os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use parking_lot::Mutex;
use remuda_agent::{
    Chain,
    config::{Config, ConnectionInfo},
    environment::Environment,
    install::{InstallError, InstallOptions, Layout, Registration, Roles, install, uninstall},
    supervise,
};
use remuda_plan::{key, sha256_hex};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    api::Api,
    process::supervisor_arguments,
    remote::tls,
    server::{Answer, Ask, Running, serve},
};

struct Server {
    running: Running,
    asked: Arc<Mutex<Vec<Ask>>>,
    pem: String,
}

impl Server {
    /// Refuses the first `refusals` registrations.
    async fn new(kubeconfig: String, refusals: usize) -> Self {
        let (config, pem) = tls("127.0.0.1");
        let asked = Arc::new(Mutex::new(Vec::<Ask>::new()));
        let (log, certificate) = (asked.clone(), pem.clone());
        let running = serve(Some(config), move |ask| {
            log.lock().push(ask.clone());
            let count = log.lock().iter().filter(|ask| ask.path == "/v3/connect/agent").count();
            let answer = match ask.path.as_str() {
                "/healthz" => Answer::text(200, "ok"),
                "/cacerts" => Answer::text(200, &certificate),
                "/v3/connect/agent" if count <= refusals => Answer::text(503, "CAPI not ready yet"),
                "/v3/connect/agent" => Answer::json(
                    200,
                    &json!({"kubeConfig": kubeconfig, "namespace": "fleet-default", "secretName": "demo-machine-plan"}),
                ),
                _ => Answer::text(404, ""),
            };
            async move { answer }
        })
        .await;
        Self { running, asked, pem }
    }

    fn registration(&self) -> Registration {
        Registration {
            server: format!("https://{}/", self.running.address),
            token: "tok".into(),
            ca_checksum: Some(sha256_hex(self.pem.as_bytes())),
            roles: Roles { etcd: true, worker: true, ..Roles::default() },
            labels: vec!["a=b".into(), "c=d".into()],
            taints: vec!["k=v:NoSchedule".into()],
            address: "lo".into(),
            ..Registration::default()
        }
    }
}

fn options(root: &Path, registration: Option<Registration>) -> InstallOptions {
    let mut options = InstallOptions::new(Environment::of_process());
    options.layout.var = root.join("var/lib/agent");
    options.layout.config = root.join("etc/agent");
    options.layout.prefix = root.join("usr");
    options.layout.units = root.join("units");
    options.binary = std::env::current_exe().unwrap();
    options.registration = registration;
    options.patience = Duration::from_secs(20);
    options.run = Vec::new();
    options.supervise =
        supervisor_arguments(&options.layout.pid_file(), &options.layout.config.join("config.yaml"));
    options
}

fn kubeconfig(api: &Running) -> String {
    format!(
        "current-context: agent\nclusters: [{{name: agent, cluster: {{server: 'http://{}'}}}}]\n\
         users: [{{name: agent, user: {{token: secret-token}}}}]\n\
         contexts: [{{name: agent, context: {{cluster: agent, user: agent}}}}]\n",
        api.address
    )
}

/// Needs root, as installing does; without it there is nothing to see.
fn is_root() -> bool {
    nix::unistd::geteuid().is_root() && !Path::new("/run/systemd/system").exists()
}

#[tokio::test]
async fn an_agent_is_registered_started_supervised_and_removed() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let api = Api::new();
    let running = api.serve(None).await;
    let server = Server::new(kubeconfig(&running), 1).await;
    let options = options(dir.path(), Some(server.registration()));
    let stop = CancellationToken::new();
    install(&options, &stop).await.unwrap();

    let asked = server.asked.lock().iter().rfind(|ask| ask.path == "/v3/connect/agent").cloned().unwrap();
    let header = |name: &str| asked.headers.get(name).cloned().unwrap_or_default();
    assert_eq!(header("authorization"), "Bearer tok");
    assert_eq!(
        (header("x-cattle-role-etcd"), header("x-cattle-role-control-plane")),
        ("true".into(), "false".into())
    );
    assert_eq!(
        (header("x-cattle-labels"), header("x-cattle-taints")),
        ("a=b,c=d".into(), "k=v:NoSchedule".into())
    );
    assert_eq!(header("x-cattle-address"), "127.0.0.1");
    let id = fs::read_to_string(dir.path().join("etc/agent/cattle-id")).unwrap();
    assert_eq!((id.trim().len(), id.trim()), (63, header("x-cattle-id").as_str()));
    let config = Config::load(&dir.path().join("etc/agent/config.yaml")).unwrap();
    ConnectionInfo::load(&config.connection_info_file).unwrap();
    assert!(!dir.path().join("var/lib/agent/interlock/restart-pending").exists());

    // The agent works, and comes back when it is killed.
    let witness = dir.path().join("witness");
    let plan = |line: &str| {
        json!({"instructions":[{"command":"sh","args":["-c", format!("echo {line} >> {}", witness.display())]}]}).to_string()
    };
    let deliver = async |line: &str| {
        api.change("uid-1", |data| {
            data.insert(key::PLAN.into(), plan(line).into());
            data.insert(key::PLAN_STATE.into(), b"pending".to_vec());
        })
        .await;
        api.wait("success", |data| data[key::PLAN_STATE] == b"succeeded").await;
    };
    deliver("one").await;
    // Installing again keeps the machine id and the supervisor is the only one.
    install(&options, &stop).await.unwrap();
    deliver("two").await;
    assert_eq!(fs::read_to_string(&witness).unwrap(), "one\ntwo\n");
    assert_eq!(fs::read_to_string(dir.path().join("etc/agent/cattle-id")).unwrap(), id);

    let pid_file = options.layout.pid_file();
    assert!(supervise::running(&pid_file).is_some());
    // The root is that of the host, whose own distribution is none of a test's business.
    uninstall(&options.layout, true).unwrap();
    assert!(!pid_file.exists());
    for gone in ["var/lib/agent", "etc/agent", "usr/bin/remuda"] {
        assert!(!dir.path().join(gone).exists(), "{gone}");
    }
    uninstall(&options.layout, true).unwrap();
}

#[test]
fn what_plans_have_installed_goes_with_the_agent_by_the_script_it_brought() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let layout = Layout {
        root: root.to_owned(),
        config: "/etc/agent".into(),
        var: "/var/lib/agent".into(),
        prefix: "/usr/local".into(),
        ..Layout::of(&Environment::default())
    };
    let file = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let install = || {
        file("etc/rancher/k3s/config.yaml.d/50-rancher.yaml", "{}");
        let remove = format!("#!/bin/sh\nrm -rf {0}/etc/rancher/k3s \"$0\"\n", root.display());
        file("usr/local/bin/k3s-uninstall.sh", &remove);
        // Not configured by a plan: somebody else's.
        file("usr/local/bin/rke2-uninstall.sh", "#!/bin/sh\nexit 7\n");
        file("var/lib/rancher/capr/idempotence/x", "");
        file("etc/agent/cattle-id", "id");
    };
    let exists = |path: &str| root.join(path).exists();
    install();
    uninstall(&layout, true).unwrap();
    assert!(!exists("etc/agent") && exists("etc/rancher/k3s") && exists("var/lib/rancher/capr"));

    install();
    uninstall(&layout, false).unwrap();
    for gone in ["etc/agent", "etc/rancher/k3s", "usr/local/bin/k3s-uninstall.sh", "var/lib/rancher/capr"] {
        assert!(!exists(gone), "{gone}");
    }
    assert!(exists("usr/local/bin/rke2-uninstall.sh"));

    install();
    file("usr/local/bin/k3s-uninstall.sh", "#!/bin/sh\necho 'in use' >&2\nexit 3\n");
    let error = uninstall(&layout, false).unwrap_err();
    assert!(
        matches!(&error, InstallError::Distribution { reason, .. } if reason.contains("in use")),
        "{error}"
    );
    assert!(!exists("etc/agent"), "the agent goes all the same");
}

#[tokio::test]
async fn a_server_with_another_authority_is_refused_and_nothing_is_installed() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::new("x".into(), 0).await;
    let attempt = async |registration: Registration| {
        let options = options(dir.path(), Some(registration));
        let result = install(&options, &CancellationToken::new()).await;
        Chain(&result.unwrap_err()).to_string()
    };
    let wrong = Registration { ca_checksum: Some("0".repeat(64)), ..server.registration() };
    assert!(attempt(wrong).await.contains("expected 0000"));
    let unpinned = Registration { ca_checksum: None, ..server.registration() };
    assert!(attempt(unpinned.clone()).await.contains("is not trusted"));
    assert!(attempt(Registration { strict: true, ..unpinned }).await.contains("needs the checksum"));
    assert!(!dir.path().join("usr/bin/remuda").exists());
    assert!(!dir.path().join("var/lib/agent/interlock/restart-pending").exists());
}

#[tokio::test]
async fn a_registration_that_is_never_answered_can_be_stopped() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let server = Server::new("x".into(), usize::MAX).await;
    let mut options = options(dir.path(), Some(server.registration()));
    options.patience = Duration::from_secs(600);
    let stop = CancellationToken::new();
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        stop.cancel();
    };
    let (result, ()) = tokio::join!(install(&options, &stop), stopping);
    assert!(matches!(result, Err(InstallError::Stopped)));
    assert_eq!(fs::metadata(dir.path().join("etc/agent")).unwrap().permissions().mode() & 0o777, 0o700);
}
