//! What holds for every sequence of writes.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{World, object};
use crate::{
    fields::{PathElement, Set, json::parse},
    managed, meta,
    typed::{Typed, compare},
};

/// A random spec that fits the schema.
fn spec() -> impl Strategy<Value = Value> {
    let ports = prop::collection::btree_map("[abc]", (0..2_i64, any::<bool>()), 0..3).prop_map(|ports| {
        let port = |(name, (port, target)): (String, (i64, bool))| {
            let mut item = json!({"name": name, "port": port});
            if target {
                item["target"] = json!("t");
            }
            item
        };
        ports.into_iter().map(port).collect::<Vec<Value>>()
    });
    let texts = || prop::collection::btree_map("[abc]", "[xy]", 0..3);
    let parts = (
        prop::option::of("[xy]"),
        prop::option::of(0..2_i64),
        prop::option::of(texts()),
        prop::option::of(ports.prop_shuffle()),
        prop::option::of(prop::collection::btree_set("[abc]", 0..3)),
        prop::option::of(texts()),
        prop::option::of(texts()),
        prop::option::of(prop::collection::vec("[ab]", 0..3)),
    );
    parts.prop_map(|(color, size, labels, ports, set, nested, free, args)| {
        let mut spec = Map::new();
        let mut put = |key: &str, value: Option<Value>| value.map(|value| spec.insert(key.to_owned(), value));
        put("color", color.map(Value::from));
        put("size", size.map(Value::from));
        put("labels", labels.map(|map| json!(map)));
        put("ports", ports.map(Value::from));
        put("set", set.map(|set| json!(set)));
        put(
            "nested",
            nested.map(|map| {
                map.into_iter()
                    .filter(|(key, _)| key != "c")
                    .map(|(key, value)| (key, Value::from(value)))
                    .collect()
            }),
        );
        put("free", free.map(|map| json!(map)));
        put("args", args.map(Value::from));
        Value::Object(spec)
    })
}

#[derive(Debug, Clone)]
enum Step {
    Put(usize, Value),
    Apply(usize, Value, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3_usize, spec()).prop_map(|(manager, spec)| Step::Put(manager, spec)),
        (0..3_usize, spec(), any::<bool>())
            .prop_map(|(manager, spec, force)| Step::Apply(manager, spec, force)),
    ]
}

const MANAGERS: [&str; 3] = ["m0", "m1", "m2"];

fn run(steps: Vec<Step>) -> World {
    let mut world = World::new();
    for step in steps {
        match step {
            Step::Put(manager, spec) => world.put(MANAGERS[manager], spec),
            Step::Apply(manager, spec, force) => {
                let _ = world.try_apply(MANAGERS[manager], spec, force);
            }
        }
    }
    world
}

/// Whether the path or anything below it is in the set.
fn leads_to(set: &Set<'_>, path: &[PathElement<'_>]) -> bool {
    match path.split_first() {
        None => true,
        Some((first, rest)) => set.get(first).is_some_and(|node| leads_to(&node.children, rest)),
    }
}

/// Every entry's set.
fn sets(object: &Value) -> Vec<Set<'_>> {
    let entries = managed::of(object).and_then(Value::as_array).into_iter().flatten();
    entries.map(|entry| parse(&entry["fieldsV1"]).expect("readable fields")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn entries_are_canonical_own_something_and_only_what_exists(steps in prop::collection::vec(step(), 1..6)) {
        let world = run(steps);
        let Some(object) = &world.object else { return Ok(()) };
        let mut present = compare::every(object, Typed::Root(Some(&world.schema)));
        meta::strip(&mut present);
        for (index, set) in sets(object).iter().enumerate() {
            prop_assert!(!set.is_empty());
            let entry = &managed::of(object).expect("managed")[index];
            prop_assert_eq!(&set.to_json(), &entry["fieldsV1"]);
            prop_assert!(set.is_subset(&present), "{} in {}", entry, object);
        }
    }

    #[test]
    fn applying_twice_is_a_no_op(steps in prop::collection::vec(step(), 0..5), spec in spec()) {
        let mut world = run(steps);
        world.try_apply("m0", spec.clone(), true).expect("forced");
        let before = world.live().clone();
        world.apply("m0", spec);
        prop_assert_eq!(world.live(), &before);
    }

    #[test]
    fn an_applied_configuration_is_found_in_the_object(steps in prop::collection::vec(step(), 0..5), spec in spec()) {
        let mut world = run(steps);
        world.try_apply("m0", spec.clone(), true).expect("forced");
        let configuration = object(spec);
        let typed = Typed::Root(Some(&world.schema));
        let stated = compare::stated(&configuration, typed);
        prop_assert!(stated.is_subset(&compare::every(world.live(), typed)));
        let difference = compare::difference(&configuration, world.live(), typed);
        prop_assert!(difference.removed.is_empty());
        // Nothing that was stated has another value.
        for path in stated.leaves().paths() {
            prop_assert!(!difference.changed.has(&path), "{:?}", path);
        }
    }

    #[test]
    fn appliers_of_different_fields_never_conflict(steps in prop::collection::vec(spec(), 1..5)) {
        let mut world = World::new();
        for (index, mut spec) in steps.into_iter().enumerate() {
            let keys: &[&str] = if index % 2 == 0 { &["color", "labels", "ports", "free"] } else { &["size", "set", "nested", "args"] };
            spec.as_object_mut().expect("a spec").retain(|key, _| keys.contains(&key.as_str()));
            world.apply(MANAGERS[index % 2], spec);
        }
    }

    #[test]
    fn a_stated_leaf_left_out_goes_iff_nobody_else_owns_it(first in spec(), second in spec(), third in spec()) {
        let mut world = World::new();
        world.apply("m0", first);
        world.try_apply("m1", second, true).expect("forced");
        let before = world.live().clone();
        world.try_apply("m0", third.clone(), true).expect("forced");
        let typed = Typed::Root(Some(&world.schema));
        let configuration = object(third);
        let stated = compare::stated(&configuration, typed);
        let present = compare::every(world.live(), typed);
        let entries = managed::of(&before).and_then(Value::as_array).cloned().unwrap_or_default();
        let set_of = |manager: &str| {
            let entry = entries.iter().find(|entry| entry["manager"] == manager);
            entry.map(|entry| entry["fieldsV1"].clone()).unwrap_or_else(|| json!({}))
        };
        let (own, other) = (set_of("m0"), set_of("m1"));
        let (own, other) = (parse(&own).expect("own"), parse(&other).expect("other"));
        for path in own.leaves().paths() {
            let kept = leads_to(&stated, &path) || leads_to(&other, &path);
            prop_assert_eq!(present.has(&path), kept, "{:?}", path);
        }
    }

    #[test]
    fn a_forgotten_list_can_be_anything(list in wild(), spec in spec(), object in wild()) {
        let mut world = World::new();
        world.put("m0", json!({"color": "x"}));
        let mut live = world.live().clone();
        live["metadata"]["managedFields"] = list;
        world.store("m1", live.clone());
        // Even a stored list and object of any shape must not bring a write down.
        world.object = Some(live);
        world.put("m2", spec.clone());
        let _ = world.try_apply("m0", spec.clone(), true);
        world.object = Some(object);
        let _ = world.try_apply("m0", spec, false);
    }
}

fn wild() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        (0..3).prop_map(Value::from),
        "f:[ab]|Apply|x".prop_map(Value::from)
    ];
    let key = prop_oneof![
        Just("f:a"),
        Just("k:{\"a\":1}"),
        Just("v:1"),
        Just("."),
        Just("fieldsV1"),
        Just("operation"),
        Just("metadata"),
        Just("spec"),
        Just("ports"),
        Just("x")
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..4)
                .prop_map(|map| map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}
