//! Servers and agents: joining, probes, tokens, restarts.

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, ResourceExt};
use remuda_sandbox_distro::{Distribution, Role};
use tokio_util::sync::CancellationToken;

use crate::world::{self, admin, agent, first, is_ready, probe, server_config, settings, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_and_an_agent_are_nodes() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = first(root.path()).await;
    let client = admin(&server).await;
    let more = [
        ("node-label", "tier=apps"),
        ("node-label", "rke.cattle.io/machine=uid"),
        ("node-taint", "dedicated=apps:PreferNoSchedule"),
        ("node-external-ip", "203.0.113.7"),
    ];
    let worker = agent(other.path(), "worker-1", &server, &more).await;
    for name in ["cp-1", "worker-1"] {
        until(&format!("{name} is ready"), async || is_ready(&client, name).await).await;
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let cp = nodes.get("cp-1").await.unwrap();
    assert_eq!(cp.labels()["node-role.kubernetes.io/control-plane"], "true");
    assert_eq!(cp.labels()["node-role.kubernetes.io/etcd"], "true");
    assert!(cp.annotations()["remuda.io/sandbox-datastore"].contains("not replicated"));
    let node = nodes.get("worker-1").await.unwrap();
    assert_eq!(
        (node.labels()["tier"].as_str(), node.labels()["rke.cattle.io/machine"].as_str()),
        ("apps", "uid")
    );
    assert!(!node.labels().contains_key("node-role.kubernetes.io/control-plane"));
    let spec = node.spec.clone().unwrap();
    assert_eq!(spec.provider_id.as_deref(), Some("k3s://worker-1"));
    assert_eq!(spec.taints.unwrap()[0].key, "dedicated");
    let status = node.status.clone().unwrap();
    let info = status.node_info.unwrap();
    assert_eq!(info.kubelet_version, Distribution::K3s.default_version());
    assert!(info.container_runtime_version.starts_with("sandbox://"));
    let addresses: Vec<_> = status.addresses.unwrap().into_iter().map(|at| (at.type_, at.address)).collect();
    assert!(addresses.contains(&("InternalIP".to_owned(), "127.0.0.1".to_owned())));
    assert!(addresses.contains(&("ExternalIP".to_owned(), "203.0.113.7".to_owned())));
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let statement = maps.get("sandbox-distribution").await.unwrap().data.unwrap();
    assert_eq!(statement["replicated"], "false");
    kubectl(&server);
    worker.shutdown().await;
    server.shutdown().await;
}

/// The tool people use, where it is there.
fn kubectl(server: &remuda_sandbox_distro::Running) {
    let Some(kubectl) = remuda_sandbox_distro::config::find_program("kubectl", None) else {
        return eprintln!("SKIPPED: there is no kubectl on this machine");
    };
    let output = std::process::Command::new(kubectl)
        .args(["--kubeconfig", server.settings.kubeconfig.to_str().unwrap(), "get", "nodes", "-o", "wide"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find(|line| line.starts_with("worker-1")).unwrap_or_else(|| panic!("{text}"));
    assert!(
        line.contains(" Ready ") && line.contains("v1.35.1+k3s1") && line.contains("sandbox://"),
        "{line}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_of_plans_are_answered() {
    for distribution in Distribution::ALL {
        let root = tempfile::tempdir().unwrap();
        let mut config = server_config("cp-1");
        let tls = format!("{}/server/tls", distribution.data_dir());
        let cert_dir = format!("cert-dir={tls}/kube-controller-manager");
        config.extend([
            ("kube-controller-manager-arg", cert_dir.as_str()),
            ("kube-controller-manager-arg", "secure-port=10257"),
        ]);
        let server = world::start(settings(root.path(), distribution, Role::Server, &config)).await;
        let file = |path: &str| root.path().join(format!("{}/{path}", tls.trim_start_matches('/')));
        let identity = (file("client-kube-apiserver.crt"), file("client-kube-apiserver.key"));
        let api = format!("https://localhost:{}/readyz", server.api_port);
        assert_eq!(probe(&api, Some(file("server-ca.crt")), Some(identity)).await.unwrap(), "ok");
        for component in ["kube-controller-manager", "kube-scheduler"] {
            let url = format!("https://localhost:{}/healthz", server.health_port(component).unwrap());
            let ca = file(&format!("{component}/{component}.crt"));
            assert_eq!(probe(&url, Some(ca), None).await.unwrap(), "ok", "{component}");
        }
        let kubelet = format!("http://localhost:{}/healthz", server.health_port("kubelet").unwrap());
        assert_eq!(probe(&kubelet, None, None).await.unwrap(), "ok");
        let etcd = format!("http://localhost:{}/health", server.health_port("etcd").unwrap());
        assert!(probe(&etcd, None, None).await.unwrap().contains("\"health\":\"true\""));
        assert_eq!(server.health_port("calico").is_some(), distribution == Distribution::Rke2);
        let info = format!("https://localhost:{}/db/info", server.supervisor_port);
        let info = probe(&info, Some(file("server-ca.crt")), None).await.unwrap();
        assert!(info.starts_with('{') && info.contains("clientURLs"));
        server.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_checked_and_pinned() {
    let root = tempfile::tempdir().unwrap();
    let server = first(root.path()).await;
    let url = format!("https://127.0.0.1:{}", server.supervisor_port);
    let join = async |token: &str, role: Role| {
        let root = tempfile::tempdir().unwrap();
        let config = [("node-name", "n"), ("token", token), ("server", url.as_str())];
        let settings = settings(root.path(), Distribution::K3s, role, &config);
        let stop = CancellationToken::new();
        let starting = remuda_sandbox_distro::start(settings, &stop);
        match tokio::time::timeout(std::time::Duration::from_secs(4), starting).await {
            Ok(Ok(running)) => {
                running.shutdown().await;
                "joined".to_owned()
            }
            Ok(Err(error)) => remuda_control::Chain(&error).to_string(),
            Err(_) => "waits".to_owned(),
        }
    };
    assert!(join("wrong", Role::Agent).await.contains("the token is not the one of this cluster"));
    assert!(
        join(world::AGENT_TOKEN, Role::Server).await.contains("the token is not the one of this cluster")
    );
    let full = std::fs::read_to_string(server.settings.paths.server("node-token")).unwrap();
    let digits = &full[3..67];
    let other = full.replace(digits, &"0".repeat(64));
    // It may be that the server is replaced by the right one.
    assert_eq!(join(other.trim(), Role::Agent).await, "waits");
    assert_eq!(join(full.trim(), Role::Agent).await, "joined");
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_belongs_to_the_node_that_had_it_first() {
    let (root, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = first(root.path()).await;
    let client = admin(&server).await;
    let worker = agent(one.path(), "worker", &server, &[]).await;
    until("the worker is ready", async || is_ready(&client, "worker").await).await;
    let url = format!("https://127.0.0.1:{}", server.supervisor_port);
    let config = [("node-name", "worker"), ("token", world::AGENT_TOKEN), ("server", url.as_str())];
    let impostor = settings(two.path(), Distribution::K3s, Role::Agent, &config);
    let refused = remuda_sandbox_distro::start(impostor.clone(), &CancellationToken::new()).await;
    let refused = remuda_control::Chain(&refused.err().unwrap()).to_string();
    assert!(refused.contains("node password rejected"), "{refused}");
    worker.shutdown().await;
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.delete("worker", &Default::default()).await.unwrap();
    // The Node is gone, and so is its claim to the name.
    let second = world::start(impostor).await;
    until("the second worker is ready", async || is_ready(&client, "worker").await).await;
    second.shutdown().await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_are_applied_and_follow_their_files() {
    let root = tempfile::tempdir().unwrap();
    let server = first(root.path()).await;
    let client = admin(&server).await;
    let dir = server.settings.paths.manifests().join("rancher");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("addons.yaml");
    let manifest = |names: &[&str]| {
        let one = |name: &&str| {
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: addons\ndata: {{a: b}}\n"
            )
        };
        let maps: Vec<String> = names.iter().map(one).collect();
        format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: addons\n---\n{}", maps.join("---\n"))
    };
    std::fs::write(&file, manifest(&["one", "two"])).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "addons");
    let names = async || -> Vec<String> {
        let Ok(list) = maps.list(&Default::default()).await else { return Vec::new() };
        list.items.iter().map(ResourceExt::name_any).filter(|name| name != "kube-root-ca.crt").collect()
    };
    until("both are there", async || names().await == ["one", "two"]).await;
    std::fs::write(&file, manifest(&["two", "three"])).unwrap();
    until("the file is followed", async || names().await == ["three", "two"]).await;
    let chart = "apiVersion: helm.cattle.io/v1\nkind: HelmChartConfig\nmetadata:\n  name: rke2-calico\n  namespace: addons\nspec:\n  valuesContent: '{}'\n";
    std::fs::write(dir.join("managed-chart-config.yaml"), chart).unwrap();
    until("the chart is kept", async || {
        let request =
            http::Request::get("/apis/helm.cattle.io/v1/namespaces/addons/helmchartconfigs/rke2-calico");
        client.request::<serde_json::Value>(request.body(Vec::new()).unwrap()).await.is_ok()
    })
    .await;
    std::fs::write(&file, "").unwrap();
    until("an empty file takes everything away", async || names().await.is_empty()).await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_survives_restarts() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = first(root.path()).await;
    let port = server.api_port;
    let client = admin(&server).await;
    let worker = agent(other.path(), "worker", &server, &[]).await;
    until("the worker is ready", async || is_ready(&client, "worker").await).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map = serde_json::from_value(serde_json::json!({"metadata": {"name": "kept"}})).unwrap();
    maps.create(&Default::default(), &map).await.unwrap();
    let ca = std::fs::read_to_string(server.settings.paths.tls("server-ca.crt")).unwrap();
    server.shutdown().await;
    let mut settings = settings(root.path(), Distribution::K3s, Role::Server, &server_config("cp-1"));
    settings.ports.api = port;
    settings.labels.insert("new".to_owned(), "label".to_owned());
    let server = world::start(settings).await;
    assert_eq!(std::fs::read_to_string(server.settings.paths.tls("server-ca.crt")).unwrap(), ca);
    let client = admin(&server).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    assert!(maps.get_opt("kept").await.unwrap().is_some());
    let nodes: Api<Node> = Api::all(client.clone());
    until("a new label arrives", async || nodes.get("cp-1").await.unwrap().labels().contains_key("new"))
        .await;
    let renewed = async || {
        let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
            Api::namespaced(client.clone(), "kube-node-lease");
        leases.get("worker").await.ok().and_then(|lease| lease.metadata.resource_version)
    };
    let before = renewed().await;
    until("the worker has found the server again", async || renewed().await != before).await;
    worker.shutdown().await;
    server.shutdown().await;
}
