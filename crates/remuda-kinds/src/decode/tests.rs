use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::table::type_of;

fn run(group: &str, kind: &str, mut value: Value) -> Result<(Value, Vec<String>), String> {
    let mut unknown = Vec::new();
    decode(type_of(group, "v1", kind).unwrap(), &mut value, &mut unknown)
        .map_err(|error| error.to_string())?;
    Ok((value, unknown))
}

#[track_caller]
fn becomes(group: &str, kind: &str, value: Value, expected: Value) {
    let (value, unknown) = run(group, kind, value).unwrap();
    assert_eq!(value, expected);
    assert_eq!(unknown, Vec::<String>::new());
}

#[test]
fn unknown_fields_go_and_are_reported_with_their_paths() {
    let (value, unknown) = run(
        "",
        "Service",
        json!({"kind": "Service", "metadata": {"name": "a", "foo": 1},
               "spec": {"ports": [{"port": 80}, {"port": 81, "x": {}}], "bogus": true}, "zzz": null}),
    )
    .unwrap();
    assert_eq!(
        value,
        json!({"kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}, {"port": 81}]}})
    );
    assert_eq!(unknown, ["metadata.foo", "spec.bogus", "spec.ports[1].x", "zzz"]);
}

#[test]
fn reports_of_unknown_fields_are_bounded() {
    let long = "k".repeat(100_000);
    let fields: serde_json::Map<String, Value> = (0..1000).map(|n| (format!("f{n}"), json!(1))).collect();
    let schema = json!({"properties": {long: fields}});
    let value = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
    let (_, unknown) = run("apiextensions.k8s.io", "CustomResourceDefinition", value).unwrap();
    assert_eq!(unknown.len(), 100);
    assert!(unknown.iter().all(|path| path.len() < 1000));
}

#[test]
fn nulls_and_empty_values_vanish_but_pointers_and_structs_stay() {
    becomes(
        "apps",
        "Deployment",
        json!({"metadata": {"creationTimestamp": null, "labels": {}, "name": ""},
               "spec": {"replicas": 0, "paused": false, "minReadySeconds": 0, "strategy": {}, "selector": {"matchLabels": {}},
                        "template": {"spec": {"containers": [], "volumes": [], "hostNetwork": false,
                                              "terminationGracePeriodSeconds": 0}}},
               "status": {}}),
        json!({"metadata": {},
               "spec": {"replicas": 0, "strategy": {}, "selector": {},
                        "template": {"spec": {"containers": [], "terminationGracePeriodSeconds": 0}}},
               "status": {}}),
    );
}

#[test]
fn metadata_is_always_there() {
    becomes("", "ConfigMap", json!({}), json!({"metadata": {}}));
    becomes("", "DeleteOptions", json!({"orphanDependents": false}), json!({"orphanDependents": false}));
}

#[test]
fn special_scalars_are_normalised() {
    becomes(
        "coordination.k8s.io",
        "Lease",
        json!({"metadata": {"deletionTimestamp": "2026-11-15T18:07:22.5+01:00"},
               "spec": {"renewTime": "2026-11-15T18:07:22.000000+01:00"}}),
        json!({"metadata": {"deletionTimestamp": "2026-11-15T17:07:22Z"},
               "spec": {"renewTime": "2026-11-15T17:07:22.000000Z"}}),
    );
    becomes(
        "",
        "Node",
        json!({"status": {"capacity": {"cpu": 2, "memory": "1024Mi", "x": "1000m", "y": 0.5}}}),
        json!({"metadata": {}, "status": {"capacity": {"cpu": "2", "memory": "1Gi", "x": "1", "y": "500m"}}}),
    );
    becomes(
        "",
        "Secret",
        json!({"data": {"a": "YQ\n==", "b": null}}),
        json!({"metadata": {}, "data": {"a": "YQ==", "b": ""}}),
    );
}

#[test]
fn wrong_types_are_told_like_go_does() {
    for (group, kind, value, expected) in [
        (
            "",
            "ConfigMap",
            json!({"data": "x"}),
            "json: cannot unmarshal string into Go struct field ConfigMap.data of type map[string]string",
        ),
        (
            "",
            "ConfigMap",
            json!({"metadata": {"labels": {"a": 1}}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "apps",
            "Deployment",
            json!({"spec": {"replicas": 1.5}}),
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps",
            "Deployment",
            json!({"spec": {"replicas": 3_000_000_000_i64}}),
            "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "",
            "ConfigMap",
            json!({"metadata": {"creationTimestamp": 5}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (
            "apps",
            "Deployment",
            json!({"spec": {"template": {"spec": {"containers": ["x"]}}}}),
            "json: cannot unmarshal string into Go struct field PodSpec.spec.template.spec.containers of type v1.Container",
        ),
        (
            "",
            "Service",
            json!({"spec": {"ports": [{"targetPort": 1.5}]}}),
            "json: cannot unmarshal number 1.5 into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
        (
            "coordination.k8s.io",
            "Lease",
            json!({"spec": {"renewTime": "2026-11-15T18:07:22Z"}}),
            "parsing time \"2026-11-15T18:07:22Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"Z\" as \".000000\"",
        ),
        ("", "Secret", json!({"data": {"a": "?"}}), "illegal base64 data at input byte 0"),
        ("", "Pod", json!([]), "json: cannot unmarshal array into Go value of type v1.Pod"),
    ] {
        assert_eq!(run(group, kind, value).unwrap_err(), expected);
    }
    let error = run("", "Node", json!({"status": {"capacity": {"cpu": "lots"}}}));
    assert!(error.unwrap_err().starts_with("quantities must match"));
}

#[test]
fn json_schemas_decode_in_all_their_forms() {
    let schema = json!({"type": "object", "additionalProperties": false,
        "properties": {"a": {"type": "array", "items": {"type": "string", "default": null, "enum": ["x", null]}},
                       "b": {"additionalProperties": {"x-kubernetes-int-or-string": true}, "default": {}},
                       "c": {"items": [{"type": "string"}], "maximum": 1.5, "x-kubernetes-preserve-unknown-fields": false}}});
    let crd = |schema: &Value| {
        json!({"metadata": {}, "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "",
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
    };
    let mut expected = schema.clone();
    expected["properties"]["a"]["items"].as_object_mut().unwrap().remove("default");
    becomes("apiextensions.k8s.io", "CustomResourceDefinition", crd(&schema), crd(&expected));
    let (_, unknown) =
        run("apiextensions.k8s.io", "CustomResourceDefinition", crd(&json!({"not": {"typo": 1}}))).unwrap();
    assert_eq!(unknown, ["spec.versions[0].schema.openAPIV3Schema.not.typo"]);
    let unions = json!({"items": {"typo": 1}, "additionalProperties": {"typo": 1}});
    let (value, unknown) = run("apiextensions.k8s.io", "CustomResourceDefinition", crd(&unions)).unwrap();
    assert_eq!(value, crd(&json!({"items": {}, "additionalProperties": {}})));
    assert!(unknown.is_empty());
}

#[test]
fn endless_nesting_is_refused() {
    let mut schema = json!({});
    for _ in 0..300 {
        schema = Value::Object([("not".to_owned(), schema)].into_iter().collect());
    }
    let value = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
    assert_eq!(
        run("apiextensions.k8s.io", "CustomResourceDefinition", value).unwrap_err(),
        "exceeded max depth"
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9:.TZ-]{0,12}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("metadata"),
        Just("spec"),
        Just("status"),
        Just("labels"),
        Just("containers"),
        Just("ports"),
        Just("template"),
        Just("resources"),
        Just("limits"),
        Just("volumes"),
        Just("bogus"),
        Just("name"),
    ];
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn decoding_twice_changes_nothing(value in any_json()) {
        if let Ok((once, _)) = run("", "Pod", value) {
            let (twice, unknown) = run("", "Pod", once.clone()).unwrap();
            prop_assert_eq!(twice, once);
            prop_assert!(unknown.is_empty());
        }
    }
}

#[test]
fn an_empty_object_has_the_structs_of_its_type_and_nothing_optional() {
    let zero = |group: &str, kind: &str| crate::zero_object(crate::type_of(group, "v1", kind).unwrap());
    let deployment = zero("apps", "Deployment");
    assert_eq!(deployment["spec"]["strategy"], json!({}));
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"], json!([]));
    assert!(deployment["spec"]["template"]["metadata"].is_object());
    assert!(deployment["spec"]["template"]["spec"].get("securityContext").is_none());
    assert!(deployment["spec"].get("replicas").is_none());
    assert!(deployment["metadata"].get("labels").is_none());
    assert!(zero("", "Service")["spec"].get("ports").is_none());
    assert!(zero("", "ConfigMap").get("data").is_none());
}
