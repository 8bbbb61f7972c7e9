//! The agent of a machine at a running server: what its token is good for.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
    config::Kubeconfig,
};
use serde_json::{Value, json};

use crate::{
    client::{client, client_with},
    foreign::until,
    harness::{Place, Server},
};

const NAMESPACE: &str = "fleet-default";
const SOON: Duration = Duration::from_secs(30);

/// A client that comes with a token.
async fn with_token(server: &Server, token: &str) -> Client {
    client_with(&server.kubeconfig(), |kubeconfig: &mut Kubeconfig| {
        for user in &mut kubeconfig.auth_infos {
            let info = user.auth_info.get_or_insert_default();
            *info = Default::default();
            info.token = Some(token.to_owned().into());
        }
    })
    .await
}

/// What a server that joins a cluster of custom nodes is answered.
async fn register(joining: &Client, id: &str, role: &str) -> Value {
    let request = http::Request::get("/v3/connect/agent")
        .header("X-Cattle-Id", id)
        .header(format!("X-Cattle-Role-{role}"), "true")
        .body(Vec::new());
    let text = joining.request_text(request.unwrap()).await.unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The refusal of a write.
#[track_caller]
fn refused(answer: Result<Secret, kube::Error>, field: &str) {
    match answer {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 403, "{status:?}");
            assert!(status.message.contains(field), "{field}: {}", status.message);
        }
        other => panic!("{field}: {other:?}"),
    }
}

#[test]
fn an_agent_changes_nothing_but_its_report() {
    let place = Place::new();
    let server = Server::start(&place.data(), &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let admin = runtime.block_on(client(&server));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("provisioning.cattle.io", "v1", "Cluster"));
    let clusters: Api<DynamicObject> = Api::namespaced_with(admin.clone(), NAMESPACE, &resource);
    let cluster = json!({
        "apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster",
        "metadata": {"name": "custom", "namespace": NAMESPACE},
        "spec": {"kubernetesVersion": "v1.35.1+k3s1", "rkeConfig": {}},
    });
    let cluster: DynamicObject = serde_json::from_value(cluster).unwrap();
    until("clusters can be made", SOON, || {
        runtime.block_on(clusters.create(&PostParams::default(), &cluster)).is_ok()
    });
    let mut token = String::new();
    until("the cluster has a token", SOON, || {
        runtime.block_on(async {
            let cluster = clusters.get("custom").await.unwrap();
            let Some(id) = cluster.data.pointer("/status/clusterName").and_then(Value::as_str) else {
                return false;
            };
            let secrets: Api<Secret> = Api::namespaced(admin.clone(), id);
            let secret = secrets.get_opt("crt-token-default-token").await.unwrap();
            let value = secret.and_then(|secret| secret.data?.remove("token"));
            token = value.map(|value| String::from_utf8(value.0).unwrap()).unwrap_or_default();
            !token.is_empty()
        })
    });

    runtime.block_on(async {
        let joining = with_token(&server, &token).await;
        let answer = register(&joining, "worker-1", "Worker").await;
        let name = answer["secretName"].as_str().unwrap();
        let kubeconfig = Kubeconfig::from_yaml(answer["kubeConfig"].as_str().unwrap()).unwrap();
        let info = kubeconfig.auth_infos[0].auth_info.clone().unwrap();
        let bearer = serde_json::to_value(info).unwrap()["token"].as_str().unwrap().to_owned();
        let agent: Api<Secret> = Api::namespaced(with_token(&server, &bearer).await, NAMESPACE);
        let all: Api<Secret> = Api::namespaced(admin.clone(), NAMESPACE);

        // The server has a plan for it, which is what agents report about.
        let plan = Patch::Merge(json!({"stringData": {"plan": "{}"}}));
        all.patch(name, &PatchParams::default(), &plan).await.unwrap();
        let write = async |change: &dyn Fn(&mut Value)| {
            // Controllers write it too; a conflict says nothing about the agent.
            for _ in 0..20 {
                let mut secret = serde_json::to_value(agent.get(name).await.unwrap()).unwrap();
                change(&mut secret);
                let secret: Secret = serde_json::from_value(secret).unwrap();
                match agent.replace(name, &PostParams::default(), &secret).await {
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    answer => return answer,
                }
            }
            panic!("conflicts for ever");
        };
        let reported = write(&|secret| {
            secret["data"]["applied-checksum"] = json!("YQ==");
            secret["data"]["probe-statuses"] = json!("e30=");
        })
        .await
        .unwrap();
        assert_eq!(reported.data.unwrap()["applied-checksum"].0, b"a");

        type Attempt<'a> = (&'a str, &'a dyn Fn(&mut Value));
        let attempts: [Attempt<'_>; 9] = [
            ("metadata.labels[rke.cattle.io/control-plane-role]", &|secret| {
                secret["metadata"]["labels"]["rke.cattle.io/control-plane-role"] = json!("true");
            }),
            ("metadata.labels[rke.cattle.io/machine-name]", &|secret| {
                secret["metadata"]["labels"]["rke.cattle.io/machine-name"] = json!("other");
            }),
            ("metadata.annotations[rke.cattle.io/join-url]", &|secret| {
                secret["metadata"]["annotations"]["rke.cattle.io/join-url"] = json!("https://10.9.9.9:9345");
            }),
            ("metadata.ownerReferences", &|secret| secret["metadata"]["ownerReferences"] = json!([])),
            ("metadata.finalizers", &|secret| secret["metadata"]["finalizers"] = json!(["example.com/stay"])),
            ("immutable", &|secret| secret["immutable"] = json!(true)),
            ("data[plan]", &|secret| secret["data"]["plan"] = json!("e30K")),
            ("data[appliedPlan]", &|secret| secret["stringData"] = json!({"appliedPlan": "{}"})),
            ("data[failure-count]", &|secret| secret["data"]["failure-count"] = json!("MTEx".repeat(500))),
        ];
        for (field, attempt) in attempts {
            refused(write(attempt).await, field);
        }
        let kept = all.get(name).await.unwrap();
        assert!(!kept.labels().contains_key("rke.cattle.io/control-plane-role"));

        // What its role does not say at all.
        let patch = Patch::Merge(json!({"data": {"failure-count": "MA=="}}));
        refused(agent.patch(name, &PatchParams::default(), &patch).await, "cannot patch");
        let deleted = agent.delete(name, &DeleteParams::default()).await;
        assert!(matches!(deleted, Err(kube::Error::Api(status)) if status.code == 403));
        // And if an administrator gives it more, the report stays all it can change.
        let rule = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]);
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "more", "namespace": NAMESPACE}, "rules": rule,
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "more", "namespace": NAMESPACE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "more"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        });
        for (kind, object) in [("Role", role), ("RoleBinding", binding)] {
            let resource =
                ApiResource::from_gvk(&GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind));
            let api: Api<DynamicObject> = Api::namespaced_with(admin.clone(), NAMESPACE, &resource);
            let object = serde_json::from_value(object).unwrap();
            api.create(&PostParams::default(), &object).await.unwrap();
        }
        let labels = Patch::Merge(json!({"metadata": {"labels": {"rke.cattle.io/etcd-role": "true"}}}));
        let mut answer = agent.patch(name, &PatchParams::default(), &labels).await;
        for _ in 0..100 {
            if !matches!(&answer, Err(kube::Error::Api(status)) if status.message.contains("cannot patch")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            answer = agent.patch(name, &PatchParams::default(), &labels).await;
        }
        refused(answer, "metadata.labels[rke.cattle.io/etcd-role]");
        let deleted = agent.delete(name, &DeleteParams::default()).await;
        assert!(
            matches!(deleted, Err(kube::Error::Api(status)) if status.message.contains("may not delete"))
        );
    });
}
