//! MachineSets keep their number of Machines.

use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use remuda_api::core::{Cluster, Machine, MachineSet};
use serde_json::{Value, json};

use crate::{
    fleet::{CLUSTER, Fleet, Witness, condition, create, events, machine_template, template, with_kind},
    world::{GROUP, until},
};

async fn has(fleet: &Fleet, count: usize) {
    until(&format!("{count} machines"), async || {
        let machines = fleet.machines().await;
        machines.len() == count
            && machines.iter().all(|machine| condition(machine, "Available").starts_with("True"))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_set_makes_machines_and_what_is_behind_them() {
    let fleet = Fleet::start().await;
    let set = fleet.create_set("web", 3, json!({})).await;
    has(&fleet, 3).await;
    fleet.settle().await;

    let machine = fleet.machines().await.remove(0);
    let name = machine.name_any();
    assert!(name.starts_with("web-"), "{name}");
    let labels = json!(machine.labels());
    assert_eq!(
        labels,
        json!({"pool": "web", "cluster.x-k8s.io/set-name": "web", "cluster.x-k8s.io/cluster-name": CLUSTER})
    );
    assert_eq!(machine.finalizers(), ["machine.cluster.x-k8s.io"]);
    let owner = &machine.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("MachineSet", Some(true)));
    assert_eq!(
        json!(machine.spec.infrastructure_ref),
        json!({"apiGroup": GROUP, "kind": "FakeMachine", "name": name})
    );
    assert_eq!(
        json!(machine.spec.bootstrap),
        json!({"configRef": {"apiGroup": GROUP, "kind": "FakeConfig", "name": name}})
    );
    assert_eq!(machine.spec.deletion.node_deletion_timeout_seconds, Some(10));

    let infra = fleet.world.fake("FakeMachine").get(&name).await.unwrap();
    assert_eq!(infra.data["spec"], json!({"size": "small"}));
    assert_eq!(infra.labels()["from"], "template");
    assert_eq!(infra.annotations()["cluster.x-k8s.io/cloned-from-name"], "small");
    assert_eq!(
        infra.annotations()["cluster.x-k8s.io/cloned-from-groupkind"],
        "FakeMachineTemplate.infrastructure.cluster.x-k8s.io"
    );
    let owner = &infra.owner_references()[0];
    assert_eq!((owner.uid.clone(), owner.controller), (set.uid().unwrap(), None));
    for kind in ["FakeMachineTemplate", "FakeConfigTemplate"] {
        let template = fleet.world.fake(kind).get("small").await.unwrap();
        assert_eq!(template.owner_references()[0].kind, "Cluster");
    }

    let set = fleet.set("web").await;
    let owner = &set.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("Cluster", None), "it stands alone");
    let status = set.status.clone().unwrap();
    assert_eq!(
        (status.replicas, status.ready_replicas, status.available_replicas, status.up_to_date_replicas),
        (Some(3), Some(3), Some(3), Some(0))
    );
    assert_eq!(status.selector, "cluster.x-k8s.io/cluster-name=demo,pool=web");
    assert_eq!(status.observed_generation, set.metadata.generation.unwrap());
    assert_eq!(condition(&set, "ScalingUp"), "False NotScalingUp");
    assert_eq!(condition(&set, "MachinesReady"), "True Ready");
    let old = status.deprecated.unwrap().v1beta1.unwrap();
    assert_eq!(
        (old.fully_labeled_replicas, old.ready_replicas, old.available_replicas),
        (Some(3), Some(3), Some(3))
    );
    let told = events(&fleet.world, "MachineSet").await;
    assert_eq!(told.iter().filter(|event| event.starts_with("SuccessfulCreate")).count(), 3, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_set_scales_both_ways_and_goes_with_its_machines() {
    let fleet = Fleet::start().await;
    fleet.create_set("web", 2, json!({})).await;
    has(&fleet, 2).await;
    let kept = fleet.machine_names().await;
    fleet.patch::<MachineSet>("web", json!({"spec": {"replicas": 4}})).await;
    has(&fleet, 4).await;
    // Whoever is marked goes first.
    for name in &kept {
        let mark = json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": ""}}});
        fleet.patch::<Machine>(name, mark).await;
    }
    fleet.patch::<MachineSet>("web", json!({"spec": {"replicas": 2}})).await;
    has(&fleet, 2).await;
    fleet.settle().await;
    let left = fleet.machine_names().await;
    assert!(left.iter().all(|name| !kept.contains(name)), "{left:?} {kept:?}");

    fleet.play(|play| play.no_deletion = true);
    fleet.world.api::<MachineSet>().delete("web", &DeleteParams::default()).await.unwrap();
    until("it says what it does", async || {
        condition(&fleet.set("web").await, "Deleting") == "True Deleting Deleting 2 Machines"
    })
    .await;
    fleet.play(|play| play.no_deletion = false);
    until("all is gone", async || {
        fleet.sets().await.is_empty()
            && fleet.machines().await.is_empty()
            && fleet.world.fake("FakeMachine").list(&ListParams::default()).await.unwrap().items.is_empty()
            && fleet.world.fake("FakeConfig").list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_template_is_named_and_waited_for() {
    let fleet = Fleet::start().await;
    let spec = machine_template("huge", json!({"pool": "web"}));
    fleet.create_set("web", 1, json!({"spec": {"template": spec}})).await;
    until("it says so", async || {
        condition(&fleet.set("web").await, "ScalingUp")
            == "True ScalingUp Scaling up from 0 to 1 replicas is blocked because:\n* FakeConfigTemplate and \
                FakeMachineTemplate do not exist"
    })
    .await;
    fleet.settle().await;
    template(&fleet.world, "FakeMachineTemplate", "huge").await;
    until("one is left", async || {
        condition(&fleet.set("web").await, "ScalingUp").ends_with("* FakeConfigTemplate does not exist")
    })
    .await;
    template(&fleet.world, "FakeConfigTemplate", "huge").await;
    has(&fleet, 1).await;
}

#[tokio::test(start_paused = true)]
async fn what_may_change_in_place_reaches_machines_and_what_is_behind_them() {
    let fleet = Fleet::start().await;
    let spec = json!({"template": {"metadata": {"labels": {"old": "1"}, "annotations": {"note": "a"}}}});
    fleet.create_set("web", 2, json!({"spec": spec})).await;
    has(&fleet, 2).await;
    let before = fleet.machines().await;
    let theirs = json!({"metadata": {"labels": {"theirs": "1"}}});
    fleet.patch::<Machine>(&before[0].name_any(), theirs).await;
    let change = json!({"spec": {"template": {
        "metadata": {"labels": {"old": null, "new": "2"}, "annotations": {"note": null, "other": "b"}},
        "spec": {
            "deletion": {"nodeDrainTimeoutSeconds": 30},
            "minReadySeconds": 5,
            "readinessGates": [{"conditionType": "Mine"}],
            "taints": [{"key": "k", "effect": "NoSchedule", "propagation": "Always"}],
        },
    }}});
    fleet.patch::<MachineSet>("web", change).await;
    until("machines follow", async || {
        fleet.machines().await.iter().all(|machine| {
            machine.labels().get("new").is_some()
                && machine.labels().get("old").is_none()
                && machine.annotations().get("other").is_some()
                && machine.annotations().get("note").is_none()
                && machine.spec.deletion.node_drain_timeout_seconds == Some(30)
                && machine.spec.min_ready_seconds == Some(5)
                && machine.spec.readiness_gates.len() == 1
                && machine.spec.taints.len() == 1
        })
    })
    .await;
    fleet.settle().await;
    let after = fleet.machines().await;
    assert_eq!(uids(&before), uids(&after), "nothing was replaced");
    assert_eq!(after[0].labels().get("theirs").map(String::as_str), Some("1"));
    for kind in ["FakeMachine", "FakeConfig"] {
        for object in fleet.world.fake(kind).list(&ListParams::default()).await.unwrap() {
            let labels = object.labels();
            assert!(labels.contains_key("new") && !labels.contains_key("old"), "{kind} {labels:?}");
            assert!(object.annotations().contains_key("other") && !object.annotations().contains_key("note"));
        }
    }

    // A Machine in deletion still learns that it may drain for a shorter time.
    fleet.play(|play| play.no_deletion = true);
    fleet.patch::<MachineSet>("web", json!({"spec": {"replicas": 1}})).await;
    let shorter = json!({"spec": {"template": {
        "metadata": {"labels": {"newer": "3"}},
        "spec": {"deletion": {"nodeDrainTimeoutSeconds": 1}},
    }}});
    fleet.patch::<MachineSet>("web", shorter).await;
    until("it is told", async || {
        fleet
            .machines()
            .await
            .iter()
            .all(|machine| machine.spec.deletion.node_drain_timeout_seconds == Some(1))
    })
    .await;
    fleet.settle().await;
    for machine in fleet.machines().await {
        let deleting = machine.metadata.deletion_timestamp.is_some();
        assert_eq!(machine.labels().contains_key("newer"), !deleting);
    }
}

fn uids(machines: &[Machine]) -> Vec<String> {
    machines.iter().map(|machine| machine.uid().unwrap()).collect()
}

fn machine(name: &str, labels: Value) -> Value {
    let spec = json!({
        "clusterName": CLUSTER,
        "bootstrap": {"dataSecretName": "given"},
        "infrastructureRef": {"apiGroup": GROUP, "kind": "FakeMachine", "name": name},
    });
    with_kind(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}), "Machine")
}

#[tokio::test(start_paused = true)]
async fn orphans_that_fit_are_adopted_and_others_are_not() {
    let fleet = Fleet::new().await;
    let fitting = json!({"pool": "web", "cluster.x-k8s.io/cluster-name": CLUSTER});
    create::<Machine>(&fleet.world, machine("alone", fitting)).await;
    create::<Machine>(&fleet.world, machine("other", json!({"pool": "db"}))).await;
    let mut fleet = fleet;
    fleet.run();
    fleet.create_set("web", 1, json!({})).await;
    until("it is adopted", async || {
        let machine = fleet.world.api::<Machine>().get("alone").await.unwrap();
        machine
            .owner_references()
            .iter()
            .any(|owner| owner.kind == "MachineSet" && owner.controller == Some(true))
    })
    .await;
    fleet.settle().await;
    assert_eq!(fleet.machine_names().await, ["alone", "other"], "nothing was made");
    let other = fleet.world.api::<Machine>().get("other").await.unwrap();
    assert!(other.owner_references().iter().all(|owner| owner.kind != "MachineSet"));
    let told = events(&fleet.world, "MachineSet").await;
    assert!(told.contains(&"SuccessfulAdopt Adopted Machine \"alone\"".to_owned()), "{told:?}");

    // A set that goes without its Machines leaves them to the garbage collector.
    let orphaning = DeleteParams {
        propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    fleet.world.api::<MachineSet>().delete("web", &orphaning).await.unwrap();
    fleet.settle().await;
    let alone = fleet.world.api::<Machine>().get("alone").await.unwrap();
    assert!(alone.metadata.deletion_timestamp.is_none());
    let released = json!({"metadata": {"ownerReferences": null}});
    fleet.patch::<Machine>("alone", released).await;
    let set = fleet.set("web").await;
    let rest: Vec<_> = set.finalizers().iter().filter(|finalizer| *finalizer != "orphan").collect();
    fleet.patch::<MachineSet>("web", json!({"metadata": {"finalizers": rest}})).await;
    until("the set is gone", async || fleet.sets().await.is_empty()).await;
    let alone = fleet.world.api::<Machine>().get("alone").await.unwrap();
    assert!(alone.metadata.deletion_timestamp.is_none());
}

#[tokio::test(start_paused = true)]
async fn owners_and_finalizers_that_were_stripped_come_back() {
    let fleet = Fleet::start().await;
    fleet.create_set("web", 2, json!({})).await;
    has(&fleet, 2).await;
    fleet.settle().await;
    let before = fleet.machines().await;
    let bare = json!({"metadata": {"ownerReferences": null, "finalizers": null}});
    for machine in &before {
        fleet.patch::<Machine>(&machine.name_any(), bare.clone()).await;
    }
    fleet.patch::<MachineSet>("web", bare).await;
    until("all is back", async || {
        let machines = fleet.machines().await;
        let set = fleet.set("web").await;
        machines.iter().all(|machine| {
            machine.finalizers() == ["machine.cluster.x-k8s.io"]
                && machine
                    .owner_references()
                    .iter()
                    .any(|owner| Some(&owner.uid) == set.metadata.uid.as_ref())
        }) && set.finalizers() == ["cluster.x-k8s.io/machineset"]
            && set.owner_references().len() == 1
    })
    .await;
    fleet.settle().await;
    assert_eq!(uids(&before), uids(&fleet.machines().await));
}

#[tokio::test(start_paused = true)]
async fn a_paused_set_does_nothing_until_it_is_not() {
    let fleet = Fleet::new().await;
    let mut fleet = fleet;
    fleet.patch::<Cluster>(CLUSTER, json!({"spec": {"paused": true}})).await;
    fleet.run();
    fleet.create_set("web", 1, json!({})).await;
    until("it says so", async || {
        condition(&fleet.set("web").await, "Paused") == "True Paused Cluster spec.paused is set to true"
    })
    .await;
    fleet.settle().await;
    assert!(fleet.machines().await.is_empty());
    fleet.patch::<Cluster>(CLUSTER, json!({"spec": {"paused": false}})).await;
    has(&fleet, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_in_motion_holds_machines_back() {
    let fleet = Fleet::new().await;
    let mut fleet = fleet;
    fleet.world.create_fake("FakeControlPlane", "plane", json!({"version": "v1.33.0"})).await;
    let plane = json!({"apiGroup": GROUP, "kind": "FakeControlPlane", "name": "plane"});
    fleet.patch::<Cluster>(CLUSTER, json!({"spec": {"controlPlaneRef": plane}})).await;
    fleet.run();
    fleet.create_set("web", 1, json!({})).await;
    until("it says so", async || {
        condition(&fleet.set("web").await, "ScalingUp").ends_with(
            "* FakeControlPlane default/plane is provisioning (\"ControlPlaneIsStable\" preflight check failed)",
        )
    })
    .await;
    fleet.settle().await;
    fleet.world.report("FakeControlPlane", "plane", json!({"version": "v1.33.0"})).await;
    has(&fleet, 1).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_begun_and_not_finished_is_used_or_removed() {
    let fleet = Fleet::start().await;
    let set = fleet.create_set("web", 0, json!({})).await;
    fleet.settle().await;
    let clone = |name: &str, from: &str| {
        json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1", "kind": "FakeMachine",
            "metadata": {
                "name": name,
                "labels": {"pool": "web"},
                "annotations": {
                    "cluster.x-k8s.io/cloned-from-name": from,
                    "cluster.x-k8s.io/cloned-from-groupkind": "FakeMachineTemplate.infrastructure.cluster.x-k8s.io",
                },
                "ownerReferences": [{
                    "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "web", "uid": set.uid(),
                }],
            },
            "spec": {},
        })
    };
    let infra = fleet.world.fake("FakeMachine");
    for (name, from) in [("web-left", "small"), ("web-stale", "large")] {
        let object = serde_json::from_value(clone(name, from)).unwrap();
        infra.create(&Default::default(), &object).await.unwrap();
    }
    fleet.patch::<MachineSet>("web", json!({"spec": {"replicas": 1}})).await;
    has(&fleet, 1).await;
    fleet.settle().await;
    assert_eq!(fleet.machine_names().await, ["web-left"]);
    let left: Vec<_> =
        infra.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["web-left"]);
}

fn unhealthy(machine: &Machine) -> Value {
    let mut conditions = json!(machine.status.clone().unwrap_or_default().conditions);
    for kind in ["HealthCheckSucceeded", "OwnerRemediated"] {
        conditions.as_array_mut().unwrap().push(json!({
            "type": kind, "status": "False", "reason": "Told", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }));
    }
    json!({"status": {"conditions": conditions}})
}

#[tokio::test(start_paused = true)]
async fn machines_given_up_are_replaced() {
    let fleet = Fleet::start().await;
    let witness = Witness::new(&fleet.world).await;
    fleet.create_set("web", 3, json!({})).await;
    has(&fleet, 3).await;
    fleet.play(|play| play.no_deletion = true);
    let sick = fleet.machines().await.remove(1);
    let api = fleet.world.api::<Machine>();
    api.patch_status(&sick.name_any(), &PatchParams::default(), &Patch::Merge(unhealthy(&sick)))
        .await
        .unwrap();
    until("it is being deleted", async || {
        let sick = api.get(&sick.name_any()).await.unwrap();
        sick.metadata.deletion_timestamp.is_some()
            && condition(&sick, "OwnerRemediated") == "False MachineDeleting Machine is deleting"
    })
    .await;
    assert_eq!(fleet.machines().await.len(), 3, "its successor waits");
    until("the set says so", async || {
        condition(&fleet.set("web").await, "Remediating").starts_with("True Remediating")
    })
    .await;
    fleet.play(|play| play.no_deletion = false);
    until("it is replaced", async || !fleet.machine_names().await.contains(&sick.name_any())).await;
    has(&fleet, 3).await;
    fleet.settle().await;
    assert_eq!(witness.seen.lock().created.len(), 4);
    witness.stop().await;

    // One that recovers in time is forgiven.
    fleet.patch::<MachineSet>("web", json!({"metadata": {"annotations": {"x": "y"}}})).await;
    let well = fleet.machines().await.remove(0);
    let mut status = unhealthy(&well);
    for condition in status["status"]["conditions"].as_array_mut().unwrap() {
        if condition["type"] == "HealthCheckSucceeded" {
            condition["status"] = json!("True");
        }
    }
    api.patch_status(&well.name_any(), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    until("it is forgiven", async || {
        condition(&api.get(&well.name_any()).await.unwrap(), "OwnerRemediated") == "absent"
    })
    .await;
    fleet.settle().await;
    assert_eq!(api.get(&well.name_any()).await.unwrap().uid(), well.uid());
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_a_settled_set_writes_nothing() {
    let mut fleet = Fleet::start().await;
    fleet
        .create_set("web", 3, json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}))
        .await;
    has(&fleet, 3).await;
    fleet.settle().await;
    let before = fleet.world.writes().len();
    fleet.stop().await;
    fleet.run();
    fleet.settle().await;
    assert_eq!(fleet.writes_since(before), [] as [String; 0]);
}

/// A number that follows from the last.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[tokio::test(start_paused = true)]
async fn whatever_is_killed_no_machine_is_made_twice() {
    for round in 0..6_u64 {
        let mut seed = round + 1;
        let mut fleet = Fleet::new().await;
        let witness = Witness::new(&fleet.world).await;
        fleet.create_set("web", 12, json!({})).await;
        for _ in 0..12 {
            fleet.run();
            // Somewhere between nothing done and all done, by requests rather than by time.
            let enough = fleet.world.requests().len() + (next(&mut seed) % 40) as usize;
            for _ in 0..2_000 {
                if fleet.world.requests().len() >= enough {
                    break;
                }
                tokio::task::yield_now().await;
            }
            fleet.kill().await;
        }
        fleet.run();
        has(&fleet, 12).await;
        fleet.settle().await;
        assert_eq!(witness.seen.lock().created.len(), 12, "round {round}");
        assert_eq!(witness.seen.lock().most, 12);
        for kind in ["FakeMachine", "FakeConfig"] {
            let objects = fleet.world.fake(kind).list(&ListParams::default()).await.unwrap().items;
            assert_eq!(objects.len(), 12, "{kind} in round {round}");
        }
        witness.stop().await;
        fleet.stop().await;
    }
}
