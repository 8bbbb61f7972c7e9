//! What people name, on a whole server: it is used with their rights, not with the server's.

use std::time::Duration;

use http::Method;
use kube::Client;
use remuda_auth::identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, User};
use serde_json::{Value, json};

use crate::{Running, Server, config::Options, shipped};

pub(super) const CLUSTERS: &str = "/apis/provisioning.cattle.io/v1/namespaces/fleet-default/clusters";
pub(super) const CONFIGS: &str = "/apis/rke-machine-config.cattle.io/v1/namespaces/fleet-default/testconfigs";
const CONTROL_PLANES: &str = "/apis/rke.cattle.io/v1/namespaces/fleet-default/rkecontrolplanes";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// A server with everything in front of the API, and some of what people have on it.
pub(super) struct Site {
    pub(super) server: Running,
    _dir: tempfile::TempDir,
}

impl Site {
    pub(super) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            bind: Some("127.0.0.1:0".to_owned()),
            data_dir: Some(dir.path().to_owned()),
            datastore: Some("memory".to_owned()),
            ..Options::default()
        };
        let server = Server::start_with(options.resolve().unwrap(), |_| Vec::new()).await.unwrap();
        let site = Self { server, _dir: dir };
        for namespace in ["fleet-default", "fleet-local", "cattle-global-data", "vault", "team-a"] {
            shipped::namespace(&site.root(), namespace).await.unwrap();
        }
        for (group, kind) in [
            ("rke-machine-config.cattle.io", "TestConfig"),
            ("rke-machine.cattle.io", "TestMachine"),
            ("rke-machine.cattle.io", "TestMachineTemplate"),
        ] {
            site.define(group, kind).await;
        }
        for user in ["ann", "bob"] {
            site.person(user).await;
            site.may_create(user).await;
        }
        site
    }

    pub(super) fn client(&self, user: &str, groups: &[&str]) -> Client {
        let user = User::new(user, groups.iter().map(ToString::to_string));
        Client::new(self.server.api().client_service(user), "default")
    }

    pub(super) fn root(&self) -> Client {
        self.client("root", &[GROUP_MASTERS, GROUP_AUTHENTICATED])
    }

    pub(super) async fn send(
        &self,
        client: &Client,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<Value, Value> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        match client.request(shipped::request(method, path, kind, body.to_string())).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err(serde_json::to_value(status).unwrap()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(super) async fn post(&self, user: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let client = self.client(user, &[GROUP_AUTHENTICATED]);
        self.send(&client, Method::POST, path, body).await
    }

    pub(super) async fn patch(&self, user: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let client = self.client(user, &[GROUP_AUTHENTICATED]);
        self.send(&client, Method::PATCH, path, body).await
    }

    pub(super) async fn get(&self, user: &str, path: &str) -> Result<Value, Value> {
        let client = self.client(user, &[GROUP_AUTHENTICATED]);
        self.send(&client, Method::GET, path, &Value::Null).await
    }

    pub(super) async fn make(&self, path: &str, body: Value) -> Value {
        self.send(&self.root(), Method::POST, path, &body).await.unwrap()
    }

    async fn define(&self, group: &str, kind: &str) {
        let (singular, open) = (kind.to_lowercase(), "x-kubernetes-preserve-unknown-fields");
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{singular}s.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "plural": format!("{singular}s"), "singular": singular},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", open: true}}}],
            },
        });
        self.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await;
        let path = format!("/apis/{group}/v1/{singular}s");
        self.until("the kind is served", async || {
            self.send(&self.root(), Method::GET, &path, &Value::Null).await.is_ok()
        })
        .await;
    }

    pub(super) async fn until<F: AsyncFnMut() -> bool>(&self, what: &str, mut so: F) {
        for _ in 0..1500 {
            if so().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never happened: {what}");
    }

    pub(super) async fn person(&self, name: &str) {
        let user = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "User", "metadata": {"name": name}, "username": name});
        self.make("/apis/management.cattle.io/v3/users", user).await;
    }

    /// Makes a standard user, and waits until that holds.
    pub(super) async fn may_create(&self, user: &str) {
        let binding = json!({
            "apiVersion": "management.cattle.io/v3", "kind": "GlobalRoleBinding", "metadata": {"name": user},
            "userName": user, "globalRoleName": "user",
        });
        self.make("/apis/management.cattle.io/v3/globalrolebindings", binding).await;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": "create", "group": "provisioning.cattle.io", "resource": "clusters", "namespace": "fleet-default"}},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        self.until("a standard user may create clusters", async || {
            self.post(user, path, &review).await.is_ok_and(|review| review["status"]["allowed"] == true)
        })
        .await;
    }

    /// Gives a right to one object, or to all of a resource.
    pub(super) async fn grant(
        &self,
        user: &str,
        namespace: &str,
        group: &str,
        resource: &str,
        name: &str,
        verbs: &[&str],
    ) {
        let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        if !name.is_empty() {
            rule["resourceNames"] = json!([name]);
        }
        let id = format!("{user}-{resource}-{name}x").replace('/', "-");
        let path = format!("{RBAC}/namespaces/{namespace}");
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": id}, "rules": [rule]});
        self.make(&format!("{path}/roles"), role).await;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": id},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": id},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        });
        self.make(&format!("{path}/rolebindings"), binding).await;
    }

    async fn secret(&self, namespace: &str, name: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"k": "v"},
            // Whoever may create a cluster of that name passes this.
            "metadata": {"name": name, "annotations": {"rke.cattle.io/object-authorized-for-clusters": "mine,x1"}},
        });
        self.make(&format!("/api/v1/namespaces/{namespace}/secrets"), secret).await;
    }

    /// Who wrote a cluster may write it: waits until that holds.
    pub(super) async fn until_owner(&self, user: &str, cluster: &str) {
        let path = format!("{CLUSTERS}/{cluster}");
        self.until("a creator owns their cluster", async || self.get(user, &path).await.is_ok()).await;
    }
}

pub(super) fn cluster(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec})
}

pub(super) fn config(name: &str) -> Value {
    json!({"apiVersion": "rke-machine-config.cattle.io/v1", "kind": "TestConfig", "metadata": {"name": name}})
}

pub(super) fn pool(config: &str) -> Value {
    json!({"name": "a", "etcdRole": true, "controlPlaneRole": true, "workerRole": true,
        "machineConfigRef": {"kind": "TestConfig", "name": config}})
}

#[track_caller]
fn refused(answer: Result<Value, Value>, field: &str, object: &str) {
    let status = answer.expect_err(&format!("{field} is refused"));
    assert_eq!(status["code"], 403, "{status}");
    assert_eq!(status["details"]["causes"][0]["field"], field, "{status}");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains(field) && message.contains(object), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_and_config_maps_are_named_with_the_rights_of_the_writer() {
    let site = Site::start().await;
    site.secret("cattle-global-data", "theirs").await;
    site.secret("fleet-default", "theirs").await;
    site.secret("vault", "theirs").await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}});
    site.make("/api/v1/namespaces/fleet-default/configmaps", map).await;
    site.post("ann", CONFIGS, &config("nc")).await.unwrap();

    let with = |field: Value| json!({"rkeConfig": field});
    let file = |kind: &str| {
        let source = json!({kind: {"name": "theirs", "items": [{"key": "k", "path": "/etc/k"}]}});
        json!({"machineSelectorFiles": [{"fileSources": [source]}]})
    };
    let mut own = pool("nc");
    own["cloudCredentialSecretName"] = "cattle-global-data:theirs".into();
    let registry = |field: &str| json!({"registries": {"configs": {"r.corp": {field: "theirs"}}}});
    let source = "spec.rkeConfig.machineSelectorFiles[0].fileSources[0]";
    let cases = [
        (
            json!({"cloudCredentialSecretName": "cattle-global-data:theirs"}),
            "spec.cloudCredentialSecretName".to_owned(),
            ("cattle-global-data", "secrets"),
        ),
        (
            with(json!({"machinePools": [own]})),
            "spec.rkeConfig.machinePools[0].cloudCredentialSecretName".to_owned(),
            ("cattle-global-data", "secrets"),
        ),
        (
            with(json!({"etcd": {"s3": {"cloudCredentialName": "cattle-global-data:theirs"}}})),
            "spec.rkeConfig.etcd.s3.cloudCredentialName".to_owned(),
            ("cattle-global-data", "secrets"),
        ),
        (
            with(json!({"etcd": {"s3": {"cloudCredentialName": "theirs"}}})),
            "spec.rkeConfig.etcd.s3.cloudCredentialName".to_owned(),
            ("fleet-default", "secrets"),
        ),
        (
            with(registry("authConfigSecretName")),
            "spec.rkeConfig.registries.configs[r.corp].authConfigSecretName".to_owned(),
            ("fleet-default", "secrets"),
        ),
        (
            with(registry("tlsSecretName")),
            "spec.rkeConfig.registries.configs[r.corp].tlsSecretName".to_owned(),
            ("fleet-default", "secrets"),
        ),
        (with(file("secret")), format!("{source}.secret.name"), ("fleet-default", "secrets")),
        (with(file("configMap")), format!("{source}.configMap.name"), ("fleet-default", "configmaps")),
        (
            with(json!({"machineGlobalConfig": {"cloud-provider-config": "secret://vault:theirs"}})),
            "spec.rkeConfig.machineGlobalConfig.cloud-provider-config".to_owned(),
            ("vault", "secrets"),
        ),
        (
            with(
                json!({"machineSelectorConfig": [{"config": {"kubelet-arg": ["a=secret://vault:theirs"]}}]}),
            ),
            "spec.rkeConfig.machineSelectorConfig[0].config.kubelet-arg".to_owned(),
            ("vault", "secrets"),
        ),
    ];
    for (spec, field, (namespace, resource)) in &cases {
        let object = format!("cannot get {resource} \"theirs\" in namespace \"{namespace}\"");
        refused(site.post("ann", CLUSTERS, &cluster("x1", spec.clone())).await, field, &object);
        // Nor can it be written into a cluster that is there.
        if site.get("ann", &format!("{CLUSTERS}/mine")).await.is_err() {
            site.post("ann", CLUSTERS, &cluster("mine", json!({"rkeConfig": {}}))).await.unwrap();
            site.until_owner("ann", "mine").await;
        }
        let patch = json!({"spec": spec});
        refused(site.patch("ann", &format!("{CLUSTERS}/mine"), &patch).await, field, &object);
    }
    // Whoever has the right may name it.
    for (namespace, resource) in [
        ("cattle-global-data", "secrets"),
        ("fleet-default", "secrets"),
        ("fleet-default", "configmaps"),
        ("vault", "secrets"),
    ] {
        site.grant("ann", namespace, "", resource, "theirs", &["get"]).await;
    }
    for (index, (spec, field, _)) in cases.iter().enumerate() {
        let name = format!("granted-{index}");
        site.post("ann", CLUSTERS, &cluster(&name, spec.clone())).await.expect(field);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_are_taken_with_the_rights_of_the_writer() {
    const IPAM: &str = "ipam.cluster.x-k8s.io";
    let site = Site::start().await;
    let claims = format!("/apis/{IPAM}/v1beta2/namespaces/fleet-default/ipaddressclaims");
    let claim = |name: &str, kind: &str| {
        json!({"apiVersion": format!("{IPAM}/v1beta2"), "kind": "IPAddressClaim", "metadata": {"name": name},
            "spec": {"poolRef": {"apiGroup": IPAM, "kind": kind, "name": "theirs"}}})
    };
    site.grant("ann", "fleet-default", IPAM, "ipaddressclaims", "", &["create"]).await;
    // Of pools beside it a claim may be made by whoever may make claims there.
    site.until("a claim may be made", async || {
        site.post("ann", &claims, &claim("here", "InClusterIPPool")).await.is_ok()
    })
    .await;
    let theirs = "cannot get globalinclusterippools.ipam.cluster.x-k8s.io \"theirs\"";
    let wide = "GlobalInClusterIPPool";
    refused(site.post("ann", &claims, &claim("wide", wide)).await, "spec.poolRef", theirs);

    let pooled = |name: &str, addresses: &str| {
        let mut pool = pool("nc");
        pool["machineDeploymentAnnotations"] = json!({"remuda.io/address-pool": addresses});
        cluster(name, json!({"rkeConfig": {"machinePools": [pool]}}))
    };
    site.post("ann", CONFIGS, &config("nc")).await.unwrap();
    let field = "spec.rkeConfig.machinePools[0].machineDeploymentAnnotations[remuda.io/address-pool]";
    let beside =
        "cannot get inclusterippools.ipam.cluster.x-k8s.io \"theirs\" in namespace \"fleet-default\"";
    refused(site.post("ann", CLUSTERS, &pooled("x1", "theirs")).await, field, beside);
    refused(site.post("ann", CLUSTERS, &pooled("x1", &format!("{wide}/theirs"))).await, field, theirs);

    site.grant("ann", "fleet-default", IPAM, "inclusterippools", "theirs", &["get"]).await;
    let rule = json!({"apiGroups": [IPAM], "resources": ["globalinclusterippools"], "resourceNames": ["theirs"], "verbs": ["get"]});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "uses"}, "rules": [rule]});
    site.make(&format!("{RBAC}/clusterroles"), role).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "uses"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "uses"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}],
    });
    site.make(&format!("{RBAC}/clusterrolebindings"), binding).await;
    site.until("the right holds", async || site.post("ann", &claims, &claim("wide", wide)).await.is_ok())
        .await;
    site.post("ann", CLUSTERS, &pooled("x1", "theirs")).await.unwrap();
    site.post("ann", CLUSTERS, &pooled("x2", &format!("{wide}/theirs"))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_administrator_named_stays_and_is_not_used_for_anything_else() {
    let site = Site::start().await;
    site.secret("fleet-default", "theirs").await;
    site.post("ann", CONFIGS, &config("nc")).await.unwrap();
    let spec = json!({"rkeConfig": {"machinePools": [pool("nc")]}});
    site.post("ann", CLUSTERS, &cluster("mine", spec)).await.unwrap();
    site.until_owner("ann", "mine").await;
    let path = format!("{CLUSTERS}/mine");
    let named = json!({"spec": {"rkeConfig": {"registries": {"configs": {"r.corp": {"authConfigSecretName": "theirs"}}}}}});
    site.send(&site.root(), Method::PATCH, &path, &named).await.unwrap();
    // An owner who may not read it goes on with their work.
    let mut more = pool("nc");
    more["quantity"] = 3.into();
    site.patch("ann", &path, &json!({"spec": {"rkeConfig": {"machinePools": [more]}}})).await.unwrap();
    site.patch("ann", &path, &json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
    site.patch("ann", &path, &named).await.unwrap();
    // But does not send it to another registry.
    let elsewhere = json!({"spec": {"rkeConfig": {"registries": {"configs": {"evil.example.com": {"authConfigSecretName": "theirs"}}}}}});
    let field = "spec.rkeConfig.registries.configs[evil.example.com].authConfigSecretName";
    refused(site.patch("ann", &path, &elsewhere).await, field, "\"theirs\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_what_controllers_made_is_judged_as_well() {
    let site = Site::start().await;
    site.secret("fleet-default", "theirs").await;
    let made = json!({
        "apiVersion": "rke.cattle.io/v1", "kind": "RKEControlPlane", "metadata": {"name": "mine"},
        "spec": {"clusterName": "mine", "managementClusterName": "c-m-abcd2345"},
    });
    site.make(CONTROL_PLANES, made).await;
    site.grant(
        "ann",
        "fleet-default",
        "rke.cattle.io",
        "rkecontrolplanes",
        "",
        &["get", "update", "patch", "create"],
    )
    .await;
    let path = format!("{CONTROL_PLANES}/mine");
    site.patch("ann", &path, &json!({"spec": {"kubernetesVersion": "v1.35.1+k3s1"}})).await.unwrap();
    let s3 = json!({"spec": {"etcd": {"s3": {"cloudCredentialName": "theirs"}}}});
    refused(site.patch("ann", &path, &s3).await, "spec.etcd.s3.cloudCredentialName", "\"theirs\"");
    let other = json!({"spec": {"managementClusterName": "c-m-other234"}});
    refused(site.patch("ann", &path, &other).await, "spec.managementClusterName", "\"c-m-other234\"");
    site.grant("ann", "fleet-default", "", "secrets", "theirs", &["get"]).await;
    site.patch("ann", &path, &s3).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_another_cluster_is_not_restored() {
    let site = Site::start().await;
    let snapshots = "/apis/rke.cattle.io/v1/namespaces/fleet-default/etcdsnapshots";
    for (name, of) in [("own", "mine"), ("theirs", "other")] {
        let snapshot = json!({
            "apiVersion": "rke.cattle.io/v1", "kind": "ETCDSnapshot", "metadata": {"name": name},
            "spec": {"clusterName": of}, "snapshotFile": {"name": name},
        });
        site.make(snapshots, snapshot).await;
    }
    site.post("ann", CLUSTERS, &cluster("mine", json!({"rkeConfig": {}}))).await.unwrap();
    site.until_owner("ann", "mine").await;
    let restore = |name: &str| {
        let restore = json!({"name": name, "generation": 1, "restoreRKEConfig": "none"});
        json!({"spec": {"rkeConfig": {"etcdSnapshotRestore": restore}}})
    };
    let path = format!("{CLUSTERS}/mine");
    let field = "spec.rkeConfig.etcdSnapshotRestore.name";
    refused(
        site.patch("ann", &path, &restore("theirs")).await,
        field,
        "etcdsnapshots.rke.cattle.io \"theirs\"",
    );
    refused(site.patch("ann", &path, &restore("absent")).await, field, "\"absent\"");
    site.patch("ann", &path, &restore("own")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_objects_of_others_are_not_named() {
    let site = Site::start().await;
    let theirs = json!({
        "apiVersion": "rke-machine.cattle.io/v1", "kind": "TestMachine", "metadata": {"name": "server-of-bob"}});
    site.make("/apis/rke-machine.cattle.io/v1/namespaces/fleet-default/testmachines", theirs).await;
    let infrastructure = json!({"rkeConfig": {"infrastructureRef": {
        "apiVersion": "rke-machine.cattle.io/v1", "kind": "TestMachine", "name": "server-of-bob"}}});
    let field = "spec.rkeConfig.infrastructureRef";
    let object = "testmachines.rke-machine.cattle.io \"server-of-bob\"";
    refused(site.post("ann", CLUSTERS, &cluster("x1", infrastructure.clone())).await, field, object);
    // It is deleted with the cluster: to read it is not enough.
    let (group, resource) = ("rke-machine.cattle.io", "testmachines");
    site.grant("ann", "fleet-default", group, resource, "server-of-bob", &["get"]).await;
    refused(site.post("ann", CLUSTERS, &cluster("x1", infrastructure)).await, field, "cannot update");

    // A template of ours holds what another cluster's machines boot with.
    let mut template = pool("t");
    template["machineConfigRef"] =
        json!({"apiVersion": "rke-machine.cattle.io/v1", "kind": "TestMachineTemplate", "name": "t"});
    let status =
        site.post("ann", CLUSTERS, &cluster("x1", json!({"rkeConfig": {"machinePools": [template]}}))).await;
    let status = status.unwrap_err();
    let field = "spec.rkeConfig.machinePools[0].machineConfigRef.apiVersion";
    assert_eq!(
        (&status["code"], &status["details"]["causes"][0]["field"]),
        (&json!(422), &json!(field)),
        "{status}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_configuration_is_used_by_who_made_it_or_may_read_it() {
    let site = Site::start().await;
    let made = site.post("bob", CONFIGS, &config("of-bob")).await.unwrap();
    assert_eq!(made["metadata"]["annotations"]["field.cattle.io/creatorId"], "bob");
    let spec = |config: &str| json!({"rkeConfig": {"machinePools": [pool(config)]}});
    let field = "spec.rkeConfig.machinePools[0].machineConfigRef";
    let object = "testconfigs.rke-machine-config.cattle.io \"of-bob\"";
    refused(site.post("ann", CLUSTERS, &cluster("x1", spec("of-bob"))).await, field, object);
    refused(site.post("ann", CLUSTERS, &cluster("x1", spec("absent"))).await, field, "\"absent\"");
    let bobs = site.post("bob", CLUSTERS, &cluster("bobs", spec("of-bob"))).await.unwrap();

    // No user becomes the creator of what others made.
    let mut claimed = config("of-root");
    claimed["metadata"]["annotations"] = json!({"field.cattle.io/creatorId": "ann"});
    let made = site.make(CONFIGS, claimed).await;
    assert_eq!(made["metadata"]["annotations"]["field.cattle.io/creatorId"], "root");
    let (group, resource) = ("rke-machine-config.cattle.io", "testconfigs");
    site.grant("ann", "fleet-default", group, resource, "of-bob", &["get", "patch"]).await;
    let claim = json!({"metadata": {"annotations": {"field.cattle.io/creatorId": "ann"}}});
    assert_eq!(site.patch("ann", &format!("{CONFIGS}/of-bob"), &claim).await.unwrap_err()["code"], 422);

    // One that belongs to a cluster is not taken away from it by who may only read it.
    site.post("ann", CLUSTERS, &cluster("x2", spec("of-bob"))).await.unwrap();
    let uid = &bobs["metadata"]["uid"];
    let owner = json!({"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "name": "bobs", "uid": uid, "controller": true});
    let owned = json!({"metadata": {"ownerReferences": [owner]}});
    site.send(&site.root(), Method::PATCH, &format!("{CONFIGS}/of-bob"), &owned).await.unwrap();
    refused(
        site.post("ann", CLUSTERS, &cluster("x3", spec("of-bob"))).await,
        field,
        "belongs to cluster \"bobs\"",
    );
    site.post("bob", CLUSTERS, &cluster("bobs2", spec("of-bob"))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_user_of_an_old_name_made_no_configuration_of_the_old_one() {
    let site = Site::start().await;
    site.may_create("eve").await;
    let old = site.post("eve", CONFIGS, &config("old")).await.unwrap();
    let spec = json!({"rkeConfig": {"machinePools": [pool("old")]}});
    site.post("eve", CLUSTERS, &cluster("x1", spec.clone())).await.unwrap();
    // Times are told in seconds: the User is made in a later one.
    let created = |object: &Value| object["metadata"]["creationTimestamp"].as_str().unwrap().to_owned();
    site.until("a second has passed", async || {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "clock-"}});
        created(&site.make("/api/v1/namespaces/vault/configmaps", map).await) > created(&old)
    })
    .await;
    site.person("eve").await;
    let field = "spec.rkeConfig.machinePools[0].machineConfigRef";
    refused(site.post("eve", CLUSTERS, &cluster("x2", spec)).await, field, "\"old\"");
    site.post("eve", CONFIGS, &config("new")).await.unwrap();
    let spec = json!({"rkeConfig": {"machinePools": [pool("new")]}});
    site.post("eve", CLUSTERS, &cluster("x3", spec)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_changes_where_a_credential_goes_may_use_it() {
    let site = Site::start().await;
    site.secret("cattle-global-data", "theirs").await;
    site.make(CONFIGS, config("shared")).await;
    let spec = json!({"cloudCredentialSecretName": "cattle-global-data:theirs",
        "rkeConfig": {"machinePools": [pool("shared"), {"name": "b", "workerRole": true,
            "machineConfigRef": {"kind": "TestConfig", "name": "not-yet"}}]}});
    site.make(CLUSTERS, cluster("admins", spec)).await;
    let (group, resource) = ("rke-machine-config.cattle.io", "testconfigs");
    site.grant("ann", "fleet-default", group, resource, "shared", &["get", "patch", "update"]).await;
    let path = format!("{CONFIGS}/shared");
    let object = "cannot get secrets \"theirs\" in namespace \"cattle-global-data\"";
    refused(
        site.patch("ann", &path, &json!({"endpoint": "https://evil.example.com"})).await,
        "metadata.name",
        object,
    );
    refused(site.post("ann", CONFIGS, &config("not-yet")).await, "metadata.name", object);
    site.patch("ann", &path, &json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();
    site.grant("ann", "cattle-global-data", "", "secrets", "theirs", &["get"]).await;
    site.patch("ann", &path, &json!({"endpoint": "https://cloud.example.com"})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_and_configurations_are_made_in_workspaces_only() {
    let site = Site::start().await;
    let clusters =
        |namespace: &str| format!("/apis/provisioning.cattle.io/v1/namespaces/{namespace}/clusters");
    let configs =
        |namespace: &str| format!("/apis/rke-machine-config.cattle.io/v1/namespaces/{namespace}/testconfigs");
    for namespace in ["kube-system", "cattle-global-data", "default", "fleet-local", "vault", "team-a"] {
        let object = format!("namespace {namespace:?} is no workspace");
        let answer = site.post("ann", &clusters(namespace), &cluster("x1", json!({}))).await;
        refused(answer, "metadata.namespace", &object);
        refused(site.post("ann", &configs(namespace), &config("nc")).await, "metadata.namespace", &object);
    }
    // Nor is a cluster moved there.
    let mut moved = cluster("x1", json!({}));
    moved["metadata"]["annotations"] = json!({"provisioning.cattle.io/fleet-workspace-name": "kube-system"});
    let field = "metadata.annotations[provisioning.cattle.io/fleet-workspace-name]";
    refused(site.post("ann", CLUSTERS, &moved).await, field, "\"kube-system\"");
    // A workspace is given; the system's namespaces are not.
    for namespace in ["team-a", "kube-system"] {
        site.grant("ann", namespace, "provisioning.cattle.io", "clusters", "", &["create"]).await;
    }
    site.post("ann", &clusters("team-a"), &cluster("x1", json!({}))).await.unwrap();
    assert!(site.post("ann", &clusters("kube-system"), &cluster("x1", json!({}))).await.is_err());
    assert!(site.post("bob", &clusters("team-a"), &cluster("x2", json!({}))).await.is_err());
    site.post("ann", CLUSTERS, &cluster("x1", json!({}))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_not_named_after_another_and_gives_no_right_to_what_others_made() {
    let site = Site::start().await;
    let managed =
        json!({"apiVersion": "management.cattle.io/v3", "kind": "Cluster", "metadata": {"name": "c-abc12"}});
    site.make("/apis/management.cattle.io/v3/clusters", managed).await;
    for name in ["c-abc12", "c-m-abcd2345", "local"] {
        let status = site.post("ann", CLUSTERS, &cluster(name, json!({}))).await.unwrap_err();
        assert_eq!(status["details"]["causes"][0]["field"], "metadata.name", "{status}");
    }
    let mut claimed = cluster("x1", json!({}));
    claimed["metadata"]["annotations"] = json!({"provisioning.cattle.io/management-cluster-name": "c-abc12"});
    let field = "metadata.annotations[provisioning.cattle.io/management-cluster-name]";
    refused(site.post("ann", CLUSTERS, &claimed).await, field, "\"c-abc12\"");

    site.secret("fleet-default", "prod-kubeconfig").await;
    site.post("ann", CLUSTERS, &cluster("prod", json!({}))).await.unwrap();
    site.until_owner("ann", "prod").await;
    let secret = "/api/v1/namespaces/fleet-default/secrets/prod-kubeconfig";
    assert_eq!(site.get("ann", secret).await.unwrap_err()["code"], 403);
    // The server says in the status which Secret it made; people do not.
    let status = json!({"status": {"clientSecretName": "prod-kubeconfig"}});
    let path = format!("{CLUSTERS}/prod");
    assert_eq!(site.patch("ann", &format!("{path}/status"), &status).await.unwrap_err()["code"], 403);
    site.send(&site.root(), Method::PATCH, &format!("{path}/status"), &status).await.unwrap();
    site.until("the owner reads the kubeconfig", async || site.get("ann", secret).await.is_ok()).await;
}
