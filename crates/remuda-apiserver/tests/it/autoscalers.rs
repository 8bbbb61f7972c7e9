//! HorizontalPodAutoscalers in both versions, and classes of volume attributes.

use serde_json::{Value, json};

use crate::harness::*;

const OLD: &str = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
const NEW: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";

fn target() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"})
}

#[tokio::test]
async fn one_autoscaler_has_two_faces() {
    let server = Server::quiet().await;
    let group = server.get("/apis/autoscaling").await.expect(200);
    assert_eq!(group["preferredVersion"]["version"], "v2");
    let spec = json!({"scaleTargetRef": target(), "maxReplicas": 5, "targetCPUUtilizationPercentage": 70});
    let made = server.post(OLD, json!({"metadata": {"name": "a"}, "spec": spec})).await;
    assert!(made.warnings()[0].contains("this server runs no Pods"), "{:?}", made.warnings());
    let made = made.expect(201);
    assert_eq!((&made["apiVersion"], &made["spec"]["minReplicas"]), (&json!("autoscaling/v1"), &json!(1)));
    assert_eq!(made["status"], json!({"currentReplicas": 0, "desiredReplicas": 0}));
    let new = server.get(&format!("{NEW}/a")).await.expect(200);
    assert_eq!(new["apiVersion"], "autoscaling/v2");
    assert_eq!(
        new["spec"]["metrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}])
    );
    assert_eq!(new["metadata"]["uid"], made["metadata"]["uid"]);
    // What the older version has no field for comes through it unchanged.
    let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
    let patch =
        json!({"spec": {"metrics": [memory], "behavior": {"scaleUp": {"stabilizationWindowSeconds": 30}}}});
    let patched = server.patch(&format!("{NEW}/a"), MERGE_PATCH, patch).await.expect(200);
    let scale_up = &patched["spec"]["behavior"]["scaleUp"];
    assert_eq!(
        (&scale_up["stabilizationWindowSeconds"], &scale_up["selectPolicy"]),
        (&json!(30), &json!("Max"))
    );
    let mut old = server.get(&format!("{OLD}/a")).await.expect(200);
    assert!(old["spec"].get("targetCPUUtilizationPercentage").is_none(), "{old}");
    old["spec"]["maxReplicas"] = 9.into();
    server.put(&format!("{OLD}/a"), old).await.expect(200);
    let new = server.get(&format!("{NEW}/a")).await.expect(200);
    assert_eq!((&new["spec"]["maxReplicas"], &new["spec"]["metrics"]), (&json!(9), &json!([memory])));
    assert_eq!(new["spec"]["behavior"], patched["spec"]["behavior"]);
    // Lists and tables show all of them in the version that is asked for.
    let list = server.get(OLD).await.expect(200);
    assert_eq!((names(&list), &list["apiVersion"]), (vec!["a"], &json!("autoscaling/v1")));
    let table = server
        .ask("GET", NEW)
        .accept("application/json;as=Table;v=v1;g=meta.k8s.io")
        .send()
        .await
        .expect(200);
    assert_eq!(
        table["rows"][0]["cells"].as_array().unwrap()[..6],
        json!(["a", "Deployment/d", "memory: <unknown>/1Gi", "1", 9, 0]).as_array().unwrap()[..]
    );
    server.delete(&format!("{OLD}/a")).await.expect(200);
    server.get(&format!("{NEW}/a")).await.fails(404, "NotFound");
}

#[tokio::test]
async fn a_watch_of_one_version_sees_writes_of_the_other() {
    let server = Server::quiet().await;
    let version =
        server.get(OLD).await.expect(200)["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut watch = server.watch(&format!("{OLD}?resourceVersion={version}")).await;
    let object = json!({"metadata": {"name": "a"}, "spec": {"scaleTargetRef": target(), "maxReplicas": 5}});
    server.post(NEW, object).await.expect(201);
    let seen = watch.expect("ADDED").await;
    assert_eq!(
        (&seen["apiVersion"], &seen["spec"]["targetCPUUtilizationPercentage"]),
        (&json!("autoscaling/v1"), &json!(80))
    );
}

#[tokio::test]
async fn both_versions_are_applied_to_and_own_their_fields() {
    let server = Server::quiet().await;
    let applied = |version: &str, most: i64| {
        json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"scaleTargetRef": target(), "maxReplicas": most}})
    };
    server.apply(&format!("{OLD}/a"), "one", applied("v1", 3)).await.expect(201);
    let changed = server.apply(&format!("{NEW}/a"), "one", applied("v2", 4)).await.expect(200);
    assert_eq!(changed["spec"]["maxReplicas"], 4);
    let message = server.apply(&format!("{OLD}/a"), "two", applied("v1", 5)).await.fails(409, "Conflict");
    assert!(message.contains(".spec.maxReplicas"), "{message}");
}

#[tokio::test]
async fn what_cannot_be_scaled_is_refused() {
    let server = Server::quiet().await;
    for (spec, field) in [
        (json!({"scaleTargetRef": target(), "maxReplicas": 0}), "spec.maxReplicas"),
        (json!({"scaleTargetRef": target(), "maxReplicas": 2, "minReplicas": 3}), "spec.maxReplicas"),
        (json!({"scaleTargetRef": {"kind": "D", "name": ""}, "maxReplicas": 2}), "spec.scaleTargetRef.name"),
        (
            json!({"scaleTargetRef": target(), "maxReplicas": 2, "metrics": [{"type": "Pods"}]}),
            "spec.metrics[0].pods",
        ),
        (
            json!({"scaleTargetRef": target(), "maxReplicas": 2, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 4000}}}),
            "spec.behavior.scaleDown.stabilizationWindowSeconds",
        ),
    ] {
        let answer = server.post(NEW, json!({"metadata": {"name": "a"}, "spec": spec})).await;
        answer.fails(422, "Invalid");
        assert_eq!(answer.body["details"]["causes"][0]["field"], field, "{}", answer.body);
    }
}

#[tokio::test]
async fn classes_of_volume_attributes_do_not_change() {
    let server = Server::quiet().await;
    let path = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    let class =
        json!({"metadata": {"name": "fast"}, "driverName": "csi.x.io", "parameters": {"iops": "100"}});
    server.post(path, class).await.expect(201);
    let other = json!({"parameters": {"iops": "200"}});
    let message = server.patch(&format!("{path}/fast"), MERGE_PATCH, other).await.fails(422, "Invalid");
    assert!(message.contains("parameters") && message.contains("field is immutable"), "{message}");
    let empty = json!({"metadata": {"name": "none"}, "driverName": "csi.x.io"});
    server.post(path, empty).await.fails(422, "Invalid");
}
