mod versions;

use super::*;
use proptest::prelude::*;
use remuda_distro::Catalog;
use serde_json::json;

const CREATOR: &str = "field.cattle.io/creatorId";

fn cluster(spec: Value) -> Value {
    json!({"metadata": {"name": "demo", "annotations": {CREATOR: "jane"}}, "spec": spec})
}

fn write<'a>(name: &'a str, old: Option<&'a Value>) -> Write<'a> {
    Write { namespace: "fleet-default", name, user: "jane", is_server: false, old }
}

/// What is wrong, one line each, after the code.
fn refusal(result: Result<(), Refusal>) -> String {
    let (code, errors) = match result {
        Ok(()) => return String::new(),
        Err(Refusal::Invalid(errors)) => (422, errors),
        Err(Refusal::BadRequest(errors)) => (400, errors),
    };
    let lines = errors.iter().map(|error| format!("{}: {}", error.field, error.message));
    format!("{code} {}", lines.collect::<Vec<_>>().join("\n"))
}

fn created(spec: Value) -> String {
    refusal(judge(&write("demo", None), &cluster(spec), &Known::default()))
}

fn updated(old: Value, new: Value, known: &Known) -> String {
    let old = cluster(old);
    refusal(judge(&write("demo", Some(&old)), &cluster(new), known))
}

#[test]
fn names_are_judged_at_creation() {
    let long = "a".repeat(64);
    for (namespace, name, is_server, accepted) in [
        ("fleet-default", "demo", false, true),
        ("fleet-default", "1-a", false, true),
        ("fleet-default", "a", false, false),
        ("fleet-default", "-a", false, false),
        ("fleet-default", "a.b", false, false),
        ("fleet-default", "Demo", false, true),
        ("fleet-default", "dEmo", false, false),
        ("fleet-default", long.as_str(), false, false),
        ("fleet-default", &long[1..], false, true),
        ("fleet-default", "local", false, false),
        ("fleet-default", "local", true, false),
        ("fleet-local", "local", false, false),
        ("fleet-local", "local", true, true),
        ("fleet-default", "c-abc12", false, false),
        ("fleet-default", "c-abc12", true, true),
        ("fleet-default", "c-m-abcdefgh", false, false),
        ("fleet-default", "c-m-abcdefgh", true, true),
    ] {
        let mut object = cluster(json!({}));
        object["metadata"]["name"] = name.into();
        let write = Write { namespace, is_server, ..write(name, None) };
        let found = judge(&write, &object, &Known::default());
        // The server refuses names that are none before it comes to this.
        assert_eq!(found.is_ok(), accepted, "{namespace}/{name} {is_server}");
    }
    assert!(created(json!({})).is_empty());
}

#[test]
fn who_creates_a_cluster_is_its_creator() {
    for annotations in [json!(null), json!({}), json!({CREATOR: "mallory"})] {
        let mut object = json!({"metadata": {"annotations": annotations}});
        fill_in(&write("demo", None), &mut object, &Catalog::shipped());
        assert_eq!(object["metadata"]["annotations"], json!({CREATOR: "jane"}));
    }
    let mut object = json!({"metadata": {"annotations": {"field.cattle.io/no-creator-rbac": "true"}}});
    let before = object.clone();
    fill_in(&write("demo", None), &mut object, &Catalog::shipped());
    assert_eq!(object, before);
}

#[test]
fn a_creator_can_be_forgotten_and_not_be_changed() {
    let with = |annotations: Value| json!({"metadata": {"name": "demo", "annotations": annotations}});
    let (jane, john) = (json!({CREATOR: "jane"}), json!({CREATOR: "john"}));
    let judge =
        |old: Option<&Value>, new: &Value| judge(&write("demo", old), &with(new.clone()), &Known::default());
    assert!(judge(None, &john).is_err());
    assert!(judge(None, &json!({CREATOR: "jane", "field.cattle.io/no-creator-rbac": "true"})).is_err());
    assert!(judge(None, &json!({"field.cattle.io/no-creator-rbac": "true"})).is_ok());
    assert!(judge(Some(&with(jane.clone())), &john).is_err());
    assert!(judge(Some(&with(json!({}))), &jane).is_err());
    assert!(judge(Some(&with(jane.clone())), &json!({})).is_ok());
    assert!(judge(Some(&with(jane.clone())), &jane).is_ok());
}

#[test]
fn a_spec_that_is_refused_at_creation() {
    let directories = |value: Value| json!({"rkeConfig": {"dataDirectories": value}});
    let field = "spec.rkeConfig.dataDirectories";
    for (spec, expected) in [
        (
            json!({"rkeConfig": {"machinePools": [{"name": "a"}, {"name": "a".repeat(64)}]}}),
            "422 spec.rkeConfig.machinePools[1].name: Too long: may not be more than 63 bytes".to_owned(),
        ),
        (
            json!({"rkeConfig": {}, "localClusterAuthEndpoint": {"enabled": true, "caCerts": "x", "fqdn": null}}),
            "422 spec.localClusterAuthEndpoint.fqdn: Required value: CACerts defined but FQDN is not defined".to_owned(),
        ),
        (
            json!({"agentEnvVars": [{"name": "A", "value": "b c"}, {"name": "no_proxy", "value": "a, b"}]}),
            "400 spec.agentEnvVars[1].value: Forbidden: Malformed NO_PROXY".to_owned(),
        ),
        (
            json!({"rkeConfig": {}, "agentEnvVars": [{"name": "CATTLE_AGENT_VAR_DIR", "value": ""}]}),
            "400 spec.agentEnvVars[0].name: Forbidden: \"CATTLE_AGENT_VAR_DIR\" cannot be set".to_owned(),
        ),
        (
            directories(json!({"systemAgent": "a"})),
            format!("400 {field}.systemAgent: Forbidden: System Agent data directory must be an absolute path"),
        ),
        (
            directories(json!({"provisioning": "/a$(b)"})),
            format!("400 {field}.provisioning: Forbidden: Provisioning data directory cannot contain shell expressions"),
        ),
        (
            directories(json!({"k8sDistro": "/a/../b"})),
            format!("400 {field}.k8sDistro: Forbidden: Distro data directory is not clean"),
        ),
        (
            directories(json!({"k8sDistro": "/a/"})),
            format!("400 {field}.k8sDistro: Forbidden: Distro data directory is not clean"),
        ),
        (
            directories(json!({"k8sDistro": "/a", "provisioning": "/a"})),
            format!("400 {field}.k8sDistro: Forbidden: Distro data directory cannot be equal to Provisioning data directory"),
        ),
        (
            directories(json!({"k8sDistro": "/a", "systemAgent": "/a/b/c"})),
            format!(
                "400 {field}.k8sDistro: Forbidden: System Agent data directory cannot be nested inside Distro data directory"
            ),
        ),
        (
            directories(json!({"provisioning": "/a/b", "systemAgent": "/a"})),
            format!(
                "400 {field}.provisioning: Forbidden: Provisioning data directory cannot be nested inside System Agent data \
                 directory"
            ),
        ),
        (
            json!({"clusterAgentDeploymentCustomization": {"schedulingCustomization": {
                "podDisruptionBudget": {"minAvailable": "1", "maxUnavailable": "1"},
            }}}),
            "400 spec.clusterAgentDeploymentCustomization.schedulingCustomization.podDisruptionBudget: Forbidden: both"
                .to_owned(),
        ),
        (
            json!({"fleetAgentDeploymentCustomization": {"schedulingCustomization": {"priorityClass": {"preemptionPolicy": "x"}}}}),
            "400 spec.fleetAgentDeploymentCustomization.schedulingCustomization.priorityClass.preemptionPolicy: Forbidden"
                .to_owned(),
        ),
    ] {
        let found = created(spec.clone());
        assert!(found.starts_with(&expected), "{spec}: {found}");
    }
}

#[test]
fn a_spec_that_is_accepted_at_creation() {
    for spec in [
        json!(null),
        json!({"rkeConfig": {"dataDirectories": {"k8sDistro": "/a", "provisioning": "/ab", "systemAgent": "/b/a"}}}),
        json!({"rkeConfig": null, "localClusterAuthEndpoint": {"enabled": true, "caCerts": "x"}}),
        json!({"agentEnvVars": [{"name": "CATTLE_AGENT_VAR_DIR", "value": "/x"}]}),
        json!({"agentEnvVars": [{"name": "NO_PROXY", "value": "a,b"}]}),
        json!({"clusterAgentDeploymentCustomization": {"schedulingCustomization": {
            "podDisruptionBudget": {"minAvailable": "1", "maxUnavailable": "0"},
            "priorityClass": {"preemptionPolicy": "Never"},
        }}}),
    ] {
        assert_eq!(created(spec.clone()), "", "{spec}");
    }
}

#[test]
fn a_cluster_stays_what_it_is() {
    let none = Known::default();
    assert!(
        updated(json!({}), json!({"rkeConfig": {}}), &none)
            .starts_with("400 spec.rkeConfig: Forbidden: RKEConfig")
    );
    assert!(
        updated(json!({"rkeConfig": {}}), json!({"rkeConfig": null}), &none)
            .starts_with("400 spec.rkeConfig")
    );
    assert_eq!(updated(json!({"rkeConfig": null}), json!({"kubernetesVersion": "v1"}), &none), "");
    let old = json!({"metadata": {"name": "local"}, "spec": {}});
    let new = json!({"metadata": {"name": "local"}, "spec": {"rkeConfig": {}}});
    assert_eq!(judge(&write("local", Some(&old)), &new, &none), Ok(()));
}

#[test]
fn directories_stay_where_they_are() {
    let of = |directories: Value, variable: Option<&str>| {
        let variables: Vec<_> =
            variable.iter().map(|value| json!({"name": "CATTLE_AGENT_VAR_DIR", "value": value})).collect();
        json!({"rkeConfig": {"dataDirectories": directories}, "agentEnvVars": variables})
    };
    let agent = |path: &str| json!({"systemAgent": path});
    for (old, new, accepted) in [
        (of(json!({"k8sDistro": "/a"}), None), of(json!({"k8sDistro": "/b"}), None), false),
        (of(json!({}), None), of(json!({"provisioning": "/b"}), None), false),
        (of(json!({}), None), of(agent("/b"), None), false),
        (of(json!({}), None), of(json!({}), Some("/b")), false),
        (of(json!({}), None), of(json!({}), Some("")), true),
        // Moves from the variable into the field.
        (of(json!({}), Some("/a")), of(agent("/a"), None), true),
        (of(json!({}), Some("/a")), of(agent("/b"), None), false),
        (of(json!({}), Some("/a")), of(agent("/a"), Some("/a")), false),
        (of(json!({}), Some("/a")), of(json!({}), Some("/b")), false),
        (of(json!({}), Some("/a")), of(json!({}), None), false),
        (of(json!({"x": 1}), Some("/a")), of(json!({}), Some("/a")), true),
    ] {
        let found = updated(old.clone(), new.clone(), &Known::default());
        assert_eq!(found.is_empty(), accepted, "{old} {new}: {found}");
    }
}

#[test]
fn spaces_that_were_there_may_stay() {
    let with = |value: &str| json!({"agentEnvVars": [{"name": "NO_PROXY", "value": value}]});
    assert_eq!(updated(with("a b"), with("a b c"), &Known::default()), "");
    assert!(updated(with("a"), with("a b"), &Known::default()).starts_with("400"));
}

#[test]
fn what_is_wrong_with_an_old_spec_does_not_hinder_other_changes() {
    let old =
        cluster(json!({"rkeConfig": {}, "localClusterAuthEndpoint": {"enabled": true, "caCerts": "x"}}));
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!([]);
    assert_eq!(judge(&write("demo", Some(&old)), &new, &Known::default()), Ok(()));
}

#[test]
fn a_restore_needs_a_snapshot_that_can_do_it() {
    let restore =
        |mode: &str| json!({"rkeConfig": {"etcdSnapshotRestore": {"name": "s", "restoreRKEConfig": mode}}});
    let readable = |has_version, has_config| Some(Snapshot::Readable { has_version, has_config });
    for (mode, snapshot, expected) in [
        ("none", Some(Snapshot::Missing), ""),
        ("", Some(Snapshot::Missing), ""),
        ("some", None, "unsupported restore mode some"),
        ("all", None, ""),
        (
            "all",
            Some(Snapshot::Missing),
            "etcd restore references missing snapshot s in namespace fleet-default",
        ),
        (
            "all",
            Some(Snapshot::Unreadable("x".into())),
            "invalid ETCD snapshot metadata for fleet-default/s: x",
        ),
        ("all", readable(true, false), "snapshot metadata must include RKEConfig"),
        ("kubernetesVersion", readable(false, true), "snapshot metadata missing KubernetesVersion"),
        ("kubernetesVersion", readable(true, false), ""),
        ("all", readable(true, true), ""),
    ] {
        let known = Known { snapshot, ..Known::default() };
        let found = updated(json!({"rkeConfig": {}}), restore(mode), &known);
        assert_eq!(found.is_empty(), expected.is_empty(), "{mode}: {found}");
        assert!(found.contains(expected), "{mode}: {found}");
        let same = updated(restore(mode), restore(mode), &known);
        assert_eq!(same, "");
    }
}

#[test]
fn pools_are_not_made_from_templates_of_ours() {
    let pools = |version: Value| {
        let reference = json!({"apiVersion": version, "kind": "LocalMachineTemplate", "name": "x"});
        let pool =
            json!({"name": "a", "etcdRole": true, "controlPlaneRole": true, "machineConfigRef": reference});
        json!({"rkeConfig": {"machinePools": [pool]}})
    };
    for version in
        [json!(null), json!(""), json!("rke-machine-config.cattle.io/v1"), json!("infra.example.com/v1")]
    {
        assert_eq!(created(pools(version.clone())), "", "{version}");
    }
    for version in ["rke-machine.cattle.io/v1", "rke-machine.cattle.io/v2", "rke-machine-config.cattle.io/v2"]
    {
        let refused = created(pools(version.into()));
        let field = "422 spec.rkeConfig.machinePools[0].machineConfigRef.apiVersion: ";
        assert!(refused.starts_with(field), "{refused}");
    }
    // One that is there already does not hinder other writes.
    let (mut old, mut new) =
        (pools("rke-machine.cattle.io/v1".into()), pools("rke-machine.cattle.io/v1".into()));
    old["rkeConfig"]["machinePools"][0]["quantity"] = 1.into();
    new["rkeConfig"]["machinePools"][0]["quantity"] = 2.into();
    assert_eq!(updated(old, new, &Known::default()), "");
}

#[test]
fn what_a_driver_could_do_stays_known() {
    let pools = |first: Value| json!({"rkeConfig": {"machinePools": [{"name": "a", "dynamicSchemaSpec": first}, {"name": "new"}]}});
    let old = cluster(pools(json!("{}")));
    for lost in [json!(null), json!("")] {
        let mut object = cluster(pools(lost.clone()));
        fill_in(&write("demo", Some(&old)), &mut object, &Catalog::shipped());
        assert_eq!(object, old);
        let mut object = cluster(pools(lost));
        object["metadata"]["annotations"]["provisioning.cattle.io/allow-dynamic-schema-drop"] = "true".into();
        let before = object.clone();
        fill_in(&write("demo", Some(&old)), &mut object, &Catalog::shipped());
        assert_eq!(object, before);
    }
    let mut object = cluster(pools(json!("{\"a\":1}")));
    let before = object.clone();
    fill_in(&write("demo", Some(&old)), &mut object, &Catalog::shipped());
    assert_eq!(object, before);
}

#[test]
fn the_cluster_a_server_runs_in_is_not_deleted() {
    assert_eq!(
        refusal(judge_delete("local")),
        "400 metadata.name: Forbidden: local cluster may not be deleted"
    );
    assert_eq!(judge_delete("demo"), Ok(()));
}

#[test]
fn who_sets_what_nothing_follows_is_warned_once() {
    let object = cluster(json!({"defaultClusterRoleForProjectMembers": "x"}));
    let warned = ["spec.defaultClusterRoleForProjectMembers is stored, but nothing follows it"];
    assert_eq!(warnings(None, &object), warned);
    assert_eq!(warnings(Some(&object), &object), Vec::<String>::new());
}

#[test]
fn a_field_that_would_have_no_effect_is_refused_when_it_is_written_newly() {
    for (field, value, told) in [
        ("clusterAPIConfig", json!({"clusterName": "x"}), "remuda capi"),
        (
            "defaultPodSecurityAdmissionConfigurationTemplateName",
            json!("rancher-restricted"),
            "admission-control-config-file",
        ),
        ("enableNetworkPolicy", json!(true), "NetworkPolicies"),
        ("webhookDeploymentCustomization", json!({"replicaCount": 2}), "part of this server"),
    ] {
        let with = |value: &Value| json!({field: value, "kubernetesVersion": "v1.35.1+k3s1"});
        let found = created(with(&value));
        assert!(
            found.starts_with(&format!("400 spec.{field}: Forbidden: ")) && found.contains(told),
            "{found}"
        );
        let known = Known::default();
        assert_eq!(updated(json!({}), with(&value), &known), found);
        // What is there already stays, and can be taken away.
        let mut more = with(&value);
        more["agentEnvVars"] = json!([{"name": "A", "value": "b"}]);
        assert_eq!(updated(with(&value), more, &known), "");
        assert_eq!(updated(with(&value), with(&json!(null)), &known), "");
        // The server brings a former spec back.
        let (old, new) = (cluster(json!({})), cluster(with(&value)));
        let server = Write { is_server: true, ..write("demo", Some(&old)) };
        assert_eq!(judge(&server, &new, &known), Ok(()));
    }
    // What forms send that were not filled in, and the template that asks for nothing.
    for spec in [
        json!({"clusterAPIConfig": {}, "enableNetworkPolicy": false}),
        json!({"defaultPodSecurityAdmissionConfigurationTemplateName": ""}),
        json!({"defaultPodSecurityAdmissionConfigurationTemplateName": "rancher-privileged"}),
        json!({"webhookDeploymentCustomization": {"appendTolerations": [], "overrideAffinity": {}}}),
    ] {
        assert_eq!(created(spec.clone()), "", "{spec}");
    }
}

#[test]
fn drains_get_a_limit_unless_they_had_none_before() {
    let pools = |first: Value| json!({"rkeConfig": {"machinePools": [first]}});
    let pool = |drains: bool, limit: Value| json!({"name": "a", "drainBeforeDelete": drains, "drainBeforeDeleteTimeout": limit});
    let filled = |old: Option<Value>, new: Value| {
        let old = old.map(|old| cluster(pools(old)));
        let mut object = cluster(pools(new));
        fill_in(&write("demo", old.as_ref()), &mut object, &Catalog::shipped());
        object["spec"]["rkeConfig"]["machinePools"][0]["drainBeforeDeleteTimeout"].clone()
    };
    assert_eq!(filled(None, pool(true, json!(null))), "10m");
    assert_eq!(filled(None, pool(true, json!("0s"))), "0s");
    assert_eq!(filled(None, pool(false, json!(null))), json!(null));
    assert_eq!(filled(Some(pool(false, json!(null))), pool(true, json!(null))), "10m");
    // A manifest that is applied again does not have what was filled in.
    assert_eq!(filled(Some(pool(true, json!("10m"))), pool(true, json!(null))), "10m");
    assert_eq!(filled(Some(pool(true, json!(null))), pool(true, json!(null))), json!(null));
}

/// JSON of any shape where the rules look.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z/. $]{0,8}".prop_map(Value::from),
        "\\PC{0,4}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "metadata",
        "annotations",
        CREATOR,
        "name",
        "spec",
        "rkeConfig",
        "machinePools",
        "dynamicSchemaSpec",
        "dataDirectories",
        "systemAgent",
        "k8sDistro",
        "agentEnvVars",
        "value",
        "etcdSnapshotRestore",
        "restoreRKEConfig",
        "localClusterAuthEndpoint",
        "caCerts",
        "webhookDeploymentCustomization",
        "podDisruptionBudget",
        "clusterAPIConfig",
        "drainBeforeDelete",
    ]);
    leaf.prop_recursive(5, 40, 5, move |inner| {
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
    fn no_shape_of_an_object_is_too_odd(old in anything(), new in anything(), fresh in any::<bool>()) {
        let write = write("demo", (!fresh).then_some(&old));
        let mut filled = new;
        fill_in(&write, &mut filled, &Catalog::shipped());
        let _ = judge(&write, &filled, &Known::default());
        let _ = warnings(write.old, &filled);
        let mut again = filled.clone();
        fill_in(&write, &mut again, &Catalog::shipped());
        prop_assert_eq!(again, filled);
    }
}

#[test]
fn a_policy_for_edits_of_configurations_is_one_of_three() {
    const POLICY: &str = "remuda.io/config-update-policy";
    let pools = |policy: &str| {
        let annotations = json!({POLICY: policy});
        let pool = json!({
            "name": "a", "etcdRole": true, "controlPlaneRole": true, "machineDeploymentAnnotations": annotations,
        });
        json!({"rkeConfig": {"machinePools": [pool]}})
    };
    for policy in ["Never", "Ask", "Auto"] {
        assert_eq!(created(pools(policy)), "");
    }
    let refused = created(pools("auto"));
    let field = format!("spec.rkeConfig.machinePools[0].machineDeploymentAnnotations[{POLICY}]");
    assert!(
        refused.starts_with(&format!("422 {field}: ")) && refused.contains("Never, Ask, Auto"),
        "{refused}"
    );
    let mut object = cluster(json!({}));
    object["metadata"]["annotations"][POLICY] = "sometimes".into();
    let refused = refusal(judge(&write("demo", None), &object, &Known::default()));
    assert!(refused.starts_with(&format!("422 metadata.annotations[{POLICY}]: ")), "{refused}");
    // One that is there already does not hinder other writes.
    assert_eq!(refusal(judge(&write("demo", Some(&object.clone())), &object, &Known::default())), "");
}

#[test]
fn a_pool_that_keeps_failed_machines_says_how_many_and_how_long() {
    let pool = |text: &str| {
        json!({"rkeConfig": {"machinePools": [
            {"name": "a", "etcdRole": true, "controlPlaneRole": true, "workerRole": true,
             "machineDeploymentAnnotations": {"remuda.io/preserve-failed": text}},
        ]}})
    };
    assert_eq!(created(pool(r#"{"max": 1, "for": "24h"}"#)), "");
    let told = created(pool("1"));
    let field = "spec.rkeConfig.machinePools[0].machineDeploymentAnnotations[remuda.io/preserve-failed]";
    assert!(told.starts_with(&format!("422 {field}: ")) && told.contains("JSON object"), "{told}");
}
