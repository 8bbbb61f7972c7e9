use serde_json::json;

use super::*;

/// One pool with all roles and something more.
fn with(more: Value) -> Value {
    let mut pool = json!({
        "name": "all", "etcdRole": true, "controlPlaneRole": true, "workerRole": true, "quantity": 1,
    });
    let fields = pool.as_object_mut().unwrap();
    fields.extend(more.as_object().cloned().unwrap_or_default());
    json!({"rkeConfig": {"machinePools": [pool]}})
}

/// What is wrong, one line each.
fn found(old: Option<&Value>, spec: &Value) -> String {
    let mut findings = Findings::default();
    check(old, spec, &mut findings);
    let lines = findings.invalid.iter().map(|error| format!("{}: {}", error.field, error.message));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn values_that_mean_nothing_are_refused_at_their_field() {
    let pool = "spec.rkeConfig.machinePools[0]";
    for (more, field, words) in [
        (json!({"name": "Big Pool"}), ".name", "lower case"),
        (json!({"name": ""}), ".name", "named after the pool"),
        (json!({"labels": {"rack row": "1"}}), ".labels[rack row]", "name part must consist of"),
        (json!({"labels": {"rack": "row 1"}}), ".labels[rack]", "valid label must be"),
        (json!({"taints": [{"key": "a", "effect": "Never"}]}), ".taints[0].effect", "NoSchedule"),
        (json!({"taints": [{"key": "a", "effect": ""}]}), ".taints[0].effect", "NoSchedule"),
        (json!({"taints": [{"effect": "NoExecute"}]}), ".taints[0].key", "name part must be non-empty"),
        (json!({"unhealthyNodeTimeout": "ten"}), ".unhealthyNodeTimeout", "must be a duration"),
        (json!({"nodeStartupTimeout": "10"}), ".nodeStartupTimeout", "must be a duration"),
        (json!({"drainBeforeDeleteTimeout": "-5m"}), ".drainBeforeDeleteTimeout", "must be a duration"),
        (json!({"maxUnhealthy": "half"}), ".maxUnhealthy", "percentage"),
        (json!({"unhealthyRange": "[5-3]"}), ".unhealthyRange", "[3-5]"),
    ] {
        let spec = with(more.clone());
        let told = found(None, &spec);
        assert!(told.starts_with(&format!("{pool}{field}: ")), "{more}: {told}");
        assert!(told.contains(words) && told.lines().count() == 1, "{more}: {told}");
        // Stored before there was the rule, it can stay.
        let mut scaled = spec.clone();
        scaled["rkeConfig"]["machinePools"][0]["machineDeploymentLabels"] = json!({"a": "b"});
        if !more["name"].is_string() {
            assert_eq!(found(Some(&spec), &scaled), "", "{more}");
        }
    }
}

#[test]
fn values_that_mean_something_are_taken() {
    for more in [
        json!({"name": "pool-1"}),
        json!({"quantity": 0}),
        json!({"labels": {"example.com/rack": "r2", "empty": ""}}),
        json!({"taints": [{"key": "a/b", "value": "c", "effect": "NoExecute"}]}),
        json!({"unhealthyNodeTimeout": "5m", "nodeStartupTimeout": "0s", "drainBeforeDeleteTimeout": "1h30m"}),
        json!({"maxUnhealthy": "40%", "unhealthyRange": "[0-2]"}),
        json!({"maxUnhealthy": "", "unhealthyRange": null, "labels": null}),
    ] {
        assert_eq!(found(None, &with(more.clone())), "", "{more}");
    }
}

fn pools(pools: &[(&str, &str)]) -> Value {
    let pools = pools.iter().map(|(name, roles)| {
        let has = |role: char| roles.contains(role);
        json!({"name": name, "etcdRole": has('e'), "controlPlaneRole": has('c'), "workerRole": has('w')})
    });
    json!({"rkeConfig": {"machinePools": pools.collect::<Vec<_>>()}})
}

#[test]
fn pools_together_are_a_cluster() {
    let field = "spec.rkeConfig.machinePools: Required value: no pool has";
    assert_eq!(found(None, &pools(&[("a", "ecw")])), "");
    assert_eq!(found(None, &pools(&[("a", "e"), ("b", "c"), ("c", "w")])), "");
    assert_eq!(found(None, &pools(&[])), "", "servers register themselves");
    assert!(found(None, &pools(&[("a", "cw")])).starts_with(&format!("{field} etcdRole")));
    assert!(found(None, &pools(&[("a", "ew")])).starts_with(&format!("{field} controlPlaneRole")));
    assert!(found(None, &pools(&[("a", "ecw"), ("b", "")])).starts_with("spec.rkeConfig.machinePools[1]: "));

    // The pool with etcd cannot be taken away; where there was none, servers registered themselves.
    let (both, workers) = (pools(&[("a", "ec"), ("b", "w")]), pools(&[("b", "w")]));
    assert!(found(Some(&both), &workers).contains("etcdRole"));
    let custom = pools(&[]);
    assert_eq!(found(Some(&custom), &workers), "");
}

#[test]
fn an_even_number_of_members_is_warned_of() {
    let of = |quantity: i64| with(json!({"quantity": quantity}));
    for (quantity, warned) in [(0, false), (1, false), (2, true), (3, false), (4, true)] {
        assert_eq!(!warnings(None, &of(quantity)).is_empty(), warned, "{quantity}");
    }
    assert!(warnings(Some(&of(2)), &of(2)).is_empty(), "it was told when it was written");
    assert!(!warnings(Some(&of(1)), &of(2)).is_empty());
}

#[test]
fn schedules_and_manifests_must_be_what_they_are_called() {
    let schedule = |text: &str| json!({"rkeConfig": {"etcd": {"snapshotScheduleCron": text}}});
    for text in ["0 */5 * * *", "@daily", "@every 6h", ""] {
        assert_eq!(found(None, &schedule(text)), "", "{text}");
    }
    let told = found(None, &schedule("every day"));
    assert!(told.starts_with("spec.rkeConfig.etcd.snapshotScheduleCron: "), "{told}");

    let manifest = |text: &str| json!({"rkeConfig": {"additionalManifest": text}});
    let good = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n# nothing\n---\napiVersion: v1\nkind: Secret\n";
    for text in [good, "", "# only a comment\n"] {
        assert_eq!(found(None, &manifest(text)), "", "{text}");
    }
    for (text, words) in [
        ("kind: [", "must be YAML"),
        ("just a sentence", "no apiVersion"),
        ("apiVersion: v1\nkind: Secret\n---\napiVersion: v1\n", "document 2 has no kind"),
    ] {
        let told = found(None, &manifest(text));
        assert!(told.starts_with("spec.rkeConfig.additionalManifest: ") && told.contains(words), "{told}");
    }
    // Unchanged it is not looked at.
    assert_eq!(found(Some(&manifest("kind: [")), &manifest("kind: [")), "");
}
