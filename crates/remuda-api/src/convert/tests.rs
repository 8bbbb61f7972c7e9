use super::*;
use crate::crd;
use proptest::prelude::{
    BoxedStrategy, Just, ProptestConfig, Strategy, any, prop_assert_eq, prop_oneof, proptest,
};
use remuda_schema::{CrdView, default_crd};
use serde_json::json;

fn served(group: &str, kind: &str) -> Option<String> {
    (group == "rke.cattle.io" && kind != "Lost").then(|| "rke.cattle.io/v1".to_owned())
}

fn to(crd: &str, object: &Value, version: &str) -> Value {
    let mut object = object.clone();
    conversion(crd, served).unwrap()(&mut object, version).unwrap();
    object
}

fn object(kind: &str, version: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": kind,
        "metadata": {"name": "demo", "namespace": "ns"}, "spec": spec, "status": status,
    })
}

/// Converts down, compares without the annotation, and converts up again to what it was.
#[track_caller]
fn check(crd: &str, hub: &Value, expected_spec: Value, expected_status: Value) {
    let spoke = to(crd, hub, "v1beta1");
    assert_eq!(spoke["apiVersion"], "cluster.x-k8s.io/v1beta1");
    assert_eq!(spoke["spec"], expected_spec);
    assert_eq!(spoke["status"], expected_status);
    assert_valid(crd, &spoke, "v1beta1");
    assert_eq!(to(crd, &spoke, "v1beta2"), *hub);
}

/// The served schema accepts the object and knows all its fields.
#[track_caller]
fn assert_valid(name: &str, object: &Value, version: &str) {
    let mut definition = crd::named(name).unwrap();
    default_crd(&mut definition);
    let view = CrdView::parse(&definition).unwrap();
    let schema = &view.version(version).unwrap().schema;
    assert_eq!(schema.validate(object, None), []);
    let mut unknown = Vec::new();
    schema.prune(&mut object.clone(), Some(&mut unknown));
    assert_eq!(unknown, Vec::<String>::new());
}

const MACHINES: &str = "machines.cluster.x-k8s.io";
const CLUSTERS: &str = "clusters.cluster.x-k8s.io";
const DEPLOYMENTS: &str = "machinedeployments.cluster.x-k8s.io";

fn machine() -> Value {
    object(
        "Machine",
        "v1beta2",
        json!({
            "clusterName": "demo",
            "bootstrap": {"configRef": {"apiGroup": "rke.cattle.io", "kind": "RKEBootstrap", "name": "b"}},
            "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "Lost", "name": "i"},
            "minReadySeconds": 30,
            "deletion": {"nodeDrainTimeoutSeconds": 0, "nodeDeletionTimeoutSeconds": 90},
        }),
        json!({
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-08-01T10:00:00Z",
            }],
            "deprecated": {"v1beta1": {"conditions": [{
                "type": "Ready", "status": "False", "severity": "Info", "reason": "Old",
                "lastTransitionTime": "2026-08-01T10:00:00Z",
            }]}},
            "initialization": {"infrastructureProvisioned": true, "bootstrapDataSecretCreated": false},
            "nodeRef": {"name": "n"},
            "failureDomain": "a",
            "phase": "Updating",
        }),
    )
}

#[test]
fn a_machine_has_its_old_shape() {
    check(
        MACHINES,
        &machine(),
        json!({
            "clusterName": "demo",
            "bootstrap": {"configRef": {
                "apiVersion": "rke.cattle.io/v1", "kind": "RKEBootstrap", "name": "b", "namespace": "ns",
            }},
            "infrastructureRef": {
                "apiVersion": "rke.cattle.io/v1beta1", "kind": "Lost", "name": "i", "namespace": "ns",
            },
            "nodeDrainTimeout": "0s",
            "nodeDeletionTimeout": "1m30s",
        }),
        json!({
            "conditions": [{
                "type": "Ready", "status": "False", "severity": "Info", "reason": "Old",
                "lastTransitionTime": "2026-08-01T10:00:00Z",
            }],
            "v1beta2": {"conditions": [{
                "type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-08-01T10:00:00Z",
            }]},
            "infrastructureReady": true,
            "bootstrapReady": false,
            "nodeRef": {"apiVersion": "v1", "kind": "Node", "name": "n"},
            "phase": "Running",
        }),
    );
}

#[test]
fn what_the_old_client_changes_is_changed_and_the_rest_stays() {
    let mut spoke = to(MACHINES, &machine(), "v1beta1");
    spoke["spec"]["nodeDeletionTimeout"] = json!("2m");
    spoke["spec"].as_object_mut().unwrap().remove("nodeDrainTimeout");
    spoke["status"]["bootstrapReady"] = json!(true);
    spoke["status"]["phase"] = json!("Failed");
    let hub = to(MACHINES, &spoke, "v1beta2");
    assert_eq!(hub["spec"]["deletion"], json!({"nodeDeletionTimeoutSeconds": 120}));
    assert_eq!(hub["spec"]["minReadySeconds"], 30);
    assert_eq!(hub["status"]["initialization"]["bootstrapDataSecretCreated"], true);
    assert_eq!(hub["status"]["phase"], "Updating", "an old client has no say in the phase");
    assert_eq!(hub["metadata"], json!({"name": "demo", "namespace": "ns"}));
}

#[test]
fn an_object_that_was_never_stored_converts_without_help() {
    let spoke = object(
        "Machine",
        "v1beta1",
        json!({
            "clusterName": "demo",
            "bootstrap": {"dataSecretName": ""},
            "infrastructureRef": {"apiVersion": "x.io/v1", "kind": "Server", "name": "s", "namespace": "elsewhere"},
            "version": "",
            "nodeDrainTimeout": "1h",
        }),
        json!({"infrastructureReady": false}),
    );
    let hub = to(MACHINES, &spoke, "v1beta2");
    assert_eq!(
        hub["spec"],
        json!({
            "clusterName": "demo",
            "bootstrap": {"dataSecretName": ""},
            "infrastructureRef": {"apiGroup": "x.io", "kind": "Server", "name": "s"},
            "deletion": {"nodeDrainTimeoutSeconds": 3600},
        })
    );
    assert_eq!(hub.get("status"), None);
}

#[test]
fn a_cluster_has_its_old_shape() {
    check(
        CLUSTERS,
        &object(
            "Cluster",
            "v1beta2",
            json!({
                "paused": false,
                "controlPlaneEndpoint": {"host": "h", "port": 6443},
                "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "RKECluster", "name": "i"},
                "topology": {
                    "classRef": {"name": "c", "namespace": "classes"}, "version": "v1.34.0",
                    "workers": {"machineDeployments": [{
                        "class": "w", "name": "md",
                        "deletion": {"order": "Oldest", "nodeDrainTimeoutSeconds": 5},
                        "rollout": {"strategy": {"type": "OnDelete"}},
                    }]},
                },
            }),
            json!({
                "initialization": {"infrastructureProvisioned": true},
                "failureDomains": [{"name": "a", "controlPlane": true}, {"name": "b", "controlPlane": false}],
                "workers": {"replicas": 0},
            }),
        ),
        json!({
            "paused": false,
            "controlPlaneEndpoint": {"host": "h", "port": 6443},
            "infrastructureRef": {
                "apiVersion": "rke.cattle.io/v1", "kind": "RKECluster", "name": "i", "namespace": "ns",
            },
            "topology": {
                "class": "c", "classNamespace": "classes", "version": "v1.34.0",
                "workers": {"machineDeployments": [{
                    "class": "w", "name": "md", "nodeDrainTimeout": "5s",
                    "strategy": {"type": "OnDelete", "rollingUpdate": {"deletePolicy": "Oldest"}},
                }]},
            },
        }),
        json!({
            "infrastructureReady": true,
            "failureDomains": {"a": {"controlPlane": true}, "b": {"controlPlane": false}},
            "v1beta2": {"workers": {"replicas": 0}},
        }),
    );
}

#[test]
fn a_deployment_has_its_old_shape() {
    let template = |minimum: Value| {
        let mut spec = json!({"clusterName": "demo", "bootstrap": {"dataSecretName": "s"}});
        if !minimum.is_null() {
            spec["minReadySeconds"] = minimum;
        }
        json!({"spec": spec, "metadata": {"labels": {"a": "b"}}})
    };
    check(
        DEPLOYMENTS,
        &object(
            "MachineDeployment",
            "v1beta2",
            json!({
                "clusterName": "demo", "replicas": 3, "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "spec": {
                        "clusterName": "demo", "bootstrap": {"dataSecretName": "s"}, "minReadySeconds": 5,
                        "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "T", "name": "i"},
                    },
                    "metadata": {"labels": {"a": "b"}},
                },
                "rollout": {
                    "after": "2026-08-01T10:00:00Z",
                    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                },
                "deletion": {"order": "Oldest"},
                "remediation": {"maxInFlight": "20%"},
            }),
            json!({"replicas": 0, "readyReplicas": 0, "deprecated": {"v1beta1": {"updatedReplicas": 2}}}),
        ),
        json!({
            "clusterName": "demo", "replicas": 3, "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "spec": {
                    "clusterName": "demo", "bootstrap": {"dataSecretName": "s"},
                    "infrastructureRef": {
                        "apiVersion": "rke.cattle.io/v1", "kind": "T", "name": "i", "namespace": "ns",
                    },
                },
                "metadata": template(Value::Null)["metadata"],
            },
            "minReadySeconds": 5,
            "rolloutAfter": "2026-08-01T10:00:00Z",
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0, "deletePolicy": "Oldest"},
                "remediation": {"maxInFlight": "20%"},
            },
        }),
        json!({"replicas": 0, "updatedReplicas": 2, "v1beta2": {"readyReplicas": 0}}),
    );
}

#[test]
fn a_health_check_has_its_old_shape() {
    check(
        "machinehealthchecks.cluster.x-k8s.io",
        &object(
            "MachineHealthCheck",
            "v1beta2",
            json!({
                "clusterName": "demo", "selector": {"matchLabels": {"a": "b"}},
                "checks": {
                    "nodeStartupTimeoutSeconds": 600,
                    "unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": 300}],
                },
                "remediation": {
                    "triggerIf": {"unhealthyLessThanOrEqualTo": "40%", "unhealthyInRange": "[1-3]"},
                    "templateRef": {"apiVersion": "x.io/v1", "kind": "FixTemplate", "name": "f"},
                },
            }),
            json!({"expectedMachines": 0, "currentHealthy": 0}),
        ),
        json!({
            "clusterName": "demo", "selector": {"matchLabels": {"a": "b"}},
            "nodeStartupTimeout": "10m0s",
            "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "timeout": "5m0s"}],
            "maxUnhealthy": "40%",
            "unhealthyRange": "[1-3]",
            "remediationTemplate": {"apiVersion": "x.io/v1", "kind": "FixTemplate", "name": "f", "namespace": "ns"},
        }),
        json!({"expectedMachines": 0, "currentHealthy": 0}),
    );
}

#[test]
fn a_forged_annotation_does_no_harm() {
    for data in ["", "null", "[]", "{", "{\"spec\": 7}", "{\"metadata\": {\"name\": \"evil\"}}"] {
        let mut spoke = to(MACHINES, &machine(), "v1beta1");
        spoke["metadata"]["annotations"][CONVERSION_DATA] = json!(data);
        let hub = to(MACHINES, &spoke, "v1beta2");
        assert_eq!(hub["spec"]["clusterName"], "demo", "{data}");
        assert_eq!(hub["metadata"], json!({"name": "demo", "namespace": "ns"}), "{data}");
    }
}

#[test]
fn kinds_that_differ_in_name_only_need_no_conversion() {
    let with_tables = crd::names().filter(|name| conversion(name, served).is_some()).count();
    assert_eq!(with_tables, 8);
    assert!(conversion("machinedrainrules.cluster.x-k8s.io", served).is_none());
}

#[test]
fn versions_nobody_knows_are_refused() {
    let convert = conversion(MACHINES, served).unwrap();
    assert_eq!(convert(&mut machine(), "v9"), Err("cannot convert from v1beta2 to v9".into()));
    let mut same = machine();
    assert_eq!(convert(&mut same, "v1beta2"), Ok(()));
    assert_eq!(same, machine());
}

/// Values that a schema of any kind could hold at some path, structure included.
fn arbitrary(definition: &'static str) -> BoxedStrategy<Value> {
    let crd = crd::named(definition).unwrap();
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let version = versions.iter().find(|version| version["name"] == "v1beta2").unwrap();
    let properties = version["schema"]["openAPIV3Schema"]["properties"].clone();
    let kind = crd["spec"]["names"]["kind"].as_str().unwrap().to_owned();
    let group = crd["spec"]["group"].as_str().unwrap().to_owned();
    (of_schema(&properties["spec"], 6), of_schema(&properties["status"], 6))
        .prop_map(move |(spec, status)| {
            json!({
                "apiVersion": format!("{group}/v1beta2"), "kind": kind,
                "metadata": {"name": "demo", "namespace": "ns"}, "spec": spec, "status": status,
            })
        })
        .boxed()
}

fn of_schema(schema: &Value, depth: u32) -> BoxedStrategy<Value> {
    if schema["x-kubernetes-int-or-string"] == true {
        return prop_oneof![Just(json!(0)), Just(json!(2)), Just(json!("25%"))].boxed();
    }
    match schema["type"].as_str() {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => prop_oneof![Just(json!(0)), (1..100_000i64).prop_map(Value::from)].boxed(),
        Some("string") if schema["format"] == "date-time" => Just(json!("2026-08-01T10:00:00Z")).boxed(),
        Some("string") => prop_oneof![Just(json!("")), Just(json!("x")), Just(json!("Updating"))].boxed(),
        Some("array") if depth > 0 => proptest::collection::vec(of_schema(&schema["items"], depth - 1), 0..3)
            .prop_map(Value::from)
            .boxed(),
        Some("object") if depth > 0 => match schema["properties"].as_object() {
            Some(properties) => properties
                .iter()
                .map(|(key, schema)| (Just(key.clone()), proptest::option::of(of_schema(schema, depth - 1))))
                .collect::<Vec<_>>()
                .prop_map(|fields| {
                    let present = fields.into_iter().filter_map(|(key, value)| Some((key, value?)));
                    Value::Object(present.collect())
                })
                .boxed(),
            None => prop_oneof![Just(json!({})), Just(json!({"a": "b"}))].boxed(),
        },
        Some("array") => Just(json!([])).boxed(),
        _ => Just(json!({})).boxed(),
    }
}

/// Any object, shown in the old version and written back unchanged, is what it was; so is one shown twice.
fn survives(definition: &'static str) {
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(hub in arbitrary(definition))| {
        let spoke = to(definition, &hub, "v1beta1");
        prop_assert_eq!(&to(definition, &spoke, "v1beta2"), &hub);
        let again = to(definition, &to(definition, &spoke, "v1beta2"), "v1beta1");
        prop_assert_eq!(again, spoke);
    });
}

#[test]
fn nothing_is_lost_on_the_way_there_and_back() {
    for name in crd::names().filter(|name| conversion(name, served).is_some()) {
        survives(name);
    }
}
