//! Desired plans, byte for byte.
//!
//! `plans/*.json` are the stored bytes, `plans/*.txt` the same with files unpacked, for people who review a
//! change. `UPDATE_GOLDEN=1` rewrites both. Bytes of files that are not dynamic must never change: every
//! node of every cluster would restart.

use std::{fmt::Write as _, fs, path::PathBuf, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_distro::release::Argument;
use remuda_names::rancher::{annotation, label, secret_type};
use remuda_plan::sha256_hex;

use remuda_planner::{
    driver::{Driver, DriverConfig},
    input::{AgentManifest, ConfigMap, Secret, Taint},
    node_plan::NodePlan,
    output::Outcome,
    plan,
};
use serde_json::{Value, json};

use crate::world::World;

fn unpacked(plan: &NodePlan) -> String {
    let mut text = String::new();
    for file in &plan.files {
        let flags = [(file.dynamic, " dynamic"), (file.minor, " minor")];
        let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
        writeln!(text, "== {}{flags} {}", file.path, file.permissions).unwrap();
        let content = BASE64_STANDARD.decode(file.content.as_bytes()).unwrap();
        let script = file.path.contains("idempotent.") || file.path.contains("set-permissions");
        if !script {
            writeln!(text, "{}", String::from_utf8_lossy(&content)).unwrap();
        }
    }
    for one in &plan.instructions {
        writeln!(text, "-- {} {} {:?} {:?}", one.name, one.image, one.command, one.args).unwrap();
        one.env.iter().for_each(|env| writeln!(text, "   {env}").unwrap());
    }
    for one in &plan.periodic_instructions {
        writeln!(text, "-- {} every {} s {:?} {:?}", one.name, one.period_seconds, one.command, one.args)
            .unwrap();
    }
    for (name, probe) in &plan.probes {
        let get = &probe.http_get;
        writeln!(text, ".. {name} {} {} {} {}", get.url, get.ca_cert, get.client_cert, get.client_key)
            .unwrap();
    }
    text
}

#[track_caller]
fn golden(name: &str, found: &[u8]) {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests/it/plans", name].iter().collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, found).unwrap();
    }
    let expected = fs::read(&path).unwrap_or_default();
    assert!(found == expected, "{name} differs:\n{}", String::from_utf8_lossy(found));
}

#[track_caller]
fn check(case: &str, world: &World, machine: &str) {
    let bytes = &world.get(machine).plan_secret.as_ref().unwrap().data["plan"];
    let plan = NodePlan::decode(bytes).unwrap();
    assert_eq!(&plan.encode(), bytes, "stored bytes are what Go would write");
    let plan = with_short_manifest(plan, world);
    golden(&format!("{case}.txt"), unpacked(&plan).as_bytes());
    golden(&format!("{case}.json"), &plan.encode());
}

/// The plan with a line in place of the cluster agent's manifest, whose text has tests of its own.
fn with_short_manifest(mut plan: NodePlan, world: &World) -> NodePlan {
    let AgentManifest::Agent(agent) = &world.input.agent_manifest else { return plan };
    let taints: Vec<Taint> = plan
        .files
        .iter()
        .find(|file| file.path.ends_with("/50-rancher.yaml"))
        .map_or_else(Vec::new, |file| {
            let config: Value =
                serde_json::from_slice(&BASE64_STANDARD.decode(file.content.as_bytes()).unwrap()).unwrap();
            let texts = config["node-taint"].as_array().cloned().unwrap_or_default();
            texts.iter().map(|text| taint(text.as_str().unwrap())).collect()
        });
    for file in plan.files.iter_mut().filter(|file| file.path.ends_with("/cluster-agent.yaml")) {
        let manifest = String::from_utf8(BASE64_STANDARD.decode(file.content.as_bytes()).unwrap()).unwrap();
        let lines = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        // The order of taints is that of what they follow from.
        assert_eq!(lines(&manifest), lines(&agent.manifest(&taints)));
        let short = format!("agent tolerating {} taints\n", taints.len());
        file.content = BASE64_STANDARD.encode(short).into();
    }
    plan
}

/// `key=value:effect` or `key:effect`.
fn taint(text: &str) -> Taint {
    let (name, effect) = text.rsplit_once(':').unwrap();
    let (key, value) = name.split_once('=').unwrap_or((name, ""));
    Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() }
}

fn config(world: &World, machine: &str) -> Value {
    let plan = world.plan_of(machine).unwrap();
    let file = plan.files.iter().find(|file| file.path.ends_with("/50-rancher.yaml")).unwrap();
    serde_json::from_slice(&BASE64_STANDARD.decode(file.content.as_bytes()).unwrap()).unwrap()
}

fn settled(version: &str, spec: Value, machines: &str) -> World {
    let mut world = World::new(version, spec, machines);
    world.settle();
    world
}

#[test]
fn plans_of_a_plain_k3s_cluster() {
    let world = settled("v1.35.1+k3s1", json!({}), "a:ecw b:e w:w");
    check("k3s-all-roles-init", &world, "a");
    check("k3s-etcd", &world, "b");
    check("k3s-worker", &world, "w");
}

#[test]
fn plans_of_an_rke2_cluster_with_everything() {
    let spec = json!({
        "provisionGeneration": 2,
        "agentEnvVars": [{"name": "HTTPS_PROXY", "value": "http://p:3128"}, {"name": "EMPTY", "value": ""}],
        "localClusterAuthEndpoint": {"enabled": true},
        "additionalManifest": "kind: ConfigMap\n",
        "chartValues": {"rke2-calico": {"installation": {"mtu": 1400}}, "a-chart": null},
        "machineGlobalConfig": {
            "audit-policy-file": "rules: []\n",
            "cloud-provider-config": "secret://fleet-default:cloud",
            "cloud-provider-name": "rancher-vsphere",
            "disable": ["rke2-ingress-nginx"],
            "garbage": "value",
            "kube-controller-manager-arg": ["cert-dir=/own"],
            "kube-scheduler-arg": "tls-cert-file=/s/x.crt",
            "node-label": ["ignored=yes"],
            "number": 3,
            "protect-kernel-defaults": "yes",
            "service-cidr": "10.43.0.0/16,2001:db8:42::/112",
            "tls-san": ["me <&> you"],
        },
        "machineSelectorConfig": [
            {"config": {"profile": "cis"}},
            {"machineLabelSelector": {"matchLabels": {"rke.cattle.io/worker-role": "true"}},
             "config": {"profile": "none", "kubelet-arg": ["max-pods=200"]}},
        ],
        "machineSelectorFiles": [{
            "machineLabelSelector": {"matchLabels": {"rke.cattle.io/control-plane-role": "true"}},
            "fileSources": [
                {"secret": {"name": "files", "defaultPermissions": "0644", "items": [
                    {"key": "a", "path": "/etc/a", "hash": BASE64_STANDARD.encode(hex(&sha256_hex(b"A")))},
                    {"key": "b", "path": "/etc/b", "permissions": "0600", "dynamic": true}]}},
                {"configMap": {"name": "maps", "items": [{"key": "c", "path": "/etc/c"}]}},
            ],
        }],
        "registries": {
            "mirrors": {"docker.io": {"endpoint": ["https://m.io"], "rewrite": {"^a": "b"}}},
            "configs": {
                "m.io": {"authConfigSecretName": "auth", "tlsSecretName": "tls", "caBundle": "Y2E="},
                "n.io": {"authConfigSecretName": "docker"},
                "o.io": {"insecureSkipVerify": true},
            },
        },
        "etcd": {"snapshotRetention": 5, "snapshotScheduleCron": "0 */5 * * *",
                 "s3": {"bucket": "b", "cloudCredentialName": "cattle-global-data:s3", "endpointCA": "PEM",
                        "retention": 7}},
        "networking": {"stackPreference": "ipv4"},
        "dataDirectories": {"k8sDistro": "/data/rke2", "provisioning": "/data/capr"},
    });
    let mut world = World::new("v1.35.1+rke2r1", spec, "a:ec c:c e:e v:W w:w");
    let mut put =
        |namespace: &str, name: &str, kind: &str, data: &[(&str, &str)], annotated: Option<&str>| {
            let data =
                data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
            let annotations =
                annotated.map(|key| (key.to_owned(), "other,demo".to_owned())).into_iter().collect();
            let key = (namespace.to_owned(), name.to_owned());
            world.input.resources.secrets.insert(key, Secret { kind: kind.to_owned(), annotations, data });
        };
    let files = Some(annotation::AUTHORIZED_FOR_CLUSTERS);
    put("fleet-default", "files", "Opaque", &[("a", "A"), ("b", "B")], files);
    let cloud = Some(annotation::SECRET_AUTHORIZED_FOR_CLUSTER);
    put("fleet-default", "cloud", "Opaque", &[("credential", "cloud config")], cloud);
    put("fleet-default", "auth", secret_type::BASIC_AUTH, &[("username", "u"), ("password", "p")], None);
    put("fleet-default", "tls", secret_type::TLS, &[("tls.crt", "CRT"), ("tls.key", "KEY")], None);
    let docker = json!({"auths": {"n.io": {"auth": BASE64_STANDARD.encode("nu:np")}}}).to_string();
    put("fleet-default", "docker", secret_type::DOCKER_CONFIG, &[(".dockerconfigjson", &docker)], None);
    let s3 = [
        ("s3credentialConfig-accessKey", "AK"),
        ("s3credentialConfig-secretKey", "SK"),
        ("s3credentialConfig-defaultRegion", "eu"),
    ];
    put("cattle-global-data", "s3", "Opaque", &s3, None);
    let map = ConfigMap {
        annotations: [(annotation::AUTHORIZED_FOR_CLUSTERS.to_owned(), "demo".to_owned())].into(),
        data: [("c".to_owned(), "C".to_owned())].into(),
    };
    world.input.resources.config_maps.insert(("fleet-default".to_owned(), "maps".to_owned()), map);
    let annotations = &mut world.input.control_plane.annotations;
    annotations.insert(annotation::CLUSTER_SPEC.to_owned(), "H4sIAAAA".to_owned());
    let secret = world.secret("a");
    secret.labels.insert(label::NODE_NAME.to_owned(), "node-a".to_owned());
    secret.annotations.insert(annotation::LABELS.to_owned(), "{\"tier\":\"db\"}".to_owned());
    let taints = "[{\"key\":\"k\",\"value\":\"v\",\"effect\":\"NoExecute\"}]";
    secret.annotations.insert(annotation::TAINTS.to_owned(), taints.to_owned());
    secret.annotations.insert(annotation::ADDRESS.to_owned(), "1.2.3.4".to_owned());
    secret.annotations.insert(annotation::INTERNAL_ADDRESS.to_owned(), "10.0.0.1, 2001:db8::1".to_owned());
    let references = remuda_planner::input::references(&world.input.control_plane, &world.input.settings);
    assert_eq!(references.secrets.len(), world.input.resources.secrets.len());
    assert_eq!(references.config_maps.len(), 1);
    world.settle();
    check("rke2-init", &world, "a");
    check("rke2-control-plane", &world, "c");
    check("rke2-etcd", &world, "e");
    check("rke2-worker", &world, "w");
    check("rke2-windows", &world, "v");
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn an_etcd_only_init_node_is_asked_for_its_address() {
    let world = settled("v1.35.1+k3s1", json!({}), "a:e c:c w:w");
    check("k3s-etcd-init", &world, "a");
}

/// The stamp is computed here a second time, from its definition.
#[test]
fn stamps_cover_image_generations_and_files_that_are_not_dynamic() {
    let mut world = settled("v1.35.1+k3s1", json!({"provisionGeneration": 7}), "a:ecw");
    world.input.control_plane.status.config_generation = 3;
    world.step();
    let plan = world.plan_of("a").unwrap();
    let (mut stamp, mut drain) = (String::from("7"), String::from("7"));
    let image = "rancher/system-agent-installer-k3s:v1.35.1-k3s1";
    stamp += image;
    drain += image;
    for file in plan.files.iter().filter(|file| !file.dynamic) {
        stamp += &file.path;
        stamp += &file.content;
        drain += &file.path;
        if file.path.ends_with("/50-rancher.yaml") {
            let text = String::from_utf8(BASE64_STANDARD.decode(file.content.as_bytes()).unwrap()).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with("  \"cluster-init\""));
            drain += &lines.collect::<Vec<_>>().join("\n");
        } else {
            drain += &file.content;
        }
    }
    stamp += "3";
    drain += "3";
    assert_eq!(plan.restart_stamp(), Some(sha256_hex(stamp.as_bytes()).as_str()));
    assert_eq!(plan.drain_hash(), Some(sha256_hex(drain.as_bytes()).as_str()));
}

#[test]
fn joining_elsewhere_restarts_a_node_but_does_not_drain_it() {
    let mut world = settled("v1.35.1+k3s1", json!({}), "a:ec b:ec w:w");
    let before = world.plan_of("b").unwrap();
    world.secret("a").annotations.insert(annotation::JOIN_URL.to_owned(), "https://other:6443".to_owned());
    world.get_mut("a").kubelet_version = None;
    world.step();
    let after = world.plan_of("b").unwrap();
    assert_ne!(before.restart_stamp(), after.restart_stamp());
    assert_eq!(before.drain_hash(), after.drain_hash());
}

#[test]
fn chart_values_and_manifests_change_no_stamp() {
    let plain = settled("v1.35.1+rke2r1", json!({}), "a:ecw");
    let spec = json!({"chartValues": {"rke2-calico": {"a": 1}}, "additionalManifest": "x: 1"});
    let rich = settled("v1.35.1+rke2r1", spec, "a:ecw");
    let stamp = |world: &World| world.plan_of("a").unwrap().restart_stamp().unwrap().to_owned();
    assert_eq!(stamp(&plain), stamp(&rich));
    assert_ne!(plain.plan_of("a"), rich.plan_of("a"));
}

#[test]
fn a_global_registry_is_used_with_its_pull_secret() {
    let mut world = World::new("v1.35.1+rke2r1", json!({}), "a:ecw w:w");
    world.input.settings.system_default_registry = "reg.io".to_owned();
    world.input.settings.pull_secrets = vec!["missing".to_owned(), "pull".to_owned()];
    let docker = json!({"auths": {"reg.io": {"username": "u", "password": "p"}}}).to_string().into_bytes();
    let pull = Secret {
        kind: secret_type::DOCKER_CONFIG.to_owned(),
        data: [(".dockerconfigjson".to_owned(), docker)].into(),
        ..Secret::default()
    };
    world.input.resources.secrets.insert(("cattle-system".to_owned(), "pull".to_owned()), pull);
    world.settle();
    let plan = world.plan_of("w").unwrap();
    assert_eq!(plan.files[0].path, "/etc/rancher/agent/registries.yaml");
    let raw = BASE64_STANDARD.decode(plan.files[0].content.as_bytes()).unwrap();
    assert_eq!(
        String::from_utf8(raw).unwrap(),
        "{\"configs\":{\"reg.io\":{\"auth\":{\"username\":\"u\",\"password\":\"p\",\"auth\":\"dTpw\",\
         \"identity_token\":\"\"},\"tls\":null}},\"mirrors\":{}}"
    );
    assert!(plan.instructions[0].image.starts_with("reg.io/rancher/"));
    assert_eq!(config(&world, "a")["system-default-registry"], "reg.io");
    assert_eq!(config(&world, "w").get("system-default-registry"), None);
}

#[test]
fn unmanaged_nodes_get_probes_and_the_installer_only() {
    let world = settled("v1.35.1+k3s1", json!({"unmanagedConfig": true}), "a:ecw");
    let plan = world.plan_of("a").unwrap();
    assert!(plan.files.is_empty());
    assert_eq!((plan.instructions.len(), plan.probes.len()), (1, 4));
}

#[test]
fn a_digitalocean_machine_without_a_private_network_uses_its_public_address() {
    let mut world = World::new("v1.35.1+k3s1", json!({}), "a:ecw");
    world.get_mut("a").driver = Driver::Saved(DriverConfig {
        driver: "digitalocean".to_owned(),
        ip_address: "1.2.3.4".to_owned(),
        ..DriverConfig::default()
    });
    world.settle();
    assert_eq!(config(&world, "a")["node-ip"], json!(["1.2.3.4"]));
}

#[test]
fn prime_is_for_rke2_servers_that_know_it() {
    let mut world = World::new("v1.35.1+rke2r1", json!({}), "a:ec w:w");
    world.input.settings.prime = true;
    world.settle();
    assert_eq!(config(&world, "a").get("prime"), None);
    let boolean = Argument { kind: "boolean".to_owned(), ..Argument::default() };
    Arc::make_mut(&mut world.input.release.server_args).insert("prime".into(), boolean);
    world.settle();
    assert_eq!(config(&world, "a")["prime"], true);
    assert_eq!(config(&world, "w").get("prime"), None);
    world.input.control_plane.annotations.insert(annotation::PRIME.to_owned(), "false".to_owned());
    world.settle();
    assert_eq!(config(&world, "a").get("prime"), None);
}

#[track_caller]
fn check_failure(change: impl FnOnce(&mut World), expected: &str) {
    let mut world = World::new("v1.35.1+k3s1", json!({}), "a:ecw");
    change(&mut world);
    world.step();
    let output = plan(&world.input);
    assert!(matches!(output.outcome, Outcome::Failed(_)), "{}", output.outcome);
    assert_eq!(output.outcome.to_string(), expected);
}

#[test]
fn what_cannot_be_rendered_says_why() {
    check_failure(
        |world| world.input.agent_manifest = AgentManifest::NoToken,
        "no cluster registration token found",
    );
    let selected = |source: Value| json!([{"fileSources": [source]}]);
    check_failure(
        |world| world.edit(|spec| spec["machineSelectorFiles"] = selected(json!({"secret": {"name": "x"}}))),
        "secret fleet-default/x not found",
    );
    check_failure(
        |world| {
            let key = ("fleet-default".to_owned(), "x".to_owned());
            world.input.resources.secrets.insert(key, Secret::default());
            world.edit(|spec| spec["machineSelectorFiles"] = selected(json!({"secret": {"name": "x"}})));
        },
        "error rendering files: cluster fleet-default/demo was not authorized to access secret fleet-default/x",
    );
    check_failure(
        |world| {
            let annotations = [(annotation::AUTHORIZED_FOR_CLUSTERS.to_owned(), "demo".to_owned())].into();
            let key = ("fleet-default".to_owned(), "x".to_owned());
            world.input.resources.secrets.insert(key, Secret { annotations, ..Secret::default() });
            let source =
                json!({"secret": {"name": "x", "items": [{"key": "k", "path": "/p", "hash": "nope"}]}});
            world.edit(|spec| spec["machineSelectorFiles"] = selected(source));
        },
        "secret x does not contain the expected content",
    );
    check_failure(
        |world| {
            world.secret("a").annotations.insert(annotation::LABELS.to_owned(), "{".to_owned());
        },
        "annotation rke.cattle.io/labels of machine a is not valid JSON",
    );
    check_failure(
        |world| {
            let config =
                json!([{"machineLabelSelector": {"matchExpressions": [{"key": "a", "operator": "?"}]}}]);
            world.edit(|spec| spec["machineSelectorConfig"] = config);
        },
        "\"?\" is not a valid label selector operator, or has the wrong number of values, on \"a\"",
    );
    check_failure(
        |world| {
            let key = ("fleet-default".to_owned(), "x".to_owned());
            world.input.resources.secrets.insert(key, Secret::default());
            world.edit(|spec| spec["registries"] = json!({"configs": {"r": {"authConfigSecretName": "x"}}}));
        },
        "secret [x] must be of type [rke.cattle.io/auth-config] or [kubernetes.io/basic-auth] or \
         [kubernetes.io/dockerconfigjson]",
    );
}

#[test]
fn a_restart_that_is_asked_for_concerns_one_machine_and_drains_nothing() {
    let mut world = settled("v1.35.1+k3s1", json!({}), "a:ecw w:w x:w");
    let env = |world: &World, machine: &str, name: &str| {
        let plan = world.plan_of(machine).unwrap();
        let install = plan.instructions.iter().find(|one| one.name == "install").unwrap();
        install.env.iter().find_map(|env| env.strip_prefix(name)).unwrap().to_owned()
    };
    let all = |world: &World| {
        ["a", "w", "x"]
            .map(|machine| (env(world, machine, "RESTART_STAMP="), env(world, machine, "DRAIN_HASH=")))
    };
    let before = all(&world);
    world.get_mut("w").restart_asked = "2026-01-01T00:00:00Z".to_owned();
    world.settle();
    let after = all(&world);
    assert_eq!((&after[0], &after[2]), (&before[0], &before[2]));
    assert_ne!(after[1].0, before[1].0, "another stamp restarts");
    assert_eq!(after[1].1, before[1].1, "nothing is to be drained");
}
