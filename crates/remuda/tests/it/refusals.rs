//! What is refused when it is written, at a running server: one table, each line with the field that is named.
//!
//! Stored, each of these would keep a cluster from ever being made, or be passed over in silence.

use std::time::Duration;

use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    client::client,
    fields::{api, refusal},
    foreign::until,
    harness::{Place, Server},
};

const SOON: Duration = Duration::from_secs(30);

/// A pool with all roles.
fn pool(more: Value) -> Value {
    let mut pool = json!({
        "name": "all", "etcdRole": true, "controlPlaneRole": true, "workerRole": true,
        "machineConfigRef": {"kind": "LocalConfig", "name": "demo"},
    });
    pool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    pool
}

fn cluster(name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": name, "namespace": "fleet-default"}, "spec": spec,
    }))
    .unwrap()
}

/// Specs that cannot be followed: the spec, the field that is named, and a word of the reason.
fn table() -> Vec<(Value, &'static str, &'static str)> {
    const POOL: &str = "spec.rkeConfig.machinePools[0]";
    let version = |version: &str| json!({"kubernetesVersion": version, "rkeConfig": {}});
    let pools =
        |pools: Value| json!({"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {"machinePools": pools}});
    let one = |more: Value| pools(json!([pool(more)]));
    let config = |config: Value| json!({"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": config});
    vec![
        (version("newest"), "spec.kubernetesVersion", "newest"),
        (version("1.99"), "spec.kubernetesVersion", "1.99"),
        (version("1.35.x"), "spec.kubernetesVersion", "1.35.x"),
        (one(json!({"name": "Big Pool"})), "spec.rkeConfig.machinePools[0].name", "lower case"),
        (one(json!({"name": ""})), "spec.rkeConfig.machinePools[0].name", "at least 1"),
        (one(json!({"labels": {"a b": "c"}})), "spec.rkeConfig.machinePools[0].labels[a b]", "must consist"),
        (one(json!({"labels": {"a": "b c"}})), "spec.rkeConfig.machinePools[0].labels[a]", "must be"),
        (
            one(json!({"taints": [{"key": "a", "effect": "Never"}]})),
            "spec.rkeConfig.machinePools[0].taints[0].effect",
            "NoSchedule",
        ),
        (
            one(json!({"unhealthyNodeTimeout": "ten"})),
            "spec.rkeConfig.machinePools[0].unhealthyNodeTimeout",
            "duration",
        ),
        (
            one(json!({"nodeStartupTimeout": "soon"})),
            "spec.rkeConfig.machinePools[0].nodeStartupTimeout",
            "duration",
        ),
        (
            one(json!({"drainBeforeDeleteTimeout": "-5m"})),
            "spec.rkeConfig.machinePools[0].drainBeforeDeleteTimeout",
            "duration",
        ),
        (one(json!({"maxUnhealthy": "half"})), "spec.rkeConfig.machinePools[0].maxUnhealthy", "percentage"),
        (one(json!({"unhealthyRange": "[5-3]"})), "spec.rkeConfig.machinePools[0].unhealthyRange", "[3-5]"),
        (
            one(json!({"etcdRole": false, "controlPlaneRole": false, "workerRole": false})),
            POOL,
            "would do nothing",
        ),
        (one(json!({"etcdRole": false})), "spec.rkeConfig.machinePools", "no pool has etcdRole"),
        (
            one(json!({"controlPlaneRole": false})),
            "spec.rkeConfig.machinePools",
            "no pool has controlPlaneRole",
        ),
        (
            one(json!({"machineDeploymentAnnotations": {"remuda.io/preserve-failed": "1"}})),
            "spec.rkeConfig.machinePools[0].machineDeploymentAnnotations[remuda.io/preserve-failed]",
            "JSON object",
        ),
        (
            one(json!({"machineDeploymentAnnotations": {"remuda.io/remediation-steps": "pray=5m"}})),
            "spec.rkeConfig.machinePools[0].machineDeploymentAnnotations[remuda.io/remediation-steps]",
            "restart-service=TIME",
        ),
        (
            config(json!({"etcd": {"snapshotScheduleCron": "every day"}})),
            "spec.rkeConfig.etcd.snapshotScheduleCron",
            "@daily",
        ),
        (config(json!({"additionalManifest": "kind: ["})), "spec.rkeConfig.additionalManifest", "YAML"),
        (
            config(json!({"additionalManifest": "a sentence"})),
            "spec.rkeConfig.additionalManifest",
            "apiVersion",
        ),
        (
            config(json!({"rotateCertificates": {"generation": 1, "services": ["postgres"]}})),
            "spec.rkeConfig.rotateCertificates.services[0]",
            "etcd",
        ),
        (
            config(json!({"rotateEncryptionKeys": {"generation": 1}})),
            "spec.rkeConfig.rotateEncryptionKeys",
            "secrets-encryption",
        ),
        (
            config(json!({"upgradeStrategy": {"workerConcurrency": "many"}})),
            "spec.rkeConfig.upgradeStrategy.workerConcurrency",
            "should match",
        ),
        (
            json!({"enableNetworkPolicy": true, "rkeConfig": {}}),
            "spec.enableNetworkPolicy",
            "NetworkPolicies",
        ),
        (
            json!({"defaultPodSecurityAdmissionConfigurationTemplateName": "rancher-restricted", "rkeConfig": {}}),
            "spec.defaultPodSecurityAdmissionConfigurationTemplateName",
            "admission-control-config-file",
        ),
        (json!({"clusterAPIConfig": {"clusterName": "x"}}), "spec.clusterAPIConfig", "remuda capi"),
        (
            json!({"webhookDeploymentCustomization": {"replicaCount": 2}, "rkeConfig": {}}),
            "spec.webhookDeploymentCustomization",
            "part of this server",
        ),
    ]
}

#[test]
fn what_nobody_could_follow_is_refused_at_its_field() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let admin = runtime.block_on(client(&server));
    let clusters: Api<DynamicObject> =
        api(&admin, "provisioning.cattle.io", "v1", "Cluster", Some("fleet-default"));
    until("clusters are served", SOON, || runtime.block_on(clusters.list(&Default::default())).is_ok());

    // Each of them is refused when it is created, and when a cluster that was fine is changed to it.
    let fine = json!({"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {}});
    for (place, (spec, field, words)) in table().into_iter().enumerate() {
        let name = format!("odd-{place}");
        let told = |answer: Result<DynamicObject, kube::Error>, how: &str| {
            let (code, message) = refusal(answer);
            assert!(matches!(code, 400 | 422), "{how} {spec}: {code} {message}");
            assert!(message.contains(&format!("{field}: ")), "{how} {spec}: {field} is not named: {message}");
            assert!(message.contains(words), "{how} {spec}: {words:?} is not said: {message}");
        };
        told(runtime.block_on(clusters.create(&PostParams::default(), &cluster(&name, &spec))), "create");
        // An imported cluster would become one that is made here, which is another matter; pools of workers can be
        // added to servers that registered themselves.
        if spec["rkeConfig"].is_null() || field.ends_with("machinePools") {
            continue;
        }
        runtime.block_on(clusters.create(&PostParams::default(), &cluster(&name, &fine))).unwrap();
        let patch = Patch::Merge(json!({"spec": spec}));
        told(runtime.block_on(clusters.patch(&name, &PatchParams::default(), &patch)), "patch");
        runtime.block_on(clusters.delete(&name, &DeleteParams::default())).unwrap();
    }
}
