//! Whether the hook that keeps an etcd machine's server comes off.

use jiff::{SignedDuration, Timestamp};
use remuda_distro::Distro;
use remuda_names::rancher::annotation;

use remuda_planner::removal::{Cluster, Decision, Gone, Held, Input, Node, decide};
use serde_json::json;

use crate::world::World;

fn settled(machines: &str) -> World {
    let mut world = World::new("v1.35.1+rke2r1", json!({}), machines);
    world.settle();
    world
}

/// Machine `b`, deleted a minute ago, whose node is there.
fn input(world: &World) -> Input<'_> {
    let machine = world.get("b");
    let now: Timestamp = world.input.now;
    Input {
        now,
        machine,
        deleted_at: Some(now - SignedDuration::from_secs(60)),
        etcd_label: true,
        hooked: true,
        bootstrap_deleting: false,
        force: false,
        cluster: Cluster::Alive,
        distro: Distro::Rke2,
        machines: &world.input.machines,
        node: Node::Present { removed: false },
    }
}

#[test]
fn live_etcd_machines_are_hooked_and_others_are_not() {
    let world = settled("a:ecw b:ecw c:ecw");
    let live = Input { deleted_at: None, ..input(&world) };
    assert_eq!(decide(&live), Decision::Nothing);
    assert_eq!(decide(&Input { hooked: false, ..live.clone() }), Decision::AddHook);
    assert_eq!(decide(&Input { etcd_label: false, ..live.clone() }), Decision::RemoveHook(Gone::NotEtcd));
    assert_eq!(decide(&Input { force: true, ..live.clone() }), Decision::RemoveHook(Gone::Forced));
    assert_eq!(decide(&Input { force: true, hooked: false, ..live }), Decision::Nothing);
}

#[test]
fn nothing_is_protected_in_a_cluster_that_goes() {
    let world = settled("a:ecw b:ecw c:ecw");
    let gone = Input { cluster: Cluster::Gone, ..input(&world) };
    assert_eq!(decide(&gone), Decision::RemoveHook(Gone::ClusterGone));
}

#[test]
fn a_member_is_asked_to_leave_and_then_gone() {
    let world = settled("a:ecw b:ecw c:ecw");
    assert_eq!(decide(&Input { node: Node::Unread, ..input(&world) }), Decision::ReadNode);
    let remove = Decision::RemoveMember { annotation: "etcd.rke2.cattle.io/remove".to_owned() };
    assert_eq!(decide(&input(&world)), remove);
    let removed = Input { node: Node::Present { removed: true }, ..input(&world) };
    assert_eq!(decide(&removed), Decision::RemoveHook(Gone::MemberRemoved));
    let missing = Input { node: Node::Missing, ..input(&world) };
    assert_eq!(decide(&missing), Decision::RemoveHook(Gone::NodeMissing));
}

#[test]
fn nobody_may_be_configured_against_a_vanishing_server() {
    let mut world = settled("a:ecw b:ecw c:ecw");
    let url = world.secret("b").annotations[annotation::JOIN_URL].clone();
    world.secret("c").annotations.insert(annotation::JOINED_TO.to_owned(), url);
    let held = Held::Joined { machines: vec!["c".to_owned()] };
    assert_eq!(decide(&input(&world)), Decision::Wait(held, 5));
    // Two empty values are not the same server.
    for name in ["b", "c"] {
        world.secret(name).annotations.insert(annotation::JOIN_URL.to_owned(), String::new());
        world.secret(name).annotations.insert(annotation::JOINED_TO.to_owned(), String::new());
    }
    assert!(matches!(decide(&input(&world)), Decision::RemoveMember { .. }));
}

#[test]
fn the_other_of_two_members_gets_time_for_an_election() {
    let world = settled("a:ecw b:ecw");
    let young = Input { deleted_at: Some(world.input.now - SignedDuration::from_secs(5)), ..input(&world) };
    assert_eq!(decide(&young), Decision::Wait(Held::Election, 15));
    assert!(matches!(decide(&input(&world)), Decision::RemoveMember { .. }));
}

#[test]
fn a_member_the_others_need_stays() {
    let mut world = settled("a:ecw b:ecw c:ecw");
    world.get_mut("c").node_healthy = Some(false);
    let Decision::Wait(held, 5) = decide(&input(&world)) else { panic!() };
    assert_eq!(
        held.to_string(),
        "waiting for etcd: 2 of 3 etcd members are up; 1 of 2 would be left and 2 are needed"
    );
    // The one that is down may go.
    let down = world.get("c").clone();
    assert!(matches!(decide(&Input { machine: &down, ..input(&world) }), Decision::RemoveMember { .. }));
}

#[test]
fn the_last_member_stays() {
    let mut world = settled("b:ecw");
    world.delete("b");
    let Decision::Wait(held, _) = decide(&input(&world)) else { panic!() };
    assert_eq!(held.to_string(), "waiting for etcd: it is the last etcd member");
}

#[test]
fn a_machine_without_a_node_goes_unless_its_member_is_needed() {
    let mut world = settled("a:ecw b:ecw c:ecw");
    world.get_mut("b").node = None;
    assert_eq!(decide(&input(&world)), Decision::RemoveHook(Gone::NeverJoined));
    world.get_mut("c").node_healthy = Some(false);
    assert!(matches!(decide(&input(&world)), Decision::Wait(Held::Quorum(_), 5)));
    world.secret("b").data.clear();
    assert_eq!(decide(&input(&world)), Decision::RemoveHook(Gone::NeverJoined));
}
