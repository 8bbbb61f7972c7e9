//! Nothing anybody can store makes a pass panic, and every pass has an answer.

use proptest::prelude::*;
use remuda_planner::{
    driver::{Driver, DriverConfig},
    input::{ControlPlane, PlanSecret, Secret, references},
    plan,
};
use serde_json::{Map, Value, json};

use crate::world::{base, machine};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("true".to_owned()),
        Just("100%".to_owned()),
        Just("secret://a:b".to_owned()),
        Just("cert-dir=/x".to_owned()),
        Just("demo".to_owned()),
        ".{0,12}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i32>().prop_map(|number| json!(number)),
        any::<f64>().prop_map(|number| json!(number)),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(text(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

const ARGUMENTS: &[&str] = &[
    "cni",
    "node-ip",
    "node-external-ip",
    "service-cidr",
    "tls-san",
    "kube-apiserver-arg",
    "kube-controller-manager-arg",
    "kube-scheduler-arg",
    "cloud-provider-config",
    "cloud-provider-name",
    "audit-policy-file",
    "system-default-registry",
    "disable",
];

fn config() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(prop::sample::select(ARGUMENTS), value(), 0..6)
        .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
}

type Annotations = Vec<(String, String)>;
type Data = Vec<(String, Vec<u8>)>;

fn plan_secret() -> impl Strategy<Value = (Annotations, Data)> {
    let annotation = prop::sample::select(vec![
        "labels",
        "taints",
        "address",
        "internal-address",
        "join-url",
        "joined-to",
        "drain-options",
        "drain-done",
        "uncordon",
        "drain-error",
        "plan-probes-passed",
        "join-url-autoset-disabled",
    ]);
    let annotation = annotation.prop_map(|key| format!("rke.cattle.io/{key}"));
    let data = prop::sample::select(vec![
        "plan",
        "appliedPlan",
        "plan-state",
        "failure-count",
        "failure-threshold",
        "failed-checksum",
        "probe-statuses",
        "applied-periodic-output",
    ]);
    let bytes = prop_oneof![
        Just(b"{}".to_vec()),
        Just(b"{\"instructions\":[{\"name\":\"install\",\"env\":[\"DRAIN_HASH=1\"]}]}".to_vec()),
        Just(b"{\"kubelet\":{\"healthy\":true}}".to_vec()),
        Just(b"-1".to_vec()),
        prop::collection::vec(any::<u8>(), 0..20),
    ];
    (
        prop::collection::vec((annotation, text()), 0..6),
        prop::collection::vec((data.prop_map(str::to_owned), bytes), 0..6),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_objects_get_an_answer(
        rke2: bool,
        global in config(),
        selected in config(),
        charts in value(),
        concurrency in text(),
        registry in text(),
        s3 in text(),
        secrets in prop::collection::vec(plan_secret(), 4),
        marks in 0_u8..16,
    ) {
        let version = if rke2 { "v1.35.1+rke2r1" } else { "v1.35.1+k3s1" };
        let mut input = base(version, json!({
            "machineGlobalConfig": global,
            "machineSelectorConfig": [{"config": selected}],
            "chartValues": if charts.is_object() { charts } else { Value::Null },
            "upgradeStrategy": {"controlPlaneConcurrency": concurrency, "workerConcurrency": concurrency},
            "registries": {"configs": {registry: {"authConfigSecretName": "b", "caBundle": s3}}},
            "etcd": {"s3": {"bucket": s3, "endpointCA": s3, "cloudCredentialName": ""}},
        }));
        for (at, (annotations, data)) in secrets.into_iter().enumerate() {
            let mut one = machine(&format!("m{at}"), ["ecw", "ec", "w", "W"][at]);
            let secret = one.plan_secret.as_mut().unwrap();
            secret.annotations.extend(annotations);
            secret.data.extend(data);
            if marks >> at & 1 == 1 {
                secret.labels.insert("rke.cattle.io/init-node".to_owned(), "true".to_owned());
                one.kubelet_version = Some(registry_version(at));
                one.node = Some("x".to_owned());
                one.driver = Driver::Saved(DriverConfig::default());
            } else if at == 3 {
                one.deleting = true;
            }
            input.machines.push(one);
        }
        let secret = Secret {
            kind: "kubernetes.io/dockerconfigjson".to_owned(),
            data: [(".dockerconfigjson".to_owned(), b"{\"auths\":{\"\":{\"auth\":\"!\"}}}".to_vec())].into(),
            ..Secret::default()
        };
        input.resources.secrets.insert(("fleet-default".to_owned(), "b".to_owned()), secret);
        let _ = references(&input.control_plane, &input.settings);
        let output = plan(&input);
        prop_assert!(!output.outcome.to_string().is_empty());
        prop_assert_eq!(&output, &plan(&input));
        for write in &output.writes {
            let mut secret = PlanSecret::default();
            write.apply(&mut secret, input.now);
        }
    }

    #[test]
    fn any_object_is_read_or_refused(object in value()) {
        let _ = ControlPlane::read(&json!({"metadata": {"name": "x"}, "spec": object, "status": object}));
        let _ = ControlPlane::read(&object);
    }
}

fn registry_version(at: usize) -> String {
    ["v1.35.1", "", "garbage", "v1.34.0"][at].to_owned()
}

#[test]
fn a_thousand_etcd_machines_are_no_trouble() {
    let mut input = base("v1.35.1+k3s1", json!({}));
    input.machines = (0..1000).map(|at| machine(&format!("m{at}"), "ecw")).collect();
    assert_eq!(plan(&input).outcome.to_string(), "electing init node");
}
