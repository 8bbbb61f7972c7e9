//! Pods: scheduled, run as processes, restarted, evicted.

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    batch::v1::Job,
    core::v1::{Event, Pod, Secret},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::{EvictParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::world::{admin, agent, first, is_ready, phase, pods, ready_pods, until};

async fn create<K>(api: &Api<K>, object: Value)
where
    K: kube::Resource + serde::de::DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn sleeper(name: &str) -> Value {
    json!({"name": name, "image": "busybox", "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]})
}

fn deployment(name: &str, replicas: i32, container: Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 3}},
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_runs_updates_and_ends() {
    let root = tempfile::tempdir().unwrap();
    let server = first(root.path()).await;
    let client = admin(&server).await;
    until("the node is ready", async || is_ready(&client, "cp-1").await).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    create(&deployments, deployment("app", 2, sleeper("main"))).await;
    until("two pods are ready", async || ready_pods(&client, "default").await.len() == 2).await;
    until("the deployment is available", async || {
        deployments.get("app").await.unwrap().status.and_then(|status| status.available_replicas) == Some(2)
    })
    .await;
    let before = ready_pods(&client, "default").await;
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"new": "template"}}}}});
    deployments.patch("app", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    until("both pods are new ones", async || {
        let now = ready_pods(&client, "default").await;
        now.len() == 2
            && now.iter().all(|name| !before.contains(name))
            && pods(&client, "default").await.len() == 2
    })
    .await;
    deployments.delete("app", &Default::default()).await.unwrap();
    until("no pod is left", async || pods(&client, "default").await.is_empty()).await;
    until("no directory is left", async || {
        std::fs::read_dir(server.settings.paths.pods()).unwrap().next().is_none()
    })
    .await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_its_environment_its_volumes_and_its_account() {
    let root = tempfile::tempdir().unwrap();
    let server = first(root.path()).await;
    let client = admin(&server).await;
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    create(&secrets, json!({"metadata": {"name": "s"}, "stringData": {"key": "value", "url": "https://x"}}))
        .await;
    let script = "set -e; echo \"$FROM_SECRET $NODE $EXPANDED $KUBERNETES_SERVICE_HOST\"; cat $REMUDA_POD_ROOT/creds/url; echo; \
                  test -s $REMUDA_POD_ROOT/var/run/secrets/kubernetes.io/serviceaccount/token; \
                  test -s $REMUDA_POD_ROOT/var/run/secrets/kubernetes.io/serviceaccount/ca.crt; \
                  cat $REMUDA_POD_ROOT/var/run/secrets/kubernetes.io/serviceaccount/namespace";
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    create(
        &jobs,
        json!({"metadata": {"name": "once"}, "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "initContainers": [{"name": "first", "image": "x", "command": ["/bin/true"]}],
            "containers": [{
                "name": "main", "image": "x", "command": ["/bin/sh", "-c", script],
                "env": [
                    {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "EXPANDED", "value": "[$(FROM_SECRET)]"},
                ],
                "volumeMounts": [{"name": "creds", "mountPath": "/creds"}],
            }],
            "volumes": [{"name": "creds", "secret": {"secretName": "s"}}],
        }}}}),
    )
    .await;
    until("the job is complete", async || {
        let status = jobs.get("once").await.unwrap().status.unwrap_or_default();
        let failed = status.failed.unwrap_or(0);
        assert_eq!(
            failed,
            0,
            "{:?}",
            std::fs::read_dir(server.settings.paths.pods())
                .unwrap()
                .flatten()
                .map(|dir| {
                    std::fs::read_to_string(dir.path().join("logs/main/0.log")).unwrap_or_default()
                })
                .collect::<Vec<_>>()
        );
        status.succeeded == Some(1) && status.completion_time.is_some()
    })
    .await;
    let pod = pods(&client, "default").await.remove(0);
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let log = api.logs(&pod.name_any(), &Default::default()).await.unwrap();
    assert_eq!(log, "value cp-1 [value] 127.0.0.1\nhttps://x\ndefault");
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_run_says_why() {
    let root = tempfile::tempdir().unwrap();
    let server = first(root.path()).await;
    let client = admin(&server).await;
    let all: Api<Pod> = Api::default_namespaced(client.clone());
    let pause = json!({"name": "pause", "image": "rancher/mirrored-pause:3.6"});
    create(&all, json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "web", "image": "nginx"}, pause]}})).await;
    until("the reason is there", async || {
        let status = all.get("p").await.unwrap().status.unwrap_or_default();
        let waiting = status
            .container_statuses
            .unwrap_or_default()
            .into_iter()
            .find_map(|status| status.state?.waiting);
        waiting.is_some_and(|waiting| {
            waiting.reason.as_deref() == Some("ErrImagePull")
                && waiting.message.unwrap_or_default().contains("nginx")
        })
    })
    .await;
    // As `kubectl describe` shows it.
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let about = ListParams::default().fields("involvedObject.kind=Pod,involvedObject.name=p");
    until("there is an Event of it", async || {
        let found = events.list(&about).await.unwrap().items;
        found.iter().any(|event| {
            event.reason.as_deref() == Some("Failed")
                && event.type_.as_deref() == Some("Warning")
                && event
                    .message
                    .as_deref()
                    .is_some_and(|text| text.starts_with("Failed to pull image \"nginx\""))
                && event.last_timestamp.is_some()
        })
    })
    .await;
    all.delete("p", &Default::default()).await.unwrap();
    until("the pod is gone", async || all.get_opt("p").await.unwrap().is_none()).await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_fails_is_started_again() {
    let root = tempfile::tempdir().unwrap();
    let server = first(root.path()).await;
    let client = admin(&server).await;
    let all: Api<Pod> = Api::default_namespaced(client.clone());
    let script = "echo run >> $REMUDA_POD_ROOT/state/runs; test $(wc -l < $REMUDA_POD_ROOT/state/runs) -ge 2 && exec sleep 60; exit 3";
    create(
        &all,
        json!({"metadata": {"name": "p"}, "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "x", "command": ["/bin/sh", "-c", script],
                "volumeMounts": [{"name": "state", "mountPath": "/state"}]}],
            "volumes": [{"name": "state", "emptyDir": {}}]}}),
    )
    .await;
    until("it runs the second time", async || {
        let pod = all.get("p").await.unwrap();
        let status = pod.status.clone().unwrap_or_default().container_statuses.unwrap_or_default();
        status.first().is_some_and(|status| status.restart_count == 1 && status.ready)
            && phase(&pod) == "Running"
    })
    .await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_within_its_budget() {
    let (root, one, two) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = first(root.path()).await;
    let client = admin(&server).await;
    let workers = [
        agent(one.path(), "worker-1", &server, &[]).await,
        agent(two.path(), "worker-2", &server, &[]).await,
    ];
    for name in ["cp-1", "worker-1", "worker-2"] {
        until(&format!("{name} is ready"), async || is_ready(&client, name).await).await;
    }
    let daemons: Api<DaemonSet> = Api::namespaced(client.clone(), "kube-system");
    let mut daemon = deployment("daemon", 1, sleeper("main"));
    daemon["spec"].as_object_mut().unwrap().remove("replicas");
    create(&daemons, daemon).await;
    until("a daemon runs everywhere", async || ready_pods(&client, "kube-system").await.len() == 3).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let mut spread = deployment("app", 2, sleeper("main"));
    spread["spec"]["template"]["spec"]["nodeSelector"] = json!({"node.kubernetes.io/instance-type": "k3s"});
    create(&deployments, spread).await;
    until("both pods are ready", async || ready_pods(&client, "default").await.len() == 2).await;
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client.clone());
    create(
        &budgets,
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "app"}}}}),
    )
    .await;
    until("the budget is counted", async || {
        let budget = budgets.get("b").await.unwrap();
        budget.status.is_some_and(|status| {
            status.observed_generation == budget.metadata.generation && status.current_healthy == 2
        })
    })
    .await;
    let all: Api<Pod> = Api::default_namespaced(client.clone());
    let victim = pods(&client, "default").await.remove(0);
    let node = victim.spec.as_ref().unwrap().node_name.clone().unwrap();
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    nodes.cordon(&node).await.unwrap();
    assert!(all.evict(&victim.name_any(), &EvictParams::default()).await.is_err(), "the budget allows none");
    let patch = json!({"spec": {"minAvailable": 1}});
    budgets.patch("b", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    until("the eviction is allowed", async || {
        all.evict(&victim.name_any(), &EvictParams::default()).await.is_ok()
    })
    .await;
    until("the pod runs elsewhere", async || {
        let now = pods(&client, "default").await;
        ready_pods(&client, "default").await.len() == 2
            && now.iter().all(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() != Some(node.as_str()))
    })
    .await;
    // A node that is deleted takes its pods along, and they come back elsewhere.
    let [worker, other] = workers;
    worker.shutdown().await;
    nodes.delete("worker-1", &Default::default()).await.unwrap();
    until("nothing is left on the node", async || {
        let here = |pod: &Pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some("worker-1");
        !pods(&client, "default").await.iter().any(here)
            && !pods(&client, "kube-system").await.iter().any(here)
    })
    .await;
    other.shutdown().await;
    server.shutdown().await;
}
