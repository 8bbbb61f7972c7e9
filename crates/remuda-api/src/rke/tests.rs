use super::*;
use crate::object::check;
use serde_json::json;

#[test]
fn a_control_plane_survives() {
    let typed: RkeControlPlane = check(
        "rkecontrolplanes.rke.cattle.io",
        json!({
            "apiVersion": "rke.cattle.io/v1", "kind": "RKEControlPlane",
            "metadata": {"name": "edge", "namespace": "fleet-default"},
            "spec": {
                "clusterName": "edge", "managementClusterName": "c-m-abcdefgh", "kubernetesVersion": "v1.35.1+k3s1",
                "machineGlobalConfig": {"secrets-encryption": true, "disable": ["servicelb"]},
                "machineSelectorConfig": [{
                    "machineLabelSelector": {"matchLabels": {"a": "b"}}, "config": {"garbage": {"x": [1, null]}},
                }],
                "upgradeStrategy": {"workerConcurrency": "10%", "workerDrainOptions": {"enabled": true, "timeout": 120}},
                "registries": {
                    "mirrors": {"docker.io": {"endpoint": ["https://mirror.corp"], "rewrite": {"^x": "y"}}},
                    "configs": {"mirror.corp": {"caBundle": "Zm9v", "insecureSkipVerify": true}},
                },
                "etcd": {"snapshotRetention": 5, "s3": {"bucket": "b", "endpointCA": "/x.crt", "skipSSLVerify": true, "retention": 0}},
                "dataDirectories": {"systemAgent": "/a", "provisioning": "/b", "k8sDistro": "/c"},
                "etcdSnapshotRestore": {"name": "s", "generation": 1, "restoreRKEConfig": "all"},
            },
            "status": {
                "appliedSpec": {"clusterName": "edge", "managementClusterName": "c-m-abcdefgh", "chartValues": {"a": {}}},
                "conditions": [{"type": "Ready", "status": "True", "lastUpdateTime": "2026-08-01T10:00:00Z"}],
                "initialization": {"controlPlaneInitialized": false},
                "observedGeneration": 3,
                "etcdSnapshotRestorePhase": "Started",
            },
        }),
    );
    assert_eq!(typed.spec.config.machine_global_config["disable"], json!(["servicelb"]));
    assert_eq!(typed.spec.config.etcd.unwrap().s3.unwrap().retention, Some(0));
}

#[test]
fn null_is_as_good_as_absent() {
    let written = json!({
        "apiVersion": "rke.cattle.io/v1", "kind": "RKEControlPlane", "metadata": {"name": "edge"},
        "spec": {
            "clusterName": "edge", "managementClusterName": "c", "chartValues": null, "machineSelectorFiles": null,
            "etcd": null, "agentEnvVars": null, "kubernetesVersion": null, "machineGlobalConfig": null,
            "upgradeStrategy": {"workerDrainOptions": {"preDrainHooks": null, "ignoreDaemonSets": null}},
        },
    });
    let read: RkeControlPlane = serde_json::from_value(written).unwrap();
    let expected = RkeControlPlane {
        spec: RkeControlPlaneSpec {
            cluster_name: "edge".into(),
            management_cluster_name: "c".into(),
            ..Default::default()
        },
        ..RkeControlPlane::named("edge")
    };
    assert_eq!(read, expected);
}

#[test]
fn bootstraps_and_machines_survive() {
    let _: RkeBootstrap = check(
        "rkebootstraps.rke.cattle.io",
        json!({
            "apiVersion": "rke.cattle.io/v1", "kind": "RKEBootstrap", "metadata": {"name": "a"},
            "spec": {"clusterName": "edge", "userdata": {"inlineUserdata": "#cloud-config"}},
            "status": {"dataSecretName": "s", "initialization": {"dataSecretCreated": true}, "ready": true},
        }),
    );
    let _: RkeBootstrapTemplate = check(
        "rkebootstraptemplates.rke.cattle.io",
        json!({
            "apiVersion": "rke.cattle.io/v1", "kind": "RKEBootstrapTemplate", "metadata": {"name": "a"},
            "spec": {"clusterName": "edge", "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"clusterName": "edge"}}},
        }),
    );
    let _: CustomMachine = check(
        "custommachines.rke.cattle.io",
        json!({
            "apiVersion": "rke.cattle.io/v1", "kind": "CustomMachine", "metadata": {"name": "a"},
            "spec": {"providerID": "k3s://a"},
            "status": {
                "ready": true, "initialization": {"provisioned": true},
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            },
        }),
    );
    let _: RkeCluster = check(
        "rkeclusters.rke.cattle.io",
        json!({
            "apiVersion": "rke.cattle.io/v1", "kind": "RKECluster", "metadata": {"name": "a"},
            "spec": {"controlPlaneEndpoint": {"host": "localhost", "port": 6443}},
            "status": {"initialization": {"provisioned": true}, "ready": true},
        }),
    );
}

#[test]
fn a_snapshot_has_its_file_beside_the_spec() {
    let typed: EtcdSnapshot = check(
        "etcdsnapshots.rke.cattle.io",
        json!({
            "apiVersion": "rke.cattle.io/v1", "kind": "ETCDSnapshot", "metadata": {"name": "a"},
            "spec": {"clusterName": "edge"},
            "snapshotFile": {
                "name": "on-demand", "nodeName": "edge-1", "location": "s3://b/on-demand", "size": 4096,
                "createdAt": "2026-08-01T10:00:00Z", "metadata": "e30=", "status": "successful",
                "s3": {"bucket": "b", "endpoint": "s3.corp", "cloudCredentialName": "cattle-global-data:cc"},
            },
            "status": {"missing": true},
        }),
    );
    assert_eq!(typed.snapshot_file.size, 4096);
}

#[test]
fn an_object_without_a_spec_is_read() {
    let read: EtcdSnapshot = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    assert_eq!(read, EtcdSnapshot::named("a"));
    let read: RkeCluster = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": null})).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap()["apiVersion"], "rke.cattle.io/v1");
}
