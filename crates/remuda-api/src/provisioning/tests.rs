use super::*;
use crate::object::check;
use serde_json::{Value, json};

fn cluster(spec: Value) -> Value {
    json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": "demo", "namespace": "fleet-default"}, "spec": spec,
    })
}

#[test]
fn a_cluster_survives() {
    let mut written = cluster(json!({
        "kubernetesVersion": "v1.35.1+rke2r1",
        "cloudCredentialSecretName": "cattle-global-data:cc-do1",
        "localClusterAuthEndpoint": {"enabled": true, "fqdn": "x", "caCerts": "y"},
        "agentEnvVars": [{"name": "HTTPS_PROXY", "value": "http://proxy.corp:3128"}],
        "enableNetworkPolicy": false,
        "clusterAPIConfig": {"clusterName": "old"},
        "rkeConfig": {
            "machineGlobalConfig": {"cni": "calico"},
            "chartValues": {"rke2-calico": {}},
            "machinePoolDefaults": {"hostnameLengthLimit": 40},
            "machinePools": [{
                "name": "pool1", "quantity": 0, "etcdRole": true, "controlPlaneRole": true,
                "machineConfigRef": {"kind": "DigitaloceanConfig", "name": "nc-demo-pool1"},
                "drainBeforeDelete": true, "unhealthyNodeTimeout": "10m", "maxUnhealthy": "1",
                "rollingUpdate": {"maxUnavailable": 1, "maxSurge": "10%"},
                "taints": [{"key": "dedicated", "value": "apps", "effect": "PreferNoSchedule"}],
                "autoscalingMinSize": 1, "autoscalingMaxSize": 3, "machineOS": "linux",
            }],
            "infrastructureRef": {"kind": "X", "name": "x"},
        },
        "clusterAgentDeploymentCustomization": {
            "appendTolerations": [{"key": "a", "operator": "Exists"}],
            "overrideAffinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}],
            }}},
            "overrideResourceRequirements": {"limits": {"cpu": "500m"}},
            "schedulingCustomization": {"priorityClass": {"value": 5, "preemptionPolicy": "Never"}},
        },
        "webhookDeploymentCustomization": {"replicaCount": 2, "podDisruptionBudget": {"minAvailable": "1"}},
    }));
    written["status"] = json!({
        "ready": true, "clusterName": "c-m-abcdefgh", "observedGeneration": 2,
        "conditions": [{"type": "Ready", "status": "True"}],
    });
    let typed: Cluster = check("clusters.provisioning.cattle.io", written);
    let config = typed.spec.rke_config.unwrap();
    assert_eq!(config.config.machine_global_config["cni"], "calico");
    assert_eq!(config.machine_pools[0].quantity, Some(0));
}

#[test]
fn an_imported_cluster_may_say_nothing_at_all() {
    let read: Cluster = serde_json::from_value(json!({"metadata": {"name": "demo"}})).unwrap();
    assert_eq!(read.spec.rke_config, None);
    let _: Cluster = check("clusters.provisioning.cattle.io", cluster(json!({})));
}

#[test]
fn an_empty_configuration_is_not_the_same_as_none() {
    let typed: Cluster = check("clusters.provisioning.cattle.io", cluster(json!({"rkeConfig": {}})));
    assert!(typed.spec.rke_config.is_some());
}
