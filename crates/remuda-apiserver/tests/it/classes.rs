//! What admission adds and refuses because of other objects.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::harness::*;

const NS: &str = "/api/v1/namespaces/default";

async fn server() -> Server {
    let server = Server::start().await;
    server.until(&format!("{NS}/serviceaccounts/default"), |account| account.code == 200).await;
    server
}

fn pod(name: &str, container: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (field, value) in container.as_object().into_iter().flatten() {
        pod["spec"]["containers"][0][field] = value.clone();
    }
    pod
}

#[tokio::test]
async fn a_limit_range_gives_defaults_and_refuses_what_is_outside() {
    let server = server().await;
    let limits = json!([
        {"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"}, "max": {"cpu": "1"}},
        {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}},
    ]);
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": limits}});
    server.post(&format!("{NS}/limitranges"), range).await.expect(201);
    let made = server.post(&format!("{NS}/pods"), pod("a", json!({}))).await.expect(201);
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "500m"}})
    );
    assert_eq!(
        made["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    let big = json!({"resources": {"limits": {"cpu": "2"}}});
    let refused = server.post(&format!("{NS}/pods"), pod("b", big)).await;
    assert_eq!(
        refused.fails(403, "Forbidden"),
        "pods \"b\" is forbidden: maximum cpu usage per Container is 1, but limit is 2"
    );
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "500Mi"}}}});
    let refused = server.post(&format!("{NS}/persistentvolumeclaims"), claim).await;
    assert_eq!(
        refused.fails(403, "Forbidden"),
        "persistentvolumeclaims \"c\" is forbidden: minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi"
    );
}

#[tokio::test]
async fn claims_and_ingresses_get_the_default_class() {
    let server = server().await;
    let marked = |name: &str, mark: &str, more: Value| {
        let mut class = json!({"metadata": {"name": name, "annotations": {mark: "true"}}});
        class.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        class
    };
    let storage = "/apis/storage.k8s.io/v1/storageclasses";
    let class = json!({"metadata": {"name": "slow"}, "provisioner": "x.io/p"});
    server.post(storage, class).await.expect(201);
    let class =
        marked("fast", "storageclass.kubernetes.io/is-default-class", json!({"provisioner": "x.io/p"}));
    server.post(storage, class).await.expect(201);
    let claim = |name: &str, class: Value| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let claims = format!("{NS}/persistentvolumeclaims");
    let made = server.post(&claims, claim("a", Value::Null)).await.expect(201);
    assert_eq!(made["spec"]["storageClassName"], "fast");
    let none = server.post(&claims, claim("b", json!(""))).await.expect(201);
    assert_eq!(none["spec"]["storageClassName"], "");

    let class = marked(
        "web",
        "ingressclass.kubernetes.io/is-default-class",
        json!({"spec": {"controller": "x.io/c"}}),
    );
    server.post("/apis/networking.k8s.io/v1/ingressclasses", class).await.expect(201);
    let ingress = json!({"metadata": {"name": "i"}, "spec": {"defaultBackend": {"service": {
        "name": "s", "port": {"number": 80}}}}});
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let made = server.post(ingresses, ingress.clone()).await.expect(201);
    assert_eq!(made["spec"]["ingressClassName"], "web");
    let mut old = ingress;
    old["metadata"] = json!({"name": "j", "annotations": {"kubernetes.io/ingress.class": "other"}});
    let made = server.post(ingresses, old).await.expect(201);
    assert_eq!(made["spec"].get("ingressClassName"), None);
}

#[tokio::test]
async fn a_runtime_class_tells_what_a_pod_costs_and_where_it_runs() {
    let server = server().await;
    let pods = format!("{NS}/pods");
    let with = |name: &str| {
        let mut pod = pod(name, json!({}));
        pod["spec"]["runtimeClassName"] = "vm".into();
        pod
    };
    let missing = server.post(&pods, with("a")).await;
    assert_eq!(
        missing.fails(403, "Forbidden"),
        "pods \"a\" is forbidden: pod rejected: RuntimeClass \"vm\" not found"
    );
    let class = json!({"metadata": {"name": "vm"}, "handler": "vm", "overhead": {"podFixed": {"memory": "64Mi"}},
        "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}});
    server.post("/apis/node.k8s.io/v1/runtimeclasses", class).await.expect(201);
    let made = server.post(&pods, with("a")).await.expect(201);
    assert_eq!(made["spec"]["overhead"], json!({"memory": "64Mi"}));
    assert_eq!(made["spec"]["nodeSelector"], json!({"vm": "yes"}));
    assert!(made["spec"]["tolerations"].to_string().contains("\"key\":\"vm\""), "{made}");
    let mut odd = with("b");
    odd["spec"]["nodeSelector"] = json!({"vm": "no"});
    let text = server.post(&pods, odd).await.fails(403, "Forbidden");
    assert!(text.contains("conflict: runtimeClass.scheduling.nodeSelector[vm] = yes"), "{text}");
    let mut odd = pod("c", json!({}));
    odd["spec"]["overhead"] = json!({"memory": "1Mi"});
    let text = server.post(&pods, odd).await.fails(403, "Forbidden");
    assert!(text.ends_with("Pod Overhead set without corresponding RuntimeClass defined Overhead"), "{text}");
}

#[tokio::test]
async fn a_workload_that_nobody_runs_is_stored_with_a_warning() {
    let server = server().await;
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let made = server.post(path, json!({"metadata": {"name": "d"}, "spec": spec})).await;
    assert_eq!(made.code, 201);
    let warnings = made.warnings().join("; ");
    assert!(warnings.contains("this server runs no Pods: the Deployment is stored"), "{warnings}");
    assert!(
        server.post(&format!("{NS}/secrets"), json!({"metadata": {"name": "s"}})).await.warnings().is_empty()
    );
}

#[tokio::test]
async fn a_bootstrap_token_goes_when_it_expires() {
    let server = server().await;
    let secrets = "/api/v1/namespaces/kube-system/secrets";
    let token = |id: &str, expiration: &str| {
        json!({"metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token",
            "data": {"token-id": STANDARD.encode(id), "token-secret": STANDARD.encode("0123456789abcdef"),
                "expiration": STANDARD.encode(expiration)}})
    };
    server.post(secrets, token("aaaaaa", "2999-01-01T00:00:00Z")).await.expect(201);
    server.post(secrets, token("bbbbbb", "2020-01-01T00:00:00Z")).await.expect(201);
    server.until(&format!("{secrets}/bootstrap-token-bbbbbb"), |answer| answer.code == 404).await;
    server.get(&format!("{secrets}/bootstrap-token-aaaaaa")).await.expect(200);
}

#[tokio::test]
async fn claims_and_volumes_in_use_stay() {
    let server = server().await;
    let claims = format!("{NS}/persistentvolumeclaims");
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let made = server.post(&claims, claim("used")).await.expect(201);
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    server.post(&claims, claim("free")).await.expect(201);
    let mut user = pod("user", json!({}));
    user["spec"]["nodeName"] = "n".into();
    user["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "used"}}]);
    server.post(&format!("{NS}/pods"), user).await.expect(201);
    for name in ["used", "free"] {
        server.delete(&format!("{claims}/{name}")).await.expect(200);
    }
    server.until(&format!("{claims}/free"), |answer| answer.code == 404).await;
    let held = server.get(&format!("{claims}/used")).await.expect(200);
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
    server.delete_with(&format!("{NS}/pods/user"), json!({"gracePeriodSeconds": 0})).await.expect(200);
    server.until(&format!("{claims}/used"), |answer| answer.code == 404).await;

    let volumes = "/api/v1/persistentvolumes";
    let volume = json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/v"}}});
    server.post(volumes, volume).await.expect(201);
    let status = |phase: &str| json!({"status": {"phase": phase}});
    let merge = "application/merge-patch+json";
    server.patch(&format!("{volumes}/v/status"), merge, status("Bound")).await.expect(200);
    server.delete(&format!("{volumes}/v")).await.expect(200);
    server.get(&format!("{volumes}/v")).await.expect(200);
    server.patch(&format!("{volumes}/v/status"), merge, status("Released")).await.expect(200);
    server.until(&format!("{volumes}/v"), |answer| answer.code == 404).await;
}
