//! What a cluster must hold while it is changed, scaled, broken and deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
    time::{Duration, Instant},
};

use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        core::v1::{Node, Secret},
    },
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    client::client_with,
    lab::{Lab, NEW, OLD, belongs, versions},
};

const MINUTE: Duration = Duration::from_secs(60);

impl Lab {
    /// The processes of agents and of the distribution in all machines.
    fn daemons(&self) -> BTreeSet<i32> {
        let data = self.data().display().to_string();
        let mut found = BTreeSet::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            let ours = ["k3s server", "k3s agent", "rancher-system-agent sentinel"];
            if ours.iter().any(|words| line.contains(words)) && belongs(pid, &data) {
                found.insert(pid);
            }
        }
        found
    }

    fn settled(&self, cluster: &str) -> bool {
        self.say(&format!("why {cluster}")).0 == 0
    }

    #[track_caller]
    fn until_settled(&self, cluster: &str) {
        self.until("the cluster is settled", 2 * MINUTE, || self.settled(cluster));
    }

    fn delete_machine(&self, name: &str) {
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
        let machines: Api<DynamicObject> = Api::namespaced_with(self.client(), "fleet-default", &resource);
        self.runtime.block_on(machines.delete(name, &Default::default())).unwrap();
    }

    /// Pools of the cluster with something merged into those of a name.
    pub(crate) fn change_pool(&self, cluster: &str, pool: &str, change: &Value) {
        let clusters = self.objects("provisioning.cattle.io", "v1", "Cluster");
        let found = clusters.iter().find(|object| object.name_any() == cluster).unwrap();
        let mut pools = found.data["spec"]["rkeConfig"]["machinePools"].clone();
        for one in pools.as_array_mut().unwrap().iter_mut().filter(|one| one["name"] == pool) {
            let fields = change.as_object().unwrap().clone();
            one.as_object_mut().unwrap().extend(fields);
        }
        self.change(cluster, &json!({"spec": {"rkeConfig": {"machinePools": pools}}}));
    }

    pub(crate) fn workload(&self, cluster: &str) -> kube::Client {
        let path = self.place.join("workload.kubeconfig");
        std::fs::write(&path, self.run(&format!("get kubeconfig {cluster}"))).unwrap();
        self.runtime.block_on(client_with(&path, |_| {}))
    }
}

/// What was seen while a change went through a cluster.
#[derive(Debug, Default)]
struct Watched {
    /// Most workers that were cordoned, or had no plan they had applied, at once.
    most: usize,
    drained: BTreeSet<String>,
}

/// Looks at the workers until the cluster is settled with a change that has reached all plans.
fn watch_workers(lab: &Lab, cluster: &str, reached: impl Fn(&str) -> bool) -> Watched {
    let nodes: Api<Node> = Api::all(lab.workload(cluster));
    let secrets: Api<Secret> = Api::namespaced(lab.client(), "fleet-default");
    let only = ListParams::default().fields("type=rke.cattle.io/machine-plan");
    let mut watched = Watched::default();
    let began = Instant::now();
    loop {
        let workers: Vec<_> = lab
            .runtime
            .block_on(secrets.list(&only))
            .unwrap()
            .items
            .into_iter()
            .filter(|secret| {
                secret.labels().get("rke.cattle.io/worker-role").is_some_and(|role| role == "true")
            })
            .collect();
        let text = |secret: &Secret, key: &str| {
            let value = secret.data.as_ref().and_then(|data| data.get(key));
            value.map(|value| String::from_utf8_lossy(&value.0).into_owned()).unwrap_or_default()
        };
        let busy = workers.iter().filter(|secret| {
            text(secret, "plan") != text(secret, "appliedPlan")
                || secret.annotations().contains_key("rke.cattle.io/drain-options")
        });
        watched.most = watched.most.max(busy.count());
        // The cluster is out of reach while its server restarts.
        if let Ok(list) = lab.runtime.block_on(nodes.list(&ListParams::default())) {
            let cordoned = list
                .items
                .iter()
                .filter(|node| node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true));
            watched.drained.extend(cordoned.map(ResourceExt::name_any));
        }
        let all = workers.iter().all(|secret| {
            reached(&text(secret, "plan")) && text(secret, "plan") == text(secret, "appliedPlan")
        });
        if all && lab.settled(cluster) {
            return watched;
        }
        assert!(began.elapsed() < 2 * MINUTE, "{watched:?}\n{}", lab.evidence());
        thread::sleep(Duration::from_millis(20));
    }
}

/// Workers are changed one at a time, and emptied first.
fn careful() -> Value {
    json!({"spec": {"rkeConfig": {"upgradeStrategy": {
        "controlPlaneConcurrency": "1", "workerConcurrency": "1",
        "workerDrainOptions": {
            "enabled": true, "force": true, "ignoreDaemonSets": true, "deleteEmptyDirData": true, "timeout": 60,
        },
    }}}})
}

#[test]
fn a_cluster_is_changed_in_place_scaled_broken_and_mended() {
    let Some(mut lab) = Lab::open(None) else { return };
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 2"));
    lab.change("demo", &careful());
    lab.until_settled("demo");
    let machines = lab.machines();
    let deployments: Api<Deployment> = Api::namespaced(lab.workload("demo"), "default");
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "guest"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "guest"}}, "template": {
            "metadata": {"labels": {"app": "guest"}},
            "spec": {"terminationGracePeriodSeconds": 1,
                     "containers": [{"name": "guest", "image": "guest", "command": ["sleep", "3600"]}]},
        }},
    }))
    .unwrap();
    lab.runtime.block_on(deployments.create(&PostParams::default(), &deployment)).unwrap();

    // A setting reaches one worker after the other, each of them drained.
    lab.change(
        "demo",
        &json!({"spec": {"rkeConfig": {"machineGlobalConfig": {"kubelet-arg": ["max-pods=77"]}}}}),
    );
    let watched = watch_workers(&lab, "demo", |plan| plan_contains(plan, "max-pods=77"));
    assert_eq!(watched.most, 1, "{watched:?}");
    assert_eq!(watched.drained.len(), 2, "{watched:?}");
    let cordoned = |lab: &Lab| {
        let nodes: Api<Node> = Api::all(lab.workload("demo"));
        let list = lab.runtime.block_on(nodes.list(&ListParams::default())).unwrap();
        list.items.iter().filter(|node| node.spec.as_ref().unwrap().unschedulable == Some(true)).count()
    };
    lab.until("all take pods again", MINUTE, || cordoned(&lab) == 0);

    // Another generation restarts everything, and changes nothing else.
    let before = lab.daemons();
    lab.change("demo", &json!({"spec": {"rkeConfig": {"provisionGeneration": 1}}}));
    lab.until("all nodes were restarted", 2 * MINUTE, || {
        let now = lab.daemons();
        // Three agents stay, three nodes are others.
        now.len() == before.len() && now.intersection(&before).count() == 3
    });
    lab.until_settled("demo");

    // Labels and taints are of Nodes, not of servers.
    lab.change_pool(
        "demo",
        "workers",
        &json!({"labels": {"rack": "r7"}, "taints": [{"key": "slow", "value": "yes", "effect": "PreferNoSchedule"}]}),
    );
    lab.until("nodes have the label and the taint", 2 * MINUTE, || {
        let nodes: Api<Node> = Api::all(lab.workload("demo"));
        let Ok(list) = lab.runtime.block_on(nodes.list(&ListParams::default())) else { return false };
        let marked = list.items.iter().filter(|node| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).into_iter().flatten();
            node.labels().get("rack").is_some_and(|rack| rack == "r7")
                && taints.into_iter().any(|taint| taint.key == "slow")
        });
        marked.count() == 2
    });
    lab.until_settled("demo");
    assert_eq!(lab.machines(), machines, "nothing was replaced");

    // A plan that fails on the first machine is not tried on the others.
    let before: BTreeMap<_, _> = lab.plans().into_iter().collect();
    let wrong = json!([{"fileSources": [{"secret": {"name": "odd-file", "items": [
        {"key": "text", "path": "/usr/local/bin/k3s/not-a-directory"},
    ]}}]}]);
    lab.make_secret("demo", "odd-file", &json!({"text": "x"}));
    lab.change("demo", &json!({"spec": {"rkeConfig": {"machineSelectorFiles": wrong}}}));
    lab.until_why("demo", 11, &["the plan of machine demo-servers", "/usr/local/bin/k3s"]);
    let touched: Vec<String> = lab
        .plans()
        .into_iter()
        .filter(|(name, plan)| before.get(name) != Some(plan))
        .map(|(name, _)| name)
        .collect();
    assert!(touched.len() == 1 && touched[0].contains("servers"), "{touched:?}");
    lab.change("demo", &json!({"spec": {"rkeConfig": {"machineSelectorFiles": null}}}));
    lab.until_settled("demo");

    // More, fewer, another.
    lab.run("cluster scale demo workers=3 --wait --timeout 60s");
    assert_eq!(versions(&lab.nodes("demo")), [NEW; 4]);
    lab.run("cluster scale demo workers=2 --wait --timeout 60s");
    assert_eq!(lab.nodes("demo").len(), 3);
    let gone = lab.machines().into_iter().find(|name| name.contains("workers")).unwrap();
    lab.delete_machine(&gone);
    lab.until("another is in its place", 2 * MINUTE, || {
        let machines = lab.machines();
        machines.len() == 3 && !machines.contains(&gone) && lab.settled("demo")
    });
    assert_eq!(lab.nodes("demo").len(), 3);

    // A settled server that is started again has nothing to say to anybody.
    let (plans, daemons) = (lab.plans(), lab.daemons());
    lab.kill_server();
    lab.start();
    lab.until("the cluster is reached again", MINUTE, || {
        lab.settled("demo") && lab.say("get kubeconfig demo").0 == 0
    });
    thread::sleep(Duration::from_secs(3));
    assert_eq!(lab.plans(), plans);
    assert_eq!(lab.daemons(), daemons);

    // Deleted while nobody was there to do it.
    lab.run("cluster delete --yes demo");
    lab.kill_server();
    lab.start();
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.until("the cluster is gone", MINUTE, || {
        lab.objects("provisioning.cattle.io", "v1", "Cluster").is_empty()
    });
    lab.check_nothing_left();
}

/// Files are in a plan as base64.
fn plan_contains(plan: &str, words: &str) -> bool {
    let Ok(plan) = serde_json::from_str::<Value>(plan) else { return false };
    let files = plan["files"].as_array().cloned().unwrap_or_default();
    let contents = files.iter().filter_map(|file| serde_json::from_value(file["content"].clone()).ok());
    contents.into_iter().any(|content: ByteString| String::from_utf8_lossy(&content.0).contains(words))
}

#[test]
fn a_cluster_can_be_deleted_at_any_moment_of_its_making() {
    let Some(mut lab) = Lab::open(None) else { return };
    for (round, pause) in [0, 300, 900, 2000, 4000].into_iter().enumerate() {
        lab.run(&format!("cluster create brief --version {OLD} --servers 1 --workers 1"));
        thread::sleep(Duration::from_millis(pause));
        if round % 2 == 1 {
            lab.run("cluster delete --yes brief");
            lab.kill_server();
            lab.start();
        }
        lab.run("cluster delete --yes brief --wait --timeout 60s");
        lab.until("the cluster is gone", MINUTE, || {
            lab.objects("provisioning.cattle.io", "v1", "Cluster").is_empty()
        });
        lab.check_nothing_left();
    }
}

#[test]
fn rke2_has_its_own_places_and_comes_to_be_as_well() {
    const VERSION: &str = "v1.35.1+rke2r1";
    // Names of machines are longer by two parts, and are in paths several times.
    const NAME: &str = "a-cluster-with-a-rather-long-name";
    let Some(lab) = Lab::open(None) else { return };
    lab.run(&format!(
        "cluster create {NAME} --version {VERSION} --servers 1 --workers 1 --wait --timeout 120s"
    ));
    assert_eq!(versions(&lab.nodes(NAME)), [VERSION; 2]);
    let server = lab.machines().into_iter().find(|name| name.contains("servers")).unwrap();
    let look = "test -f /etc/rancher/rke2/config.yaml.d/50-rancher.yaml && test -f /etc/rancher/rke2/rke2.yaml && \
                systemctl is-active rke2-server";
    let (code, text) = lab.say_to(&format!("machine shell {server}"), &["sh", "-c", look]);
    assert!(code == 0 && text.contains("active"), "{code} {text}");
    let probes = lab.objects("rke.cattle.io", "v1", "RKEControlPlane");
    assert_eq!(probes[0].data["status"]["initialization"]["controlPlaneInitialized"], true);
    lab.run(&format!("cluster delete --yes {NAME} --wait --timeout 60s"));
    lab.check_nothing_left();
}
