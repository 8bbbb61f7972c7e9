//! Deletion, by how far a Machine had got and by what holds it up.

use k8s_openapi::api::{
    core::v1::{Namespace, Pod, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use kube::api::DeleteParams;
use remuda_api::core::MachineDrainRule;

use super::*;
use crate::world::fake_crd;

async fn delete(world: &World, name: &str) {
    world.api::<Machine>().delete(name, &DeleteParams::default()).await.unwrap();
}

async fn is_gone(world: &World, name: &str) -> bool {
    world.api::<Machine>().get_opt(name).await.unwrap().is_none()
}

async fn goes(world: &World, name: &str) {
    for _ in 0..5_000 {
        if is_gone(world, name).await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{name} stays: {}", condition(world, name, "Deleting").await);
}

async fn annotate(world: &World, name: &str, annotations: Value) {
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    world.api::<Machine>().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn hold(world: &World, kind: &str, name: &str, held: bool) {
    let finalizers = if held { json!(["infrastructure.cluster.x-k8s.io/hold"]) } else { json!(null) };
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    world.fake(kind).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn node_exists(workload: &remuda_testkit::World, name: &str) -> bool {
    Api::<Node>::all(workload.client()).get_opt(&format!("node-{name}")).await.unwrap().is_some()
}

/// A world with a control plane machine, without which nothing would be drained, and a worker.
async fn worker(spec: Value) -> (World, remuda_testkit::World, Running) {
    let (world, workload) = demo().await;
    let controllers = world.run();
    running(&world, &workload, "cp", json!({"cluster.x-k8s.io/control-plane": ""}), json!({})).await;
    running(&world, &workload, "m", json!({}), spec).await;
    (world, workload, controllers)
}

async fn create_pod(workload: &remuda_testkit::World, name: &str, labels: Value, annotations: Value) {
    let namespaces: Api<Namespace> = Api::all(workload.client());
    if namespaces.get_opt("web").await.unwrap().is_none() {
        let namespace =
            serde_json::from_value(json!({"metadata": {"name": "web", "labels": {"tier": "a"}}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(workload.client(), "web");
        let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
        accounts.create(&PostParams::default(), &account).await.unwrap();
    }
    let pods: Api<Pod> = Api::namespaced(workload.client(), "web");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"nodeName": "node-m", "containers": [{"name": "c", "image": "i"}]},
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let patch = Patch::Merge(json!({"status": {"phase": "Running", "conditions": ready}}));
    pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// A budget of so many disruptions for pods with `app: api`.
async fn allow(workload: &remuda_testkit::World, allowed: i32) {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(workload.client(), "web");
    if budgets.get_opt("api").await.unwrap().is_none() {
        let budget = json!({
            "metadata": {"name": "api"},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "api"}}},
        });
        budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    }
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2,
    }});
    budgets.patch_status("api", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn kill(workload: &remuda_testkit::World, name: &str) {
    let pods: Api<Pod> = Api::namespaced(workload.client(), "web");
    pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
}

async fn pod_is_told(workload: &remuda_testkit::World, name: &str) -> bool {
    let pods: Api<Pod> = Api::namespaced(workload.client(), "web");
    pods.get_opt(name).await.unwrap().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
}

/// A message without the time in it.
fn timeless(text: &str) -> String {
    let mut told = String::new();
    for line in text.lines() {
        let line = match line.split_once("(started at ") {
            Some((before, after)) => format!("{before}(started at T{}", &after[20..]),
            None => line.to_owned(),
        };
        told.push_str(&line);
        told.push('\n');
    }
    told.trim_end().to_owned()
}

async fn drains(world: &World, expected: &str) {
    let mut told = String::new();
    for _ in 0..5_000 {
        told = timeless(&condition(world, "m", "Deleting").await);
        if told == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(told, expected);
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_a_server_takes_its_objects_along() {
    let (world, _workload) = demo().await;
    let controllers = world.run();
    create_machine(&world, "m", json!({}), json!({})).await;
    in_phase(&world, "m", "Pending").await;
    delete(&world, "m").await;
    goes(&world, "m").await;
    assert!(world.fake("FakeMachine").get_opt("m").await.unwrap().is_none());
    assert!(world.fake("FakeConfig").get_opt("m").await.unwrap().is_none());
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn providers_go_one_after_the_other() {
    let (world, _workload) = demo().await;
    let controllers = world.run();
    create_machine(&world, "m", json!({}), json!({})).await;
    report_bootstrap(&world, "m").await;
    in_phase(&world, "m", "Provisioning").await;
    for kind in ["FakeMachine", "FakeConfig"] {
        hold(&world, kind, "m", true).await;
    }
    delete(&world, "m").await;
    let waiting = "True WaitingForInfrastructureDeletion Waiting for FakeMachine to be deleted";
    says(&world, "m", "Deleting", waiting).await;
    says(
        &world,
        "m",
        "Ready",
        "False NotReady * Deleting: Machine deletion in progress, stage: WaitingForInfrastructureDeletion\n\
         * InfrastructureReady: FakeMachine status.initialization.provisioned is false",
    )
    .await;
    assert_eq!(get(&world, "m").await.status.unwrap().phase, "Deleting");
    assert!(world.fake("FakeConfig").get("m").await.unwrap().metadata.deletion_timestamp.is_none());
    hold(&world, "FakeMachine", "m", false).await;
    says(&world, "m", "Deleting", "True WaitingForBootstrapDeletion Waiting for FakeConfig to be deleted")
        .await;
    says(&world, "m", "InfrastructureReady", "False ObjectDoesNotExist FakeMachine does not exist").await;
    settle(&world).await;
    hold(&world, "FakeConfig", "m", false).await;
    goes(&world, "m").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_node_goes_last() {
    let (world, workload, controllers) = worker(json!({})).await;
    hold(&world, "FakeMachine", "m", true).await;
    delete(&world, "m").await;
    let waiting = "True WaitingForInfrastructureDeletion Waiting for FakeMachine to be deleted";
    says(&world, "m", "Deleting", waiting).await;
    let node = Api::<Node>::all(workload.client()).get("node-m").await.unwrap();
    assert_eq!(node.spec.unwrap().unschedulable, Some(true));
    hold(&world, "FakeMachine", "m", false).await;
    goes(&world, "m").await;
    assert!(!node_exists(&workload, "m").await);
    assert!(node_exists(&workload, "cp").await);
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_respects_budgets_and_tells_about_each_pod() {
    let (world, workload, controllers) = worker(json!({})).await;
    create_pod(&workload, "api-0", json!({"app": "api"}), json!({})).await;
    create_pod(&workload, "batch", json!({"cluster.x-k8s.io/drain": "wait-completed"}), json!({})).await;
    create_pod(&workload, "left", json!({"cluster.x-k8s.io/drain": "skip"}), json!({})).await;
    create_pod(&workload, "static", json!({}), json!({"kubernetes.io/config.mirror": "x"})).await;
    allow(&workload, 0).await;
    delete(&world, "m").await;
    let budget = "Pod web/api-0: cannot evict pod as it would violate the pod's disruption budget. \
                  The disruption budget api needs 2 healthy pods and has 2 currently";
    let stuck = format!(
        "True DrainingNode Drain not completed yet (started at T):\n* {budget}\n* Pod web/batch: waiting for completion"
    );
    drains(&world, &stuck).await;
    says(
        &world,
        "m",
        "Ready",
        "False NotReady * Deleting: Machine deletion in progress, stage: DrainingNode",
    )
    .await;
    let blocked = "True BlockedByBudget PodDisruptionBudget web/api does not let Pod web/api-0 go";
    says(&world, "m", "DrainBlocked", blocked).await;
    let started = get(&world, "m").await.status.unwrap().deletion.unwrap().node_drain_start_time;
    assert!(started.is_some());
    // Nothing new is nothing to write.
    let before = world.writes().len();
    tokio::time::sleep(Duration::from_secs(100)).await;
    let written: Vec<String> = world.writes().split_off(before);
    assert!(written.iter().all(|line| !line.contains("machines")), "{written:?}");

    kill(&workload, "batch").await;
    allow(&workload, 1).await;
    until("the pod is evicted", async || pod_is_told(&workload, "api-0").await).await;
    let hook = json!({"pre-terminate.delete.hook.machine.cluster.x-k8s.io/look": ""});
    annotate(&world, "m", hook).await;
    let pods: Api<Pod> = Api::namespaced(workload.client(), "web");
    if pods.get_opt("api-0").await.unwrap().is_some() {
        kill(&workload, "api-0").await;
    }
    says(&world, "m", "DrainBlocked", "False NotBlocked").await;
    annotate(&world, "m", json!({"pre-terminate.delete.hook.machine.cluster.x-k8s.io/look": null})).await;
    goes(&world, "m").await;
    assert!(!pod_is_told(&workload, "left").await && !pod_is_told(&workload, "static").await);
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rules_order_a_drain_and_a_new_rule_is_heard_at_once() {
    let (world, workload, controllers) = worker(json!({})).await;
    create_pod(&workload, "first", json!({"app": "web"}), json!({})).await;
    create_pod(&workload, "second", json!({"app": "api"}), json!({})).await;
    create_pod(&workload, "third", json!({"app": "db"}), json!({})).await;
    allow(&workload, 0).await;
    let rules: Api<MachineDrainRule> = world.api();
    let rule = |name: &str, drain: Value, app: &str| -> MachineDrainRule {
        let pods = json!([{"selector": {"matchLabels": {"app": app}}, "namespaceSelector": {"matchLabels": {"tier": "a"}}}]);
        let spec = json!({"drain": drain, "machines": [{"clusterSelector": {}}], "pods": pods});
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec}))
            .unwrap()
    };
    let create = async |rule: MachineDrainRule| rules.create(&PostParams::default(), &rule).await.unwrap();
    create(rule("b", json!({"behavior": "Drain", "order": 5}), "web")).await;
    create(rule("c", json!({"behavior": "Skip"}), "db")).await;
    delete(&world, "m").await;
    let budget = "Pod web/second: cannot evict pod as it would violate the pod's disruption budget. \
                  The disruption budget api needs 2 healthy pods and has 2 currently";
    drains(
        &world,
        &format!(
            "True DrainingNode Drain not completed yet (started at T):\n* {budget}\n\
             After above Pods have been removed from the Node, the following Pods will be evicted: web/first"
        ),
    )
    .await;
    create(rule("a", json!({"behavior": "Skip"}), "api")).await;
    let asked = tokio::time::Instant::now();
    until("the pod is evicted", async || pod_is_told(&workload, "first").await).await;
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    assert!(!pod_is_told(&workload, "second").await && !pod_is_told(&workload, "third").await);
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_by_its_timeout_and_nothing_is_forced() {
    let (world, workload, controllers) = worker(json!({"deletion": {"nodeDrainTimeoutSeconds": 33}})).await;
    create_pod(&workload, "api-0", json!({"app": "api"}), json!({})).await;
    allow(&workload, 0).await;
    let asked = tokio::time::Instant::now();
    delete(&world, "m").await;
    goes(&world, "m").await;
    assert!((32..36).contains(&asked.elapsed().as_secs()), "{:?}", asked.elapsed());
    assert!(!pod_is_told(&workload, "api-0").await);
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn hooks_hold_their_stage_until_they_are_taken_off() {
    let (world, workload, controllers) = worker(json!({})).await;
    let (drain, terminate) = (
        "pre-drain.delete.hook.machine.cluster.x-k8s.io/a",
        "pre-terminate.delete.hook.machine.cluster.x-k8s.io/b",
    );
    annotate(&world, "m", json!({drain: "x", terminate: "y"})).await;
    delete(&world, "m").await;
    let waiting =
        format!("True WaitingForPreDrainHook Waiting for pre-drain hooks to succeed (hooks: {drain})");
    says(&world, "m", "Deleting", &waiting).await;
    settle(&world).await;
    let node = Api::<Node>::all(workload.client()).get("node-m").await.unwrap();
    assert_eq!(node.spec.unwrap().unschedulable, None);
    annotate(&world, "m", json!({drain: null})).await;
    let waiting = format!(
        "True WaitingForPreTerminateHook Waiting for pre-terminate hooks to succeed (hooks: {terminate})"
    );
    says(&world, "m", "Deleting", &waiting).await;
    let status = get(&world, "m").await.status.unwrap();
    let deletion = status.deletion.unwrap();
    assert!(deletion.wait_for_pre_drain_hook_start_time.is_some());
    assert!(deletion.wait_for_pre_terminate_hook_start_time.is_some());
    let old = status.deprecated.unwrap().v1beta1.unwrap().conditions;
    let told = |kind: &str| {
        let found = old.iter().find(|known| known.kind == kind);
        found.map(|found| format!("{} {}", found.status, found.reason)).unwrap_or_default()
    };
    assert_eq!(told("PreDrainDeleteHookSucceeded"), "True ");
    assert_eq!(told("DrainingSucceeded"), "True ");
    assert_eq!(told("VolumeDetachSucceeded"), "True ");
    assert_eq!(told("PreTerminateDeleteHookSucceeded"), "False WaitingExternalHook");
    assert!(world.fake("FakeMachine").get("m").await.unwrap().metadata.deletion_timestamp.is_none());
    annotate(&world, "m", json!({terminate: null})).await;
    goes(&world, "m").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_control_plane_machine_is_not_drained() {
    let (world, workload) = demo().await;
    let controllers = world.run();
    running(&world, &workload, "m", json!({"cluster.x-k8s.io/control-plane": ""}), json!({})).await;
    create_pod(&workload, "api-0", json!({"app": "api"}), json!({})).await;
    allow(&workload, 0).await;
    delete(&world, "m").await;
    goes(&world, "m").await;
    assert!(!pod_is_told(&workload, "api-0").await);
    assert!(node_exists(&workload, "m").await);
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn volumes_are_waited_for() {
    let (world, workload, controllers) = worker(json!({})).await;
    let nodes: Api<Node> = Api::all(workload.client());
    let attached = |volumes: Value| Patch::Merge(json!({"status": {"volumesAttached": volumes}}));
    let volumes =
        json!([{"name": "kubernetes.io/csi/d^h", "devicePath": ""}, {"name": "odd", "devicePath": ""}]);
    nodes.patch_status("node-m", &PatchParams::default(), &attached(volumes)).await.unwrap();
    let volume = json!({
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "d", "volumeHandle": "h"},
            "claimRef": {"namespace": "web", "name": "data", "kind": "PersistentVolumeClaim"},
        },
    });
    let all: Api<k8s_openapi::api::core::v1::PersistentVolume> = Api::all(workload.client());
    all.create(&PostParams::default(), &serde_json::from_value(volume).unwrap()).await.unwrap();
    delete(&world, "m").await;
    drains(
        &world,
        "True WaitingForVolumeDetach Waiting for Node volumes to be detached (started at T)\n\
         * PersistentVolumeClaims: web/data\n\
         * Node with .status.volumesAttached entries not matching a PersistentVolume: odd",
    )
    .await;
    nodes.patch_status("node-m", &PatchParams::default(), &attached(json!(null))).await.unwrap();
    goes(&world, "m").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_reached_is_given_up_by_its_timeout() {
    let (world, workload, controllers) = worker(json!({
        "deletion": {"nodeDrainTimeoutSeconds": 5, "nodeVolumeDetachTimeoutSeconds": 5, "nodeDeletionTimeoutSeconds": 40},
    }))
    .await;
    workload.down().await;
    let asked = tokio::time::Instant::now();
    delete(&world, "m").await;
    until("the drain names the trouble", async || {
        let told = condition(&world, "m", "Deleting").await;
        told.starts_with(
            "True DrainingNode Error draining Node: connection to the workload cluster is down: ",
        )
    })
    .await;
    until("the deletion of the node does, too", async || {
        let told = condition(&world, "m", "Deleting").await;
        told.starts_with(
            "True DeletingNode Error deleting Node: connection to the workload cluster is down: ",
        )
    })
    .await;
    goes(&world, "m").await;
    assert!((38..48).contains(&asked.elapsed().as_secs()), "{:?}", asked.elapsed());
    workload.up().await;
    assert!(node_exists(&workload, "m").await);
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_misses_a_definition_names_it_and_goes_on_when_it_is_there() {
    let (world, _workload) = demo().await;
    let controllers = world.run();
    world.create_fake("FakeConfig", "m", json!({})).await;
    let infrastructure = json!({"infrastructureRef": reference("FakeGone", "m")});
    create_machine_only(&world, "m", json!({}), infrastructure).await;
    in_phase(&world, "m", "Pending").await;
    delete(&world, "m").await;
    let why = "CRD fakegones.infrastructure.cluster.x-k8s.io for kind FakeGone in group infrastructure.cluster.x-k8s.io does not exist";
    says(&world, "m", "Deleting", &format!("True InternalError Failed to delete FakeGone: {why}")).await;
    says(&world, "m", "InfrastructureReady", &format!("Unknown InternalError {why}")).await;
    settle(&world).await;
    world.define(fake_crd("FakeGone")).await;
    goes(&world, "m").await;
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_goes_is_not_drained() {
    let (world, workload, controllers) = worker(json!({})).await;
    create_pod(&workload, "api-0", json!({"app": "api"}), json!({})).await;
    allow(&workload, 0).await;
    let hook = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/etcd";
    annotate(&world, "m", json!({hook: "x"})).await;
    world.api::<Cluster>().delete("c", &DeleteParams::default()).await.unwrap();
    let waiting =
        format!("True WaitingForPreTerminateHook Waiting for pre-terminate hooks to succeed (hooks: {hook})");
    says(&world, "m", "Deleting", &waiting).await;
    annotate(&world, "m", json!({hook: null})).await;
    goes(&world, "m").await;
    assert!(node_exists(&workload, "m").await && !pod_is_told(&workload, "api-0").await);
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn many_machines_of_one_cluster_take_turns() {
    let (world, workload, controllers) = worker(json!({})).await;
    let names: Vec<String> = (0..12).map(|number| format!("w{number}")).collect();
    let start = names.iter().map(|name| running(&world, &workload, name, json!({}), json!({})));
    futures::future::join_all(start).await;
    let asked = tokio::time::Instant::now();
    for name in &names {
        delete(&world, name).await;
    }
    for name in &names {
        goes(&world, name).await;
        assert!(!node_exists(&workload, name).await);
    }
    assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
    controllers.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_hangs_does_not_hold_up_the_machines_of_another() {
    let (world, workload, controllers) = worker(json!({})).await;
    let other = world.workloads.start("d").await;
    create_cluster(&world, "d").await;
    initialize_cluster(&world, "d").await;
    let start = (0..12).map(async |number| {
        let labels = if number == 0 { json!({"cluster.x-k8s.io/control-plane": ""}) } else { json!({}) };
        running(&world, &other, &format!("d{number}"), labels, json!({"clusterName": "d"})).await;
    });
    futures::future::join_all(start).await;
    other.hang(true);
    for number in 1..12 {
        delete(&world, &format!("d{number}")).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = tokio::time::Instant::now();
    delete(&world, "m").await;
    goes(&world, "m").await;
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert!(!node_exists(&workload, "m").await);
    assert!(!is_gone(&world, "d1").await);
    other.hang(false);
    goes(&world, "d1").await;
    controllers.stop().await;
}
