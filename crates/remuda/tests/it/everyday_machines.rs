//! What people do to machines, and to the cluster they try things with.

use std::{
    thread,
    time::{Duration, Instant},
};

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, PostParams},
};
use serde_json::json;

use crate::lab::{Lab, NEW};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn machines_are_cordoned_drained_restarted_and_deleted_by_command() {
    let Some(lab) = Lab::open(None) else { return };
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 1 --wait --timeout 120s"));
    let worker = lab.machines().into_iter().find(|name| name.contains("-workers-")).unwrap();
    assert!(lab.run(&format!("machine cordon {worker}")).contains("takes no new pods"));
    assert!(lab.run(&format!("machine cordon {worker}")).contains("already"));
    assert!(lab.run(&format!("machine uncordon {worker}")).contains("takes pods again"));
    assert!(lab.run(&format!("machine drain {worker} --timeout 60s")).contains("is drained"));
    assert!(lab.run(&format!("machine uncordon {worker}")).contains("takes pods again"));

    // One that does not run is started.
    let sandbox = lab.sandbox();
    sandbox.stop(&sandbox.find(&worker).unwrap().id).unwrap();
    assert!(lab.run(&format!("machine restart {worker}")).contains("restarts"));
    lab.until("its node is back", Duration::from_secs(60), || {
        lab.say("why demo").0 == 0 && lab.nodes("demo").iter().all(|(_, _, ready)| *ready)
    });

    let (code, text) = lab.say(&format!("machine delete {worker}"));
    assert_eq!(code, 2, "{text}");
    assert!(text.contains(&format!("this deletes machine {worker} of cluster demo")), "{text}");
    let text = lab.run(&format!("machine delete {worker} --yes --wait --timeout 120s"));
    assert!(text.contains("pool workers makes another"), "{text}");
    assert!(!lab.machines().contains(&worker));
    assert_eq!(lab.say("machine cordon none-such").0, 3);
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.check_nothing_left();
}

#[test]
fn a_cluster_made_changed_and_deleted_leaves_no_warning_in_the_log() {
    let Some(lab) = Lab::open(None) else { return };
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 1 --wait --timeout 120s"));
    lab.run("cluster scale demo workers=2 --wait --timeout 120s");
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.check_nothing_left();
    let log = lab.server.as_ref().unwrap().log();
    let told: Vec<&str> =
        log.lines().filter(|line| line.contains(" WARN ") || line.contains("ERROR")).collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
}

#[test]
fn up_says_what_it_leaves_and_down_what_it_takes() {
    let Some(mut lab) = Lab::open(None) else { return };
    lab.kill_server();
    let data = lab.data();
    let elsewhere = lab.place.join("elsewhere");
    let mut up = lab.command(&["up", "--servers", "0", "--data-dir"]);
    let output = up.arg(&elsewhere).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!elsewhere.exists(), "nothing was made");

    let up = |more: &[&str]| {
        let mut up = lab.command(&["up", "--bind", &lab.bind, "--exit-when-ready", "--timeout", "120"]);
        let output = up.args(more).arg("--data-dir").arg(&data).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{text}");
        text
    };
    let text = up(&["--workers", "1"]);
    assert!(text.contains("sandbox distribution") && text.contains("no containers"), "{text}");
    let text = up(&["--workers", "3"]);
    assert!(text.contains("not changed: pool workers from 1 to 3"), "{text}");
    assert!(text.contains("remuda cluster scale demo workers=3"), "{text}");
    assert!(!up(&[]).contains("not changed"));
    let (code, text) = lab.say("down");
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("cluster demo with 2 machines and all data of the server on"), "{text}");
    let (code, text) = lab.say("down --yes");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("1 cluster deleted"), "{text}");
    assert!(!data.exists());
}

#[test]
fn draining_set_later_reaches_machines_and_a_budget_in_its_way_is_named_at_once() {
    let Some(lab) = Lab::open(None) else { return };
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 1 --wait --timeout 120s"));
    let machines = || lab.objects("cluster.x-k8s.io", "v1beta2", "Machine");
    let drains = |machine: &DynamicObject| {
        let excluded = machine.annotations().contains_key("machine.cluster.x-k8s.io/exclude-node-draining");
        (!excluded).then(|| machine.data["spec"]["deletion"]["nodeDrainTimeoutSeconds"].clone())
    };
    // New clusters are drained, with a limit.
    let names = lab.machines();
    assert_eq!(machines().iter().map(drains).collect::<Vec<_>>(), [Some(json!(600)), Some(json!(600))]);
    lab.change_pool(
        "demo",
        "workers",
        &json!({"drainBeforeDelete": false, "drainBeforeDeleteTimeout": null}),
    );
    let worker = || machines().into_iter().find(|machine| machine.name_any().contains("-workers-")).unwrap();
    lab.until("the machine is told not to be drained", MINUTE, || drains(&worker()).is_none());
    lab.change_pool("demo", "workers", &json!({"drainBeforeDelete": true}));
    lab.until("the machine is told to be drained", MINUTE, || drains(&worker()) == Some(json!(600)));
    assert_eq!(lab.machines(), names, "no machine was replaced for it");

    let name = worker().name_any();
    let node = worker().data["status"]["nodeRef"]["name"].clone();
    let pods: Api<Pod> = Api::namespaced(lab.workload("demo"), "default");
    let pod = json!({"metadata": {"name": "db-0", "labels": {"app": "db"}}, "spec": {
        "nodeName": node, "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "db", "image": "db", "command": ["sleep", "3600"]}],
    }});
    lab.runtime.block_on(pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())).unwrap();
    lab.until("the pod runs", MINUTE, || {
        let pod = lab.runtime.block_on(pods.get("db-0")).unwrap();
        pod.status.and_then(|status| status.phase).as_deref() == Some("Running")
    });
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(lab.workload("demo"), "default");
    let budget = json!({"metadata": {"name": "db"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}});
    let budget = serde_json::from_value(budget).unwrap();
    lab.runtime.block_on(budgets.create(&PostParams::default(), &budget)).unwrap();

    lab.run(&format!("machine delete {name} --yes"));
    let began = Instant::now();
    let said = loop {
        let said = lab.say(&format!("why {name}"));
        if said.1.contains("PodDisruptionBudget") {
            break said;
        }
        assert!(began.elapsed() < MINUTE, "{}", said.1);
        thread::sleep(Duration::from_millis(200));
    };
    // Blocked: somebody has to act.
    assert_eq!(said.0, 11, "{}", said.1);
    let cause = "PodDisruptionBudget default/db does not let Pod default/db-0 go";
    assert!(said.1.contains(&format!("cannot be drained: {cause}")), "{}", said.1);
    assert!(said.1.contains("10m at most"), "{}", said.1);
    lab.runtime.block_on(budgets.delete("db", &DeleteParams::default())).unwrap();
    lab.until("the machine goes", 2 * MINUTE, || !lab.machines().contains(&name));
    lab.run("cluster delete --yes demo --wait --timeout 60s");
    lab.check_nothing_left();
}
