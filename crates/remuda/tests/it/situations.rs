//! One table: what happens to clusters and machines, and what `why` answers first.
//!
//! Each line is a situation that was made on machines of this host. The cause is a word for scripts, and somebody who
//! is told what is wrong is told what to do next.

use std::{process::Command, thread, time::Duration};

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    harness::skipped,
    lab::{Lab, NEW},
};

/// After the grace an agent has to come back, on a busy host.
const NOTICED: Duration = Duration::from_secs(120);

struct Table<'a> {
    lab: &'a Lab,
    lines: Vec<String>,
}

impl Table<'_> {
    fn why(&self, subject: &str) -> Value {
        let (_, text) = self.lab.say(&format!("why {subject} -o json"));
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// Waits until `why` gives this cause, and notes the answer.
    #[track_caller]
    fn expect(&mut self, situation: &str, subject: &str, cause: &str) -> Value {
        let began = std::time::Instant::now();
        let said = loop {
            let said = self.why(subject);
            if said["cause"] == cause {
                break said;
            }
            assert!(began.elapsed() < NOTICED, "{situation}: {said:#}\n{}", self.lab.evidence());
            thread::sleep(Duration::from_millis(300));
        };
        let next = said["next"][0].as_str();
        assert!(next.is_some_and(|next| !next.is_empty()), "{situation}: nothing to do next: {said:#}");
        self.lines
            .push(format!("{situation:34} → {cause}: {}", said["summary"].as_str().unwrap_or_default()));
        said
    }
}

/// A process and all below it.
fn signal_tree(root: Pid, signal: Signal) {
    let _ = kill(root, signal);
    let tasks = std::fs::read_dir(format!("/proc/{root}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            signal_tree(Pid::from_raw(child), signal);
        }
    }
}

fn patch_machine(lab: &Lab, name: &str, patch: &Value) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "Machine"));
    let api: Api<DynamicObject> = Api::namespaced_with(lab.client(), "fleet-default", &resource);
    lab.runtime.block_on(api.patch(name, &PatchParams::default(), &Patch::Merge(patch))).unwrap();
}

#[test]
fn why_has_an_answer_and_a_next_step_for_what_happens_every_day() {
    let Some(lab) = Lab::open(None) else { return };
    let mut table = Table { lab: &lab, lines: Vec::new() };
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 2"));
    lab.run(&format!("cluster create edge --custom --version {NEW}"));
    lab.run("cluster create odd --version v1.35.99+k3s1 --servers 1 --workers 0");

    // Servers that come, or do not.
    table.expect("no server registered", "edge", "roles-missing");
    let (code, text) = lab.say("cluster registration-command edge --role worker --taint a_b=c:Never");
    assert_ne!(code, 0, "a taint that is none is refused where it is written: {text}");
    match Command::new("curl").arg("--version").output() {
        Ok(_) => {
            let refused = Command::new("curl")
                .args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H", "Authorization: Bearer wrong"])
                .args(["-H", "X-Cattle-Id: m1", "-H", "X-Cattle-Role-Worker: true"])
                .arg(format!("https://{}/v3/connect/agent", lab.bind))
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&refused.stdout), "401");
            let said = table.expect("wrong registration token", "edge", "registration-refused");
            assert!(said["evidence"].to_string().contains("token is not known"), "{said:#}");
        }
        Err(_) => skipped("there is no curl: a server with a wrong token"),
    }
    let said = table.expect("version that does not exist", "odd", "plan-failed");
    let next = said["next"][0].as_str().unwrap();
    assert!(next.starts_with("v1.35.99+k3s1 is no release"), "{said:#}");

    // Machines that ran.
    lab.until("the cluster is ready", Duration::from_secs(180), || lab.say("why demo").0 == 0);
    let workers: Vec<String> =
        lab.machines().into_iter().filter(|name| name.starts_with("demo-workers-")).collect();
    let [stopped, killed] = workers.as_slice() else { panic!("{workers:?}") };
    let (code, text) =
        lab.say_to(&format!("machine shell {stopped}"), &["systemctl", "stop", "rancher-system-agent"]);
    assert_eq!(code, 0, "{text}");
    table.expect("stopped agent", stopped, "agent-silent");
    let sandbox = lab.sandbox();
    let machine = sandbox.find(killed).unwrap();
    let frozen = Pid::from_raw(machine.pid.unwrap());
    signal_tree(frozen, Signal::SIGSTOP);
    // Its connections stay, so only its kubelet is missed.
    table.expect("frozen machine", killed, "node-unhealthy");
    signal_tree(frozen, Signal::SIGCONT);
    sandbox.kill(&machine.id).unwrap();
    let said = table.expect("killed machine", killed, "machine-off");
    assert!(said["next"][0].as_str().unwrap().contains("machine restart"), "{said:#}");

    // What does not go.
    patch_machine(
        &lab,
        killed,
        &json!({"metadata": {"finalizers": ["machine.cluster.x-k8s.io", "example.org/backup"]}}),
    );
    lab.run(&format!("machine delete {killed} --yes"));
    let said = table.expect("foreign finalizer", killed, "removal-held");
    assert!(said["summary"].as_str().unwrap().contains("example.org/backup"), "{said:#}");
    patch_machine(&lab, killed, &json!({"metadata": {"finalizers": null}}));
    lab.until("it is gone", Duration::from_secs(60), || !lab.machines().contains(killed));

    let node = lab.nodes("demo").into_iter().map(|(name, ..)| name).find(|name| name == stopped).unwrap();
    let pods: Api<Pod> = Api::namespaced(lab.workload("demo"), "default");
    let pod = json!({"metadata": {"name": "db-0", "labels": {"app": "db"}}, "spec": {
        "nodeName": node, "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "db", "image": "db", "command": ["sleep", "3600"]}],
    }});
    lab.runtime.block_on(pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap())).unwrap();
    lab.until("the pod runs", Duration::from_secs(60), || {
        let pod = lab.runtime.block_on(pods.get("db-0")).unwrap();
        pod.status.and_then(|status| status.phase).as_deref() == Some("Running")
    });
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(lab.workload("demo"), "default");
    let budget = json!({"metadata": {"name": "db"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}}});
    let budget = serde_json::from_value(budget).unwrap();
    lab.runtime.block_on(budgets.create(&PostParams::default(), &budget)).unwrap();
    lab.run(&format!("machine delete {stopped} --yes"));
    table.expect("PodDisruptionBudget", stopped, "drain-blocked");
    lab.runtime.block_on(budgets.delete("db", &DeleteParams::default())).unwrap();

    // Roles that nobody has: admission lets them be, since pools may follow.
    lab.run(&format!("cluster create split --version {NEW} --servers 1 --workers 0"));
    lab.change_pool("split", "servers", &json!({"workerRole": false}));
    table.expect("split roles, none for workers", "split", "roles-missing");

    for line in &table.lines {
        eprintln!("{line}");
    }
    for name in ["demo", "edge", "odd", "split"] {
        lab.run(&format!("cluster delete --yes {name} --wait --timeout 120s"));
    }
    lab.check_nothing_left();
}
