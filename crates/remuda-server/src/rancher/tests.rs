//! Rancher's kinds on a real API server.

mod protection;
mod quota;
mod references;
mod roles;
mod table;
mod writers;

use http::Method;
use kube::Client;
use remuda_api::{management, provisioning, rke};
use remuda_apiserver::Config;
use remuda_auth::identity::{GROUP_AUTHENTICATED, GROUP_CONTROLLERS, GROUP_MASTERS, User};
use remuda_testkit::World;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Kinds, install};
use crate::shipped;

const CLUSTERS: &str = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters";
const MANAGED: &str = "/apis/management.cattle.io/v3/clusters";

struct Site {
    client: Client,
    world: World,
}

impl Site {
    async fn open() -> Site {
        let kinds = Kinds::default();
        let told = kinds.clone();
        let world = World::with(move || Config { hooks: told.hooks(), ..remuda_testkit::config() }).await;
        let client = world.client();
        install(&client, true).await.unwrap();
        Site { client, world }
    }

    /// The same as the server's own controllers see it.
    fn as_server(&self) -> Site {
        let user = User::new("controller", [GROUP_CONTROLLERS, GROUP_MASTERS, GROUP_AUTHENTICATED]);
        Site { client: self.world.client_as(user), world: self.world.clone() }
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: String) -> Result<Value, Value> {
        match self.client.request(shipped::request(method, path, kind, body)).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err(serde_json::to_value(status).unwrap()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn get(&self, path: &str) -> Value {
        self.send(Method::GET, path, "application/json", String::new()).await.unwrap()
    }

    async fn create(&self, collection: &str, object: &Value) -> Result<Value, Value> {
        self.send(Method::POST, collection, "application/json", object.to_string()).await
    }

    async fn patch(&self, path: &str, patch: Value) -> Result<Value, Value> {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch.to_string()).await
    }

    async fn delete(&self, path: &str) -> Result<Value, Value> {
        self.send(Method::DELETE, path, "application/json", String::new()).await
    }

    async fn apply(&self, collection: &str, yaml: &str) -> Value {
        let object: Value = serde_saphyr::from_str(yaml).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = format!("{collection}/{name}?fieldManager=kubectl&fieldValidation=Strict");
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", yaml.to_owned()).await.unwrap()
    }

    /// Grows with every write.
    async fn revision(&self) -> u64 {
        let list = self.get("/api/v1/namespaces").await;
        list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    }
}

fn cluster(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec})
}

/// Reads what is served as a type and writes it back: nothing changes.
async fn returns<T: Serialize + DeserializeOwned>(site: &Site, path: &str) {
    let served = site.get(path).await;
    let typed: T = serde_json::from_value(served.clone()).unwrap();
    let mut written = serde_json::to_value(&typed).unwrap();
    without_nulls(&mut written);
    let patched = site.patch(path, written).await.unwrap();
    assert_eq!(patched, served);
}

/// In a merge patch null takes away; what is null already is left out.
fn without_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(without_nulls);
    }
}

const CUSTOM: &str = r#"
apiVersion: provisioning.cattle.io/v1
kind: Cluster
metadata:
  name: edge
  namespace: fleet-default
spec:
  kubernetesVersion: v1.35.1+k3s1
  localClusterAuthEndpoint: {enabled: false}
  agentEnvVars:
  - {name: HTTPS_PROXY, value: "http://proxy.corp:3128"}
  rkeConfig:
    machineGlobalConfig:
      secrets-encryption: true
      disable: [servicelb]
    machineSelectorConfig:
    - machineLabelSelector:
        matchLabels: {rke.cattle.io/worker-role: "true"}
      config:
        protect-kernel-defaults: false
    upgradeStrategy:
      controlPlaneConcurrency: "1"
      workerConcurrency: "10%"
      workerDrainOptions: {enabled: true, deleteEmptyDirData: true, timeout: 120}
    etcd:
      snapshotScheduleCron: "0 */5 * * *"
      snapshotRetention: 5
    registries:
      mirrors:
        docker.io: {endpoint: ["https://mirror.corp"]}
"#;

const POOLS: &str = r#"
apiVersion: provisioning.cattle.io/v1
kind: Cluster
metadata: {name: demo, namespace: fleet-default}
spec:
  kubernetesVersion: v1.35.1+rke2r1
  cloudCredentialSecretName: cattle-global-data:cc-do1
  rkeConfig:
    machineGlobalConfig: {cni: calico}
    chartValues: {rke2-calico: {}}
    machinePoolDefaults: {hostnameLengthLimit: 40}
    machinePools:
    - name: pool1
      quantity: 3
      etcdRole: true
      controlPlaneRole: true
      machineConfigRef: {kind: DigitaloceanConfig, name: nc-demo-pool1}
      drainBeforeDelete: true
      unhealthyNodeTimeout: 10m
      maxUnhealthy: "1"
    - name: workers
      quantity: 2
      workerRole: true
      machineConfigRef: {kind: DigitaloceanConfig, name: nc-demo-workers}
      labels: {tier: apps}
      taints: [{key: dedicated, value: apps, effect: PreferNoSchedule}]
      rollingUpdate: {maxUnavailable: 1, maxSurge: 1}
"#;

/// As a user interface leaves them: full of nulls and of what is there by default.
const EXPORTED: &str = r#"
apiVersion: provisioning.cattle.io/v1
kind: Cluster
metadata:
  name: exported
  namespace: fleet-default
  annotations: {field.cattle.io/creatorId: user-abcde, field.cattle.io/description: from elsewhere}
  labels: {}
spec:
  cloudCredentialSecretName: null
  kubernetesVersion: v1.33.4+rke2r1
  defaultPodSecurityAdmissionConfigurationTemplateName: ''
  clusterAgentDeploymentCustomization: null
  localClusterAuthEndpoint: {caCerts: '', enabled: false, fqdn: ''}
  rkeConfig:
    additionalManifest: null
    chartValues: {rke2-calico: {}}
    dataDirectories: {k8sDistro: null, provisioning: null, systemAgent: null}
    etcd: {disableSnapshots: false, s3: null, snapshotRetention: 5, snapshotScheduleCron: 0 */5 * * *}
    machineGlobalConfig: {cni: calico, disable-kube-proxy: false, etcd-expose-metrics: false, profile: null}
    machinePoolDefaults: {hostnameLengthLimit: 15}
    machinePools: null
    machineSelectorConfig:
    - config: {protect-kernel-defaults: false}
    registries:
      configs: {}
      mirrors: {}
    upgradeStrategy:
      controlPlaneConcurrency: '1'
      controlPlaneDrainOptions:
        {deleteEmptyDirData: true, disableEviction: false, enabled: false, force: false, gracePeriod: -1,
         ignoreDaemonSets: true, ignoreErrors: false, postDrainHooks: null, preDrainHooks: null,
         skipWaitForDeleteTimeoutSeconds: 0, timeout: 120}
      workerConcurrency: '1'
"#;

/// Everything of `wanted` is in `found`.
fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| found.get(key).is_some_and(|found| contains(found, wanted)))
        }
        // Pools get what they do not say, as a limit for drains.
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| contains(found, wanted))
        }
        _ => found == wanted,
    }
}

#[tokio::test]
async fn manifests_people_have_apply_unchanged_and_nothing_is_lost() {
    let site = Site::open().await;
    for manifest in [CUSTOM, POOLS, EXPORTED] {
        let wanted: Value = serde_saphyr::from_str(manifest).unwrap();
        let made = site.apply(CLUSTERS, manifest).await;
        assert!(contains(&made["spec"], &wanted["spec"]), "{made}");
        assert_eq!(made["metadata"]["annotations"]["field.cattle.io/creatorId"], user(&site).await);
        let name = wanted["metadata"]["name"].as_str().unwrap();
        returns::<provisioning::Cluster>(&site, &format!("{CLUSTERS}/{name}")).await;
    }
    let before = site.revision().await;
    for manifest in [CUSTOM, POOLS] {
        site.apply(CLUSTERS, manifest).await;
    }
    assert_eq!(site.revision().await, before);
    let exported = site.get(&format!("{CLUSTERS}/exported")).await;
    assert_eq!(exported["spec"]["rkeConfig"]["machineGlobalConfig"]["profile"], Value::Null);
}

/// Who we are, as the server sees it.
async fn user(site: &Site) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    site.create(path, &review).await.unwrap()["status"]["userInfo"]["username"].clone()
}

#[tokio::test]
async fn other_kinds_are_served_and_return_as_they_were() {
    let site = Site::open().await;
    let namespaced = |group: &str, plural: &str| format!("/apis/{group}/namespaces/fleet-default/{plural}");
    let rke = |plural: &str| namespaced("rke.cattle.io/v1", plural);
    let make = async |collection: &str, object: Value| {
        let made = site.create(collection, &object).await.unwrap();
        let path = format!("{collection}/{}", made["metadata"]["name"].as_str().unwrap());
        if object["status"].is_object() && made["status"].is_null() {
            let status = json!({"status": object["status"]});
            assert!(
                contains(&site.patch(&format!("{path}/status"), status).await.unwrap(), &object),
                "{object}"
            );
        } else {
            assert!(contains(&made, &object), "{made}");
        }
        path
    };
    let path = make(
        &rke("etcdsnapshots"),
        json!({
            "apiVersion": "rke.cattle.io/v1", "kind": "ETCDSnapshot", "metadata": {"name": "a"},
            "spec": {"clusterName": "edge"}, "snapshotFile": {"name": "a", "size": 1, "s3": {"bucket": "b"}},
            "status": {"missing": true},
        }),
    )
    .await;
    returns::<rke::EtcdSnapshot>(&site, &path).await;
    let path = make(
        &rke("rkecontrolplanes"),
        json!({
            "apiVersion": "rke.cattle.io/v1", "kind": "RKEControlPlane", "metadata": {"name": "edge"},
            "spec": {"clusterName": "edge", "managementClusterName": "c-m-x", "machineGlobalConfig": {"a": {"b": [null]}}},
            "status": {"appliedSpec": {"clusterName": "edge", "managementClusterName": "c-m-x", "chartValues": {"x": {"y": 1}}}},
        }),
    )
    .await;
    returns::<rke::RkeControlPlane>(&site, &path).await;
    let path = make(
        MANAGED,
        json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": "c-m-abcdefgh"},
            "spec": {"displayName": "edge", "k3sConfig": {"a": [1]}, "importedConfig": {"kubeConfig": ""}, "x": null},
            "status": {"capacity": {"cpu": "1"}, "info": {"arch": "amd64", "more": true}},
        }),
    )
    .await;
    returns::<management::Cluster>(&site, &path).await;
    let path = make(
        &namespaced("management.cattle.io/v3", "clusterregistrationtokens"),
        json!({
            "apiVersion": "management.cattle.io/v3", "kind": "ClusterRegistrationToken", "metadata": {"name": "default-token"},
            "spec": {"clusterName": "c-m-abcdefgh"}, "status": {"token": "x"},
        }),
    )
    .await;
    returns::<management::ClusterRegistrationToken>(&site, &path).await;
    let path = make(
        "/apis/management.cattle.io/v3/settings",
        json!({
            "apiVersion": "management.cattle.io/v3", "kind": "Setting", "metadata": {"name": "server-url"},
            "value": "https://x", "default": "", "source": "db", "customized": false,
        }),
    )
    .await;
    returns::<management::Setting>(&site, &path).await;
    let path = make(
        "/apis/management.cattle.io/v3/nodedrivers",
        json!({
            "apiVersion": "management.cattle.io/v3", "kind": "NodeDriver", "metadata": {"name": "digitalocean"},
            "spec": {"displayName": "digitalocean", "active": false, "url": "local://", "checksum": "d".repeat(64)},
            "status": {"conditions": [{"type": "Inactive", "status": "True"}]},
        }),
    )
    .await;
    returns::<management::NodeDriver>(&site, &path).await;
}

#[tokio::test]
async fn what_is_wrong_is_refused_with_its_field() {
    let site = Site::open().await;
    let pool = |more: Value| {
        let mut pool = json!({"name": "a", "machineConfigRef": {"kind": "X", "name": "x"}});
        pool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"rkeConfig": {"machinePools": [pool]}})
    };
    let first = "spec.rkeConfig.machinePools[0]";
    for (name, spec, code, field) in [
        ("local", json!({}), 422, "metadata.name".to_owned()),
        ("c-abc12", json!({}), 422, "metadata.name".to_owned()),
        ("c-m-abcd2345", json!({}), 422, "metadata.name".to_owned()),
        ("a.b", json!({}), 422, "metadata.name".to_owned()),
        (
            "x1",
            json!({"rkeConfig": {"machinePools": [{"name": "a"}]}}),
            422,
            format!("{first}.machineConfigRef"),
        ),
        ("x1", pool(json!({"name": "a".repeat(64)})), 422, format!("{first}.name")),
        ("x1", pool(json!({"quantity": -1})), 422, format!("{first}.quantity")),
        ("x1", pool(json!({"name": "Big Pool", "etcdRole": true})), 422, format!("{first}.name")),
        ("x1", pool(json!({})), 422, first.to_owned()),
        ("x1", pool(json!({"controlPlaneRole": true})), 422, "spec.rkeConfig.machinePools".to_owned()),
        (
            "x1",
            pool(json!({"etcdRole": true, "taints": [{"key": "a", "effect": "Never"}]})),
            422,
            format!("{first}.taints[0].effect"),
        ),
        (
            "x1",
            pool(json!({"etcdRole": true, "unhealthyNodeTimeout": "ten"})),
            422,
            format!("{first}.unhealthyNodeTimeout"),
        ),
        (
            "x1",
            json!({"rkeConfig": {"etcd": {"snapshotScheduleCron": "every day"}}}),
            422,
            "spec.rkeConfig.etcd.snapshotScheduleCron".to_owned(),
        ),
        (
            "x1",
            json!({"rkeConfig": {"additionalManifest": "kind: ["}}),
            422,
            "spec.rkeConfig.additionalManifest".to_owned(),
        ),
        ("x1", pool(json!({"hostnameLengthLimit": 9})), 422, format!("{first}.hostnameLengthLimit")),
        ("x1", pool(json!({"autoscalingMinSize": 1})), 422, first.to_owned()),
        ("x1", pool(json!({"autoscalingMinSize": 3, "autoscalingMaxSize": 2})), 422, first.to_owned()),
        (
            "x1",
            pool(json!({"etcdRole": true, "autoscalingMinSize": 0, "autoscalingMaxSize": 2})),
            422,
            first.to_owned(),
        ),
        (
            "x1",
            json!({"rkeConfig": {"upgradeStrategy": {"workerConcurrency": "101%"}}}),
            422,
            "spec.rkeConfig.upgradeStrategy.workerConcurrency".to_owned(),
        ),
        (
            "x1",
            json!({"rkeConfig": {"dataDirectories": {"systemAgent": "a"}}}),
            400,
            "spec.rkeConfig.dataDirectories.systemAgent".to_owned(),
        ),
        (
            "x1",
            json!({"agentEnvVars": [{"name": "NO_PROXY", "value": "a, b"}]}),
            400,
            "spec.agentEnvVars[0].value".to_owned(),
        ),
    ] {
        let status = site.create(CLUSTERS, &cluster(name, spec.clone())).await.expect_err(name);
        assert_eq!(status["code"], code, "{spec} {status}");
        assert_eq!(status["details"]["causes"][0]["field"], field, "{spec} {status}");
    }
    let twice = json!({"name": "a", "machineConfigRef": {"kind": "X", "name": "x"}});
    let spec = json!({"rkeConfig": {"machinePools": [twice.clone(), twice]}});
    let status = site.create(CLUSTERS, &cluster("x1", spec)).await.unwrap_err();
    assert_eq!(status["details"]["causes"][0]["reason"], "FieldValueDuplicate", "{status}");
}

#[tokio::test]
async fn a_cluster_stays_what_it_is_and_its_pools_keep_their_schemas() {
    let site = Site::open().await;
    let mut object = cluster(
        "demo",
        json!({"rkeConfig": {"machinePools": [
            {"name": "a", "etcdRole": true, "controlPlaneRole": true,
             "machineConfigRef": {"kind": "X", "name": "x"}, "dynamicSchemaSpec": "{}"},
        ]}}),
    );
    site.create(CLUSTERS, &object).await.unwrap();
    let path = format!("{CLUSTERS}/demo");
    let status = site.patch(&path, json!({"spec": {"rkeConfig": null}})).await.unwrap_err();
    assert_eq!((&status["code"], &status["reason"]), (&json!(400), &json!("BadRequest")));
    assert_eq!(
        status["message"],
        "spec.rkeConfig: Forbidden: RKEConfig cannot be made null after cluster creation"
    );

    object["spec"]["rkeConfig"]["machinePools"][0].as_object_mut().unwrap().remove("dynamicSchemaSpec");
    object["spec"]["rkeConfig"]["machinePools"][0]["quantity"] = 2.into();
    let changed = site.patch(&path, json!({"spec": object["spec"]})).await.unwrap();
    let pool = &changed["spec"]["rkeConfig"]["machinePools"][0];
    assert_eq!((&pool["dynamicSchemaSpec"], &pool["quantity"]), (&json!("{}"), &json!(2)));

    let creator = json!({"metadata": {"annotations": {"field.cattle.io/creatorId": "mallory"}}});
    assert_eq!(site.patch(&path, creator).await.unwrap_err()["code"], 422);
    let status = json!({"status": {"ready": true}});
    assert_eq!(site.patch(&format!("{path}/status"), status).await.unwrap()["status"]["ready"], true);
    site.delete(&path).await.unwrap();
}

#[tokio::test]
async fn the_local_cluster_cannot_be_deleted() {
    let site = Site::open().await;
    let clusters = "/apis/provisioning.cattle.io/v1/namespaces/fleet-local/clusters";
    let status = site.create(clusters, &cluster("local", json!({}))).await.unwrap_err();
    assert_eq!(
        status["details"]["causes"][0]["field"], "metadata.name",
        "only the server makes it: {status}"
    );
    site.as_server().create(clusters, &cluster("local", json!({}))).await.unwrap();
    let managed =
        json!({"apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": "local"}});
    site.create(MANAGED, &managed).await.unwrap();
    for collection in [clusters, MANAGED] {
        let status = site.delete(&format!("{collection}/local")).await.unwrap_err();
        assert_eq!(status["code"], 400, "{status}");
        assert_eq!(status["message"], "metadata.name: Forbidden: local cluster may not be deleted");
    }
}

#[tokio::test]
async fn a_part_of_a_cluster_goes_only_with_its_cluster() {
    const PARTS: &str = "/apis/rke.cattle.io/v1/namespaces/fleet-default/rkeclusters";
    let site = Site::open().await;
    let spec = json!({"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {}});
    site.create(CLUSTERS, &cluster("demo", spec)).await.unwrap();
    let part = json!({
        "apiVersion": "rke.cattle.io/v1", "kind": "RKECluster", "spec": {},
        "metadata": {
            "name": "demo",
            "labels": {"objectset.rio.cattle.io/hash": "x"},
            "annotations": {
                "objectset.rio.cattle.io/owner-gvk": "provisioning.cattle.io/v1, Kind=Cluster",
                "objectset.rio.cattle.io/owner-name": "demo",
                "objectset.rio.cattle.io/owner-namespace": "fleet-default",
            },
        },
    });
    site.create(PARTS, &part).await.unwrap();
    let path = format!("{PARTS}/demo");
    let asked = format!("{path}?dryRun=All");
    site.delete(&asked).await.unwrap_err();
    let status = site.delete(&path).await.unwrap_err();
    assert_eq!(status["code"], 403, "{status}");
    let message = "rkeclusters.rke.cattle.io \"demo\" is forbidden: it is a part of cluster fleet-default/demo and \
                   would be made again, with new machines; to delete the whole cluster: kubectl -n fleet-default \
                   delete clusters.provisioning.cattle.io demo";
    assert_eq!(status["message"], message);

    site.delete(&format!("{CLUSTERS}/demo")).await.unwrap();
    site.delete(&path).await.unwrap();
}

#[tokio::test]
async fn names_of_management_clusters_are_given_by_the_server() {
    let site = Site::open().await;
    let managed =
        json!({"apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": "c-abc12"}});
    site.create(MANAGED, &managed).await.unwrap();
    for name in ["c-abc12", "c-m-abcd2345"] {
        let status = site.create(CLUSTERS, &cluster(name, json!({}))).await.unwrap_err();
        assert_eq!(status["details"]["causes"][0]["field"], "metadata.name", "{status}");
    }
    let mut unnamed = cluster("", json!({}));
    unnamed["metadata"] = json!({"generateName": "c-"});
    assert_eq!(site.create(CLUSTERS, &unnamed).await.unwrap_err()["code"], 422, "nor may one be generated");
    site.as_server().create(CLUSTERS, &cluster("c-abc12", json!({}))).await.unwrap();
}

#[tokio::test]
async fn installing_again_writes_nothing() {
    let site = Site::open().await;
    let before = site.revision().await;
    install(&site.client, true).await.unwrap();
    assert_eq!(site.revision().await, before);
    for crd in remuda_api::crd::rancher() {
        let (group, names) = (crd["spec"]["group"].as_str().unwrap(), &crd["spec"]["names"]);
        let version = crd["spec"]["versions"][0]["name"].as_str().unwrap();
        let list = site.get(&format!("/apis/{group}/{version}/{}", names["plural"].as_str().unwrap())).await;
        assert_eq!(list["items"], json!([]), "{names}");
    }
}

#[tokio::test]
async fn servers_that_start_together_install_once() {
    let world = World::bare().await;
    let client = world.client();
    let (first, second, third) =
        tokio::join!(install(&client, true), install(&client, true), install(&client, true));
    first.and(second).and(third).unwrap();
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let crds = shipped::get(&client, path).await.unwrap().unwrap();
    let crds = crds["items"].as_array().unwrap();
    assert_eq!(crds.len(), remuda_api::crd::rancher_names().count());
    for crd in crds {
        assert_eq!(crd["metadata"]["generation"], 1, "{}", crd["metadata"]["name"]);
    }
}
