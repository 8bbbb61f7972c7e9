//! MachineHealthChecks find Machines that are not well, and only those.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use remuda_api::core::{Cluster, Machine, MachineHealthCheck, MachineSet};
use remuda_control::clock::Clock;
use serde_json::{Value, json};

use crate::{
    fleet::{CLUSTER, Fleet, condition, create, events, merge, node, with_kind},
    world::until,
};

/// A Cluster whose control plane answers, with a set of three Machines that are well.
struct Ward {
    fleet: Fleet,
    workload: remuda_testkit::World,
}

impl Ward {
    async fn open() -> Self {
        let mut fleet = Fleet::new().await;
        let workload = fleet.world.workloads.start(CLUSTER).await;
        fleet.play(|play| play.workload = Some(workload.clone()));
        let since = |kind: &str| {
            json!({
                "type": kind, "status": "True", "reason": "Told", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let status = json!({"status": {
            "initialization": {"infrastructureProvisioned": true, "controlPlaneInitialized": true},
            "conditions": [since("ControlPlaneInitialized"), since("InfrastructureReady")],
        }});
        let clusters = fleet.world.api::<Cluster>();
        clusters.patch_status(CLUSTER, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        fleet.run();
        fleet.create_set("web", 3, json!({})).await;
        until("machines run", async || {
            let machines = fleet.machines().await;
            machines.len() == 3
                && machines.iter().all(|machine| condition(machine, "Ready").starts_with("True"))
        })
        .await;
        Self { fleet, workload }
    }

    async fn check(&self, more: Value) -> MachineHealthCheck {
        let mut check = with_kind(
            json!({"metadata": {"name": "check"}, "spec": {
                "clusterName": CLUSTER,
                "selector": {"matchLabels": {"pool": "web"}},
                "checks": {
                    "nodeStartupTimeoutSeconds": 600,
                    "unhealthyNodeConditions": [{"type": "Ready", "status": "False", "timeoutSeconds": 300}],
                },
            }}),
            "MachineHealthCheck",
        );
        merge(&mut check, more);
        create(&self.fleet.world, check).await
    }

    async fn get(&self) -> MachineHealthCheck {
        self.fleet.world.api::<MachineHealthCheck>().get("check").await.unwrap()
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.workload.client())
    }

    fn now(&self) -> Timestamp {
        self.fleet.world.clock.now()
    }

    /// The Node of a Machine is not ready from now on.
    async fn fall_ill(&self, machine: &str) {
        let name = format!("node-{machine}");
        let status = json!({"status": node(&name, "False", self.now()).status});
        self.nodes().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    async fn recover(&self, machine: &str) {
        let name = format!("node-{machine}");
        let status = json!({"status": node(&name, "True", self.now()).status});
        self.nodes().patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    async fn says(&self, machine: &str, kind: &str) -> String {
        let machine = self.fleet.world.api::<Machine>().get_opt(machine).await.unwrap();
        machine.map_or("gone".to_owned(), |machine| condition(&machine, kind))
    }

    async fn all_well(&self) {
        until("all are judged well", async || {
            let machines = self.fleet.machines().await;
            machines.len() == 3
                && machines
                    .iter()
                    .all(|machine| condition(machine, "HealthCheckSucceeded") == "True HealthCheckSucceeded")
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_node_is_not_ready_for_too_long_is_replaced() {
    let ward = Ward::open().await;
    ward.check(json!({})).await;
    ward.all_well().await;
    ward.fleet.settle().await;
    let check = ward.get().await;
    let status = check.status.clone().unwrap();
    assert_eq!(
        (status.expected_machines, status.current_healthy, status.remediations_allowed),
        (Some(3), Some(3), Some(3))
    );
    assert_eq!(status.targets, ward.fleet.machine_names().await);
    assert_eq!(condition(&check, "RemediationAllowed"), "True RemediationAllowed");
    assert_eq!(check.owner_references()[0].kind, "Cluster");

    let sick = ward.fleet.machine_names().await.remove(0);
    let began = ward.now();
    ward.fall_ill(&sick).await;
    until("it is counted out", async || ward.get().await.status.unwrap().current_healthy == Some(2)).await;
    tokio::time::sleep(Duration::from_secs(290)).await;
    assert_eq!(
        ward.says(&sick, "HealthCheckSucceeded").await,
        "True HealthCheckSucceeded",
        "it has time left"
    );
    until("it is replaced", async || ward.says(&sick, "Ready").await == "gone").await;
    let took = ward.now().duration_since(began);
    assert!(took < SignedDuration::from_secs(303), "{took}");
    ward.all_well().await;
    let told = events(&ward.fleet.world, "Machine").await;
    let marked = format!(
        "MachineMarkedUnhealthy Machine default/{sick} has been marked as unhealthy by default/check"
    );
    assert_eq!(told, [marked]);
    ward.fleet.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_or_never_comes_counts_as_unhealthy() {
    let ward = Ward::open().await;
    ward.check(json!({})).await;
    ward.all_well().await;
    ward.fleet.play(|play| play.no_deletion = true);
    let lost = ward.fleet.machine_names().await.remove(0);
    ward.nodes().delete(&format!("node-{lost}"), &DeleteParams::default()).await.unwrap();
    until("it is found out", async || {
        ward.says(&lost, "HealthCheckSucceeded").await
            == format!("False NodeDeleted Health check failed:\n  * Node node-{lost} has been deleted")
    })
    .await;
    until("its owner acts", async || {
        ward.says(&lost, "OwnerRemediated").await == "False MachineDeleting Machine is deleting"
    })
    .await;
    // The next one has no Node at all.
    ward.fleet.play(|play| {
        play.broken.push("small".to_owned());
        play.no_deletion = false;
    });
    until("it is gone", async || ward.says(&lost, "Ready").await == "gone").await;
    let slow = async || {
        let machines = ward.fleet.machines().await;
        machines.iter().find(|machine| {
            condition(machine, "HealthCheckSucceeded")
                == "False NodeStartupTimeout Health check failed:\n  * Node failed to report startup in 10m0s"
        }).is_some()
    };
    // Machines that were up before are known by their Nodes.
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert!(!slow().await);
    ward.fleet.play(|play| play.no_deletion = true);
    until("it is too late", slow).await;
}

#[tokio::test(start_paused = true)]
async fn too_many_at_once_are_nobodys_own_fault() {
    let ward = Ward::open().await;
    let limit = json!({"remediation": {"triggerIf": {"unhealthyLessThanOrEqualTo": "40%"}}});
    ward.check(json!({"spec": limit})).await;
    ward.all_well().await;
    let names = ward.fleet.machine_names().await;
    for name in &names[..2] {
        ward.fall_ill(name).await;
    }
    tokio::time::sleep(Duration::from_secs(310)).await;
    until("it is restricted", async || {
        condition(&ward.get().await, "RemediationAllowed")
            == "False TooManyUnhealthy Remediation is not allowed, the number of not started or unhealthy machines \
                exceeds maxUnhealthy (total: 3, unhealthy: 2, maxUnhealthy: 40%)"
    })
    .await;
    ward.fleet.settle().await;
    assert_eq!(ward.fleet.machine_names().await, names);
    for name in &names[..2] {
        assert!(ward.says(name, "HealthCheckSucceeded").await.starts_with("False UnhealthyNode"));
        assert_eq!(ward.says(name, "OwnerRemediated").await, "absent");
    }
    let told = events(&ward.fleet.world, "MachineHealthCheck").await;
    assert!(told.iter().any(|event| event.starts_with("RemediationRestricted")), "{told:?}");

    // One gets well by itself; one alone may be replaced.
    ward.recover(&names[0]).await;
    until("the other is replaced", async || ward.says(&names[1], "Ready").await == "gone").await;
    ward.all_well().await;
    assert!(ward.fleet.machine_names().await.contains(&names[0]));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_remediated_because_we_cannot_see() {
    let ward = Ward::open().await;
    // The server does not know that so much time passes, so new Machines seem old.
    ward.check(json!({"spec": {"checks": {"nodeStartupTimeoutSeconds": 0}}})).await;
    ward.all_well().await;
    let names = ward.fleet.machine_names().await;
    // What happens there meanwhile is not seen.
    ward.workload.down().await;
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(ward.fleet.machine_names().await, names);
    for name in &names {
        assert_eq!(ward.says(name, "HealthCheckSucceeded").await, "True HealthCheckSucceeded");
    }
    ward.workload.up().await;
    ward.fall_ill(&names[1]).await;
    tokio::time::sleep(Duration::from_secs(310)).await;
    until("it is seen again", async || ward.says(&names[1], "Ready").await == "gone").await;
    assert!(ward.fleet.machine_names().await.contains(&names[0]));
}

#[tokio::test(start_paused = true)]
async fn annotations_exempt_a_machine_or_single_it_out() {
    let ward = Ward::open().await;
    ward.check(json!({})).await;
    ward.all_well().await;
    let names = ward.fleet.machine_names().await;
    let annotate = |key: &str| json!({"metadata": {"annotations": {format!("cluster.x-k8s.io/{key}"): ""}}});
    ward.fleet.patch::<Machine>(&names[0], annotate("skip-remediation")).await;
    ward.fall_ill(&names[0]).await;
    until("it is no target", async || ward.get().await.status.unwrap().expected_machines == Some(2)).await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_ne!(ward.says(&names[0], "Ready").await, "gone");
    ward.fleet.play(|play| play.no_deletion = true);
    ward.fleet.patch::<Machine>(&names[1], annotate("remediate-machine")).await;
    until("it is told", async || {
        ward.says(&names[1], "HealthCheckSucceeded").await
            == "False HasRemediateAnnotation Health check failed: marked for remediation via \
                cluster.x-k8s.io/remediate-machine annotation"
    })
    .await;
    ward.fleet.play(|play| play.no_deletion = false);
    until("it is replaced", async || ward.says(&names[1], "Ready").await == "gone").await;
}

#[tokio::test(start_paused = true)]
async fn somebody_else_is_asked_to_remediate() {
    let ward = Ward::open().await;
    let template = json!({"apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "FakeRemediationTemplate", "name": "reboot"});
    ward.check(json!({"spec": {"remediation": {"templateRef": template}}})).await;
    ward.all_well().await;
    let names = ward.fleet.machine_names().await;
    for name in &names[..2] {
        ward.fall_ill(name).await;
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    until("the template is missed", async || {
        ward.says(&names[1], "ExternallyRemediated").await
            == "False RemediationTemplateNotFound Error retrieving remediation template FakeRemediationTemplate \
                default/reboot"
    })
    .await;
    let spec = json!({"template": {"spec": {"how": "softly"}}});
    ward.fleet.world.create_fake("FakeRemediationTemplate", "reboot", spec).await;
    let requests = ward.fleet.world.fake("FakeRemediation");
    until("both are asked for", async || {
        requests.list(&ListParams::default()).await.unwrap().items.len() == 2
    })
    .await;
    ward.fleet.settle().await;
    let request = requests.get(&names[0]).await.unwrap();
    assert_eq!(request.data["spec"], json!({"how": "softly"}));
    let owner = &request.owner_references()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str(), owner.controller),
        ("Machine", names[0].as_str(), None)
    );
    assert_eq!(ward.says(&names[0], "ExternallyRemediated").await, "False WaitingForRemediation");
    assert_eq!(ward.says(&names[0], "OwnerRemediated").await, "absent");
    assert_eq!(ward.fleet.machine_names().await, names);

    ward.recover(&names[0]).await;
    until("the request is withdrawn", async || {
        let left = requests.list(&ListParams::default()).await.unwrap().items;
        left.len() == 1 && left[0].name_any() == names[1]
    })
    .await;
    assert_eq!(ward.says(&names[0], "HealthCheckSucceeded").await, "True HealthCheckSucceeded");
    ward.fleet.settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_failed_is_kept_as_long_as_asked_and_another_takes_its_place() {
    let ward = Ward::open().await;
    let keep =
        json!({"metadata": {"annotations": {"remuda.io/preserve-failed": r#"{"max": 1, "for": "1h"}"#}}});
    ward.fleet.patch::<MachineSet>("web", keep).await;
    ward.check(json!({})).await;
    ward.all_well().await;
    let names = ward.fleet.machine_names().await;
    ward.fall_ill(&names[0]).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let until_name = "remuda.io/preserved-until";
    let kept = async |name: &str| {
        let machine = ward.fleet.world.api::<Machine>().get_opt(name).await.unwrap();
        machine.is_some_and(|machine| {
            machine.annotations().contains_key(until_name) && machine.metadata.deletion_timestamp.is_none()
        })
    };
    until("it is kept", async || kept(&names[0]).await).await;
    assert_eq!(
        ward.says(&names[0], "OwnerRemediated").await.split_whitespace().nth(1),
        Some("MachinePreserved")
    );
    until("another is in its place", async || ward.fleet.machine_names().await.len() == 4).await;
    ward.fleet.settle().await;
    let status = ward.fleet.set("web").await.status.unwrap();
    assert_eq!(status.replicas, Some(3), "it is not counted");
    until("it is no target", async || ward.get().await.status.unwrap().expected_machines == Some(3)).await;

    // No more than asked for: the second one is deleted.
    ward.fall_ill(&names[1]).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    until("the second is replaced", async || ward.says(&names[1], "Ready").await == "gone").await;
    assert!(kept(&names[0]).await);
    until("there are three and one", async || ward.fleet.machine_names().await.len() == 4).await;

    // Until its time is over.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    until("it is gone", async || ward.says(&names[0], "Ready").await == "gone").await;
    until("three are left", async || ward.fleet.machine_names().await.len() == 3).await;
    assert_eq!(ward.fleet.set("web").await.status.unwrap().replicas, Some(3));
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_restarted_and_rebooted_before_it_is_replaced() {
    let ward = Ward::open().await;
    let steps = json!({"metadata": {"annotations": {"remuda.io/remediation-steps": "restart-service=5m,reboot=10m"}}});
    ward.fleet.patch::<MachineSet>("web", steps).await;
    ward.check(json!({})).await;
    ward.all_well().await;
    let names = ward.fleet.machine_names().await;
    let asked = async |name: &str, annotation: &str| {
        let machine = ward.fleet.world.api::<Machine>().get_opt(name).await.unwrap();
        machine.and_then(|machine| machine.annotations().get(annotation).cloned())
    };
    let reason = async |name: &str| {
        let said = ward.says(name, "OwnerRemediated").await;
        said.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };

    // The first step helps: nothing else is asked for.
    ward.fall_ill(&names[0]).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    until("a restart is asked for", async || asked(&names[0], "remuda.io/restart-requested").await.is_some())
        .await;
    until("and told", async || reason(&names[0]).await == "RestartingService").await;
    ward.recover(&names[0]).await;
    ward.all_well().await;
    tokio::time::sleep(Duration::from_secs(1200)).await;
    ward.fleet.settle().await;
    assert_eq!(ward.fleet.machine_names().await, names);
    assert_eq!(asked(&names[0], "remuda.io/reboot-requested").await, None);

    // No step helps: they come one after the other, and then another Machine does.
    ward.fall_ill(&names[1]).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    until("a restart is asked for", async || asked(&names[1], "remuda.io/restart-requested").await.is_some())
        .await;
    assert_eq!(asked(&names[1], "remuda.io/reboot-requested").await, None);
    tokio::time::sleep(Duration::from_secs(301)).await;
    until("a reboot is asked for", async || asked(&names[1], "remuda.io/reboot-requested").await.is_some())
        .await;
    until("and told", async || reason(&names[1]).await == "Rebooting").await;
    assert_eq!(ward.fleet.machine_names().await, names);
    tokio::time::sleep(Duration::from_secs(601)).await;
    until("it is replaced", async || ward.says(&names[1], "Ready").await == "gone").await;

    // Who marks a Machine wants it replaced.
    let mark = json!({"metadata": {"annotations": {"cluster.x-k8s.io/remediate-machine": ""}}});
    ward.fleet.patch::<Machine>(&names[2], mark).await;
    until("it is replaced at once", async || ward.says(&names[2], "Ready").await == "gone").await;
}
