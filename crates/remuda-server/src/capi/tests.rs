//! Cluster API kinds on a real API server.

use std::sync::Arc;

use http::Method;
use kube::Client;
use remuda_apiserver::{Config, Hook};
use remuda_control::{Ctx, Informers};
use remuda_names::annotation;
use remuda_testkit::World;
use serde_json::{Value, json};

use super::{Guard, Kinds, install, strangers};
use crate::shipped;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

struct Site {
    client: Client,
    /// Keeps the caches filled.
    _informers: Informers,
    _world: World,
}

impl Site {
    /// A server that knows our kinds.
    async fn open() -> Site {
        let site = Self::bare().await;
        install(&site.client, true).await.unwrap();
        site
    }

    /// The same, before the definitions are installed.
    async fn bare() -> Site {
        Self::with(Vec::new()).await
    }

    /// The same, where the controllers run too: another core provider is refused.
    async fn guarded() -> Site {
        let site = Self::with(vec![Arc::new(Guard)]).await;
        install(&site.client, true).await.unwrap();
        site
    }

    async fn with(more: Vec<Arc<dyn Hook>>) -> Site {
        let kinds = Kinds::default();
        let told = kinds.clone();
        let world = World::with(move || Config {
            hooks: told.hooks().into_iter().chain(more.clone()).collect(),
            conversions: told.conversions(),
            ..remuda_testkit::config()
        });
        let world = world.await;
        let ctx = Ctx::new(world.client(), "test");
        kinds.follow(&ctx.informers).await;
        Site { client: world.client(), _informers: ctx.informers, _world: world }
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: &str) -> Result<Value, Value> {
        let request = shipped::request(method, path, kind, body.to_owned());
        match self.client.request(request).await {
            Ok(answer) => Ok(answer),
            Err(kube::Error::Api(status)) => Err(serde_json::to_value(status).unwrap()),
            Err(error) => panic!("{error}"),
        }
    }

    async fn get(&self, path: &str) -> Value {
        self.send(Method::GET, path, "application/json", "").await.unwrap()
    }

    async fn create(&self, yaml: &str) -> Result<Value, Value> {
        let object: Value = serde_saphyr::from_str(yaml).unwrap();
        let path = collection(&object);
        self.send(Method::POST, &path, "application/json", &object.to_string()).await
    }

    async fn patch(&self, path: &str, patch: Value) -> Result<Value, Value> {
        self.send(Method::PATCH, path, "application/merge-patch+json", &patch.to_string()).await
    }

    /// Grows with every write.
    async fn revision(&self) -> u64 {
        let list = self.get("/api/v1/namespaces").await;
        list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
    }
}

fn collection(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap().to_lowercase();
    format!("/apis/{}/namespaces/default/{kind}s", object["apiVersion"].as_str().unwrap())
}

/// A path in the default namespace.
fn path(version: &str, rest: &str) -> String {
    format!("/apis/cluster.x-k8s.io/{version}/namespaces/default/{rest}")
}

/// What a refusal blames, one line each.
fn causes(status: &Value) -> String {
    assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")), "{status}");
    let causes = status["details"]["causes"].as_array().unwrap().iter();
    let lines = causes
        .map(|cause| format!("{}: {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap()));
    lines.collect::<Vec<_>>().join("\n")
}

/// Creates an object that must be refused, and compares why.
async fn refused(site: &Site, yaml: &str, expected: &str) {
    let status = site.create(yaml).await.expect_err(yaml);
    assert_eq!(causes(&status), expected.lines().map(str::trim).collect::<Vec<_>>().join("\n"), "{yaml}");
}

const QUICK_START: &[&str] = &[
    "
apiVersion: cluster.x-k8s.io/v1beta1
kind: Cluster
metadata: {name: quick}
spec:
  clusterNetwork:
    pods: {cidrBlocks: [192.168.0.0/16]}
    serviceDomain: cluster.local
  controlPlaneRef: {apiVersion: controlplane.cluster.x-k8s.io/v1beta1, kind: KubeadmControlPlane, name: quick}
  infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerCluster, name: quick}
",
    "
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata: {name: quick-md-0}
spec:
  clusterName: quick
  replicas: 3
  minReadySeconds: 5
  selector: {matchLabels: null}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 25%, deletePolicy: Oldest}}
  template:
    spec:
      clusterName: quick
      version: 1.34.0
      nodeDrainTimeout: 1m30s
      bootstrap:
        configRef: {apiVersion: bootstrap.cluster.x-k8s.io/v1beta1, kind: KubeadmConfigTemplate, name: quick}
      infrastructureRef: {apiVersion: infrastructure.cluster.x-k8s.io/v1beta1, kind: DockerMachineTemplate, name: quick}
",
    "
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineHealthCheck
metadata: {name: quick}
spec:
  clusterName: quick
  maxUnhealthy: 40%
  selector: {matchLabels: {pool: a}}
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 5m0s}]
",
];

#[tokio::test]
async fn a_quick_start_in_the_old_version_is_stored_in_the_new_one_and_reads_back_as_it_was() {
    let site = Site::open().await;
    for text in QUICK_START {
        let created = site.create(text).await.unwrap();
        assert_eq!(created["apiVersion"], "cluster.x-k8s.io/v1beta1");
    }
    let stored = site.get(&path("v1beta2", "machinedeployments/quick-md-0")).await;
    let labels =
        json!({"cluster.x-k8s.io/cluster-name": "quick", "cluster.x-k8s.io/deployment-name": "quick-md-0"});
    assert_eq!(
        stored["spec"],
        json!({
            "clusterName": "quick",
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "deletion": {"order": "Oldest"},
            "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "clusterName": "quick",
                    "version": "v1.34.0",
                    "minReadySeconds": 5,
                    "deletion": {"nodeDrainTimeoutSeconds": 90},
                    "bootstrap": {"configRef": {"apiGroup": "bootstrap.cluster.x-k8s.io", "kind": "KubeadmConfigTemplate", "name": "quick"}},
                    "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DockerMachineTemplate", "name": "quick"},
                },
            },
        })
    );
    assert!(stored["metadata"]["annotations"]["cluster.x-k8s.io/conversion-data"].is_null());
    let health = site.get(&path("v1beta2", "machinehealthchecks/quick")).await;
    assert_eq!(health["spec"]["checks"]["nodeStartupTimeoutSeconds"], 600);

    let shown = site.get(&path("v1beta1", "machinedeployments/quick-md-0")).await;
    let sent: Value = serde_saphyr::from_str(QUICK_START[1]).unwrap();
    for field in ["clusterName", "replicas", "minReadySeconds"] {
        assert_eq!(shown["spec"][field], sent["spec"][field]);
    }
    assert_eq!(shown["spec"]["strategy"]["rollingUpdate"]["deletePolicy"], "Oldest");
    assert_eq!(shown["spec"]["template"]["spec"]["nodeDrainTimeout"], "1m30s");

    // Written back as read, nothing changes.
    let before = site.revision().await;
    for (kind, name) in
        [("clusters", "quick"), ("machinedeployments", "quick-md-0"), ("machinehealthchecks", "quick")]
    {
        for version in ["v1beta1", "v1beta2"] {
            let path = path(version, &format!("{kind}/{name}"));
            let object = site.get(&path).await;
            site.send(Method::PUT, &path, "application/json", &object.to_string()).await.unwrap();
        }
    }
    assert_eq!(site.revision().await, before);
}

#[tokio::test]
async fn applying_the_old_version_again_changes_nothing() {
    let site = Site::open().await;
    let apply = async || {
        for text in QUICK_START {
            let object: Value = serde_saphyr::from_str(text).unwrap();
            let name = object["metadata"]["name"].as_str().unwrap();
            let url = format!("{}/{name}?fieldManager=test&force=true", collection(&object));
            // The same duration in other words.
            let body = text.replace("1m30s", "90s").replace("5m0s", "300s");
            site.send(Method::PATCH, &url, "application/apply-patch+yaml", &body).await.unwrap();
        }
    };
    apply().await;
    let before = site.revision().await;
    // Times of field managers are whole seconds: only in another one can they differ.
    tokio::time::sleep(std::time::Duration::from_millis(1_001)).await;
    apply().await;
    assert_eq!(site.revision().await, before);
}

#[tokio::test]
async fn references_in_the_old_version_name_the_version_the_provider_keeps_its_contract_in() {
    let site = Site::open().await;
    site.create(QUICK_START[0]).await.unwrap();
    let infrastructure = async || {
        let cluster = site.get(&path("v1beta1", "clusters/quick")).await;
        cluster["spec"]["infrastructureRef"]["apiVersion"].as_str().unwrap().to_owned()
    };
    assert_eq!(infrastructure().await, "infrastructure.cluster.x-k8s.io/v1beta1");
    let open = json!({"openAPIV3Schema": {"type": "object"}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "dockerclusters.infrastructure.cluster.x-k8s.io",
            "labels": {"cluster.x-k8s.io/v1beta2": "v1beta1_v1beta2"},
        },
        "spec": {
            "group": "infrastructure.cluster.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "DockerCluster", "plural": "dockerclusters"},
            "versions": [{"name": "v1beta2", "served": true, "storage": true, "schema": open}],
        },
    });
    site.send(Method::POST, DEFINITIONS, "application/json", &definition.to_string()).await.unwrap();
    // The cache hears of it a moment later.
    let known = async {
        while infrastructure().await != "infrastructure.cluster.x-k8s.io/v1beta2" {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), known).await.unwrap();
}

/// A spec that is in order, but for one thing.
fn object(kind: &str, metadata: &str, spec: &str) -> String {
    let group =
        if kind.starts_with("ClusterResource") { "addons.cluster.x-k8s.io" } else { "cluster.x-k8s.io" };
    format!("apiVersion: {group}/v1beta2\nkind: {kind}\nmetadata: {{{metadata}}}\nspec: {{{spec}}}\n")
}

const MACHINE: &str =
    "clusterName: a, bootstrap: {dataSecretName: s}, infrastructureRef: {apiGroup: x.io, kind: X, name: x}";

fn template(rest: &str) -> String {
    format!("clusterName: a, template: {{spec: {{{MACHINE}}}}}{rest}")
}

#[tokio::test]
async fn what_is_wrong_is_refused_with_the_field_that_is() {
    let site = Site::open().await;
    let name = "name: a";
    let cluster = "infrastructureRef: {apiGroup: x.io, kind: X, name: x}";
    let long = format!("name: {}", "a".repeat(64));
    let refused = async |kind: &str, metadata: &str, spec: String, expected: &str| {
        refused(&site, &object(kind, metadata, &spec), expected).await;
    };
    let too_long = format!(
        "metadata.name: Invalid value: \"{}\": must be a valid label value must be no more than 63 bytes",
        "a".repeat(64)
    );
    refused("Cluster", &long, cluster.into(), &too_long).await;
    refused(
        "Cluster",
        name,
        "paused: true".into(),
        "spec: Forbidden: one of spec.controlPlaneRef, spec.infrastructureRef or spec.topology must be set",
    )
    .await;
    refused(
        "Cluster",
        name,
        format!("{cluster}, clusterNetwork: {{pods: {{cidrBlocks: [10.0.0.0]}}}}"),
        "spec.clusterNetwork.pods.cidrBlocks[0]: Invalid value: \"10.0.0.0\": invalid CIDR address: 10.0.0.0",
    )
    .await;
    refused(
        "Cluster",
        name,
        "topology: {classRef: {name: c}, version: v1.34.0}".into(),
        "spec.topology: Forbidden: can be set only if the ClusterTopology feature flag is enabled",
    )
    .await;

    refused("Machine", name, MACHINE.replace("dataSecretName: s", ""),
        "spec.bootstrap: Required value: expected either spec.bootstrap.dataSecretName or spec.bootstrap.configRef to be populated").await;
    refused(
        "Machine",
        name,
        format!("{MACHINE}, version: v1.33"),
        "spec.version: Invalid value: \"v1.33\": must be a valid semantic version",
    )
    .await;
    refused("Machine", name,
        format!("{MACHINE}, taints: [{{key: k, effect: NoSchedule, propagation: Always}}]"),
        "spec.taints: Forbidden: taints are not allowed to be set when the feature gate MachineTaintPropagation is disabled").await;

    refused(
        "MachineSet",
        name,
        format!("selector: {{matchLabels: {{k: v}}}}, {}", template("")),
        "spec.template.metadata.labels: Invalid value: {}: must match spec.selector \"k=v\"",
    )
    .await;
    refused("MachineSet", name, template("").replacen("clusterName: a", "clusterName: b", 1),
        "spec.clusterName: Invalid value: \"b\": spec.clusterName and spec.template.spec.clusterName must be set to the same value").await;
    refused(
        "MachineSet",
        name,
        template(", machineNaming: {template: x}"),
        "spec.machineNaming.template: Invalid value: \"x\": invalid template, {{ .random }} is missing",
    )
    .await;
    refused("MachineSet", "name: a, annotations: {machineset.cluster.x-k8s.io/skip-preflight-checks: Nope}", template(""),
        "metadata.annotations.machineset.cluster.x-k8s.io/skip-preflight-checks: Invalid value: [\"Nope\"]: skipped preflight check(s) must be among: [All ControlPlaneIsStable ControlPlaneVersionSkew KubeadmVersionSkew KubernetesVersionSkew]").await;

    let rolling = |amounts: &str| {
        template(&format!(", rollout: {{strategy: {{type: RollingUpdate, rollingUpdate: {{{amounts}}}}}}}"))
    };
    refused("MachineDeployment", name, rolling("maxSurge: 0, maxUnavailable: 0"),
        "spec.rollout.strategy.rollingUpdate: Invalid value: \"0\": maxUnavailable and maxSurge cannot both be 0").await;
    refused("MachineDeployment", name, rolling("maxSurge: x"),
        "spec.rollout.strategy.rollingUpdate.maxSurge: Invalid value: \"x\": must be either an int or a percentage: invalid value for IntOrString: invalid type: string is not a percentage").await;
    refused("MachineDeployment", name, template(", remediation: {maxInFlight: a%}"),
        "spec.remediation.maxInFlight: Invalid value: \"a%\": must be either an int or a percentage: invalid value for IntOrString: invalid value \"a%\": strconv.Atoi: parsing \"a\": invalid syntax").await;
    refused("MachineDeployment", "name: a, annotations: {cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size: x, cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size: '3'}", template(""),
        "metadata.annotations[cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size]: failed to calculate MachineDeployment replicas value: could not parse the value of the \"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size\" annotation").await;

    refused("MachinePool", name, template("").replace(MACHINE, &format!("{MACHINE}, taints: [{{key: k, effect: NoSchedule, propagation: Always}}]")),
        "spec.taints: Forbidden: taints feature for MachinePools is not yet implemented
         spec.taints: Forbidden: taints are not allowed to be set when the feature gate MachineTaintPropagation is disabled").await;

    let check = |rest: &str| format!("clusterName: a, selector: {{matchLabels: {{k: v}}}}, {rest}");
    refused(
        "MachineHealthCheck",
        name,
        check("checks: {nodeStartupTimeoutSeconds: 10}"),
        "spec.checks.nodeStartupTimeoutSeconds: Invalid value: 10: must be at least 30s",
    )
    .await;
    refused(
        "MachineHealthCheck",
        name,
        "clusterName: a, selector: {}".into(),
        "spec.selector: Required value: selector must not be empty",
    )
    .await;
    refused("MachineHealthCheck", name, check("").replace("k: v", "cluster.x-k8s.io/cluster-name: b"),
        "spec.selector: Invalid value: {\"matchLabels\":{\"cluster.x-k8s.io/cluster-name\":\"b\"}}: cannot specify a cluster selector other than the one specified by ClusterName").await;

    refused("MachineDrainRule", name, "drain: {behavior: Skip, order: 1}".into(),
        "spec.drain.order: Invalid value: 1: order must not be set if drain behavior is \"Skip\" or \"WaitCompleted\"").await;
    refused(
        "ClusterResourceSet",
        name,
        "clusterSelector: {}, resources: [{kind: Secret, name: s}]".into(),
        "spec.clusterSelector: Invalid value: {}: selector must not be empty",
    )
    .await;
}

#[tokio::test]
async fn the_old_version_is_judged_as_the_new_one() {
    let site = Site::open().await;
    refused(
        &site,
        "
apiVersion: cluster.x-k8s.io/v1beta1
kind: Machine
metadata: {name: a}
spec:
  clusterName: a
  version: 1.33.x
  bootstrap: {}
  infrastructureRef: {apiVersion: x.io/v1, kind: X, name: x}
",
        "spec.bootstrap: Required value: expected either spec.bootstrap.dataSecretName or spec.bootstrap.configRef to be populated
         spec.version: Invalid value: \"v1.33.x\": must be a valid semantic version",
    )
    .await;
    // What a conversion cannot read does not disappear on the way.
    refused(
        &site,
        "
apiVersion: cluster.x-k8s.io/v1beta1
kind: Machine
metadata: {name: a}
spec:
  clusterName: a
  nodeDrainTimeout: 5
  bootstrap: {dataSecretName: s}
  infrastructureRef: {apiVersion: x.io/v1, kind: X, name: x}
",
        "spec.nodeDrainTimeout: Invalid value: \"integer\": spec.nodeDrainTimeout in body must be of type string: \"integer\"",
    )
    .await;
}

#[tokio::test]
async fn what_must_not_change_does_not() {
    let site = Site::open().await;
    let create = async |kind: &str, spec: &str| site.create(&object(kind, "name: a", spec)).await.unwrap();
    create("Cluster", "infrastructureRef: {apiGroup: x.io, kind: X, name: x}, controlPlaneRef: {apiGroup: x.io, kind: X, name: x}").await;
    create("Machine", MACHINE).await;
    create("MachineDeployment", &template("")).await;
    create("MachineHealthCheck", "clusterName: a, selector: {matchLabels: {k: v}}").await;
    create(
        "ClusterResourceSet",
        "clusterSelector: {matchLabels: {k: v}}, resources: [{kind: Secret, name: s}]",
    )
    .await;
    create("ClusterResourceSetBinding", "clusterName: a").await;
    let changed = async |plural: &str, patch: Value, expected: &str| {
        let group = if plural.starts_with("clusterresource") {
            "addons.cluster.x-k8s.io"
        } else {
            "cluster.x-k8s.io"
        };
        for version in ["v1beta1", "v1beta2"] {
            let path = format!("/apis/{group}/{version}/namespaces/default/{plural}/a");
            let status = site.patch(&path, patch.clone()).await.expect_err(plural);
            assert!(causes(&status).lines().any(|line| line == expected), "{}", causes(&status));
        }
    };
    let other = json!({"spec": {"clusterName": "b"}});
    let immutable = "spec.clusterName: Forbidden: field is immutable";
    changed(
        "clusters",
        json!({"spec": {"infrastructureRef": null}}),
        "spec.infrastructureRef: Forbidden: cannot be removed",
    )
    .await;
    changed(
        "clusters",
        json!({"spec": {"controlPlaneRef": null}}),
        "spec.controlPlaneRef: Forbidden: cannot be removed",
    )
    .await;
    changed("machines", other.clone(), immutable).await;
    changed("machinedeployments", other.clone(), immutable).await;
    changed("machinehealthchecks", other.clone(), immutable).await;
    changed(
        "clusterresourcesets",
        json!({"spec": {"clusterSelector": {"matchLabels": {"k": "w"}}}}),
        "spec.clusterSelector: Invalid value: {\"matchLabels\":{\"k\":\"w\"}}: field is immutable",
    )
    .await;
    changed(
        "clusterresourcesets",
        json!({"spec": {"strategy": "Reconcile"}}),
        "spec.strategy: Invalid value: \"Reconcile\": field is immutable",
    )
    .await;
    changed(
        "clusterresourcesetbindings",
        other,
        "spec.clusterName: Invalid value: \"b\": field is immutable",
    )
    .await;
}

#[tokio::test]
async fn pools_claims_and_addresses_are_judged_in_every_version() {
    let site = Site::open().await;
    let pool = |addresses: &str| {
        format!(
            "{{apiVersion: ipam.cluster.x-k8s.io/v1alpha2, kind: InClusterIPPool, metadata: {{name: lan}}, spec: {{prefix: 24, addresses: {addresses}}}}}"
        )
    };
    let odd = "spec.addresses[1]: Invalid value: \"10.0.1.7\": provided address belongs to a different subnet than others";
    refused(&site, &pool("[10.0.0.7, 10.0.1.7]"), odd).await;
    site.create(&pool("[10.0.0.7, 10.0.0.32/28]")).await.unwrap();
    let lan = "/apis/ipam.cluster.x-k8s.io/v1alpha2/namespaces/default/inclusterippools/lan";
    let status = site.patch(lan, json!({"spec": {"prefix": 33}})).await.unwrap_err();
    assert_eq!(causes(&status), "spec.prefix: Invalid value: 33: provided prefix is not valid");

    for (version, name) in [("v1beta1", "a"), ("v1beta2", "b")] {
        let reference = "{apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: lan}";
        let object = |kind: &str, spec: &str| {
            format!(
                "{{apiVersion: ipam.cluster.x-k8s.io/{version}, kind: {kind}, metadata: {{name: {name}}}, spec: {{{spec}}}}}"
            )
        };
        site.create(&object("IPAddressClaim", &format!("poolRef: {reference}"))).await.unwrap();
        let claims =
            format!("/apis/ipam.cluster.x-k8s.io/{version}/namespaces/default/ipaddressclaims/{name}");
        let status = site.patch(&claims, json!({"spec": {"poolRef": {"name": "wan"}}})).await.unwrap_err();
        assert_eq!(causes(&status), "spec: Forbidden: IPAddressClaim spec is immutable");
        site.patch(&claims, json!({"metadata": {"labels": {"a": "b"}}})).await.unwrap();

        let address = |address: &str| {
            format!("claimRef: {{name: {name}}}, poolRef: {reference}, address: {address}, prefix: 24")
        };
        let path = format!("/apis/ipam.cluster.x-k8s.io/{version}/namespaces/default/ipaddresses");
        let create = async |text: &str| {
            let object: Value = serde_saphyr::from_str(&object("IPAddress", &address(text))).unwrap();
            site.send(Method::POST, &path, "application/json", &object.to_string()).await
        };
        let wrong = "spec.address: Invalid value: \"10.0.0\": not a valid IP address";
        assert_eq!(causes(&create("10.0.0").await.unwrap_err()), wrong);
        create("10.0.0.7").await.unwrap();
        let status = site.patch(&format!("{path}/{name}"), json!({"spec": {"address": "10.0.0.8"}})).await;
        assert_eq!(causes(&status.unwrap_err()), "spec: Forbidden: IPAddress spec is immutable");
    }
    // What one version writes the other shows.
    let shown = site.get("/apis/ipam.cluster.x-k8s.io/v1beta1/namespaces/default/ipaddresses/b").await;
    assert_eq!(shown["spec"]["address"], "10.0.0.7");
}

#[tokio::test]
async fn a_refusal_is_the_status_clients_know() {
    let site = Site::open().await;
    let status = site.create(&object("Cluster", "name: a", "paused: true")).await.unwrap_err();
    let message =
        "spec: Forbidden: one of spec.controlPlaneRef, spec.infrastructureRef or spec.topology must be set";
    assert_eq!(status["message"], format!("Cluster.cluster.x-k8s.io \"a\" is invalid: {message}"));
    assert_eq!(status["details"]["group"], "cluster.x-k8s.io");
    assert_eq!((&status["details"]["kind"], &status["details"]["name"]), (&json!("Cluster"), &json!("a")));
    assert_eq!(status["details"]["causes"][0]["reason"], "FieldValueForbidden");
}

#[tokio::test]
async fn a_dry_run_fills_in_and_refuses_but_does_not_store() {
    let site = Site::open().await;
    let before = site.revision().await;
    for version in ["v1beta1", "v1beta2"] {
        let url = path(version, "machinesets?dryRun=All");
        let set = json!({
            "apiVersion": format!("cluster.x-k8s.io/{version}"), "kind": "MachineSet", "metadata": {"name": "a"},
            "spec": {
                "clusterName": "a", "selector": {},
                "template": {"spec": {
                    "clusterName": "a", "version": "1.34.0", "bootstrap": {"dataSecretName": "s"},
                    "infrastructureRef": {"apiVersion": "x.io/v1", "apiGroup": "x.io", "kind": "X", "name": "x"},
                }},
            },
        });
        let made = site.send(Method::POST, &url, "application/json", &set.to_string()).await.unwrap();
        assert_eq!(made["spec"]["replicas"], 1);
        assert_eq!(made["spec"]["template"]["spec"]["version"], "v1.34.0");
        assert_eq!(made["spec"]["selector"]["matchLabels"], json!({"cluster.x-k8s.io/set-name": "a"}));
        let mut wrong = set;
        wrong["spec"]["clusterName"] = "b".into();
        let status = site.send(Method::POST, &url, "application/json", &wrong.to_string()).await.unwrap_err();
        assert_eq!(status["code"], 422);
    }
    assert_eq!(site.revision().await, before);
}

#[tokio::test]
async fn status_and_scale_are_not_judged() {
    let site = Site::open().await;
    site.create(&object("MachineDeployment", "name: a", &template(""))).await.unwrap();
    let url = path("v1beta2", "machinedeployments/a");
    let status = json!({"status": {"replicas": 1}, "spec": {"clusterName": "b"}});
    let changed = site.patch(&format!("{url}/status"), status).await.unwrap();
    assert_eq!((&changed["status"]["replicas"], &changed["spec"]["clusterName"]), (&json!(1), &json!("a")));
    let scaled = site.patch(&format!("{url}/scale"), json!({"spec": {"replicas": 7}})).await.unwrap();
    assert_eq!(scaled["spec"]["replicas"], 7);
    assert_eq!(site.get(&url).await["spec"]["replicas"], 7);
}

fn definition(name: &str) -> String {
    format!("{DEFINITIONS}/{name}.cluster.x-k8s.io")
}

#[tokio::test]
async fn installing_again_writes_nothing() {
    let site = Site::open().await;
    let before = site.revision().await;
    install(&site.client, true).await.unwrap();
    assert_eq!(site.revision().await, before);
}

#[tokio::test]
async fn servers_that_start_together_install_once() {
    let site = Site::bare().await;
    let install = || install(&site.client, true);
    let (first, second, third) = tokio::join!(install(), install(), install());
    first.and(second).and(third).unwrap();
    let crds = site.get(DEFINITIONS).await;
    for crd in crds["items"].as_array().unwrap() {
        assert_eq!(crd["metadata"]["generation"], 1, "{}", crd["metadata"]["name"]);
    }
    let providers = site.get("/apis/clusterctl.cluster.x-k8s.io/v1alpha3/providers").await;
    assert_eq!(providers["items"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn our_definitions_are_restored_and_what_others_added_stays() {
    let site = Site::open().await;
    let url = definition("machines");
    let shipped = site.get(&url).await;
    let edit = json!({
        "metadata": {"labels": {"team": "blue", "cluster.x-k8s.io/provider": null}},
        "spec": {"names": {"shortNames": ["mach"]}},
    });
    site.patch(&url, edit).await.unwrap();
    install(&site.client, true).await.unwrap();
    let restored = site.get(&url).await;
    assert_eq!(restored["spec"], shipped["spec"]);
    assert_eq!(restored["metadata"]["labels"]["team"], "blue");
    assert_eq!(restored["metadata"]["labels"]["cluster.x-k8s.io/provider"], "cluster-api");
}

#[tokio::test]
async fn definitions_of_others_and_of_newer_servers_are_left_alone() {
    for mark in [Value::Null, json!("1000000")] {
        let site = Site::open().await;
        let url = definition("machines");
        let edit = json!({
            "metadata": {"annotations": {annotation::SHIPPED: mark}},
            "spec": {"names": {"shortNames": ["mach"]}},
        });
        site.patch(&url, edit).await.unwrap();
        let before = site.revision().await;
        install(&site.client, true).await.unwrap();
        assert_eq!(site.revision().await, before);
    }
}

#[tokio::test]
async fn a_definition_that_is_going_is_no_reason_not_to_start() {
    let site = Site::open().await;
    let url = definition("machines");
    site.patch(&url, json!({"metadata": {"finalizers": ["example.org/wait"]}})).await.unwrap();
    site.send(Method::DELETE, &url, "application/json", "").await.unwrap();
    install(&site.client, true).await.unwrap();
}

#[tokio::test]
async fn a_definition_with_a_conversion_webhook_is_left_alone_and_converted_here_all_the_same() {
    let site = Site::open().await;
    let webhook = json!({
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"url": "https://127.0.0.1:1/"}, "conversionReviewVersions": ["v1"]},
    });
    for name in ["machinedeployments", "machinedrainrules"] {
        site.patch(&definition(name), json!({"spec": {"conversion": webhook}})).await.unwrap();
    }
    let before = site.revision().await;
    install(&site.client, true).await.unwrap();
    assert_eq!(site.revision().await, before);
    site.create(QUICK_START[1]).await.unwrap();
    site.create(&object("MachineDrainRule", "name: a", "drain: {behavior: Skip}")).await.unwrap();
    let rule = site.get(&path("v1beta1", "machinedrainrules/a")).await;
    assert_eq!(rule["apiVersion"], "cluster.x-k8s.io/v1beta1");
}

/// Webhooks as upstream's manifest of the core provider has them.
fn their_webhooks() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "capi-validating", "labels": {"cluster.x-k8s.io/provider": "cluster-api"}},
        "webhooks": [{
            "name": "validation.cluster.cluster.x-k8s.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "capi-system", "name": "capi-webhook-service"}},
            "rules": [{"apiGroups": ["cluster.x-k8s.io"], "apiVersions": ["v1beta2"], "operations": ["CREATE", "UPDATE"],
                "resources": ["clusters"]}],
        }],
    })
}

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

#[tokio::test]
async fn another_core_provider_is_not_put_over_this_one() {
    let site = Site::guarded().await;
    // As clusterctl does it: a merge patch, which leaves our mark where it is.
    let webhook = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "capi-system", "name": "capi-webhook-service", "path": "/convert"}}}});
    let patch = json!({"spec": {"conversion": webhook}});
    let refused = site.patch(&definition("clusters"), patch.clone()).await.unwrap_err();
    assert_eq!(refused["code"], 403, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("this server is the core provider"), "{refused}");
    let post = |object: Value| {
        let site = &site;
        async move { site.send(Method::POST, WEBHOOKS, "application/json", &object.to_string()).await }
    };
    assert_eq!(post(their_webhooks()).await.unwrap_err()["code"], 403);
    // Those of others are their own business, and so is a definition that is taken over on purpose.
    let mut other = their_webhooks();
    other["metadata"]["labels"]["cluster.x-k8s.io/provider"] = "infrastructure-docker".into();
    post(other).await.unwrap();
    let mut taken = patch;
    taken["metadata"]["annotations"][annotation::SHIPPED] = Value::Null;
    site.patch(&definition("machinepools"), taken).await.unwrap();
}

#[tokio::test]
async fn webhooks_of_another_core_provider_that_nothing_serves_are_recognized() {
    let site = Site::open().await;
    site.send(Method::POST, WEBHOOKS, "application/json", &their_webhooks().to_string()).await.unwrap();
    let found = strangers::unserved(&site.client).await.unwrap();
    let core = strangers::Unserved {
        provider: "cluster-api".to_owned(),
        configuration: "capi-validating".to_owned(),
        service: "capi-system/capi-webhook-service".to_owned(),
    };
    assert_eq!(found, [core]);
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "s", "labels": {"kubernetes.io/service-name": "capi-webhook-service"}},
        "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 9443}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/capi-system/endpointslices";
    site.send(Method::POST, slices, "application/json", &slice.to_string()).await.unwrap();
    assert_eq!(strangers::unserved(&site.client).await.unwrap(), []);
}

#[tokio::test]
async fn a_webhook_in_the_way_is_named_and_installing_works_when_it_is_gone() {
    let site = Site::open().await;
    site.patch(&definition("machines"), json!({"spec": {"names": {"shortNames": ["mach"]}}})).await.unwrap();
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "closed"},
        "webhooks": [{
            "name": "closed.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["*"], "operations": ["*"],
                "resources": ["customresourcedefinitions"]}],
        }],
    });
    site.send(Method::POST, hooks, "application/json", &hook.to_string()).await.unwrap();
    let error = install(&site.client, true).await.unwrap_err();
    assert_eq!(error.to_string(), "install machines.cluster.x-k8s.io");
    site.send(Method::DELETE, &format!("{hooks}/closed"), "application/json", "").await.unwrap();
    install(&site.client, true).await.unwrap();
    assert_eq!(site.get(&definition("machines")).await["spec"]["names"]["shortNames"], json!(["ma"]));
}

#[tokio::test]
async fn one_core_provider_is_recorded_unless_another_is_or_none_is_wanted() {
    let url = "/apis/clusterctl.cluster.x-k8s.io/v1alpha3/providers";
    let site = Site::bare().await;
    install(&site.client, false).await.unwrap();
    assert_eq!(site.get(url).await["items"], json!([]));
    let theirs = json!({
        "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3", "kind": "Provider",
        "metadata": {"name": "cluster-api"},
        "providerName": "cluster-api", "type": "CoreProvider", "version": "v1.99.0",
    });
    let default = "/apis/clusterctl.cluster.x-k8s.io/v1alpha3/namespaces/default/providers";
    site.send(Method::POST, default, "application/json", &theirs.to_string()).await.unwrap();
    install(&site.client, true).await.unwrap();
    let found = site.get(url).await;
    assert_eq!(found["items"].as_array().unwrap().len(), 1);

    site.send(Method::DELETE, &format!("{default}/cluster-api"), "application/json", "").await.unwrap();
    install(&site.client, true).await.unwrap();
    let found = site.get(url).await;
    let named: Vec<String> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            format!(
                "{} {} {}",
                text(&entry["metadata"]["name"]),
                text(&entry["providerName"]),
                text(&entry["type"])
            )
        })
        .collect();
    assert_eq!(
        named,
        [
            "cluster-api cluster-api CoreProvider",
            "bootstrap-remuda remuda BootstrapProvider",
            "control-plane-remuda remuda ControlPlaneProvider",
            "infrastructure-remuda remuda InfrastructureProvider",
        ]
    );
    let entry = &found["items"][0];
    assert_eq!(entry["metadata"]["namespace"], "capi-system");
    assert_eq!((&entry["type"], &entry["version"]), (&json!("CoreProvider"), &json!("v1.14.0")));
    assert_eq!(entry["metadata"]["labels"]["clusterctl.cluster.x-k8s.io/core"], "inventory");
}

#[tokio::test]
async fn every_kind_is_listed_in_each_of_its_versions() {
    let site = Site::open().await;
    for crd in remuda_api::crd::all() {
        let (group, plural) = (&crd["spec"]["group"], &crd["spec"]["names"]["plural"]);
        for version in crd["spec"]["versions"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let url = format!("/apis/{}/{}/{}", text(group), text(&version["name"]), text(plural));
            assert_eq!(
                site.get(&url).await["items"].as_array().map(Vec::is_empty),
                Some(plural != "providers")
            );
        }
    }
    assert_eq!(shipped::get(&site.client, "/apis/cluster.x-k8s.io/v1beta3/machines").await.unwrap(), None);
}
