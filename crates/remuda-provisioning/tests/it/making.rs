//! From a Cluster to the objects it is made of.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{Api, ResourceExt, api::ListParams};
use remuda_api::{
    core::{self, MachineDeployment, MachineHealthCheck},
    management::ClusterRegistrationToken,
    rke::{RkeBootstrapTemplate, RkeCluster, RkeControlPlane},
};
use serde_json::{Value, json};

use crate::world::{NAMESPACE, World, edge, plain};

#[tokio::test(start_paused = true)]
async fn a_custom_cluster_becomes_its_objects() {
    let (world, running) = World::running().await;
    world.create("edge", edge()).await;
    let cluster = world.told("edge", "RKECluster", "True", "").await;
    let id = cluster.status.as_ref().unwrap().cluster_name.clone();
    assert!(id.starts_with("c-m-") && id.len() == 12, "{id}");
    assert_eq!(
        cluster.finalizers(),
        ["wrangler.cattle.io/provisioning-cluster-remove", "wrangler.cattle.io/rke-cluster-remove"]
    );

    let infrastructure = world.api::<RkeCluster>().get("edge").await.unwrap();
    assert_eq!(
        plain(&infrastructure)["metadata"],
        json!({
            "name": "edge", "namespace": NAMESPACE, "labels": {},
            "annotations": {"rke.cattle.io/delete-missing-custom-machines-after": ""},
        })
    );

    let control_plane = world.api::<RkeControlPlane>().get("edge").await.unwrap();
    let mut expected = edge()["rkeConfig"].clone();
    let fields = expected.as_object_mut().unwrap();
    fields.insert("agentEnvVars".into(), edge()["agentEnvVars"].clone());
    fields.insert("kubernetesVersion".into(), json!("v1.35.1+k3s1"));
    fields.insert("clusterName".into(), json!("edge"));
    fields.insert("managementClusterName".into(), json!(id));
    let mut spec = plain(&control_plane)["spec"].clone();
    // A zero value may be written or left out.
    spec.as_object_mut().unwrap().retain(|_, value| *value != json!({}));
    assert_eq!(spec, expected);
    assert_eq!(control_plane.labels()["rke.cattle.io/init-node-machine-id"], "");
    assert_eq!(control_plane.annotations()["provisioning.cattle.io/rke2-prime-enabled"], "");
    assert!(!control_plane.annotations()["rke.cattle.io/cluster-spec"].is_empty());
    assert_eq!(control_plane.metadata.owner_references, None);

    let capi = world.api::<core::Cluster>().get("edge").await.unwrap();
    assert_eq!(
        plain(&capi)["spec"],
        json!({
            "controlPlaneRef": {"apiGroup": "rke.cattle.io", "kind": "RKEControlPlane", "name": "edge"},
            "infrastructureRef": {"apiGroup": "rke.cattle.io", "kind": "RKECluster", "name": "edge"},
        })
    );
    let owner = &capi.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.controller, owner.block_owner_deletion),
        ("Cluster", Some(true), Some(true))
    );
    assert_eq!(owner.uid, cluster.uid().unwrap());

    assert!(world.api::<MachineDeployment>().list(&ListParams::default()).await.unwrap().items.is_empty());
    assert!(world.api::<RkeBootstrapTemplate>().list(&ListParams::default()).await.unwrap().items.is_empty());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_management_cluster_has_what_belongs_to_it() {
    let (world, running) = World::running().await;
    world.create("edge", edge()).await;
    let cluster = world.told("edge", "Created", "True", "").await;
    let id = cluster.status.unwrap().cluster_name;
    let management = world.managements().get(&id).await.unwrap();
    let value = plain(&management);
    assert_eq!(
        value["spec"],
        json!({
            "displayName": "edge", "fleetWorkspaceName": NAMESPACE, "importedConfig": {},
            "desiredAgentImage": "rancher/rancher-agent:v1",
            "desiredAuthImage": "rancher/kube-api-auth:v0.15.0",
            "agentEnvVars": [{"name": "HTTPS_PROXY", "value": "http://proxy.corp:3128"}],
        })
    );
    assert_eq!(value["metadata"]["annotations"]["provisioning.cattle.io/administrated"], "true");

    let namespaces: Api<Namespace> = Api::all(world.client());
    world.eventually(&namespaces, &id, "is there", |_| true).await;
    let tokens: Api<ClusterRegistrationToken> = Api::namespaced(world.client(), &id);
    let commanded = |token: &ClusterRegistrationToken| {
        token.status.as_ref().is_some_and(|status| status.node_command.contains("HTTPS_PROXY"))
    };
    let token = world.eventually(&tokens, "default-token", "has its commands", commanded).await;
    let status = token.status.unwrap();
    assert_eq!(token.spec.cluster_name, id);
    assert_eq!(status.token_secret_name, "crt-token-default-token");
    assert_eq!(status.manifest_url, format!("https://mgr.example.com/v3/import/{{token}}_{id}.yaml"));
    assert!(status.node_command.contains("--token {token} --ca-checksum "), "{}", status.node_command);
    let secrets: Api<Secret> = Api::namespaced(world.client(), &id);
    let secret = secrets.get("crt-token-default-token").await.unwrap();
    let data = secret.data.unwrap();
    assert_eq!(data["token"].0.len(), 54);
    assert!(data["expiresAt"].0.is_empty());
    // Whoever deletes the Secret gets another token.
    let before = data["token"].clone();
    secrets.delete("crt-token-default-token", &Default::default()).await.unwrap();
    let another = |secret: &Secret| secret.data.as_ref().is_some_and(|data| data["token"] != before);
    world.eventually(&secrets, "crt-token-default-token", "is another", another).await;
    assert_eq!(secret.metadata.owner_references.unwrap()[0].name, "default-token");

    let logs: Api<ConfigMap> = Api::namespaced(world.client(), &id);
    let lines = |log: &ConfigMap| log.data.as_ref().is_some_and(|data| data.contains_key("log"));
    let log = world.eventually(&logs, "provisioning-log", "has a line", lines).await;
    assert!(log.data.unwrap()["log"].ends_with("[INFO ] waiting for control plane to report\n"));
    let value = serde_json::to_value(world.managements().get(&id).await.unwrap().status.unwrap()).unwrap();
    assert_eq!(
        value["info"],
        json!({
            "machineProvider": "custom", "kubernetesVersion": "v1.35.1+k3s1",
            "provisioningClusterRef": {
                "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "namespace": NAMESPACE, "name": "edge"},
        })
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_pools_becomes_its_objects() {
    let (world, running) = World::running().await;
    let cluster = world.create_demo().await;
    for pool in &cluster.spec.rke_config.as_ref().unwrap().machine_pools {
        let schema: Value = serde_json::from_str(&pool.dynamic_schema_spec).unwrap();
        assert_eq!(schema["resourceFields"]["image"]["default"]["stringValue"], "ubuntu-22-04-x64");
    }

    let bootstrap = world.api::<RkeBootstrapTemplate>().get("demo-bootstrap-template").await.unwrap();
    assert_eq!(
        plain(&bootstrap)["spec"],
        json!({"clusterName": "demo", "template": {"spec": {"clusterName": "demo"}}})
    );
    assert_eq!(bootstrap.labels()["rke.cattle.io/cluster-name"], "demo");

    let deployment = world.api::<MachineDeployment>().get("demo-pool1").await.unwrap();
    let template = deployment.spec.template.spec.infrastructure_ref.name.clone();
    assert_eq!(
        plain(&deployment),
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
            "metadata": {
                "name": "demo-pool1", "namespace": NAMESPACE, "labels": {"cattle.io/os": "linux"}, "annotations": {},
            },
            "spec": {
                "clusterName": "demo", "replicas": 3,
                "deletion": {"order": "Oldest"},
                "rollout": {"strategy": {"type": "RollingUpdate"}},
                "selector": {"matchLabels": {
                    "cluster.x-k8s.io/cluster-name": "demo", "cluster.x-k8s.io/deployment-name": "demo-pool1"}},
                "template": {
                    "metadata": {
                        "labels": {
                            "cattle.io/os": "linux",
                            "cluster.x-k8s.io/cluster-name": "demo",
                            "cluster.x-k8s.io/control-plane": "true",
                            "cluster.x-k8s.io/deployment-name": "demo-pool1",
                            "rke.cattle.io/cluster-name": "demo",
                            "rke.cattle.io/control-plane-role": "true",
                            "rke.cattle.io/etcd-role": "true",
                            "rke.cattle.io/rke-machine-pool-name": "pool1",
                        },
                        "annotations": {"rke.cattle.io/hostname-length-limit": "40"},
                    },
                    "spec": {
                        "clusterName": "demo",
                        "bootstrap": {"configRef": {
                            "apiGroup": "rke.cattle.io", "kind": "RKEBootstrapTemplate", "name": "demo-bootstrap-template"}},
                        "infrastructureRef": {
                            "apiGroup": "rke-machine.cattle.io", "kind": "DigitaloceanMachineTemplate", "name": template},
                    },
                },
            },
        })
    );
    let workers = plain(&world.api::<MachineDeployment>().get("demo-workers").await.unwrap());
    assert_eq!(workers["metadata"]["labels"], json!({"cattle.io/os": "linux", "tier": "apps"}));
    assert_eq!(
        workers["spec"]["rollout"]["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}})
    );
    assert_eq!(
        workers["spec"]["template"]["metadata"],
        json!({
            "labels": {
                "cattle.io/os": "linux",
                "cluster.x-k8s.io/cluster-name": "demo",
                "cluster.x-k8s.io/deployment-name": "demo-workers",
                "rke.cattle.io/cluster-name": "demo",
                "rke.cattle.io/rke-machine-pool-name": "workers",
                "rke.cattle.io/worker-role": "true",
                "tier": "apps",
            },
            "annotations": {
                "machine.cluster.x-k8s.io/exclude-node-draining": "true",
                "rke.cattle.io/hostname-length-limit": "40",
                "rke.cattle.io/labels": "{\"tier\":\"apps\"}",
                "rke.cattle.io/taints": "[{\"effect\":\"PreferNoSchedule\",\"key\":\"dedicated\",\"value\":\"apps\"}]",
            },
        })
    );

    let check = world.api::<MachineHealthCheck>().get("demo-pool1").await.unwrap();
    assert_eq!(
        plain(&check)["spec"],
        json!({
            "clusterName": "demo",
            "selector": {"matchLabels": {"cluster.x-k8s.io/deployment-name": "demo-pool1"}},
            "checks": {"unhealthyNodeConditions": [
                {"type": "Ready", "status": "Unknown", "timeoutSeconds": 600},
                {"type": "Ready", "status": "False", "timeoutSeconds": 600},
            ]},
            "remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": 1}},
        })
    );
    assert!(world.api::<MachineHealthCheck>().get_opt("demo-workers").await.unwrap().is_none());

    let found = plain(&world.driver("DigitaloceanMachineTemplate").get(&template).await.unwrap());
    let hash = template.strip_prefix("demo-pool1-").unwrap();
    assert_eq!(
        found["metadata"],
        json!({
            "name": template, "namespace": NAMESPACE,
            "labels": {
                "rke.cattle.io/cluster-name": "demo",
                "rke.cattle.io/machine-template-hash": hash,
                "objectset.rio.cattle.io/prune": "false",
            },
            "annotations": {
                "rke.cattle.io/cloned-from-group-version": "rke-machine-config.cattle.io/v1",
                "rke.cattle.io/cloned-from-kind": "DigitaloceanConfig",
                "rke.cattle.io/cloned-from-name": "nc-demo-pool1",
            },
        })
    );
    assert_eq!(
        found["spec"],
        json!({"clusterName": "demo", "template": {"spec": {
            "common": {"cloudCredentialSecretName": "cattle-global-data:cc-do1"},
            "image": "ubuntu-24-04-x64", "privateNetworking": true, "region": "nyc3", "size": "s-2vcpu-4gb",
            "sshUser": "root", "tags": "demo",
        }}})
    );
    for config in ["nc-demo-pool1", "nc-demo-workers"] {
        let config = world.driver("DigitaloceanConfig").get(config).await.unwrap();
        assert_eq!(config.owner_references()[0].uid, cluster.uid().unwrap());
    }
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_said_and_waited_for() {
    let (world, running) = World::running().await;
    world.create("demo", crate::world::demo()).await;
    world.told("demo", "RKECluster", "False", "DigitaloceanConfig fleet-default/nc-demo-pool1").await;
    let cluster = world.told("demo", "Stalled", "True", "nc-demo-pool1").await;
    let logs: Api<ConfigMap> = Api::namespaced(world.client(), &cluster.status.unwrap().cluster_name);
    let told = |log: &ConfigMap| {
        log.data.as_ref().is_some_and(|data| data["log"].contains("[ERROR] DigitaloceanConfig"))
    };
    world.eventually(&logs, "provisioning-log", "tells why", told).await;
    let fields = json!({"region": "nyc3"});
    world.config("nc-demo-pool1", fields.clone()).await;
    world
        .told(
            "demo",
            "RKECluster",
            "False",
            "cloud credential cattle-global-data/cc-do1 of machinePool [pool1]",
        )
        .await;
    world.credential("cc-do1").await;
    world.told("demo", "RKECluster", "False", "nc-demo-workers").await;
    assert!(world.api::<core::Cluster>().get_opt("demo").await.unwrap().is_none());
    world.config("nc-demo-workers", fields).await;
    world.told("demo", "RKECluster", "True", "").await;
    running.stop().await;
}
