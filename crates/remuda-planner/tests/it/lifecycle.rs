//! Whole stories: what is written and said, pass by pass, until nothing is left to do.
//!
//! Stories are kept in `stories/`; `UPDATE_GOLDEN=1` rewrites them.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::world::World;

#[track_caller]
fn check(story: &str, world: &mut World) {
    let told = format!("{}\n", world.narrate());
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "tests/it/stories", &format!("{story}.txt")].iter().collect();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &told).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(told == expected, "{story} was told differently:\n{told}");
}

fn drained() -> Value {
    let options = json!({"enabled": true, "timeout": 120});
    json!({"upgradeStrategy": {
        "controlPlaneDrainOptions": options, "workerDrainOptions": options, "workerConcurrency": "50%",
    }})
}

#[test]
fn three_servers_and_a_worker_come_up_in_order() {
    check("k3s-up", &mut World::new("v1.35.1+k3s1", json!({}), "cp-b:ec cp-a:ec cp-c:ec w-a:w"));
}

#[test]
fn split_roles_come_up_tier_by_tier() {
    check(
        "rke2-split-up",
        &mut World::new("v1.35.1+rke2r1", json!({}), "e-a:e e-b:e e-c:e c-a:c c-b:c w-a:w w-b:W"),
    );
}

#[test]
fn an_upgrade_goes_through_the_tiers_and_drains_every_node() {
    let mut world = World::new("v1.34.1+k3s1", drained(), "cp-a:ec cp-b:ec cp-c:ec w-a:w w-b:w w-c:w w-d:w");
    world.settle();
    world.edit(|spec| spec["kubernetesVersion"] = json!("v1.35.1+k3s1"));
    check("k3s-upgrade", &mut world);
}

#[test]
fn a_deleted_init_node_hands_over_before_it_goes() {
    let mut world = World::new("v1.35.1+k3s1", json!({}), "cp-a:ecw cp-b:ecw cp-c:ecw");
    world.settle();
    world.delete("cp-a");
    check("k3s-init-deleted", &mut world);
}

#[test]
fn a_single_node_is_replaced_without_losing_its_data() {
    let mut world = World::new("v1.35.1+k3s1", drained(), "a:ecw");
    world.settle();
    world.delete("a");
    world.add("b", "ecw");
    check("k3s-single-replaced", &mut world);
}

#[test]
fn two_members_become_one_after_a_pause() {
    let mut world = World::new("v1.35.1+k3s1", json!({}), "a:ecw b:ecw");
    world.settle();
    world.delete("b");
    check("k3s-two-to-one", &mut world);
}

#[test]
fn a_manifest_of_the_user_restarts_nothing() {
    let mut world = World::new("v1.35.1+k3s1", drained(), "cp-a:ec cp-b:ec w-a:w");
    world.settle();
    world.edit(|spec| spec["additionalManifest"] = json!("kind: ConfigMap\n"));
    check("k3s-manifest", &mut world);
}

#[test]
fn a_new_agent_manifest_reaches_all_control_planes_at_once() {
    let mut world = World::new("v1.35.1+k3s1", drained(), "cp-a:ec cp-b:ec cp-c:c w-a:w");
    world.settle();
    let annotations = &mut world.input.control_plane.annotations;
    annotations.insert("rke.cattle.io/cluster-spec".to_owned(), "H4sIAAAA".to_owned());
    check("k3s-minor", &mut world);
}
