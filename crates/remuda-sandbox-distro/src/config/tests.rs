use super::*;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Settings of a server or agent with these files, flags and variables.
fn load(role: Role, file: &str, flags: &str, env: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("etc/rancher/k3s/config.yaml.d");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("50-rancher.yaml"), file).unwrap();
    let (mut flags, _) = parse_flags(&words(flags));
    flags.0.insert("root".to_owned(), vec![root.path().display().to_string()]);
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Settings::load(Distribution::K3s, role, &Sources { flags, env })
}

#[test]
fn a_taint_that_is_none_keeps_a_node_from_starting() {
    for taint in ["a_b=c:Never", "key", ":NoSchedule"] {
        let file = format!(r#"{{"node-taint": ["{taint}"]}}"#);
        let error = load(Role::Server, &file, "", &[]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("node-taint: {taint:?} is not key[=value]:effect")), "{error}");
    }
    assert_eq!(load(Role::Server, r#"{"node-taint": [""]}"#, "", &[]).unwrap().taints.len(), 0);
}

#[test]
fn a_plan_of_an_init_node_is_understood() {
    let file = r#"{
      "agent-token": "agent", "cluster-init": true, "token": "server", "node-name": "demo-cp-1",
      "kube-controller-manager-arg": ["cert-dir=/var/lib/rancher/k3s/server/tls/kube-controller-manager", "secure-port=10257"],
      "kube-scheduler-arg": ["secure-port=20259"],
      "node-label": ["cattle.io/os=linux", "rke.cattle.io/machine=uid"],
      "node-taint": ["node-role.kubernetes.io/control-plane:NoSchedule", "dedicated=apps:NoExecute"],
      "node-ip": ["10.0.0.1"], "tls-san": ["203.0.113.1"], "garbage": "value"
    }"#;
    let settings = load(Role::Server, file, "", &[]).unwrap();
    assert!(settings.cluster_init && settings.server.is_none());
    assert_eq!(settings.labels["rke.cattle.io/machine"], "uid");
    let taints: Vec<_> = settings.taints.iter().map(|taint| (&*taint.key, taint.value.as_deref())).collect();
    assert_eq!(taints, [("dedicated", Some("apps")), ("node-role.kubernetes.io/control-plane", None)]);
    assert_eq!(settings.controller_manager.secure_port, Some(10257));
    assert_eq!(settings.scheduler.secure_port, Some(20259));
    let cert_dir = settings.controller_manager.cert_dir.unwrap();
    assert!(
        cert_dir.ends_with("var/lib/rancher/k3s/server/tls/kube-controller-manager")
            && cert_dir.is_absolute()
    );
    assert_ne!(cert_dir, Path::new("/var/lib/rancher/k3s/server/tls/kube-controller-manager"));
}

#[test]
fn flags_replace_values_and_add_to_lists() {
    let settings = load(
        Role::Server,
        "token: file\nnode-label: [a=1]\nnode-name: one",
        "--token flag --node-label b=2 --node-name=two --cluster-init",
        &[("K3S_TOKEN", "env")],
    )
    .unwrap();
    assert_eq!(settings.token.as_deref(), Some("flag"));
    assert_eq!(settings.node_name, "two");
    assert!(settings.cluster_init);
    assert_eq!(settings.labels.len(), 2);
}

#[test]
fn the_environment_fills_gaps() {
    let env = [("K3S_TOKEN", "env"), ("K3S_URL", "https://a:6443"), ("K3S_NODE_NAME", "n")];
    let settings = load(Role::Agent, "node-name: file", "", &env).unwrap();
    assert_eq!(settings.token.as_deref(), Some("env"));
    assert_eq!(settings.server.as_deref(), Some("https://a:6443"));
    assert_eq!(settings.node_name, "file");
}

#[test]
fn an_agent_without_a_server_is_refused() {
    let error = load(Role::Agent, "token: a", "", &[]).unwrap_err();
    assert_eq!(error.to_string(), "an agent needs `server` and `token`: server is missing");
}

#[test]
fn bad_values_are_named() {
    for (file, expected) in [
        ("node-ip: [nonsense]", "node-ip: \"nonsense\" is not an IP address"),
        ("node-name: Not_A_Name", "node-name: \"Not_A_Name\" is not a name a Node can have"),
        ("server: http://a", "server: \"http://a\" does not begin with https://"),
    ] {
        assert_eq!(load(Role::Server, file, "", &[]).unwrap_err().to_string(), expected);
    }
}

#[test]
fn settings_of_the_real_distributions_are_known() {
    for known in ["etcd-s3-proxy", "cni", "private-registry", "kube-proxy-arg", "prime"] {
        assert_eq!(flags::meaning(known), flags::Meaning::Accepted, "{known}");
    }
    assert_eq!(flags::meaning("garbage"), flags::Meaning::Unknown);
    assert_eq!(flags::meaning("vx"), flags::Meaning::Unknown);
    for known in ["token", "etcd-snapshot-schedule-cron", "etcd-s3"] {
        assert_eq!(flags::meaning(known), flags::Meaning::Acted, "{known}");
    }
}

#[test]
fn the_version_comes_from_the_unit() {
    let env = [("REMUDA_NODE_VERSION", "v1.34.2+k3s1")];
    assert_eq!(load(Role::Server, "", "", &env).unwrap().version, "v1.34.2+k3s1");
    assert_eq!(load(Role::Server, "", "", &[]).unwrap().version, Distribution::K3s.default_version());
}

#[test]
fn an_authentication_webhook_is_taken_from_the_arguments_of_the_api() {
    let webhook = |args: &str| {
        let file = format!("token: t\nkube-apiserver-arg: [{args}]");
        load(Role::Server, &file, "", &[]).map(|settings| settings.webhook)
    };
    assert_eq!(webhook("").unwrap(), None);
    assert_eq!(webhook("v=2, authentication-token-webhook-cache-ttl=1s").unwrap(), None);
    let file = "authentication-token-webhook-config-file=/var/lib/rancher/k3s/kube-api-authn-webhook.yaml";
    let found = webhook(&format!("v=2, {file}")).unwrap().unwrap();
    assert!(found.config.ends_with("var/lib/rancher/k3s/kube-api-authn-webhook.yaml"));
    assert_eq!((found.cache.as_secs(), found.version.as_str()), (120, "v1beta1"));
    for (text, seconds) in [("0", 0), ("10s", 10), ("2m0s", 120), ("1h", 3600)] {
        let found =
            webhook(&format!("{file}, authentication-token-webhook-cache-ttl={text}")).unwrap().unwrap();
        assert_eq!(found.cache.as_secs(), seconds, "{text}");
    }
    for odd in ["cache-ttl=soon", "cache-ttl=-1s", "version=v2"] {
        assert!(webhook(&format!("{file}, authentication-token-webhook-{odd}")).is_err(), "{odd}");
    }
}

#[test]
fn a_store_of_snapshots_is_what_plans_and_commands_say_about_it() {
    let file = r#"{
      "etcd-s3": true, "etcd-s3-bucket": "backups", "etcd-s3-endpoint": "s3.corp:9000", "etcd-s3-folder": "demo",
      "etcd-s3-access-key": "id", "etcd-s3-retention": 3, "etcd-s3-endpoint-ca": "/ca.crt"
    }"#;
    let env = [("AWS_SECRET_ACCESS_KEY", "canary")];
    let settings = load(Role::Server, file, "", &env).unwrap();
    assert!(!format!("{settings:?}").contains("canary"));
    let s3 = settings.snapshots.s3.unwrap();
    assert_eq!((s3.config.secret_key.as_str(), s3.retention), ("canary", 3));
    assert!(
        s3.config.endpoint_ca.ends_with("/ca.crt") && s3.config.endpoint_ca != "/ca.crt",
        "below the root"
    );
    assert_eq!(settings.reset, None);
    // As a plan deletes the copy on the server alone.
    assert_eq!(load(Role::Server, file, "--etcd-s3=false", &env).unwrap().snapshots.s3, None);
    let more = load(Role::Server, file, "--s3 --s3-bucket other", &env).unwrap();
    assert_eq!(more.snapshots.s3.unwrap().config.bucket, "other");
    // As a plan restores.
    let reset = |flags: &str| load(Role::Server, file, flags, &env).map(|settings| settings.reset.unwrap());
    let from = reset("--cluster-reset --cluster-reset-restore-path=on-demand-a-1").unwrap();
    assert!(from.download && from.restore.unwrap().ends_with("server/db/snapshots/on-demand-a-1"));
    let local = "--cluster-reset --cluster-reset-restore-path=db/snapshots/a --etcd-s3=false";
    let local = reset(local).unwrap();
    assert!(!local.download && local.restore.unwrap().ends_with("server/db/snapshots/a"));
    assert!(reset("--cluster-reset --cluster-reset-restore-path=../a").is_err());
    let odd = load(Role::Server, r#"{"etcd-s3": true, "etcd-s3-timeout": "soon"}"#, "", &env).unwrap_err();
    assert!(matches!(odd, ConfigError::S3(_)));
}
