use super::*;
use serde_json::json;

#[track_caller]
fn check(kind: &str, object: Value, old: Option<&Value>, expected: &str) {
    let told: Vec<_> =
        validate(kind, &object, old, Features::default()).iter().map(ToString::to_string).collect();
    assert_eq!(told.join("\n"), expected);
}

fn reference(kind: &str) -> Value {
    json!({"apiGroup": "rke.cattle.io", "kind": kind, "name": "demo"})
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "demo-pool1", "namespace": "fleet-default"},
        "spec": {
            "clusterName": "demo",
            "replicas": 3,
            "rollout": {"strategy": {"type": "RollingUpdate"}},
            "template": {
                "metadata": {"labels": {"cluster.x-k8s.io/cluster-name": "demo"}},
                "spec": {
                    "clusterName": "demo",
                    "bootstrap": {"configRef": reference("RKEBootstrapTemplate")},
                    "infrastructureRef": reference("VmwarevsphereMachineTemplate"),
                },
            },
        },
    })
}

fn defaulted(kind: &str, mut object: Value) -> Value {
    default(kind, &mut object, None).unwrap();
    object
}

#[test]
fn a_deployment_without_a_selector_gets_one_its_template_matches() {
    let object = defaulted("MachineDeployment", deployment());
    assert_eq!(
        object["spec"]["selector"],
        json!({"matchLabels": {
            "cluster.x-k8s.io/cluster-name": "demo", "cluster.x-k8s.io/deployment-name": "demo-pool1",
        }})
    );
    assert_eq!(object["spec"]["template"]["metadata"]["labels"], object["spec"]["selector"]["matchLabels"]);
    assert_eq!(
        object["spec"]["rollout"]["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    );
    assert_eq!(object["metadata"]["labels"], json!({"cluster.x-k8s.io/cluster-name": "demo"}));
    check("MachineDeployment", object.clone(), None, "");
    assert_eq!(defaulted("MachineDeployment", object.clone()), object, "defaulting again changes nothing");
}

#[test]
fn a_set_is_selected_by_its_own_name() {
    let mut object = deployment();
    object["spec"]["template"]["spec"]["version"] = json!("1.34.0");
    let object = defaulted("MachineSet", object);
    assert_eq!(
        object["spec"]["selector"],
        json!({"matchLabels": {"cluster.x-k8s.io/set-name": "demo-pool1"}})
    );
    assert_eq!(object["spec"]["template"]["spec"]["version"], "v1.34.0");
    check("MachineSet", object, None, "");
}

#[test]
fn replicas_follow_the_autoscalers_bounds() {
    let annotated = |min: &str, max: &str| {
        let mut object = deployment();
        object["spec"].as_object_mut().unwrap().remove("replicas");
        object["metadata"]["annotations"] = json!({
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": min,
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": max,
        });
        object
    };
    let after = |before: Option<i32>| {
        let mut object = annotated("2", "5");
        let old = before.map(|replicas| json!({"spec": {"replicas": replicas}}));
        default("MachineDeployment", &mut object, old.as_ref()).unwrap();
        object["spec"]["replicas"].as_i64().unwrap()
    };
    assert_eq!([after(None), after(Some(1)), after(Some(3)), after(Some(9))], [2, 2, 3, 5]);
    let refused = default("MachineDeployment", &mut annotated("two", "5"), None).unwrap_err();
    assert!(refused[0].message.contains("could not parse"), "{refused:?}");
    let mut plain = deployment();
    plain["spec"]["replicas"] = Value::Null;
    assert_eq!(defaulted("MachineDeployment", plain)["spec"]["replicas"], 1);
}

#[test]
fn a_machine_and_a_health_check_get_their_timeouts() {
    let machine = defaulted("Machine", json!({"spec": {"clusterName": "demo", "version": "1.34.0+rke2r1"}}));
    assert_eq!(machine["spec"]["deletion"], json!({"nodeDeletionTimeoutSeconds": 10}));
    assert_eq!(machine["spec"]["version"], "v1.34.0+rke2r1");
    let check = defaulted("MachineHealthCheck", json!({"spec": {"clusterName": "demo"}}));
    assert_eq!(check["spec"]["checks"], json!({"nodeStartupTimeoutSeconds": 600}));
    let set = defaulted("ClusterResourceSet", json!({"spec": {}}));
    assert_eq!(set["spec"]["strategy"], "ApplyOnce");
}

#[test]
fn odd_objects_are_left_to_the_schema() {
    for object in
        [json!(null), json!([]), json!({"metadata": 7, "spec": "x"}), json!({"spec": {"selector": []}})]
    {
        for kind in
            ["Machine", "MachineSet", "MachineDeployment", "MachinePool", "MachineHealthCheck", "Cluster"]
        {
            let mut object = object.clone();
            let _ = default(kind, &mut object, None);
            let _ = validate(kind, &object, Some(&object), Features::default());
        }
    }
}

#[test]
fn a_cluster_needs_somebody_behind_it() {
    check(
        "Cluster",
        json!({"metadata": {"name": "demo"}, "spec": {}}),
        None,
        "spec: Forbidden: one of spec.controlPlaneRef, spec.infrastructureRef or spec.topology must be set",
    );
    let old = json!({"spec": {"infrastructureRef": reference("A"), "controlPlaneRef": reference("B")}});
    check(
        "Cluster",
        json!({"metadata": {"name": "demo"}, "spec": {"infrastructureRef": reference("C")}}),
        Some(&old),
        "spec.controlPlaneRef: Forbidden: cannot be removed",
    );
    check(
        "Cluster",
        json!({"metadata": {"name": "demo"}, "spec": {"topology": {"version": "v1"}}}),
        None,
        "spec.topology: Forbidden: can be set only if the ClusterTopology feature flag is enabled",
    );
}

#[test]
fn networks_must_be_networks() {
    let with = |blocks: Value| {
        json!({
            "metadata": {"name": "demo"},
            "spec": {"infrastructureRef": reference("A"), "clusterNetwork": {"pods": {"cidrBlocks": blocks}}},
        })
    };
    check("Cluster", with(json!(["10.0.0.0/8", "fd00::/64"])), None, "");
    check(
        "Cluster",
        with(json!(["10.0.0.0", "10.0.0.0/33", "x/8"])),
        None,
        "spec.clusterNetwork.pods.cidrBlocks[0]: Invalid value: \"10.0.0.0\": invalid CIDR address: 10.0.0.0
spec.clusterNetwork.pods.cidrBlocks[1]: Invalid value: \"10.0.0.0/33\": invalid CIDR address: 10.0.0.0/33
spec.clusterNetwork.pods.cidrBlocks[2]: Invalid value: \"x/8\": invalid CIDR address: x/8",
    );
}

#[test]
fn names_that_become_labels_must_be_labels() {
    let long = "a".repeat(64);
    check(
        "Cluster",
        json!({"metadata": {"name": long}, "spec": {"infrastructureRef": reference("A")}}),
        None,
        &format!(
            "metadata.name: Invalid value: \"{long}\": must be a valid label value must be no more than 63 bytes"
        ),
    );
}

#[test]
fn a_machine_needs_a_way_to_boot() {
    let refused = "spec.bootstrap: Required value: expected either spec.bootstrap.dataSecretName or \
                   spec.bootstrap.configRef to be populated";
    check("Machine", json!({"spec": {"clusterName": "demo"}}), None, refused);
    check("Machine", json!({"spec": {"bootstrap": {"dataSecretName": ""}}}), None, "");
    let pooled = json!({"metadata": {"labels": {"cluster.x-k8s.io/pool-name": "p"}}, "spec": {}});
    check("Machine", pooled, None, "");
}

#[test]
fn versions_are_strict() {
    let with = |version: &str| json!({"spec": {"bootstrap": {"dataSecretName": "s"}, "version": version}});
    check("Machine", with("v1.33.1+rke2r1"), None, "");
    check(
        "Machine",
        with("v1.33"),
        None,
        "spec.version: Invalid value: \"v1.33\": must be a valid semantic version",
    );
    check("Machine", with("1.33.1"), None, "spec.version: Invalid value: \"1.33.1\": must start with v");
}

#[test]
fn a_deployment_is_refused_with_every_reason_at_once() {
    let mut object = defaulted("MachineDeployment", deployment());
    let old = object.clone();
    object["spec"]["clusterName"] = json!("other");
    object["spec"]["selector"]["matchLabels"]["x"] = json!("y");
    object["spec"]["rollout"]["strategy"]["rollingUpdate"] = json!({"maxSurge": "3", "maxUnavailable": "x%"});
    object["spec"]["remediation"] = json!({"maxInFlight": "many"});
    object["spec"]["machineNaming"] = json!({"template": "Fixed-{{ .node }}"});
    object["spec"]["template"]["spec"]["taints"] = json!([{"key": "node.kubernetes.io/x"}]);
    object["metadata"]["annotations"] =
        json!({"machineset.cluster.x-k8s.io/skip-preflight-checks": "All, Some"});
    check(
        "MachineDeployment",
        object,
        Some(&old),
        "spec.template.metadata.labels: Forbidden: must match spec.selector \"cluster.x-k8s.io/cluster-name=demo,cluster.x-k8s.io/deployment-name=demo-pool1,x=y\"
metadata.annotations.machineset.cluster.x-k8s.io/skip-preflight-checks: Invalid value: [\"Some\"]: skipped preflight check(s) must be among: [All ControlPlaneIsStable ControlPlaneVersionSkew KubeadmVersionSkew KubernetesVersionSkew]
spec.clusterName: Forbidden: field is immutable
spec.clusterName: Invalid value: \"other\": spec.clusterName and spec.template.spec.clusterName must be set to the same value
spec.rollout.strategy.rollingUpdate.maxUnavailable: Invalid value: \"x%\": must be either an int or a percentage: invalid value for IntOrString: invalid value \"x%\": strconv.Atoi: parsing \"x\": invalid syntax
spec.rollout.strategy.rollingUpdate.maxSurge: Invalid value: \"3\": must be either an int or a percentage: invalid value for IntOrString: invalid type: string is not a percentage
spec.remediation.maxInFlight: Invalid value: \"many\": must be either an int or a percentage: invalid value for IntOrString: invalid type: string is not a percentage
spec.machineNaming.template: Invalid value: \"Fixed-{{ .node }}\": invalid template, {{ .random }} is missing
spec.machineNaming.template: Invalid value: \"Fixed-{{ .node }}\": invalid template: unknown variable \".node\"
spec.template.spec.taints: Forbidden: taints are not allowed to be set when the feature gate MachineTaintPropagation is disabled
spec.template.spec.taints[0].key: Invalid value: \"node.kubernetes.io/x\": taint key must not have the prefix node.kubernetes.io/, except for node.kubernetes.io/out-of-service",
    );
}

#[test]
fn a_rollout_that_cannot_move_is_refused() {
    let mut object = defaulted("MachineDeployment", deployment());
    object["spec"]["rollout"]["strategy"]["rollingUpdate"] = json!({"maxSurge": 0, "maxUnavailable": 0});
    check(
        "MachineDeployment",
        object.clone(),
        None,
        "spec.rollout.strategy.rollingUpdate: Invalid value: \"0\": maxUnavailable and maxSurge cannot both be 0",
    );
    object["spec"]["rollout"]["strategy"]["rollingUpdate"] = json!({"maxSurge": "0%", "maxUnavailable": 0});
    check("MachineDeployment", object, None, "");
}

#[test]
fn with_the_feature_on_workers_may_still_not_pose_as_control_plane() {
    let taints = json!([{"key": "node-role.kubernetes.io/control-plane"}]);
    let features = Features { taints: true, ..Features::default() };
    let machine = |labels: Value| {
        json!({
            "metadata": {"labels": labels},
            "spec": {"bootstrap": {"dataSecretName": "s"}, "taints": taints},
        })
    };
    let told = |object: Value| validate("Machine", &object, None, features).len();
    assert_eq!(told(machine(json!({}))), 1);
    assert_eq!(told(machine(json!({"cluster.x-k8s.io/control-plane": ""}))), 0);
}

#[test]
fn health_checks_are_sane() {
    check(
        "MachineHealthCheck",
        json!({"spec": {"clusterName": "demo", "checks": {"nodeStartupTimeoutSeconds": 29}}}),
        None,
        "spec.selector: Required value: selector must not be empty
spec.checks.nodeStartupTimeoutSeconds: Invalid value: 29: must be at least 30s",
    );
    let selector = json!({"matchLabels": {"cluster.x-k8s.io/cluster-name": "other"}});
    let object = json!({"spec": {"clusterName": "demo", "selector": selector, "checks": {"nodeStartupTimeoutSeconds": 0}}});
    let told = validate("MachineHealthCheck", &object, None, Features::default());
    assert_eq!(told.len(), 1);
    assert!(
        told[0]
            .message
            .ends_with("cannot specify a cluster selector other than the one specified by ClusterName")
    );
}

#[test]
fn drain_rules_are_sane() {
    check(
        "MachineDrainRule",
        json!({"spec": {"drain": {"behavior": "Skip", "order": 3}}}),
        None,
        "spec.drain.order: Invalid value: 3: order must not be set if drain behavior is \"Skip\" or \"WaitCompleted\"",
    );
    let bad = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
    let object =
        json!({"spec": {"drain": {"behavior": "Drain", "order": 3}, "pods": [{"namespaceSelector": bad}]}});
    let told = validate("MachineDrainRule", &object, None, Features::default());
    assert_eq!(told[0].field, "spec.pods[0].namespaceSelector");
    assert!(told[0].message.ends_with("\"Near\" is not a valid label selector operator"));
}

#[test]
fn what_a_resource_set_is_for_does_not_change() {
    let with = |labels: Value, strategy: &str| json!({"spec": {"clusterSelector": {"matchLabels": labels}, "strategy": strategy}});
    let old = with(json!({"a": "b"}), "ApplyOnce");
    let told = validate("ClusterResourceSet", &with(json!({}), "Reconcile"), Some(&old), Features::default());
    let fields: Vec<_> = told.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["spec.clusterSelector", "spec.strategy", "spec.clusterSelector"]);
    check("ClusterResourceSet", old.clone(), Some(&old), "");
}

#[test]
fn a_wish_to_keep_failed_machines_must_be_one_that_can_be_read() {
    let mut object = defaulted("MachineDeployment", deployment());
    object["metadata"]["annotations"] = json!({"remuda.io/preserve-failed": r#"{"max": 1, "for": "24h"}"#});
    check("MachineDeployment", object.clone(), None, "");
    object["metadata"]["annotations"] = json!({"remuda.io/preserve-failed": r#"{"max": 1}"#});
    let told = "metadata.annotations[remuda.io/preserve-failed]: Invalid value: \"{\\\"max\\\": 1}\": \"for\" must be \
                a duration such as \"24h\", longer than 0 and at most \"8760h\"";
    check("MachineDeployment", object.clone(), None, told);
    check("MachineDeployment", object.clone(), Some(&object), "");
}

#[test]
fn steps_before_a_replacement_must_be_some_that_there_are() {
    let mut object = defaulted("MachineDeployment", deployment());
    object["metadata"]["annotations"] =
        json!({"remuda.io/remediation-steps": "restart-service=5m,reboot=10m"});
    check("MachineDeployment", object.clone(), None, "");
    object["metadata"]["annotations"] = json!({"remuda.io/remediation-steps": "pray=5m"});
    let told = "metadata.annotations[remuda.io/remediation-steps]: Invalid value: \"pray=5m\": has a step \"pray\": it \
                must be restart-service=TIME or reboot=TIME";
    check("MachineDeployment", object.clone(), None, told);
    check("MachineDeployment", object.clone(), Some(&object), "");
}

fn address(address: &str, prefix: i64, gateway: Option<&str>) -> Value {
    json!({"spec": {"address": address, "prefix": prefix, "gateway": gateway}})
}

#[test]
fn an_address_is_one_and_stays_it() {
    check("IPAddress", address("10.0.0.1", 24, Some("10.0.0.254")), None, "");
    check("IPAddress", address("fd00::1", 64, None), None, "");
    check(
        "IPAddress",
        address("10.0.0", 24, Some("router")),
        None,
        "spec.address: Invalid value: \"10.0.0\": not a valid IP address\n\
         spec.gateway: Invalid value: \"router\": not a valid IP address",
    );
    let large = "spec.prefix: Invalid value: 64: prefix is too large for an IPv4 address";
    check("IPAddress", address("10.0.0.1", 64, None), None, large);
    let old = address("10.0.0.1", 24, None);
    check("IPAddress", old.clone(), Some(&old), "");
    check(
        "IPAddress",
        address("10.0.0.2", 24, None),
        Some(&old),
        "spec: Forbidden: IPAddress spec is immutable",
    );
    let claim = |pool: &str| json!({"spec": {"poolRef": {"name": pool}}});
    let refused = "spec: Forbidden: IPAddressClaim spec is immutable";
    check("IPAddressClaim", claim("b"), Some(&claim("a")), refused);
}

#[test]
fn a_pool_that_was_accepted_once_can_be_labelled() {
    let pool = |addresses: Value| json!({"metadata": {}, "spec": {"addresses": addresses, "prefix": 24}});
    let (good, bad) = (pool(json!(["10.0.0.1-10.0.0.9"])), pool(json!(["10.0.0.9-10.0.0.1"])));
    for kind in ["InClusterIPPool", "GlobalInClusterIPPool"] {
        check(kind, good.clone(), None, "");
        check(kind, bad.clone(), Some(&bad), "");
        let refused = "spec.addresses[0]: Invalid value: \"10.0.0.9-10.0.0.1\": provided address is not a valid IP, \
                       range, nor CIDR";
        check(kind, bad.clone(), Some(&good), refused);
        check(kind, json!({"spec": 7}), None, "spec.addresses: Required value: addresses is required");
    }
}
