use std::collections::BTreeSet;

use proptest::prelude::*;
use remuda_api::crd;
use serde_json::{Value, json};

use super::{
    coverage::{is_told, looks_like_a_name, properties, untold},
    *,
};

/// Group, kind and the paths of all fields of every kind we ship, in every version.
fn shipped() -> Vec<(String, String, BTreeSet<String>)> {
    crd::all()
        .chain(crd::rancher())
        .map(|crd| {
            let mut paths = BTreeSet::new();
            for version in crd["spec"]["versions"].as_array().unwrap() {
                properties(&version["schema"]["openAPIV3Schema"], "", &mut paths);
            }
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["kind"]), paths)
        })
        .collect()
}

#[test]
fn every_field_that_looks_like_a_name_is_in_the_table_or_is_none_for_a_reason() {
    let definitions = crd::all().chain(crd::rancher());
    let untold: Vec<String> = definitions.flat_map(|definition| untold(&definition)).collect();
    assert!(
        untold.is_empty(),
        "say in references/table.rs what these name, or why they name nothing:\n{}",
        untold.join("\n")
    );
}

#[test]
fn a_field_that_is_new_is_noticed() {
    for path in ["spec.other.tlsSecretName", "spec.otherRef", "spec.rkeConfig.otherCredentialName"] {
        assert!(looks_like_a_name(path) && !is_told(group::PROVISIONING, "Cluster", path), "{path}");
    }
}

#[test]
fn the_table_has_no_fields_that_do_not_exist() {
    let shipped = shipped();
    let paths = |group: &str, kind: &str| {
        shipped.iter().find(|known| known.0 == group && known.1 == kind).map(|known| &known.2)
    };
    for field in
        TABLE.iter().filter(|field| field.kind != "*" && !field.path.to_lowercase().contains("annotations["))
    {
        let known = paths(field.group, field.kind).expect(field.kind);
        let path = field.path.trim_end_matches("[*]").trim_end_matches(".*");
        assert!(known.contains(path), "{} {}", field.kind, field.path);
    }
    for (group, kind, path, why) in NO_REFERENCES {
        assert!(!why.is_empty());
        if *kind == "*" {
            continue;
        }
        let known = paths(group, kind).unwrap_or_else(|| panic!("{kind}.{group}"));
        let path = path.trim_end_matches(".**").trim_end_matches("[*]");
        assert!(path == "*" || known.contains(path), "{kind} {path}");
    }
}

fn place() -> Place<'static> {
    Place { group: group::PROVISIONING, kind: "Cluster", namespace: "fleet-default", name: "demo" }
}

/// What is introduced, one line each: field, verbs, kind, namespace and name.
fn lines(place: Place<'_>, old: Option<&Value>, new: &Value) -> Vec<String> {
    let line = |reference: Reference| {
        let Target { kind, namespace, name, .. } = reference.target;
        format!("{} {} {kind} {namespace}/{name}", reference.field, reference.used.verbs().join(","))
    };
    let mut lines: Vec<String> = introduced(place, old, new).unwrap().into_iter().map(line).collect();
    lines.sort();
    lines
}

fn config(value: Value) -> Value {
    json!({"spec": {"rkeConfig": value}})
}

#[track_caller]
fn check(spec: Value, expected: &[&str]) {
    let object = json!({"spec": spec});
    assert_eq!(lines(place(), None, &object), expected);
    assert!(lines(place(), Some(&object), &object).is_empty(), "what was there is not judged again");
}

#[test]
fn every_way_to_name_something_is_found() {
    check(
        json!({"cloudCredentialSecretName": "cattle-global-data:cc", "rkeConfig": {
            "machinePools": [
                {"name": "a", "machineConfigRef": {"kind": "LocalConfig", "name": "nc"}},
                {"name": "b", "cloudCredentialSecretName": "own",
                 "machineConfigRef": {"apiVersion": "infra.example.com/v1", "kind": "XMachineTemplate", "name": "t"}},
            ],
            "infrastructureRef": {"apiVersion": "infra.example.com/v1", "kind": "XCluster", "name": "x",
                "namespace": "elsewhere"},
        }}),
        &[
            "spec.cloudCredentialSecretName get Secret cattle-global-data/cc",
            "spec.cloudCredentialSecretName get Secret cattle-global-data/cc",
            "spec.rkeConfig.infrastructureRef get,update,delete XCluster fleet-default/x",
            "spec.rkeConfig.machinePools[0].machineConfigRef get LocalConfig fleet-default/nc",
            "spec.rkeConfig.machinePools[1].cloudCredentialSecretName get Secret fleet-default/own",
            "spec.rkeConfig.machinePools[1].machineConfigRef get,update,delete XMachineTemplate fleet-default/t",
        ],
    );
    check(
        json!({"rkeConfig": {
            "etcd": {"s3": {"cloudCredentialName": "cattle-global-data:s3"}},
            "etcdSnapshotRestore": {"name": "snap"},
            "registries": {"configs": {"r.corp": {"authConfigSecretName": "auth", "tlsSecretName": "tls"}}},
            "machineSelectorFiles": [{"fileSources": [
                {"secret": {"name": "s", "items": [{"key": "k", "path": "/p"}]}}, {"configMap": {"name": "m"}}]}],
        }}),
        &[
            "spec.rkeConfig.etcd.s3.cloudCredentialName get Secret cattle-global-data/s3",
            "spec.rkeConfig.etcdSnapshotRestore.name get ETCDSnapshot fleet-default/snap",
            "spec.rkeConfig.machineSelectorFiles[0].fileSources[0].secret.name get Secret fleet-default/s",
            "spec.rkeConfig.machineSelectorFiles[0].fileSources[0].secret.name get Secret fleet-default/s",
            "spec.rkeConfig.machineSelectorFiles[0].fileSources[1].configMap.name get ConfigMap fleet-default/m",
            "spec.rkeConfig.registries.configs[r.corp].authConfigSecretName get Secret fleet-default/auth",
            "spec.rkeConfig.registries.configs[r.corp].tlsSecretName get Secret fleet-default/tls",
        ],
    );
    check(
        json!({"rkeConfig": {
            "machineGlobalConfig": {"cloud-provider-config": "secret://vault:cloud", "cni": "calico",
                "kube-apiserver-arg": ["x=configmap://vault:map,y", "z"]},
            "machineSelectorConfig": [{"config": {"deep": {"er": "secret://a:b"}}}],
        }}),
        &[
            "spec.rkeConfig.machineGlobalConfig.cloud-provider-config get Secret vault/cloud",
            "spec.rkeConfig.machineGlobalConfig.kube-apiserver-arg get ConfigMap vault/map",
            "spec.rkeConfig.machineSelectorConfig[0].config.deep.er get Secret a/b",
        ],
    );
}

#[test]
fn annotations_name_too() {
    let annotations = json!({
        "provisioning.cattle.io/management-cluster-name": "c-m-x",
        "provisioning.cattle.io/fleet-workspace-name": "kube-system",
    });
    let object = json!({"metadata": {"annotations": annotations}});
    assert_eq!(
        lines(place(), None, &object),
        [
            "metadata.annotations[provisioning.cattle.io/fleet-workspace-name] create Cluster kube-system/",
            "metadata.annotations[provisioning.cattle.io/management-cluster-name] update Cluster /c-m-x",
        ]
    );
}

#[test]
fn only_what_changed_is_introduced() {
    let pools = |pools: Value| config(json!({"machinePools": pools}));
    let pool = |name: &str, config: &str, quantity: i32| {
        json!({"name": name, "quantity": quantity, "cloudCredentialSecretName": "cc",
            "machineConfigRef": {"kind": "LocalConfig", "name": config}})
    };
    let old = pools(json!([pool("a", "one", 1), pool("b", "two", 1)]));
    // Neither a number nor an order names anything.
    let new = pools(json!([pool("b", "two", 5), pool("a", "one", 1)]));
    assert!(lines(place(), Some(&old), &new).is_empty());
    // Another configuration may send the credential elsewhere.
    let new = pools(json!([pool("a", "three", 1), pool("b", "two", 1)]));
    assert_eq!(
        lines(place(), Some(&old), &new),
        [
            "spec.rkeConfig.machinePools[0].cloudCredentialSecretName get Secret fleet-default/cc",
            "spec.rkeConfig.machinePools[0].machineConfigRef get LocalConfig fleet-default/three",
        ]
    );
}

#[test]
fn the_same_secret_for_another_purpose_is_introduced() {
    let registries =
        |host: &str| config(json!({"registries": {"configs": {host: {"authConfigSecretName": "auth"}}}}));
    assert_eq!(
        lines(place(), Some(&registries("r.corp")), &registries("evil.example.com")),
        [
            "spec.rkeConfig.registries.configs[evil.example.com].authConfigSecretName get Secret fleet-default/auth"
        ]
    );
    let files = |key: &str| {
        let secret = json!({"name": "s", "items": [{"key": key, "path": "/p"}]});
        config(json!({"machineSelectorFiles": [{"fileSources": [{"secret": secret}]}]}))
    };
    assert_eq!(lines(place(), Some(&files("tls.crt")), &files("tls.key")).len(), 1);
    assert_eq!(lines(place(), Some(&registries("r.corp")), &files("x")).len(), 2);
}

#[test]
fn both_versions_of_cluster_api_name_the_same() {
    let machine = Place { group: "cluster.x-k8s.io", kind: "Machine", namespace: "ns", name: "m" };
    let old = json!({"spec": {"clusterName": "c", "bootstrap": {"dataSecretName": "s"}, "infrastructureRef":
        {"apiVersion": "infra.example.com/v1", "kind": "XMachine", "name": "x", "namespace": "ns"}}});
    let new = json!({"spec": {"clusterName": "c", "bootstrap": {"dataSecretName": "s"}, "infrastructureRef":
        {"apiGroup": "infra.example.com", "kind": "XMachine", "name": "x"}}});
    let expected = [
        "spec.bootstrap.dataSecretName get Secret ns/s",
        "spec.clusterName update Cluster ns/c",
        "spec.infrastructureRef get,update,delete XMachine ns/x",
    ];
    assert_eq!(lines(machine, None, &old), expected);
    assert_eq!(lines(machine, None, &new), expected);
}

#[test]
fn the_same_resources_for_other_clusters_are_introduced() {
    let set =
        Place { group: "addons.cluster.x-k8s.io", kind: "ClusterResourceSet", namespace: "ns", name: "s" };
    let with = |label: &str| json!({"spec": {"clusterSelector": {"matchLabels": {"a": label}}, "resources": [{"kind": "Secret", "name": "x"}]}});
    assert!(lines(set, Some(&with("a")), &with("a")).is_empty());
    assert_eq!(lines(set, Some(&with("a")), &with("b")), ["spec.resources[0] get,update,delete Secret ns/x"]);
}

#[test]
fn a_pool_of_addresses_for_all_namespaces_is_named() {
    let group = "ipam.cluster.x-k8s.io";
    let of = |kind: &'static str| Place { group, kind, namespace: "ns", name: "m" };
    let with = |group: &str, kind: &str| {
        json!({"spec": {"clusterName": "c", "claimRef": {"name": "m"}, "poolRef":
        {"apiGroup": group, "kind": kind, "name": "p"}}})
    };
    let global = with(group, "GlobalInClusterIPPool");
    assert_eq!(lines(of("IPAddressClaim"), None, &global), ["spec.poolRef get GlobalInClusterIPPool /p"]);
    assert_eq!(lines(of("IPAddress"), None, &global), ["spec.poolRef update GlobalInClusterIPPool /p"]);
    for here in [with(group, "InClusterIPPool"), with("ipam.example.com", "GlobalInClusterIPPool")] {
        assert!(lines(of("IPAddressClaim"), None, &here).is_empty(), "{here}");
    }
}

#[test]
fn a_pool_of_addresses_for_machines_is_named() {
    let with = |text: &str| {
        let annotations = json!({"remuda.io/address-pool": text});
        config(json!({"machinePools": [{"name": "a", "machineDeploymentAnnotations": annotations}]}))
    };
    let field = "spec.rkeConfig.machinePools[0].machineDeploymentAnnotations[remuda.io/address-pool]";
    for (text, target) in [
        ("lan", "InClusterIPPool fleet-default/lan"),
        ("InClusterIPPool/lan", "InClusterIPPool fleet-default/lan"),
        ("GlobalInClusterIPPool/wide", "GlobalInClusterIPPool /wide"),
    ] {
        assert_eq!(lines(place(), None, &with(text)), [format!("{field} get {target}")]);
    }
    for text in ["", "/", "Other/lan", "InClusterIPPool/", "../lan"] {
        assert!(lines(place(), None, &with(text)).is_empty(), "{text}");
    }
    let machine = Place { group: group::MACHINE, kind: "XMachine", namespace: "ns", name: "m" };
    let annotated = json!({"metadata": {"annotations": {"remuda.io/address-pool": "lan"}}});
    assert_eq!(
        lines(machine, None, &annotated),
        ["metadata.annotations[remuda.io/address-pool] get InClusterIPPool ns/lan"]
    );
}

#[test]
fn a_write_with_too_many_names_is_refused_as_a_whole() {
    let pools: Vec<Value> = (0..MOST)
        .map(|n| json!({"name": n.to_string(), "machineConfigRef": {"kind": "XConfig", "name": n.to_string()}}))
        .collect();
    assert!(introduced(place(), None, &config(json!({"machinePools": pools}))).is_ok());
    let mut pools = pools;
    pools.push(json!({"name": "more", "machineConfigRef": {"kind": "XConfig", "name": "more"}}));
    assert_eq!(introduced(place(), None, &config(json!({"machinePools": pools}))), Err(TooMany));
}

#[test]
fn a_configuration_is_used_with_the_credentials_of_its_pools() {
    let clusters = [
        json!({"spec": {"cloudCredentialSecretName": "cattle-global-data:cc", "rkeConfig": {"machinePools": [
            {"machineConfigRef": {"kind": "XConfig", "name": "mine"}},
            {"machineConfigRef": {"kind": "XConfig", "name": "other"}, "cloudCredentialSecretName": "unrelated"},
        ]}}}),
        json!({"spec": {"rkeConfig": {"machinePools": [
            {"machineConfigRef": {"kind": "XConfig", "name": "mine"}, "cloudCredentialSecretName": "own"},
        ]}}}),
    ];
    let config = Place { group: group::MACHINE_CONFIG, kind: "XConfig", namespace: "ns", name: "mine" };
    let found: Vec<String> = credentials_used_with(config, &clusters)
        .into_iter()
        .map(|target| format!("{}/{}", target.namespace, target.name))
        .collect();
    assert_eq!(found, ["cattle-global-data/cc", "ns/own"]);
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "(secret://)?[a-z:,\" ]{0,8}".prop_map(Value::from),
        "\\PC{0,4}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "metadata",
        "annotations",
        "name",
        "kind",
        "spec",
        "rkeConfig",
        "machinePools",
        "machineConfigRef",
        "registries",
        "configs",
        "tlsSecretName",
        "machineSelectorFiles",
        "fileSources",
        "secret",
        "items",
        "key",
        "machineGlobalConfig",
        "etcd",
        "s3",
        "cloudCredentialName",
        "cloudCredentialSecretName",
        "infrastructureRef",
        "apiVersion",
        "status",
        "clusterName",
    ]);
    leaf.prop_recursive(6, 60, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..5).prop_map(|fields| {
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_shape_is_too_odd_and_nothing_is_introduced_by_no_change(old in anything(), new in anything()) {
        let _ = introduced(place(), Some(&old), &new);
        prop_assert_eq!(introduced(place(), Some(&new), &new), Ok(Vec::new()));
    }
}
