use serde_json::{Value, json};

use crate::{Conversion, CrdView, check_crd, check_scale, crd_warnings, default_crd, record_storage_version};

fn crd() -> Value {
    let mut crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.x.io"},
        "spec": {
            "group": "x.io", "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo", "shortNames": ["fo"], "categories": ["all"]},
            "preserveUnknownFields": false,
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {
                        "color": {"type": "string"}, "replicas": {"type": "integer"}}},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                }}},
            }],
        },
    });
    default_crd(&mut crd);
    crd
}

fn set(crd: &mut Value, pointer: &str, value: Value) {
    *crd.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer} exists")) = value;
}

#[track_caller]
fn check(changes: &[(&str, Value)], expected: &[&str]) {
    let mut new = crd();
    for (pointer, value) in changes {
        set(&mut new, pointer, value.clone());
    }
    let found: Vec<String> = check_crd(&new, None).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[track_caller]
fn check_update(old: &Value, new: &Value, expected: &[&str]) {
    let found: Vec<String> = check_crd(new, Some(old)).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn defaults_are_filled_in() {
    let crd = crd();
    assert_eq!(crd["spec"]["names"]["singular"], "foo");
    assert_eq!(crd["spec"]["names"]["listKind"], "FooList");
    assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(crd["spec"].get("preserveUnknownFields"), None);
    assert_eq!(check_crd(&crd, None), []);
    let mut again = crd.clone();
    default_crd(&mut again);
    assert_eq!(again, crd);
}

#[test]
fn names_follow_rules() {
    check(
        &[("/metadata/name", json!("bars.x.io"))],
        &[r#"metadata.name: Invalid value: "bars.x.io": must be spec.names.plural+"."+spec.group"#],
    );
    check(
        &[("/metadata/name", json!("foos.x")), ("/spec/group", json!("x"))],
        &[r#"spec.group: Invalid value: "x": should be a domain with at least one dot"#],
    );
    check(
        &[("/spec/names/listKind", json!("Foo"))],
        &[r#"spec.names.listKind: Invalid value: "Foo": kind and listKind may not be the same"#],
    );
    check(
        &[("/spec/scope", json!("Galaxy"))],
        &[r#"spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced""#],
    );
    check(
        &[("/spec/names/shortNames", json!(["F"]))],
        &[
            "spec.names.shortNames[0]: Invalid value: \"F\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
}

#[test]
fn one_version_is_stored() {
    let found = {
        let mut new = crd();
        set(&mut new, "/spec/versions/0/storage", json!(false));
        check_crd(&new, None)
    };
    assert_eq!(found[0].field, "spec.versions");
    assert!(
        found[0].message.ends_with("must have exactly one version marked as storage version"),
        "{}",
        found[0]
    );
}

#[test]
fn schemas_are_checked_where_they_stand() {
    check(
        &[("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color", json!({}))],
        &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[color].type: Required value: must not be empty for specified object fields",
            r#"spec.selectableFields[0].jsonPath: Invalid value: ".spec.color": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."#,
        ],
    );
    let mut two = crd();
    let mut second = two["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    second["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({"type": "object", "properties": {"color": {"type": "string"}, "x": {}}});
    two["spec"]["versions"].as_array_mut().unwrap().push(second);
    let found: Vec<String> = check_crd(&two, None).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "spec.versions[1].schema.openAPIV3Schema.properties[spec].properties[x].type: Required value: must not be empty for specified object fields"
        ]
    );
    check(
        &[("/spec/versions/0/schema", json!(null)), ("/spec/versions/0/selectableFields", json!([]))],
        &["spec.versions[0].schema.openAPIV3Schema: Required value"],
    );
}

#[test]
fn paths_of_subresources_and_columns_are_checked() {
    check(
        &[("/spec/versions/0/subresources/scale/specReplicasPath", json!(".status.replicas"))],
        &[
            r#"spec.subresources.scale.specReplicasPath: Invalid value: ".status.replicas": should be a json path under .spec"#,
        ],
    );
    check(
        &[("/spec/versions/0/additionalPrinterColumns/0/type", json!("colour"))],
        &[
            r#"spec.additionalPrinterColumns[0].type: Invalid value: "colour": must be one of boolean,date,integer,number,string"#,
        ],
    );
    check(
        &[("/spec/versions/0/selectableFields", json!([{"jsonPath": ".spec.none"}]))],
        &[
            r#"spec.selectableFields[0].jsonPath: Invalid value: ".spec.none": is an invalid path: does not refer to a valid field"#,
        ],
    );
}

#[test]
fn conversion_by_webhook_needs_a_client() {
    check(
        &[("/spec/conversion", json!({"strategy": "Webhook"}))],
        &[
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ],
    );
    let service = json!({"name": "s", "namespace": "n", "path": "/convert", "port": 443});
    let webhook = |reviews: Value| json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": service}, "conversionReviewVersions": reviews}});
    check(&[("/spec/conversion", webhook(json!(["v1"])))], &[]);
    check(
        &[("/spec/conversion", webhook(json!(["v9"])))],
        &[
            r#"spec.conversion.conversionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1"#,
        ],
    );
    check(
        &[(
            "/spec/conversion",
            json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "http://u@h/?q"}, "conversionReviewVersions": ["v1"]}}),
        )],
        &[
            r#"spec.conversion.webhookClientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]"#,
            r#"spec.conversion.webhookClientConfig.url: Invalid value: "u": user information is not permitted in the URL"#,
            r#"spec.conversion.webhookClientConfig.url: Invalid value: "q": query parameters are not permitted in the URL"#,
        ],
    );
}

#[test]
fn community_groups_need_approval() {
    let changes = [("/metadata/name", json!("foos.a.k8s.io")), ("/spec/group", json!("a.k8s.io"))];
    check(
        &changes,
        &[
            r#"metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111"#,
        ],
    );
    let with = |annotation: &str| {
        let mut changes = changes.to_vec();
        let metadata =
            json!({"name": "foos.a.k8s.io", "annotations": {"api-approved.kubernetes.io": annotation}});
        changes[0] = ("/metadata", metadata);
        changes
    };
    check(&with("unapproved, testing"), &[]);
    check(&with("https://github.com/kubernetes/kubernetes/pull/1"), &[]);
    check(
        &[("/metadata/name", json!("foos.cluster.x-k8s.io")), ("/spec/group", json!("cluster.x-k8s.io"))],
        &[],
    );
}

#[test]
fn updates_keep_identity_and_stored_versions() {
    let mut old = crd();
    old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    check_update(&old, &old, &[]);
    let mut new = old.clone();
    set(&mut new, "/spec/scope", json!("Cluster"));
    check_update(&old, &new, &[r#"spec.scope: Invalid value: "Cluster": field is immutable"#]);
    let mut new = old.clone();
    set(&mut new, "/spec/versions/0/name", json!("v2"));
    record_storage_version(&mut new);
    assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    check_update(
        &old,
        &new,
        &[
            r#"status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"#,
        ],
    );
    let mut new = old.clone();
    new["spec"]["preserveUnknownFields"] = json!(true);
    check_update(
        &old,
        &new,
        &[
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ],
    );
}

#[test]
fn a_deprecated_version_names_the_best_better_one() {
    let mut crd = crd();
    let mut add = |name: &str, deprecated: bool, served: bool| {
        let versions = crd["spec"]["versions"].as_array_mut().unwrap();
        let mut version = versions[0].clone();
        version["name"] = json!(name);
        version["storage"] = json!(false);
        version["served"] = json!(served);
        version["deprecated"] = json!(deprecated);
        versions.push(version);
    };
    add("v1beta1", true, true);
    add("v2", false, true);
    add("v3", false, false);
    add("v4", true, true);
    let view = CrdView::parse(&crd).unwrap();
    let warning = |name: &str| view.version(name).unwrap().deprecated.clone();
    assert_eq!(warning("v1beta1").as_deref(), Some("x.io/v1beta1 Foo is deprecated; use x.io/v2 Foo"));
    assert_eq!(warning("v4").as_deref(), Some("x.io/v4 Foo is deprecated"));
    assert_eq!(warning("v2"), None);
}

#[test]
fn the_view_holds_what_the_server_needs() {
    let mut crd = crd();
    crd["spec"]["versions"][0]["deprecated"] = json!(true);
    let view = CrdView::parse(&crd).unwrap();
    assert_eq!(
        (view.plural.as_str(), view.singular.as_str(), view.list_kind.as_str()),
        ("foos", "foo", "FooList")
    );
    assert!(view.namespaced);
    assert_eq!(view.conversion, Conversion::None);
    let version = view.storage_version().unwrap();
    assert_eq!(version.deprecated.as_deref(), Some("x.io/v1 Foo is deprecated"));
    assert!(version.status);
    assert_eq!(version.columns[0].json_path, ".spec.color");
    assert_eq!(version.selectable_fields, [".spec.color"]);
    let scale = version.scale.as_ref().unwrap();
    assert_eq!(check_scale(scale, &json!({"spec": {"replicas": 3}}), false), []);
    let found = check_scale(scale, &json!({"spec": {"replicas": -3}}), false);
    assert_eq!(found[0].to_string(), ".spec.replicas: Invalid value: -3: should be a non-negative integer");
    assert!(CrdView::parse(&json!({})).is_err());
}

#[test]
fn unknown_formats_are_warned_about_once() {
    let old = crd();
    let mut new = old.clone();
    set(
        &mut new,
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color",
        json!({"type": "string", "format": "paint"}),
    );
    assert_eq!(crd_warnings(&new, None), [r#"unrecognized format "paint""#]);
    assert_eq!(crd_warnings(&new, Some(&new)), [] as [&str; 0]);
}

#[test]
fn nonsense_does_not_panic() {
    for value in [
        json!(null),
        json!({}),
        json!({"spec": 1}),
        json!({"spec": {"versions": [1, null], "names": []}, "status": 5}),
    ] {
        let mut value = value;
        default_crd(&mut value);
        record_storage_version(&mut value);
        assert!(!check_crd(&value, None).is_empty());
        let _ = crd_warnings(&value, Some(&value));
        let _ = CrdView::parse(&value);
    }
}

#[test]
fn definitions_of_community_groups_carry_a_condition_about_their_approval() {
    let of = |group: &str, annotation: serde_json::Value| {
        let crd = json!({"metadata": {"annotations": annotation}, "spec": {"group": group}});
        crate::approval_condition(&crd).map(|(status, reason, _)| (status, reason))
    };
    let noted = |text: &str| json!({"api-approved.kubernetes.io": text});
    assert_eq!(of("x.io", json!({})), None);
    assert_eq!(of("cluster.x-k8s.io", json!({})), None);
    assert_eq!(of("a.k8s.io", json!({})), Some(("False", "MissingAnnotation")));
    assert_eq!(of("a.k8s.io", noted("unapproved, why not")), Some(("False", "UnapprovedAnnotation")));
    assert_eq!(of("a.kubernetes.io", noted("https://example.org/1")), Some(("True", "ApprovedAnnotation")));
    assert_eq!(of("a.k8s.io", noted("trust me")), Some(("Unknown", "UnknownAnnotation")));
}

#[test]
fn what_rules_cost_is_judged_when_the_schema_changes() {
    let mut stored = crd();
    let heavy = json!({"type": "array", "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x == y))"}]});
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    stored.pointer_mut(spec).unwrap()["properties"]["list"] = heavy;
    let place =
        "spec.validation.openAPIV3Schema.properties[spec].properties[list].x-kubernetes-validations[0].rule";
    let errors = check_crd(&stored, None);
    assert!(
        errors[0].to_string().starts_with(&format!("{place}: Forbidden: estimated rule cost exceeds")),
        "{errors:?}"
    );
    // Who has it can change everything else.
    let mut other = stored.clone();
    set(&mut other, "/spec/names/shortNames", json!(["fs"]));
    check_update(&stored, &other, &[]);
    other.pointer_mut(spec).unwrap()["properties"]["more"] = json!({"type": "string"});
    assert!(!check_crd(&other, Some(&stored)).is_empty());
}
