//! An input as a file: nothing is lost on the way, secrets are left out, and the same is decided about it.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use remuda_names::rancher::{annotation, secret_type};
use remuda_planner::{
    input::{AgentManifest, ConfigMap, Input, Secret, Tokens},
    node_plan::NodePlan,
    output::Outcome,
    plan,
    record::{FORMAT, Record},
    redact,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::world::{World, agent};

/// What must not be seen. Each is long enough not to be a word of something else.
const SECRETS: &[&str] = &[
    "s3cret-of-servers",
    "s3cret-of-agents",
    "s3cret-of-a-registration",
    "s3cret-of-a-proxy",
    "s3cret-of-a-chart",
    "s3cret-of-a-manifest",
    "s3cret-of-a-datastore",
    "s3cret-of-an-argument",
    "s3cret-of-a-registry",
    "s3cret-of-a-pull-secret",
    "s3cret-of-a-cloud",
    "s3cret-of-a-file",
    "s3cret-of-a-config-map",
    "s3cret-of-a-bucket",
    "s3cret-in-an-annotation",
    "s3cret-of-an-output",
];

/// A cluster with a secret in every place where one can be.
fn secretive(version: &str, machines: &str) -> World {
    let digest = BASE64_STANDARD.encode(Sha256::digest("s3cret-of-a-file"));
    let spec = json!({
        "agentEnvVars": [{"name": "HTTPS_PROXY", "value": "http://ann:s3cret-of-a-proxy@p:3128"}],
        "additionalManifest": "kind: Secret\nstringData: {a: s3cret-of-a-manifest}\n",
        "chartValues": {"rke2-calico": {"key": "s3cret-of-a-chart", "mtu": 1400}},
        "machineGlobalConfig": {
            "cni": "calico",
            "cloud-provider-config": "secret://fleet-default:cloud",
            "datastore-endpoint": "postgres://u:s3cret-of-a-datastore@db",
            "kubelet-arg": ["token=s3cret-of-an-argument", "max-pods=200"],
        },
        "machineSelectorFiles": [{"fileSources": [
            {"secret": {"name": "files", "items": [{"key": "a", "path": "/etc/a", "hash": digest}]}},
            {"configMap": {"name": "maps", "items": [{"key": "b", "path": "/etc/b"}]}},
        ]}],
        "registries": {"configs": {"reg.example": {"authConfigSecretName": "login"}}},
        "etcd": {"s3": {"bucket": "b", "endpoint": "s3.example", "cloudCredentialName": "s3"}},
    });
    let mut world = World::new(version, spec, machines);
    let own = |name: &str| ("fleet-default".to_owned(), name.to_owned());
    let secret = |kind: &str, data: &[(&str, &str)]| Secret {
        kind: kind.to_owned(),
        annotations: [
            (annotation::AUTHORIZED_FOR_CLUSTERS.to_owned(), "demo".to_owned()),
            (annotation::SECRET_AUTHORIZED_FOR_CLUSTER.to_owned(), "demo".to_owned()),
            (
                "kubectl.kubernetes.io/last-applied-configuration".to_owned(),
                "s3cret-in-an-annotation".to_owned(),
            ),
        ]
        .into(),
        data: data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect(),
    };
    let secrets = &mut world.input.resources.secrets;
    secrets.insert(own("cloud"), secret("Opaque", &[("credential", "s3cret-of-a-cloud")]));
    secrets.insert(own("files"), secret("Opaque", &[("a", "s3cret-of-a-file")]));
    secrets.insert(
        own("login"),
        secret(secret_type::BASIC_AUTH, &[("username", "ann"), ("password", "s3cret-of-a-registry")]),
    );
    secrets.insert(own("s3"), secret("Opaque", &[("accessKey", "ann"), ("secretKey", "s3cret-of-a-bucket")]));
    let map = ConfigMap {
        annotations: [(annotation::AUTHORIZED_FOR_CLUSTERS.to_owned(), "demo".to_owned())].into(),
        data: [("b".to_owned(), "s3cret-of-a-config-map".to_owned())].into(),
    };
    world.input.resources.config_maps.insert(own("maps"), map);
    world.input.fresh_tokens =
        Tokens { server: "s3cret-of-servers".to_owned(), agent: "s3cret-of-agents".to_owned() };
    let mut agent = agent();
    agent.token = "s3cret-of-a-registration".to_owned();
    agent.env = vec![("HTTPS_PROXY".to_owned(), "http://ann:s3cret-of-a-proxy@p:3128".to_owned())];
    let login = json!({"auths": {"reg.example": {"username": "u", "password": "s3cret-of-a-pull-secret"}}});
    agent.pull_secrets = vec![("pull".to_owned(), login.to_string())];
    world.input.agent_manifest = AgentManifest::Agent(Box::new(agent));
    let annotations = &mut world.input.control_plane.annotations;
    annotations.insert("example.com/note".to_owned(), "s3cret-in-an-annotation".to_owned());
    annotations.insert(annotation::CLUSTER_SPEC.to_owned(), "s3cret-of-a-manifest".to_owned());
    world
}

/// All texts of a value, with what is in base64 in them, as deep as that goes.
fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let decoded = BASE64_STANDARD.decode(text).ok().filter(|decoded| !decoded.is_empty());
            if let Some(decoded) = decoded.and_then(|decoded| String::from_utf8(decoded).ok()) {
                match serde_json::from_str(&decoded) {
                    Ok(value @ (Value::Object(_) | Value::Array(_))) => texts(&value, found),
                    _ => found.extend(decoded.lines().flat_map(|line| {
                        let word = line.split_whitespace().last().unwrap_or_default().trim_matches('"');
                        let inner =
                            BASE64_STANDARD.decode(word).ok().and_then(|inner| String::from_utf8(inner).ok());
                        [Some(line.to_owned()), inner].into_iter().flatten()
                    })),
                }
            }
            found.push(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            found.push(key.clone());
            texts(value, found);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn seen_in(value: &Value) -> Vec<&'static str> {
    let mut found = Vec::new();
    texts(value, &mut found);
    SECRETS.iter().copied().filter(|secret| found.iter().any(|text| text.contains(secret))).collect()
}

/// Goes through everything until the cluster is settled; looks at each step.
fn each_step(world: &mut World, mut look: impl FnMut(&Input)) {
    for _ in 0..100 {
        look(&world.input);
        let output = world.step();
        if output.outcome == Outcome::Settled {
            return;
        }
        world.pass_time(5);
        if matches!(output.outcome, Outcome::Waiting(_)) {
            look(&world.input);
            world.agents();
            world.drainer();
        }
    }
    panic!("it never settled: {}", plan(&world.input).outcome);
}

#[test]
fn an_input_is_the_same_after_it_was_a_file() {
    let check = |input: &Input| {
        let text = serde_json::to_string_pretty(input).unwrap();
        let read: Input = serde_json::from_str(&text).unwrap();
        assert!(&read == input);
        assert_eq!(plan(&read), plan(input));
    };
    let mut world = secretive("v1.35.1+rke2r1", "a:ec b:ec c:ec w:w win:W");
    each_step(&mut world, check);
    world.edit(|spec| spec["kubernetesVersion"] = json!("v1.35.2+rke2r1"));
    each_step(&mut world, check);
    world.input.pre_bootstrap = vec![remuda_planner::node_plan::File::new("/x", b"content").dynamic()];
    check(&world.input);
}

#[test]
fn the_test_knows_where_secrets_are() {
    let mut world = secretive("v1.35.1+rke2r1", "a:ec w:w");
    world.settle();
    let secret = world.secret("a");
    secret.data.insert("applied-output".to_owned(), b"s3cret-of-an-output".to_vec());
    let whole = serde_json::to_value(Record::whole(world.input.clone(), "v0")).unwrap();
    assert_eq!(seen_in(&whole), SECRETS, "each of them is in the whole file");
    let plans = serde_json::to_value(&world.input.machines).unwrap();
    let plans = seen_in(&plans);
    for secret in
        ["s3cret-of-servers", "s3cret-of-a-registration", "s3cret-of-a-file", "s3cret-of-a-pull-secret"]
    {
        assert!(plans.contains(&secret), "{secret} is in a plan: {plans:?}");
    }
}

#[test]
fn a_redacted_record_shows_no_secret_and_decides_the_same() {
    for (version, machines) in
        [("v1.35.1+k3s1", "a:ecw b:e c:c w:w"), ("v1.35.1+rke2r1", "a:ec b:ec c:ec w:w x:w win:W")]
    {
        let mut world = secretive(version, machines);
        let mut steps = 0;
        let mut look = |input: &Input| {
            let mut input = input.clone();
            let secret = input.machines[0].plan_secret.as_mut().unwrap();
            secret.data.insert("applied-output".to_owned(), b"s3cret-of-an-output".to_vec());
            let record = Record::redacted(&input, "v0");
            let value = serde_json::to_value(&record).unwrap();
            assert_eq!(seen_in(&value), Vec::<&str>::new(), "{}", plan(&input).outcome);
            assert_eq!(record.redaction_changes, Vec::<String>::new(), "{}", plan(&input).outcome);
            let read: Record = serde_json::from_value(value).unwrap();
            assert_eq!(read.replay().1, Vec::<String>::new());
            steps += 1;
        };
        each_step(&mut world, &mut look);
        assert!(steps > 8, "{steps}");
    }
}

#[test]
fn a_redacted_cluster_that_changes_is_told_as_one_that_changes() {
    let mut world = secretive("v1.35.1+k3s1", "a:ec b:ec c:ec w:w");
    world.settle();
    world.edit(|spec| spec["machineGlobalConfig"]["kubelet-arg"] = json!(["max-pods=100"]));
    let mut last = String::new();
    each_step(&mut world, |input| {
        let record = Record::redacted(input, "v0");
        let value = serde_json::to_value(&record).unwrap();
        assert_eq!(seen_in(&value), Vec::<&str>::new());
        // What differs is said in the file, and is no difference of programs.
        assert_eq!(record.replay().1, Vec::<String>::new());
        last = record.decision.outcome;
    });
    assert_eq!(last, "settled");
}

#[test]
fn a_program_that_decides_otherwise_is_found_out() {
    let mut world = World::new("v1.35.1+k3s1", json!({}), "a:ecw");
    world.settle();
    let mut record = Record::whole(world.input.clone(), "v0");
    assert_eq!((record.format.as_str(), record.replay().1.len()), (FORMAT, 0));
    record.decision.outcome = "waiting for the moon".to_owned();
    record.decision.machines.clear();
    assert_eq!(
        record.replay().1,
        [
            "outcome: \"settled\" instead of \"waiting for the moon\"",
            "machine a: \"ready\" instead of \"not looked at\"",
        ]
    );
}

#[test]
fn redacting_twice_changes_nothing_more() {
    let mut world = secretive("v1.35.1+k3s1", "a:ec w:w");
    world.settle();
    let once = redact(&world.input);
    assert!(redact(&once) == once);
    let plans: BTreeMap<&str, NodePlan> = once
        .machines
        .iter()
        .map(|machine| {
            let data = &machine.plan_secret.as_ref().unwrap().data;
            assert_eq!(data["plan"], data["appliedPlan"]);
            (machine.name.as_str(), NodePlan::decode(&data["plan"]).unwrap())
        })
        .collect();
    assert!(plans["a"].files.len() > 5 && plans["w"].instructions.len() == 1, "they are plans still");
}
