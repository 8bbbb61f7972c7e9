//! MachineDeployments replace Machines within limits.

use std::time::Duration;

use jiff::SignedDuration;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use remuda_api::core::{Machine, MachineDeployment, MachineSet};
use remuda_control::clock::Clock;
use serde_json::{Value, json};

use crate::{
    fleet::{
        CLUSTER, Fleet, Witness, condition, create, deployment, events, merge, set, template, use_template,
    },
    world::until,
};

/// Every Machine is of the wanted flavour and available, and nothing else is left.
async fn rolled_out(fleet: &Fleet, name: &str, count: usize) {
    until(&format!("{name} has {count} machines"), async || {
        let status = fleet.deployment(name).await.status.unwrap_or_default();
        let count = Some(i32::try_from(count).unwrap());
        let sets: Vec<_> =
            fleet.sets().await.into_iter().filter(|set| set.name_any().starts_with(name)).collect();
        status.replicas == count
            && status.available_replicas == count
            && status.up_to_date_replicas == count
            && sets.len() == 1
    })
    .await;
}

async fn flavours(fleet: &Fleet) -> Vec<String> {
    let mut found = Vec::new();
    for infra in fleet.world.fake("FakeMachine").list(&ListParams::default()).await.unwrap() {
        found.push(infra.data["spec"]["size"].as_str().unwrap_or_default().to_owned());
    }
    found.sort();
    found
}

fn limits(surge: Value, unavailable: Value) -> Value {
    json!({"spec": {"rollout": {"strategy": {"rollingUpdate": {
        "maxSurge": surge, "maxUnavailable": unavailable,
    }}}}})
}

#[tokio::test(start_paused = true)]
async fn a_deployment_makes_a_set_and_says_how_it_is() {
    let fleet = Fleet::start().await;
    let more = json!({"metadata": {"annotations": {"team": "blue"}}});
    fleet.create_deployment("web", 3, more).await;
    rolled_out(&fleet, "web", 3).await;
    fleet.settle().await;

    let deployment = fleet.deployment("web").await;
    assert_eq!(deployment.annotations()["machinedeployment.clusters.x-k8s.io/revision"], "1");
    assert_eq!(deployment.owner_references()[0].kind, "Cluster");
    let status = deployment.status.clone().unwrap();
    assert_eq!((status.replicas, status.phase.as_str()), (Some(3), "Running"));
    assert_eq!(status.selector, "pool=web");
    assert_eq!(status.observed_generation, deployment.metadata.generation.unwrap());
    assert_eq!(condition(&deployment, "Available"), "True Available");
    assert_eq!(condition(&deployment, "RollingOut"), "False NotRollingOut");
    assert_eq!(condition(&deployment, "MachinesUpToDate"), "True UpToDate");
    let old = status.deprecated.unwrap().v1beta1.unwrap();
    assert_eq!(
        (old.updated_replicas, old.ready_replicas, old.unavailable_replicas),
        (Some(3), Some(3), Some(0))
    );

    let set = fleet.sets().await.remove(0);
    let name = set.name_any();
    let suffix = name.strip_prefix("web-").unwrap();
    let hash = &set.labels()["machine-template-hash"];
    assert!(hash.ends_with(&format!("-{suffix}")), "{hash}");
    assert_eq!(
        json!(set.labels()),
        json!({
            "pool": "web", "machine-template-hash": hash, "cluster.x-k8s.io/cluster-name": CLUSTER,
            "cluster.x-k8s.io/deployment-name": "web",
        })
    );
    assert_eq!(
        json!(set.annotations()),
        json!({
            "team": "blue",
            "machinedeployment.clusters.x-k8s.io/revision": "1",
            "machinedeployment.clusters.x-k8s.io/desired-replicas": "3",
            "machinedeployment.clusters.x-k8s.io/max-replicas": "4",
            "cluster.x-k8s.io/disable-machine-create": "false",
        })
    );
    assert_eq!(set.owner_references().len(), 1);
    assert_eq!(set.owner_references()[0].kind, "MachineDeployment");
    assert_eq!(set.finalizers(), ["cluster.x-k8s.io/machineset"]);
    let machine = fleet.machines().await.remove(0);
    assert_eq!(machine.labels()["cluster.x-k8s.io/deployment-name"], "web");
    assert_eq!(machine.labels()["machine-template-hash"], *hash);
    let told = events(&fleet.world, "MachineDeployment").await;
    assert_eq!(told, [format!("SuccessfulCreate Created MachineSet default/{name} with 3 replicas")]);

    fleet.world.api::<MachineDeployment>().delete("web", &DeleteParams::default()).await.unwrap();
    until("all is gone", async || {
        fleet.world.api::<MachineDeployment>().get_opt("web").await.unwrap().is_none()
            && fleet.sets().await.is_empty()
            && fleet.machines().await.is_empty()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_rolling_update_stays_within_its_limits() {
    for (surge, unavailable, most, fewest) in
        [(json!(1), json!(0), 5, 4), (json!(0), json!(1), 4, 3), (json!("50%"), json!("25%"), 6, 3)]
    {
        let fleet = Fleet::start().await;
        let witness = Witness::new(&fleet.world).await;
        fleet.create_deployment("web", 4, limits(surge.clone(), unavailable.clone())).await;
        rolled_out(&fleet, "web", 4).await;
        witness.start_counting();
        fleet.patch::<MachineDeployment>("web", use_template("large")).await;
        until("all are large", async || flavours(&fleet).await == ["large"; 4]).await;
        rolled_out(&fleet, "web", 4).await;
        fleet.settle().await;
        let deployment = fleet.deployment("web").await;
        assert_eq!(deployment.annotations()["machinedeployment.clusters.x-k8s.io/revision"], "2");
        {
            let seen = witness.seen.lock();
            let told = format!("surge {surge}, unavailable {unavailable}");
            assert_eq!(seen.created.len(), 8, "{told}");
            assert!(seen.most <= most, "{told}: {} at once", seen.most);
            assert!(seen.fewest_available >= Some(fewest), "{told}: {:?} available", seen.fewest_available);
        }
        witness.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_template_stops_the_rollout_and_going_back_uses_the_old_set() {
    let fleet = Fleet::start().await;
    let witness = Witness::new(&fleet.world).await;
    fleet.play(|play| play.broken.push("large".to_owned()));
    fleet.create_deployment("web", 3, json!({})).await;
    rolled_out(&fleet, "web", 3).await;
    witness.start_counting();
    let first = fleet.sets().await.remove(0).name_any();
    fleet.patch::<MachineDeployment>("web", use_template("large")).await;
    until("one is tried", async || flavours(&fleet).await == ["large", "small", "small", "small"]).await;
    fleet.settle().await;
    assert_eq!(flavours(&fleet).await, ["large", "small", "small", "small"], "and no more");
    let deployment = fleet.deployment("web").await;
    assert_eq!(condition(&deployment, "Available"), "True Available");
    assert!(condition(&deployment, "RollingOut").starts_with("True RollingOut Rolling out 3 not up-to-date"));

    fleet.patch::<MachineDeployment>("web", use_template("small")).await;
    rolled_out(&fleet, "web", 3).await;
    fleet.settle().await;
    let sets = fleet.sets().await;
    assert_eq!(sets[0].name_any(), first);
    let note =
        |key: &str| sets[0].annotations()[&format!("machinedeployment.clusters.x-k8s.io/{key}")].clone();
    assert_eq!((note("revision"), note("revision-history")), ("3".to_owned(), "1".to_owned()));
    {
        let seen = witness.seen.lock();
        assert_eq!(seen.created.len(), 4);
        assert_eq!((seen.most, seen.fewest_available), (4, Some(3)));
    }
    witness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn on_delete_replaces_only_what_somebody_deletes() {
    let fleet = Fleet::start().await;
    let more = json!({"spec": {"rollout": {"strategy": {"type": "OnDelete", "rollingUpdate": null}}}});
    fleet.create_deployment("web", 3, more).await;
    rolled_out(&fleet, "web", 3).await;
    fleet.patch::<MachineDeployment>("web", use_template("large")).await;
    until("there is a new set", async || fleet.sets().await.len() == 2).await;
    fleet.settle().await;
    assert_eq!(flavours(&fleet).await, ["small"; 3]);
    for left in (0..3).rev() {
        let machines = fleet.machines().await;
        let mut small = Vec::new();
        for machine in machines {
            let infra = fleet.world.fake("FakeMachine").get(&machine.name_any()).await.unwrap();
            if infra.data["spec"]["size"] == "small" {
                small.push(machine.name_any());
            }
        }
        fleet.world.api::<Machine>().delete(&small[0], &DeleteParams::default()).await.unwrap();
        until("it is replaced", async || {
            let flavours = flavours(&fleet).await;
            flavours.len() == 3 && flavours.iter().filter(|flavour| *flavour == "small").count() == left
        })
        .await;
    }
    rolled_out(&fleet, "web", 3).await;
    fleet.settle().await;
}

#[tokio::test(start_paused = true)]
async fn labels_and_timeouts_follow_without_a_rollout_also_on_old_sets() {
    let fleet = Fleet::start().await;
    fleet.play(|play| play.broken.push("large".to_owned()));
    let more = json!({"spec": {"template": {"metadata": {"labels": {"old": "1"}}}}});
    fleet.create_deployment("web", 2, more).await;
    rolled_out(&fleet, "web", 2).await;
    fleet.patch::<MachineDeployment>("web", use_template("large")).await;
    until("two sets", async || fleet.machines().await.len() == 3).await;
    fleet.settle().await;
    let mut before = fleet.machine_names().await;
    let change = json!({
        "metadata": {"annotations": {"team": "green"}},
        "spec": {
            "deletion": {"order": "Newest"},
            "template": {
                "metadata": {"labels": {"old": null, "new": "2"}},
                "spec": {"deletion": {"nodeDrainTimeoutSeconds": 7}},
            },
        },
    });
    fleet.patch::<MachineDeployment>("web", change).await;
    until("all follow", async || {
        let machines = fleet.machines().await;
        let sets = fleet.sets().await;
        machines.iter().all(|machine| {
            machine.labels().contains_key("new")
                && !machine.labels().contains_key("old")
                && machine.spec.deletion.node_drain_timeout_seconds == Some(7)
        }) && sets.iter().all(|set| {
            set.annotations().get("team").map(String::as_str) == Some("green")
                && set.spec.deletion.order == "Newest"
                && !set.labels().contains_key("old")
        })
    })
    .await;
    fleet.patch::<MachineDeployment>("web", json!({"metadata": {"annotations": {"team": null}}})).await;
    until("the annotation is gone", async || {
        fleet.sets().await.iter().all(|set| !set.annotations().contains_key("team"))
    })
    .await;
    fleet.settle().await;
    let mut after = fleet.machine_names().await;
    before.sort();
    after.sort();
    assert_eq!(before, after);
}

#[tokio::test(start_paused = true)]
async fn a_paused_rollout_scales_in_proportion_and_goes_on_later() {
    let fleet = Fleet::start().await;
    fleet.create_deployment("web", 4, limits(json!(2), json!(0))).await;
    rolled_out(&fleet, "web", 4).await;
    fleet.patch::<MachineDeployment>("web", json!({"spec": {"paused": true}})).await;
    fleet.patch::<MachineDeployment>("web", use_template("large")).await;
    fleet.settle().await;
    assert_eq!(fleet.sets().await.len(), 1, "nothing is rolled out");
    fleet.patch::<MachineDeployment>("web", json!({"spec": {"replicas": 6}})).await;
    until("it scales all the same", async || flavours(&fleet).await == ["small"; 6]).await;
    fleet.patch::<MachineDeployment>("web", json!({"spec": {"paused": false}})).await;
    until("it goes on", async || flavours(&fleet).await == ["large"; 6]).await;
    rolled_out(&fleet, "web", 6).await;
}

#[tokio::test(start_paused = true)]
async fn a_wished_rollout_begins_at_its_time() {
    let fleet = Fleet::start().await;
    let witness = Witness::new(&fleet.world).await;
    fleet.create_deployment("web", 2, json!({})).await;
    rolled_out(&fleet, "web", 2).await;
    fleet.settle().await;
    let soon = fleet.world.clock.now() + SignedDuration::from_secs(5);
    let soon = remuda_base::rfc3339(soon.as_second());
    fleet.patch::<MachineDeployment>("web", json!({"spec": {"rollout": {"after": soon}}})).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(witness.seen.lock().created.len(), 2, "not before its time");
    until("all are replaced", async || {
        let created = witness.seen.lock().created.len();
        created == 4
    })
    .await;
    rolled_out(&fleet, "web", 2).await;
    fleet.settle().await;
    assert_eq!(witness.seen.lock().created.len(), 4);
    witness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_set_is_made_without_its_templates() {
    let fleet = Fleet::start().await;
    fleet.create_deployment("web", 2, json!({})).await;
    rolled_out(&fleet, "web", 2).await;
    fleet.patch::<MachineDeployment>("web", use_template("huge")).await;
    until("it says so", async || {
        condition(&fleet.deployment("web").await, "ScalingUp")
            == "False NotScalingUp Scaling up would be blocked because FakeMachineTemplate does not exist"
    })
    .await;
    fleet.settle().await;
    assert_eq!(fleet.sets().await.len(), 1);
    template(&fleet.world, "FakeMachineTemplate", "huge").await;
    until("it goes on", async || flavours(&fleet).await == ["huge"; 2]).await;
    rolled_out(&fleet, "web", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_set_without_a_controller_is_adopted() {
    let mut fleet = Fleet::new().await;
    let mut orphan = set("mine", 2, json!({}));
    merge(&mut orphan, json!({"metadata": {"labels": {"pool": "web"}}}));
    merge(&mut orphan, json!({"spec": {"selector": {"matchLabels": {"pool": "web", "one": "1"}}}}));
    merge(&mut orphan, json!({"spec": {"template": {"metadata": {"labels": {"pool": "web", "one": "1"}}}}}));
    create::<MachineSet>(&fleet.world, orphan).await;
    fleet.run();
    until("it works", async || fleet.machines().await.len() == 2).await;
    fleet.settle().await;
    let before = fleet.machine_names().await;
    create::<MachineDeployment>(&fleet.world, deployment("web", 2, json!({}))).await;
    until("it is adopted", async || {
        let set = fleet.set("mine").await;
        set.owner_references().iter().any(|owner| owner.kind == "MachineDeployment")
    })
    .await;
    fleet.settle().await;
    assert_eq!(fleet.sets().await.len(), 1, "its template is the wanted one");
    assert_eq!(fleet.machine_names().await, before);
    let machine = fleet.machines().await.remove(0);
    assert_eq!(machine.labels()["cluster.x-k8s.io/deployment-name"], "web");
    assert_eq!(fleet.set("mine").await.labels()["cluster.x-k8s.io/deployment-name"], "web");

    // What was stripped heals.
    let bare = json!({"metadata": {"ownerReferences": null, "finalizers": null, "labels": {
        "cluster.x-k8s.io/deployment-name": null,
    }}});
    fleet.patch::<MachineSet>("mine", bare.clone()).await;
    fleet
        .patch::<MachineDeployment>("web", json!({"metadata": {"ownerReferences": null, "finalizers": null}}))
        .await;
    until("it is back", async || {
        let (set, deployment) = (fleet.set("mine").await, fleet.deployment("web").await);
        set.owner_references().iter().any(|owner| owner.kind == "MachineDeployment")
            && set.finalizers() == ["cluster.x-k8s.io/machineset"]
            && deployment.finalizers() == ["cluster.x-k8s.io/machinedeployment"]
            && deployment.owner_references().len() == 1
    })
    .await;
    fleet.settle().await;
    assert_eq!(fleet.machine_names().await, before);
}

#[tokio::test(start_paused = true)]
async fn only_so_many_machines_are_replaced_at_once_and_none_of_an_old_set() {
    let fleet = Fleet::start().await;
    let more = json!({"spec": {"remediation": {"maxInFlight": 1}}});
    fleet.create_deployment("web", 3, more).await;
    rolled_out(&fleet, "web", 3).await;
    fleet.play(|play| play.no_deletion = true);
    let api = fleet.world.api::<Machine>();
    for machine in fleet.machines().await.into_iter().take(2) {
        let mut conditions = json!(machine.status.clone().unwrap_or_default().conditions);
        for kind in ["HealthCheckSucceeded", "OwnerRemediated"] {
            conditions.as_array_mut().unwrap().push(json!({
                "type": kind, "status": "False", "reason": "Told", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }));
        }
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        api.patch_status(&machine.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }
    let told = async || {
        let mut told = Vec::new();
        for machine in fleet.machines().await {
            told.push(
                condition(&machine, "OwnerRemediated").split(' ').nth(1).unwrap_or_default().to_owned(),
            );
        }
        told.sort();
        told
    };
    until("one goes and one waits", async || told().await == ["", "MachineDeleting", "RemediationDeferred"])
        .await;
    fleet.settle().await;
    fleet.patch::<MachineDeployment>("web", use_template("large")).await;
    until("what is old is left to the rollout", async || {
        told().await.contains(&"CannotBeRemediated".to_owned())
    })
    .await;
    fleet.play(|play| play.no_deletion = false);
    until("all are large", async || flavours(&fleet).await == ["large"; 3]).await;
    rolled_out(&fleet, "web", 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_a_settled_deployment_writes_nothing() {
    let mut fleet = Fleet::start().await;
    fleet.create_deployment("web", 2, json!({"metadata": {"annotations": {"team": "blue"}}})).await;
    rolled_out(&fleet, "web", 2).await;
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
async fn whatever_is_killed_a_rollout_keeps_its_limits_and_makes_no_machine_twice() {
    for round in 0..5_u64 {
        let mut seed = round * 7 + 3;
        let (surge, unavailable) = [(1, 0), (0, 1), (2, 1), (3, 0), (1, 2)][round as usize];
        let mut fleet = Fleet::start().await;
        let witness = Witness::new(&fleet.world).await;
        fleet.create_deployment("web", 5, limits(json!(surge), json!(unavailable))).await;
        rolled_out(&fleet, "web", 5).await;
        witness.start_counting();
        fleet.patch::<MachineDeployment>("web", use_template("large")).await;
        for _ in 0..15 {
            let enough = fleet.world.requests().len() + (next(&mut seed) % 60) as usize;
            for _ in 0..3_000 {
                if fleet.world.requests().len() >= enough {
                    break;
                }
                tokio::task::yield_now().await;
            }
            fleet.kill().await;
            fleet.run();
        }
        until("all are large", async || flavours(&fleet).await == ["large"; 5]).await;
        rolled_out(&fleet, "web", 5).await;
        fleet.settle().await;
        {
            let seen = witness.seen.lock();
            assert_eq!(seen.created.len(), 10, "round {round}");
            assert!(seen.most <= 5 + surge, "round {round}: {} at once", seen.most);
            let fewest = seen.fewest_available.unwrap();
            assert!(fewest >= 5 - unavailable, "round {round}: {fewest} available");
        }
        witness.stop().await;
        fleet.stop().await;
    }
}
