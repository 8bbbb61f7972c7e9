use super::*;

fn both_ways(spec: Value, status: Value) -> (Value, Value) {
    let new = json!({"apiVersion": NEW, "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a", "annotations": {"own": "x"}}, "spec": spec, "status": status});
    let mut old = new.clone();
    convert(&mut old, OLD);
    let mut again = old.clone();
    convert(&mut again, NEW);
    (old, again)
}

#[test]
fn nothing_is_lost_on_the_way_to_the_older_version_and_back() {
    let spec = json!({
        "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "minReplicas": 1, "maxReplicas": 9,
        "metrics": [
            {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "5"}}},
            {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "q",
                "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "AverageValue", "averageValue": "3"}}},
            {"type": "External", "external": {"metric": {"name": "e"}, "target": {"type": "Value", "value": "30"}}},
            {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c",
                "target": {"type": "Utilization", "averageUtilization": 60}}},
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
        ],
        "behavior": {"scaleDown": {"selectPolicy": "Min", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}},
    });
    let status = json!({"currentReplicas": 2, "desiredReplicas": 3,
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "4m"}}}],
        "conditions": [{"type": "AbleToScale", "status": "True"}]});
    let (old, again) = both_ways(spec.clone(), status.clone());
    assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 50);
    assert_eq!(old["status"]["currentCPUUtilizationPercentage"], 40);
    assert!(old["spec"].get("metrics").is_none() && old["spec"].get("behavior").is_none());
    let behavior = old["metadata"]["annotations"][BEHAVIOR].as_str().unwrap();
    assert_eq!(
        behavior,
        r#"{"ScaleDown":{"Policies":[{"PeriodSeconds":60,"Type":"Pods","Value":1}],"SelectPolicy":"Min"}}"#
    );
    assert_eq!((&again["spec"], &again["status"]), (&spec, &status));
    assert_eq!(again["metadata"], json!({"name": "a", "annotations": {"own": "x"}}));
}

#[test]
fn fields_of_wrong_types_stop_nothing() {
    for wrong in [json!("x"), json!(1), json!([1])] {
        for field in ["spec", "status", "metadata"] {
            for version in [OLD, NEW] {
                let mut whole = json!({"apiVersion": version, "metadata": {"annotations": {BEHAVIOR: "[]"}},
                    "spec": {"metrics": [1], "behavior": {"scaleUp": {}}}});
                whole[field] = wrong.clone();
                apply_defaults(&mut whole);
                convert(&mut whole, if version == OLD { NEW } else { OLD });
            }
        }
        let parts = json!({"apiVersion": NEW, "metadata": {"annotations": wrong},
            "spec": {"metrics": wrong, "behavior": {"scaleUp": wrong, "scaleDown": wrong}},
            "status": {"currentMetrics": wrong, "conditions": wrong}});
        let mut old = parts.clone();
        apply_defaults(&mut old);
        convert(&mut old, OLD);
        convert(&mut old, NEW);
    }
}

#[test]
fn without_metrics_the_older_version_means_cpu() {
    let mut old = json!({"apiVersion": OLD, "metadata": {"annotations": {METRICS: "no list"}},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "D", "name": "d"}}});
    convert(&mut old, NEW);
    assert_eq!(old["spec"]["metrics"], json!([cpu_metric(&json!(80))]));
    assert_eq!(old["metadata"], json!({}));
    // Converting what is that version already changes nothing.
    let before = old.clone();
    convert(&mut old, NEW);
    assert_eq!(old, before);
}
