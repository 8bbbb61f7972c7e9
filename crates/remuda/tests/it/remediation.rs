//! Machines that fall ill are restarted and rebooted before they are replaced: the service by the agent, the server by
//! its driver.

use std::time::Duration;

use serde_json::{Value, json};

use crate::lab::{Lab, NEW};

const MINUTE: Duration = Duration::from_secs(60);

fn annotation(lab: &Lab, machine: &str, key: &str) -> Option<String> {
    let machines = lab.objects("cluster.x-k8s.io", "v1beta2", "Machine");
    let found = machines.iter().find(|found| found.metadata.name.as_deref() == Some(machine))?;
    found.metadata.annotations.as_ref()?.get(key).cloned()
}

fn is_ready(lab: &Lab, node: &str) -> bool {
    let (code, _) = lab.say("why demo");
    code == 0 && lab.nodes("demo").iter().any(|(name, _, ready)| name == node && *ready)
}

#[test]
fn an_ill_machine_is_restarted_then_rebooted_and_stays() {
    let Some(lab) = Lab::open(None) else { return };
    lab.run(&format!("cluster create demo --version {NEW} --servers 1 --workers 1 --wait --timeout 120s"));
    let steps: Value = json!({
        "unhealthyNodeTimeout": "5s",
        "machineDeploymentAnnotations": {"remuda.io/remediation-steps": "restart-service=1m,reboot=5m"},
    });
    lab.change_pool("demo", "workers", &steps);
    let before = lab.machines();
    let worker = before.iter().find(|name| name.contains("-workers-")).unwrap().clone();

    // Its kubelet stops; the agent is still there.
    let (code, text) = lab.say_to(&format!("machine shell {worker}"), &["systemctl", "stop", "k3s-agent"]);
    assert_eq!(code, 0, "{text}");
    lab.until("a restart is asked for", 3 * MINUTE, || {
        annotation(&lab, &worker, "remuda.io/restart-requested").is_some()
    });
    lab.until("the node is ready again", 2 * MINUTE, || is_ready(&lab, &worker));
    assert_eq!(lab.machines(), before, "nothing was replaced");
    assert_eq!(annotation(&lab, &worker, "remuda.io/reboot-requested"), None);

    // All of it stops: no agent can help, and the restart was tried a moment ago.
    let sandbox = lab.sandbox();
    let machine = sandbox.find(&worker).unwrap();
    let first = machine.pid;
    sandbox.kill(&machine.id).unwrap();
    lab.until("a reboot is asked for", 4 * MINUTE, || {
        annotation(&lab, &worker, "remuda.io/reboot-requested").is_some()
    });
    lab.until("the node is ready again", 3 * MINUTE, || is_ready(&lab, &worker));
    assert_eq!(lab.machines(), before, "nothing was replaced");
    let again = sandbox.find(&worker).unwrap().pid;
    assert!(again.is_some() && again != first, "{again:?}");
    lab.until("what the reboot needed is gone", MINUTE, || lab.objects("batch", "v1", "Job").is_empty());

    lab.run("cluster delete --yes demo --wait --timeout 120s");
    lab.check_nothing_left();
}
