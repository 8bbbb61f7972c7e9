use super::*;
use crate::{addons::ClusterResourceSet, crd};
use remuda_schema::{CrdView, default_crd};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

/// Reads and writes an object without losing anything, and the schema of its kind accepts it.
#[track_caller]
fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    definition: &str,
    object: Value,
) -> T {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), object);
    let mut crd = crd::named(definition).unwrap();
    default_crd(&mut crd);
    let view = CrdView::parse(&crd).unwrap();
    let schema = &view.version("v1beta2").unwrap().schema;
    assert_eq!(schema.validate(&object, None), []);
    let mut pruned = object.clone();
    let mut unknown = Vec::new();
    schema.prune(&mut pruned, Some(&mut unknown));
    assert_eq!(unknown, Vec::<String>::new());
    typed
}

fn reference(kind: &str) -> Value {
    json!({"apiGroup": "rke.cattle.io", "kind": kind, "name": "demo"})
}

fn machine_spec() -> Value {
    json!({
        "clusterName": "demo",
        "bootstrap": {"configRef": reference("RKEBootstrap"), "dataSecretName": "demo-bootstrap"},
        "infrastructureRef": reference("Server"),
        "version": "v1.34.0",
        "providerID": "sim://1",
        "minReadySeconds": 0,
        "readinessGates": [{"conditionType": "Blue", "polarity": "Negative"}],
        "deletion": {"nodeDeletionTimeoutSeconds": 10, "nodeDrainTimeoutSeconds": 0},
        "taints": [{"key": "a", "value": "b", "effect": "NoSchedule", "propagation": "Always"}],
    })
}

fn condition() -> Value {
    json!({
        "type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-08-01T10:00:00Z", "observedGeneration": 2,
    })
}

fn object(kind: &str, spec: Value, status: Value) -> Value {
    let mut object = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind,
        "metadata": {"name": "demo", "namespace": "fleet-default"}, "spec": spec,
    });
    if !status.is_null() {
        object["status"] = status;
    }
    object
}

#[test]
fn a_cluster_survives() {
    let typed: Cluster = check(
        "clusters.cluster.x-k8s.io",
        object(
            "Cluster",
            json!({
                "paused": false,
                "clusterNetwork": {"pods": {"cidrBlocks": ["10.0.0.0/8"]}, "serviceDomain": "cluster.local"},
                "controlPlaneEndpoint": {"host": "10.0.0.1", "port": 6443},
                "controlPlaneRef": reference("RKEControlPlane"),
                "infrastructureRef": reference("RKECluster"),
                "topology": {"classRef": {"name": "c"}, "version": "v1.34.0"},
                "availabilityGates": [{"conditionType": "Blue"}],
            }),
            json!({
                "conditions": [condition()],
                "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": false},
                "controlPlane": {"desiredReplicas": 0, "versions": [{"version": "v1.34.0", "replicas": 1}]},
                "workers": {"replicas": 2},
                "failureDomains": [{"name": "a", "controlPlane": false, "attributes": {"k": "v"}}],
                "phase": "Provisioned",
                "observedGeneration": 3,
            }),
        ),
    );
    assert!(typed.spec.control_plane_endpoint.is_valid());
    assert!(typed.spec.infrastructure_ref.is_defined());
    assert_eq!(typed.status.unwrap().initialization.control_plane_initialized, Some(false));
}

#[test]
fn a_machine_survives() {
    let typed: Machine = check(
        "machines.cluster.x-k8s.io",
        object(
            "Machine",
            machine_spec(),
            json!({
                "conditions": [condition()],
                "initialization": {"bootstrapDataSecretCreated": true},
                "nodeRef": {"name": "n"},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.2"}],
                "phase": "Running",
                "lastUpdated": "2026-08-01T10:00:00Z",
                "deletion": {"nodeDrainStartTime": "2026-08-01T10:00:00Z"},
                "deprecated": {"v1beta1": {"conditions": [{
                    "type": "Ready", "status": "True", "lastTransitionTime": "2026-08-01T10:00:00Z",
                }]}},
            }),
        ),
    );
    assert_eq!(typed.spec.deletion.node_drain_timeout_seconds, Some(0));
}

#[test]
fn sets_deployments_and_pools_survive() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": machine_spec()});
    let selector = json!({"matchLabels": {"a": "b"}});
    let counters = json!({"replicas": 0, "readyReplicas": 0, "availableReplicas": 0, "upToDateReplicas": 0});
    let _: MachineSet = check(
        "machinesets.cluster.x-k8s.io",
        object(
            "MachineSet",
            json!({
                "clusterName": "demo", "replicas": 0, "selector": selector, "template": template,
                "deletion": {"order": "Oldest"}, "machineNaming": {"template": "{{ .random }}"},
            }),
            counters.clone(),
        ),
    );
    let typed: MachineDeployment = check(
        "machinedeployments.cluster.x-k8s.io",
        object(
            "MachineDeployment",
            json!({
                "clusterName": "demo", "replicas": 3, "selector": selector, "template": template, "paused": true,
                "rollout": {
                    "after": "2026-08-01T10:00:00Z",
                    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
                },
                "remediation": {"maxInFlight": "20%"},
            }),
            counters.clone(),
        ),
    );
    assert_eq!(typed.spec.rollout.strategy.kind, "RollingUpdate");
    let _: MachinePool = check(
        "machinepools.cluster.x-k8s.io",
        object(
            "MachinePool",
            json!({"clusterName": "demo", "template": template, "providerIDList": ["sim://1"]}),
            counters,
        ),
    );
}

#[test]
fn health_checks_and_drain_rules_survive() {
    let _: MachineHealthCheck = check(
        "machinehealthchecks.cluster.x-k8s.io",
        object(
            "MachineHealthCheck",
            json!({
                "clusterName": "demo",
                "selector": {"matchLabels": {"a": "b"}},
                "checks": {
                    "nodeStartupTimeoutSeconds": 0,
                    "unhealthyNodeConditions": [{"type": "Ready", "status": "Unknown", "timeoutSeconds": 300}],
                },
                "remediation": {
                    "triggerIf": {"unhealthyLessThanOrEqualTo": "40%", "unhealthyInRange": "[1-3]"},
                    "templateRef": {"apiVersion": "x.io/v1", "kind": "FixTemplate", "name": "fix"},
                },
            }),
            json!({"expectedMachines": 0, "currentHealthy": 0, "remediationsAllowed": 0, "targets": ["a"]}),
        ),
    );
    let _: MachineDrainRule = check(
        "machinedrainrules.cluster.x-k8s.io",
        object(
            "MachineDrainRule",
            json!({
                "drain": {"behavior": "Drain", "order": 0},
                "machines": [{"selector": {"matchLabels": {"a": "b"}}}],
                "pods": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}],
            }),
            Value::Null,
        ),
    );
}

#[test]
fn resource_sets_survive() {
    let mut written = object(
        "ClusterResourceSet",
        json!({
            "clusterSelector": {"matchLabels": {"a": "b"}},
            "resources": [{"name": "x", "kind": "Secret"}],
            "strategy": "ApplyOnce",
        }),
        json!({"conditions": [condition()]}),
    );
    written["apiVersion"] = json!("addons.cluster.x-k8s.io/v1beta2");
    let _: ClusterResourceSet = check("clusterresourcesets.addons.cluster.x-k8s.io", written);
}
